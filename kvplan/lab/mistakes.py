"""The mistakes that `faults.py` plants: each overrides one method of the decoder or of a cache.

They are mixed in in front of a sound class, `type(.., (Mistake, SoundClass), {})`, so that each reads as the few wrong
lines that a programmer would write, and the sound classes know nothing of them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from kvplan.lab.caches import Cache, PagedCache, StaticCache
from kvplan.lab.model import TinyDecoder

# Mistakes in a cache.


class WriteOneLate(StaticCache):
    late = 0

    def extend(self, index: Tensor) -> Tensor:
        self.late = int(_is_decode_step(self, index))  # the prompt is written well
        return super().extend(index)

    def column(self, token: Tensor) -> Tensor:
        return super().column(token + self.late)


class MaskOneLong(Cache):
    def extend(self, index: Tensor) -> Tensor:
        is_decode = _is_decode_step(self, index)
        key_index = super().extend(index)
        return _next_column_too(key_index) if is_decode else key_index


class WriteOneLateWideMask(MaskOneLong, WriteOneLate):
    pass


class NoReset(Cache):
    def reset(self) -> None:
        if not hasattr(self, "layers"):
            super().reset()


class LayersShareCache(Cache):
    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.layers[layer] = self.layers[-1]
        return super().append(layer, k, v)


class KeepsFirstRows(Cache):
    """The batch loses its finished rows, the cache its last ones: as if it had not been told."""

    def compact(self, rows: list[int]) -> None:
        super().compact(list(range(len(rows))))


class Int8(Cache):
    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().append(layer, _through_int8(k), _through_int8(v))


class WrongBits(Cache):
    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().append(layer, _bfloat16_read_as_float16(k), _bfloat16_read_as_float16(v))


class DecodeNotKept(Cache):
    before: Mapping[str, Any] = MappingProxyType({})

    def extend(self, index: Tensor) -> Tensor:
        self.forget()
        if _is_decode_step(self, index):
            self.before = {name: copy.deepcopy(vars(self)[name]) for name in ("layers", "index") if name in vars(self)}
        return super().extend(index)

    def compact(self, rows: list[int]) -> None:
        self.forget()
        super().compact(rows)

    def forget(self) -> None:
        """Put the last decode step's keys and values back to what was there before."""
        vars(self).update(self.before)
        self.before = {}


class WrongTable(PagedCache):
    """Reads its blocks through a wrong table, as soon as two blocks lie wholly in the past of every query."""

    past: Tensor

    def extend(self, index: Tensor) -> Tensor:
        self.past = self.length.clone()  # (B,)
        return super().extend(index)

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        sound = self.table
        self.table = sound.clone()
        for row, full in enumerate((self.past // self.block_size).tolist()):
            if full >= 2:
                self.spoil(sound, row, full - 1)
        try:
            return super().read(layer)
        finally:
            self.table = sound

    def spoil(self, sound: Tensor, row: int, last: int) -> None:
        raise NotImplementedError


class BlockDuplicated(WrongTable):
    def spoil(self, sound: Tensor, row: int, last: int) -> None:
        self.table[row, last] = sound[row, 0]


class BlockOfOtherRow(WrongTable):
    def spoil(self, sound: Tensor, row: int, last: int) -> None:
        self.table[row, 0] = sound[(row + 1) % len(sound), 0]


class BlocksSwapped(WrongTable):
    def spoil(self, sound: Tensor, row: int, last: int) -> None:
        self.table[row, [0, last]] = sound[row, [last, 0]]


# Mistakes in the decoder.


class MaskOneShort(TinyDecoder):
    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        itself = (key_index[:, None, :] == index[:, :, None])[:, None]  # (B, 1, S, T)
        return super().mask(index, key_index) & ~(itself & _is_decode(index))


class MaskTopLeft(TinyDecoder):
    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        top_left = torch.ones(index.shape[1], key_index.shape[1], dtype=torch.bool).tril()  # (S, T)
        return torch.where(_is_decode(index), top_left, super().mask(index, key_index))


class ChunkWithoutMask(TinyDecoder):
    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        is_chunk = _is_decode(index) & (index.shape[1] > 1)
        return torch.where(is_chunk, (key_index >= 0)[:, None, None], super().mask(index, key_index))


class WindowOneMore(TinyDecoder):
    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        return super().mask(index, key_index) | _at_distance(index, key_index, self.shape.window)


class WindowOneLess(TinyDecoder):
    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        last = None if self.shape.window is None else self.shape.window - 1
        return super().mask(index, key_index) & ~_at_distance(index, key_index, last)


class RaggedSharedSlot(TinyDecoder):
    def token_index(self, start: Tensor, count: int, lengths: Tensor | None) -> Tensor:
        return super().token_index(start, count, None)


class RepeatHeads(TinyDecoder):
    def share_heads(self, kv: Tensor) -> Tensor:
        return kv.repeat(1, self.shape.group, 1, 1)


class KeyBeforeRotation(TinyDecoder):
    def keys(self, block: Any, x: Tensor, positions: Tensor) -> Tensor:
        return self.split_heads(block.k(x))


class HeadsNotTransposed(TinyDecoder):
    def split_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1, x.shape[1], self.shape.head_dim)


class WrongPositions(TinyDecoder):
    """A second counter beside the cache's length, and it goes wrong."""

    def forward(
        self, ids: Any, cache: Cache | None = None, positions: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        if cache is not None:
            positions = self.count(cache.length[:, None], ids.shape[1])  # (B, S)
        return super().forward(ids, cache, positions, lengths)

    def count(self, length: Tensor, new: int) -> Tensor:
        raise NotImplementedError


class PositionsNotReset(WrongPositions):
    drift = seen = 0

    def count(self, length: Tensor, new: int) -> Tensor:
        if int(length.max()) == 0:
            self.drift = self.seen  # a new generation, and the counter goes on
        self.seen = self.drift + int(length.max()) + new
        return length + self.drift + torch.arange(new)


class PositionsRestart(WrongPositions):
    def count(self, length: Tensor, new: int) -> Tensor:
        return torch.arange(new).expand(len(length), new)


class PositionsOneEarly(WrongPositions):
    def count(self, length: Tensor, new: int) -> Tensor:
        return length + torch.arange(new) - (length > 0).long()


class PositionsOneLate(WrongPositions):
    def count(self, length: Tensor, new: int) -> Tensor:
        return length + torch.arange(new) + (length > 0).long()


def _is_decode_step(cache: Cache, index: Tensor) -> bool:
    """Whether a cache that holds something is about to get one token a row."""
    return index.shape[1] == 1 and int(cache.length.max()) > 0


def _is_decode(index: Tensor) -> Tensor:
    """Whether a row had something in the cache before this call: (B, 1, 1, 1)."""
    return (index[:, :1] > 0)[:, None, :, None]


def _at_distance(index: Tensor, key_index: Tensor, distance: int | None) -> Tensor:
    held = (key_index >= 0)[:, None, :] & (distance is not None)  # (B, 1, T)
    return ((index[:, :, None] - key_index[:, None, :] == distance) & held)[:, None]  # (B, 1, S, T)


def _next_column_too(key_index: Tensor) -> Tensor:
    """The column behind each row's newest token, where there is one, passes as a copy of that token: (B, T)."""
    newest, column = key_index.max(1)  # (B,)
    is_next = torch.arange(key_index.shape[1]) == column[:, None] + 1  # (B, T)
    return torch.where(is_next & (key_index < 0), newest[:, None], key_index)


def _through_int8(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return (x / scale).round() * scale


def _bfloat16_read_as_float16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).view(torch.float16).to(x.dtype)
