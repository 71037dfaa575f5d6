"""Which GPU? Models and GPUs: the fewest that hold the scenario, and their price an hour."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from kvplan.documents import Figure
from kvplan.errors import KvplanError
from kvplan.fleet import FleetRow, cheapest_first, fewest_first, layouts_tried, which_gpu, why_no_stages
from kvplan.plan import Scenario
from kvplan.report import USD_AN_HOUR
from kvplan.sweep_charts import fleet_bars, price_words
from kvplan.ui import figures, words
from kvplan.ui.address import BIND
from kvplan.ui.axes import POPULAR_GPUS
from kvplan.ui.exports import offer_sweep
from kvplan.ui.fields import FIELDS
from kvplan.ui.library import find_gpu, find_model, gpu_ids, model_ids
from kvplan.ui.questions.shown import show_answer, show_formula, show_memory_sum
from kvplan.ui.scenario import held
from kvplan.units import counted, format_rate

PRICE, COUNT = "price per hour", "fewest GPUs"


def ask(scenario: Scenario) -> None:
    """Controls, answer, figure, table."""
    here, own = held(FIELDS["model"]), held(FIELDS["gpu"])
    others = [name for name in model_ids() if name != here]
    more = st.multiselect(
        "Beside the sidebar's model", others, key="fleet_models", max_selections=2, bind=BIND, select_all=False,
        filter_mode="contains",
    )  # fmt: skip
    known = gpu_ids()
    gpus = st.multiselect(
        "Beside the sidebar's GPU", known, [g for g in POPULAR_GPUS if g in known], key="fleet_gpus", bind=BIND,
        select_all=False, filter_mode="contains",
    )  # fmt: skip
    by = st.segmented_control("Compare by", [PRICE, COUNT], default=PRICE, key="fleet_by", bind=BIND, required=True)
    asked = list(dict.fromkeys([own, *gpus]))
    rows = [row for model in (here, *more) for row in _rows(scenario, model, asked)]
    by_price = (by or PRICE) == PRICE
    _show(scenario, cheapest_first(rows) if by_price else fewest_first(rows), by_price)


def _rows(scenario: Scenario, model: str, gpus: list[str]) -> list[FleetRow]:
    try:
        found = scenario.model if model == held(FIELDS["model"]) else find_model(model)
        return list(which_gpu(scenario, [found], [find_gpu(gpu) for gpu in gpus]))
    except KvplanError as error:
        words.show_error(error, f"{model} cannot be planned so")
        return []


def _show(scenario: Scenario, rows: list[FleetRow], by_price: bool) -> None:
    shared = _shared_warnings(rows)
    answer = _answer(rows, by_price)
    show_answer(answer)
    other = _answer(fewest_first(rows) if by_price else cheapest_first(rows), not by_price)
    if other != answer:
        st.text(other)
    _say_no_stages(scenario, rows)
    words.show_warnings(shared)
    shown, absent = _parted(rows, by_price)
    drawn = []
    if shown:
        drawn = [Figure("GPUs", f"Fewest GPUs that fit, by GPU. {answer}", fleet_bars(shown, by_price))]
        figures.show_chart(drawn[0].figure, drawn[0].alt, "fleet")
        _say_absent(absent, _several(rows))
    table = pd.DataFrame([_cells(row, shared) for row in rows])
    if len(table):
        price = st.column_config.NumberColumn(format="dollar")
        words.show_table(table, "Fewest GPUs of each kind", "fleet", **{USD_AN_HOUR: price})
        offer_sweep(table, scenario, "which-gpu", answer, *drawn)
        st.caption("Prices are the lowest public rental price of each GPU, with its date in the table.")
    show_formula("fleet", lambda: _show_sums(scenario, rows))


def _answer(rows: list[FleetRow], by_price: bool) -> str:
    """The best GPU for each model. Ids alone: a heading renders Markdown."""
    best = [
        next((row for row in rows if row.model == model and row.num_gpus is not None), None)
        for model in dict.fromkeys(row.model for row in rows)
    ]
    found = [row for row in best if row is not None]
    if not found:
        return "No GPU of these holds it in any layout that is tried"
    several = len(best) > 1
    superlative = "Cheapest" if by_price and found[0].rent_per_hour is not None else "Fewest"
    parts = [
        f"{row.num_gpus:,} × {row.gpu}, {price_words(row)}" + (f" for {row.model}" if several else "") for row in found
    ]
    return f"{superlative}: {'; '.join(parts)}"


def _parted(rows: list[FleetRow], by_price: bool) -> tuple[list[FleetRow], list[FleetRow]]:
    """(rows that have a bar, rows that have none)"""
    lengths = [row.rent_per_hour if by_price else row.num_gpus for row in rows]
    pairs = list(zip(rows, lengths, strict=True))
    return [row for row, length in pairs if length is not None], [row for row, length in pairs if length is None]


def _say_absent(rows: list[FleetRow], several: bool) -> None:
    """Which GPUs have no bar, and why; of several models with the model that it is about."""
    unpriced = [row for row in rows if row.num_gpus is not None]
    for why, found in (("no price known", unpriced), ("nothing fits", [row for row in rows if row.num_gpus is None])):
        if found:
            named = (f"{row.gpu} for {row.model}" if several else row.gpu for row in found)
            st.text(f"Not in the figure, {why}: {', '.join(named)}")


def _several(rows: list[FleetRow]) -> bool:
    return len({row.model for row in rows}) > 1


def _say_no_stages(scenario: Scenario, rows: list[FleetRow]) -> None:
    """Why no stages were tried; a draft model is the sidebar's model's own, so of several models it names that one."""
    why = why_no_stages(scenario)
    if why and _several(rows):
        st.text(f"{scenario.model.id or scenario.model.name}: {why}.")
    else:
        words.say_no_stages(scenario)


def _shared_warnings(rows: list[FleetRow]) -> list[str]:
    """Warnings of some model whatever the GPU; those of single GPUs stand in their rows."""
    found: list[str] = []
    for model in dict.fromkeys(row.model for row in rows):
        each = [row.answer.warnings for row in rows if row.model == model and row.answer is not None]
        found += [text for text in (each[0] if each else ()) if all(text in warnings for warnings in each)]
    return list(dict.fromkeys(found))


def _cells(row: FleetRow, shared: list[str]) -> dict[str, Any]:
    p = row.answer
    notes = [row.reason] if p is None else [text for text in p.warnings if text not in shared]
    return {
        "model": row.model,
        "GPU": row.gpu,
        "GPUs": row.num_gpus,
        USD_AN_HOUR: row.rent_per_hour,
        "price of": "no price known" if row.price is None else row.price.date,
        "tensor parallel": None if p is None else p.scenario.tensor_parallel,
        "pipeline stages": None if p is None else p.scenario.pipeline_parallel,
        "free bytes on each": None if p is None else p.free_bytes,
        "largest batch": None if p is None else p.max_batch_size,
        "note": "; ".join(notes),
    }


def _show_sums(scenario: Scenario, rows: list[FleetRow]) -> None:
    """Of the first row: GPUs times price, and what one of its GPUs holds."""
    best = next((row for row in rows if row.answer is not None), None)
    tried = layouts_tried(scenario if best is None or best.answer is None else best.answer.scenario)
    st.text(f"{tried}. The first that fits has the fewest GPUs.")
    if best is None or best.answer is None:
        st.text("None of these layouts fits on any of the GPUs.")
        return
    here = best.answer.scenario
    layout = f"{here.tensor_parallel:,} side by side × {counted(here.pipeline_parallel, 'stage')}"
    price = "no price known" if best.price is None else f"{here.num_gpus:,} × {format_rate(best.price.usd)}"
    st.text(f"{best.gpu}: {layout} = {counted(here.num_gpus, 'GPU')}; {price}, {price_words(best)}")
    show_memory_sum(best.answer)
