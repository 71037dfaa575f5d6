"""What the layers of a GGUF file keep: one rule for each architecture, by its keys.

Defaults and window patterns are those of llama.cpp (`src/llama-model.cpp`, one function an architecture). What a
rule finds is checked against the shapes of the layer's tensors, so that no default is taken on trust.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from kvplan.attention import (
    ChunkedAttention,
    CombinedCache,
    FullAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    NoCache,
    RecurrentState,
    SharedCache,
    ShortConvolution,
    SlidingAttention,
)
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.importer.gguf_keys import GgufKeys
from kvplan.importer.gguf_reader import GgufTensor
from kvplan.importer.gguf_tensors import LayerHeads, base_name
from kvplan.units import counted

FP32 = WEIGHT_FORMATS["fp32"]
LLAMA4_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What one layer keeps, and the tensors that must say the same.

    needs  (name, input features, output rows) of tensors that must be there
    may    further names that say something about the cache and may be there
    """

    cache: LayerCache
    heads: LayerHeads
    needs: tuple[tuple[str, int, int], ...] = ()
    may: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sizes:
    """What every rule starts from; `heads` and `kv_heads` have one entry a layer."""

    keys: GgufKeys
    layers: int
    hidden: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    experts: int
    experts_used: int

    @property
    def key_length(self) -> int:
        return self.keys.integer("attention.key_length", self._shared_width())

    @property
    def value_length(self) -> int:
        return self.keys.integer("attention.value_length", self._shared_width())

    def window_lengths(self, wide: tuple[int, int]) -> tuple[int, int]:
        """Values of a key and of a value in layers with a window."""
        key = self.keys.integer("attention.key_length_swa", wide[0])
        return key, self.keys.integer("attention.value_length_swa", wide[1])

    def _shared_width(self) -> int:
        """hidden / heads of the first layer that has heads."""
        heads = next((count for count in self.heads if count), self.hidden)
        return max(self.hidden // heads, 1)

    def layer_heads(self, index: int, key: int, value: int) -> LayerHeads:
        """The heads of layer `index`; none where it has no KV heads."""
        kv_heads = self.kv_heads[index]
        heads = self.heads[index] if kv_heads else 0
        if heads % (kv_heads or 1):
            raise self.keys.error(
                f"layer {index} has {counted(heads, 'head')}, not a multiple of its {counted(kv_heads, 'KV head')}"
            )
        return LayerHeads(heads, kv_heads, key, value, False, self.experts, self.experts_used)

    def no_heads(self, recurrent: bool) -> LayerHeads:
        return LayerHeads(0, 0, 1, 1, recurrent, self.experts, self.experts_used)


Rule = Callable[[Sizes], Sequence[LayerPlan]]


def read_sizes(keys: GgufKeys, layers: int) -> Sizes:
    """The common keys. Raises ConfigError where one is missing or of the wrong type."""
    heads = keys.per_layer("attention.head_count", layers, 0)
    stated = keys.raw("attention.head_count_kv") is not None
    return Sizes(
        keys=keys,
        layers=layers,
        hidden=keys.integer("embedding_length"),
        heads=heads,
        kv_heads=keys.per_layer("attention.head_count_kv", layers, 0) if stated else heads,
        experts=keys.integer("expert_count", 0, low=0),
        experts_used=keys.integer("expert_used_count", 0, low=0),
    )


# -------------------------------------------------------------------------------------------------------- attention

Kind = Callable[[int, int, int | None], LayerCache]


def _attention(sizes: Sizes, index: int, make: Kind, lengths: tuple[int, int]) -> LayerPlan:
    """K and V of `lengths` values for each KV head of layer `index`; no cache where it has none."""
    heads = sizes.layer_heads(index, *lengths)
    if not heads.kv_heads:
        return LayerPlan(NoCache(), heads)
    if not heads.heads:
        raise sizes.keys.error(f"layer {index} has {counted(heads.kv_heads, 'KV head')} and no attention heads")
    key, value = lengths
    cache = make(heads.kv_heads, key, None if value == key else value)
    needs = (("attn_k", sizes.hidden, heads.kv_heads * key),)
    return LayerPlan(cache, heads, needs, frozenset({"attn_v", "attn_qkv"}))


def _sliding(window: int) -> Kind:
    return lambda heads, key, value: SlidingAttention(heads, key, value, window=window)


def _chunked(chunk: int) -> Kind:
    return lambda heads, key, value: ChunkedAttention(heads, key, value, chunk=chunk)


def full(sizes: Sizes) -> Sequence[LayerPlan]:
    """Full attention in every layer that has KV heads."""
    return _mixed(sizes, [False] * sizes.layers, FullAttention)


def _mixed(sizes: Sizes, limited: Sequence[bool], make: Kind) -> Sequence[LayerPlan]:
    """`make` in the layers of `limited`, whose heads may be of another width; full attention in the others."""
    wide = (sizes.key_length, sizes.value_length)
    narrow = sizes.window_lengths(wide)
    return [
        _attention(sizes, index, make if limited[index] else FullAttention, narrow if limited[index] else wide)
        for index in range(sizes.layers)
    ]


def windowed(sizes: Sizes, period: int, default: int | None = None) -> Sequence[LayerPlan]:
    """A window in all layers but the last of each `period`; without window where the key says 0, or is absent and
    llama.cpp has no default."""
    window = sizes.keys.integer("attention.sliding_window", default, low=0)
    limited = sizes.keys.windows("attention.sliding_window_pattern", sizes.layers, period)
    return _mixed(sizes, limited, _sliding(window)) if window else full(sizes)


def with_window(sizes: Sizes, period: int) -> Sequence[LayerPlan]:
    """As `windowed`, for architectures whose files always state the window."""
    sizes.keys.integer("attention.sliding_window")
    return windowed(sizes, period)


def listed_windows(sizes: Sizes) -> Sequence[LayerPlan]:
    """A window in the layers that the file lists; without list it must state that there is none."""
    keys = sizes.keys
    window = keys.integer("attention.sliding_window", 0, low=0)
    if window and not keys.has("attention.sliding_window_pattern"):
        name = f"{keys.architecture}.attention.sliding_window_pattern"
        raise keys.error(f"lacks {name}, which says which layers have a window")
    return windowed(sizes, 0, 0) if window else full(sizes)


def smallthinker(sizes: Sizes) -> Sequence[LayerPlan]:
    """4,096 tokens, whatever the key says, in all layers but the first of each four."""
    keys = sizes.keys
    if not keys.integer("attention.sliding_window", 0, low=0):
        return full(sizes)
    period = keys.integer("attention.sliding_window_pattern", 4)
    return _mixed(sizes, [bool(index % period) for index in range(sizes.layers)], _sliding(4096))


def llama4(sizes: Sizes) -> Sequence[LayerPlan]:
    """Chunks of 8,192 tokens in three of four layers, unless the key says 0."""
    if sizes.keys.integer("attention.sliding_window", LLAMA4_CHUNK, low=0) == 0:
        return full(sizes)
    limited = sizes.keys.windows("attention.sliding_window_pattern", sizes.layers, 4)
    return _mixed(sizes, limited, _chunked(LLAMA4_CHUNK))


def exaone4(sizes: Sizes) -> Sequence[LayerPlan]:
    """As `windowed`; llama.cpp knows the window of the model with 64 layers by itself."""
    return windowed(sizes, 4, 4096 if sizes.layers == 64 else None)


def gemma3n(sizes: Sizes) -> Sequence[LayerPlan]:
    """As Gemma 4; where the file does not say how many layers share, those after the first 20 do."""
    return _gemma_shared(sizes, 5, max(sizes.layers - 20, 0))


def gemma4(sizes: Sizes) -> Sequence[LayerPlan]:
    """The file must list which layers have a window."""
    if not sizes.keys.has("attention.sliding_window_pattern"):
        raise sizes.keys.error("lacks gemma4.attention.sliding_window_pattern, which says which layers have a window")
    return _gemma_shared(sizes, 0, 0)


def _gemma_shared(sizes: Sizes, period: int, shared: int) -> Sequence[LayerPlan]:
    """Heads of other widths in window layers, and last layers that read an earlier layer's cache."""
    keys = sizes.keys
    window = keys.integer("attention.sliding_window")
    limited = keys.windows("attention.sliding_window_pattern", sizes.layers, period)
    wide = (sizes.key_length, sizes.value_length)
    narrow = sizes.window_lengths(wide)
    first_shared = sizes.layers - keys.integer("attention.shared_kv_layers", shared, low=0)
    plans = [
        _attention(sizes, index, _sliding(window) if slides else FullAttention, narrow if slides else wide)
        for index, slides in enumerate(limited)
    ]
    return [
        plan if index < first_shared else _shared(sizes, plan, limited[:first_shared], limited[index])
        for index, plan in enumerate(plans)
    ]


def _shared(sizes: Sizes, plan: LayerPlan, owners: Sequence[bool], slides: bool) -> LayerPlan:
    """A layer that reads the last of the layers before that keep a cache of its kind."""
    if slides not in owners:
        raise sizes.keys.error("attention.shared_kv_layers leaves no layer whose cache the others could read")
    source = max(index for index, kind in enumerate(owners) if kind == slides)
    return LayerPlan(SharedCache(source), plan.heads, (), frozenset({"attn_k", "attn_v"}))


Row = Callable[[int, int, int], LayerCache]
"""The index of a layer, the values of its latent and of its rope row -> what it keeps."""


def latent(sizes: Sizes) -> Sequence[LayerPlan]:
    """DeepSeek 2 and 3, Kimi K2, Mistral 4: one latent and one rope row a token."""
    return [_latent(sizes, index, lambda _, rank, rope: LatentAttention(rank, rope)) for index in range(sizes.layers)]


def _latent(sizes: Sizes, index: int, make: Row) -> LayerPlan:
    keys = sizes.keys
    rank, rope = keys.integer("attention.kv_lora_rank"), keys.integer("rope.dimension_count")
    keys.raw("attention.key_length"), keys.raw("attention.value_length")  # of K and V as some engines expand them
    if not sizes.heads[index]:
        raise keys.error("attention.head_count is 0 in a layer of latent attention")
    found = LayerHeads(sizes.heads[index], 0, 1, 1, False, sizes.experts, sizes.experts_used)
    return LayerPlan(make(index, rank, rope), found, (("attn_kv_a_mqa", sizes.hidden, rank + rope),))


def indexed_latent(sizes: Sizes) -> Sequence[LayerPlan]:
    """DeepSeek 3.2 and GLM 5: besides, the key of an indexer, in the layers that have one of their own."""
    keys = sizes.keys
    keys.integer("attention.indexer.head_count")
    width, topk = keys.integer("attention.indexer.key_length"), keys.integer("attention.indexer.top_k")
    own = _own_indexers(sizes)
    plans = [
        _latent(sizes, at, lambda i, rank, rope: IndexedLatentAttention(rank, rope, width if own[i] else None, topk))
        for at in range(sizes.layers)
    ]
    needs = (("indexer.attn_k", sizes.hidden, width),)
    return [replace(plan, needs=plan.needs + needs) if own[at] else plan for at, plan in enumerate(plans)]


LONG_CONTEXT = 1_048_576
"""From this context on, GLM's indexers are shared where a file does not say: three of four layers have none."""


def _own_indexers(sizes: Sizes) -> Sequence[bool]:
    keys = sizes.keys
    if keys.has("attention.indexer.types"):
        return keys.windows("attention.indexer.types", sizes.layers, 0)
    shared = keys.architecture == "glm-dsa" and (keys.integer("context_length", 0, low=0) >= LONG_CONTEXT)
    return [not shared or index < 2 or index % 4 == 2 for index in range(sizes.layers)]


# ---------------------------------------------------------------------------------------------------------- recurrent


@dataclass(frozen=True, slots=True)
class _Ssm:
    """The sizes of a recurrent layer under llama.cpp's names; the state and the convolution are float32 there."""

    inner: int
    state: int
    kernel: int
    heads: int
    groups: int

    @property
    def channels(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def mamba(self) -> LayerCache:
        return RecurrentState(self.inner, self.state, FP32, self.inner, self.kernel, FP32)

    def mamba2(self) -> LayerCache:
        elements = self.inner // self.heads * self.state
        groups = (self.groups, 2 * self.state) if self.groups else (0, 0)
        return RecurrentState(self.heads, elements, FP32, self.inner, self.kernel, FP32, *groups)

    def delta(self) -> LayerCache:
        elements = self.inner // self.heads * self.state
        return RecurrentState(self.heads, elements, FP32, self.channels, self.kernel, FP32)


def _read_ssm(sizes: Sizes) -> _Ssm:
    keys = sizes.keys
    return _Ssm(
        inner=keys.integer("ssm.inner_size"),
        state=keys.integer("ssm.state_size"),
        kernel=keys.integer("ssm.conv_kernel"),
        heads=keys.integer("ssm.time_step_rank"),
        groups=keys.integer("ssm.group_count", 0, low=0),
    )


def _headed_ssm(sizes: Sizes) -> _Ssm:
    found = _read_ssm(sizes)
    if found.inner % found.heads:
        raise sizes.keys.error(
            f"ssm.inner_size {found.inner:,} is not a multiple of its {counted(found.heads, 'head')}"
        )
    return found


def _recurrent(sizes: Sizes, ssm: _Ssm, cache: LayerCache, *may: str) -> LayerPlan:
    needs = (("ssm_conv1d", ssm.kernel, ssm.channels),)
    return LayerPlan(cache, sizes.no_heads(recurrent=True), needs, frozenset(may))


def _by_kv_heads(sizes: Sizes, other: Callable[[int], LayerPlan]) -> Sequence[LayerPlan]:
    """Full attention in the layers that have KV heads, `other` in those that have none."""
    return [plan if sizes.kv_heads[index] else other(index) for index, plan in enumerate(full(sizes))]


def mamba(sizes: Sizes) -> Sequence[LayerPlan]:
    """Mamba in the layers without KV heads, attention in the others (Jamba)."""
    ssm = _read_ssm(sizes)
    if ssm.groups:
        raise sizes.keys.error("ssm.group_count belongs to Mamba-2")
    plan = _recurrent(sizes, ssm, ssm.mamba())
    return _by_kv_heads(sizes, lambda _: plan)


def mamba2(sizes: Sizes) -> Sequence[LayerPlan]:
    """Mamba-2 in the layers without KV heads, attention in the others (Granite 4)."""
    ssm = _headed_ssm(sizes)
    plan = _recurrent(sizes, ssm, ssm.mamba2())
    return _by_kv_heads(sizes, lambda _: plan)


def nemotron_h(sizes: Sizes) -> Sequence[LayerPlan]:
    """Attention, Mamba-2, or an MLP alone: the last where the layer has an MLP's width."""
    ssm = _headed_ssm(sizes)
    widths = sizes.keys.per_layer("feed_forward_length", sizes.layers, 0)
    plan, alone = _recurrent(sizes, ssm, ssm.mamba2()), LayerPlan(NoCache(), sizes.no_heads(recurrent=False))
    return _by_kv_heads(sizes, lambda index: alone if widths[index] else plan)


def falcon_h1(sizes: Sizes) -> Sequence[LayerPlan]:
    """Attention and Mamba-2 side by side in every layer."""
    ssm = _headed_ssm(sizes)
    beside = _recurrent(sizes, ssm, ssm.mamba2())
    return [
        replace(plan, cache=CombinedCache((plan.cache, beside.cache)), needs=(*plan.needs, *beside.needs))
        for plan in full(sizes)
    ]


def gated_delta(sizes: Sizes) -> Sequence[LayerPlan]:
    """Gated delta layers, with full attention in every `full_attention_interval`-th layer (Qwen3-Next, Qwen3.5)."""
    ssm = _headed_ssm(sizes)
    interval = sizes.keys.integer("full_attention_interval", 4)
    stated = sizes.keys.has("attention.recurrent_layers")
    recurrent = sizes.keys.windows("attention.recurrent_layers", sizes.layers, interval) if stated else [
        bool((index + 1) % interval) for index in range(sizes.layers)
    ]  # fmt: skip
    plan = _recurrent(sizes, ssm, ssm.delta(), "attn_qkv")
    return [plan if recurrent[index] else other for index, other in enumerate(full(sizes))]


def kimi_linear(sizes: Sizes) -> Sequence[LayerPlan]:
    """Delta attention with a decay for each channel where a layer has no KV heads, latent attention in the others."""
    width, kernel = sizes.keys.integer("kda.head_dim"), sizes.keys.integer("ssm.conv_kernel")

    def delta(index: int) -> LayerPlan:
        heads = sizes.heads[index]
        if not heads:
            raise sizes.keys.error(f"layer {index} has no attention heads")
        cache = RecurrentState(heads, width * width, FP32, 3 * heads * width, kernel, FP32)
        needs = tuple((f"ssm_conv1d_{name}", kernel, heads * width) for name in "qkv")
        return LayerPlan(cache, sizes.no_heads(recurrent=True), needs, frozenset({"attn_k", "attn_v"}))

    own = [_latent(sizes, at, lambda _, rank, rope: LatentAttention(rank, rope)) for at in range(sizes.layers)]
    return [plan if sizes.kv_heads[at] else delta(at) for at, plan in enumerate(own)]


def rwkv(sizes: Sizes, shifts: int = 2) -> Sequence[LayerPlan]:
    """A matrix for each head, and the last token's input of each of the `shifts` blocks of a layer."""
    keys = sizes.keys
    width = keys.integer("wkv.head_size")
    found = keys.integer("token_shift_count", shifts)
    if found != shifts or sizes.hidden % width:
        raise keys.error(f"{found} token shifts and heads of {width:,} are not those of this architecture")
    cache = RecurrentState(sizes.hidden // width, width * width, FP32, sizes.hidden, shifts, FP32)
    needs = (("time_mix_output", sizes.hidden, sizes.hidden),)
    return [LayerPlan(cache, sizes.no_heads(recurrent=True), needs)] * sizes.layers


def short_convolution(sizes: Sizes) -> Sequence[LayerPlan]:
    """Gated short convolutions in the layers without KV heads, attention in the others (LFM2)."""
    width = sizes.keys.integer("shortconv.l_cache")
    cache = ShortConvolution(sizes.hidden, width, FP32)
    plan = LayerPlan(cache, sizes.no_heads(recurrent=False), (("shortconv.conv", width, sizes.hidden),))
    return _by_kv_heads(sizes, lambda _: plan)


# ------------------------------------------------------------------------------------------------------------- checks

_GIVEAWAYS = frozenset(
    {"attn_k", "attn_v", "attn_qkv", "attn_kv_a_mqa", "ssm_conv1d", "shortconv.conv", "time_mix_output",
     "ssm_conv1d_q", "indexer.attn_k"}
)  # fmt: skip
"""Tensors that only a layer which keeps something has."""


def check_layer(keys: GgufKeys, index: int, plan: LayerPlan, tensors: Sequence[GgufTensor]) -> None:
    """What a layer keeps must be what its tensors make. Raises ConfigError."""
    names = (base_name(tensor.name.split(".", 2)[2]) for tensor in tensors)
    shapes = {name: tensor.shape for name, tensor in zip(names, tensors, strict=True) if len(tensor.shape) > 1}
    label = plan.cache.label
    for name, columns, rows in plan.needs:
        if name == "attn_k" and "attn_qkv" in shapes and name not in shapes:
            continue  # one tensor for all three, whose rows are checked where they are counted
        if name not in shapes:
            raise keys.error(f"layer {index} should have {label}, but holds no {name}")
        shape = shapes[name]
        if (shape[0], prod(shape[1:])) != (columns, rows):
            found = " x ".join(f"{size:,}" for size in shape)
            raise keys.error(f"{name} of layer {index} is {found}; the keys make it {columns:,} x {rows:,}")
    _check_value(keys, index, plan, shapes)
    if strange := shapes.keys() & (_GIVEAWAYS - {name for name, *_ in plan.needs} - plan.may):
        raise keys.error(f"layer {index} should have {label}, but holds {min(strange)}")


def _check_value(keys: GgufKeys, index: int, plan: LayerPlan, shapes: dict[str, tuple[int, ...]]) -> None:
    """Values have no tensor where they are the keys (Gemma 4)."""
    expected = plan.heads.kv_heads * plan.heads.value_length
    rows = prod(shapes.get("attn_v", (1, expected))[1:])
    if plan.needs and plan.heads.kv_heads and rows != expected:
        raise keys.error(f"attn_v of layer {index} has {counted(rows, 'row')}; its heads make {expected:,}")


_FULL = (
    "llama", "mistral3", "deci", "baichuan", "falcon", "grok", "gpt2", "gptneox", "mpt", "bloom", "refact", "starcoder",
    "starcoder2", "stablelm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe",
    "phi2", "plamo", "codeshell", "orion", "internlm2", "minicpm", "gemma", "xverse", "command-r", "dbrx", "olmo",
    "olmoe", "openelm", "arctic", "deepseek", "chatglm", "glm4", "glm4moe", "bitnet", "exaone", "granite", "granitemoe",
    "smollm3", "dots1", "arcee", "ernie4_5", "ernie4_5-moe", "hunyuan-moe", "hunyuan-dense", "seed_oss", "apertus",
    "minimax-m2", "nemotron", "bailingmoe", "bailingmoe2", "jais", "jais2", "maincoder", "pangu-embedded", "chameleon",
    "hunyuan_vl", "hy_v3", "paddleocr", "deepseek2-ocr", "talkie",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(_FULL, full),
    "gemma2": partial(windowed, period=2, default=4096),
    "gemma3": partial(windowed, period=6),
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "gpt-oss": partial(with_window, period=2),
    "cohere2": partial(with_window, period=4),
    "olmo2": partial(windowed, period=4),
    "exaone4": exaone4,
    "phi3": partial(windowed, period=0),
    "phimoe": partial(windowed, period=0),
    "llama4": llama4,
    **dict.fromkeys(("afmoe", "mellum"), partial(windowed, period=4)),
    "plamo3": partial(windowed, period=8),
    "smallthinker": smallthinker,
    **dict.fromkeys(("cohere2moe", "exaone-moe", "laguna", "mimo2", "step35"), listed_windows),
    **dict.fromkeys(("deepseek2", "mistral4", "minicpm3", "plm"), latent),
    **dict.fromkeys(("deepseek32", "glm-dsa"), indexed_latent),
    "kimi-linear": kimi_linear,
    **dict.fromkeys(("rwkv6", "rwkv7"), rwkv),
    **dict.fromkeys(("rwkv6qwen2", "arwkv7"), partial(rwkv, shifts=1)),
    "plamo2": mamba2,
    "mamba": mamba,
    "mamba2": mamba2,
    "jamba": mamba,
    "nemotron_h": nemotron_h,
    "nemotron_h_moe": nemotron_h,
    "granitehybrid": mamba2,
    "falcon-h1": falcon_h1,
    "qwen3next": gated_delta,
    "qwen35": gated_delta,
    "qwen35moe": gated_delta,
    "lfm2": short_convolution,
    "lfm2moe": short_convolution,
}
"""The rule of each architecture by llama.cpp's name for it."""

NOTES = {
    **dict.fromkeys(
        ("minicpm3", "plm"), "llama.cpp keeps K and V of every head of this architecture; the latent is counted"
    ),
    **dict.fromkeys(("phi3", "phimoe"), "llama.cpp ignores the window of this architecture and keeps every token"),
    **dict.fromkeys(
        ("mamba", "mamba2", "jamba", "nemotron_h", "nemotron_h_moe", "granitehybrid", "falcon-h1", "qwen3next",
         "qwen35", "qwen35moe", "lfm2", "lfm2moe", "plamo2", "kimi-linear", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"),
        "recurrent and convolution state are float32, as llama.cpp keeps them",
    ),
}  # fmt: skip
"""What a user should know of an architecture's cache."""

_ENCODER = "it is an encoder, or makes embeddings, and keeps no cache"
_DIFFUSION = "it is a diffusion model, which reads all tokens at once and keeps no cache"
_DRAFT = "it only drafts tokens for another model, whose cache and states it reads"

REFUSED = {
    **dict.fromkeys(
        ("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
         "gemma-embedding", "llama-embed", "t5encoder"),
        _ENCODER,
    ),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("gemma4-assistant", "eagle3", "dflash"), _DRAFT),
    "clip": "it is a vision or audio tower (mmproj); import the model that it belongs to",
    "wavtokenizer-dec": "it decodes audio and is no language model",
    "t5": "it has an encoder besides, and a cache for the encoder's output",
    "gptj": "llama.cpp has its name and cannot load it",
    "deepseek4": "no rule reads the keys and tensors of its compressed layers; import its config.json",
    "cogvlm": "it holds a second set of every matrix for images, under names of its own",
    "grovemoe": "its groups of experts have experts of their own, and how many a token reads depends on its choice",
}  # fmt: skip
"""Architectures that llama.cpp names and no rule counts, with the reason."""

EXPANDED = (
    "llama.cpp keeps K and V of every head for files of this age, which lack attention.key_length_mla; "
    "the latent is counted"
)
"""Of DeepSeek 2 files whose matrices are not absorbed."""
