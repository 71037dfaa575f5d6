"""Greedy generation with a cache: read the prompt once, then one token a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvplan.lab.caches import Cache
from kvplan.lab.kinds import cache_kind, new_cache
from kvplan.lab.limits import MAX_CONTEXT, check_work, token_rows, whole_number
from kvplan.lab.model import TinyDecoder


def generate(
    model: TinyDecoder, ids: Any, max_new_tokens: int, cache: Cache | str | None = None, eos: int | None = None
) -> Tensor:
    """The greedy tokens after each prompt row: (B, P + N) ids, prompts included; -1 behind the end of a shorter row.

    ids: a prompt, a list of prompts that may differ in length, or a (B, P) tensor. cache: one of your own, a name, or
    None for a dynamic one. A row that produces `eos` leaves the batch, and the cache drops it. The cache ends with
    P + N - 1 tokens a row: the last one is produced, and never read.
    """
    rows = token_rows(ids, model.shape.vocab_size)
    longest = max(map(len, rows))
    whole_number("max_new_tokens", max_new_tokens, 0, MAX_CONTEXT - longest)
    work = len(rows) * (longest + max_new_tokens)
    check_work(2 * model.shape.matrix_elements * work, 40 * model.shape.num_layers * max_new_tokens)
    if cache is None or isinstance(cache, str):
        cache = new_cache(cache_kind(cache or "dynamic"), model, len(rows), longest + max_new_tokens)
    if max_new_tokens > 0:
        _extend_rows(model, rows, max_new_tokens, cache, eos)
    return pad(rows, -1)  # (B, P + N)


def pad(rows: list[list[int]], filler: int = 0) -> Tensor:
    """Rows of different length as one tensor (B, longest), filled up on the right."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, filler)


def read_prompts(model: TinyDecoder, rows: list[list[int]], cache: Cache) -> Tensor:
    """Run the prompts through the model once; the logits behind each row's last token: (B, V)."""
    lengths = torch.tensor([len(row) for row in rows])  # (B,)
    logits = model(pad(rows), cache, lengths=lengths)  # (B, P, V)
    last: Tensor = logits[torch.arange(len(rows)), lengths - 1]  # (B, V)
    return last


def _extend_rows(model: TinyDecoder, rows: list[list[int]], count: int, cache: Cache, eos: int | None) -> None:
    live = rows
    logits = read_prompts(model, rows, cache)  # (B, V)
    for step in range(count):
        for row, token in zip(live, logits.argmax(-1).tolist(), strict=True):
            row.append(token)
        keep = [i for i, row in enumerate(live) if row[-1] != eos]
        if not keep or step == count - 1:
            return
        if len(keep) < len(live):
            cache.compact(keep)
            live = [live[i] for i in keep]
        logits = model(torch.tensor([row[-1:] for row in live]), cache)[:, -1]  # (B, 1, V) -> (B, V)
