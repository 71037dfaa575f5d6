"""How large a lab may be, and the checks that every argument passes before a tensor is made or a cache is touched.

The lab shares a server with other people: no control may hang it or eat its memory. Each bound is a constant here, and
each refusal is one sentence that states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kvplan.errors import InputError, UnknownNameError, shorten
from kvplan.units import counted

if TYPE_CHECKING:
    from kvplan.lab.caches import Cache
    from kvplan.lab.model import TinyDecoder
    from kvplan.lab.shape import Shape

MAX_LAYERS = 16
MAX_HEADS = 64
MAX_HIDDEN_SIZE = 1024
MAX_PARAMETERS = 20_000_000  # 160 MB in float64
MAX_CONTEXT = 4096  # tokens that one row may hold
MAX_BATCH = 64
MAX_CACHE_BYTES = 256 * 2**20
MAX_SCORES = 2**25  # attention scores of one layer in one call: rows x query heads x new tokens x all tokens
MAX_PARITY_TOKENS = 256  # prompt and generated: the uncached side computes about T² / 2 of them a layer
MAX_TIMED_TOKENS = 512
MAX_SECONDS = 30  # of work in one call, as estimated for one slow core: FLOPS a second, and seconds to start a kernel
FLOPS, KERNEL_SECONDS = 2e10, 2e-5

DTYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_SHORT_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def use_one_thread() -> None:
    """One thread for torch: matrices of this size gain nothing from more, and a server has other visitors."""
    torch.set_num_threads(1)


def dtype_name(dtype: str | torch.dtype) -> str:
    """The one name of a dtype: `fp32`, `float32` and `torch.float32` are all `float32`."""
    name = str(dtype).removeprefix("torch.")
    return one_of("dtype", _SHORT_DTYPES.get(name, name), DTYPES)


def one_of(kind: str, name: object, known: Iterable[str]) -> str:
    """`name`, which must be one of `known`; the refusal lists them where nothing resembles it."""
    names = list(known)
    if name not in names:
        error = UnknownNameError(kind, str(name), names)
        raise error if error.nearest else InputError(f"{error}; the choice is {', '.join(names)}")
    return str(name)


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """`value` as an int within `low` and `high`, both included; a bool or a fraction is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high:,}, not {shorten(value)!r}")
    return value


def token_rows(prompt: Any, vocab_size: int) -> list[list[int]]:
    """One row or several, as lists of token ids: accepts `[1, 2]`, `[[1, 2], [3]]` and tensors of the same."""
    rows = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise InputError(f"a prompt is a list of token ids, or a list of such rows, not {shorten(prompt)!r}")
    if not any(isinstance(row, Sequence) or (hasattr(row, "tolist") and row.ndim) for row in rows):
        rows = [rows]
    whole_number("the number of prompt rows", len(rows), 1, MAX_BATCH)
    return [_token_row(row, vocab_size) for row in rows]


def _token_row(row: Any, vocab_size: int) -> list[int]:
    tokens = row.tolist() if hasattr(row, "tolist") else list(row) if isinstance(row, Sequence) else []
    if not tokens:
        raise InputError("every prompt row needs at least one token")
    whole_number("the length of a prompt row", len(tokens), 1, MAX_CONTEXT)
    return [whole_number("a token id", token, 0, vocab_size - 1) for token in tokens]


def _check_ids(ids: Any, vocab_size: int) -> torch.Tensor:
    if not isinstance(ids, torch.Tensor):
        return torch.tensor(_rectangle(token_rows(ids, vocab_size)), dtype=torch.long)
    if ids.dtype not in (torch.int64, torch.int32) or ids.ndim != 2 or 0 in ids.shape:
        raise InputError(
            f"token ids must be whole numbers of shape (batch, tokens), not {ids.dtype} {tuple(ids.shape)}"
        )
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if len(wrong):
        raise InputError(f"token id {int(wrong[0])} is not in the vocabulary of 0 to {vocab_size - 1}")
    tokens: torch.Tensor = ids.long()
    return tokens


def _rectangle(rows: list[list[int]]) -> list[list[int]]:
    if len({len(row) for row in rows}) > 1:
        raise InputError("rows of different length need padding and their `lengths`; `generate` does both")
    return rows


def check_rows(rows: Iterable[Any], batch_size: int) -> list[int]:
    """Batch rows to keep, each of which must exist and be named once."""
    wanted = list(rows)
    if not wanted:
        raise InputError("a cache keeps at least one row; `reset` empties it")
    for row in wanted:
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < batch_size:
            raise InputError(f"cache row {shorten(row)!r} does not exist: the cache holds rows 0 to {batch_size - 1}")
    if len(set(wanted)) != len(wanted):
        raise InputError(f"a cache row can be kept only once, and {wanted} names one twice")
    return wanted


def check_cache_bytes(num_bytes: int) -> None:
    """A lab cache holds at most `MAX_CACHE_BYTES`."""
    if num_bytes > MAX_CACHE_BYTES:
        raise InputError(f"a lab cache may hold {MAX_CACHE_BYTES:,} bytes, and this one would hold {num_bytes:,}")


def check_capacity(model: TinyDecoder, batch_size: int, capacity: int) -> int:
    """Columns a row of a preallocated cache, within the bounds on tokens and on bytes."""
    whole_number("capacity", capacity, 1, MAX_CONTEXT)
    check_cache_bytes(batch_size * capacity * model.shape.token_elements * model.dtype.itemsize)
    return capacity


def check_call(shape: Shape, ids: Any, cache: Cache | None, lengths: torch.Tensor | None) -> torch.Tensor:
    """The ids (B, S) of a forward pass, once nothing stands against it; no cache has been touched until then."""
    tokens = _check_ids(ids, shape.vocab_size)
    rows, new = tokens.shape
    _check_lengths(lengths, rows, new)
    held = 0 if cache is None else int(cache.length.max())
    if cache is not None:
        _check_cache(cache, shape, rows, held + new)
    whole_number("the batch size", rows, 1, MAX_BATCH)
    _check_scores(rows * shape.num_attention_heads * new * (held + new))
    check_work(2 * shape.matrix_elements * rows * new, 0)
    return tokens


def check_work(flops: int, kernels: int) -> None:
    """One call works for at most about `MAX_SECONDS`."""
    seconds = flops / FLOPS + kernels * KERNEL_SECONDS
    if seconds > MAX_SECONDS:
        raise InputError(
            f"this would take about {seconds:,.0f} s, and the lab stops at {MAX_SECONDS}; take fewer tokens or layers"
        )


def _check_cache(cache: Cache, shape: Shape, rows: int, tokens: int) -> None:
    if shape != cache.shape:
        raise InputError("this cache was made for a model of another shape; make a new one for this model")
    if rows != len(cache.length):
        raise InputError(f"the batch has {counted(rows, 'row')}, and the cache is for {len(cache.length)}")
    if tokens > cache.max_tokens:
        raise InputError(f"a row of this cache has place for {counted(cache.max_tokens, 'token')}, not for {tokens}")
    check_cache_bytes(rows * tokens * shape.token_elements * cache.dtype.itemsize)


def _check_scores(scores: int) -> None:
    if scores > MAX_SCORES:
        raise InputError(
            f"this call would compute {scores:,} attention scores a layer, and the lab stops at {MAX_SCORES:,};"
            " take a shorter chunk or fewer rows"
        )


def check_positions(positions: torch.Tensor, shape: torch.Size, limit: int) -> torch.Tensor:
    """Positions as (B, S), whole numbers within the position table or the longest context; (S,) serves all rows."""
    if positions.dtype != torch.int64 or tuple(positions.shape) not in (shape, (1, shape[1]), (shape[1],)):
        raise InputError(f"positions must be whole numbers of shape {tuple(shape)}, not {tuple(positions.shape)}")
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= limit:
        raise InputError(f"positions go from 0 to {limit - 1}, and one here is {low if low < 0 else high}")
    return positions.expand(shape)


def _check_lengths(lengths: torch.Tensor | None, batch: int, columns: int) -> None:
    if lengths is not None and (lengths.shape != (batch,) or int(lengths.min()) < 1 or int(lengths.max()) > columns):
        raise InputError(f"lengths must be {batch} numbers from 1 to {columns}, not {lengths.tolist()}")
