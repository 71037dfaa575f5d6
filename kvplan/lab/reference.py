"""The uncached path, written a second time.

A check of one function against itself passes whatever the function does. So this file shares no attention, mask, head
map, rotation or MLP with `model.py`: it takes the whole sequence of one row and goes through it head by head. Of the
model it uses the weight matrices and norms, and nothing else.

Letters in the shapes: S tokens, E hidden size, H query heads, H_kv key and value heads, D head size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvplan.lab.model import Block, TinyDecoder

AttendHead = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Uncached:
    """What one pass over a whole row gives: logits (S, V), and for each layer keys and values (H_kv, S, D)."""

    tokens: list[int]
    logits: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def attend_head(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """One head: q, k, v (S, D), visible (S, S) -> (S, D)."""
    scores = torch.mm(q, k.t()) / math.sqrt(q.shape[1])  # (S, S)
    return torch.mm(torch.softmax(scores.masked_fill(~visible, -math.inf), 1), v)


def grouped_heads(num_attention_heads: int, num_kv_heads: int) -> list[int]:
    """Which KV head each query head reads: equal runs, 8 over 2 is 0 0 0 0 1 1 1 1."""
    return [i * num_kv_heads // num_attention_heads for i in range(num_attention_heads)]


def uncached(
    model: TinyDecoder,
    tokens: Sequence[int],
    attend: AttendHead = attend_head,
    kv_head_of: Sequence[int] | None = None,
) -> Uncached:
    """Logits, keys and values of a whole row at once, with no cache."""
    shape = model.shape
    readers = grouped_heads(shape.num_attention_heads, shape.num_kv_heads) if kv_head_of is None else kv_head_of
    visible = _visible(len(tokens), shape.window)  # (S, S)
    x = _inputs(model, tokens)  # (S, E)
    keys, values = [], []
    for block in model.blocks:
        h = block.attention_norm(x)  # (S, E)
        q, k = _turn_heads(model, block.q(h)), _turn_heads(model, block.k(h))  # H and H_kv times (S, D)
        v = torch.split(block.v(h), shape.head_dim, 1)  # H_kv times (S, D)
        heads = [attend(q[i], k[j], v[j], visible) for i, j in enumerate(readers)]  # H times (S, D)
        x = x + block.out(torch.cat(heads, 1))
        x = x + _mlp(block, block.mlp_norm(x))
        keys.append(torch.stack(list(k)))
        values.append(torch.stack(list(v)))
    return Uncached(list(tokens), model.head(model.norm(x)), keys, values)


def uncached_generation(
    model: TinyDecoder,
    prompt: Sequence[int],
    num_new_tokens: int,
    attend: AttendHead = attend_head,
    kv_head_of: Sequence[int] | None = None,
) -> Uncached:
    """Greedy generation that computes the whole row again at every step.

    All new tokens are consumed too, the last one included. The logits (P + N, V) of the prompt are those of the first
    pass, and those of a generated token of the pass that it ended. Keys and values are those of the last pass.
    """
    tokens = list(prompt)
    run = uncached(model, tokens, attend, kv_head_of)
    logits = [run.logits]  # (P, V), then (1, V) a step
    for _ in range(num_new_tokens):
        tokens.append(int(logits[-1][-1].argmax()))
        run = uncached(model, tokens, attend, kv_head_of)
        logits.append(run.logits[-1:])
    return Uncached(tokens, torch.cat(logits), run.keys, run.values)


def _inputs(model: TinyDecoder, tokens: Sequence[int]) -> Tensor:
    x = model.embedding.weight[list(tokens)]  # (S, E)
    if model.shape.position != "learned":
        return x
    return x + model.position_embedding.weight[: len(tokens)]


def _visible(count: int, window: int | None) -> Tensor:
    lower = torch.ones(count, count, dtype=torch.bool).tril()  # (S, S)
    return lower if window is None else lower.triu(1 - window)


def _turn_heads(model: TinyDecoder, x: Tensor) -> list[Tensor]:
    """(S, heads * D) as `heads` times (S, D), each pair of halves turned by its position."""
    heads = list(torch.split(x, model.shape.head_dim, 1))
    if model.shape.position != "rope":
        return heads
    D = model.shape.head_dim
    theta = torch.tensor(model.shape.rope_theta, dtype=torch.float64)
    speed = torch.pow(theta, torch.arange(0, -D, -2, dtype=torch.float64) / D)  # (D/2,)
    angle = torch.outer(torch.arange(len(x), dtype=torch.float64), speed)  # (S, D/2)
    cosine, sine = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    return [_turn(head, cosine, sine) for head in heads]


def _turn(head: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    low, high = head.chunk(2, 1)  # (S, D/2)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], 1)  # (S, D)


def _mlp(block: Block, x: Tensor) -> Tensor:
    """The MLP from its definition: down(act(..)), x (S, E)."""
    if block.gate is None:
        return block.down(torch.nn.GELU(approximate="tanh")(block.up(x)))  # type: ignore[no-any-return]
    return block.down(torch.nn.SiLU()(block.gate(x)) * block.up(x))  # type: ignore[no-any-return]
