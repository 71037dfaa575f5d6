"""The header of a GGUF file: its keys, and name, shape and type of every tensor. Tensors themselves are never read.

Layout (version 2 and 3, little-endian): magic, version, number of tensors, number of keys, the keys with their
values, the tensors, then padding up to the tensor data. Every length stands in the file and may lie, so each is
checked against what is left before anything is read. Documented in https://github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO, NamedTuple

from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.errors import ConfigError, DtypeError, UnsupportedConfigError, shorten
from kvplan.units import MIB, counted

MAX_HEADER_BYTES = 512 * MIB
MAX_TENSORS = 20_000
MAX_KEYS = 10_000
MAX_TEXTS = 1_500_000
"""Texts in all lists of one header: the largest vocabularies with their merges have 0.8 million."""
MAX_KEPT_VALUES = 10_000
"""Longer lists (scores and kinds of tokens) are counted and skipped, and so is what comes after MAX_KEPT_IN_ALL."""
MAX_KEPT_IN_ALL = 200_000
MAX_KEPT_TEXT = 4_096
MAX_TENSOR_BYTES = 2**50

_KEEP_ASIDE = 65_536

_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip
_PLAIN = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}

TENSOR_TYPES: dict[int, StorageFormat] = {
    number: WEIGHT_FORMATS[_PLAIN.get(name, f"gguf_{name}")] for number, name in _TYPES.items()
}
"""The storage of each type number that a file may use; the missing numbers were withdrawn, or are never stored."""

Scalar = int | float | bool | str


class Values(NamedTuple):
    """A list: how many entries it has, and the entries themselves where they are few numbers, else None."""

    length: int
    entries: tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `shape` is in the file's order, input features first."""

    name: str
    shape: tuple[int, ...]
    storage: StorageFormat
    offset: int

    @property
    def bytes(self) -> int:
        """Bytes of the tensor without padding. Raises DtypeError where its rows do not fill whole blocks."""
        return self.storage.matrix_bytes(prod(self.shape[1:]), self.shape[0])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before the tensor data.

    where       the file's name, for messages
    keys        value of every key
    tensors     in the order of the file
    data_start  where the tensor data begins
    """

    where: str
    keys: Mapping[str, Scalar | Values]
    tensors: tuple[GgufTensor, ...]
    data_start: int


def read_gguf_header(file: BinaryIO, where: str, available: int, file_bytes: int | None) -> GgufHeader:
    """The header at the start of `file`.

    available   bytes that can be read
    file_bytes  bytes of the whole file; None where that is not known, and then no tensor is checked against it

    Raises ConfigError where a length lies or a value makes no sense, UnsupportedConfigError for a version or a
    tensor type that is not known.
    """
    source = _Source(file, where, available, file_bytes)
    _check_magic(source)
    num_tensors = source.count("tensors", "Q", MAX_TENSORS, smallest=24)
    num_keys = source.count("keys", "Q", MAX_KEYS, smallest=13)
    keys = _read_keys(source, num_keys)
    tensors = tuple(_read_tensor(source) for _ in range(num_tensors))
    alignment = _alignment(source, keys)
    start = _padded(source.position, alignment)
    _check_layout(source, tensors, start, alignment)
    return GgufHeader(where, keys, tensors, start)


class _Source:
    """The bytes of a header; every length is checked against what is left before it is read."""

    def __init__(self, file: BinaryIO, where: str, available: int, file_bytes: int | None) -> None:
        self.where, self.file_bytes, self.position, self.texts, self.kept = where, file_bytes, 0, 0, 0
        self._file, self._end = file, min(available, MAX_HEADER_BYTES)

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.where}: {text}")

    def unsupported(self, text: str) -> UnsupportedConfigError:
        return UnsupportedConfigError(f"{self.where}: {text}")

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises ConfigError where there are fewer."""
        data = self._file.read(size) if size <= self._end - self.position else b""
        if len(data) < size:
            raise self._cut_short(size)
        self.position += size
        return data

    def skip(self, size: int) -> None:
        """Jump over `size` bytes."""
        if size > self._end - self.position:
            raise self._cut_short(size)
        self._file.seek(size, os.SEEK_CUR)
        self.position += size

    def _cut_short(self, size: int) -> ConfigError:
        at = f"its header asks for {size:,} bytes at byte {self.position:,}"
        if self.file_bytes is not None and self._end >= self.file_bytes:
            return self.error(f"{at}, but the file ends at {self._end:,}")
        return self.error(f"{at}, beyond the {self._end:,} that are read of it; import the whole file in the terminal")

    def number(self, code: str) -> int | float:
        value: int | float = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return value

    def count(self, what: str, code: str, most: int, smallest: int) -> int:
        """A number of things of at least `smallest` bytes each, which must fit into what is left."""
        found = int(self.number(code))
        if found > most:
            raise self.error(f"it claims {found:,} {what}; {most:,} are possible")
        if found * smallest > self._end - self.position:
            raise self._cut_short(found * smallest)
        return found

    def text(self, what: str, most: int) -> str:
        """A text of at most `most` bytes that must be UTF-8."""
        size = int(self.number("Q"))
        if size > most:
            raise self.error(f"{what} at byte {self.position:,} is {size:,} bytes long; at most {most:,} can be")
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} at byte {self.position - size:,} is not UTF-8 text") from None

    def skip_texts(self, count: int) -> None:
        """Walk over `count` texts, each behind its length: the longest part of reading a header."""
        self.texts += count
        if self.texts > MAX_TEXTS:
            raise self.error(f"its lists hold over {MAX_TEXTS:,} texts")
        read, left = self._file.read, self._end - self.position
        for _ in range(count):
            size = int.from_bytes(read(8), "little")
            left -= 8 + size
            if left < 0:
                self.position = self._end - left - size
                raise self._cut_short(size)
            if size <= _KEEP_ASIDE:  # a buffered file reads these faster than it jumps
                read(size)
            else:
                self._file.seek(size, os.SEEK_CUR)
        self.position = self._end - left


def _check_magic(source: _Source) -> None:
    if source.take(4) != b"GGUF":
        raise source.error("it does not begin with GGUF, as every GGUF file does")
    version = int(source.number("I"))
    if version % 2**16 == 0 and version:
        raise source.unsupported("it is a big-endian GGUF file; only little-endian files are read")
    if version not in (2, 3):
        raise source.unsupported(f"it is GGUF version {version}; versions 2 and 3 are read")


# --------------------------------------------------------------------------------------------------------- keys


def _read_keys(source: _Source, count: int) -> dict[str, Scalar | Values]:
    keys: dict[str, Scalar | Values] = {}
    for _ in range(count):
        name = source.text("a key", MAX_KEPT_TEXT)
        if name in keys:
            raise source.error(f"the key {shorten(name)} stands twice")
        keys[name] = _value(source, name, int(source.number("I")))
    return keys


_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9


def _value(source: _Source, name: str, kind: int) -> Scalar | Values:
    if kind in _NUMBERS:
        return source.number(_NUMBERS[kind])
    if kind in (_TEXT, _LIST):
        return _COMPOUND[kind](source, name)
    raise source.error(f"{shorten(name)} is of type {kind}, which GGUF does not have")


def _text_value(source: _Source, name: str) -> str:
    """A text; a long one (a chat template) is jumped over."""
    size = int(source.number("Q"))
    if size > MAX_KEPT_TEXT:
        source.skip(size)
        return ""
    return source.take(size).decode("utf-8", errors="replace")


def _list_value(source: _Source, name: str) -> Values:
    kind = int(source.number("I"))
    if kind == _TEXT:
        count = source.count(f"texts in {shorten(name)}", "Q", MAX_TEXTS, smallest=8)
        source.skip_texts(count)
        return Values(count, None)
    if kind not in _NUMBERS:
        raise source.error(f"{shorten(name)} is a list of type {kind}; lists of numbers or texts are known")
    width = struct.calcsize("<" + _NUMBERS[kind])
    count = source.count(f"values in {shorten(name)}", "Q", MAX_HEADER_BYTES, smallest=width)
    if count > MAX_KEPT_VALUES or source.kept + count > MAX_KEPT_IN_ALL:
        source.skip(count * width)
        return Values(count, None)
    source.kept += count
    return Values(count, struct.unpack(f"<{count}{_NUMBERS[kind]}", source.take(count * width)))


_COMPOUND: dict[int, Callable[[_Source, str], Scalar | Values]] = {_TEXT: _text_value, _LIST: _list_value}


def _alignment(source: _Source, keys: Mapping[str, Scalar | Values]) -> int:
    found = keys.get("general.alignment", 32)
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= MIB or found & (found - 1):
        raise source.error(f"general.alignment is {shorten(found)}; a power of two up to {MIB:,} is needed")
    return found


# ------------------------------------------------------------------------------------------------------ tensors


def _read_tensor(source: _Source) -> GgufTensor:
    name = source.text("a tensor's name", 256)
    dimensions = int(source.number("I"))
    if not 1 <= dimensions <= 4:
        raise source.error(f"{shorten(name)} has {dimensions} dimensions; 1 to 4 are possible")
    shape = struct.unpack(f"<{dimensions}Q", source.take(8 * dimensions))
    kind, offset = int(source.number("I")), int(source.number("Q"))
    if kind not in TENSOR_TYPES:
        raise source.unsupported(f"{shorten(name)} is of tensor type {kind}, whose size is not known")
    tensor = GgufTensor(name, shape, TENSOR_TYPES[kind], offset)
    _check_size(source, tensor)
    return tensor


def _check_size(source: _Source, tensor: GgufTensor) -> None:
    try:
        size = tensor.bytes
    except DtypeError as error:
        raise source.error(f"{shorten(tensor.name)}: {error}") from None
    if min(tensor.shape) < 1 or size > MAX_TENSOR_BYTES:
        shape = shorten(" x ".join(map(str, tensor.shape)))
        raise source.error(f"{shorten(tensor.name)} is of the shape {shape}, which no tensor has")


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _check_layout(source: _Source, tensors: Sequence[GgufTensor], start: int, alignment: int) -> None:
    """Tensors must follow each other without gap or overlap, inside the file, each under a name of its own."""
    expected, end = 0, 0
    for tensor in tensors:
        if tensor.offset != expected:
            raise source.error(f"{shorten(tensor.name)} starts at {tensor.offset:,} of the data, not at {expected:,}")
        end = start + expected + tensor.bytes
        expected = _padded(expected + tensor.bytes, alignment)
    if source.file_bytes is not None and end > source.file_bytes:
        raise source.error(f"its tensors end at byte {end:,}, but the file has {counted(source.file_bytes, 'byte')}")
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise source.error("two of its tensors have the same name")
