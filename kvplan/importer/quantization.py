"""How a published checkpoint stores its weights: `quantization_config` -> storage formats of the weight groups.

Only what can be applied exactly is applied; any other method, list of modules or companion file is refused by
name, so that published weight bytes are never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.errors import UnsupportedConfigError, shorten
from kvplan.importer.decoder import Parts
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES, Layer, WeightGroup

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
_GPT_OSS_LIST = frozenset({"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"})


class Scheme(NamedTuple):
    """A storage format and the groups that it applies to."""

    storage: StorageFormat
    applies: Callable[[WeightGroup], bool]

    def apply(self, parts: Parts) -> Parts:
        """`parts` with the storage of every group that the scheme applies to."""
        made = {layer: self._layer(layer) for layer in dict.fromkeys(parts.layers)}
        return replace(parts, layers=tuple(made[layer] for layer in parts.layers))

    def _layer(self, layer: Layer) -> Layer:
        return replace(layer, weights=tuple(self._group(group) for group in layer.weights))

    def _group(self, group: WeightGroup) -> WeightGroup:
        wanted = group.columns > 1 and not group.pinned and group.tower == "text" and self.applies(group)
        return replace(group, storage=self.storage) if wanted else group


def read_scheme(view: ConfigView, model_type: str, companion: Mapping[str, Any] | None) -> Scheme | None:
    """The scheme of a checkpoint, from its config or its hf_quant_config.json; None: not quantized.

    Raises UnsupportedConfigError where it cannot be applied exactly.
    """
    _refuse_other_places(view, companion)
    config = _stated(view)
    if config is None:
        return None
    method = config.text("quant_method", default="")
    if method not in _METHODS:
        raise config.unsupported(f"quant_method is {shorten(method)!r}; known: {', '.join(_METHODS)}")
    scheme = _METHODS[method](config, model_type, view)
    view.note(f"as published, the matrices that are quantized are stored in {scheme.storage.name}")
    return scheme


def _stated(view: ConfigView) -> ConfigView | None:
    """The quantization_config of the outer object, or of its text_config; both would be one too many."""
    view.pass_over("null means not quantized", "quantization_config")
    inner = view.data.get("text_config")
    has_inner = isinstance(inner, Mapping) and bool(inner.get("quantization_config"))
    if has_inner and view.has("quantization_config"):
        raise view.unsupported("quantization_config stands both here and in text_config")
    if has_inner:
        return view.child("text_config").child("quantization_config")
    return view.child("quantization_config") if view.has("quantization_config") else None


def _refuse_other_places(view: ConfigView, companion: Mapping[str, Any] | None) -> None:
    for key in ("quantization", "compression_config"):
        if view.has(key):
            raise view.unsupported(f"{key} describes a quantized checkpoint in a layout that no rule applies")
    for key, inner in view.data.items():
        if key != "text_config" and isinstance(inner, Mapping) and inner.get("quantization_config"):
            raise view.unsupported(f"{key} has a quantization_config, where no rule reads one")
    if companion is not None:
        _refuse_companion(companion)


def _refuse_companion(companion: Mapping[str, Any]) -> None:
    found = companion.get("quantization")
    algo = found.get("quant_algo") if isinstance(found, Mapping) else found
    if algo is not None or not isinstance(found, Mapping):
        raise UnsupportedConfigError(
            f"hf_quant_config.json: quant_algo is {shorten(repr(algo))}; no rule applies it exactly, only null is read"
        )


# ------------------------------------------------------------------------------------------------------- methods


def _fp8(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """Blocks of 128 x 128 with a float32 scale each (DeepSeek V3, Qwen3 FP8)."""
    _require_separate(config, model_type)
    config.pass_over("how activations are scaled at run time", "activation_scheme", "fmt")
    config.require("scale_fmt", None, "the width of these scales in the checkpoint is not stated")
    if not config.has("weight_block_size"):
        raise config.unsupported("weight_block_size is absent; the dtype of one scale a matrix is not stated")
    size = config.integers("weight_block_size")
    if size != [128, 128]:
        raise config.unsupported(f"weight_block_size is {size}; known: [128, 128]")
    skips = _skips(config, model_type, outer)
    return Scheme(WEIGHT_FORMATS["fp8_block128"], lambda group: ROLES[group.role].quantized and not skips(group))


def _require_separate(config: ConfigView, model_type: str) -> None:
    if model_type not in SEPARATE_MATRICES:
        raise config.unsupported(f"how {model_type} checkpoints lay out quantized matrices is not known")


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


def _mxfp4(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The routed experts of gpt-oss: e2m1 with one e8m0 byte for 32 values; their biases keep the model's width."""
    names = config.texts("modules_to_not_convert")
    if model_type != "gpt_oss" or set(names) != _GPT_OSS_LIST:
        raise config.unsupported("mxfp4 is known for gpt_oss with its own modules_to_not_convert only")
    return Scheme(WEIGHT_FORMATS["mxfp4"], lambda group: group.role == "routed_experts")


def _bitsandbytes(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """LLM.int8: one byte a value and a float32 scale a row; head, embedding and norms keep their width."""
    _require_separate(config, model_type)
    if not config.flag("load_in_8bit", default=False):
        raise config.unsupported("load_in_8bit is not true; 4-bit layouts of bitsandbytes are not applied")
    config.require("llm_int8_skip_modules", None, "leaving modules out is not known here")
    config.require("llm_int8_has_fp16_weight", False, "such a checkpoint is not stored in 8 bits")
    config.pass_over("run-time choices of the library", *_BITSANDBYTES_SETTINGS)
    return Scheme(WEIGHT_FORMATS["bnb_int8"], lambda group: ROLES[group.role].quantized)


_BITSANDBYTES_SETTINGS = (
    "_load_in_4bit", "_load_in_8bit", "load_in_4bit", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload", "llm_int8_threshold",
)  # fmt: skip


def _compressed_tensors(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """Packed int4 of Kimi K2.5 and K2.6: the routed experts, in groups of 32 with a bf16 scale each."""
    known = "only the packed int4 layout of kimi_k25, in groups of 32, is known"
    if model_type != "kimi_k25" or config.text("format") != "pack-quantized":
        found = f"{shorten(repr(config.data.get('format')))} of {model_type}"
        raise config.unsupported(f"quant_method is 'compressed-tensors', format {found}: {known}")
    groups = config.mapping("config_groups")
    if list(groups) != ["group_0"] or _plain_group(groups["group_0"]) != _INT4_GROUPS_OF_32:
        raise config.unsupported(f"config_groups differs from what is known: {known}")
    config.require("kv_cache_scheme", None, "a checkpoint with cache scales is not known")
    config.pass_over("how far the library is", "quantization_status", "global_compression_ratio")
    patterns = set(config.texts("ignore"))
    if patterns != set(_KIMI_IGNORES):
        raise config.unsupported("ignore differs from the modules that kimi_k25 is known to leave out")
    return Scheme(WEIGHT_FORMATS["ct_int4_sym_g32_shape32"], lambda group: group.role == "routed_experts")


_INT4_GROUPS_OF_32 = {
    "targets": ["Linear"],
    "weights": {
        "dynamic": False, "group_size": 32, "num_bits": 4, "observer": "minmax", "observer_kwargs": {},
        "strategy": "group", "symmetric": True, "type": "int",
    },
}  # fmt: skip
_KIMI_IGNORES = (
    "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
    "re:vision_tower.*", "re:mm_projector.*",
)  # fmt: skip
"""What is left of the projections are the routed experts, `mlp.experts.N.*_proj`."""


def _plain_group(group: Any) -> Any:
    """A config group without its null entries."""
    if not isinstance(group, Mapping):
        return group
    return {key: _plain_group(value) for key, value in group.items() if value is not None}


_METHODS: dict[str, Callable[[ConfigView, str, ConfigView], Scheme]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
}
"""Every quant_method that is applied exactly."""
