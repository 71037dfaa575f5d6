"""Sweeps: tidy rows in a fixed order, axes as people write them, and refusals. Equality with plans is a law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.attention import FullAttention, LatentAttention, NoCache
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import DtypeError, InputError, KvplanError, ParallelError, UnknownNameError
from kvplan.plan import Scenario, plan
from kvplan.sweep import MAX_ROWS, Refusal, over_context, sweep, sweep_possible
from tests.examples import LLAMA_8B, SMALL_GPU, model_of

SCENARIO = Scenario(LLAMA_8B, SMALL_GPU, context_length=4096, batch_size=2)

COLUMNS = {
    "context_length": "int64",
    "batch_size": "int64",
    "kv_dtype": "category",
    "weight_dtype": "category",
    "num_kv_heads": "Int64",
    "tensor_parallel": "int64",
    "cache_bytes": "int64",
    "weight_bytes": "int64",
    "overhead_bytes": "int64",
    "total_bytes": "int64",
    "capacity_bytes": "int64",
    "fits": "bool",
}


def test_a_sweep_without_axes_is_the_plan_as_one_row() -> None:
    rows, p = sweep(SCENARIO), plan(SCENARIO)
    assert {name: str(dtype) for name, dtype in rows.dtypes.items()} == COLUMNS
    assert rows.iloc[0].to_dict() == {
        "context_length": 4096,
        "batch_size": 2,
        "kv_dtype": "bf16",
        "weight_dtype": "as published",
        "num_kv_heads": 8,
        "tensor_parallel": 1,
        "cache_bytes": p.cache_bytes,
        "weight_bytes": p.weight_bytes,
        "overhead_bytes": p.overhead_bytes,
        "total_bytes": p.total_bytes,
        "capacity_bytes": p.capacity_bytes,
        "fits": p.fits,
    }


def test_rows_run_through_contexts_first_and_tensor_parallelism_last() -> None:
    rows = sweep(SCENARIO, context_length=[10, 20], batch_size=[1, 2], kv_dtype=["fp8", "bf16"], tensor_parallel=[2, 1])
    found = list(zip(rows.tensor_parallel, rows.kv_dtype, rows.batch_size, rows.context_length, strict=True))
    assert found == [(t, k, b, c) for t in (2, 1) for k in ("fp8", "bf16") for b in (1, 2) for c in (10, 20)]


def test_every_combination_is_there_once() -> None:
    rows = sweep(
        SCENARIO,
        context_length="1..5",
        batch_size="1..4*2",
        kv_dtype="bf16,fp8",
        num_kv_heads="1,8",
        weight_dtype="bf16,fp8",
    )
    assert len(rows) == 5 * 3 * 2 * 2 * 2
    assert not rows.duplicated(list(COLUMNS)[:6]).any()


@pytest.mark.parametrize(
    "values", [[1024, 4096], (1024, 4096), np.array([1024, 4096]), pd.Series([1024, 4096]), "1k,4k", "1k..4k*4"]
)
def test_an_axis_may_be_written_or_listed(values: Any) -> None:
    assert sweep(SCENARIO, context_length=values).context_length.tolist() == [1024, 4096]


def test_weights_as_published_may_be_named() -> None:
    for axis in ("as published, fp8", [None, "fp8"], ["as published", "fp8"]):
        rows = sweep(SCENARIO, weight_dtype=axis)
        assert rows.weight_dtype.tolist() == ["as published", "fp8"]
        assert rows.weight_bytes.tolist() == [LLAMA_8B.weight_bytes(), LLAMA_8B.weight_bytes("fp8")]


def test_dtypes_are_categories_in_the_order_given() -> None:
    assert list(sweep(SCENARIO, kv_dtype=["fp8", "bf16"]).kv_dtype.cat.categories) == ["fp8", "bf16"]


def test_a_model_without_one_number_of_kv_heads_has_none_in_its_rows() -> None:
    rows = sweep(Scenario(model_of([LatentAttention(512, 64)]), SMALL_GPU))
    assert rows.num_kv_heads.isna().all()


def test_a_model_without_a_cache_sweeps_to_zeros() -> None:
    assert sweep(Scenario(model_of([NoCache()]), SMALL_GPU), context_length="1..9").cache_bytes.tolist() == [0] * 9


@pytest.mark.parametrize(
    ("axes", "error", "reason"),
    [
        ({"context_length": 4096}, InputError, "context_length is 4096; a list of values is needed"),
        ({"context_length": []}, InputError, "context_length is an empty list; give at least one value"),
        ({"context_length": [0]}, InputError, "context_length is 0; it must be from 1"),
        ({"context_length": [1.5]}, InputError, "context_length is 1.5; a whole number is needed"),
        ({"context_length": ["1k"]}, InputError, "context_length is '1k'; a whole number is needed"),
        ({"context_length": "0..4"}, InputError, "context_length is 0; it must be from 1"),
        ({"batch_size": "4..1"}, InputError, "batch_size '4..1' runs backwards"),
        ({"kv_dtype": "bf16,fp9"}, UnknownNameError, "no kv dtype is called 'fp9'"),
        ({"kv_dtype": [None]}, InputError, "kv_dtype is None; a name such as bf16 is needed"),
        ({"weight_dtype": "int4"}, InputError, "int4 has many layouts"),
        ({"num_kv_heads": [3]}, InputError, "num_kv_heads is 3, which does not divide"),
        ({"tensor_parallel": [1, 3]}, ParallelError, "do not divide by tensor_parallel=3"),
        ({"tensor_parallel": [8192]}, InputError, "tensor_parallel is 8192; it must be from 1 to 4,096"),
    ],
)
def test_an_axis_that_cannot_be_is_refused(axes: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        sweep(SCENARIO, **axes)


def test_a_cache_dtype_that_cannot_hold_a_row_is_refused() -> None:
    with pytest.raises(DtypeError, match="does not fill whole blocks"):
        sweep(Scenario(model_of([FullAttention(4, 80)]), SMALL_GPU), kv_dtype="bf16,q8_0")


def test_too_many_rows_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match=r"the sweep has 16,777,216 rows; at most 5,000,000 are allowed"):
        sweep(SCENARIO, context_length="1..4096", batch_size="1..4096")
    assert MAX_ROWS == 5_000_000


# --------------------------------------------------------------------------------------------------- GPUs, gaps


def test_each_row_of_a_gpu_axis_is_the_plan_on_that_gpu() -> None:
    gpus = ["t4-16gb", "h100-sxm-80gb"]
    rows = sweep(SCENARIO, gpu=gpus, context_length=[1024, 4096], tensor_parallel=[1, 2])
    assert list(rows.columns) == ["gpu", *COLUMNS]
    assert rows.gpu.tolist() == [gpu for gpu in gpus for _ in range(4)]
    for row in rows.itertuples():
        here = Scenario(
            LLAMA_8B, str(row.gpu), context_length=int(row.context_length), batch_size=2,  # type: ignore[arg-type]
            tensor_parallel=int(row.tensor_parallel),  # type: ignore[arg-type]
        )  # fmt: skip
        p = plan(here)
        found = (row.cache_bytes, row.weight_bytes, row.overhead_bytes, row.total_bytes, row.capacity_bytes, row.fits)
        assert found == (p.cache_bytes, p.weight_bytes, p.overhead_bytes, p.total_bytes, p.capacity_bytes, p.fits)


def test_a_gpu_axis_takes_objects_and_one_gpu_alone() -> None:
    rows = sweep(SCENARIO, gpu=[SMALL_GPU])
    assert rows.gpu.tolist() == [SMALL_GPU.id or SMALL_GPU.name]
    assert rows.drop(columns="gpu").equals(sweep(SCENARIO))


@pytest.mark.parametrize("gpu", [[], ["no-such-gpu"], [None], 7])
def test_what_is_no_gpu_is_refused(gpu: Any) -> None:
    with pytest.raises(KvplanError, match="gpu"):
        sweep(SCENARIO, gpu=gpu)


def test_what_can_be_planned_is_the_sweep_where_nothing_is_refused() -> None:
    rows, refused = sweep_possible(SCENARIO, context_length="1..5", kv_dtype="bf16,fp8", gpu=["t4-16gb"])
    assert rows.equals(sweep(SCENARIO, context_length="1..5", kv_dtype="bf16,fp8", gpu=["t4-16gb"]))
    assert refused == ()


def test_combinations_that_cannot_be_planned_are_left_out_and_named() -> None:
    rows, refused = sweep_possible(
        SCENARIO, context_length=[1024, 4096], tensor_parallel=[1, 3, 2], num_kv_heads=[8, 5], kv_dtype="fp8,bf16"
    )
    kept = sweep(SCENARIO, context_length=[1024, 4096], tensor_parallel=[1, 2], num_kv_heads=[8], kv_dtype="fp8,bf16")
    assert rows.equals(kept)
    assert len(refused) == 3 * 2 * 2 - 2 * 2
    three = Refusal({"tensor_parallel": 3, "num_kv_heads": 8, "kv_dtype": "fp8"}, refused[2].reason)
    assert three in refused
    assert "do not divide by tensor_parallel=3" in three.reason


def test_where_nothing_can_be_planned_the_first_reason_is_raised() -> None:
    with pytest.raises(ParallelError, match="do not divide by tensor_parallel=3"):
        sweep_possible(SCENARIO, tensor_parallel=[3, 5])


def test_an_axis_that_cannot_be_read_is_refused_and_not_left_out() -> None:
    with pytest.raises(InputError, match="context_length is 0"):
        sweep_possible(SCENARIO, context_length=[0, 1])


AXES = st.sampled_from(["context_length", "batch_size", "kv_dtype", "weight_dtype", "num_kv_heads", "tensor_parallel"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from([1, 8, "fp8"])


@given(st.dictionaries(AXES, VALUES | st.lists(VALUES, max_size=3), max_size=3))
def test_only_a_kvplan_error_comes_out_of_any_axes(axes: dict[str, Any]) -> None:
    try:
        made: object = sweep(SCENARIO, **axes)
    except KvplanError as error:
        made = str(error)
    assert made is not None


def test_a_sweep_of_anything_but_a_scenario_is_refused() -> None:
    with pytest.raises(InputError, match=r"a kvplan\.Scenario is needed"):
        kvplan.sweep("llama-3.1-8b")  # type: ignore[arg-type]


def test_one_weight_dtype_has_one_name_in_the_table() -> None:
    scenario = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
    frame = kvplan.sweep(scenario, weight_dtype=["FP8", " fp8", WEIGHT_FORMATS["bf16"]])
    assert frame["weight_dtype"].tolist() == ["fp8", "fp8", "bf16"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pipeline_parallel": 2},
        {"kv_dtype": "fp8", "batch_size": 7},
        {"adapter_bytes": 12345},
        {"shared_prefix": 64},
    ],
)
def test_a_curve_over_the_context_holds_the_sweeps_columns(changes: dict[str, Any]) -> None:
    scenario, contexts = SCENARIO.with_changes(**changes), [64, 1000, 4096, 131072]
    curve = over_context(scenario, contexts)
    table = sweep(scenario, context_length=contexts)
    assert {name: column.tolist() for name, column in curve.items()} == table[list(curve)].to_dict("list")
    assert {column.dtype for column in curve.values()} == {np.dtype(np.int64)}


def test_a_curve_beyond_what_a_table_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="more than a table can hold exactly"):
        over_context(SCENARIO.with_changes(batch_size=10**9), [10**9])


def test_a_context_that_does_not_hold_the_shared_prefix_is_left_out_as_a_plan_refuses_it() -> None:
    scenario = SCENARIO.with_changes(shared_prefix=2000)
    rows, refused = sweep_possible(scenario, context_length="1k,2k,1999,4k", kv_dtype="bf16,fp8")
    reason = "shared_prefix is 2,000; a sequence only holds 1,999 tokens"
    assert rows["context_length"].tolist() == [2048, 4096] * 2
    assert refused == (Refusal({"context_length": 1024}, reason), Refusal({"context_length": 1999}, reason))
    with pytest.raises(InputError, match=reason):
        plan(scenario.with_changes(context_length=1999))
    for refusing in (sweep, sweep_possible):
        with pytest.raises(InputError, match="shared_prefix is 2,000; a sequence only holds 1,024 tokens"):
            refusing(scenario, context_length=[1024])


def test_image_tokens_count_towards_a_context_that_holds_the_shared_prefix() -> None:
    scenario = SCENARIO.with_changes(shared_prefix=2000, image_tokens=500)
    assert sweep(scenario, context_length=[1500])["cache_bytes"].item() == 2000 * 131072  # both sequences, held once
