"""The caches by name."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.lab.caches import Cache, DynamicCache, PagedCache, QuantizedCache, SlidingCache, StaticCache
from kvplan.lab.limits import one_of
from kvplan.lab.model import TinyDecoder

CACHES: Mapping[str, type[Cache]] = {
    "dynamic": DynamicCache,
    "static": StaticCache,
    "paged": PagedCache,
    "sliding": SlidingCache,
    "quantized": QuantizedCache,
}
BLOCK_SIZE = 2  # small, so that a short prompt fills several blocks


def cache_kind(name: str) -> type[Cache]:
    """The cache class of that name."""
    return CACHES[one_of("cache", name, CACHES)]


def new_cache(kind: type[Cache], model: TinyDecoder, batch_size: int, capacity: int) -> Cache:
    """An empty cache of that class; `capacity` tokens a row, where memory is taken beforehand."""
    sizes = {}
    if issubclass(kind, StaticCache) and not issubclass(kind, SlidingCache):
        sizes["capacity"] = capacity
    if issubclass(kind, PagedCache):
        sizes["block_size"] = BLOCK_SIZE
    return kind(model, batch_size, **sizes)
