"""MLX: affine codes in groups, with a scale and a bias a group in the model's 16 bits; embedding and head included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.dtypes import CHECKPOINT_FORMATS, StorageFormat
from kvplan.importer.quantized.modules import DENSE, MODULE_NAMES, Matrix, bare_name
from kvplan.importer.quantized.scheme import Scheme
from kvplan.importer.view import ConfigView

_FAMILIES = DENSE | {"qwen3_5"}
"""Dense families, whose every linear layer and embedding is quantized; their towers are not."""

_SETTINGS = ("group_size", "bits", "mode")
_SIDE_FILES = ("mlx_lm_extra_tensors", "mtplx_mtp_contract", "mtplx_mtp_payload_audit")


def read_mlx(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """One format for all matrices, and others for those that are named."""
    if model_type not in _FAMILIES:
        raise config.unsupported(f"which matrices an MLX checkpoint of {model_type} quantizes is not known")
    if outer.dtype is not None and outer.dtype.matrix_bytes(1, 1) != 2:
        raise config.unsupported("the scales of a model that is not of 16 bits are not known")
    for name in _SIDE_FILES:
        outer.dismiss(name, "it describes a file beside the checkpoint")
    usual = _format(config, config.data)
    named = {bare_name(name): _format(config, config.mapping(name)) for name in config.data if name not in _SETTINGS}
    config.pass_over("read above", *_SETTINGS)

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if matrix.group.role == "router" or not matrix.names:
            raise config.unsupported(f"the names of the {matrix.group.role} of {model_type} are not known")
        inside = "" if layer is None else f"layers.{layer}."
        formats = {named.get(inside + name, usual) for name in matrix.names}
        if len(formats) > 1:
            raise config.unsupported(f"{' and '.join(matrix.names)} are stored differently")
        return formats.pop()

    return Scheme(usual.name, choose, MODULE_NAMES[model_type])


def _format(config: ConfigView, entry: Mapping[str, Any]) -> StorageFormat:
    bits, size, mode = (entry.get(key) for key in ("bits", "group_size", "mode"))
    found = CHECKPOINT_FORMATS.get(f"mlx_{bits}b_g{size}")
    has_more = entry is not config.data and bool(set(entry) - set(_SETTINGS))
    if found is None or mode not in (None, "affine") or has_more:
        raise config.unsupported(f"bits {bits!r}, group_size {size!r}, mode {mode!r} are not a known MLX layout")
    return found
