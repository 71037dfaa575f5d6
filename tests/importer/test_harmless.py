"""Keys that cannot change memory: none of them is a size, and a switch is harmless only while it is off."""

from __future__ import annotations

import pytest

from kvplan.importer.decoder import CONTEXT_KEYS, HEAD_KEYS, HIDDEN_KEYS, LAYER_KEYS
from kvplan.importer.harmless import why_harmless

SIZES = [
    *LAYER_KEYS, *HIDDEN_KEYS, *HEAD_KEYS, *CONTEXT_KEYS, "vocab_size", "head_dim", "intermediate_size",
    "sliding_window", "num_key_value_heads", "num_kv_heads", "n_head_kv", "num_experts", "num_local_experts",
    "n_routed_experts", "moe_intermediate_size", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim",
    "layer_types", "attention_bias", "mlp_bias", "tie_word_embeddings", "num_nextn_predict_layers",
    "quantization_config", "attention_chunk_size", "index_head_dim", "mamba_d_state", "ssm_state_size",
    "conv_kernel", "depth", "patch_size", "num_kv_shared_layers", "first_k_dense_replace", "use_qk_norm",
    "num_global_layers", "cross_attention_layers",
]  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_a_key_that_changes_memory_is_never_called_harmless(name: str) -> None:
    assert why_harmless(name, 8) is None


@pytest.mark.parametrize("name", ["hidden_act", "rope_theta", "bos_token_id", "image_token_index", "hidden_dropout"])
def test_a_harmless_key_has_a_reason(name: str) -> None:
    assert why_harmless(name)


@pytest.mark.parametrize("off", [False, None, 0, [], {}, ""])
def test_a_switch_is_harmless_only_while_it_is_off(off: object) -> None:
    assert why_harmless("add_cross_attention", off)
    assert why_harmless("add_cross_attention", True) is None


def test_a_setting_may_be_harmless_at_one_value() -> None:
    assert why_harmless("moe_layer_freq", 1)
    assert why_harmless("moe_layer_freq", 2) is None
    assert why_harmless("zero_expert_type", "copy") is None


@pytest.mark.parametrize("name", ["hidden_act_size", "new_dropout_layers", "token_id_width"])
def test_a_name_that_only_resembles_a_harmless_one_is_not_passed_over(name: str) -> None:
    assert why_harmless(name) is None
