"""How the bytes that a safetensors checkpoint stores compare with a `Model`.

Where a checkpoint stores more than the model counts, the difference is explained tensor by tensor, or said to be
unexplained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import shorten
from kvplan.importer.headers import Index, StoredTensor, read_header, read_index
from kvplan.model import Model
from kvplan.units import counted, format_exact_bytes

__all__ = ["Difference", "Index", "StoredTensor", "explain_difference", "read_header", "read_index"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A checkpoint beside a model.

    stored_bytes       what the checkpoint stores
    counted_bytes      what the model counts as published; None where that is not known
    sentences          what makes the difference, with bytes and tensors
    unexplained_bytes  what is left of it; negative where the model counts more; None where nothing is counted
    """

    stored_bytes: int
    counted_bytes: int | None
    sentences: tuple[str, ...]
    unexplained_bytes: int | None


# ------------------------------------------------------------------------------------------------------- comparison


class _Extra(NamedTuple):
    """Tensors that a checkpoint may store beside what a model counts.

    label    what they are
    names    their names
    sizes    bytes that all of them may have together, the likeliest first; empty where nothing tells
    """

    label: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]


def explain_difference(model: Model, index: Index) -> Difference:
    """How the bytes of a checkpoint compare with `model.weight_bytes()`, and what makes the difference.

    Sizes of tensors come from a header, where one was read. Of an index they are computed from the model, and taken
    only where they make the difference to the byte.
    """
    if model.why_no_weight_bytes:
        sentence = f"{index.where} stores {format_exact_bytes(index.total_size)}; the model's own bytes are not known"
        return Difference(index.total_size, None, (sentence,), None)
    counted, extras = model.weight_bytes(), _extras(model, index)
    for width, base in (("", counted), *_without_head(model, index, counted), *_other_widths(model, counted)):
        if (sizes := _chosen(extras, index.total_size - base)) is not None:
            return _difference(model, index, extras, sizes, (width, base - counted))
    known = tuple(extra.sizes[0] if index.tensors else 0 for extra in extras)
    return _difference(model, index, extras, known, ("", 0))


def _difference(
    model: Model, index: Index, extras: Sequence[_Extra], sizes: Sequence[int], width: tuple[str, int]
) -> Difference:
    """`sizes` of `extras`, 0 where one is not known, and what another dtype than the config's adds."""
    counted = model.weight_bytes()
    more = index.total_size - counted
    head = f"{index.where} stores {format_exact_bytes(index.total_size)}, "
    sentences = [head + (f"{_signed(more)} against what is counted" if more else "exactly what is counted")]
    for extra, size in zip(extras, sizes, strict=True):
        sentences.append(_stored_sentence(extra, size) if size else _unsized_sentence(extra))
    if width[1]:
        sentences.append(f"{_signed(width[1])} since it stores {width[0]}, which differs from the config")
    left = more - sum(sizes) - width[1]
    if left:
        sentences += [f"{_signed(left)} are not explained", *_by_shape(model, index, extras)]
    return Difference(index.total_size, counted, tuple(sentences), left)


def _by_shape(model: Model, index: Index, extras: Sequence[_Extra]) -> Iterator[str]:
    """Tensors of a shape that the model does not count so often, and what it counts and no tensor has the shape of."""
    known = {name for extra in extras for name in extra.names}
    stored: dict[tuple[int, ...], list[str]] = {}
    for name, tensor in index.tensors.items():
        if name not in known:
            stored.setdefault(_plain_shape(tensor.shape), []).append(name)
    expected: Counter[tuple[int, ...]] = Counter()
    for group, layers in model.all_groups:
        expected[_plain_shape((group.rows, group.columns))] += group.count * layers
    more = [(shape, names) for shape, names in stored.items() if len(names) > expected[shape]]
    for shape, names in more[:MAX_SHAPES]:
        yield (
            f"{counted(len(names), 'tensor')} of {_spelled(shape)} stored, {expected[shape]:,} counted: "
            f"{_listed(names)}"
        )
    less = [(shape, count) for shape, count in expected.items() if count > len(stored.get(shape, ()))] if stored else []
    for shape, count in less[:MAX_SHAPES]:
        yield f"{counted(count, 'tensor')} of {_spelled(shape)} counted, {len(stored.get(shape, ())):,} stored"


MAX_SHAPES = 5
"""Shapes that are named on either side."""


def _plain_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _spelled(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "one value"


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else '-'}{abs(size):,} B"


def _stored_sentence(extra: _Extra, size: int) -> str:
    return f"{size:,} B are {extra.label}: {_listed(extra.names)}"


def _unsized_sentence(extra: _Extra) -> str:
    return f"{extra.label} are stored too, in bytes that an index does not state: {_listed(extra.names)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{shorten(names[0])}{more}"


def _chosen(extras: Sequence[_Extra], wanted: int) -> tuple[int, ...] | None:
    """One size for each of `extras` that make `wanted` together, or None."""
    if not all(extra.sizes for extra in extras):
        return None
    return next((sizes for sizes in product(*(extra.sizes for extra in extras)) if sum(sizes) == wanted), None)


def _without_head(model: Model, index: Index, counted: int) -> Iterator[tuple[str, int]]:
    """What the model would take without an output head, where the config has one and the files name none."""
    head = sum(
        group.count * group.matrix_bytes(group.storage or _plain(model))
        for group in model.weights
        if group.role == "lm_head"
    )
    if head and not any(map(_HEAD.search, index.names)):
        yield "no output head", counted - head


def _other_widths(model: Model, counted: int) -> Iterator[tuple[str, int]]:
    """What the model would take in another plain dtype: configs and files do not always agree."""
    if (size := _unpinned(model)) and size != counted:
        yield f"in {_plain(model).name} what its class keeps in float32", size
    plain = all(group.storage is None or group.pinned for group, _ in model.all_groups)
    for name in ("fp32", "bf16", "fp16") if plain else ():
        if (size := model.weight_bytes(name)) != counted:
            yield name, size


def _unpinned(model: Model) -> int:
    """Bytes of the weights where those that the class keeps in float32 are stored in the model's own width."""
    return sum(
        count * group.count * group.matrix_bytes(_plain(model) if group.pinned else group.storage or _plain(model))
        for group, count in model.all_groups
    )


# ----------------------------------------------------------------------------------------- what else is stored

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,5})\.")
_PREDICTING = re.compile(r"(?:^|\.)(?:mtp|mtp_layers|nextn)\b")
_FREQUENCIES = re.compile(r"(?:^|\.)inv_freq$")
_MASK = re.compile(r"\.(?:attn|attention|self_attn)\.bias$")
_MASKED = re.compile(r"\.(?:attn|attention|self_attn)\.masked_bias$")
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_layer)\.weight$")
_TOWER = re.compile(r"(?:^|\.)(?:vision\w*|visual|audio\w*|vit|mm_projector|multi_modal_projector|mlp1|connector)\.")


def _extras(model: Model, index: Index) -> list[_Extra]:
    """Tensors by what they are: each name belongs to the first kind that claims it."""
    groups: dict[str, list[str]] = {}
    for name in index.names:
        if kind := _kind(model, name):
            groups.setdefault(kind, []).append(name)
    found = []
    for kind, names in groups.items():
        guess = _SIZES[kind](model, names)
        exact = tuple(index.tensors[name].bytes for name in names) if index.tensors else ()
        found.append(_Extra(kind, tuple(names), (sum(exact),) if exact else guess))
    return found


def _kind(model: Model, name: str) -> str | None:
    """What a tensor is that the model does not count, or None."""
    if set(model.params_by_tower) == {"text"} and _TOWER.search(name):
        return TOWER
    layer = None if _TOWER.search(name) else _LAYER.search(name)
    if _PREDICTING.search(name) or (layer and int(layer[1]) >= model.num_layers):
        return PREDICTING
    for kind, pattern in ((FREQUENCIES, _FREQUENCIES), (MASKED, _MASKED), (MASKS, _MASK)):
        if pattern.search(name):
            return kind
    return HEAD if model.tied_embeddings and _HEAD.search(name) else None


TOWER = "tensors of a vision or audio tower"
PREDICTING = "layers that predict further tokens"
FREQUENCIES = "saved rotary frequencies"
MASKS = "saved attention masks"
MASKED = "saved values of masked positions"
HEAD = "the output head, stored though it is the embedding"


def _width(model: Model) -> int:
    return 2 if model.dtype is None else model.dtype.bytes_per_pack


def _frequencies(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    """Half the rotated values of a head, in float32 or the dtype; some rotate a half or a quarter of the head."""
    head_dim = next((part.width for layer in model.layers for part in layer.cache.cache_parts()), 0)
    values = [head_dim // parts for parts in (2, 4, 8) if head_dim // parts]
    return tuple(dict.fromkeys(len(names) * count * width for count in values for width in (4, 2)))


def _masks(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    """context x context: truth values (which old writers counted as an eighth of a byte), or numbers."""
    square = (model.context_limit or 0) ** 2 * len(names)
    return (square // 8, square, 2 * square, 4 * square) if square else ()


def _masked(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    return 4 * len(names), 2 * len(names)


def _head(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    sizes = [group.matrix_bytes(group.storage or _plain(model)) for group in model.weights if group.role == "embedding"]
    return tuple(size * len(names) for size in sizes[:1])


def _plain(model: Model) -> Any:
    return model.dtype or WEIGHT_FORMATS["bf16"]


_OWN_PARTS = re.compile(r".*?((?:eh_proj|input_proj|embed_tokens|shared_head\.head)\.weight|\w*norm\.weight)$")
_LAYER_NORMS = re.compile(r".*(?:input|post_attention)_layernorm\.weight$|.*self_attn\..*")


def _predicting(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    """One more layer like the last, with a projection of two hidden states, norms, embedding and head of its own."""
    hidden, vocab = model.hidden_size, model.vocab_size or 0
    own = [found[1] for name in names if not _LAYER_NORMS.match(name) and (found := _OWN_PARTS.match(name))]
    values = 0
    for part in own:
        rows = {"eh_proj.weight": 2 * hidden, "input_proj.weight": 2 * hidden}.get(part)
        rows = rows or (vocab if part in ("embed_tokens.weight", "shared_head.head.weight") else 1)
        values += rows * hidden
    layer = sum(group.count * group.matrix_bytes(group.storage or _plain(model)) for group in model.layers[-1].weights)
    layers = max(1, len({found[1] for name in names if (found := _LAYER.search(name))}))
    return (layers * layer + values * _width(model),)


def _tower(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    return ()


_SIZES = {
    TOWER: _tower, PREDICTING: _predicting, FREQUENCIES: _frequencies, MASKS: _masks, MASKED: _masked, HEAD: _head,
}  # fmt: skip
"""How large tensors of each kind may be, together, where only their names are known."""
