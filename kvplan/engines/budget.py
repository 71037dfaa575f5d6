"""How large an engine's pool will be, from the GPU, the model and the flags alone: an estimate with a spread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from kvplan.engines import sglang, tensorrt_llm, vllm
from kvplan.engines.capacity import auto_kv_dtype, parse_version
from kvplan.engines.overheads import COUNTS_GRAPHS, Overhead, activation_peak, cuda_graphs, non_torch, peak_rule
from kvplan.errors import InputError, UnknownNameError, quoted
from kvplan.hardware import Gpu
from kvplan.model import ONE_GPU, Model, Placement
from kvplan.units import GIB, whole_number


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """Bytes of one GPU, as an engine divides them.

    visible_bytes    what a program can use
    requested_bytes  what the engine may take
    weight_bytes     weights on this GPU, those of adapters and of a draft model too
    overheads        what else comes out of the requested bytes
    outside          what comes out of the rest (CUDA graphs of older vLLM), for information
    low_bytes, pool_bytes, high_bytes   the pool with high, typical and low overheads; 0 where nothing is left
    """

    visible_bytes: int
    requested_bytes: int
    weight_bytes: int
    overheads: tuple[Overhead, ...]
    outside: tuple[Overhead, ...]
    low_bytes: int
    pool_bytes: int
    high_bytes: int

    @property
    def shortfall_bytes(self) -> int:
        """Bytes that weights and typical overheads exceed the requested ones by, else 0."""
        return max(0, self.weight_bytes + sum(part.typical for part in self.overheads) - self.requested_bytes)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the start-up command says about memory. None stands for the engine's own default.

    memory_fraction         vLLM's gpu_memory_utilization, SGLang's mem_fraction_static, TensorRT-LLM's
                            free_gpu_memory_fraction
    max_num_batched_tokens  tokens of a batch (SGLang: chunked_prefill_size)
    max_num_seqs            sequences of a batch, of one replica
    placement               how the model lies over the GPUs
    eager                   no CUDA graphs
    extra_weight_bytes      adapters and a draft model on each GPU
    """

    engine: str = "vllm"
    engine_version: str | None = None
    memory_fraction: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    placement: Placement = ONE_GPU
    weight_dtype: str | None = None
    eager: bool = False
    extra_weight_bytes: int = 0


def pool_budget(model: Model, gpu: Gpu, flags: Flags, known: Iterable[Overhead] = ()) -> PoolBudget:
    """The pool that the engine will find on the GPU that holds the most weights.

    known  overheads from a log; each replaces the estimate of its name, and "other" replaces all of them

    Raises InputError, UnknownNameError, DtypeError or ParallelError.
    """
    if flags.engine not in _REQUESTED:
        raise UnknownNameError("engine with a budget", str(flags.engine), _REQUESTED)
    shards = model.shards(auto_kv_dtype(model, "auto"), flags.weight_dtype, flags.placement)
    weights = max(shard.weight_bytes for shard in shards) + flags.extra_weight_bytes
    replaced = {part.name: part for part in known}
    inside, outside = _overheads(model, gpu, flags)
    everything = replaced.get("other")
    parts = (everything,) if everything else tuple(replaced.get(part.name, part) for part in inside)
    taken = weights + sum(part.typical for part in parts)
    requested = _REQUESTED[flags.engine](gpu, flags, _joined_gpus(model, flags.placement), taken)
    return PoolBudget(
        visible_bytes=gpu.usable_bytes,
        requested_bytes=requested,
        weight_bytes=weights,
        overheads=parts,
        outside=tuple(replaced.get(part.name, part) for part in outside),
        low_bytes=max(0, requested - weights - sum(part.high for part in parts)),
        pool_bytes=max(0, requested - weights - sum(part.typical for part in parts)),
        high_bytes=max(0, requested - weights - sum(part.low for part in parts)),
    )


def _overheads(model: Model, gpu: Gpu, flags: Flags) -> tuple[tuple[Overhead, ...], tuple[Overhead, ...]]:
    """(inside, outside) the requested bytes."""
    version = parse_version(flags.engine_version, vllm.NEWEST)
    batched = _given(flags.max_num_batched_tokens, "max_num_batched_tokens", vllm.default_batched_tokens(gpu))
    seqs = _given(flags.max_num_seqs, "max_num_seqs", default_max_num_seqs(gpu))
    graphs, context = cuda_graphs(eager=flags.eager), non_torch(_joined_gpus(model, flags.placement))
    rule = peak_rule(version if flags.engine == "vllm" else vllm.NEWEST)
    peak = activation_peak(model, batched, seqs, flags.placement.tensor_parallel, rule)
    if flags.engine == "sglang":  # its fraction covers weights and pool only; the rest lives outside
        return (context,), (graphs, peak)
    if flags.engine == "vllm" and version < COUNTS_GRAPHS:
        return (peak, context), (graphs,)
    return (peak, context, graphs), ()


def _joined_gpus(model: Model, placement: Placement) -> int:
    """GPUs that talk to each other: those of one replica, and of all of them where they share routed experts."""
    return placement.num_gpus // (1 if model.has_experts else placement.data_parallel)


def _given(value: int | None, name: str, default: int) -> int:
    return default if value is None else whole_number(value, name)


def default_max_num_seqs(gpu: Gpu) -> int:
    """`--max-num-seqs` of a vLLM server that does not set it, by the GPU's memory."""
    return 1024 if gpu.usable_bytes >= 70 * GIB and "a100" not in gpu.name.lower() else 256


def memory_fraction(flags: Flags, default: Fraction) -> Fraction:
    """The fraction as the decimal that was written. Raises InputError."""
    value = flags.memory_fraction
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"memory_fraction is {quoted(value)}; give a number above 0 and up to 1, such as 0.9")
    return Fraction(str(value))


def _vllm_requested(gpu: Gpu, flags: Flags, _joined: int, _taken: int) -> int:
    newest = parse_version(flags.engine_version, vllm.NEWEST) >= (0, 33)
    return math.ceil(memory_fraction(flags, Fraction(92 if newest else 90, 100)) * gpu.usable_bytes)


def _sglang_requested(gpu: Gpu, flags: Flags, joined: int, _taken: int) -> int:
    default = sglang.default_memory_fraction(gpu, joined, flags.max_num_batched_tokens)
    return int(memory_fraction(flags, default) * gpu.usable_bytes)


def _tensorrt_requested(gpu: Gpu, flags: Flags, _joined: int, taken: int) -> int:
    """A fraction of what is left, so the requested bytes follow from what is taken."""
    fraction = memory_fraction(flags, tensorrt_llm.FREE_FRACTION)
    return taken + int(max(0, gpu.usable_bytes - taken) * fraction)


_REQUESTED = {"vllm": _vllm_requested, "sglang": _sglang_requested, "tensorrt-llm": _tensorrt_requested}
