"""A scenario as a link, and back. Every field is written, so that a link keeps its meaning when a default changes.

Version 1 of a link is `?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb&ctx=32768&batch=8&kv=fp8&...`; a key that is
missing means version 1's own default, for ever.

A model or GPU that every kvplan ships is named by its id, with a fingerprint of its figures (`mfp`, `gfp`, `dfp`),
so that one that changed since says so. Any other travels inside the link (`model_file`, `gpu_file`, `draft_file`):
the table of its preset file as JSON, packed by zlib, in base64url.

`from_link` is strict: whatever is wrong is a LinkError. `open_link` opens what it can and says what it could not.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kvplan.errors import InputError, KvplanError, LinkError, PresetError, quoted, shorten
from kvplan.library import (
    GPU,
    MAX_PRESET_BYTES,
    MODEL,
    Kind,
    canonical_text,
    is_in_library,
    is_shipped,
    kind_from_table,
    stored_fingerprint,
    what_changed,
)
from kvplan.names import preset_id
from kvplan.plan import Scenario, require_scenario
from kvplan.units import counted, counted_and, parse_bytes, parse_count

VERSION = 1
MAX_LINK_CHARACTERS = 8_000
MAX_KEYS = 100
MAX_COMPARED = 4
MOST_NAMED = 5
"""Of more doubled keys only the number is said."""


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


def _yes_or_no(text: str) -> bool:
    if text not in YES_NO:
        raise InputError(f"{quoted(text)} is neither yes nor no")
    return text == "yes"


YES_NO = ("no", "yes")
"""How a link writes False and True."""

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
    LinkField("data_parallel", "dp", parse_count, 1),
    LinkField("expert_parallel", "ep", _yes_or_no, False),
)
"""Every field of version 1, in the order of a link. Frozen: later versions add, they never change these."""


class LinkThing(NamedTuple):
    """A model or GPU in a link.

    setting    the keyword of `Scenario`
    key        the key of its id
    print_key  the key of its fingerprint, where the id says all
    file_key   the key of its preset file, where it travels inside the link
    noun       the word for it
    kind       what kind of preset it is
    required   whether there is no scenario without it
    """

    setting: str
    key: str
    print_key: str
    file_key: str
    noun: str
    kind: Kind
    required: bool


THINGS: tuple[LinkThing, ...] = (
    LinkThing("model", "model", "mfp", "model_file", "model", MODEL, True),
    LinkThing("gpu", "gpu", "gfp", "gpu_file", "GPU", GPU, True),
    LinkThing("draft_model", "draft", "dfp", "draft_file", "draft model", MODEL, False),
)
_THING_KEYS = frozenset(thing.key for thing in THINGS)
_REQUIRED_KEYS = frozenset(thing.key for thing in THINGS if thing.required)
_SETTING_FIELDS = tuple(field for field in FIELDS if field.key not in _THING_KEYS)

LINK_KEYS: frozenset[str] = frozenset(
    {"v"} | {field.key for field in FIELDS} | {key for thing in THINGS for key in (thing.print_key, thing.file_key)}
)
"""Every key that a link of one scenario may have."""

PAGE_KEYS = re.compile(
    "q|unit|line|panel|across|up|browse|define|start|start_gpu|compare|compare_gpus|filter|gpu_filter|kind|find|from"
    "|shelf|lengths|list"
    "|[pa](50|95)|(line|map|panel|pair|fit|heads|fleet|engine|users|lab|chosen)_[a-z_]+"
)
"""Keys that pages write into an address beside a link: what they show, and nothing of the scenario."""


# ---------------------------------------------------------------------------------------------------------- writing


def to_link(scenario: Scenario) -> str:
    """The query string of `scenario`, from `?` on, of at most MAX_LINK_CHARACTERS.

    Raises LinkError where a model or GPU of the user's own is too large to travel inside it.
    """
    require_scenario(scenario)
    return "?" + query_text(to_fields(scenario))


def to_fields(scenario: Scenario) -> dict[str, str]:
    """The keys and values of the link of `scenario`. Raises LinkError."""
    return written_fields({field.setting: getattr(scenario, field.setting) for field in FIELDS})


def written_fields(settings: Mapping[str, Any]) -> dict[str, str]:
    """Keys and values of a link for settings by keyword, which need not be a plan; a missing one is the default.

    Raises LinkError where a model or GPU cannot travel in a link.
    """
    values = dict.fromkeys((field.key for field in FIELDS), "")
    values |= {field.key: _written(settings.get(field.setting, field.default)) for field in _SETTING_FIELDS}
    extra: dict[str, str] = {}
    for thing in sorted(THINGS, key=lambda thing: thing.required):  # the last keys are those that a cut link lacks
        found = settings.get(thing.setting)
        if found is not None:
            values[thing.key] = _sound_id(found.id)
            extra |= _named_or_carried(thing, found)
    return {"v": str(VERSION), **values, **extra}


def query_text(fields: Mapping[str, str]) -> str:
    """Keys and values as they stand behind the `?` of a link. Raises LinkError beyond MAX_LINK_CHARACTERS."""
    text = urlencode(fields)
    if len(text) >= MAX_LINK_CHARACTERS:
        carried = " and ".join(thing.noun for thing in THINGS if any(_is_key(key, thing.file_key) for key in fields))
        raise LinkError(
            f"the link would have {counted(len(text) + 1, 'character')} and at most {MAX_LINK_CHARACTERS:,} are read: "
            f"send the {carried or 'scenario'} as a preset file instead"
        )
    return text


def _is_key(key: str, name: str) -> bool:
    return key.rpartition(".")[2] == name


def _written(value: object) -> str:
    if isinstance(value, bool):
        return YES_NO[value]
    return "" if value is None else str(value)


def _sound_id(name: str) -> str:
    try:
        return preset_id(name)
    except InputError:
        return ""


def _named_or_carried(thing: LinkThing, found: Any) -> dict[str, str]:
    if is_shipped(found):
        return {thing.print_key: stored_fingerprint(thing.kind, found.id)}
    return {thing.file_key: _packed(thing, _Same(found))}


class _Same:
    """A model or GPU as the key of a cache: only the very same one matches, since equal ones may differ in words."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def __hash__(self) -> int:
        return id(self.found)

    def __eq__(self, other: object) -> bool:
        return self.found is getattr(other, "found", None)


@lru_cache(maxsize=64)
def _packed(thing: LinkThing, same: _Same) -> str:
    """The preset file of a thing, packed; read back once, so that no link is made that does not open."""
    found = same.found
    try:
        text = canonical_text(thing.kind.to_table(found))
        packed = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
        if _unpacked(thing, packed, found.id) == found:
            return packed
        reason = "it would not read back as it is"
    except (KvplanError, TypeError, ValueError) as error:
        reason = shorten(error, 200)
    raise LinkError(f"the {thing.noun} {shorten(found.name)} cannot travel in a link: {reason}")


def _unpacked(thing: LinkThing, packed: str, name: str) -> Any:
    """The model or GPU in the value of a file key. Raises LinkError or PresetError."""
    table = _json_table(_inflated(packed))
    return kind_from_table(thing.kind, _as_now(table), f"the {thing.noun} inside it", name)


def _as_now(table: dict[str, Any]) -> dict[str, Any]:
    """A table as a file of today has it: links once carried GPUs whose range did not hold their usable total."""
    usable, span = table.get("usable_bytes"), table.get("usable_range")
    if type(usable) is not int or not isinstance(span, list) or [type(end) for end in span] != [int, int]:
        return table
    low, high = span
    return table if low > high else {**table, "usable_range": [min(low, usable), max(high, usable)]}


def _inflated(packed: str) -> bytes:
    """At most MAX_PRESET_BYTES are ever unpacked."""
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(data, MAX_PRESET_BYTES + 1)
    except (binascii.Error, ValueError, zlib.error):
        raise LinkError("it is damaged") from None
    if len(found) > MAX_PRESET_BYTES:
        raise LinkError(f"it unpacks to over {MAX_PRESET_BYTES:,} bytes, too many for a preset")
    if not unpacker.eof or unpacker.unused_data:
        raise LinkError("it is cut short or damaged")
    return found


def _json_table(data: bytes) -> dict[str, Any]:
    try:
        table = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise LinkError("it is not JSON") from None
    if not isinstance(table, dict):
        raise LinkError("it is not the table of a preset")
    return table


def _no_constant(word: str) -> None:
    raise ValueError(word)


# ---------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class OpenedLink:
    """What a link opened, and what it did not.

    scenario  None where there is none without what could not be read
    troubles  a sentence for each thing that was not used or is not as it was
    lacking   a sentence on what every written link says and this one does not, or ""
    carried   settings ("model", "gpu", "draft_model") whose thing came inside the link and is not in the library
    """

    scenario: Scenario | None
    troubles: tuple[str, ...] = ()
    carried: frozenset[str] = frozenset()
    lacking: str = ""

    @property
    def sentence(self) -> str:
        """All troubles and what is lacking as one sentence, or ""."""
        said = [*self.troubles[:3], *([f"and {more} more"] if (more := len(self.troubles) - 3) > 0 else [])]
        return "; ".join([*said, *([self.lacking] if self.lacking else [])])


def from_link(text: str) -> Scenario:
    """The scenario that a link (a whole address, or what follows its `?`) describes.

    Raises LinkError where anything in it cannot be used, where it was cut, and where a preset that it names has changed
    since. One that was written by hand may leave settings out: they are version 1's defaults.
    """
    return _strict(open_link(text))


def from_fields(given: Mapping[str, str]) -> Scenario:
    """The scenario that a link's keys and values describe. Raises LinkError with the key at fault."""
    return _strict(open_fields(given))


def _strict(opened: OpenedLink) -> Scenario:
    if opened.troubles or opened.scenario is None:
        raise LinkError(opened.troubles[0])
    return opened.scenario


def open_link(text: str, fallback: Scenario | None = None) -> OpenedLink:
    """What of a link can be opened: damaged parts mean version 1's defaults, each with a trouble.

    fallback  its model and GPU stand in for those of a link that cannot be read; without it there is no scenario
    """
    given, troubles = _keys_of(text)
    return _and(open_fields(given, fallback), troubles)


def _and(opened: OpenedLink, troubles: Sequence[str]) -> OpenedLink:
    return replace(opened, troubles=(*troubles, *opened.troubles))


def _keys_of(text: str) -> tuple[dict[str, str], list[str]]:
    """The keys and values of a link, and what is wrong with it as a whole."""
    if not isinstance(text, str):
        raise LinkError(f"the link is {quoted(text)}; a text is needed")
    if len(text) > 2 * MAX_LINK_CHARACTERS:  # a link itself, and an address before it
        return {}, [f"the link has {counted(len(text), 'character')}; at most {MAX_LINK_CHARACTERS:,} are read"]
    query = (text.partition("?")[2] if "?" in text else text).partition("#")[0].strip()
    if len(query) >= MAX_LINK_CHARACTERS:
        return {}, [f"the link has {counted(len(query), 'character')}; at most {MAX_LINK_CHARACTERS:,} are read"]
    try:  # a mail or a chat may have written & as &amp;
        pairs = parse_qsl(query.replace("&amp;", "&"), keep_blank_values=True, max_num_fields=MAX_COMPARED * MAX_KEYS)
    except ValueError:
        return {}, ["the link has too many keys to be one of kvplan's"]
    given: dict[str, str] = {}
    twice = {key for key, value in pairs if given.setdefault(key, value) != value}
    return given, [_twice_words(sorted(twice))] if twice else []


def _twice_words(keys: Sequence[str]) -> str:
    named = " and ".join(repr(shorten(key)) for key in keys[:MOST_NAMED])
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    first = "the first stands" if len(keys) == 1 else "the first of each stands"
    return f"the link has the {'key' if len(keys) == 1 else 'keys'} {named}{more} twice; {first}"


def open_fields(given: Mapping[str, str], fallback: Scenario | None = None) -> OpenedLink:
    """What of a link's keys and values can be opened; see `open_link`."""
    reader = _Reader(given)
    reader.check_keys()
    things = {thing.setting: reader.thing(thing, fallback) for thing in THINGS}
    settings = {field.setting: reader.setting(field) for field in _SETTING_FIELDS}
    scenario = None
    if all(things[thing.setting] is not None for thing in THINGS if thing.required):
        scenario = reader.scenario(things, settings)
    return OpenedLink(scenario, tuple(reader.troubles), frozenset(reader.carried), reader.lacking)


_LATER_KEYS = frozenset({"dp", "ep"})
"""Keys that links of version 1 had not from the first."""

_LAST_KEYS = frozenset({"mfp", "model_file"})
"""One of these stands behind the settings of every written link."""

STAND_IN_WEIGHTS = "bf16"
"""For a checkpoint that does not say how it stores its weights: every model has it."""

_FIRST_KEYS = ["v", *(field.key for field in FIELDS[:6])]
"""How every written link starts; nobody who writes one by hand gives all of these, empty ones too."""


class _Reader:
    """Reads one link; what it cannot use becomes a trouble, and it goes on."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.troubles: list[str] = []
        self.carried: set[str] = set()
        self.lacking = ""

    def check_keys(self) -> None:
        """The version, and keys that no version has."""
        if (found := self.given.get("v")) != str(VERSION):
            stated = "missing" if found is None else shorten(found)
            self.troubles.append(f"the link's version is {stated}; this kvplan reads v={VERSION}")
        unknown = {key for key in self.given if key not in LINK_KEYS and not PAGE_KEYS.fullmatch(key)}
        others = {key[0] for key in unknown if _OTHER_KEY.fullmatch(key)}
        if self._ends_early():
            self.troubles.append(self._lacks())
        elif "v" in self.given:
            self.lacking = self._lacks()
        if others:
            self.troubles.append(f"the link compares {counted(len(others) + 1, 'scenario')}; the first stands")
        if left := sorted(key for key in unknown if not _OTHER_KEY.fullmatch(key)):
            self.troubles.append(f"the link has the unknown key {shorten(left[0])!r}")

    def _ends_early(self) -> bool:
        """Whether it was cut: it starts as kvplan writes links, and lacks what stands at the end of each of them."""
        begins = [*self.given][: len(_FIRST_KEYS)] == _FIRST_KEYS
        return begins and not self.given.keys() & {FIELDS[-1].key, "mfp", "model_file"}

    def _lacks(self) -> str:
        """What every written link says and this one does not, as a sentence, or ""."""
        older = _LATER_KEYS if self.given.keys() & _LAST_KEYS else frozenset()
        carried = {thing.key for thing in THINGS if self.given.get(thing.file_key)}
        known = self.given.keys() | older | carried | _REQUIRED_KEYS
        missing = [field.key for field in FIELDS if field.key not in known]
        if missing:
            return f"the link was cut or edited, and what it lacks is as usual: {', '.join(missing)}"
        unmarked = [f"the {thing.noun}" for thing in THINGS if self._lacks_print(thing)]
        if unmarked:
            return (
                f"the link was cut or edited: it lacks the fingerprint of {' and of '.join(unmarked)}, so nothing "
                "tells what has changed since"
            )
        return ""

    def _lacks_print(self, thing: LinkThing) -> bool:
        """Whether a thing is named by its id alone."""
        return bool(self.given.get(thing.key)) and not any(
            self.given.get(key) for key in (thing.print_key, thing.file_key)
        )

    def setting(self, field: LinkField) -> Any:
        """The value of one key, or version 1's default."""
        if field.key not in self.given:
            return field.default
        try:
            return field.read(self.given[field.key])
        except KvplanError as error:
            self.troubles.append(f"the link's {field.key}: {error}")
            return field.default

    def thing(self, thing: LinkThing, fallback: Scenario | None) -> Any:
        """A model or GPU, from inside the link or by its id; else the fallback's, where one is needed."""
        name, packed = self.given.get(thing.key, ""), self.given.get(thing.file_key, "")
        found = self._carried(thing, packed, name) if packed else self._named(thing, name) if name else None
        if found is not None or not thing.required:
            return found
        if not name and not packed:
            self.troubles.append(f"the link names no {thing.noun}")
        if fallback is None:
            return None
        found = getattr(fallback, thing.setting)
        self.troubles[-1] += f" ({found.name} stands in)"
        return found

    def _carried(self, thing: LinkThing, packed: str, name: str) -> Any:
        try:
            found = _unpacked(thing, packed, preset_id(name) if name else "")
        except (LinkError, PresetError, InputError) as error:
            self.troubles.append(f"the link's {thing.noun} cannot be read: {error}")
            return None
        if is_in_library(found):
            return thing.kind.load(found.id)
        self.carried.add(thing.setting)
        return found

    def _named(self, thing: LinkThing, name: str) -> Any:
        try:
            found = thing.kind.load(name)
            now = stored_fingerprint(thing.kind, name)
        except KvplanError as error:
            self.troubles.append(f"the link's {thing.noun} cannot be used: {error}")
            return None
        stated = self.given.get(thing.print_key, "") or now
        if not re.fullmatch("[0-9a-f]{8}", stated):
            self.troubles.append(
                f"the link's fingerprint of the {thing.noun} ({thing.print_key}) is {quoted(stated)}; 8 hex digits are "
                "needed"
            )
        elif stated != now:
            changes = what_changed(found, stated)
            self.troubles.append(f"the {thing.noun} {found.name} has changed since the link was made: {changes}")
        return found

    def scenario(self, things: Mapping[str, Any], settings: Mapping[str, Any]) -> Scenario | None:
        """The scenario with every setting; else with those that can be planned together, in the order of a link."""
        try:
            return Scenario(**things, **settings)
        except KvplanError:
            return self._as_much_as_possible(things, settings)

    def _as_much_as_possible(self, things: Mapping[str, Any], settings: Mapping[str, Any]) -> Scenario | None:
        draft = {"draft_model": things["draft_model"]}
        scenario = self._as_usual(things, settings["weight_dtype"])
        if scenario is None:
            return None
        for field in FIELDS:
            if field.setting in settings or field.setting in draft:
                scenario = self._with(scenario, field, {**settings, **draft}[field.setting])
        return scenario

    def _as_usual(self, things: Mapping[str, Any], weight_dtype: str | None) -> Scenario | None:
        """The link's model and GPU with version 1's defaults. Where nothing says how a checkpoint stores its weights
        the link's weight dtype is taken at once, else bf16: another model in its place would answer another question.
        """
        defaults = {field.setting: field.default for field in _SETTING_FIELDS}
        first: KvplanError | None = None
        for weights in (None, weight_dtype, STAND_IN_WEIGHTS):
            try:
                return Scenario(things["model"], things["gpu"], **{**defaults, "weight_dtype": weights})
            except KvplanError as error:
                first = first or error
        self.troubles.append(f"the link cannot be planned: {first}")
        return None

    def _with(self, scenario: Scenario, field: LinkField, value: Any) -> Scenario:
        try:
            return scenario.with_changes(**{field.setting: value})
        except KvplanError as error:
            instead = getattr(scenario, field.setting)
            stands = f" ({instead} stands in)" if field.setting == "weight_dtype" and instead else ""
            self.troubles.append(f"the link's {field.key} cannot be planned: {error}{stands}")
            self.carried.discard(field.setting)
            return scenario


# ------------------------------------------------------------------------------------------------------- comparison

_LETTERS = "abcd"[:MAX_COMPARED]
_OTHER_KEY = re.compile(rf"[{_LETTERS[1:]}]\.\w+")


def to_comparison_link(scenarios: Sequence[Scenario]) -> str:
    """The link that puts up to MAX_COMPARED scenarios side by side: the first is written as in a link of its own,
    the others with `b.`, `c.` and `d.` before each key. Raises LinkError.
    """
    require_comparable(scenarios)
    return "?" + query_text(compared_fields(to_fields(scenarios[0]), scenarios[1:]))


def require_comparable(scenarios: Sequence[Scenario]) -> None:
    """Raises LinkError for a number of scenarios that is no comparison."""
    if not 2 <= len(scenarios) <= MAX_COMPARED:
        raise LinkError(f"{counted_and(len(scenarios), 'scenario', 'are')} given; a comparison has 2 to {MAX_COMPARED}")


def compared_fields(first: Mapping[str, str], others: Sequence[Scenario]) -> dict[str, str]:
    """The keys and values of a comparison, the first scenario's as they are given. Raises LinkError."""
    fields = dict(first)
    for letter, scenario in zip(_LETTERS[1:], others, strict=False):
        fields |= {f"{letter}.{key}": text for key, text in to_fields(scenario).items()}
    return fields


def from_comparison_link(text: str) -> tuple[Scenario, ...]:
    """The scenarios of a comparison. Raises LinkError where anything in it cannot be used."""
    return tuple(_strict(opened) for opened in open_comparison(text))


def open_comparison(text: str, fallback: Scenario | None = None) -> tuple[OpenedLink, ...]:
    """What can be opened of each scenario of a comparison, the first first; a link of one scenario gives one."""
    given, troubles = _keys_of(text)
    first, *others = open_comparison_fields(given, fallback)
    return (_and(first, troubles), *others)


def open_comparison_fields(given: Mapping[str, str], fallback: Scenario | None = None) -> tuple[OpenedLink, ...]:
    """`open_comparison` of a link's keys and values."""
    groups = {_LETTERS[0]: {key: text for key, text in given.items() if not _OTHER_KEY.fullmatch(key)}}
    groups |= {letter: group for letter in _LETTERS[1:] if (group := _of_letter(given, letter))}
    opened = {letter: open_fields(group, fallback) for letter, group in groups.items()}
    if len(opened) == 1:
        return tuple(opened.values())
    return tuple(_naming(one, letter) for letter, one in opened.items())


def _naming(opened: OpenedLink, letter: str) -> OpenedLink:
    """What was opened, each of its sentences saying which scenario of the link it is about."""
    start = f"scenario {letter.upper()} of the link: "
    lacking = start + opened.lacking if opened.lacking else ""
    return replace(opened, troubles=tuple(start + trouble for trouble in opened.troubles), lacking=lacking)


def _of_letter(given: Mapping[str, str], letter: str) -> dict[str, str]:
    return {key[2:]: text for key, text in given.items() if key.startswith(f"{letter}.") and _OTHER_KEY.fullmatch(key)}


def comparison_keys() -> Iterable[str]:
    """Every key that a comparison may have, for pages that keep other keys in the address."""
    return [*LINK_KEYS, *(f"{letter}.{key}" for letter in _LETTERS[1:] for key in LINK_KEYS)]
