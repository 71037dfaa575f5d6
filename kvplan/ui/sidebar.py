"""The sidebar: the widgets of the one scenario that all pages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.errors import KvplanError
from kvplan.fleet import ADAPTED_ROLES, adapter_bytes
from kvplan.library import scenario_of
from kvplan.presets import list_scenarios, load_scenario
from kvplan.share import YES_NO
from kvplan.sweep import AS_PUBLISHED
from kvplan.ui.address import BIND, say_once, take_scenario
from kvplan.ui.answers import answer_alone, sidebar_shown, when_changed
from kvplan.ui.fields import AS_TRAINED, CONTEXTS, FIELDS, GPU_COUNTS, NO_DRAFT, Field
from kvplan.ui.library import find_model, gpu_ids, gpu_labels, model_ids, model_labels
from kvplan.ui.nodes import choose_node
from kvplan.ui.scenario import FOLDED, FORGOTTEN, MORE, Fault, current, fault, held, where
from kvplan.ui.words import show_error
from kvplan.units import MAX_COUNT, counted

KEPT: Any = {"persist_state": "session"}
"""Argument of every widget of the scenario: otherwise a change of the page resets those behind a closed button."""


# ------------------------------------------------------------------------------------------------------ the widgets


def show_sidebar() -> None:
    """Every field of the scenario, with what is wrong beside it."""
    found = fault()
    with st.sidebar:
        # The browser knows a button that opens by its place among others: one that is moved closes under the hand.
        with st.container():
            _example()
            _fields(found, "model")
            _hardware(found)
            _group("Load", found, "ctx", "batch")
            _group("Precision", found, "kv", "weights", "heads")
        _folded(MORE, found, _unit)
        _folded(FORGOTTEN, found, _adapter_calculator)
    sidebar_shown(is_sound=found is None)


def _hardware(found: Fault | None) -> None:
    """Which GPUs, how many, and how the model lies over them."""
    st.caption("Hardware")
    choose_node()
    _fields(found, "gpu")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for key, width in (("tp", 130), ("pp", 84)):
            with st.container(width=width):
                _WIDGETS[key](FIELDS[key])
    _complain(found, "tp", "pp")
    _say_product()


def _say_product() -> None:
    """The number of GPUs where it is a product; a number that cannot be read is complained of elsewhere."""
    shared, stages, replicas = str(held(FIELDS["tp"])), held(FIELDS["pp"]) or 1, held(FIELDS["dp"]) or 1
    if stages * replicas > 1 and shared.isdecimal():
        copies = f" × {counted(replicas, 'replica')}" if replicas > 1 else ""
        total = counted(int(shared) * stages * replicas, "GPU")
        st.caption(f"{shared} × {counted(stages, 'stage')}{copies} = {total}")


def _group(title: str, found: Fault | None, *keys: str) -> None:
    """Fields under a small title."""
    st.caption(title)
    _fields(found, *keys)


def _fields(found: Fault | None, *keys: str) -> None:
    """Fields one below the other, each with what is wrong with it."""
    for key in keys:
        _WIDGETS[key](FIELDS[key])
        _complain(found, key)


def _folded(title: str, found: Fault | None, more: Callable[[], None]) -> None:
    """Fields behind a button; what is wrong with them is said below the button, where it is seen."""
    keys = [key for key, button in FOLDED.items() if button == title]
    with st.container():
        with st.popover(title, width="stretch"):
            for key in keys:
                _WIDGETS[key](FIELDS[key])
            more()
        _complain(found, *keys)


def _complain(found: Fault | None, *keys: str) -> None:
    """Show what is wrong where it belongs to one of the fields that stand above."""
    if found is not None and found.key in keys:
        show_error(found.error, f"Not possible: {where(found.key)}")


def _unit() -> None:
    st.segmented_control(
        "Unit of memory", ["GiB", "GB"], default="GiB", key="unit", bind=BIND, required=True,
        help="1 GiB is 1,073,741,824 bytes, 1 GB is 1,000,000,000 bytes.", on_change=answer_alone, args=("unit",),
        **KEPT,
    )  # fmt: skip


def _adapter_calculator() -> None:
    """Rank and number of adapters, whose bytes are written into the field above."""
    with st.container(horizontal=True):
        st.number_input("LoRA rank", 1, 8192, 16, key="lora_rank", width=110)
        st.number_input("Adapters", 1, 2**20, 1, key="lora_count", width=110)
    st.button("Fill in the bytes of these adapters", key="fill_adapters", on_click=_fill_in_adapters)


def _fill_in_adapters() -> None:
    try:
        here = current()
        size = adapter_bytes(
            here.model, st.session_state["lora_rank"], st.session_state["lora_count"], ADAPTED_ROLES,
            here.tensor_parallel,
        )  # fmt: skip
        st.session_state["adapters"] = str(size)
    except KvplanError as error:
        say_once(str(error))


def _example() -> None:
    names = list_scenarios()
    if names:
        st.selectbox(
            "Start from an example", names, index=None, key="example", placeholder="Choose an example",
            on_change=_take_example,
        )  # fmt: skip


def _take_example() -> None:
    name, st.session_state["example"] = st.session_state["example"], None
    if name is None:
        return
    try:
        preset = load_scenario(name)
        take_scenario(scenario_of(preset))
        st.session_state["lesson"] = preset.lesson
    except KvplanError as error:
        say_once(str(error))


def _choice(field: Field, options: list[str], **more: Any) -> None:
    """A list to choose from; the value that stands in the session is always one of its entries."""
    now = st.session_state.get(field.key, field.default)
    known = options if now in options or not more.get("accept_new_options") else [*options, now]
    index = known.index(field.default) if field.default in known else 0
    more = {**KEPT, **when_changed(field), **more}
    st.selectbox(field.label, [item for item in known if item], index=index, key=field.key, help=field.help, **more)


def _model(field: Field) -> None:
    _choice(field, model_ids(), on_change=_model_changed, format_func=model_labels())


def _model_changed() -> None:
    """Another model has heads of its own."""
    st.session_state["heads"] = AS_TRAINED


def _gpu(field: Field) -> None:
    _choice(field, gpu_ids(), format_func=gpu_labels())


def _gpu_count(field: Field) -> None:
    _choice(field, list(GPU_COUNTS), accept_new_options=True)


def _context(field: Field) -> None:
    _choice(field, list(CONTEXTS), accept_new_options=True)


def _kv_dtype(field: Field) -> None:
    _choice(field, list(KV_DTYPES), accept_new_options=True)


def _weight_dtype(field: Field) -> None:
    _choice(field, [AS_PUBLISHED, *WEIGHT_FORMATS], accept_new_options=True)


def _kv_heads(field: Field) -> None:
    counts = [str(count) for count in _model_or_none_heads()]
    untouched = st.session_state.get(field.key, AS_TRAINED) == AS_TRAINED
    _choice(field, [AS_TRAINED, *counts], accept_new_options=True, disabled=not counts and untouched)


def _model_or_none_heads() -> tuple[int, ...]:
    try:
        return find_model(st.session_state.get("model")).kv_head_choices
    except KvplanError:
        return ()


def _count(field: Field) -> None:
    st.number_input(
        field.label, min_value=1, max_value=MAX_COUNT, value=field.default, key=field.key, help=field.help,
        **KEPT, **when_changed(field),
    )  # fmt: skip


def _yes_no(field: Field) -> None:
    _choice(field, list(YES_NO))


def _fraction(field: Field) -> None:
    st.number_input(
        field.label, min_value=0.0, max_value=1.0, value=field.default, step=0.05, format="%.3f", key=field.key,
        help=field.help, **KEPT, **when_changed(field),
    )  # fmt: skip


def _text(field: Field, placeholder: str | None = None) -> None:
    st.text_input(
        field.label, value=field.default, key=field.key, help=field.help, placeholder=placeholder, max_chars=30,
        **KEPT, **when_changed(field),
    )  # fmt: skip


def _overhead(field: Field) -> None:
    _text(field, "estimate")


def _draft(field: Field) -> None:
    _choice(field, [NO_DRAFT, *model_ids()], format_func=model_labels())


_WIDGETS = {
    "model": _model,
    "gpu": _gpu,
    "tp": _gpu_count,
    "ctx": _context,
    "batch": _count,
    "kv": _kv_dtype,
    "weights": _weight_dtype,
    "heads": _kv_heads,
    "pp": _count,
    "dp": _count,
    "ep": _yes_no,
    "fraction": _fraction,
    "overhead": _overhead,
    "images": _text,
    "prefix": _text,
    "adapters": _text,
    "draft": _draft,
}
