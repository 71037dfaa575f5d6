"""The run-time overhead of a plan as low, typical and high, whether it fits at each, and figures of one's own."""

from __future__ import annotations

import streamlit as st

from kvplan.engines.overheads import LABELS, measured
from kvplan.errors import KvplanError
from kvplan.plan import MemoryPlan, OverheadPart, estimated_overhead
from kvplan.ui import words
from kvplan.ui.address import say_once
from kvplan.ui.engine_overheads import known_overheads, take_overhead
from kvplan.units import parse_bytes

OWN = "own_overhead_"
"""Start of the keys of the fields for figures of one's own."""


def show_overheads(p: MemoryPlan) -> None:
    """Whether it fits at each of the three, and a folded section; what that holds is made when it is opened."""
    st.text(f"Overhead: {_headline(p)}")
    section = st.expander(
        "Overhead: low, typical and high, and figures of your own", key="overheads", on_change="rerun"
    )
    if section.open:
        with section:
            _show_taken(p)
            _show_estimates(p)
            _ask_own(p)


def _headline(p: MemoryPlan) -> str:
    """Whether it fits at each of the three, in a line."""
    if not p.runtime.is_estimate:
        return f"{words.size(p.runtime.typical_bytes)} on each GPU, as given"
    return "; ".join(f"{name} {_verdict(p, size)}" for name, size in _three(p).items())


def _three(p: MemoryPlan) -> dict[str, int]:
    runtime = estimated_overhead(p.scenario)
    return {"low": runtime.low_bytes, "typical": runtime.typical_bytes, "high": runtime.high_bytes}


def _verdict(p: MemoryPlan, overhead_bytes: int) -> str:
    return "fits" if p.free_bytes_with(overhead_bytes) >= 0 else "does not fit"


def _show_taken(p: MemoryPlan) -> None:
    """The parts of the figure that the plan counts, where they are known; a link carries their sum only."""
    parts = known_overheads(p.scenario, "vllm")
    if parts:
        rows = [(part.label, words.size(part.typical), part.source) for part in parts]
        words.show_facts(
            rows, ("the plan counts", "on each GPU", "from"), "Overheads that the plan counts", "overhead_taken"
        )


def _show_estimates(p: MemoryPlan) -> None:
    runtime = estimated_overhead(p.scenario)
    rows = [_part_row(part) for part in runtime.parts]
    rows.append(("together", *(words.size(size) for size in _three(p).values())))
    rows.append(("would be free", *(_free_words(p, size) for size in _three(p).values())))
    words.show_facts(rows, ("on each GPU", "low", "typical", "high"), "Overheads, low to high", "overhead_spread")
    for part in runtime.parts:
        st.text(f"{part.label}: {part.source_in(words.unit())}")
    st.caption(
        "Low, typical and high are the 10th percentile, the median and the 90th percentile. Activations follow the "
        "tokens of a batch and not the size of the model; the Engine page estimates them for this model."
    )


def _part_row(part: OverheadPart) -> tuple[str, ...]:
    return (part.label, *(words.size(size) for size in (part.low, part.typical, part.high)))


def _free_words(p: MemoryPlan, overhead_bytes: int) -> str:
    free = p.free_bytes_with(overhead_bytes)
    return words.size(free) if free >= 0 else f"{words.size(-free)} short"


def _ask_own(p: MemoryPlan) -> None:
    """Fields for each part, and the button that takes them: the sum goes into the scenario and its link."""
    st.text(
        "Replace a part by a figure of your own, such as from a start-up log; an empty field keeps the typical one."
    )
    with st.container(horizontal=True):
        for part in estimated_overhead(p.scenario).parts:
            st.text_input(part.label, key=OWN + part.name, placeholder=words.size(part.typical), width=200)
    st.button("Use these figures", key="use_overheads", on_click=_take_own, args=(p,))
    if not p.runtime.is_estimate:
        st.button("Back to the estimate", key="estimate_overhead", on_click=_forget_own)


def _take_own(p: MemoryPlan) -> None:
    """Runs before the page does. What cannot be read is said on it."""
    parts = []
    try:
        for part in estimated_overhead(p.scenario).parts:
            text = (st.session_state.get(OWN + part.name) or "").strip()
            size = parse_bytes(text, part.label) if text else part.typical
            parts.append(measured(part.name, size, "given on the Plan page" if text else f"median of {part.origin}"))
        take_overhead(sum(part.typical for part in parts), tuple(parts))
    except KvplanError as error:
        say_once(str(error))


def _forget_own() -> None:
    st.session_state["overhead"] = ""
    for name in LABELS:
        st.session_state.pop(OWN + name, None)
