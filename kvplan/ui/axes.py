"""Axes of sweeps as widgets: how each is written or chosen, and the sweep over any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.errors import InputError
from kvplan.plan import Scenario
from kvplan.sweep import AS_PUBLISHED, Refusal, sweep_possible
from kvplan.ui.address import BIND
from kvplan.ui.library import find_gpu, gpu_ids
from kvplan.units import counted, counted_and, parse_axis

MAX_POINTS = 20_000
"""Points of one page's sweep; more are no more than a picture can show."""

MAX_LAYOUTS = 2_000
"""Combinations of dtypes, KV heads and numbers of GPUs, each of which is planned by itself."""

POPULAR_GPUS = (
    "t4-16gb", "rtx-3090-24gb", "rtx-4090-24gb", "l4-24gb", "rtx-5090-32gb", "a100-sxm-40gb", "l40s-48gb",
    "a100-sxm-80gb", "h100-sxm-80gb", "h200-141gb", "b200-180gb", "mi300x-192gb",
)  # fmt: skip


class AxisWidget(NamedTuple):
    """An axis: its words, its widget (key, scenario -> values), and one of its values in a sentence."""

    label: str
    ask: Callable[[str, Scenario], list[Any]]
    words: Callable[[Any, Scenario], str]


# ------------------------------------------------------------------------------------------------------ the widgets

_DOUBLING = "Single values, a range, doublings or steps: 1k,4k,32k or 1..64 or 1..256*2 or 8k..64k+8k"


def _written(label: str, default: str, one: str) -> Callable[[str, Scenario], list[Any]]:
    """Numbers as text; `one` is what a single value is called in a message."""

    def ask(key: str, scenario: Scenario) -> list[Any]:
        text = st.text_input(label, default, key=key, help=_DOUBLING, max_chars=200, bind=BIND)
        return sorted(parse_axis(text or "", one))

    return ask


def _ask_gpus(key: str, scenario: Scenario) -> list[Any]:
    values = _written("Numbers of GPUs", "1,2,4,8", "the number of GPUs")(key, scenario)
    say_gpus_in_all(scenario, values)
    return values


def say_gpus_in_all(scenario: Scenario, values: Sequence[int]) -> None:
    """What numbers of GPUs are to be multiplied with, where the scenario has stages or replicas."""
    stages, copies = scenario.pipeline_parallel, scenario.data_parallel
    if values and stages * copies > 1:
        each = counted(values[-1], "GPU")
        st.caption(
            f"Of each stage of each replica, as in the sidebar: {each} here × {counted(stages, 'stage')} × "
            f"{counted(copies, 'replica')} = {counted(values[-1] * stages * copies, 'GPU')} in all."
        )


def _on_gpus(value: int, scenario: Scenario) -> str:
    """`on 8 GPUs`, and of what, where those are not all of them."""
    parts = {"stage": scenario.pipeline_parallel, "replica": scenario.data_parallel}
    return f"on {counted(value, 'GPU')}" + "".join(f" of each {part}" for part, count in parts.items() if count > 1)


def _chosen(label: str, options: Callable[[], list[str]], first: tuple[str, ...]) -> Callable[[str, Scenario], Any]:
    """Names from a list, in its order, in which a typed part of one finds them too: l4-24gb before l40-48gb."""

    def ask(key: str, scenario: Scenario) -> list[Any]:
        known = options()
        usual = [item for item in first if item in known]
        # the entry of Streamlit's that takes all matches would stand first, and Enter would take it
        chosen = st.multiselect(label, known, usual, key=key, bind=BIND, select_all=False, filter_mode="contains")
        if not chosen:
            raise InputError(f"no {label} is chosen; choose at least one")
        return list(chosen)

    return ask


def _ask_heads(key: str, scenario: Scenario) -> list[Any]:
    """Numbers of KV heads; none chosen means MHA, the model's own number and MQA, whatever the model."""
    choices = scenario.model.kv_head_choices
    if not choices:
        scenario.model.with_kv_heads(1)  # raises with the reason
        raise InputError(f"the attention heads of {scenario.model.name} are not known, so its KV heads cannot change")
    words = [str(count) for count in choices]
    usual = [count for count in choices if count in (choices[0], scenario.model.num_kv_heads, 1)]
    chosen = st.multiselect(
        "Numbers of KV heads", words, key=key, bind=BIND, placeholder=", ".join(map(str, usual)),
        help="From MHA, as many as query heads, to MQA, a single one. Nothing chosen: MHA, as trained, MQA.",
        select_all=False,
    )  # fmt: skip
    return [count for count in choices if str(count) in chosen] or usual


AXES: dict[str, AxisWidget] = {
    "context_length": AxisWidget(
        "Context length",
        _written("Context lengths", "1k..256k*2", "the context length"),
        lambda value, _: f"with {counted(value, 'token')}",
    ),
    "batch_size": AxisWidget(
        "Sequences at once",
        _written("Sequences at once", "1..256*2", "the number of sequences"),
        lambda value, _: f"with {counted(value, 'sequence')}",
    ),
    "kv_dtype": AxisWidget(
        "KV cache precision",
        _chosen("KV cache precision", lambda: list(KV_DTYPES), ("bf16", "fp8")),
        lambda value, _: f"with {value}",
    ),
    "weight_dtype": AxisWidget(
        "Weight precision",
        _chosen(
            "Weight precision",
            lambda: [AS_PUBLISHED, *WEIGHT_FORMATS],
            (AS_PUBLISHED, "fp8_per_tensor", "awq_int4_g128"),
        ),
        lambda value, _: f"with weights {value}" if value == AS_PUBLISHED else f"with {value} weights",
    ),
    "num_kv_heads": AxisWidget("KV heads", _ask_heads, lambda value, _: f"with {counted(value, 'KV head')}"),
    "tensor_parallel": AxisWidget("Number of GPUs", _ask_gpus, _on_gpus),
    "gpu": AxisWidget("GPU", _chosen("GPU", gpu_ids, POPULAR_GPUS), lambda value, _: f"on {value}"),
}
"""Every axis by the column that it becomes."""

LABELS = {column: axis.label for column, axis in AXES.items()}


def column_of(label: str) -> str:
    """The column of an axis from its words."""
    return next(column for column, axis in AXES.items() if axis.label == label)


def pick_axis(label: str, columns: tuple[str, ...], key: str, first: str, **more: Any) -> str:
    """An axis from a list of its words; the address carries the words."""
    labels = [LABELS[column] for column in columns]
    chosen = st.selectbox(label, labels, labels.index(LABELS[first]), key=key, bind=BIND, **more)
    return column_of(chosen or LABELS[first])


def ask_values(column: str, key: str, scenario: Scenario) -> list[Any]:
    """The values of one axis from its widget. Raises InputError."""
    return AXES[column].ask(f"{key}_{column}", scenario)


def values_words(column: str, values: Sequence[Any], scenario: Scenario) -> list[str]:
    """Several values of an axis in one sentence, with the noun at the first alone: `with 8 KV heads`, `with 1`."""
    first, *others = values
    words = value_words(column, first, scenario)
    if isinstance(first, str):
        return [words, *(value_words(column, value, scenario) for value in others)]
    return [words, *(f"{words.split()[0]} {value:,}" for value in others)]


def value_words(column: str, value: Any, scenario: Scenario) -> str:
    """A value of an axis in a sentence: `with 8 KV heads`."""
    return AXES[column].words(value, scenario)


# ------------------------------------------------------------------------------------------------------- the sweep


def swept(scenario: Scenario, axes: Mapping[str, list[Any]]) -> tuple[pd.DataFrame, tuple[Refusal, ...]]:
    """`sweep_possible` over any axes, with the columns of the axes alone before the bytes. Raises KvplanError."""
    points = math.prod(map(len, axes.values()))
    if points > MAX_POINTS:
        raise InputError(
            f"{counted_and(points, 'point', 'are')} asked for; at most {MAX_POINTS:,} are drawn, so use fewer values "
            "or larger steps"
        )
    layouts = math.prod(len(values) for column, values in axes.items() if column in _PLANNED_APART)
    if layouts > MAX_LAYOUTS:
        raise InputError(f"{layouts:,} layouts are asked for; at most {MAX_LAYOUTS:,} are planned, so use fewer values")
    given: dict[str, Any] = {**axes, **({"gpu": [find_gpu(name) for name in axes["gpu"]]} if "gpu" in axes else {})}
    table, refused = sweep_possible(scenario, **given)
    return table.drop(columns=[column for column in AXES if column in table and column not in axes]), refused


_PLANNED_APART = frozenset({"kv_dtype", "weight_dtype", "num_kv_heads", "tensor_parallel"})
