"""Random variations of the types that stand in no other generator, by their rule and as measured.

With the generators of the families' tests, every type that rules know and that transformers can build is varied.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from kvplan.importer import import_config
from kvplan.importer.families import families
from kvplan.importer.measure import measure_config
from tests.importer import test_vision
from tests.importer.conftest import vary
from tests.importer.test_rules_against_measurement import FAMILIES, figures

pytest.importorskip("transformers")

Config = dict[str, Any]


USUAL: dict[str, list[Any]] = {
    "vocab_size": [96, 160],
    "hidden_size": [64, 128],
    "intermediate_size": [96, 200],
    "num_attention_heads": [4, 8],
    "max_position_embeddings": [4096, 131_072],
    "tie_word_embeddings": [True, False],
}
LATENT: dict[str, list[Any]] = USUAL | {
    "num_hidden_layers": [2, 3],
    "moe_intermediate_size": [32, 48],
    "n_routed_experts": [4, 8],
    "n_shared_experts": [1, 2],
    "num_experts_per_tok": [1, 2],
    "first_k_dense_replace": [0, 1],
    "kv_lora_rank": [16, 32],
    "q_lora_rank": [24, 48],
    "qk_rope_head_dim": [8, 16],
    "qk_nope_head_dim": [8, 16],
    "v_head_dim": [8, 16],
    "n_group": [1],
    "topk_group": [1],
    "num_key_value_heads": [lambda config: config["num_attention_heads"]],
}
TEXTS: dict[str, dict[str, list[Any]]] = {
    "exaone": USUAL
    | {
        "num_attention_heads": [8, 16],
        "num_layers": [1, 3],
        "num_key_value_heads": [1, 2, 4, None, "absent"],
        "head_dim": [8, 16, "absent"],
    },
    "mistral4": LATENT,
    "qwen3_5_moe_text": USUAL
    | {
        "num_hidden_layers": [2, 5],
        "num_key_value_heads": [1, 2],
        "head_dim": [16, 32],
        "full_attention_interval": [2, 4],
        "linear_conv_kernel_dim": [3, 4],
        "linear_key_head_dim": [8, 16],
        "linear_value_head_dim": [8, 16],
        "linear_num_key_heads": [2],
        "linear_num_value_heads": [2, 4],
        "moe_intermediate_size": [32, 48],
        "shared_expert_intermediate_size": [32, 64],
        "num_experts": [4, 8],
        "num_experts_per_tok": [1, 2],
    },
    "rwkv": {
        "vocab_size": [96, 160],
        "hidden_size": [64, 96],
        "attention_hidden_size": [None, "absent"],
        "intermediate_size": [100, None, "absent"],
        "num_hidden_layers": [1, 3],
        "context_length": [256, "absent"],
        "tie_word_embeddings": [True, False, "absent"],
    },
    "jetmoe": {
        "vocab_size": [96, 160],
        "hidden_size": [64, 96],
        "intermediate_size": [48, 72],
        "num_hidden_layers": [1, 3],
        "num_key_value_heads": [1, 2, 4],
        "kv_channels": [16, 24],
        "num_local_experts": [4, 8],
        "num_experts_per_tok": [1, 2, 3],
        "tie_word_embeddings": [True, False, "absent"],
    },
    "recurrent_gemma": USUAL
    | {
        "num_hidden_layers": [3, 5],
        "num_key_value_heads": [1, 2],
        "lru_width": [64, 128, "absent"],
        "attention_window_size": [64, 128],
        "conv1d_width": [2, 4],
        "block_types": [["recurrent", "attention"], ["recurrent", "recurrent", "attention"]],
        "intermediate_size": [96, 192],
    },
}
"""Settings of the text part of each type, and what each may be."""


def text(model_type: str, chance: random.Random, **more: list[Any]) -> Config:
    return vary({"model_type": [model_type]} | TEXTS[model_type] | more, chance.randrange(10**6))


def qwen3_5_moe(chance: random.Random) -> Config:
    inner = text("qwen3_5_moe_text", chance, tie_word_embeddings=["absent"])
    vision = test_vision.depth_tower(chance, inner["hidden_size"], num_position_embeddings=16)
    return {"text_config": inner, "vision_config": vision, "tie_word_embeddings": chance.choice([True, False])}


VARIED: dict[str, Callable[[random.Random], Config]] = {
    "exaone": lambda chance: text("exaone", chance),
    "mistral4": lambda chance: text("mistral4", chance),
    "rwkv": lambda chance: text("rwkv", chance),
    "qwen3_5_moe": qwen3_5_moe,
}


def variation(model_type: str, seed: int) -> Config:
    chance = random.Random(f"{model_type} {seed}")
    return {**VARIED[model_type](chance), "model_type": model_type, "torch_dtype": "bfloat16"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model_type", VARIED)
def test_a_rule_and_a_measurement_agree_to_the_unit(model_type: str, seed: int) -> None:
    config = variation(model_type, seed)
    rule = import_config(config, measure="never")
    assert figures(measure_config(config, dtype=rule.dtype)) == figures(rule), config


WITHOUT_RUN = {
    "recurrent_gemma": "its recurrent layers keep their state in themselves and give no cache back",
    "jetmoe": "it cuts its tokens by experts, for which it needs values",
}
"""Types whose class is built and cannot be run on shapes alone, so that only their weights compare."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model_type", WITHOUT_RUN)
def test_a_type_that_runs_on_values_alone_has_the_parameters_of_its_class(model_type: str, seed: int) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = {**text(model_type, random.Random(seed)), "torch_dtype": "bfloat16"}
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert import_config(config, measure="never").num_params == sum(item.numel() for item in built.parameters())


def test_jetmoe_keeps_keys_and_values_once_however_many_experts_read_them() -> None:
    config = text("jetmoe", random.Random(0), num_key_value_heads=[2], kv_channels=[16], num_hidden_layers=[3])
    assert import_config(config, measure="never").cache_bytes(100) == 3 * 2 * 2 * 16 * 100 * 2


INNER = re.compile(r"(qwen2_vl|qwen2_5_vl|qwen3_vl|qwen3_vl_moe|qwen2_5_omni|glm4v|glm4v_moe)_text")
"""Text parts that only stand inside a wrapper, which is varied as a whole."""

NOT_VARIED = {
    "gemma3n": "its tower needs the package timm, which is not installed; gemma3n_text is varied",
    "kimi_k25": "the class reads its tower under other names than the published configs have; deepseek_v3 is varied",
    "minimax_m3_vl": "the class reads its tower under other names than the published configs; its text is varied",
    "qwen2_5_omni": "no model of its own runs: its thinker, qwen2_5_omni_thinker, is varied",
}


def test_every_type_that_rules_know_and_transformers_builds_is_varied() -> None:
    from transformers import CONFIG_MAPPING

    known = {name for name in families() if name in CONFIG_MAPPING and not INNER.fullmatch(name)}
    varied = {*FAMILIES, *test_vision.FAMILIES, *VARIED, *WITHOUT_RUN}
    assert known - varied == set(NOT_VARIED)
