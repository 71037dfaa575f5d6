"""What a safetensors checkpoint stores: an index, the header of a file, or those of all its parts.

An index (`model.safetensors.index.json`) states the bytes of all tensors and their names, but no shapes. The header
of a `.safetensors` file states names, shapes and types. Tensors themselves are never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import ConfigError, quoted, shorten
from kvplan.importer.files import is_folder, json_object, read_start
from kvplan.units import counted

MAX_INDEX_BYTES = 32 * 2**20
"""The index of DeepSeek V3 with its 91,991 tensors has 9 MiB."""
MAX_HEADER_BYTES = 16 * 2**20
MAX_NAMES = 1_000_000
MAX_PARTS = 10_000

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64), **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6), "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a header."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """What a checkpoint stores.

    where       the file's name, for messages
    total_size  bytes of all tensors
    names       of all tensors
    tensors     each tensor where a header was read; empty where only an index was
    """

    where: str
    total_size: int
    names: tuple[str, ...]
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict, hash=False)


class Beginning(NamedTuple):
    """The beginning of a file, as a browser sends it: its name, the bytes, and the size of the file where known."""

    name: str
    data: bytes
    file_bytes: int | None = None


def read_index(source: Mapping[str, Any] | str | Path | Index) -> Index:
    """What a checkpoint stores, from what is there of it: a parsed index, or the path of an index, of a `.safetensors`
    file (of several parts, any one of them), or of a folder with either. Raises ConfigError."""
    if isinstance(source, Index):
        return source
    if isinstance(source, Mapping):
        return _index(source, "the index")
    if not isinstance(source, str | Path):
        raise ConfigError(f"the index is {quoted(source)}; a path or a parsed object is needed")
    path = Path(source)
    if is_folder(path):
        return read_folder(path)
    if path.suffix == ".safetensors":
        return read_headers(_parts(path))
    data, where = read_start(path, MAX_INDEX_BYTES + 1), shorten(path.name)
    if len(data) > MAX_INDEX_BYTES:
        raise ConfigError(f"{where} is over {MAX_INDEX_BYTES // 2**20} MiB, too large for an index")
    return _index(json_object(data, where), where)


INDEX_NAME = "model.safetensors.index.json"


def read_folder(folder: Path) -> Index:
    """What a folder's `.safetensors` files store, or else its index.

    Raises ConfigError where it holds neither, or where the two name other tensors.
    """
    files, index = sorted(islice(folder.glob("*.safetensors"), MAX_PARTS)), folder / INDEX_NAME
    stated = read_index(index) if index.is_file() else None
    if stated is None and not files:
        raise ConfigError(f"{shorten(folder.name)} holds no {INDEX_NAME} and no .safetensors file")
    if not files and stated is not None:
        return stated
    found = read_headers(_whole(files))
    if stated is None:
        return found
    if missing := set(stated.names) ^ set(found.names):
        raise ConfigError(
            f"{shorten(folder.name)}: {INDEX_NAME} and the headers differ in {counted(len(missing), 'name')}, such as "
            f"{shorten(min(missing))}"
        )
    return found


def _whole(files: Sequence[Path]) -> list[Path]:
    """The files of one checkpoint: some folders hold a second one in another layout (`consolidated.safetensors`)."""
    part = next((path for path in files if _PART.fullmatch(path.name)), None)
    alone = [path for path in files if path.name == "model.safetensors"]
    return _parts(part) if part is not None else alone or list(files)


def _index(data: Mapping[str, Any], where: str) -> Index:
    metadata, names = data.get("metadata"), data.get("weight_map")
    if (
        not isinstance(names, Mapping)
        or not names
        or not all(isinstance(name, str) for name in islice(names, MAX_NAMES))
    ):
        raise ConfigError(f"{where}: lacks weight_map, an object with the name of each tensor")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer():  # some writers state 1.0e10
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total < 2**60:
        raise ConfigError(f"{where}: metadata.total_size is {quoted(total)}; a number of bytes is needed")
    return Index(where, total, tuple(names))


def read_header(path: str | Path) -> Index:
    """The header of one `.safetensors` file: name, shape and dtype of each tensor. Raises ConfigError."""
    path = Path(path)
    try:
        size = path.stat().st_size if path.is_file() else 0
        with path.open("rb") as file:
            start = file.read(8)
            data = start + file.read(min(int.from_bytes(start, "little"), MAX_HEADER_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shorten(path.name)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return read_beginning(Beginning(path.name, data, size))


def read_headers(paths: Sequence[Path]) -> Index:
    """The headers of all parts of a checkpoint as one. Raises ConfigError."""
    return _merged([read_header(path) for path in paths])


def read_beginnings(files: Sequence[Beginning]) -> Index:
    """As `read_headers`, where only the beginnings are at hand. Raises ConfigError where a part is missing."""
    if not files:
        raise ConfigError("no file is given; the beginning of a .safetensors file, or of all its parts, is needed")
    names = {Path(file.name).name for file in files}
    found = _PART.fullmatch(files[0].name)
    expected = {_part_name(found, number) for number in range(1, _count(found) + 1)} if found else {files[0].name}
    if missing := sorted(expected - names):
        raise ConfigError(
            f"{shorten(files[0].name)} is one of {counted(len(expected), 'part')}, of which {len(missing):,} are "
            f"missing: {shorten(', '.join(missing[:3]), 200)}"
        )
    if further := sorted(names - expected):
        raise ConfigError(f"{shorten(further[0])} is no part of the checkpoint that {shorten(files[0].name)} is of")
    return _merged([read_beginning(file) for file in files])


def read_beginning(file: Beginning) -> Index:
    """The header in the beginning of one `.safetensors` file. Raises ConfigError."""
    where, data, size = shorten(file.name), file.data, file.file_bytes
    length = int.from_bytes(data[:8], "little")
    most = MAX_HEADER_BYTES if size is None else min(size - 8, MAX_HEADER_BYTES)
    if len(data) < 8 or not 2 <= length <= most:
        raise ConfigError(
            f"{where}: its header claims {counted(length, 'byte')}; up to {MAX_HEADER_BYTES:,} in the file can be"
        )
    if len(data) < 8 + length:
        raise ConfigError(
            f"{where}: its header has {counted(length, 'byte')}, and only the first {len(data):,} of the file came"
        )
    found = json_object(data[8 : 8 + length], where)
    found.pop("__metadata__", None)
    tensors = {name: _tensor(where, name, value) for name, value in found.items()}
    end = _end_of_data(where, [tuple(value["data_offsets"]) for value in found.values()])
    if size is not None and 8 + length + end != size:
        raise ConfigError(f"{where}: its tensors end at byte {8 + length + end:,}; the file has {size:,} bytes")
    return Index(where, end, tuple(tensors), tensors)


def _end_of_data(where: str, spans: Iterable[tuple[int, int]]) -> int:
    """Bytes of the data. Raises ConfigError where tensors overlap or leave a gap."""
    end = 0
    for begin, finish in sorted(spans):
        if begin != end:
            raise ConfigError(f"{where}: its tensors leave a gap or overlap at byte {begin:,} of the data")
        end = finish
    return end


def _merged(headers: Sequence[Index]) -> Index:
    """Several headers as one. Raises ConfigError where two hold a tensor of the same name."""
    tensors: dict[str, StoredTensor] = {}
    for header in headers:
        if twins := tensors.keys() & header.tensors.keys():
            raise ConfigError(f"{header.where}: {shorten(min(twins))} stands in another part too")
        tensors |= header.tensors
        if len(tensors) > MAX_NAMES:
            raise ConfigError(f"{header.where}: the parts hold over {MAX_NAMES:,} tensors")
    where = headers[0].where if len(headers) == 1 else f"{headers[0].where} and {len(headers) - 1:,} more"
    return Index(where, sum(header.total_size for header in headers), tuple(tensors), tensors)


_PART = re.compile(r"(.{1,200})-(\d{5})-of-(\d{5})\.safetensors")


def _part_name(found: re.Match[str], number: int) -> str:
    return f"{found[1]}-{number:05d}-of-{found[3]}.safetensors"


def _count(found: re.Match[str]) -> int:
    count = int(found[3])
    if not 1 <= count <= MAX_PARTS or not 1 <= int(found[2]) <= count:
        raise ConfigError(f"{shorten(found[0])}: a checkpoint has 1 to {MAX_PARTS:,} parts")
    return count


def _parts(path: Path) -> list[Path]:
    """All parts of the checkpoint that a file belongs to, in order. Raises ConfigError where one is missing."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    paths = [path.with_name(_part_name(found, number)) for number in range(1, _count(found) + 1)]
    if missing := [part.name for part in paths if not part.is_file()]:
        raise ConfigError(
            f"{shorten(path.name)} is one of {counted(len(paths), 'part')}, of which {len(missing):,} are missing: "
            f"{shorten(', '.join(missing[:3]), 200)}"
        )
    return paths


def _tensor(where: str, name: str, value: object) -> StoredTensor:
    shape, dtype = (value.get("shape"), value.get("dtype")) if isinstance(value, Mapping) else (None, None)
    whole = isinstance(shape, list) and len(shape) <= 16 and all(type(n) is int and 0 <= n < 2**48 for n in shape)
    if not whole or not isinstance(dtype, str) or dtype not in _BITS:
        raise ConfigError(
            f"{where}: {shorten(name)} has the shape {quoted(shape)} and the dtype {quoted(dtype)}; whole numbers and "
            "one of safetensors' dtypes are needed"
        )
    begin, end = _span(where, name, value)
    if (end - begin) * 8 != prod(shape) * _BITS[dtype]:  # type: ignore[arg-type]
        raise ConfigError(
            f"{where}: {shorten(name)} takes {end - begin:,} bytes, which its shape and dtype do not make"
        )
    return StoredTensor(tuple(shape), dtype, end - begin)  # type: ignore[arg-type]


def _span(where: str, name: str, value: object) -> tuple[int, int]:
    found = value.get("data_offsets") if isinstance(value, Mapping) else None
    if not isinstance(found, list) or len(found) != 2 or any(type(n) is not int or not 0 <= n < 2**60 for n in found):
        raise ConfigError(f"{where}: data_offsets of {shorten(name)} are {quoted(found)}; two numbers are needed")
    return found[0], found[1]
