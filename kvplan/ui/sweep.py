"""Sweep: one question at a time, each with its answer in words, a figure, and the table behind it, also as CSV."""

from __future__ import annotations

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.plan import Scenario
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.answers import show_answer
from kvplan.ui.axes import LABELS
from kvplan.ui.fields import SETTING_LABELS
from kvplan.ui.questions import crossover, fits, gpus, heads, pair

FITS = "What fits?"
QUESTIONS = {
    "When does the cache pass the weights?": crossover.ask,
    FITS: fits.ask,
    "What would more or fewer KV heads cost?": heads.ask,
    "Which GPU?": gpus.ask,
    "What do two settings do together?": pair.ask,
}


def show(scenario: Scenario) -> None:
    """The question, and its answer."""
    st.text(words.about(scenario))
    chosen = st.radio("Question", list(QUESTIONS), index=1, key="q", bind=BIND, horizontal=True)
    try:
        QUESTIONS[chosen or FITS](scenario)
    except KvplanError as error:
        words.show_error(error, labels={**SETTING_LABELS, **LABELS})


show_answer(show)
