"""Greedy tokens of every cache class against those of no cache at all, and what the logits say of the same caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from kvplan.errors import InputError
from kvplan.lab.generation import generate
from kvplan.lab.kinds import CACHES
from kvplan.lab.limits import token_rows
from kvplan.lab.model import TinyDecoder
from kvplan.lab.parity import check_parity
from kvplan.lab.reference import uncached_generation
from kvplan.lab.variants import in_dtype, variant

DEFAULT_TOKENS = 30
_DTYPES = {"tokens_equal": bool, "logic_diff": float, "logic_bar": float, "logic_passed": bool}


def compare_caches(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int = DEFAULT_TOKENS,
    on_step: Callable[[float], None] | None = None,
) -> pd.DataFrame:
    """One row a cache class, each generating on its own after one prompt.

    Columns: cache, window (of the model that it ran on; a ring needs one), tokens (the new ones), tokens_equal,
    first_other_token (position, or None), logic_diff, logic_bar, logic_passed and first_over_bar (position, or None) of
    the logic gate in float64. on_step is told the fraction done; it may raise to stop.
    """
    rows = token_rows(prompt, model.shape.vocab_size)
    if len(rows) > 1:
        raise InputError(f"caches are compared after one prompt, and {len(rows)} were given")
    found: list[dict[str, Any]] = []
    for done, name in enumerate(CACHES, 1):
        here = _with_window(model, len(rows[0]) + num_new_tokens) if name == "sliding" else model
        found.append({"cache": name, "window": here.shape.window, **_compare(here, name, rows[0], num_new_tokens)})
        if on_step is not None:
            on_step(done / len(CACHES))
    return pd.DataFrame(found, dtype=object).astype(_DTYPES)  # objects first, or None would turn into a float


def _with_window(model: TinyDecoder, tokens: int) -> TinyDecoder:
    """`model`, or the same with a window that the generation outgrows."""
    return model if model.shape.window is not None else variant(model, window=max(1, tokens // 2))


def _compare(model: TinyDecoder, cache: str, prompt: list[int], count: int) -> dict[str, Any]:
    result = check_parity(in_dtype(model, "float64"), prompt, count, cache=cache, generations=1)
    over = result.first_over_bar
    with_cache = generate(model, prompt, count, cache)[0].tolist()  # (P + N)
    without = uncached_generation(model, prompt, count).tokens
    return {
        "tokens": with_cache[len(prompt) :],
        "tokens_equal": with_cache == without,
        "first_other_token": _first_difference(with_cache, without),
        "logic_diff": result.max_abs_diff,
        "logic_bar": result.bar,
        "logic_passed": result.passed,
        "first_over_bar": None if over is None else over.position,
    }


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    pairs = zip(one, other, strict=True)
    return next((position for position, (a, b) in enumerate(pairs) if a != b), None)
