"""A GGUF file -> a `Model` with the exact bytes of its tensors. Only the header is read.

Weights are counted from the tensors that the header lists, each in its own storage. What the layers keep follows
from the keys of the architecture, with the defaults and window patterns that llama.cpp has for it
(`src/llama-model.cpp`), and must agree with the shapes of the tensors. An architecture without a rule, a key that
may change memory and that no rule read, and a tensor of an unknown name are refused by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from math import prod
from pathlib import Path

from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.errors import ConfigError, KvplanError, nearest_names, quoted, shorten
from kvplan.importer.gguf_keys import GgufKeys
from kvplan.importer.gguf_layers import EXPANDED, NOTES, REFUSED, RULES, LayerPlan, check_layer, read_sizes
from kvplan.importer.gguf_reader import MAX_TENSORS, GgufHeader, GgufTensor, read_gguf_header
from kvplan.importer.gguf_tensors import base_name, layer_groups, outer_groups
from kvplan.importer.headers import Beginning
from kvplan.importer.unloaded import NOT_LOADED, PREDICTING
from kvplan.model import Layer, Model, StoredPart
from kvplan.names import clean_name
from kvplan.units import counted, counted_and, format_exact_bytes

MAX_LAYERS = 10_000
MAX_PARTS = 10_000

__all__ = ["import_gguf", "import_gguf_beginnings", "import_gguf_header"]

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)")


def import_gguf(path: str | Path) -> Model:
    """The `Model` of a local GGUF file; of a split file, any of its parts names them all.

    Raises ConfigError where a file is missing or broken, UnsupportedConfigError where nothing counts it exactly.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"the file is {quoted(path)}; the path of a GGUF file is needed")
    first = Path(path)
    headers = [_read_file(part) for part in _parts(first)]
    return _model(headers, first.name, ())


def import_gguf_header(data: bytes, name: str, file_bytes: int | None = None) -> Model:
    """The `Model` of a GGUF file of which only the beginning is at hand, as a browser sends it.

    data        the first bytes of the file; its whole header must be among them
    name        the file's name
    file_bytes  bytes of the whole file, where known: then every tensor must lie inside it

    Raises as `import_gguf`, and ConfigError where the header is longer than `data`, or further parts are missing.
    """
    return import_gguf_beginnings([Beginning(name, data, file_bytes)])


def import_gguf_beginnings(files: Sequence[Beginning]) -> Model:
    """As `import_gguf_header`, for all parts of a split file, in any order."""
    if not files:
        raise ConfigError("no file is given; the beginning of a GGUF file, or of all its parts, is needed")
    headers = [
        read_gguf_header(BytesIO(file.data), shorten(file.name), len(file.data), file.file_bytes) for file in files
    ]
    headers.sort(key=lambda header: _whole_or(header.keys.get("split.no"), 0))
    count = _whole_or(headers[0].keys.get("split.count"), 1) or 1
    if len(files) != count:
        raise ConfigError(
            f"{headers[0].where}: {_missing(headers, count)}; the terminal reads all that lie side by side"
        )
    unchecked = any(file.file_bytes is None for file in files)
    return _model(headers, headers[0].where, (_UNCHECKED,) if unchecked else ())


_UNCHECKED = "the size of the file is not known, so it is not checked that its tensors lie inside it"


def _whole_or(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PARTS else default


def _missing(headers: Sequence[GgufHeader], count: int) -> str:
    """Which parts of a split file are not there, in words."""
    if count == 1:
        return f"{counted_and(len(headers), 'file', 'are')} given, of which it needs no other"
    given = {_whole_or(header.keys.get("split.no"), 0) for header in headers}
    missing = [f"{number + 1:05d}-of-{count:05d}" for number in range(count) if number not in given]
    if not missing:
        return f"it is split into {counted(count, 'part')}, and {counted_and(len(headers), 'file', 'are')} given"
    more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
    return f"it is one of {counted(count, 'part')}; also needed: {', '.join(missing[:3])}{more}"


# ------------------------------------------------------------------------------------------------------------ files


def _read_file(path: Path) -> GgufHeader:
    where = shorten(path.name)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ConfigError(f"{where} is no file")
        with path.open("rb") as file:
            return read_gguf_header(file, where, size, size)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parts(path: Path) -> list[Path]:
    """All parts of a split file in order, or the file alone."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    count = int(found[3])
    if not 1 <= count <= MAX_PARTS:
        raise ConfigError(f"{shorten(path.name)}: a file is split into 1 to {MAX_PARTS:,} parts")
    return [path.with_name(f"{found[1]}-{index:05d}-of-{found[3]}.gguf") for index in range(1, count + 1)]


def _all_tensors(headers: Sequence[GgufHeader]) -> tuple[GgufTensor, ...]:
    """The tensors of all parts. Raises ConfigError where the parts do not belong together."""
    for index, header in enumerate(headers):
        count, number = header.keys.get("split.count", 1) or 1, header.keys.get("split.no", 0)
        if isinstance(count, int) and count > len(headers):
            raise ConfigError(
                f"{header.where}: it is one of {counted(count, 'part')}; all are needed, with names that end in "
                "-00001-of-00002.gguf and so on"
            )
        if count != len(headers) or number != index:
            raise ConfigError(
                f"{header.where}: split.no is {quoted(number)} and split.count {quoted(count)}; it stands as part "
                f"{index} of {len(headers)}"
            )
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    expected = headers[0].keys.get("split.tensors.count", len(tensors))
    if len(tensors) != expected or not tensors:
        raise ConfigError(
            f"{headers[0].where}: {counted_and(len(tensors), 'tensor', 'are')} listed; {quoted(expected)} are announced"
        )
    if len({tensor.name for tensor in tensors}) < len(tensors) or len(tensors) > MAX_TENSORS:
        raise ConfigError(f"{headers[0].where}: two parts hold the same tensor, or there are over {MAX_TENSORS:,}")
    return tensors


# ------------------------------------------------------------------------------------------------------------ model


def _model(headers: Sequence[GgufHeader], file_name: str, notes: tuple[str, ...]) -> Model:
    tensors, keys = _all_tensors(headers), GgufKeys(headers[0])
    try:
        plans, drafting = _plans(keys)
        blocks, outer = _by_layer(keys, tensors, len(plans) + drafting)
        layers = _layers(keys, plans, blocks)
        unloaded = [tensor for block in blocks[len(plans) :] for tensor in block]
        weights = outer_groups(keys.where, outer)
    except ConfigError:
        raise
    except KvplanError as error:
        raise ConfigError(f"{keys.where}: {error}") from None
    embedding = _embedding(keys, outer)
    return Model(
        name=_name(keys, file_name),
        layers=layers,
        weights=weights,
        dtype=_plain_dtype(tensors),
        hidden_size=embedding.shape[0],
        num_attention_heads=max(plan.heads.heads for plan in plans) or None,
        vocab_size=embedding.shape[1],
        context_limit=keys.integer("context_length", None),
        tied_embeddings=all(base_name(tensor.name) != "output" for tensor in outer),
        model_type=keys.architecture,
        source=file_name,
        notes=(*_storage_notes(tensors), *_layer_notes(keys), *_unloaded_notes(unloaded), *notes),
        beside=_beside(unloaded),
    )


def _plans(keys: GgufKeys) -> tuple[Sequence[LayerPlan], int]:
    """What each layer keeps, and how many further layers only draft tokens."""
    if keys.architecture in REFUSED:
        raise keys.unsupported(f"its architecture is {keys.architecture}: {REFUSED[keys.architecture]}")
    if keys.architecture not in RULES:
        near = nearest_names(keys.architecture, RULES)
        hint = f" (near: {', '.join(near)})" if near else ""
        raise keys.unsupported(f"no rule knows the architecture {shorten(keys.architecture)!r}{hint}")
    kind = keys.text("general.type")
    if kind not in ("", "model"):
        raise keys.unsupported(f"general.type is {shorten(kind)!r}; only models are counted")
    if keys.raw("attention.causal") not in (None, True):
        raise keys.unsupported("its attention is not causal, so it keeps no cache")
    stated = keys.integer("block_count")
    drafting = keys.integer("nextn_predict_layers", 0, low=0)
    if stated > MAX_LAYERS or drafting >= stated:
        raise keys.error(
            f"{counted(stated, 'layer')} with {drafting:,} for drafting; 1 to {MAX_LAYERS:,} layers are possible"
        )
    plans = RULES[keys.architecture](read_sizes(keys, stated))[: stated - drafting]
    keys.integer("context_length", None)
    keys.refuse_unread()
    return plans, drafting


def _by_layer(
    keys: GgufKeys, tensors: Sequence[GgufTensor], count: int
) -> tuple[list[list[GgufTensor]], list[GgufTensor]]:
    """The tensors of each layer, and those outside the layers."""
    blocks: list[list[GgufTensor]] = [[] for _ in range(count)]
    outer: list[GgufTensor] = []
    for tensor in tensors:
        found = _BLOCK.fullmatch(tensor.name)
        if found and int(found[1]) >= count:
            raise keys.error(f"{shorten(tensor.name)} is of a layer beyond the {count:,} of block_count")
        (blocks[int(found[1])] if found else outer).append(tensor)
    return blocks, outer


def _layers(keys: GgufKeys, plans: Sequence[LayerPlan], blocks: Sequence[Sequence[GgufTensor]]) -> tuple[Layer, ...]:
    """The layers; equal ones are one object, which keeps sums fast."""
    made: dict[Layer, Layer] = {}
    layers = []
    for index, plan in enumerate(plans):
        check_layer(keys, index, plan, blocks[index])
        layer = Layer(plan.cache, layer_groups(keys.where, blocks[index], plan.heads), plan.heads.heads or None)
        layers.append(made.setdefault(layer, layer))
    return tuple(layers)


def _embedding(keys: GgufKeys, outer: Sequence[GgufTensor]) -> GgufTensor:
    """The token embedding, whose shape must be that of the keys. Raises ConfigError."""
    found = next((tensor for tensor in outer if tensor.name == "token_embd.weight"), None)
    if found is None or len(found.shape) != 2:
        raise keys.error("it holds no token_embd.weight of two dimensions, so it is no whole language model")
    hidden, vocab = keys.integer("embedding_length"), keys.integer("vocab_size", found.shape[1])
    listed = keys.listed("tokenizer.ggml.tokens") or found.shape[1]
    if found.shape[0] != hidden or found.shape[1] < min(vocab, listed):
        raise keys.error(
            f"token_embd.weight is {found.shape[0]:,} x {found.shape[1]:,}; embedding_length is {hidden:,} and there "
            f"are {counted(min(vocab, listed), 'token')}"
        )
    return found


def _name(keys: GgufKeys, file_name: str) -> str:
    """general.name, else the file's name, where it may stand on a page; else the architecture."""
    for text in (keys.text("general.name"), file_name.removesuffix(".gguf"), keys.architecture):
        try:
            return clean_name(text)
        except KvplanError:
            continue
    return "model"


def _plain_dtype(tensors: Sequence[GgufTensor]) -> StorageFormat:
    """The width of what is not quantized: that of most unquantized matrices, else float32, as norms have it."""
    widths: Counter[str] = Counter()
    for tensor in tensors:
        if len(tensor.shape) > 1 and tensor.storage.name in ("fp32", "fp16", "bf16"):
            widths[tensor.storage.name] += tensor.bytes
    return WEIGHT_FORMATS[widths.most_common(1)[0][0]] if widths else WEIGHT_FORMATS["fp32"]


def _storage_notes(tensors: Sequence[GgufTensor]) -> tuple[str, ...]:
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.storage.name.removeprefix("gguf_")] += tensor.bytes
    parts = ", ".join(f"{name} {format_exact_bytes(size)}" for name, size in sizes.most_common(4))
    more = f" and {len(sizes) - 4} further types" if len(sizes) > 4 else ""
    return (f"weights are the {counted(len(tensors), 'tensor')} of the file's header: {parts}{more}",)


def _layer_notes(keys: GgufKeys) -> tuple[str, ...]:
    if keys.architecture == "deepseek2" and not keys.has("attention.key_length_mla"):
        return (EXPANDED,)
    return (NOTES[keys.architecture],) if keys.architecture in NOTES else ()


def _unloaded_notes(tensors: Sequence[GgufTensor]) -> tuple[str, ...]:
    return tuple(f"not counted: {part.sentence}" for part in _beside(tensors))


def _beside(tensors: Sequence[GgufTensor]) -> tuple[StoredPart, ...]:
    """Layers of multi-token prediction."""
    if not tensors:
        return ()
    params = sum(prod(tensor.shape) for tensor in tensors)
    return (StoredPart(PREDICTING, params, sum(tensor.bytes for tensor in tensors), NOT_LOADED),)
