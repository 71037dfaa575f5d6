"""Hostile zips: the whole is refused, or the files that are presets are read; nothing is ever written."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from kvplan.hardware import define_gpu
from kvplan.library import GPU, MAX_ZIP_BYTES, MAX_ZIP_FILES, MAX_ZIP_TOTAL, read_zip
from kvplan.presets import dump_toml
from kvplan.units import GIB

CARD = dump_toml(GPU.to_table(define_gpu(name="A card", usable_bytes=24 * GIB)))
LINK, DEVICE, PIPE = 0o120777, 0o060777, 0o010777


def zipped(*files: tuple[str, str | bytes], method: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, data in files:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type, info.external_attr = name, method, mode << 16
            packed.writestr(info, data)
    return out.getvalue()


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    """Every `old` in a zip replaced by `new` of the same length, so that all its positions stay right."""
    assert old in data
    assert len(old) == len(new)
    return data.replace(old, new)


def declared(size: int) -> bytes:
    """A zip whose directory says that its file has `size` bytes."""
    data = zipped(("card.toml", CARD))
    return changed(data, struct.pack("<I", len(CARD.encode())), struct.pack("<I", size))


def flagged(bit: int) -> bytes:
    data = bytearray(zipped(("card.toml", CARD)))
    directory = data.index(b"PK\x01\x02")
    data[6], data[directory + 8] = bit, bit
    return bytes(data)


def in_itself() -> bytes:
    data = zipped(("card.toml", CARD))
    for level in range(20):
        data = zipped((f"{level}.zip", data), method=zipfile.ZIP_STORED)
    return data


def overlapping() -> bytes:
    """One large file under two hundred names: every entry of the directory points at the same bytes."""
    single = zipped(("a00.toml", b" " * 10_000))
    start = single.index(b"PK\x01\x02")
    end = single.index(b"PK\x05\x06")
    entries = [single[start:end].replace(b"a00", f"{index:03}".encode()) for index in range(300)]
    size = sum(map(len, entries))
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 300, 300, size, start, 0)
    return single[:start] + b"".join(entries) + tail


def directory_of(count: int) -> bytes:
    """A zip that is nothing but a directory of `count` files."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0)
    entries = b"".join(entry + f"{index:05}".encode() for index in range(count))
    return entries + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count % 2**16, count % 2**16, len(entries), 0, 0)


REFUSED: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"hello",
    "only an end": lambda: b"PK\x05\x06",
    "an end that points nowhere": lambda: b"PK\x05\x06" + b"\xff" * 18,
    "cut short": lambda: zipped(("card.toml", CARD))[:-30],
    "a tar": lambda: b"card.toml" + b"\0" * 1024,
    "gzip": lambda: b"\x1f\x8b\x08" + b"\0" * 100,
    "too large": lambda: b"PK\x03\x04" + b"\0" * MAX_ZIP_BYTES,
    "too many files": lambda: zipped(*((f"{index}.toml", "") for index in range(MAX_ZIP_FILES + 1))),
    "a directory of 80,000 files": lambda: directory_of(80_000),
    "a bomb": lambda: zipped(("card.toml", b"\0" * 50_000_000)),
    "a bomb of many files": lambda: zipped(*((f"{index}.toml", b"a = 1\n" * 10_000) for index in range(60))),
    "more than is allowed in all": lambda: zipped(*((f"{i}.txt", bytes(range(256)) * 256) for i in range(40))),
    "overlapping files": overlapping,
    "a size of 4 GiB": lambda: declared(2**32 - 2),
    "path up": lambda: zipped(("../card.toml", CARD)),
    "path up inside": lambda: zipped(("gpus/../../card.toml", CARD)),
    "path up with other slashes": lambda: zipped(("gpus\\..\\..\\card.toml", CARD)),
    "absolute path": lambda: zipped(("/tmp/card.toml", CARD)),
    "drive": lambda: zipped(("C:/card.toml", CARD)),
    "share": lambda: zipped(("\\\\host\\card.toml", CARD)),
    "zero in a name": lambda: changed(zipped(("cardx.toml", CARD)), b"cardx", b"card\0"),
    "escape code in a name": lambda: zipped(("\x1b[31m.toml", CARD)),
    "right to left": lambda: zipped(("\u202elmot.toml", CARD)),
    "a symbolic link": lambda: zipped(("card.toml", "/etc/passwd"), mode=LINK),
    "a device": lambda: zipped(("card.toml", ""), mode=DEVICE),
    "a pipe": lambda: zipped(("card.toml", ""), mode=PIPE),
    "a file twice": lambda: changed(zipped(("a.toml", CARD), ("b.toml", CARD)), b"b.toml", b"a.toml"),
    "encrypted": lambda: flagged(1),
    "packed with bzip2": lambda: zipped(("card.toml", CARD), method=zipfile.ZIP_BZIP2),
    "packed with lzma": lambda: zipped(("card.toml", CARD), method=zipfile.ZIP_LZMA),
    "a wrong checksum": lambda: changed(
        zipped(("card.toml", CARD), method=zipfile.ZIP_STORED), b"A card", b"B card"
    ),
    "a size that is too small": lambda: declared(10),
    "an unknown method": lambda: changed(zipped(("a.toml", CARD)), b"\x08\0\0\0\x21\0", b"\x63\0\0\0\x21\0"),
}  # fmt: skip

LEFT_OUT: dict[str, Callable[[], bytes]] = {
    "a zip inside": in_itself,
    "a program": lambda: zipped(("evil.py", "import os")),
    "a pickle": lambda: zipped(("evil.pkl", b"\x80\x04.")),
    "a hidden file": lambda: zipped((".lock", "")),
    "hostile names": lambda: zipped(("<script>.toml", CARD), ("$(id).toml", CARD), ("A B.toml", CARD)),
    "a file too large for a preset": lambda: zipped(("big.toml", "#" * 70_000), method=zipfile.ZIP_STORED),
    "broken toml": lambda: zipped(*((f"{index}.toml", "a = [") for index in range(500))),
    "keys of many parts": lambda: zipped(
        *((f"{i}.toml", "a." * 5_000 + f"k{i} = 1") for i in range(50)), method=zipfile.ZIP_STORED
    ),
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_hostile_zip_is_refused_with_a_sentence(bounds: Any, data: Callable[[], bytes]) -> None:
    upload = data()
    assert "zip" in bounds.refusal(lambda: read_zip(upload))


@pytest.mark.parametrize("data", LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_hostile_file_of_a_zip_is_left_out_with_a_sentence(bounds: Any, data: Callable[[], bytes]) -> None:
    upload = data()
    found = bounds.run(lambda: read_zip(upload))
    assert found.presets == ()
    assert found.troubles
    for trouble in found.troubles:
        bounds.sentence(trouble)


def test_the_limits_of_a_zip_hold_every_preset_that_is_shipped_twice() -> None:
    assert MAX_ZIP_FILES >= 500
    assert MAX_ZIP_TOTAL >= 2 * 2**20
