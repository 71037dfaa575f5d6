"""Scenario -> MemoryPlan: one answer, whose parts add up to the capacity exactly.

A plan is for one GPU, the one that holds the most. Everything in it is exact but the run-time overhead: where
the user gives none it is an estimate, which carries its source and its spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from kvplan.attention import CrossAttention, Tokens, first_true
from kvplan.dtypes import kv_dtype
from kvplan.errors import InputError, UnknownNameError, quoted
from kvplan.hardware import Gpu
from kvplan.model import MAX_GPUS, ROLES, Model, Placement, Shard, WeightGroup, weight_dtype_name
from kvplan.presets import largest_node, load_gpu, load_model, node_sizes, usual_node
from kvplan.units import GIB, MAX_COUNT, TIB, counted, counted_and, format_bytes, format_hundredths, whole_number

WHOLE_NUMBERS: dict[str, tuple[int, int]] = {
    "context_length": (1, MAX_COUNT),
    "batch_size": (1, MAX_COUNT),
    "tensor_parallel": (1, MAX_GPUS),
    "pipeline_parallel": (1, MAX_GPUS),
    "data_parallel": (1, MAX_GPUS),
    "overhead_bytes": (0, 16 * TIB),
    "image_tokens": (0, MAX_COUNT),
    "shared_prefix": (0, MAX_COUNT),
    "adapter_bytes": (0, 16 * TIB),
}
"""Settings that are whole numbers, with the least and the most accepted."""


@dataclass(frozen=True)
class Scenario:
    """What a plan is asked for. Model and GPU may be given as preset ids; everything is checked here.

    context_length    prompt and generated tokens of one sequence: a capacity, one column more than a finished
                      generation holds, since its last token is never consumed
    batch_size        sequences held at once, by all replicas together
    weight_dtype      a weight format, or None for the weights as published
    kv_dtype          a cache format; K and V apart as "q8_0/q4_0"
    num_kv_heads      another number of KV heads, or None for the model's own
    tensor_parallel, pipeline_parallel, data_parallel   GPUs are their product; replicas (data_parallel) share the
                      sequences evenly and hold everything but routed experts each
    expert_parallel   routed experts lie whole on the GPUs of all replicas, instead of each being cut over them
    memory_fraction   the part of the usable memory that the engine may take; the rest counts as overhead
    overhead_bytes    run-time overhead a GPU (activations, CUDA context, graphs); None: an estimate
    image_tokens      tokens of images that each sequence holds besides context_length
    shared_prefix     first tokens of every prompt that are the same and held once for the whole batch
    adapter_bytes     adapters (LoRA) resident on each GPU
    engine            the engine that will serve it, for its command and log lines; the bytes stay the resident ones
    draft_model       a draft for speculative decoding on the same GPUs: its weights and cache are overhead

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
    image_tokens: int = 0
    shared_prefix: int = 0
    adapter_bytes: int = 0
    draft_model: Model | None = None
    engine: str | None = None
    data_parallel: int = 1
    expert_parallel: bool = False

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
        if isinstance(values["draft_model"], str):
            values["draft_model"] = load_model(values["draft_model"])
        for name, value in values.items():
            self._set(name, value)
        self._check()

    def _check(self) -> None:
        self._require("model", Model)
        self._require("gpu", Gpu)
        for name, (low, high) in WHOLE_NUMBERS.items():
            if name != "overhead_bytes" or self.overhead_bytes is not None:
                self._set(name, whole_number(getattr(self, name), name, low, high))
        if self.shared_prefix > self.held_tokens:
            raise InputError(
                f"shared_prefix is {self.shared_prefix:,}; a sequence only holds {counted(self.held_tokens, 'token')}"
            )
        if self.engine is not None:
            from kvplan.engines import engine  # a third of kvplan's import time, and few plans name an engine

            engine(self.engine)
        self._set("kv_dtype", kv_dtype(self.kv_dtype).name)
        self._set("weight_dtype", weight_dtype_name(self.weight_dtype))
        _exact_fraction(self.memory_fraction)
        if not isinstance(self.expert_parallel, bool):
            raise InputError(f"expert_parallel is {quoted(self.expert_parallel)}; True or False is needed")
        self._check_draft()
        self.planned_model.shards(self.kv_dtype, self.weight_dtype, self.placement)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _require(self, name: str, wanted: type) -> None:
        if not isinstance(getattr(self, name), wanted):
            raise InputError(f"{name} is {quoted(getattr(self, name))}; a {wanted.__name__} or a preset id is needed")

    def _check_draft(self) -> None:
        if self.draft_model is None:
            return
        self._require("draft_model", Model)
        if self.pipeline_parallel > 1:
            raise InputError("draft_model with pipeline_parallel above 1 is not planned: engines place it differently")
        self.draft_model.shards(self.kv_dtype, None, self.placement)

    @property
    def least_context_length(self) -> int:
        """The shortest context that holds the shared prefix, of which image tokens may be a part."""
        return max(1, self.shared_prefix - self.image_tokens)

    @property
    def held_tokens(self) -> int:
        """Tokens that one sequence holds: its context and its images."""
        return self.context_length + self.image_tokens

    @cached_property
    def planned_model(self) -> Model:
        """The model with the scenario's number of KV heads."""
        return self.model if self.num_kv_heads is None else self.model.with_kv_heads(self.num_kv_heads)

    @property
    def placement(self) -> Placement:
        """How the model lies over the GPUs."""
        return Placement(self.tensor_parallel, self.pipeline_parallel, self.data_parallel, self.expert_parallel)

    @property
    def num_gpus(self) -> int:
        return self.placement.num_gpus

    @property
    def replica_batch_size(self) -> int:
        """Sequences of the replica that holds the most."""
        return -(-self.batch_size // self.data_parallel)

    def with_changes(self, **settings: Any) -> Scenario:
        """The same scenario with some settings changed, checked again."""
        return replace(self, **settings)


def require_scenario(value: object) -> None:
    """Raise InputError unless `value` is a Scenario."""
    if not isinstance(value, Scenario):
        raise InputError(f"the scenario is {quoted(value)}; a kvplan.Scenario is needed")


def _exact_fraction(value: object) -> Fraction:
    """memory_fraction as the decimal that was written: 0.9 is 9/10 and not the nearest binary number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return Fraction(str(value))
    raise InputError(f"memory_fraction is {quoted(value)}; give a number above 0 and up to 1, such as 0.9")


# ------------------------------------------------------------------------------------------------------- overhead


class OverheadPart(NamedTuple):
    """One part of the run-time overhead, in bytes on one GPU: 10th percentile, median and 90th percentile of logs.

    name      activation, non_torch or cuda_graphs
    label     the word on a page
    most      bytes in the log that has the most
    logs      how many gave the median, the 90th percentile and the most
    low_logs  how many of them gave the 10th percentile
    """

    name: str
    label: str
    low: int
    typical: int
    high: int
    most: int
    logs: int
    low_logs: int

    @property
    def origin(self) -> str:
        """Where the figures come from, without them."""
        return f"{self.logs} public vLLM start-up logs"

    def source_in(self, unit: str) -> str:
        """How many logs there are, and how far they spread, in "GiB" or "GB"."""
        low, typical, high, most = (
            format_hundredths(size, unit) for size in (self.low, self.typical, self.high, self.most)
        )
        return (
            f"{self.origin}: median {typical}, 90th percentile {high}, at most {most}; 10th percentile {low} of "
            f"{self.low_logs} of them"
        )


@dataclass(frozen=True, slots=True)
class RuntimeOverhead:
    """Bytes that an engine takes on a GPU besides weights and cache.

    low_bytes, typical_bytes, high_bytes  the parts together: at their 10th percentiles, medians (what the plan
                   counts) and 90th percentiles; all equal where the user gave the figure
    is_estimate    False where the user gave the figure
    parts          what they add up from; empty where the user gave one figure
    """

    low_bytes: int
    typical_bytes: int
    high_bytes: int
    is_estimate: bool
    parts: tuple[OverheadPart, ...] = ()

    @property
    def source(self) -> str:
        """Where the figures come from, sizes in powers of two."""
        return self.source_in("GiB")

    def source_in(self, unit: str) -> str:
        """Where the figures come from, sizes in powers of two ("GiB") or of ten ("GB")."""
        if not self.parts:
            return "given by the user"
        medians = ", ".join(f"{part.label} {format_hundredths(part.typical, unit)}" for part in self.parts)
        return f"medians of public vLLM start-up logs: {medians}"


def _hundredths(gib: float) -> int:
    return round(gib * 100) * GIB // 100


def _part(name: str, label: str, logs: tuple[int, int], *gib: float) -> OverheadPart:
    """From 10th percentile, median, 90th percentile and largest in GiB.

    logs  how many gave the last three, and how many the first
    """
    low, typical, high, most = map(_hundredths, gib)
    return OverheadPart(name, label, low, typical, high, most, *logs)


_ACTIVATION = _part("activation", "activations", (31, 15), 0.28, 1.49, 7.38, 14.63)
_ONE_CONTEXT = _part("non_torch", "CUDA context", (27, 11), 0.03, 0.13, 0.66, 10.96)
_MANY_CONTEXTS = _part("non_torch", "CUDA context and NCCL", (4, 1), 0.2, 0.55, 3.58, 3.58)
_GRAPHS = _part("cuda_graphs", "CUDA graphs", (45, 32), 0.11, 0.64, 1.73, 6.56)


def _together(*parts: OverheadPart) -> RuntimeOverhead:
    return RuntimeOverhead(
        sum(part.low for part in parts),
        sum(part.typical for part in parts),
        sum(part.high for part in parts),
        True,
        parts,
    )


ONE_GPU_OVERHEAD = _together(_ACTIVATION, _ONE_CONTEXT, _GRAPHS)
MANY_GPUS_OVERHEAD = _together(_ACTIVATION, _MANY_CONTEXTS, _GRAPHS)


def runtime_overhead(scenario: Scenario) -> RuntimeOverhead:
    """The scenario's own figure, or the estimate for its number of GPUs."""
    if scenario.overhead_bytes is not None:
        given = scenario.overhead_bytes
        return RuntimeOverhead(given, given, given, False)
    return estimated_overhead(scenario)


def estimated_overhead(scenario: Scenario) -> RuntimeOverhead:
    """The estimate for the scenario's number of GPUs, whatever figure it has."""
    return MANY_GPUS_OVERHEAD if scenario.num_gpus > 1 else ONE_GPU_OVERHEAD


def unused_bytes(scenario: Scenario) -> int:
    """Usable bytes that the engine is told to leave alone: the total less ceil(fraction * total)."""
    total = scenario.gpu.usable_bytes
    return total - math.ceil(_exact_fraction(scenario.memory_fraction) * total)


# ----------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class Usage:
    """The bytes of one GPU as functions of tokens and batch, which may be ints or int64 arrays.

    `plan` and `sweep` both count with this, so that a row of the one is an answer of the other. Replicas share a
    batch evenly, and the GPU is one of the replica that holds the most.
    """

    shard: Shard
    draft: Shard | None
    constant_overhead: int
    shared_prefix: int
    image_tokens: int
    replicas: int = 1

    def replica_batch(self, batch_size: Tokens) -> Tokens:
        """Sequences of the replica that holds the most."""
        return -(-batch_size // self.replicas)

    def cache_bytes(self, context_length: Tokens, batch_size: Tokens) -> Tokens:
        """Cache bytes of this GPU's part of `batch_size` sequences of `context_length` tokens and their images."""
        tokens, batch = context_length + self.image_tokens, self.replica_batch(batch_size)
        return self.shard.curve.batch_bytes(tokens, batch, self.shared_prefix)

    def overhead_bytes(self, context_length: Tokens, batch_size: Tokens) -> Tokens:
        """Unused memory, run-time overhead, adapters, and a draft model's weights and cache."""
        constant = context_length * batch_size * 0 + self.constant_overhead
        if self.draft is None:
            return constant
        batch = self.replica_batch(batch_size)
        return constant + self.draft.weight_bytes + self.draft.curve.batch_bytes(context_length, batch)

    def total_bytes(self, context_length: Tokens, batch_size: Tokens) -> Tokens:
        """Everything that the GPU must hold."""
        cache = self.cache_bytes(context_length, batch_size)
        return self.shard.weight_bytes + cache + self.overhead_bytes(context_length, batch_size)


def usages(scenario: Scenario) -> tuple[Usage, ...]:
    """One GPU of each pipeline stage of `scenario`."""
    placement = scenario.placement
    shards = scenario.planned_model.shards(scenario.kv_dtype, scenario.weight_dtype, placement)
    draft = None
    if scenario.draft_model is not None:
        draft = scenario.draft_model.shards(scenario.kv_dtype, None, placement)[0]
    constant = unused_bytes(scenario) + runtime_overhead(scenario).typical_bytes + scenario.adapter_bytes
    prefix, images = scenario.shared_prefix, scenario.image_tokens
    return tuple(Usage(shard, draft, constant, prefix, images, placement.data_parallel) for shard in shards)


@dataclass(frozen=True)
class MemoryPlan:
    """The answer for one GPU, the one that holds the most. weight + cache + overhead + free == capacity.

    capacity_bytes   what a program can use of one GPU
    weight_bytes, cache_bytes   of the pipeline stage that needs the most
    overhead_bytes   unused_bytes (left by memory_fraction) + runtime.typical_bytes + adapters + a draft model
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
    draft_bytes: int
    runtime: RuntimeOverhead
    stage: int
    stages: tuple[Usage, ...]

    @property
    def fits(self) -> bool:
        return self.free_bytes >= 0

    def free_bytes_with(self, overhead_bytes: int) -> int:
        """What would be free with another run-time overhead; negative by the shortfall."""
        return self.free_bytes + self.runtime.typical_bytes - overhead_bytes

    @property
    def total_bytes(self) -> int:
        """Everything but what is free."""
        return self.weight_bytes + self.cache_bytes + self.overhead_bytes

    @property
    def is_estimate(self) -> bool:
        """Whether any part is an estimate: the overhead, the GPU's usable total, the model or its draft."""
        scenario, draft = self.scenario, self.scenario.draft_model
        guessed = scenario.model.is_estimate or (draft is not None and draft.is_estimate)
        return guessed or self.runtime.is_estimate or scenario.gpu.is_estimate

    def fullest_stage(self, context_length: int) -> Usage:
        """The pipeline stage that holds the most with `context_length` tokens in each sequence of the plan's batch."""
        return max(self.stages, key=lambda usage: usage.total_bytes(context_length, self.scenario.batch_size))

    @property
    def bytes_per_token(self) -> int | Fraction:
        """Bytes that one more token of one sequence adds on this GPU, once all windows are full."""
        return self.stages[self.stage].shard.curve.bytes_per_token

    def fits_with(self, context_length: int, batch_size: int) -> bool:
        """Whether every stage holds `batch_size` sequences of `context_length` tokens."""
        return all(usage.total_bytes(context_length, batch_size) <= self.capacity_bytes for usage in self.stages)

    @cached_property
    def fits_empty(self) -> bool:
        """Whether the weights and the overhead alone fit."""
        return self.fits_with(0, 0)

    @cached_property
    def max_batch_size(self) -> int | None:
        """The most sequences of the plan's context that memory holds; None where memory sets no limit."""
        tokens = self.scenario.context_length
        beyond = first_true(lambda batch: not self.fits_with(tokens, batch), MAX_COUNT)
        return None if beyond is None else beyond - 1

    @cached_property
    def max_context_length(self) -> int | None:
        """The longest context at the plan's batch that memory holds; None where memory sets no limit.

        0 where not even the shortest fits: one token, or the shared prefix.
        """
        batch = self.scenario.batch_size
        beyond = first_true(lambda tokens: not self.fits_with(tokens, batch), MAX_COUNT)
        if beyond is None:
            return None
        return 0 if beyond <= self.scenario.least_context_length else beyond - 1

    @cached_property
    def crossover_context_length(self) -> int | None:
        """The smallest context at the plan's batch whose cache is at least the weights, or None.

        With pipeline stages, of all stages together. None is shorter than the shared prefix.
        """
        weights, batch = sum(usage.shard.weight_bytes for usage in self.stages), self.scenario.batch_size
        found = first_true(lambda tokens: sum(u.cache_bytes(tokens, batch) for u in self.stages) >= weights, MAX_COUNT)
        return None if found is None else max(found, self.scenario.least_context_length)

    @cached_property
    def decode_floor_seconds(self) -> float | None:
        """The least time that one decode step can take: bytes read over memory bandwidth, stage after stage.

        None where the bandwidth is not known. Above batch 1 the experts read are the typical number. A shared
        prefix may be read once for all, so it is counted once. A draft model is read at least once in a step: for
        each further token that it proposes it is read again. Routed experts serve the sequences of all replicas.
        """
        if self.scenario.gpu.bandwidth is None:
            return None
        return float((self.model_read_bytes + self.draft_read_bytes) / self.scenario.gpu.bandwidth)

    @property
    def model_read_bytes(self) -> Fraction:
        """Bytes of weights and cache that one decode step reads, of one GPU of each stage."""
        return sum((self._read_bytes(usage) for usage in self.stages), Fraction(0))

    @property
    def draft_read_bytes(self) -> Fraction:
        """Bytes of weights and cache that the draft model reads to propose one token for each sequence; 0 without."""
        here, draft = self.scenario, self.stages[0].draft
        if draft is None:
            return Fraction(0)
        cache = draft.curve.batch_read_bytes(here.context_length, here.replica_batch_size)
        return draft.weight_read_bytes(here.batch_size) + cache

    def _read_bytes(self, usage: Usage) -> Fraction:
        here = self.scenario
        return usage.shard.weight_read_bytes(here.batch_size) + usage.shard.curve.batch_read_bytes(
            here.held_tokens, here.replica_batch_size, here.shared_prefix
        )

    @property
    def sentence(self) -> str:
        """The answer in words, sizes in powers of two."""
        return self.sentence_in("GiB")

    def sentence_in(self, unit: str) -> str:
        """The answer in words, sizes in powers of two ("GiB") or of ten ("GB")."""
        size = format_bytes(abs(self.free_bytes), decimal=unit == "GB")
        return _fits_sentence(self, size) if self.fits else _short_sentence(self, size)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before trusting the answer."""
        return tuple(_warnings(self.scenario))


def plan(scenario: Scenario) -> MemoryPlan:
    """The memory plan of `scenario`. Limits, crossover and floor are searched for only when they are read.

    Raises InputError where it is given anything but a Scenario.
    """
    require_scenario(scenario)
    tokens, batch, stages = scenario.context_length, scenario.batch_size, usages(scenario)
    totals = [usage.total_bytes(tokens, batch) for usage in stages]
    stage = totals.index(max(totals))
    worst = stages[stage]
    overhead = worst.overhead_bytes(tokens, batch)
    return MemoryPlan(
        scenario=scenario,
        capacity_bytes=scenario.gpu.usable_bytes,
        weight_bytes=worst.shard.weight_bytes,
        cache_bytes=worst.cache_bytes(tokens, batch),
        overhead_bytes=overhead,
        free_bytes=scenario.gpu.usable_bytes - totals[stage],
        unused_bytes=unused_bytes(scenario),
        draft_bytes=overhead - worst.constant_overhead,
        runtime=runtime_overhead(scenario),
        stage=stage,
        stages=stages,
    )


# ---------------------------------------------------------------------------------------------------------- words


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _fits_sentence(p: MemoryPlan, free: str) -> str:
    each = " on each GPU" if p.scenario.num_gpus > 1 else ""
    tokens = _plural(p.scenario.context_length, "token")
    if p.max_batch_size is None:
        whole = p.scenario.shared_prefix >= p.scenario.held_tokens
        why = "every token is in the shared prefix" if whole else "this model keeps nothing per sequence"
        return f"Fits: {free} free{each}; {why}"
    room = _plural(p.max_batch_size, "sequence")
    return f"Fits: {free} free{each}, room for {room} of {tokens}"


def _short_sentence(p: MemoryPlan, missing: str) -> str:
    each = " on each GPU" if p.scenario.num_gpus > 1 else ""
    short = f"Does not fit: {missing} short{each}"
    if not p.fits_empty:
        return f"{short}; the weights and overhead alone exceed what the GPU can use"
    tokens = _plural(p.scenario.context_length, "token")
    if p.max_batch_size:
        return f"{short}; {_plural(p.max_batch_size, 'sequence')} of {tokens} would fit"
    batch, longest = _plural(p.scenario.batch_size, "sequence"), p.max_context_length
    if not longest:
        return f"{short}; {batch} would not fit even with {_least_words(p.scenario)}"
    return f"{short}; {batch} would fit up to {_plural(longest, 'token')} each"


def _least_words(scenario: Scenario) -> str:
    """The least that each sequence holds."""
    if scenario.shared_prefix == 0:
        return "one token each"
    return f"nothing but the shared prefix of {_plural(scenario.shared_prefix, 'token')}"


def _warnings(scenario: Scenario) -> list[str]:
    found = []
    limit = scenario.model.context_limit
    if limit is not None and scenario.held_tokens > limit:
        found.append(
            f"{counted_and(scenario.held_tokens, 'token', 'are')} beyond the {limit:,} that {scenario.model.name} is "
            "made for"
        )
    if scenario.image_tokens and (crossed := _crossed_tokens(scenario.model)):
        found.append(
            f"{scenario.model.name} always holds {counted(crossed, 'token')} of images, in cross-attention layers, and "
            f"they are counted: image_tokens {scenario.image_tokens:,} come on top, in the layers of text"
        )
    if scenario.model.is_estimate:
        found.append(f"{scenario.model.name} is itself an estimate, and so is every figure here; its notes say why")
    if scenario.gpu.is_estimate:
        found.append(f"The usable memory of {scenario.gpu.name} is an estimate: {_basis(scenario.gpu)}")
    if scenario.gpu.confidence == "low":
        found.append(f"The figures of {scenario.gpu.name} are poorly sourced")
    node = largest_node(scenario.gpu) if scenario.tensor_parallel > (scenario.gpu.node_gpus or 1) else None
    if node is not None and scenario.tensor_parallel > node:
        most = counted(node, "GPU")
        found.append(f"tensor_parallel {scenario.tensor_parallel} is more than the {most} of the largest node known")
    return found + _placement_warnings(scenario)


def _crossed_tokens(model: Model) -> int:
    """Image tokens that cross-attention layers hold, which stand beside the text and never in it."""
    return max(
        (layer.cache.num_tokens for layer, _ in model.layer_runs if isinstance(layer.cache, CrossAttention)), default=0
    )


def _basis(gpu: Gpu) -> str:
    """How the usable memory is known, after a sentence that has said that it is an estimate."""
    return gpu.usable_basis.removeprefix("estimate: ")


def node_sentence(scenario: Scenario) -> str:
    """How the GPUs of a plan lie on nodes of the usual size, or "" for one GPU and where no node is known."""
    gpus, node = scenario.num_gpus, usual_node(scenario.gpu)
    if gpus == 1 or node is None or node == 1:
        return ""
    if gpus < node:
        own = f"a node of {gpus:,}, or " if gpus in node_sizes(scenario.gpu) else ""
        return f"{counted(gpus, 'GPU')}: {own}a part of a node of {node:,}"
    if gpus == node:
        return f"{counted(gpus, 'GPU')}: one whole node"
    return (
        f"{counted(gpus, 'GPU')} on {counted(-(-gpus // node), 'node')} of {node:,}: they need a fast network between "
        "them"
    )


def _placement_warnings(scenario: Scenario) -> list[str]:
    model, placement, found = scenario.planned_model, scenario.placement, []
    if placement.expert_parallel and not model.has_experts:
        found.append(f"expert_parallel changes nothing: {model.name} has no routed experts")
    if placement.data_parallel > scenario.batch_size:
        found.append(
            f"{counted_and(scenario.batch_size, 'sequence', 'leave')} some of the "
            f"{counted(placement.data_parallel, 'replica')} idle"
        )
    return found + _uneven_warnings(model, placement)


VOCABULARY = frozenset({"embedding", "per_layer_embedding", "lm_head"})
"""Roles with a row for each token of the vocabulary: engines add rows until it divides (vLLM, SGLang: to 64)."""


def _uneven_warnings(model: Model, placement: Placement) -> list[str]:
    """The first matrix that does not divide over its GPUs, the vocabulary's apart: that one is no hindrance."""
    found: dict[bool, str] = {}
    for group, _ in model.all_groups:
        cut = placement.held(group, group.count)[1]
        divided = _divided(model, group)
        if divided is not None and divided % cut:
            is_padded = group.role in VOCABULARY
            then = "engines add a few rows until they do" if is_padded else "most engines refuse to start"
            found.setdefault(
                is_padded,
                f"{divided:,} {group.split} of {ROLES[group.role].label} do not divide by {counted(cut, 'GPU')}: the "
                f"largest part is counted, and {then}",
            )
    return [found[is_padded] for is_padded in sorted(found)]


def _divided(model: Model, group: WeightGroup) -> int | None:
    """The rows or columns that GPUs divide. A vocabulary is one matrix to an engine, of however many groups."""
    if group.split == "rows" and group.role in VOCABULARY:
        return sum(g.rows for g, _ in model.all_groups if (g.role, g.split) == (group.role, group.split))
    return {"rows": group.rows, "columns": group.columns}.get(group.split)
