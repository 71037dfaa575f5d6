"""DeepSeek and its relatives: latent attention, sparse and compressed attention, routed experts after dense layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvplan.attention import CompressedAttention, IndexedLatentAttention, LatentAttention, LayerCache, SlidingAttention
from kvplan.blocks import Groups, gated_mlp, linear, norm, pinned_matrix, pinned_vector, router
from kvplan.importer.decoder import CONTEXT_KEYS, LAYER_KEYS, MAX_LAYERS, Parts, Shape, is_null, layers_of, with_outer
from kvplan.importer.families import Family
from kvplan.importer.families.moe import layer_list, mixture, optional_child, skip_extra_predictions
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted, counted_and

# ------------------------------------------------------------------------------------------------ latent attention


@dataclass(frozen=True, slots=True)
class Latent:
    """The sizes of latent attention; `q_rank` is None where queries are projected in one step."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int

    def weights(self, hidden: int, heads: int, bias: bool) -> Groups:
        """The projections down to the latents and up from them; biases only on the way down and out."""
        queries = heads * (self.nope + self.rope)
        down = (
            *linear("attention_latent", self.kv_rank + self.rope, hidden, bias=bias),
            *norm(self.kv_rank),
            *linear("attention_latent", heads * (self.nope + self.value), self.kv_rank, split="rows"),
            *linear("attention_o", hidden, heads * self.value, bias=bias, split="columns"),
        )
        if self.q_rank is None:
            return (*linear("attention_q", queries, hidden, split="rows"), *down)
        return (
            *linear("attention_latent", self.q_rank, hidden, bias=bias),
            *norm(self.q_rank),
            *linear("attention_q", queries, self.q_rank, split="rows"),
            *down,
        )


def latent_shape(view: ConfigView, rope: int) -> Shape:
    """The common sizes; KV heads and head_dim of the config say nothing about latent attention."""
    view.pass_over("one row a token for all heads", "num_key_value_heads", "head_dim")
    heads = view.integer("num_attention_heads")
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=view.integer("hidden_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=rope,
        vocab=view.integer("vocab_size"),
        context=view.integer(*CONTEXT_KEYS, default=None),
        tied=view.flag("tie_word_embeddings"),
    )


def read_latent(view: ConfigView, q_rank_if_absent: int | None) -> Latent:
    """The latent sizes. `q_lora_rank: null` means one query projection; an absent one means the class default."""
    nope, rope = view.integer("qk_nope_head_dim"), view.integer("qk_rope_head_dim")
    view.require("qk_head_dim", nope + rope, f"qk_nope_head_dim and qk_rope_head_dim make {nope + rope}")
    return Latent(
        q_rank=nullable(view, "q_lora_rank", q_rank_if_absent),
        kv_rank=view.integer("kv_lora_rank"),
        nope=nope,
        rope=rope,
        value=view.integer("v_head_dim"),
    )


def nullable(view: ConfigView, name: str, absent: int | None) -> int | None:
    """A whole number where null has a meaning of its own: null gives None, an absent key gives `absent`."""
    stated: int | None = view.integer(name, default=None)
    if stated is not None or is_null(view, name) or absent is None:
        return stated
    view.note(f"{name} is not in the config; the class default {absent} is used")
    return absent


# ----------------------------------------------------------------------------------------------- deepseek v2 and v3


def float32_router(experts: int, hidden: int) -> Groups:
    """A router that stays float32 whatever the dtype."""
    return pinned_matrix("router", experts, hidden)


def latent_experts(
    view: ConfigView, hidden: int, gate: Callable[[int, int], Groups] = float32_router, extra: Groups = ()
) -> Groups:
    """A router (of experts and hidden size), routed experts, shared ones as one MLP, and what else the class adds."""
    experts = view.integer("n_routed_experts", "num_local_experts", "num_experts")
    width = view.integer("moe_intermediate_size")
    moe = mixture(
        gate(experts, hidden),
        hidden,
        width,
        experts,
        view.integer("num_experts_per_tok", "num_experts_per_token"),
        shared=width * view.integer("n_shared_experts", "num_shared_experts", low=0),
    )
    return (*moe, *extra)


def deepseek(view: ConfigView) -> Parts:
    """DeepSeek V2 and V3, Kimi K2: latent attention; dense MLPs first, then experts."""
    latent = read_latent(view, 1536)
    shape = latent_shape(view, latent.rope)
    return _latent_decoder(view, shape, latent, first_layers(view, shape), latent_experts(view, shape.hidden))


def sarvam_mla(view: ConfigView) -> Parts:
    """As DeepSeek V3, where an absent q_lora_rank means one query projection."""
    latent = read_latent(view, None)
    shape = latent_shape(view, latent.rope)
    return _latent_decoder(view, shape, latent, first_layers(view, shape), latent_experts(view, shape.hidden))


def glm4_moe_lite(view: ConfigView) -> Parts:
    """As DeepSeek V3; mlp_layer_types says which layers are dense, the first where it is absent."""
    latent = read_latent(view, 768)
    shape = latent_shape(view, latent.rope)
    return _latent_decoder(view, shape, latent, dense_layers(view, shape), latent_experts(view, shape.hidden))


def axk1(view: ConfigView) -> Parts:
    """As DeepSeek V3, with a norm behind the experts of each layer."""
    latent = read_latent(view, 1536)
    shape = latent_shape(view, latent.rope)
    moe = latent_experts(view, shape.hidden, extra=norm(shape.hidden))
    return _latent_decoder(view, shape, latent, dense_layers(view, shape), moe)


def mistral4(view: ConfigView) -> Parts:
    """As DeepSeek V3 with a router in the model's dtype."""
    latent = read_latent(view, 1024)
    shape = latent_shape(view, latent.rope)
    moe = latent_experts(view, shape.hidden, lambda experts, hidden: router(hidden, experts))
    return _latent_decoder(view, shape, latent, first_layers(view, shape), moe)


def first_layers(view: ConfigView, shape: Shape) -> list[bool]:
    """Which layers are dense: the first `first_k_dense_replace`."""
    first = view.integer("first_k_dense_replace", low=0)
    return [index < first for index in range(shape.num_layers)]


def _latent_decoder(view: ConfigView, shape: Shape, latent: Latent, is_dense: Sequence[bool], moe: Groups) -> Parts:
    common_switches(view)
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    common = _latent_weights(view, shape, latent)
    cache = LatentAttention(latent.kv_rank, latent.rope)
    layers = layers_of(is_dense, lambda found: Layer(cache, (*common, *(dense if found else moe)), shape.heads))
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def common_switches(view: ConfigView) -> None:
    """Keys that all of these families share, with the values that the rules know."""
    skip_extra_predictions(view)
    view.pass_over("a setting of layers that are not part of the decoder", "index_share_for_mtp_iteration")
    view.require("moe_layer_freq", 1, "experts in every n-th layer are not known in this family")
    view.require("mlp_bias", False, "biases of the MLPs are not known in this family")


def _latent_weights(view: ConfigView, shape: Shape, latent: Latent) -> Groups:
    bias = view.flag("attention_bias")
    return (*latent.weights(shape.hidden, shape.heads, bias), *norm(shape.hidden, count=2))


def minicpm3(view: ConfigView) -> Parts:
    """Latent attention with a dense MLP; v_head_dim absent means hidden / heads."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    view.defaults.setdefault("v_head_dim", hidden // heads)
    return _latent_dense(view, read_latent(view, 768), view.flag("mlp_bias"))


def youtu(view: ConfigView) -> Parts:
    """Latent attention with a dense MLP without biases."""
    view.require("mlp_bias", False, "biases of the MLPs are not known in this family")
    return _latent_dense(view, read_latent(view, 1536), mlp_bias=False)


def _latent_dense(view: ConfigView, latent: Latent, mlp_bias: bool) -> Parts:
    shape = latent_shape(view, latent.rope)
    mlp = gated_mlp(shape.hidden, view.integer("intermediate_size"), bias=mlp_bias)
    weights = (*_latent_weights(view, shape, latent), *mlp)
    layer = Layer(LatentAttention(latent.kv_rank, latent.rope), weights, shape.heads)
    return with_outer(shape, (layer,) * shape.num_layers, norm(shape.hidden, role="final_norm"))


# ------------------------------------------------------------------------------------------ sparse latent attention


def deepseek_v32(view: ConfigView) -> Parts:
    """Every layer has an indexer."""
    return _indexed(view, lambda count: [True] * count, q_rank_if_absent=1536)


def glm_moe_dsa(view: ConfigView) -> Parts:
    """Layers may share the choice of an earlier layer's indexer: they have neither indexer nor index keys."""
    return _indexed(view, lambda count: _own_indexers(view, count), q_rank_if_absent=2048)


def _own_indexers(view: ConfigView, num_layers: int) -> list[bool]:
    """Which layers have an indexer: indexer_types, else index_topk_pattern (F or S), else every n-th layer."""
    kinds = layer_list(view, "indexer_types", num_layers, ("full", "shared"))
    pattern = _indexer_pattern(view, num_layers)
    frequency = max(view.integer("index_topk_freq", default=1, low=0), 1)
    offset = view.integer("index_skip_topk_offset", default=2, low=0)
    if kinds is None and pattern is not None:
        kinds = pattern
    if kinds is not None:
        return [kind == "full" for kind in kinds]
    return [max(index - offset + 1, 0) % frequency == 0 for index in range(num_layers)]


def _indexer_pattern(view: ConfigView, num_layers: int) -> list[str] | None:
    if isinstance(view.data.get("index_topk_pattern"), list):
        return layer_list(view, "index_topk_pattern", num_layers, ("full", "shared"))
    text = view.text("index_topk_pattern", default=None)
    if text is None:
        return None
    if len(text) != num_layers or set(text) - {"F", "S"}:
        raise view.error(f"index_topk_pattern must hold F or S for each of the {counted(num_layers, 'layer')}")
    return ["full" if letter == "F" else "shared" for letter in text]


def _indexed(view: ConfigView, own_indexers: Callable[[int], list[bool]], q_rank_if_absent: int) -> Parts:
    latent = read_latent(view, q_rank_if_absent)
    if latent.q_rank is None:
        raise view.error("q_lora_rank is null; the indexer of this family needs the query latent")
    shape = latent_shape(view, latent.rope)
    common_switches(view)
    layer_list(view, "layer_types", shape.num_layers, ("indexed_attention", "deepseek_sparse_attention"))
    indexed = own_indexers(shape.num_layers)
    build = _indexed_layer(view, shape, latent, latent.q_rank)
    layers = layers_of(list(zip(indexed, dense_layers(view, shape), strict=True)), build)
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"))


def dense_layers(view: ConfigView, shape: Shape) -> list[bool]:
    """For each layer whether its MLP is dense, from `mlp_layer_types` or the number of first dense layers."""
    kinds = layer_list(view, "mlp_layer_types", shape.num_layers, ("dense", "sparse"))
    first = first_layers(view, shape)
    return first if kinds is None else [kind == "dense" for kind in kinds]


def _indexed_layer(view: ConfigView, shape: Shape, latent: Latent, q_rank: int) -> Callable[[tuple[bool, bool]], Layer]:
    dim, topk = view.integer("index_head_dim"), view.integer("index_topk")
    index_heads = view.integer("index_n_heads")
    indexer = (
        *linear("indexer", index_heads * dim, q_rank),
        *linear("indexer", dim, shape.hidden),
        *linear("indexer", index_heads, shape.hidden),
        *norm(dim, bias=True),
    )
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    moe = latent_experts(view, shape.hidden)
    common = _latent_weights(view, shape, latent)

    def build(kind: tuple[bool, bool]) -> Layer:
        indexed, is_dense = kind
        cache = IndexedLatentAttention(latent.kv_rank, latent.rope, dim if indexed else None, topk)
        weights = (*common, *(indexer if indexed else ()), *(dense if is_dense else moe))
        return Layer(cache, weights, shape.heads)

    return build


# ------------------------------------------------------------------------------------------------------ deepseek v4

WINDOW, OVERLAPPING, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
V4_KINDS = {0: WINDOW, 4: OVERLAPPING, 128: HEAVY}
"""What the numbers in compress_ratios stand for."""


def deepseek_v4(view: ConfigView) -> Parts:
    """K = V rows in a window, compressed rows behind them; mixed residual streams; hashed routing first."""
    view.require("attention_bias", False, "biases of this attention are not known")
    view.require("n_shared_experts", 1, "the class builds one shared expert")
    view.require("num_key_value_heads", 1, "the class keeps one row for all heads")
    skip_extra_predictions(view)
    draft = ("dspark_block_size", "dspark_target_layer_ids", "dspark_markov_rank")
    if any(view.has(key) for key in draft):
        view.note("the draft model for speculative decoding is not counted: it is not part of the decoder")
    view.pass_over("not part of the decoder", *draft)
    view.dismiss("expert_dtype", "it says how experts are quantized, not how many values they have")
    shape = _v4_shape(view)
    kinds = _v4_kinds(view, shape.num_layers)
    _v4_router_note(view, shape.num_layers)
    build = _v4_layer(view, shape, _v4_rates(view))
    streams = view.integer("hc_mult")
    mixing = (
        *pinned_matrix("residual", streams, streams * shape.hidden),
        *pinned_vector("residual", streams),
        *pinned_vector("residual", 1),
    )
    return with_outer(shape, layers_of(kinds, build), pinned_vector("final_norm", shape.hidden), extra=mixing)


def _v4_shape(view: ConfigView) -> Shape:
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=view.integer("hidden_size"),
        heads=view.integer("num_attention_heads"),
        kv_heads=1,
        head_dim=view.integer("head_dim"),
        vocab=view.integer("vocab_size"),
        context=view.integer(*CONTEXT_KEYS, default=None),
        tied=view.flag("tie_word_embeddings"),
    )


def _v4_kinds(view: ConfigView, num_layers: int) -> Sequence[str]:
    """layer_types, else compress_ratios (more entries than layers belong to extra predictions), else alternating."""
    kinds = layer_list(view, "layer_types", num_layers, tuple(V4_KINDS.values()))
    ratios = view.integers("compress_ratios", default=None)
    if kinds is not None:
        return kinds
    if ratios is None:
        return [OVERLAPPING if index >= 2 and index % 2 else HEAVY for index in range(num_layers)]
    if len(ratios) < num_layers or set(ratios) - set(V4_KINDS):
        raise view.error(f"compress_ratios must hold 0, 4 or 128 for each of the {counted(num_layers, 'layer')}")
    return [V4_KINDS[ratio] for ratio in ratios[:num_layers]]


def _v4_rates(view: ConfigView) -> dict[str, int]:
    """Tokens that one compressed entry stands for, by kind of layer."""
    stated = optional_child(view, "compress_rates")
    return {
        kind: view.integer(legacy, default=None) or stated.integer(kind, default=default)
        for kind, legacy, default in (
            (OVERLAPPING, "compress_rate_csa", 4),
            (HEAVY, "compress_rate_hca", 128),
        )
    }


def _v4_router_note(view: ConfigView, num_layers: int) -> None:
    kinds = layer_list(view, "mlp_layer_types", num_layers, ("hash_moe", "moe"))
    hashed = view.integer("num_hash_layers", default=3, low=0)
    hashed = min(hashed, num_layers) if kinds is None else kinds.count("hash_moe")
    if hashed:
        view.note(
            f"the lookup tables of {hashed} hashed routers (int64, a row a token of the vocabulary) are not counted"
        )


def _v4_layer(view: ConfigView, shape: Shape, rates: dict[str, int]) -> Callable[[str], Layer]:
    rope, window = _v4_rope(view, shape.head_dim), view.integer("sliding_window")
    index_dim, index_heads, topk = (view.integer(f"index_{name}") for name in ("head_dim", "n_heads", "topk"))
    q_rank = view.integer("q_lora_rank")
    common = (*_v4_attention(view, shape, q_rank), *_v4_mixing(view, shape), *_v4_experts(view, shape))
    indexer = (
        *_v4_compressor(shape.hidden, 2 * index_dim, index_dim, rates[OVERLAPPING], role="indexer"),
        *linear("indexer", index_heads * index_dim, q_rank),
        *linear("indexer", index_heads, shape.hidden),
    )
    heads, dim = shape.heads, shape.head_dim
    overlap = rates[OVERLAPPING] * (dim + index_dim)

    def build(kind: str) -> Layer:
        if kind == WINDOW:
            # Only compressed layers hold K = V once: behind a lone window they are two tensors.
            return Layer(SlidingAttention(1, dim, window=window), common, heads)
        rate = rates[kind]
        if kind == HEAVY:
            weights = (*common, *_v4_compressor(shape.hidden, dim, dim, rate))
            return Layer(CompressedAttention(dim, rope, window, rate), weights, heads)
        cache: LayerCache = CompressedAttention(dim, rope, window, rate, index_dim, overlap, topk)
        return Layer(cache, (*common, *_v4_compressor(shape.hidden, 2 * dim, dim, rate), *indexer), heads)

    return build


def _v4_rope(view: ConfigView, head_dim: int) -> int:
    """Rotated values of a row: partial_rotary_factor of head_dim, else qk_rope_head_dim, else an eighth."""
    stated = view.integer("qk_rope_head_dim", default=head_dim // 8)
    share = view.number("partial_rotary_factor", default=None)
    rope = int(stated) if share is None else int(head_dim * share)
    if not 0 < rope < head_dim:
        raise view.error(f"{counted_and(rope, 'rotated value', 'do')} not leave any of the {head_dim} of a row")
    return rope


def _v4_attention(view: ConfigView, shape: Shape, q_rank: int) -> Groups:
    """Queries from a latent, one K = V projection, and an output in `o_groups` groups; its norms stay float32."""
    groups, o_rank, values = view.integer("o_groups"), view.integer("o_lora_rank"), shape.heads * shape.head_dim
    if values % groups:
        raise view.error(f"o_groups {groups} does not divide the {values} values of all heads")
    return (
        *linear("attention_latent", q_rank, shape.hidden),
        *pinned_vector("norm", q_rank),
        *linear("attention_q", values, q_rank, split="rows"),
        *linear("attention_latent", shape.head_dim, shape.hidden),
        *pinned_vector("norm", shape.head_dim),
        *linear("attention_o", groups * o_rank, values // groups, split="rows"),
        *linear("attention_o", shape.hidden, groups * o_rank, split="columns"),
        *pinned_vector("attention_sink", shape.heads),
        *pinned_vector("norm", shape.hidden, count=2),
    )


def _v4_mixing(view: ConfigView, shape: Shape) -> Groups:
    """Two mixers of the residual streams: N streams are read (N), written (N) and mixed (N x N)."""
    streams = view.integer("hc_mult")
    outputs = (2 + streams) * streams
    return (
        *pinned_matrix("residual", outputs, streams * shape.hidden, count=2),
        *pinned_vector("residual", outputs, count=2),
        *pinned_vector("residual", 3, count=2),
    )


def _v4_experts(view: ConfigView, shape: Shape) -> Groups:
    width = view.integer("moe_intermediate_size", "intermediate_size")
    experts = view.integer("n_routed_experts", "num_local_experts", "num_experts")
    view.require("mlp_bias", False, "biases of the MLPs are not known in this family")
    return mixture(
        router(shape.hidden, experts), shape.hidden, width, experts, view.integer("num_experts_per_tok"), shared=width
    )


def _v4_compressor(hidden: int, width: int, row: int, rate: int, role: str = "attention_latent") -> Groups:
    """Values and gates of `width`, a float32 bias for each position in a block, and the norm of a row."""
    return (
        *linear(role, width, hidden, count=2),
        *pinned_matrix("other", rate, width),
        *pinned_vector("norm", row),
    )


_V3_DEFAULTS: dict[str, Any] = {
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip

_INDEX_DEFAULTS = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}

FAMILIES = {
    "deepseek_v2": Family(
        deepseek,
        {
            "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "max_position_embeddings": 2048, "tie_word_embeddings": False,
            "attention_bias": False, "first_k_dense_replace": 0, "kv_lora_rank": 512, "n_routed_experts": 64,
            "n_shared_experts": 2, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "moe_intermediate_size": 1407,
        },
    ),
    "deepseek_v3": Family(deepseek, _V3_DEFAULTS),
    "kimi_k2": Family(deepseek, _V3_DEFAULTS),
    "sarvam_mla": Family(
        sarvam_mla,
        {
            **_V3_DEFAULTS, "vocab_size": 262144, "hidden_size": 4096, "intermediate_size": 16384,
            "num_hidden_layers": 32, "num_attention_heads": 64, "n_routed_experts": 128, "first_k_dense_replace": 1,
        },
    ),
    "glm4_moe_lite": Family(
        glm4_moe_lite,
        {
            **_V3_DEFAULTS, "vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240,
            "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20, "n_routed_experts": 64,
            "v_head_dim": 256, "qk_nope_head_dim": 192, "num_experts_per_tok": 4, "first_k_dense_replace": 1,
            "max_position_embeddings": 202752,
        },
    ),
    "axk1": Family(
        axk1,
        {
            **_V3_DEFAULTS, "vocab_size": 163840, "num_attention_heads": 64, "n_routed_experts": 192,
            "first_k_dense_replace": 1, "max_position_embeddings": 32768,
        },
    ),
    "mistral4": Family(
        mistral4,
        {
            **_V3_DEFAULTS, "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 12288,
            "num_hidden_layers": 36, "num_attention_heads": 32, "n_routed_experts": 128, "kv_lora_rank": 256,
            "qk_nope_head_dim": 64, "num_experts_per_tok": 4, "first_k_dense_replace": 0,
            "max_position_embeddings": 1048576,
        },
    ),
    "youtu": Family(
        youtu,
        {
            "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32,
            "num_attention_heads": 16, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "qk_nope_head_dim": 128, "max_position_embeddings": 131072, "tie_word_embeddings": True,
            "attention_bias": False,
        },
    ),
    "deepseek_v32": Family(
        deepseek_v32, {**_V3_DEFAULTS, **_INDEX_DEFAULTS, "max_position_embeddings": 163840}
    ),
    "glm_moe_dsa": Family(
        glm_moe_dsa,
        {
            **_V3_DEFAULTS, "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
            "num_hidden_layers": 78, "num_attention_heads": 64, "v_head_dim": 256, "qk_nope_head_dim": 192,
            "max_position_embeddings": 202752, **_INDEX_DEFAULTS, "index_n_heads": 32,
        },
    ),
    "deepseek_v4": Family(
        deepseek_v4,
        {
            "vocab_size": 129280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43,
            "num_attention_heads": 64, "head_dim": 512, "q_lora_rank": 1024, "num_experts_per_tok": 6,
            "n_routed_experts": 256, "max_position_embeddings": 1048576, "hc_mult": 4, "sliding_window": 128,
            "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
            "tie_word_embeddings": False,
        },
    ),
    "minicpm3": Family(
        minicpm3,
        {
            "vocab_size": 73448, "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,
            "num_attention_heads": 40, "max_position_embeddings": 32768, "tie_word_embeddings": True,
            "attention_bias": False, "mlp_bias": False, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32,
        },
    ),
}  # fmt: skip
