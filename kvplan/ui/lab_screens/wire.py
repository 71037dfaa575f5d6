"""Screen 2: which KV head each query head reads, and what sharing saves."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kvplan import lab, lab_charts
from kvplan.ui.address import BIND
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
from kvplan.ui.words import show_table
from kvplan.units import counted

LAYERS, HEAD_DIM, VALUE_BYTES = 2, 16, 4
MOST_DIFFERENCE = 1e-12
PROMPT = [1, 2, 3, 4]


def show() -> None:
    """The whole screen."""
    st.text("Multi-head, grouped-query and multi-query attention are one axis: the number of KV heads.")
    heads, kv_heads = _ask_heads()
    table = lab.wiring(heads, kv_heads)
    model = lab.TinyDecoder(
        num_layers=LAYERS, num_attention_heads=heads, num_kv_heads=kv_heads, head_dim=HEAD_DIM, dtype="float64"
    )
    st.text(f"The live decoder: {LAYERS} layers, head_dim {HEAD_DIM}, float64, seed {model.shape.seed}.")
    heading("See")
    picture = st.container()
    is_known = _predict(table, heads, kv_heads)
    right = table["kv_head"].tolist() if is_known else None
    with picture:
        alt = f"{counted(heads, 'query head')} above, {counted(kv_heads, 'KV head')} below"
        show_chart(lab_charts.wiring(table["query_head"].tolist(), right, kv_heads), alt, "lab_wiring")
    if is_known:
        _show_wrong(table, model)
    _show_axis(heads, kv_heads)
    _check(model)


def _ask_heads() -> tuple[int, int]:
    counts = ["2", "4", "8", "16"]
    with st.container(horizontal=True):
        heads = int(
            st.segmented_control("Query heads", counts, default="8", key="lab_wires", required=True, bind=BIND) or "8"
        )
        shared = [str(count) for count in range(1, heads + 1) if heads % count == 0]
        if st.session_state.get("lab_shared") not in (None, *shared):
            st.session_state["lab_shared"] = "2"
        kv_heads = st.segmented_control("KV heads", shared, default="2", key="lab_shared", required=True, bind=BIND)
    return heads, int(kv_heads or "2")


def _predict(table: pd.DataFrame, heads: int, kv_heads: int) -> bool:
    differing = table[table["kv_head"] != table["kv_head_of_repeat"]]
    row = (differing if len(differing) else table).iloc[0 if len(differing) else -1]
    question = Prediction(
        "lab_wire",
        f"{counted(heads, 'query head')} share {counted(kv_heads, 'KV head')}. Which one does query head "
        f"{row['query_head']} read?",
        [f"KV head {head}" for head in range(kv_heads)],
    )
    subject = f"{heads}_{kv_heads}"
    heading("Predict")
    shown = ask(question, subject)
    if shown:
        settle(question, subject, f"KV head {row['kv_head']}")
        st.text(f"Query head i reads KV head i // (H / H_kv): {row['query_head']} // ({heads} / {kv_heads}).")
    return shown


def _show_wrong(table: pd.DataFrame, model: lab.TinyDecoder) -> None:
    if not st.toggle("Show the wrong wiring, repeat for repeat_interleave", key="lab_wrong", bind=BIND):
        return
    heads, kv_heads = model.shape.num_attention_heads, model.shape.num_kv_heads
    wrong = lab_charts.wiring(table["query_head"].tolist(), table["kv_head_of_repeat"].tolist(), kv_heads)
    show_chart(
        wrong,
        f"The wrong wiring of {counted(heads, 'query head')} to {counted(kv_heads, 'KV head')}",
        "lab_wrong_wiring",
    )
    st.text("Crossing lines: query head i reads KV head i mod H_kv, which belongs to another group.")
    result = lab.check_parity(model, PROMPT, 2, fault="repeat_heads")
    st.text(result.sentence)
    if result.passed:
        st.text(f"It hides here. {lab.FAULTS['repeat_heads'].hides_when}.")


def _show_axis(heads: int, kv_heads: int) -> None:
    heading("Bytes of one token")
    choices = lab.head_choices(heads, HEAD_DIM, LAYERS, VALUE_BYTES)
    here = choices[choices["num_kv_heads"] == kv_heads].iloc[0]
    show_measures(
        [
            Measure("Bytes a token", f"{here['bytes_per_token']:,} B", here["formula"]),
            Measure("Smaller by", f"{here['savings']} times", f"H / H_kv = {heads} / {kv_heads}"),
            Measure("Called", here["name"], "H_kv = H, between, or 1"),
        ]
    )
    names = [counted(heads, "KV head") for heads in choices["num_kv_heads"].tolist()]
    sizes = choices["bytes_per_token"].tolist()
    show_chart(
        lab_charts.bars(names, sizes, [f"{size:,} B" for size in sizes], "bytes a token, in 32 bits"),
        "Cache bytes of one token by number of KV heads",
        "lab_axis",
    )
    with st.expander("As a table"):
        show_table(choices, "Bytes of one token by number of KV heads", "lab_choices")


def _check(model: lab.TinyDecoder) -> None:
    heading("Check")
    st.text("Copy each KV head for every query head of its group: a multi-head model that must give the same logits.")
    difference = lab.duplication_difference(model, PROMPT)
    show_measures(
        [Measure("Relative difference", f"{difference:.2g}", "largest logit difference / largest logit, in float64")]
    )
    show_verdict(
        difference <= MOST_DIFFERENCE,
        f"The same model: {difference:.2g} is at most {MOST_DIFFERENCE:g}",
        f"Not the same model: {difference:.2g} is over {MOST_DIFFERENCE:g}",
    )
