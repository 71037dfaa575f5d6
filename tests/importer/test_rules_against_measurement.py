"""Rules against measurement: two readers that share no code agree to the unit wherever both can read a config.

The variations are those of the families' own tests, so a family that joins there joins here. One of each is held
here; `tests/benchmarks/measure_all.py --variations 8` holds as many as one likes.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.importer import import_config
from kvplan.importer.measure import measure_config
from kvplan.model import Model
from tests.importer import (
    test_deepseek,
    test_gemma,
    test_gpt,
    test_hybrid,
    test_llama,
    test_mamba,
    test_moe,
    test_qwen,
)
from tests.importer.conftest import vary

pytest.importorskip("transformers")

FAMILIES: dict[str, dict[str, Any]] = {
    model_type: options
    for module in (test_llama, test_qwen, test_gemma, test_gpt, test_moe, test_deepseek, test_hybrid, test_mamba)
    for model_type, options in module.FAMILIES.items()
}

CONTEXTS = (0, 128, 1_024, 131_072)
"""Multiples of every block of the compressed caches, below and above the windows."""


def figures(model: Model) -> dict[str, Any]:
    """Everything that a plan reads of a model on one GPU."""
    return {
        "params": model.num_params,
        "active": model.num_active_params,
        "tied": model.tied_embeddings,
        "layers": model.num_layers,
        "kv_heads": model.num_kv_heads,
        "weight_bytes": [model.weight_bytes(dtype) for dtype in ("bf16", "fp32")],
        "cache_bytes": [model.cache_bytes(tokens) for tokens in CONTEXTS],
        "cache_fp32": model.cache_bytes(1_024, kv_dtype="fp32"),
    }


def both(model_type: str, seed: int) -> tuple[Model, Model]:
    """Variation `seed` of the family, by its rule and as measured."""
    config = vary({"model_type": [model_type], "torch_dtype": ["bfloat16"]} | FAMILIES[model_type], seed)
    rule = import_config(config)
    return rule, measure_config(config, dtype=rule.dtype)


@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_rule_and_a_measurement_agree_to_the_unit(model_type: str, seed: int) -> None:
    rule, measured = both(model_type, seed)
    assert figures(measured) == figures(rule)
