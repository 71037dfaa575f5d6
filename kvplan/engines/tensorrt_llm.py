"""TensorRT-LLM: blocks of 32 tokens in a fraction of what is free after the profiled peak.

How it reserves recurrent states is not known here: each sequence is counted with its own, from the same memory.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.capacity import EngineCapacity, Request, ceil_div, longest_context, ratio
from kvplan.engines.layers import CacheSpec, StateRule, layer_specs
from kvplan.errors import InputError

BLOCK_SIZE = 32
FREE_FRACTION = Fraction(9, 10)
"""`free_gpu_memory_fraction` of a server that does not set it: of the free memory, not of the total."""


def capacity(request: Request) -> EngineCapacity:
    """What TensorRT-LLM makes of the pool: one kind of block, every layer counted for every token."""
    block = request.block_size or BLOCK_SIZE
    stages = [_stage_specs(request, index) for index in range(request.pipeline_parallel)]
    per_token = max(sum(spec.token_bytes for spec in specs) for specs in stages)
    state = max(sum(spec.state_bytes for spec in specs) for specs in stages)
    if not per_token:
        raise InputError(f"{request.model.name} keeps nothing for tokens, so there are no blocks")
    blocks = request.pool_bytes // (per_token * block)
    need = ceil_div(request.max_model_len, block)
    return EngineCapacity(
        engine="tensorrt-llm",
        pool_bytes=request.pool_bytes,
        num_blocks=blocks,
        tokens=blocks * block,
        max_concurrency=ratio(request.pool_bytes, need * block * per_token + state) if state else ratio(blocks, need),
        bytes_per_block=per_token * block,
        request_blocks=need,
        block_size=block,
        longest_context=longest_context(
            lambda length: ceil_div(length, block) * block * per_token + state, request.pool_bytes
        ),
        notes=_notes(request, state),
        request_rest=state,
    )


def _stage_specs(request: Request, index: int) -> list[CacheSpec]:
    stage = request.model.stages(request.pipeline_parallel)[index]
    rule = StateRule(None, None)
    return [spec for layer in stage.layers for spec in layer_specs(layer, request.kv, request.tensor_parallel, rule)]


def _notes(request: Request, state: int) -> tuple[str, ...]:
    kinds, found = {layer.cache.kind for layer, _ in request.model.layer_runs}, []
    if kinds & {"sliding", "chunked", "sliding_latent"}:
        found.append(
            "window layers are counted like full attention; max_attention_window can divide the pool otherwise"
        )
    if state:
        found.append(
            "how TensorRT-LLM reserves recurrent states is not known: each sequence is counted with its own of "
            f"{state:,} B besides its blocks, out of the same memory"
        )
    return tuple(found)


def pool_bytes(free_after_peak: int, fraction: Fraction = FREE_FRACTION) -> int:
    """The pool of a start: a fraction of what the profiled peak leaves free."""
    return int(free_after_peak * fraction)
