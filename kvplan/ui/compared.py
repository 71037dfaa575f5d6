"""The scenarios that stand beside the sidebar's own on the Compare page."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from kvplan.plan import Scenario
from kvplan.share import MAX_COMPARED

_COMPARED = "compared"


def compared() -> tuple[Scenario, ...]:
    """B, C and D, as far as they are chosen."""
    found: tuple[Scenario, ...] = st.session_state.get(_COMPARED, ())
    return found


def keep_compared(scenarios: Iterable[Scenario]) -> None:
    """Put scenarios beside the sidebar's own, in the place of those that stood there."""
    st.session_state[_COMPARED] = tuple(scenarios)[: MAX_COMPARED - 1]


def add_compared(scenario: Scenario) -> None:
    """Put one more scenario beside the sidebar's own."""
    keep_compared((*compared(), scenario))


def room() -> int:
    """How many more can be added."""
    return MAX_COMPARED - 1 - len(compared())
