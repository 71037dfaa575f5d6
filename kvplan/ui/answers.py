"""The part of a page that answers for the scenario, drawn by itself where no other part would look different.

Most changes of the scenario alter one number of the sidebar, which the browser shows already. Drawing the sidebar anew
would cost as much as the answer: a third of the server's work, and time of the browser before the figure is seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvplan.plan import Scenario
from kvplan.ui.address import ENGINE, is_trouble_pending
from kvplan.ui.fields import FIELDS, Field
from kvplan.ui.scenario import PageEnds, current_or_stop, fault, held
from kvplan.ui.words import unit

ANSWER, ADDRESS = "answer", "address"
"""Names of the fragments of a run that a change of the scenario alters in any case."""

QUIET = frozenset(
    {"ctx", "batch", "kv", "weights", "heads", "ep", "fraction", "overhead", "images", "prefix", "adapters", "draft"}
)
"""Fields whose change makes nothing else in the sidebar look different, unless something is wrong."""

ANSWERED, _SHOWN = "page_with_an_answer", "shown_in_the_sidebar"
"""The page that shows an answer, and what its sidebar shows."""


def begin_run() -> None:
    """At the start of a run of the whole script."""
    st.session_state.update({ANSWERED: None, _SHOWN: None})


def sidebar_shown(is_sound: bool) -> None:
    """After the sidebar: what it shows, unless it says that something is wrong, which a later run has to take back."""
    st.session_state[_SHOWN] = _held() if is_sound else None


def end_run(is_passing: bool) -> None:
    """At the end of a run of the whole script.

    is_passing  whether it shows something that must be gone after the next change
    """
    if is_passing:
        st.session_state[_SHOWN] = None


def _is_part() -> bool:
    """Whether this run draws fragments alone."""
    run = get_script_run_ctx()
    return run is not None and bool(run.fragment_ids_this_run)


def _page() -> str | None:
    """The page that this run is for, as Streamlit names it."""
    run = get_script_run_ctx()
    return run.page_script_hash if run is not None else None


def _held() -> dict[str, Any]:
    """What the sidebar's widgets hold, and what only a link says beside them."""
    fields = {key: held(field) for key, field in FIELDS.items()}
    return {**fields, "unit": unit(), ENGINE: st.session_state.get(ENGINE)}


def when_changed(field: Field) -> dict[str, Any]:
    """What the widget of a field does after a change, as arguments of the widget."""
    return {"on_change": answer_alone, "args": (field.key,)} if field.key in QUIET else {}


def answer_alone(key: str) -> None:
    """After a change of the widget `key`: run nothing but the answer and the address, where that is enough.

    It is not where the change comes with another page: a browser that is a step behind tells of the widget's last value
    when it asks for the next page.
    """
    shown = st.session_state.get(_SHOWN)
    if shown is not None and st.session_state.get(ANSWERED) == _page() and fault() is None:
        shown[key] = st.session_state[key]
        st.rerun([ANSWER, ADDRESS])


def show_answer(draw: Callable[[Scenario], None]) -> None:
    """Show what a page answers: `draw` with the scenario, or why there is none.

    What a control of the answer writes into the sidebar is seen after a whole run, which then begins by itself.
    """
    st.session_state[ANSWERED] = _page()
    _show(draw)


@st.fragment(key=ANSWER)
def _show(draw: Callable[[Scenario], None]) -> None:
    if _is_part() and (st.session_state[_SHOWN] != _held() or is_trouble_pending()):
        st.rerun()
    with contextlib.suppress(PageEnds):
        draw(current_or_stop())
