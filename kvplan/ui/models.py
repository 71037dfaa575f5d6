"""Models: every preset to browse, filter and sort, and two or three side by side; GPUs likewise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.attention import LAYER_KINDS
from kvplan.errors import KvplanError
from kvplan.explain import kinds_sentence, layer_strip, layer_words
from kvplan.hardware import Gpu, Price
from kvplan.library import GPU, MODEL, is_in_library
from kvplan.model import Model
from kvplan.presets import list_gpus, list_models, load_gpu, load_model, readable, shelf
from kvplan.ui import figures, words
from kvplan.ui.fields import AS_TRAINED, FIELDS
from kvplan.ui.library import (
    find_gpu,
    find_model,
    gpu_ids,
    gpu_labels,
    model_ids,
    model_labels,
    own_gpus,
    own_models,
    say_left_out,
)
from kvplan.ui.page_address import read_address, write_address
from kvplan.ui.scenario import held
from kvplan.units import GIB, counted, format_exact_bytes, format_params, format_rate

MODELS, GPUS = "models", "GPUs"
_HOST = r"https://([^/]+)"
"""The part of an address that a list shows."""

MAX_BESIDE = 2


# ---------------------------------------------------------------------------------------------------------- tables


@st.cache_data(max_entries=4, show_spinner="Reading the presets")
def preset_models(state: int) -> pd.DataFrame:
    """All that can be read; `state` stands for the files as they are now. The Library page names the others."""
    return pd.DataFrame([model_cells(model) for model in readable(list_models(), load_model).presets])


@st.cache_data(max_entries=4)
def preset_gpus(state: int) -> pd.DataFrame:
    """As `preset_models`."""
    return pd.DataFrame([gpu_cells(gpu) for gpu in readable(list_gpus(), load_gpu).presets])


def model_cells(model: Model) -> dict[str, Any]:
    """One row of the list of models."""
    return {
        "id": model.id,
        "name": model.name,
        "parameters": model.num_params,
        "active": model.num_active_params,
        "cache bytes a token, bf16": _number(lambda: model.cache_bytes_per_token()),
        "weight bytes": _number(lambda: model.weight_bytes()),
        "layers": model.num_layers,
        "kinds of layer": kinds_sentence(model),
        "context limit": _number(lambda: model.context_limit),
        "estimate": model.is_estimate,
        "source": model.source,
    }


def _number(read: Callable[[], Any]) -> float | None:
    """A number for a sortable column, or None where the model has none (a dtype that its config does not state)."""
    try:
        value = read()
    except KvplanError:
        return None
    return None if value is None else float(value)


def gpu_cells(gpu: Gpu) -> dict[str, Any]:
    """One row of the list of GPUs."""
    return {
        "id": gpu.id,
        "name": gpu.name,
        "usable bytes": gpu.usable_bytes,
        "label, GiB": None if gpu.label_bytes is None else gpu.label_bytes / GIB,
        "bandwidth, bytes a second": _number(lambda: gpu.bandwidth),
        "rent, USD an hour": _usd(gpu.rent_per_hour),
        "rent seen": None if gpu.rent_per_hour is None else gpu.rent_per_hour.date,
        "to buy, USD": _usd(gpu.list_price),
        "GPUs a node": _number(lambda: gpu.node_gpus),
        "bf16 TFLOP/s": gpu.tflops.get("bf16"),
        "estimate": gpu.is_estimate,
        "confidence": gpu.confidence,
        "usable, how it is known": gpu.usable_basis,
    }


def _first_link(name: str, source: str) -> str | None:
    """The first address in a preset's source; of a visitor's own file none is trusted."""
    return next(iter(words.links(source)), None) if name not in own_models() else None


def _usd(price: Price | None) -> float | None:
    return None if price is None else price.usd


def narrowed(table: pd.DataFrame, text: str, column: str | None = None, wanted: str | None = None) -> pd.DataFrame:
    """Rows that contain every word of `text` somewhere, and `wanted`, a whole kind of layer, in `column`."""
    wholes = (" ".join(map(str, row)).lower() for row in table.itertuples(index=False))
    keep = [all(word in whole for word in text.lower().split()) for whole in wholes]
    shown = table[keep]
    if column is None or not wanted:
        return shown
    return shown[shown[column].str.contains(rf"\d {re.escape(wanted)}(?:,|$)")]


# ---------------------------------------------------------------------------------------------------------- models


def browse_models() -> None:
    own = pd.DataFrame([model_cells(model) for model in own_models().values()])
    table = pd.concat([own, preset_models(hash(shelf("models")))], ignore_index=True)
    with st.container(horizontal=True):
        labels = sorted({kind.label for kind in LAYER_KINDS.values()})
        read_address("filter")
        read_address("kind", labels)
        text = st.text_input(
            "Filter", key="filter", placeholder="llama 8b", max_chars=100, width=260, persist_state="session"
        )
        kind = st.selectbox(
            "With layers of", labels, None, key="kind", width=260, placeholder="any kind", persist_state="session"
        )
        write_address("filter", text)
        write_address("kind", kind)
    shown = narrowed(table, text or "", "kinds of layer", kind)
    st.caption(
        f"{len(shown):,} of {counted(len(table), 'model')}; a click on a column's head sorts. "
        f"{words.UNKNOWN} where the model's config does not say it."
    )
    say_left_out(MODEL)
    links = [_first_link(name, text) for name, text in zip(shown["id"], shown["source"], strict=True)]
    linked = shown.assign(source=pd.Series(links, index=shown.index, dtype=object))
    words.show_table(linked, "Models", "models", source=st.column_config.LinkColumn(display_text=_HOST))
    words.offer_csv(shown, "models", "This list as CSV")
    compare_models()


def compare_models() -> None:
    st.subheader("Side by side", anchor=False)
    here = held(FIELDS["model"])
    others = [name for name in model_ids() if name != here]
    more = ask_beside("The sidebar's model beside", others, model_labels(), "compare")
    kv = held(FIELDS["kv"])
    models = {name: find_model(name) for name in [here, *more]}
    words.show_beside({name: model_facts(model, kv) for name, model in models.items()}, "Models side by side", "beside")
    st.text("Layer by layer: what each keeps of a sequence")
    words.show_facts(layer_rows(models, kv), ("layers", *models), "Layer by layer")
    for model, place in zip(models.values(), st.columns(len(models), gap="medium"), strict=True):
        with place:
            show_model(model)


def ask_beside(label: str, others: list[str], labels: Callable[[str], str], key: str) -> list[str]:
    """Up to two more models or GPUs, by id; people look for them by name."""
    read_address(key, others, MAX_BESIDE)
    more = st.multiselect(
        label, others, key=key, max_selections=MAX_BESIDE, persist_state="session", select_all=False,
        format_func=labels,
    )  # fmt: skip
    write_address(key, more)
    return more


def show_model(model: Model) -> None:
    """One model: its layers in order as a strip, its notes, its source, and the way to its plan."""
    st.text(model.name)
    figures.show_chart(
        charts.layer_strip(layer_strip(model)), f"Layers of {model.name} in order, by kind", f"strip_{model.id}",
        figures.STILL,
    )  # fmt: skip
    words.plan_button("Plan with this model", f"use_{model.id}", use_model, model.id)
    for note in model.notes:
        st.text(note)
    words.show_source(model.source, is_in_library(model))


def use_model(name: str) -> None:
    st.session_state["model"] = name
    st.session_state["heads"] = AS_TRAINED


def model_facts(model: Model, kv: str) -> list[tuple[str, str]]:
    """(what, value) of a model in words."""
    facts = [
        ("parameters", f"{format_params(model.num_params)} ({model.num_params:,})"),
        ("active for a token", f"{format_params(model.num_active_params)} ({model.num_active_params:,})"),
        *((f"parameters, {tower}", f"{count:,}") for tower, count in model.params_by_tower.items()),
        (f"cache a token, {kv}", _exact(lambda: model.cache_bytes_per_token(kv))),
        ("weights as published", _exact(model.weight_bytes)),
        ("layers", f"{model.num_layers}: {kinds_sentence(model)}"),
        ("query heads", words.query_heads(model)),
        ("KV heads", words.kv_heads(model)),
        ("hidden size", f"{model.hidden_size:,}"),
        ("vocabulary", "none" if model.vocab_size is None else f"{model.vocab_size:,}"),
        ("context limit", "not stated" if model.context_limit is None else f"{model.context_limit:,}"),
    ]
    return [*facts, ("estimate", "yes")] if model.is_estimate else facts


def _exact(read: Callable[[], Any]) -> str:
    try:
        value = read()
    except KvplanError as error:
        return words.in_words(str(error))
    return words.exact_size(value) if isinstance(value, int) else f"{float(value):,.2f} B"


def layer_rows(models: Mapping[str, Model], kv: str) -> list[tuple[str, ...]]:
    """(layers, what one of them keeps in each model) for each run of layers in which no model changes."""
    kept = [_kept(model, kv) for model in models.values()]
    rows = [tuple(words_of[index] if index < len(words_of) else words.UNKNOWN for words_of in kept)
            for index in range(max(map(len, kept)))]  # fmt: skip
    return [(_span(first, count), *row) for first, count, row in _runs(rows)]


def _kept(model: Model, kv: str) -> list[str]:
    """The kind of every layer of a model and what it keeps, in order."""
    return [
        text
        for layer, count in model.layer_runs
        for text in [f"{layer.cache.label}: {_layer_words(layer.cache, kv)}"] * count
    ]


def _runs(rows: Sequence[tuple[str, ...]]) -> list[tuple[int, int, tuple[str, ...]]]:
    """(first, how many, row) of each run of equal rows."""
    runs, first = [], 0
    for row, equal in groupby(rows):
        count = len(list(equal))
        runs.append((first, count, row))
        first += count
    return runs


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first} to {first + count - 1}"


def _layer_words(cache: Any, kv: str) -> str:
    try:
        return layer_words(cache, kv)
    except KvplanError as error:
        return words.in_words(str(error))


# ------------------------------------------------------------------------------------------------------------ GPUs


def browse_gpus() -> None:
    own = pd.DataFrame([gpu_cells(gpu) for gpu in own_gpus().values()])
    table = pd.concat([own, preset_gpus(hash(shelf("gpus")))], ignore_index=True)
    read_address("gpu_filter")
    text = st.text_input(
        "Filter", key="gpu_filter", placeholder="rtx 24gb", max_chars=100, width=260, persist_state="session"
    )
    write_address("gpu_filter", text)
    shown = narrowed(table, text or "")
    st.caption(
        f"{len(shown):,} of {counted(len(table), 'GPU')}; usable is what a program can allocate, and an estimate is "
        f"marked. {words.UNKNOWN} where no public figure was found."
    )
    say_left_out(GPU)
    dollars = st.column_config.NumberColumn(format="dollar")
    words.show_table(shown, "GPUs", "gpus", **{"rent, USD an hour": dollars, "to buy, USD": dollars})
    words.offer_csv(shown, "gpus", "This list as CSV")
    st.subheader("Side by side", anchor=False)
    here = held(FIELDS["gpu"])
    others = [name for name in gpu_ids() if name != here]
    more = ask_beside("The sidebar's GPU beside", others, gpu_labels(), "compare_gpus")
    words.show_beside({name: gpu_facts(find_gpu(name)) for name in [here, *more]}, "GPUs side by side", "beside")
    for name, place in zip([here, *more], st.columns(1 + len(more), gap="medium"), strict=True):
        with place:
            show_gpu(find_gpu(name))


def show_gpu(gpu: Gpu) -> None:
    st.text(gpu.name)
    st.text(f"Usable memory, {gpu.usable_basis}")
    for price in gpu.prices:
        what = "rent, an hour" if price.kind == "rent" else "to buy"
        st.text(f"{format_rate(price.usd)} {what}, {price.date}: {price.source}")
    words.plan_button("Plan with this GPU", f"use_{gpu.id}", use_gpu, gpu.id)
    for note in gpu.notes:
        st.text(note)
    for source in gpu.sources:
        words.show_source(source, is_in_library(gpu))


def use_gpu(name: str) -> None:
    st.session_state["gpu"] = name


def gpu_facts(gpu: Gpu) -> list[tuple[str, str]]:
    """(what, value) of a GPU in words."""
    low, high = gpu.usable_range
    rate = "unknown" if gpu.bandwidth is None else f"{format_exact_bytes(gpu.bandwidth, decimal=True)} a second"
    return [
        ("usable", words.exact_size(gpu.usable_bytes)),
        ("how it is known", gpu.usable_basis.partition(":")[0]),
        ("seen or expected", f"{words.size(low)} to {words.size(high)}"),
        ("driver total", "unknown" if gpu.driver_bytes is None else words.exact_size(gpu.driver_bytes)),
        ("label", "none" if gpu.label_bytes is None else words.exact_size(gpu.label_bytes)),
        ("bandwidth", rate),
        ("link", gpu.link or "none"),
        ("GPUs a node", str(gpu.node_gpus or "unknown")),
        *((f"dense TFLOP/s, {name}", f"{value:,g}") for name, value in gpu.tflops.items()),
        ("confidence", gpu.confidence),
    ]


st.header("Models and GPUs", anchor=False)
read_address("browse", (MODELS, GPUS))
what = st.segmented_control(
    "Browse", [MODELS, GPUS], default=MODELS, key="browse", required=True, persist_state="session"
)
write_address("browse", what, usual=MODELS)
try:
    browse_gpus() if what == GPUS else browse_models()
except KvplanError as trouble:
    words.show_error(trouble, "This cannot be shown")
