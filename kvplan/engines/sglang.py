"""SGLang: a pool of tokens (pages of one token), a second one for windows, and one of states.

Read from `python/sglang/srt/model_executor/` and checked against public start-up logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from kvplan.dtypes import KvDtype
from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.engines.capacity import EngineCapacity, Request, ceil_div, compute_dtype, longest_context, ratio
from kvplan.engines.layers import CacheSpec, StateRule, index_notes, layer_specs
from kvplan.errors import InputError, quoted
from kvplan.hardware import Gpu
from kvplan.model import Layer, Stage
from kvplan.units import GIB, MIB, counted

PAGE_SIZE = 1
SPARSE_PAGE_SIZE = 64
SWA_FULL_TOKENS_RATIO = 0.8


@dataclass(frozen=True, slots=True)
class SglangOptions:
    """Options that only SGLang has.

    swa_full_tokens_ratio     tokens of the window pool for one of the full pool (`--swa-full-tokens-ratio`)
    mamba_full_memory_ratio   bytes of the state pool for one of the token pool (`--mamba-full-memory-ratio`)
    draft_layers              layers of a multi-token-prediction draft, each like the model's last attention layer
    """

    swa_full_tokens_ratio: float = SWA_FULL_TOKENS_RATIO
    mamba_full_memory_ratio: float = 0.9
    draft_layers: int = 0


@dataclass(frozen=True, slots=True)
class Cells:
    """Bytes of one token on the GPU that holds the most, full and window layers apart, and of one state.

    held  tokens that one sequence keeps in the window pool at most
    """

    full: int
    window: int
    state: int
    held: int = 0


def capacity(request: Request, options: SglangOptions) -> EngineCapacity:
    """What SGLang makes of the pool. `tokens` are those of the full pool."""
    cells = token_cells(request, options)
    swa_ratio = _exact(options.swa_full_tokens_ratio, "swa_full_tokens_ratio")
    per_token = cells.full + (swa_ratio if cells.full else 1) * cells.window
    if not per_token:
        raise InputError(f"{request.model.name} keeps nothing for tokens, so SGLang's pool of tokens is empty")
    page = request.block_size or (SPARSE_PAGE_SIZE if _is_sparse(request) else PAGE_SIZE)
    state_share = _exact(options.mamba_full_memory_ratio, "mamba_full_memory_ratio") if cells.state else Fraction(0)
    for_tokens = request.pool_bytes / (1 + state_share)
    state_pool = int(request.pool_bytes - for_tokens)
    tokens = int(for_tokens / per_token) // page * page
    need = partial(_pages, cells, swa_ratio, page)
    full = ceil_div(request.max_model_len, page)
    limits = [ratio(tokens // page, full), *_other_limits(request.max_model_len, cells, tokens * swa_ratio, state_pool)]
    return EngineCapacity(
        engine="sglang",
        pool_bytes=request.pool_bytes,
        num_blocks=tokens // page,
        tokens=tokens,
        max_concurrency=min(limits),
        bytes_per_block=int(per_token * page),
        request_blocks=need(request.max_model_len),
        block_size=page,
        longest_context=longest_context(lambda length: need(length) * page, tokens if state_pool >= cells.state else 0),
        notes=_notes(request, cells, swa_ratio, tokens, state_pool),
        request_rest=cells.state,
    )


def _pages(cells: Cells, swa_ratio: Fraction, page: int, length: int) -> int:
    """Pages of both pools that hold a request: of a short one the windows run out first."""
    in_window = math.ceil(min(length, cells.held) / swa_ratio) if cells.window and cells.full else 0
    return ceil_div(max(length, in_window), page)


def _other_limits(length: int, cells: Cells, window_tokens: Fraction, state_pool: int) -> Iterator[float]:
    """Requests that the pools of windows and of states admit; a window keeps at least what attention still reads."""
    if cells.window and cells.full:
        yield float(window_tokens / min(length, cells.held))
    if cells.state:
        yield float(state_pool // cells.state)


def _exact(value: float, name: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1000:
        raise InputError(f"{name} is {quoted(value)}; a number above 0 is needed")
    return Fraction(str(value))


def token_cells(request: Request, options: SglangOptions) -> Cells:
    """Bytes of one token and one state; with pipeline stages, of the stage that holds the most."""
    found = [_stage_cells(stage, request, options) for stage in _stages(request)]
    return max(found, key=lambda cells: (cells.full + cells.window, cells.state))


def _stages(request: Request) -> list[Stage]:
    """SGLang's pipeline stages: the layers left over go to the last stages."""
    count, layers = request.pipeline_parallel, request.model.layers
    base, extra = divmod(len(layers), count)
    sizes = [base + (index >= count - extra) for index in range(count)]
    starts = [sum(sizes[:index]) for index in range(count)]
    return [
        Stage(layers[start : start + size], (), index == count - 1)
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


def _stage_cells(stage: Stage, request: Request, options: SglangOptions) -> Cells:
    specs = [spec for layer in stage.layers for spec in _specs(layer, request)]
    if stage.is_last and options.draft_layers:
        last = next((layer for layer in reversed(stage.layers) if layer.cache.cache_parts()), stage.layers[-1])
        specs += [spec for spec in _specs(last, request) if spec.token_bytes] * options.draft_layers
    return Cells(
        _sum_tokens(specs, "full"),
        _sum_tokens(specs, "window") + _sum_tokens(specs, "chunk"),
        sum(spec.state_bytes for spec in specs),
        max(spec.tokens for spec in specs) if specs else 0,
    )


def _specs(layer: Layer, request: Request) -> tuple[CacheSpec, ...]:
    dtype = compute_dtype(request.model)
    rule = StateRule(None, dtype)
    specs = layer_specs(layer, request.kv, request.tensor_parallel, rule)
    if layer.cache.kind != "indexed_latent":
        return specs
    eight_bit: KvDtype = as_kv_dtype("fp8")
    return (specs[0], *layer_specs(layer, eight_bit, request.tensor_parallel, rule)[1:])


def _sum_tokens(specs: Iterable[CacheSpec], kind: str) -> int:
    return sum(spec.token_bytes for spec in specs if spec.kind == kind)


def _is_sparse(request: Request) -> bool:
    return any(layer.cache.kind == "indexed_latent" for layer, _ in request.model.layer_runs)


def _notes(request: Request, cells: Cells, swa_ratio: Fraction, tokens: int, state_pool: int) -> tuple[str, ...]:
    found = index_notes(request.model, request.kv)
    if cells.window and cells.full:
        found.append(
            f"window layers have a pool of their own of {counted(int(tokens * swa_ratio), 'token')}: a long prompt "
            "can fill it before the full one"
        )
    if cells.state:
        found.append(
            f"recurrent state has a pool of its own: {counted(state_pool // cells.state, 'sequence')} of "
            f"{cells.state:,} B"
        )
    if request.model.dtype is None:
        found.append("the config states no dtype: 16 bits a value are counted for what is not quantized")
    return tuple(found)


# --------------------------------------------------------------------------------------------------------- budget


def default_memory_fraction(gpu: Gpu, num_gpus: int, chunked_prefill: int | None = None) -> Fraction:
    """`--mem-fraction-static` of a server that does not set it: what a reserve for activations and graphs leaves."""
    memory_mib = Fraction(gpu.usable_bytes, MIB)
    chunk, graph_batch = _tier(gpu.usable_bytes)
    reserve = Fraction(512) + Fraction(3, 2) * max(chunked_prefill or chunk, 2048)
    reserve += Fraction(num_gpus, 8) * 1024 + 2 * graph_batch
    if gpu.usable_bytes > 60 * GIB:
        reserve = max(reserve, Fraction(10240))
    return (memory_mib - reserve) / memory_mib


def _tier(usable_bytes: int) -> tuple[int, int]:
    """(chunked prefill, largest batch of a CUDA graph) by memory."""
    for limit, tier in ((20, (2048, 8)), (35, (4096, 48)), (60, (4096, 32)), (90, (8192, 256))):
        if usable_bytes < limit * GIB:
            return tier
    return 16384, 512
