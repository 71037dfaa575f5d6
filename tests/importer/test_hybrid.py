"""Families with recurrent layers: state, convolution and weights are counted as transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.held import assert_held
from tests.importer.published import BIAS, SIZES, by_layer, unquantized

LINEAR, FULL = "linear_attention", "full_attention"
DELTA: dict[str, Any] = {
    "head_dim": [8, 16],
    "linear_conv_kernel_dim": [3, 4, "absent"],
    "linear_key_head_dim": [8, 16],
    "linear_value_head_dim": [8, 16],
    "linear_num_key_heads": [2],
    "linear_num_value_heads": [2, 4],
    "full_attention_interval": [2, 3, "absent"],
    "layer_types": [by_layer(FULL, LINEAR), "absent"],
}
QWEN_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": [16, 24],
    "shared_expert_intermediate_size": [16, 24],
    "num_experts": [8],
    "num_experts_per_tok": [2, 3],
}
OWN_HEAD = {"tie_word_embeddings": [False, "absent"]}  # classes that never tie
LATENT: dict[str, Any] = {
    **OWN_HEAD,
    "q_lora_rank": [24, None, "absent"],
    "kv_lora_rank": [16, 24],
    "qk_nope_head_dim": [8, 16],
    "qk_rope_head_dim": [4, 8],
    "v_head_dim": [8, 16],
    "num_key_value_heads": [lambda c: c["num_attention_heads"]],
    "moe_intermediate_size": [16, 24],
    "n_shared_experts": ["absent"],
    "num_shared_experts": [1, 2, "absent"],
    "num_experts": [8],
    "num_experts_per_token": [2, 3],
    "num_expert_group": [2],
    "topk_group": [1],
    "first_k_dense_replace": [0, 1, 3, "absent"],
    "mlp_layer_types": [by_layer("sparse", "dense"), "absent"],
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": SIZES
    | BIAS
    | DELTA
    | QWEN_EXPERTS
    | {"decoder_sparse_step": [1, 2, "absent"], "mlp_only_layers": [[], [1], None, "absent"]},
    "qwen3_5_text": SIZES | BIAS | DELTA,
    "qwen3_5_moe_text": SIZES | BIAS | DELTA | QWEN_EXPERTS | {"intermediate_size": ["absent"]},
    "lfm2": SIZES
    | {
        "conv_bias": [True, False, "absent"],
        "conv_L_cache": [3, 4, "absent"],
        "block_multiple_of": [8, 16],
        "block_ffn_dim_multiplier": [1.0, 1.3, "absent"],
        "block_auto_adjust_ff_dim": [True, False, "absent"],
        "block_ff_dim": [80, "absent"],
        "tie_embedding": [True, False, "absent"],
        "full_attn_idxs": [[0], [1], "absent"],
        "layer_types": ["absent", by_layer("conv", FULL)],
    },
    "lfm2_moe": SIZES
    | {
        "conv_bias": [True, False, "absent"],
        "conv_L_cache": [3, 4, "absent"],
        "tie_embedding": [True, False, "absent"],
        "layer_types": [by_layer("conv", FULL), by_layer(FULL)],
        "moe_intermediate_size": [16, 24],
        "num_dense_layers": [0, 1, "absent"],
        "num_experts": [8],
        "num_experts_per_tok": [2, "absent"],
    },
    "minimax": SIZES
    | {
        "head_dim": [8, None, "absent"],
        "num_local_experts": [4],
        "num_experts_per_tok": [2],
        "block_size": [8],
        "layer_types": [by_layer(LINEAR, LINEAR, FULL), "absent"],
    },
    "kimi_linear": SIZES
    | LATENT
    | {
        "linear_attn_config": [
            {"head_dim": 8, "num_heads": 4, "short_conv_kernel_size": 3},
            lambda c: {
                "head_dim": 8,
                "num_heads": 2,
                "short_conv_kernel_size": 4,
                "full_attn_layers": [1],
                "kda_layers": list(range(2, c["num_hidden_layers"] + 1)),
            },
        ],
        "layer_types": [by_layer(LINEAR, FULL), "absent"],
    },
    "bailing_hybrid": SIZES
    | LATENT
    | {
        "num_hidden_layers": [3, 5],
        "head_dim": [8, 16],
        "short_conv_kernel_size": [3, 4],
        "layer_group_size": [2, 3],
        "layer_types": [by_layer(LINEAR, FULL), "absent"],
    },
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(family: str, seed: int) -> None:
    assert_held({"model_type": [family]} | FAMILIES[family], seed)


def test_a_gated_delta_layer_keeps_a_float32_state_and_four_inputs_of_its_convolution() -> None:
    model = import_config(unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct"))
    state, inputs = 32 * 128 * 128 * 4, (2 * 16 * 128 + 32 * 128) * 4 * 2
    assert model.cache_curve("bf16").fixed_bytes == 36 * (state + inputs)
    assert model.cache_curve("fp8").fixed_bytes == 36 * (state + inputs)
    assert model.cache_bytes_per_token() == 12 * 2 * 2 * 256 * 2


def test_the_state_of_a_gated_delta_layer_divides_over_gpus() -> None:
    model = import_config(unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct"))
    one, two = (model.cache_curve("bf16", tensor_parallel=count).fixed_bytes for count in (1, 2))
    assert one == 2 * two


def test_the_state_of_a_model_without_dtype_follows_the_plan() -> None:
    config = unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct")
    del config["torch_dtype"]
    curves = {kv: import_config(config).cache_curve(kv).fixed_bytes for kv in ("bf16", "fp32")}
    assert curves["fp32"] - curves["bf16"] == 36 * (2 * 16 * 128 + 32 * 128) * 4 * 2


def test_the_dtype_that_the_caller_gives_is_that_of_the_state_too() -> None:
    config = unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct")
    del config["torch_dtype"]
    model = import_config(config, dtype="bf16")
    assert model == import_config(unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct"))
    assert model.cache_curve("fp8").fixed_bytes == model.cache_curve("bf16").fixed_bytes


def test_the_dtype_of_a_wrapper_is_that_of_the_state_of_its_text_model() -> None:
    config = unquantized("Qwen__Qwen3.5-9B", dtype="bfloat16")
    del config["text_config"]["dtype"]
    assert import_config(config) == import_config(unquantized("Qwen__Qwen3.5-9B"))


def test_a_token_of_qwen3_next_reads_ten_of_512_experts() -> None:
    model = import_config(unquantized("Qwen__Qwen3-Next-80B-A3B-Instruct"))
    assert model.num_params - model.num_active_params == 48 * 502 * 3 * 512 * 2048


def test_kimi_layers_count_from_one_and_keep_a_latent_or_a_state() -> None:
    full = [4, 8, 12, 16, 20, 24, 27]
    settings = {"full_attn_layers": full, "kda_layers": [layer for layer in range(1, 28) if layer not in full]}
    model = import_config({"model_type": "kimi_linear", "dtype": "bfloat16", "linear_attn_config": settings})
    assert [index + 1 for index, layer in enumerate(model.layers) if layer.cache.kind == "latent"] == full
    # 20 layers of 32 heads of 128 x 128 values in float32 and 4 inputs of 3 x 4,096 channels; 7 latents of 576
    assert model.cache_bytes(1000) == 20 * (32 * 128 * 128 * 4 + 3 * 4096 * 4 * 2) + 7 * 1000 * 576 * 2


def test_lightning_layers_of_minimax_m1_keep_a_state_in_the_dtype_of_the_model() -> None:
    model = import_config(unquantized("MiniMaxAI__MiniMax-M1-80k"), dtype="bf16")
    assert model.cache_bytes(0) == 70 * 64 * 128 * 128 * 2


def test_recurrent_gemma_has_the_parameters_of_its_class_and_windows_in_every_third_layer() -> None:
    model = import_config(unquantized("google__recurrentgemma-2b@tfdefault"))
    assert model.num_params == 2010263040
    kinds = [layer.cache.kind for layer in model.layers]
    assert kinds == 8 * ["recurrent", "recurrent", "sliding"] + 2 * ["recurrent"]
    # a state of 2,560 values in float32 and 3 inputs of its convolution; windows of 10 heads of 256 values
    assert model.cache_bytes(10**6) == 18 * 2560 * (4 + 3 * 2) + 8 * 2 * 10 * 256 * 2 * 2048


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Qwen__Qwen3-Next-80B-A3B-Instruct", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("MiniMaxAI__MiniMax-M1-80k", {"shared_intermediate_size": 8}, "shared_intermediate_size is 8"),
    ],
)
def test_a_switch_that_no_rule_counts_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        import_config(unquantized(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Qwen__Qwen3-Next-80B-A3B-Instruct", {"layer_types": [FULL]}, "layer_types has 1 entry for 48 layers"),
        ("MiniMaxAI__MiniMax-M1-80k", {"attn_type_list": [0, 1]}, "attn_type_list must hold 0 or 1"),
        ("google__recurrentgemma-2b@tfdefault", {"block_types": []}, "block_types is empty"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_config(unquantized(name, **changes))


def test_kimi_layers_that_are_named_twice_are_refused() -> None:
    settings = {"full_attn_layers": [1, 2], "kda_layers": [2]}
    with pytest.raises(ConfigError, match="must name each of the 2 layers once, from 1"):
        import_config({"model_type": "kimi_linear", "num_hidden_layers": 2, "linear_attn_config": settings})
