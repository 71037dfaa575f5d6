"""When does the cache pass the weights? Cache over context, one line for each chosen value."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from kvplan.charts import SERIES, octave_values
from kvplan.documents import Figure
from kvplan.errors import InputError, KvplanError
from kvplan.explain import Term, cache_terms
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.sweep import AS_PUBLISHED, Refusal, sweep
from kvplan.sweep_charts import SCALES, Curve, cache_curves
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.axes import AXES, ask_values, pick_axis, say_gpus_in_all, value_words, values_words
from kvplan.ui.exports import offer_sweep
from kvplan.ui.fields import CONTEXTS
from kvplan.ui.questions.shown import above_figure, listed, show_answer, show_formula, show_gaps, weights_term
from kvplan.units import counted, counted_and, parse_axis, parse_count

CURVE_CONTEXTS = ("128", "256", "512", *CONTEXTS, "2m", "4m")
LINE_AXES = ("kv_dtype", "weight_dtype", "num_kv_heads", "batch_size", "tensor_parallel")
FEW = {"batch_size": "1,8,32", "tensor_parallel": "1,2,4,8"}
"""First values where a map has more than lines can be told apart."""

MAX_NAMED = 3


def ask(scenario: Scenario) -> None:
    """Controls, answer, figure, table."""
    with st.container(horizontal=True):
        column = pick_axis("One line for each", LINE_AXES, "line", "kv_dtype", width=240)
        first, last = st.select_slider(
            "Context lengths", CURVE_CONTEXTS, ("512", "512k"), key="line_contexts", bind=BIND, width=320
        )
        scale = st.segmented_control("Scale", SCALES, default=SCALES[0], key="line_scale", bind=BIND, required=True)
    values = _ask_lines(column, scenario)
    contexts = _with_prefix(octave_values(parse_count(first), max(parse_count(last), 2 * parse_count(first))), scenario)
    curves, refused = _curves(scenario, column, values, contexts)
    if curves:
        _show(scenario, column, curves, scale or SCALES[0])
    show_gaps(refused, scenario)


def _with_prefix(contexts: list[int], scenario: Scenario) -> list[int]:
    """The contexts that hold the shared prefix of the scenario. Raises InputError where they make no line."""
    found = [tokens for tokens in contexts if tokens >= scenario.least_context_length]
    if len(found) < 2:
        raise InputError(
            f"shared_prefix is {scenario.shared_prefix:,}; the context lengths end at {contexts[-1]:,}, so choose "
            "longer ones"
        )
    return found


def _ask_lines(column: str, scenario: Scenario) -> list[Any]:
    if column in FEW:
        label = AXES[column].label
        text = st.text_input(label, FEW[column], key=f"line_{column}", max_chars=200, bind=BIND)
        values: list[Any] = sorted(parse_axis(text or "", label))
        if column == "tensor_parallel":
            say_gpus_in_all(scenario, values)
    else:
        values = ask_values(column, "line", scenario)
    if len(values) > len(SERIES):
        raise InputError(
            f"{counted_and(len(values), 'line', 'are')} asked for; {len(SERIES)} can be told apart, so choose fewer"
        )
    return values


def _curves(
    scenario: Scenario, column: str, values: list[Any], contexts: list[int]
) -> tuple[list[tuple[Any, Curve]], list[Refusal]]:
    """The lines by value, and why a value has none."""
    curves, refused = [], []
    for value in values:
        try:
            here = scenario.with_changes(**{column: None if value == AS_PUBLISHED else value})
            label = value_words(column, value, scenario).removeprefix("with ").removeprefix("on ")
            curves.append((value, Curve(label, plan(here), sweep(here, context_length=contexts))))
        except KvplanError as error:
            refused.append(Refusal({column: value}, str(error)))
    return curves, refused


def _show(scenario: Scenario, column: str, named: list[tuple[Any, Curve]], scale: str) -> None:
    curves = [curve for _, curve in named]
    answer = _answer(column, [(value, curve.plan.crossover_context_length) for value, curve in named], scenario)
    p = plan(scenario)
    figure = Figure(
        "Cache over context length", f"Cache over context length, a line each. {answer}",
        cache_curves(curves, words.unit(), scale),
    )  # fmt: skip
    with above_figure(figure, "crossover"):
        show_answer(answer, p)
    table = pd.DataFrame([_row(column, value, curve.plan) for value, curve in named])
    words.show_table(table, "Crossover of each line", "crossover")
    rows = pd.concat([curve.table for curve in curves], ignore_index=True)
    st.caption("Every point of the figure:")
    offer_sweep(rows, scenario, "cache-over-context", answer, figure)
    show_formula("crossover", lambda: _show_terms(column, named))


def _answer(column: str, found: list[tuple[Any, int | None]], scenario: Scenario) -> str:
    """When each line crosses; of many, the first and the last to do so."""
    crossing = sorted(((at, value) for value, at in found if at is not None), key=lambda pair: pair[0])
    if not crossing:
        return "The cache never passes the weights"
    if len({at for _, at in found}) == 1:
        return f"The cache passes the weights at {counted(crossing[0][0], 'token')}"
    shown = crossing if len(crossing) <= MAX_NAMED else [crossing[0], crossing[-1]]
    named = values_words(column, [value for _, value in shown], scenario)
    sizes = [counted(shown[0][0], "token"), *(f"{at:,}" for at, _ in shown[1:])]
    parts = [f"{size} {phrase}" for size, phrase in zip(sizes, named, strict=True)]
    never = " and never with the others" if len(crossing) < len(found) else ""
    if len(crossing) > MAX_NAMED:
        return f"The cache passes the weights from {parts[0]} to {parts[1]}{never}"
    return f"The cache passes the weights at {listed(parts)}{never}"


def _row(column: str, value: Any, p: MemoryPlan) -> dict[str, Any]:
    crossover, longest, per_token = p.crossover_context_length, p.max_context_length, p.bytes_per_token
    fitting = longest is None or (crossover is not None and crossover <= longest)
    return {
        AXES[column].label: value,
        "crossover (tokens)": crossover,
        "the crossover": "never comes" if crossover is None else "fits" if fitting else "is beyond memory",
        "longest context that fits": longest,
        "cache bytes a token": per_token if isinstance(per_token, int) else float(per_token),
        "weight bytes": p.weight_bytes,
    }


def _show_terms(column: str, named: list[tuple[Any, Curve]]) -> None:
    st.text("The crossover is the smallest context whose cache is at least as large as the weights:")
    for value, curve in named:
        crossover = curve.plan.crossover_context_length
        if crossover is not None:
            at = plan(curve.plan.scenario.with_changes(context_length=crossover))
            st.text(f"{value_words(column, value, at.scenario)}, {counted(crossover, 'token')}")
            sums = Term("cache", "sum of the above", at.cache_bytes)
            words.show_terms([*cache_terms(at), sums, weights_term(at)])
    if named[0][1].plan.scenario.pipeline_parallel > 1:
        st.caption("The crossover counts all stages together; the terms are those of the stage that holds the most.")
