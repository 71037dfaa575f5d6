"""GPT-2 and what came after it outside the Llama line: GPT-J, NeoX, Falcon, OPT, BLOOM, Phi, GLM, gpt-oss."""

from __future__ import annotations

from dataclasses import replace

from kvplan.attention import FullAttention
from kvplan.blocks import (
    Groups,
    attention,
    embedding,
    gated_mlp,
    linear,
    lm_head,
    norm,
    plain_mlp,
    routed_experts,
    router,
    vector,
)
from kvplan.importer.decoder import (
    HEAD_KEYS,
    HIDDEN_KEYS,
    LAYER_KEYS,
    MAX_LAYERS,
    AttentionStyle,
    Parts,
    Shape,
    attention_cache,
    class_sizes,
    decoder,
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

_BIASED = AttentionStyle(qkv_bias=True, out_bias=True)


def _read_old_shape(view: ConfigView, *context_keys: str) -> Shape:
    """The sizes of classes that know no head_dim and no KV heads: hidden / heads, and one KV head for each head."""
    hidden, heads = view.integer(*HIDDEN_KEYS), view.integer(*HEAD_KEYS)
    if hidden % heads:
        raise view.error(f"hidden_size {hidden} is not a multiple of {counted(heads, 'attention head')}")
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=view.integer("vocab_size"),
        context=view.integer(*context_keys, default=None) if context_keys else None,
        tied=view.flag("tie_word_embeddings"),
    )


def _inner_width(view: ConfigView, *names: str, hidden: int) -> int:
    """The width of the MLP; absent or null means four times hidden_size."""
    return int(view.integer(*names, default=4 * hidden))


def _layer_norm_decoder(
    shape: Shape, style: AttentionStyle, width: int, *, mlp_bias: bool = True, norms: int = 2, outer: Groups = ()
) -> Parts:
    """A decoder of LayerNorm with bias and a plain MLP of `width`."""
    return decoder(
        shape,
        style=style,
        mlp=same_mlp(plain_mlp(shape.hidden, width, bias=mlp_bias)),
        norms=norm(shape.hidden, bias=True, count=norms),
        final_norm=norm(shape.hidden, bias=True, role="final_norm"),
        outer=outer,
    )


def _projections(shape: Shape, kv_heads: int, bias: bool) -> Groups:
    """q, k, v and output, all with a bias or none."""
    return attention(
        shape.hidden, shape.heads, kv_heads, shape.head_dim, q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias
    )


def _positions(rows: int, hidden: int) -> Groups:
    """A learned position embedding, which bounds the context."""
    return linear("position_embedding", rows, hidden)


def _head_bias(shape: Shape) -> Groups:
    """The bias of the head, which a tied head has too."""
    return vector("lm_head", shape.vocab, split="rows")


# --------------------------------------------------------------------------------------------------------- GPT-2


def gpt2(view: ConfigView) -> Parts:
    """MHA with biases everywhere and learned positions."""
    return _gpt2(view, _read_old_shape(view, "n_positions", "max_position_embeddings"))


def gpt_bigcode(view: ConfigView) -> Parts:
    """GPT-2 with one KV head where multi_query says so (SantaCoder, StarCoder)."""
    shape = _read_old_shape(view, "n_positions", "max_position_embeddings")
    return _gpt2(view, replace(shape, kv_heads=1) if view.flag("multi_query") else shape)


def _gpt2(view: ConfigView, shape: Shape) -> Parts:
    view.require("add_cross_attention", False, "a decoder of its own has no cross-attention")
    view.dismiss("n_ctx", "n_positions is the limit")
    positions = _positions(view.integer("n_positions", "max_position_embeddings"), shape.hidden)
    return _layer_norm_decoder(shape, _BIASED, _inner_width(view, "n_inner", hidden=shape.hidden), outer=positions)


def gpt_neo(view: ConfigView) -> Parts:
    """No biases of q, k and v; its local layers look at a window but keep every token."""
    for name in ("attention_types", "attention_layers", "window_size"):
        view.dismiss(name, "local layers look at a window, and their cache still keeps every token")
    shape = _read_old_shape(view, "max_position_embeddings")
    positions = _positions(view.integer("max_position_embeddings"), shape.hidden)
    width = _inner_width(view, "intermediate_size", hidden=shape.hidden)
    return _layer_norm_decoder(shape, AttentionStyle(out_bias=True), width, outer=positions)


def gptj(view: ConfigView) -> Parts:
    """Attention without biases and a biased MLP in parallel behind one norm; a bias of the head. CodeGen alike."""
    view.dismiss("n_ctx", "n_positions is the limit")
    view.require("rotary", True, "other positions are not known")
    shape = _read_old_shape(view, "n_positions", "max_position_embeddings")
    width = _inner_width(view, "n_inner", hidden=shape.hidden)
    return _layer_norm_decoder(shape, AttentionStyle(), width, norms=1, outer=_head_bias(shape))


def gpt_neox(view: ConfigView) -> Parts:
    """MHA (Pythia, GPT-NeoX); attention_bias is for the projections of attention only."""
    view.pass_over("both orders have the same norms", "use_parallel_residual")
    shape, bias = _read_old_shape(view, "max_position_embeddings"), view.flag("attention_bias")
    return _layer_norm_decoder(shape, AttentionStyle(bias, bias), view.integer("intermediate_size"))


# ---------------------------------------------------------------------------------------------------------- BLOOM


def bloom(view: ConfigView) -> Parts:
    """ALiBi instead of positions, and a norm behind the embedding."""
    shape = _read_old_shape(view, "seq_length")
    embedding_norm = norm(shape.hidden, bias=True)
    return _layer_norm_decoder(shape, _BIASED, 4 * shape.hidden, outer=embedding_norm)


# ----------------------------------------------------------------------------------------------------------- MPT


def mpt(view: ConfigView) -> Parts:
    """ALiBi, norms without biases, no biases at all."""
    view.require("no_bias", True, "the class builds no biases")
    view.require("embedding_fraction", 1.0, "another fraction is another embedding")
    view.require("expansion_ratio", 4, "the class builds an MLP of four times d_model")
    view.pass_over("the class builds no positions", "learned_pos_emb")
    _mpt_attention(view)
    shape = _read_old_shape(view, "max_seq_len")
    return decoder(shape, mlp=same_mlp(plain_mlp(shape.hidden, 4 * shape.hidden)))


def _mpt_attention(view: ConfigView) -> None:
    if not view.has("attn_config"):
        return
    inner = view.child("attn_config")
    inner.require("attn_type", "multihead_attention", "only multi-head attention is known")
    inner.require("qk_ln", False, "norms of q and k are not known")
    inner.require("alibi", True, "other positions are not known")
    inner.pass_over(
        "run-time settings of attention",
        "attn_impl", "alibi_bias_max", "clip_qkv", "softmax_scale", "prefix_lm", "attn_uses_sequence_id",
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- OPT


def opt(view: ConfigView) -> Parts:
    """Learned positions with two more rows; opt-350m embeds in fewer values and projects in and out."""
    view.require("layer_norm_elementwise_affine", True, "norms without weights are not known")
    shape, bias = _read_old_shape(view, "max_position_embeddings"), view.flag("enable_bias")
    narrow = view.integer("word_embed_proj_dim", default=shape.hidden)
    rows = view.integer("max_position_embeddings") + 2
    layer = Layer(
        FullAttention(shape.kv_heads, shape.head_dim),
        (
            *_projections(shape, shape.heads, bias),
            *plain_mlp(shape.hidden, view.integer("ffn_dim"), bias=bias),
            *norm(shape.hidden, bias=True, count=2),
        ),
        shape.heads,
    )
    is_before, is_removed = view.flag("do_layer_norm_before"), view.flag("_remove_final_layer_norm")
    final_norm = norm(shape.hidden, bias=True, role="final_norm") if is_before and not is_removed else ()
    projections = () if narrow == shape.hidden else _in_and_out(shape.hidden, narrow)
    return Parts(
        layers=(layer,) * shape.num_layers,
        weights=(
            *embedding(shape.vocab, narrow),
            *_positions(rows, shape.hidden),
            *projections,
            *final_norm,
            *(() if shape.tied else lm_head(shape.vocab, narrow)),
        ),
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        vocab_size=shape.vocab,
        context_limit=shape.context,
        tied_embeddings=shape.tied,
    )


def _in_and_out(hidden: int, narrow: int) -> Groups:
    return (*linear("other", hidden, narrow), *linear("other", narrow, hidden))


# --------------------------------------------------------------------------------------------------------- Falcon


def falcon(view: ConfigView) -> Parts:
    """The new architecture has grouped KV heads, the old one a single KV head where multi_query says so, else MHA."""
    view.require("ff_factor", 4, "the class reads ffn_hidden_size only")
    shape, bias = _read_old_shape(view, "max_position_embeddings"), view.flag("bias")
    is_new = view.flag("new_decoder_architecture")
    kv_heads = _falcon_kv_heads(view, shape, is_new)
    mlp = plain_mlp(shape.hidden, _inner_width(view, "ffn_hidden_size", hidden=shape.hidden), bias=bias)
    projections = _projections(shape, kv_heads, bias)
    norms = norm(shape.hidden, bias=True, count=_falcon_norms(view, is_new))
    cached = shape.heads if is_new else kv_heads
    if cached != kv_heads:
        view.note(
            f"the class keeps K and V of all {counted(cached, 'head')}, copies of its {counted(kv_heads, 'KV head')}; "
            f"an engine that keeps {kv_heads} needs {kv_heads}/{cached} of this cache, as with_kv_heads({kv_heads}) "
            "shows"
        )
    layer = Layer(FullAttention(cached, shape.head_dim), (*projections, *mlp, *norms), shape.heads)
    return with_outer(shape, (layer,) * shape.num_layers, norm(shape.hidden, bias=True, role="final_norm"))


def _falcon_kv_heads(view: ConfigView, shape: Shape, is_new: bool) -> int:
    stated, is_multi_query = view.integer("num_kv_heads", "n_head_kv", default=shape.heads), view.flag("multi_query")
    if not is_new and is_multi_query:
        return 1
    if shape.heads % stated or (not is_new and stated != shape.heads):
        raise view.error(
            f"num_kv_heads is {stated}; the class cannot share them among {counted(shape.heads, 'attention head')}"
        )
    return int(stated)


def _falcon_norms(view: ConfigView, is_new: bool) -> int:
    """Norms of a layer: one for attention and MLP in parallel or two, and two where they are in sequence."""
    stated, is_parallel = (
        view.integer("num_ln_in_parallel_attn", default=1 + is_new, high=2),
        view.flag("parallel_attn"),
    )
    if not is_new and stated == 2:
        raise view.error("num_ln_in_parallel_attn is 2; the old architecture has one norm before attention and MLP")
    if is_new and not is_parallel:
        raise view.error("parallel_attn is false; the new architecture has attention and MLP in parallel")
    return int(stated) if is_parallel else 2


def refined_web(view: ConfigView) -> Parts:
    """Falcon under its first names: n_head_kv says that it is the new architecture."""
    view.decide("new_decoder_architecture", view.has("n_head_kv"))
    return falcon(view)


# ------------------------------------------------------------------------------------------------------------ Phi


def phi(view: ConfigView) -> Parts:
    """Attention and MLP in parallel behind one norm, biases everywhere, the head's included."""
    view.require("attention_bias", False, "the class has biases of its own and does not read this one")
    shape = read_shape(view)
    width = _inner_width(view, "intermediate_size", hidden=shape.hidden)
    qk_norms = norm(shape.hidden // shape.heads, bias=True, count=2) if view.flag("qk_layernorm") else ()
    return _phi(shape, width, qk_norms)


def _phi(shape: Shape, width: int, qk_norms: Groups = ()) -> Parts:
    return decoder(
        shape,
        style=_BIASED,
        mlp=same_mlp(plain_mlp(shape.hidden, width, bias=True)),
        norms=(*norm(shape.hidden, bias=True), *qk_norms),
        final_norm=norm(shape.hidden, bias=True, role="final_norm"),
        outer=_head_bias(shape),
    )


def phi_msft(view: ConfigView) -> Parts:
    """Phi 1.5 and 2 under the names of their first code."""
    if view.has("architecture"):
        view.child("architecture").require("block_cls", "parallel", "only blocks in parallel are known")
        view.child("architecture").pass_over("how the MLP is computed", "mlp", "mixer")
    shape = _read_old_shape(view, "n_positions")
    kv_heads = view.integer("n_head_kv", default=shape.heads)
    if shape.heads % kv_heads:
        raise view.error(f"{counted_and(shape.heads, 'attention head', 'are')} not a multiple of {kv_heads} n_head_kv")
    return _phi(replace(shape, kv_heads=kv_heads), _inner_width(view, "n_inner", hidden=shape.hidden))


def phi3(view: ConfigView) -> Parts:
    """A Llama layout whose class fuses q, k, v and gate, up; one window for all layers, or none. Phi 4 alike."""
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        view.require(name, False, "this family is known without biases")
    view.require("full_attn_mod", 1, "another value makes layers differ")
    shape, window = read_shape(view), read_window(view)
    return decoder(shape, mlp=plain_gated_mlp(view, shape), window=lambda _: window)


# ------------------------------------------------------------------------------------------------------------ GLM


def glm(view: ConfigView) -> Parts:
    """A Llama layout with biases of q, k and v only."""
    return _glm(view, norms=2)


def glm4(view: ConfigView) -> Parts:
    """GLM with norms behind attention and MLP too."""
    return _glm(view, norms=4)


def _glm(view: ConfigView, norms: int) -> Parts:
    shape, bias = read_shape(view), view.flag("attention_bias")
    mlp = plain_gated_mlp(view, shape)
    return decoder(shape, style=AttentionStyle(qkv_bias=bias), mlp=mlp, norms=norm(shape.hidden, count=norms))


def chatglm(view: ConfigView) -> Parts:
    """ChatGLM 2 and 3 and the first GLM 4: multi_query_group_num KV heads where multi_query_attention says so."""
    view.require("add_bias_linear", False, "only biases of q, k and v are known")
    view.require("rmsnorm", True, "only RMSNorm is known")
    view.require("post_layer_norm", True, "a decoder without final norm is not known")
    heads, hidden = view.integer("num_attention_heads"), view.integer("hidden_size")
    grouped = view.integer("multi_query_group_num", default=None)
    kv_heads = grouped if view.flag("multi_query_attention") else heads
    if not kv_heads or heads % kv_heads:
        raise view.error(
            f"multi_query_group_num is {kv_heads}; a divisor of {counted(heads, 'attention head')} is needed"
        )
    shape = Shape(
        num_layers=view.integer("num_layers", "num_hidden_layers", high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=view.integer("kv_channels"),
        vocab=view.integer("padded_vocab_size", "vocab_size"),
        context=view.integer("seq_length", default=None),
        tied=view.flag("tie_word_embeddings"),
    )
    mlp = same_mlp(gated_mlp(hidden, view.integer("ffn_hidden_size")))
    return decoder(shape, style=AttentionStyle(qkv_bias=view.flag("add_qkv_bias")), mlp=mlp)


# -------------------------------------------------------------------------------------------------------- gpt-oss


def gpt_oss(view: ConfigView) -> Parts:
    """Window and full layers in turn, a learned sink for each head, experts with biases in every layer."""
    shape, bias = read_shape(view), view.flag("attention_bias")
    windows = layer_windows(view, shape.num_layers, read_window(view), lambda index: index % 2 == 0)
    experts = view.integer("num_local_experts", "num_experts")
    per_token, width = view.integer("num_experts_per_tok", "experts_per_token"), view.integer("intermediate_size")
    weights = (
        *_projections(shape, shape.kv_heads, bias),
        *vector("attention_sink", shape.heads, split="rows"),
        *router(shape.hidden, experts, bias=True),
        *routed_experts(shape.hidden, width, experts, per_token, bias=True),
        *norm(shape.hidden, count=2),
    )  # fmt: skip
    kinds = [windows(index) for index in range(shape.num_layers)]
    layers = layers_of(
        kinds, lambda window: Layer(attention_cache(shape.kv_heads, shape.head_dim, window), weights, shape.heads)
    )
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


_FALCON = {
    "multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": False,
    "tie_word_embeddings": True, "max_position_embeddings": 2048,
}  # fmt: skip
_UNTIED = {"tie_word_embeddings": False}
_GPTJ = {
    "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16,
    "tie_word_embeddings": False,
}  # fmt: skip
_GPT2 = {
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "tie_word_embeddings": True,
}  # fmt: skip
_GLM = class_sizes(151552, 4096, 13696, 40, 32, 2, 131072, False, head_dim=128, attention_bias=True)

FAMILIES = {
    "gpt2": Family(gpt2, _GPT2),
    "gpt_bigcode": Family(gpt_bigcode, _GPT2 | {"multi_query": True}),
    "gpt_neo": Family(
        gpt_neo,
        {
            "vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24,
            "num_heads": 16, "tie_word_embeddings": True,
        },
    ),
    "gptj": Family(gptj, _GPTJ),
    "codegen": Family(gptj, _GPTJ),
    "gpt_neox": Family(gpt_neox, class_sizes(50432, 6144, 24576, 44, 64, None, 2048, False, attention_bias=True)),
    "bloom": Family(
        bloom,
        {"vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "tie_word_embeddings": True},
    ),
    "mpt": Family(
        mpt,
        {
            "vocab_size": 50368, "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048,
            "tie_word_embeddings": True,
        },
    ),
    "opt": Family(
        opt,
        {
            "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
            "max_position_embeddings": 2048, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
            "num_attention_heads": 12, "enable_bias": True, "tie_word_embeddings": True,
        },
    ),
    "falcon": Family(
        falcon,
        _FALCON | {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
    ),
    "RefinedWeb": Family(refined_web, _FALCON),
    "RefinedWebModel": Family(refined_web, _FALCON),
    "phi": Family(phi, class_sizes(51200, 2048, 8192, 24, 32, None, 2048, False, qk_layernorm=False)),
    "phi-msft": Family(phi_msft, _UNTIED),
    "mixformer-sequential": Family(phi_msft, _UNTIED),
    "phi3": Family(phi3, class_sizes(32064, 3072, 8192, 32, 32, None, 4096, False)),
    "glm": Family(glm, _GLM),
    "glm4": Family(glm4, _GLM),
    "chatglm": Family(chatglm, _UNTIED | {"multi_query_attention": False, "add_qkv_bias": False}),
    "gpt_oss": Family(
        gpt_oss,
        class_sizes(
            201088, 2880, 2880, 36, 64, 8, 131072, False,
            head_dim=64, attention_bias=True, sliding_window=128, num_local_experts=128, num_experts_per_tok=4,
        ),
    ),
}  # fmt: skip
