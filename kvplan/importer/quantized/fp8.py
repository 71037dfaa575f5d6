"""fp8 by its own quant_method: 128 x 128 blocks (DeepSeek, Qwen3), one scale a matrix (AutoFP8), and rows as fbgemm
stores them (Llama 3.1)."""

from __future__ import annotations

import re

from kvplan.dtypes import StorageFormat, weight_format
from kvplan.importer.quantized.modules import Matrix, fragment_list, require_tower
from kvplan.importer.quantized.names import DENSE, SEPARATE_EXPERTS, WITH_TOWER, module_names
from kvplan.importer.quantized.scheme import Scheme, all_linear_but, all_projections_but, by_role
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES, WeightGroup

SEPARATE_MATRICES = (DENSE | SEPARATE_EXPERTS | WITH_TOWER) - {"nemotron_h", "gemma4", "minimax_m3_vl"}
"""Families whose fp8 checkpoints are laid out as their modules are."""

WITHOUT_LIST = frozenset({"deepseek_v3", "deepseek_v32", "kimi_k2"})
"""Families whose fp8 checkpoints quantize all projections of the layers and list no exceptions."""

_UE8M0_AS_FLOAT32 = frozenset({"deepseek_v3", "deepseek_v32"})
"""DeepSeek V3.1 and V3.2 say ue8m0 and store float32: some of V3.1's scales are no powers of two
(https://github.com/deepseek-ai/DeepSeek-V3/issues/961)."""

_NORM = re.compile(r".*norm")
_INDEX_WEIGHTS = re.compile(r"self_attn\.indexers_proj$")


def read_blocks(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """Blocks of 128 x 128 with a scale each, or one scale a matrix."""
    config.pass_over("how activations are scaled at run time", "fmt", "dequantize")
    if model_type == "deepseek_v4":
        return _deepseek_v4(config, outer)
    if model_type not in SEPARATE_MATRICES:
        raise config.unsupported(f"how {model_type} checkpoints lay out quantized matrices is not known")
    listed = config.texts("modules_to_not_convert", "ignored_layers", default=None)
    storage = _storage(config, model_type, listed)
    names = module_names(model_type, outer)
    if listed is None and model_type in WITHOUT_LIST:
        return by_role(storage, lambda group: ROLES[group.role].quantized and not _weighs_heads(group, outer))
    if listed is None and model_type in DENSE:  # transformers' default, of which every linear layer lies in the blocks
        listed = ["lm_head", names["lm_head"][0][0]]
    if listed is None or not {"lm_head", names["lm_head"][0][0]} & set(listed):
        raise config.unsupported("modules_to_not_convert does not name lm_head, so what is quantized is not known")
    require_tower(config, outer, listed)
    entries = [_INDEX_WEIGHTS.sub("self_attn.indexer.weights_proj", name) for name in listed]
    return all_linear_but(fragment_list(config, entries), storage, names)


def _weighs_heads(group: WeightGroup, outer: ConfigView) -> bool:
    """Whether it is the indexer's weights of its heads, which DeepSeek keeps in the model's width."""
    if group.role != "indexer":
        return False
    heads = outer.integer("index_n_heads")
    if heads == outer.integer("index_head_dim"):
        raise outer.unsupported("the indexer's matrices cannot be told apart by their shapes")
    return bool(group.rows == heads)


def _storage(config: ConfigView, model_type: str, listed: list[str] | None) -> StorageFormat:
    """The format of a matrix: whose width of scales follows from the tool that wrote the file."""
    if not config.has("weight_block_size"):
        return _whole(config)
    config.require("activation_scheme", "dynamic", "blocks with a scale of the input are not known")
    size = config.integers("weight_block_size")
    if size != [128, 128]:
        raise config.unsupported(f"weight_block_size is {size}; known: [128, 128]")
    known = "ue8m0" if model_type in _UE8M0_AS_FLOAT32 else None
    config.require("scale_fmt", known, "the width of these scales in the checkpoint is not stated")
    # Qwen's own tool lists norms too, and writes scales of 16 bits; transformers writes float32.
    by_qwen = model_type.startswith("qwen") and any(_NORM.fullmatch(name) for name in listed or ())
    return weight_format("fp8_block128_16bit" if by_qwen else "fp8_block128")


def _whole(config: ConfigView) -> StorageFormat:
    """One float32 scale a matrix as AutoFP8 writes it, and one for the input where that is static."""
    scheme = config.text("activation_scheme", default="", choices=("", "static", "dynamic"))
    if not scheme or not config.has("ignored_layers") or config.has("modules_to_not_convert"):
        raise config.unsupported("weight_block_size is absent; the dtype of one scale a matrix is not stated")
    config.pass_over("a proposal for the cache", "kv_cache_scheme")
    return weight_format("fp8_per_tensor_static" if scheme == "static" else "fp8_per_tensor")


# ------------------------------------------------------------------------------------------------------- DeepSeek V4


def _deepseek_v4(config: ConfigView, outer: ConfigView) -> Scheme:
    """Blocks with an e8m0 byte each; routed experts in e2m1 with one e8m0 byte for 32 values, or in NVFP4.

    Compressors, the indexer's weights, routers, embedding and head keep their width.
    """
    config.require("scale_fmt", "ue8m0", "other scales of this family are not known")
    config.require("activation_scheme", "dynamic", "other schemes of this family are not known")
    if config.integers("weight_block_size") != [128, 128]:
        raise config.unsupported("weight_block_size is not [128, 128], as it is everywhere known of this family")
    blocks, experts = weight_format("fp8_block128_ue8m0"), weight_format(_v4_experts(config, outer))

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if matrix.group.role == "routed_experts":
            return experts
        return blocks if _is_v4_block(matrix.group, outer) else None

    return Scheme(f"{blocks.name}, {experts.name}", choose)


def _v4_experts(config: ConfigView, outer: ConfigView) -> str:
    stated = outer.text("expert_dtype", default=None, choices=("fp4", "fp8"))
    if config.text("moe_quant_algo", default=None) == "NVFP4":
        config.pass_over(
            "the routed experts of every layer, a second time", "quantized_layers", "config_groups", "ignore"
        )
        config.pass_over("read here", "quant_algo", "group_size", "producer", "kv_cache_quant_algo")
        return "nvfp4_static"
    return "mxfp4" if stated == "fp4" else "fp8_block128_ue8m0"


def _is_v4_block(group: WeightGroup, outer: ConfigView) -> bool:
    """The projections, but for the compressors' (which stand in twos) and the indexer's weights a head."""
    in_twos = group.role in ("attention_latent", "indexer") and group.count == 2
    return ROLES[group.role].quantized and not in_twos and not _weighs_heads(group, outer)


def read_fbgemm(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """A float32 scale a row; the modules that the config names keep their width, and so do embedding and head."""
    if model_type not in DENSE:
        raise config.unsupported(f"how {model_type} checkpoints lay out quantized matrices is not known")
    config.pass_over("a bound of the activations at run time", "activation_scale_ub")
    names = config.texts("modules_to_not_convert")
    if not names:
        raise config.unsupported("modules_to_not_convert is empty, so what is quantized is not known")
    left_out = fragment_list(config, names)
    return all_projections_but(left_out, weight_format("fp8_per_channel"), module_names(model_type, outer))
