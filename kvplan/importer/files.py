"""Reading what a person gives: a bounded start of a file, and the JSON object in it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from kvplan.errors import ConfigError, shorten

MAX_VALUES = 500_000
"""Of one JSON text: the index of a model with 96,000 tensors has some 100,000, a header six a tensor."""


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; a name that no file can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_start(path: Path, most: int) -> bytes:
    """At most `most` bytes of a file, since a device states no size and never ends. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shorten(path.name)} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def json_object(data: bytes, where: str, encoding: str = "utf-8", most: int = MAX_VALUES) -> dict[str, Any]:
    """The JSON object in `data`, of at most `most` values; a key that stands twice is refused. Raises ConfigError."""
    if sum(map(data.count, (b",", b"[", b"{"))) > most:  # each may cost a hundred bytes once it is parsed
        raise ConfigError(f"{where} holds over {most:,} values, several times as many as the largest known")
    try:
        found = json.loads(data.decode(encoding), object_pairs_hook=_without_twins, parse_int=_whole_number)
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8 text") from None
    except RecursionError:
        raise ConfigError(f"{where} is nested too deep to be read") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not valid JSON: {shorten(error, 120)}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{where} holds {_JSON_KINDS[type(found)]}; an object in braces is needed")
    return found


_JSON_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
}
"""What JSON may hold in place of an object, in words."""


MAX_DIGITS = 1_000


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:  # a number of so many digits takes long to read, and to write in a message
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose every key stands once: of two values one would be dropped in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twin = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {shorten(twin)!r} stands twice in one object")
    return found
