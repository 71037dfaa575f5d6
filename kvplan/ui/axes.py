"""Axes of sweeps as widgets: how each is written or chosen, and the sweep over any two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.errors import InputError
from kvplan.plan import Scenario
from kvplan.sweep import AS_PUBLISHED, sweep
from kvplan.ui.address import BIND
from kvplan.ui.library import find_gpu, gpu_ids
from kvplan.ui.sidebar import kv_head_choices
from kvplan.units import parse_axis

POPULAR_GPUS = (
    "t4-16gb", "rtx-3090-24gb", "rtx-4090-24gb", "l4-24gb", "rtx-5090-32gb", "a100-sxm-40gb", "l40s-48gb",
    "a100-sxm-80gb", "h100-sxm-80gb", "h200-141gb", "b200-180gb", "mi300x-192gb",
)  # fmt: skip


class AxisWidget(NamedTuple):
    """An axis: its words, its widget (key -> what the visitor gave), and that as values."""

    label: str
    ask: Callable[[str, Scenario], Any]
    values: Callable[[Any], list[Any]]


def _written(label: str, default: str, help: str) -> Callable[[str, Scenario], Any]:
    def ask(key: str, scenario: Scenario) -> Any:
        return st.text_input(label, default, key=key, help=help, max_chars=200, bind=BIND)

    return ask


def _chosen(label: str, options: Callable[[Scenario], list[str]], first: Callable[[Scenario], list[str]]) -> Any:
    def ask(key: str, scenario: Scenario) -> Any:
        known = options(scenario)
        return st.multiselect(label, known, [item for item in first(scenario) if item in known], key=key, bind=BIND)

    return ask


def _numbers(name: str) -> Callable[[Any], list[Any]]:
    return lambda text: parse_axis(text or "", name)


def _names(name: str) -> Callable[[Any], list[Any]]:
    def values(chosen: Any) -> list[Any]:
        if not chosen:
            raise InputError(f"no {name} is chosen; choose at least one")
        return list(chosen)

    return values


def _heads(chosen: Any) -> list[Any]:
    return [int(item) for item in _names("number of KV heads")(chosen)]


def _head_words(scenario: Scenario) -> list[str]:
    return [str(count) for count in kv_head_choices(scenario.model)]


def _few_heads(scenario: Scenario) -> list[str]:
    """MHA, the model's own number, and MQA."""
    known = _head_words(scenario)
    return [word for word in known if word in (known[0], str(scenario.model.num_kv_heads), known[-1])]


_DOUBLING = "Single values, a range, or doublings: 1k,4k,32k or 1..64 or 1..256*2"

AXES: dict[str, AxisWidget] = {
    "context_length": AxisWidget(
        "Context length", _written("Context lengths", "1k..256k*2", _DOUBLING), _numbers("the context lengths")
    ),
    "batch_size": AxisWidget(
        "Sequences at once", _written("Sequences at once", "1..256*2", _DOUBLING), _numbers("the sequences at once")
    ),
    "kv_dtype": AxisWidget(
        "KV cache precision",
        _chosen("KV cache precisions", lambda _: list(KV_DTYPES), lambda _: ["bf16", "fp8"]),
        _names("KV cache precision"),
    ),
    "weight_dtype": AxisWidget(
        "Weight precision",
        _chosen(
            "Weight precisions",
            lambda _: [AS_PUBLISHED, *WEIGHT_FORMATS],
            lambda _: [AS_PUBLISHED, "fp8_per_tensor", "awq_int4_g128"],
        ),
        _names("weight precision"),
    ),
    "num_kv_heads": AxisWidget("KV heads", _chosen("KV heads", _head_words, _few_heads), _heads),
    "tensor_parallel": AxisWidget(
        "Number of GPUs", _written("Numbers of GPUs", "1,2,4,8", _DOUBLING), _numbers("the GPUs")
    ),
    "gpu": AxisWidget("GPU", _chosen("GPUs", lambda _: gpu_ids(), lambda _: list(POPULAR_GPUS)), _names("GPU")),
}
"""Every axis by the column that it becomes."""


def ask_values(column: str, key: str, scenario: Scenario) -> list[Any]:
    """The values of one axis from its widget. Raises InputError."""
    axis = AXES[column]
    return axis.values(axis.ask(f"{key}_{column}", scenario))


def sweep_over(scenario: Scenario, axes: Mapping[str, list[Any]]) -> pd.DataFrame:
    """`sweep` over any axes, GPUs among them. Raises KvplanError."""
    rest = {name: values for name, values in axes.items() if name != "gpu"}
    gpus = [find_gpu(name) for name in axes.get("gpu", [])] or [scenario.gpu]
    tables = [sweep(scenario.with_changes(gpu=gpu), **rest) for gpu in gpus]
    for gpu, table in zip(gpus, tables, strict=True):
        table.insert(0, "gpu", gpu.id or gpu.name)
    return pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
