"""What would more or fewer KV heads cost? From MHA to MQA: bytes a token, and the longest context that fits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pandas as pd
import streamlit as st

from kvplan.documents import Figure
from kvplan.errors import InputError, KvplanError
from kvplan.explain import cache_terms
from kvplan.model import Layer
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.sweep import Refusal
from kvplan.sweep_charts import head_bars
from kvplan.ui import figures, words
from kvplan.ui.exports import offer_sweep
from kvplan.ui.questions.shown import show_answer, show_formula, show_gaps
from kvplan.units import counted, counted_and, format_bytes

DECISION = "How many KV heads a model has is decided before training: a trained model cannot be converted for free."


def ask(scenario: Scenario) -> None:
    """Answer, two figures, table."""
    model = scenario.model
    try:
        model.with_kv_heads(1)
    except InputError as error:
        _show_no_axis(scenario, str(error))
        return
    if not model.kv_head_choices:
        _show_no_axis(scenario, f"the attention heads of {model.name} are not known")
        return
    plans, refused = _plans(scenario)
    if plans:
        _show(scenario, plans)
    show_gaps(refused, scenario)


def _show_no_axis(scenario: Scenario, reason: str) -> None:
    show_answer("This model has no number of KV heads to change")
    st.text(reason)
    p = plan(scenario)
    st.text(f"As it is, one more token of one sequence adds {_size(p.bytes_per_token)} on each GPU.")
    st.text(DECISION)
    show_formula("heads", lambda: words.show_terms(cache_terms(p)))


def _plans(scenario: Scenario) -> tuple[dict[int, MemoryPlan], list[Refusal]]:
    plans, refused = {}, []
    for count in scenario.model.kv_head_choices:
        try:
            plans[count] = plan(scenario.with_changes(num_kv_heads=count))
        except KvplanError as error:
            refused.append(Refusal({"num_kv_heads": count}, str(error)))
    return plans, refused


def _show(scenario: Scenario, plans: dict[int, MemoryPlan]) -> None:
    model, decimal = scenario.model, words.unit() == "GB"
    kinds = {count: model.kv_head_kind(count) for count in plans}
    answer = _answer(scenario, plans)
    show_answer(answer, plan(scenario))
    st.text(f"{DECISION} The figures say what another number would have cost.")
    for sentence in _remarks(scenario):
        st.text(sentence)
    marked = {count: f"{kind}, as trained" if count == model.num_kv_heads else kind for count, kind in kinds.items()}
    marks = {count: phrase.replace(", ", "<br>") for count, phrase in marked.items()}
    per_token = {count: _number(p.bytes_per_token) for count, p in plans.items()}
    longest = {count: p.max_context_length for count, p in plans.items()}
    unit, each = "kB" if decimal else "KiB", _each(scenario)
    left, right = st.columns(2)
    with left:
        bars = head_bars(per_token, marks, f"{unit} a token{each}", unit)
        by_token = Figure("Cache bytes a token", f"Cache bytes a token by KV heads. {answer}", bars)
        figures.show_chart(by_token.figure, by_token.alt, "heads_token")
    with right:
        bars = head_bars(longest, marks, "longest context (tokens)")
        by_context = Figure("Longest context", f"Longest context by KV heads. {_longest_words(plans)}", bars)
        figures.show_chart(by_context.figure, by_context.alt, "heads_context")
    table = pd.DataFrame(
        {
            "KV heads": list(plans),
            "kind": list(marked.values()),
            "cache bytes a token": list(per_token.values()),
            "longest context that fits": list(longest.values()),
            "largest batch that fits": [p.max_batch_size for p in plans.values()],
            "weight bytes": [p.weight_bytes for p in plans.values()],
        }
    )
    kind = st.column_config.TextColumn(width=130)  # "GQA, as trained" whole, which the browser itself cuts
    words.show_table(table, "Each number of KV heads", "heads", kind=kind)
    offer_sweep(table, scenario, "kv-heads", answer, by_token, by_context)
    show_formula("heads", lambda: _show_terms(plans))


def _remarks(scenario: Scenario) -> list[str]:
    """Why the number changes less than one may expect: layers without KV heads, windows, copies on several GPUs."""
    layers, gpus, said = scenario.model.layers, scenario.tensor_parallel, []
    headless = Counter(layer.cache.label for layer in layers if layer.cache.kv_heads() is None)
    if headless:
        kinds = ", ".join(f"{count:,} {label}" for label, count in headless.items())
        said.append(f"Of {counted(len(layers), 'layer')} these have no KV heads, and stay as they are: {kinds}.")
    windows = sum(_has_window(layer) for layer in layers)
    if windows:
        said.append(
            f"{counted_and(windows, 'layer', 'keep')} a window: once it is full, a token more adds nothing there."
        )
    if gpus > 1:
        said.append(
            f"Each of {counted(gpus, 'GPU')} holds one KV head at least: fewer than {gpus:,} are copied and save no "
            "more."
        )
    return said


def _has_window(layer: Layer) -> bool:
    return any(part.max_tokens is not None for part in layer.cache.cache_parts())


def _answer(scenario: Scenario, plans: dict[int, MemoryPlan]) -> str:
    """The model's own number beside MHA and MQA, as far as they can be planned."""
    own = scenario.model.num_kv_heads or 0
    most, least = max(plans), min(plans)
    sizes = {count: _size(p.bytes_per_token) for count, p in plans.items()}
    others = [
        f"{scenario.model.kv_head_kind(count)} with {words.counted(count, 'KV head')} {sizes[count]}"
        for count in dict.fromkeys((most, least))
        if count != own
    ]
    if own not in plans:
        return f"A token would take {', '.join(others)}{_each(scenario)}"
    kind = scenario.model.kv_head_kind(own)
    trained = f"{kind} with {words.counted(own, 'KV head')}, as trained, takes {sizes[own]} a token{_each(scenario)}"
    return f"{trained}; {' and '.join(others)}" if others else trained


def _each(scenario: Scenario) -> str:
    """Where the bytes of a token are, where they may be divided."""
    return " on each GPU" if scenario.num_gpus > 1 else ""


def _longest_words(plans: dict[int, MemoryPlan]) -> str:
    found = {count: p.max_context_length for count, p in plans.items()}
    return "; ".join(f"{count}: {'no limit' if n is None else counted(n, 'token')}" for count, n in found.items())


def _number(value: int | Fraction) -> int | float:
    return value if isinstance(value, int) else float(value)


def _size(value: int | Fraction) -> str:
    return words.size(value) if isinstance(value, int) else format_bytes(round(value), decimal=words.unit() == "GB")


def _show_terms(plans: dict[int, MemoryPlan]) -> None:
    here = next(iter(plans.values())).scenario
    st.text(f"KV cache of {here.batch_size:,} × {counted(here.context_length, 'token')} on one GPU:")
    for count, p in plans.items():
        st.text(words.counted(count, "KV head"))
        words.show_terms(cache_terms(p))
