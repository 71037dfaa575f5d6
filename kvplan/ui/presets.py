"""Library: presets of models, GPUs and scenarios to browse, compare, edit, share as files, and save for the team.

Whatever comes from a file is shown as plain text, in tables or as code; nothing of it is rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pandas as pd
import streamlit as st

from kvplan.check import Checked, check_text
from kvplan.errors import KvplanError
from kvplan.library import (
    GPU,
    KINDS,
    MAX_PRESET_BYTES,
    MAX_ZIP_FILES,
    MODEL,
    NODE,
    SCENARIO,
    SERVER,
    SHIPS,
    Entry,
    Kind,
    Preset,
    Standing,
    changed_fields,
    differences,
    entry,
    file_text,
    id_from,
    kind_of,
    load_previous,
    scenario_preset,
    shipped_preset,
    standing,
    version,
    why_nothing_is_saved,
)
from kvplan.names import preset_id
from kvplan.schema import all_schemas, schema_file
from kvplan.ui import shelf, words
from kvplan.ui.address import BIND
from kvplan.ui.library import find, own
from kvplan.ui.scenario import current
from kvplan.units import counted, counted_and

SHELVES = {"models": MODEL, "GPUs": GPU, "nodes": NODE, "scenarios": SCENARIO}
MAX_UPLOAD_MEGABYTES = 4
MAX_TROUBLES = 10
TEXT_HEIGHT, ROW_HEIGHT = 460, 34
MAX_COMPARED = 2
MAX_ROWS = 8
"""Rows of the list that stand on the page without scrolling in it."""


USED: dict[str, str] = {
    MODEL.name: "The model of the plan becomes this one, with the KV heads that it was trained with.",
    GPU.name: "The GPU of the plan becomes this one.",
    NODE.name: "The plan takes the GPUs of this node, all of them sharing every layer.",
    SCENARIO.name: "Every setting of the plan becomes that of this scenario.",
}
EDITORS = "\n".join(
    f'[[rule]]\ninclude = ["{kind.folder}/*.toml"]\nschema = {{ path = "./{schema_file(kind)}" }}\n'
    for kind in KINDS.values()
)
"""What .taplo.toml says, so that an editor finds the schema of each file."""


# ----------------------------------------------------------------------------------------------------------- browse


def browse(kind: Kind) -> list[str]:
    """The list of a kind with its filters. Returns the ids that are chosen."""
    rows = shelf.rows_of(kind)
    with st.container(horizontal=True):
        text = st.text_input(
            "Filter", key="find", placeholder="words in any column", max_chars=100, bind=BIND, width=260
        )
        origin = st.selectbox(
            "From", [SHIPS, SERVER, shelf.SESSION], None, key="from", bind=BIND, width=200, placeholder="anywhere"
        )
    shown = shelf.narrowed(rows, text or "", origin)
    names = [row.id for row in shown]
    columns = [name for name in shelf.COLUMNS if name != "note" or any(row.note for row in shown)]
    table_key = f"shelf_{kind.folder}_{text}_{origin}_{len(rows)}_{shelf.turn()}"
    words.leave_room()
    st.dataframe(
        shelf.table_of(shown), hide_index=True, key=table_key, height=_height(len(shown)), row_height=ROW_HEIGHT,
        on_select=lambda: shelf.choose_rows(kind, table_key, names), selection_mode="multi-row",
        column_order=columns, column_config={"source": st.column_config.TextColumn(width="medium")},
        alt=f"All {kind.folder}",
    )  # fmt: skip
    st.caption(f"{len(shown):,} of {len(rows):,}. A click on a head sorts; marking rows chooses them.")
    say_broken(rows)
    return ask_chosen(kind, [row.id for row in rows])


def _height(rows: int) -> Any:
    return "content" if rows <= MAX_ROWS else ROW_HEIGHT * (MAX_ROWS + 1)


def say_broken(rows: Sequence[shelf.Row]) -> None:
    broken = [row for row in rows if row.note.startswith("cannot be read")]
    if broken:
        st.warning("Files that cannot be read are left out everywhere else", icon=":material/warning:")
        for row in broken[:MAX_TROUBLES]:
            st.text(row.note.removeprefix("cannot be read: "))


def ask_chosen(kind: Kind, names: list[str]) -> list[str]:
    key = shelf.chosen_key(kind)
    if key in st.session_state:  # someone else may have taken a file away
        st.session_state[key] = [name for name in st.session_state[key] if name in names]
    label = next(label for label, each in SHELVES.items() if each is kind)
    return st.multiselect(
        f"Chosen {label}", names, key=key, bind=BIND, select_all=False, filter_mode="contains",
        placeholder="one to read, two to compare, any to download",
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- one


def show_one(kind: Kind, name: str) -> None:
    """One preset: where it comes from, what can be done with it, its notes, and its file."""
    st.subheader(name, anchor=False)
    try:
        preset = find(kind, name)
    except KvplanError as error:
        words.show_error(error, "This file cannot be read")
        preset = None
    else:
        st.text(preset.name)
    offer_actions(kind, name, preset)
    show_origin(kind, name, preset)
    show_file(kind, name, preset)


def show_origin(kind: Kind, name: str, preset: Any) -> None:
    """Where it comes from, its source and its notes."""
    if preset is None:
        return
    if name in own(kind):
        st.text("Kept in this session: nobody else sees it, and it goes when the session ends.")
    else:
        say_place(kind, entry(kind, name), preset)
    words_of = (getattr(preset, "lesson", ""), *getattr(preset, "notes", ()))
    sources = (getattr(preset, "source", ""), *getattr(preset, "sources", ()))
    st.text("\n".join([*filter(None, words_of), *(f"Source: {text}" for text in sources if text)]))


def say_place(kind: Kind, found: Entry, preset: Any) -> None:
    """Shipped, or this server's own; one in place of a shipped preset says what differs."""
    if not found.replaces:
        st.text("Shipped with kvplan." if found.origin == SHIPS else "In the library of this server.")
        return
    shipped = shipped_preset(kind, found.id)
    changes = () if shipped is None else changed_fields(shipped, preset)
    st.text("In the library of this server, in place of the shipped preset of the same id.")
    st.text("; ".join(f"shipped {text}" for text in changes) or "It says the same as the shipped one.")


def offer_actions(kind: Kind, name: str, preset: Any) -> None:
    with st.container(horizontal=True):
        if preset is not None:
            offer_use(kind, name)
            offer_file(kind, name)
            offer_copy(name, preset)
            if kind is MODEL:
                offer_form("Edit its sizes", {"define": "a model", "start": name})
            if kind is GPU:
                offer_form("Edit its figures", {"define": "a GPU", "start_gpu": name})
        if name not in own(kind):
            offer_previous(kind, name, preset)


def offer_form(label: str, address: dict[str, str]) -> None:
    """A link to the form of Define your own, filled in from a preset."""
    st.page_link("kvplan/ui/define.py", label=label, query_params=address)


def offer_use(kind: Kind, name: str) -> None:
    with st.popover("Use in the plan", key=f"ask_use_{shelf.turn()}"):
        st.text(USED[kind.name])
        st.button("Use it", key="use_preset", type="primary", on_click=shelf.use, args=(kind, name))


def offer_file(kind: Kind, name: str) -> None:
    words.offer("Download the file", f"{name}.toml", "text/plain", lambda: shelf.text_of(kind, name), "get_preset")


def offer_copy(name: str, preset: Any) -> None:
    """A copy under another name: into the session, or into the library."""
    with st.popover("Duplicate", key=f"ask_copy_{shelf.turn()}"):
        given = st.text_input("Name of the copy", f"{preset.name[:70]} copy", key=f"copy_name_{name}", max_chars=80)
        try:
            copy = replace(preset, name=given.strip(), id="")
            file_text(copy)  # which reads it back, the name too
        except KvplanError as error:
            st.text(str(error))
            return
        st.button("Keep in this session", key="copy_keep", on_click=shelf.keep_here, args=(copy,))
        offer_save(copy, f"copy_{name}", f"{shelf.library_id(name)[:70]}-copy")


def offer_previous(kind: Kind, name: str, preset: Any) -> None:
    """The version before, where one is kept and this server saves."""
    before = None if why_nothing_is_saved() else load_previous(kind, name)
    if before is None:
        return
    with st.popover("Bring back the previous version", key=f"ask_back_{shelf.turn()}"):
        show_changes(() if preset is None else changed_fields(preset, before))
        seen = version(kind, name)
        st.button("Bring it back", key="bring_back", on_click=shelf.bring_back, args=(kind, name, seen))


def show_changes(changes: Sequence[str]) -> None:
    """What a save would change, a line each."""
    more = len(changes) - MAX_TROUBLES
    lines = [*changes[:MAX_TROUBLES], *([f"and {more} more fields"] if more > 0 else [])]
    if lines:
        st.text("\n".join(lines))


# ------------------------------------------------------------------------------------------------------------- text


def show_file(kind: Kind, name: str, preset: Any) -> None:
    """The file as it stands, or the text area and beside it what is wrong with it."""
    editing = st.toggle(
        "Edit the file", key=shelf.edit_key(kind, name), on_change=shelf.start_editing, args=(kind, name),
        persist_state="session",
    )  # fmt: skip
    if editing and shelf.text_key(kind, name) in st.session_state:
        edit(kind, name, preset)
        return
    try:
        st.code(shelf.text_of(kind, name), language=None, wrap_lines=True, height=TEXT_HEIGHT)
    except KvplanError as error:
        words.show_error(error, "There is no text to show")


def edit(kind: Kind, name: str, preset: Any) -> None:
    left, right = st.columns([3, 2], gap="medium")
    with left:
        text = st.text_area(
            f"{name}.toml", key=shelf.text_key(kind, name), height=TEXT_HEIGHT, max_chars=MAX_PRESET_BYTES,
            persist_state="session",
            help="Ctrl+Enter reads it. Comments are not kept when it is saved.",
        )  # fmt: skip
    with right:
        verdict(kind, name, preset, check_text(text or "", f"{name}.toml", kind))
        st.button("Start again from the file", key="edit_again", on_click=shelf.start_editing, args=(kind, name))


def verdict(kind: Kind, name: str, before: Any, checked: Checked) -> None:
    """What is wrong with the text and on which line; or what it changes, and where it can be kept."""
    if checked.problem is not None:
        st.error(f"Line {checked.problem.line}", icon=":material/error:")
        st.text(checked.problem.text)
    elif checked.preset is not None:
        changes = () if before is None else changed_fields(before, checked.preset)
        st.success("Read without a fault", icon=":material/check:")
        show_changes(changes or ("It says the same as before.",))
        st.button("Keep in this session", key="edit_keep", on_click=shelf.keep_here, args=(checked.preset,))
        opened = {} if name in own(kind) else {name: shelf.seen_when_opened(kind, name)}
        offer_save(checked.preset, f"edit_{name}", shelf.library_id(name), opened, changes)


# ------------------------------------------------------------------------------------------------------------- save


def offer_save(
    preset: Preset,
    key: str,
    suggested: str,
    opened: Mapping[str, str | None] = MappingProxyType({}),
    shown: Sequence[str] = (),
) -> None:
    """A save into the server's library under an id; one that stands there is named with what would change.

    opened  the version of the file that the visitor has open, by its id
    shown   changes that stand on the page already
    """
    if reason := why_nothing_is_saved():
        st.text(f"Nothing is saved here: {reason}. Download the file instead.")
        return
    given = st.text_input("Id in the library", suggested, key=f"id_{key}", max_chars=80)
    try:
        named = replace(preset, id=preset_id(given.strip()))
        found = standing(named)
    except KvplanError as error:
        st.text(str(error))
        return
    if named.id in opened:
        found = found._replace(seen=opened[named.id])
    offer_standing(named, found, key, shown)


def offer_standing(preset: Preset, found: Standing, key: str, shown: Sequence[str]) -> None:
    """The button that fits: save what is new, replace what exists, nothing where it is the same."""
    if found.is_same:
        st.text(f"The library has exactly this as {preset.id}.")
        return
    label = "Save into the library"
    if not found.is_new:
        label = "Replace it in the library"
        st.text(f"{preset.id} is in the library. A save replaces it, and keeps it as the previous version.")
        show_changes(() if found.changes == tuple(shown) else found.changes)
    st.button(label, key=f"save_{key}", on_click=shelf.save_now, args=(preset, found.seen))


def make_scenario() -> None:
    """The plan as it stands in the sidebar, as a scenario preset."""
    name = st.text_input("Name", key="scenario_name", max_chars=80, placeholder="such as Chat at night")
    lesson = st.text_input("What it shows", key="scenario_lesson", max_chars=500)
    if not name.strip():
        st.text("A scenario holds every setting of the plan, and names its model and GPU by their ids.")
        return
    try:
        preset = scenario_preset(current(), name.strip(), lesson.strip(), id_from(name))
        file_text(preset)  # which reads it back
    except KvplanError as error:
        words.show_error(error, "Not possible")
        return
    st.button("Keep in this session", key="scenario_keep", on_click=shelf.keep_here, args=(preset,))
    offer_save(preset, "scenario", preset.id)


# ---------------------------------------------------------------------------------------------------------- compare


def compare(kind: Kind, names: list[str]) -> None:
    st.subheader("What differs", anchor=False)
    try:
        one, other = (find(kind, name) for name in names)
    except KvplanError as error:
        words.show_error(error, "These cannot be compared")
        return
    rows = differences(one, other)
    if rows:
        words.show_table(pd.DataFrame(rows, columns=["field", *names]), "Fields that differ", "compare")
    else:
        st.text(f"{names[0]} and {names[1]} say the same.")


# ---------------------------------------------------------------------------------------------------------- files in


def add_files() -> None:
    """Uploads: what is in them, how each stands to the library, and where the chosen ones go."""
    uploaded = st.file_uploader(
        "Preset files (.toml), a config.json, or a zip of them", ["toml", "json", "zip"], key="library_files",
        accept_multiple_files=True, max_upload_size=MAX_UPLOAD_MEGABYTES,
    )  # fmt: skip
    if not uploaded:
        st.text("Nothing of a file is executed, and nothing is written until you say so.")
        return
    if (total := sum(file.size for file in uploaded)) > shelf.MAX_UPLOADED_BYTES:
        st.error("Too much at once", icon=":material/error:")
        st.text(f"These files have {counted(total, 'byte')}; up to {shelf.MAX_UPLOADED_BYTES:,} are read together.")
        return
    contents = shelf.read_uploads(tuple((file.name, file.getvalue()) for file in uploaded))
    if contents.troubles:
        st.warning("Left out", icon=":material/warning:")
        for trouble in contents.troubles[: MAX_TROUBLES + 1]:
            st.text(trouble)
    if contents.presets:
        take_files(contents.presets)


def take_files(presets: Sequence[Preset]) -> None:
    stands = {label_of(preset): standing(preset) for preset in presets}
    rows = [(kind_of(item).name, item.id, item.name, stand_words(stands[label_of(item)])) for item in presets]
    words.show_facts(rows, ("kind", "id", "name", "in the library"), "Presets in the files", "upload_table")
    labels = list(stands)
    key = f"take_{abs(hash(tuple(labels)))}"
    taken = st.multiselect("Take", labels, labels, key=key, select_all=False)
    chosen = [preset for preset in presets if label_of(preset) in taken]
    with st.container(horizontal=True):
        st.button(
            "Keep in this session", key="upload_keep", on_click=shelf.keep_many, args=(chosen,), disabled=not chosen
        )
        save_files(chosen, stands)


def label_of(preset: Preset) -> str:
    return f"{kind_of(preset).name} {preset.id}"


def stand_words(found: Standing) -> str:
    """How an uploaded preset stands to the library."""
    if found.is_new:
        return "new"
    return "the same is there" if found.is_same else f"would replace: {'; '.join(found.changes)}"


def save_files(presets: Sequence[Preset], stands: dict[str, Standing]) -> None:
    """New ones are saved; those that would replace something only where that is asked for."""
    if reason := why_nothing_is_saved():
        st.text(f"Nothing is saved here: {reason}.")
        return
    wanted = [preset for preset in presets if not stands[label_of(preset)].is_same]
    replacing = [preset for preset in wanted if not stands[label_of(preset)].is_new]
    seen: dict[tuple[str, str], str | None] = {}
    if replacing and st.checkbox(f"Replace {counted(len(replacing), 'preset')}", key="upload_replace"):
        seen = {(kind_of(item).name, item.id): stands[label_of(item)].seen for item in replacing}
    ready = [item for item in wanted if stands[label_of(item)].is_new or (kind_of(item).name, item.id) in seen]
    st.button(
        "Save into the library", key="upload_save", on_click=shelf.save_many, args=(ready, seen), disabled=not ready
    )


# --------------------------------------------------------------------------------------------------------- files out


def offer_zips(kind: Kind, chosen: list[str]) -> None:
    mine = [(each, name) for each in KINDS.values() for name in own(each)]
    every = [*mine, *((each, name) for each in KINDS.values() for name in each.names() if name not in own(each))]
    with st.container(horizontal=True):
        offer_zip("Chosen as a zip", "chosen", [(kind, name) for name in chosen])
        offer_zip("Yours as a zip", "yours", mine)
        offer_zip("All as a zip", "library", every)


def offer_zip(label: str, name: str, wanted: list[tuple[Kind, str]]) -> None:
    """A download that is made when it is asked for; none where there is nothing, or more than a zip may hold."""
    if len(wanted) > MAX_ZIP_FILES:
        st.text(
            f"{label}: {counted_and(len(wanted), 'preset', 'are')} more than the {MAX_ZIP_FILES:,} that a zip may hold."
        )
    elif wanted:
        st.download_button(
            label, lambda: shelf.zip_of(wanted), f"{name}.zip", "application/zip", key=f"zip_{name}", on_click="ignore"
        )


def offer_schemas() -> None:
    """JSON Schemas, with which an editor completes and checks preset files."""
    st.text(
        "With these an editor completes and checks preset files as you type: put them beside the folders models, gpus, "
        "nodes and scenarios. Even Better TOML and taplo read a first line of the file, or rules in .taplo.toml:"
    )
    st.code("#:schema ../model.schema.json", language=None)
    st.code(EDITORS, language=None)
    with st.container(horizontal=True):
        for file, text in all_schemas().items():
            words.offer(file, file, "application/json", partial(str, text))


# ------------------------------------------------------------------------------------------------------------- page


def show_said() -> None:
    said = shelf.take_said()
    if said:
        st.info("Done" if not any(text.startswith("Not saved") for text in said) else "Not everything was done")
        for text in said:
            st.text(text)


def show_page() -> None:
    """The page below its heading. Raises KvplanError where the library itself cannot be read."""
    label = st.segmented_control("Presets", list(SHELVES), default="models", key="shelf", bind=BIND, required=True)
    kind = SHELVES.get(label or "", MODEL)
    show_said()
    chosen = browse(kind)
    offer_zips(kind, chosen)
    if len(chosen) == 1:
        show_one(kind, chosen[0])
    elif len(chosen) == MAX_COMPARED:
        compare(kind, chosen)
    if kind is SCENARIO:
        with st.expander("Make a scenario of the plan"):
            make_scenario()
    with st.expander("Add files"):
        add_files()
    with st.expander("JSON Schemas for editors"):
        offer_schemas()


st.header("Library", anchor=False)
try:
    show_page()
except KvplanError as trouble:
    words.show_error(trouble, "The library cannot be shown")
