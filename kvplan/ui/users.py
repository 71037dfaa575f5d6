"""Users: how many people at once, with lengths that spread, and the GPUs that they need."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.errors import InputError, KvplanError
from kvplan.fleet import Lengths, UserPlan, layouts, lengths_from_list, lengths_from_quantiles, plan_users
from kvplan.plan import Scenario
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.sidebar import current_or_stop, unit
from kvplan.units import format_bytes, format_exact_bytes, parse_count

SPREAD, LISTED = "median and 95th percentile", "a list of lengths"
MAX_CHARACTERS = 200_000


def ask_lengths(scenario: Scenario) -> Lengths:
    """The spread of the sequences' lengths. Raises InputError."""
    how = st.segmented_control("Lengths from", [SPREAD, LISTED], default=SPREAD, key="lengths", bind=BIND)
    return _listed() if how == LISTED else _spread(scenario)


def _spread(scenario: Scenario) -> Lengths:
    with st.container(horizontal=True):
        texts = [
            st.text_input(label, default, key=key, max_chars=20, bind=BIND, width=200)
            for label, default, key in (
                ("Median prompt, tokens", "1k", "p50"),
                ("95th percentile prompt", "4k", "p95"),
                ("Median answer, tokens", "256", "a50"),
                ("95th percentile answer", "1k", "a95"),
            )
        ]
    prompt, prompt_high, answer, answer_high = (parse_count(text or "", "a length") for text in texts)
    st.caption(
        f"The longest sequence allowed is the context length of the sidebar, {scenario.context_length:,} tokens."
    )
    return lengths_from_quantiles((prompt, prompt_high), (answer, answer_high), scenario.context_length)


def _listed() -> Lengths:
    text = st.text_area(
        "Lengths in tokens, prompt and answer together", key="length_list", max_chars=MAX_CHARACTERS,
        persist_state="session", placeholder="812, 1530, 97 ...",
        help="Whole numbers with commas, spaces or lines between them.",
    )  # fmt: skip
    found = [item for item in re.split(r"[\s,;]+", text or "") if item]
    if not found:
        raise InputError("the list of lengths is empty; paste whole numbers with commas, spaces or lines between them")
    return lengths_from_list([parse_count(item, "a length") for item in found])


def show_layout(scenario: Scenario, users: int, lengths: Lengths) -> None:
    st.subheader("On the GPUs of the sidebar", anchor=False)
    gpus = f"{scenario.num_gpus} × {scenario.gpu.name}" if scenario.num_gpus > 1 else scenario.gpu.name
    st.text(f"Each replica is {scenario.model.name} on {gpus}.")
    points = plan_users(scenario, users, lengths)
    bars = charts.named_bars(
        [f"{point.label}: {point.tokens:,} tokens" for point in points],
        [charts.scaled(point.cache_bytes, unit()) for point in points],
        [format_bytes(point.cache_bytes, unit()) for point in points],
        f"KV cache of all users, {unit()}",
        [format_exact_bytes(point.cache_bytes) for point in points],
    )
    words.show_chart(bars, "KV cache of all users at the mean, the 95th percentile and the maximum length", "users")
    table = pd.DataFrame([_cells(point) for point in points])
    words.show_table(table, "users")
    words.offer_csv(table, "users", "This table as CSV")


def _cells(point: UserPlan) -> dict[str, Any]:
    return {
        "every sequence at its": point.label,
        "tokens": point.tokens,
        "cache bytes of all users": point.cache_bytes,
        "users a replica holds": point.users_per_replica,
        "replicas": point.replicas,
        "GPUs": point.num_gpus,
        "USD an hour": point.rent_per_hour,
    }


def show_fewest(scenario: Scenario, users: int, lengths: Lengths) -> None:
    """The layout that serves all users at the 95th percentile with the fewest GPUs."""
    st.subheader("Fewest GPUs for everyone", anchor=False)
    tried = [(p.scenario, plan_users(p.scenario, users, lengths)[1]) for p in layouts(scenario)]
    possible = [(here, point) for here, point in tried if point.num_gpus is not None]
    if not possible:
        st.text("No layout that was tried holds even one sequence.")
        return
    best, point = min(possible, key=lambda item: item[1].num_gpus or 0)
    price = "no public price" if point.rent_per_hour is None else f"${point.rent_per_hour:,.2f} an hour"
    words.show_numbers(
        [
            words.Number(
                "GPUs", f"{point.num_gpus:,}", "All replicas together, at the 95th percentile of the lengths."
            ),
            words.Number("Replicas", f"{point.replicas:,}", "Copies of the model."),
            words.Number("GPUs a replica", f"{best.num_gpus:,}", "Tensor parallel times pipeline stages."),
            words.Number("Price", price, "The lowest public rental price, dated in the list of GPUs."),
        ]
    )
    st.text(
        f"Every sequence at its 95th percentile of {point.tokens:,} tokens; each replica uses tensor parallel "
        f"{best.tensor_parallel} and {best.pipeline_parallel} pipeline stages."
    )


st.header("Users", anchor=False)
asked = current_or_stop()
st.text(words.about(asked))
try:
    number = st.number_input("Users at once", 1, 10_000_000, 100, key="users_at_once", bind=BIND, width=200)
    spread = ask_lengths(asked)
    st.text(f"Mean {spread.mean:,}, 95th percentile {spread.p95:,}, maximum {spread.maximum:,} tokens.")
    st.caption(("An estimate: " if spread.is_estimate else "From ") + spread.source)
    show_layout(asked, number, spread)
    show_fewest(asked, number, spread)
except KvplanError as error:
    words.show_error(error)
