"""The form of a GPU of the visitor's own: from nothing or from a preset, down to what is only estimated."""

from __future__ import annotations

from typing import Any

import streamlit as st

from kvplan.errors import InputError
from kvplan.hardware import Gpu, define_gpu, facts_of, gpu_variant
from kvplan.presets import dump_toml, gpu_to_table
from kvplan.ui import words
from kvplan.ui.form import Size, offer_file, own_key, say_beside, start_from
from kvplan.ui.library import find_gpu, gpu_ids, gpu_labels, keep_gpu, own_id
from kvplan.units import parse_bytes, write_bytes

MEASURED, ESTIMATED = "measured", "estimated"
FIRST_NAME = "My GPU"

USABLE = (
    Size("usable_bytes", "Usable memory", "15.6GiB", "What a program can allocate, such as 15.6GiB or 16.7GB."),
    Size("usable_low", "Lowest", "", "The least that it may be; empty: the usable memory itself."),
    Size("usable_high", "Highest", "", "The most that it may be; empty: the usable memory itself."),
)
TOTALS = (
    Size("label_bytes", "Label", "16GiB", "The number on the box, such as 16GiB; empty where there is none."),
    Size("driver_bytes", "Driver's total", "", "What nvidia-smi shows, such as 16380MiB; empty where it is not known."),
    Size("bandwidth", "Bandwidth a second", "320GB", "Such as 320GB; without it no decode floor is shown."),
)
TEXTS = (*USABLE, *TOTALS)
START = "start_gpu"
NAME, BASIS, NODE, RENT = (own_key(name) for name in ("gpu_name", "basis", "node", "rent"))
LABELS = {
    **{size.name: size.label for size in TEXTS},
    "usable_range": "Lowest to highest",
    "node_gpus": "GPUs a node",
    "rent_usd_per_hour": "Rent",
}


def take_preset() -> None:
    """Fill the form from the chosen preset, each size exactly. Without one: as at first."""
    name = st.session_state[START]
    gpu = None if name is None else find_gpu(name)
    st.session_state[NAME] = FIRST_NAME if gpu is None else f"My {gpu.name}"[:60]
    st.session_state.update(FIRST_VALUES if gpu is None else form_values(gpu))


def form_values(gpu: Gpu) -> dict[str, Any]:
    """What the fields hold for a GPU, by the keys of their widgets; each size exactly."""
    facts = facts_of(gpu)
    low, high = facts["usable_range"] or (None, None)
    sizes = {**facts, "usable_low": low, "usable_high": high}
    texts = {size.name: "" if sizes[size.name] is None else write_bytes(sizes[size.name]) for size in TEXTS}
    return {
        BASIS: ESTIMATED if gpu.is_estimate else MEASURED,
        NODE: facts["node_gpus"],
        RENT: facts["rent_usd_per_hour"],
        **{own_key(name): text for name, text in texts.items()},
    }


FIRST_VALUES = {
    BASIS: MEASURED, NODE: None, RENT: None, **{own_key(size.name): size.first for size in TEXTS},
}  # fmt: skip


def ask_gpu() -> None:
    """The form, with what it makes or what is wrong with it."""
    start_from(START, gpu_ids(), gpu_labels(), take_preset)
    st.text_input("Name", FIRST_NAME, key=NAME, max_chars=80, persist_state="session")
    slots = {"GPU name": st.empty()}
    slots |= _ask_texts(USABLE)
    slots["usable_range"] = st.empty()
    st.segmented_control(
        "The usable memory is", [MEASURED, ESTIMATED], default=MEASURED, key=BASIS, required=True,
        persist_state="session",
    )  # fmt: skip
    slots |= _ask_texts(TOTALS)
    slots |= _ask_numbers()
    try:
        gpu = wanted_gpu(st.session_state)
    except InputError as error:
        say_beside(slots, error, LABELS, {})
        return
    show_gpu(gpu)


def _ask_texts(sizes: tuple[Size, ...]) -> dict[str, Any]:
    slots = {}
    for size, place in zip(sizes, st.columns(len(sizes)), strict=True):
        with place:
            st.text_input(
                size.label, size.first, key=own_key(size.name), help=size.help, max_chars=30, persist_state="session"
            )
            slots[size.name] = st.empty()
    return slots


def _ask_numbers() -> dict[str, Any]:
    left, right = st.columns(2)
    with left:
        st.number_input("GPUs a node", 1, 4096, None, key=NODE, persist_state="session", placeholder="unknown")
        slots = {"node_gpus": st.empty()}
    with right:
        st.number_input(
            "Rent, US dollars an hour", 0.01, 10_000.0, None, key=RENT, persist_state="session",
            placeholder="unknown", format="%.4g",
        )  # fmt: skip
        slots["rent_usd_per_hour"] = st.empty()
    return slots


def show_gpu(gpu: Gpu) -> None:
    """What the form makes, and what can be done with it."""
    low, high = gpu.usable_range
    guess = "an estimate" if gpu.is_estimate else "measured"
    span = f", from {words.exact_size(low)} to {words.exact_size(high)}" if low < high else ""
    st.text(f"{gpu.name}: {words.exact_size(gpu.usable_bytes)} usable, {guess}{span}.")
    for note in gpu.notes:
        st.text(note)
    with st.container(horizontal=True):
        words.plan_button("Plan with this GPU", "use_gpu", use_gpu, gpu)
        offer_file("Download as a preset file", dump_toml(gpu_to_table(gpu)), own_id(gpu.name), "get_gpu")


def wanted_gpu(state: Any) -> Gpu:
    """The GPU of the form. Raises InputError with the field at fault."""
    sizes = {size.name: state[own_key(size.name)] for size in TEXTS}
    given = {name: parse_bytes(text, name) if text.strip() else None for name, text in sizes.items()}
    usable = given["usable_bytes"]
    if usable is None:
        raise InputError("usable_bytes is missing; give what a program can allocate, such as 15.6GiB")
    facts = {
        "usable_bytes": usable,
        "is_estimate": state[BASIS] == ESTIMATED,
        "usable_range": _span(usable, given["usable_low"], given["usable_high"]),
        **{size.name: given[size.name] for size in TOTALS},
        "node_gpus": state[NODE],
        "rent_usd_per_hour": state[RENT],
    }
    name, start = state[NAME], state.get(START)
    return define_gpu(name=name, **facts) if start is None else gpu_variant(find_gpu(start), facts, name)


def _span(usable: int, low: int | None, high: int | None) -> tuple[int, int] | None:
    """The range of the usable total; None where it is no more than the total itself."""
    found = usable if low is None else low, usable if high is None else high
    return None if found == (usable, usable) else found


def use_gpu(gpu: Gpu) -> None:
    """Keep a GPU in this session and plan with it."""
    st.session_state["gpu"] = keep_gpu(gpu)
