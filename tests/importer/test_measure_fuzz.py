"""Hostile configs, measured: a lawful model or a refusal in a sentence, and a worker that serves the next one.

The suite tries a few; `python tests/benchmarks/measure_all.py --fuzz 1000` tries as many as one likes.
"""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import KvplanError, UnsupportedConfigError
from kvplan.importer import import_config
from kvplan.importer.measure import measure_config
from tests.importer import test_vision
from tests.importer.conftest import vary
from tests.importer.test_rules_against_measurement import FAMILIES

pytest.importorskip("transformers")

BF16 = WEIGHT_FORMATS["bf16"]
TYPES = ("llama", "gemma3_text", "qwen3_moe", "deepseek_v3", "mamba2", "falcon_h1", "qwen3_next", "gpt_oss", "bloom")
WRAPPERS = ("llava", "mistral3", "gemma3", "qwen2_5_vl")
HOSTILE: tuple[Any, ...] = (
    0, -1, 1, 2, 1.5, 10**6, 10**9, 10**12, 2**63, -(2**63), "x", "", "../../x", "/etc/passwd", "file:///etc/passwd",
    [], [0], [1, 2, 3], ["full_attention"], ["sliding_attention", "x"], {}, {"a": 1}, {"model_type": "bert"}, True,
    False, None, float("nan"), float("inf"),
)  # fmt: skip
NAMES = (
    "_name_or_path", "auto_map", "backbone", "backbone_config", "use_timm_backbone", "use_pretrained_backbone",
    "vision_config", "text_config", "tokenizer_class", "attn_implementation", "torch_dtype", "dtype", "architectures",
    "is_decoder", "add_cross_attention", "quantization_config", "rope_parameters", "layer_types", "sub_configs",
    "from_dict", "__class__", "to_dict", "_attn_implementation", "output_attentions", "torchscript", "model_type",
)  # fmt: skip
"""Keys that could make a class read a file, choose another class, or run something."""


def hostile(seed: int) -> dict[str, Any]:
    """A small sound config of some type with one to three values changed or added, inner objects included."""
    chance = random.Random(seed)
    kind = chance.choice((*TYPES, *WRAPPERS))
    if kind in TYPES:
        config = vary({"model_type": [kind]} | FAMILIES[kind], chance.randrange(10**6))
    else:
        config = {"model_type": kind, **deepcopy(test_vision.FAMILIES[kind][1](chance))}
    config["torch_dtype"] = "bfloat16"
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.choice([config, *(value for value in config.values() if isinstance(value, dict))])
        key = chance.choice((*place, *NAMES)) if chance.random() < 0.8 else chance.choice(NAMES)
        place[key] = deepcopy(chance.choice(HOSTILE))
    return config


def outcome(config: dict[str, Any]) -> str:
    """measured or refused; anything else comes out as it is."""
    try:
        model = import_config(config, measure="always")
        assert model.num_params >= model.num_active_params > 0
        assert model.cache_bytes(64) <= model.cache_bytes(4_096)
        assert 2 * model.cache_bytes(64) == model.cache_bytes(64, batch_size=2)
    except KvplanError as refusal:
        return "refused" if 0 < len(str(refusal)) < 900 else f"refused in {len(str(refusal))} letters"
    return "measured"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("measuring")
def test_a_hostile_config_is_measured_or_refused(seed: int) -> None:
    assert outcome(hostile(seed)) in ("measured", "refused")


LLAMA = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
BOMBS: dict[str, tuple[dict[str, Any], str]] = {
    "a million layers": ({"num_hidden_layers": 10**6}, "1,000,000 layers; up to 10,000 are known"),
    "10^18 words": ({"vocab_size": 10**18}, "cannot be measured"),
    "a type that is a path": ({"model_type": "../../x"}, "knows no model_type"),
    "a type of the package's own": ({"model_type": "auto"}, "knows no model_type"),
    "a class of another kind": ({"architectures": ["Trainer"]}, "no language model of this type"),
    "a class by its path": ({"architectures": ["os.system"]}, "no language model of this type"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(name: str) -> None:
    changes, reason = BOMBS[name]
    with pytest.raises(UnsupportedConfigError, match=reason):
        measure_config(LLAMA | changes, dtype=BF16, seconds=20)


def test_remote_code_that_a_config_names_is_not_looked_for() -> None:
    """auto_map names files of a checkpoint; the class of transformers is measured, whatever they are called."""
    mapped = LLAMA | {"auto_map": {"AutoConfig": "/tmp/evil.Config", "AutoModelForCausalLM": "evil--repo.Model"}}
    assert measure_config(mapped, dtype=BF16) == measure_config(LLAMA, dtype=BF16)


def test_a_backbone_by_path_is_not_read() -> None:
    """A wrapper whose tower would be loaded from a folder: reading one is refused where it is tried."""
    chance = random.Random(0)
    config = {"model_type": "llava", "torch_dtype": "bfloat16", **test_vision.FAMILIES["llava"][1](chance)}
    config["vision_config"] = {"model_type": "timm_backbone", "backbone": "/etc", "use_pretrained_backbone": True}
    with pytest.raises(UnsupportedConfigError, match="cannot be measured"):
        measure_config(config, dtype=BF16, seconds=30)


def test_the_worker_serves_the_next_config_after_all_of_this() -> None:
    assert measure_config(LLAMA | {"vocab_size": 102}, dtype=BF16).vocab_size == 102
