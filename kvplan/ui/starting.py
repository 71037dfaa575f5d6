"""Models that a form may start from, and what differs between one and what the form makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

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


class Difference(NamedTuple):
    """What differs between a preset and the model that the form makes of it."""

    what: str
    there: str
    here: str


def differences(preset: Model, made: Model) -> tuple[Difference, ...]:
    """Layers, cache and parameters in which a preset and the model that the form makes of it differ."""
    rows = [
        Difference("layers", kinds_sentence(preset), kinds_sentence(made)),
        Difference("cache a token, bf16", *(format_bytes_a_token(m.cache_bytes_per_token()) for m in (preset, made))),
        Difference("state of a sequence", *(f"{m.cache_curve().fixed_bytes:,} B" for m in (preset, made))),
        Difference("parameters", f"{preset.num_params:,}", f"{made.num_params:,}"),
        *(() if made.is_estimate else _role_rows(_params_by_role(preset), _params_by_role(made))),
    ]
    return tuple(row for row in rows if row.there != row.here)


def _role_rows(there: Mapping[str, int], here: Mapping[str, int]) -> list[Difference]:
    labels = dict.fromkeys([*there, *here])
    return [Difference(label, f"{there.get(label, 0):,}", f"{here.get(label, 0):,}") for label in labels]


def _params_by_role(model: Model) -> dict[str, int]:
    sums: dict[str, int] = {}
    for group, times in model.all_groups:
        label = ROLES[group.role].label
        sums[label] = sums.get(label, 0) + times * group.count * group.rows * group.columns
    return sums
