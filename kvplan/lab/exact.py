"""Exact shapes: make every matrix product the same shape with and without a cache, and the logits are bit-equal.

A cached step multiplies one row, an uncached pass many, and a matrix library takes another path for each, with sums in
another order. That is the only reason why correct logits differ in the last bits. Here every linear layer works in
tiles of `TILE` rows, queries are padded to that, and keys to one capacity behind a mask.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from kvplan.lab.model import TinyDecoder
from kvplan.lab.reference import AttendHead

TILE = 16


class TiledLinear(nn.Linear):
    """A linear layer that always multiplies `TILE` rows at once."""

    def forward(self, input: Tensor) -> Tensor:
        flat = input.flatten(0, -2)  # (N, in)
        tiles = [super(TiledLinear, self).forward(tile) for tile in _tiles(flat)]
        return torch.cat(tiles)[: len(flat)].unflatten(0, input.shape[:-1])  # type: ignore[no-untyped-call, no-any-return]


class ExactShapes(TinyDecoder):
    """Attention in tiles of queries over keys at full capacity, each key in the column of its token."""

    capacity: int

    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        mask = super().mask(index, key_index)  # (B, 1, S, T)
        self.place = (key_index >= 0).nonzero(as_tuple=True)  # rows and columns of the keys
        self.token = key_index[self.place]  # (keys,)
        canvas = torch.zeros(*mask.shape[:3], self.capacity, dtype=torch.bool)  # (B, 1, S, C)
        rows, columns = self.place
        canvas[rows, :, :, self.token] = mask[rows, :, :, columns]
        return canvas

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        k, v = self.share_heads(self.spread(k)), self.share_heads(self.spread(v))  # (B, H, C, D)
        rows = [
            torch.stack([tiled(*head, mask[b, 0]) for head in zip(q[b], k[b], v[b], strict=True)])
            for b in range(len(q))
        ]
        return torch.stack(rows)  # (B, H, S, D)

    def spread(self, x: Tensor) -> Tensor:
        """Keys or values (B, H_kv, T, D), each in the column of its token: (B, H_kv, C, D)."""
        canvas = x.new_zeros(*x.shape[:2], self.capacity, x.shape[3])
        rows, columns = self.place
        canvas[rows, :, self.token] = x[rows, :, columns]
        return canvas


def exact_shapes(model: TinyDecoder, capacity: int) -> TinyDecoder:
    """A copy of `model` that computes in exact shapes; keys are padded to `capacity`."""
    exact: Any = copy.deepcopy(model)
    exact.__class__ = type("ExactShapes", (ExactShapes, type(model)), {})
    exact.capacity = capacity
    for module in exact.modules():
        if type(module) is nn.Linear:
            module.__class__ = TiledLinear
    return exact  # type: ignore[no-any-return]


def attend_at(capacity: int) -> AttendHead:
    """The reference's attention of one head, with keys padded to `capacity`."""

    def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        missing = (0, 0, 0, capacity - len(k))
        padded = nn.functional.pad(visible, (0, capacity - len(k)))  # (S, C)
        return tiled(q, nn.functional.pad(k, missing), nn.functional.pad(v, missing), padded)

    return attend


def tiled(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """One head in tiles of queries: q (S, D), k and v (C, D), visible (S, C) -> (S, D)."""
    pairs = zip(_tiles(q), _tiles(visible), strict=True)
    return torch.cat([_tile(queries, k, v, sees) for queries, sees in pairs])[: len(q)]


def _tile(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    scores = q @ k.t() / math.sqrt(q.shape[1])  # (TILE, C)
    return scores.masked_fill(~visible, torch.finfo(q.dtype).min).softmax(-1) @ v  # (TILE, D)


def _tiles(x: Tensor) -> list[Tensor]:
    """Rows in groups of `TILE`, the last one filled up with zeros."""
    return list(torch.split(nn.functional.pad(x, (0, 0, 0, -len(x) % TILE)), TILE))
