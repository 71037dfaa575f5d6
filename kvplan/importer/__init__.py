"""A published config.json -> a Model with exact bytes, or a refusal that names what is not understood."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.dtypes import StorageFormat, kv_dtype, weight_format
from kvplan.errors import (
    ConfigError,
    InputError,
    KvplanError,
    NotADecoderError,
    UnknownNameError,
    UnsupportedConfigError,
    nearest_names,
    quoted,
    shorten,
)
from kvplan.importer.decoder import Parts
from kvplan.importer.estimate import TEXT_KEYS, estimate_notes, guesses, require_decoder
from kvplan.importer.families import Family, families
from kvplan.importer.files import json_object, read_start
from kvplan.importer.headers import Index, read_index
from kvplan.importer.measure import Measurement, measure_parts, with_known_roles
from kvplan.importer.quantization import note_storage, read_scheme
from kvplan.importer.quantized.scheme import Scheme, Stored
from kvplan.importer.safetensors import explain_difference
from kvplan.importer.unloaded import stored_beside
from kvplan.importer.view import ConfigView
from kvplan.model import Model
from kvplan.names import clean_name
from kvplan.presets import is_nested_over

MAX_CONFIG_BYTES = 8 * 2**20
MAX_CONFIG_VALUES = 150_000
"""The largest known config, which lists how every module is quantized, has 67,000."""
MAX_DEPTH = 40
USUAL_NAME = "config.json"
"""What messages call the config; a file of another name is called by its own."""

__all__ = ["import_config"]

WHY_NO_RULE = {
    **dict.fromkeys(
        ("grok-1", "grok_1"), "it was published as a JAX checkpoint in 8 bits, and its copies for torch differ"
    ),
}
"""Model types that people ask for and no rule counts, with the reason."""


class _Asked(NamedTuple):
    """A config, the hf_quant_config.json beside it, the dtype that the caller gives where it states none, and the names
    of the tensors that are stored."""

    data: Mapping[str, Any]
    companion: Mapping[str, Any] | None
    dtype: str | None
    stored: frozenset[str] = frozenset()


class _Found(NamedTuple):
    """What one of the readers makes of a config."""

    model_type: str
    parts: Parts
    dtype: StorageFormat | None
    notes: tuple[str, ...]
    is_estimate: bool = False
    storage_unknown: str = ""


def import_config(
    config: Mapping[str, Any] | str | Path,
    quant_config: Mapping[str, Any] | str | Path | None = None,
    index: Mapping[str, Any] | str | Path | Index | None = None,
    *,
    name: str | None = None,
    dtype: str | None = None,
    source: str = "",
    measure: str = "auto",
    estimate: bool = False,
) -> Model:
    """The `Model` that a Hugging Face config.json describes.

    config        the parsed object, or the path of the file
    quant_config  the checkpoint's hf_quant_config.json where it has one, as an object or a path
    index         the checkpoint's model.safetensors.index.json (an object or a path), its .safetensors file, any of its
                  parts, or the folder of them: then the notes say how what it stores compares with what is counted
    name          how to call the model; None: the config's model_type
    dtype         the width of the published tensors where the config does not state one; never guessed
    measure       auto: where no rule counts the config, measure what the installed transformers builds from it, in a
                  process of its own; never: rules only; always: measurement only
    estimate      where nothing counts it exactly, take something near it; the model says so (`is_estimate`, `notes`)

    Raises ConfigError where the config is broken, UnsupportedConfigError where nothing counts it exactly.
    """
    if not isinstance(measure, str) or measure not in _READERS:
        raise UnknownNameError("way to measure", measure, _READERS)
    called = None if name is None else clean_name(name, "model name")
    with _told_of(config):
        data = read_config(config)
        if is_nested_over(data, MAX_DEPTH):
            raise ConfigError(f"config.json: objects are nested over {MAX_DEPTH} deep")
        stored = None if index is None else read_index(index)
        companion = None if quant_config is None else read_config(quant_config)
        asked = _Asked(data, companion, dtype, frozenset(stored.names) if stored else frozenset())
        model = stored_beside(_model(_read(asked, measure, estimate), called, source), data)
    return model if stored is None else _with_stored(model, stored)


@contextlib.contextmanager
def _told_of(config: object) -> Iterator[None]:
    """Errors name the file that was given, not the usual name of one."""
    try:
        yield
    except ConfigError as error:
        rest = str(error).removeprefix(USUAL_NAME)
        if rest == str(error) or not isinstance(config, str | Path):
            raise
        raise type(error)(Path(config).name + rest) from None


def _read(asked: _Asked, measure: str, estimate: bool) -> _Found:
    try:
        return _READERS[measure](asked)
    except NotADecoderError:
        raise
    except UnsupportedConfigError as refusal:
        if not estimate:
            raise
        return _estimated(asked, _READERS[measure], refusal)


def _with_stored(model: Model, index: Index) -> Model:
    """`model` with notes on how a checkpoint's bytes compare with its own."""
    difference = explain_difference(model, index)
    return replace(model, notes=(*model.notes, *difference.sentences))


def _model(found: _Found, name: str | None, source: str) -> Model:
    return Model(
        name=name or found.model_type,
        layers=found.parts.layers,
        weights=found.parts.weights,
        dtype=found.dtype,
        hidden_size=found.parts.hidden_size,
        num_attention_heads=found.parts.num_attention_heads,
        vocab_size=found.parts.vocab_size,
        context_limit=found.parts.context_limit,
        tied_embeddings=found.parts.tied_embeddings,
        model_type=found.model_type,
        source=source,
        notes=found.notes,
        is_estimate=found.is_estimate,
        storage_unknown=found.storage_unknown,
    )


# ------------------------------------------------------------------------------------------------------------- readers


def _by_rules(asked: _Asked) -> _Found:
    family, model_type = _family(asked.data)
    view = ConfigView(asked.data, defaults=family.defaults)
    stated = view.dtype = _dtype(view, asked.dtype)
    _require_language_head(view)
    view.stored = asked.stored
    scheme = read_scheme(view, model_type, asked.companion)
    try:
        parts = family.rule(view)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(f"config.json: {error}") from None
    stored = _stored(view, scheme, parts)
    return _Found(model_type, stored.parts, stated, view.finish(), storage_unknown=stored.unknown)


def _by_measurement(asked: _Asked) -> _Found:
    """The class of the config, measured unquantized; then stored as the checkpoint stores it, or refused."""
    view = ConfigView(asked.data)
    model_type = view.text("model_type")
    stated = view.dtype = _dtype(view, asked.dtype)
    _require_language_head(view)
    view.stored = asked.stored
    scheme = read_scheme(view, model_type, asked.companion)
    found = measure_parts(asked.data, stated)
    if found.unread:
        view.note(_unread_by_class(asked, found))
    stored = _stored(view, _if_told_apart(scheme, found.parts), found.parts)
    return _Found(model_type, stored.parts, stated, (*found.notes, *view.notes), storage_unknown=stored.unknown)


def _unread_by_class(asked: _Asked, found: Measurement) -> str:
    """The note on keys that the measured class does not read, where the rules, which do, count the same.

    Raises UnsupportedConfigError where no rule counts the config or its text model, or counts it otherwise.
    """
    parts = found.parts
    if all(path.startswith("text_config.") for path in found.unread) and asked.data["model_type"] not in families():
        asked = asked._replace(data=asked.data["text_config"])
        parts = replace(parts, weights=tuple(group for group in parts.weights if group.tower == "text"))
    try:
        rules = _by_rules(asked).parts
    except ConfigError:
        raise found.refusal() from None
    if _figures(rules) != _figures(parts):
        raise found.refusal()
    return f"{found.class_name} does not read {', '.join(found.unread[:6])}; the rules, which do, count the same"


def _figures(parts: Parts) -> tuple[int, list[int]]:
    """Parameters, and the cache of one sequence at lengths in whole blocks."""
    kv = kv_dtype("bf16")
    groups = [*parts.weights, *(group for layer in parts.layers for group in layer.weights)]
    caches = [
        sum(part.bytes(tokens, kv) for layer in parts.layers for part in layer.cache.cache_parts())
        + sum(part.bytes(kv) for layer in parts.layers for part in layer.cache.state_parts())
        for tokens in (1_024, 131_072)
    ]
    return sum(group.params for group in groups), caches


def _if_told_apart(scheme: Scheme | None, parts: Parts) -> Scheme | None:
    """`scheme` where every measured matrix has a role, since it goes by roles."""
    if scheme is None or scheme.unknown:
        return scheme
    try:
        with_known_roles(parts)
    except UnsupportedConfigError as reason:
        return Scheme("", unknown=str(reason))
    return scheme


def _stored(view: ConfigView, scheme: Scheme | None, parts: Parts) -> Stored:
    """`parts` as the checkpoint stores them, with the note that says how."""
    if scheme is None:
        return Stored(parts)
    stored = scheme.apply(parts)
    note_storage(view, scheme.label, stored.unknown)
    return stored


def _by_either(asked: _Asked) -> _Found:
    """Rules, and where they step aside measurement."""
    try:
        return _by_rules(asked)
    except UnsupportedConfigError as refusal:
        try:
            return _by_measurement(asked)
        except ConfigError as reason:
            second = str(reason).removeprefix("config.json: ")
            raise UnsupportedConfigError(
                f"{refusal}; {second}" if second not in str(refusal) else str(refusal)
            ) from None


_READERS: dict[str, Callable[[_Asked], _Found]] = {
    "auto": _by_either,
    "never": _by_rules,
    "always": _by_measurement,
}


def _estimated(asked: _Asked, reader: Callable[[_Asked], _Found], refusal: UnsupportedConfigError) -> _Found:
    """The nearest config that `reader` can count. Raises `refusal` where there is none."""
    require_decoder(asked.data)
    for data, reason in guesses(asked.data):
        try:
            found = reader(_Asked(data, None, asked.dtype))
        except ConfigError:
            continue
        notes = estimate_notes(reason, refusal, found.notes)
        return found._replace(model_type=str(asked.data.get("model_type")), notes=notes, is_estimate=True)
    raise refusal


_WITHOUT_LANGUAGE_HEAD = re.compile(r"\w+For\w*Classification|\w+ForQuestionAnswering|\w+(?<!LMHead)Model")
_MODELS_WITH_LANGUAGE_HEAD = frozenset({"ChatGLMModel", "InternVLChatModel", "LlavaLlamaModel", "Qwen2_5OmniModel"})


def _require_language_head(view: ConfigView) -> None:
    """Refuse classes that end in another head or none (classifiers, reward and embedding models)."""
    named = next(iter(view.texts("architectures", default=[])), "")
    if _WITHOUT_LANGUAGE_HEAD.fullmatch(named) and named not in _MODELS_WITH_LANGUAGE_HEAD:
        raise view.unsupported(f"architectures names {shorten(named)}, whose head is not that of a language model")


def read_config(config: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """The JSON object of `config`. Raises ConfigError where it is missing, huge, not JSON, or not an object."""
    if isinstance(config, Mapping):
        return config
    if not isinstance(config, str | Path):
        raise ConfigError(f"the config is {quoted(config)}; a path or a parsed object is needed")
    path = Path(config)
    data = read_start(path, MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path.name} is over {MAX_CONFIG_BYTES // 2**20} MiB, too large for a config")
    return parse_config(data, path.name)


def parse_config(data: bytes, where: str = "config.json") -> Mapping[str, Any]:
    """The JSON object in `data`. Raises ConfigError."""
    return json_object(data, where, "utf-8-sig", MAX_CONFIG_VALUES)


def _family(data: Mapping[str, Any]) -> tuple[Family, str]:
    known = families()
    # The files of the mamba_ssm package say what they are only by their settings.
    model_type = data.get("model_type") or ("mamba_ssm" if "ssm_cfg" in data else None)
    if not isinstance(model_type, str) or not model_type:
        raise ConfigError("config.json: lacks model_type, the name of the model's family")
    if model_type not in known:
        near = nearest_names(model_type, known)
        hint = f" (near: {', '.join(near)})" if near else ""
        why = f": {WHY_NO_RULE[model_type]}" if model_type in WHY_NO_RULE else hint
        raise UnsupportedConfigError(f"config.json: no rule knows model_type {shorten(model_type)!r}{why}")
    return known[model_type], model_type


def _inner_dtype(data: Mapping[str, Any]) -> str | None:
    """The dtype that the text model's object states, for wrappers that state none themselves."""
    inner: Mapping[str, Any] = next((data[key] for key in TEXT_KEYS if isinstance(data.get(key), Mapping)), {})
    stated = inner.get("torch_dtype") or inner.get("dtype")
    return stated if isinstance(stated, str) else None


def _dtype(view: ConfigView, given: str | None) -> StorageFormat | None:
    if given is not None and not isinstance(given, str):
        raise view.error(f"the given dtype is {quoted(given)}; bf16, fp16 or fp32 is needed")
    stated = view.text("torch_dtype", "dtype", default=None) or _inner_dtype(view.data)
    name = (stated or given or "").removeprefix("torch.")
    if not name:
        view.note("the config does not state a dtype; choose a weight dtype to see weight bytes")
        return None
    try:
        found = weight_format(name)
    except KvplanError as error:
        raise view.error(f"torch_dtype: {error}") from None
    if not found.is_plain:
        raise view.error(f"torch_dtype is {shorten(name)!r}; known: bfloat16, float16, float32")
    return found
