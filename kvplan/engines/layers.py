"""A model's layers as an engine's allocator sees them: what each asks of a pool, on one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from kvplan.attention import CachePart, LayerCache, StatePart
from kvplan.dtypes import KvDtype, StorageFormat
from kvplan.errors import InputError
from kvplan.model import Layer, Model

Kind = Literal["full", "window", "chunk", "state"]


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What one layer, or one part of a layer that has blocks of its own, asks for.

    kind         full: every token; window: the last `tokens`; chunk: one chunk of `tokens`; state: no tokens
    token_bytes  bytes of one token (0 for state)
    tokens       tokens of the window or chunk, else 0
    state_bytes  bytes of the state of one sequence, else 0
    is_latent    latent rows (MLA), which engines page in larger blocks
    """

    kind: Kind
    token_bytes: int = 0
    tokens: int = 0
    state_bytes: int = 0
    is_latent: bool = False


@dataclass(frozen=True, slots=True)
class StateRule:
    """How an engine stores recurrent and convolution state.

    state     format of the recurrent state; None: as the model keeps it
    conv      format of the convolution's inputs; None: as the model keeps it
    extra_columns  inputs kept beyond kernel - 1: the tokens of a draft
    """

    state: StorageFormat | None
    conv: StorageFormat | None
    extra_columns: int = 0

    def apply(self, part: StatePart) -> StatePart:
        """`part` as the engine stores it. A convolution keeps kernel - 1 inputs, one fewer than transformers."""
        if part.role == "convolution":
            kept = max(1, part.entries - 1 + self.extra_columns)
            return replace(part, entries=kept, storage=self.conv or part.storage)
        return replace(part, storage=self.state or part.storage)


def members(cache: LayerCache) -> Iterator[LayerCache]:
    """The mixers of a layer: itself, or those that it combines."""
    inside: tuple[LayerCache, ...] = getattr(cache, "members", (cache,))
    yield from inside


def layer_specs(layer: Layer, kv: KvDtype, tensor_parallel: int, states: StateRule) -> tuple[CacheSpec, ...]:
    """What `layer` asks for on one GPU. Raises InputError for layers whose reservation no rule knows."""
    return tuple(spec for cache in members(layer.cache) for spec in _specs(cache, kv, tensor_parallel, states))


def _specs(cache: LayerCache, kv: KvDtype, tensor_parallel: int, states: StateRule) -> Iterator[CacheSpec]:
    if cache.kind in ("cross", "compressed"):
        raise InputError(f"how engines reserve memory for {cache.label} is not known here; plan its resident bytes")
    groups: dict[tuple[int | None, bool], list[CachePart]] = {}
    for part in cache.cache_parts():
        groups.setdefault((part.max_tokens, part.role == "index"), []).append(part)
    for (limit, _), parts in groups.items():
        token_bytes = sum(part.entry_bytes(kv, tensor_parallel) for part in parts)
        yield CacheSpec(_kind(cache, limit), token_bytes, limit or 0, is_latent=any(_is_latent(p) for p in parts))
    if state := [states.apply(part) for part in cache.state_parts()]:
        yield CacheSpec("state", state_bytes=sum(part.bytes(kv, tensor_parallel) for part in state))


def _kind(cache: LayerCache, limit: int | None) -> Kind:
    if limit is None:
        return "full"
    return "chunk" if cache.kind == "chunked" else "window"


def _is_latent(part: CachePart) -> bool:
    return part.role.endswith(("latent", "rope")) or (part.role == "index" and part.copied)


def index_notes(model: Model, kv: KvDtype) -> list[str]:
    """Where index keys are kept narrower than the cache, so that more tokens fit than their resident bytes say."""
    parts = (part for layer, _ in model.layer_runs if layer.cache.kind == "indexed_latent" for part in _index(layer))
    if kv.name == "fp8" or not any(parts):
        return []
    return [f"index keys are kept in 8 bits whatever the cache dtype, narrower than a plan in {kv.name} counts them"]


def _index(layer: Layer) -> list[CachePart]:
    return [part for part in layer.cache.cache_parts() if part.role == "index"]
