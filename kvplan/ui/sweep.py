"""Sweep: one question at a time, each with a figure, the table behind it, and that table as CSV."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.errors import InputError, KvplanError
from kvplan.fleet import FleetRow, which_gpu
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.sweep import AS_PUBLISHED, sweep
from kvplan.ui import axes, words
from kvplan.ui.address import BIND
from kvplan.ui.fields import CONTEXTS
from kvplan.ui.library import find_gpu, find_model, gpu_ids, model_ids
from kvplan.ui.sidebar import current_or_stop, kv_head_choices, unit
from kvplan.units import format_tokens, parse_axis, parse_count

CURVE_CONTEXTS = ("128", "256", "512", *CONTEXTS, "2m", "4m")
MAX_LINES = len(charts.SERIES)
LINE_AXES = ("kv_dtype", "weight_dtype", "num_kv_heads", "batch_size", "tensor_parallel")
MAP_AXES = tuple(axes.AXES)
PANEL_AXES = ("kv_dtype", "num_kv_heads", "weight_dtype")
MAX_PANELS = 4
NO_PANELS = "one map"


def _axis_label(column: str) -> str:
    return axes.AXES[column].label


def _column(label: str) -> str:
    return next(column for column, axis in axes.AXES.items() if axis.label == label)


def _pick_axis(label: str, columns: tuple[str, ...], key: str, first: str, **more: Any) -> str:
    """An axis from a list of its words; the address carries the words."""
    labels = [_axis_label(column) for column in columns]
    return _column(st.selectbox(label, labels, labels.index(_axis_label(first)), key=key, bind=BIND, **more))


# -------------------------------------------------------------------------------------------------- (a) crossover


def ask_crossover(scenario: Scenario) -> None:
    with st.container(horizontal=True):
        column = _pick_axis("One line for each", LINE_AXES, "line", "kv_dtype", width=240)
        first, last = st.select_slider(
            "Context lengths", CURVE_CONTEXTS, ("512", "512k"), key="line_contexts", bind=BIND, width=320
        )
        log = st.toggle("Logarithmic", key="line_log", bind=BIND)
    defaults = {"batch_size": "1,8,32", "tensor_parallel": "1,2,4,8"}
    values = _line_values(column, scenario, defaults)
    contexts = charts.octave_values(parse_count(first), max(parse_count(last), 2 * parse_count(first)))
    curves, left_out = _curves(scenario, column, values, contexts)
    _say_left_out(left_out)
    if curves:
        alt = "Cache over context length, one line each, with weights, usable capacity and crossovers"
        words.show_chart(charts.cache_curves(curves, unit(), log), alt, "crossover")
        table = pd.DataFrame([_curve_row(column, curve) for curve in curves])
        words.show_table(table, "crossover")
        rows = pd.concat([curve.table for curve in curves], ignore_index=True)
        words.offer_sweep(rows, scenario, "cache-over-context", "Every point of the figure as CSV")


def _line_values(column: str, scenario: Scenario, defaults: dict[str, str]) -> list[Any]:
    if column in defaults:
        text = st.text_input(_axis_label(column), defaults[column], key=f"line_{column}", max_chars=200, bind=BIND)
        values: list[Any] = list(parse_axis(text or "", _axis_label(column)))
    else:
        values = axes.ask_values(column, "line", scenario)
    if len(values) > MAX_LINES:
        raise InputError(f"{len(values)} lines are asked for; {MAX_LINES} can be told apart, so choose fewer")
    return values


def _curves(
    scenario: Scenario, column: str, values: list[Any], contexts: list[int]
) -> tuple[list[charts.Curve], list[str]]:
    """The lines, and why a value has none."""
    curves, left_out = [], []
    for value in values:
        try:
            here = scenario.with_changes(**{column: None if value == AS_PUBLISHED else value})
            curves.append(charts.Curve(str(value), plan(here), sweep(here, context_length=contexts)))
        except KvplanError as error:
            left_out.append(f"{value}: {error}")
    return curves, left_out


def _say_left_out(sentences: list[str]) -> None:
    if sentences:
        st.info("Not every value can be planned", icon=":material/info:")
        for sentence in sentences:
            st.text(sentence)


def _curve_row(column: str, curve: charts.Curve) -> dict[str, Any]:
    p = curve.plan
    return {
        _axis_label(column): curve.label,
        "crossover (tokens)": p.crossover_context_length,
        "longest context that fits": p.max_context_length,
        "cache bytes a token": p.bytes_per_token,
        "weight bytes": p.weight_bytes,
    }


# ----------------------------------------------------------------------------------------------------- (b) fit map


def ask_fit(scenario: Scenario) -> None:
    with st.container(horizontal=True):
        across = _pick_axis("Across", MAP_AXES, "across", "context_length", width=200)
        up = _pick_axis("Up", MAP_AXES, "up", "batch_size", width=200)
        labels = [NO_PANELS, *(_axis_label(column) for column in PANEL_AXES if column not in (across, up))]
        panel = st.selectbox("One map for each", labels, key="panel", bind=BIND, width=200)
    if across == up:
        raise InputError("both axes are the same; choose two different ones")
    chosen = {across: axes.ask_values(across, "map", scenario), up: axes.ask_values(up, "map", scenario)}
    panels = _panels(scenario, chosen, panel or NO_PANELS)
    if (across, up) == ("context_length", "batch_size"):
        _say_largest(panels, scenario.model.context_limit)
    words.show_chart(charts.fit_map(panels, across, up), "What fits: a map over the two axes", "fit")
    table = pd.concat([p.table for p in panels], ignore_index=True)
    words.show_table(table, "fit")
    words.offer_sweep(table, scenario, "what-fits", "This table as CSV")


def _panels(scenario: Scenario, chosen: dict[str, list[Any]], panel: str) -> list[charts.Panel]:
    if panel == NO_PANELS:
        return [charts.Panel("", axes.sweep_over(scenario, chosen))]
    column = _column(panel)
    values = axes.ask_values(column, "panel", scenario)
    if len(values) > MAX_PANELS:
        raise InputError(f"{len(values)} maps are asked for; at most {MAX_PANELS} are drawn, so choose fewer")
    return [
        charts.Panel(f"{panel}: {value}", axes.sweep_over(scenario, {**chosen, column: [value]})) for value in values
    ]


def _say_largest(panels: list[charts.Panel], limit: int | None) -> None:
    for panel in panels:
        largest = charts.largest_point(panel.table)
        where = f"{panel.title}. " if panel.title else ""
        if largest is None:
            st.text(f"{where}Nothing on this map fits.")
        else:
            context, batch = largest
            st.text(f"{where}Most tokens in flight that fit: {batch:,} × {format_tokens(context)} tokens.")
            if limit is not None and context > limit:
                st.caption(f"Contexts above {limit:,} tokens are beyond what the model is made for.")


# ---------------------------------------------------------------------------------------------------- (c) KV heads


def ask_heads(scenario: Scenario) -> None:
    st.text(
        "How many KV heads a model has is decided before training: a trained model cannot be converted for free. "
        "The figures say what another number would have cost."
    )
    try:
        scenario.model.with_kv_heads(1)
    except InputError as error:
        st.info("This axis does not apply to the model", icon=":material/info:")
        st.text(str(error))
        return
    plans, left_out = _head_plans(scenario)
    _say_left_out(left_out)
    if plans:
        _show_heads(plans)


def _head_plans(scenario: Scenario) -> tuple[dict[int, MemoryPlan], list[str]]:
    plans, left_out = {}, []
    for count in kv_head_choices(scenario.model):
        try:
            plans[count] = plan(scenario.with_changes(num_kv_heads=count))
        except KvplanError as error:
            left_out.append(str(error))
    return plans, left_out


def _show_heads(plans: dict[int, MemoryPlan]) -> None:
    heads = list(plans)
    per_token = [int(p.bytes_per_token) for p in plans.values()]
    longest = [p.max_context_length for p in plans.values()]
    st.subheader("Cache of one token", anchor=False)
    words.show_chart(
        charts.head_bars(heads, per_token, "KiB a token", "KiB"), "Cache bytes a token by KV heads", "heads_token"
    )
    st.subheader("Longest context that fits", anchor=False)
    words.show_chart(charts.head_bars(heads, longest, "tokens"), "Longest context by KV heads", "heads_context")
    table = pd.DataFrame(
        {
            "KV heads": heads,
            "cache bytes a token": per_token,
            "longest context that fits": longest,
            "largest batch that fits": [p.max_batch_size for p in plans.values()],
            "weight bytes": [p.weight_bytes for p in plans.values()],
        }
    )
    words.show_table(table, "heads")
    words.offer_csv(table, "kv-heads", "This table as CSV")


# --------------------------------------------------------------------------------------------------- (d) which GPU

PRICE, COUNT = "price per hour", "fewest GPUs"


def ask_gpu(scenario: Scenario) -> None:
    here = st.session_state["model"]
    others = [name for name in model_ids() if name != here]
    more = st.multiselect("Beside the sidebar's model", others, key="fleet_models", max_selections=2, bind=BIND)
    models, known = [here, *more], gpu_ids()
    gpus = st.multiselect("GPUs", known, [g for g in axes.POPULAR_GPUS if g in known], key="fleet_gpus", bind=BIND)
    by = st.segmented_control("Compare by", [PRICE, COUNT], default=PRICE, key="fleet_by", bind=BIND, required=True)
    if not gpus:
        raise InputError("no GPU is chosen; choose at least one")
    rows = [row for model in models for row in _fleet_rows(scenario, model, gpus)]
    rows.sort(key=lambda row: _fleet_order(row, by or PRICE))
    _show_fleet(rows, by or PRICE)


def _fleet_rows(scenario: Scenario, model: str, gpus: list[str]) -> list[FleetRow]:
    try:
        return list(which_gpu(scenario, [find_model(model)], [find_gpu(gpu) for gpu in gpus]))
    except KvplanError as error:
        words.show_error(error, "One model cannot be planned so")
        return []


def _fleet_order(row: FleetRow, by: str) -> tuple[bool, float, int]:
    value = row.rent_per_hour if by == PRICE else row.num_gpus
    return value is None, value or 0.0, row.num_gpus or 0


def _show_fleet(rows: list[FleetRow], by: str) -> None:
    shown = [row for row in rows if _value(row, by) is not None]
    if shown:
        names = [f"{row.gpu} ({row.model})" if len({r.model for r in rows}) > 1 else row.gpu for row in shown]
        texts = [f"{words.counted(row.num_gpus or 0, 'GPU')}, {_money(row)}" for row in shown]
        title = "US dollars an hour" if by == PRICE else "GPUs"
        bars = charts.named_bars(names, [_value(row, by) or 0 for row in shown], texts, title)
        words.show_chart(bars, "Fewest GPUs that fit, by GPU", "fleet")
    else:
        st.info(f"There is no {by} to compare: the table says why", icon=":material/info:")
    table = pd.DataFrame([_fleet_cells(row) for row in rows])
    words.show_table(table, "fleet")
    words.offer_csv(table, "which-gpu", "This table as CSV")
    st.caption("Prices are the lowest public rental price of each GPU, with its date in the table.")


def _value(row: FleetRow, by: str) -> float | None:
    return row.rent_per_hour if by == PRICE else row.num_gpus


def _money(row: FleetRow) -> str:
    return "no public price" if row.rent_per_hour is None else f"${row.rent_per_hour:,.2f} an hour"


def _fleet_cells(row: FleetRow) -> dict[str, Any]:
    p = row.answer
    return {
        "model": row.model,
        "GPU": row.gpu,
        "GPUs": row.num_gpus,
        "tensor parallel": None if p is None else p.scenario.tensor_parallel,
        "pipeline stages": None if p is None else p.scenario.pipeline_parallel,
        "USD an hour": row.rent_per_hour,
        "free bytes on each": None if p is None else p.free_bytes,
        "largest batch": None if p is None else p.max_batch_size,
        "price of": None if row.price is None else row.price.date,
        "note": row.reason,
    }


QUESTIONS = {
    "When does the cache pass the weights?": ask_crossover,
    "What fits?": ask_fit,
    "What would more or fewer KV heads cost?": ask_heads,
    "Which GPU?": ask_gpu,
}


@st.fragment
def show(scenario: Scenario) -> None:
    """A change of a question's own controls runs only this part of the page."""
    chosen = st.radio("Question", list(QUESTIONS), index=1, key="q", bind=BIND, horizontal=True)
    try:
        QUESTIONS[chosen or "What fits?"](scenario)
    except KvplanError as error:
        words.show_error(error)


st.header("Sweep", anchor=False)
asked = current_or_stop()
st.text(words.about(asked))
show(asked)
