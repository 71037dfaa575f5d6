"""Families with Mamba layers: state, convolution and weights are counted as transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, DtypeError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.held import assert_held
from tests.importer.published import BIAS, MHA, SIZES, by_layer, unquantized


def inner_channels(config: dict[str, Any]) -> int:
    return int(config.get("mamba_expand", 2) * config["hidden_size"])


LINEAR, FULL = "linear_attention", "full_attention"
MAMBA_2: dict[str, Any] = {
    "mamba_expand": [1, 2, "absent"],
    "mamba_n_heads": [4, 8],
    "mamba_d_head": ["auto", lambda c: inner_channels(c) // c["mamba_n_heads"], "absent"],
    "mamba_n_groups": [1, 2],
    "mamba_d_state": [8, 16],
    "mamba_d_conv": [3, 4, "absent"],
    "mamba_conv_bias": [True, False, "absent"],
    "mamba_proj_bias": [True, False, "absent"],
    "mamba_chunk_size": [8],
}
MAMBA_1: dict[str, Any] = {
    "mamba_expand": [1, 2, "absent"],
    "mamba_d_state": [4, 8],
    "mamba_d_conv": [3, 4, "absent"],
    "mamba_dt_rank": ["auto", 5, "absent"],
    "mamba_conv_bias": [True, False, "absent"],
    "mamba_proj_bias": [True, False, "absent"],
}
LONE: dict[str, Any] = {
    **{name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings")},
    "expand": [1, 2, "absent"],
    "state_size": [4, 8],
    "conv_kernel": [3, 4, "absent"],
    "use_bias": [True, False, "absent"],
    "use_conv_bias": [True, False, "absent"],
    "pad_token_id": [0],
}
OWN_HEAD = {"tie_word_embeddings": [False, "absent"]}  # classes that never tie
FAMILIES: dict[str, dict[str, Any]] = {
    "granitemoehybrid": SIZES
    | MHA
    | BIAS
    | MAMBA_2
    | {
        "num_local_experts": [0, 4],
        "num_experts_per_tok": [2],
        "shared_intermediate_size": [16, 24],
        "layer_types": [by_layer("mamba", "attention"), by_layer(FULL, LINEAR)],
    },
    "bamba": SIZES | MAMBA_2 | BIAS | {"mlp_bias": [True, False, "absent"], "attn_layer_indices": [[1], [0, 3]]},
    "falcon_h1": SIZES
    | BIAS
    | MAMBA_2
    | {
        "head_dim": [8, 16, "absent"],
        "mamba_d_ssm": [None, inner_channels],
        "mlp_bias": [True, False, "absent"],
        "projectors_bias": [True, False, "absent"],
        "mamba_rms_norm": [True, False, "absent"],
    },
    "nemotron_h": SIZES
    | OWN_HEAD
    | {
        "head_dim": [8, 16],
        "num_hidden_layers": ["absent"],
        "hybrid_override_pattern": ["M-E*", "MEM*EM-", "M*-"],
        "layers_block_type": ["absent", ["mamba", "moe", "attention", "mlp"], [LINEAR, FULL]],
        "mamba_num_heads": [4, 8],
        "mamba_head_dim": [8],
        "n_groups": [1, 2],
        "ssm_state_size": [8, 16],
        "conv_kernel": [3, 4, "absent"],
        "chunk_size": [8],
        "use_conv_bias": [True, False, "absent"],
        "use_bias": [True, False, "absent"],
        "mlp_bias": [True, False, "absent"],
        "n_routed_experts": [8],
        "num_experts_per_tok": [2, 3],
        "moe_intermediate_size": [16, 24],
        "moe_shared_expert_intermediate_size": [16, 24],
        "moe_latent_size": [16, 24, None, "absent"],
    },
    "jamba": SIZES
    | MAMBA_1
    | {
        "num_experts": [1, 4],
        "num_experts_per_tok": [2],
        "expert_layer_period": [2, 3],
        "expert_layer_offset": [0, 1],
        "attn_layer_period": [2, 3],
        "attn_layer_offset": [0, 1],
    },
    "mamba": LONE | {"time_step_rank": ["auto", 5, "absent"], "intermediate_size": ["absent", 64]},
    "falcon_mamba": LONE | {"time_step_rank": ["auto", 5, "absent"], "intermediate_size": ["absent", 64]},
    "mamba2": LONE
    | {
        "num_heads": [4, 8],
        "head_dim": [lambda c: c.get("expand", 2) * c["hidden_size"] // c["num_heads"]],
        "n_groups": [1, 2],
        "chunk_size": [8],
    },
    "zamba": SIZES
    | MAMBA_1
    | {
        "tie_word_embeddings": [True, "absent"],
        "num_hidden_layers": [5, 8],
        "n_mamba_heads": [1, 2],
        "attn_layer_period": [2, 3],
        "attn_layer_offset": [0, 1],
        "layers_block_type": [by_layer("linear_attention", "hybrid"), "absent"],
    },
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(family: str, seed: int) -> None:
    assert_held({"model_type": [family]} | FAMILIES[family], seed)


def test_experts_of_nemotron_on_a_latent_have_two_matrices_of_its_width() -> None:
    model = import_config(unquantized("nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"))
    assert model.num_params - model.num_active_params == 40 * (512 - 22) * 2 * 2688 * 1024


def test_layers_of_nemotron_follow_the_letters_of_the_pattern() -> None:
    pattern = unquantized("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")["hybrid_override_pattern"]
    model = import_config(unquantized("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"))
    letters = {"recurrent": "M", "none": "E", "full": "*"}
    assert "".join(letters[layer.cache.kind] for layer in model.layers) == pattern


def test_a_layer_of_falcon_h1_keeps_both_a_state_and_keys_and_values() -> None:
    model = import_config(unquantized("tiiuae__Falcon-H1-0.5B-Instruct"))
    state, inputs = 24 * 64 * 128 * 4, (24 * 64 + 2 * 128) * 4 * 2
    assert model.cache_bytes(1000) == 36 * (state + inputs + 1000 * 2 * 2 * 64 * 2)


def test_the_layout_of_mamba_ssm_pads_the_vocabulary_and_names_the_defaults_it_takes() -> None:
    model = import_config(unquantized("state-spaces__mamba2-130m"))
    assert model.vocab_size == 50288
    assert any("defaults of the mamba_ssm package" in note for note in model.notes)


def test_the_state_of_a_model_whose_dtype_nobody_states_is_not_guessed_for_an_fp8_cache() -> None:
    config = unquantized("state-spaces__mamba2-130m")
    with pytest.raises(DtypeError, match="no known engine stores convolution state in fp8; choose bf16"):
        import_config(config).cache_bytes(1, kv_dtype="fp8")
    assert import_config(config, dtype="fp16").cache_bytes(1, kv_dtype="fp8") == 24 * (24 * 64 * 128 * 4 + 1792 * 4 * 2)


def test_mamba_keeps_the_same_bytes_at_any_context_and_has_no_kv_heads() -> None:
    model = import_config(unquantized("state-spaces__mamba2-2.7b"))
    # 64 layers of 80 heads of 64 x 128 values in float32, and 4 inputs of 5,376 channels
    assert model.cache_bytes(1) == model.cache_bytes(10**6) == 64 * (80 * 64 * 128 * 4 + 5376 * 4 * 2)
    assert model.num_kv_heads is None


def test_more_gpus_than_groups_copy_the_channels_that_heads_of_mamba_2_share() -> None:
    model = import_config(unquantized("nvidia__Nemotron-H-8B-Base-8K"))
    # 24 layers of 128 heads of 64 x 128 values; 8,192 channels of heads, and 256 of each of 8 groups
    whole, sixteenth = (model.cache_curve("bf16", tensor_parallel=count).fixed_bytes for count in (1, 16))
    assert whole == 24 * (128 * 64 * 128 * 4 + (8192 + 8 * 256) * 4 * 2)
    assert sixteenth == 24 * (8 * 64 * 128 * 4 + (512 + 256) * 4 * 2)


def test_the_shared_transformer_of_zamba_is_stored_once() -> None:
    config = unquantized("Zyphra__Zamba-7B-v1@tfdefault")
    shared = [layer for layer in import_config(config).layers if any(g.role == "mlp" for g in layer.weights)]
    assert len(shared) == 1


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nvidia__Nemotron-H-8B-Base-8K", {"num_query_groups": 8}),
        ("tiiuae__Falcon-H1-0.5B-Instruct", {"mlp_expansion_factor": 8}),
    ],
)
def test_what_published_configs_of_a_family_say_twice_changes_nothing(name: str, changes: dict[str, Any]) -> None:
    assert import_config(unquantized(name, **changes)) == import_config(unquantized(name))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("nvidia__Nemotron-H-8B-Base-8K", {"attention_head_dim": 64}, "attention_head_dim is 64"),
        ("nvidia__Nemotron-H-8B-Base-8K", {"num_query_groups": 4}, "reads num_key_value_heads, which is 8"),
        ("nvidia__Nemotron-H-8B-Base-8K", {"mamba_ssm_cache_dtype": "bfloat16"}, "mamba_ssm_cache_dtype is 'bfloat16'"),
        ("nvidia__Nemotron-H-8B-Base-8K", {"tie_word_embeddings": True}, "the class builds a head of its own"),
        ("tiiuae__Falcon-H1-0.5B-Instruct", {"attn_layer_indices": [0]}, "layers without attention are not known"),
        ("state-spaces__mamba2-130m", {"attn_layer_idx": [1]}, "attention layers are not known"),
        ("state-spaces__mamba2-130m", {"ssm_cfg": {"layer": "Mamba2", "d_state": 64}}, "states more than the layer"),
        ("Zyphra__Zamba-7B-v1@tfdefault", {"tie_word_embeddings": False}, "a transformer for each layer"),
    ],
)
def test_a_switch_that_no_rule_counts_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        import_config(unquantized(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("nvidia__Nemotron-H-8B-Base-8K", {"hybrid_override_pattern": "MX"}, "must hold only M, E, . and -"),
        ("nvidia__Nemotron-H-8B-Base-8K", {"num_hidden_layers": 50}, "num_hidden_layers is 50, but the pattern has 52"),
        ("tiiuae__Falcon-H1-0.5B-Instruct", {"mamba_d_ssm": 1000}, "do not make the 1000 channels"),
        (
            "tiiuae__Falcon-H1-0.5B-Instruct",
            {"model_type": "falcon_mamba", "expand": 1e308},
            "expand is 1e.308; it must",
        ),
        ("tiiuae__Falcon-H1-0.5B-Instruct", {"model_type": "mamba2", "expand": -1e308}, "expand is -1e.308; it must"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_config(unquantized(name, **changes))
