"""vLLM's pages of equal size, and the groups of layers that share one pool of block ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.engines.capacity import ceil_div
from kvplan.engines.layers import CacheSpec
from kvplan.errors import InputError

BLOCK_SIZE = 16
LATENT_BLOCK_SIZE = 64
"""FlashMLA and the sparse kernels; Triton on older GPUs keeps 16."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One spec with the pipeline stage that holds it, and the block it is paged in."""

    spec: CacheSpec
    stage: int
    block: int
    page_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All layers cut into groups. Blocks have one size, and every group draws ids from the same ones.

    groups           the layers of each group
    bytes_per_block  of the stage that holds the most
    phantom_layers   layers that fill groups up and hold nothing
    """

    groups: tuple[tuple[Placed, ...], ...]
    bytes_per_block: int
    phantom_layers: int = 0


def raised_block(specs: Sequence[tuple[CacheSpec, int]], base: int, max_model_len: int) -> int:
    """The attention block of a model with states: raised until its page holds the largest state.

    Where nothing grows with tokens, one block is a whole request.
    """
    state = max(spec.state_bytes for spec, _ in specs)
    attention = [spec for spec, _ in specs if spec.token_bytes]
    if not state or not attention:
        return base if attention else max_model_len
    largest = max(attention, key=lambda spec: spec.token_bytes)
    step = LATENT_BLOCK_SIZE if largest.is_latent else BLOCK_SIZE
    return max(base, step * ceil_div(state, step * largest.token_bytes))


def equal_pages(specs: Sequence[tuple[CacheSpec, int]], block: int) -> list[Placed]:
    """Every layer with the largest layer's page: smaller ones get a larger block, states are padded."""
    page = max(max(block * spec.token_bytes, spec.state_bytes) for spec, _ in specs)
    placed = []
    for spec, stage in specs:
        own = block * spec.token_bytes
        if own and page % own:
            raise InputError(
                f"vLLM cannot page this model: a page of {own:,} B does not divide the largest of {page:,} B; "
                "try another kv_dtype or tensor_parallel"
            )
        placed.append(Placed(spec, stage, block * (page // own if own else 1), page))
    return placed


def grouped(placed: Sequence[Placed]) -> Layout:
    """Groups of equal size: the smallest kind's count, or the largest where that is under 1.5 times as much."""
    kinds: dict[CacheSpec, list[Placed]] = {}
    for layer in placed:
        kinds.setdefault(layer.spec, []).append(layer)
    counts = [len(layers) for layers in kinds.values()]
    size = max(counts) if 2 * max(counts) < 3 * min(counts) else min(counts)
    groups = []
    for layers in kinds.values():
        number = ceil_div(len(layers), size)
        groups += [tuple(layers[index::number]) for index in range(number)]
    stages = {layer.stage for layer in placed}
    rows = max(sum(layer.stage == stage for layer in group) for group in groups for stage in stages)
    phantom = sum(size - len(group) for group in groups) if len(groups) > 1 else 0
    return Layout(tuple(groups), rows * placed[0].page_bytes, phantom)


def worst_stage_bytes(placed: Sequence[Placed]) -> int:
    """Bytes of one block on the pipeline stage that holds the most."""
    totals: dict[int, int] = {}
    for layer in placed:
        totals[layer.stage] = totals.get(layer.stage, 0) + layer.page_bytes
    return max(totals.values())
