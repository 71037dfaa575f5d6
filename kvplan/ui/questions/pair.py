"""What do two settings do together? Any two axes of a sweep, in the figure that suits the pair."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kvplan.charts import SERIES, Figure
from kvplan.documents import Figure as Drawn
from kvplan.errors import InputError
from kvplan.plan import Scenario, plan
from kvplan.sweep_charts import GROWING, Panel, axis_words, fit_map, largest_point, total_lines
from kvplan.ui import words
from kvplan.ui.axes import AXES, ask_values, pick_axis, swept, values_words
from kvplan.ui.questions.shown import (
    above_figure,
    listed,
    say_limit,
    show_answer,
    show_formula,
    show_gaps,
    show_memory_sum,
    show_sweep,
)
from kvplan.units import agreeing

MAX_NAMED = 3


def ask(scenario: Scenario) -> None:
    """Controls, answer, figure, table."""
    columns = tuple(AXES)
    with st.container(horizontal=True):
        first = pick_axis("One setting", columns, "across", "weight_dtype", width=220)
        second = pick_axis("Another setting", columns, "up", "gpu", width=220)
    if first == second:
        raise InputError("both settings are the same; choose two different ones")
    chosen = {first: ask_values(first, "pair", scenario), second: ask_values(second, "pair", scenario)}
    table, refused = swept(scenario, chosen)
    answer = _answer(table, first, second, scenario)
    p = plan(scenario)
    alt = f"Memory over {AXES[first].label} and {AXES[second].label}. {answer}"
    figure = Drawn("What two settings do together", alt, _figure(table, first, second, scenario))
    with above_figure(figure, "pair"):
        show_answer(answer, p)
        if _lines(table, first, second) is not None and table["fits"].any():
            st.caption("Of the values drawn: more may fit between two of them, or beyond the last.")
        say_limit(chosen.get("context_length", ()), scenario.model.context_limit)
    show_sweep(table, scenario, "two-settings", answer, figure)
    show_formula("pair", lambda: show_memory_sum(p))
    show_gaps(refused, scenario)


def _lines(table: pd.DataFrame, first: str, second: str) -> tuple[str, str] | None:
    """(along, by) where one axis grows and the other has few enough values for a line each."""
    growing = [column for column in (first, second) if column in GROWING]
    if len(growing) != 1:
        return None
    along = growing[0]
    by = second if along == first else first
    return (along, by) if table[by].nunique() <= len(SERIES) and table[along].nunique() > 1 else None


def _figure(table: pd.DataFrame, first: str, second: str, scenario: Scenario) -> Figure:
    """Lines along a growing axis, else a map whose longer axis stands upright; two growing axes as they are asked."""
    unit = words.unit()
    lines = _lines(table, first, second)
    if lines is not None:
        return total_lines(table, *lines, unit)
    across, up = first, second
    if {first, second} != GROWING and table[first].nunique() > table[second].nunique():
        across, up = second, first
    return fit_map([Panel("", table)], across, up, unit, scenario.model.context_limit)


def _answer(table: pd.DataFrame, first: str, second: str, scenario: Scenario) -> str:
    if {first, second} == GROWING:
        largest = largest_point(table, scenario.model.context_limit)
        return "Nothing on this map fits" if largest is None else f"The most that fits on this map: {largest.words}"
    lines = _lines(table, first, second)
    if lines is None or not table["fits"].any():
        fitting = int(table["fits"].sum())
        return f"{fitting:,} of {words.counted(len(table), 'combination')} {agreeing(fitting, 'fit')}"
    return _reach(table, *lines, scenario)


def _reach(table: pd.DataFrame, along: str, by: str, scenario: Scenario) -> str:
    """How far each line fits, the farthest first; of many, the farthest and the nearest."""
    farthest = table[table["fits"]].groupby(by, observed=True)[along].max().sort_values(ascending=False, kind="stable")
    word = "token" if along == "context_length" else "sequence"
    lines = table[by].nunique()
    first, *others = axis_words(farthest, along)
    named = values_words(by, list(farthest.index), scenario)
    reaches = [f"{first} {word if first == '1' else word + 's'}", *others]
    if len(farthest) == lines > 1 and farthest.nunique() == 1:
        return f"Fits up to {reaches[0]} on every line"
    parts = [f"{reach} {phrase}" for reach, phrase in zip(reaches, named, strict=True)]
    none = lines - len(parts)
    never = f"; {words.counted(none, 'line')} never {agreeing(none, 'fit')}" if none else ""
    if len(parts) > MAX_NAMED:
        return f"Fits up to {parts[0]}, and at the least {parts[-1]}{never}"
    return f"Fits up to {listed(parts)}{never}"
