"""Llama and its relatives: RMSNorm, gated MLP, rotary positions, grouped-query attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.attention import NoCache
from kvplan.blocks import Groups, attention, gated_mlp, linear, norm, plain_mlp, routed_experts, router, vector
from kvplan.errors import quoted
from kvplan.importer.decoder import (
    AttentionStyle,
    Parts,
    Shape,
    attention_cache,
    class_sizes,
    decoder,
    is_null,
    layer_windows,
    layers_of,
    plain_gated_mlp,
    read_shape,
    read_window,
    same_mlp,
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted, counted_and


def llama(view: ConfigView) -> Parts:
    """Biases where attention_bias and mlp_bias say so."""
    _dismiss_training_length(view)
    view.require("bias", False, "biases of this layout are named attention_bias and mlp_bias")
    return _llama(view, attention_bias=view.flag("attention_bias", default=False))


def _llama(view: ConfigView, attention_bias: bool) -> Parts:
    mlp_bias = view.flag("mlp_bias", default=False)
    return _biased(view, AttentionStyle(qkv_bias=attention_bias, out_bias=attention_bias), mlp_bias)


def _biased(view: ConfigView, style: AttentionStyle, mlp_bias: bool = False) -> Parts:
    shape = read_shape(view)
    return decoder(shape, style=style, mlp=plain_gated_mlp(view, shape, bias=mlp_bias))


def no_biases(view: ConfigView) -> None:
    """Refuse biases that the class of this family does not have."""
    for name in ("attention_bias", "mlp_bias", "bias"):
        view.require(name, False, "this family is known without biases")


def _without_biases(view: ConfigView) -> Parts:
    _dismiss_training_length(view)
    no_biases(view)
    return _biased(view, AttentionStyle())


def require_square(view: ConfigView, shape: Shape) -> None:
    """Refuse heads whose values do not add up to hidden_size, which the class of this family takes for granted."""
    if shape.heads * shape.head_dim != shape.hidden:
        raise view.unsupported(
            f"{counted(shape.heads, 'head')} of {counted_and(shape.head_dim, 'value', 'are')} not hidden_size "
            f"{shape.hidden}"
        )


def _dismiss_training_length(view: ConfigView) -> None:
    view.dismiss("max_sequence_length", "it is the length of training; max_position_embeddings is the limit")


def orion(view: ConfigView) -> Parts:
    """A Llama layout; the published model has LayerNorm, whose biases its configs do not show."""
    view.note("the biases of its norms (hidden_size values each) are not counted: the llama layout stands in for it")
    return _without_biases(view)


def baichuan(view: ConfigView) -> Parts:
    """A Llama layout that fuses q, k and v, with MHA; positions are rotated (7B) or ALiBi (13B)."""
    view.pass_over("it is only used in training", "z_loss_weight")
    return _without_biases(view)


def exaone(view: ConfigView) -> Parts:
    """EXAONE 3: a Llama layout under other names."""
    return _without_biases(view)


def arcee(view: ConfigView) -> Parts:
    """Arcee's AFM: a plain MLP in place of the gated one."""
    shape, bias = read_shape(view), view.flag("attention_bias")
    mlp = plain_mlp(shape.hidden, view.integer("intermediate_size"), bias=view.flag("mlp_bias"))
    return decoder(shape, style=AttentionStyle(bias, bias), mlp=same_mlp(mlp))


def hunyuan_v1_dense(view: ConfigView) -> Parts:
    """Hunyuan's dense models: norms of q and k in every head. The class has no default for the width of a head."""
    view.require("use_qk_norm", True, "the class norms q and k")
    view.require("use_cla", False, "the class shares no keys and values between layers")
    view.require("mlp_bias", False, "the class has no MLP biases")
    no_classification_head(view)
    for name in ("attention_head_dim", "cla_share_factor"):
        view.dismiss(name, "the class reads head_dim, and shares nothing between layers")
    bias = view.flag("attention_bias")
    if not view.has("head_dim"):
        raise view.error("lacks head_dim")
    return _biased(view, AttentionStyle(bias, bias, "head"))


def no_classification_head(view: ConfigView) -> None:
    """Hunyuan's configs state the sizes of a classification head that no published model has."""
    view.require("add_classification_head", False, "a classification head is not known")
    view.pass_over("a classification head is not built", "dense_list", "class_num", "pool_type", "skip_cls_token")


def internlm(view: ConfigView) -> Parts:
    """InternLM 1 and 2: one `bias` for q, k, v and the output."""
    return _llama(view, attention_bias=view.flag("bias"))


def internlm3(view: ConfigView) -> Parts:
    """`qkv_bias` and `bias` are the names of attention_bias and mlp_bias; the class wants them to be equal."""
    bias = view.flag("attention_bias", "qkv_bias", "mlp_bias", "bias", default=False)
    return _biased(view, AttentionStyle(qkv_bias=bias, out_bias=bias), bias)


def smollm3(view: ConfigView) -> Parts:
    """Some layers rotate no positions; windows are possible and in no published model."""
    view.require("use_sliding_window", False, "windows of this family are not known")
    for name in ("sliding_window", "max_window_layers"):
        view.dismiss(name, "use_sliding_window is false")
    view.pass_over("positions are computed, not stored", "no_rope_layers", "no_rope_layer_interval")
    layer_windows(view, view.integer("num_hidden_layers"), None, lambda _: False)
    return llama(view)


def seed_oss(view: ConfigView) -> Parts:
    """The output projection has a bias of its own."""
    style = AttentionStyle(qkv_bias=view.flag("attention_bias"), out_bias=view.flag("attention_out_bias"))
    return _biased(view, style, view.flag("mlp_bias"))


def ernie4_5(view: ConfigView) -> Parts:
    """One `use_bias` for every linear layer but the head."""
    bias = view.flag("use_bias")
    return _biased(view, AttentionStyle(qkv_bias=bias, out_bias=bias), bias)


def helium(view: ConfigView) -> Parts:
    """The output projection never has a bias, and stays square."""
    shape = read_shape(view)
    require_square(view, shape)
    style = AttentionStyle(qkv_bias=view.flag("attention_bias"))
    return decoder(shape, style=style, mlp=plain_gated_mlp(view, shape, bias=view.flag("mlp_bias")))


def apertus(view: ConfigView) -> Parts:
    """Per-head norms of q and k; a plain MLP whose activation (xIELU) has two values of its own."""
    view.require("hidden_act", "xielu", "only xielu is known to have two values a layer")
    view.require("mlp_bias", False, "this family is known without MLP biases")
    view.require("qk_norm", True, "this family is known with norms of q and k")
    view.require("post_norm", False, "this family is known with two norms a layer")
    shape, bias = read_shape(view), view.flag("attention_bias")
    mlp = (*plain_mlp(shape.hidden, view.integer("intermediate_size")), *vector("mlp", 1, count=2))
    return decoder(shape, style=AttentionStyle(bias, bias, "head"), mlp=same_mlp(mlp))


# ------------------------------------------------------------------------------------------------------- Mistral


def mistral(view: ConfigView) -> Parts:
    """No biases; one window for all layers, or none."""
    return _mistral(view, lambda shape: plain_gated_mlp(view, shape))


def _mistral(view: ConfigView, mlp: Callable[[Shape], Callable[[int], Groups]]) -> Parts:
    no_biases(view)
    shape, window = read_shape(view), read_window(view)
    return decoder(shape, mlp=mlp(shape), window=lambda _: window)


def ministral(view: ConfigView) -> Parts:
    """Mistral with window and full layers by layer_types; without them the window is everywhere."""
    no_biases(view)
    shape, window = read_shape(view), read_window(view)
    windows = layer_windows(view, shape.num_layers, window, lambda _: window is not None)
    return decoder(shape, mlp=plain_gated_mlp(view, shape), window=windows)


def mixtral(view: ConfigView) -> Parts:
    """Mistral with experts in every layer."""
    return _mistral(view, lambda shape: _all_experts(view, shape))


def _all_experts(view: ConfigView, shape: Shape) -> Callable[[int], Groups]:
    experts = view.integer("num_local_experts", "num_experts")
    per_token = view.integer("num_experts_per_tok", high=experts)
    width = view.integer("intermediate_size")
    return same_mlp((*router(shape.hidden, experts), *routed_experts(shape.hidden, width, experts, per_token)))


# ------------------------------------------------------------------------------------------------------- Granite


def granitemoe(view: ConfigView) -> Parts:
    """Experts in every layer, and beside them one shared MLP where the config states its width."""
    shape, bias = read_shape(view), view.flag("attention_bias")
    experts = _all_experts(view, shape)(0)
    width = view.integer("shared_intermediate_size", default=0, low=0)
    shared = gated_mlp(shape.hidden, width, role="shared_experts") if width else ()
    return decoder(shape, style=AttentionStyle(bias, bias), mlp=same_mlp((*experts, *shared)))


# ---------------------------------------------------------------------------------------------------------- OLMo


def olmo(view: ConfigView) -> Parts:
    """Norms without weights."""
    view.require("mlp_bias", False, "this family is known without MLP biases")
    shape, bias = read_shape(view), view.flag("attention_bias")
    style, mlp = AttentionStyle(bias, bias), plain_gated_mlp(view, shape)
    return decoder(shape, style=style, mlp=mlp, norms=(), final_norm=())


def olmo2(view: ConfigView) -> Parts:
    """Norms over all values of q and of k."""
    view.require("mlp_bias", False, "this family is known without MLP biases")
    return _biased(view, _full_norm_style(view))


def _full_norm_style(view: ConfigView) -> AttentionStyle:
    bias = view.flag("attention_bias")
    return AttentionStyle(bias, bias, "full")


def olmo3(view: ConfigView) -> Parts:
    """OLMo 2 with three window layers before each full one."""
    view.require("mlp_bias", False, "this family is known without MLP biases")
    shape = read_shape(view)
    windows = layer_windows(view, shape.num_layers, read_window(view), lambda index: bool((index + 1) % 4))
    return decoder(shape, style=_full_norm_style(view), mlp=plain_gated_mlp(view, shape), window=windows)


def olmoe(view: ConfigView) -> Parts:
    """OLMo 2's attention with experts in every layer."""
    shape = read_shape(view)
    require_square(view, shape)
    return decoder(shape, style=_full_norm_style(view), mlp=_all_experts(view, shape))


# -------------------------------------------------------------------------------------------------------- Cohere


def cohere(view: ConfigView) -> Parts:
    """Attention and MLP in parallel behind one norm; norms of q and k where use_qk_norm says so."""
    shape, bias = read_shape(view), view.flag("attention_bias")
    style = AttentionStyle(bias, bias, "full" if view.flag("use_qk_norm") else "none")
    return decoder(shape, style=style, mlp=plain_gated_mlp(view, shape), norms=norm(shape.hidden))


def cohere2(view: ConfigView) -> Parts:
    """Cohere with three window layers before each full one."""
    view.require("use_qk_norm", False, "this family is known without norms of q and k")
    view.require("order_of_interleaved_layers", "local_attn_first", "only windows first are known")
    for name in ("use_embedding_sharing", "use_gated_activation", "use_parallel_block"):
        view.require(name, True, "another value is another layout")
    view.pass_over("how its first code spread the embedding over GPUs", "use_parallel_embedding")
    shape, bias = read_shape(view), view.flag("attention_bias")
    require_square(view, shape)
    period = view.integer("sliding_window_pattern", "_sliding_window_pattern", "layer_switch", default=4)
    windows = layer_windows(view, shape.num_layers, read_window(view), lambda index: bool((index + 1) % period))
    style, mlp = AttentionStyle(bias, bias), plain_gated_mlp(view, shape)
    return decoder(shape, style=style, mlp=mlp, window=windows, norms=norm(shape.hidden))


# ------------------------------------------------------------------------------------------------------ EXAONE 4


def exaone4(view: ConfigView) -> Parts:
    """Per-head norms of q and k; window layers by layer_types or by a pattern such as 4 or LLLG."""
    no_biases(view)
    shape, window = read_shape(view), read_window(view)
    period = _pattern_period(view)
    windows = layer_windows(
        view, shape.num_layers, window, lambda index: window is not None and bool((index + 1) % period)
    )
    return decoder(shape, style=AttentionStyle(qk_norm="head"), mlp=plain_gated_mlp(view, shape), window=windows)


def _pattern_period(view: ConfigView) -> int:
    """sliding_window_pattern as a period: a number, or letters that are L but for a last G."""
    if is_null(view, "sliding_window_pattern"):
        return 1
    letters = view.data.get("sliding_window_pattern")
    if not isinstance(letters, str):
        return int(view.integer("sliding_window_pattern"))
    if not letters.endswith("G") or letters.strip("L") != "G":
        raise view.unsupported(
            f"sliding_window_pattern is {quoted(letters)}; a number or letters such as LLLG are known"
        )
    return len(view.text("sliding_window_pattern"))


# ------------------------------------------------------------------------------------------- StableLM, StarCoder 2


def stablelm(view: ConfigView) -> Parts:
    """LayerNorm; one norm instead of two where attention and MLP are in parallel; a norm for each head of q and k."""
    no_biases(view)
    shape = read_shape(view)
    require_square(view, shape)
    style = AttentionStyle(view.flag("use_qkv_bias"), False, "full" if view.flag("qk_layernorm") else "none")
    norms = norm(shape.hidden, bias=True, count=1 if view.flag("use_parallel_residual") else 2)
    last = norm(shape.hidden, bias=True, role="final_norm")
    return decoder(shape, style=style, mlp=plain_gated_mlp(view, shape), norms=norms, final_norm=last)


def starcoder2(view: ConfigView) -> Parts:
    """LayerNorm, a plain MLP, one `use_bias` for every linear layer, one window for all layers or none."""
    view.require("mlp_type", "default", "only the plain MLP is known")
    view.require("norm_type", "layer_norm", "only LayerNorm is known")
    bias = view.flag("use_bias")
    return layer_norm_decoder(view, AttentionStyle(bias, bias), bias, read_window(view))


def nemotron(view: ConfigView) -> Parts:
    """LayerNorm and a plain MLP; biases where attention_bias and mlp_bias say so."""
    bias = view.flag("attention_bias")
    return layer_norm_decoder(view, AttentionStyle(bias, bias), view.flag("mlp_bias"), None)


def layer_norm_decoder(view: ConfigView, style: AttentionStyle, mlp_bias: bool, window: int | None) -> Parts:
    """A decoder of LayerNorm with bias and a plain MLP of `intermediate_size`."""
    shape = read_shape(view)
    return decoder(
        shape,
        style=style,
        mlp=same_mlp(plain_mlp(shape.hidden, view.integer("intermediate_size"), bias=mlp_bias)),
        window=lambda _: window,
        norms=norm(shape.hidden, bias=True, count=2),
        final_norm=norm(shape.hidden, bias=True, role="final_norm"),
    )


# ---------------------------------------------------------------------------------------------------- Nemotron NAS


MAX_FFN_MULT = 1000


class _Block(NamedTuple):
    """A layer of Nemotron NAS. `kv_heads` 0: a linear layer instead of attention; None: nothing. `width` alike."""

    kv_heads: int | None
    width: int | None


def nemotron_nas(view: ConfigView) -> Parts:
    """A Llama whose layers differ: `block_configs` states query heads per KV head and MLP width, or leaves them out."""
    no_biases(view)
    view.dismiss("intermediate_size", "block_configs states it layer by layer")
    shape = read_shape(view)
    blocks = [_block(part, shape) for part in view.children("block_configs")]
    if len(blocks) != shape.num_layers:
        raise view.error(
            f"block_configs has {counted(len(blocks), 'entry')}; {shape.num_layers}, one for each layer, are needed"
        )
    layers = layers_of(blocks, lambda block: _nas_layer(shape, block))
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def _block(view: ConfigView, shape: Shape) -> _Block:
    mixer, mlp = view.child("attention"), view.child("ffn")
    for part in (mixer, mlp):
        part.require("sparsify", None, "sparse layers are not known")
    for name in ("window_length", "num_sink_tokens"):
        mixer.require(name, None, "windows with sinks are not known")
    mixer.pass_over("they only matter with windows", "unshifted_sink", "use_prefill_window_in_sink_attention")
    return _Block(
        _kept(mixer, lambda: _group_heads(mixer, shape.heads)), _kept(mlp, lambda: _nas_width(mlp, shape.hidden))
    )


def _kept(part: ConfigView, size: Callable[[], int]) -> int | None:
    """The size of a part that is there; None without it, 0 where a linear layer stands in."""
    part.pass_over("they only apply to attention and MLP", "n_heads_in_group", "ffn_mult")
    is_absent, is_linear = part.flag("no_op"), part.flag("replace_with_linear")
    if is_absent:
        return None
    return 0 if is_linear else size()


def _group_heads(mixer: ConfigView, heads: int) -> int:
    group = mixer.integer("n_heads_in_group", high=heads)
    if heads % group:
        raise mixer.error(f"n_heads_in_group is {group}, which does not divide {counted(heads, 'attention head')}")
    return int(heads // group)


def _nas_width(mlp: ConfigView, hidden: int) -> int:
    """Two thirds of ffn_mult times hidden_size, rounded up to a multiple of 256."""
    ratio = mlp.number("ffn_mult")
    if not 3 / (2 * hidden) <= ratio <= MAX_FFN_MULT:
        raise mlp.error(f"ffn_mult is {ratio}; a number above 0, and at most {MAX_FFN_MULT}, is needed")
    return -(-int(2 * ratio * hidden / 3) // 256) * 256


def _nas_layer(shape: Shape, block: _Block) -> Layer:
    mixer: Groups = ()
    if block.kv_heads is not None:
        square = linear("other", shape.hidden, shape.hidden)
        mixer = attention(shape.hidden, shape.heads, block.kv_heads, shape.head_dim) if block.kv_heads else square
        mixer = (*mixer, *norm(shape.hidden))
    mlp: Groups = ()
    if block.width is not None:
        mlp = gated_mlp(shape.hidden, block.width) if block.width else linear("mlp", shape.hidden, shape.hidden)
        mlp = (*mlp, *norm(shape.hidden))
    if not block.kv_heads:
        return Layer(NoCache(), (*mixer, *mlp))
    return Layer(attention_cache(block.kv_heads, shape.head_dim, None), (*mixer, *mlp), shape.heads)


_UNTIED = {"tie_word_embeddings": False}
_GRANITE_MOE = class_sizes(
    32000, 4096, 11008, 32, 32, None, 2048, False, attention_bias=False, num_local_experts=8, num_experts_per_tok=2
)

FAMILIES = {
    "llama": Family(llama, class_sizes(32000, 4096, 11008, 32, 32, None, 2048, False)),
    "internlm": Family(internlm, _UNTIED),
    "internlm3": Family(internlm3, class_sizes(128512, 4096, 10240, 48, 32, 2, 32768, False, head_dim=128)),
    "internlm2": Family(internlm, _UNTIED | {"bias": True}),
    "baichuan": Family(baichuan, _UNTIED),
    "xverse": Family(_without_biases, _UNTIED),
    "orion": Family(orion, _UNTIED),
    "minicpm": Family(llama, {"tie_word_embeddings": True}),
    "arcee": Family(
        arcee,
        class_sizes(32000, 2560, 18432, 32, 32, None, 4096, False, attention_bias=False, mlp_bias=False),
    ),
    "hunyuan_v1_dense": Family(
        hunyuan_v1_dense, class_sizes(290943, 4096, 11008, 32, 32, None, 2048, False, attention_bias=False)
    ),
    "exaone": Family(exaone, _UNTIED | {"num_key_value_heads": 8}),
    "exaone4": Family(
        exaone4,
        class_sizes(102400, 4096, 16384, 32, 32, 32, 2048, False, sliding_window=4096, sliding_window_pattern=4),
    ),
    "smollm3": Family(smollm3, class_sizes(128256, 2048, 11008, 36, 16, 4, 32768, True)),
    "seed_oss": Family(
        seed_oss,
        class_sizes(
            155136, 4096, 27648, 64, 80, 8, 524288, False,
            head_dim=128, attention_bias=True, attention_out_bias=False, mlp_bias=False,
        ),
    ),
    "ernie4_5": Family(
        ernie4_5, class_sizes(103424, 1024, 3072, 18, 16, 2, 131072, True, head_dim=128, use_bias=False)
    ),
    "helium": Family(
        helium,
        class_sizes(48000, 2560, 7040, 24, 20, 20, 4096, False, head_dim=128, attention_bias=False, mlp_bias=False),
    ),
    "apertus": Family(
        apertus, class_sizes(131072, 4096, 14336, 32, 32, None, 65536, False, attention_bias=False)
    ),
    "mistral": Family(mistral, class_sizes(32000, 4096, 14336, 32, 32, 8, 131072, False, sliding_window=4096)),
    "ministral": Family(ministral, class_sizes(32000, 4096, 14336, 32, 32, 8, 131072, False, sliding_window=4096)),
    "ministral3": Family(mistral, class_sizes(131072, 4096, 14336, 34, 32, 8, 262144, False, head_dim=128)),
    "mixtral": Family(
        mixtral,
        class_sizes(32000, 4096, 14336, 32, 32, 8, 131072, False, num_experts_per_tok=2, num_local_experts=8),
    ),
    "iquestcoder": Family(llama, class_sizes(76800, 5120, 27648, 80, 40, 8, 131072, False, head_dim=128)),
    "granite": Family(llama, class_sizes(32000, 4096, 11008, 32, 32, None, 2048, False)),
    "granitemoe": Family(granitemoe, _GRANITE_MOE),
    "granitemoeshared": Family(granitemoe, _GRANITE_MOE),
    "olmo": Family(olmo, class_sizes(50304, 4096, 11008, 32, 32, None, 2048, False, attention_bias=False)),
    "olmo2": Family(olmo2, class_sizes(50304, 4096, 11008, 32, 32, None, 2048, False, attention_bias=False)),
    "olmo3": Family(
        olmo3,
        class_sizes(50304, 4096, 11008, 32, 32, None, 2048, False, attention_bias=False, sliding_window=4096),
    ),
    "olmoe": Family(
        olmoe,
        class_sizes(
            50304, 2048, 2048, 16, 16, None, 4096, False,
            attention_bias=False, num_experts_per_tok=8, num_experts=64,
        ),
    ),
    "cohere": Family(
        cohere, class_sizes(256000, 8192, 22528, 40, 64, None, 8192, True, attention_bias=False, use_qk_norm=False)
    ),
    "cohere2": Family(
        cohere2, class_sizes(256000, 8192, 22528, 40, 64, None, 8192, True, attention_bias=False, sliding_window=4096)
    ),
    "stablelm": Family(
        stablelm,
        class_sizes(
            50304, 2560, 6912, 32, 32, 32, 4096, False,
            use_qkv_bias=False, qk_layernorm=False, use_parallel_residual=False,
        ),
    ),
    "starcoder2": Family(starcoder2, class_sizes(49152, 3072, 12288, 30, 24, 2, 4096, True, use_bias=True)),
    "nemotron": Family(
        nemotron, class_sizes(256000, 6144, 24576, 32, 48, None, 4096, False, attention_bias=False, mlp_bias=False)
    ),
    "jais2": Family(
        nemotron, class_sizes(150272, 3328, 26624, 32, 26, None, 8192, False, attention_bias=True, mlp_bias=True)
    ),
    "nemotron-nas": Family(nemotron_nas, _UNTIED),
}  # fmt: skip
