"""What the Library page lists and does: rows of presets, what is said after an action, and the actions themselves.

A preset of the session changes nothing that another visitor sees; only `save_now` and `save_many` write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from kvplan.errors import KvplanError
from kvplan.explain import kinds_sentence
from kvplan.library import (
    GPU,
    KINDS,
    MODEL,
    NODE,
    SCENARIO,
    Entry,
    Kind,
    Preset,
    ZipContents,
    entries,
    export_zip,
    file_text,
    kind_of,
    load_previous,
    read_upload,
    save,
    save_all,
    scenario_of,
    stored_text,
    version,
)
from kvplan.presets import readable
from kvplan.ui import words
from kvplan.ui.address import take_scenario
from kvplan.ui.fields import AS_TRAINED
from kvplan.ui.library import OWN, find, find_gpu, find_model, keep, keep_all, own
from kvplan.units import counted_and, format_bytes, format_params

SESSION = "this session"
MAX_UPLOADS = 50
MAX_UPLOADED_BYTES = 8 * 2**20
"""Of all files of one upload together."""

_SAID, _TURN = "library_said", "library_turn"


# ------------------------------------------------------------------------------------------------------------- rows


class Row(NamedTuple):
    """One preset in the list: its id, what it is in a few words, where it comes from, and what to know of it."""

    id: str
    name: str
    what: str
    origin: str
    note: str
    source: str


def rows_of(kind: Kind) -> tuple[Row, ...]:
    """The visitor's presets of a kind, then the library's."""
    mine, unit = own(kind), words.unit()
    first = [Row(name, item.name, what_of(item, unit), SESSION, "", _source(item)) for name, item in mine.items()]
    return (*first, *(row for row in _library_rows(kind.name, entries(kind), unit) if row.id not in mine))


@lru_cache(maxsize=24)
def _library_rows(kind_name: str, found: tuple[Entry, ...], unit: str) -> tuple[Row, ...]:
    """Made once for each state of the library: `entries` gives the same tuple until something changes."""
    return tuple(_library_row(KINDS[kind_name], item, unit) for item in found)


def _library_row(kind: Kind, item: Entry, unit: str) -> Row:
    try:
        what = "" if item.trouble else what_of(kind.load(item.id), unit)
    except KvplanError:  # the file went away since it was listed
        what = ""
    return Row(item.id, item.name, what, item.origin, _note(item), item.source)


def _note(item: Entry) -> str:
    if item.trouble:
        return f"cannot be read: {item.trouble}"
    notes = [
        "in place of the shipped one" if item.replaces else "",
        "the version before is kept" if item.has_previous else "",
    ]
    return "; ".join(filter(None, notes))


def what_of(preset: Any, unit: str) -> str:
    """A preset in a few words, memory in "GiB" or "GB"."""
    return _WHAT[kind_of(preset).name](preset, unit)


_WHAT: dict[str, Callable[[Any, str], str]] = {
    MODEL.name: lambda model, _: f"{format_params(model.num_params)} parameters, {kinds_sentence(model)}",
    GPU.name: lambda gpu, unit: f"{format_bytes(gpu.usable_bytes, unit)} usable",
    NODE.name: lambda node, _: f"{node.num_gpus} × {node.gpu}",
    SCENARIO.name: lambda preset, _: f"{preset.fields.get('model')} on {preset.fields.get('gpu')}",
}


def _source(preset: Any) -> str:
    return str(getattr(preset, "source", "") or "; ".join(getattr(preset, "sources", ())))


def narrowed(rows: Sequence[Row], text: str, origin: str | None) -> list[Row]:
    """Rows that hold every word of `text` somewhere and come from `origin`."""
    asked = text.lower().split()
    return [
        row
        for row in rows
        if origin in (None, row.origin) and all(word in " ".join(row).lower() for word in asked)
    ]  # fmt: skip


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows as a table with heads in words."""
    return pd.DataFrame(rows, columns=list(COLUMNS))


COLUMNS = ("id", "name", "what it is", "from", "note", "source")


# ------------------------------------------------------------------------------------------------- what is said, chosen


def say(text: str) -> None:
    """Have a sentence shown above the list after this run's action."""
    st.session_state[_SAID] = [*st.session_state.get(_SAID, ()), text]
    st.session_state[_TURN] = turn() + 1


def take_said() -> list[str]:
    """What the last action said; it is said once."""
    said: list[str] = st.session_state.pop(_SAID, [])
    return said


def turn() -> int:
    """Goes up with every action, so that what asked for it closes again."""
    number: int = st.session_state.get(_TURN, 0)
    return number


def chosen_key(kind: Kind) -> str:
    """The key of the list of chosen presets."""
    return f"chosen_{kind.folder}"


def choose(kind: Kind, names: Iterable[str]) -> None:
    """Choose presets of a kind; to be called before the list is shown, so from a callback."""
    st.session_state[chosen_key(kind)] = list(names)


def choose_rows(kind: Kind, table_key: str, names: Sequence[str]) -> None:
    """Choose what is marked in the table."""
    marked = st.session_state[table_key].selection.rows
    choose(kind, [names[index] for index in marked if index < len(names)])


# ---------------------------------------------------------------------------------------------------------- actions


def use(kind: Kind, name: str) -> None:
    """Take a preset into the plan."""
    try:
        _USE[kind.name](name, find(kind, name))
        say(f"The plan uses {name} now.")
    except KvplanError as error:
        say(f"{name} cannot be used: {error}")


def _use_model(name: str, _: Any) -> None:
    st.session_state["model"] = name
    st.session_state["heads"] = AS_TRAINED


def _use_gpu(name: str, _: Any) -> None:
    st.session_state["gpu"] = name


def _use_node(_: str, node: Any) -> None:
    st.session_state.update({"gpu": node.gpu, "tp": str(node.num_gpus), "pp": 1, "dp": 1})


def _use_scenario(_: str, preset: Any) -> None:
    take_scenario(scenario_of(preset, find_model, find_gpu))


_USE: dict[str, Callable[[str, Any], None]] = {
    MODEL.name: _use_model, GPU.name: _use_gpu, NODE.name: _use_node, SCENARIO.name: _use_scenario,
}  # fmt: skip


def keep_here(preset: Preset) -> None:
    """Keep a preset in this session and choose it."""
    name = keep(preset)
    choose(kind_of(preset), [name])
    say(f"{name} is kept in this session; nobody else sees it.")


def keep_many(presets: Sequence[Preset]) -> None:
    """Keep uploaded presets in this session."""
    try:
        names = keep_all(presets)
        say(f"Kept in this session: {', '.join(names)}.")
    except KvplanError as error:
        say(str(error))


def save_now(preset: Preset, seen: str | None) -> None:
    """Save a preset into the library of the server and choose it."""
    kind = kind_of(preset)
    try:
        save(preset, seen)
    except KvplanError as error:
        say(f"Not saved: {error}")
        return
    stop_editing(kind, preset.id)
    choose(kind, [preset.id])
    say(f"{preset.id} is saved in the library of this server: every visitor sees it.")


def save_many(presets: Sequence[Preset], seen: Mapping[tuple[str, str], str | None]) -> None:
    """Save uploaded presets into the library of the server."""
    done = save_all(presets, seen)
    if done.paths:
        say(f"Saved in the library of this server: {', '.join(path.stem for path in done.paths)}.")
    for trouble in done.troubles:
        say(f"Not saved: {trouble}")


def bring_back(kind: Kind, name: str, seen: str | None) -> None:
    """Save the version before again; the one that it replaces is kept in its place."""
    before = load_previous(kind, name)
    if before is None:
        say(f"The version of {name} before this one cannot be read any more.")
    else:
        save_now(before, seen)


# ---------------------------------------------------------------------------------------------------------- editing


def edit_key(kind: Kind, name: str) -> str:
    """The key of the switch that opens a preset for editing."""
    return f"edit_{kind.folder}_{name}"


def text_key(kind: Kind, name: str) -> str:
    """The key of a preset's text while it is edited."""
    return f"text_{kind.folder}_{name}"


def _seen_key(kind: Kind, name: str) -> str:
    return f"seen_{kind.folder}_{name}"


def start_editing(kind: Kind, name: str) -> None:
    """Put the file's text into the text area, and note which version of it that is."""
    try:
        st.session_state[text_key(kind, name)] = text_of(kind, name)
        st.session_state[_seen_key(kind, name)] = None if name in own(kind) else version(kind, name)
    except KvplanError as error:
        say(str(error))


def stop_editing(kind: Kind, name: str) -> None:
    """Show the file again in place of the text area."""
    for key in (edit_key(kind, name), text_key(kind, name), _seen_key(kind, name)):
        st.session_state.pop(key, None)


def seen_when_opened(kind: Kind, name: str) -> str | None:
    """The version of the file that is being edited."""
    seen: str | None = st.session_state.get(_seen_key(kind, name))
    return seen


def text_of(kind: Kind, name: str) -> str:
    """A preset as the text of its file. Raises KvplanError where there is none."""
    mine = own(kind).get(name)
    return stored_text(kind, name) if mine is None else file_text(mine)


def library_id(name: str) -> str:
    """The id that a preset of the session gets in the library, where the visitor gives no other."""
    return name.removeprefix(OWN)


# ---------------------------------------------------------------------------------------------------------- uploads


@st.cache_resource(max_entries=8, show_spinner="Reading the files")
def read_uploads(files: tuple[tuple[str, bytes], ...]) -> ZipContents:
    """The presets in uploaded files, read once; of two with one id the first counts. Nothing is written anywhere."""
    parts = [read_upload(data, name) for name, data in files[:MAX_UPLOADS]]
    found: dict[tuple[str, str], Preset] = {}
    troubles = [trouble for part in parts for trouble in part.troubles]
    for preset in (preset for part in parts for preset in part.presets):
        key = kind_of(preset).name, preset.id
        if found.setdefault(key, preset) != preset:
            troubles.append(f"the {key[0]} {key[1]} stands in the upload twice; the first is taken")
    if len(files) > MAX_UPLOADS:
        troubles.append(
            f"only the first {MAX_UPLOADS} of {counted_and(len(files), 'file', 'were')} read; send more as a zip"
        )
    return ZipContents(tuple(found.values()), tuple(troubles))


# ---------------------------------------------------------------------------------------------------------- downloads


def zip_of(names: Iterable[tuple[Kind, str]]) -> bytes:
    """Presets as one zip; what cannot be read is left out."""
    return export_zip(readable(names, lambda wanted: find(*wanted)).presets)
