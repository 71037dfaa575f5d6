"""Plan: will it fit, how much room is left, and why the number is what it is."""

from __future__ import annotations

import streamlit as st

from kvplan import charts
from kvplan.errors import KvplanError
from kvplan.explain import (
    ASSUMPTIONS,
    FORMULA_LETTERS,
    GENERAL_FORMULA,
    cache_terms,
    count_layers,
    layer_strip,
    layer_words,
    limit_lines,
    overhead_terms,
    size_reasons,
    weight_terms,
)
from kvplan.fleet import fewest_gpus, numbers_tried
from kvplan.plan import MemoryPlan, Scenario, node_sentence, plan
from kvplan.suggest import suggestions
from kvplan.sweep import over_context
from kvplan.ui import figures, words
from kvplan.ui.address import take_scenario
from kvplan.ui.answers import show_answer
from kvplan.ui.plan_engine import show_engine
from kvplan.ui.plan_overheads import show_overheads
from kvplan.ui.words import unit
from kvplan.units import counted


def show_verdict(p: MemoryPlan) -> None:
    st.header(p.sentence_in(unit()), divider="green" if p.fits else "red", anchor=False)
    st.text(words.about(p.scenario))
    if lying := node_sentence(p.scenario):
        st.text(lying)
    words.where_to_change()
    lesson = st.session_state.pop("lesson", None)
    if lesson is not None:
        st.info("What this example teaches", icon=":material/school:")
        st.text(lesson)
    words.show_warnings(p.warnings)


def show_memory(p: MemoryPlan) -> None:
    figures.show_chart(
        charts.memory_bar(p, unit()), "Memory of one GPU: weights, KV cache, overhead and free", "memory"
    )
    guessed = p.runtime.is_estimate or p.scenario.model.is_estimate
    look = "; hatching on an empty ground is an estimate" if guessed else ""
    st.caption(f"Blue segments are the weights, by role{look}.{overhead_words(p)}")


def overhead_words(p: MemoryPlan) -> str:
    """Where the overhead comes from and how far it may reach; nothing where the visitor gave it."""
    if not p.runtime.is_estimate:
        return ""
    return (
        f" The overhead is an estimate: typically {words.size(p.runtime.typical_bytes)}, "
        f"{words.size(p.runtime.high_bytes)} at the 90th percentile ({p.runtime.source_in(unit())}). "
        "Give your own figure under More settings."
    )


def show_limits(p: MemoryPlan) -> None:
    """The limits of the plan as numbers side by side."""
    floor = p.decode_floor_seconds
    per_token = p.bytes_per_token
    exact = f"{per_token:,} B" if isinstance(per_token, int) else f"{float(per_token):,.2f} B"
    words.show_numbers(
        [
            words.Number(
                "Largest batch",
                "no limit" if p.max_batch_size is None else f"{p.max_batch_size:,}",
                "Sequences of this context that memory holds.",
            ),
            words.Number(
                "Longest context",
                words.tokens(p.max_context_length),
                "Tokens of each sequence that memory holds at this batch; the model's own limit is another one."
                + ("" if p.max_context_length is None else f" Exactly {p.max_context_length:,}."),
            ),
            words.Number("Cache a token", exact, "What one more token of one sequence adds on each GPU."),
            words.Number(
                "Crossover",
                words.tokens(p.crossover_context_length, "never"),
                "The context from which this batch's cache is at least as large as the weights.",
            ),
            words.Number(
                "Decode step, at least",
                "unknown" if floor is None else f"{floor * 1000:,.2f} ms",
                "A lower bound: bytes read divided by memory bandwidth. A real step takes longer.",
            ),
        ]
    )


def show_suggestions(p: MemoryPlan) -> None:
    """The smallest single change of each lever that would make it fit, each to be taken at once."""
    if p.fits:
        return
    st.subheader("What would make it fit", anchor=False)
    st.caption("By resident bytes, each change alone; what an engine reserves is counted under “Serve it”.")
    found = suggestions(p.scenario)
    for suggestion in found:
        _offer(suggestion.lever, suggestion.scenario, suggestion.sentence_in(unit()))
    if not found:
        st.text("No single change is enough.")
    fewest = fewest_gpus(p.scenario)
    if fewest is None:
        st.text("No number of these GPUs that was tried holds it.")
        st.text(f"{numbers_tried(p.scenario)}.")
    else:
        _offer("fewest", fewest.scenario, f"As few of these GPUs as hold it: {gpus_words(fewest)}.")
    words.say_no_stages(p.scenario)


def _offer(key: str, scenario: Scenario, sentence: str) -> None:
    """A change of the scenario in a sentence, beside the button that makes it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Apply", key=f"apply_{key}", on_click=take_scenario, args=(scenario,))
        st.text(sentence)


def gpus_words(p: MemoryPlan) -> str:
    here = p.scenario
    stages = f" in {counted(here.pipeline_parallel, 'stage')}" if here.pipeline_parallel > 1 else ""
    return f"{counted(here.num_gpus, 'GPU')}{stages}"


NEXT = ":material/arrow_forward:"


def show_next() -> None:
    """The questions that a planner asks next, on the pages that answer them."""
    with st.container(horizontal=True):
        st.page_link("kvplan/ui/sweep.py", label="Which GPU? Compare them", icon=NEXT, query_params={"q": "Which GPU?"})
        st.page_link("kvplan/ui/users.py", label="How many GPUs for my users?", icon=NEXT)


def show_curve(p: MemoryPlan) -> None:
    st.subheader("Cache against weights", anchor=False)
    try:
        table = over_context(p.scenario, charts.context_values(p))
    except KvplanError as error:  # numbers beyond what a table can hold exactly
        words.show_error(error, "This curve cannot be drawn")
        return
    figures.show_chart(
        charts.cache_against_weights(p, table, unit()),
        "Memory over context length: cache, weights, their sum with overhead, and the usable capacity",
        "curve",
    )


def show_layers(p: MemoryPlan) -> None:
    model = p.scenario.planned_model
    st.subheader("Why: the layers", anchor=False)
    figures.show_chart(
        charts.layer_strip(layer_strip(model)), "The model's layers in order, by kind", "strip", figures.STILL
    )
    for cache, count in count_layers(model.layers):
        st.text(f"{count} × {cache.label}: each keeps {layer_words(cache, p.scenario.kv_dtype)} of a sequence")
    for reason in size_reasons(p):
        st.text(f"{reason}.")


def show_formula(p: MemoryPlan) -> None:
    formula = st.expander("Show the formula", key="formula", on_change="rerun")
    if not formula.open:
        return
    with formula:
        st.text(f"KV cache = {GENERAL_FORMULA}")
        st.caption(", ".join(f"{letter} = {word}" for letter, word in FORMULA_LETTERS))
        st.text(f"This plan, cache on one GPU: {words.exact_size(p.cache_bytes)}")
        words.show_terms(cache_terms(p), "cache_terms")
        st.text(f"Weights on one GPU: {words.exact_size(p.weight_bytes)}")
        words.show_terms(weight_terms(p), "weight_terms")
        st.text(f"Overhead on one GPU: {words.exact_size(p.overhead_bytes)}")
        words.show_terms(overhead_terms(p, unit()), "overhead_terms")
        st.text(f"Usable on one GPU: {words.exact_size(p.capacity_bytes)}; free is what is left of it")
        st.text("The limits")
        words.show_facts(limit_lines(p), ("what", "how"), "The limits")
        st.text("What the cache formula takes for granted")
        for number, sentence in enumerate(ASSUMPTIONS, 1):
            st.text(f"{number}. {sentence}")


def show(scenario: Scenario) -> None:
    """The answer, what made it so, and what to ask next."""
    p = plan(scenario)
    show_verdict(p)
    show_memory(p)
    show_limits(p)
    show_overheads(p)
    show_suggestions(p)
    show_engine(p)
    show_next()
    show_curve(p)
    show_layers(p)
    show_formula(p)


show_answer(show)
