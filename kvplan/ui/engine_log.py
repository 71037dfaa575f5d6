"""A pasted start-up log beside the plan, line by line. Nothing of it is shown as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from kvplan.engines.compare import Line, compare
from kvplan.engines.log import LogFigures, overheads_of, read_log
from kvplan.engines.overheads import Overhead
from kvplan.engines.recognise import preset_of
from kvplan.engines.reserved import overhead_parts, typical_total
from kvplan.errors import KvplanError
from kvplan.plan import Scenario
from kvplan.suggest import launch_of
from kvplan.ui import words
from kvplan.ui.engine_overheads import take_overhead
from kvplan.ui.library import find_gpu, find_model, gpu_ids, model_ids
from kvplan.ui.words import unit
from kvplan.units import format_bytes, format_exact_bytes

MAX_PASTED = 1_000_000
"""Characters: a browser sends what was typed with every change, and the server cuts off who sends more than 8 MB."""

MAX_MEGABYTES = 5
TOO_LONG = (
    f"The pasted text reaches the {MAX_PASTED:,} characters that this field takes, so the end of a longer log is "
    f"missing. Upload it as a file of up to {MAX_MEGABYTES} MB instead."
)
WANTED = (
    "Paste what vLLM, SGLang or llama.cpp prints while it starts, from the first line to the first request. "
    "The lines about memory are read, all else is ignored, and nothing is kept."
)


def show_log(scenario: Scenario) -> None:
    """The whole view. Raises KvplanError for text that is too long, or a model that is not known."""
    text = _ask_text()
    if not text.strip():
        st.text(WANTED)
        return
    figures = read_log(text)
    st.text(figures.note)
    if figures.engine is None:
        st.text(WANTED)
        return
    model, gpu = _ask_model(figures), st.session_state["log_gpu"]
    if model is None:
        st.text("The log names no model that is known here. Choose the model above, and the plan is laid beside it.")
    else:
        _show_comparison(compare(figures, find_model(model), find_gpu(gpu) if gpu else None))
    _show_overhead(scenario, figures, model)
    _show_figures(figures)


def _ask_text() -> str:
    """A file's text where one is given, else what was pasted. Browsers take minutes to paste some megabytes."""
    pasted = st.text_area(
        "Start-up log", key="log_text", height=220, persist_state="session", max_chars=MAX_PASTED,
        placeholder="Available KV cache memory: 24.83 GiB\nGPU KV cache size: 464,848 tokens",
    )  # fmt: skip
    uploaded = st.file_uploader(
        f"Or a file with it, up to {MAX_MEGABYTES} MB: for long logs", ["log", "txt", "out", "err"], key="log_file",
        max_upload_size=MAX_MEGABYTES,
    )  # fmt: skip
    if uploaded is not None:
        return uploaded.getvalue().decode("utf-8", "replace")
    if len(pasted or "") >= MAX_PASTED:
        st.text(TOO_LONG)
    return pasted or ""


def _ask_model(figures: LogFigures) -> str | None:
    """The model's id: the one that is chosen, else the one that the log names, else None."""
    named = preset_of(figures.text("model"))
    with st.container(horizontal=True):
        chosen = st.selectbox(
            "Model of the log", model_ids(), None, key="log_model", persist_state="session", width=320,
            placeholder=f"{named}, as the log says" if named else "Choose the model",
        )  # fmt: skip
        st.selectbox(
            "GPU of the log", gpu_ids(), None, key="log_gpu", persist_state="session", width=320,
            placeholder="Leave its memory out",
        )  # fmt: skip
    return chosen or named


# ----------------------------------------------------------------------------------------------------- comparison


def _show_comparison(lines: Sequence[Line]) -> None:
    known = [line for line in lines if line.planned is not None]
    agreeing = sum(line.agrees for line in known)
    if not lines:
        st.subheader("Nothing in this log can be predicted", divider="red", anchor=False)
        return
    color = "green" if agreeing == len(lines) else "red"
    st.subheader(f"{agreeing} of {words.counted(len(lines), 'figure')} agree", divider=color, anchor=False)
    words.leave_room()
    st.dataframe(
        pd.DataFrame([_cells(line) for line in lines]),
        hide_index=True,
        height="content",
        key="log_lines",
        alt="The log beside the plan",
    )
    for line in lines:
        if line.reason:
            st.text(f"{line.label}: {line.reason}")


def _cells(line: Line) -> dict[str, str]:
    return {
        "figure": line.label,
        "verdict": verdict(line),
        "log": line.as_text(line.printed),
        "kvplan": line.as_text(line.planned),
        "difference": "" if line.difference is None else f"{line.difference:+.2%}",
    }


def verdict(line: Line) -> str:
    """agrees, differs, or not known."""
    if line.planned is None:
        return "not known"
    return "agrees" if line.agrees else "differs"


# ------------------------------------------------------------------------------------------------------- overhead


def _show_overhead(scenario: Scenario, figures: LogFigures, model: str | None) -> None:
    st.subheader("Overhead for the plan", anchor=False)
    if model is not None and model != scenario.model.id:
        st.text(f"The log is of {model} and the plan is of {scenario.model.name}: what they take may differ.")
    stated = overheads_of(figures)
    if not stated:
        st.text("The log does not say what activations, context and graphs take, so there is no figure for the plan.")
        return
    try:
        _offer_overhead(
            scenario, overhead_parts(launch_of(scenario, figures.engine or "", figures.text("version"), stated))
        )
    except KvplanError as error:
        words.show_error(error, "This overhead cannot be taken")


def _offer_overhead(scenario: Scenario, parts: tuple[Overhead, ...]) -> None:
    """Each part, and the button that takes their total. Raises InputError where no GPU has so much."""
    total = scenario.with_changes(overhead_bytes=typical_total(parts)).overhead_bytes or 0
    rows = [(part.label, format_bytes(part.typical, unit()), _origin(part)) for part in parts]
    words.show_facts(rows, ("what", "bytes on one GPU", "from"), "Overheads", "log_overheads")
    if any(not part.measured for part in parts):
        st.text("What the log does not state is estimated for the model and GPU of the plan.")
    if scenario.overhead_bytes == total:
        st.text(f"The plan uses this overhead, {format_bytes(total, unit())}. It stands under More settings.")
        return
    label = f"Take {format_bytes(total, unit())} of overhead into the plan"
    st.button(label, key="take_overhead", type="primary", on_click=take_overhead, args=(total, parts))


def _origin(part: Overhead) -> str:
    return part.source if part.measured else "an estimate"


def _show_figures(figures: LogFigures) -> None:
    with st.expander("Every figure that was read"):
        rows = [(name, _figure_text(name, value)) for name, value in figures.values.items()]
        words.show_facts(rows, ("figure", "value"), "Figures of the log", "log_figures")


def _figure_text(name: str, value: int | float | str) -> str:
    if isinstance(value, str):
        return value
    return format_exact_bytes(round(value)) if name.endswith("_bytes") else f"{value:,}"
