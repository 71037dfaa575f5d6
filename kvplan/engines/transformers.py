"""transformers: tensors that grow (dynamic cache), or stand at their capacity from the start (static cache)."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.attention import add_up
from kvplan.dtypes import KvDtype
from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.engines.capacity import EngineCapacity, Request, longest_context, ratio
from kvplan.model import Model
from kvplan.units import counted

BytesOf = Callable[[Model, int, int, KvDtype, int], int]


def dynamic_bytes(
    model: Model, tokens: int, batch_size: int = 1, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1
) -> int:
    """Bytes of a `DynamicCache` of `tokens` tokens: windows keep W - 1 of them once the prompt was longer."""
    kv = as_kv_dtype(kv_dtype)
    dropped = sum(
        count * part.entry_bytes(kv, tensor_parallel)
        for layer, count in model.layer_runs
        if layer.cache.kind.startswith("sliding")
        for part in layer.cache.cache_parts()
        if part.max_tokens is not None and tokens >= part.max_tokens
    )
    return (model.cache_curve(kv, tensor_parallel).bytes_at(tokens) - dropped) * batch_size


def growing_bytes(
    model: Model, tokens: int, batch_size: int = 1, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1
) -> int:
    """Bytes while a `DynamicCache` grows by a token: the largest layer's tensors exist twice."""
    kv = as_kv_dtype(kv_dtype)
    layers = (add_up([(layer.cache, 1)], kv, tensor_parallel) for layer, _ in model.layer_runs)
    largest = max(curve.bytes_at(tokens) for curve in layers)
    return dynamic_bytes(model, tokens, batch_size, kv, tensor_parallel) + largest * batch_size


def static_bytes(
    model: Model, tokens: int, batch_size: int = 1, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1
) -> int:
    """Bytes of a `StaticCache` of `tokens` capacity: all of it from the start, windows min(W, capacity)."""
    return model.cache_curve(as_kv_dtype(kv_dtype), tensor_parallel).bytes_at(tokens) * batch_size


def dynamic_capacity(request: Request) -> EngineCapacity:
    """The longest sequence that a `DynamicCache` grows to inside the pool, the copy while it grows included."""
    return _capacity(request, "transformers", growing_bytes, "the largest layer is counted twice, as while it grows")


def static_capacity(request: Request) -> EngineCapacity:
    """The longest sequence whose `StaticCache` stands inside the pool."""
    return _capacity(request, "transformers-static", static_bytes, "the capacity stands from the first token on")


def _capacity(request: Request, engine: str, bytes_of: BytesOf, note: str) -> EngineCapacity:
    model, kv, parallel = request.model, request.kv, request.tensor_parallel
    longest = longest_context(lambda length: bytes_of(model, length, 1, kv, parallel), request.pool_bytes)
    needed = bytes_of(model, request.max_model_len, 1, kv, parallel)
    return EngineCapacity(
        engine=engine,
        pool_bytes=request.pool_bytes,
        num_blocks=int(ratio(request.pool_bytes, needed)),
        tokens=longest or 0,
        max_concurrency=ratio(request.pool_bytes, needed),
        bytes_per_block=needed,
        request_blocks=1,
        block_size=request.max_model_len,
        longest_context=longest,
        notes=(
            f"there are no blocks: a block here is one sequence of {counted(request.max_model_len, 'token')}; {note}",
        ),
    )
