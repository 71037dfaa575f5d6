"""llama.cpp, and Ollama's way of calling it: cells for a context, K and V in their own types, a pool for windows.

Read from `src/llama-kv-cache.cpp` and `src/llama-memory-recurrent.cpp`, and checked against public logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvplan.attention import CachePart, LayerCache, StatePart
from kvplan.dtypes import WEIGHT_FORMATS, KvDtype, kv_dtype
from kvplan.engines.capacity import EngineCapacity, Request, longest_context, ratio, true_or_false
from kvplan.engines.layers import StateRule, members
from kvplan.errors import InputError, UnknownNameError
from kvplan.model import Layer, Model, require_model
from kvplan.units import MIB, counted, whole_number

PAD = 256
"""Cells come in multiples of this in newer builds."""
OLDER_PAD = 32
UBATCH = 512

CACHE_TYPES = {
    "f32": "fp32", "f16": "fp16", "bf16": "bf16", "q8_0": "q8_0", "q5_1": "q5_1", "q5_0": "q5_0", "q4_1": "q4_1",
    "q4_0": "q4_0", "iq4_nl": "iq4_nl", "i8": "int8",
}  # fmt: skip
"""`--cache-type-k` and `--cache-type-v`, by kvplan's name of the format."""


@dataclass(frozen=True, slots=True)
class LlamaCppOptions:
    """Options that only llama.cpp has.

    type_k, type_v  types of keys and values; V follows K only where both are given alike
    slots           sequences (`--parallel`): the context is the total over them
    unified         one stream of cells for all slots (`--kv-unified`)
    ubatch          `--ubatch-size`
    pad             multiple that cells are rounded up to
    swa_full        window layers keep every cell (`--swa-full`, and builds without a window pool)
    latent          MLA rows as the model keeps them; False: K and V of every head (`-mla 0`, older builds)
    """

    type_k: str = "f16"
    type_v: str = "f16"
    slots: int = 1
    unified: bool = False
    ubatch: int = UBATCH
    pad: int = PAD
    swa_full: bool = False
    latent: bool = True


@dataclass(frozen=True, slots=True)
class KvBytes:
    """What llama.cpp allocates for a context.

    cells, window_cells  cells of the full pool, and of the pool of window layers (0 where there is none)
    k_bytes, v_bytes     keys and values, both pools
    r_bytes, s_bytes     convolution and recurrent state, float32, all sequences
    """

    cells: int
    window_cells: int
    k_bytes: int
    v_bytes: int
    r_bytes: int
    s_bytes: int

    @property
    def kv_bytes(self) -> int:
        return self.k_bytes + self.v_bytes

    @property
    def total_bytes(self) -> int:
        return self.kv_bytes + self.r_bytes + self.s_bytes


def cache_types(type_k: str, type_v: str) -> KvDtype:
    """The two types as one cache dtype. Raises UnknownNameError."""
    for name in (type_k, type_v):
        if not isinstance(name, str) or name not in CACHE_TYPES:
            raise UnknownNameError("llama.cpp cache type", name, CACHE_TYPES)
    return kv_dtype(f"{CACHE_TYPES[type_k]}/{CACHE_TYPES[type_v]}")


def cache_type_name(name: str) -> str:
    """llama.cpp's name of one of kvplan's formats. Raises InputError where it has none."""
    for theirs, ours in CACHE_TYPES.items():
        if ours == name:
            return theirs
    raise InputError(f"llama.cpp has no cache type for {name}; one of {', '.join(CACHE_TYPES)} is needed")


def kv_bytes(
    model: Model, n_ctx: int, type_k: str = "f16", type_v: str = "f16", tensor_parallel: int = 1, **options: object
) -> KvBytes:
    """Bytes of the KV cache that llama.cpp allocates for a context of `n_ctx` cells over all slots.

    options  fields of LlamaCppOptions: slots, unified, ubatch, pad, swa_full, latent

    Raises InputError, UnknownNameError or DtypeError.
    """
    require_model(model)
    chosen = llamacpp_options(type_k=type_k, type_v=type_v, **options)
    return allocated(model, whole_number(n_ctx, "n_ctx"), chosen, tensor_parallel)


def llamacpp_options(**given: object) -> LlamaCppOptions:
    """Options from keyword arguments. Raises UnknownNameError or InputError."""
    for name in given:
        if name not in LlamaCppOptions.__dataclass_fields__:
            raise UnknownNameError("llama.cpp option", name, LlamaCppOptions.__dataclass_fields__)
    options = replace(LlamaCppOptions(), **given)  # type: ignore[arg-type]
    for name in ("slots", "ubatch", "pad"):
        whole_number(getattr(options, name), name)
    for name in ("unified", "swa_full", "latent"):
        true_or_false(getattr(options, name), name)
    return options


def allocated(model: Model, n_ctx: int, options: LlamaCppOptions, tensor_parallel: int = 1) -> KvBytes:
    """`kv_bytes` from checked options."""
    types = cache_types(options.type_k, options.type_v)
    if tensor_parallel > 1 and any(layer.cache.kind.endswith("latent") for layer, _ in model.layer_runs):
        raise InputError(
            f"llama.cpp does not divide the latent layers of {model.name} (--split-mode tensor); let it spread whole "
            "layers over the GPUs, with tensor_parallel 1"
        )
    streams = 1 if options.unified else options.slots
    each = _padded(n_ctx // streams if streams > 1 else n_ctx, options.pad)
    sums = {"key": 0, "value": 0, "convolution": 0, "state": 0}
    window_cells = 0
    for layer, count in model.layer_runs:
        for role, part in _parts(layer, options):
            cells = _stream_cells(part, each, options)
            window_cells = max(window_cells, cells * streams if _is_window(part, options) else 0)
            sums[role] += count * cells * streams * part.entry_bytes(types, tensor_parallel)
        for state in _states(layer):
            sums[_state_role(state)] += count * options.slots * state.bytes(types, tensor_parallel)
    return KvBytes(each * streams, window_cells, sums["key"], sums["value"], sums["convolution"], sums["state"])


def _padded(cells: int, pad: int) -> int:
    return -(-cells // pad) * pad


def _is_window(part: CachePart, options: LlamaCppOptions) -> bool:
    return part.max_tokens is not None and not options.swa_full


def _stream_cells(part: CachePart, each: int, options: LlamaCppOptions) -> int:
    """Cells of one stream: a window keeps its tokens, of every slot where they share it, and one micro-batch."""
    if part.max_tokens is None or options.swa_full:
        return each
    wanted = part.max_tokens * (options.slots if options.unified else 1) + options.ubatch
    return _padded(min(each, wanted), options.pad)


def _parts(layer: Layer, options: LlamaCppOptions) -> list[tuple[str, CachePart]]:
    """Growing parts of a layer, each as key or value. Latent rows are keys: the value is read from them."""
    return [pair for cache in members(layer.cache) for pair in _cache_parts(layer, cache, options)]


def _cache_parts(layer: Layer, cache: LayerCache, options: LlamaCppOptions) -> list[tuple[str, CachePart]]:
    if cache.kind in ("compressed", "cross", "indexed"):
        raise InputError(f"how llama.cpp stores {cache.label} is not known here; plan its resident bytes")
    if cache.kind.endswith("latent") and not options.latent:
        return _decompressed(layer)
    return [("value" if part.role == "value" else "key", _plain_role(part)) for part in cache.cache_parts()]


def _plain_role(part: CachePart) -> CachePart:
    """llama.cpp stores latent rows, their rope and index keys as it stores keys, in one row a token."""
    return part if part.role in ("key", "value") else replace(part, role="key")


def _decompressed(layer: Layer) -> list[tuple[str, CachePart]]:
    """K and V of every head of a latent layer, from the shapes of its projections."""
    heads = layer.num_attention_heads
    queries = max((g.rows for g in layer.weights if g.role == "attention_q"), default=0)
    outputs = max((g.columns for g in layer.weights if g.role == "attention_o"), default=0)
    if not heads or not queries or not outputs:
        raise InputError("the projections of a latent layer are not described, so its heads cannot be counted")
    return [
        ("key", CachePart("key", heads, queries // heads)),
        ("value", CachePart("value", heads, outputs // heads)),
    ]


def _states(layer: Layer) -> list[StatePart]:
    rule = StateRule(WEIGHT_FORMATS["fp32"], WEIGHT_FORMATS["fp32"])
    return [rule.apply(part) for cache in members(layer.cache) for part in cache.state_parts()]


def _state_role(part: StatePart) -> str:
    return "convolution" if part.role == "convolution" else "state"


# -------------------------------------------------------------------------------------------- as other engines see it


def capacity(request: Request, options: LlamaCppOptions) -> EngineCapacity:
    """The longest context whose cache fits into the pool.

    llama.cpp allocates all of it at the start, so that a block here is the whole context of every slot.
    """
    model, need = request.model, request.max_model_len

    def bytes_for(length: int) -> int:
        return allocated(model, length * options.slots, options, request.tensor_parallel).total_bytes

    longest = longest_context(bytes_for, request.pool_bytes)
    tokens = 0 if longest is None else longest // options.pad * options.pad
    needed = bytes_for(need)
    return EngineCapacity(
        engine="llama.cpp",
        pool_bytes=request.pool_bytes,
        num_blocks=request.pool_bytes // needed if needed else 0,
        tokens=tokens * options.slots,
        max_concurrency=ratio(request.pool_bytes, needed),
        bytes_per_block=needed,
        request_blocks=1,
        block_size=need,
        longest_context=longest,
        notes=(_note(needed, need, options),),
    )


def _note(needed: int, tokens: int, options: LlamaCppOptions) -> str:
    types = f"K as {options.type_k} and V as {options.type_v}"
    slots = f"each of {counted(options.slots, 'slot')}" if options.slots > 1 else "one slot"
    return f"all is allocated at the start: {needed / MIB:.2f} MiB for {counted(tokens, 'token')} in {slots}, {types}"


def ollama_context(num_ctx: int, num_parallel: int) -> int:
    """The context that Ollama asks of llama.cpp: every parallel request gets `num_ctx`."""
    return whole_number(num_ctx, "num_ctx") * whole_number(num_parallel, "num_parallel")
