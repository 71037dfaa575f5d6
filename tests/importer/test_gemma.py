"""Gemma 1 to 4: windows that only the class knows, heads by type of layer, shared caches, per-layer inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.published import published

SIZES: dict[str, Any] = {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [2, 6, 9],
    "num_attention_heads": [4, 12],
    "num_key_value_heads": [1, 2, 4],
    "head_dim": [8, 20],
    "max_position_embeddings": [64, "absent"],
    "tie_word_embeddings": [True, False, "absent"],
    "attention_bias": [True, False, "absent"],
}


def some_types(config: dict[str, Any]) -> list[str]:
    """A type for each layer, both types among the first two, the last one full."""
    count = config["num_hidden_layers"]
    return ["full_attention" if index % 4 == 1 or index == count - 1 else "sliding_attention" for index in range(count)]


def ends_in_a_window(config: dict[str, Any]) -> list[str]:
    return ["full_attention", *["sliding_attention"] * (config["num_hidden_layers"] - 1)]


def shared_or_none(config: dict[str, Any]) -> int:
    """As many shared layers as leave both types a cache of their own; the class needs per-layer inputs with them."""
    return int(config["num_hidden_layers"] - 2) if config["hidden_size_per_layer_input"] else 0


def widths(config: dict[str, Any]) -> list[int]:
    return [64 + 8 * (index % 3) for index in range(config["num_hidden_layers"])]


PER_LAYER = {"hidden_size_per_layer_input": [8, 16], "vocab_size_per_layer_input": [32, 40]}

FAMILIES: dict[str, dict[str, Any]] = {
    "gemma": SIZES,
    "gemma2": SIZES | {"sliding_window": [5, 64, "absent"], "layer_types": [some_types, None, "absent"]},
    "gemma3_text": SIZES
    | {
        "sliding_window": [5, "absent"],
        "layer_types": [some_types, "absent"],
        "sliding_window_pattern": [2, 3, "absent"],
    },
    "gemma3n_text": SIZES
    | PER_LAYER
    | {
        "sliding_window": [5, "absent"],
        "layer_types": [some_types],
        "num_kv_shared_layers": [0, shared_or_none],
        "intermediate_size": [64, widths],
        "altup_num_inputs": [2, 4, "absent"],
        "laurel_rank": [4, "absent"],
    },
    "gemma4_text": SIZES
    | PER_LAYER
    | {
        "hidden_size_per_layer_input": [0, 8],
        "sliding_window": [5, "absent"],
        "layer_types": [some_types],
        "num_kv_shared_layers": [0, shared_or_none],
        "use_double_wide_mlp": [True, False, "absent"],
        "global_head_dim": [12, 24],
        "attention_k_eq_v": [True, False, "absent"],
        "num_global_key_value_heads": [1, None, "absent"],
        "enable_moe_block": [True, False, "absent"],
        "num_experts": [4],
        "top_k_experts": [2],
        "moe_intermediate_size": [16],
    },
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(
    family: str, seed: int, assert_counted: Callable[..., None]
) -> None:
    assert_counted({"model_type": [family]} | FAMILIES[family], seed)


def test_a_last_window_layer_of_gemma_4_is_made_full_as_its_class_does(assert_counted: Callable[..., None]) -> None:
    options = FAMILIES["gemma4_text"] | {"layer_types": [ends_in_a_window], "num_kv_shared_layers": [0]}
    assert_counted({"model_type": ["gemma4_text"]} | options, 0)


def text_of(name: str, **changes: Any) -> dict[str, Any]:
    return {**published(name)["text_config"], **changes}


def test_every_second_layer_of_gemma_2_is_full_although_its_config_does_not_say_so() -> None:
    model = import_config(published("google__gemma-2-2b"))
    assert [layer.cache.kind for layer in model.layers] == 13 * ["sliding", "full"]


def test_two_names_of_the_window_must_agree() -> None:
    with pytest.raises(ConfigError, match="sliding_window is 4096 but sliding_window_size is 2048"):
        import_config(published("google__gemma-2-27b", sliding_window_size=2048))


def test_gemma_3_has_one_full_layer_after_five_windows() -> None:
    model = import_config(published("google__gemma-3-1b-it"))
    assert [layer.cache.kind for layer in model.layers] == 4 * (5 * ["sliding"] + ["full"]) + 2 * ["sliding"]


def test_a_nearly_empty_text_config_relies_on_the_class_and_says_so() -> None:
    model = import_config(text_of("google__gemma-3-4b-it", dtype="bfloat16"))
    # 34 layers, 5 of them full; K and V of 4 heads of 256 values at 2 bytes; windows of 1,024 tokens
    assert model.cache_bytes(8192) == 2 * 4 * 256 * 2 * (5 * 8192 + 29 * 1024)
    assert "head_dim is not in the config; the class default 256 is used" in model.notes


def test_attention_in_both_directions_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="use_bidirectional_attention is True"):
        import_config(published("google__gemma-3-1b-it", use_bidirectional_attention=True))


def test_the_last_layers_of_gemma_4_e2b_read_the_cache_of_the_last_layer_of_their_type() -> None:
    layers = import_config(text_of("google__gemma-4-E2B-it")).layers
    assert {layer.cache.kind for layer in layers[:15]} == {"sliding", "full"}
    # of the first 15 layers each fifth is full: layer 14 is the last full one, layer 13 the last with a window
    assert [layer.cache.source for layer in layers[15:20]] == [13, 13, 13, 13, 14]


def test_too_many_shared_layers_leave_a_type_without_a_cache() -> None:
    with pytest.raises(ConfigError, match="num_kv_shared_layers is 33"):
        import_config(text_of("google__gemma-4-E2B-it", num_kv_shared_layers=33))


def test_full_layers_of_gemma_4_26b_have_wider_and_fewer_kv_heads() -> None:
    model = import_config(text_of("google__gemma-4-26B-A4B"))
    # 25 windows of 1,024 tokens: 8 heads of 256 values; 5 full layers: 2 heads of 512 values; K and V at 2 bytes
    assert model.cache_bytes(8192) == 2 * 2 * (25 * 1024 * 8 * 256 + 5 * 8192 * 2 * 512)


def test_a_token_of_gemma_4_26b_reads_8_of_128_experts_and_the_dense_mlp() -> None:
    model = import_config(text_of("google__gemma-4-26B-A4B"))
    assert model.num_params - model.num_active_params == 30 * 120 * 3 * 704 * 2816


def test_a_width_for_each_layer_is_needed() -> None:
    with pytest.raises(ConfigError, match="intermediate_size has 34 entries; 35, one for each layer, are needed"):
        import_config(text_of("google__gemma-3n-E4B@tfdefault", intermediate_size=[16384] * 34))


def test_the_wider_unknown_name_of_expert_width_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="expert_intermediate_size is 704"):
        import_config(text_of("google__gemma-4-26B-A4B", expert_intermediate_size=704))


def test_the_per_layer_embedding_divides_over_two_gpus() -> None:
    model = import_config(text_of("google__gemma-4-E2B-it"))
    table = 262144 * 35 * 256 * 2
    assert model.weight_bytes_by_role(tensor_parallel=1)["per_layer_embedding"] == table
    assert model.weight_bytes_by_role(tensor_parallel=2)["per_layer_embedding"] == table // 2
