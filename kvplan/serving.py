"""The server of a scenario: does it hold what is asked, by what the engine reserves, and what would make it.

A plan counts resident bytes. Whether a server admits all requests at once is another question: blocks, groups and
cells take more, and the pool is what the engine's own overheads leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from kvplan.engines import ENGINES
from kvplan.engines.launch import Launch
from kvplan.engines.offload import offload_sentence
from kvplan.engines.overheads import Overhead
from kvplan.engines.reserved import HAS_POOL, HAS_SLOTS, Reserved, holds_all, reserved_of
from kvplan.engines.support import cache_dtypes
from kvplan.errors import KvplanError
from kvplan.plan import Scenario, plan
from kvplan.presets import largest_node, list_gpus, load_gpu, readable
from kvplan.suggest import has_kernels, launch_of, weight_choices
from kvplan.units import counted, format_bytes, require_kind

MOST_TIMES = 64
"""A context or a batch is not suggested to shrink by more: such a server is of no use."""

MOST_PERCENT = 97
"""A larger memory_fraction leaves nothing for whatever the engine does not count."""


@dataclass(frozen=True)
class Serving:
    """A scenario on an engine.

    launch      the server
    room_bytes  what weights and overhead leave on one GPU, by the plan, without a memory fraction
    fits        whether the engine holds every request of the plan at once, with typical overheads
    """

    scenario: Scenario
    launch: Launch
    room_bytes: int
    fits: bool

    @cached_property
    def reserved(self) -> Reserved:
        """What it sets aside, and what it makes of its memory."""
        return reserved_of(self.launch, self.room_bytes)

    @property
    def sentence(self) -> str:
        """What the engine has room for, in words, sizes in powers of two."""
        return self.sentence_in("GiB")

    def sentence_in(self, unit: str) -> str:
        """What the engine has room for, in words, sizes in powers of two ("GiB") or of ten ("GB")."""
        label, found = ENGINES[self.launch.engine].label, self.reserved.typical
        tokens = counted(self.launch.context_length, "token")
        if self.launch.engine in HAS_SLOTS:
            sizes = [format_bytes(size, decimal=unit == "GB") for size in (self.reserved.bytes, found.pool_bytes)]
            return f"{label} takes {sizes[0]} of {sizes[1]} for {counted(self.launch.batch_size, 'slot')} of {tokens}"
        return f"{label} has room for {found.total_concurrency:,.2f} requests of {tokens}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the plan the engine's count does not hold."""
        found = []
        if self.launch.engine not in HAS_POOL:
            found.append("this engine has no memory fraction: all that a program can use is counted")
        if self.scenario.shared_prefix:
            found.append("the shared prefix is reserved for every request; prefix caching may share it later")
        if self.scenario.draft_model is not None:
            found.append("the weights of the draft model are counted, the engine's reservation for its cache is not")
        return tuple(found)

    @property
    def offload(self) -> str:
        """How much of the model lies on the GPU where not all does, for an engine that can share it with the CPU."""
        return offload_sentence(self.launch) if self.launch.engine in HAS_SLOTS and not self.fits else ""


def serve(
    scenario: Scenario, engine: str, engine_version: str | None = None, known: tuple[Overhead, ...] = ()
) -> Serving:
    """The scenario on an engine.

    known  overheads from a log

    Raises InputError where the engine cannot serve so, UnknownNameError, DtypeError or ParallelError.
    """
    here = plan(scenario)
    launch = launch_of(scenario, engine, engine_version, known)
    room = here.capacity_bytes - here.weight_bytes - here.overhead_bytes + here.unused_bytes
    return Serving(scenario, launch, room, holds_all(launch, room))


# ---------------------------------------------------------------------------------------------------- suggestions


@dataclass(frozen=True, slots=True)
class ServerSuggestion:
    """One lever and the smallest change of it with which the engine holds every request at once.

    lever    kv_dtype, context_length, batch_size, tensor_parallel (or pipeline_parallel), weight_dtype, gpu or
             memory_fraction
    change   what to do, for a person
    serving  the changed scenario on the engine
    """

    lever: str
    change: str
    serving: Serving

    @property
    def sentence(self) -> str:
        """What to do, and what the engine then holds, sizes in powers of two."""
        return self.sentence_in("GiB")

    def sentence_in(self, unit: str) -> str:
        """What to do, and what the engine then holds, sizes in powers of two ("GiB") or of ten ("GB")."""
        return f"{self.change}: {self.serving.sentence_in(unit)}"


class _Search:
    """Tries changes of one scenario on one engine."""

    def __init__(self, now: Serving) -> None:
        self.scenario, self.launch = now.scenario, now.launch
        self.engine = now.launch.engine

    def serving(self, **changes: Any) -> Serving | None:
        """The changed scenario on the engine; None where there is no such thing."""
        try:
            changed = self.scenario.with_changes(**changes)
            return serve(changed, self.engine, self.launch.engine_version, self.launch.known)
        except KvplanError:  # the model or the engine cannot be asked for this; another change may do
            return None

    def first(self, lever: str, values: Iterable[Any], words: Callable[[Scenario], str]) -> ServerSuggestion | None:
        """The first value that fits; they come smallest change first."""
        for value in values:
            found = self.serving(**{lever: value})
            if found is not None and found.fits:
                return ServerSuggestion(lever, words(found.scenario), found)
        return None

    def largest(self, lever: str, now: int, words: Callable[[Scenario], str]) -> ServerSuggestion | None:
        """The largest whole number below `now` that fits, by halving."""
        low, high = max(1, now // MOST_TIMES), now
        while high - low > 1:
            middle = (low + high) // 2
            found = self.serving(**{lever: middle})
            low, high = (middle, high) if found is not None and found.fits else (low, middle)
        return self.first(lever, [low], words)


def server_suggestions(now: Serving) -> tuple[ServerSuggestion, ...]:
    """The smallest single change of each lever with which the engine holds every request at once, by what it
    reserves; empty where it does already. A lever that cannot do it alone is left out.

    Raises InputError where it is given anything but a Serving.
    """
    require_kind(now, "the server", Serving)
    if now.fits:
        return ()
    search = _Search(now)
    return tuple(found for lever in _LEVERS for found in [lever(search)] if found is not None)


def _cache_dtype(search: _Search) -> ServerSuggestion | None:
    named = cache_dtypes(search.engine, search.scenario.planned_model)
    names = (name for name in named if has_kernels(search.scenario.gpu, name))
    tried = (found for name in names for found in [search.serving(kv_dtype=name)] if found is not None)
    widest_first = sorted(tried, key=lambda found: -plan(found.scenario).cache_bytes)
    return search.first(
        "kv_dtype", (found.scenario.kv_dtype for found in widest_first), lambda s: f"Store the cache as {s.kv_dtype}"
    )


def _context(search: _Search) -> ServerSuggestion | None:
    return search.largest(
        "context_length",
        search.scenario.context_length,
        lambda s: f"Limit the context to {counted(s.context_length, 'token')}",
    )


def _batch(search: _Search) -> ServerSuggestion | None:
    return search.largest(
        "batch_size", search.scenario.batch_size, lambda s: f"Hold {counted(s.batch_size, 'sequence')} at once"
    )


def _tensor_parallel(search: _Search) -> ServerSuggestion | None:
    """More GPUs; whole layers of an engine with slots lie on any number of them, whatever the heads divide by."""
    now = search.scenario.placement
    node = max(largest_node(search.scenario.gpu) or 8, now.num_gpus)
    steps = [
        (wide * now.pipeline_parallel, "tensor_parallel", wide) for wide in range(now.tensor_parallel + 1, node + 1)
    ]
    if search.engine in HAS_SLOTS:
        stages = range(now.pipeline_parallel + 1, node // now.tensor_parallel + 1)
        steps += [(now.tensor_parallel * deep, "pipeline_parallel", deep) for deep in stages]
    for gpus, lever, value in sorted(steps, key=lambda step: step[0]):
        if found := search.first(lever, [value], partial(_shared_words, gpus)):
            return found
    return None


def _shared_words(gpus: int, _scenario: Scenario) -> str:
    return f"Let {counted(gpus, 'GPU')} share the model"


def _weights(search: _Search) -> ServerSuggestion | None:
    names = weight_choices(search.engine)
    tried = (found for name in names for found in [search.serving(weight_dtype=name)] if found is not None)
    widest_first = sorted(tried, key=lambda found: -plan(found.scenario).weight_bytes)
    return search.first(
        "weight_dtype",
        (found.scenario.weight_dtype for found in widest_first),
        lambda s: f"Use weights stored as {s.weight_dtype}",
    )


def _gpu(search: _Search) -> ServerSuggestion | None:
    """The GPU with the least usable memory that does it, of the same maker where the plan's has one."""
    now = search.scenario.gpu
    larger = (gpu for gpu in readable(list_gpus(), load_gpu).presets if gpu.usable_bytes > now.usable_bytes)
    same = (gpu for gpu in larger if not now.vendor or gpu.vendor == now.vendor)
    least_first = sorted(same, key=lambda gpu: (gpu.usable_bytes, gpu.name))
    return search.first("gpu", least_first, _gpu_words)


def _gpu_words(scenario: Scenario) -> str:
    many = f"{scenario.num_gpus:,} × " if scenario.num_gpus > 1 else "another GPU, "
    return f"Use {many}{scenario.gpu.name}"


def _fraction(search: _Search) -> ServerSuggestion | None:
    """The smallest whole percentage that would do; only an engine with a pool has a fraction."""
    now = search.scenario.memory_fraction
    percents: Iterator[float] = (percent / 100 for percent in range(1, MOST_PERCENT + 1) if percent / 100 > now)
    if search.engine not in HAS_POOL:
        return None
    return search.first(
        "memory_fraction", percents, lambda s: f"Let the engine use {round(s.memory_fraction * 100)} % of the memory"
    )


_LEVERS: tuple[Callable[[_Search], ServerSuggestion | None], ...] = (
    _cache_dtype, _context, _batch, _tensor_parallel, _weights, _gpu, _fraction,
)  # fmt: skip
