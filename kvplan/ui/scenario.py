"""The one scenario that all pages share, as the widgets of the sidebar hold it, and what is wrong with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.plan import Scenario
from kvplan.ui.address import ENGINE
from kvplan.ui.fields import FIELDS, NO_DRAFT, Field
from kvplan.ui.library import find_gpu, find_model
from kvplan.ui.words import show_error

MORE, FORGOTTEN = "More settings", "Easily forgotten"
FOLDED = {
    **dict.fromkeys(("dp", "ep", "fraction", "overhead"), MORE),
    **dict.fromkeys(("images", "prefix", "draft", "adapters"), FORGOTTEN),
}
"""The button under which a field is found, for those that are not in sight."""


def held(field: Field) -> Any:
    """What the widget of a field holds; one that nobody has touched may not be told of yet, and holds its default."""
    return st.session_state.get(field.key, field.default)


def current() -> Scenario:
    """The scenario that the widgets describe. Raises KvplanError."""
    settings = {field.setting: field.read(held(field)) for field in FIELDS.values()}
    draft = settings.pop("draft_model")
    return Scenario(
        find_model(settings.pop("model")),
        find_gpu(settings.pop("gpu")),
        draft_model=None if draft == NO_DRAFT else find_model(draft),
        engine=st.session_state.get(ENGINE),
        **settings,
    )


class PageEnds(Exception):  # noqa: N818  # nothing is wrong with the app
    """A page has said why it cannot go on. `st.stop` would keep the sidebar from being shown after it."""


def current_or_stop() -> Scenario:
    """The scenario, or the page ends here with the reason and the place to change it."""
    try:
        return current()
    except KvplanError as error:
        show_error(error)
        found = fault()
        st.caption("Change it in the sidebar" + (f": {where(found.key)}." if found and found.key else "."))
        raise PageEnds from None


def where(key: str) -> str:
    """A field by its label, and the button under which it is found."""
    label = FIELDS[key].label
    return f"{label}, under {FOLDED[key]}" if key in FOLDED else label


class Fault(NamedTuple):
    """Something wrong with the scenario, and the key of the field that it belongs to, where one is named."""

    key: str | None
    error: KvplanError


def fault() -> Fault | None:
    """The first thing wrong with the scenario."""
    for key, field in FIELDS.items():
        try:
            field.read(held(field))
        except KvplanError as error:
            return Fault(key, error)
    try:
        current()
    except KvplanError as error:
        return Fault(_named(str(error)), error)
    return None


def _named(message: str) -> str | None:
    """The field that a message names; a long name says more than "model" does."""
    by_length = sorted(FIELDS.values(), key=lambda field: -len(field.setting))
    return next((field.key for field in by_length if _names(message, field.setting)), None)


def _names(message: str, setting: str) -> bool:
    return setting in message or setting.replace("_", " ") in message
