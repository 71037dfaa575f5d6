"""Screen 4: a hidden fault, two grids of differences, and its name to be found; or a fault of one's own choice."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvplan import lab, lab_charts
from kvplan.lab.fingerprint import CLEAN, SMALL
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.parts import Measure, Prediction, ask, heading, settle, show_chart, show_measures
from kvplan.ui.words import show_table

HIDDEN = "hidden, to be named"
PROMPT, NEW_TOKENS = [1, 2, 3, 4], 8


def show() -> None:
    """The whole screen."""
    st.text("Layer by layer and token by token: how far are the cached keys and values from recomputed ones?")
    riddle, planted = _ask_what()
    model = lab.TinyDecoder(num_layers=3, head_dim=8, dtype="float64", seed=riddle)
    st.text(
        f"3 layers, 4 query heads, 2 KV heads, head_dim 8, rotary positions, float64, seed {riddle}; prompt "
        f"{' '.join(map(str, PROMPT))}, {NEW_TOKENS} decode steps."
    )
    if planted is None:
        _show_riddle(lab.mystery(riddle, model, PROMPT, NEW_TOKENS))
    else:
        found = lab.fingerprint(model, PROMPT, NEW_TOKENS, planted)
        _show_grids(found)
        _show_check(found, lab.FAULTS[planted])
    with st.expander("How to read a fingerprint", expanded=True):
        _show_rules()


def _ask_what() -> tuple[int, str | None]:
    names = {fault.title: name for name, fault in lab.FAULTS.items()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        riddle = st.number_input("Riddle", 0, 1_000_000, 1, key="lab_riddle", bind=BIND, width=150)
        st.button("Next riddle", key="lab_next_riddle", type="primary", on_click=_next, args=((riddle or 0) + 1,))
        title = st.selectbox("Or plant a fault yourself", [HIDDEN, *names], key="lab_planted", bind=BIND, width=380)
    return riddle or 0, names.get(title or "")


def _next(riddle: int) -> None:
    st.session_state.update({"lab_riddle": riddle, "lab_planted": HIDDEN})


def _show_riddle(riddle: lab.Mystery) -> None:
    heading("See")
    st.text("One of four faults is planted in this cache.")
    _show_grids(riddle.fingerprint)
    question = Prediction("lab_name", "Which fault is it?", riddle.choices)
    heading("Predict")
    if ask(question, riddle.seed):
        settle(question, riddle.seed, riddle.answer)
        fault = next(fault for fault in lab.FAULTS.values() if fault.title == riddle.answer)
        _show_check(riddle.fingerprint, fault)


def _show_grids(found: lab.Fingerprint) -> None:
    for name, grid in (("Keys", found.keys), ("Values", found.values)):
        st.markdown(f"**{name}**")
        show_chart(
            lab_charts.fingerprint(grid, found.prompt_length, CLEAN, SMALL),
            f"{name}: difference of cached from recomputed, layers by positions",
            f"lab_{name.lower()}",
        )
    st.text(
        "Each number is the largest difference, in percent of the layer's largest value. A point is clean, up to "
        f"{100 * CLEAN:g} %; yellow is small, up to {100 * SMALL:g} %. The dashed line parts prompt and decode steps."
    )


def _show_check(found: lab.Fingerprint, fault: lab.Fault) -> None:
    heading("Check")
    show_measures(
        [
            Measure("The grids say", found.family, "read from the numbers, by the rules below"),
            Measure("The fault's family", fault.family, f"of: {fault.title}"),
            Measure("Keys, layer 0", _dirty(found.keys[0]), f"cells over {CLEAN:g}"),
            Measure("Values, layer 0", _dirty(found.values[0]), f"cells over {CLEAN:g}"),
        ]
    )
    st.text(f"What goes wrong: {fault.goes_wrong}.")
    st.text(f"It hides when: {fault.hides_when}.")
    st.text(f"Found by: {fault.found_by}.")
    with st.expander("Every cell as a table"):
        show_table(found.table(), "Difference of every cell", "lab_cells")


def _dirty(cells: Sequence[float]) -> str:
    return f"{sum(cell > CLEAN for cell in cells)} of {len(cells)} dirty"


def _show_rules() -> None:
    for reading in lab.FAMILIES.values():
        st.text(f"• {reading}")
