"""The names of the families' modules are those that transformers gives them, and so are their shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kvplan.importer import import_config
from kvplan.importer.quantized.modules import Matrix, bare_name, matrices
from kvplan.importer.quantized.names import DENSE, MODULE_NAMES, SEPARATE_EXPERTS, module_names
from kvplan.importer.view import ConfigView

pytest.importorskip("transformers")

TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "tie_word_embeddings": False,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "pad_token_id": 0, "q_lora_rank": 24,
    "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "ffn_dim": 128, "word_embed_proj_dim": 64, "new_decoder_architecture": True,
    "num_kv_heads": 2, "n_head": 4, "n_layer": 2,
}  # fmt: skip
"""Of which each type takes the keys that its class has."""
TYPES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "cohere", "cohere2", "olmo", "olmo2", "granite", "smollm3",
    "seed_oss", "stablelm", "helium", "phi3", "glm", "glm4", "phi", "starcoder2", "nemotron", "opt", "falcon", "bloom",
    "qwen2_moe", "qwen3_moe", "olmoe", "glm4_moe", "deepseek_v2", "deepseek_v3", "youtu",
)  # fmt: skip


def built(model_type: str) -> tuple[Mapping[str, Any], dict[str, tuple[int, ...]]]:
    """A tiny config as transformers completes it, and the shapes of its matrices by their bare names."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    known = transformers.AutoConfig.for_model(model_type).to_dict()
    own = {name: value for name, value in TINY.items() if name in known}
    settings = transformers.AutoConfig.for_model(model_type, dtype="bfloat16", **own)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
    shapes = {
        bare_name(name.removesuffix(".weight")): tuple(parameter.shape)
        for name, parameter in model.named_parameters()
        if name.endswith(".weight") and parameter.dim() == 2
    }
    return settings.to_dict() | {"model_type": model_type}, shapes


def rows_by_name(found: list[Matrix], inside: str) -> Counter[tuple[str, int]]:
    """Rows and columns that the groups say a module has; single experts stand in one tensor in newer classes."""
    rows: Counter[tuple[str, int]] = Counter()
    for matrix in found:
        group = matrix.group
        each = group.rows * (2 if matrix.fused == "pair" else 1)
        for name in matrix.names:
            if "experts." not in name or "shared_experts." in name:
                rows[inside + name, group.columns] += each
    return rows


def groups_of(config: Mapping[str, Any]) -> Iterator[tuple[str, list[Matrix]]]:
    names = module_names(config["model_type"], ConfigView(config))
    model = import_config(config, measure="never")
    yield "", matrices(model.weights, names)
    for index, layer in enumerate(model.layers):
        yield f"layers.{index}.", matrices(layer.weights, names)


@pytest.mark.parametrize("model_type", TYPES)
def test_every_matrix_has_the_name_and_the_shape_of_a_module(model_type: str) -> None:
    config, shapes = built(model_type)
    for inside, found in groups_of(config):
        assert all(matrix.names for matrix in found)
        for (name, columns), rows in rows_by_name(found, inside).items():
            assert shapes[name] == (rows, columns)


def test_every_family_with_a_quantized_layout_has_names() -> None:
    assert set(DENSE) | set(SEPARATE_EXPERTS) <= set(MODULE_NAMES)
