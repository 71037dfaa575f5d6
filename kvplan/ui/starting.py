"""A model taken apart into the sizes that a form can hold."""

from __future__ import annotations

import math
from typing import Any

from kvplan.attention import LayerCache, SlidingAttention
from kvplan.explain import kinds_sentence
from kvplan.model import ROLES, Layer, Model
from kvplan.presets import list_models, load_model, readable
from kvplan.units import counted


def starting_values(model: Model) -> dict[str, Any]:
    """What of `model` the form can hold, by keyword; sizes that it has in several forms come from the first layer."""
    caches = [layer.cache for layer in model.layers]
    windows = [cache for cache in caches if isinstance(cache, SlidingAttention)]
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_kv_heads or _first(caches, "num_kv_heads"),
        "context_limit": model.context_limit,
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "head_dim": _first(caches, "head_dim"),
        "window": windows[0].window if windows else None,
        "full_attention_every": _first_full(caches) if windows else None,
        **_latent_sizes(model),
        **_widths(model),
    }


def _first(caches: list[LayerCache], name: str) -> int | None:
    return next((value for cache in caches if (value := getattr(cache, name, None)) is not None), None)


def _first_full(caches: list[LayerCache]) -> int | None:
    return next((index for index, cache in enumerate(caches, 1) if cache.kind == "full"), None)


LATENT_KINDS = frozenset({"latent", "sliding_latent", "indexed_latent"})


def _latent_sizes(model: Model) -> dict[str, int | None]:
    """Latent attention of the first layer that has it; widths of a head are read from its projections."""
    heads = model.num_attention_heads
    layer = next((layer for layer in model.layers if layer.cache.kind in LATENT_KINDS), None)
    if layer is None or heads is None:
        return {}
    shapes = {group.role: (group.rows, group.columns) for group in layer.weights if group.columns > 1}
    (query, rank), (_, value), rope = shapes["attention_q"], shapes["attention_o"], _of(layer, "qk_rope_head_dim")
    return {
        "kv_lora_rank": _of(layer, "kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": query // heads - rope,
        "v_head_dim": value // heads,
        "q_lora_rank": None if rank == model.hidden_size else rank,
    }


def _of(layer: Layer, name: str) -> int:
    """A size of a layer's cache, whose kind has it."""
    return int(getattr(layer.cache, name))


def _widths(model: Model) -> dict[str, int | None]:
    """Widths of MLP and experts, read from the down projections; an MLP beside experts is that of the first layers."""
    down = {group.role: group for group, _ in model.all_groups if group.split == "columns"}
    mlp, routed, shared = (down.get(role) for role in ("mlp", "routed_experts", "shared_experts"))
    width = mlp.columns if mlp else None
    if routed is None:
        return {"intermediate_size": width}
    dense = next(index for index, layer in enumerate(model.layers) if layer.num_experts) if width else 0
    return {
        "intermediate_size": width if dense else None,
        "num_experts": routed.count,
        "num_experts_per_token": routed.active,
        "expert_intermediate_size": routed.columns,
        "num_shared_experts": shared.columns // routed.columns if shared else None,
        "num_dense_layers": dense or None,
    }


NEAREST = 5


def nearest_presets(num_params: int) -> tuple[Model, ...]:
    """The presets of full attention without experts or towers whose number of parameters is the nearest."""
    plain = [model for model in readable(list_models(), load_model).presets if _is_plain(model)]
    return tuple(sorted(plain, key=lambda model: (abs(math.log(model.num_params / num_params)), model.id))[:NEAREST])


def _is_plain(model: Model) -> bool:
    full = all(layer.cache.kind == "full" for layer in model.layers)
    return full and not model.has_experts and set(model.params_by_tower) == {"text"}


FORM_KINDS = frozenset({"full", "sliding", "latent"})
"""Kinds of layer that the form can make."""


def without_place(model: Model) -> str:
    """The layers of `model` that the form has no place for, in words, or ""."""
    counts: dict[str, int] = {}
    for layer in model.layers:
        if layer.cache.kind not in FORM_KINDS:
            counts[layer.cache.label] = counts.get(layer.cache.label, 0) + 1
    return ", ".join(f"{counted(count, 'layer')} of {label}" for label, count in counts.items())


def left_out(preset: Model, made: Model) -> tuple[str, ...]:
    """What differs between a preset and the model that the form makes of it, a sentence for each."""
    theirs, ours = _params_by_role(preset), _params_by_role(made)
    sentences = [
        f"{label}: {theirs.get(label, 0):,} parameters there, {ours.get(label, 0):,} here"
        for label in dict.fromkeys([*theirs, *ours])
        if theirs.get(label, 0) != ours.get(label, 0)
    ]
    if kinds_sentence(preset) != kinds_sentence(made):
        sentences.insert(0, f"layers: {kinds_sentence(preset)} there, {kinds_sentence(made)} here")
    return tuple(sentences)


def _params_by_role(model: Model) -> dict[str, int]:
    sums: dict[str, int] = {}
    for group, times in model.all_groups:
        label = ROLES[group.role].label
        sums[label] = sums.get(label, 0) + times * group.count * group.rows * group.columns
    return sums
