"""Screen 5: common ways to test a cache, tried on every fault: a check that cannot fail shows itself."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kvplan import lab, lab_charts
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.parts import Measure, Prediction, ask, heading, long_work, settle, show_chart, show_measures
from kvplan.ui.words import offer_csv, show_table

PROMPT, NEW_TOKENS = [1, 2, 3, 4], 6
NONE, FEW, HALF, MOST, ALL = "none", "a few, under a quarter", "about half", "most, over three quarters", "all"


def show() -> None:
    """The whole screen."""
    st.text(f"Seven ways to test a cache, each against all {len(lab.FAULTS)} faults. Which ways can fail at all?")
    seed = st.number_input("Seed", 0, 1_000_000, 0, key="lab_matrix_seed", bind=BIND, width=150) or 0
    model = lab.TinyDecoder(dtype="float64", seed=seed)
    st.text(
        f"2 layers, 4 query heads, 2 KV heads, head_dim 16, float64, seed {seed}; prompt "
        f"{' '.join(map(str, PROMPT))}, {NEW_TOKENS} decode steps; each fault in the setting that shows it."
    )
    heading("See")
    for name, check in lab.CHECKS.items():
        st.text(f"• {name.replace('_', ' ')}: {check.title}")
    question = Prediction(
        "lab_vacuous",
        "One pass with the cache on against one with it off: how many of the faults does it catch?",
        (NONE, FEW, HALF, MOST, ALL),
    )
    heading("Predict")
    if ask(question, seed):
        table = long_work(
            "lab_matrix",
            "Run every check on every fault",
            seed,
            lambda tell: lab.check_matrix(model, PROMPT, NEW_TOKENS, on_step=tell),
        )
        if table is not None:
            _show_answer(question, seed, table)


def _show_answer(question: Prediction, seed: int, table: pd.DataFrame) -> None:
    caught = table.groupby("check", sort=False)["caught"].sum()
    settle(question, seed, _share(int(caught["one_pass"]), len(lab.FAULTS)))
    heading("Check")
    show_measures(
        Measure(str(check).replace("_", " ").capitalize(), f"{count} of {len(lab.FAULTS)}", "faults caught, counted")
        for check, count in caught.items()
    )
    st.text("✓ caught, ✗ missed")
    show_chart(lab_charts.check_matrix(table), "Every fault by every check: caught or missed", "lab_matrix_chart")
    best = table[table["check"] == "everything"]
    for title in best[~best["caught"]]["title"]:
        fault = next(fault for fault in lab.FAULTS.values() if fault.title == title)
        st.text(f"• Missed by all: {title}. It hides when: {fault.hides_when}.")
    with st.expander("As a table"):
        show_table(table, "Every fault by every check", "lab_matrix")
        offer_csv(table, "lab-checks", "This table as CSV")


def _share(caught: int, total: int) -> str:
    if caught in (0, total):
        return NONE if caught == 0 else ALL
    return FEW if 4 * caught < total else MOST if 4 * caught > 3 * total else HALF
