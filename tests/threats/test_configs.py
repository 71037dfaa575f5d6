"""Hostile config.json files: each is refused with a sentence; none is executed, guessed or allowed to take long."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from kvplan.importer import import_config, parse_config

SOUND: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


class Dangerous:
    """Unpickled, it would write a file."""

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        return exec, ("open('unpickled', 'w')",)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"text_config": value}
    return value


HOSTILE_VALUES: dict[str, Any] = {
    "zero": 0,
    "minus one": -1,
    "2^63": 2**63,
    "10^300": 10**300,
    "a fraction": 4096.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "text": "4096",
    "a path": "../../etc/passwd",
    "true": True,
    "a list": [4096],
    "an object": {"a": 1},
}
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")


def test_the_config_that_all_others_are_made_from_is_sound(bounds: Any) -> None:
    assert bounds.run(lambda: import_config(SOUND, measure="never")).num_params == 8_030_261_248


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", HOSTILE_VALUES.values(), ids=HOSTILE_VALUES)
def test_a_size_that_cannot_be_is_refused(bounds: Any, key: str, value: Any) -> None:
    assert key in bounds.refusal(lambda: import_config({**SOUND, key: value}, measure="never"))


CONFIGS: dict[str, dict[str, Any]] = {
    "empty": {},
    "no type": {key: value for key, value in SOUND.items() if key != "model_type"},
    "a type that is a path": {**SOUND, "model_type": "../../llama"},
    "a type that is html": {**SOUND, "model_type": "<script>alert(1)</script>"},
    "a type of line breaks": {**SOUND, "model_type": "llama\n\x1b[31m"},
    "a long type": {**SOUND, "model_type": "a" * 100_000},
    "a type that is a list": {**SOUND, "model_type": ["llama"]},
    "a type that is null": {**SOUND, "model_type": None},
    "architectures of numbers": {**SOUND, "architectures": [1]},
    "architectures of text": {**SOUND, "architectures": "LlamaForCausalLM"},
    "a class that classifies": {**SOUND, "architectures": ["LlamaForSequenceClassification"]},
    "code of the checkpoint": {**SOUND, "model_type": "evil", "auto_map": {"AutoConfig": "evil.py--os.system"}},
    "an unknown key": {**SOUND, "num_secret_layers": 3},
    "a class as a key": {**SOUND, "__class__": "os.system"},
    "ten thousand unknown keys": SOUND | {f"key_{index}": index for index in range(10_000)},
    "a dtype that is none": {**SOUND, "torch_dtype": "pickle"},
    "a dtype that is a list": {**SOUND, "torch_dtype": ["bfloat16"]},
    "a dtype that is an object": {**SOUND, "torch_dtype": {"a": 1}},
    "tied by text": {**SOUND, "tie_word_embeddings": "no"},
    "heads that do not divide": {**SOUND, "num_key_value_heads": 7},
    "a million layers": {**SOUND, "num_hidden_layers": 1_000_000},
    "a billion layers": {**SOUND, "num_hidden_layers": 10**9},
    "nested 39 deep": {**SOUND, "text_config": nested(37)},
    "nested 500 deep": nested(500),
    "nested 100,000 deep": nested(100_000),
    "a config in itself": {**SOUND, "text_config": SOUND},
    "an unknown quantization": {**SOUND, "quantization_config": {"quant_method": "evil"}},
    "quantization of text": {**SOUND, "quantization_config": "fp8"},
    "quantization of a list": {**SOUND, "quantization_config": [1]},
    "quantization of no bits": {**SOUND, "quantization_config": {"quant_method": "gptq", "bits": 0, "group_size": 128}},
    "quantization of many bits": {
        **SOUND, "quantization_config": {"quant_method": "gptq", "bits": 10**9, "group_size": 128},
    },
    "quantization of a group of zero": {
        **SOUND, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 0},
    },
    "a window of zero": {**SOUND, "model_type": "mistral", "sliding_window": 0},
    "a window of text": {**SOUND, "model_type": "mistral", "sliding_window": "4096"},
    "layer types of nothing": {**SOUND, "model_type": "qwen3", "layer_types": ["evil"] * 32},
    "layer types of another length": {**SOUND, "model_type": "qwen3", "layer_types": ["full_attention"]},
    "layer types of a hundred thousand": {**SOUND, "model_type": "qwen3", "layer_types": ["full_attention"] * 100_000},
}  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_hostile_config_gives_no_bytes_but_a_sentence(bounds: Any, config: dict[str, Any]) -> None:
    bounds.refusal(lambda: import_config(config, measure="never").weight_bytes())


FILES: dict[str, bytes] = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "not utf-8": b'{"model_type": "\xff"}',
    "utf-16": json.dumps(SOUND).encode("utf-16"),
    "pickle": pickle.dumps(Dangerous()),
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "html": b"<html></html>",
    "a list": b"[]",
    "a number": b"1",
    "text": b'"llama"',
    "cut short": json.dumps(SOUND).encode()[:-5],
    "two objects": b"{}{}",
    "brackets without end": b"[" * 1_000_000,
    "braces without end": b'{"a":' * 300_000,
    "a number of a million digits": b'{"hidden_size": ' + b"9" * 1_000_000 + b"}",
    "python": b"__import__('os').system('id')",
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_hostile_config_file_is_refused_with_a_sentence(bounds: Any, empty_library: Path, data: bytes) -> None:
    path = empty_library / "config.json"
    path.write_bytes(data)
    bounds.refusal(lambda: parse_config(data))
    bounds.refusal(lambda: import_config(path, measure="never"))
    assert [item.name for item in empty_library.iterdir()] == ["config.json"]


PATHS = [
    "",
    "/",
    "/etc/passwd",
    "/dev/zero",
    "../../../etc/shadow",
    "x" * 5000,
    "https://evil.example/config.json",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_no_config_is_refused_with_a_sentence(bounds: Any, path: str) -> None:
    bounds.refusal(lambda: import_config(path, measure="never"))
