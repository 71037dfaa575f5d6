"""The plan's arithmetic on arrays: every combination of the axes as one row of a tidy DataFrame.

Each row equals what `plan` says for the same scenario. Work is done once for each distinct combination of
dtypes, KV heads and tensor parallelism, and for each distinct context length; rows are then filled by
broadcasting, so a million rows cost little more than writing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.errors import InputError, quoted
from kvplan.model import MAX_GPUS, weight_dtype_name
from kvplan.plan import Scenario, Usage, require_scenario, usages
from kvplan.units import parse_axis, whole_number

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 5_000_000
AS_PUBLISHED = "as published"
"""How `weight_dtype=None` reads in a table."""

Ints = npt.NDArray[np.int64]


class _Axes(NamedTuple):
    """The values of every axis; a fixed one has a single value. Outermost first."""

    tensor_parallel: list[int]
    num_kv_heads: list[int | None]
    weight_dtype: list[str | None]
    kv_dtype: list[str]
    batch_size: list[int]
    context_length: list[int]


class _Block(NamedTuple):
    """The rows of one combination of the outer four axes, (batch, context) shaped."""

    cache_bytes: Ints
    weight_bytes: Ints
    overhead_bytes: Ints
    num_kv_heads: int | None


def sweep(
    scenario: Scenario,
    *,
    context_length: Iterable[int] | str | None = None,
    batch_size: Iterable[int] | str | None = None,
    kv_dtype: Iterable[str] | str | None = None,
    weight_dtype: Iterable[str | None] | str | None = None,
    num_kv_heads: Iterable[int] | str | None = None,
    tensor_parallel: Iterable[int] | str | None = None,
) -> pd.DataFrame:
    """One row for each combination of the given axes; an axis that is not given stays as in `scenario`.

    Number axes may be written as text: "1k,4k,32k", "1..64", "1..64*2". In `weight_dtype` a None, or
    "as published", means the published weights.

    Columns: context_length batch_size kv_dtype weight_dtype num_kv_heads tensor_parallel, then cache_bytes
    weight_bytes overhead_bytes total_bytes (the sum of the three) capacity_bytes (int64) and fits (bool).

    Raises InputError, DtypeError or ParallelError where any combination cannot be planned.
    """
    require_scenario(scenario)
    axes = _Axes(
        tensor_parallel=_numbers(tensor_parallel, "tensor_parallel", scenario.tensor_parallel, MAX_GPUS),
        num_kv_heads=_kv_heads(num_kv_heads, scenario),
        weight_dtype=_weight_dtypes(weight_dtype, scenario),
        kv_dtype=_kv_dtypes(kv_dtype, scenario),
        batch_size=_numbers(batch_size, "batch_size", scenario.batch_size),
        context_length=_numbers(context_length, "context_length", scenario.context_length),
    )
    rows = math.prod(len(values) for values in axes)
    if rows > MAX_ROWS:
        raise InputError(f"the sweep has {rows:,} rows; at most {MAX_ROWS:,} are allowed, so use fewer values")
    tokens, batches = np.array(axes.context_length, np.int64), np.array(axes.batch_size, np.int64)
    blocks = [_block(scenario, outer, tokens, batches) for outer in product(*axes[:4])]
    return _frame(axes, blocks, scenario.gpu.usable_bytes, tokens, batches)


# ------------------------------------------------------------------------------------------------------- the axes


def _numbers(given: Iterable[int] | str | None, name: str, fixed: int, high: int = 2**40) -> list[int]:
    if given is None:
        return [fixed]
    values = parse_axis(given, name) if isinstance(given, str) else _listed(given, name)
    return [whole_number(value, name, high=high) for value in values]


def _listed(given: Iterable[object], name: str) -> list[object]:
    try:
        values = list(given)
    except TypeError:
        raise InputError(f"{name} is {quoted(given)}; a list of values is needed") from None
    if not values:
        raise InputError(f"{name} is an empty list; give at least one value")
    return values


def _names(given: Iterable[str | None] | str, name: str) -> list[object]:
    return [item.strip() for item in given.split(",")] if isinstance(given, str) else _listed(given, name)


def _kv_heads(given: Iterable[int] | str | None, scenario: Scenario) -> list[int | None]:
    if given is None:
        return [scenario.num_kv_heads]
    return [*_numbers(given, "num_kv_heads", 1)]


def _kv_dtypes(given: Iterable[str] | str | None, scenario: Scenario) -> list[str]:
    if given is None:
        return [scenario.kv_dtype]
    return [as_kv_dtype(item).name for item in _names(given, "kv_dtype")]  # type: ignore[arg-type]


def _weight_dtypes(given: Iterable[str | None] | str | None, scenario: Scenario) -> list[str | None]:
    if given is None:
        return [scenario.weight_dtype]
    names = [None if item == AS_PUBLISHED else item for item in _names(given, "weight_dtype")]
    return [weight_dtype_name(name) for name in names]  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- the rows


def _block(scenario: Scenario, outer: tuple[int, int | None, str | None, str], tokens: Ints, batches: Ints) -> _Block:
    tensor_parallel, heads, weights, rows = outer
    here = scenario.with_changes(
        tensor_parallel=tensor_parallel, num_kv_heads=heads, weight_dtype=weights, kv_dtype=rows
    )
    stages = usages(here)
    _require_int64(stages, int(tokens.max()), int(batches.max()))
    return _worst(stages, tokens[None, :], batches[:, None], here.planned_model.num_kv_heads)


def _worst(stages: Sequence[Usage], tokens: Ints, batches: Ints, num_kv_heads: int | None) -> _Block:
    """The bytes of the stage that holds the most, for each (batch, context)."""
    cache = stages[0].cache_bytes(tokens, batches)
    weight = np.full_like(cache, stages[0].shard.weight_bytes)
    for stage in stages[1:]:
        other = stage.cache_bytes(tokens, batches)
        larger = other + stage.shard.weight_bytes > cache + weight
        cache, weight = np.where(larger, other, cache), np.where(larger, stage.shard.weight_bytes, weight)
    return _Block(cache, weight, stages[0].overhead_bytes(tokens, batches), num_kv_heads)  # alike on all stages


def _require_int64(stages: Sequence[Usage], tokens: int, batch: int) -> None:
    """Refuse before an int64 could wrap around; the scalar plan has no such limit."""
    largest = max(usage.total_bytes(tokens, batch) for usage in stages)
    if largest >= 2**62:
        raise InputError(
            f"{tokens:,} tokens of {batch:,} sequences take {largest:,} bytes, more than a table can hold exactly"
        )


def _frame(axes: _Axes, blocks: list[_Block], capacity: int, tokens: Ints, batches: Ints) -> pd.DataFrame:
    import pandas as pd

    inner = len(batches) * len(tokens)
    size = len(blocks) * inner
    cache = np.concatenate([block.cache_bytes.ravel() for block in blocks])
    weight = np.concatenate([block.weight_bytes.ravel() for block in blocks])
    overhead = np.concatenate([block.overhead_bytes.ravel() for block in blocks])
    total = cache + weight + overhead
    heads = pd.array([block.num_kv_heads for block in blocks], dtype="Int64")
    columns = {
        "context_length": np.tile(tokens, size // len(tokens)),
        "batch_size": np.tile(np.repeat(batches, len(tokens)), len(blocks)),
        "kv_dtype": _categories(axes, "kv_dtype", size),
        "weight_dtype": _categories(axes, "weight_dtype", size),
        "num_kv_heads": heads.repeat(inner),
        "tensor_parallel": _outer_column(axes, "tensor_parallel", axes.tensor_parallel, size),
        "cache_bytes": cache,
        "weight_bytes": weight,
        "overhead_bytes": overhead,
        "total_bytes": total,
        "capacity_bytes": np.full(size, capacity, np.int64),
        "fits": total <= capacity,
    }
    return pd.DataFrame(columns, copy=False)


def _outer_column(axes: _Axes, name: str, values: Sequence[int], size: int) -> Ints:
    """`values` of one axis repeated as the row order asks."""
    inner = math.prod(len(axis) for axis in axes[axes._fields.index(name) + 1 :])
    column = np.repeat(np.array(values, np.int64), inner)
    return np.tile(column, size // len(column))


def _categories(axes: _Axes, name: str, size: int) -> pd.Categorical[str]:
    import pandas as pd

    words: list[str] = [AS_PUBLISHED if value is None else value for value in getattr(axes, name)]
    distinct = list(dict.fromkeys(words))
    codes = _outer_column(axes, name, [distinct.index(word) for word in words], size)
    column: pd.Categorical[str] = pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(distinct))  # type: ignore[assignment]
    return column
