"""The one scenario that all pages share: its widgets, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.errors import KvplanError
from kvplan.fleet import ADAPTED_ROLES, adapter_bytes
from kvplan.library import scenario_of
from kvplan.model import Model
from kvplan.plan import Scenario
from kvplan.presets import list_scenarios, load_scenario
from kvplan.sweep import AS_PUBLISHED
from kvplan.ui.address import BIND, ENGINE, say_once, take_scenario
from kvplan.ui.fields import AS_TRAINED, CONTEXTS, FIELDS, GPU_COUNTS, NO_DRAFT, Field
from kvplan.ui.library import find_gpu, find_model, gpu_ids, model_ids
from kvplan.ui.words import show_error
from kvplan.units import MAX_COUNT

# ------------------------------------------------------------------------------------------------------ the widgets


def show_sidebar() -> None:
    """Every field of the scenario, with what is wrong beside it."""
    with st.sidebar:
        _example()
        slots = {key: _with_slot(key) for key in ("model", "gpu", "tp", "ctx", "batch", "kv", "weights", "heads")}
        with st.popover("More settings", width="stretch"):
            slots |= {key: _with_slot(key) for key in ("pp", "fraction", "overhead")}
            st.segmented_control(
                "Unit of memory", ["GiB", "GB"], default="GiB", key="unit", bind=BIND, required=True,
                help="1 GiB is 1,073,741,824 bytes, 1 GB is 1,000,000,000 bytes.",
            )  # fmt: skip
        with st.popover("Easily forgotten", width="stretch"):
            slots |= {key: _with_slot(key) for key in ("images", "prefix", "draft", "adapters")}
            _adapter_calculator()
        _complain(slots)


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


def unit() -> str:
    """The unit of memory that figures and numbers use."""
    return "GB" if st.session_state.get("unit") == "GB" else "GiB"


def _with_slot(key: str) -> Any:
    """A field's widget, and the empty place below it for what is wrong."""
    _WIDGETS[key](FIELDS[key])
    return st.empty()


def _complain(slots: Mapping[str, Any]) -> None:
    """Show an error below the widget that it belongs to."""
    for key, slot in slots.items():
        try:
            FIELDS[key].read(st.session_state[key])
        except KvplanError as error:
            _complain_in(slot, error)
            return
    try:
        current()
    except KvplanError as error:
        named = [slot for key, slot in slots.items() if _names(str(error), FIELDS[key].setting)]
        if named:
            _complain_in(named[0], error)


def _names(message: str, setting: str) -> bool:
    return setting in message or setting.replace("_", " ") in message


def _complain_in(slot: Any, error: KvplanError) -> None:
    with slot.container():
        show_error(error, "Not possible")


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
    st.selectbox(
        field.label, [item for item in known if item], index=index, key=field.key, help=field.help, bind=BIND, **more
    )


def _model(field: Field) -> None:
    _choice(field, model_ids(), on_change=_model_changed)


def _model_changed() -> None:
    """Another model has heads of its own."""
    st.session_state["heads"] = AS_TRAINED


def _gpu(field: Field) -> None:
    _choice(field, gpu_ids())


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
        return kv_head_choices(find_model(st.session_state.get("model")))
    except KvplanError:
        return ()


def kv_head_choices(model: Model) -> tuple[int, ...]:
    """The numbers of KV heads that `model` could have been trained with; none where it has no such axis."""
    heads = model.num_attention_heads
    if model.num_kv_heads is None or heads is None:
        return ()
    return tuple(count for count in range(heads, 0, -1) if heads % count == 0)


def _count(field: Field) -> None:
    st.number_input(
        field.label, min_value=1, max_value=MAX_COUNT, value=field.default, key=field.key, help=field.help, bind=BIND
    )


def _fraction(field: Field) -> None:
    st.number_input(
        field.label, min_value=0.0, max_value=1.0, value=field.default, step=0.05, format="%.3f", key=field.key,
        help=field.help, bind=BIND,
    )  # fmt: skip


def _text(field: Field, placeholder: str | None = None) -> None:
    st.text_input(
        field.label, value=field.default, key=field.key, help=field.help, placeholder=placeholder, max_chars=30,
        bind=BIND,
    )  # fmt: skip


def _overhead(field: Field) -> None:
    _text(field, "estimate")


def _draft(field: Field) -> None:
    _choice(field, [NO_DRAFT, *model_ids()])


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
    "fraction": _fraction,
    "overhead": _overhead,
    "images": _text,
    "prefix": _text,
    "adapters": _text,
    "draft": _draft,
}


# ----------------------------------------------------------------------------------------------------- the scenario


def current() -> Scenario:
    """The scenario that the widgets describe. Raises KvplanError."""
    settings = {field.setting: field.read(st.session_state[field.key]) for field in FIELDS.values()}
    draft = settings.pop("draft_model")
    return Scenario(
        find_model(settings.pop("model")),
        find_gpu(settings.pop("gpu")),
        draft_model=None if draft == NO_DRAFT else find_model(draft),
        engine=st.session_state.get(ENGINE),
        **settings,
    )


def current_or_stop() -> Scenario:
    """The scenario, or the page ends here with the reason."""
    try:
        return current()
    except KvplanError as error:
        show_error(error)
        st.caption("Change it in the sidebar.")
        st.stop()
