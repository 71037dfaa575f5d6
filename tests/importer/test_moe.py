"""Families with routed experts and ordinary attention, counted as transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.held import assert_held
from tests.importer.published import BIAS, MHA, SIZES, by_layer, unquantized

HEAD_DIM = {"head_dim": [8, 20]}
LOCAL = {"num_local_experts": [4, 8], "num_experts_per_tok": [2, 3]}
FAMILIES: dict[str, dict[str, Any]] = {
    "glm4_moe": SIZES
    | HEAD_DIM
    | BIAS
    | {
        "moe_intermediate_size": [16, 24],
        "n_routed_experts": [8, 16],
        "num_experts_per_tok": [2, "absent"],
        "n_shared_experts": [1, 2, "absent"],
        "first_k_dense_replace": [0, 1, 3, "absent"],
        "use_qk_norm": [True, False, "absent"],
    },
    "minimax_m2": SIZES | HEAD_DIM | LOCAL,
    "minimax_m3_vl_text": SIZES
    | HEAD_DIM
    | LOCAL
    | {
        "rotary_dim": [8],
        "dense_intermediate_size": [32, 40],
        "shared_intermediate_size": [16, 24],
        "mlp_layer_types": [by_layer("dense", "sparse"), "absent"],
        "moe_layer_freq": ["absent", by_layer(0, 1, 1)],
        "layer_types": [by_layer("full_attention", "minimax_m3_sparse"), "absent"],
        "index_n_heads": [2, 4],
        "index_head_dim": [8, 16],
        "index_block_size": [8],
        "index_topk_blocks": [4],
    },
    "llama4_text": SIZES
    | HEAD_DIM
    | BIAS
    | LOCAL
    | {
        "num_experts_per_tok": [1, "absent"],
        "intermediate_size_mlp": [40, 48],
        "interleave_moe_layer_step": [1, 2, "absent"],
        "moe_layers": ["absent", [0], [1, 4]],
        "attention_chunk_size": [32, 64, None, "absent"],
        "no_rope_layer_interval": [2, 3, "absent"],
        "no_rope_layers": ["absent", [], by_layer(1, 0, 0)],
        "layer_types": ["absent", by_layer("full_attention")],
    },
    "hunyuan_v1_moe": SIZES | MHA | {"head_dim": [8, 16]} | BIAS | {"num_experts": [4, 8], "moe_topk": [1, 2]},
    "afmoe": SIZES
    | MHA
    | {"head_dim": [8, 20]}
    | BIAS
    | {
        "moe_intermediate_size": [16, 24],
        "num_dense_layers": [0, 1, 3, "absent"],
        "num_experts": [4, 8],
        "num_experts_per_tok": [2],
        "num_shared_experts": [1, 2, "absent"],
        "global_attn_every_n_layers": [2, 4, "absent"],
        "sliding_window": [32, "absent"],
        "layer_types": ["absent", by_layer("full_attention", "sliding_attention")],
    },
    "ernie4_5_moe": SIZES
    | {
        "use_bias": [True, False, "absent"],
        "moe_intermediate_size": [16, 24],
        "moe_k": [2],
        "moe_num_experts": [4, 8],
        "moe_num_shared_experts": [0, 1, 2, "absent"],
        "moe_layer_start_index": [0, 1, "absent"],
        "moe_layer_end_index": [-1, 2, "absent"],
        "moe_layer_interval": [1, 2, "absent"],
    },
    "phimoe": SIZES
    | BIAS
    | {
        "num_local_experts": [4, 8],
        "num_experts_per_tok": [2],
        "sliding_window": [32, None, "absent"],
        "lm_head_bias": [True, False, "absent"],
    },
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(family: str, seed: int) -> None:
    assert_held({"model_type": [family]} | FAMILIES[family], seed)


def llama4_text(**changes: Any) -> dict[str, Any]:
    outer = unquantized("meta-llama__Llama-4-Maverick-17B-128E-Instruct")
    return {**outer["text_config"], **changes}


def test_a_chunked_layer_of_llama_4_keeps_at_most_one_chunk() -> None:
    model = import_config(llama4_text())
    kinds = [layer.cache.kind for layer in model.layers]
    assert kinds == 12 * (3 * ["chunked"] + ["full"])
    # K and V of 8 heads of 128 values at 2 bytes
    assert model.cache_bytes(10**6) == 2 * 8 * 128 * 2 * (36 * 8192 + 12 * 10**6)


def test_every_second_layer_of_llama_4_maverick_reads_one_of_128_experts() -> None:
    model = import_config(llama4_text())
    assert model.num_params - model.num_active_params == 24 * 127 * 3 * 5120 * 8192


def test_a_sparse_layer_of_minimax_m3_keeps_one_index_key_beside_k_and_v() -> None:
    model = import_config(unquantized("MiniMaxAI__MiniMax-M3"))
    assert model.cache_bytes_per_token() == 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2


def test_windows_of_afmoe_stand_in_three_of_four_layers() -> None:
    model = import_config(unquantized("arcee-ai__Trinity-Nano-Preview"))
    # K and V of 2 heads of 128 values at 2 bytes; a window of 2,048
    assert model.cache_bytes(10**6) == 2 * 2 * 128 * 2 * (42 * 2048 + 14 * 10**6)


def test_lists_of_hunyuan_that_state_the_same_number_for_every_layer_are_read_as_that_number() -> None:
    config = unquantized("tencent__Hunyuan-A13B-Instruct")
    model = import_config(config)
    assert model == import_config({**config, "moe_topk": 8, "moe_intermediate_size": 3072, "num_shared_expert": 1})
    assert model.num_params - model.num_active_params == 32 * 56 * 3 * 4096 * 3072


def test_the_router_of_glm_4_5_stays_float32_whatever_the_weight_dtype() -> None:
    model = import_config(unquantized("zai-org__GLM-4.5-Air"))
    pinned = 45 * 128 * 4096
    assert model.weight_bytes("bf16") == 2 * model.num_params + 2 * pinned


@pytest.mark.parametrize("name", ["zai-org__GLM-4.5-Air", "arcee-ai__Trinity-Nano-Preview", "MiniMaxAI__MiniMax-M3"])
def test_changing_the_kv_heads_of_a_model_equals_importing_the_changed_config(name: str) -> None:
    assert import_config(unquantized(name)).with_kv_heads(1) == import_config(unquantized(name, num_key_value_heads=1))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("tencent__Hunyuan-A13B-Instruct", {"use_cla": True}, "use_cla is True"),
        ("tencent__Hunyuan-A13B-Instruct", {"moe_topk": [1] + [2] * 31}, "moe_topk must be one number"),
        ("tencent__Hunyuan-A13B-Instruct", {"moe_intermediate_size": 4096}, "moe_intermediate_size is not 3072"),
        ("tencent__Hunyuan-A13B-Instruct", {"attention_head_dim": 64}, "attention_head_dim differs from 128"),
        ("MiniMaxAI__MiniMax-M3", {"attention_output_gate": True}, "attention_output_gate is True"),
        ("MiniMaxAI__MiniMax-M3", {"n_shared_experts": 2}, "n_shared_experts is 2"),
    ],
)
def test_a_switch_that_no_rule_counts_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        import_config(unquantized(name, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse_disable_index_value": [0] * 60}, "index values are not known"),
        ({"use_sparse_attention": False}, "use_sparse_attention is False"),
        ({"sparse_value_dim": 64}, "no rule reads sparse_attention_config.sparse_value_dim"),
    ],
)
def test_a_switch_inside_the_sparse_attention_of_minimax_m3_is_refused(changes: dict[str, Any], message: str) -> None:
    config = unquantized("MiniMaxAI__MiniMax-M3")
    config["sparse_attention_config"].update(changes)
    with pytest.raises(UnsupportedConfigError, match=message):
        import_config(config)


def test_only_layers_for_further_tokens_that_exist_are_noted() -> None:
    notes = [
        import_config(unquantized("zai-org__GLM-4.5-Air", num_nextn_predict_layers=count)).notes for count in (0, 1)
    ]
    assert (notes[0], len(notes[1])) == ((), 1)


def test_linear_layers_of_minimax_m2_are_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="attn_type_list holds layers other than full attention"):
        import_config({"model_type": "minimax_m2", "attn_type_list": [0, 1]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["chunked_attention"]}, "layer_types has 1 entry for 48 layers"),
        ({"no_rope_layers": [2] * 48}, "no_rope_layers must hold 0 or 1"),
        (
            {"layer_types": ["chunked_attention"] * 48, "attention_chunk_size": None},
            "lacks attention_chunk_size, but layers are chunked",
        ),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_config(llama4_text(**changes))
