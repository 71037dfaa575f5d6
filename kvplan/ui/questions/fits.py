"""What fits? A map of contexts and batches, one for each precision or number of KV heads where asked."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from kvplan.documents import Figure
from kvplan.errors import InputError
from kvplan.plan import Scenario, plan
from kvplan.sweep import AS_PUBLISHED, Refusal
from kvplan.sweep_charts import Largest, Panel, fit_map, largest_point
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.axes import LABELS, ask_values, column_of, swept, value_words
from kvplan.ui.questions.shown import (
    above_figure,
    say_limit,
    show_answer,
    show_formula,
    show_gaps,
    show_memory_sum,
    show_sweep,
)
from kvplan.units import agreeing

PANEL_AXES = ("kv_dtype", "num_kv_heads", "weight_dtype", "tensor_parallel")
MAX_PANELS = 4
NO_PANELS = "one map"


class Map(NamedTuple):
    """One map: what it is for, and its rows; `words` is empty where it is the only one."""

    words: str
    changes: dict[str, Any]
    table: pd.DataFrame
    largest: Largest | None


def ask(scenario: Scenario) -> None:
    """Controls, answer, figure, table."""
    with st.container(horizontal=True):
        contexts = _narrow("context_length", scenario)
        batches = _narrow("batch_size", scenario)
        labels = [NO_PANELS, *(LABELS[column] for column in PANEL_AXES)]
        panel = st.selectbox("One map for each", labels, key="panel", bind=BIND, width=220) or NO_PANELS
    maps, refused = _maps(scenario, {"context_length": contexts, "batch_size": batches}, panel)
    limit = scenario.model.context_limit
    answer = _answer(maps)
    panels = [Panel(f"{panel}: {next(iter(one.changes.values()))}" if one.changes else "", one.table) for one in maps]
    figure = Figure(
        "What fits", f"What fits, over context length and sequences at once. {answer}",
        fit_map(panels, unit=words.unit(), context_limit=limit),
    )  # fmt: skip
    p = plan(scenario)
    with above_figure(figure, "fit"):
        show_answer(answer, p)
        _say_each(maps, limit)
    show_sweep(
        maps[0].table if len(maps) == 1 else pd.concat([m.table for m in maps], ignore_index=True),
        scenario,
        "fit",
        answer,
        figure,
    )
    show_formula("fit", lambda: _show_sums(scenario, maps))
    show_gaps(refused, scenario)


def _narrow(column: str, scenario: Scenario) -> list[Any]:
    with st.container(width=220):
        return ask_values(column, "map", scenario)


def _maps(scenario: Scenario, axes: dict[str, list[Any]], panel: str) -> tuple[list[Map], tuple[Refusal, ...]]:
    limit = scenario.model.context_limit
    if panel == NO_PANELS:
        table, refused = swept(scenario, axes)
        return [Map("", {}, table, largest_point(table, limit))], refused
    column = column_of(panel)
    values = ask_values(column, "panel", scenario)
    if len(values) > MAX_PANELS:
        raise InputError(f"{len(values):,} maps are asked for; at most {MAX_PANELS} are drawn, so choose fewer")
    whole, refused = swept(scenario, {column: values, **axes})
    maps = []
    for value in values:
        table = whole[whole[column] == value]
        if len(table):
            maps.append(Map(value_words(column, value, scenario), {column: value}, table, largest_point(table, limit)))
    return maps, tuple(r if r.values else Refusal({column: values[0]}, r.reason) for r in refused)


def _answer(maps: list[Map]) -> str:
    best = max(maps, key=lambda one: _in_flight(one.largest))
    here = "on this map" if len(maps) == 1 else "on these maps"  # between its points and beyond them more may fit
    if best.largest is None:
        return f"Nothing {here} fits"
    return f"The most that fits {here}: {best.largest.words}" + (f", {best.words}" if best.words else "")


def _in_flight(largest: Largest | None) -> int:
    return 0 if largest is None else largest.context_length * largest.batch_size


def _say_each(maps: list[Map], limit: int | None) -> None:
    """The largest point of each map, and what a single point does not say."""
    for one in maps if len(maps) > 1 else ():
        st.text(f"{one.words}: {'nothing fits' if one.largest is None else one.largest.words}")
    largest = maps[0].largest
    if len(maps) == 1 and largest is not None and largest.equals:
        verb = agreeing(largest.equals, "hold")
        st.caption(f"{words.counted(largest.equals, 'other point')} of the map {verb} as many tokens.")
    say_limit([int(one.table["context_length"].max()) for one in maps], limit)


def _show_sums(scenario: Scenario, maps: list[Map]) -> None:
    """The sum at the largest point of each map, or at its smallest one where nothing fits."""
    for one in maps:
        if one.words:
            st.text(one.words)
        first = one.table.iloc[0]
        point = one.largest or Largest(int(first["context_length"]), int(first["batch_size"]), 0)
        changes = {name: None if value == AS_PUBLISHED else value for name, value in one.changes.items()}
        changes |= {"context_length": point.context_length, "batch_size": point.batch_size}
        show_memory_sum(plan(scenario.with_changes(**changes)))
