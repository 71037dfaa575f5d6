"""vLLM: pages of equal size, groups of layers that share block ids, and the lines that it prints.

Read from `vllm/v1/core/kv_cache_utils.py` and `vllm/v1/kv_cache_interface.py` of versions 0.9 to 0.33, and
checked against public start-up logs (tests/test_engine_logs.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvplan.dtypes import KvDtype, StorageFormat
from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.engines.capacity import (
    EngineCapacity,
    Request,
    Version,
    ceil_div,
    compute_dtype,
    longest_context,
    parse_version,
    ratio,
)
from kvplan.engines.layers import CacheSpec, StateRule, index_notes, layer_specs
from kvplan.engines.vllm_packed import is_packed, packed_layout
from kvplan.engines.vllm_pages import (
    BLOCK_SIZE,
    LATENT_BLOCK_SIZE,
    Layout,
    Placed,
    equal_pages,
    grouped,
    raised_block,
    worst_stage_bytes,
)
from kvplan.errors import InputError
from kvplan.hardware import Gpu
from kvplan.model import Layer, Model
from kvplan.units import GIB, counted

NEWEST = (0, 33)
CAPACITY_LINE = (0, 21)
"""From here the printed cache size is max_concurrency * max_model_len."""
PREFIX_CACHED_STATES = (0, 24)
"""From here logs of hybrid models show one more state a request: prefix caching is on for them."""
HYBRID_MANAGER = (0, 9, 1)
"""From here a request reserves only its window in window layers; before, they were paged like full attention."""
CHUNK_GROUPS = (0, 14)
"""About from here chunked attention has groups as well; before, it had to be asked for."""
DOUBLED_IN_FLIGHT = (0, 26)
"""From here window layers reserve for two batches in flight, since scheduling is asynchronous."""

FLOAT32_STATES = ("nemotron_h", "qwen3_5", "kimi_linear")
"""Families whose config asks for float32 recurrent state; others keep the dtype that the model is computed in."""

ASSUMED_BATCHED_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Options that only vLLM has.

    draft_tokens      tokens that a draft proposes a step (speculative decoding)
    draft_layers      layers that a multi-token-prediction head adds, each like the model's last attention layer
    prefix_caching    whether states are cached for prefixes; None: as the version does for hybrid models
    async_scheduling  whether two batches are in flight; None: as the version does
    hybrid_manager    False: every window layer is paged like full attention (`--disable-hybrid-kv-cache-manager`);
                      None: as the version does
    state_dtype       `--mamba-ssm-cache-dtype`; None: as the family's config asks
    """

    draft_tokens: int = 0
    draft_layers: int = 0
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    hybrid_manager: bool | None = None
    state_dtype: StorageFormat | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What a request reserves, besides its length: tokens in flight, copies of states, context parallelism."""

    in_flight: int
    states: int
    context_parallel: int

    def blocks(self, layout: Layout, length: int) -> int:
        """Blocks of a request of `length` tokens, over all groups."""
        return sum(self.group_blocks(group[0], length) for group in layout.groups)

    def group_blocks(self, first: Placed, length: int) -> int:
        """Blocks that one group holds; all its layers are alike."""
        held = {
            "full": ceil_div(length, self.context_parallel),
            "window": min(first.spec.tokens - 1 + self.in_flight, length) + first.block,  # it may start inside a block
            "chunk": min(first.spec.tokens + self.in_flight, length),
            "state": self.states * first.block,
        }
        return ceil_div(held[first.spec.kind], first.block)


def capacity(request: Request, options: VllmOptions) -> EngineCapacity:
    """What vLLM makes of the pool."""
    version = parse_version(request.engine_version, NEWEST)
    layout = page_layout(request, options)
    admission = admission_rule(request, options, version)
    blocks = request.pool_bytes // layout.bytes_per_block
    need = admission.blocks(layout, request.max_model_len)
    concurrency = ratio(blocks, need)
    return EngineCapacity(
        engine="vllm",
        pool_bytes=request.pool_bytes,
        num_blocks=blocks,
        tokens=_printed_tokens(request, layout, version, blocks, concurrency),
        max_concurrency=concurrency,
        bytes_per_block=layout.bytes_per_block,
        request_blocks=need,
        block_size=min(group[0].block for group in layout.groups),
        longest_context=longest_context(
            lambda length: admission.blocks(layout, length) * layout.bytes_per_block, request.pool_bytes
        ),
        notes=_notes(request, options, layout, version),
    )


def _printed_tokens(request: Request, layout: Layout, version: Version, blocks: int, concurrency: float) -> int:
    if version >= CAPACITY_LINE:
        return int(concurrency * request.max_model_len)  # a float product, cut off: as vLLM computes it
    smallest = min(group[0].block for group in layout.groups)
    return blocks // len(layout.groups) * smallest * request.context_parallel


def admission_rule(request: Request, options: VllmOptions, version: Version) -> Admission:
    """How many tokens and states a request reserves in this version."""
    prefix = version >= PREFIX_CACHED_STATES if options.prefix_caching is None else options.prefix_caching
    asynchronous = version >= DOUBLED_IN_FLIGHT if options.async_scheduling is None else options.async_scheduling
    stages = request.pipeline_parallel
    batches = 2 if asynchronous and stages == 1 else stages if asynchronous else 1
    batched = request.max_num_batched_tokens or ASSUMED_BATCHED_TOKENS
    return Admission(batches * batched, 1 + prefix + options.draft_tokens, request.context_parallel)


def default_batched_tokens(gpu: Gpu) -> int:
    """`--max-num-batched-tokens` of a server that does not set it, by the GPU's memory."""
    if gpu.usable_bytes >= 160 * GIB:
        return 16384
    return 8192 if gpu.usable_bytes >= 70 * GIB and "a100" not in gpu.name.lower() else 2048


# ----------------------------------------------------------------------------------------------- pages and groups


def page_layout(request: Request, options: VllmOptions) -> Layout:
    """The groups that vLLM forms of the model's layers. Raises InputError where it could not start."""
    if is_packed(request.model):
        version = parse_version(request.engine_version, NEWEST)
        return packed_layout(request, options.draft_layers, version)
    specs = _placed_specs(request, options)
    if not specs:
        raise InputError(f"{request.model.name} keeps no cache, so vLLM forms no blocks for it")
    base = request.block_size or (LATENT_BLOCK_SIZE if any(s.is_latent for s, _ in specs) else BLOCK_SIZE)
    kinds = {(spec.kind, spec.tokens) for spec, _ in specs}
    if not _has_groups({kind for kind, _ in kinds}, request, options):
        specs = [(replace(spec, kind="full", tokens=0), stage) for spec, stage in specs]
        kinds = {("full", 0)}
    if len(kinds) == 1 and kinds != {("state", 0)}:
        placed = [Placed(spec, stage, base, base * spec.token_bytes) for spec, stage in specs]
        return Layout((tuple(placed),), worst_stage_bytes(placed))
    return grouped(equal_pages(specs, raised_block(specs, base, request.max_model_len)))


def _has_groups(kinds: set[str], request: Request, options: VllmOptions) -> bool:
    """Whether window layers have groups of their own. With states they always do."""
    if "state" in kinds:
        return True
    if options.hybrid_manager is not None:
        return options.hybrid_manager
    first = CHUNK_GROUPS if "chunk" in kinds else HYBRID_MANAGER
    return parse_version(request.engine_version, NEWEST) >= first


def _placed_specs(request: Request, options: VllmOptions) -> list[tuple[CacheSpec, int]]:
    rule = state_rule(request.model, options)
    kv, tensor_parallel = request.kv, request.tensor_parallel
    found = [
        (spec, index)
        for index, stage in enumerate(request.model.stages(request.pipeline_parallel))
        for layer in stage.layers
        for spec in vllm_specs(layer, kv, tensor_parallel, rule)
    ]
    drafts = vllm_specs(_draft_layer(request.model), kv, tensor_parallel, rule) * options.draft_layers
    return found + [(spec, request.pipeline_parallel - 1) for spec in drafts if spec.kind != "state"]


def _draft_layer(model: Model) -> Layer:
    """The layer that a multi-token-prediction head repeats: the last that keeps every token."""
    growing = [layer for layer in model.layers if any(p.max_tokens is None for p in layer.cache.cache_parts())]
    return growing[-1] if growing else model.layers[-1]


def vllm_specs(layer: Layer, kv: KvDtype, tensor_parallel: int, rule: StateRule) -> tuple[CacheSpec, ...]:
    """What `layer` asks for; the indexer of sparse MLA keeps its own 8-bit rows whatever the cache dtype."""
    specs = layer_specs(layer, kv, tensor_parallel, rule)
    if layer.cache.kind != "indexed_latent":
        return specs
    eight_bit = layer_specs(layer, as_kv_dtype("fp8"), tensor_parallel, rule)
    return (specs[0], *eight_bit[1:])


def state_rule(model: Model, options: VllmOptions) -> StateRule:
    """How vLLM stores the recurrent state of this model."""
    dtype = compute_dtype(model)
    keeps = model.model_type.startswith(FLOAT32_STATES)
    return StateRule(options.state_dtype or (None if keeps else dtype), dtype, options.draft_tokens)


# ---------------------------------------------------------------------------------------------------------- notes


def _version_notes(request: Request, version: Version) -> list[str]:
    newest = ".".join(map(str, NEWEST))
    if request.engine_version is None:
        return [f"no vLLM version is given: the rules of {newest} are used"]
    if version[:2] > NEWEST:
        return [f"vLLM {'.'.join(map(str, version))} is newer than {newest}, the newest whose rules are known here"]
    return []


def _notes(request: Request, options: VllmOptions, layout: Layout, version: Version) -> tuple[str, ...]:
    kinds = {group[0].spec.kind for group in layout.groups}
    found = _version_notes(request, version) + index_notes(request.model, request.kv)
    if len(layout.groups) > 1:
        found.append(
            f"{len(layout.groups)} groups of layers share one pool of blocks, so the printed cache size is not the "
            "number of tokens that fit: "
            + ("it is max_concurrency times max_model_len" if version >= CAPACITY_LINE else "it divides by the groups")
        )
    if layout.phantom_layers:
        found.append(f"groups are filled up with {counted(layout.phantom_layers, 'empty layer')}")
    if kinds & {"window", "chunk"} and request.max_num_batched_tokens is None:
        found.append(
            f"window layers reserve for max_num_batched_tokens, which is not given: {ASSUMED_BATCHED_TOKENS} is assumed"
        )
    if request.context_parallel > 1:
        found.append(
            f"tokens are spread over {counted(request.context_parallel, 'GPU')}: each holds its share of a sequence"
        )
    if kinds == {"full"} and _has_windows(request.model):
        found.append("window layers are paged like full attention: the hybrid cache manager is off")
    if "state" in kinds and not request.model.model_type.startswith(FLOAT32_STATES) and options.state_dtype is None:
        found.append(
            f"recurrent state is kept as {compute_dtype(request.model).name}; mamba_ssm_cache_dtype changes it"
        )
    if request.model.dtype is None:
        found.append("the config states no dtype: 16 bits a value are counted for what is not quantized")
    return tuple(found)


def _has_windows(model: Model) -> bool:
    parts = (part for layer, _ in model.layer_runs for part in layer.cache.cache_parts())
    return any(part.max_tokens is not None for part in parts)
