"""Scenario -> MemoryPlan: one answer, whose parts add up to the capacity exactly.

A plan is for one GPU, the one that holds the most. Everything in it is exact but the run-time overhead: where
the user gives none it is an estimate, which carries its source and its spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from kvplan.attention import CacheCurve
from kvplan.dtypes import kv_dtype
from kvplan.errors import InputError, UnknownNameError, shorten
from kvplan.hardware import Gpu
from kvplan.model import MAX_GPUS, Model, Shard, as_weight_format
from kvplan.presets import load_gpu, load_model
from kvplan.units import GIB, MAX_COUNT, TIB, format_bytes, whole_number

ENGINES: tuple[str, ...] = ()
"""Engines whose own reservation can be planned; None plans the resident bytes."""


@dataclass(frozen=True)
class Scenario:
    """What a plan is asked for. Model and GPU may be given as preset ids; everything is checked here.

    context_length    prompt and generated tokens of one sequence: a capacity, one column more than a finished
                      generation holds, since its last token is never consumed
    batch_size        sequences held at once
    weight_dtype      a weight format, or None for the weights as published
    kv_dtype          a cache format; K and V apart as "q8_0/q4_0"
    num_kv_heads      another number of KV heads, or None for the model's own
    tensor_parallel, pipeline_parallel   GPUs are their product
    memory_fraction   the part of the usable memory that the engine may take; the rest counts as overhead
    overhead_bytes    run-time overhead a GPU (activations, CUDA context, graphs); None: an estimate

    Raises InputError, UnknownNameError, DtypeError or ParallelError.
    """

    model: Model
    gpu: Gpu
    context_length: int = 8192
    batch_size: int = 8
    weight_dtype: str | None = None
    kv_dtype: str = "bf16"
    num_kv_heads: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    memory_fraction: float = 0.9
    overhead_bytes: int | None = None
    engine: str | None = None

    def __init__(self, model: Model | str, gpu: Gpu | str, **settings: Any) -> None:
        known = {item.name: item.default for item in fields(self)[2:]}
        for name in settings:
            if name not in known:
                raise UnknownNameError("scenario setting", name, known)
        values = {
            "model": load_model(model) if isinstance(model, str) else model,
            "gpu": load_gpu(gpu) if isinstance(gpu, str) else gpu,
            **known,
            **settings,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        for name, wanted in (("model", Model), ("gpu", Gpu)):
            if not isinstance(getattr(self, name), wanted):
                raise InputError(
                    f"{name} is {shorten(repr(getattr(self, name)))}; a {wanted.__name__} or a preset id is needed"
                )
        for name in ("context_length", "batch_size"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name))
        for name in ("tensor_parallel", "pipeline_parallel"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, high=MAX_GPUS))
        if self.overhead_bytes is not None:
            whole_number(self.overhead_bytes, "overhead_bytes", low=0, high=16 * TIB)
        if self.engine is not None and self.engine not in ENGINES:
            raise UnknownNameError("engine", str(self.engine), ENGINES)
        object.__setattr__(self, "kv_dtype", kv_dtype(self.kv_dtype).name)
        _exact_fraction(self.memory_fraction)
        as_weight_format(self.weight_dtype)
        self.planned_model.require_parallel(self.tensor_parallel, self.pipeline_parallel)

    @cached_property
    def planned_model(self) -> Model:
        """The model with the scenario's number of KV heads."""
        return self.model if self.num_kv_heads is None else self.model.with_kv_heads(self.num_kv_heads)

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    def with_changes(self, **settings: Any) -> Scenario:
        """The same scenario with some settings changed, checked again."""
        return replace(self, **settings)


def _exact_fraction(value: object) -> Fraction:
    """memory_fraction as the decimal that was written: 0.9 is 9/10 and not the nearest binary number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return Fraction(str(value))
    raise InputError(f"memory_fraction is {shorten(repr(value))}; give a number above 0 and up to 1, such as 0.9")


# ------------------------------------------------------------------------------------------------------- overhead


@dataclass(frozen=True, slots=True)
class RuntimeOverhead:
    """Bytes that an engine takes on a GPU besides weights and cache.

    typical_bytes  what the plan counts
    high_bytes     the 90th percentile; equal to typical_bytes where the user gave the figure
    is_estimate    False where the user gave the figure
    source         where the figures come from
    """

    typical_bytes: int
    high_bytes: int
    is_estimate: bool
    source: str


def _gib_hundredths(hundredths: int) -> int:
    return hundredths * GIB // 100


ONE_GPU_OVERHEAD = RuntimeOverhead(
    _gib_hundredths(149 + 13 + 64),
    _gib_hundredths(738 + 66 + 173),
    True,
    "medians of public vLLM start-up logs: activations 1.49 GiB (31 logs), CUDA context 0.13 GiB (27), "
    "CUDA graphs 0.64 GiB (45); 90th percentiles 7.38, 0.66 and 1.73 GiB",
)
MANY_GPUS_OVERHEAD = RuntimeOverhead(
    _gib_hundredths(149 + 55 + 64),
    _gib_hundredths(738 + 358 + 173),
    True,
    "medians of public vLLM start-up logs: activations 1.49 GiB (31 logs), CUDA context and NCCL 0.55 GiB (4), "
    "CUDA graphs 0.64 GiB (45); 90th percentiles 7.38, 3.58 and 1.73 GiB",
)


def runtime_overhead(scenario: Scenario) -> RuntimeOverhead:
    """The scenario's own figure, or the estimate for its number of GPUs."""
    if scenario.overhead_bytes is not None:
        given = scenario.overhead_bytes
        return RuntimeOverhead(given, given, False, "given by the user")
    return MANY_GPUS_OVERHEAD if scenario.tensor_parallel > 1 else ONE_GPU_OVERHEAD


def unused_bytes(scenario: Scenario) -> int:
    """Usable bytes that the engine is told to leave alone: the total less ceil(fraction * total)."""
    total = scenario.gpu.usable_bytes
    return total - math.ceil(_exact_fraction(scenario.memory_fraction) * total)


# ----------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class MemoryPlan:
    """The answer for one GPU, the one that holds the most. weight + cache + overhead + free == capacity.

    capacity_bytes   what a program can use of one GPU
    weight_bytes, cache_bytes   of the pipeline stage that needs the most
    overhead_bytes   unused_bytes (left by memory_fraction) + runtime.typical_bytes
    free_bytes       what is left; negative by the shortfall
    stage            which pipeline stage that is, from 0
    """

    scenario: Scenario
    capacity_bytes: int
    weight_bytes: int
    cache_bytes: int
    overhead_bytes: int
    free_bytes: int
    unused_bytes: int
    runtime: RuntimeOverhead
    stage: int

    @property
    def fits(self) -> bool:
        return self.free_bytes >= 0

    @property
    def total_bytes(self) -> int:
        """Everything but what is free."""
        return self.weight_bytes + self.cache_bytes + self.overhead_bytes

    @property
    def is_estimate(self) -> bool:
        """Whether any part is an estimate: the overhead, the GPU's usable total, or the model."""
        return self.runtime.is_estimate or self.scenario.gpu.is_estimate or self.scenario.model.is_estimate

    @property
    def shards(self) -> tuple[Shard, ...]:
        return scenario_shards(self.scenario)

    @property
    def bytes_per_token(self) -> int | Fraction:
        """Bytes that one more token of one sequence adds on this GPU, once all windows are full."""
        return self.shards[self.stage].curve.bytes_per_token

    def cache_budget(self, shard: Shard) -> int:
        """Bytes that the cache may take beside the weights of `shard`; negative where they alone do not fit."""
        return self.capacity_bytes - self.overhead_bytes - shard.weight_bytes

    @cached_property
    def max_batch_size(self) -> int | None:
        """The most sequences of the plan's context that memory holds; None where memory sets no limit."""
        limits = [self._batch_limit(shard) for shard in self.shards]
        return min((limit for limit in limits if limit is not None), default=None)

    def _batch_limit(self, shard: Shard) -> int | None:
        budget = self.cache_budget(shard)
        each = shard.curve.bytes_at(self.scenario.context_length)
        if budget < 0:
            return 0
        return budget // each if each else None

    @cached_property
    def max_context_length(self) -> int | None:
        """The longest context at the plan's batch that memory holds; None where memory sets no limit."""
        limits = [self._context_limit(shard) for shard in self.shards]
        return min((limit for limit in limits if limit is not None), default=None)

    def _context_limit(self, shard: Shard) -> int | None:
        budget = self.cache_budget(shard)
        if budget < 0:
            return 0
        return shard.curve.max_context_length(budget // self.scenario.batch_size, MAX_COUNT)

    @cached_property
    def crossover_context_length(self) -> int | None:
        """The smallest context at the plan's batch whose cache is at least the weights, or None.

        With pipeline stages, of all stages together.
        """
        weights = sum(shard.weight_bytes for shard in self.shards)
        each = -(-weights // self.scenario.batch_size)
        return _joined(self.shards).min_context_length(each, MAX_COUNT)

    @cached_property
    def decode_floor_seconds(self) -> float | None:
        """The least time that one decode step can take: bytes read over memory bandwidth, stage after stage.

        None where the bandwidth is not known. Above batch 1 the experts read are the typical number.
        """
        if self.scenario.gpu.bandwidth is None:
            return None
        context, batch = self.scenario.context_length, self.scenario.batch_size
        read = sum((shard.read_bytes(context, batch) for shard in self.shards), Fraction(0))
        return float(read / self.scenario.gpu.bandwidth)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return _fits_sentence(self) if self.fits else _short_sentence(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before trusting the answer."""
        return tuple(_warnings(self.scenario))


def plan(scenario: Scenario) -> MemoryPlan:
    """The memory plan of `scenario`. Limits, crossover and floor are searched for only when they are read."""
    shards = scenario_shards(scenario)
    used = [(s.weight_bytes, s.curve.bytes_at(scenario.context_length) * scenario.batch_size) for s in shards]
    stage = max(range(len(used)), key=lambda index: sum(used[index]))
    weights, cache = used[stage]
    unused, runtime = unused_bytes(scenario), runtime_overhead(scenario)
    overhead = unused + runtime.typical_bytes
    capacity = scenario.gpu.usable_bytes
    return MemoryPlan(
        scenario=scenario,
        capacity_bytes=capacity,
        weight_bytes=weights,
        cache_bytes=cache,
        overhead_bytes=overhead,
        free_bytes=capacity - weights - cache - overhead,
        unused_bytes=unused,
        runtime=runtime,
        stage=stage,
    )


def scenario_shards(scenario: Scenario) -> tuple[Shard, ...]:
    """One GPU of each pipeline stage of `scenario`."""
    return scenario.planned_model.shards(
        scenario.kv_dtype, scenario.weight_dtype, scenario.tensor_parallel, scenario.pipeline_parallel
    )


def _joined(shards: tuple[Shard, ...]) -> CacheCurve:
    return CacheCurve(
        sum(shard.curve.fixed_bytes for shard in shards), tuple(term for shard in shards for term in shard.curve.terms)
    )


# ---------------------------------------------------------------------------------------------------------- words


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _fits_sentence(p: MemoryPlan) -> str:
    each = " on each GPU" if p.scenario.num_gpus > 1 else ""
    tokens = _plural(p.scenario.context_length, "token")
    if p.max_batch_size is None:
        return f"Fits: {format_bytes(p.free_bytes)} free{each}; this model keeps nothing per sequence"
    room = _plural(p.max_batch_size, "sequence")
    return f"Fits: {format_bytes(p.free_bytes)} free{each}, room for {room} of {tokens}"


def _short_sentence(p: MemoryPlan) -> str:
    each = " on each GPU" if p.scenario.num_gpus > 1 else ""
    short = f"Does not fit: {format_bytes(-p.free_bytes)} short{each}"
    if any(p.cache_budget(shard) < 0 for shard in p.shards):
        return f"{short}; the weights and overhead alone exceed what the GPU can use"
    tokens = _plural(p.scenario.context_length, "token")
    if p.max_batch_size:
        return f"{short}; {_plural(p.max_batch_size, 'sequence')} of {tokens} would fit"
    batch = _plural(p.scenario.batch_size, "sequence")
    return f"{short}; {batch} fit up to {_plural(p.max_context_length or 0, 'token')} each"


def _warnings(scenario: Scenario) -> list[str]:
    found = []
    limit = scenario.model.context_limit
    if limit is not None and scenario.context_length > limit:
        found.append(
            f"{scenario.context_length:,} tokens are beyond the {limit:,} that {scenario.model.name} is made for"
        )
    if scenario.gpu.is_estimate:
        found.append(f"The usable memory of {scenario.gpu.name} is an estimate: {scenario.gpu.usable_basis}")
    if scenario.gpu.confidence == "low":
        found.append(f"The figures of {scenario.gpu.name} are poorly sourced")
    node = scenario.gpu.node_gpus
    if node is not None and scenario.tensor_parallel > node:
        found.append(f"tensor_parallel {scenario.tensor_parallel} is more than the {node} GPUs of a usual node")
    return found
