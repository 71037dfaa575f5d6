"""Users: how many people at once, with lengths that spread, and the GPUs that they need."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.errors import KvplanError
from kvplan.explain import user_lines, users_sentence
from kvplan.fleet import (
    Lengths,
    UserPlan,
    fewest_for_users,
    grouped_digits,
    lengths_from_list,
    lengths_from_quantiles,
    numbers_tried,
    parse_lengths,
    parse_pairs,
    plan_users,
    user_warnings,
)
from kvplan.plan import Scenario
from kvplan.report import USD_AN_HOUR
from kvplan.ui import figures, words
from kvplan.ui.address import BIND
from kvplan.ui.fields import FIELDS
from kvplan.ui.page_address import write_address
from kvplan.ui.scenario import current_or_stop
from kvplan.units import counted, format_bytes, format_usd, parse_count

SPREAD, LISTED, PAIRED = "median and 95th percentile", "a list of lengths", "prompt, answer pairs"
MAX_CHARACTERS = 3_000_000
"""Of a pasted list: a few hundred thousand lengths."""

MAX_IN_ADDRESS = 4_000
"""Of a list as the address carries it: some 800 lengths. Browsers and mail cut addresses that are much longer."""

USERS, FOLLOWED = "users_at_once", "users_of_batch"
LIST, LIST_IN_ADDRESS = "length_list", "list"


# -------------------------------------------------------------------------------------------------------- questions


def ask_users(scenario: Scenario) -> int:
    """Users at once. It follows the sidebar's batch until it is changed here."""
    batch = scenario.batch_size
    followed = st.session_state.get(FOLLOWED, FIELDS["batch"].default)
    if st.session_state.get(USERS, followed) == followed and USERS not in st.query_params:
        st.session_state[USERS] = batch
    st.session_state[FOLLOWED] = batch
    number = st.number_input(
        "Users at once", 1, None, FIELDS["batch"].default, key=USERS, bind=BIND, width=200,
        help="Sequences held in memory together; the batch of the sidebar, until another number is given here.",
    )  # fmt: skip
    return int(number or 1)


def ask_lengths(scenario: Scenario) -> Lengths:
    """The spread of the sequences' lengths. Raises InputError."""
    how = st.segmented_control("Lengths from", [SPREAD, LISTED, PAIRED], default=SPREAD, key="lengths", bind=BIND)
    if how in (LISTED, PAIRED):
        return _listed(how == PAIRED)
    write_address(LIST_IN_ADDRESS, None)
    return _spread(scenario)


def _spread(scenario: Scenario) -> Lengths:
    asked = (
        ("Median prompt", "1k", "p50"),
        ("95th percentile prompt", "4k", "p95"),
        ("Median answer", "256", "a50"),
        ("95th percentile answer", "1k", "a95"),
    )
    with st.container(horizontal=True):
        texts = [
            st.text_input(f"{label}, tokens", default, key=key, max_chars=20, bind=BIND, width=200)
            for label, default, key in asked
        ]
    prompt, prompt_high, answer, answer_high = (
        parse_count(text or "", f"“{label}”", 1) for text, (label, _, _) in zip(texts, asked, strict=True)
    )
    st.caption(
        "The longest sequence allowed is the context length of the sidebar, "
        f"{counted(scenario.context_length, 'token')}."
    )
    return lengths_from_quantiles((prompt, prompt_high), (answer, answer_high), scenario.context_length)


def _listed(in_pairs: bool) -> Lengths:
    label = "Prompt and answer of each request" if in_pairs else "Length of each request, prompt and answer together"
    if LIST not in st.session_state:
        st.session_state[LIST] = unpacked(st.query_params.get(LIST_IN_ADDRESS, ""))
    text = st.text_area(
        f"{label}, in tokens", key=LIST, max_chars=MAX_CHARACTERS, persist_state="session",
        placeholder="812, 120\n1530, 64" if in_pairs else "812, 1530, 97 ...",
        help="One pair a line." if in_pairs else "Whole numbers with commas, spaces or lines between them.",
    )  # fmt: skip
    _keep_in_address(text or "")
    if not in_pairs:
        _say_grouped(text or "")
    return lengths_of(text or "", in_pairs)


def _say_grouped(text: str) -> None:
    """How a number that may be written with separators is read."""
    if found := grouped_digits(text):
        numbers = counted(found.count(",") + 1, "length")
        st.caption(f"“{found}” is read as {numbers}; one number is written {found.replace(',', '')}.")


def _keep_in_address(text: str) -> None:
    """Have the address carry the list, or say that it does not."""
    found = packed(text)
    fits = len(found) <= MAX_IN_ADDRESS
    st.session_state[LIST_IN_ADDRESS] = found  # what the address is compared with
    write_address(LIST_IN_ADDRESS, found if fits else None)
    if not fits:
        st.caption(
            f"The list is too long for the address, {counted(len(found), 'character')} of at most {MAX_IN_ADDRESS:,}: "
            "a link of this page does not carry it."
        )


def packed(text: str) -> str:
    """A list as the address carries it: `_` between numbers, `~` between lines, which no address has to escape."""
    plain = text.replace("_", "")  # digits may be grouped so
    return "~".join("_".join(re.findall(r"[^\s,;]+", line)) for line in plain.splitlines() if line.strip(", ;\t"))


def unpacked(text: str) -> str:
    """The list that an address carries, as it may be typed."""
    return text.replace("~", "\n").replace("_", ", ")


@st.cache_data(max_entries=8, show_spinner="Reading the list")
def lengths_of(text: str, in_pairs: bool) -> Lengths:
    """The lengths of a pasted list. Raises InputError."""
    return lengths_from_list(parse_pairs(text) if in_pairs else parse_lengths(text))


# ----------------------------------------------------------------------------------------------------------- answers


def show_lengths(spread: Lengths) -> None:
    mean, p95, longest = (counted(tokens, "token") for tokens in (spread.mean, spread.p95, spread.maximum))
    st.text(f"A sequence has {mean} on average, {p95} at the 95th percentile, {longest} at most.")
    how = "" if spread.is_estimate else "; 95 % of them are no longer than the 95th percentile"
    st.caption(("An estimate: " if spread.is_estimate else "From ") + spread.source + how)


def show_layout(scenario: Scenario, users: int, points: tuple[UserPlan, ...]) -> None:
    st.subheader("On the GPUs of the sidebar", anchor=False)
    st.text(f"Each replica is {words.hardware(scenario)}: {words.precision(scenario)}.")
    unit = words.unit()
    bars = charts.named_bars(
        [f"{point.label}: {counted(point.tokens, 'token')}" for point in points],
        [charts.scaled(point.cache_bytes, unit) for point in points],
        [format_bytes(point.cache_bytes, unit) for point in points],
        f"KV cache of all users, {unit}",
        [words.exact_size(point.cache_bytes) for point in points],
    )
    figures.show_chart(
        bars, "KV cache of all users at the mean, the 95th percentile and the maximum length", "users", figures.STILL
    )
    table = pd.DataFrame([_cells(point) for point in points])
    price = st.column_config.NumberColumn(format="dollar")
    words.show_table(table, "What all users take at each length", "users", **{USD_AN_HOUR: price})
    if scenario.gpu.rent_per_hour is None:
        st.caption(f"{words.UNKNOWN} where no public price is known.")
    words.offer_csv(table, "users", "This table as CSV")
    _show_formula(scenario, users, points)


def _cells(point: UserPlan) -> dict[str, Any]:
    return {
        "every sequence at its": point.label,
        "tokens": point.tokens,
        "cache bytes of all users": point.cache_bytes,
        "users a replica holds": point.users_per_replica,
        "replicas": point.replicas,
        "GPUs": point.num_gpus,
        USD_AN_HOUR: point.rent_per_hour,
    }


def _show_formula(scenario: Scenario, users: int, points: tuple[UserPlan, ...]) -> None:
    formula = st.expander("Show the formula", key="users_formula", on_change="rerun")
    if not formula.open:
        return
    with formula:
        for point in points:
            st.text(f"Every sequence at its {point.label}, {counted(point.tokens, 'token')}")
            words.show_facts(user_lines(scenario, users, point), ("what", "how"), f"Formula, {point.label} length")
        st.caption(
            "Fixed is what a GPU holds whatever the number of sequences: weights, overhead, a shared prefix. "
            "Of several pipeline stages the one that is full first counts."
        )


def show_fewest(scenario: Scenario, users: int, lengths: Lengths, warned: Collection[str]) -> None:
    """The layout that serves all users at the 95th percentile with the fewest GPUs.

    warned  what has been said of the sidebar's layout, and is not repeated
    """
    st.subheader("Fewest GPUs for everyone", anchor=False)
    words.say_no_stages(scenario)
    found = fewest_for_users(scenario, users, lengths)
    if found is None:
        st.text("No layout that was tried holds even one sequence.")
        st.text(f"{numbers_tried(scenario)}.")
        return
    best, point = found.scenario, found.point
    rent = scenario.gpu.rent_per_hour
    price = "no public price" if point.rent_per_hour is None else f"{format_usd(point.rent_per_hour)} an hour"
    dated = "" if rent is None else f" {format_usd(rent.usd)} a GPU, seen {rent.date}."
    words.show_numbers(
        [
            words.Number(
                "GPUs", f"{point.num_gpus:,}", "All replicas together, at the 95th percentile of the lengths."
            ),
            words.Number("Replicas", f"{point.replicas:,}", "Copies of the model."),
            words.Number(
                "GPUs a replica",
                f"{best.num_gpus:,}",
                "GPUs that share each layer, times pipeline stages, times data parallel.",
            ),
            words.Number("Price", price, f"The lowest public rental price.{dated}"),
        ]
    )
    st.text(f"Every sequence at its 95th percentile of {counted(point.tokens, 'token')}; each replica on {_how(best)}.")
    words.show_warnings(text for text in user_warnings(best, users, lengths) if text not in warned)
    for line in user_lines(best, users, point):
        st.caption(f"{line.what}: {line.how}")


def _how(scenario: Scenario) -> str:
    """The GPUs of a replica, and what they are the product of where that is more than one number."""
    stages, copies = scenario.pipeline_parallel, scenario.data_parallel
    layout = counted(scenario.tensor_parallel, "GPU")
    if stages == copies == 1:
        return layout
    if stages > 1:
        layout = f"{counted(stages, 'pipeline stage')} of {layout}"
    return f"{counted(scenario.num_gpus, 'GPU')}: {layout}" + (f" × {copies:,} in data parallel" if copies > 1 else "")


# -------------------------------------------------------------------------------------------------------------- page


def show_page(scenario: Scenario) -> None:
    """The answer on top, although the questions that it needs stand below it."""
    answer = st.container()
    number = ask_users(scenario)
    spread = ask_lengths(scenario)
    show_lengths(spread)
    points = plan_users(scenario, number, spread)
    with answer:
        color = "green" if points[1].num_gpus is not None else "red"
        st.header(users_sentence(scenario, number, spread, points[1]), divider=color, anchor=False)
        st.text(f"{words.hardware(scenario)}, every sequence at its 95th percentile{words.besides(scenario)}")
        words.where_to_change()
        warned = user_warnings(scenario, number, spread)
        words.show_warnings(warned)
    show_layout(scenario, number, points)
    show_fewest(scenario, number, spread, warned)


asked = current_or_stop()
try:
    show_page(asked)
except KvplanError as error:
    st.header("Users", anchor=False)
    words.show_error(error)
