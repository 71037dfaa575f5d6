"""A scenario as a link, and back. Every field is written, so that a link keeps its meaning when a default changes.

Version 1 of a link is `?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb&ctx=32768&batch=8&kv=fp8&...`; a key that is
missing means version 1's own default, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kvplan.errors import InputError, KvplanError, LinkError, UnknownNameError, shorten
from kvplan.hardware import Gpu
from kvplan.model import Model
from kvplan.plan import Scenario
from kvplan.presets import load_gpu, load_model
from kvplan.units import parse_bytes, parse_count

VERSION = 1
MAX_LINK_CHARACTERS = 8_000


class LinkField(NamedTuple):
    """One setting in a link.

    setting  the keyword of `Scenario`
    key      the key in the link
    read     text -> value
    default  what a missing key means in version 1
    """

    setting: str
    key: str
    read: Callable[[str], Any]
    default: Any


def _text_or_none(text: str) -> str | None:
    return text or None


def _count_or_none(text: str) -> int | None:
    return parse_count(text) if text else None


def _bytes_or_none(text: str) -> int | None:
    return parse_bytes(text) if text else None


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{shorten(text)!r} is not a number") from None


FIELDS: tuple[LinkField, ...] = (
    LinkField("model", "model", str, None),
    LinkField("gpu", "gpu", str, None),
    LinkField("context_length", "ctx", parse_count, 8192),
    LinkField("batch_size", "batch", parse_count, 8),
    LinkField("kv_dtype", "kv", str, "bf16"),
    LinkField("weight_dtype", "weights", _text_or_none, None),
    LinkField("num_kv_heads", "heads", _count_or_none, None),
    LinkField("tensor_parallel", "tp", parse_count, 1),
    LinkField("pipeline_parallel", "pp", parse_count, 1),
    LinkField("memory_fraction", "fraction", _fraction, 0.9),
    LinkField("overhead_bytes", "overhead", _bytes_or_none, None),
    LinkField("image_tokens", "images", parse_count, 0),
    LinkField("shared_prefix", "prefix", parse_count, 0),
    LinkField("adapter_bytes", "adapters", parse_bytes, 0),
    LinkField("draft_model", "draft", _text_or_none, None),
    LinkField("engine", "engine", _text_or_none, None),
)
"""Every field of version 1, in the order of a link. Frozen: later versions add, they never change these."""


def to_link(scenario: Scenario) -> str:
    """The query string of `scenario`, from `?` on.

    Raises LinkError where its model or GPU is not a preset, since a link names them by id.
    """
    return "?" + urlencode(to_fields(scenario))


def to_fields(scenario: Scenario) -> dict[str, str]:
    """The keys and values of the link of `scenario`."""
    _require_preset("model", scenario.model, load_model)
    _require_preset("GPU", scenario.gpu, load_gpu)
    if scenario.draft_model is not None:
        _require_preset("draft model", scenario.draft_model, load_model)
    values = {field.key: _written(getattr(scenario, field.setting)) for field in FIELDS}
    return {"v": str(VERSION), **values}


def _require_preset(kind: str, thing: Model | Gpu, load: Callable[[str], object]) -> None:
    """A link carries an id, so the thing must be exactly what its id loads: no file of one's own, no changed copy."""
    try:
        is_preset = load(thing.id) == thing
    except UnknownNameError:
        is_preset = False
    if not is_preset:
        raise LinkError(f"the {kind} {thing.name} is not a preset, so a link cannot name it")


def _written(value: object) -> str:
    return "" if value is None else str(getattr(value, "id", value))


def from_link(text: str) -> Scenario:
    """The scenario that a link (a whole address, or what follows its `?`) describes. Raises LinkError."""
    if len(text) > MAX_LINK_CHARACTERS:
        raise LinkError(f"the link has {len(text):,} characters; at most {MAX_LINK_CHARACTERS:,} are read")
    query = (text.partition("?")[2] if "?" in text else text).partition("#")[0].strip()
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise LinkError("the link has too many fields to be one of kvplan's") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise LinkError("the link has a key twice; each may stand there once")
    return from_fields(given)


def from_fields(given: Mapping[str, str]) -> Scenario:
    """The scenario that a link's keys and values describe. Raises LinkError with the key at fault."""
    if given.get("v") != str(VERSION):
        raise LinkError(f"the link's version is {shorten(given.get('v', 'missing'))}; this kvplan reads v={VERSION}")
    unknown = set(given) - {field.key for field in FIELDS} - {"v"}
    if unknown:
        raise LinkError(f"the link has the unknown key {shorten(min(unknown))!r}")
    values = {field.setting: _read(field, given) for field in FIELDS}
    for name in ("model", "gpu"):
        if not values[name]:
            raise LinkError(f"the link names no {name}")
    try:
        return Scenario(**values)
    except KvplanError as error:
        raise LinkError(f"the link cannot be planned: {error}") from None


def _read(field: LinkField, given: Mapping[str, str]) -> Any:
    if field.key not in given:
        return field.default
    try:
        return field.read(given[field.key])
    except KvplanError as error:
        raise LinkError(f"the link's {field.key}: {error}") from None
