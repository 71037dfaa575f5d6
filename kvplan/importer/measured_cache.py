"""What a measured cache is: runs at several lengths -> the kind of every layer, exactly as many bytes as were held.

Nothing is believed unseen. A model that gave back another cache than the one it was given, layers that took another
number of tokens than the model read, rows that follow no law of length: each is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvplan.attention import (
    CombinedCache,
    FullAttention,
    IndexedAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    MeasuredRows,
    NoCache,
    RecurrentState,
    SharedCache,
    ShortConvolution,
    SlidingAttention,
    SlidingLatentAttention,
)
from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.errors import UnsupportedConfigError

BUILT_IN = "bfloat16"
"""The dtype that measured models are built in: tensors of it follow the model or the plan, others keep their own."""

_OWN_STORAGE = {"float32": WEIGHT_FORMATS["fp32"], "float16": WEIGHT_FORMATS["fp16"]}


class Growth(NamedTuple):
    """How the entries of a tensor follow from T tokens: min(T, window) // tokens_per_entry."""

    window: int | None
    tokens_per_entry: int


@dataclass(frozen=True, slots=True)
class Held:
    """One tensor of a layer's cache. growth None: its size does not depend on the tokens.

    rows, width  of one entry where it grows; else all its leading dimensions, and the product of the others
    """

    name: str
    growth: Growth | None
    rows: int
    width: int
    dtype: str


def layer_caches(
    runs: Sequence[Mapping[str, Any]], text: Mapping[str, Any], dtype: StorageFormat | None
) -> tuple[LayerCache, ...]:
    """The kind of each layer.

    runs   what the worker saw
    text   sizes of the text model, for latent layers and layers without a cache
    dtype  of the model; state that has the model's dtype is stored in it (None: follows the plan)

    Raises UnsupportedConfigError with the reason where the cache is not to be believed.
    """
    good = believable(runs)
    layers = list(zip(*(run["layers"] for run in good), strict=True))
    held = [tensors_of(index, good, layer) for index, layer in enumerate(layers)]
    kinds = _Kinds(text, dtype, any(_is_index(item) for layer in held for item in layer))
    classes = [layer[0]["class"] for layer in layers]
    return tuple(kinds.kind(index, *layer) for index, layer in enumerate(zip(classes, held, strict=True)))


def refusal(reason: str) -> UnsupportedConfigError:
    return UnsupportedConfigError(f"config.json: the cache cannot be measured: {reason}")


# ------------------------------------------------------------------------------------------------------ what to believe


def believable(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The runs that worked, at two lengths or more. Raises UnsupportedConfigError."""
    good = [run for run in runs if "failed" not in run]
    if len(good) < 2:
        reasons = [run["failed"] for run in runs if "failed" in run]
        raise refusal(f"the model does not run on text alone ({reasons[-1] if reasons else 'no run'})")
    for run in good:
        if not run["kept"]:
            raise refusal(f"the model gives back {_returned(run)} instead of the cache that it was given")
    if len({len(run["layers"]) for run in good}) != 1:
        raise refusal("its number of layers differs from run to run")
    if not good[0]["layers"]:
        raise refusal("it has no layers")
    return good


def _returned(run: Mapping[str, Any]) -> str:
    return "nothing" if run["returned"] == "NoneType" else str(run["returned"])


def tensors_of(index: int, runs: Sequence[Mapping[str, Any]], layer: Sequence[Mapping[str, Any]]) -> list[Held]:
    """The tensors of layer `index`, each with the law that all runs follow."""
    for run, seen in zip(runs, layer, strict=True):
        if seen["seen"] not in ([], [run["tokens"]]):
            took = ", ".join(map(str, seen["seen"]))
            raise refusal(f"layer {index} counts its tokens as {took} where the model read {run['tokens']}")
    names = {tensor[0] for seen in layer for tensor in seen["tensors"]}
    found = [[next((t for t in seen["tensors"] if t[0] == name), None) for seen in layer] for name in sorted(names)]
    held = []
    for tensors in found:
        if any(tensor is None for tensor in tensors):
            raise refusal(f"layer {index} keeps {next(t for t in tensors if t)[0]} at some lengths only")
        held.extend(_held(index, tensors, _lengths(runs), _windows(runs, layer)))
    return held


def _lengths(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """What a layer without window holds in each run: the capacity of a static cache, else the tokens."""
    return [run["capacity"] or run["tokens"] for run in runs]


def _windows(runs: Sequence[Mapping[str, Any]], layer: Sequence[Mapping[str, Any]]) -> list[int]:
    """The windows that a layer may have: the one that its class states, and what a large static cache stops at."""
    stated = [seen["window"] for seen in layer if seen["window"]]
    shown = [
        tensor[1][-2]
        for run, seen in zip(runs, layer, strict=True)
        for tensor in seen["tensors"]
        if len(tensor[1]) == 4 and run["capacity"] and tensor[1][-2] < run["capacity"]
    ]
    return list(dict.fromkeys([*stated, *shown]))


def _held(index: int, tensors: Sequence[Any], lengths: Sequence[int], windows: Sequence[int]) -> list[Held]:
    """One tensor as all runs show it; nothing where it is empty at whole blocks (working memory)."""
    name, shapes, dtype = tensors[0][0], [tensor[1] for tensor in tensors], tensors[0][2]
    if not any(_count(shape) for shape in shapes):
        return []
    if dtype != BUILT_IN and dtype not in _OWN_STORAGE:
        raise refusal(f"layer {index} keeps {name} in {dtype}")
    if any(len(shape) != len(shapes[0]) or shape[0] != 1 for shape in shapes):
        raise refusal(f"layer {index} keeps {name} in shapes that differ by more than a length")
    axis = _axis(index, name, shapes)
    if axis is None:
        return [Held(name, None, shapes[0][1], _count(shapes[0][2:]), dtype)]
    growth = _growth([shape[axis] for shape in shapes], lengths, windows)
    if growth is None:
        raise refusal(f"layer {index} keeps {[s[axis] for s in shapes]} entries of {name} for {list(lengths)} tokens")
    rest = [size for position, size in enumerate(shapes[0]) if position not in (0, axis)]
    return [Held(name, growth, rest[0] if len(rest) > 1 else 1, _count(rest[1:] if len(rest) > 1 else rest), dtype)]


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _axis(index: int, name: str, shapes: Sequence[Sequence[int]]) -> int | None:
    """The dimension that counts tokens: the one that differs between runs. None: fixed size."""
    differing = [axis for axis in range(len(shapes[0])) if len({shape[axis] for shape in shapes}) > 1]
    if len(differing) > 1:
        raise refusal(f"layer {index} keeps {name} in shapes that differ by more than a length")
    if differing:
        return differing[0]
    return len(shapes[0]) - 2 if name in ("keys", "values") and len(shapes[0]) == 4 else None


def _growth(entries: Sequence[int], lengths: Sequence[int], windows: Sequence[int]) -> Growth | None:
    """The law that gives every number of entries, or None."""
    biggest, length = max(zip(entries, lengths, strict=True), key=lambda pair: pair[1])
    laws = [Growth(window, 1) for window in windows]  # first: below its window, such a layer looks like any other
    laws.append(Growth(None, max(1, length // max(1, biggest))))
    return next((law for law in laws if all(_fits(law, *pair) for pair in zip(entries, lengths, strict=True))), None)


def _fits(law: Growth, entries: int, length: int) -> bool:
    """Whether `entries` for `length` tokens follow `law`; a dynamic window keeps one token less after its prompt."""
    if law.window is None:
        return entries == length // law.tokens_per_entry
    return entries == min(length, law.window) or (length >= law.window and entries == law.window - 1)


# -------------------------------------------------------------------------------------------------------------- kinds


def _is_index(item: Held) -> bool:
    return item.growth is not None and ("index" in item.name or item.name.startswith("idx"))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """From tensors to kinds of layer.

    indexed  some layer of the model has index keys: then all its latent layers are sparse
    """

    text: Mapping[str, Any]
    dtype: StorageFormat | None
    indexed: bool

    def kind(self, index: int, class_name: str, held: Sequence[Held]) -> LayerCache:
        if not held:
            return self._nothing(index, class_name)
        pair = [item for item in held if item.name in ("keys", "values")]
        keys = [item for item in held if _is_index(item)]
        states = [item for item in held if item.growth is None]
        rest = [item for item in held if item not in (*pair, *keys, *states)]
        members = [*self._attention(pair, keys), *self._states(states), *map(self._rows, rest)]
        return members[0] if len(members) == 1 else CombinedCache(tuple(members))

    def _nothing(self, index: int, class_name: str) -> LayerCache:
        if class_name != "DummyLayer":
            raise refusal(f"layer {index} left the cache that it was given empty")
        modes = self.text.get("kv_sharing_modes") or []
        return SharedCache() if modes[index : index + 1] == ["reuse"] else NoCache()

    def _attention(self, pair: Sequence[Held], keys: Sequence[Held]) -> list[LayerCache]:
        known = self._known(pair, keys)
        return [*map(self._rows, (*pair, *keys))] if known is None else [known]

    def _known(self, pair: Sequence[Held], keys: Sequence[Held]) -> LayerCache | None:
        """A kind of its own for keys and values, or None where they must be counted row by row."""
        if len(pair) != 2 or pair[0].growth != pair[1].growth or pair[0].rows != pair[1].rows:
            return None
        if len(keys) > 1 or any(item.dtype != BUILT_IN for item in (*pair, *keys)):
            return None
        key, value = pair
        if key.growth is None or key.growth.tokens_per_entry != 1:
            return None
        if self._is_latent(key, value):
            return self._latent(key, value, keys[0].width if keys else None)
        return self._headed(key, value, keys[0] if keys else None)

    def _is_latent(self, key: Held, value: Held) -> bool:
        stated = (self.text.get("kv_lora_rank"), self.text.get("qk_rope_head_dim"))
        return key.rows == 1 and (key.width, value.width) == stated

    def _latent(self, key: Held, value: Held, index_width: int | None) -> LayerCache | None:
        window = key.growth.window if key.growth else None
        if window is not None:
            return None if index_width else SlidingLatentAttention(key.width, value.width, window)
        if self.indexed:
            return IndexedLatentAttention(key.width, value.width, index_width, self.text.get("index_topk"))
        return LatentAttention(key.width, value.width)

    def _headed(self, key: Held, value: Held, index: Held | None) -> LayerCache | None:
        window = key.growth.window if key.growth else None
        value_width = None if value.width == key.width else value.width
        if index is not None:
            if window is not None or index.growth != key.growth:
                return None
            return IndexedAttention(
                key.rows, key.width, value_width, index_head_dim=index.width, num_index_heads=index.rows
            )
        if window is not None:
            return SlidingAttention(key.rows, key.width, value_width, window=window)
        return FullAttention(key.rows, key.width, value_width)

    def _rows(self, item: Held) -> LayerCache:
        growth = item.growth or Growth(None, 1)
        return MeasuredRows(item.rows, item.width, growth.window, growth.tokens_per_entry, _OWN_STORAGE.get(item.dtype))

    def _states(self, states: Sequence[Held]) -> list[LayerCache]:
        """Recurrent states with the convolution beside them, and convolutions that stand alone."""
        convolutions = [item for item in states if "conv" in item.name]
        recurrent = [item for item in states if item not in convolutions]
        if len(convolutions) == len(recurrent):
            return [self._recurrent(state, conv) for state, conv in zip(recurrent, convolutions, strict=True)]
        alone = [ShortConvolution(item.rows, item.width, self._storage(item)) for item in convolutions]
        return [*(self._recurrent(state, None) for state in recurrent), *alone]

    def _recurrent(self, state: Held, conv: Held | None) -> LayerCache:
        own = self._storage(state)
        if conv is None:
            return RecurrentState(state.rows, state.width, own)
        return RecurrentState(state.rows, state.width, own, conv.rows, conv.width, self._storage(conv))

    def _storage(self, item: Held) -> StorageFormat | None:
        """State keeps the dtype of the model; other tensors of fixed size are keys and values and follow the plan."""
        follows_model = re.search(r"state|conv|linear|recurrent", item.name)
        return _OWN_STORAGE.get(item.dtype, self.dtype if follows_model else None)
