"""Faults, planted on purpose: what goes wrong, when it shows, and what hides it.

`plant` puts a mistake into a model, `plant_in_cache` into a cache class. A cache without the place where the mistake is
made stays sound, which is one of the ways to hide.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvplan.lab import mistakes
from kvplan.lab.caches import Cache, PagedCache, StaticCache
from kvplan.lab.limits import one_of
from kvplan.lab.model import TinyDecoder
from kvplan.lab.reference import grouped_heads


@dataclass(frozen=True)
class Fault:
    """One mistake. `cache`, `positions`, `needs_window`, `ragged` and `drops` are the setting that shows it."""

    name: str
    title: str
    goes_wrong: str
    hides_when: str
    found_by: str
    family: str  # what its fingerprint looks like: a key of `FAMILIES`
    cache: str = "static"
    positions: tuple[str, ...] = ("rope", "learned", "none")  # position encodings that show it
    needs_window: bool = False
    ragged: bool = False
    drops: str = "middle"  # which row of the batch finishes first
    shows_in: str = "generations"  # the scenario whose cache shows it best
    in_float64: str = "always"  # when the logic gate catches it, hiding conditions aside
    in_model: type[TinyDecoder] | None = None
    in_cache: type[Cache] | None = None
    lives_in: type[Cache] = Cache  # caches that have the place where this mistake is made
    both_paths: bool = False


FAMILIES: Mapping[str, str] = {
    "read": "read side: wiring or mask (layer 0 is clean, deeper layers are not)",
    "positions": "positions (in layer 0 the keys are dirty and the values clean)",
    "write": "write side (keys and values are dirty from the first decode column on)",
    "heads": "head view (only prompt columns are dirty in layer 0)",
    "block": "block table (one or two whole blocks of columns are dirty in layer 0)",
    "quantized": "quantized (everything is a little off)",
    "shared": "shared memory, another row or wrong bits (everything is far off)",
    "clean": "nothing to see in layer 0 or deeper: no fault that a cache can show",
}


_EITHER = ("rope", "learned")

_LIST = (
    Fault(
        name="write_one_late",
        title="Write one slot late",
        goes_wrong="a decode step writes its key and value one column behind its place, and a column of zeros is read",
        hides_when="the cache grows by torch.cat: there is no slot to miss",
        found_by="the first decode step",
        family="write",
        in_cache=mistakes.WriteOneLate,
        lives_in=StaticCache,
    ),
    Fault(
        name="write_one_late_wide_mask",
        title="Write one slot late, mask widened too",
        goes_wrong="the same, and the mask lets the query read one column more, so that only a zero column is added",
        hides_when="the cache grows by torch.cat: there is no slot to miss",
        found_by="logits; the tokens rarely change",
        family="write",
        in_cache=mistakes.WriteOneLateWideMask,
        lives_in=StaticCache,
    ),
    Fault(
        name="no_reset",
        title="No reset between generations",
        goes_wrong="the second generation still reads the first one's keys and values",
        hides_when="only one generation is run",
        found_by="a second generation on the same cache",
        family="shared",
        in_cache=mistakes.NoReset,
    ),
    Fault(
        name="positions_not_reset",
        title="Position counter not reset",
        goes_wrong="the cache is emptied, and a position counter beside it goes on counting",
        hides_when="positions are rotary, since only distances matter, or there are none",
        found_by="a second generation with learned positions",
        family="shared",
        positions=("learned",),
        in_float64="learned only",
        in_model=mistakes.PositionsNotReset,
    ),
    Fault(
        name="positions_restart",
        title="Decode positions restart at 0",
        goes_wrong="every call counts its positions from 0, whatever the cache holds",
        hides_when="there are no positions",
        found_by="the first decode step",
        family="positions",
        positions=_EITHER,
        in_float64="rope, learned",
        in_model=mistakes.PositionsRestart,
    ),
    Fault(
        name="positions_one_early",
        title="Decode positions one early",
        goes_wrong="a decode step takes the position of the token before it",
        hides_when="there are no positions",
        found_by="the first decode step",
        family="positions",
        positions=_EITHER,
        in_float64="rope, learned",
        in_model=mistakes.PositionsOneEarly,
    ),
    Fault(
        name="positions_one_late",
        title="Decode positions one late",
        goes_wrong="a decode step takes the position of the token behind it",
        hides_when="there are no positions",
        found_by="the first decode step",
        family="positions",
        positions=_EITHER,
        in_float64="rope, learned",
        in_model=mistakes.PositionsOneLate,
    ),
    Fault(
        name="repeat_heads",
        title="repeat for repeat_interleave",
        goes_wrong="query head i reads KV head i mod H_kv, on the cached side only",
        hides_when="H_kv is 1 or H: both wirings are the same",
        found_by="any row, with 1 < H_kv < H",
        family="read",
        in_model=mistakes.RepeatHeads,
    ),
    Fault(
        name="repeat_heads_both_paths",
        title="repeat for repeat_interleave, in both paths",
        goes_wrong="the same mistake in the cached and in the uncached path",
        hides_when="always: parity cannot see a mistake that both sides share",
        found_by="a third party, such as published weights and their own code",
        family="clean",
        in_float64="never",
        in_model=mistakes.RepeatHeads,
        both_paths=True,
    ),
    Fault(
        name="layers_share_cache",
        title="One cache shared by all layers",
        goes_wrong="every layer writes into the same memory, so what is read is the last layer's",
        hides_when="there is one layer",
        found_by="the first decode step, with two layers or more",
        family="shared",
        in_cache=mistakes.LayersShareCache,
    ),
    Fault(
        name="mask_one_short",
        title="Mask one short",
        goes_wrong="a decode step may not read its own key",
        hides_when="nothing hides it",
        found_by="the first decode step",
        family="read",
        in_model=mistakes.MaskOneShort,
    ),
    Fault(
        name="mask_one_long",
        title="Mask one long",
        goes_wrong="a decode step reads the empty column behind its own",
        hides_when="the cache grows by torch.cat: there is no slot to see",
        found_by="the first decode step on preallocated memory",
        family="read",
        in_cache=mistakes.MaskOneLong,
    ),
    Fault(
        name="mask_top_left",
        title="Causal mask aligned top left on decode",
        goes_wrong="a square causal mask is cut at the wrong corner: one query reads one key, the oldest",
        hides_when="nothing hides it",
        found_by="the first decode step",
        family="read",
        in_model=mistakes.MaskTopLeft,
    ),
    Fault(
        name="ragged_shared_slot",
        title="Ragged rows share slot and position",
        goes_wrong="all rows count as long as the longest, so the shorter ones read padding",
        hides_when="all rows have the same length",
        found_by="rows of different length in one batch",
        family="write",
        ragged=True,
        shows_in="ragged",
        in_model=mistakes.RaggedSharedSlot,
    ),
    Fault(
        name="first_row_not_compacted",
        title="First row dropped, cache not compacted",
        goes_wrong="the batch loses its finished first row, the cache its last one, so rows read their neighbour",
        hides_when="the row that leaves is the last one: the others keep their index",
        found_by="a batch whose first or middle row finishes",
        family="shared",
        drops="first",
        shows_in="ragged",
        in_cache=mistakes.KeepsFirstRows,
    ),
    Fault(
        name="last_row_not_compacted",
        title="Last row dropped, cache not compacted",
        goes_wrong="the same mistake, when the last row finishes",
        hides_when="always: the other rows keep their index",
        found_by="a batch whose first or middle row finishes",
        family="clean",
        drops="last",
        shows_in="ragged",
        in_float64="never",
        in_cache=mistakes.KeepsFirstRows,
    ),
    Fault(
        name="int8_cache",
        title="int8 keys and values",
        goes_wrong="keys and values are rounded to 8 bits per token and head",
        hides_when="the arithmetic is in half precision, whose own rounding is as large",
        found_by="float64 or float32 logits; tokens almost never",
        family="quantized",
        in_float64="always, small",
        in_cache=mistakes.Int8,
    ),
    Fault(
        name="block_duplicated",
        title="Block-table entry duplicated",
        goes_wrong="two entries of a row's table name the same block",
        hides_when="the cache has no blocks, or there are less than two full ones",
        found_by="a paged cache with two full past blocks",
        family="block",
        cache="paged",
        in_cache=mistakes.BlockDuplicated,
        lives_in=PagedCache,
    ),
    Fault(
        name="block_of_other_row",
        title="Another row's block",
        goes_wrong="an entry of a row's table names a block of its neighbour",
        hides_when="the cache has no blocks, or there is one row",
        found_by="a paged batch of several rows",
        family="block",
        cache="paged",
        shows_in="ragged",
        in_cache=mistakes.BlockOfOtherRow,
        lives_in=PagedCache,
    ),
    Fault(
        name="blocks_swapped",
        title="Two full past blocks swapped",
        goes_wrong="two entries of a row's table have changed places",
        hides_when="there is no window: attention is over a set, and rotary keys carry their own position",
        found_by="a window that cuts between the two blocks",
        family="block",
        cache="paged",
        in_float64="never",
        in_cache=mistakes.BlocksSwapped,
        lives_in=PagedCache,
    ),
    Fault(
        name="window_one_more",
        title="Window one more",
        goes_wrong="a query reads window + 1 tokens",
        hides_when="no row is longer than the window",
        found_by="more tokens than the window",
        family="read",
        needs_window=True,
        in_model=mistakes.WindowOneMore,
    ),
    Fault(
        name="window_one_less",
        title="Window one less",
        goes_wrong="a query reads window - 1 tokens",
        hides_when="no row is as long as the window",
        found_by="more tokens than the window",
        family="read",
        needs_window=True,
        in_model=mistakes.WindowOneLess,
    ),
    Fault(
        name="decode_not_kept",
        title="Decode keys and values never kept",
        goes_wrong="a decode step reads its own key and value, and the next step finds them gone",
        hides_when="there is only one decode step",
        found_by="the second decode step",
        family="write",
        in_cache=mistakes.DecodeNotKept,
    ),
    Fault(
        name="key_before_rotation",
        title="Keys stored before rotation",
        goes_wrong="keys go into the cache unrotated, and queries are rotated",
        hides_when="positions are not rotary",
        found_by="any row but the first, with rotary positions",
        family="positions",
        positions=("rope",),
        in_float64="rope",
        in_model=mistakes.KeyBeforeRotation,
    ),
    Fault(
        name="heads_not_transposed",
        title="Heads viewed without the transpose",
        goes_wrong="(B, S, H * D) is viewed as (B, H, S, D) at once, which mixes tokens and heads",
        hides_when="every call has one token, so also with a prompt of one token",
        found_by="a prompt of two tokens",
        family="heads",
        in_model=mistakes.HeadsNotTransposed,
    ),
    Fault(
        name="wrong_bits",
        title="16-bit pattern read as another type",
        goes_wrong="bfloat16 bits are read back as float16",
        hides_when="nothing hides it",
        found_by="any row",
        family="shared",
        in_cache=mistakes.WrongBits,
    ),
    Fault(
        name="chunk_without_mask",
        title="A chunk through the one-token helper",
        goes_wrong="several queries on a filled cache go without a mask, as if one, and read what comes later",
        hides_when="chunks have one token",
        found_by="a chunked prefill",
        family="read",
        shows_in="chunked",
        in_model=mistakes.ChunkWithoutMask,
    ),
)

FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _LIST}


def find_fault(name: str | None) -> Fault | None:
    """The fault of that name; None is no fault."""
    return None if name is None else FAULTS[one_of("fault", name, FAULTS)]


def plant(model: TinyDecoder, fault: Fault | None) -> TinyDecoder:
    """`model` with the fault in it, sharing its weights; `model` itself where the fault is in the cache, or None."""
    if fault is None or fault.in_model is None:
        return model
    planted: Any = copy.copy(model)
    planted.__class__ = type(fault.in_model.__name__, (fault.in_model, type(model)), {})
    return planted  # type: ignore[no-any-return]


def plant_in_cache(kind: type[Cache], fault: Fault | None) -> type[Cache]:
    """The cache class with the fault in it; the class itself where the mistake has no place in such a cache."""
    if fault is None or fault.in_cache is None or not issubclass(kind, fault.lives_in):
        return kind
    return type(fault.in_cache.__name__, (fault.in_cache, kind), {})


def reference_heads(model: TinyDecoder, fault: Fault | None) -> list[int]:
    """The KV head that each query head reads in the uncached path: sound, unless the fault is in both paths."""
    heads, kv_heads = model.shape.num_attention_heads, model.shape.num_kv_heads
    if fault is not None and fault.both_paths:
        return [i % kv_heads for i in range(heads)]
    return grouped_heads(heads, kv_heads)
