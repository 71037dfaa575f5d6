"""A model taken apart into the sizes that a form can hold."""

from __future__ import annotations

from typing import Any

from kvplan.attention import LayerCache, SlidingAttention
from kvplan.model import Model


def starting_values(model: Model) -> dict[str, Any]:
    """What of `model` the form can hold, by keyword; sizes that it has in several forms come from the first layer."""
    caches = [layer.cache for layer in model.layers]
    windows = [cache for cache in caches if isinstance(cache, SlidingAttention)]
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_kv_heads,
        "context_limit": model.context_limit,
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "head_dim": _first(caches, "head_dim"),
        "kv_lora_rank": _first(caches, "kv_lora_rank"),
        "qk_rope_head_dim": _first(caches, "qk_rope_head_dim"),
        "window": windows[0].window if windows else None,
        "full_attention_every": _first_full(caches) if windows else None,
        **_widths(model),
    }


def _first(caches: list[LayerCache], name: str) -> int | None:
    return next((value for cache in caches if (value := getattr(cache, name, None)) is not None), None)


def _first_full(caches: list[LayerCache]) -> int | None:
    return next((index for index, cache in enumerate(caches, 1) if cache.kind == "full"), None)


def _widths(model: Model) -> dict[str, int | None]:
    """Widths of MLP and experts, read from the down projections."""
    down = {
        group.role: group
        for group, _ in model.all_groups
        if group.split == "columns" and group.role in ("mlp", "routed_experts")
    }
    mlp, routed = down.get("mlp"), down.get("routed_experts")
    return {
        "intermediate_size": mlp.columns if mlp else None,
        "num_experts": routed.count if routed else None,
        "num_experts_per_token": routed.active if routed else None,
        "expert_intermediate_size": routed.columns if routed else None,
    }
