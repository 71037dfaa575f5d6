"""Compare: up to four scenarios side by side. The sidebar's is A; the address holds them all."""

from __future__ import annotations

import streamlit as st

from kvplan.comparison import LETTERS, Comparison, change_rows, compare, figure_alt, limit_rows, memory_bars, part_rows
from kvplan.errors import KvplanError, LinkError
from kvplan.library import SCENARIO, scenario_of
from kvplan.plan import Scenario
from kvplan.presets import list_scenarios
from kvplan.share import MAX_COMPARED, open_comparison
from kvplan.ui import figures, words
from kvplan.ui.address import say_once, take_scenario
from kvplan.ui.compared import add_compared, compared, keep_compared, room
from kvplan.ui.exports import offer_comparison
from kvplan.ui.library import find, find_gpu, find_model, own
from kvplan.ui.scenario import current, current_or_stop

LINK, PRESET = "compare_link", "compare_preset"


# ------------------------------------------------------------------------------------------------------------- adding


def keep_current() -> None:
    """Put the sidebar's scenario beside itself, so that a change of the sidebar shows what it changes."""
    try:
        add_compared(current())
    except KvplanError as error:
        say_once(str(error))


def take_link() -> None:
    """Add what a pasted link describes; what of it could not be used, or found no room, is said once."""
    text, st.session_state[LINK] = st.session_state[LINK], ""
    if not text.strip():
        return
    opened = open_comparison(text)
    given = [one.scenario for one in opened if one.scenario is not None]
    said = [one.sentence for one in opened if one.sentence]
    free = room()
    if len(given) > free:
        said.append(
            f"only {free} of the link's {words.counted(len(given), 'scenario')} found room: a comparison has up to "
            f"{MAX_COMPARED}"
        )
    for scenario in given[:free]:
        add_compared(scenario)
    if said:
        say_once("; ".join(said))


def take_preset() -> None:
    """Add a scenario preset."""
    name, st.session_state[PRESET] = st.session_state[PRESET], None
    if name is None:
        return
    try:
        add_compared(scenario_of(find(SCENARIO, name), find_model, find_gpu))
    except KvplanError as error:
        say_once(str(error))


def show_adding() -> None:
    """Three ways to add a scenario, while there is room for one."""
    letter = LETTERS[len(compared()) + 1]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            f"Keep the current scenario as {letter}", key="compare_keep", type="primary", on_click=keep_current,
            help="Then change the sidebar: what changes is shown beside it.",
        )  # fmt: skip
        st.text_input(
            "Or add a link", key=LINK, max_chars=20_000, placeholder="paste a link of kvplan", on_change=take_link,
            width=300,
        )  # fmt: skip
        st.selectbox(
            "Or a scenario preset", [*own(SCENARIO), *list_scenarios()], None, key=PRESET, on_change=take_preset,
            placeholder="Choose a scenario", width=300,
        )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- removing


def remove(index: int) -> None:
    """Take one of the others away."""
    keep_compared(other for place, other in enumerate(compared()) if place != index)


def swap(index: int) -> None:
    """Take one of the others into the sidebar, and put the sidebar's in its place."""
    others = list(compared())
    try:
        others[index], taken = current(), others[index]
    except KvplanError as error:
        say_once(str(error))
        return
    take_scenario(taken)
    keep_compared(others)


def show_scenario(index: int, scenario: Scenario, answer: str) -> None:
    """One scenario: its letter, what it is, its answer, and what can be done with it."""
    letter = LETTERS[index]
    with st.container(border=True, gap="small"):
        st.markdown(f"**{letter}: {answer}**")
        st.text(words.about(scenario))
        if index == 0:
            st.caption("Set in the sidebar.")
            return
        with st.container(horizontal=True):
            st.button(f"Swap {letter} and A", key=f"compare_swap_{index}", on_click=swap, args=(index - 1,))
            st.button(f"Remove {letter}", key=f"compare_remove_{index}", on_click=remove, args=(index - 1,))


# ------------------------------------------------------------------------------------------------------------ showing


def show_comparison(found: Comparison) -> None:
    """The scenarios, what they differ in, the memory side by side, and the files."""
    for index, (place, p) in enumerate(zip(st.columns(len(found.plans)), found.plans, strict=True)):
        with place:
            show_scenario(index, p.scenario, p.sentence)
    for sentence in found.sentences:
        st.text(f"{sentence}.")
    words.show_warnings(found.warnings)
    figures.show_chart(memory_bars(found, words.unit()), figure_alt(found), "compared")
    st.subheader("What differs", anchor=False)
    head, *changes = change_rows(found)
    if changes:
        words.show_facts(changes, head, "What differs", "compare_changes")
    else:
        st.text("Nothing: the scenarios are the same.")
    st.subheader("Bytes on each GPU", anchor=False)
    head, *parts = part_rows(found, words.exact_size)
    words.show_facts(parts, head, "Bytes on each GPU", "compare_parts")
    st.subheader("Limits", anchor=False)
    head, *limits = limit_rows(found)
    words.show_facts(limits, head, "Limits", "compare_limits")
    show_sharing(found)


def show_sharing(found: Comparison) -> None:
    """The link and the files of the comparison."""
    st.subheader("Share this comparison", anchor=False)
    try:
        st.code(f"{words.home()}compare{found.link}", language=None, wrap_lines=True)
    except LinkError as error:
        st.text(f"{error}.")
    offer_comparison(found)


st.header("Compare", anchor=False)
asked = current_or_stop()
if room():
    show_adding()
if compared():
    show_comparison(compare(asked, *compared()))
else:
    st.info(
        "The sidebar's scenario is A. Keep it as B and change the sidebar, or add another one: a link that somebody "
        "sent, or a preset.", icon=":material/compare_arrows:",
    )  # fmt: skip
    st.text(f"A: {words.about(asked)}")
