"""Overheads that are known: taken from a log or given by the visitor, whole or in parts."""

from __future__ import annotations

import streamlit as st

from kvplan.engines.overheads import Overhead, measured
from kvplan.plan import Scenario

LOG_OVERHEAD = "log_overhead"
"""Where the session keeps (total, parts) of an overhead whose parts are known; a link carries the total."""


def take_overhead(total: int, parts: tuple[Overhead, ...]) -> None:
    """Give the shared scenario an overhead whose parts are known. Runs before the page does."""
    st.session_state["overhead"] = str(total)
    st.session_state[LOG_OVERHEAD] = (total, parts)


def known_overheads(scenario: Scenario, engine: str) -> tuple[Overhead, ...]:
    """The sidebar's overhead, in the parts that it was taken from; nothing where it is an estimate.

    Undivided it says nothing of SGLang's pool: most of it lies outside the fraction that holds weights and pool.
    """
    if scenario.overhead_bytes is None:
        return ()
    total, parts = st.session_state.get(LOG_OVERHEAD, (None, ()))
    if total == scenario.overhead_bytes:
        return tuple(parts)
    return () if engine == "sglang" else (measured("other", scenario.overhead_bytes, "given in the sidebar"),)
