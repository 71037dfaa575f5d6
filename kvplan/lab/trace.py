"""A generation step by step, read off the live tensors: what goes in, what the cache holds, what comes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from kvplan.errors import InputError
from kvplan.lab.caches import Cache
from kvplan.lab.kinds import cache_kind, new_cache
from kvplan.lab.limits import token_rows, whole_number
from kvplan.lab.model import TinyDecoder
from kvplan.lab.planner import cache_formula

MAX_TRACED_TOKENS = 64


class Probe(TinyDecoder):
    """A decoder that remembers the shapes and the mask of its last call."""

    seen: dict[str, Any]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        self.seen = {"query": tuple(q.shape), "key": tuple(k.shape), "value": tuple(v.shape), "mask": mask[0, 0]}
        return super().attend(q, k, v, mask)


@dataclass(frozen=True)
class _Step:
    """One forward pass of a traced generation, with the cache as it stands behind it."""

    number: int
    phase: str
    tokens: tuple[int, ...]
    before: int
    cache: Cache
    seen: dict[str, Any]
    predicted: int


def trace(model: TinyDecoder, prompt: Any, num_new_tokens: int = 2, cache: str = "dynamic") -> pd.DataFrame:
    """One row a step: the prefill of one prompt, then `num_new_tokens` decode inputs; the last would predict one more.

    Columns: step, phase, input_tokens, length_before, length_after, key_shape and value_shape as one layer reads them
    (B, H_kv, T, D), columns_written, query_length, key_length, mask_row of the last query (1: it reads that column),
    predicted_token, bytes_held, formula_bytes, formula. The bytes are those of all tensors and of the planner's formula
    for the columns that memory is held for; they are equal.
    """
    return pd.DataFrame([_row(step) for step in _steps(model, prompt, num_new_tokens, cache)])


def trace_grid(model: TinyDecoder, prompt: Any, num_new_tokens: int = 2, cache: str = "dynamic") -> pd.DataFrame:
    """The layer x column picture: one row for each step, layer and column of the cache.

    Columns: step, layer, column, position and token in it (-1: empty), state (empty, held, new), key_size and
    value_size: the mean absolute value of what the tensors hold there.
    """
    seen: list[int] = []
    rows: list[dict[str, Any]] = []
    for step in _steps(model, prompt, num_new_tokens, cache):
        seen += step.tokens
        rows += _cells(step, seen)
    return pd.DataFrame(rows)


def _steps(model: TinyDecoder, prompt: Any, count: int, cache: str) -> Iterator[_Step]:
    rows = token_rows(prompt, model.shape.vocab_size)
    if len(rows) > 1:
        raise InputError(f"a trace follows one row, and {len(rows)} were given")
    whole_number("num_new_tokens", count, 0, MAX_TRACED_TOKENS)
    whole_number("prompt and new tokens of a trace", len(rows[0]) + count, 1, MAX_TRACED_TOKENS)
    held = new_cache(cache_kind(cache), model, 1, len(rows[0]) + count)
    probe: Any = copy.copy(model)
    probe.__class__ = type("Probe", (Probe, type(model)), {})
    tokens = rows[0]
    for number in range(count + 1):
        before = int(held.length[0])
        predicted = int(probe(torch.tensor([tokens]), held)[0, -1].argmax())
        phase = "decode" if number else "prefill"
        yield _Step(number, phase, tuple(tokens), before, copy.deepcopy(held), probe.seen, predicted)
        tokens = [predicted]


def _row(step: _Step) -> dict[str, Any]:
    cache, seen = step.cache, step.seen
    formula = cache_formula(cache)
    new = (cache.held()[0] >= step.before).nonzero()[:, 0]
    return {
        "step": step.number,
        "phase": step.phase,
        "input_tokens": step.tokens,
        "length_before": step.before,
        "length_after": int(cache.length[0]),
        "key_shape": seen["key"],
        "value_shape": seen["value"],
        "columns_written": tuple(new.tolist()),
        "query_length": seen["query"][2],
        "key_length": seen["key"][2],
        "mask_row": "".join(str(int(cell)) for cell in seen["mask"][-1]),
        "predicted_token": step.predicted,
        "bytes_held": cache.nbytes,
        "formula_bytes": formula.bytes,
        "formula": formula.text,
    }


def _cells(step: _Step, tokens: list[int]) -> Iterator[dict[str, Any]]:
    held = step.cache.held()[0].tolist()
    for layer in range(step.cache.shape.num_layers):
        sizes = [part[0].double().abs().mean((0, 2)).tolist() for part in step.cache.read(layer)]  # (C,) twice
        for column, (position, key_size, value_size) in enumerate(zip(held, *sizes, strict=True)):
            yield {
                "step": step.number,
                "layer": layer,
                "column": column,
                "position": position,
                "token": tokens[position] if position >= 0 else -1,
                "state": "empty" if position < 0 else "new" if position >= step.before else "held",
                "key_size": key_size,
                "value_size": value_size,
            }
