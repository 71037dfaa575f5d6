"""Models: every preset to browse, filter and sort, and two or three side by side; GPUs likewise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.attention import LAYER_KINDS
from kvplan.errors import KvplanError
from kvplan.explain import kinds_sentence, layer_strip, layer_words
from kvplan.hardware import Gpu, Price
from kvplan.model import Model
from kvplan.presets import list_gpus, list_models, load_gpu, load_model, readable, shelf
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.fields import AS_TRAINED
from kvplan.ui.library import find_gpu, find_model, gpu_ids, model_ids, own_gpus, own_models
from kvplan.units import format_bytes, format_exact_bytes, format_params

MODELS, GPUS = "models", "GPUs"
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
        "label": "" if gpu.label_bytes is None else format_bytes(gpu.label_bytes, "GiB"),
        "bandwidth, bytes a second": _number(lambda: gpu.bandwidth),
        "rent, USD an hour": _usd(gpu.rent_per_hour),
        "rent seen": "" if gpu.rent_per_hour is None else gpu.rent_per_hour.date,
        "to buy, USD": _usd(gpu.list_price),
        "GPUs a node": _number(lambda: gpu.node_gpus),
        "bf16 TFLOP/s": gpu.tflops.get("bf16"),
        "estimate": gpu.is_estimate,
        "confidence": gpu.confidence,
        "usable, how it is known": gpu.usable_basis,
    }


def _usd(price: Price | None) -> float | None:
    return None if price is None else price.usd


def narrowed(table: pd.DataFrame, text: str, column: str | None = None, wanted: str | None = None) -> pd.DataFrame:
    """Rows that contain every word of `text` somewhere, and `wanted` in `column`."""
    wholes = (" ".join(map(str, row)).lower() for row in table.itertuples(index=False))
    keep = [all(word in whole for word in text.lower().split()) for whole in wholes]
    shown = table[keep]
    return shown[shown[column].str.contains(wanted, regex=False)] if column is not None and wanted else shown


# ---------------------------------------------------------------------------------------------------------- models


def browse_models() -> None:
    own = pd.DataFrame([model_cells(model) for model in own_models().values()])
    table = pd.concat([own, preset_models(hash(shelf("models")))], ignore_index=True)
    with st.container(horizontal=True):
        text = st.text_input("Filter", key="filter", placeholder="llama 8b", max_chars=100, bind=BIND, width=260)
        labels = sorted({kind.label for kind in LAYER_KINDS.values()})
        kind = st.selectbox("With layers of", labels, None, key="kind", bind=BIND, width=260, placeholder="any kind")
    shown = narrowed(table, text or "", "kinds of layer", kind)
    st.caption(f"{len(shown)} of {len(table)} models; a click on a column's head sorts.")
    words.show_table(shown, "models", source=st.column_config.TextColumn(width="medium"))
    words.offer_csv(shown, "models", "This list as CSV")
    compare_models()


def compare_models() -> None:
    st.subheader("Side by side", anchor=False)
    here = st.session_state["model"]
    others = [name for name in model_ids() if name != here]
    more = st.multiselect("The sidebar's model beside", others, key="compare", max_selections=MAX_BESIDE, bind=BIND)
    kv = st.session_state["kv"]
    words.show_beside({name: model_facts(find_model(name), kv) for name in [here, *more]}, "beside")
    for name, place in zip([here, *more], st.columns(1 + len(more), gap="medium"), strict=True):
        with place:
            show_model(name, kv)


def show_model(name: str, kv: str) -> None:
    """One model layer by layer: the layers in order, what each run of them keeps, notes, source."""
    model = find_model(name)
    st.text(model.name)
    words.show_chart(charts.layer_strip(layer_strip(model)), "Layers in order, by kind", f"strip_{name}")
    words.show_facts(layer_rows(model, kv), ("layers", "keeps of a sequence", "kind"))
    for note in model.notes:
        st.text(note)
    st.text(f"Source: {model.source}")
    st.button("Plan with this model", key=f"use_{name}", on_click=use_model, args=(name,))


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
        ("query heads", str(model.num_attention_heads or "none")),
        ("KV heads", str(model.num_kv_heads or "not one number for all layers")),
        ("hidden size", f"{model.hidden_size:,}"),
        ("vocabulary", "none" if model.vocab_size is None else f"{model.vocab_size:,}"),
        ("context limit", "not stated" if model.context_limit is None else f"{model.context_limit:,}"),
    ]
    return [*facts, ("estimate", "yes")] if model.is_estimate else facts


def _exact(read: Callable[[], Any]) -> str:
    try:
        value = read()
    except KvplanError as error:
        return str(error)
    return format_exact_bytes(value) if isinstance(value, int) else f"{float(value):,.2f} B"


def layer_rows(model: Model, kv: str) -> list[tuple[str, str, str]]:
    """(layers, what one of them keeps, kind) for each run of equal layers."""
    rows, first = [], 0
    for layer, count in model.layer_runs:
        span = str(first) if count == 1 else f"{first} to {first + count - 1}"
        rows.append((span, _layer_words(layer.cache, kv), layer.cache.label))
        first += count
    return rows


def _layer_words(cache: Any, kv: str) -> str:
    try:
        return layer_words(cache, kv)
    except KvplanError as error:
        return str(error)


# ------------------------------------------------------------------------------------------------------------ GPUs


def browse_gpus() -> None:
    own = pd.DataFrame([gpu_cells(gpu) for gpu in own_gpus().values()])
    table = pd.concat([own, preset_gpus(hash(shelf("gpus")))], ignore_index=True)
    text = st.text_input("Filter", key="gpu_filter", placeholder="rtx 24gb", max_chars=100, bind=BIND, width=260)
    shown = narrowed(table, text or "")
    st.caption(f"{len(shown)} of {len(table)} GPUs; usable is what a program can allocate. Estimates are marked.")
    words.show_table(shown, "gpus")
    words.offer_csv(shown, "gpus", "This list as CSV")
    st.subheader("Side by side", anchor=False)
    here = st.session_state["gpu"]
    others = [name for name in gpu_ids() if name != here]
    more = st.multiselect("The sidebar's GPU beside", others, key="compare_gpus", max_selections=MAX_BESIDE, bind=BIND)
    words.show_beside({name: gpu_facts(find_gpu(name)) for name in [here, *more]}, "beside")
    for name, place in zip([here, *more], st.columns(1 + len(more), gap="medium"), strict=True):
        with place:
            show_gpu(find_gpu(name))


def show_gpu(gpu: Gpu) -> None:
    st.text(gpu.name)
    for price in gpu.prices:
        what = "rent, an hour" if price.kind == "rent" else "to buy"
        st.text(f"${price.usd:,.2f} {what}, {price.date}: {price.source}")
    for line in (*gpu.notes, *(f"Source: {source}" for source in gpu.sources)):
        st.text(line)
    st.button("Plan with this GPU", key=f"use_{gpu.id}", on_click=use_gpu, args=(gpu.id,))


def use_gpu(name: str) -> None:
    st.session_state["gpu"] = name


def gpu_facts(gpu: Gpu) -> list[tuple[str, str]]:
    """(what, value) of a GPU in words."""
    low, high = gpu.usable_range
    sure = "an estimate, " if gpu.is_estimate else ""
    rate = "unknown" if gpu.bandwidth is None else format_bytes(gpu.bandwidth, decimal=True) + " a second"
    return [
        ("usable", format_exact_bytes(gpu.usable_bytes)),
        ("how it is known", sure + gpu.usable_basis),
        ("seen or expected", f"{format_bytes(low)} to {format_bytes(high)}"),
        ("driver total", "unknown" if gpu.driver_bytes is None else format_exact_bytes(gpu.driver_bytes)),
        ("label", "none" if gpu.label_bytes is None else format_bytes(gpu.label_bytes, "GiB")),
        ("bandwidth", rate),
        ("link", gpu.link or "none"),
        ("GPUs a node", str(gpu.node_gpus or "unknown")),
        *((f"dense TFLOP/s, {name}", f"{value:,g}") for name, value in gpu.tflops.items()),
        ("confidence", gpu.confidence),
    ]


st.header("Models and GPUs", anchor=False)
what = st.segmented_control("Browse", [MODELS, GPUS], default=MODELS, key="browse", bind=BIND, required=True)
try:
    browse_gpus() if what == GPUS else browse_models()
except KvplanError as trouble:
    words.show_error(trouble, "This cannot be shown")
