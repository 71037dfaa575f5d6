"""What a server sets aside for the requests of a plan, and what it makes of the memory that it finds.

Reserved bytes are the engine's: blocks that admit a request, cells that are allocated at the start, or tensors with
the copy that they need to grow. They are another number than the resident bytes of a plan, and never mixed with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.engines.budget import PoolBudget
from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.launch import Launch, budget_of, capacity_of, llamacpp_types
from kvplan.engines.overheads import Overhead
from kvplan.engines.registry import engine_capacity

HAS_POOL = frozenset({"vllm", "sglang", "tensorrt-llm"})
"""Engines that take a pool at their start and divide it into blocks; the others take what requests need."""

HAS_SLOTS = frozenset({"llama.cpp", "ollama", "ik_llama.cpp"})
"""Engines that allocate the cells of every request before the first one comes."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A server's memory for requests.

    bytes     set aside for all requests of the launch: on one GPU where there is a pool, else on all GPUs together
    low, typical, high   what the engine makes of the pool with high, typical and low overheads
    budget    how the pool comes about; None where there is no pool, and the three are then equal
    """

    bytes: int
    low: EngineCapacity
    typical: EngineCapacity
    high: EngineCapacity
    budget: PoolBudget | None


def reserved_of(launch: Launch, room_bytes: int) -> Reserved:
    """What the server of `launch` sets aside.

    room_bytes  memory of all GPUs that weights and overhead leave; only an engine without a pool of its own asks

    Raises InputError, UnknownNameError, DtypeError or ParallelError.
    """
    if launch.engine in HAS_POOL:
        return _paged(launch)
    return (_slots if launch.engine in HAS_SLOTS else _tensors)(launch, max(0, room_bytes))


def _paged(launch: Launch) -> Reserved:
    budget = budget_of(launch)
    low, typical, high = (
        capacity_of(launch, pool) for pool in (budget.low_bytes, budget.pool_bytes, budget.high_bytes)
    )
    return Reserved(typical.needed_bytes * launch.batch_size, low, typical, high, budget)


def _slots(launch: Launch, room_bytes: int) -> Reserved:
    type_k, type_v = llamacpp_types(launch)
    found = engine_capacity(
        launch.model,
        pool_bytes=room_bytes,
        engine=launch.engine,
        max_model_len=launch.context_length,
        type_k=type_k,
        type_v=type_v,
        slots=launch.batch_size,
    )
    return Reserved(found.needed_bytes, found, found, found, None)


def _tensors(launch: Launch, room_bytes: int) -> Reserved:
    found = capacity_of(launch, room_bytes)
    return Reserved(found.needed_bytes * launch.batch_size, found, found, found, None)


def overhead_parts(launch: Launch) -> tuple[Overhead, ...]:
    """Everything besides weights and cache: the parts that are known, and estimates of those that are not.

    Of an engine without a pool there are no estimates, only what is known.
    """
    if launch.engine not in HAS_POOL:
        return launch.known
    budget = budget_of(launch)
    return (*budget.overheads, *budget.outside)


def typical_total(parts: Iterable[Overhead]) -> int:
    """One figure for a plan's `overhead_bytes`."""
    return sum(part.typical for part in parts)
