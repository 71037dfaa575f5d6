"""Models that a form may start from, and what differs between one and what the form makes of it."""

from __future__ import annotations

import math

from kvplan.explain import kinds_sentence
from kvplan.model import ROLES, Model
from kvplan.presets import list_models, load_model, readable
from kvplan.units import format_bytes_a_token

NEAREST = 5


def nearest_presets(num_params: int) -> tuple[Model, ...]:
    """The presets of full attention without experts or towers whose number of parameters is the nearest."""
    plain = [model for model in readable(list_models(), load_model).presets if _is_plain(model)]
    return tuple(sorted(plain, key=lambda model: (abs(math.log(model.num_params / num_params)), model.id))[:NEAREST])


def _is_plain(model: Model) -> bool:
    full = all(layer.cache.kind == "full" for layer in model.layers)
    return full and not model.has_experts and set(model.params_by_tower) == {"text"}


def differences(preset: Model, made: Model) -> tuple[str, ...]:
    """What differs between a preset and the model that the form makes of it, a sentence for each."""
    theirs, ours = _params_by_role(preset), _params_by_role(made)
    sentences = [
        f"{label}: {theirs.get(label, 0):,} parameters there, {ours.get(label, 0):,} here"
        for label in dict.fromkeys([*theirs, *ours])
        if theirs.get(label, 0) != ours.get(label, 0)
    ]
    tokens = preset.cache_bytes_per_token(), made.cache_bytes_per_token()
    if tokens[0] != tokens[1]:
        there, here = map(format_bytes_a_token, tokens)
        sentences.insert(0, f"cache a token in bf16: {there} there, {here} here")
    if kinds_sentence(preset) != kinds_sentence(made):
        sentences.insert(0, f"layers: {kinds_sentence(preset)} there, {kinds_sentence(made)} here")
    return tuple(sentences)


def _params_by_role(model: Model) -> dict[str, int]:
    sums: dict[str, int] = {}
    for group, times in model.all_groups:
        label = ROLES[group.role].label
        sums[label] = sums.get(label, 0) + times * group.count * group.rows * group.columns
    return sums
