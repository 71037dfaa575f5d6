"""Numbers as people write and read them: bytes, counts, axes. Formatting lives here and nowhere else.

GiB is 2**30 bytes and GB is 10**9 bytes; the two are never mixed. Bytes are ints from end to end, and only
the text made here is rounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from kvplan.errors import InputError, quoted, shorten

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

BINARY_UNITS = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
DECIMAL_UNITS = (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB))
UNIT_BYTES = {"B": 1, **dict(BINARY_UNITS), **dict(DECIMAL_UNITS), "KB": KB}

EXACT_FLOAT = 2**53
"""A float counts whole numbers exactly up to here, and so does a browser."""

MAX_COUNT = 2**40
"""No context, batch or head count is larger; beyond it a number is a slip of the hand, and int64 is at risk."""

MAX_AXIS_VALUES = 20_000
"""The most values that one written axis may have."""

# Patterns are text: `re` compiles each when it is first used, so that an import of kvplan stays light.
_COUNT = r"(\d{1,30}(?:\.\d{1,30})?)\s*([kKmM]?)"
_COUNT_SUFFIX = {"": 1, "k": 2**10, "m": 2**20}
_RANGE = r"(.+?)\.\.(.+?)(?:([*+])(.+))?"
_BYTES = r"(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]+)?"


def whole_number(value: object, name: str, low: int = 1, high: int = MAX_COUNT) -> int:
    """`value` as an int between `low` and `high`.

    NumPy integers are accepted; bools, floats and text are refused, since each hides a guess.

    Raises InputError with the name, what was found and what is accepted.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} is {quoted(value)}; a whole number is needed") from None
    if isinstance(value, bool):
        raise InputError(f"{name} is {value}; a whole number is needed")
    if not low <= number <= high:
        raise InputError(f"{name} is {shorten(number)}; it must be from {low:,} to {high:,}")
    return number


def listed(given: object, name: str, what: str = "a list of values") -> list[Any]:
    """The values of a list, or of whatever else holds values in a row; a text, bytes or a dict is none.

    Raises InputError with the name, what was found and `what` is accepted.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{name} is {quoted(given)}; {what} is needed")
    return list(given)


def require_kind(given: object, name: str, kind: type) -> None:
    """Raise InputError unless `given` is one of `kind`."""
    if not isinstance(given, kind):
        raise InputError(f"{name} is {quoted(given)}; a {kind.__name__} is needed")


def require_text(given: object, name: str) -> None:
    """Raise InputError unless `given` is a text."""
    if not isinstance(given, str):
        raise InputError(f"{name} is {quoted(given)}; a text is needed")


def parse_count(text: str, name: str = "number", low: int = 0) -> int:
    """A count of at least `low` as people write it: `8192`, `32k` (32 x 1,024) or `1.5k`; never rounded."""
    require_text(text, name)
    found = re.fullmatch(_COUNT, text.strip().replace("_", ""))
    if found is None or not text.isascii():
        raise InputError(f"{name} is {shorten(text)!r}; write a whole number such as 8192 or 32k")
    exact = Fraction(found[1]) * _COUNT_SUFFIX[found[2].lower()]
    if exact.denominator != 1:
        raise InputError(f"{name} {shorten(text)!r} is not a whole number")
    return whole_number(exact.numerator, name, low)


def parse_axis(text: str, name: str = "axis") -> list[int]:
    """The values of a sweep axis: `1k,4k,32k`, `1..64` (steps of one), `1..64*2` (doubling), `0..90+10`.

    Values come back in the order written, each once. Raises InputError.
    """
    require_text(text, name)
    values: dict[int, None] = {}
    for item in text.split(","):
        for value in _axis_item(item, name):
            values[value] = None
            if len(values) > MAX_AXIS_VALUES:
                raise InputError(f"{name} {shorten(text)!r} has over {MAX_AXIS_VALUES:,} values; use a larger step")
    return list(values)


def _axis_item(item: str, name: str) -> range | list[int]:
    found = re.fullmatch(_RANGE, item.strip())
    if found is None:
        return [parse_count(item, name)]
    first, last = parse_count(found[1], name), parse_count(found[2], name)
    if last < first:
        raise InputError(f"{name} {shorten(item)!r} runs backwards")
    step = parse_count(found[4], name) if found[3] else 1
    if found[3] == "*":
        return _doubling(first, last, step, name)
    return range(first, last + 1, whole_number(step, f"the step of {name}"))


def _doubling(first: int, last: int, factor: int, name: str) -> list[int]:
    whole_number(first, f"the start of {name}")
    whole_number(factor, f"the factor of {name}", low=2)
    values = []
    while first <= last:
        values.append(first)
        first *= factor
    return values


def parse_bytes(text: str, name: str = "size") -> int:
    """A size with its unit, such as `24 GiB`, `15.6GiB` or `512MiB`, down to a whole byte; a bare number is bytes.

    Raises InputError.
    """
    require_text(text, name)
    found = re.fullmatch(_BYTES, text.strip().replace("_", ""))
    unit = UNIT_BYTES.get(found[2] or "B") if found and text.isascii() else None
    if found is None or unit is None:
        raise InputError(f"{name} is {shorten(text)!r}; write a size such as 24GiB, 24GB or 512MiB")
    exact = Fraction(found[1]) * unit
    if unit == 1 and exact.denominator != 1:
        raise InputError(f"{name} {shorten(text)!r} is not a whole number of bytes; write a size such as 24GiB")
    return int(exact)


def write_bytes(count: int) -> str:
    """`count` bytes exactly, as `parse_bytes` reads it, in the unit in which it is shortest: `16GiB`, `320GB`."""
    units = (*BINARY_UNITS, *DECIMAL_UNITS, ("B", 1))
    return min((f"{count // size}{name}" for name, size in units if count % size == 0), key=len)


def format_bytes_a_token(count: int | Fraction) -> str:
    """Bytes that a token adds: whole, or with one decimal where tokens share entries."""
    return f"{count:,} B" if isinstance(count, int) else f"{float(count):,.1f} B"


def format_bytes(count: int, unit: str | None = None, decimal: bool = False) -> str:
    """`count` bytes as text: in `unit` where one is given, else in the largest unit that keeps it at 1 or more."""
    if unit is not None:
        return f"{_three_digits(Fraction(count, UNIT_BYTES[unit]))} {unit}"
    short = 20_000 if decimal else 2048  # what rounds to 1,000 or 1,024 of a unit is 1.00 of the next
    for name, size in DECIMAL_UNITS if decimal else BINARY_UNITS:
        if abs(count) >= size - size // short:
            return f"{_three_digits(Fraction(count, size))} {name}"
    return f"{count:,} B"


def _three_digits(value: Fraction) -> str:
    """At least three significant digits; whole digits are never dropped."""
    size = abs(value)
    places = 2 if size * 1000 < 9995 else 1 if size * 100 < 99995 else 0  # 9.995 rounds to 10.0
    return f"{float(value):,.{places}f}"


def format_exact_bytes(count: int, decimal: bool = False) -> str:
    """Both the rounded and the exact form, for hovers and tables: `1.25 GiB (1,342,177,280 B)`."""
    rounded = format_bytes(count, decimal=decimal)
    return rounded if rounded == f"{count:,} B" else f"{rounded} ({count:,} B)"


def format_hundredths(count: int, unit: str = "GiB") -> str:
    """`count` bytes in `unit` with two decimals, as a figure that is known to hundredths: `0.13 GiB`."""
    return f"{count / UNIT_BYTES[unit]:,.2f} {unit}"


def format_usd(price: float) -> str:
    """A price with two decimals, always: `$2.69`."""
    return f"${price:,.2f}"


def format_rate(price: float) -> str:
    """The price of one, with every digit that it is known to and two at the least: `$2.69`, `$0.1502`."""
    digits = len(f"{Decimal(repr(price)):f}".partition(".")[2])
    return f"${price:,.{max(2, digits)}f}"


def counted(count: int, word: str) -> str:
    """A number with its noun: `1 GPU`, `2 GPUs`, `1,024 tokens`, `2 matrices`."""
    return f"{count:,} {word if count == 1 else _PLURALS.get(word, word + 's')}"


def counted_and(count: int, word: str, verb: str) -> str:
    """A number with its noun and a verb, which is given as for many: `1 file is`, `2 files are`, `1 layer keeps`."""
    return f"{counted(count, word)} {agreeing(count, verb)}"


def agreeing(count: int, verb: str) -> str:
    """A verb, given as for many, as it stands with a number that it does not follow at once: `1 of 4 layers keeps`."""
    return _SINGULARS.get(verb, verb + "s") if count == 1 else verb


_SINGULARS = {"are": "is", "were": "was", "have": "has", "do": "does"}
_PLURALS = {"entry": "entries", "copy": "copies", "matrix": "matrices"}


def format_tokens(count: int) -> str:
    """A context length: `32K` where that is exact, else the digits."""
    for suffix, size in (("M", 2**20), ("K", 2**10)):
        if count >= size and count % size == 0:
            return f"{count // size}{suffix}"
    return f"{count:,}"


def format_params(count: int) -> str:
    """A parameter count with three significant digits: `8.03 B`, `671 B`, `124 M`."""
    for suffix, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count * 2000 >= size * 1999:  # it rounds to 1.00 of this unit
            value = Fraction(count, size)
            places = 2 if value * 1000 < 9995 else 1 if value * 100 < 9995 else 0  # 9.995 rounds to 10.0
            return f"{float(value):.{places}f} {suffix}"
    return str(count)
