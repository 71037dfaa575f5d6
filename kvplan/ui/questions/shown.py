"""What every question of the Sweep page shows alike: its answer, its table with files, its formula, its gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import streamlit as st

from kvplan.documents import Figure
from kvplan.explain import Term, cache_terms, overhead_terms
from kvplan.plan import MemoryPlan, Scenario
from kvplan.report import setting_words
from kvplan.sweep import Refusal
from kvplan.sweep_charts import TITLES
from kvplan.ui import figures, words
from kvplan.ui.axes import value_words
from kvplan.ui.exports import offer_sweep

COLUMNS: dict[str, str] = {
    **TITLES,
    "fits": "fits",
    "cache_bytes": "KV cache (bytes)",
    "weight_bytes": "weights (bytes)",
    "overhead_bytes": "overhead (bytes)",
    "total_bytes": "together (bytes)",
    "capacity_bytes": "usable (bytes)",
}
"""What the columns of a sweep are called on the page, in its order; files have those of `kvplan.sweep`."""

MAX_REASONS = 5


def show_answer(answer: str, p: MemoryPlan | None = None) -> None:
    """The answer as the heading of its question; warnings of the scenario below it.

    An answer holds ids, numbers and dtypes alone: no words of a visitor, which a heading would render as Markdown.
    Two prices in it are no formula.
    """
    st.header(answer.replace("$", r"\$"), anchor=False)
    if p is not None:
        words.show_warnings(p.warnings)


@contextmanager
def above_figure(figure: Figure, key: str) -> Iterator[None]:
    """A figure below what is said inside. It is sent before that, for a browser takes longest to draw it."""
    place = st.container()
    figures.show_chart(figure.figure, figure.alt, key)
    with place:
        yield


def say_limit(contexts: Iterable[int], limit: int | None) -> None:
    """Say it where some contexts are longer than the model is made for."""
    if limit is not None and max(contexts, default=0) > limit:
        st.caption(f"What is above {words.counted(limit, 'token')} is beyond what the model is made for.")


def show_gaps(refused: Iterable[Refusal], scenario: Scenario) -> None:
    """Why some combinations are not there; equal reasons once."""
    reasons: dict[str, list[str]] = {}
    for refusal in refused:
        named = " ".join(value_words(column, value, scenario) for column, value in refusal.values.items())
        reasons.setdefault(refusal.reason, []).append(named)
    if not reasons:
        return
    st.info("Not every combination can be planned; those that cannot are left out", icon=":material/info:")
    for reason, places in list(reasons.items())[:MAX_REASONS]:
        more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        st.text(f"{places[0]}{more}: {words.in_words(reason)}")
    if len(reasons) > MAX_REASONS:
        st.text(f"and {len(reasons) - MAX_REASONS:,} more reasons")


def show_sweep(table: pd.DataFrame, scenario: Scenario, name: str, answer: str, figure: Figure) -> None:
    """The rows of a sweep as a sortable table, and as files that hold exactly them and the figure.

    Rows are fetched as they are scrolled to: a table of 20,000 rows would otherwise be sent whole after each change.
    """
    words.leave_room()
    config: dict[str, Any] = {str(name): _column(str(name), table[name]) for name in table}
    order = [name for name in COLUMNS if name in config]  # whether a row fits would be out of sight behind the bytes
    st.dataframe(
        table, hide_index=True, column_config=config, column_order=order, key=f"{name}_table",
        placeholder=words.UNKNOWN, lazy=True, alt="Every point of the figure",
    )  # fmt: skip
    offer_sweep(table, scenario, name, answer, figure)


def _column(name: str, values: pd.Series[Any]) -> Any:
    """A column with its words, as wide as they and its largest number are.

    Without a width the browser would format hundreds of cells to find one, after every change.
    """
    label = COLUMNS.get(name, name)
    if pd.api.types.is_bool_dtype(values.dtype):
        return st.column_config.CheckboxColumn(label, width=_width(label))
    if pd.api.types.is_numeric_dtype(values.dtype):
        return st.column_config.NumberColumn(label, format="localized", width=_width(label, f"{values.max():,}"))
    return st.column_config.Column(label, width=_width(label, *map(str, values.unique())))


def _width(*texts: str) -> int:
    """Pixels for the longest of some texts."""
    return 34 + 7 * max(map(len, texts))


def show_formula(key: str, draw: Callable[[], None]) -> None:
    """The formula with the visitor's numbers; computed only when it is opened."""
    formula = st.expander("Show the formula", key=f"{key}_formula", on_change="rerun")
    if formula.open:
        with formula:
            draw()


def weights_term(p: MemoryPlan) -> Term:
    """The weights of one GPU, with their precision."""
    return Term("weights", setting_words(p.scenario, "weight_dtype"), p.weight_bytes)


def show_memory_sum(p: MemoryPlan) -> None:
    """Weights, cache and overhead of one GPU, term by term, beside what is usable."""
    here = p.scenario
    st.text(
        f"Weights + KV cache + overhead of {here.batch_size:,} × {words.counted(here.context_length, 'token')} on one "
        "GPU:"
    )
    parts = [weights_term(p), *cache_terms(p), *overhead_terms(p, words.unit())]
    verdict = "fits" if p.fits else "does not fit"
    ends = [Term("together", "sum of the above", p.total_bytes), Term("usable", verdict, p.capacity_bytes)]
    words.show_terms([*parts, *ends])


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
