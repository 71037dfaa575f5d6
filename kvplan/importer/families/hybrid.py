"""Families with recurrent layers other than Mamba: delta rules, short convolution, lightning attention, RG-LRU.

The state of most is float32 whatever the model's dtype, as transformers keeps it; the convolution keeps its last
inputs at the full width of its kernel, in the model's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.attention import (
    FullAttention,
    LatentAttention,
    LayerCache,
    RecurrentState,
    ShortConvolution,
    SlidingAttention,
)
from kvplan.blocks import (
    FP32,
    Groups,
    QkNorm,
    attention,
    gated_mlp,
    linear,
    norm,
    pinned_matrix,
    pinned_vector,
    router,
    short_filter,
    vector,
)
from kvplan.dtypes import StorageFormat
from kvplan.importer.decoder import (
    Parts,
    Shape,
    class_sizes,
    layers_of,
    read_shape,
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.families.deepseek import (
    Latent,
    common_switches,
    dense_layers,
    latent_experts,
    latent_shape,
    read_latent,
)
from kvplan.importer.families.moe import flag_list, layer_list, mixture, optional_child, skip_extra_predictions
from kvplan.importer.view import ConfigView
from kvplan.model import Layer, WeightGroup
from kvplan.units import counted

# ------------------------------------------------------------------------------------------------ shared pieces

LINEAR, FULL = "linear_attention", "full_attention"
OLD_NAMES = {"mamba": LINEAR, "attention": FULL}
"""Names of kinds of layer that older configs use."""


def block_kinds(view: ConfigView, names: Sequence[str], num_layers: int, known: Sequence[str]) -> list[str] | None:
    """The kind of each layer under one of `names`, by today's names, or None. Raises ConfigError."""
    found: list[str] | None = view.texts(*names, default=None, choices=(*known, *OLD_NAMES))
    if found is None:
        return None
    if len(found) != num_layers:
        raise view.error(f"{names[0]} has {counted(len(found), 'entry')} for {counted(num_layers, 'layer')}")
    return [OLD_NAMES.get(kind, kind) for kind in found]


def require_own_head(view: ConfigView) -> None:
    """Refuse a tied head, which the class does not build whatever the config says."""
    view.require("tie_word_embeddings", False, "the class builds a head of its own")


def attention_groups(shape: Shape, bias: bool = False, qk_norm: QkNorm = "none") -> Groups:
    """The projections of an attention layer of the common shape, with one switch for all biases."""
    return attention(
        shape.hidden, shape.heads, shape.kv_heads, shape.head_dim,
        q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias, qk_norm=qk_norm,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- gated delta rule


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """The sizes of a gated delta layer (Qwen3-Next, Qwen3.5)."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    def cache(self, dtype: StorageFormat | None) -> LayerCache:
        channels = 2 * self.keys + self.values
        return RecurrentState(self.value_heads, self.key_dim * self.value_dim, FP32, channels, self.kernel, dtype)

    def weights(self, hidden: int, inputs: Sequence[int]) -> Groups:
        """`inputs`: rows of the projections into the layer, which families fuse in their own ways."""
        return (
            *(group for rows in inputs for group in linear("recurrent", rows, hidden, split="rows")),
            *short_filter(2 * self.keys + self.values, self.kernel, bias=False),
            *vector("recurrent_state", self.value_heads, count=2, split="rows"),
            *norm(self.value_dim),
            *linear("recurrent", hidden, self.values, split="columns"),
        )


def read_gated_delta(view: ConfigView) -> GatedDelta:
    return GatedDelta(
        key_heads=view.integer("linear_num_key_heads"),
        key_dim=view.integer("linear_key_head_dim"),
        value_heads=view.integer("linear_num_value_heads"),
        value_dim=view.integer("linear_value_head_dim"),
        kernel=view.integer("linear_conv_kernel_dim"),
    )


def qwen_kinds(view: ConfigView, num_layers: int) -> list[str]:
    """layer_types, else full attention in every `full_attention_interval`-th layer."""
    interval = view.integer("full_attention_interval", default=4)
    stated = block_kinds(view, ("layer_types",), num_layers, (LINEAR, FULL))
    return stated or [LINEAR if (index + 1) % interval else FULL for index in range(num_layers)]


def qwen_experts(view: ConfigView, hidden: int) -> Groups:
    """Routed experts, and a shared one behind a gate of its own."""
    experts = view.integer("num_experts", "num_local_experts")
    moe = mixture(
        router(hidden, experts),
        hidden,
        view.integer("moe_intermediate_size"),
        experts,
        view.integer("num_experts_per_tok"),
        shared=view.integer("shared_expert_intermediate_size"),
    )
    return (*moe, *linear("shared_experts", 1, hidden))


def qwen3_next(view: ConfigView) -> Parts:
    """Three gated delta layers and one of gated attention in turn; experts."""
    shape = read_shape(view)
    view.require("use_sliding_window", False, "windows of this family are not known")
    lone = set(view.integers("mlp_only_layers", default=[]))
    step = view.integer("decoder_sparse_step")
    delta = read_gated_delta(view)
    inputs = (2 * delta.keys + 2 * delta.values, 2 * delta.value_heads)
    moe, dense = qwen_experts(view, shape.hidden), gated_mlp(shape.hidden, view.integer("intermediate_size"))
    routed = [index not in lone and (index + 1) % step == 0 for index in range(shape.num_layers)]
    return _gated_delta_decoder(view, shape, delta, inputs, [moe if is_routed else dense for is_routed in routed])


def qwen3_5(view: ConfigView) -> Parts:
    """As Qwen3-Next with a dense MLP, and the projections into the delta layer apart."""
    shape = read_shape(view)
    delta, inputs = _qwen3_5_delta(view)
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    return _gated_delta_decoder(view, shape, delta, inputs, [dense] * shape.num_layers)


def qwen3_5_moe(view: ConfigView) -> Parts:
    """As Qwen3.5 with experts in every layer."""
    shape = read_shape(view)
    delta, inputs = _qwen3_5_delta(view)
    view.pass_over("every layer holds experts", "intermediate_size")
    return _gated_delta_decoder(view, shape, delta, inputs, [qwen_experts(view, shape.hidden)] * shape.num_layers)


def _qwen3_5_delta(view: ConfigView) -> tuple[GatedDelta, tuple[int, ...]]:
    view.require("attn_output_gate", True, "the class always gates the attention output")
    view.require("mamba_ssm_dtype", "float32", "the class keeps the state in float32")
    view.require("mlp_only_layers", [], "the class builds the same MLP in every layer")
    view.pass_over("a setting of layers that are not part of the decoder", "mtp_use_dedicated_embeddings")
    delta = read_gated_delta(view)
    return delta, (2 * delta.keys + delta.values, delta.values, delta.value_heads, delta.value_heads)


def _gated_delta_decoder(
    view: ConfigView, shape: Shape, delta: GatedDelta, inputs: Sequence[int], mlps: Sequence[Groups]
) -> Parts:
    skip_extra_predictions(view)
    bias = view.flag("attention_bias")
    gate = linear("attention_gate", shape.heads * shape.head_dim, shape.hidden, bias=bias, split="rows")
    full = (*attention_groups(shape, bias, "head"), *gate)
    recurrent = delta.weights(shape.hidden, inputs)
    state, norms = delta.cache(view.dtype), norm(shape.hidden, count=2)

    def build(kind: tuple[str, Groups]) -> Layer:
        if kind[0] == FULL:
            return Layer(FullAttention(shape.kv_heads, shape.head_dim), (*full, *kind[1], *norms), shape.heads)
        return Layer(state, (*recurrent, *kind[1], *norms))

    kinds = list(zip(qwen_kinds(view, shape.num_layers), mlps, strict=True))
    return with_outer(shape, layers_of(kinds, build), norm(shape.hidden, role="final_norm"))


# -------------------------------------------------------------------------------------------------- short convolution


def lfm2(view: ConfigView) -> Parts:
    """Gated short convolutions and attention; the MLP shrinks to two thirds and is padded, unless told not to."""
    view.require("block_use_swiglu", True, "an MLP without gate is not known")
    shape = _lfm2_shape(view)
    for key in ("block_dim", "conv_dim", "conv_dim_out"):
        view.require(key, shape.hidden, "the class builds hidden_size channels")
    stated = layer_list(view, "layer_types", shape.num_layers, ("conv", FULL))
    full = view.integers("full_attn_idxs", default=list(range(shape.num_layers)))
    kinds = stated or [FULL if index in full else "conv" for index in range(shape.num_layers)]
    mlp = gated_mlp(shape.hidden, _lfm2_width(view))
    return _lfm2_layers(view, shape, kinds, [mlp] * shape.num_layers)


def _lfm2_shape(view: ConfigView) -> Shape:
    """tie_embedding overrides tie_word_embeddings."""
    shape = read_shape(view)
    return replace(shape, tied=view.flag("tie_embedding", default=shape.tied))


def _lfm2_width(view: ConfigView) -> int:
    """block_ff_dim overrides intermediate_size."""
    width = view.integer("block_ff_dim", default=None) or view.integer("intermediate_size")
    view.pass_over("block_ff_dim overrides it", "intermediate_size")
    multiple = view.integer("block_multiple_of")
    multiplier = view.number("block_ffn_dim_multiplier")
    if not view.flag("block_auto_adjust_ff_dim"):
        return int(width)
    width = int(2 * width / 3)
    return -(-int(multiplier * width) // int(multiple)) * int(multiple)


def lfm2_moe(view: ConfigView) -> Parts:
    """As LFM2, with experts behind the first `num_dense_layers` layers."""
    shape = _lfm2_shape(view)
    kinds = layer_list(view, "layer_types", shape.num_layers, ("conv", FULL))
    if kinds is None:
        raise view.error("lacks layer_types")
    view.pass_over("a buffer of one value an expert, not a parameter", "use_expert_bias")
    experts, first = view.integer("num_experts", "num_local_experts"), view.integer("num_dense_layers", low=0)
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    moe = mixture(
        router(shape.hidden, experts),
        shape.hidden,
        view.integer("moe_intermediate_size"),
        experts,
        view.integer("num_experts_per_tok"),
    )
    return _lfm2_layers(view, shape, kinds, [dense if index < first else moe for index in range(shape.num_layers)])


def _lfm2_layers(view: ConfigView, shape: Shape, kinds: Sequence[str], mlps: Sequence[Groups]) -> Parts:
    bias, width, hidden = view.flag("conv_bias"), view.integer("conv_L_cache"), shape.hidden
    convolution = (
        *linear("convolution", 3 * hidden, hidden, bias=bias, split="rows"),
        *short_filter(hidden, width, bias),
        *linear("convolution", hidden, hidden, bias=bias, split="columns"),
    )
    cache, norms = ShortConvolution(hidden, width, view.dtype), norm(hidden, count=2)
    full = attention_groups(shape, qk_norm="head")

    def build(kind: tuple[str, Groups]) -> Layer:
        if kind[0] == FULL:
            return Layer(FullAttention(shape.kv_heads, shape.head_dim), (*full, *kind[1], *norms), shape.heads)
        return Layer(cache, (*convolution, *kind[1], *norms))

    layers = layers_of(list(zip(kinds, mlps, strict=True)), build)
    return with_outer(shape, layers, norm(hidden, role="final_norm"))


# ------------------------------------------------------------------------------------------ lightning and RG-LRU


def minimax(view: ConfigView) -> Parts:
    """Lightning attention and full attention by layer_types, else in turn; experts in every layer."""
    shape = read_shape(view)
    stated = block_kinds(view, ("layer_types",), shape.num_layers, (LINEAR, FULL))
    return _minimax(view, shape, stated or [LINEAR if index % 2 else FULL for index in range(shape.num_layers)])


def minimax_m1(view: ConfigView) -> Parts:
    """As MiniMax, with 0 (lightning) and 1 (full) for each layer in attn_type_list."""
    view.require("shared_intermediate_size", 0, "shared experts of this family are not known")
    shape = read_shape(view)
    full = flag_list(view, view.integers("attn_type_list"), "attn_type_list", shape.num_layers)
    return _minimax(view, shape, [FULL if is_full else LINEAR for is_full in full])


def _minimax(view: ConfigView, shape: Shape, kinds: Sequence[str]) -> Parts:
    view.require("sliding_window", None, "windows of this family are not known")
    view.pass_over("how the sequence is cut", "block_size")
    hidden, values, experts = shape.hidden, shape.heads * shape.head_dim, view.integer("num_local_experts")
    width, per_token = view.integer("intermediate_size"), view.integer("num_experts_per_tok")
    common = (*mixture(router(hidden, experts), hidden, width, experts, per_token), *norm(hidden, count=2))
    lightning = (
        *linear("recurrent", 3 * values, hidden, split="rows"),
        *linear("recurrent", values, hidden, split="rows"),
        *linear("recurrent", hidden, values, split="columns"),
        *vector("norm", values, split="rows"),
    )
    state = RecurrentState(shape.heads, shape.head_dim**2, view.dtype)

    def build(kind: str) -> Layer:
        if kind == FULL:
            cache = FullAttention(shape.kv_heads, shape.head_dim)
            return Layer(cache, (*attention_groups(shape), *common), shape.heads)
        return Layer(state, (*lightning, *common))

    return with_outer(shape, layers_of(kinds, build), norm(hidden, role="final_norm"))


def recurrent_gemma(view: ConfigView) -> Parts:
    """RG-LRU blocks and window attention, as block_types repeat; the MLP is half of intermediate_size wide."""
    shape = read_shape(view)
    bias, window = view.flag("attention_bias"), view.integer("attention_window_size", "sliding_window")
    hidden, heads, half = shape.hidden, shape.heads, view.integer("intermediate_size") // 2
    width = view.integer("lru_width", default=hidden)
    kernel = view.integer("conv1d_width")
    pattern = view.texts(
        "block_types", default=["recurrent", "recurrent", "attention"], choices=("recurrent", "attention")
    )
    if not pattern:
        raise view.error("block_types is empty; recurrent or attention is needed")
    kinds = [pattern[index % len(pattern)] for index in range(shape.num_layers)]
    common = (*gated_mlp(hidden, half, bias=True), *norm(hidden, count=2))
    full = attention(
        hidden, heads, shape.kv_heads, shape.head_dim, q_bias=bias, k_bias=bias, v_bias=bias, out_bias=True
    )
    state = RecurrentState(heads, width // heads, FP32, width, kernel - 1, view.dtype)

    def build(kind: str) -> Layer:
        if kind == "attention":
            return Layer(SlidingAttention(shape.kv_heads, shape.head_dim, window=window), (*full, *common), heads)
        return Layer(state, (*_rg_lru(hidden, width, heads, kernel), *common))

    return with_outer(shape, layers_of(kinds, build), norm(hidden, role="final_norm"))


def _rg_lru(hidden: int, width: int, heads: int, kernel: int) -> Groups:
    """Two projections in, one out, a convolution, and two gates of one block a head."""
    block = width // heads
    return (
        *linear("recurrent", width, hidden, bias=True, split="rows", count=2),
        *linear("recurrent", hidden, width, bias=True, split="columns"),
        *short_filter(width, kernel, bias=True),
        *vector("recurrent_state", width, split="rows"),
        WeightGroup("recurrent_state", heads * block, block, 2, split="rows"),
        *vector("recurrent_state", heads * block, count=2, split="rows"),
    )


# ------------------------------------------------------------------------------------------- delta rule with latents


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """The sizes of Kimi delta attention: queries, keys and values alike."""

    heads: int
    head_dim: int
    kernel: int

    @property
    def values(self) -> int:
        return self.heads * self.head_dim

    def cache(self, dtype: StorageFormat | None) -> LayerCache:
        return RecurrentState(self.heads, self.head_dim**2, FP32, 3 * self.values, self.kernel, dtype)

    def weights(self, hidden: int) -> Groups:
        """Projections in and out, the step of each head, and the output norm."""
        return (
            *linear("recurrent", self.values, hidden, split="rows", count=3),
            *linear("recurrent", self.heads, hidden, split="rows"),
            *norm(self.head_dim),
            *linear("recurrent", hidden, self.values, split="columns"),
            *pinned_vector("recurrent_state", self.values),
        )

    def gate(self, hidden: int) -> Groups:
        """A gate of every value, through a latent of one head's width."""
        down = linear("recurrent", self.head_dim, hidden)
        return (*down, *linear("recurrent", self.values, self.head_dim, split="rows"))


def kimi_linear(view: ConfigView) -> Parts:
    """Kimi delta attention, latent attention where `full_attn_layers` (counted from 1) says so; experts."""
    require_own_head(view)
    latent = read_latent(view, None)
    shape = latent_shape(view, latent.rope)
    settings = optional_child(view, "linear_attn_config")
    delta = KimiDelta(
        heads=settings.integer("num_heads", default=None) or view.integer("linear_num_heads"),
        head_dim=settings.integer("head_dim", default=None) or view.integer("linear_head_dim"),
        kernel=settings.integer("short_conv_kernel_size", default=None) or view.integer("linear_conv_kernel_dim"),
    )
    view.pass_over("linear_attn_config says it", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    recurrent = (
        *delta.weights(shape.hidden),
        *short_filter(3 * delta.values, delta.kernel, bias=False),
        *vector("recurrent_state", delta.heads, split="rows"),
        *delta.gate(shape.hidden),
        *delta.gate(shape.hidden),
    )
    return _delta_and_latent(view, shape, latent, _kimi_kinds(view, settings, shape.num_layers), delta, recurrent, ())


def _kimi_kinds(view: ConfigView, settings: ConfigView, num_layers: int) -> list[str]:
    stated = block_kinds(view, ("layer_types",), num_layers, (LINEAR, FULL))
    full = settings.integers("full_attn_layers", default=None, low=1)
    recurrent = settings.integers("kda_layers", default=None, low=1)
    if stated is None and full is not None and recurrent is not None:
        if sorted([*full, *recurrent]) != list(range(1, num_layers + 1)):
            raise view.error(
                f"full_attn_layers and kda_layers must name each of the {counted(num_layers, 'layer')} once, from 1"
            )
        return [FULL if index + 1 in set(full) else LINEAR for index in range(num_layers)]
    return stated or [FULL if index and index % 4 == 0 else LINEAR for index in range(num_layers)]


def bailing_hybrid(view: ConfigView) -> Parts:
    """Kimi delta attention with one latent layer in every `layer_group_size`; filter and decay stay float32."""
    require_own_head(view)
    latent = read_latent(view, None)
    width = view.integer("head_dim")
    shape = latent_shape(view, latent.rope)
    delta = KimiDelta(
        heads=view.integer("linear_num_heads", default=shape.heads),
        head_dim=view.integer("linear_head_dim", default=width),
        kernel=view.integer("short_conv_kernel_size", "linear_conv_kernel_dim"),
    )
    group = view.integer("layer_group_size")
    stated = block_kinds(view, ("layer_types",), shape.num_layers, (LINEAR, FULL))
    kinds = stated or [LINEAR if (index + 1) % group else FULL for index in range(shape.num_layers)]
    recurrent = (
        *delta.weights(shape.hidden),
        *pinned_matrix("recurrent_state", 3 * delta.values, delta.kernel),
        *pinned_vector("recurrent_state", delta.heads),
        *linear("recurrent", delta.values, shape.hidden, split="rows", count=2),
    )
    gate = linear("attention_gate", shape.heads, shape.hidden, split="rows")
    return _delta_and_latent(view, shape, latent, kinds, delta, recurrent, gate)


def _delta_and_latent(
    view: ConfigView,
    shape: Shape,
    latent: Latent,
    kinds: Sequence[str],
    delta: KimiDelta,
    recurrent: Groups,
    gate: Groups,
) -> Parts:
    common_switches(view)
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    moe = latent_experts(view, shape.hidden)
    full = (*latent.weights(shape.hidden, shape.heads, view.flag("attention_bias")), *gate)
    state, norms = delta.cache(view.dtype), norm(shape.hidden, count=2)

    def build(kind: tuple[str, bool]) -> Layer:
        mlp = (*(dense if kind[1] else moe), *norms)
        if kind[0] == FULL:
            return Layer(LatentAttention(latent.kv_rank, latent.rope), (*full, *mlp), shape.heads)
        return Layer(state, (*recurrent, *mlp))

    layers = layers_of(list(zip(kinds, dense_layers(view, shape), strict=True)), build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


# ------------------------------------------------------------------------------------------------------ the families

_DELTA: dict[str, Any] = {
    "head_dim": 256, "attention_bias": False, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip
_EXPERTS_512 = {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}
_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128}
_MINIMAX_SIZES = class_sizes(32000, 4096, 14336, 32, 32, 8, 131072, False, num_experts_per_tok=2, num_local_experts=8)

FAMILIES = {
    "qwen3_next": Family(
        qwen3_next,
        class_sizes(
            151936, 2048, 5632, 48, 16, 2, 32768, False,
            **_DELTA, **_EXPERTS_512, decoder_sparse_step=1, num_experts_per_tok=10, num_experts=512,
        ),
    ),
    "qwen3_5_text": Family(qwen3_5, class_sizes(248320, 4096, 12288, 32, 16, 4, 32768, False, **_DELTA)),
    "qwen3_5_moe_text": Family(
        qwen3_5_moe,
        class_sizes(
            248320, 2048, None, 40, 16, 2, 32768, False,
            **_DELTA, **_EXPERTS_512, num_experts_per_tok=8, num_experts=256,
        ),
    ),
    "lfm2": Family(
        lfm2,
        class_sizes(
            65536, 2560, 12288, 32, 32, 8, 128000, True,
            conv_bias=False, conv_L_cache=3, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=True,
        ),
    ),
    "lfm2_moe": Family(
        lfm2_moe,
        class_sizes(
            65536, 2048, 7168, 32, 32, 8, 128000, True,
            conv_bias=False, conv_L_cache=3, moe_intermediate_size=1792, num_dense_layers=2, num_experts_per_tok=4,
            num_experts=32,
        ),
    ),
    "minimax": Family(minimax, _MINIMAX_SIZES),
    "minimax_m1": Family(minimax_m1, _MINIMAX_SIZES),
    "recurrent_gemma": Family(
        recurrent_gemma,
        class_sizes(
            256000, 2560, 7680, 26, 10, None, None, True,
            attention_window_size=2048, conv1d_width=4, attention_bias=False,
        ),
    ),
    "kimi_linear": Family(
        kimi_linear,
        class_sizes(
            163840, 2304, 9216, 27, 32, None, 1048576, False,
            **_LATENT, attention_bias=False, moe_intermediate_size=1024, n_shared_experts=1, num_experts_per_tok=8,
            num_local_experts=256, linear_head_dim=128, linear_num_heads=32, linear_conv_kernel_dim=4,
            first_k_dense_replace=1,
        ),
    ),
    "bailing_hybrid": Family(
        bailing_hybrid,
        class_sizes(
            157184, 2560, 6144, 42, 32, None, 262144, False,
            **_LATENT, attention_bias=False, moe_intermediate_size=768, n_shared_experts=1, num_experts_per_tok=8,
            num_local_experts=512, first_k_dense_replace=2, head_dim=128, short_conv_kernel_size=4,
            layer_group_size=6,
        ),
    ),
}  # fmt: skip
