"""One server to start: what its command line says, and with which pool and capacity it will come up."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.engines.budget import Flags, PoolBudget, pool_budget
from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.llamacpp import KvBytes, cache_type_name, llamacpp_options
from kvplan.engines.llamacpp import allocated as llamacpp_allocated
from kvplan.engines.overheads import Overhead
from kvplan.engines.registry import engine, engine_capacity
from kvplan.engines.vllm import default_batched_tokens
from kvplan.errors import InputError
from kvplan.hardware import Gpu
from kvplan.model import Model


@dataclass(frozen=True, slots=True)
class Launch:
    """A server: the settings of a scenario in an engine's sense.

    context_length   the longest request
    batch_size       requests at once
    kv_dtype         a cache format of kvplan, or auto
    weight_dtype     a weight format, or None: as published
    memory_fraction  None: the engine's own default
    known            overheads from a log
    """

    engine: str
    model: Model
    gpu: Gpu
    context_length: int
    batch_size: int
    kv_dtype: str = "auto"
    weight_dtype: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    memory_fraction: float | None = None
    engine_version: str | None = None
    known: tuple[Overhead, ...] = ()

    def __post_init__(self) -> None:
        engine(self.engine)


def budget_of(launch: Launch) -> PoolBudget:
    """The pool that the server will find. Raises UnknownNameError for an engine without a pool of its own."""
    flags = Flags(
        engine=launch.engine,
        engine_version=launch.engine_version,
        memory_fraction=launch.memory_fraction,
        max_num_seqs=launch.batch_size,
        tensor_parallel=launch.tensor_parallel,
        pipeline_parallel=launch.pipeline_parallel,
        weight_dtype=launch.weight_dtype,
    )
    return pool_budget(launch.model, launch.gpu, flags, launch.known)


def capacity_of(launch: Launch, pool_bytes: int) -> EngineCapacity:
    """What the server makes of a pool."""
    return engine_capacity(
        launch.model,
        pool_bytes=pool_bytes,
        engine=launch.engine,
        engine_version=launch.engine_version,
        kv_dtype=launch.kv_dtype,
        tensor_parallel=launch.tensor_parallel,
        pipeline_parallel=launch.pipeline_parallel,
        max_model_len=launch.context_length,
        max_num_batched_tokens=default_batch(launch),
    )


def default_batch(launch: Launch) -> int | None:
    """vLLM's default batch on this GPU; other engines reserve nothing for it."""
    return default_batched_tokens(launch.gpu) if launch.engine == "vllm" else None


def llamacpp_cache(launch: Launch) -> tuple[KvBytes, str, str]:
    """What llama.cpp allocates for all requests, and the types of K and V."""
    type_k, type_v = llamacpp_types(launch)
    options = llamacpp_options(type_k=type_k, type_v=type_v, slots=launch.batch_size)
    total = launch.context_length * launch.batch_size
    return llamacpp_allocated(launch.model, total, options), type_k, type_v


def llamacpp_types(launch: Launch) -> tuple[str, str]:
    """llama.cpp's names of the cache types; auto is its default, f16. Raises InputError where it has none."""
    if launch.kv_dtype in ("auto", "bf16"):  # its default of the same width
        return ("f16", "f16") if launch.kv_dtype == "auto" else ("bf16", "bf16")
    key, slash, value = launch.kv_dtype.partition("/")
    return cache_type_name(key), cache_type_name(value if slash else key)


def single_cache_dtype(launch: Launch) -> str:
    """The cache dtype of an engine that stores K and V alike. Raises InputError."""
    if "/" in launch.kv_dtype:
        raise InputError(f"{launch.engine} stores K and V alike, so kv_dtype {launch.kv_dtype} needs llama.cpp")
    return launch.kv_dtype
