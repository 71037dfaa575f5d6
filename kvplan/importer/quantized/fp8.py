"""fp8 by its own quant_method: 128 x 128 blocks (DeepSeek V3, Qwen3), and rows as fbgemm stores them (Llama 3.1)."""

from __future__ import annotations

import re
from collections.abc import Callable

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import shorten
from kvplan.importer.quantized.modules import fragment_list
from kvplan.importer.quantized.scheme import Scheme, all_projections_but, by_role
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES, WeightGroup

SEPARATE_MATRICES = frozenset(
    {"deepseek_v3", "kimi_k2", "qwen2", "qwen3", "qwen3_moe", "glm_moe_dsa", "llama", "mistral"}
)
"""Families whose checkpoints hold every projection as a matrix of its own, as the weight groups have them."""

WITHOUT_LIST = frozenset({"deepseek_v3", "kimi_k2"})
"""Families whose fp8 checkpoints quantize all projections of the layers and list no exceptions."""

_NEVER_QUANTIZED = re.compile(
    r"(?:.*\.)?(?:lm_head|embed_tokens|norm|\w+_(?:layer)?norm(?:\.bias)?|mlp\.gate|mlp\.gate\.e_score_correction_bias"
    r"|eh_proj|enorm|hnorm|shared_head\.norm)"
)
"""Modules that no format here touches: head, embedding, norms, routers, and multi-token-prediction layers."""

_INDEX_WEIGHTS = re.compile(r"model\.layers\.\d+\.self_attn\.indexers_proj")


def require_separate(config: ConfigView, model_type: str) -> None:
    """Refuse families whose files may hold several of the groups as one matrix."""
    if model_type not in SEPARATE_MATRICES:
        raise config.unsupported(f"how {model_type} checkpoints lay out quantized matrices is not known")


def read_blocks(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """Blocks of 128 x 128 with a float32 scale each (DeepSeek V3, Qwen3 FP8)."""
    config.pass_over("how activations are scaled at run time", "activation_scheme", "fmt", "dequantize")
    config.require("scale_fmt", None, "the width of these scales in the checkpoint is not stated")
    if not config.has("weight_block_size"):
        raise config.unsupported("weight_block_size is absent; the dtype of one scale a matrix is not stated")
    require_separate(config, model_type)
    size = config.integers("weight_block_size")
    if size != [128, 128]:
        raise config.unsupported(f"weight_block_size is {size}; known: [128, 128]")
    skips = _skips(config, model_type, outer)
    return by_role(WEIGHT_FORMATS["fp8_block128"], lambda group: ROLES[group.role].quantized and not skips(group))


def _skips(config: ConfigView, model_type: str, outer: ConfigView) -> Callable[[WeightGroup], bool]:
    """Which groups keep their width, from the list of modules; refuses a list that is not understood name by name."""
    names = config.texts("modules_to_not_convert", "ignored_layers", default=None)
    if names is None and model_type in WITHOUT_LIST:
        return lambda _: False
    if names is None or "lm_head" not in names:
        raise config.unsupported("modules_to_not_convert does not name lm_head, so what is quantized is not known")
    odd = [name for name in names if not (_NEVER_QUANTIZED.fullmatch(name) or _INDEX_WEIGHTS.fullmatch(name))]
    if odd:
        raise config.unsupported(f"modules_to_not_convert names {shorten(odd[0])}, which no rule can leave out")
    if not any(_INDEX_WEIGHTS.fullmatch(name) for name in names):
        return lambda _: False
    heads, width = outer.integer("index_n_heads"), outer.integer("index_head_dim")
    if heads == width:
        raise config.unsupported("the indexer's matrices cannot be told apart by their shapes")
    return lambda group: group.role == "indexer" and group.rows == heads


def read_fbgemm(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """A float32 scale a row; the modules that the config names keep their width, and so do embedding and head."""
    require_separate(config, model_type)
    config.pass_over("a bound of the activations at run time", "activation_scale_ub")
    names = config.texts("modules_to_not_convert")
    if not names:
        raise config.unsupported("modules_to_not_convert is empty, so what is quantized is not known")
    return all_projections_but(fragment_list(config, names), WEIGHT_FORMATS["fp8_per_channel"], model_type)
