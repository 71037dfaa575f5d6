"""Downloads: what stands on a page as CSV, JSON, Markdown and a page of its own, each with inputs, sources and link.

A file is made when it is asked for, from exactly what the page shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from kvplan.comparison import (
    Comparison,
    comparison_csv,
    comparison_html,
    comparison_json,
    comparison_markdown,
)
from kvplan.documents import Figure
from kvplan.errors import KvplanError
from kvplan.hardware import Gpu
from kvplan.library import file_text, is_shipped, kind_of, scenario_preset
from kvplan.model import Model
from kvplan.names import without_isolates
from kvplan.plan import MemoryPlan, Scenario
from kvplan.report import (
    MAX_SHOWN_ROWS,
    Beside,
    plan_csv,
    plan_html,
    plan_json,
    plan_markdown,
    sweep_csv,
    sweep_html,
    sweep_json,
    sweep_markdown,
)
from kvplan.ui import words
from kvplan.ui.address import page_settings
from kvplan.ui.library import find_gpu, find_model

if TYPE_CHECKING:
    import pandas as pd

CSV, JSON, MARKDOWN, PAGE = "CSV", "JSON", "Markdown", "Page with its figures (HTML)"


class File(NamedTuple):
    """One download: what the button says, the ending of the file, its type, and what makes it."""

    label: str
    ending: str
    mime: str
    make: Callable[[], str]


def _four(
    csv: Callable[[], str], json: Callable[[], str], markdown: Callable[[], str], page: Callable[[], str]
) -> tuple[File, ...]:
    return (
        File(CSV, "csv", "text/csv", csv),
        File(JSON, "json", "application/json", json),
        File(MARKDOWN, "md", "text/markdown", markdown),
        File(PAGE, "html", "text/html", page),
    )


def _offer(name: str, files: tuple[File, ...]) -> None:
    with st.container(horizontal=True):
        for file in files:
            words.offer(file.label, f"{name}.{file.ending}", file.mime, file.make)


def offer_plan(p: MemoryPlan) -> None:
    """A plan in all formats."""
    home, unit = words.home(), words.unit()
    _offer("plan", _four(
        lambda: plan_csv(p, home), lambda: plan_json(p, home), lambda: plan_markdown(p, home),
        lambda: plan_html(p, home, unit),
    ))  # fmt: skip


def offer_comparison(found: Comparison) -> None:
    """A comparison in all formats."""
    here, unit = f"{words.home()}compare", words.unit()
    _offer("comparison", _four(
        lambda: comparison_csv(found, here), lambda: comparison_json(found, here),
        lambda: comparison_markdown(found, here), lambda: comparison_html(found, here, unit),
    ))  # fmt: skip


def offer_sweep(table: pd.DataFrame, scenario: Scenario, name: str, title: str, *figures: Figure) -> None:
    """The very rows that a page shows, with its figures, in all formats; the link opens the page as it stands."""
    here, settings, beside = f"{words.home()}sweep", page_settings(), _beside(table, scenario)
    files = _four(
        lambda: sweep_csv(table, scenario, here, settings, beside),
        lambda: sweep_json(table, scenario, here, settings, beside),
        lambda: sweep_markdown(table, scenario, here, settings, title, beside),
        lambda: sweep_html(table, scenario, figures, here, settings, title, beside),
    )
    _offer(name, files if len(table) <= MAX_SHOWN_ROWS else files[:2])


def _beside(table: pd.DataFrame, scenario: Scenario) -> Beside:
    """The other models and GPUs that rows name. They are looked up now: a file is made when no session is at hand."""
    columns = {str(name).lower(): table[name] for name in table.columns}
    here = {name for thing in (scenario.model, scenario.gpu) for name in (thing.id, thing.name)}
    models, gpus = (
        [name for name in columns[column].unique() if name not in here] if column in columns else []
        for column in ("model", "gpu")
    )
    return Beside(tuple(map(find_model, models)), tuple(map(find_gpu, gpus)))


def offer_scenario(scenario: Scenario) -> None:
    """The scenario as a preset file, or why it cannot be one."""
    name = f"{scenario.model.name} on {scenario.gpu.name}"[:80].rstrip()
    try:
        text = file_text(scenario_preset(scenario, name, f"{without_isolates(words.about(scenario))}.", "scenario"))
    except KvplanError as error:
        st.text(f"No scenario preset: {error}.")
    else:
        words.offer("Scenario as a preset file", "scenario.toml", "text/plain", lambda: text)


def offer_own(thing: Model | Gpu, place: str) -> None:
    """A model or GPU that is no preset of every kvplan, as a preset file; nothing for others.

    place  a word that tells this button from another one for the same file
    """
    if is_shipped(thing):
        return
    noun = kind_of(thing).name
    label, file = f"{noun[0].upper()}{noun[1:]} as a preset file", f"{thing.id or noun.lower()}.toml"
    words.offer(label, file, "text/plain", lambda: file_text(thing), f"{place}_{noun}_{thing.id}")
