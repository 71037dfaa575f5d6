"""The engines by name, and the one function that asks any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple

from kvplan.dtypes import weight_format
from kvplan.engines import llamacpp, sglang, tensorrt_llm, transformers, vllm
from kvplan.engines.capacity import EngineCapacity, Request, checked_request, true_or_false
from kvplan.engines.support import LABELS, default_cache_dtype, require_cache_dtype, require_placed
from kvplan.errors import InputError, UnknownNameError, quoted, shorten
from kvplan.model import Model, Placement
from kvplan.units import counted, whole_number


class Engine(NamedTuple):
    """One engine.

    label     the word on a page
    capacity  what it makes of a pool, from the request and its own options
    memory    pool: it takes a pool at its start and divides it into blocks; slots: it allocates the cells of every
              request before the first one comes; tensors: it takes what requests need
    options   names of options that only it has
    unused    settings of `engine_capacity` that it does not know; they are refused
    """

    label: str
    capacity: Callable[[Request, Mapping[str, Any]], EngineCapacity]
    memory: Literal["pool", "slots", "tensors"]
    options: tuple[str, ...] = ()
    unused: tuple[str, ...] = ("context_parallel",)


def _names(options: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(options))


def _vllm(request: Request, given: Mapping[str, Any]) -> EngineCapacity:
    values = dict(given)
    for name in ("draft_tokens", "draft_layers"):
        values[name] = whole_number(values.get(name, 0), name, low=0, high=1024)
    for name in ("prefix_caching", "async_scheduling", "hybrid_manager"):
        if values.get(name) is not None:
            true_or_false(values[name], name)
    if isinstance(values.get("state_dtype"), str):
        values["state_dtype"] = weight_format(values["state_dtype"])
    return vllm.capacity(request, vllm.VllmOptions(**values))


def _sglang(request: Request, given: Mapping[str, Any]) -> EngineCapacity:
    layers = whole_number(given.get("draft_layers", 0), "draft_layers", low=0, high=1024)
    return sglang.capacity(request, sglang.SglangOptions(**{**given, "draft_layers": layers}))


def _llamacpp(request: Request, given: Mapping[str, Any]) -> EngineCapacity:
    types = {f"type_{name[0]}": llamacpp.cache_type_name(getattr(request.kv, name)) for name in ("key", "value")}
    return llamacpp.capacity(request, llamacpp.llamacpp_options(**{**types, **given}))


_NO_BLOCKS = ("context_parallel", "block_size")


def _ik_llamacpp(request: Request, given: Mapping[str, Any]) -> EngineCapacity:
    """A fork without a pool for windows, and with cells in multiples of 32."""
    return _llamacpp(request, {"swa_full": True, "pad": 32, **given})


ENGINES: dict[str, Engine] = {
    "vllm": Engine(LABELS["vllm"], _vllm, "pool", _names(vllm.VllmOptions), ()),
    "sglang": Engine(LABELS["sglang"], _sglang, "pool", _names(sglang.SglangOptions)),
    "llama.cpp": Engine(LABELS["llama.cpp"], _llamacpp, "slots", _names(llamacpp.LlamaCppOptions), _NO_BLOCKS),
    "ollama": Engine(LABELS["ollama"], _llamacpp, "slots", _names(llamacpp.LlamaCppOptions), _NO_BLOCKS),
    "ik_llama.cpp": Engine(LABELS["ik_llama.cpp"], _ik_llamacpp, "slots", _names(llamacpp.LlamaCppOptions), _NO_BLOCKS),
    "tensorrt-llm": Engine(LABELS["tensorrt-llm"], lambda request, _: tensorrt_llm.capacity(request), "pool"),
    "transformers": Engine(
        LABELS["transformers"], lambda request, _: transformers.dynamic_capacity(request), "tensors", (), _NO_BLOCKS
    ),
    "transformers-static": Engine(
        LABELS["transformers-static"],
        lambda request, _: transformers.static_capacity(request),
        "tensors",
        (),
        _NO_BLOCKS,
    ),
}
"""Every engine by its id, in the order that a list shows."""


def engine(name: str) -> Engine:
    """The engine called `name`. Raises UnknownNameError with the nearest names."""
    if not isinstance(name, str) or name not in ENGINES:
        raise UnknownNameError("engine", shorten(name), ENGINES)
    return ENGINES[name]


def engine_capacity(
    model: Model,
    *,
    pool_bytes: int,
    engine: str = "vllm",
    engine_version: str | None = None,
    kv_dtype: str = "auto",
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    block_size: int | None = None,
    max_model_len: int | None = None,
    max_num_batched_tokens: int | None = None,
    context_parallel: int = 1,
    data_parallel: int = 1,
    **options: Any,
) -> EngineCapacity:
    """What `engine` makes of a pool of `pool_bytes` on each GPU.

    engine                  vllm, sglang, llama.cpp, ollama, ik_llama.cpp, tensorrt-llm, transformers,
                            transformers-static
    engine_version          as the engine prints it; None: the newest rules known here. Only vLLM's rules differ
    kv_dtype                the engine's option: auto, or a cache format
    block_size              tokens of a block; None: the engine's own
    max_model_len           the longest request; None: the model's context limit
    max_num_batched_tokens  tokens of a batch, for which window layers of vLLM reserve; None: 8,192, and a note
    context_parallel        GPUs that a sequence is spread over (vLLM's decode context parallelism)
    data_parallel           replicas, each with such a pool; the answer is of one, and says how many there are
    options                 what only one engine has: `ENGINES[engine].options`

    Raises InputError, UnknownNameError, DtypeError or ParallelError.
    """
    chosen = _engine(engine)
    for name in options:
        if name not in chosen.options:
            raise UnknownNameError(f"{engine} option", name, chosen.options)
    if not isinstance(model, Model):
        raise InputError(f"model is {quoted(model)}; a Model is needed, such as load_model gives")
    request = checked_request(
        model, pool_bytes, default_cache_dtype(engine, model) if kv_dtype == "auto" else kv_dtype, tensor_parallel,
        pipeline_parallel, block_size, max_model_len, max_num_batched_tokens, context_parallel, engine_version,
    )  # fmt: skip
    for name in chosen.unused:
        if getattr(request, name) not in (None, 1):
            raise InputError(f"{engine} has no {name}, and {getattr(request, name):,} is given; leave it out")
    placement = Placement(tensor_parallel, pipeline_parallel, whole_number(data_parallel, "data_parallel", high=4096))
    require_placed(engine, placement)
    require_cache_dtype(engine, model, request.kv, engine_version)
    found = replace(_of_replicas(chosen.capacity(request, options), data_parallel), engine=engine)
    if engine_version is None or engine == "vllm":
        return found
    note = f"engine_version {shorten(engine_version)} is not used: only vLLM's rules are known by version"
    return replace(found, notes=(*found.notes, note))


def _of_replicas(found: EngineCapacity, replicas: int) -> EngineCapacity:
    if replicas == 1:
        return found
    note = (
        f"each of {counted(replicas, 'replica')} has such a cache of its own and prints its own lines: "
        f"{counted(found.tokens * replicas, 'token')} in all"
    )
    return replace(found, replicas=replicas, notes=(*found.notes, note))


_engine = engine
