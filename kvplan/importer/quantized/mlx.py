"""MLX: codes in groups, with a scale and a bias a group in the model's 16 bits; embedding and head included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.dtypes import CHECKPOINT_FORMATS, StorageFormat
from kvplan.errors import shorten
from kvplan.importer.quantized.modules import Matrix, bare_name
from kvplan.importer.quantized.names import DENSE, Names, module_names
from kvplan.importer.quantized.scheme import Scheme
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES

_FAMILIES = DENSE | {"qwen3_5", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral"}
"""Families whose every linear layer and embedding is quantized; their towers are not. Routers are linear layers."""

_SETTINGS = ("group_size", "bits", "mode", "quant_method")
_SIDE_FILES = ("mlx_lm_extra_tensors", "mtplx_mtp_contract", "mtplx_mtp_payload_audit")
_MODES = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}
"""Bits and group of the modes that have a byte of scale a group and no bias."""


class _Format(NamedTuple):
    storage: StorageFormat
    group_size: int


def read_mlx(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """One format for all matrices, others for those that are named; rows that groups do not fill keep theirs."""
    if model_type not in _FAMILIES:
        raise config.unsupported(f"which matrices an MLX checkpoint of {model_type} quantizes is not known")
    if outer.dtype is not None and outer.dtype.matrix_bytes(1, 1) != 2:
        raise config.unsupported("the scales of a model that is not of 16 bits are not known")
    for name in _SIDE_FILES:
        outer.dismiss(name, "it describes a file beside the checkpoint")
    names = module_names(model_type, outer)
    usual = _format(config, config.where, config.data)
    named = _named(config, names)

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if not matrix.names:
            raise config.unsupported(f"the names of the {ROLES[matrix.group.role].label} are not known for this family")
        inside = "" if layer is None else f"layers.{layer}."
        formats = {named.get(inside + name, usual) for name in matrix.names}
        if len(formats) > 1:
            raise config.unsupported(f"{' and '.join(matrix.names)} are stored differently")
        found = formats.pop()
        return None if found is None or matrix.group.columns % found.group_size else found.storage

    return Scheme(usual.storage.name, choose, names)


def _named(config: ConfigView, names: Names) -> dict[str, _Format | None]:
    """The formats of the modules that are named (None: not quantized); refuses a name that is not the family's."""
    known = {name.lstrip("+=") for groups in names.values() for group in groups for name in group}
    found: dict[str, _Format | None] = {}
    for key in [key for key in config.data if key not in _SETTINGS]:
        name = bare_name(key).replace(".switch_mlp.", ".experts.0.")
        if re.sub(r"^layers\.\d+\.", "", name) not in known:
            raise config.unsupported(f"{shorten(key)} is the name of no matrix that is known of this family")
        unquantized = config.data[key] is False
        found[name] = None if unquantized else _format(config, f"{config.where} {shorten(key)}", config.mapping(key))
    config.pass_over("read as the format of all others", *config.data)
    return found


def _format(config: ConfigView, where: str, entry: Mapping[str, Any]) -> _Format:
    """The format that `entry` states for all matrices or for one."""
    stated = ConfigView(entry, where)
    bits, size = stated.integer("bits", high=8), stated.integer("group_size", high=128)
    mode = stated.text("mode", default="affine")
    name = f"mlx_{mode}" if _MODES.get(mode) == (bits, size) else f"mlx_{bits}b_g{size}" if mode == "affine" else ""
    found = CHECKPOINT_FORMATS.get(name)
    if found is None:
        raise stated.unsupported(f"{bits} bits in groups of {size}, mode {shorten(mode)}, are not a known MLX layout")
    if entry is not config.data and stated.unread():
        raise stated.unsupported(f"no rule reads {shorten(', '.join(stated.unread()))}")
    return _Format(found, size)
