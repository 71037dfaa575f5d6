"""Screen 1: the cache fills column by column, one step a click, and its bytes are the planner's."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from kvplan import lab, lab_charts
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.decoder import Setting, ask_decoder
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
from kvplan.units import counted, format_exact_bytes


def show() -> None:
    """The whole screen."""
    st.text("A token needs the keys and values of every token before it. They never change, so they are kept.")
    setting = ask_decoder("lab_inputs")
    cache = _ask_cache()
    model = setting.model
    if cache == "sliding" and model.shape.window is None:
        model = lab.variant(model, window=4)
        st.text("A sliding cache needs a window; here the decoder has one of 4.")
    table = lab.trace(model, setting.prompt, setting.new_tokens, cache)
    cells = lab.trace_grid(model, setting.prompt, setting.new_tokens, cache)
    heading("See")
    step = _ask_step(setting.new_tokens)
    _show_step(table.iloc[step], cells[cells["step"] == step], int(cells["column"].max()) + 1)
    _predict(setting, table, cache)
    _check(table.iloc[step])
    with st.expander("Every step as a table"):
        show_table(_as_words(table), "Every step of the cache", "lab_trace")


def _ask_cache() -> str:
    caches = list(lab.CACHES)
    cache = st.segmented_control("Cache", caches, default="dynamic", key="lab_trace_cache", required=True, bind=BIND)
    return cache or "dynamic"


def _ask_step(last: int) -> int:
    now = st.session_state.get("lab_step")
    if now is not None and now > last:
        st.session_state["lab_step"] = last
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = st.number_input(f"Step, 0 to {last}", 0, last, 0, key="lab_step", bind=BIND, width=150)
        at = step or 0
        st.button("Next step", key="lab_forward", type="primary", disabled=at >= last, on_click=_move, args=(at + 1,))
        st.button("Back", key="lab_back", disabled=at <= 0, on_click=_move, args=(at - 1,))
        st.button("Start over", key="lab_again", on_click=_move, args=(0,))
    return at


def _move(step: int) -> None:
    st.session_state["lab_step"] = step


def _show_step(row: pd.Series[Any], cells: pd.DataFrame, columns: int) -> None:
    read = " ".join(str(token) for token in row["input_tokens"])
    alt = "The cache: layers by columns, with the token in each cell"
    show_chart(lab_charts.cache_grid(cells, columns), alt, "lab_grid")
    show_measures(
        [
            Measure("Phase", str(row["phase"]), f"step {row['step']} reads token {read}"),
            Measure(
                "Cache length",
                f"{row['length_before']} → {row['length_after']}",
                f"{row['length_before']} + {len(row['input_tokens'])} new",
            ),
            Measure("Column written", _numbers(row["columns_written"]), "from the length before the step"),
            Measure("K of one layer", _shape(row["key_shape"]), "(B, H_kv, T, D); V has the same"),
            Measure("Queries × keys", f"{row['query_length']} × {row['key_length']}", "new tokens × columns read"),
            Measure("Mask, last query", _mask(row["mask_row"]), "1: this query reads that column"),
            Measure("Predicts token", str(row["predicted_token"]), "argmax of the last row of logits"),
        ]
    )


def _numbers(values: tuple[int, ...]) -> str:
    if not values:
        return "none"
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _mask(cells: str) -> str:
    return cells if len(cells) <= 12 else f"…{cells[-11:]}"


def _predict(setting: Setting, table: pd.DataFrame, cache: str) -> None:
    prompt, steps = len(setting.prompt), setting.new_tokens
    made = steps + 1
    options = {
        made: f"{made}: the new tokens",
        prompt + steps: f"{prompt + steps}: the prompt and all new tokens but the last",
        prompt + made: f"{prompt + made}: the prompt and all new tokens",
    }
    question = Prediction(
        "lab_length",
        f"A prompt of {counted(prompt, 'token')}, then {made} new ones are produced. How many tokens went into the "
        "cache?",
        list(options.values()),
    )
    subject = f"{prompt}_{steps}_{cache}"
    heading("Predict")
    if ask(question, subject):
        settle(question, subject, options[int(table["length_after"].iloc[-1])])
        st.text("The last token is produced and never read, so its key and value are never computed.")


def _check(row: pd.Series[Any]) -> None:
    heading("Check")
    held, formula = int(row["bytes_held"]), int(row["formula_bytes"])
    show_measures(
        [
            Measure("Held by the tensors", f"{held:,} B", "bytes of every K and V tensor, summed"),
            Measure("The planner's formula", f"{formula:,} B", str(row["formula"])),
        ]
    )
    show_verdict(
        held == formula,
        f"Equal, to the byte: {format_exact_bytes(held)}",
        f"Not equal: {format_exact_bytes(held)} against {format_exact_bytes(formula)}",
    )


def _as_words(table: pd.DataFrame) -> pd.DataFrame:
    """Tuples as text, since a table shows numbers, words and no lists."""
    words = {name: table[name].map(str) for name in ("input_tokens", "key_shape", "value_shape", "columns_written")}
    return table.assign(**words)
