"""How vLLM pages DeepSeek V4: five kinds of cache of different widths behind one set of block ids.

Read from `vllm/v1/core/kv_cache_utils.py` and checked against the figures of the changes that made it (#44454,
#48993) and of a refused start (#44376). Compressed rows stand in blocks of 256 tokens; the window and the working
state of the compressors are windows with small blocks of their own, so that tokens in flight cost most of a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from kvplan.attention import CachePart
from kvplan.engines.capacity import Request, Version, ceil_div
from kvplan.engines.layers import CacheSpec
from kvplan.engines.vllm_pages import Layout, Placed
from kvplan.errors import InputError
from kvplan.model import Model

BLOCK = 256
ALIGNMENT = 576
OVERLAPPING_RATIO = 4
"""Blocks of this ratio overlap: their compressor keeps the rows of two blocks, values and scores apart."""

BUCKETED = (0, 23)
DENSE = (0, 27)
"""Versions from which a block holds, of each page size, the most that a group has; then the widest group alone."""

Group = tuple[Placed, ...]


def is_packed(model: Model) -> bool:
    """Whether any layer compresses its cache, which vLLM pages in this way."""
    return any(layer.cache.kind == "compressed" for layer, _ in model.layer_runs)


def packed_layout(request: Request, draft_layers: int, version: Version) -> Layout:
    """The five kinds as groups. Raises InputError where the pages are not known."""
    if request.kv.name != "fp8":
        raise InputError(f"how vLLM pages compressed attention is known for kv_dtype fp8 only, not {request.kv.name}")
    if request.pipeline_parallel > 1 or (request.block_size or BLOCK) != BLOCK:
        raise InputError(f"how vLLM pages compressed attention is known for one stage and blocks of {BLOCK} tokens")
    main, *windows = _kinds(request, draft_layers)
    tuples = max(Counter(page.page_bytes for page in main).values())
    rows = _row_count([tuples, *(_layers_of(pages) for pages in windows)])
    groups = (main, *chain.from_iterable(_split(_padded(pages, main, version), rows) for pages in windows))
    sizes = {page.page_bytes for page in main}
    return Layout(groups, _block_bytes(version)(groups, rows * sum(sizes)))


def _block_bytes(version: Version) -> Callable[[Sequence[Group], int], int]:
    return _dense_bytes if version >= DENSE else _bucketed_bytes if version >= BUCKETED else _tuple_bytes


def _tuple_bytes(_groups: Sequence[Group], every_row_whole: int) -> int:
    return every_row_whole


def _bucketed_bytes(groups: Sequence[Group], _whole: int) -> int:
    most: Counter[int] = Counter()
    for group in groups:
        most |= Counter(page.page_bytes for page in group)
    return sum(size * count for size, count in most.items())


def _dense_bytes(groups: Sequence[Group], _whole: int) -> int:
    return max(sum(page.page_bytes for page in group) for group in groups)


# ---------------------------------------------------------------------------------------------------------- kinds


def _kinds(request: Request, draft_layers: int) -> list[Group]:
    """Compressed rows and index keys; the window; and the compressors' state of each ratio."""
    compressed = [layer.cache.cache_parts() for layer in request.model.layers if layer.cache.kind == "compressed"]
    row = sum(part.entry_bytes(request.kv) for part in compressed[0] if part.max_tokens is not None)
    window = next(part.max_tokens or 0 for part in compressed[0] if part.max_tokens is not None)
    main = tuple(page for parts in compressed for page in _compressed_pages(parts, request))
    layers = request.model.num_layers + draft_layers
    kinds = [main, (_window_page(window, BLOCK // 4, row),) * layers]
    ratios = dict.fromkeys(part.tokens_per_entry for parts in compressed for part in parts)
    kinds += [_state_pages(ratio, compressed) for ratio in ratios if ratio > 1]
    return kinds


def _aligned(size: int) -> int:
    return ceil_div(size, ALIGNMENT) * ALIGNMENT


def _compressed_pages(parts: Sequence[CachePart], request: Request) -> list[Placed]:
    """One page for the compressed rows of a layer, and one for its index keys where it has them."""
    sizes: dict[bool, int] = {}
    for part in parts:
        if part.max_tokens is None:
            is_index = part.role == "index"
            sizes[is_index] = sizes.get(is_index, 0) + BLOCK // part.tokens_per_entry * part.entry_bytes(request.kv)
    return [Placed(CacheSpec("full", is_latent=True), 0, BLOCK, _aligned(size)) for size in sizes.values()]


def _window_page(tokens: int, block: int, row_bytes: int) -> Placed:
    return Placed(CacheSpec("window", tokens=tokens, is_latent=True), 0, block, _aligned(block * row_bytes))


def _state_pages(ratio: int, compressed: Sequence[Sequence[CachePart]]) -> Group:
    """The compressors of one ratio: float32 values and scores of the tokens of one block, or of two that overlap."""
    overlap = 2 if ratio == OVERLAPPING_RATIO else 1
    block = OVERLAPPING_RATIO if ratio == OVERLAPPING_RATIO else 8
    pages: list[Placed] = []
    for parts in compressed:
        mine = [part for part in parts if part.tokens_per_entry == ratio]
        widths = [sum(p.width for p in mine if p.role != "index"), sum(p.width for p in mine if p.role == "index")]
        pages += [_window_page(overlap * ratio, block, 2 * overlap * width * 4) for width in widths if width]
    return tuple(pages)


# --------------------------------------------------------------------------------------------------------- groups


def _layers_of(pages: Group) -> int:
    """Layers of a kind: as many as it has pages of one size."""
    return max(Counter(page.page_bytes for page in pages).values())


def _row_count(counts: Sequence[int]) -> int:
    """Rows that groups are cut to: at least the first kind's, with the least filled up; the most where equal."""
    return min(range(counts[0], max(counts) + 1), key=lambda rows: (sum(-count % rows for count in counts), -rows))


def _padded(pages: Group, main: Group, version: Version) -> Group:
    """Before the dense layout every page is as large as the next larger one of the compressed rows."""
    if version >= DENSE:
        return pages
    sizes = sorted({page.page_bytes for page in main})
    return tuple(
        Placed(page.spec, page.stage, page.block, next(size for size in sizes if size >= page.page_bytes))
        for page in pages
    )


def _split(pages: Group, rows: int) -> list[Group]:
    """A kind as groups of at most `rows` layers; a layer's pages stay together."""
    layers = _layers_of(pages)
    each = len(pages) // layers
    groups = ceil_div(layers, rows)
    by_layer = [pages[each * index : each * (index + 1)] for index in range(layers)]
    return [tuple(chain.from_iterable(by_layer[index::groups])) for index in range(groups)]
