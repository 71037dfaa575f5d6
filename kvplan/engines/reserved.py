"""What a server sets aside for the requests of a plan, and what it makes of the memory that it finds.

Reserved bytes are the engine's: blocks that admit a request, cells that are allocated at the start, or tensors with
the copy that they need to grow. They are another number than the resident bytes of a plan, and never mixed with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvplan.engines.budget import PoolBudget
from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.launch import Launch, budget_of, capacity_of, llamacpp_cache, require_supported
from kvplan.engines.offload import slots_budget
from kvplan.engines.overheads import Overhead
from kvplan.engines.registry import ENGINES, engine
from kvplan.model import ONE_GPU

HAS_POOL = frozenset(name for name, item in ENGINES.items() if item.memory == "pool")
"""Engines that take a pool at their start and divide it into blocks."""

HAS_SLOTS = frozenset(name for name, item in ENGINES.items() if item.memory == "slots")
"""Engines that allocate the cells of every request before the first one comes; whole layers lie on each GPU."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A server's memory for requests.

    bytes     set aside for all requests of a replica: on one GPU, or with slots on all GPUs together
    low, typical, high   what the engine makes of the memory with high, typical and low overheads
    budget    how that memory comes about; None where the engine takes what requests need (the three are then equal)
    """

    bytes: int
    low: EngineCapacity
    typical: EngineCapacity
    high: EngineCapacity
    budget: PoolBudget | None


def reserved_of(launch: Launch, room_bytes: int) -> Reserved:
    """What the server of `launch` sets aside.

    room_bytes  what weights and overhead leave on one GPU; only an engine that takes what requests need asks

    Raises InputError where the engine cannot serve so, UnknownNameError, DtypeError or ParallelError.
    """
    require_supported(launch)
    if engine(launch.engine).memory == "tensors":
        found = capacity_of(launch, max(0, room_bytes))
        return Reserved(found.needed_bytes * launch.replica_requests, found, found, found, None)
    return (_slots if launch.engine in HAS_SLOTS else _paged)(launch)


def holds_all(launch: Launch, room_bytes: int) -> bool:
    """Whether every request of `launch` is held at once, with typical overheads: `reserved_of` without its searches.

    Raises as `reserved_of` does.
    """
    require_supported(launch)
    if launch.engine in HAS_SLOTS:
        return llamacpp_cache(launch)[0].total_bytes <= slots_budget(launch).pool_bytes
    if engine(launch.engine).memory == "tensors":
        return launch.replica_requests * capacity_of(launch, 0).needed_bytes <= room_bytes
    budget = budget_of(launch)
    found = capacity_of(launch, budget.pool_bytes)
    return not budget.shortfall_bytes and found.max_concurrency >= launch.replica_requests


def _paged(launch: Launch) -> Reserved:
    budget = budget_of(launch)
    low, typical, high = _three(launch, budget)
    return Reserved(typical.needed_bytes * launch.replica_requests, low, typical, high, budget)


def _slots(launch: Launch) -> Reserved:
    """A block is the whole context of every slot."""
    budget = slots_budget(launch)
    low, typical, high = _three(replace(launch, placement=ONE_GPU), budget)
    return Reserved(typical.needed_bytes, low, typical, high, budget)


def _three(launch: Launch, budget: PoolBudget) -> tuple[EngineCapacity, ...]:
    return tuple(capacity_of(launch, pool) for pool in (budget.low_bytes, budget.pool_bytes, budget.high_bytes))


def overhead_parts(launch: Launch) -> tuple[Overhead, ...]:
    """Everything besides weights and cache on one GPU: the parts that are known, and estimates of those that are not.

    Of an engine that takes what requests need there are no estimates, only what is known.
    """
    if engine(launch.engine).memory == "tensors":
        return launch.known
    alone = replace(launch, placement=ONE_GPU)
    budget = slots_budget(alone) if launch.engine in HAS_SLOTS else budget_of(launch)
    return (*budget.overheads, *budget.outside)


def typical_total(parts: Iterable[Overhead]) -> int:
    """One figure for a plan's `overhead_bytes`."""
    return sum(part.typical for part in parts)
