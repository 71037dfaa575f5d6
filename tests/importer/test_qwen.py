"""Qwen 1 to 3: biases, windows by layer, experts by layer, and the layouts of the first code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.published import BIAS, published

SIZES: dict[str, Any] = {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [1, 3, 8],
    "num_attention_heads": [4, 12],
    "num_key_value_heads": [1, 2, 4],
    "max_position_embeddings": [64, "absent"],
    "tie_word_embeddings": [True, False, "absent"],
}
WINDOW = {
    "use_sliding_window": [True, False, "absent"],
    "sliding_window": [5, 64, "absent"],
    "max_window_layers": [0, 2, 5, "absent"],
}
EXPERTS = {
    "num_experts": [4, 6],
    "num_experts_per_tok": [2],
    "moe_intermediate_size": [16, 24],
    "decoder_sparse_step": [1, 2, "absent"],
    "mlp_only_layers": [[], [0], [1, 2], None, "absent"],
}
HEAD_DIM = {"head_dim": [8, 20]}

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": SIZES | WINDOW | {"head_dim": [20, "absent"]},
    "qwen3": SIZES | WINDOW | HEAD_DIM | BIAS,
    "qwen2_moe": SIZES
    | WINDOW
    | EXPERTS
    | {"shared_expert_intermediate_size": [40], "qkv_bias": [True, False, "absent"]},
    "qwen3_moe": SIZES
    | EXPERTS
    | HEAD_DIM
    | BIAS
    | {"use_sliding_window": [True, False, "absent"], "sliding_window": [5, None, "absent"]},
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(
    family: str, seed: int, assert_counted: Callable[..., None]
) -> None:
    assert_counted({"model_type": [family]} | FAMILIES[family], seed)


def test_a_window_that_is_not_in_use_is_not_counted_and_noted() -> None:
    model = import_config(published("Qwen__Qwen2-7B"))
    assert {layer.cache.kind for layer in model.layers} == {"full"}
    assert "sliding_window is not counted: use_sliding_window is false" in model.notes


def test_windows_of_qwen_2_begin_at_max_window_layers() -> None:
    model = import_config(published("Qwen__Qwen2-7B", use_sliding_window=True, max_window_layers=20))
    assert [layer.cache.kind for layer in model.layers] == 20 * ["full"] + 8 * ["sliding"]


@pytest.mark.parametrize("name", ["Qwen__Qwen2-7B", "Qwen__Qwen3-8B", "Qwen__Qwen3-30B-A3B"])
def test_changing_the_kv_heads_of_a_model_equals_importing_the_changed_config(name: str) -> None:
    assert import_config(published(name)).with_kv_heads(2) == import_config(published(name, num_key_value_heads=2))


def test_a_token_of_qwen_3_30b_reads_8_of_128_experts() -> None:
    model = import_config(published("Qwen__Qwen3-30B-A3B"))
    # 120 experts of 3 matrices of 768 x 2,048 in each of 48 layers rest
    assert model.num_params - model.num_active_params == 48 * 120 * 3 * 768 * 2048


def test_shared_experts_that_the_class_does_not_have_are_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="shared_expert_intermediate_size is 768"):
        import_config(published("Qwen__Qwen3-30B-A3B", shared_expert_intermediate_size=768))


def test_more_experts_a_token_than_there_are_is_an_error() -> None:
    with pytest.raises(ConfigError, match="num_experts_per_tok"):
        import_config(published("Qwen__Qwen3-30B-A3B", num_experts_per_tok=129))


def test_the_mlp_of_qwen_1_is_half_as_wide_as_its_key_states() -> None:
    model = import_config(published("Qwen__Qwen-7B-Chat"))
    mlp = {(group.rows, group.columns, group.count) for group in model.layers[0].weights if group.role == "mlp"}
    assert mlp == {(11008, 4096, 2), (4096, 11008, 1)}  # intermediate_size is 22,016


def test_both_layouts_of_qwen_1_describe_the_same_model() -> None:
    first = import_config(published("codefuse-ai__CodeFuse-DevOps-Model-7B-Chat"))
    second = import_config(published("Qwen__Qwen-7B-Chat"))
    assert (first.layers, first.weights) == (second.layers, second.weights)


def test_an_odd_doubled_width_of_qwen_1_is_an_error() -> None:
    with pytest.raises(ConfigError, match="intermediate_size is 22017; an even number is needed"):
        import_config(published("Qwen__Qwen-7B-Chat", intermediate_size=22017))


def test_layers_that_predict_further_tokens_are_not_counted_and_noted() -> None:
    model = import_config(published("XiaomiMiMo__MiMo-7B-Base"))
    assert any(note.startswith("num_nextn_predict_layers is not counted") for note in model.notes)
