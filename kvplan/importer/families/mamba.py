"""Families with Mamba and Mamba-2 layers, alone or beside attention.

The state is float32 whatever the model's dtype, as transformers keeps it; the convolution keeps its last inputs at
the full width of its kernel, in the model's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvplan.attention import (
    CombinedCache,
    FullAttention,
    LayerCache,
    NoCache,
    RecurrentState,
)
from kvplan.blocks import (
    FP32,
    Groups,
    Mamba2,
    attention,
    gated_mlp,
    linear,
    norm,
    pinned_matrix,
    plain_mlp,
    router,
    short_filter,
    vector,
)
from kvplan.dtypes import StorageFormat
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
from kvplan.importer.families.hybrid import (
    FULL,
    LINEAR,
    OLD_NAMES,
    attention_groups,
    block_kinds,
    require_own_head,
)
from kvplan.importer.families.moe import mixture, skip_extra_predictions
from kvplan.importer.view import ConfigView
from kvplan.model import Layer, WeightGroup
from kvplan.units import counted


def automatic(view: ConfigView, name: str, value: int) -> int:
    """A whole number under `name`; "auto" or absent means `value`."""
    if view.data.get(name) == "auto":
        view.text(name)
        return value
    return int(view.integer(name, default=value))


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
        raise view.error(
            f"{counted(found.heads, 'Mamba head')} of {found.head_dim} do not make the {inner} channels of a layer"
        )


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
    mamba, dtype = read_mamba2(view, shape.hidden), view.dtype
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
    view.pass_over("the MLP has intermediate_size values", "mlp_expansion_factor")
    mamba = _falcon_h1_mamba(view, shape.hidden)
    cache = CombinedCache((FullAttention(shape.kv_heads, shape.head_dim), mamba.cache(view.dtype)))
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


EXPERT_KEYS = (
    "n_routed_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size",
    "num_experts_per_tok", "n_shared_experts",
)  # fmt: skip


def nemotron_h(view: ConfigView) -> Parts:
    """Every layer is one of: Mamba-2, attention, MLP, experts."""
    _nemotron_switches(view)
    kinds = _nemotron_kinds(view)
    shape = replace(_nemotron_shape(view), num_layers=len(kinds))
    mamba = _nemotron_mamba(view)
    bias, dtype = view.flag("mlp_bias"), view.dtype
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
        view.pass_over("no layer holds experts", *EXPERT_KEYS)
    return with_outer(shape, layers_of(kinds, build), norm(shape.hidden, role="final_norm"))


def _nemotron_switches(view: ConfigView) -> None:
    require_own_head(view)
    skip_extra_predictions(view)
    view.pass_over("not part of the decoder", "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    view.require("attention_bias", False, "the class builds attention without biases")
    view.require("mamba_proj_bias", False, "the class reads use_bias")
    view.require("sliding_window", None, "windows of this family are not known")
    view.require("mamba_ssm_cache_dtype", "float32", "the class keeps the state in float32")
    view.pass_over("how the scan is cut", "chunk_size")
    view.pass_over("channels are mamba_num_heads x mamba_head_dim", "expand")
    view.pass_over("this Mamba has no step of low rank", "time_step_rank")


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
    if kinds is None:
        kinds = [LINEAR, "moe", FULL, "mlp"]
    kinds = [OLD_NAMES.get(kind, kind) for kind in kinds]
    if count is not None and count != len(kinds):
        raise view.error(f"num_hidden_layers is {count}, but the pattern has {counted(len(kinds), 'layer')}")
    return kinds


def _nemotron_shape(view: ConfigView) -> Shape:
    heads, head_dim = view.integer("num_attention_heads"), view.integer("head_dim")
    kv_heads = read_kv_heads(view, heads)
    view.require("attention_head_dim", head_dim, f"the class reads head_dim, which is {head_dim}")
    view.require("num_query_groups", kv_heads, f"the class reads num_key_value_heads, which is {kv_heads}")
    return Shape(
        num_layers=0,
        hidden=view.integer("hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
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
    norms, dtype = norm(shape.hidden, count=2), view.dtype

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
    """Mamba in every layer, one norm each; intermediate_size overrides expand x hidden."""
    shape = _lone_shape(view)
    view.pass_over("it repeats intermediate_size", "d_inner")
    mixer = Mamba(
        inner=view.integer("intermediate_size", default=int(view.number("expand") * shape.hidden)),
        state=view.integer("state_size"),
        kernel=view.integer("conv_kernel"),
        rank=automatic(view, "time_step_rank", math.ceil(shape.hidden / 16)),
        bias=view.flag("use_bias"),
        filter_bias=view.flag("use_conv_bias"),
    )
    return _lone_layers(shape, mixer.cache(view.dtype), mixer.weights(shape.hidden))


def mamba2(view: ConfigView) -> Parts:
    """Mamba-2 in every layer, one norm each."""
    shape = _lone_shape(view)
    view.pass_over("Mamba-2 has no step of low rank", "time_step_rank")
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
    inner = int(view.number("expand") * shape.hidden)
    view.require("intermediate_size", inner, f"the class builds expand x hidden = {inner}")
    require_channels(view, mixer, inner)
    return _lone_layers(shape, mixer.cache(view.dtype), mixer.weights(shape.hidden))


def _lone_shape(view: ConfigView) -> Shape:
    view.pass_over("how the scan is cut", "chunk_size")
    view.require("ssm_cfg", {}, "settings of the mixer inside ssm_cfg are not known in this layout")
    view.require("rms_norm", True, "the class builds norms without bias")
    view.pass_over("vocab_size is stated padded in this layout", "pad_vocab_size_multiple")
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
    view.pass_over("there are no attention layers", "attn_cfg")
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
    return _lone_layers(shape, mixer.cache(view.dtype), mixer.weights(hidden))


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
    state = mamba.cache(view.dtype)
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


# ------------------------------------------------------------------------------------------------------ the families

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
FAMILIES = {
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
    "zamba": Family(
        zamba,
        class_sizes(
            32000, 3712, 14848, 76, 16, 16, 4096, True, **_MAMBA_1, attn_layer_period=6, attn_layer_offset=4
        ),
    ),
}  # fmt: skip
