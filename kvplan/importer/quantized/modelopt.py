"""NVIDIA's modelopt: NVFP4, MXFP8 and fp8, in quantization_config or in hf_quant_config.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvplan.dtypes import StorageFormat, weight_format
from kvplan.errors import UnsupportedConfigError, shorten
from kvplan.importer.quantized.modules import Matrix, ModuleList, bare_name, glob_list, require_tower
from kvplan.importer.quantized.names import DENSE, SEPARATE_EXPERTS, module_names
from kvplan.importer.quantized.scheme import Scheme, all_linear_but, linear_choice
from kvplan.importer.view import ConfigView

_GROUPS: dict[str, dict[str, Any]] = {
    "NVFP4": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
    "FP8": {"dynamic": False, "num_bits": 8, "type": "float"},
}
_FORMATS = {
    "NVFP4": "nvfp4_static",
    "W4A16_NVFP4": "nvfp4",
    "FP8": "fp8_per_tensor_static",
    "MXFP8": "mxfp8",
}
"""Each matrix has a scale of its own, and one for its input where that is quantized too."""

_KNOWN = DENSE | SEPARATE_EXPERTS | {"qwen3_5"}
MIXED = "MIXED_PRECISION"


def read_modelopt(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """One algorithm for all linear layers but those that are left out, or one for each that is named."""
    suggest_cache_dtype(config, outer, "kv_cache_scheme", "kv_cache_quant_algo")
    algo = config.text("quant_algo")
    if algo not in (*_FORMATS, MIXED):
        raise config.unsupported(f"quant_algo is {shorten(algo)!r}; known: {', '.join(_FORMATS)}, {MIXED}")
    config.pass_over("who wrote the file", "producer", "quant_method")
    if model_type not in _KNOWN:
        raise config.unsupported(f"whether {model_type} checkpoints have a scale for each expert is not stated")
    if algo == MIXED:
        return _mixed(config, model_type, outer)
    _require_known_groups(config, algo)
    listed = config.texts("ignore", "exclude_modules")
    require_tower(config, outer, listed)
    left_out = glob_list(config, listed)
    return all_linear_but(left_out, weight_format(_FORMATS[algo]), module_names(model_type, outer))


def _require_known_groups(config: ConfigView, algo: str) -> None:
    """Weights and inputs scaled alike, for all linear layers; a companion states only the size of a group."""
    one = _GROUPS.get(algo, {})
    config.require("group_size", one.get("group_size"), "only groups of 16 are known")
    groups = config.mapping("config_groups", default=None)
    known = {"group_0": {"input_activations": one, "weights": one, "targets": ["Linear"]}}
    if groups is not None and groups != known:
        raise config.unsupported(f"config_groups differs from what is known of {algo}")


# -------------------------------------------------------------------------------------------------------------- mixed


def _mixed(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The algorithm of each module that `quantized_layers` names; all others keep their width."""
    listed = _listed(config)
    _require_same_in_groups(config)
    config.pass_over("modules that quantized_layers does not name", "ignore", "exclude_modules")
    config.require("group_size", 16, "only groups of 16 are known")
    names = module_names(model_type, outer)

    def format_of(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if not matrix.names:
            raise config.unsupported(f"the names of the modules of a {matrix.group.role} are not known for this family")
        inside = "" if layer is None else f"layers.{layer}."
        found = {listed.of(inside + name, matrix) for name in matrix.names}
        if len(found) > 1:
            raise config.unsupported(f"{' and '.join(matrix.names)} are stored differently")
        return found.pop()

    label = ", ".join(sorted({storage.name for storage in listed.formats.values()}))
    return Scheme(label, linear_choice(config, format_of, names), names, _checked_list(config, listed))


class _Listed:
    """Formats by bare names; of experts that are listed one by one, how many there are under the name of the first."""

    def __init__(self, config: ConfigView, formats: Mapping[str, StorageFormat], experts: Mapping[str, int]) -> None:
        self.config, self.formats, self.experts = config, formats, experts

    def of(self, name: str, matrix: Matrix) -> StorageFormat | None:
        if name not in self.formats:  # else a module around it: `mlp.experts` stands for all of them
            around = name.rpartition(".experts.")
            return self.formats.get(f"{around[0]}.experts") if around[1] else None
        expected = matrix.group.count // len(matrix.names)
        if self.experts.get(name, expected) != expected:
            raise self.config.unsupported(
                f"quantized_layers names {self.experts[name]} of the {expected} {shorten(name)}"
            )
        return self.formats[name]


def _listed(config: ConfigView) -> _Listed:
    """All experts of a layer under the name of the first; tens of thousands of lines, of which most say the same."""
    layers = config.mapping("quantized_layers")
    formats: dict[str, StorageFormat] = {}
    experts: Counter[str] = Counter()
    known: dict[Any, StorageFormat] = {}
    for key, value in layers.items():
        try:
            said = tuple(value.items())
            storage = known.get(said)
        except (AttributeError, TypeError):  # no object, or one with another inside
            raise _no_entry(config, key) from None
        if storage is None:
            storage = known[said] = _layer_format(config, key, value)
        name = _first_expert(bare_name(key))
        if formats.setdefault(name, storage) is not storage and formats[name] != storage:
            raise config.unsupported(f"the experts of {shorten(name)} are stored differently")
        experts[name] += 1
    return _Listed(config, formats, Counter({name: count for name, count in experts.items() if ".experts.0." in name}))


def _first_expert(name: str) -> str:
    """`name` with 0 in the place of an expert's number."""
    before, found, after = name.partition(".experts.")
    number, dot, rest = after.partition(".")
    return f"{before}.experts.0.{rest}" if found and dot and number.isdecimal() else name


def _layer_format(config: ConfigView, key: str, value: Mapping[str, Any]) -> StorageFormat:
    algo, further = value.get("quant_algo"), set(value) - {"quant_algo", "group_size"}
    if algo not in _FORMATS or value.get("group_size", 16) not in (16, None) or further:
        raise _no_entry(config, key)
    return weight_format(_FORMATS[algo])


def _no_entry(config: ConfigView, key: str) -> UnsupportedConfigError:
    return config.unsupported(f"quantized_layers {shorten(key)} is not one of {', '.join(_FORMATS)} in groups of 16")


def _require_same_in_groups(config: ConfigView) -> None:
    """config_groups say it a second time: weights alone where inputs are not quantized. Both must say the same."""
    listed = config.data["quantized_layers"]
    for name, group in config.mapping("config_groups", default={}).items():
        if not isinstance(group, Mapping) or not isinstance(group.get("targets"), list):
            raise config.unsupported(f"config_groups {shorten(name)} lacks targets, a list of names")
        weights, inputs = group.get("weights"), group.get("input_activations")
        known = {algo for algo, one in _GROUPS.items() if weights == one and inputs in (None, one)}
        algos = {f"W4A16_{algo}" if inputs is None and algo == "NVFP4" else algo for algo in known}
        stated = {_algo_of(listed.get(target)) for target in group["targets"] if isinstance(target, str)}
        if not algos or stated - algos:
            raise config.unsupported(f"config_groups {shorten(name)} and quantized_layers do not say the same")


def _algo_of(entry: object) -> str:
    return str(entry.get("quant_algo")) if isinstance(entry, Mapping) else ""


def _checked_list(config: ConfigView, listed: _Listed) -> ModuleList:
    """The names as a list, so that one which is none of the family's is refused."""
    return ModuleList(config, list(listed.formats), lambda name: name in listed.formats)


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
