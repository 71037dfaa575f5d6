"""Screen 6: what a cache saves: projections counted, seconds measured, bytes that growing copies."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kvplan import lab, lab_charts
from kvplan.lab_charts import Curve
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.parts import (
    Measure,
    Prediction,
    ask,
    heading,
    long_work,
    settle,
    show_chart,
    show_measures,
    show_verdict,
)
from kvplan.ui.words import offer_csv, show_table
from kvplan.units import counted, format_bytes, parse_count

MAX_TIMED = 256  # without a cache: seconds of one core


def show() -> None:
    """The whole screen."""
    st.text("Without a cache every step computes the keys and values of the whole row again.")
    _show_counts()
    _show_run()


def _show_counts() -> None:
    heading("See")
    text = st.text_input("One-token steps", "2000", key="lab_counted", bind=BIND, max_chars=20, width=200)
    tokens = parse_count(text or "", "the number of steps", 1)
    found = lab.projections(tokens)
    every = f"{found.uncached:,}: every step repeats all before it"
    question = Prediction(
        "lab_saved",
        f"How many times does one layer compute a key and a value over {counted(tokens, 'step')} without a cache?",
        (
            f"{tokens:,}: once a step",
            f"{2 * tokens:,}: twice a step",
            every,
            f"{tokens**2:,}: all of them at every step",
        ),
    )
    heading("Predict")
    if not ask(question, tokens):
        return
    settle(question, tokens, every)
    show_measures(
        [
            Measure("Without a cache", f"{found.uncached:,}", f"T(T+1)/2 = {tokens:,} × {tokens + 1:,} / 2"),
            Measure("With a cache", f"{found.cached:,}", f"T = {tokens:,}: one a step"),
            Measure("Saved", f"{found.saved:,}", f"T(T−1)/2 = {tokens:,} × {tokens - 1:,} / 2"),
            Measure(
                "Copied by torch.cat",
                format_bytes(lab.cat_bytes(lab.savings_model(), tokens)),
                "bytes a token × T(T−1)/2; a preallocated cache copies none",
            ),
        ]
    )


def _show_run() -> None:
    heading("Do")
    model = lab.savings_model()
    shape = model.shape
    st.text(
        f"Run it: {counted(shape.num_layers, 'layer')}, width {shape.hidden}, "
        f"{counted(shape.num_attention_heads, 'query head')}, {counted(shape.num_kv_heads, 'KV head')}, "
        f"{shape.dtype}, seed {shape.seed}, one torch thread, after a warm-up run."
    )
    tokens = st.number_input(
        "Tokens to run", 2, MAX_TIMED, 192, key="lab_timed", bind=BIND, width=200,
        help=f"Up to {MAX_TIMED} are run on this server; larger numbers are counted above.",
    )  # fmt: skip
    count = tokens or 192
    st.text(f"Up to {MAX_TIMED} tokens are run here; the count above takes any number.")
    table = long_work(
        "lab_savings",
        f"Run {counted(count, 'token')} with and without a cache",
        count,
        lambda tell: lab.measure_savings(model, count, on_step=tell),
    )
    if table is not None:
        _show_measured(table, lab.projections(count), shape.token_elements * model.dtype.itemsize)


def _show_measured(table: pd.DataFrame, formula: lab.Projections, token_bytes: int) -> None:
    last = table.iloc[-1]
    show_measures(
        [
            Measure(
                "Without a cache",
                f"{last['uncached_seconds']:.2f} s",
                f"{counted(int(last['tokens']), 'step')}, measured",
            ),
            Measure("torch.cat cache", f"{last['dynamic_seconds']:.2f} s", "the same steps, measured"),
            Measure("Preallocated cache", f"{last['static_seconds']:.2f} s", "the same steps, measured"),
            Measure(
                "Copied by torch.cat",
                f"{int(last['dynamic_copied_bytes']):,} B",
                f"counted; {token_bytes:,} B a token × T(T−1)/2",
            ),
        ]
    )
    tokens = table["tokens"]
    projections = [
        Curve("without a cache", table["uncached_projections"]),
        Curve("with a cache", table["static_projections"]),
    ]
    seconds = [
        Curve("without a cache", table["uncached_seconds"]),
        Curve("torch.cat cache", table["dynamic_seconds"]),
        Curve("preallocated cache", table["static_seconds"]),
    ]
    st.markdown("**Projections a layer, counted in the running model**")
    show_chart(lab_charts.curves(tokens, projections, "steps", "projections"), "Projections over steps", "lab_counts")
    st.markdown("**Seconds, measured on this server**")
    show_chart(lab_charts.curves(tokens, seconds, "steps", "seconds"), "Seconds over steps", "lab_seconds")
    st.text("Counts and bytes are the lesson: the seconds of a small model on a CPU say nothing about a server.")
    _check(table, formula)


def _check(table: pd.DataFrame, formula: lab.Projections) -> None:
    heading("Check")
    last = table.iloc[-1]
    seen = (int(last["uncached_projections"]), int(last["static_projections"]))
    show_verdict(
        seen == (formula.uncached, formula.cached),
        f"Counted {seen[0]:,} and {seen[1]:,}: what the formulas say",
        f"Counted {seen[0]:,} and {seen[1]:,}; the formulas say {formula.uncached:,} and {formula.cached:,}",
    )
    with st.expander("Every step as a table"):
        show_table(table, "Projections of every step", "lab_steps")
        offer_csv(table, "lab-savings", "This table as CSV")
