"""NVIDIA's modelopt: NVFP4 and fp8, in quantization_config or in hf_quant_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.dtypes import weight_format
from kvplan.errors import shorten
from kvplan.importer.quantized.fp8 import SEPARATE_MATRICES
from kvplan.importer.quantized.modules import SEPARATE_EXPERTS, glob_list
from kvplan.importer.quantized.scheme import Scheme, all_linear_but
from kvplan.importer.view import ConfigView

_GROUPS: dict[str, dict[str, Any]] = {
    "NVFP4": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
    "FP8": {"dynamic": False, "num_bits": 8, "type": "float"},
}
_FORMATS = {"NVFP4": "nvfp4_static", "FP8": "fp8_per_tensor_static"}
"""Each matrix has a scale of its own, and one for its input."""


def read_modelopt(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """One algorithm for all linear layers but those that are left out."""
    suggest_cache_dtype(config, outer, "kv_cache_scheme", "kv_cache_quant_algo")
    algo = config.text("quant_algo")
    if algo not in _FORMATS:
        raise config.unsupported(f"quant_algo is {shorten(algo)!r}; known: {', '.join(_FORMATS)}")
    config.pass_over("who wrote the file", "producer")
    _require_known_groups(config, algo)
    if model_type not in SEPARATE_MATRICES | SEPARATE_EXPERTS:
        raise config.unsupported(f"whether {model_type} checkpoints have a scale for each expert is not stated")
    left_out = glob_list(config, config.texts("ignore", "exclude_modules"))
    return all_linear_but(left_out, weight_format(_FORMATS[algo]), model_type)


def _require_known_groups(config: ConfigView, algo: str) -> None:
    """Weights and inputs scaled alike, for all linear layers; a companion states only the size of a group."""
    config.require("group_size", _GROUPS[algo].get("group_size"), "only groups of 16 are known")
    groups = config.mapping("config_groups", default=None)
    known = {"group_0": {"input_activations": _GROUPS[algo], "weights": _GROUPS[algo], "targets": ["Linear"]}}
    if groups is not None and groups != known:
        raise config.unsupported(f"config_groups differs from what is known of {algo}")


def suggest_cache_dtype(config: ConfigView, outer: ConfigView, *names: str) -> None:
    """Note what a checkpoint proposes for the cache: it is a proposal, and the plan chooses."""
    for name in names:
        value = config.data.get(name)
        if value is not None:
            given = (value.get("num_bits"), "bit", value.get("type")) if isinstance(value, Mapping) else (value,)
            proposed = " ".join(map(shorten, given))
            outer.note(
                f"{name} proposes {proposed} for the cache; the cache dtype of the plan decides, and scales of the "
                "cache are no weights"
            )
    config.pass_over("a proposal for the cache", *names)
