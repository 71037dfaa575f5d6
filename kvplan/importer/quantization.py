"""How a published checkpoint stores its weights: `quantization_config` -> storage formats of the weight groups.

Parameters and cache do not depend on it. So where the storage cannot be told exactly, the model is imported all the
same, and says why the bytes of its weights as published are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvplan.errors import ConfigError, UnsupportedConfigError, shorten
from kvplan.importer.quantized.bitsandbytes import read_bitsandbytes
from kvplan.importer.quantized.compressed import read_compressed_tensors
from kvplan.importer.quantized.fp8 import read_blocks, read_fbgemm
from kvplan.importer.quantized.int4 import read_awq, read_gptq
from kvplan.importer.quantized.mlx import read_mlx
from kvplan.importer.quantized.modelopt import read_modelopt
from kvplan.importer.quantized.mxfp4 import read_mxfp4
from kvplan.importer.quantized.other import WHY_NOT, read_eetq
from kvplan.importer.quantized.scheme import Scheme
from kvplan.importer.view import ConfigView

Reader = Callable[[ConfigView, str, ConfigView], Scheme]
"""The quantization config, the model_type, the config around it -> the scheme."""

_METHODS: dict[str, Reader] = {
    "fp8": read_blocks,
    "fbgemm_fp8": read_fbgemm,
    "mxfp4": read_mxfp4,
    "bitsandbytes": read_bitsandbytes,
    "compressed-tensors": read_compressed_tensors,
    "modelopt": read_modelopt,
    "awq": read_awq,
    "gptq": read_gptq,
    "eetq": read_eetq,
}
"""Every quant_method of which some layout is known exactly."""


def read_scheme(view: ConfigView, model_type: str, companion: Mapping[str, Any] | None) -> Scheme | None:
    """The scheme of a checkpoint, from its config or its hf_quant_config.json; None: not quantized.

    A scheme whose storage is not known says so in `unknown`. Raises ConfigError where the config is broken.
    """
    stated = _stated(view)
    try:
        found = _read(view, model_type, stated, companion)
    except ConfigError as reason:
        found = Scheme("", unknown=str(reason))
    if stated is not None:
        stated.pass_over("read, or passed over as a whole with what is not known", *stated.data)
    return found


def note_storage(view: ConfigView, label: str, unknown: str) -> None:
    """The note on how the weights are stored."""
    if unknown:
        view.note(f"the bytes of the weights as published are not known: {unknown}")
    else:
        view.note(f"as published, the matrices that are quantized are stored in {label}")


def _read(
    view: ConfigView, model_type: str, stated: ConfigView | None, companion: Mapping[str, Any] | None
) -> Scheme | None:
    _refuse_other_places(view)
    config, reader = _companion(companion) if stated is None else (stated, _reader(view, stated))
    if config is None:
        return None
    if stated is not None and companion is not None and reader is not read_modelopt and not _alike(stated, companion):
        raise view.unsupported("the hf_quant_config.json beside it states another quantization")
    found = reader(config, model_type, view)
    unread = config.unread()
    if unread:
        raise config.unsupported(f"no rule reads {shorten(', '.join(unread))}, which may change what is stored")
    return found


def _alike(stated: ConfigView, companion: Mapping[str, Any]) -> bool:
    """Whether both name the same formats layer by layer."""
    beside, layers = companion.get("quantization"), stated.data.get("quantized_layers")
    return isinstance(beside, Mapping) and layers is not None and beside.get("quantized_layers") == layers


def _reader(view: ConfigView, stated: ConfigView) -> Reader:
    method = stated.text("quant_method", default="")
    if method in _METHODS:
        return _METHODS[method]
    if not method and view.data.get("quantization") == stated.data:  # MLX writes it so, mostly under both names
        return read_mlx
    known = f"known: {', '.join(_METHODS)}"
    raise stated.unsupported(f"quant_method is {shorten(method)!r}; {WHY_NOT.get(method.lower(), known)}")


def _stated(view: ConfigView) -> ConfigView | None:
    """The quantization config of the outer object, or of its text_config; both would be one too many."""
    view.pass_over("null means not quantized", "quantization_config")
    inner = view.data.get("text_config")
    has_inner = isinstance(inner, Mapping) and bool(inner.get("quantization_config"))
    if has_inner and view.has("quantization_config"):
        raise view.unsupported("quantization_config stands both here and in text_config")
    if has_inner:
        return view.child("text_config").child("quantization_config")
    given = [name for name in ("quantization_config", "quantization") if view.has(name)]
    return view.child(given[0]) if given else None


def _refuse_other_places(view: ConfigView) -> None:
    """Refuse quantizations that stand where no rule reads one."""
    view.pass_over("read here", "quantization", "compression_config")
    if view.has("compression_config"):
        raise view.unsupported("compression_config describes a quantized checkpoint in a layout that no rule applies")
    one, other = view.data.get("quantization"), view.data.get("quantization_config")
    if one is not None and other is not None and one != other:
        raise view.unsupported("quantization and quantization_config differ")
    for key, inner in view.data.items():
        if key != "text_config" and isinstance(inner, Mapping) and inner.get("quantization_config"):
            raise view.unsupported(f"{key} has a quantization_config, where no rule reads one")


def _companion(companion: Mapping[str, Any] | None) -> tuple[ConfigView | None, Reader]:
    """The quantization that an hf_quant_config.json states; none where its algorithm is null."""
    if companion is None:
        return None, read_modelopt
    found = companion.get("quantization")
    if not isinstance(found, Mapping):
        raise UnsupportedConfigError(
            f"hf_quant_config.json: quantization is {shorten(repr(found))}; an object with a quant_algo is needed"
        )
    if found.get("quant_algo") is None:
        return None, read_modelopt
    return ConfigView(found, "hf_quant_config.json"), read_modelopt
