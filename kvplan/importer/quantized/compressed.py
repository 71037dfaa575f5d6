"""compressed-tensors: fp8, int8, packed integers, NVFP4 and MXFP4, in one or several groups of linear layers.

The library gives a scale the dtype of the matrix that it belongs to, so that of a model in 16 bits has 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.dtypes import StorageFormat, weight_format
from kvplan.errors import shorten
from kvplan.importer.quantized.modelopt import suggest_cache_dtype
from kvplan.importer.quantized.modules import Matrix, ModuleList, name_list, require_tower
from kvplan.importer.quantized.names import module_names
from kvplan.importer.quantized.scheme import Scheme, by_role, linear_choice
from kvplan.importer.view import ConfigView

_KIMI_IGNORES = {
    "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
    "re:vision_tower.*", "re:mm_projector.*",
}  # fmt: skip
"""What is left of the projections are the routed experts, `mlp.experts.N.*_proj`."""

_SEARCH = ("observer", "observer_kwargs")
_GROUP_KEYS = {"targets", "weights", "input_activations", "format"}
_WEIGHT_KEYS = {
    "num_bits", "type", "strategy", "symmetric", "dynamic", "group_size", "block_structure", "actorder", "scale_dtype",
    "zp_dtype",
}  # fmt: skip
_PACKED_ZEROS = (0, 10)
"""The version of the library from which zero points are packed too."""


def read_compressed_tensors(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The linear layers that a group targets, less those that are ignored."""
    suggest_cache_dtype(config, outer, "kv_cache_scheme")
    config.pass_over("how far the library is, and who wrote the file", "quantization_status", "version")
    config.pass_over("figures of the writer, and what holds at run time", "global_compression_ratio", "run_compressed")
    for name in ("sparsity_config", "transform_config"):
        config.require(name, {}, "only a dense checkpoint without transforms is known")
    groups = _groups(config)
    if model_type == "kimi_k25":
        return _kimi(config, groups, config.texts("ignore"))
    if outer.dtype is None or outer.dtype.matrix_bytes(1, 1) != 2:
        raise config.unsupported("the scales have the model's dtype, and that is not one of 16 bits")
    if model_type == "llama4" and not config.has("ignore"):
        raise config.unsupported(_MAVERICK)
    listed = config.texts("ignore")
    if not _explicit(groups):
        require_tower(config, outer, listed)
    ignored = name_list(config, listed)
    names = module_names(model_type, outer)
    label = ", ".join(dict.fromkeys(group.storage.name for group in groups))
    choose = linear_choice(config, _by_target(groups, ignored), names, *(() if _explicit(groups) else ("lm_head",)))
    return Scheme(label, choose, names, ignored)


_MAVERICK = (
    "lacks ignore: by its number of elements only the routed experts are fp8 with a scale for each row, "
    "and the width of these scales is not stated"
)


class _Group(NamedTuple):
    """A config group: which modules it is for (None: all linear layers), and how they are stored."""

    targets: ModuleList | None
    storage: StorageFormat
    weights: Mapping[str, Any]


def _explicit(groups: Sequence[_Group]) -> bool:
    """Whether every group names its modules: then a head that one of them names is meant to be quantized."""
    return all(group.targets is not None for group in groups)


def _groups(config: ConfigView) -> tuple[_Group, ...]:
    stated = config.mapping("config_groups")
    if not stated:
        raise config.unsupported("config_groups is empty, so what is quantized is not known")
    usual = config.text("format")
    return tuple(_group(config, usual, name, entry) for name, entry in stated.items())


def _group(config: ConfigView, usual: str, name: str, entry: Any) -> _Group:
    group = _without_nulls(entry)
    if not isinstance(group, dict) or not set(group) <= _GROUP_KEYS or "weights" not in group:
        raise config.unsupported(
            f"config_groups {shorten(name)} differs from what is known: weights and inputs of targets"
        )
    targets = group.get("targets")
    if not isinstance(targets, list) or not targets or not all(isinstance(target, str) for target in targets):
        raise config.unsupported(f"config_groups {shorten(name)}: targets need a list of names")
    if classes := [t for t in targets if "." not in t and not t.startswith("re:") and t not in ("Linear", "lm_head")]:
        raise config.unsupported(
            f"config_groups {shorten(name)} targets {shorten(classes[0])}; all Linear or names are known"
        )
    listed = None if "Linear" in targets else name_list(config, targets)
    layout = str(group.get("format", usual))
    return _Group(listed, _storage(config, layout, group["weights"], group.get("input_activations")), group["weights"])


def _without_nulls(group: Any) -> Any:
    """A config group without its null entries, and without how its codes were found."""
    if not isinstance(group, Mapping):
        return group
    return {key: _without_nulls(value) for key, value in group.items() if value is not None and key not in _SEARCH}


def _by_target(groups: Sequence[_Group], ignored: ModuleList) -> Callable[[Matrix, int | None], StorageFormat | None]:
    """The format of the group that names a matrix, else of the one for all linear layers."""

    def format_of(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if ignored.leaves_out(matrix, layer):
            return None
        named = [group for group in groups if group.targets and group.targets.leaves_out(matrix, layer)]
        found = named or [group for group in groups if group.targets is None]
        return found[0].storage if found else None

    return format_of


# ------------------------------------------------------------------------------------------------------------ formats


def _storage(config: ConfigView, layout: str, weights: Any, inputs: Any) -> StorageFormat:
    """The format of one matrix. Raises UnsupportedConfigError where the group is not one that is known."""
    known = isinstance(weights, dict) and set(weights) <= _WEIGHT_KEYS and weights.get("dynamic", False) is False
    name = _NAMES[layout](config, weights, inputs) if known and layout in _NAMES else None
    if name is None:
        raise config.unsupported(f"config_groups of format {shorten(layout)!r} is not one whose bytes are known")
    return weight_format(name)


def _is(weights: Mapping[str, Any], **wanted: Any) -> bool:
    return all(weights.get(key) == value for key, value in wanted.items()) and "scale_dtype" not in weights


def _is_static(inputs: Any) -> bool:
    """Whether the file holds a scale of the input: one that is not found anew for each token or group."""
    return isinstance(inputs, Mapping) and inputs.get("dynamic", False) is False


def _fp8(config: ConfigView, weights: Mapping[str, Any], inputs: Any) -> str | None:
    if not _is(weights, num_bits=8, type="float", symmetric=True) or "actorder" in weights:
        return None
    static = "_static" if _is_static(inputs) else ""
    if static and inputs.get("strategy", "tensor") != "tensor":
        return None
    if weights.get("strategy") == "block" and weights.get("block_structure") in ([128, 128], "128x128") and not static:
        return "fp8_block128_16bit"
    return {
        "channel": "fp8_per_channel_static_16bit" if static else "fp8_per_channel_bf16",
        "tensor": f"fp8_per_tensor{static}_16bit",
    }.get(str(weights.get("strategy", "tensor")))


def _int8(config: ConfigView, weights: Mapping[str, Any], inputs: Any) -> str | None:
    if not _is(weights, num_bits=8, type="int") or _is_static(inputs) or "actorder" in weights:
        return None
    if weights.get("symmetric") is False:
        return {"channel": "int8_per_channel_asym_16bit", "tensor": "int8_per_tensor_asym_16bit"}.get(
            str(weights.get("strategy"))
        )
    return {"channel": "int8_per_channel_bf16", "tensor": "int8_per_tensor_16bit"}.get(str(weights.get("strategy")))


def _packed(config: ConfigView, weights: Mapping[str, Any], inputs: Any) -> str | None:
    bits, strategy, size = weights.get("num_bits"), weights.get("strategy"), weights.get("group_size", 0)
    if bits not in (4, 8) or not _is(weights, type="int") or _is_static(inputs):
        return None
    if strategy == "group" and size not in (16, 32, 64, 128, 256):
        return None
    inside = {"group": f"g{size}", "channel": "channel"}.get(str(strategy))
    order = {"None": "", "weight": "", "static": "", "group": "_order"}.get(str(weights.get("actorder")))
    if inside is None or order is None or weights.get("symmetric") not in (True, False):
        return None
    if weights["symmetric"] is False and _version(config) < _PACKED_ZEROS:
        raise config.unsupported("zero points are packed since version 0.10 of the library, and that is not stated")
    return f"ct_int{bits}_{'sym' if weights['symmetric'] else 'asym'}_{inside}{order}"


def _version(config: ConfigView) -> tuple[int, ...]:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", str(config.data.get("version")))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _nvfp4(config: ConfigView, weights: Mapping[str, Any], inputs: Any) -> str | None:
    if not _is(weights, num_bits=4, type="float", strategy="tensor_group", symmetric=True, group_size=16):
        return None
    return "nvfp4" if inputs is None else "nvfp4_static"


def _mxfp4(config: ConfigView, weights: Mapping[str, Any], inputs: Any) -> str | None:
    known = weights.get("num_bits") == 4 and weights.get("type") == "float" and weights.get("group_size") == 32
    return "mxfp4" if known and not _is_static(inputs) else None


_NAMES: dict[str, Callable[[ConfigView, Mapping[str, Any], Any], str | None]] = {
    "float-quantized": _fp8,
    "int-quantized": _int8,
    "pack-quantized": _packed,
    "nvfp4-pack-quantized": _nvfp4,
    "mxfp4-pack-quantized": _mxfp4,
}
"""The layouts: the weights and the inputs of a group -> the name of its format, or None."""


def _kimi(config: ConfigView, groups: Sequence[_Group], ignored: list[str]) -> Scheme:
    """Packed int4 of Kimi K2.5 and K2.6: the routed experts, in groups of 32, with a shape of two int32."""
    if [group.storage.name for group in groups] != ["ct_int4_sym_g32"] or groups[0].targets is not None:
        raise config.unsupported("config_groups is not that of kimi_k25: routed experts in int4 groups of 32")
    if set(ignored) != _KIMI_IGNORES:
        raise config.unsupported("ignore differs from the modules that kimi_k25 is known to leave out")
    storage = weight_format("ct_int4_sym_g32_shape32")
    return by_role(storage, lambda group: group.role == "routed_experts")
