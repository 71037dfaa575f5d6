"""The plan's arithmetic on arrays: every combination of the axes as one row of a tidy DataFrame.

Each row equals what `plan` says for the same scenario. Work is done once for each distinct combination of
dtypes, KV heads and tensor parallelism, for each distinct context length, and for each GPU; rows are then filled
by broadcasting, so a million rows cost little more than writing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.errors import InputError, KvplanError, quoted
from kvplan.hardware import Gpu
from kvplan.model import MAX_GPUS, weight_dtype_name
from kvplan.plan import Scenario, Usage, require_scenario, usages
from kvplan.presets import load_gpu
from kvplan.units import counted, listed, parse_axis, whole_number

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 5_000_000
AS_PUBLISHED = "as published"
"""How `weight_dtype=None` reads in a table."""

Ints = npt.NDArray[np.int64]


Numbers = Iterable[int] | str | None
Names = Iterable[str] | str | None
"""The values of an axis: a list, text such as "1k,4k,32k", or None for the scenario's own."""


class Refusal(NamedTuple):
    """A combination that cannot be planned: its values by axis, and the reason."""

    values: dict[str, Any]
    reason: str


class _Axes(NamedTuple):
    """The values of every axis; a fixed one has a single value. Outermost first."""

    gpu: list[Gpu]
    tensor_parallel: list[int]
    num_kv_heads: list[int | None]
    weight_dtype: list[str | None]
    kv_dtype: list[str]
    batch_size: list[int]
    context_length: list[int]


class _Block(NamedTuple):
    """The rows of one combination of tensor parallelism, KV heads and dtypes, (batch, context) shaped."""

    cache_bytes: Ints
    weight_bytes: Ints
    overhead_bytes: Ints
    num_kv_heads: int | None


def sweep(
    scenario: Scenario,
    *,
    context_length: Numbers = None,
    batch_size: Numbers = None,
    kv_dtype: Names = None,
    weight_dtype: Iterable[str | None] | str | None = None,
    num_kv_heads: Numbers = None,
    tensor_parallel: Numbers = None,
    gpu: Iterable[Gpu | str] | str | None = None,
) -> pd.DataFrame:
    """One row for each combination of the given axes; an axis that is not given stays as in `scenario`.

    Number axes may be written as text: "1k,4k,32k", "1..64", "1..64*2". In `weight_dtype` a None, or
    "as published", means the published weights. GPUs are objects or preset ids.

    Columns: context_length batch_size kv_dtype weight_dtype num_kv_heads tensor_parallel, then cache_bytes
    weight_bytes overhead_bytes total_bytes (the sum of the three) capacity_bytes (int64) and fits (bool); with a
    gpu axis a first column gpu.

    Raises InputError, UnknownNameError, DtypeError or ParallelError where any combination cannot be planned.
    """
    given = (gpu, tensor_parallel, num_kv_heads, weight_dtype, kv_dtype, batch_size, context_length)
    axes = _read_axes(scenario, given)
    if short := _shorter_than_prefix(scenario, axes):
        raise InputError(_short_reason(scenario, short[0]))
    tokens, batches = _inner_axes(axes)
    blocks = [_block(scenario, outer, tokens, batches) for outer in _outer_values(axes)]
    return _with_gpus(_frame(axes, blocks), scenario, axes, gpu is not None)


def over_context(scenario: Scenario, contexts: Sequence[int]) -> dict[str, Ints]:
    """The columns of `sweep` that a curve over the context needs, and no others, which take most of its time.

    Columns: context_length cache_bytes weight_bytes total_bytes capacity_bytes (int64), as arrays: the first page
    that a visitor sees draws a curve and no table, and pandas takes a third of a second to load.
    Raises InputError where a number is more than a table can hold exactly.
    """
    tokens, batch, stages = np.array(contexts, np.int64), np.array([[scenario.batch_size]]), usages(scenario)
    _require_int64(stages, int(tokens.max()), scenario.batch_size)
    cache, weight, overhead = (part.ravel() for part in _worst(stages, tokens[None, :], batch, None)[:3])
    return {
        "context_length": tokens,
        "cache_bytes": cache,
        "weight_bytes": weight,
        "total_bytes": cache + weight + overhead,
        "capacity_bytes": np.full_like(cache, scenario.gpu.usable_bytes),
    }


def sweep_possible(
    scenario: Scenario,
    *,
    context_length: Numbers = None,
    batch_size: Numbers = None,
    kv_dtype: Names = None,
    weight_dtype: Iterable[str | None] | str | None = None,
    num_kv_heads: Numbers = None,
    tensor_parallel: Numbers = None,
    gpu: Iterable[Gpu | str] | str | None = None,
) -> tuple[pd.DataFrame, tuple[Refusal, ...]]:
    """As `sweep`, without the combinations that cannot be planned, and why each of them cannot.

    Raises what `sweep` raises where an axis cannot be read, or where nothing at all can be planned.
    """
    given = (gpu, tensor_parallel, num_kv_heads, weight_dtype, kv_dtype, batch_size, context_length)
    axes = _read_axes(scenario, given)
    short = _shorter_than_prefix(scenario, axes)
    if len(short) == len(axes.context_length):
        raise InputError(_short_reason(scenario, short[0]))
    axes = axes._replace(context_length=[tokens for tokens in axes.context_length if tokens not in short])
    tokens, batches = _inner_axes(axes)
    blocks: list[_Block | None] = []
    refused: list[tuple[tuple[Any, ...], KvplanError]] = []
    for outer in _outer_values(axes):
        try:
            blocks.append(_block(scenario, outer, tokens, batches))
        except KvplanError as error:
            blocks.append(None)
            refused.append((outer, error))
    if len(refused) == len(blocks):
        raise refused[0][1]
    table = _with_gpus(_frame(axes, blocks), scenario, axes, gpu is not None)
    reason = _short_reason(scenario, max(short)) if short else ""  # one for all, which reads as one
    return table, (
        *(Refusal({"context_length": tokens}, reason) for tokens in short),
        *(Refusal(_swept(axes, outer), str(error)) for outer, error in refused),
    )


def _read_axes(scenario: Scenario, given: tuple[Any, ...]) -> _Axes:
    """Every axis as a list of values, outermost first as in `_Axes`."""
    require_scenario(scenario)
    gpu, tensor_parallel, num_kv_heads, weight_dtype, kv_dtype, batch_size, context_length = given
    axes = _Axes(
        gpu=_gpus(gpu, scenario),
        tensor_parallel=_numbers(tensor_parallel, "tensor_parallel", scenario.tensor_parallel, MAX_GPUS),
        num_kv_heads=_kv_heads(num_kv_heads, scenario),
        weight_dtype=_weight_dtypes(weight_dtype, scenario),
        kv_dtype=_kv_dtypes(kv_dtype, scenario),
        batch_size=_numbers(batch_size, "batch_size", scenario.batch_size),
        context_length=_numbers(context_length, "context_length", scenario.context_length),
    )
    rows = math.prod(len(values) for values in axes)
    if rows > MAX_ROWS:
        raise InputError(f"the sweep has {counted(rows, 'row')}; at most {MAX_ROWS:,} are allowed, so use fewer values")
    return axes


def _outer_values(axes: _Axes) -> Iterable[tuple[Any, ...]]:
    """(tensor_parallel, num_kv_heads, weight_dtype, kv_dtype) of each block."""
    return product(*axes[1:5])


def _inner_axes(axes: _Axes) -> tuple[Ints, Ints]:
    return np.array(axes.context_length, np.int64), np.array(axes.batch_size, np.int64)


def _swept(axes: _Axes, outer: tuple[Any, ...]) -> dict[str, Any]:
    """The values of a combination on the axes that have more than one."""
    several = [len(values) > 1 for values in axes[1:5]]
    named = zip(axes._fields[1:5], outer, several, strict=True)
    return {name: AS_PUBLISHED if value is None else value for name, value, swept in named if swept}


# ------------------------------------------------------------------------------------------------------- the axes


def _shorter_than_prefix(scenario: Scenario, axes: _Axes) -> list[int]:
    """Contexts that do not hold the scenario's shared prefix, which `plan` refuses."""
    return [tokens for tokens in axes.context_length if tokens < scenario.least_context_length]


def _short_reason(scenario: Scenario, tokens: int) -> str:
    held = counted(tokens + scenario.image_tokens, "token")
    return f"shared_prefix is {scenario.shared_prefix:,}; a sequence only holds {held}"


def _numbers(given: Iterable[int] | str | None, name: str, fixed: int, high: int = 2**40) -> list[int]:
    if given is None:
        return [fixed]
    values = parse_axis(given, name) if isinstance(given, str) else _listed(given, name)
    return [whole_number(value, name, high=high) for value in values]


def _listed(given: Iterable[object], name: str) -> list[object]:
    values = listed(given, name)
    if not values:
        raise InputError(f"{name} is an empty list; give at least one value")
    return values


def _gpus(given: Iterable[Gpu | str] | str | None, scenario: Scenario) -> list[Gpu]:
    if given is None:
        return [scenario.gpu]
    named = [load_gpu(item) if isinstance(item, str) else item for item in _names(given, "gpu")]
    for gpu in named:
        if not isinstance(gpu, Gpu):
            raise InputError(f"gpu is {quoted(gpu)}; a Gpu or a preset id is needed")
    return named  # type: ignore[return-value]


def _names(given: Iterable[object] | str, name: str) -> list[object]:
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
            f"{counted(tokens, 'token')} of {counted(batch, 'sequence')} would be {largest:,} B, more than a table can "
            "hold exactly"
        )


def _frame(axes: _Axes, blocks: Sequence[_Block | None]) -> pd.DataFrame:
    """The rows of all blocks but those that are refused (None), on the scenario's own GPU."""
    import pandas as pd

    tokens, batches = _inner_axes(axes)
    inner = len(batches) * len(tokens)
    size = len(blocks) * inner
    made = [block for block in blocks if block is not None]
    cache = np.concatenate([block.cache_bytes.ravel() for block in made])
    heads = pd.array([block.num_kv_heads for block in made], dtype="Int64")
    kept = None if len(made) == len(blocks) else np.repeat([block is not None for block in blocks], inner)
    columns = {
        "context_length": np.tile(tokens, len(made) * len(batches)),
        "batch_size": np.tile(np.repeat(batches, len(tokens)), len(made)),
        "kv_dtype": _some(_categories(axes, "kv_dtype", size), kept),
        "weight_dtype": _some(_categories(axes, "weight_dtype", size), kept),
        "num_kv_heads": heads.repeat(inner),
        "tensor_parallel": _some(_outer_column(axes, "tensor_parallel", axes.tensor_parallel, size), kept),
        "cache_bytes": cache,
        "weight_bytes": np.concatenate([block.weight_bytes.ravel() for block in made]),
        "overhead_bytes": np.concatenate([block.overhead_bytes.ravel() for block in made]),
    }
    return pd.DataFrame(columns, copy=False)


def _some(column: Any, kept: npt.NDArray[np.bool_] | None) -> Any:
    """The kept values of a column; None keeps all."""
    return column if kept is None else column[kept]


def _with_gpus(rows: pd.DataFrame, scenario: Scenario, axes: _Axes, named: bool) -> pd.DataFrame:
    """`rows` once for each GPU, with what only the GPU decides: the overhead it leaves unused, and its capacity."""
    import pandas as pd

    size, count = len(rows), len(axes.gpu)
    table = rows if count == 1 else rows.take(np.tile(np.arange(size), count)).reset_index(drop=True)
    first = usages(scenario)[0].constant_overhead
    more = [usages(scenario.with_changes(gpu=gpu))[0].constant_overhead - first for gpu in axes.gpu]
    table["overhead_bytes"] += np.repeat(np.array(more, np.int64), size)
    table["total_bytes"] = table["cache_bytes"] + table["weight_bytes"] + table["overhead_bytes"]
    table["capacity_bytes"] = np.repeat(np.array([gpu.usable_bytes for gpu in axes.gpu], np.int64), size)
    table["fits"] = table["total_bytes"] <= table["capacity_bytes"]
    if named:
        words = [gpu.id or gpu.name for gpu in axes.gpu]
        codes = np.repeat(np.arange(count), size)
        table.insert(0, "gpu", pd.Series(pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(words))))
    return table


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
