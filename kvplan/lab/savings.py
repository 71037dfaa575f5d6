"""What a cache saves: projections counted in the running model, time on this machine, and bytes that growing copies.

The counts are the lesson, and the seconds of a small model on a CPU are not serving evidence. The bytes show why one
cache is not like another: `torch.cat` copies all that is held at every step, a preallocated cache copies nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor, nn

from kvplan.lab.caches import Cache, DynamicCache, StaticCache
from kvplan.lab.limits import MAX_TIMED_TOKENS, check_work, whole_number
from kvplan.lab.model import TinyDecoder

DEFAULT_TOKENS = 192
MAX_COUNTED_TOKENS = 10**9


@dataclass(frozen=True)
class Projections:
    """Key and value projections of one layer for `tokens` one-token steps."""

    tokens: int
    uncached: int
    cached: int

    @property
    def saved(self) -> int:
        return self.uncached - self.cached


def projections(tokens: int) -> Projections:
    """By formula: T(T+1)/2 without a cache, T with one, T(T-1)/2 saved."""
    count = whole_number("tokens", tokens, 1, MAX_COUNTED_TOKENS)
    return Projections(count, count * (count + 1) // 2, count)


def cat_bytes(model: TinyDecoder, tokens: int, batch_size: int = 1) -> int:
    """By formula: bytes that a `torch.cat` cache copies over `tokens` one-token steps, all that was held at each."""
    count = whole_number("tokens", tokens, 1, MAX_COUNTED_TOKENS)
    return batch_size * model.shape.token_elements * model.dtype.itemsize * (count * (count - 1) // 2)


def savings_model(seed: int = 0) -> TinyDecoder:
    """The default model: 4 layers, width 64, 8 query and 2 KV heads, float32."""
    return TinyDecoder(num_layers=4, num_attention_heads=8, num_kv_heads=2, head_dim=8, vocab_size=50, seed=seed)


@dataclass
class Counter:
    """How many tokens went through the key projections of a model, per layer."""

    tokens: int = 0

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.tokens += inputs[0].shape[0] * inputs[0].shape[1]


@contextmanager
def counting(model: TinyDecoder) -> Iterator[Counter]:
    """Count in the first layer's key projection while the block runs; all layers do the same."""
    counter = Counter()
    handle = model.blocks[0].k.register_forward_hook(counter)
    try:
        yield counter
    finally:
        handle.remove()


def measure_savings(
    model: TinyDecoder | None = None,
    num_tokens: int = DEFAULT_TOKENS,
    on_step: Callable[[float], None] | None = None,
) -> pd.DataFrame:
    """Run `num_tokens` one-token steps without a cache, with a growing and with a preallocated one; one row a step.

    Columns: tokens, and for uncached, dynamic and static: *_projections a layer (counted), *_seconds (measured, summed
    up), and dynamic_copied_bytes, static_copied_bytes (summed up). A warm-up run comes first and is not timed.
    on_step is told the fraction done; it may raise to stop.
    """
    model = savings_model() if model is None else model
    count = whole_number("num_tokens", num_tokens, 1, MAX_TIMED_TOKENS)
    check_work(2 * model.shape.matrix_elements * projections(count).uncached, 120 * model.shape.num_layers * count)
    ids = torch.randint(0, model.shape.vocab_size, (1, count), generator=torch.Generator().manual_seed(0))  # (1, T)
    model(ids[:, : min(count, 16)])
    tell = (lambda fraction: None) if on_step is None else on_step
    uncached = _run(model, ids, None, lambda part: tell(0.8 * part))
    dynamic = _run(model, ids, DynamicCache(model), lambda part: tell(0.8 + 0.1 * part))
    static = _run(model, ids, StaticCache(model, 1, count), lambda part: tell(0.9 + 0.1 * part))
    return pd.DataFrame(
        {
            "tokens": range(1, count + 1),
            **{f"uncached_{name}": uncached[name] for name in ("projections", "seconds")},
            **{f"dynamic_{name}": dynamic[name] for name in ("projections", "seconds", "copied_bytes")},
            **{f"static_{name}": static[name] for name in ("projections", "seconds", "copied_bytes")},
        }
    )


def _run(model: TinyDecoder, ids: Tensor, cache: Cache | None, tell: Callable[[float], None]) -> dict[str, list[float]]:
    """One step for each token: the whole row again without a cache, the one token with it."""
    found: dict[str, list[float]] = {"projections": [], "seconds": [], "copied_bytes": []}
    count, seconds, copied = ids.shape[1], 0.0, 0
    with counting(model) as counter:
        for end in range(1, count + 1):
            copied += _bytes_to_copy(cache)
            start = time.perf_counter()
            model(ids[:, :end] if cache is None else ids[:, end - 1 : end], cache)
            seconds += time.perf_counter() - start
            for name, value in (("projections", counter.tokens), ("seconds", seconds), ("copied_bytes", copied)):
                found[name].append(value)
            tell(end / count)
    return found


def _bytes_to_copy(cache: Cache | None) -> int:
    """What the next `torch.cat` copies: everything that a growing cache holds."""
    return cache.nbytes if isinstance(cache, DynamicCache) else 0
