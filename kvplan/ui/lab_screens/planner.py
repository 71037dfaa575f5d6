"""Screen 8: from the toy's tensors to published models, with the same formula; each rung loads into the planner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from kvplan import lab, lab_charts
from kvplan.presets import load_model
from kvplan.ui.fields import FIELDS, widget_values
from kvplan.ui.lab_screens.parts import (
    Measure,
    Prediction,
    ask,
    heading,
    settle,
    show_chart,
    show_measures,
    show_verdict,
)
from kvplan.ui.scenario import held
from kvplan.ui.words import show_table
from kvplan.units import counted, format_bytes, format_exact_bytes

PLAN_PAGE = Path(__file__).resolve().parents[1] / "plan.py"
LADDER_MODEL = "llama-3.1-8b"  # 32 layers, 8 KV heads of 128: the shape of the ladder
LARGE_MODEL, SMALL_MODEL = "llama-3.1-70b", "llama-2-7b"
PROMPT, NEW_TOKENS = [1, 2, 3, 4], 8
TRUE, FALSE = "true", "false"
REQUESTS, HEADS, EQUAL = "that of 8 requests", "that of 64 KV heads", "neither: both are the same"
LOADED = "lab_loaded"


def show() -> None:
    """The whole screen."""
    st.text("The bytes of a toy and of a published model come from one formula.")
    _show_toy()
    _show_ladder()
    _show_crossovers()
    _show_large()
    _show_beliefs()
    _show_real()


def load_into_planner(key: str, settings: dict[str, Any]) -> None:
    """Give the shared scenario these settings; its GPU stays. Runs before the page does."""
    gpu = held(FIELDS["gpu"])
    st.session_state.update({**widget_values(settings), "gpu": gpu, LOADED: key})


def _offer(label: str, key: str, **settings: Any) -> None:
    """A button that loads a scenario, and then the way to the page that plans it."""
    st.button(label, key=key, on_click=load_into_planner, args=(key, settings))
    if st.session_state.get(LOADED) == key:
        st.page_link(PLAN_PAGE, label="Loaded: open Plan", icon=":material/arrow_forward:")


def _offer_row(words: str, name: str, key: str, **settings: Any) -> None:
    """A line of text with its button."""
    text, button = st.columns([3, 2], vertical_alignment="center")
    with text:
        st.text(words)
    with button:
        _offer(f"To Plan: {name}", key, **settings)


def _show_toy() -> None:
    heading("See")
    model = lab.TinyDecoder()
    cache = lab.DynamicCache(model)
    lab.generate(model, PROMPT, NEW_TOKENS, cache)
    tokens = len(PROMPT) + NEW_TOKENS - 1
    planned = lab.model_like(model).cache_bytes(context_length=tokens, kv_dtype="fp32")
    formula = lab.cache_formula(cache)
    shape = model.shape
    st.text(
        f"{counted(shape.num_layers, 'layer')}, {counted(shape.num_attention_heads, 'query head')}, "
        f"{counted(shape.num_kv_heads, 'KV head')}, head_dim {shape.head_dim}, {shape.dtype}, seed {shape.seed}; "
        f"prompt {' '.join(map(str, PROMPT))} and {NEW_TOKENS} new tokens."
    )
    show_measures(
        [
            Measure(
                "The toy's tensors hold", f"{cache.nbytes:,} B", f"P + N − 1 = {len(PROMPT)} + {NEW_TOKENS} − 1 tokens"
            ),
            Measure("The planner says", f"{planned:,} B", formula.text),
        ]
    )
    show_verdict(
        cache.nbytes == planned,
        f"Equal, to the byte: {format_exact_bytes(planned)}",
        f"Not equal: {format_exact_bytes(cache.nbytes)} and {format_exact_bytes(planned)}",
    )


def _show_ladder() -> None:
    heading("Predict: the ladder")
    table = lab.ladder()
    question = Prediction(
        "lab_ladder",
        "32 layers, 8 KV heads of 128, 16 bits: 1,024 tokens of one sequence take",
        [format_bytes(size) for size in (2**20, 2**27, 2**30, 2**34)],
    )
    if not ask(question, "ladder"):
        return
    size = int(table.loc[table["step"] == "1,024 tokens", "bytes"].iloc[0])
    settle(question, "ladder", format_bytes(size))
    sizes = table["bytes"].tolist()
    names, texts = table["step"].tolist(), [format_bytes(size) for size in sizes]
    show_chart(
        lab_charts.bars(names, sizes, texts, "bytes, on a log axis", log=True), "Cache bytes, rung by rung", "lab_rungs"
    )
    for place, row in enumerate(table.to_dict("records")):
        words = f"{row['step']}: {row['formula']} = {format_exact_bytes(row['bytes'])}"
        if row["layers"] == load_model(LADDER_MODEL).num_layers:
            _offer_row(words, row["step"], f"lab_rung_{place}", **ladder_settings(row))
        else:
            st.text(words)


def ladder_settings(row: Any) -> dict[str, Any]:
    """The scenario of a rung, which has the ladder's layers and head size."""
    return {
        "model": LADDER_MODEL,
        "context_length": row["tokens"],
        "batch_size": row["sequences"],
        "kv_dtype": row["dtype"],
        "num_kv_heads": None if row["kv_heads"] == load_model(LADDER_MODEL).num_kv_heads else row["kv_heads"],
    }


def _show_crossovers() -> None:
    heading("Predict: where the cache reaches the weights")
    table = lab.crossovers()
    first = table.sort_values("tokens").iloc[0]
    question = Prediction(
        "lab_first", "Which model's cache outgrows its weights at the fewest tokens?", table["name"].tolist()
    )
    if not ask(question, "crossover"):
        return
    settle(question, "crossover", first["name"])
    for row in table.to_dict("records"):
        words = (
            f"{row['name']}, {counted(row['num_layers'], 'layer')}, {counted(row['num_kv_heads'], 'KV head')}: "
            f"{counted(row['tokens'], 'token')} = weights {row['weight_bytes']:,} B / {row['bytes_per_token']:,} B a "
            "token, rounded up"
        )
        _offer_row(words, row["name"], f"lab_cross_{row['preset']}", **crossover_settings(row))


def crossover_settings(row: Any) -> dict[str, Any]:
    """One sequence of as many tokens as make the cache as large as the weights, in 16 bits."""
    return {"model": row["preset"], "context_length": row["tokens"], "batch_size": 1}


def _show_large() -> None:
    model = load_model(LARGE_MODEL)
    heading(f"Predict: {model.name} at 32,768 tokens")
    table = lab.seventy_billion()
    sizes = table.set_index(["kv_heads", "requests"])["bytes"]
    many, wide = int(sizes[(8, 8)]), int(sizes[(64, 1)])
    question = Prediction(
        "lab_large_first",
        "Which cache is larger: 8 requests with the 8 KV heads that it has, or 1 request had it 64 KV heads?",
        (REQUESTS, HEADS, EQUAL),
    )
    if not ask(question, "large"):
        return
    settle(question, "large", EQUAL if many == wide else REQUESTS if many > wide else HEADS)
    for place, row in enumerate(table.to_dict("records")):
        requests = "1 request" if row["requests"] == 1 else f"{counted(row['requests'], 'request')}"
        heads = f"{row['kv_heads']} KV head" + ("" if row["kv_heads"] == 1 else "s")
        decimal = format_bytes(row["bytes"], decimal=True)
        words = f"{heads}, {requests}: {row['bytes']:,} B = {format_bytes(row['bytes'])} = {decimal}"
        _offer_row(words, f"{heads}, {requests}", f"lab_large_{place}", **large_settings(row))


def large_settings(row: Any) -> dict[str, Any]:
    """The scenario of one case of the large model."""
    trained = load_model(LARGE_MODEL).num_kv_heads
    return {
        "model": LARGE_MODEL,
        "context_length": 32768,
        "batch_size": row["requests"],
        "num_kv_heads": None if row["kv_heads"] == trained else row["kv_heads"],
    }


def _show_beliefs() -> None:
    heading("Predict: true or false?")
    for place, belief in enumerate(lab.misconceptions()):
        question = Prediction(f"lab_belief_{place}", belief.claim, (TRUE, FALSE))
        if ask(question, place):
            settle(question, place, FALSE)
            st.text(belief.settled_by)
    with st.container(horizontal=True):
        for name in (LARGE_MODEL, SMALL_MODEL):
            _offer(f"To Plan: {load_model(name).name}", f"lab_load_{name}", model=name)


def _show_real() -> None:
    heading("On a real checkpoint")
    st.text("The same check, on a folder with a causal language model, in a terminal:")
    st.code("python -m kvplan parity PATH", language=None)
    with st.expander("All numbers of this screen as tables"):
        show_table(lab.ladder(), "The ladder", "lab_ladder_table")
        show_table(lab.crossovers(), "Where the cache reaches the weights", "lab_crossovers")
        show_table(lab.seventy_billion(), "Llama 3.1 70B", "lab_large")
