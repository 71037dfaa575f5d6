"""DeepSeek and its relatives: latents, indexers and compressed rows are counted as transformers builds them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.held import assert_held
from tests.importer.published import unquantized

LATENT: dict[str, Any] = {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [2, 5],
    "num_attention_heads": [4, 12],
    "num_key_value_heads": [lambda c: c["num_attention_heads"]],
    "q_lora_rank": [24, None, "absent"],
    "kv_lora_rank": [16, 20],
    "qk_nope_head_dim": [8, 12],
    "qk_rope_head_dim": [4, 8],
    "v_head_dim": [8, 10],
    "max_position_embeddings": [64, "absent"],
    "tie_word_embeddings": [True, False, "absent"],
    "attention_bias": [True, False, "absent"],
    "pad_token_id": [0],
}
EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": [16, 24],
    "n_routed_experts": [8],
    "num_experts_per_tok": [2, 3],
    "n_shared_experts": [1, 2, "absent"],
    "n_group": [2],
    "topk_group": [1],
    "first_k_dense_replace": [0, 1, 3, "absent"],
}
INDEXER: dict[str, Any] = {
    "q_lora_rank": [24, 32],
    "index_n_heads": [2, 4],
    "index_head_dim": [8, 16],
    "index_topk": [32, "absent"],
    "mlp_layer_types": [lambda c: ["dense" if i % 2 else "sparse" for i in range(c["num_hidden_layers"])], "absent"],
}
LISTED: dict[str, Any] = {
    "first_k_dense_replace": ["absent"],
    "mlp_layer_types": [lambda c: ["dense" if i % 2 else "sparse" for i in range(c["num_hidden_layers"])], "absent"],
}
V4_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
FAMILIES: dict[str, dict[str, Any]] = {
    "deepseek_v2": LATENT | EXPERTS,
    "deepseek_v3": LATENT | EXPERTS,
    "sarvam_mla": LATENT | EXPERTS,
    "glm4_moe_lite": LATENT | EXPERTS | LISTED,
    "axk1": LATENT | EXPERTS | LISTED | {"q_lora_rank": [24, 32]},
    "youtu": LATENT,
    "deepseek_v32": LATENT | EXPERTS | INDEXER,
    "glm_moe_dsa": LATENT
    | EXPERTS
    | INDEXER
    | {
        "indexer_types": [lambda c: ["shared" if i % 2 else "full" for i in range(c["num_hidden_layers"])], "absent"],
        "index_topk_pattern": ["absent", lambda c: "FSSFF"[: c["num_hidden_layers"]]],
        "index_topk_freq": [1, 2, 4, "absent"],
        "index_skip_topk_offset": [1, 3, "absent"],
    },
    "deepseek_v4": {name: LATENT[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "pad_token_id")}
    | {
        "num_attention_heads": [4, 8],
        "head_dim": [16, 32],
        "q_lora_rank": [16, 24],
        "moe_intermediate_size": [16, 24],
        "n_routed_experts": [4],
        "num_experts_per_tok": [2],
        "num_hash_layers": [0, 1, "absent"],
        "o_groups": [2, 4],
        "o_lora_rank": [8, 12],
        "index_n_heads": [2],
        "index_head_dim": [8, 16],
        "index_topk": [4],
        "hc_mult": [2, 4],
        "sliding_window": [32, "absent"],
        "compress_rates": [{"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}],
        "layer_types": [lambda c: [V4_KINDS[i % 3] for i in range(c["num_hidden_layers"])], "absent"],
        "tie_word_embeddings": [False, "absent"],
    },
    "minicpm3": LATENT | {"v_head_dim": [8, None, "absent"], "mlp_bias": [True, False, "absent"]},
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_variation_of_a_family_is_counted_as_transformers_builds_it(family: str, seed: int) -> None:
    assert_held({"model_type": [family]} | FAMILIES[family], seed)


def test_deepseek_v3_keeps_70272_bytes_a_token_whatever_the_tensor_parallelism() -> None:
    model = import_config(unquantized("deepseek-ai__DeepSeek-V3"))
    assert 61 * (512 + 64) * 2 == 70272
    assert {model.cache_bytes_per_token(tensor_parallel=tp) for tp in (1, 2, 8, 16)} == {70272}


def test_an_fp8_token_of_sparse_latent_attention_is_656_bytes_and_its_index_key_132() -> None:
    model = import_config(unquantized("deepseek-ai__DeepSeek-V3.2"))
    assert model.cache_bytes_per_token("fp8") == 61 * (656 + 132)


def test_a_token_of_deepseek_v3_reads_eight_of_256_experts() -> None:
    model = import_config(unquantized("deepseek-ai__DeepSeek-V3"))
    # 248 experts of 3 matrices of 2,048 x 7,168 rest in each of the 58 layers after the first three
    assert model.num_params - model.num_active_params == 58 * 248 * 3 * 2048 * 7168


def test_kimi_k2_is_read_as_deepseek_v3() -> None:
    config = unquantized("deepseek-ai__DeepSeek-V3")
    assert import_config({**config, "model_type": "kimi_k2"}).layers == import_config(config).layers


def test_the_router_of_mistral_4_has_the_dtype_of_the_model_where_that_of_deepseek_stays_float32() -> None:
    model = import_config(unquantized("mistralai__Mistral-Small-4-119B-2603@tfdefault"))
    assert (model.num_params, model.weight_bytes("bf16")) == (118972826624, 2 * 118972826624)
    router = 58 * 256 * 7168
    model = import_config(unquantized("deepseek-ai__DeepSeek-V3"))
    assert model.weight_bytes("bf16") == 2 * model.num_params + 2 * router


def test_a_layer_that_shares_an_indexer_keeps_no_index_key() -> None:
    model = import_config(unquantized("zai-org__GLM-5.2"))
    indexed = [layer.cache.index_head_dim for layer in model.layers]  # type: ignore[attr-defined]
    assert indexed[:7] == [128, 128, 128, None, None, None, 128]
    assert model.cache_bytes_per_token() == 78 * 576 * 2 + 21 * 128 * 2


def test_compressed_layers_keep_a_window_one_entry_a_block_and_gates_in_float32() -> None:
    model = import_config(unquantized("deepseek-ai__DeepSeek-V4-Pro"))
    overlapping = model.layers[2].cache
    kv = model.cache_curve("bf16")
    # a window of 128 rows of 512, an entry of 512 and an index key of 128 for every 4 tokens
    assert [part.width for part in overlapping.cache_parts()] == [448, 64, 448, 64, 128]
    # 4 rows of 512 and 4 of 128 that the next block needs, 2 bytes each, and a gate of 4 bytes for each value
    assert kv.fixed_bytes == 30 * 4 * (512 + 128) * (2 + 4)
    assert model.cache_curve("fp8").fixed_bytes == kv.fixed_bytes


def test_layers_for_further_tokens_are_not_counted_and_noted() -> None:
    notes = import_config(unquantized("deepseek-ai__DeepSeek-V3")).notes
    assert any("layers that predict further tokens are not counted" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deepseek-ai__DeepSeek-V3", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ("deepseek-ai__DeepSeek-V3", {"mlp_bias": True}, "mlp_bias is True"),
        ("deepseek-ai__DeepSeek-V3", {"qk_head_dim": 128}, "qk_nope_head_dim and qk_rope_head_dim make 192"),
        ("deepseek-ai__DeepSeek-V4-Pro", {"n_shared_experts": 2}, "n_shared_experts is 2"),
        ("deepseek-ai__DeepSeek-V4-Pro", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ],
)
def test_a_switch_that_no_rule_counts_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=message):
        import_config(unquantized(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deepseek-ai__DeepSeek-V3.2", {"q_lora_rank": None}, "needs the query latent"),
        ("zai-org__GLM-5", {"indexer_types": ["full"]}, "indexer_types has 1 entry for 78 layers"),
        ("zai-org__GLM-5", {"index_topk_pattern": "FX"}, "index_topk_pattern must hold F or S"),
        ("deepseek-ai__DeepSeek-V4-Pro", {"compress_ratios": [4, 8]}, "compress_ratios must hold 0, 4 or 128"),
        ("deepseek-ai__DeepSeek-V4-Pro", {"o_groups": 5}, "o_groups 5 does not divide"),
        ("deepseek-ai__DeepSeek-V4-Pro", {"qk_rope_head_dim": 512}, "512 rotated values do not leave any"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_config(unquantized(name, **changes))
