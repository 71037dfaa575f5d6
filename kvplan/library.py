"""The server's library of presets, as people change it: read, save, list, check, and move as one zip.

The library is what this server has saved (KVPLAN_PRESETS_DIR) on top of what kvplan ships: of two files with one id
the server's own wins, and its entry says so.

Whatever comes from outside passes `read_preset` or `preset_from_table`, which bound its size, its depth and the
work that it can cause. A save is one rename: a reader sees the old file or the new one, whole. It never replaces
a file that the person has not seen, and the version before stays beside it as `<id>.toml.1`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import ConfigError, InputError, KvplanError, PresetError, quoted, shorten
from kvplan.hardware import Gpu, Node
from kvplan.model import Model
from kvplan.names import clean_name, preset_id
from kvplan.plan import Scenario
from kvplan.presets import (
    MAX_KEPT,
    SCHEMA,
    FileState,
    ScenarioPreset,
    ShelfFile,
    dump_toml,
    file_state,
    found_file,
    gpu_from_table,
    gpu_to_table,
    is_nested_over,
    keeps_own_among_shipped,
    list_gpus,
    list_models,
    list_nodes,
    list_scenarios,
    load_file,
    load_gpu,
    load_model,
    load_node,
    load_scenario,
    model_from_table,
    model_to_table,
    node_from_table,
    node_to_table,
    parse_toml,
    presets_dir,
    read_toml,
    scenario_from_table,
    shelf,
    shipped_file,
)
from kvplan.units import counted

Preset = Model | Gpu | Node | ScenarioPreset
Table = Mapping[str, Any]

MAX_PRESET_BYTES = 64 * 2**10
"""The most that one preset from outside may have; the largest published one has 8 KiB."""

MAX_DEPTH = 8
"""Tables inside tables; a layer of combined caches has 5."""

MAX_KEY_PARTS = 8
"""Parts of a dotted key; reading one takes time by the square of its parts."""

MAX_SAVED = 5_000
"""Presets of a kind in one library: so many at most are saved, whoever saves them."""

LOCK_SECONDS = 10.0
"""How long a save waits for another one."""

MAX_LAYER_WEIGHTS = 20_000
"""Runs of layers times weights of the largest layer, which every sum goes through; published models have 2,000."""


class Kind(NamedTuple):
    """One kind of preset.

    name        the word for it, which messages use
    folder      where its files stand in a library
    mark        a key that every file of this kind has, and no other
    made        its class
    names       ids in the library
    load        id -> preset
    from_table, to_table   preset <-> the table of its file
    """

    name: str
    folder: str
    mark: str
    made: type
    names: Callable[[], tuple[str, ...]]
    load: Callable[[str], Any]
    from_table: Callable[[Table, str, str], Any]
    to_table: Callable[[Any], dict[str, Any]]


def scenario_to_table(preset: ScenarioPreset) -> dict[str, Any]:
    """A scenario preset as the table of its file; settings that are None are left out, since TOML has no null."""
    settings = {key: value for key, value in preset.fields.items() if value is not None}
    source = {"source": preset.source} if preset.source else {}
    return {"schema": SCHEMA, "name": preset.name, "lesson": preset.lesson, **source, "fields": settings}


MODEL = Kind("model", "models", "layers", Model, list_models, load_model, model_from_table, model_to_table)
GPU = Kind("GPU", "gpus", "usable_bytes", Gpu, list_gpus, load_gpu, gpu_from_table, gpu_to_table)
SCENARIO = Kind(
    "scenario", "scenarios", "fields", ScenarioPreset, list_scenarios, load_scenario, scenario_from_table,
    scenario_to_table,
)  # fmt: skip
NODE = Kind("node", "nodes", "num_gpus", Node, list_nodes, load_node, node_from_table, node_to_table)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (MODEL, GPU, NODE, SCENARIO)}
"""Every kind of preset by its name, what names others after what it names."""

_BY_CLASS = {kind.made: kind for kind in KINDS.values()}


def kind_of(preset: Preset) -> Kind:
    """The kind of `preset`."""
    return _BY_CLASS[type(preset)]


# ------------------------------------------------------------------------------------------- what comes from outside


def read_preset(data: bytes, file: str) -> Preset:
    """The preset in an uploaded file; its kind follows from its keys, its id from the file's name.

    Raises PresetError or InputError, with the file and the field.
    """
    first = re.sub(_COPY, "", file)
    return preset_from_table(parse_preset(data, file), shorten(file), file_id(first))


_COPY = r" ?\(\d{1,4}\)(?=\.toml\Z)"
"""What a browser adds to the name of a file that is downloaded again: `mine (1).toml`."""


def parse_preset(data: bytes, file: str) -> dict[str, Any]:
    """The table of a preset file from outside. Raises PresetError where it is too large or not TOML."""
    name = shorten(file)
    if len(data) > MAX_PRESET_BYTES:
        raise PresetError(f"{name} has {counted(len(data), 'byte')}; a preset has at most {MAX_PRESET_BYTES:,}")
    _require_short_keys(data, name)
    return parse_toml(data, name)


# Each alternative matches even where its end is missing, so that no text makes the search start over and over.
_STRING_OR_COMMENT = r'"""(?s:.*?)(?:"""|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*+'
_LONG_KEY = rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}"


def _require_short_keys(data: bytes, file: str) -> None:
    bare = re.sub(_STRING_OR_COMMENT, "s", data.decode("utf-8", "replace"))
    if re.search(_LONG_KEY, bare):
        raise PresetError(f"{file} has a key of over {MAX_KEY_PARTS} parts with dots between; no preset has one")


def file_id(file: str) -> str:
    """The id that a file's name stands for. Raises InputError."""
    name = re.split(r"[/\\]", file)[-1]
    return preset_id(name.removesuffix(".toml"), "the file's name")


def preset_from_table(table: Table, where: str, name: str) -> Preset:
    """The preset that `table` describes, of whichever kind, with the id `name` ("" for none).

    Raises PresetError with the field.
    """
    found = [kind for kind in KINDS.values() if kind.mark in table]
    if len(found) != 1:
        marks = ", ".join(f"{kind.mark} ({kind.name})" for kind in KINDS.values())
        raise PresetError(f"{where} is no preset: exactly one of the keys {marks} must stand in it")
    preset: Preset = kind_from_table(found[0], table, where, name)
    return preset


def kind_from_table(kind: Kind, table: Table, where: str, name: str) -> Any:
    """The preset of one kind that `table` describes. Raises PresetError with the field."""
    if is_nested_over(table, MAX_DEPTH):
        raise PresetError(f"{where} has tables and lists over {MAX_DEPTH} deep; no preset has")
    _require_light(table, where)
    made = kind.from_table(table, where, name)
    if kind is SCENARIO:
        _require_settings(made, where)
    return made


def _require_light(table: Table, where: str) -> None:
    """What a model asks of every sum is bounded before it is built; wrong types are left to the reader."""
    runs, layers = table.get("layers"), table.get("layer")
    if isinstance(runs, list) and isinstance(layers, Mapping):
        sizes = [len(w) for layer in layers.values() if isinstance(layer, Mapping) for w in _weights_of(layer)]
        if len(runs) * max(sizes, default=1) > MAX_LAYER_WEIGHTS:
            raise PresetError(f"{where} has too many layers with too many weights each to be planned")


def _weights_of(layer: Table) -> list[list[Any]]:
    weights = layer.get("weights")
    return [weights] if isinstance(weights, list) else []


_SETTINGS = {item.name for item in fields(Scenario)}


def _require_settings(preset: ScenarioPreset, where: str) -> None:
    for name in ("model", "gpu"):
        if not isinstance(preset.fields.get(name), str):
            raise PresetError(f"{where}: fields lacks {name!r}, the id of a preset")
    for key, value in preset.fields.items():
        if key not in _SETTINGS:
            raise PresetError(f"{where}: fields.{shorten(key)} is no setting; there is {', '.join(sorted(_SETTINGS))}")
        if not isinstance(value, str | int | float):
            raise PresetError(f"{where}: fields.{key} is {quoted(value)}; a number or text is needed")


# ------------------------------------------------------------------------------------------------------- scenarios


def scenario_of(
    preset: ScenarioPreset, find_model: Callable[[str], Model] = load_model, find_gpu: Callable[[str], Gpu] = load_gpu
) -> Scenario:
    """The scenario that a preset stands for. Raises KvplanError where it cannot be planned."""
    _require_settings(preset, preset.id or "the scenario")
    settings = dict(preset.fields)
    model, gpu = find_model(settings.pop("model")), find_gpu(settings.pop("gpu"))
    if "draft_model" in settings:
        settings["draft_model"] = find_model(settings["draft_model"])
    return Scenario(model, gpu, **settings)


def scenario_preset(scenario: Scenario, name: str, lesson: str, new_id: str, source: str = "") -> ScenarioPreset:
    """`scenario` as a preset. Its model, GPU and draft must be presets of the library, since it names them by id."""
    settings = {item.name: getattr(scenario, item.name) for item in fields(Scenario)}
    for key, kind in (("model", MODEL), ("gpu", GPU), ("draft_model", MODEL)):
        if settings[key] is not None:
            settings[key] = _id_in_library(kind, settings[key])
    given = {key: value for key, value in settings.items() if value is not None}
    return ScenarioPreset(name, lesson, given, source, preset_id(new_id))


def _id_in_library(kind: Kind, thing: Model | Gpu) -> str:
    if not is_in_library(thing):
        raise InputError(f"the {kind.name} {shorten(thing.name)} is not in the library; save it there first")
    return thing.id


def is_in_library(thing: Model | Gpu) -> bool:
    """Whether the library's preset of that id is exactly this."""
    try:
        path = found_file(kind_of(thing).folder, thing.id)
        return path is not None and bool(load_file(path) == thing)
    except KvplanError:
        return False


def is_shipped(thing: Model | Gpu) -> bool:
    """Whether this is exactly a preset that every kvplan has, so that its id says all, here and elsewhere."""
    if not is_in_library(thing):
        return False
    path = shipped_file(kind_of(thing).folder, thing.id)
    return _ships(path) and bool(load_file(path) == thing)


SAVED_LINE = "# saved by a user of kvplan, not shipped with it\n"
"""How a file starts that somebody saved: it may stand among the shipped ones and is none of them."""


def _ships(path: Path) -> bool:
    return path.is_file() and not _is_saved(path, file_state(path))


@lru_cache(maxsize=MAX_KEPT)
def _is_saved(path: Path, _state: FileState) -> bool:
    with path.open("rb") as file:
        return file.read(len(SAVED_LINE)) == SAVED_LINE.encode()


# ---------------------------------------------------------------------------------------------------- fingerprints

_WORDS_ONLY = frozenset({"id", "name", "source", "sources", "notes", "usable_basis", "confidence", "prices"})
"""Fields that no plan is computed from."""

FINGERPRINT_PARTS: dict[str, tuple[str, str]] = {
    MODEL.name: ("what its layers keep", "its weights or other figures"),
    GPU.name: ("its usable memory", "its bandwidth or other figures"),
}
"""What the first and the last four digits of a fingerprint stand for."""


def fingerprint(thing: Model | Gpu) -> str:
    """Eight hex digits of the figures that plans come from: four of each of FINGERPRINT_PARTS.

    They are digests of canonical text, so they are the same in every process and version. Names, sources, notes
    and prices do not count.
    """
    kind = kind_of(thing)
    table = {key: value for key, value in kind.to_table(thing).items() if key not in _WORDS_ONLY}
    main, rest = (_gpu_parts if kind is GPU else _model_parts)(table)
    return _digits(main) + _digits(rest)


def stored_fingerprint(kind: Kind, name: str) -> str:
    """The fingerprint of a preset of the library; computed once for each state of its file. Raises KvplanError."""
    kind.load(name)  # which says what is wrong, where something is
    path = found_file(kind.folder, name) or file_of(kind, name)
    return _stored_fingerprint(path, file_state(path))


@lru_cache(maxsize=MAX_KEPT)
def _stored_fingerprint(path: Path, _state: FileState) -> str:
    return fingerprint(load_file(path))


def _gpu_parts(table: dict[str, Any]) -> tuple[Any, Any]:
    return table.pop("usable_bytes"), table


def _model_parts(table: dict[str, Any]) -> tuple[Any, Any]:
    layers = {name: dict(layer) for name, layer in table.pop("layer").items()}
    caches = {name: layer.pop("cache") for name, layer in layers.items()}
    return [table["layers"], caches], [table, layers]


def _digits(value: object) -> str:
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()[:4]


def canonical_text(value: object) -> str:
    """One text for one value: sorted keys, no spaces, shortest floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def what_changed(thing: Model | Gpu, stated: str) -> str:
    """In words, how a thing of the fingerprint `stated` differs from `thing` as it is now.

    Where the library has kept that version, field by field; else which half of the fingerprint differs.
    """
    kind, now = kind_of(thing), fingerprint(thing)
    before = load_previous(kind, thing.id)
    if before is not None and fingerprint(before) == stated:
        return "; ".join(changed_fields(before, thing))
    parts = FINGERPRINT_PARTS[kind.name]
    halves = zip(parts, (stated[:4], stated[4:]), (now[:4], now[4:]), strict=True)
    return " and ".join(words for words, then, here in halves if then != here) + " changed"


def changed_fields(before: Preset, after: Preset) -> tuple[str, ...]:
    """What differs between two presets of a kind, a field each: `usable_bytes was 1, is 2`."""
    old, new = (kind_of(thing).to_table(thing) for thing in (before, after))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    return tuple(_change_words(key, old.get(key, "not given"), new.get(key, "not given")) for key in keys)


def _change_words(key: str, old: object, new: object) -> str:
    if isinstance(old, list | Mapping) or isinstance(new, list | Mapping):
        return f"{key} changed"
    return f"{key} was {shorten(old, 40)}, is {shorten(new, 40)}"


MAX_DIFFERENCES = 200


def differences(one: Preset, other: Preset) -> tuple[tuple[str, str, str], ...]:
    """(field, what `one` says, what `other` says) wherever two presets of a kind differ, down to single values."""
    left, right = (dict(_leaves(kind_of(thing).to_table(thing))) for thing in (one, other))
    keys = [key for key in dict.fromkeys([*left, *right]) if left.get(key) != right.get(key)]
    rows = [(key, left.get(key, "not given"), right.get(key, "not given")) for key in keys[:MAX_DIFFERENCES]]
    more = len(keys) - len(rows)
    return (*rows, (f"and {more:,} more fields", "", "")) if more else tuple(rows)


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Every single value inside with its path, such as layer.full.weights[3].rows."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, shorten(", ".join(map(str, value)) if isinstance(value, list | tuple) else value, 200)


# ----------------------------------------------------------------------------------------------------------- saving


def is_read_only() -> bool:
    """Whether this server saves nothing (KVPLAN_READ_ONLY=1)."""
    return os.environ.get("KVPLAN_READ_ONLY", "") not in ("", "0")


def why_nothing_is_saved() -> str:
    """Why this server saves no presets, in a sentence; "" where it does. Raises PresetError without a folder."""
    if is_read_only():
        return "this server's library is read-only (KVPLAN_READ_ONLY=1)"
    root = presets_dir()
    here = [path for path in (root, *(root / kind.folder for kind in KINDS.values())) if path.is_dir()]
    closed = [path.name for path in here if not os.access(path, os.W_OK | os.X_OK, effective_ids=_CAN_ASK_EFFECTIVE)]
    return f"the folder {shorten(closed[0])} of this server's library cannot be written" if closed else ""


_CAN_ASK_EFFECTIVE = os.access in os.supports_effective_ids


def file_of(kind: Kind, name: str) -> Path:
    """Where the server's own preset called `name` stands, or would stand. Raises InputError."""
    return presets_dir() / kind.folder / f"{preset_id(name)}.toml"


def version(kind: Kind, name: str) -> str | None:
    """A mark of the file that gives a preset now, to be given to `save` again; None where there is none."""
    path = found_file(kind.folder, preset_id(name))
    return None if path is None else _mark(_bytes_or_none(path))


def stored_text(kind: Kind, name: str) -> str:
    """The file that gives a preset, as it stands. Raises PresetError where it cannot be read."""
    path = found_file(kind.folder, preset_id(name))
    data = None if path is None else _bytes_or_none(path)
    if data is None or len(data) > MAX_PRESET_BYTES:
        raise PresetError(f"{name}.toml has no text to be shown: it is gone, or larger than a preset")
    return data.decode("utf-8", "replace").removeprefix(SAVED_LINE)


def _mark(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def _bytes_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PresetError(f"{path.name} cannot be read: {error.strerror}") from None


def file_text(preset: Preset) -> str:
    """The text of a preset's file, read back once, so that no file is written that cannot be read.

    Raises PresetError or InputError.
    """
    kind, text = kind_of(preset), _dumped(preset)
    name = f"{preset.id or kind.name}.toml"
    if kind_from_table(kind, parse_preset(text.encode(), name), name, preset.id) != preset:
        raise PresetError(f"{name} would not read back as it is; it is not written")
    return text


def _dumped(preset: Preset) -> str:
    try:
        return dump_toml(kind_of(preset).to_table(preset))
    except (TypeError, ValueError):
        raise PresetError(f"the {kind_of(preset).name} {quoted(preset.name)} has a value no file can hold") from None


def save(preset: Preset, seen: str | None = None) -> Path:
    """Save into the library under `preset.id`. Returns the path.

    seen  `version(kind, id)` of the file that this one replaces, from when the person opened it; None: a new file

    Raises InputError where a file stands there that the person has not seen, or PresetError.
    """
    if is_read_only():
        raise PresetError("this server's library is read-only (KVPLAN_READ_ONLY=1); download the file instead")
    kind = kind_of(preset)
    path = file_of(kind, preset.id)
    _require_known(preset)
    text = SAVED_LINE + file_text(preset)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):
            _replace(path, text.encode(), seen)
    except OSError as error:
        raise PresetError(f"{path.name} cannot be saved: {error.strerror}") from None
    return path


def _require_known(preset: Preset) -> None:
    """What a preset names must be in the library, and a scenario be one that can be planned."""
    if isinstance(preset, ScenarioPreset):
        scenario_of(preset)
    elif isinstance(preset, Node):
        load_gpu(preset.gpu)


def _replace(path: Path, data: bytes, seen: str | None) -> None:
    """Write the server's own file; a shipped one that it takes the place of counts as the version before."""
    now = found_file(path.parent.name, path.stem)
    before = None if now is None else _bytes_or_none(now)
    _require_seen(path.stem, before, seen)
    if before is None:
        _require_room(path.parent)
    for leftover in path.parent.glob(".*.tmp"):  # of a save that died; the lock says that no other is on its way
        leftover.unlink()
    if before == data:  # the version before stays the one that says something else
        return
    if before is not None:
        _write_whole(previous_file(path), before)
    _write_whole(path, data)


def _require_seen(name: str, before: bytes | None, seen: str | None) -> None:
    if before is not None and seen is None:
        raise InputError(f"{name} exists already; choose another id, or open it and save it from there")
    if _mark(before) != seen:
        raise InputError(f"{name} was changed by someone else in the meantime; open it again to see what it says now")


def _require_room(folder: Path) -> None:
    if sum(1 for _ in folder.glob("*.toml")) >= MAX_SAVED:
        raise PresetError(f"the library holds {MAX_SAVED:,} {folder.name} already, the most that it keeps")


def previous_file(path: Path) -> Path:
    """Where the version before the one in `path` is kept."""
    return path.with_name(path.name + ".1")


def _write_whole(path: Path, data: bytes) -> None:
    """Put `data` in place in one step; it is on the disk before its name is."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with part.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the system frees the lock of a process that dies."""
    try:
        import fcntl  # here and not above: not on every system, and reading needs no lock
    except ImportError:
        raise PresetError("this system cannot lock files, so it saves nothing; download the file instead") from None
    with (folder / ".lock").open("ab") as file:
        end = time.monotonic() + LOCK_SECONDS
        while not _took(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)):
            if time.monotonic() > end:
                raise PresetError("someone else is saving into this library and does not finish; try again")
            time.sleep(0.01)
        yield


def _took(lock: Callable[[], None]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return False
    return True


def load_previous(kind: Kind, name: str) -> Any | None:
    """The version before the one in the library, or None where none is kept or none can be read."""
    try:
        path = previous_file(file_of(kind, name))
        return kind.from_table(read_toml(path), path.name, name) if path.is_file() else None
    except KvplanError:
        return None


def duplicate(kind: Kind, name: str, new_id: str, new_name: str | None = None) -> Path:
    """Save a copy of a preset under another id, and under another name where one is given."""
    preset = kind.load(name)
    return save(replace(preset, id=preset_id(new_id), name=preset.name if new_name is None else new_name))


# ---------------------------------------------------------------------------------------------------------- listing


SHIPS, SERVER = "shipped", "this server"
"""Where an entry comes from."""


class Entry(NamedTuple):
    """One file of the library, for a table.

    trouble       why it cannot be read, or ""
    has_previous  a version before it is kept
    origin        SHIPS or SERVER
    replaces      it stands in the place of a shipped one of the same id
    """

    kind: str
    id: str
    name: str
    source: str
    trouble: str
    has_previous: bool
    origin: str = SHIPS
    replaces: bool = False


def entries(kind: Kind) -> tuple[Entry, ...]:
    """Every preset of a kind, broken ones included; made once for each state of the library."""
    return _entries(kind.name, presets_dir(), shelf(kind.folder))


@lru_cache(maxsize=12)
def _entries(kind_name: str, own: Path, files: tuple[ShelfFile, ...]) -> tuple[Entry, ...]:
    kind = KINDS[kind_name]
    read = _entry_among_shipped if keeps_own_among_shipped() else _entry_beside_shipped
    return tuple(read(kind, own / kind.folder / f"{name}.toml") for name in sorted({file.id for file in files}))


def entry(kind: Kind, name: str) -> Entry:
    """One file of the library. Raises InputError."""
    read = _entry_among_shipped if keeps_own_among_shipped() else _entry_beside_shipped
    return read(kind, file_of(kind, name))


def _entry_among_shipped(kind: Kind, file: Path) -> Entry:
    return _entry(kind, file)._replace(origin=SHIPS if _ships(file) else SERVER)


def _entry_beside_shipped(kind: Kind, file: Path) -> Entry:
    found = _entry(kind, file)
    if not file.is_file():
        return found
    return found._replace(origin=SERVER, replaces=shipped_file(kind.folder, file.stem).is_file())


def _entry(kind: Kind, file: Path) -> Entry:
    kept = previous_file(file).is_file()
    try:
        preset = kind.load(file.stem)
    except KvplanError as error:
        return Entry(kind.name, file.stem, "", "", str(error), kept)
    return Entry(kind.name, file.stem, preset.name, _source(preset), "", kept)


def shipped_preset(kind: Kind, name: str) -> Any | None:
    """The shipped preset of that id, which the server's own may replace; None where there is none."""
    path = shipped_file(kind.folder, name)
    return load_file(path) if _ships(path) else None


def _source(preset: Any) -> str:
    return str(getattr(preset, "source", "") or "; ".join(getattr(preset, "sources", ())))


# -------------------------------------------------------------------------------------------------------------- zips

MAX_ZIP_BYTES = 4 * 2**20
MAX_ZIP_FILES = 1000
MAX_ZIP_TOTAL = 2 * 2**20
"""Bytes of all files of a zip together, unpacked."""

MAX_ZIP_RATIO = 100
"""Unpacked bytes for each packed one; preset files reach about 10."""

MAX_ZIP_TROUBLES = 10
_BESIDE = r"(^|/)(__MACOSX/|\.[^/.]|Thumbs\.db$|desktop\.ini$)"
"""What systems and tools put beside the files of a person: hidden files, and on a Mac one for each of his own."""

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_DIRECTORY_ENTRY = b"PK\x01\x02"
_PLAIN_METHODS = (0, 8)  # stored, deflated


class ZipContents(NamedTuple):
    """What a zip holds: presets, and a sentence for each file that is not one."""

    presets: tuple[Preset, ...]
    troubles: tuple[str, ...]


def export_zip(presets: Iterable[Preset]) -> bytes:
    """The presets as a zip of folders, such as models/llama-3.1-8b.toml; the same presets give the same bytes."""
    import io
    import zipfile

    files = {f"{kind_of(item).folder}/{preset_id(item.id)}.toml": file_text(item) for item in presets}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _ZIP_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(info, files[name])
    return out.getvalue()


MAX_CONFIG_BYTES = 256 * 2**10
"""The most that a config.json may have; the largest published ones, with a list of their layers, have 100 KiB."""


CONFIG, QUANT_CONFIG = "config.json", "hf_quant_config.json"


def read_upload(data: bytes, file: str) -> ZipContents:
    """The presets in an uploaded preset file, config.json or zip of them, and what is wrong with the rest."""
    try:
        if file.lower().endswith(".zip"):
            return read_zip(data)
        return ZipContents((_read_file(data, file),), ())
    except KvplanError as error:
        return ZipContents((), (str(error),))


def _read_file(data: bytes, file: str) -> Preset:
    return read_config_preset(data, file) if file.lower().endswith(".json") else read_preset(data, file)


def read_config_preset(data: bytes, file: str, companion: bytes | None = None) -> Model:
    """The model of a published config.json, counted by rules alone and called by its file or its folder.

    companion  the hf_quant_config.json beside it

    Raises PresetError where it cannot be counted, is too large, or no preset file can hold it.
    """
    from kvplan.importer import import_config  # here and not above: the slowest part to load
    from kvplan.importer.files import json_object

    if len(data) > MAX_CONFIG_BYTES:
        raise PresetError(
            f"{shorten(file)} has {counted(len(data), 'byte')}; a config of at most {MAX_CONFIG_BYTES:,} is read"
        )
    name = _config_name(file)
    try:
        config = json_object(data, "config.json")
        beside = None if companion is None else json_object(companion, QUANT_CONFIG)
        source = f"an uploaded config.json ({name})"
        model = import_config(config, beside, name=name, source=source, measure="never")
    except ConfigError as error:
        raise PresetError(
            f"{shorten(file)}: {str(error).removeprefix('config.json').removeprefix(':').strip()}"
        ) from None
    found = replace(model, id=id_from(name))
    file_text(found)
    return found


def _config_name(file: str) -> str:
    """The name of the file without its ending; of a config.json that of its folder."""
    parts = [part for part in re.split(r"[/\\]", file.removesuffix(".json")) if part]
    name = next((part for part in reversed(parts) if part != "config"), "model")
    return clean_name(" ".join(re.findall(r"[A-Za-z0-9.+-]+", name))[:60], "the file's name")


def id_from(name: str) -> str:
    """A preset id made of a name: `My 3B (test)` -> `my-3b-test`."""
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower())[:70]
    return preset_id(re.sub(r"\.\.+", ".", plain).strip("-."))


def read_zip(data: bytes) -> ZipContents:
    """The presets in an uploaded zip; nothing is written anywhere.

    A file that is neither a preset nor a config.json makes a trouble and the others are read. The zip as a whole
    is refused where it is no zip, is too large packed or unpacked, or names files outside itself. Raises PresetError.
    """
    import io
    import zipfile

    if len(data) > MAX_ZIP_BYTES:
        raise PresetError(f"the zip has {counted(len(data), 'byte')}; at most {MAX_ZIP_BYTES:,} are read")
    if data.count(_DIRECTORY_ENTRY) > MAX_ZIP_FILES:  # before zipfile makes an object of each
        raise PresetError(f"the zip has more than {MAX_ZIP_FILES:,} files")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            members = [item for item in _checked_members(packed.infolist()) if not item.is_dir()]
            return _contents(packed, [item for item in members if not re.search(_BESIDE, item.filename)])
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError) as error:
        raise PresetError(f"the upload is not a sound zip: {shorten(error)}") from None


def _checked_members(members: list[Any]) -> list[Any]:
    for item in members:
        _require_safe_member(item)
    names = [item.filename for item in members]
    if len(set(names)) < len(names):
        raise PresetError("the zip has a file twice")
    if (total := sum(item.file_size for item in members)) > MAX_ZIP_TOTAL:
        raise PresetError(f"the zip unpacks to {counted(total, 'byte')}; at most {MAX_ZIP_TOTAL:,} are read")
    return members


def _require_safe_member(item: Any) -> None:
    name, where = item.orig_filename, f"the zip's {quoted(item.orig_filename)}"
    if re.match(r"[/\\]|[A-Za-z]:", name) or ".." in re.split(r"[/\\]", name):
        raise PresetError(f"{where} names a place outside the zip")
    if not name.isprintable():
        raise PresetError(f"{where} has a character that cannot be shown")
    if item.external_attr >> 28 not in (0, 4, 8):  # the file type in the upper bits of a Unix mode
        raise PresetError(f"{where} is a link or a device; only files and folders are read")
    if item.flag_bits & 1 or item.compress_type not in _PLAIN_METHODS:
        raise PresetError(f"{where} is encrypted or packed in an unusual way")
    if item.file_size > MAX_ZIP_RATIO * max(item.compress_size, 1) + 1000:
        raise PresetError(f"{where} unpacks to over {MAX_ZIP_RATIO} times its size; no preset does")


def _contents(packed: Any, members: list[Any]) -> ZipContents:
    found: dict[tuple[str, str], Preset] = {}
    by_name = {item.filename: item for item in members}
    wanted = [name for name in by_name if _is_wanted(name, by_name)]
    troubles = _left_out([name for name in by_name if name not in wanted])
    for name in wanted:
        try:
            preset = _read_member(packed, by_name, name)
            if found.setdefault((kind_of(preset).name, preset.id), preset) != preset:
                raise PresetError(f"{quoted(name)} is a second {kind_of(preset).name} {preset.id}; the first is taken")
        except KvplanError as error:
            troubles.append(str(error))
        if len(troubles) >= MAX_ZIP_TROUBLES:
            troubles.append("the rest of the zip was not read")
            break
    if not found and not troubles:
        troubles.append("the zip holds no file; a .toml or a config.json is needed")
    return ZipContents(tuple(found.values()), tuple(troubles))


def _is_wanted(name: str, members: Mapping[str, Any]) -> bool:
    """Preset files and configs; beside a config.json no other JSON file is one."""
    folder, _, file = name.rpartition("/")
    beside = f"{folder}/{CONFIG}" if folder else CONFIG
    is_config = (
        file.endswith(".json") and not file.endswith(".schema.json") and (file == CONFIG or beside not in members)
    )
    return file.endswith(".toml") or is_config


def _left_out(names: list[str]) -> list[str]:
    """One sentence for all files that are neither presets nor configs; a companion of a config is read with it."""
    others = [name for name in names if name.rpartition("/")[2] != QUANT_CONFIG]
    if not others:
        return []
    many = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return [f"{quoted(others[0])}{many}: neither a .toml nor a config.json file, so left out"]


def _read_member(packed: Any, members: Mapping[str, Any], name: str) -> Preset:
    if name.endswith(".toml"):
        return read_preset(_unpacked(packed, members[name], MAX_PRESET_BYTES), name)
    folder, slash, _ = name.rpartition("/")
    beside = members.get(f"{folder}{slash}{QUANT_CONFIG}")
    companion = None if beside is None else _unpacked(packed, beside, MAX_CONFIG_BYTES)
    return read_config_preset(_unpacked(packed, members[name], MAX_CONFIG_BYTES), name, companion)


def _unpacked(packed: Any, item: Any, most: int) -> bytes:
    if item.file_size > most:
        raise PresetError(f"{quoted(item.filename)} has over {most:,} bytes, too many for a preset")
    with packed.open(item) as file:
        data: bytes = file.read(most + 1)
        return data


class Standing(NamedTuple):
    """How a preset stands to the library.

    seen     the version that a save of it replaces, for `save`; None where it is new
    changes  what differs from it, a sentence each; empty where it is the same or new
    """

    seen: str | None
    changes: tuple[str, ...]

    @property
    def is_new(self) -> bool:
        """Whether there is no preset of that id."""
        return self.seen is None

    @property
    def is_same(self) -> bool:
        """Whether exactly this is in the library."""
        return self.seen is not None and not self.changes


def standing(preset: Preset) -> Standing:
    """How `preset` stands to what the library has under its id now. Raises InputError where it has no id."""
    kind = kind_of(preset)
    seen = version(kind, preset.id)
    if seen is None:
        return Standing(None, ())
    try:
        return Standing(seen, changed_fields(kind.load(preset.id), preset))
    except KvplanError as error:
        return Standing(seen, (f"what stands there cannot be read: {error}",))


class Saved(NamedTuple):
    """What `save_all` did: the files written, and a sentence for each preset that was not."""

    paths: tuple[Path, ...]
    troubles: tuple[str, ...]


def save_all(presets: Iterable[Preset], seen: Mapping[tuple[str, str], str | None] | None = None) -> Saved:
    """Save presets, models and GPUs before the scenarios that name them; what exists stays as it is.

    seen  the versions that may be replaced, by the name of the kind and the id
    """
    paths, troubles = [], []
    for preset in sorted(presets, key=lambda item: list(KINDS).index(kind_of(item).name)):
        try:
            paths.append(save(preset, (seen or {}).get((kind_of(preset).name, preset.id))))
        except KvplanError as error:
            troubles.append(f"{kind_of(preset).name} {shorten(preset.id)}: {error}")
    return Saved(tuple(paths), tuple(troubles))
