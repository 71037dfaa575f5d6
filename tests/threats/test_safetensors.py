"""Hostile indexes, headers and lists of modules: every number in one may lie, and each lie is a sentence."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kvplan.importer import import_config
from kvplan.importer.headers import Beginning, read_beginning, read_header, read_index

GOOD = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


def tensor(shape: object = (2,), dtype: object = "F32", offsets: object = (0, 8)) -> str:
    return json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})


def pair(one: tuple[int, int], other: tuple[int, int]) -> str:
    return json.dumps(
        {
            name: {"dtype": "I8", "shape": [end - begin], "data_offsets": [begin, end]}
            for name, (begin, end) in (("a", one), ("b", other))
        }
    )


TEXTS: dict[str, str | bytes] = {
    "no object": "[]",
    "a text": '"a"',
    "half an object": '{"a":',
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "deep lists in a tensor": f'{{"a":{"[" * 900}{"]" * 900}}}',
    "not utf-8": b'{"\xff":1}',
    "half a surrogate": '{"\\ud800":1}',
    "a tensor of null": '{"a":null}',
    "a tensor of a list": '{"a":[]}',
    "a tensor twice": GOOD[:-1] + "," + GOOD[1:],
    "no offsets": '{"a":{"dtype":"F32","shape":[2]}}',
    "negative offsets": tensor(offsets=[-8, 0]),
    "offsets the wrong way round": tensor(offsets=[8, 0]),
    "offsets of 2^63": tensor(offsets=[2**63, 2**63 + 8]),
    "offsets that are not whole": tensor(offsets=[0.0, 8.0]),
    "offsets that are true": tensor(offsets=[False, True]),
    "three offsets": tensor(offsets=[0, 8, 16]),
    "offsets that are NaN": '{"a":{"dtype":"F32","shape":[2],"data_offsets":[NaN,Infinity]}}',
    "a number of 5,000 digits": f'{{"a":{{"dtype":"F32","shape":[{"9" * 5_000}],"data_offsets":[0,8]}}}}',
    "a negative size": tensor(shape=[-2]),
    "a size of 2^63": tensor(shape=[2**63]),
    "a size that is text": tensor(shape=["2"]),
    "a shape of a thousand dimensions": tensor(shape=[1] * 1_000),
    "a shape whose product overflows": tensor(shape=[2**47] * 8),
    "a shape of null": tensor(shape=None),
    "an unknown dtype": tensor(dtype="F33"),
    "a dtype of a list": tensor(dtype=["F32"]),
    "too few bytes": tensor(offsets=[0, 7]),
    "a gap": pair((0, 8), (9, 16)),
    "an overlap": pair((0, 8), (4, 12)),
    "the same bytes twice": pair((0, 8), (0, 8)),
    "a beginning after the beginning": pair((4, 8), (8, 12)),
    "a million values": '{"a":[' + "0," * 1_000_000 + "0]}",
    "a million objects": '{"a":[' + "{}," * 1_000_000 + "{}]}",
}


def beginning(text: str | bytes) -> bytes:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data + bytes(16)


FILES: dict[str, bytes] = {
    **{name: beginning(text) for name, text in TEXTS.items()},
    "nothing": b"",
    "four bytes": b"abcd",
    "a length of zero": bytes(16),
    "a length of 2^63": struct.pack("<Q", 2**63) + b"{}",
    "a length of 2^64 - 1": b"\xff" * 16,
    "a length beyond the file": struct.pack("<Q", 1_000) + GOOD.encode(),
    "a length of 30 MB": struct.pack("<Q", 30 * 2**20) + bytes(1_000),
    "a pickle": b"\x80\x04\x95" + bytes(100),
    "a zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_hostile_beginning_is_refused_with_a_sentence(bounds: Any, data: bytes) -> None:
    bounds.refusal(lambda: read_beginning(Beginning("model.safetensors", data, len(data))))


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_hostile_file_is_refused_with_a_sentence(bounds: Any, empty_library: Path, data: bytes) -> None:
    path = empty_library / "model.safetensors"
    path.write_bytes(data)
    bounds.refusal(lambda: read_index(path))


@pytest.mark.parametrize("path", ["", "/", "/dev/zero", "/etc/passwd", "model-00001-of-09999.safetensors", "x" * 5_000])
def test_a_path_that_is_no_header_is_refused_with_a_sentence(bounds: Any, path: str) -> None:
    bounds.refusal(lambda: read_header(path))
    bounds.refusal(lambda: read_index(path))


def test_a_header_of_ten_thousand_tensors_is_read(bounds: Any) -> None:
    found = {
        f"model.layers.{n}.weight": {"dtype": "I8", "shape": [1], "data_offsets": [n, n + 1]} for n in range(10_000)
    }
    data = beginning(json.dumps(found, separators=(",", ":")))
    read = bounds.run(lambda: read_beginning(Beginning("model.safetensors", data)))
    assert len(read.names) == 10_000


INDEXES: dict[str, Any] = {
    "nothing": {},
    "a map of a list": {"metadata": {"total_size": 1}, "weight_map": ["a"]},
    "an empty map": {"metadata": {"total_size": 1}, "weight_map": {}},
    "names of numbers": {"metadata": {"total_size": 1}, "weight_map": {1: "a"}},
    "no size": {"metadata": {}, "weight_map": {"a": "b"}},
    "metadata of text": {"metadata": "1", "weight_map": {"a": "b"}},
    **{
        f"a size of {size!r}"[:40]: {"metadata": {"total_size": size}, "weight_map": {"a": "b"}}
        for size in (-1, 0, True, "1", [1], 2**70, 1.5, float("nan"), float("inf"), 10**400)
    },
}


@pytest.mark.parametrize("data", INDEXES.values(), ids=INDEXES)
def test_a_hostile_index_is_refused_with_a_sentence(bounds: Any, data: Any) -> None:
    bounds.refusal(lambda: read_index(data))


# ----------------------------------------------------------------------------------------------------- lists of modules

SMALL = {
    "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 40,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 320,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
CT: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "float-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
        "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}}},
}  # fmt: skip
FP8_GLOBS = {"quant_method": "modelopt", "quant_algo": "FP8"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq"}
LISTS: dict[str, dict[str, Any]] = {
    "50,000 fragments": {**FP8, "modules_to_not_convert": ["lm_head", *(f"a{n}" for n in range(50_000))]},
    "fragments that tools read differently": {**FP8, "modules_to_not_convert": ["lm_head", "a", "b", "c"]},
    "an expression that explodes": {**CT, "ignore": ["re:(a+)+$", "lm_head"]},
    "another one": {**CT, "ignore": [r"re:(.*a){30}", "lm_head"]},
    "an expression of 10,000 letters": {**CT, "ignore": ["re:" + "a" * 10_000]},
    "100,000 expressions": {**CT, "ignore": [f"re:a{n}" for n in range(100_000)]},
    "100,000 globs": {**FP8_GLOBS, "ignore": [f"*a{n}*b" for n in range(100_000)]},
    "an expression that is none": {**CT, "ignore": ["re:("]},
    "a list of numbers": {**CT, "ignore": [1, 2]},
    "a list of lists": {**FP8, "modules_to_not_convert": [[["lm_head"]]]},
    "an empty name": {**FP8, "modules_to_not_convert": ["", "lm_head"]},
    "10,000 dynamic rules": {**GPTQ, "dynamic": {f"+:a{n}": {"bits": 8} for n in range(10_000)}},
    "dynamic rules of text": {**GPTQ, "dynamic": {"+:a": "8"}},
    "groups of text": {**CT, "config_groups": {"a": "b"}, "ignore": []},
    "targets of numbers": {**CT, "config_groups": {"a": {"targets": [1], "weights": {}}}, "ignore": []},
    "layers of text": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": "b"}},
    "groups beside layers of text": {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"lm_head": {"quant_algo": "FP8"}},
        "config_groups": {"a": "b"}},
    "an mlx of text": {"bits": "4", "group_size": 64},
}  # fmt: skip


@pytest.mark.parametrize("layers", [40, 10_000])
@pytest.mark.parametrize("name", LISTS)
def test_a_hostile_quantization_leaves_the_storage_unknown_in_a_sentence(bounds: Any, name: str, layers: int) -> None:
    config = {**SMALL, "num_hidden_layers": layers, "quantization_config": LISTS[name]}
    model = bounds.run(lambda: import_config(config, measure="never"))
    bounds.sentence(model.storage_unknown)
