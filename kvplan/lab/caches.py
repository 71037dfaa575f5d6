"""Five KV caches behind one interface.

Each layer owns its keys and values, each row of the batch its length. A forward pass does two things with a cache:

    key_index = cache.extend(index)      once: make room, advance the length, say which column holds which token
    k, v = cache.append(layer, k, v)     once a layer: keep the new keys and values, hand back all that can be read

Letters in the shapes: B rows, H_kv heads, S new tokens, T columns to read, C columns of memory, D head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvplan.errors import InputError
from kvplan.lab.limits import MAX_BATCH, MAX_CONTEXT, check_capacity, check_rows, whole_number

if TYPE_CHECKING:
    from kvplan.lab.model import TinyDecoder


class Cache:
    """What all caches share: one length a row, and for every layer the tensors that it owns."""

    max_tokens = MAX_CONTEXT  # of one row

    def __init__(self, model: TinyDecoder, batch_size: int = 1) -> None:
        self.shape, self.dtype = model.shape, model.dtype
        self.batch_size = whole_number("batch_size", batch_size, 1, MAX_BATCH)
        self.reset()

    def reset(self) -> None:
        """Forget everything, and have all rows back."""
        self.length = torch.zeros(self.batch_size, dtype=torch.long)  # (B,) tokens of each row: the only counter
        self.layers = [self.new_layer() for _ in range(self.shape.num_layers)]

    def new_layer(self) -> list[Tensor]:
        """The tensors of one layer before the first token: K, V (B, H_kv, C, D)."""
        raise NotImplementedError

    def zeros(self, rows: int, columns: int) -> Tensor:
        return torch.zeros(rows, self.shape.num_kv_heads, columns, self.shape.head_dim, dtype=self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values that memory is held for."""
        return sum(tensor.nbytes for layer in self.layers for tensor in layer)

    def extend(self, index: Tensor) -> Tensor:
        """Make room for the tokens `index` (B, S), -1: padding. Returns what each column holds: (B, T), -1: nothing."""
        raise NotImplementedError

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k, v (B, H_kv, S, D) of the tokens that `extend` announced; returns all that is held (B, H_kv, T, D)."""
        raise NotImplementedError

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values that one layer holds: (B, H_kv, C, D)."""
        K, V = self.layers[layer]
        return K, V

    def held(self) -> Tensor:
        """Which token each column of `read` holds: (B, C), -1: nothing."""
        raise NotImplementedError

    def compact(self, rows: list[int]) -> None:
        """Keep only these rows of the batch, in this order; the others have finished."""
        keep = check_rows(rows, len(self.length))
        self.length = self.length[keep]
        self.layers = [[tensor[keep] for tensor in layer] for layer in self.layers]


class DynamicCache(Cache):
    """Grows by `torch.cat`: never a column too many, but every step copies all that is held."""

    def new_layer(self) -> list[Tensor]:
        self.index = torch.full((self.batch_size, 0), -1)  # (B, T) token in each column; ragged rows have gaps
        return [self.zeros(self.batch_size, 0), self.zeros(self.batch_size, 0)]  # (B, H_kv, 0, D)

    def extend(self, index: Tensor) -> Tensor:
        self.length = self.length + (index >= 0).sum(1)
        self.index = torch.cat([self.index, index], 1)  # (B, T)
        return self.index

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        K, V = self.layers[layer]
        self.layers[layer] = [torch.cat([K, k], 2), torch.cat([V, v], 2)]  # (B, H_kv, T, D)
        return self.read(layer)

    def held(self) -> Tensor:
        return self.index

    def compact(self, rows: list[int]) -> None:
        keep = check_rows(rows, len(self.length))
        self.index = self.index[keep]
        super().compact(keep)


class StaticCache(Cache):
    """Memory for `capacity` tokens a row from the start; the length says where the next one is written."""

    def __init__(self, model: TinyDecoder, batch_size: int = 1, capacity: int = 64) -> None:
        self.capacity = self.max_tokens = check_capacity(model, batch_size, capacity)
        super().__init__(model, batch_size)

    def new_layer(self) -> list[Tensor]:
        return [self.zeros(self.batch_size, self.capacity), self.zeros(self.batch_size, self.capacity)]

    def extend(self, index: Tensor) -> Tensor:
        self.length = self.length + (index >= 0).sum(1)
        first = (self.length[:, None] - self.capacity).clamp(min=0)  # (B, 1) what a ring still has place for
        self.rows, self.new = (index >= first).nonzero(as_tuple=True)  # the tokens to keep, padding left out
        self.columns = self.column(index[self.rows, self.new])  # (tokens,) where each of them goes
        return self.held()

    def column(self, token: Tensor) -> Tensor:
        """The column that a row's token is written to."""
        return token

    def held(self) -> Tensor:
        columns = torch.arange(self.capacity)  # (C,)
        return columns.where(columns < self.length[:, None], -1)  # (B, C)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for tensor, fresh in zip(self.layers[layer], [*self.encode(k), *self.encode(v)], strict=True):
            self.write(tensor, fresh[self.rows, :, self.new])  # (tokens, H_kv, D)
        return self.read(layer)

    def encode(self, x: Tensor) -> list[Tensor]:
        """The tensors that are kept of keys or values; here they themselves."""
        return [x]

    def write(self, tensor: Tensor, fresh: Tensor) -> None:
        tensor[self.rows, :, self.columns] = fresh


class PagedCache(StaticCache):
    """Memory in blocks that any row may own; a table says which block holds which part of a row."""

    def __init__(self, model: TinyDecoder, batch_size: int = 1, capacity: int = 64, block_size: int = 4) -> None:
        self.block_size = whole_number("block_size", block_size, 1, MAX_CONTEXT)
        super().__init__(model, batch_size, -(-capacity // block_size) * block_size)

    def new_layer(self) -> list[Tensor]:
        blocks = self.batch_size * self.capacity // self.block_size
        self.table = torch.full((self.batch_size, self.capacity // self.block_size), -1)  # (B, blocks of a row)
        self.free = list(reversed(range(blocks)))  # blocks that no row owns
        return [self.zeros(blocks, self.block_size), self.zeros(blocks, self.block_size)]

    def extend(self, index: Tensor) -> Tensor:
        key_index = super().extend(index)
        for row, place in zip(self.rows.tolist(), (self.columns // self.block_size).tolist(), strict=True):
            if self.table[row, place] < 0:
                self.table[row, place] = self.free.pop()
        return key_index

    def write(self, tensor: Tensor, fresh: Tensor) -> None:
        blocks = self.table[self.rows, self.columns // self.block_size]  # (tokens,)
        tensor[blocks, :, self.columns % self.block_size] = fresh

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        table = self.table.clamp(min=0)  # (B, blocks of a row); what is not there yet is masked, so any will do
        K, V = (pool[table].transpose(1, 2).flatten(2, 3) for pool in self.layers[layer])  # (B, H_kv, C, D)
        return K, V

    def compact(self, rows: list[int]) -> None:
        keep = check_rows(rows, len(self.length))
        dropped = sorted(set(range(len(self.length))) - set(keep))
        self.free += [block for block in self.table[dropped].flatten().tolist() if block >= 0]
        self.length, self.table = self.length[keep], self.table[keep]


class SlidingCache(StaticCache):
    """A ring of `window` columns: a token is written over the one that no later query may read."""

    def __init__(self, model: TinyDecoder, batch_size: int = 1) -> None:
        if model.shape.window is None:
            raise InputError("a sliding cache forgets old tokens, so it needs a model with a window")
        super().__init__(model, batch_size, model.shape.window)
        self.max_tokens = MAX_CONTEXT

    def column(self, token: Tensor) -> Tensor:
        return token % self.capacity

    def held(self) -> Tensor:
        newest, columns = self.length[:, None] - 1, torch.arange(self.capacity)  # (B, 1), (W,)
        return (newest - (newest - columns) % self.capacity).clamp(min=-1)  # (B, W)

    def extend(self, index: Tensor) -> Tensor:
        before = self.held()  # (B, W)
        super().extend(index)
        return torch.cat([before, index], 1)  # (B, W + S)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        K, V = self.layers[layer]
        # The first queries of a chunk still read what its last tokens are written over: so read, then write.
        readable = torch.cat([K, k], 2), torch.cat([V, v], 2)  # (B, H_kv, W + S, D)
        super().append(layer, k, v)
        return readable


class QuantizedCache(StaticCache):
    """int8 with one scale a token and head: the only approximation among these caches."""

    def new_layer(self) -> list[Tensor]:
        return [part for tensor in super().new_layer() for part in self.encode(tensor)]  # K, scale, V, scale

    def encode(self, x: Tensor) -> list[Tensor]:
        scale = (x.abs().amax(-1, keepdim=True).float() / 127).clamp(min=1e-30)  # (B, H_kv, S, 1)
        return [(x / scale).round().to(torch.int8), scale]

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        K, K_scale, V, V_scale = self.layers[layer]
        return (K * K_scale).to(self.dtype), (V * V_scale).to(self.dtype)  # (B, H_kv, C, D)
