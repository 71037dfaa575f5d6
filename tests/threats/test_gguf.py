"""Hostile GGUF headers: every length in one may lie, and each lie is a sentence."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvplan.importer.gguf import import_gguf, import_gguf_beginnings, import_gguf_header
from kvplan.importer.headers import Beginning

UINT32, STRING, ARRAY, UINT64 = 4, 8, 9, 10


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: str, value: int) -> bytes:
    return key(name, UINT32, struct.pack("<I", value))


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
) -> bytes:
    counts = (len(tensors) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    return magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)


LLAMA = [
    key("general.architecture", STRING, text("llama")),
    number("llama.block_count", 1),
    number("llama.embedding_length", 64),
    number("llama.attention.head_count", 1),
]
DEEP = struct.pack("<IQ", ARRAY, 1) * 200_000

HEADERS: dict[str, bytes] = {
    "nothing": b"",
    "only the magic": b"GGUF",
    "another magic": gguf(magic=b"GGML"),
    "a zip": b"PK\x03\x04" + b"\0" * 100,
    "a pickle": b"\x80\x04\x95" + b"\0" * 100,
    "json": b'{"gguf": 1}' + b" " * 100,
    "version 0": gguf(version=0),
    "version 1": gguf(version=1),
    "version 4": gguf(version=4),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "no keys": gguf(),
    "keys that are not there": gguf(num_keys=5),
    "2^64 - 1 keys": gguf(num_keys=2**64 - 1),
    "2^64 - 1 tensors": gguf(num_tensors=2**64 - 1),
    "a million tensors": gguf(LLAMA, num_tensors=1_000_000),
    "a name without end": gguf([struct.pack("<Q", 2**63)], num_keys=1),
    "a name of 4 GiB": gguf([struct.pack("<Q", 2**32) + b"a" * 100], num_keys=1),
    "a name that is not utf-8": gguf([key("general.architecture", STRING, text(b"\xff\xfe"))]),
    "a name of html": gguf([key("general.architecture", STRING, text("<script>alert(1)</script>"))]),
    "a name of a path": gguf([key("general.architecture", STRING, text("../../etc/passwd"))]),
    "a name of escape codes": gguf([key("general.architecture", STRING, text("\x1b[31mllama"))]),
    "an architecture that is a number": gguf([number("general.architecture", 1)]),
    "an unknown kind": gguf([key("general.architecture", 99, b"\0" * 100)]),
    "a key twice": gguf([*LLAMA, LLAMA[0]]),
    "lists in lists": gguf([key("general.architecture", ARRAY, DEEP)]),
    "a list without end": gguf([key("a", ARRAY, struct.pack("<IQ", UINT32, 2**63))]),
    "a list of 2^60 texts": gguf([key("a", ARRAY, struct.pack("<IQ", STRING, 2**60))]),
    "a list of an unknown kind": gguf([key("a", ARRAY, struct.pack("<IQ", 77, 5) + b"\0" * 100)]),
    "no layers": gguf([LLAMA[0], number("llama.block_count", 0), *LLAMA[2:]]),
    "4 billion layers": gguf([LLAMA[0], number("llama.block_count", 2**32 - 1), *LLAMA[2:]]),
    "no heads": gguf([*LLAMA[:3], number("llama.attention.head_count", 0)]),
    "sizes of text": gguf([*LLAMA[:2], key("llama.embedding_length", STRING, text("64")), LLAMA[3]]),
    "alignment of zero": gguf([*LLAMA, number("general.alignment", 0)]),
    "alignment of 2^31": gguf([*LLAMA, number("general.alignment", 2**31)]),
    "no tensors": gguf(LLAMA),
    "a tensor of no dimensions": gguf(LLAMA, [tensor("token_embd.weight", ())]),
    "a tensor of 4 billion dimensions": gguf(LLAMA, [text("token_embd.weight") + struct.pack("<I", 2**32 - 1)]),
    "a tensor of no size": gguf(LLAMA, [tensor("token_embd.weight", (64, 0))]),
    "a tensor of 2^126 values": gguf(LLAMA, [tensor("token_embd.weight", (2**63, 2**63))]),
    "a tensor of an unknown type": gguf(LLAMA, [tensor("token_embd.weight", (64, 8), kind=200)]),
    "a tensor that does not fill its blocks": gguf(LLAMA, [tensor("token_embd.weight", (63, 8), kind=2)]),
    "a tensor far away": gguf(LLAMA, [tensor("token_embd.weight", (64, 8), offset=2**62)]),
    "a tensor of html": gguf(LLAMA, [tensor("<b>.weight", (64, 8))]),
    "a tensor twice": gguf(LLAMA, [tensor("token_embd.weight", (64, 8))] * 2),
    "two tensors in one place": gguf(LLAMA, [tensor("a", (64, 8)), tensor("b", (64, 8))]),
    "a tensor before the data": gguf(LLAMA, [tensor("a", (64, 8)), tensor("b", (64, 8), offset=2**64 - 32)]),
    "a part of 2^32 - 1": gguf([*LLAMA, number("split.count", 2**32 - 1)], [tensor("token_embd.weight", (64, 8))]),
    "a part of text": gguf([*LLAMA, key("split.count", STRING, text("2"))], [tensor("token_embd.weight", (64, 8))]),
    "a part of minus one": gguf(
        [*LLAMA, key("split.count", 5, struct.pack("<i", -1))], [tensor("token_embd.weight", (64, 8))]
    ),
    "heads of minus one": gguf([*LLAMA[:3], key("llama.attention.head_count", 5, struct.pack("<i", -1))]),
    "heads of NaN": gguf([*LLAMA[:3], key("llama.attention.head_count", 6, struct.pack("<f", float("nan")))]),
    "heads of infinity": gguf([*LLAMA[:3], key("llama.attention.head_count", 12, struct.pack("<d", float("inf")))]),
    "heads of 2^63": gguf([*LLAMA[:3], key("llama.attention.head_count", UINT64, struct.pack("<Q", 2**63))]),
    "a list of heads that are NaN": gguf(
        [*LLAMA[:3], key("llama.attention.head_count", ARRAY, struct.pack("<IQf", 6, 1, float("nan")))]
    ),
    "windows of NaN": gguf(
        [
            key("general.architecture", STRING, text("mimo2")),
            number("mimo2.block_count", 1),
            number("mimo2.embedding_length", 64),
            number("mimo2.attention.head_count", 1),
            key("mimo2.attention.sliding_window", 6, struct.pack("<f", float("nan"))),
        ],
        [tensor("token_embd.weight", (64, 8))],
    ),
    "more drafting layers than layers": gguf([*LLAMA, number("llama.nextn_predict_layers", 5)]),
    "a state of 2^31 heads": gguf(
        [
            key("general.architecture", STRING, text("rwkv7")),
            number("rwkv7.block_count", 10_000),
            number("rwkv7.embedding_length", 2**31 - 1),
            number("rwkv7.attention.head_count", 0),
            number("rwkv7.wkv.head_size", 1),
        ],
        [tensor("token_embd.weight", (64, 8))],
    ),
    "cut short": gguf(LLAMA, [tensor("token_embd.weight", (64, 8))])[:-9],
}


@pytest.mark.parametrize("data", HEADERS.values(), ids=HEADERS)
def test_a_hostile_header_is_refused_with_a_sentence(bounds: Any, data: bytes) -> None:
    bounds.refusal(lambda: import_gguf_header(data, "model.gguf"))


@pytest.mark.parametrize("data", HEADERS.values(), ids=HEADERS)
def test_a_hostile_file_is_refused_with_a_sentence(bounds: Any, empty_library: Path, data: bytes) -> None:
    path = empty_library / "model.gguf"
    path.write_bytes(data)
    bounds.refusal(lambda: import_gguf(path))


@pytest.mark.parametrize("data", HEADERS.values(), ids=HEADERS)
def test_a_hostile_part_beside_another_is_refused_with_a_sentence(bounds: Any, data: bytes) -> None:
    good = gguf(LLAMA, [tensor("token_embd.weight", (64, 8))])
    parts = [Beginning("m-00001-of-00002.gguf", data), Beginning("m-00002-of-00002.gguf", good)]
    bounds.refusal(lambda: import_gguf_beginnings(parts))


@pytest.mark.parametrize("path", ["", "/", "/dev/zero", "/etc/passwd", "model-00001-of-99999.gguf", "x" * 5000])
def test_a_path_that_is_no_gguf_is_refused_with_a_sentence(bounds: Any, path: str) -> None:
    bounds.refusal(lambda: import_gguf(path))
