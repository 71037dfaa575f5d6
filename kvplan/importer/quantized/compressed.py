"""compressed-tensors: fp8 rows, packed int4 groups and packed NVFP4, whose scales have the model's own 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat, weight_format
from kvplan.errors import shorten
from kvplan.importer.quantized.modelopt import suggest_cache_dtype
from kvplan.importer.quantized.modules import name_list
from kvplan.importer.quantized.scheme import Scheme, all_linear_but, by_role
from kvplan.importer.view import ConfigView

_SEARCH = ("observer", "observer_kwargs")
_KIMI_IGNORES = {
    "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
    "re:vision_tower.*", "re:mm_projector.*",
}  # fmt: skip
"""What is left of the projections are the routed experts, `mlp.experts.N.*_proj`."""

_FP8_ROWS = {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float"}
_NVFP4 = {
    "dynamic": False, "group_size": 16, "num_bits": 4, "strategy": "tensor_group", "symmetric": True, "type": "float",
}  # fmt: skip
_FP8_TOKENS = {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "float"}


def read_compressed_tensors(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """One group of linear layers, less those that are ignored."""
    suggest_cache_dtype(config, outer, "kv_cache_scheme")
    config.pass_over("how far the library is, and who wrote the file", "quantization_status", "version")
    config.pass_over("a figure of the writer", "global_compression_ratio")
    for name in ("sparsity_config", "transform_config"):
        config.require(name, {}, "only a dense checkpoint without transforms is known")
    weights, inputs = _only_group(config)
    ignored = config.texts("ignore")
    if model_type == "kimi_k25":
        return _kimi(config, weights, inputs, ignored)
    if outer.dtype is None or outer.dtype.matrix_bytes(1, 1) != 2:
        raise config.unsupported("the scales have the model's dtype, and that is not one of 16 bits")
    return all_linear_but(name_list(config, ignored), _storage(config, weights, inputs), model_type)


def _only_group(config: ConfigView) -> tuple[Any, Any]:
    """The weights and the inputs of the one config group, for all linear layers."""
    groups = config.mapping("config_groups")
    group = _without_nulls(groups.get("group_0"))
    known = {"targets", "weights", "input_activations", "format"}
    if list(groups) != ["group_0"] or not isinstance(group, dict) or not set(group) <= known:
        raise config.unsupported("config_groups differs from what is known: one group_0 of weights and inputs")
    if group.get("targets") != ["Linear"] or group.get("format", config.text("format")) != config.text("format"):
        raise config.unsupported("config_groups differs from what is known: all Linear targets in one format")
    return group.get("weights"), group.get("input_activations")


def _without_nulls(group: Any) -> Any:
    """A config group without its null entries, and without how its codes were found."""
    if not isinstance(group, Mapping):
        return group
    return {key: _without_nulls(value) for key, value in group.items() if value is not None and key not in _SEARCH}


def _storage(config: ConfigView, weights: Any, inputs: Any) -> StorageFormat:
    """The format of one matrix. Raises UnsupportedConfigError where the group is not one that is known."""
    layout = config.text("format")
    if layout == "float-quantized" and weights == _FP8_ROWS and inputs == _FP8_TOKENS:
        return WEIGHT_FORMATS["fp8_per_channel_bf16"]
    if layout == "nvfp4-pack-quantized" and weights == _NVFP4 and inputs in (None, _NVFP4 | {"dynamic": "local"}):
        return weight_format("nvfp4" if inputs is None else "nvfp4_static")
    if layout == "pack-quantized" and inputs is None and isinstance(weights, dict):
        size, symmetric = weights.get("group_size"), weights.get("symmetric")
        if symmetric is True and size in (32, 64, 128) and weights == _int4(size):
            return weight_format(f"ct_int4_sym_g{size}")
    raise config.unsupported(f"config_groups of format {shorten(layout)!r} is not one whose bytes are known")


def _int4(size: int) -> dict[str, Any]:
    return {
        "dynamic": False, "group_size": size, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int",
    }  # fmt: skip


def _kimi(config: ConfigView, weights: Any, inputs: Any, ignored: list[str]) -> Scheme:
    """Packed int4 of Kimi K2.5 and K2.6: the routed experts, in groups of 32, with a shape of two int32."""
    if config.text("format") != "pack-quantized" or weights != _int4(32) or inputs is not None:
        raise config.unsupported(f"config_groups of format {shorten(config.text('format'))!r} is not known of kimi_k25")
    if set(ignored) != _KIMI_IGNORES:
        raise config.unsupported("ignore differs from the modules that kimi_k25 is known to leave out")
    return by_role(WEIGHT_FORMATS["ct_int4_sym_g32_shape32"], lambda group: group.role == "routed_experts")
