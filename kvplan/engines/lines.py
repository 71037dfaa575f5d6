"""The lines about memory that a server will print, with kvplan's figures in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kvplan.engines.budget import PoolBudget
from kvplan.engines.capacity import EngineCapacity, parse_version
from kvplan.engines.launch import Launch, budget_of, capacity_of, llamacpp_cache, require_supported
from kvplan.engines.sglang import SWA_FULL_TOKENS_RATIO
from kvplan.engines.vllm import CAPACITY_LINE, NEWEST
from kvplan.model import Layer
from kvplan.units import GIB, MIB


def predicted_lines(launch: Launch) -> tuple[str, ...]:
    """What the engine will print about its memory.

    The pool is an estimate unless the overheads come from a log; cells and blocks of a given pool are exact.
    Raises InputError, UnknownNameError, DtypeError or ParallelError.
    """
    require_supported(launch)
    return tuple(_LINES.get(launch.engine, _no_lines)(launch))


def _gib(size: int, digits: int = 2) -> str:
    return f"{size / GIB:.{digits}f}"


def _with_pool(launch: Launch) -> tuple[PoolBudget, EngineCapacity]:
    budget = budget_of(launch)
    return budget, capacity_of(launch, budget.pool_bytes)


_OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory"
"""While the weights are loaded: one GPU has less memory than its part of them takes."""


def _too_heavy(budget: PoolBudget) -> bool:
    return budget.weight_bytes > budget.visible_bytes


def _vllm(launch: Launch) -> Iterator[str]:
    budget, found = _with_pool(launch)
    if _too_heavy(budget):
        yield _OUT_OF_MEMORY
        return
    yield f"Model loading took {_gib(budget.weight_bytes, 4)} GiB memory"
    if not budget.pool_bytes:
        yield f"Available KV cache memory: {_gib(-budget.shortfall_bytes)} GiB"
        yield "No available memory for the cache blocks"
        return
    yield f"Available KV cache memory: {_gib(budget.pool_bytes)} GiB"
    if not found.admits_one:
        yield _refusal(launch, budget, found)
        return
    size = f"GPU KV cache size: {found.tokens:,} tokens"
    times = f"Maximum concurrency for {launch.context_length:,} tokens per request: {found.max_concurrency:.2f}x"
    if parse_version(launch.engine_version, NEWEST) >= CAPACITY_LINE:
        yield f"{size}, {times}"
    else:
        yield from (size, times)


def _refusal(launch: Launch, budget: PoolBudget, found: EngineCapacity) -> str:
    return (
        f"max seq len ({launch.context_length}): ({_gib(found.needed_bytes)} GiB KV cache is needed, which is larger "
        f"than the available KV cache memory ({_gib(budget.pool_bytes)} GiB); "
        f"estimated maximum model length is {found.longest_context or 0}"
    )


def _sglang(launch: Launch) -> Iterator[str]:
    budget, found = _with_pool(launch)
    if _too_heavy(budget):
        yield _OUT_OF_MEMORY
        return
    yield f"Load weight end. mem usage={_gib(budget.weight_bytes)} GB."
    if not found.tokens:
        yield "Not enough memory. Please try to increase --mem-fraction-static"
        return
    yield _sglang_pool(launch, found)
    yield f"max_total_num_tokens={found.tokens}, context_len={launch.context_length}"


def _sglang_pool(launch: Launch, found: EngineCapacity) -> str:
    """The pool of tokens: keys and values apart, latent rows together, or that of full and window layers."""
    size = found.num_blocks * found.bytes_per_block
    parts = [part for layer in launch.model.layers for part in layer.cache.cache_parts()]
    limited = {part.max_tokens is not None for part in parts}
    if len(limited) > 1:
        window = int(found.tokens * SWA_FULL_TOKENS_RATIO)
        return f"SWAKVPool mem usage: {_gib(size)} GB, swa size: {window}, full size: {found.tokens}"
    tokens = f"KV Cache is allocated. #tokens: {found.tokens}"
    sizes = [(part.role, part.entry_bytes(launch.kv, launch.placement.tensor_parallel)) for part in parts]
    keys = size * sum(each for role, each in sizes if role == "key") // sum(each for _, each in sizes)
    return (
        f"{tokens}, K size: {_gib(keys)} GB, V size: {_gib(size - keys)} GB"
        if keys
        else f"{tokens}, KV size: {_gib(size)} GB"
    )


def _tensorrt(launch: Launch) -> Iterator[str]:
    budget, found = _with_pool(launch)
    if _too_heavy(budget):
        yield _OUT_OF_MEMORY
        return
    yield (
        f"Allocated {_gib(budget.pool_bytes)} GiB for max tokens in paged KV cache ({found.tokens}), "
        f"{found.num_blocks} blocks of {found.block_size} tokens"
    )


def _llamacpp(launch: Launch) -> Iterator[str]:
    """One line for the cells of full layers, one for those of windows, and one for states."""
    cache, options = llamacpp_cache(launch)
    yield f"llama_context: n_ctx         = {cache.cells}"
    for windows in (False, True):
        layers = tuple(layer for layer in launch.model.layers if _has_cells(layer, windows=windows))
        if layers:
            yield _cells_line(replace(launch, model=replace(launch.model, layers=layers)), len(layers))
    if cache.r_bytes or cache.s_bytes:
        both, conv, state = (size / MIB for size in (cache.r_bytes + cache.s_bytes, cache.r_bytes, cache.s_bytes))
        count = f"{options.slots:6d} cells, {launch.model.num_layers:3d} layers, {options.slots:2d} seqs"
        yield (
            f"llama_memory_recurrent: size = {both:7.2f} MiB ({count}), R (f32): {conv:7.2f} MiB, "
            f"S (f32): {state:7.2f} MiB"
        )


def _has_cells(layer: Layer, *, windows: bool) -> bool:
    """Whether the layer has cells in the pool of windows, or in that of full layers."""
    parts = layer.cache.cache_parts()
    return bool(parts) and windows == any(part.max_tokens is not None for part in parts)


def _cells_line(launch: Launch, layers: int) -> str:
    """The cells of one slot, and the bytes of all, of layers that share a pool."""
    cache, options = llamacpp_cache(launch)
    cells = (cache.window_cells or cache.cells) // options.slots
    count = f"{cells:6d} cells, {layers:3d} layers, {options.slots:2d}/{options.slots} seqs"
    keys, values = cache.k_bytes / MIB, cache.v_bytes / MIB
    return (
        f"llama_kv_cache: size = {cache.kv_bytes / MIB:7.2f} MiB ({count}), K ({options.type_k}): {keys:7.2f} MiB, "
        f"V ({options.type_v}): {values:7.2f} MiB"
    )


def _ik_llamacpp(launch: Launch) -> Iterator[str]:
    """The older words, which the fork has kept."""
    cache, options = llamacpp_cache(launch)
    yield f"n_ctx = {cache.cells}"
    size = f"KV self size  = {cache.kv_bytes / MIB:7.2f} MiB"
    if any(layer.cache.kind.endswith("latent") for layer, _ in launch.model.layer_runs):
        yield f"{size}, c^KV ({options.type_k}): {cache.k_bytes / MIB:7.2f} MiB, kv^T: not used"
    else:
        keys, values = cache.k_bytes / MIB, cache.v_bytes / MIB
        yield f"{size}, K ({options.type_k}): {keys:7.2f} MiB, V ({options.type_v}): {values:7.2f} MiB"


def _no_lines(_launch: Launch) -> Iterator[str]:
    """An engine that prints nothing about its memory (transformers)."""
    yield from ()


_LINES: dict[str, Callable[[Launch], Iterator[str]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt,
    "llama.cpp": _llamacpp,
    "ollama": _llamacpp,
    "ik_llama.cpp": _ik_llamacpp,
}
