"""Families with recurrent layers: gated delta rule, Mamba, Mamba-2, short convolution, lightning attention, RG-LRU.

The state of most is float32 whatever the model's dtype, as transformers keeps it; the convolution keeps its last
inputs at the full width of its kernel, in the model's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.attention import (
    CombinedCache,
    FullAttention,
    LatentAttention,
    LayerCache,
    NoCache,
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
    plain_mlp,
    router,
    vector,
)
from kvplan.dtypes import StorageFormat, weight_format
from kvplan.importer.decoder import (
    HIDDEN_KEYS,
    LAYER_KEYS,
    MAX_LAYERS,
    Parts,
    Shape,
    class_sizes,
    is_null,
    layers_of,
    read_kv_heads,
    read_shape,
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.families.deepseek import Latent, common_switches, dense_layers, latent_experts, latent_shape
from kvplan.importer.families.moe import flag_list, layer_list, mixture, skip_extra_predictions
from kvplan.importer.view import ConfigView
from kvplan.model import Layer, WeightGroup

# ------------------------------------------------------------------------------------------------ shared pieces

LINEAR, FULL = "linear_attention", "full_attention"
OLD_NAMES = {"mamba": LINEAR, "attention": FULL}
"""Names of kinds of layer that older configs use."""


def model_dtype(view: ConfigView) -> StorageFormat | None:
    """The dtype that the config states, or None."""
    stated = view.text("torch_dtype", "dtype", default=None)
    return weight_format(stated.removeprefix("torch.")) if stated else None


def block_kinds(view: ConfigView, names: Sequence[str], num_layers: int, known: Sequence[str]) -> list[str] | None:
    """The kind of each layer under one of `names`, by today's names, or None. Raises ConfigError."""
    found: list[str] | None = view.texts(*names, default=None, choices=(*known, *OLD_NAMES))
    if found is None:
        return None
    if len(found) != num_layers:
        raise view.error(f"{names[0]} has {len(found)} entries for {num_layers} layers")
    return [OLD_NAMES.get(kind, kind) for kind in found]


def require_own_head(view: ConfigView) -> None:
    """Refuse a tied head, which the class does not build whatever the config says."""
    view.require("tie_word_embeddings", False, "the class builds a head of its own")


def automatic(view: ConfigView, name: str, value: int) -> int:
    """A whole number under `name`; "auto" or absent means `value`."""
    if view.data.get(name) == "auto":
        view.text(name)
        return value
    return int(view.integer(name, default=value))


def attention_groups(shape: Shape, bias: bool = False, qk_norm: QkNorm = "none") -> Groups:
    """The projections of an attention layer of the common shape, with one switch for all biases."""
    return attention(
        shape.hidden, shape.heads, shape.kv_heads, shape.head_dim,
        q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias, qk_norm=qk_norm,
    )  # fmt: skip


def short_filter(channels: int, width: int, bias: bool) -> Groups:
    """A convolution of `width` a channel, each channel by itself."""
    weights = (WeightGroup("recurrent_state", channels, width, split="rows"),)
    return (*weights, *vector("recurrent_state", channels, split="rows")) if bias else weights


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
    view.dismiss("intermediate_size", "every layer holds experts")
    return _gated_delta_decoder(view, shape, delta, inputs, [qwen_experts(view, shape.hidden)] * shape.num_layers)


def _qwen3_5_delta(view: ConfigView) -> tuple[GatedDelta, tuple[int, ...]]:
    view.require("attn_output_gate", True, "the class always gates the attention output")
    view.require("mamba_ssm_dtype", "float32", "the class keeps the state in float32")
    view.require("mlp_only_layers", [], "the class builds the same MLP in every layer")
    view.dismiss("mtp_use_dedicated_embeddings", "layers that predict further tokens are not part of the decoder")
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
    state, norms = delta.cache(model_dtype(view)), norm(shape.hidden, count=2)

    def build(kind: tuple[str, Groups]) -> Layer:
        if kind[0] == FULL:
            return Layer(FullAttention(shape.kv_heads, shape.head_dim), (*full, *kind[1], *norms), shape.heads)
        return Layer(state, (*recurrent, *kind[1], *norms))

    kinds = list(zip(qwen_kinds(view, shape.num_layers), mlps, strict=True))
    return with_outer(shape, layers_of(kinds, build), norm(shape.hidden, role="final_norm"))


# ------------------------------------------------------------------------------------------------ Mamba and Mamba-2


@dataclass(frozen=True, slots=True)
class Mamba:
    """The sizes of a Mamba layer: `inner` channels, each with a state of `state` values.

    decay_storage  float32 where the decay stays so whatever the model's dtype (Zamba)
    """

    inner: int
    state: int
    kernel: int
    rank: int
    bias: bool
    filter_bias: bool
    decay_storage: StorageFormat | None = None

    def cache(self, dtype: StorageFormat | None) -> LayerCache:
        return RecurrentState(self.inner, self.state, FP32, self.inner, self.kernel, dtype)

    def weights(self, hidden: int, inner_norms: bool = False) -> Groups:
        """inner_norms  norms of the step and of both state projections (Jamba)"""
        norms = (*norm(self.rank), *norm(self.state, count=2)) if inner_norms else ()
        return (
            *linear("recurrent", 2 * self.inner, hidden, bias=self.bias, split="rows"),
            *short_filter(self.inner, self.kernel, self.filter_bias),
            *linear("recurrent", self.rank + 2 * self.state, self.inner, split="columns"),
            *linear("recurrent", self.inner, self.rank, bias=True, split="rows"),
            WeightGroup(
                "recurrent_state", self.inner, self.state, 1, self.decay_storage, bool(self.decay_storage), "rows"
            ),
            *vector("recurrent_state", self.inner, split="rows"),
            *linear("recurrent", hidden, self.inner, bias=self.bias, split="columns"),
            *norms,
        )


@dataclass(frozen=True, slots=True)
class Mamba2:
    """The sizes of a Mamba-2 layer: `heads` of `head_dim` channels, each channel with a state of `state` values."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    in_bias: bool
    out_bias: bool
    filter_bias: bool
    gated_norm: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def cache(self, dtype: StorageFormat | None) -> LayerCache:
        return RecurrentState(self.heads, self.head_dim * self.state, FP32, self.channels, self.kernel, dtype)

    def weights(self, hidden: int) -> Groups:
        return (
            *linear("recurrent", self.inner + self.channels + self.heads, hidden, bias=self.in_bias, split="rows"),
            *short_filter(self.channels, self.kernel, self.filter_bias),
            *vector("recurrent_state", self.heads, count=3, split="rows"),
            *(vector("norm", self.inner, split="rows") if self.gated_norm else ()),
            *linear("recurrent", hidden, self.inner, bias=self.out_bias, split="columns"),
        )


def read_mamba2(view: ConfigView, hidden: int) -> Mamba2:
    """Mamba-2 under the names of Bamba and Granite; `mamba_d_head: auto` shares the channels among the heads."""
    heads, inner = view.integer("mamba_n_heads"), view.integer("mamba_expand") * hidden
    bias = view.flag("mamba_proj_bias")
    found = Mamba2(
        heads=heads,
        head_dim=automatic(view, "mamba_d_head", inner // heads),
        groups=view.integer("mamba_n_groups"),
        state=view.integer("mamba_d_state"),
        kernel=view.integer("mamba_d_conv"),
        in_bias=bias,
        out_bias=bias,
        filter_bias=view.flag("mamba_conv_bias"),
    )
    require_channels(view, found, inner)
    return found


def require_channels(view: ConfigView, found: Mamba2, inner: int) -> None:
    """Raise ConfigError unless the heads share out the `inner` channels exactly."""
    if found.inner != inner:
        raise view.error(f"{found.heads} Mamba heads of {found.head_dim} do not make the {inner} channels of a layer")


def bamba(view: ConfigView) -> Parts:
    """Mamba-2, with full attention in `attn_layer_indices`; a dense MLP behind each."""
    shape = read_shape(view)
    full = set(view.integers("attn_layer_indices", default=[]))
    mlp = gated_mlp(shape.hidden, view.integer("intermediate_size"), bias=view.flag("mlp_bias"))
    return _mamba2_hybrid(view, shape, [FULL if i in full else LINEAR for i in range(shape.num_layers)], mlp)


def granitemoehybrid(view: ConfigView) -> Parts:
    """Mamba-2 or attention, then a shared MLP, beside routed experts where there are any."""
    shape = read_shape(view)
    view.require("normalization_function", "rmsnorm", "other norms are not known")
    kinds = block_kinds(view, ("layer_types", "layers_block_type"), shape.num_layers, (LINEAR, FULL))
    experts, shared = view.integer("num_local_experts", low=0), view.integer("shared_intermediate_size")
    width, per_token = view.integer("intermediate_size"), view.integer("num_experts_per_tok", low=0)
    mlp = gated_mlp(shape.hidden, shared)
    if experts:
        mlp = mixture(router(shape.hidden, experts), shape.hidden, width, experts, per_token, shared=shared)
    return _mamba2_hybrid(view, shape, kinds or [LINEAR] * shape.num_layers, mlp)


def _mamba2_hybrid(view: ConfigView, shape: Shape, kinds: Sequence[str], mlp: Groups) -> Parts:
    mamba, dtype = read_mamba2(view, shape.hidden), model_dtype(view)
    full = attention_groups(shape, view.flag("attention_bias"))
    norms = norm(shape.hidden, count=2)

    def build(kind: str) -> Layer:
        if kind == FULL:
            return Layer(FullAttention(shape.kv_heads, shape.head_dim), (*full, *mlp, *norms), shape.heads)
        return Layer(mamba.cache(dtype), (*mamba.weights(shape.hidden), *mlp, *norms))

    return with_outer(shape, layers_of(kinds, build), norm(shape.hidden, role="final_norm"))


def falcon_h1(view: ConfigView) -> Parts:
    """Attention and Mamba-2 side by side in every layer."""
    shape = read_shape(view)
    view.require("attn_layer_indices", None, "layers without attention are not known in this family")
    view.require("mamba_use_mlp", True, "the class always builds the MLP")
    mamba = _falcon_h1_mamba(view, shape.hidden)
    cache = CombinedCache((FullAttention(shape.kv_heads, shape.head_dim), mamba.cache(model_dtype(view))))
    weights = (
        *attention_groups(shape, view.flag("attention_bias")),
        *mamba.weights(shape.hidden),
        *gated_mlp(shape.hidden, view.integer("intermediate_size"), bias=view.flag("mlp_bias")),
        *norm(shape.hidden, count=2),
    )
    layer = Layer(cache, weights, shape.heads)
    return with_outer(shape, (layer,) * shape.num_layers, norm(shape.hidden, role="final_norm"))


def _falcon_h1_mamba(view: ConfigView, hidden: int) -> Mamba2:
    """mamba_d_ssm: null means expand x hidden; an absent one follows the heads where their width is stated."""
    heads, stated = view.integer("mamba_n_heads"), view.integer("mamba_d_ssm", default=None)
    inner = view.integer("mamba_expand") * hidden
    if not is_null(view, "mamba_d_ssm"):
        inner = stated or 1024
        if stated is None and isinstance(view.data.get("mamba_d_head"), int):
            inner = heads * view.integer("mamba_d_head")
            view.note("mamba_d_ssm is not in the config; mamba_n_heads x mamba_d_head is used")
    found = Mamba2(
        heads=heads,
        head_dim=automatic(view, "mamba_d_head", inner // heads),
        groups=view.integer("mamba_n_groups"),
        state=view.integer("mamba_d_state"),
        kernel=view.integer("mamba_d_conv"),
        in_bias=view.flag("mamba_proj_bias"),
        out_bias=view.flag("projectors_bias"),
        filter_bias=view.flag("mamba_conv_bias"),
        gated_norm=view.flag("mamba_rms_norm"),
    )
    require_channels(view, found, inner)
    return found


NEMOTRON_LETTERS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def nemotron_h(view: ConfigView) -> Parts:
    """Every layer is one of: Mamba-2, attention, MLP, experts."""
    _nemotron_switches(view)
    kinds = _nemotron_kinds(view)
    shape = replace(_nemotron_shape(view), num_layers=len(kinds))
    mamba = _nemotron_mamba(view)
    bias, dtype = view.flag("mlp_bias"), model_dtype(view)
    mlp_width = view.integer("intermediate_size")
    made: dict[str, Callable[[], Layer]] = {
        LINEAR: lambda: Layer(mamba.cache(dtype), mamba.weights(shape.hidden)),
        FULL: lambda: Layer(FullAttention(shape.kv_heads, shape.head_dim), attention_groups(shape), shape.heads),
        "mlp": lambda: Layer(NoCache(), plain_mlp(shape.hidden, mlp_width, bias=bias)),
        "moe": lambda: Layer(NoCache(), _nemotron_experts(view, shape.hidden, bias)),
    }

    def build(kind: str) -> Layer:
        layer = made[kind]()
        return replace(layer, weights=(*layer.weights, *norm(shape.hidden)))

    if "moe" not in kinds:
        for key in ("n_routed_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
                    "moe_latent_size", "num_experts_per_tok", "n_shared_experts"):  # fmt: skip
            view.dismiss(key, "no layer holds experts")
    return with_outer(shape, layers_of(kinds, build), norm(shape.hidden, role="final_norm"))


def _nemotron_switches(view: ConfigView) -> None:
    require_own_head(view)
    skip_extra_predictions(view)
    for key in ("mtp_hybrid_override_pattern", "mtp_layers_block_type"):
        view.dismiss(key, "layers that predict further tokens are not part of the decoder")
    view.require("attention_bias", False, "the class builds attention without biases")
    view.require("mamba_proj_bias", False, "the class reads use_bias")
    view.require("sliding_window", None, "windows of this family are not known")
    view.require("mamba_ssm_cache_dtype", "float32", "the class keeps the state in float32")
    view.pass_over("how the scan is cut", "chunk_size")
    view.dismiss("expand", "channels are mamba_num_heads x mamba_head_dim")
    view.dismiss("time_step_rank", "this Mamba has no step of low rank")


def _nemotron_kinds(view: ConfigView) -> list[str]:
    """layers_block_type, else the letters of hybrid_override_pattern, else one layer of each kind."""
    count = view.integer(*LAYER_KEYS, default=None, high=MAX_LAYERS)
    known = tuple(NEMOTRON_LETTERS.values())
    pattern = view.text("hybrid_override_pattern", default=None)
    kinds: list[str] | None = view.texts("layers_block_type", "layer_types", default=None, choices=(*known, *OLD_NAMES))
    if kinds is None and pattern is not None:
        if not pattern or set(pattern) - set(NEMOTRON_LETTERS):
            raise view.error("hybrid_override_pattern must hold only M, E, * and -")
        kinds = [NEMOTRON_LETTERS[letter] for letter in pattern]
    kinds = [OLD_NAMES.get(kind, kind) for kind in kinds or (LINEAR, "moe", FULL, "mlp")]
    if count is not None and count != len(kinds):
        raise view.error(f"num_hidden_layers is {count}, but the pattern has {len(kinds)} layers")
    return kinds


def _nemotron_shape(view: ConfigView) -> Shape:
    heads, head_dim = view.integer("num_attention_heads"), view.integer("head_dim")
    view.require("attention_head_dim", head_dim, f"the class reads head_dim, which is {head_dim}")
    return Shape(
        num_layers=0,
        hidden=view.integer("hidden_size"),
        heads=heads,
        kv_heads=read_kv_heads(view, heads),
        head_dim=head_dim,
        vocab=view.integer("vocab_size"),
        context=view.integer("max_position_embeddings", default=None),
        tied=view.flag("tie_word_embeddings"),
    )


def _nemotron_mamba(view: ConfigView) -> Mamba2:
    bias = view.flag("use_bias")
    return Mamba2(
        heads=view.integer("mamba_num_heads"),
        head_dim=view.integer("mamba_head_dim"),
        groups=view.integer("n_groups", "mamba_n_groups"),
        state=view.integer("ssm_state_size"),
        kernel=view.integer("conv_kernel", "mamba_d_conv"),
        in_bias=bias,
        out_bias=bias,
        filter_bias=view.flag("use_conv_bias", "mamba_conv_bias"),
    )


def _nemotron_experts(view: ConfigView, hidden: int, bias: bool) -> Groups:
    """Ungated experts, on a latent where moe_latent_size says so, and one ungated shared MLP."""
    experts, active = view.integer("n_routed_experts", "num_local_experts"), view.integer("num_experts_per_tok")
    width, shared = view.integer("moe_intermediate_size"), view.integer("moe_shared_expert_intermediate_size")
    latent = view.integer("moe_latent_size", default=None)
    view.require("n_shared_experts", 1, "the class builds one shared MLP")
    down_up: Groups = ()
    if latent is not None:
        down_up = (*linear("mlp", latent, hidden, bias=bias), *linear("mlp", hidden, latent, bias=bias))
    inputs = latent or hidden
    return (
        *pinned_matrix("router", experts, hidden),
        *linear("routed_experts", width, inputs, split="rows", count=experts, active=active),
        *linear("routed_experts", inputs, width, split="columns", count=experts, active=active),
        *plain_mlp(hidden, shared, bias=bias, role="shared_experts"),
        *down_up,
    )


def jamba(view: ConfigView) -> Parts:
    """Mamba, with attention and experts each in every n-th layer."""
    shape = read_shape(view)
    view.require("sliding_window", None, "windows of this family are not known")
    mamba = read_mamba(view, shape.hidden)
    width, experts = view.integer("intermediate_size"), view.integer("num_experts", "num_local_experts")
    dense = moe = gated_mlp(shape.hidden, width)
    per_token = view.integer("num_experts_per_tok")
    if experts > 1:
        moe = mixture(router(shape.hidden, experts), shape.hidden, width, experts, per_token)
    full, routed = (_every(view, name, shape.num_layers) for name in ("attn_layer", "expert_layer"))
    norms, dtype = norm(shape.hidden, count=2), model_dtype(view)

    def build(kind: tuple[bool, bool]) -> Layer:
        mlp = moe if kind[1] else dense
        if kind[0]:
            cache = FullAttention(shape.kv_heads, shape.head_dim)
            return Layer(cache, (*attention_groups(shape), *mlp, *norms), shape.heads)
        return Layer(mamba.cache(dtype), (*mamba.weights(shape.hidden, inner_norms=True), *mlp, *norms))

    layers = layers_of(list(zip(full, routed, strict=True)), build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def _every(view: ConfigView, name: str, num_layers: int) -> list[bool]:
    """Which layers stand at `{name}_offset` of every `{name}_period`."""
    period, offset = view.integer(f"{name}_period"), view.integer(f"{name}_offset", low=0)
    return [index % period == offset for index in range(num_layers)]


def read_mamba(view: ConfigView, hidden: int) -> Mamba:
    """Mamba under the names of Jamba and Zamba."""
    return Mamba(
        inner=view.integer("mamba_expand") * hidden,
        state=view.integer("mamba_d_state"),
        kernel=view.integer("mamba_d_conv"),
        rank=automatic(view, "mamba_dt_rank", math.ceil(hidden / 16)),
        bias=view.flag("mamba_proj_bias"),
        filter_bias=view.flag("mamba_conv_bias"),
    )


# ------------------------------------------------------------------------------------------------------ only Mamba


def mamba(view: ConfigView) -> Parts:
    """Mamba in every layer, one norm each."""
    shape = _lone_shape(view)
    inner = _lone_inner(view, shape.hidden)
    mixer = Mamba(
        inner=inner,
        state=view.integer("state_size"),
        kernel=view.integer("conv_kernel"),
        rank=automatic(view, "time_step_rank", math.ceil(shape.hidden / 16)),
        bias=view.flag("use_bias"),
        filter_bias=view.flag("use_conv_bias"),
    )
    return _lone_layers(shape, mixer.cache(model_dtype(view)), mixer.weights(shape.hidden))


def mamba2(view: ConfigView) -> Parts:
    """Mamba-2 in every layer, one norm each."""
    shape = _lone_shape(view)
    view.dismiss("time_step_rank", "Mamba-2 has no step of low rank")
    bias = view.flag("use_bias")
    mixer = Mamba2(
        heads=view.integer("num_heads"),
        head_dim=view.integer("head_dim"),
        groups=view.integer("n_groups"),
        state=view.integer("state_size"),
        kernel=view.integer("conv_kernel"),
        in_bias=bias,
        out_bias=bias,
        filter_bias=view.flag("use_conv_bias"),
    )
    require_channels(view, mixer, _lone_inner(view, shape.hidden))
    return _lone_layers(shape, mixer.cache(model_dtype(view)), mixer.weights(shape.hidden))


def _lone_inner(view: ConfigView, hidden: int) -> int:
    """Channels of a layer: expand x hidden, whatever intermediate_size and d_inner repeat."""
    inner = int(view.number("expand") * hidden)
    for key in ("intermediate_size", "d_inner"):
        view.require(key, inner, f"the class builds expand x hidden = {inner}")
    return inner


def _lone_shape(view: ConfigView) -> Shape:
    view.pass_over("how the scan is cut", "chunk_size")
    view.require("ssm_cfg", {}, "settings of the mixer inside ssm_cfg are not known in this layout")
    view.require("rms_norm", True, "the class builds norms without bias")
    view.dismiss("pad_vocab_size_multiple", "vocab_size is stated padded in this layout")
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=view.integer(*HIDDEN_KEYS),
        heads=1,
        kv_heads=1,
        head_dim=1,
        vocab=view.integer("vocab_size"),
        context=None,
        tied=view.flag("tie_word_embeddings"),
    )


def _lone_layers(shape: Shape, cache: LayerCache, weights: Groups) -> Parts:
    layer = Layer(cache, (*weights, *norm(shape.hidden)))
    parts = with_outer(shape, (layer,) * shape.num_layers, norm(shape.hidden, role="final_norm"))
    return replace(parts, num_attention_heads=None)


def state_spaces(view: ConfigView) -> Parts:
    """The layout of the mamba_ssm package, whose files state neither model_type nor the sizes that it defaults."""
    view.require("d_intermediate", 0, "MLPs between the mixers are not known")
    view.require("attn_layer_idx", [], "attention layers are not known in this layout")
    view.require("rms_norm", True, "other norms are not known")
    view.dismiss("attn_cfg", "there are no attention layers")
    hidden, inner = view.integer("d_model"), 2 * view.integer("d_model")
    settings = ConfigView(view.mapping("ssm_cfg"), f"{view.where} ssm_cfg")
    kind = settings.text("layer", default="Mamba1", choices=("Mamba1", "Mamba2"))
    if set(settings.data) - {"layer"}:
        raise view.unsupported("ssm_cfg states more than the layer, which is not known")
    view.note("state, heads and kernel are not in the config; the defaults of the mamba_ssm package are used")
    mixer: Mamba | Mamba2 = Mamba(inner, 16, 4, math.ceil(hidden / 16), False, True)
    if kind == "Mamba2":
        mixer = Mamba2(inner // 64, 64, 1, 128, 4, False, False, True)
    multiple = view.integer("pad_vocab_size_multiple")
    shape = Shape(
        num_layers=view.integer("n_layer", high=MAX_LAYERS),
        hidden=hidden,
        heads=1,
        kv_heads=1,
        head_dim=1,
        vocab=-(-view.integer("vocab_size") // multiple) * multiple,
        context=None,
        tied=view.flag("tie_embeddings"),
    )
    return _lone_layers(shape, mixer.cache(model_dtype(view)), mixer.weights(hidden))


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
    width = view.integer("intermediate_size")
    width = view.integer("block_ff_dim", default=width)
    multiple = view.integer("block_multiple_of")
    multiplier = view.number("block_ffn_dim_multiplier")
    if not view.flag("block_auto_adjust_ff_dim"):
        return int(width)
    width = int(2 * width / 3)
    return -(-int(multiplier * width) // multiple) * multiple


def lfm2_moe(view: ConfigView) -> Parts:
    """As LFM2, with experts behind the first `num_dense_layers` layers."""
    shape = _lfm2_shape(view)
    kinds = layer_list(view, "layer_types", shape.num_layers, ("conv", FULL))
    if kinds is None:
        raise view.error("lacks layer_types")
    view.dismiss("use_expert_bias", "the expert bias is a buffer of one value an expert, not a parameter")
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
    cache, norms = ShortConvolution(hidden, width, model_dtype(view)), norm(hidden, count=2)
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
    state = RecurrentState(shape.heads, shape.head_dim**2, model_dtype(view))

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
    kinds = [pattern[index % len(pattern)] for index in range(shape.num_layers)]
    common = (*gated_mlp(hidden, half, bias=True), *norm(hidden, count=2))
    full = attention(
        hidden, heads, shape.kv_heads, shape.head_dim, q_bias=bias, k_bias=bias, v_bias=bias, out_bias=True
    )
    state = RecurrentState(heads, width // heads, FP32, width, kernel - 1, model_dtype(view))

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


# ---------------------------------------------------------------------------------------------- shared transformer


def zamba(view: ConfigView) -> Parts:
    """Mamba in every layer; some first run one shared transformer, each with a cache and a projection of its own."""
    view.require("tie_word_embeddings", True, "without it the class keeps a transformer for each layer that runs it")
    shape = _zamba_shape(view)
    view.pass_over(
        "layers_block_type, where it is there, says it layer by layer", "attn_layer_period", "attn_layer_offset"
    )
    view.pass_over("heads share the channels, and their number changes no sum", "n_mamba_heads")
    mamba = replace(read_mamba(view, shape.hidden), decay_storage=FP32)
    kinds = block_kinds(view, ("layers_block_type", "layer_types"), shape.num_layers, (LINEAR, "hybrid"))
    kinds = kinds or _zamba_kinds(view, shape.num_layers)
    first = kinds.index("hybrid") if "hybrid" in kinds else None
    shared = _zamba_transformer(view, shape)
    own = (*mamba.weights(shape.hidden), *norm(shape.hidden))
    state = mamba.cache(model_dtype(view))
    both = CombinedCache((FullAttention(shape.kv_heads, shape.head_dim), state))

    def build(kind: tuple[str, bool]) -> Layer:
        if kind[0] != "hybrid":
            return Layer(state, own)
        weights = (*own, *linear("attention_o", shape.hidden, shape.hidden), *(shared if kind[1] else ()))
        return Layer(both, weights, shape.heads)

    layers = layers_of([(kind, index == first) for index, kind in enumerate(kinds)], build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def _zamba_shape(view: ConfigView) -> Shape:
    """The transformer reads its input beside the embedding: heads share out twice the hidden size."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(view, heads),
        head_dim=view.integer("attention_head_dim", default=2 * hidden // heads),
        vocab=view.integer("vocab_size"),
        context=view.integer("max_position_embeddings", default=None),
        tied=view.flag("tie_word_embeddings"),
    )


def _zamba_kinds(view: ConfigView, num_layers: int) -> list[str]:
    every = _every(view, "attn_layer", num_layers)
    return [LINEAR, LINEAR, "hybrid", *("hybrid" if found else LINEAR for found in every)][:num_layers]


def _zamba_transformer(view: ConfigView, shape: Shape) -> Groups:
    inputs = view.integer("attention_hidden_size", default=2 * shape.hidden)
    values = shape.heads * shape.head_dim
    return (
        *attention(inputs, shape.heads, shape.kv_heads, shape.head_dim)[:3],
        *linear("attention_o", shape.hidden, values, split="columns"),
        *gated_mlp(shape.hidden, view.integer("intermediate_size")),
        *norm(inputs),
        *norm(shape.hidden),
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
    latent = _optional_query_latent(view)
    shape = latent_shape(view, latent.rope)
    settings = ConfigView(view.mapping("linear_attn_config", default={}), f"{view.where} linear_attn_config")
    delta = KimiDelta(
        heads=settings.integer("num_heads", default=None) or view.integer("linear_num_heads"),
        head_dim=settings.integer("head_dim", default=None) or view.integer("linear_head_dim"),
        kernel=settings.integer("short_conv_kernel_size", default=None) or view.integer("linear_conv_kernel_dim"),
    )
    for key in ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"):
        view.dismiss(key, "linear_attn_config says it")
    recurrent = (
        *delta.weights(shape.hidden),
        *short_filter(3 * delta.values, delta.kernel, bias=False),
        *vector("recurrent_state", delta.heads, split="rows"),
        *delta.gate(shape.hidden),
        *delta.gate(shape.hidden),
    )
    return _delta_and_latent(view, shape, latent, _kimi_kinds(view, settings, shape.num_layers), delta, recurrent, ())


def _optional_query_latent(view: ConfigView) -> Latent:
    """The latent sizes where queries are projected in one step unless the config states a rank."""
    return Latent(
        q_rank=view.integer("q_lora_rank", default=None),
        kv_rank=view.integer("kv_lora_rank"),
        nope=view.integer("qk_nope_head_dim"),
        rope=view.integer("qk_rope_head_dim"),
        value=view.integer("v_head_dim"),
    )


def _kimi_kinds(view: ConfigView, settings: ConfigView, num_layers: int) -> list[str]:
    stated = block_kinds(view, ("layer_types",), num_layers, (LINEAR, FULL))
    full = settings.integers("full_attn_layers", default=None, low=1)
    recurrent = settings.integers("kda_layers", default=None, low=1)
    if stated is None and full is not None and recurrent is not None:
        if sorted([*full, *recurrent]) != list(range(1, num_layers + 1)):
            raise view.error(f"full_attn_layers and kda_layers must name each of the {num_layers} layers once, from 1")
        return [FULL if index + 1 in set(full) else LINEAR for index in range(num_layers)]
    return stated or [FULL if index and index % 4 == 0 else LINEAR for index in range(num_layers)]


def bailing_hybrid(view: ConfigView) -> Parts:
    """Kimi delta attention with one latent layer in every `layer_group_size`; filter and decay stay float32."""
    require_own_head(view)
    latent = _optional_query_latent(view)
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
    state, norms = delta.cache(model_dtype(view)), norm(shape.hidden, count=2)

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
_MAMBA_2 = {
    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_conv_bias": True, "mamba_proj_bias": False, "attention_bias": False,
}  # fmt: skip
_MAMBA_1 = {
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False,
}  # fmt: skip
_LONE_MAMBA = Family(
    mamba,
    {
        "vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "expand": 2,
        "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "tie_word_embeddings": True,
    },
)  # fmt: skip
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
    "granitemoehybrid": Family(
        granitemoehybrid,
        class_sizes(
            32000, 4096, 11008, 32, 32, None, 2048, False,
            **_MAMBA_2, num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=1024,
        ),
    ),
    "bamba": Family(bamba, class_sizes(128000, 4096, 14336, 32, 32, 8, 262144, False, **_MAMBA_2, mlp_bias=False)),
    "falcon_h1": Family(
        falcon_h1,
        class_sizes(
            128000, 4096, 14336, 32, 32, 8, 8192, False,
            **_MAMBA_2, mlp_bias=False, projectors_bias=False, mamba_rms_norm=False,
        ),
    ),
    "nemotron_h": Family(
        nemotron_h,
        class_sizes(
            131072, 4096, 21504, None, 32, 8, 4096, False,
            head_dim=128, mlp_bias=False, use_bias=False, ssm_state_size=128, mamba_num_heads=128, mamba_head_dim=64,
            n_groups=8, conv_kernel=4, use_conv_bias=True, n_routed_experts=8, moe_intermediate_size=7688,
            moe_shared_expert_intermediate_size=7688, num_experts_per_tok=2,
        ),
    ),
    "jamba": Family(
        jamba,
        class_sizes(
            65536, 4096, 14336, 32, 32, 8, 262144, False,
            **_MAMBA_1, num_experts_per_tok=2, num_experts=16, expert_layer_period=2, expert_layer_offset=1,
            attn_layer_period=8, attn_layer_offset=4,
        ),
    ),
    "mamba": _LONE_MAMBA,
    "falcon_mamba": _LONE_MAMBA,
    "mamba2": Family(
        mamba2,
        {
            "num_heads": 128, "head_dim": 64, "vocab_size": 32768, "hidden_size": 4096, "state_size": 128,
            "num_hidden_layers": 64, "expand": 2, "conv_kernel": 4, "n_groups": 8, "use_bias": False,
            "use_conv_bias": True, "tie_word_embeddings": False,
        },
    ),
    "mamba_ssm": Family(state_spaces, {"pad_vocab_size_multiple": 8, "tie_embeddings": True}),
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
    "zamba": Family(
        zamba,
        class_sizes(
            32000, 3712, 14848, 76, 16, 16, 4096, True, **_MAMBA_1, attn_layer_period=6, attn_layer_offset=4
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
