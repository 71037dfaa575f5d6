"""Llama and its relatives: what a rule counts is what transformers builds, whatever the sizes and switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.published import BIAS, MHA, published

SIZES: dict[str, Any] = {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [1, 3, 8],
    "num_attention_heads": [4, 12],
    "num_key_value_heads": [1, 2, 4],
    "max_position_embeddings": [64, "absent"],
    "tie_word_embeddings": [True, False, "absent"],
    "pad_token_id": [0],
}
HEAD_DIM = {"head_dim": [8, 20, "absent"]}
BIASES = {"attention_bias": [True, False, "absent"], "mlp_bias": [True, False, "absent"]}
WINDOW = {"sliding_window": [5, 64, None, "absent"]}


def some_types(config: dict[str, Any]) -> list[str]:
    """A type for each layer, in an order that no class has by itself."""
    return ["full_attention" if index % 3 == 1 else "sliding_attention" for index in range(config["num_hidden_layers"])]


def square_head_dim(config: dict[str, Any]) -> int:
    return int(config["hidden_size"] // config["num_attention_heads"])


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES | MHA | HEAD_DIM | BIASES,
    "internlm3": SIZES
    | MHA
    | HEAD_DIM
    | {"bias": [True, False, "absent"], "qkv_bias": [lambda c: c.get("bias", False)]},
    "smollm3": SIZES
    | MHA
    | BIASES
    | {"use_sliding_window": [False, "absent"], "no_rope_layer_interval": [2, "absent"]},
    "seed_oss": SIZES
    | {"num_key_value_heads": [1, 4, None]}
    | HEAD_DIM
    | BIASES
    | {"attention_out_bias": [True, False, "absent"]},
    "ernie4_5": SIZES | MHA | HEAD_DIM | {"use_bias": [True, False, "absent"]},
    "helium": SIZES | BIASES | {"head_dim": [square_head_dim]},
    "arcee": SIZES | MHA | HEAD_DIM | BIASES,
    "hunyuan_v1_dense": SIZES | MHA | BIAS | {"head_dim": [8, 20]},
    "apertus": SIZES | MHA | HEAD_DIM | BIAS,
    "granite": SIZES | MHA | HEAD_DIM | BIASES,
    "mistral": SIZES | HEAD_DIM | WINDOW,
    "ministral": SIZES | {"head_dim": [8, 20], "sliding_window": [5, "absent"], "layer_types": [some_types, "absent"]},
    "ministral3": SIZES | HEAD_DIM | WINDOW,
    "mixtral": SIZES | HEAD_DIM | WINDOW | {"num_local_experts": [3, "absent"], "num_experts_per_tok": [1, "absent"]},
    "granitemoe": SIZES | MHA | BIAS | {"num_local_experts": [4, "absent"], "num_experts_per_tok": [1, "absent"]},
    "granitemoeshared": SIZES
    | MHA
    | BIAS
    | {"num_local_experts": [4], "num_experts_per_tok": [2], "shared_intermediate_size": [0, 24, "absent"]},
    "olmo": SIZES | MHA | BIAS,
    "olmo2": SIZES | MHA | HEAD_DIM | BIAS,
    "olmo3": SIZES | MHA | HEAD_DIM | BIAS | {"sliding_window": [5], "layer_types": [some_types, None, "absent"]},
    "olmoe": SIZES | MHA | BIAS | {"num_experts": [4, "absent"], "num_experts_per_tok": [2]},
    "cohere": SIZES | MHA | HEAD_DIM | BIAS | {"use_qk_norm": [True, False, "absent"]},
    "cohere2": SIZES
    | MHA
    | BIAS
    | {
        "sliding_window": [5, "absent"],
        "layer_types": [some_types, "absent", None],
        "sliding_window_pattern": [2, "absent"],
    },
    "exaone4": SIZES
    | HEAD_DIM
    | {"sliding_window": [5, "absent"], "layer_types": [some_types, None], "sliding_window_pattern": [3, "absent"]},
    "stablelm": SIZES
    | {"hidden_size": [96]}  # a quarter of each head is rotated, in pairs
    | {name: [True, False, "absent"] for name in ("use_qkv_bias", "qk_layernorm", "use_parallel_residual")},
    "starcoder2": SIZES | HEAD_DIM | WINDOW | {"use_bias": [True, False, "absent"]},
    "nemotron": SIZES | HEAD_DIM | BIASES,
    "jais2": SIZES | MHA | HEAD_DIM | BIASES,
    "iquestcoder": SIZES | HEAD_DIM | BIASES,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(
    family: str, seed: int, assert_counted: Callable[..., None]
) -> None:
    assert_counted({"model_type": [family]} | FAMILIES[family], seed)


def test_an_absent_sliding_window_of_mistral_is_the_class_default_and_noted() -> None:
    config = published("mistralai__Mistral-7B-v0.1")
    del config["sliding_window"]
    model = import_config(config)
    # 32 layers, K and V of 8 heads of 128 values at 2 bytes, 4,096 tokens at most
    assert model.cache_bytes(10**6) == 32 * 2 * 8 * 128 * 2 * 4096
    assert any("sliding_window" in note for note in model.notes)


def test_a_null_sliding_window_of_mistral_means_full_attention() -> None:
    model = import_config(published("mistralai__Mistral-7B-v0.1", sliding_window=None))
    assert model.cache_bytes(10**6) == 32 * 2 * 8 * 128 * 2 * 10**6


def test_null_kv_heads_mean_one_for_each_head_where_absent_ones_are_the_class_default() -> None:
    config = published("mistralai__Mistral-7B-v0.1", num_key_value_heads=None)
    assert import_config(config).num_kv_heads == 32
    del config["num_key_value_heads"]
    assert import_config(config).num_kv_heads == 8


@pytest.mark.parametrize("name", ["meta-llama__Llama-3.1-8B", "mistralai__Mixtral-8x7B-Instruct-v0.1"])
def test_changing_the_kv_heads_of_a_model_equals_importing_the_changed_config(name: str) -> None:
    assert import_config(published(name)).with_kv_heads(2) == import_config(published(name, num_key_value_heads=2))


def test_a_token_of_mixtral_reads_two_of_eight_experts() -> None:
    model = import_config(published("mistralai__Mixtral-8x7B-Instruct-v0.1"))
    # 6 experts of 3 matrices of 14,336 x 4,096 in each of 32 layers rest
    assert model.num_params - model.num_active_params == 32 * 6 * 3 * 14336 * 4096


def test_two_gpus_halve_all_of_llama_but_its_norms() -> None:
    model = import_config(published("meta-llama__Llama-3.1-8B"))
    norms = (2 * 32 + 1) * 4096 * 2
    assert 2 * model.weight_bytes(tensor_parallel=2) == model.weight_bytes() + norms


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaModel", "LlamaForTokenClassification"])
def test_a_class_with_another_head_or_none_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=f"architectures names {name}"):
        import_config(published("meta-llama__Llama-3.1-8B", architectures=[name]))


def test_biases_that_the_class_does_not_have_are_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="attention_bias is True"):
        import_config(published("mistralai__Mistral-7B-v0.1", attention_bias=True))


def test_window_layers_without_a_window_are_refused() -> None:
    with pytest.raises(ConfigError, match="sliding_window is absent, but some layers have one"):
        import_config(published("mistralai__Mistral-7B-v0.1", model_type="olmo3", sliding_window=None))


def test_a_type_for_each_layer_is_needed() -> None:
    with pytest.raises(ConfigError, match="layer_types has 1 entry; 32, one for each layer, are needed"):
        import_config(published("mistralai__Mistral-7B-v0.1", model_type="ministral", layer_types=["full_attention"]))


def test_hunyuan_states_the_sizes_of_a_classification_head_that_it_does_not_have() -> None:
    sizes = {"model_type": "hunyuan_v1_dense", "head_dim": 128, "torch_dtype": "bfloat16"}
    stated = {"add_classification_head": False, "class_num": 0, "dense_list": [4096, 0], "pool_type": "last"}
    assert import_config(sizes | stated) == import_config(sizes)
    with pytest.raises(UnsupportedConfigError, match="a classification head is not known"):
        import_config(sizes | stated | {"add_classification_head": True}, measure="never")


def test_a_pattern_of_very_many_letters_is_refused_in_a_short_sentence() -> None:
    config = {"model_type": "exaone4", "sliding_window_pattern": "x" * 100_000}
    with pytest.raises(UnsupportedConfigError, match="letters such as LLLG are known") as refusal:
        import_config(config, measure="never")
    assert len(str(refusal.value)) < 300


def test_a_pattern_of_letters_is_read_like_its_length() -> None:
    sizes = {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 16}
    model = import_config(sizes | {"sliding_window_pattern": "LLLG"})
    assert model == import_config(sizes | {"sliding_window_pattern": 4})
    assert [layer.cache.kind for layer in model.layers] == 2 * (3 * ["sliding"] + ["full"])


@pytest.mark.parametrize("pattern", ["LGLG", "G", "", "LLLL"])
def test_another_pattern_of_letters_is_refused_unless_all_layers_are_full(pattern: str) -> None:
    sizes = {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 16, "sliding_window_pattern": pattern}
    if pattern == "G":
        assert {layer.cache.kind for layer in import_config(sizes).layers} == {"full"}
    else:
        with pytest.raises(UnsupportedConfigError, match="sliding_window_pattern"):
            import_config(sizes)


def test_internlm_2_and_baichuan_2_are_llama_layouts_under_other_names() -> None:
    internlm2 = {
        "model_type": "internlm2", "vocab_size": 92544, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "bias": False,
    }  # fmt: skip
    baichuan2 = {
        "model_type": "baichuan", "vocab_size": 125696, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "model_max_length": 4096, "z_loss_weight": 0,
    }  # fmt: skip
    norms = (2 * 32 + 1) * 4096
    layers = 32 * (2 * 4096 * (32 + 8) * 128 + 3 * 14336 * 4096)
    assert import_config(internlm2).num_params == 2 * 92544 * 4096 + layers + norms
    layers = 32 * (4 * 4096 * 4096 + 3 * 11008 * 4096)
    assert import_config(baichuan2).num_params == 2 * 125696 * 4096 + layers + norms


def test_norm_biases_of_orion_that_its_stand_in_lacks_are_noted() -> None:
    model = import_config(published("OrionStarAI__Orion-14B-Chat"))
    assert any(note.startswith("the biases of its norms") for note in model.notes)


def test_of_two_context_lengths_the_first_is_the_limit_and_the_other_is_noted() -> None:
    model = import_config(published("meta-llama__Llama-3.1-8B", seq_length=8192))
    assert model.context_limit == 131072
    assert "seq_length is 8192; max_position_embeddings is taken as the limit" in model.notes


def test_layers_of_nemotron_nas_without_attention_keep_nothing() -> None:
    model = import_config(published("nvidia__Llama-3_3-Nemotron-Super-49B-v1"))
    kinds = [layer.cache.kind for layer in model.layers]
    assert (kinds.count("full"), kinds.count("none")) == (49, 31)
    # 49 layers, K and V of 64 / 8 heads of 128 values at 2 bytes
    assert model.cache_bytes_per_token() == 49 * 2 * 8 * 128 * 2


def test_a_linear_layer_in_the_place_of_attention_or_mlp_is_counted() -> None:
    config = published("nvidia__Llama-3_3-Nemotron-Super-49B-v1")
    before = import_config(config).num_params
    for part in config["block_configs"][0].values():
        part["replace_with_linear"] = True
    # q and o of 64 heads, k and v of 8 heads; an MLP of 14,336; two matrices of 8,192 x 8,192 instead
    attention, mlp = 2 * 8192 * (64 + 8) * 128, 3 * 8192 * 14336
    assert import_config(config).num_params == before - attention - mlp + 2 * 8192 * 8192


@pytest.mark.parametrize("ratio", [0, -1.5, 1e-300, 1e308])
def test_an_mlp_width_of_nemotron_nas_must_be_believable(ratio: float) -> None:
    config = published("nvidia__Llama-3_3-Nemotron-Super-49B-v1")
    config["block_configs"][1]["ffn"]["ffn_mult"] = ratio
    with pytest.raises(ConfigError, match=r"block_configs\[1\] ffn: ffn_mult is"):
        import_config(config)


def test_windows_of_nemotron_nas_are_refused() -> None:
    config = published("nvidia__Llama-3_3-Nemotron-Super-49B-v1")
    config["block_configs"][0]["attention"]["window_length"] = 1024
    with pytest.raises(UnsupportedConfigError, match=r"block_configs\[0\] attention: window_length is 1024"):
        import_config(config)


def test_a_key_inside_a_block_that_nobody_knows_is_refused() -> None:
    config = published("nvidia__Llama-3_3-Nemotron-Super-49B-v1")
    config["block_configs"][2]["ffn"]["moe"] = {"num_local_experts": 8}
    with pytest.raises(UnsupportedConfigError, match=r"block_configs\[2\] ffn.moe"):
        import_config(config)
