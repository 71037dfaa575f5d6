"""What all screens of the lab share: predictions before a reveal, numbers with their formulas, long work.

Text of this package may be Markdown; whatever a visitor typed, and every error, goes through `st.text`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import streamlit as st

from kvplan.ui import figures

Result = TypeVar("Result")

ALL_SHOWN = "lab_all_shown"
WAIT_SECONDS = 0.5
LARGE_LETTERS = """<style>
.st-key-lab_room p, .st-key-lab_room [data-testid=stText] { font-size: 1.125rem; }
.st-key-lab_room [data-testid=stMetricValue] p { font-size: 1.75rem; font-weight: 600; }
</style>"""


class Measure(NamedTuple):
    """A number, and the formula or the place that it comes from."""

    label: str
    value: str
    formula: str


class Prediction(NamedTuple):
    """A question that is asked before the answer is shown; every option is a sentence of this package."""

    key: str
    question: str
    options: Sequence[str]


def heading(word: str) -> None:
    """See, Do, Predict or Check."""
    st.subheader(word, divider="gray", anchor=False)


def show_measures(measures: Iterable[Measure]) -> None:
    """Numbers side by side, each with its formula below; they wrap on a narrow screen."""
    with st.container(horizontal=True, gap="small"):
        for measure in measures:
            with st.container(border=True, width=232, gap="small"):
                st.metric(measure.label, measure.value)
                st.text(measure.formula)


def show_chart(figure: dict[str, Any], alt: str, key: str) -> None:
    """A figure of the lab with its text alternative."""
    figures.show_chart(figure, alt, key)


def show_verdict(is_good: bool, good: str, bad: str) -> None:
    """Passed or failed, in words of this package beside the colour."""
    if is_good:
        st.success(good, icon=":material/check_circle:")
    else:
        st.error(bad, icon=":material/cancel:")


def ask(prediction: Prediction, subject: object) -> bool:
    """Ask for a prediction; True once its answer may be shown for this subject. Nothing has to be predicted."""
    st.radio(prediction.question, list(prediction.options), index=None, key=_choice_key(prediction, subject))
    if is_shown(prediction, subject):
        return True
    st.button(
        "Show the answer", key=f"{prediction.key}_show", type="primary", on_click=_reveal, args=(prediction, subject)
    )
    return False


def is_shown(prediction: Prediction, subject: object) -> bool:
    """Whether the answer may be shown: it was asked for, or all answers were."""
    return bool(st.session_state.get(ALL_SHOWN)) or st.session_state.get(f"{prediction.key}_shown") == str(subject)


def settle(prediction: Prediction, subject: object, answer: str) -> None:
    """Say what it is, and whether that was predicted; a wrong prediction is a reason to look, and nothing else."""
    guess = st.session_state.get(_choice_key(prediction, subject))
    if guess is None:
        st.info(f"It is: {answer}", icon=":material/visibility:")
    elif guess == answer:
        st.success(f"As you predicted: {answer}", icon=":material/check_circle:")
    else:
        st.warning(f"You predicted: {guess}. It is: {answer}", icon=":material/search:")


def _choice_key(prediction: Prediction, subject: object) -> str:
    return f"{prediction.key}_guess_{subject}"


def _reveal(prediction: Prediction, subject: object) -> None:
    st.session_state[f"{prediction.key}_shown"] = str(subject)


def long_work(
    key: str, label: str, settings: object, work: Callable[[Callable[[float], None]], Result]
) -> Result | None:
    """A button that starts `work`, with its progress and a way to stop it; the result, once these settings have one.

    work  is given a function to tell the fraction done; a press of Stop, as of any other widget, ends it there
    """
    kept = st.session_state.get(f"{key}_result")
    if st.button(label, key=f"{key}_start", type="primary"):
        st.button("Stop", key=f"{key}_stop")
        st.caption("Stop ends it, and so does a press of anything else.")
        bar = st.progress(0, "0 % done")
        with _in_turn(bar):
            st.session_state[f"{key}_result"] = (str(settings), work(_teller(bar)))
        st.rerun()
    return kept[1] if kept is not None and kept[0] == str(settings) else None


_turn = threading.Lock()
"""Held by the visitor whose work runs: one at a time, so that the pages of all others stay quick."""


@contextmanager
def _in_turn(bar: Any) -> Iterator[None]:
    """Wait until nobody else's work runs; a press of Stop ends the wait too: each word to the page looks for it."""
    while not _turn.acquire(timeout=WAIT_SECONDS):
        bar.progress(0, "Waiting for another visitor's run to end")
    try:
        yield
    finally:
        _turn.release()


def _teller(bar: Any) -> Callable[[float], None]:
    """Passes whole percents on, each once: that is where Streamlit can stop a run."""
    told = [0]

    def tell(fraction: float) -> None:
        percent = int(100 * fraction)
        if percent > told[0]:
            told[0] = percent
            bar.progress(percent, f"{percent} % done")

    return tell
