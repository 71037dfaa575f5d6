"""What a safetensors checkpoint really stores: its index or its headers, and how that compares with a `Model`.

An index (`model.safetensors.index.json`) states the bytes of all tensors and their names, but no shapes. The header
of a `.safetensors` file states names, shapes and types. Tensors themselves are never read. Where a checkpoint stores
more than the model counts, the difference is explained tensor by tensor, or said to be unexplained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import ConfigError, quoted, shorten
from kvplan.importer.files import json_object, read_start
from kvplan.model import Model
from kvplan.units import format_exact_bytes

MAX_INDEX_BYTES = 32 * 2**20
"""The index of DeepSeek V3 with its 91,991 tensors has 9 MiB."""
MAX_NAMES = 1_000_000

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64), **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6), "F4": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a header."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """What a checkpoint stores.

    where       the file's name, for messages
    total_size  bytes of all tensors
    names       of all tensors
    tensors     each tensor where a header was read; empty where only an index was
    """

    where: str
    total_size: int
    names: tuple[str, ...]
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict, hash=False)


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


# ---------------------------------------------------------------------------------------------------------- reading


def read_index(source: Mapping[str, Any] | str | Path) -> Index:
    """The index in a file or a parsed object; for a `.safetensors` file, its header. Raises ConfigError."""
    if isinstance(source, Mapping):
        return _index(source, "the index")
    if not isinstance(source, str | Path):
        raise ConfigError(f"the index is {quoted(source)}; a path or a parsed object is needed")
    path = Path(source)
    if path.suffix == ".safetensors":
        return read_header(path)
    data, where = read_start(path, MAX_INDEX_BYTES + 1), shorten(path.name)
    if len(data) > MAX_INDEX_BYTES:
        raise ConfigError(f"{where} is over {MAX_INDEX_BYTES // 2**20} MiB, too large for an index")
    return _index(json_object(data, where), where)


def _index(data: Mapping[str, Any], where: str) -> Index:
    metadata, names = data.get("metadata"), data.get("weight_map")
    if (
        not isinstance(names, Mapping)
        or not names
        or not all(isinstance(name, str) for name in islice(names, MAX_NAMES))
    ):
        raise ConfigError(f"{where}: lacks weight_map, an object with the name of each tensor")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer():  # some writers state 1.0e10
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total < 2**60:
        raise ConfigError(f"{where}: metadata.total_size is {quoted(total)}; a number of bytes is needed")
    return Index(where, total, tuple(names))


def read_header(path: str | Path) -> Index:
    """The header of a `.safetensors` file: name, shape and dtype of each tensor. Raises ConfigError."""
    path = Path(path)
    where = shorten(path.name)
    start = read_start(path, 8 + MAX_INDEX_BYTES)
    size, length = path.stat().st_size, int.from_bytes(start[:8], "little")
    if len(start) < 8 or not 2 <= length <= min(size - 8, MAX_INDEX_BYTES):
        raise ConfigError(f"{where}: its header claims {length:,} bytes; up to {MAX_INDEX_BYTES:,} in the file can be")
    found = json_object(start[8 : 8 + length], where)
    tensors = {name: _tensor(where, name, value) for name, value in found.items() if name != "__metadata__"}
    spans = sorted(_span(where, name, found[name]) for name in tensors)
    end = 0
    for begin, finish in spans:
        if begin != end:
            raise ConfigError(f"{where}: its tensors leave a gap or overlap at byte {begin:,} of the data")
        end = finish
    if 8 + length + end != size:
        raise ConfigError(f"{where}: its tensors end at byte {8 + length + end:,}; the file has {size:,} bytes")
    return Index(where, end, tuple(tensors), tensors)


def _tensor(where: str, name: str, value: object) -> StoredTensor:
    shape, dtype = (value.get("shape"), value.get("dtype")) if isinstance(value, Mapping) else (None, None)
    whole = isinstance(shape, list) and len(shape) <= 16 and all(type(n) is int and 0 <= n < 2**48 for n in shape)
    if not whole or not isinstance(dtype, str) or dtype not in _BITS:
        raise ConfigError(
            f"{where}: {shorten(name)} has the shape {quoted(shape)} and the dtype {quoted(dtype)}; whole numbers and "
            "one of safetensors' dtypes are needed"
        )
    begin, end = _span(where, name, value)
    if (end - begin) * 8 != prod(shape) * _BITS[dtype]:  # type: ignore[arg-type]
        raise ConfigError(
            f"{where}: {shorten(name)} takes {end - begin:,} bytes, which its shape and dtype do not make"
        )
    return StoredTensor(tuple(shape), dtype, end - begin)  # type: ignore[arg-type]


def _span(where: str, name: str, value: object) -> tuple[int, int]:
    found = value.get("data_offsets") if isinstance(value, Mapping) else None
    if not isinstance(found, list) or len(found) != 2 or any(type(n) is not int or not 0 <= n < 2**60 for n in found):
        raise ConfigError(f"{where}: data_offsets of {shorten(name)} are {quoted(found)}; two numbers are needed")
    return found[0], found[1]


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
    for width, base in (("", counted), *_other_widths(model, counted)):
        if (sizes := _chosen(extras, index.total_size - base)) is not None:
            return _difference(index, counted, extras, sizes, (width, base - counted))
    known = tuple(extra.sizes[0] if index.tensors else 0 for extra in extras)
    return _difference(index, counted, extras, known, ("", 0))


def _difference(
    index: Index, counted: int, extras: Sequence[_Extra], sizes: Sequence[int], width: tuple[str, int]
) -> Difference:
    """`sizes` of `extras`, 0 where one is not known, and what another dtype than the config's adds."""
    more = index.total_size - counted
    head = f"{index.where} stores {format_exact_bytes(index.total_size)}, "
    sentences = [head + (f"{_signed(more)} against what is counted" if more else "exactly what is counted")]
    for extra, size in zip(extras, sizes, strict=True):
        sentences.append(_stored_sentence(extra, size) if size else _unsized_sentence(extra))
    if width[1]:
        sentences.append(f"{_signed(width[1])} since it stores {width[0]}, which is not the dtype of the config")
    left = more - sum(sizes) - width[1]
    if left:
        sentences.append(f"{_signed(left)} are not explained")
    return Difference(index.total_size, counted, tuple(sentences), left)


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


def _other_widths(model: Model, counted: int) -> Iterator[tuple[str, int]]:
    """What the model would take in another plain dtype: configs and files do not always agree."""
    plain = all(group.storage is None or group.pinned for group, _ in model.all_groups)
    for name in ("fp32", "bf16", "fp16") if plain else ():
        if (size := model.weight_bytes(name)) != counted:
            yield name, size


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
