"""Heads: multi-head, grouped-query and multi-query attention are one axis, H_kv from H down to 1.

Fewer KV heads make the cache smaller by H / H_kv. That choice is made when a model is trained: taking the mean of a
trained model's heads changes its answers, and only more training mends that. The planner's KV-head axis is arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from kvplan.errors import InputError
from kvplan.lab.limits import MAX_HEADS, check_work, token_rows, whole_number
from kvplan.lab.model import TinyDecoder
from kvplan.lab.reference import grouped_heads
from kvplan.lab.variants import variant
from kvplan.units import counted

TRAINING_STEPS = 160  # seconds on one core; a twentieth of them mends most of what pooling broke
MAX_TRAINING_STEPS = 400
BATCH, CONTEXT = 16, 48  # rows and tokens of a training step
LEARNING_RATE = 3e-3

SYMBOLS = " .abcdefghijklmnopqrstuvwxyz"
_NOUNS = ("cache", "head", "token", "query", "layer", "window", "block", "row")
_VERBS = ("keeps", "reads", "fills", "drops", "finds")
_COLOURS = ("red", "green", "blue", "grey")


def wiring(num_attention_heads: int, num_kv_heads: int) -> pd.DataFrame:
    """Which KV head each query head reads: query_head, kv_head, kv_head_of_repeat (the wrong wiring, `repeat`)."""
    _check_group(num_attention_heads, num_kv_heads)
    heads = range(num_attention_heads)
    return pd.DataFrame(
        {
            "query_head": heads,
            "kv_head": grouped_heads(num_attention_heads, num_kv_heads),
            "kv_head_of_repeat": [i % num_kv_heads for i in heads],
        }
    )


def head_choices(num_attention_heads: int, head_dim: int, num_layers: int, bytes_per_value: int) -> pd.DataFrame:
    """Every possible number of KV heads: num_kv_heads, name, bytes_per_token, savings (H / H_kv), formula."""
    _check_group(num_attention_heads, 1)
    choices = [count for count in range(num_attention_heads, 0, -1) if num_attention_heads % count == 0]
    layers = counted(num_layers, "layer")
    return pd.DataFrame(
        [
            {
                "num_kv_heads": count,
                "name": _kind_name(num_attention_heads, count),
                "bytes_per_token": 2 * num_layers * count * head_dim * bytes_per_value,
                "savings": num_attention_heads // count,
                "formula": f"2 x {layers} x {counted(count, 'KV head')} x {head_dim} x {bytes_per_value} B",
            }
            for count in choices
        ]
    )


def duplicate_kv_heads(model: TinyDecoder) -> TinyDecoder:
    """The multi-head model whose K and V weights are those of `model`, copied for every query head of a group."""
    group = model.shape.group
    return _with_kv_heads(model, model.shape.num_attention_heads, lambda heads: heads.repeat_interleave(group, 0))


def mean_pool_kv_heads(model: TinyDecoder, num_kv_heads: int) -> TinyDecoder:
    """`model` with fewer KV heads, each the mean of those that it replaces."""
    whole_number("num_kv_heads", num_kv_heads, 1, model.shape.num_kv_heads)
    if model.shape.num_kv_heads % num_kv_heads:
        raise InputError(f"{counted(model.shape.num_kv_heads, 'KV head')} cannot be pooled into {num_kv_heads} evenly")
    return _with_kv_heads(model, num_kv_heads, lambda heads: heads.view(num_kv_heads, -1, *heads.shape[1:]).mean(1))


def duplication_difference(model: TinyDecoder, ids: Any) -> float:
    """Largest logit difference between a model and its duplicated multi-head twin, relative to the largest logit."""
    rows = torch.tensor(token_rows(ids, model.shape.vocab_size))
    logits, twin = model(rows), duplicate_kv_heads(model)(rows)
    return float((logits - twin).abs().max() / logits.abs().max())


def _with_kv_heads(model: TinyDecoder, count: int, change: Callable[[Tensor], Tensor]) -> TinyDecoder:
    other = variant(model, num_kv_heads=count)
    width = model.shape.head_dim
    for mine, theirs in zip(other.blocks, model.blocks, strict=True):
        for name in ("k", "v"):
            target, source = getattr(mine, name), getattr(theirs, name)
            for part in ("weight", "bias"):
                if (tensor := getattr(source, part)) is not None:
                    heads = tensor.detach().view(-1, width, *tensor.shape[1:])  # (H_kv, D, ..)
                    getattr(target, part).data = change(heads).flatten(0, 1)
    return other


def _check_group(num_attention_heads: int, num_kv_heads: int) -> None:
    whole_number("num_attention_heads", num_attention_heads, 1, MAX_HEADS)
    whole_number("num_kv_heads", num_kv_heads, 1, num_attention_heads)
    if num_attention_heads % num_kv_heads:
        raise InputError(
            f"{counted(num_attention_heads, 'query head')} cannot share {counted(num_kv_heads, 'KV head')} evenly"
        )


def _kind_name(heads: int, kv_heads: int) -> str:
    return "multi-head" if kv_heads == heads else "multi-query" if kv_heads == 1 else "grouped-query"


# Training, small enough to watch.


def toy_text(num_sentences: int, seed: int) -> str:
    """Sentences of a toy language; a colour that is given to a noun comes back with it, so that looking back pays."""
    draw = random.Random(seed)
    return " ".join(_sentence(draw) for _ in range(num_sentences))


def _sentence(draw: random.Random) -> str:
    first, second = draw.sample(_NOUNS, 2)
    colour, other = draw.choice(_COLOURS), draw.choice(_COLOURS)
    return f"the {colour} {first} {draw.choice(_VERBS)} the {other} {second}. the {first} is {colour}."


def encode(text: str) -> Tensor:
    """Characters as token ids (T,)."""
    return torch.tensor([SYMBOLS.index(character) for character in text])


def training_model(num_kv_heads: int = 8, seed: int = 0) -> TinyDecoder:
    """An untrained multi-head model of about 100,000 parameters: 2 layers, width 64, 8 heads."""
    return TinyDecoder(
        num_layers=2,
        num_attention_heads=8,
        num_kv_heads=num_kv_heads,
        head_dim=8,
        vocab_size=len(SYMBOLS),
        norm="rms",
        mlp="swiglu",
        mlp_size=170,
        seed=seed,
    )


@dataclass(frozen=True)
class Trained:
    """A model, and its loss on held-out text before the first step and after the last."""

    model: TinyDecoder
    loss_before: float
    loss_after: float


def train(
    model: TinyDecoder, steps: int = TRAINING_STEPS, seed: int = 0, on_step: Callable[[float], None] | None = None
) -> Trained:
    """Train a copy of `model` on the toy text; on_step is told the fraction done, and may raise to stop."""
    whole_number("steps", steps, 0, MAX_TRAINING_STEPS)
    check_work(6 * model.shape.matrix_elements * BATCH * CONTEXT * steps, 120 * model.shape.num_layers * steps)
    trained, before = variant(model), held_out_loss(model)
    text, generator = encode(toy_text(400, seed=1)), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(trained.requires_grad_(True).parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,), generator=generator)  # (B,)
        batch = text[starts[:, None] + torch.arange(CONTEXT + 1)]  # (B, S + 1)
        optimizer.zero_grad()
        torch.autograd.backward(_loss(trained, batch))
        optimizer.step()
        if on_step is not None:
            on_step((step + 1) / steps)
    return Trained(trained.requires_grad_(False), before, held_out_loss(trained))


def held_out_loss(model: TinyDecoder) -> float:
    """Mean cross-entropy a character on sentences that training never saw, in nats."""
    text = encode(toy_text(60, seed=2))
    rows = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)  # (B, S + 1)
    with torch.no_grad():
        return float(_loss(model, rows[:64]))


def shrink(
    model: TinyDecoder, num_kv_heads: int, steps: int, on_step: Callable[[float], None] | None = None
) -> Trained:
    """Pool a trained model's KV heads, and train on: loss_before shows the harm, loss_after what is left of it."""
    return train(mean_pool_kv_heads(model, num_kv_heads), steps, seed=3, on_step=on_step)


def _loss(model: TinyDecoder, batch: Tensor) -> Tensor:
    logits = model(batch[:, :-1])  # (B, S, V)
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
