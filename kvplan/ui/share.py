"""Share: the scenario as a link that keeps its meaning, and as files: the plan in four formats, presets."""

from __future__ import annotations

import streamlit as st

from kvplan.charts import plan_words
from kvplan.errors import LinkError
from kvplan.plan import Scenario, plan
from kvplan.share import to_link
from kvplan.ui import words
from kvplan.ui.exports import offer_own, offer_plan, offer_scenario
from kvplan.ui.scenario import current_or_stop


def show_link(scenario: Scenario) -> None:
    """The link of the scenario, to be copied, or why there is none."""
    st.subheader("Link", anchor=False)
    try:
        link = to_link(scenario)
    except LinkError as error:
        words.show_error(error, "A link cannot carry this scenario")
        st.caption("Send the preset file below along; the Library page opens it.")
    else:
        st.code(words.home() + link, language=None, wrap_lines=True)
        st.caption(
            "It is what the browser's address bar holds on every page. Every setting is written out, so it opens this "
            "same plan even when defaults change; a model or GPU of your own travels inside it."
        )


def show_files(scenario: Scenario) -> None:
    """Presets: what another kvplan opens."""
    st.subheader("Preset files", anchor=False)
    with st.container(horizontal=True):
        offer_scenario(scenario)
        for thing in (scenario.model, scenario.gpu, scenario.draft_model):
            if thing is not None:
                offer_own(thing, "share")


st.header("Share", anchor=False)
shared = current_or_stop()
answer = plan(shared)
st.text(words.about(shared))
st.text(answer.sentence_in(words.unit()))
words.show_warnings(answer.warnings)
show_link(shared)
st.subheader("Plan", anchor=False)
offer_plan(answer)
rows = [row for row in plan_words(answer, words.unit()) if row[0] != "answer"]  # a sentence is too long for a cell
words.show_facts(rows, ("what", "value", "exact"), "The plan")
show_files(shared)
