"""The address: a versioned link is read once, when a session starts, and what of it was not used is said once.

Each widget of the scenario is bound to the address under its field's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.plan import Scenario
from kvplan.share import LINK_KEYS, open_fields
from kvplan.ui.fields import FIELDS, widget_values
from kvplan.ui.library import known_gpu, known_model

_STARTED, _ADDRESS, _TROUBLE = "started", "address", "link_trouble"
PAGE_KEYS = frozenset(
    {"q", "browse", "define", "compare", "compare_gpus", "filter", "kind", "unit", "engine_view", "engine_version"}
)
"""Keys of pages that may stand in an address beside a link's."""

ENGINE = "engine"
"""Key of the engine, whose widget stands on a page of its own; no byte of a plan depends on it."""

BIND: Any = "query-params"


def say_once(trouble: str) -> None:
    """Have a sentence shown above the next page."""
    st.session_state[_TROUBLE] = trouble


def read_address() -> None:
    """Once a session: take a versioned link as the scenario, and remember what the address said."""
    if st.session_state.get(_STARTED):
        return
    st.session_state[_STARTED] = True
    given = st.query_params.to_dict()
    if "v" in given:
        _take_link(given)
        st.rerun()  # else the widgets would take their first values from the link again, damaged ones too
    else:
        st.session_state[_ADDRESS] = {key: text for key, text in given.items() if key in FIELDS}


def _take_link(given: Mapping[str, str]) -> None:
    """Open what the link describes; what could not be used is said once."""
    for key in LINK_KEYS:
        st.query_params.pop(key, None)
    pages = {key: text for key, text in given.items() if key in LINK_KEYS or key not in PAGE_KEYS}
    opened = open_fields(pages, _stand_in())
    if opened.scenario is not None:
        take_scenario(opened.scenario)
        st.query_params.update(_shown_in_address())
    if opened.sentence:
        st.session_state[_TROUBLE] = opened.sentence


def _stand_in() -> Scenario | None:
    """What stands in for a model or GPU that a link cannot give; None where the library has no such presets."""
    try:
        return Scenario(FIELDS["model"].default, FIELDS["gpu"].default)
    except KvplanError:
        return None


def _shown_in_address() -> dict[str, str]:
    """What the address holds of the widgets' values: all but the defaults, as the widgets themselves keep it."""
    values = {key: st.session_state[key] for key in FIELDS}
    return {key: str(value) for key, value in values.items() if value != FIELDS[key].default}


def take_scenario(scenario: Scenario) -> None:
    """Write a scenario into the widgets; to be called before they are shown, so from a callback."""
    settings = {field.setting: getattr(scenario, field.setting) for field in FIELDS.values()}
    draft = scenario.draft_model
    things = {
        "model": known_model(scenario.model),
        "gpu": known_gpu(scenario.gpu),
        "draft_model": None if draft is None else known_model(draft),
    }
    st.session_state.update(widget_values({**settings, **things}))
    if scenario.engine is not None:
        st.session_state[ENGINE] = scenario.engine


def _stands(key: str, text: str) -> bool:
    """Whether a widget holds what the address said, however its number was written: 1 and 1.0, 8 and 08."""
    value = str(st.session_state.get(key))
    try:
        return value == text or float(value) == float(text)
    except ValueError:
        return False


def show_address_trouble() -> None:
    """Say once what of a link or an address was not used."""
    trouble = st.session_state.pop(_TROUBLE, None)
    if trouble is not None:
        st.warning("Not everything could be used", icon=":material/warning:")
        st.text(trouble)
    asked = st.session_state.pop(_ADDRESS, {})
    unused = [f"{key}={text}" for key, text in asked.items() if not _stands(key, text)]
    if unused:
        st.warning(
            "A part of the address was not understood, and the usual value stands instead.", icon=":material/warning:"
        )
        st.text(", ".join(unused)[:300])
