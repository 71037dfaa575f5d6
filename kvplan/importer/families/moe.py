"""Families whose layers hold routed experts, with ordinary attention: GLM 4.5, MiniMax, Llama 4, Hunyuan, and more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvplan.attention import ChunkedAttention, FullAttention, IndexedAttention, LayerCache, SlidingAttention
from kvplan.blocks import (
    Groups,
    attention,
    gated_mlp,
    linear,
    lm_head,
    norm,
    pinned_matrix,
    pinned_vector,
    routed_experts,
    router,
)
from kvplan.importer.decoder import (
    AttentionStyle,
    Parts,
    Shape,
    decoder,
    layers_of,
    read_shape,
    read_window,
    same_mlp,
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.families.llama import no_classification_head
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted

MTP_KEYS = ("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules", "mtp_num_hidden_layers", "mtp_num_layers")


def mixture(gate: Groups, hidden: int, width: int, experts: int, per_token: int, shared: int = 0) -> Groups:
    """`gate`, routed experts of `width`, and one MLP of `shared` values that every token reads (0: none)."""
    common = gated_mlp(hidden, shared, role="shared_experts") if shared else ()
    return (*gate, *routed_experts(hidden, width, experts, per_token), *common)


def skip_extra_predictions(view: ConfigView) -> None:
    """Multi-token-prediction layers stand in checkpoints, but the decoder runs without them."""
    if any(view.data.get(key) for key in MTP_KEYS):
        view.note("layers that predict further tokens are not counted: they are not part of the decoder")
    view.pass_over("they are not part of the decoder", *MTP_KEYS)


def layer_list(view: ConfigView, name: str, num_layers: int, choices: Sequence[str]) -> list[str] | None:
    """The text for each layer under `name`, or None. Raises ConfigError where there is not one for each layer."""
    found: list[str] | None = view.texts(name, default=None, choices=choices)
    if found is not None and len(found) != num_layers:
        raise view.error(f"{name} has {counted(len(found), 'entry')} for {counted(num_layers, 'layer')}")
    return found


def flag_list(view: ConfigView, values: Any, name: str, num_layers: int) -> list[bool]:
    """One true or false for each layer, from a list of 0 and 1. Raises ConfigError."""
    if not isinstance(values, list) or len(values) != num_layers or any(item not in (0, 1) for item in values):
        raise view.error(f"{name} must hold 0 or 1 for each of the {counted(num_layers, 'layer')}")
    return [bool(item) for item in values]


def each(view: ConfigView, name: str, num_layers: int, low: int = 1) -> int:
    """A number, or a list that states the same number for every layer. Refuses layers that differ."""
    if not isinstance(view.data.get(name), list):
        return int(view.integer(name, low=low))
    values = view.integers(name, low=low)
    if len(values) != num_layers or len(set(values)) != 1:
        raise view.unsupported(
            f"{name} must be one number, or the same number for each of the {counted(num_layers, 'layer')}"
        )
    return int(values[0])


def glm4_moe(view: ConfigView) -> Parts:
    """Biases of q, k and v only; dense layers first; the router stays float32."""
    shape = read_shape(view)
    skip_extra_predictions(view)
    experts = view.integer("n_routed_experts", "num_local_experts", "num_experts")
    width = view.integer("moe_intermediate_size")
    moe = mixture(
        pinned_matrix("router", experts, shape.hidden),
        shape.hidden,
        width,
        experts,
        view.integer("num_experts_per_tok"),
        shared=width * view.integer("n_shared_experts", low=0),
    )
    style = AttentionStyle(qkv_bias=view.flag("attention_bias"), qk_norm="head" if view.flag("use_qk_norm") else "none")
    return decoder(shape, style=style, mlp=dense_first(view, shape, moe))


def dense_first(view: ConfigView, shape: Shape, moe: Groups) -> Callable[[int], Groups]:
    """A dense MLP in the first `first_k_dense_replace` layers, `moe` in the others."""
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    count = view.integer("first_k_dense_replace", low=0)
    return lambda index: dense if index < count else moe


def bailing_moe(view: ConfigView) -> Parts:
    """Ling 2 and Ring 2, by the code that is published with them: dense layers first, norms of q and k a head."""
    classes = view.texts("architectures", default=[])
    if "BailingMoeV2ForCausalLM" not in classes:
        raise view.unsupported("of this family only BailingMoeV2ForCausalLM (Ling 2, Ring 2) is known")
    shape = read_shape(view)
    skip_extra_predictions(view)
    for name, value in (("use_rmsnorm", True), ("norm_head", False), ("sliding_window", None)):
        view.require(name, value, "no published model of this family has it otherwise")
    view.pass_over("how a router picks", "router_dtype", "score_function", "router_type")
    view.dismiss("max_window_layers", "this family has no windows")
    view.require("moe_router_enable_expert_bias", True, "routers without a bias an expert are not known")
    experts, width = view.integer("num_experts"), view.integer("moe_intermediate_size")
    shared = width * view.integer("num_shared_experts", low=0, default=0)
    view.require("moe_shared_expert_intermediate_size", shared, "shared experts of another width are not known")
    gate, active = router(shape.hidden, experts), view.integer("num_experts_per_tok")
    moe = mixture(gate, shape.hidden, width, experts, active, shared)
    style = AttentionStyle(
        qkv_bias=view.flag("use_qkv_bias"),
        out_bias=view.flag("use_bias"),
        qk_norm="head" if view.flag("use_qk_norm") else "none",
    )
    return decoder(shape, style=style, mlp=dense_first(view, shape, moe))


def minimax_m2(view: ConfigView) -> Parts:
    """Norms over all values of q and k; experts in every layer, none shared."""
    shape = read_shape(view)
    skip_extra_predictions(view)
    if set(view.integers("attn_type_list", default=[1])) != {1}:
        raise view.unsupported("attn_type_list holds layers other than full attention, which the class does not build")
    view.pass_over("a buffer of one value an expert, not a parameter", "use_routing_bias")
    view.pass_over("every layer holds experts of intermediate_size", "mlp_intermediate_size")
    view.pass_over("settings of layers that are not part of the decoder", "use_mtp", "mtp_transformer_layers")
    view.require("use_qk_norm", True, "the class always norms q and k")
    view.require("qk_norm_type", "per_layer", "other norms of q and k are not known")
    view.require("shared_intermediate_size", 0, "shared experts of this family are not known")
    view.require("layer_types", None, "this family has one kind of layer")
    experts = view.integer("num_local_experts", "num_experts")
    moe = mixture(
        router(shape.hidden, experts),
        shape.hidden,
        view.integer("intermediate_size"),
        experts,
        view.integer("num_experts_per_tok"),
    )
    return decoder(shape, style=AttentionStyle(qk_norm="full"), mlp=same_mlp(moe))


def minimax_m3(view: ConfigView) -> Parts:
    """Sparse layers keep one more key a token, that an indexer scores; dense MLPs have a width of their own."""
    shape = read_shape(view)
    skip_extra_predictions(view)
    view.require("attention_output_gate", False, "an output gate is not known")
    view.require("qk_norm_type", "per_head", "other norms of q and k are not known")
    view.require("use_qk_norm", True, "the class always norms q and k")
    view.require("n_shared_experts", 1, "the class builds one shared MLP of shared_intermediate_size")
    view.pass_over("a buffer of one value an expert, not a parameter", "use_routing_bias")
    view.pass_over("layer by layer in moe_layer_freq or mlp_layer_types", "first_k_dense_replace")
    view.pass_over("experts are intermediate_size wide", "moe_intermediate_size")
    sparse, index = _minimax_m3_sparse(view, shape)
    routed = _minimax_m3_routed(view, shape)
    build = _minimax_m3_layer(view, shape, index)
    layers = layers_of(list(zip(sparse, routed, strict=True)), build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def _minimax_m3_sparse(view: ConfigView, shape: Shape) -> tuple[list[bool], tuple[int, int, int]]:
    """Which layers are sparse; and heads of the indexer, values of its key, tokens that a step reads."""
    inner = optional_child(view, "sparse_attention_config")
    inner.require("use_sparse_attention", True, "the class reads the layers one by one")
    inner.pass_over("how blocks are scored", "sparse_score_type", "sparse_init_block", "sparse_local_block")
    sizes = [
        inner.integer(legacy, default=None) or view.integer(name)
        for name, legacy in (
            ("index_n_heads", "sparse_num_index_heads"),
            ("index_head_dim", "sparse_index_dim"),
            ("index_block_size", "sparse_block_size"),
            ("index_topk_blocks", "sparse_topk_blocks"),
        )
    ]
    view.pass_over("sparse_attention_config says it", "index_n_heads", "index_head_dim")
    view.pass_over("sparse_attention_config says it", "index_block_size", "index_topk_blocks", "index_local_blocks")
    sparse = _minimax_m3_kinds(view, inner, shape.num_layers)
    return sparse, (sizes[0], sizes[1], sizes[2] * sizes[3])


def optional_child(view: ConfigView, name: str) -> ConfigView:
    """The inner object `name`, or an empty one."""
    return view.child(name) if view.has(name) else ConfigView({}, f"{view.where} {name}")


def _minimax_m3_kinds(view: ConfigView, inner: ConfigView, num_layers: int) -> list[bool]:
    kinds = layer_list(view, "layer_types", num_layers, ("full_attention", "minimax_m3_sparse"))
    stated = inner.integers("sparse_attention_freq", default=None)
    sparse = [False] * num_layers
    if stated is not None:
        sparse = flag_list(view, stated, "sparse_attention_freq", num_layers)
    if kinds is not None:
        sparse = [kind == "minimax_m3_sparse" for kind in kinds]
    without_value = inner.integers("sparse_disable_index_value", default=None)
    if without_value is not None and without_value != [int(found) for found in sparse]:
        raise view.unsupported(
            "sparse_disable_index_value is not 1 for exactly the sparse layers: index values are not known"
        )
    return sparse


def _minimax_m3_routed(view: ConfigView, shape: Shape) -> list[bool]:
    """Which layers hold experts."""
    stated = layer_list(view, "mlp_layer_types", shape.num_layers, ("dense", "sparse"))
    legacy = view.data.get("moe_layer_freq")
    view.pass_over("read below", "moe_layer_freq")
    if stated is not None:
        return [kind == "sparse" for kind in stated]
    if legacy is not None:
        return flag_list(view, legacy, "moe_layer_freq", shape.num_layers)
    return [True] * shape.num_layers


def _minimax_m3_layer(
    view: ConfigView, shape: Shape, index: tuple[int, int, int]
) -> Callable[[tuple[bool, bool]], Layer]:
    hidden, (index_heads, index_dim, read) = shape.hidden, index
    experts = view.integer("num_local_experts", "num_experts")
    moe = mixture(
        router(hidden, experts),
        hidden,
        view.integer("intermediate_size"),
        experts,
        view.integer("num_experts_per_tok"),
        shared=view.integer("shared_intermediate_size"),
    )
    dense = gated_mlp(hidden, view.integer("dense_intermediate_size"))
    indexer = (
        *linear("indexer", index_heads * index_dim, hidden),
        *linear("indexer", index_dim, hidden),
        *norm(index_dim, count=2),
    )
    common = (
        *attention(hidden, shape.heads, shape.kv_heads, shape.head_dim, qk_norm="head"),
        *norm(hidden, count=2),
    )
    full = FullAttention(shape.kv_heads, shape.head_dim)
    picked = IndexedAttention(shape.kv_heads, shape.head_dim, index_head_dim=index_dim, max_read_tokens=read)

    def build(kind: tuple[bool, bool]) -> Layer:
        sparse, routed = kind
        weights = (*common, *(indexer if sparse else ()), *(moe if routed else dense))
        return Layer(picked if sparse else full, weights, shape.heads)

    return build


def llama4_text(view: ConfigView) -> Parts:
    """Chunked attention where a layer rotates positions, full attention where it does not; experts interleaved."""
    shape = read_shape(view)
    bias = view.flag("attention_bias")
    view.pass_over("its norms have no weights", "use_qk_norm")
    routed, chunked = _llama4_routed(view, shape), _llama4_chunked(view, shape)
    chunk = read_window(view, "attention_chunk_size")
    experts, width = view.integer("num_local_experts"), view.integer("intermediate_size")
    moe = mixture(
        router(shape.hidden, experts), shape.hidden, width, experts, view.integer("num_experts_per_tok"), shared=width
    )
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size_mlp"))
    common = (
        *attention(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim,
            q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias,
        ),
        *norm(shape.hidden, count=2),
    )  # fmt: skip

    def build(kind: tuple[bool, bool]) -> Layer:
        is_chunked, is_routed = kind
        return Layer(
            chunked_cache(view, shape, chunk) if is_chunked else FullAttention(shape.kv_heads, shape.head_dim),
            (*common, *(moe if is_routed else dense)),
            shape.heads,
        )

    layers = layers_of(list(zip(chunked, routed, strict=True)), build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def chunked_cache(view: ConfigView, shape: Shape, chunk: int | None) -> LayerCache:
    """Attention inside chunks. Raises ConfigError where a layer is chunked and no chunk is stated."""
    if chunk is None:
        raise view.error("lacks attention_chunk_size, but layers are chunked")
    return ChunkedAttention(shape.kv_heads, shape.head_dim, chunk=chunk)


def _llama4_routed(view: ConfigView, shape: Shape) -> list[bool]:
    step = view.integer("interleave_moe_layer_step")
    stated = view.integers("moe_layers", default=None)
    layers = range(step - 1, shape.num_layers, step) if stated is None else stated
    return [index in set(layers) for index in range(shape.num_layers)]


def _llama4_chunked(view: ConfigView, shape: Shape) -> list[bool]:
    """An absent or empty no_rope_layers means every `no_rope_layer_interval`-th layer; 1 there means rotated."""
    kinds = layer_list(view, "layer_types", shape.num_layers, ("full_attention", "chunked_attention"))
    interval = view.integer("no_rope_layer_interval")
    stated = view.integers("no_rope_layers", default=[])
    if kinds is not None:
        return [kind == "chunked_attention" for kind in kinds]
    if read_window(view, "attention_chunk_size") is None:
        return [False] * shape.num_layers
    if stated:
        return flag_list(view, stated, "no_rope_layers", shape.num_layers)
    return [(index + 1) % interval != 0 for index in range(shape.num_layers)]


def hunyuan_moe(view: ConfigView) -> Parts:
    """Per-head norms of q and k; experts and one shared MLP of the same width in every layer."""
    view.require("use_cla", False, "layers that share a cache are not known in this family")
    view.require("use_mla", False, "latent attention is not known in this family")
    view.require("use_qk_norm", True, "the class always norms q and k")
    view.require("moe_layer_num_skipped", 0, "dense layers are not known in this family")
    view.require("mlp_bias", False, "biases of the MLP are not known")
    no_classification_head(view)
    view.pass_over("the class always adds one shared MLP", "use_mixed_mlp_moe")
    view.pass_over("use_cla is false", "cla_share_factor")
    towers = [name for name in view.data if name.startswith(("vit_", "anyres_"))]
    view.pass_over("a vision tower is not built", "num_media_embeds", *towers)
    shape = read_shape(view)
    if view.integer("attention_head_dim", default=shape.head_dim) != shape.head_dim:
        raise view.unsupported(f"attention_head_dim differs from {shape.head_dim}, the width that the class builds")
    return _hunyuan_layers(view, shape)


def _hunyuan_layers(view: ConfigView, shape: Shape) -> Parts:
    width, count = view.integer("intermediate_size"), shape.num_layers
    for key, expected in (("moe_intermediate_size", width), ("num_shared_expert", 1)):
        if view.has(key) and each(view, key, count) != expected:
            raise view.unsupported(f"{key} is not {expected}, the number that the class builds")
    experts, per_token = each(view, "num_experts", count), each(view, "moe_topk", count)
    moe = mixture(pinned_matrix("router", experts, shape.hidden), shape.hidden, width, experts, per_token, shared=width)
    bias = view.flag("attention_bias")
    return decoder(shape, style=AttentionStyle(bias, bias, "head"), mlp=same_mlp(moe))


def afmoe(view: ConfigView) -> Parts:
    """Three windows and one full layer in turn; a gate on the attention output; four norms a layer."""
    shape = read_shape(view)
    window, every = view.integer("sliding_window"), view.integer("global_attn_every_n_layers")
    bias = view.flag("attention_bias")
    stated = layer_list(view, "layer_types", shape.num_layers, ("sliding_attention", "full_attention"))
    windows = [(i + 1) % every != 0 for i in range(shape.num_layers)]
    if stated is not None:
        windows = [kind == "sliding_attention" for kind in stated]
    dense_layers = view.integer("num_dense_layers", low=0)
    moe, dense = _afmoe_experts(view, shape), gated_mlp(shape.hidden, view.integer("intermediate_size"))
    common = (
        *attention(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, qk_norm="head",
            q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias,
        ),
        *linear("attention_gate", shape.heads * shape.head_dim, shape.hidden, split="rows"),
        *norm(shape.hidden, count=4),
    )  # fmt: skip

    def build(kind: tuple[bool, bool]) -> Layer:
        is_window, is_dense = kind
        cache = FullAttention(shape.kv_heads, shape.head_dim)
        if is_window:
            cache = SlidingAttention(shape.kv_heads, shape.head_dim, window=window)  # type: ignore[assignment]
        return Layer(cache, (*common, *(dense if is_dense else moe)), shape.heads)

    layers = layers_of([(windows[i], i < dense_layers) for i in range(shape.num_layers)], build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def _afmoe_experts(view: ConfigView, shape: Shape) -> Groups:
    experts, width = view.integer("num_experts"), view.integer("moe_intermediate_size")
    return (
        *mixture(
            router(shape.hidden, experts),
            shape.hidden,
            width,
            experts,
            view.integer("num_experts_per_tok"),
            shared=width * view.integer("num_shared_experts", low=0),
        ),
        *pinned_vector("router", experts),
    )


def ernie4_5_moe(view: ConfigView) -> Parts:
    """One switch for all biases, the head's included; experts in a range of layers."""
    shape = read_shape(view)
    skip_extra_predictions(view)
    bias = view.flag("use_bias")
    experts, width = view.integer("moe_num_experts", "num_experts"), view.integer("moe_intermediate_size")
    moe = (
        *pinned_matrix("router", experts, shape.hidden),
        *pinned_vector("router", experts),
        *routed_experts(shape.hidden, width, experts, view.integer("moe_k", "num_experts_per_tok")),
    )
    shared = view.integer("moe_num_shared_experts", low=0)
    if shared:
        moe += gated_mlp(shape.hidden, width * shared, bias=bias, role="shared_experts")
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"), bias=bias)
    first, step = view.integer("moe_layer_start_index", low=0), view.integer("moe_layer_interval")
    last = view.integer("moe_layer_end_index", low=-1)
    last = shape.num_layers - 1 if last == -1 else last
    parts = decoder(
        shape,
        style=AttentionStyle(bias, bias),
        mlp=lambda i: moe if (i + 1) % step == 0 and first <= i <= last else dense,
    )
    return with_head_bias(parts, shape, bias)


def with_head_bias(parts: Parts, shape: Shape, bias: bool) -> Parts:
    """`parts` with a bias of the head, which a tied head has too."""
    if not bias:
        return parts
    return Parts(
        parts.layers,
        (*parts.weights, *lm_head(shape.vocab, 1)),
        parts.hidden_size,
        parts.num_attention_heads,
        parts.vocab_size,
        parts.context_limit,
        parts.tied_embeddings,
    )


def phimoe(view: ConfigView) -> Parts:
    """LayerNorm with bias; experts in every layer; one window for all layers, or none."""
    shape = read_shape(view)
    window = read_window(view)
    bias = view.flag("attention_bias")
    experts = view.integer("num_local_experts")
    moe = mixture(
        router(shape.hidden, experts),
        shape.hidden,
        view.integer("intermediate_size"),
        experts,
        view.integer("num_experts_per_tok"),
    )
    parts = decoder(
        shape,
        style=AttentionStyle(bias, bias),
        mlp=same_mlp(moe),
        window=lambda _: window,
        norms=norm(shape.hidden, bias=True, count=2),
        final_norm=norm(shape.hidden, bias=True, role="final_norm"),
    )
    return with_head_bias(parts, shape, view.flag("lm_head_bias"))


_MINIMAX_M3 = Family(
    minimax_m3,
    {
        "vocab_size": 200064, "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60,
        "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 524288,
        "tie_word_embeddings": False, "num_experts_per_tok": 4, "num_local_experts": 128,
        "dense_intermediate_size": 12288, "shared_intermediate_size": 3072, "index_n_heads": 4,
        "index_head_dim": 128, "index_block_size": 128, "index_topk_blocks": 16,
    },
)  # fmt: skip

_HUNYUAN = Family(
    hunyuan_moe,
    {
        "vocab_size": 290943, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "tie_word_embeddings": False,
        "attention_bias": False, "num_experts": 1, "moe_topk": 1,
    },
)  # fmt: skip

_BAILING = Family(
    bailing_moe,
    {
        "vocab_size": 157184, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768, "head_dim": 128,
        "tie_word_embeddings": False, "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True,
        "moe_intermediate_size": 512, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
    },
)  # fmt: skip

FAMILIES = {
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "glm4_moe": Family(
        glm4_moe,
        {
            "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46,
            "num_attention_heads": 96, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "tie_word_embeddings": False, "attention_bias": False, "moe_intermediate_size": 1408,
            "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128, "first_k_dense_replace": 1,
            "use_qk_norm": False,
        },
    ),
    "minimax_m2": Family(
        minimax_m2,
        {
            "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
            "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196608,
            "tie_word_embeddings": False, "num_experts_per_tok": 8, "num_local_experts": 256,
        },
    ),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
    "llama4_text": Family(
        llama4_text,
        {
            "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 131072, "tie_word_embeddings": False, "num_experts_per_tok": 1,
            "num_local_experts": 16, "interleave_moe_layer_step": 1, "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192, "attention_bias": False,
        },
    ),
    "hunyuan_v1_moe": _HUNYUAN,
    "hunyuan": _HUNYUAN,
    "afmoe": Family(
        afmoe,
        {
            "vocab_size": 200192, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 1408,
            "num_hidden_layers": 32, "num_dense_layers": 1, "num_attention_heads": 16, "head_dim": 128,
            "max_position_embeddings": 16384, "tie_word_embeddings": False, "num_experts": 64,
            "num_experts_per_tok": 6, "num_shared_experts": 2, "global_attn_every_n_layers": 4,
            "sliding_window": 1024, "attention_bias": False,
        },
    ),
    "ernie4_5_moe": Family(
        ernie4_5_moe,
        {
            "vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
            "num_attention_heads": 20, "num_key_value_heads": 4, "max_position_embeddings": 131072,
            "tie_word_embeddings": True, "use_bias": False, "moe_intermediate_size": 1536, "moe_k": 6,
            "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
            "moe_layer_end_index": -1, "moe_layer_interval": 1,
        },
    ),
    "phimoe": Family(
        phimoe,
        {
            "vocab_size": 32064, "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "tie_word_embeddings": False, "num_experts_per_tok": 2, "num_local_experts": 16, "attention_bias": False,
            "lm_head_bias": False,
        },
    ),
}  # fmt: skip
