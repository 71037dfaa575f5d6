"""GPT-2 and its followers, Falcon, OPT, BLOOM, Phi, GLM and gpt-oss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.published import BIAS, MHA, published

TIED = {"tie_word_embeddings": [True, False, "absent"]}
SIZES: dict[str, Any] = TIED | {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [4, 12],
    "max_position_embeddings": [64],
    "pad_token_id": [0],
}
GPT2: dict[str, Any] = TIED | {
    "vocab_size": [96, 131],
    "n_embd": [48, 96],
    "n_layer": [1, 3],
    "n_head": [4, 12],
    "n_inner": [72, None, "absent"],
    "n_positions": [64, 80],
}
GQA = {"num_key_value_heads": [1, 2, 4]}
HEAD_DIM = {"head_dim": [8, 20]}
FLAG = [True, False, "absent"]


def alternating(config: dict[str, Any]) -> list[Any]:
    """Global and local layers, as many as there are."""
    return [[["global"], 1], [["local"], config["num_layers"] - 1]]


def some_types(config: dict[str, Any]) -> list[str]:
    return ["full_attention" if index % 3 == 0 else "sliding_attention" for index in range(config["num_hidden_layers"])]


FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt_bigcode": GPT2 | {"multi_query": FLAG},
    "gpt_neo": TIED
    | {
        "vocab_size": [96, 131],
        "hidden_size": [48, 96],
        "num_layers": [2, 3],
        "num_heads": [4, 12],
        "intermediate_size": [72, None, "absent"],
        "max_position_embeddings": [64],
        "attention_types": [alternating],
    },
    "gptj": GPT2 | {"rotary_dim": [4]},
    "codegen": GPT2 | {"rotary_dim": [4], "n_head": [4]},
    "gpt_neox": SIZES | {"hidden_size": [96]} | BIAS,  # a quarter of each head is rotated, in pairs
    "bloom": TIED | {"vocab_size": [96], "hidden_size": [48, 96], "n_layer": [1, 3], "n_head": [4, 12]},
    "mpt": TIED
    | {
        "vocab_size": [96],
        "d_model": [48, 96],
        "n_layers": [1, 3],
        "n_heads": [4, 12],
        "expansion_ratio": [4, "absent"],
    },
    "opt": SIZES
    | {
        "intermediate_size": ["absent"],
        "ffn_dim": [64, 72],
        "word_embed_proj_dim": [24, None, "absent"],
        "do_layer_norm_before": FLAG,
        "_remove_final_layer_norm": FLAG,
        "enable_bias": FLAG,
    },
    "falcon": SIZES
    | {
        "intermediate_size": ["absent"],
        "ffn_hidden_size": [64, None, "absent"],
        "new_decoder_architecture": [False, "absent"],
        "num_kv_heads": [None, "absent"],
        "multi_query": FLAG,
        "parallel_attn": FLAG,
        "bias": FLAG,
        "alibi": FLAG,
    },
    "falcon new": SIZES
    | {
        "model_type": ["falcon"],
        "intermediate_size": ["absent"],
        "ffn_hidden_size": [64, None, "absent"],
        "new_decoder_architecture": [True],
        "num_kv_heads": [2, None, "absent"],
        "multi_query": FLAG,
        "bias": FLAG,
        "num_ln_in_parallel_attn": [1, 2, None, "absent"],
    },
    "phi": SIZES | MHA | {"hidden_size": [96], "qk_layernorm": FLAG},
    "phi3": SIZES | MHA | {"sliding_window": [5, None, "absent"]},
    "glm": SIZES | GQA | HEAD_DIM | BIAS,
    "glm4": SIZES | GQA | HEAD_DIM | BIAS,
    "gpt_oss": SIZES
    | GQA
    | HEAD_DIM
    | BIAS
    | {
        "hidden_size": [64, 96],
        "intermediate_size": [64, 80],
        "num_local_experts": [4],
        "num_experts_per_tok": [2],
        "sliding_window": [5, "absent"],
        "layer_types": [some_types, None, "absent"],
    },
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(
    family: str, seed: int, assert_counted: Callable[..., None]
) -> None:
    assert_counted({"model_type": [family]} | FAMILIES[family], seed)


def test_gpt_2_holds_positions_for_its_context_only() -> None:
    model = import_config(published("openai-community__gpt2"))
    positions = [group for group in model.weights if group.role == "position_embedding"]
    assert [(group.rows, group.columns) for group in positions] == [(1024, 768)]
    assert model.context_limit == 1024


def test_one_kv_head_of_multi_query_is_copied_to_every_gpu() -> None:
    model = import_config(published("WizardLMTeam__WizardCoder-15B-V1.0"))
    assert model.cache_bytes(100, tensor_parallel=8) == model.cache_bytes(100) == 100 * 40 * 2 * 128 * 2


def test_local_layers_of_gpt_neo_keep_every_token_and_it_is_noted() -> None:
    model = import_config(published("EleutherAI__gpt-neo-1.3B@tfdefault"))
    assert {layer.cache.kind for layer in model.layers} == {"full"}
    assert any("local layers look at a window" in note for note in model.notes)


def test_falcon_7b_has_one_kv_head_under_its_first_name() -> None:
    model = import_config(published("tiiuae__falcon-7b@RefinedWebModel"))
    assert model.num_kv_heads == 1
    assert model.cache_bytes_per_token() == 32 * 2 * 64 * 2


def test_the_new_architecture_of_falcon_overrides_multi_query() -> None:
    model = import_config(published("tiiuae__falcon-40b"))
    keys = {group.rows for group in model.layers[0].weights if group.role == "attention_k"}
    assert keys == {8 * 64}


def test_copies_of_kv_heads_that_the_class_of_falcon_keeps_are_noted_and_can_be_left_out() -> None:
    model = import_config(published("tiiuae__falcon-40b"))
    assert model.cache_bytes_per_token() == 60 * 2 * 128 * 64 * 2
    assert model.with_kv_heads(8).cache_bytes_per_token() == 60 * 2 * 8 * 64 * 2
    assert model.with_kv_heads(8).num_params == model.num_params
    assert any("8/128 of this cache" in note for note in model.notes)


def test_both_names_of_falcon_40b_describe_the_same_weights() -> None:
    first, later = (import_config(published(f"tiiuae__falcon-40b{end}")) for end in ("@RefinedWeb", ""))
    assert (first.layers, first.weights) == (later.layers, later.weights)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads is 3"),
        ({"parallel_attn": False}, "parallel_attn is false"),
        ({"new_decoder_architecture": False, "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn is 2"),
        ({"new_decoder_architecture": False, "multi_query": False}, "num_kv_heads is 8"),
    ],
)
def test_switches_of_falcon_that_its_class_cannot_run_are_errors(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        import_config(published("tiiuae__falcon-40b", **changes))


def test_opt_350m_embeds_in_fewer_values_than_its_layers_have() -> None:
    model = import_config(published("facebook__opt-350m"))
    shapes = {(group.role, group.rows, group.columns) for group in model.weights}
    assert {("embedding", 50272, 512), ("other", 1024, 512), ("other", 512, 1024)} <= shapes


def test_phi_under_the_names_of_its_first_code_is_the_same_model() -> None:
    first, later = import_config(published("microsoft__phi-2@mixformer")), import_config(published("microsoft__phi-2"))
    assert (first.layers, first.weights) == (later.layers, later.weights)


def test_blocks_of_phi_that_are_not_parallel_are_refused() -> None:
    config = published("microsoft__phi-2@mixformer", architecture={"block_cls": "sequential"})
    with pytest.raises(UnsupportedConfigError, match="block_cls is 'sequential'"):
        import_config(config)


def test_chatglm_2_has_two_kv_heads() -> None:
    model = import_config(published("THUDM__chatglm2-6b"))
    assert model.num_kv_heads == 2
    assert import_config(published("THUDM__chatglm2-6b", multi_query_attention=False)).num_kv_heads == 32


def test_a_group_number_of_chatglm_that_does_not_divide_is_an_error() -> None:
    with pytest.raises(ConfigError, match="multi_query_group_num is 3; a divisor of 32 attention heads is needed"):
        import_config(published("THUDM__chatglm2-6b", multi_query_group_num=3))


def test_the_first_chatglm_is_refused_since_its_layout_is_another() -> None:
    config = published("THUDM__chatglm2-6b", position_encoding_2d=True)
    with pytest.raises(UnsupportedConfigError, match="position_encoding_2d"):
        import_config(config)


@pytest.mark.parametrize("name", ["microsoft__phi-4", "zai-org__GLM-4-9B-0414", "microsoft__phi-2"])
def test_changing_the_kv_heads_of_a_model_equals_importing_the_changed_config(name: str) -> None:
    assert import_config(published(name)).with_kv_heads(1) == import_config(published(name, num_key_value_heads=1))


def test_windows_and_full_layers_of_gpt_oss_alternate() -> None:
    config = published("openai__gpt-oss-20b", dtype="bfloat16")
    del config["quantization_config"]
    model = import_config(config)
    assert [layer.cache.kind for layer in model.layers] == 12 * ["sliding", "full"]
    # K and V of 8 heads of 64 values at 2 bytes; windows of 128 tokens
    assert model.cache_bytes(8192) == 2 * 8 * 64 * 2 * 12 * (8192 + 128)


def test_a_token_of_gpt_oss_20b_reads_4_of_32_experts() -> None:
    config = published("openai__gpt-oss-20b")
    del config["quantization_config"]
    model = import_config(config)
    # an expert: gate, up and down of 2,880 x 2,880, each with a bias of 2,880
    assert model.num_params - model.num_active_params == 24 * 28 * 3 * (2880 * 2880 + 2880)


def test_cross_attention_of_gpt_2_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="add_cross_attention is True"):
        import_config(published("openai-community__gpt2", add_cross_attention=True))
