"""A decoder small enough to read in one sitting.

A token needs the keys and values of every token before it, and those never change. So a cache keeps them, and a step
computes one token instead of all of them. All that the model knows of a cache is `extend` and `append`.

Letters in the shapes: B rows of a batch, S new tokens, T tokens that can be read (the new ones included),
E hidden size, H query heads, H_kv key and value heads, D head size, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from kvplan.lab.caches import Cache
from kvplan.lab.limits import DTYPES, MAX_CONTEXT, check_call, check_positions
from kvplan.lab.random_weights import draw_weights
from kvplan.lab.shape import Shape


class Block(nn.Module):
    """The weights of one layer; what is done with them stands in `TinyDecoder`, in one piece."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        norm = nn.LayerNorm if shape.norm == "layer" else nn.RMSNorm
        is_gelu, E, M, D = shape.mlp == "gelu", shape.hidden, shape.mlp_width, shape.head_dim
        self.attention_norm = norm(E, eps=shape.norm_eps)
        self.q = nn.Linear(E, shape.num_attention_heads * D, bias=shape.qkv_bias)
        self.k = nn.Linear(E, shape.num_kv_heads * D, bias=shape.qkv_bias)
        self.v = nn.Linear(E, shape.num_kv_heads * D, bias=shape.qkv_bias)
        self.out = nn.Linear(shape.num_attention_heads * D, E, bias=is_gelu)
        self.mlp_norm = norm(E, eps=shape.norm_eps)
        self.up = nn.Linear(E, M, bias=is_gelu)
        self.gate = None if is_gelu else nn.Linear(E, M, bias=False)
        self.down = nn.Linear(M, E, bias=is_gelu)

    def mlp(self, x: Tensor) -> Tensor:
        up = self.up(x)  # (B, S, M)
        h = nn.functional.gelu(up, approximate="tanh") if self.gate is None else nn.functional.silu(self.gate(x)) * up
        return self.down(h)  # type: ignore[no-any-return]  # (B, S, E)


class TinyDecoder(nn.Module):
    """A pre-norm decoder: `TinyDecoder(num_layers=2, num_attention_heads=4, ...)` takes the fields of `Shape`.

    `model(ids)` computes every token, `model(ids, cache)` only the new ones. `lab.weights` loads GPT-2's and Llama's.
    """

    def __init__(self, *sizes: Any, **fields: Any) -> None:
        super().__init__()
        self.shape = shape = Shape(*sizes, **fields)
        self.dtype = DTYPES[shape.dtype]
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden)
        if shape.position == "learned":
            self.position_embedding = nn.Embedding(shape.max_positions, shape.hidden)
        self.blocks: Any = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = (nn.LayerNorm if shape.norm == "layer" else nn.RMSNorm)(shape.hidden, eps=shape.norm_eps)
        self.head = nn.Linear(shape.hidden, shape.vocab_size, bias=False)
        draw_weights(self, shape.seed)
        self.to(self.dtype).requires_grad_(False)

    def forward(
        self, ids: Any, cache: Cache | None = None, positions: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Logits (B, S, V) of `ids` (B, S), which come after everything that `cache` holds.

        positions (B, S): what the position encoding sees; None: the token's index in its row.
        lengths (B,): how many ids of each row are tokens; the rest is padding, whose logits mean nothing.
        """
        ids = check_call(self.shape, ids, cache, lengths)  # (B, S)
        start = torch.zeros(len(ids), dtype=torch.long) if cache is None else cache.length  # (B,)
        index = self.token_index(start, ids.shape[1], lengths)  # (B, S)
        positions = index.clamp(min=0) if positions is None else positions  # (B, S)
        positions = check_positions(positions, ids.shape, self.shape.position_limit)
        key_index = index if cache is None else cache.extend(index)  # (B, T)
        mask = self.mask(index, key_index)  # (B, 1, S, T)
        x = self.embedding(ids)  # (B, S, E)
        if self.shape.position == "learned":
            x = x + self.position_embedding(positions)  # (B, S, E)
        for layer, block in enumerate(self.blocks):
            h = block.attention_norm(x)  # (B, S, E)
            q = self.rotate(self.split_heads(block.q(h)), positions)  # (B, H, S, D)
            k, v = self.keys(block, h, positions), self.split_heads(block.v(h))  # (B, H_kv, S, D)
            if cache is not None:
                k, v = cache.append(layer, k, v)  # (B, H_kv, T, D)
            x = x + block.out(self.attend(q, k, v, mask).transpose(1, 2).flatten(2))  # (B, S, H * D) -> (B, S, E)
            x = x + block.mlp(block.mlp_norm(x))  # (B, S, E)
        return self.head(self.norm(x))  # type: ignore[no-any-return]  # (B, S, V)

    def token_index(self, start: Tensor, count: int, lengths: Tensor | None) -> Tensor:
        """Which token of its row each id is, from `start` (B,) on: (B, S), -1 for padding."""
        steps = torch.arange(count)  # (S,)
        index = start[:, None] + steps  # (B, S)
        return index if lengths is None else index.masked_fill(steps >= lengths[:, None], -1)

    def mask(self, index: Tensor, key_index: Tensor) -> Tensor:
        """True where a query (B, S) may read a key (B, T): not a later one, and inside the window."""
        query, key = index[:, :, None], key_index[:, None, :]  # (B, S, 1), (B, 1, T)
        window = MAX_CONTEXT if self.shape.window is None else self.shape.window
        return ((key >= 0) & (key <= query) & (query - key < window))[:, None]  # (B, 1, S, T)

    def keys(self, block: Any, x: Tensor, positions: Tensor) -> Tensor:
        return self.rotate(self.split_heads(block.k(x)), positions)  # (B, H_kv, S, D): rotated first, cached then

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.shape.head_dim).transpose(1, 2)  # (B, S, heads * D) -> (B, heads, S, D)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary positions: the pair x[i], x[i + D/2] turns by the angle position * theta ** (-2i / D)."""
        if self.shape.position != "rope":
            return x
        half = self.shape.head_dim // 2
        speed = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)  # (D/2,)
        angle = positions[:, None, :, None] * speed  # (B, 1, S, D/2)
        cosine, sine = (part.to(x.dtype).repeat(1, 1, 1, 2) for part in (angle.cos(), angle.sin()))  # (B, 1, S, D)
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)  # (B, heads, S, D)
        return x * cosine + turned * sine

    def share_heads(self, kv: Tensor) -> Tensor:
        """Query head i reads KV head i // (H / H_kv): (B, H_kv, T, D) -> (B, H, T, D)."""
        return kv.repeat_interleave(self.shape.group, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ self.share_heads(k).transpose(2, 3) / math.sqrt(self.shape.head_dim)  # (B, H, S, T)
        # The lowest number and not -inf: a padding query sees nothing, and a softmax of nothing would be NaN.
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)  # (B, H, S, T)
        return weights @ self.share_heads(v)  # (B, H, S, D)
