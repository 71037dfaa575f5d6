"""One server to start: what its command line says, and with which pool and capacity it will come up."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.dtypes import KvDtype
from kvplan.engines.budget import Flags, PoolBudget, pool_budget
from kvplan.engines.capacity import EngineCapacity, auto_kv_dtype
from kvplan.engines.llamacpp import (
    KvBytes,
    LlamaCppOptions,
    allocated,
    cache_type_name,
    llamacpp_options,
    ollama_context,
)
from kvplan.engines.overheads import Overhead
from kvplan.engines.registry import engine, engine_capacity
from kvplan.engines.support import default_cache_dtype, require_cache_dtype, require_cut, require_placed
from kvplan.engines.vllm import default_batched_tokens
from kvplan.errors import InputError, quoted
from kvplan.hardware import Gpu
from kvplan.model import ONE_GPU, Model, Placement
from kvplan.units import listed


@dataclass(frozen=True, slots=True)
class Launch:
    """A server: the settings of a scenario in an engine's sense.

    context_length   the longest request
    batch_size       requests at once, of all replicas together
    kv_dtype         a cache format of kvplan, or auto: the engine's own default
    weight_dtype     a weight format, or None: as published
    placement        how the model lies over the GPUs
    memory_fraction  None: the engine's own default
    known            overheads from a log
    extra_weight_bytes   adapters and a draft model on each GPU

    Raises UnknownNameError for another engine, InputError for a part of `known` that is no Overhead.
    """

    engine: str
    model: Model
    gpu: Gpu
    context_length: int
    batch_size: int
    kv_dtype: str = "auto"
    weight_dtype: str | None = None
    placement: Placement = ONE_GPU
    memory_fraction: float | None = None
    engine_version: str | None = None
    known: tuple[Overhead, ...] = ()
    extra_weight_bytes: int = 0

    def __post_init__(self) -> None:
        engine(self.engine)
        for part in listed(self.known, "known", "a tuple of Overhead"):
            if not isinstance(part, Overhead):
                raise InputError(f"known holds {quoted(part)}; overheads of a log are needed")

    @property
    def kv(self) -> KvDtype:
        """The cache dtype; the engine's own default where it is auto."""
        name = default_cache_dtype(self.engine, self.model) if self.kv_dtype == "auto" else self.kv_dtype
        return auto_kv_dtype(self.model, name)

    @property
    def replica_requests(self) -> int:
        """Requests at once of the replica that has the most."""
        return -(-self.batch_size // self.placement.data_parallel)


def require_supported(launch: Launch) -> None:
    """Raise InputError with the sentence why the engine cannot serve so, before anything is counted."""
    require_placed(launch.engine, launch.placement)
    require_cache_dtype(launch.engine, launch.model, launch.kv, launch.engine_version)
    require_cut(launch.engine, launch.model, launch.weight_dtype, launch.placement)


def budget_of(launch: Launch) -> PoolBudget:
    """The pool that the server will find. Raises UnknownNameError for an engine without a pool of its own."""
    flags = Flags(
        engine=launch.engine,
        engine_version=launch.engine_version,
        memory_fraction=launch.memory_fraction,
        max_num_seqs=launch.replica_requests,
        placement=launch.placement,
        weight_dtype=launch.weight_dtype,
        extra_weight_bytes=launch.extra_weight_bytes,
    )
    return pool_budget(launch.model, launch.gpu, flags, launch.known)


def capacity_of(launch: Launch, pool_bytes: int) -> EngineCapacity:
    """What the server makes of a pool. Raises InputError, UnknownNameError, DtypeError or ParallelError."""
    placement = launch.placement
    return engine_capacity(
        launch.model,
        pool_bytes=pool_bytes,
        engine=launch.engine,
        engine_version=launch.engine_version,
        kv_dtype=launch.kv_dtype,
        tensor_parallel=placement.tensor_parallel,
        pipeline_parallel=placement.pipeline_parallel,
        data_parallel=placement.data_parallel,
        max_model_len=launch.context_length,
        max_num_batched_tokens=default_batch(launch),
        **({"slots": launch.batch_size} if engine(launch.engine).memory == "slots" else {}),
    )


def default_batch(launch: Launch) -> int | None:
    """vLLM's default batch on this GPU; other engines reserve nothing for it."""
    return default_batched_tokens(launch.gpu) if launch.engine == "vllm" else None


def llamacpp_options_of(launch: Launch) -> LlamaCppOptions:
    """The types of K and V, and a slot for each request."""
    fork = {"swa_full": True, "pad": 32} if launch.engine == "ik_llama.cpp" else {}
    type_k, type_v = cache_type_name(launch.kv.key), cache_type_name(launch.kv.value)
    return llamacpp_options(type_k=type_k, type_v=type_v, slots=launch.batch_size, **fork)


def llamacpp_cache(launch: Launch) -> tuple[KvBytes, LlamaCppOptions]:
    """What llama.cpp allocates for all requests on all GPUs together, and its options."""
    options = llamacpp_options_of(launch)
    return allocated(launch.model, ollama_context(launch.context_length, launch.batch_size), options), options
