"""Families with routed experts and ordinary attention, counted as transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.held import assert_held
from tests.importer.published import BIAS, CONFIGS, MHA, SIZES, by_layer, unquantized

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


LING = {
    "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "num_hidden_layers": 20,
    "hidden_size": 2048, "intermediate_size": 5120, "first_k_dense_replace": 1, "max_position_embeddings": 32768,
    "moe_intermediate_size": 512, "norm_topk_prob": True, "num_experts_per_tok": 8, "num_attention_heads": 16,
    "num_experts": 256, "num_key_value_heads": 4, "rope_theta": 600000, "rope_scaling": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_bias": False, "use_rmsnorm": True, "head_dim": 128,
    "num_shared_experts": 1, "use_qkv_bias": False, "vocab_size": 157184, "partial_rotary_factor": 0.5,
    "router_dtype": "fp32", "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "use_qk_norm": True, "score_function": "sigmoid", "moe_shared_expert_intermediate_size": 512,
}  # fmt: skip
"""As huggingface.co/inclusionAI/Ring-mini-sparse-2.0-exp states it, less its sparse attention."""


@pytest.mark.parametrize("changes", [{}, {"use_qk_norm": False}, {"first_k_dense_replace": 3, "num_shared_experts": 2}])
@pytest.mark.parametrize("model_type", ["bailing_moe", "bailing_moe_v2"])
def test_ling_2_has_the_layers_of_glm_4_5(model_type: str, changes: dict[str, Any]) -> None:
    """Its published code and GLM 4.5's class build tensors of the same sizes, and transformers has the latter."""
    config = {**LING, **changes, "model_type": model_type}
    config["moe_shared_expert_intermediate_size"] = 512 * config["num_shared_experts"]
    names = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}
    alike = [key for key in config if key in KNOWN_TO_GLM] + list(names)
    glm = {names.get(key, key): config[key] for key in alike} | {"model_type": "glm4_moe", "attention_bias": False}
    ling, built = import_config(config), import_config(glm)
    assert ling.num_params == built.num_params
    assert ling.num_active_params == built.num_active_params
    assert ling.cache_bytes(5000) == built.cache_bytes(5000)


KNOWN_TO_GLM = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "first_k_dense_replace", "max_position_embeddings",
    "moe_intermediate_size", "num_experts_per_tok", "num_attention_heads", "num_key_value_heads", "tie_word_embeddings",
    "torch_dtype", "head_dim", "vocab_size", "use_qk_norm",
)  # fmt: skip


def test_ling_mini_2_has_16_billion_parameters_of_which_a_token_reads_1_4() -> None:
    """As its maker states; the biases of its 19 routers of 256 experts stand beside them."""
    model = import_config(LING)
    assert (round(model.num_params / 1e9), round(model.num_active_params / 1e9, 1)) == (16, 1.4)
    assert [part.params for part in model.beside] == [19 * 256]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["BailingMoeForCausalLM"]}, "only BailingMoeV2ForCausalLM .Ling 2, Ring 2. is known"),
        ({"moe_shared_expert_intermediate_size": 1024}, "shared experts of another width are not known"),
        ({"use_rmsnorm": False}, "use_rmsnorm"),
        ({"moba_block_size": 1024}, "moba_block_size"),
    ],
)
def test_what_is_not_known_of_ling_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=reason):
        import_config({**LING, **changes}, measure="never")


PHI_3_SMALL = CONFIGS / "microsoft__Phi-3-small-8k-instruct.json"


def test_phi_3_small_has_the_values_that_are_published() -> None:
    """7,392,274,432 are stored; 64 of each of its 32 layers are saved rotary frequencies and no parameters."""
    model = import_config(PHI_3_SMALL)
    assert model.num_params == 7_392_274_432 - 32 * 64
    assert model.cache_bytes(1000) == 32 * 2 * 8 * 128 * 2 * 1000
    assert any("keep all of them" in note for note in model.notes)


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
