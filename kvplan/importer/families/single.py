"""Families of one or two models that share their layers with no other: RWKV-4, JetMoe and Phi-3-small."""

from __future__ import annotations

from dataclasses import replace

from kvplan.attention import FullAttention, RecurrentState
from kvplan.blocks import FP32, Groups, gated_mlp, linear, norm, routed_experts, router, vector
from kvplan.importer.decoder import (
    MAX_LAYERS,
    AttentionStyle,
    Parts,
    Shape,
    class_sizes,
    decoder,
    is_null,
    read_shape,
    same_mlp,
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.view import ConfigView
from kvplan.model import Layer


def rwkv(view: ConfigView) -> Parts:
    """RWKV-4: a state of three values a channel in float32, and the last input of both halves of a layer."""
    hidden = view.integer("hidden_size")
    inner = hidden if is_null(view, "attention_hidden_size") else view.integer("attention_hidden_size", default=hidden)
    if inner != hidden:
        raise view.unsupported(f"attention_hidden_size is {inner}: the class keeps a state of {hidden} channels")
    width = view.integer("intermediate_size", default=4 * hidden)
    view.pass_over("weights are divided at run time", "rescale_every")
    cache = RecurrentState(hidden, 3, FP32, hidden, 2, view.dtype)
    layer = Layer(cache, _rwkv_weights(hidden, width), None)
    first = Layer(cache, (*layer.weights, *norm(hidden, bias=True)), None)
    layers = (first, *[layer] * (view.integer("num_hidden_layers", high=MAX_LAYERS) - 1))
    context = view.integer("context_length", "max_position_embeddings", default=None)
    vocab, tied = view.integer("vocab_size"), view.flag("tie_word_embeddings")
    parts = with_outer(
        Shape(len(layers), hidden, 1, 1, hidden, vocab, context, tied),
        layers,
        norm(hidden, bias=True, role="final_norm"),
    )
    return replace(parts, num_attention_heads=None)


def _rwkv_weights(hidden: int, width: int) -> Groups:
    return (
        *linear("recurrent", hidden, hidden, count=4),  # key, value, receptance, output
        *vector("recurrent_state", hidden, count=2),  # decay, and the bonus of the first token
        *vector("recurrent", hidden, count=5),  # how much of the last input is mixed in
        *linear("mlp", width, hidden, split="rows"),
        *linear("mlp", hidden, width, split="columns"),
        *linear("mlp", hidden, hidden),
        *norm(hidden, bias=True, count=2),
    )


def jetmoe(view: ConfigView) -> Parts:
    """JetMoe: experts for the queries and outputs of attention too, over keys and values that they share."""
    hidden, layers = view.integer("hidden_size"), view.integer("num_hidden_layers", high=MAX_LAYERS)
    kv_heads, width = view.integer("num_key_value_heads"), view.integer("kv_channels")
    experts = view.integer("num_local_experts")
    active = view.integer("num_experts_per_tok", high=experts)
    heads = kv_heads * active
    view.pass_over("the class derives it", "num_attention_heads")
    rows = kv_heads * width
    attention = (
        *linear("attention_k", rows, hidden, split="kv_heads", kv_heads=kv_heads),
        *linear("attention_v", rows, hidden, split="kv_heads", kv_heads=kv_heads),
        *linear("routed_experts", rows, hidden, split="rows", count=experts, active=active),
        *linear("routed_experts", hidden, rows, split="columns", count=experts, active=active),
    )
    mlp = routed_experts(hidden, view.integer("intermediate_size"), experts, active)
    around = (*router(hidden, experts), *router(hidden, experts), *vector("router", hidden, count=2))
    layer = Layer(FullAttention(kv_heads, width), (*attention, *mlp, *around, *norm(hidden, count=2)), heads)
    shape = Shape(
        num_layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        vocab=view.integer("vocab_size"),
        context=view.integer("max_position_embeddings", default=None),
        tied=view.flag("tie_word_embeddings"),
    )
    return with_outer(shape, (layer,) * layers, norm(hidden, role="final_norm"))


def phi3small(view: ConfigView) -> Parts:
    """Phi-3-small, by the code that is published with it: biases and LayerNorms everywhere, gate and up in one matrix.

    Its block-sparse layers attend to parts of what they keep; the cache of that code and of vLLM keeps every token.
    """
    shape = read_shape(view)
    width = view.integer("ff_intermediate_size")
    view.require("ff_dim_multiplier", None, "a width by a factor is not known")
    if view.flag("gegelu_pad_to_256", default=True) and width % 256:
        raise view.unsupported(f"ff_intermediate_size is {width}: one that is filled up to 256 values is not known")
    view.pass_over("which kept tokens a layer attends to", "dense_attention_every_n_layers", *_BLOCKSPARSE)
    view.pass_over("scales and positions, not tensors", *_MUP)
    view.note("block-sparse layers attend to parts of their tokens and keep all of them")
    return decoder(
        shape,
        style=AttentionStyle(qkv_bias=True, out_bias=True),
        mlp=same_mlp(gated_mlp(shape.hidden, width, bias=True)),
        norms=norm(shape.hidden, bias=True, count=2),
        final_norm=norm(shape.hidden, bias=True, role="final_norm"),
    )


_BLOCKSPARSE = (
    "blocksparse_block_size", "blocksparse_homo_head_pattern", "blocksparse_num_local_blocks",
    "blocksparse_triton_kernel_block_size", "blocksparse_vert_stride", "pad_sequence_to_multiple_of_64",
    "attention_bias",
)  # fmt: skip
_MUP = (
    "gegelu_limit", "mup_attn_multiplier", "mup_embedding_multiplier", "mup_use_scaling", "mup_width_multiplier",
    "rope_embedding_base", "rope_position_scale",
)  # fmt: skip

FAMILIES = {
    "phi3small": Family(phi3small, class_sizes(100352, 4096, None, 32, 32, 8, 8192, True, ff_intermediate_size=14336)),
    "rwkv": Family(rwkv, class_sizes(50277, 4096, None, 32, None, None, None, False, context_length=1024)),
    "jetmoe": Family(
        jetmoe,
        class_sizes(
            32000, 2048, 5632, 12, None, 16, 4096, True, kv_channels=128, num_local_experts=8, num_experts_per_tok=2
        ),
    ),
}
