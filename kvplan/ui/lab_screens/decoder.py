"""The decoder of the first and third screen: its widgets, within bounds that a shared server can bear."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import streamlit as st

from kvplan import lab
from kvplan.errors import InputError, shorten
from kvplan.lab.limits import DTYPES
from kvplan.lab.shape import POSITIONS
from kvplan.ui.address import BIND
from kvplan.units import counted

MAX_PROMPT, MAX_NEW = 16, 32
MAX_WORK = 9600  # layers x query heads x head dim x steps: about two seconds of one core
LEAST_WIDTH = 32  # a narrower head costs as much: what takes time is to start its products

SMALLEST: dict[str, Any] = {
    "lab_layers": 2,
    "lab_heads": 2,
    "lab_kv_heads": 2,
    "lab_head_dim": 16,
    "lab_vocab": 50,
    "lab_position": "rope",
    "lab_window": 0,
    "lab_dtype": "float32",
    "lab_seed": 0,
    "lab_prompt": "1 2 3 4",
}
"""The decoder of the smallest program, and the first value of every widget."""

STEPS = {"lab_new": 1, "lab_inputs": 4}
"""Decode steps of the parity check and of the trace."""

TELLING: dict[str, Any] = {**SMALLEST, "lab_heads": 4}
"""A decoder whose check can fail: grouped heads, several decode steps."""


class Setting(NamedTuple):
    """A decoder and what it is given."""

    model: lab.TinyDecoder
    prompt: list[int]
    new_tokens: int

    @property
    def words(self) -> str:
        """All of it in one line."""
        shape = self.model.shape
        window = "" if shape.window is None else f", window {shape.window}"
        return (
            f"{counted(shape.num_layers, 'layer')}, {counted(shape.num_attention_heads, 'query head')}, "
            f"{counted(shape.num_kv_heads, 'KV head')}, head_dim {shape.head_dim}, vocabulary {shape.vocab_size}, "
            f"positions {shape.position}{window}, {shape.dtype}, seed {shape.seed}; "
            f"prompt {' '.join(map(str, self.prompt))}; "
            f"{self.new_tokens} decode {'step' if self.new_tokens == 1 else 'steps'}"
        )


def ask_decoder(steps_key: str) -> Setting:
    """The decoder that the widgets describe, and the steps of that field. Raises KvplanError below them."""
    with st.expander("Change the decoder or the prompt"):
        _presets()
        with st.container(horizontal=True):
            st.text_input(
                "Prompt, token ids", SMALLEST["lab_prompt"], key="lab_prompt", max_chars=100, width=260, bind=BIND
            )
            steps = _number("Decode steps", steps_key, 1, MAX_NEW)
        with st.container(horizontal=True):
            _number("Layers", "lab_layers", 1, 4)
            _number("Query heads", "lab_heads", 1, 8)
            _number("KV heads", "lab_kv_heads", 1, 8)
            _number("Head dim", "lab_head_dim", 1, 64)
            _number("Vocabulary", "lab_vocab", 2, 1000)
            _number("Window (0: none)", "lab_window", 0, MAX_PROMPT + MAX_NEW)
            _number("Seed", "lab_seed", 0, 1_000_000)
        with st.container(horizontal=True):
            _choice("Positions", "lab_position", POSITIONS)
            _choice("Arithmetic", "lab_dtype", tuple(DTYPES))
        st.caption(
            f"Bounds of this page: 4 layers, 8 heads of 64, a vocabulary of 1,000, prompts of {MAX_PROMPT} tokens, "
            f"{MAX_NEW} decode steps; and layers × query heads × head dim (counted as {LEAST_WIDTH} at least) × "
            f"(decode steps + 1) up to {MAX_WORK:,}."
        )
    setting = _read(steps)
    st.text(setting.words)
    return setting


def _presets() -> None:
    with st.container(horizontal=True):
        st.button("The smallest program", key="lab_smallest", on_click=_fill_in, args=(SMALLEST, 1))
        st.button("A check that can fail", key="lab_telling", on_click=_fill_in, args=(TELLING, 8))


def _fill_in(values: dict[str, Any], steps: int) -> None:
    st.session_state.update(values)
    st.session_state.update(dict.fromkeys(STEPS, steps))


def _number(label: str, key: str, low: int, high: int) -> int:
    first: int = {**SMALLEST, **STEPS}[key]
    help = f"From {low} to {high:,}."
    given = st.number_input(label, low, high, first, key=key, width=165, bind=BIND, help=help)
    return first if given is None else given


def _choice(label: str, key: str, options: tuple[str, ...]) -> None:
    with st.container(width=360):  # in one of its own it wraps on a phone, where a row would cut its last choice off
        st.segmented_control(label, options, default=SMALLEST[key], key=key, required=True, bind=BIND)


def _read(steps: int) -> Setting:
    here = st.session_state  # an address without a value empties a field; the page has named that part of it
    values = {key: first if here[key] is None else here[key] for key, first in SMALLEST.items()}
    prompt = read_tokens(values["lab_prompt"])
    _check_work(values, steps)
    model = lab.TinyDecoder(
        num_layers=values["lab_layers"],
        num_attention_heads=values["lab_heads"],
        num_kv_heads=values["lab_kv_heads"],
        head_dim=values["lab_head_dim"],
        vocab_size=values["lab_vocab"],
        position=values["lab_position"],
        window=values["lab_window"] or None,
        dtype=values["lab_dtype"],
        seed=values["lab_seed"],
    )
    _check_tokens(prompt, model)
    return Setting(model, prompt, steps)


def _check_work(values: dict[str, Any], steps: int) -> None:
    """A rerun must not keep a shared server busy."""
    width = max(values["lab_head_dim"], LEAST_WIDTH)
    work = values["lab_layers"] * values["lab_heads"] * width * (steps + 1)
    if work > MAX_WORK:
        raise InputError(
            f"layers x query heads x head dim ({LEAST_WIDTH} at least) x (decode steps + 1) is {work:,}, and this page "
            f"stops at {MAX_WORK:,}; take fewer"
        )


def read_tokens(text: str) -> list[int]:
    """Token ids from text such as `1 2 3`. Raises InputError."""
    words = [word for word in re.split(r"[\s,;]+", text) if word]
    if not words or not all(re.fullmatch(r"[0-9]{1,6}", word) for word in words):
        raise InputError(f"the prompt is {shorten(text)!r}; write token ids with spaces between them, such as 1 2 3 4")
    if len(words) > MAX_PROMPT:
        raise InputError(f"the prompt has {counted(len(words), 'token')}, and this page stops at {MAX_PROMPT}")
    return [int(word) for word in words]


def _check_tokens(prompt: list[int], model: lab.TinyDecoder) -> None:
    wrong = [token for token in prompt if token >= model.shape.vocab_size]
    if wrong:
        last = model.shape.vocab_size - 1
        raise InputError(f"token id {wrong[0]} of the prompt is not in the vocabulary of 0 to {last}")
