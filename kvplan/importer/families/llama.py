"""Llama and its nearest relatives: RMSNorm, gated MLP, rotary positions, grouped-query attention."""

from __future__ import annotations

from kvplan.blocks import gated_mlp, routed_experts, router
from kvplan.importer.decoder import AttentionStyle, Parts, decoder, plain_gated_mlp, read_shape, same_mlp
from kvplan.importer.families import Family
from kvplan.importer.view import ConfigView


def llama(view: ConfigView) -> Parts:
    """Biases where attention_bias and mlp_bias say so."""
    shape = read_shape(view)
    bias = view.flag("attention_bias", default=False)
    mlp = plain_gated_mlp(view, shape, bias=view.flag("mlp_bias", default=False))
    return decoder(shape, style=AttentionStyle(qkv_bias=bias, out_bias=bias), mlp=mlp)


def mistral(view: ConfigView) -> Parts:
    """No biases; one window for all layers, or none."""
    shape = read_shape(view)
    window = view.integer("sliding_window", default=None)
    return decoder(shape, mlp=plain_gated_mlp(view, shape), window=lambda _: window)


def mixtral(view: ConfigView) -> Parts:
    """Mistral with experts in every layer."""
    shape = read_shape(view)
    window = view.integer("sliding_window", default=None)
    experts, per_token = view.integer("num_local_experts"), view.integer("num_experts_per_tok")
    moe = (
        *router(shape.hidden, experts),
        *routed_experts(shape.hidden, view.integer("intermediate_size"), experts, per_token),
    )
    return decoder(shape, mlp=same_mlp(moe), window=lambda _: window)


def qwen3_moe(view: ConfigView) -> Parts:
    """Per-head norms of q and k; experts every `decoder_sparse_step` layers except in `mlp_only_layers`."""
    shape = read_shape(view)
    experts = view.integer("num_experts", "num_local_experts")
    width = view.integer("moe_intermediate_size")
    moe = (
        *router(shape.hidden, experts),
        *routed_experts(shape.hidden, width, experts, view.integer("num_experts_per_tok")),
    )
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    step, lone = view.integer("decoder_sparse_step"), set(view.integers("mlp_only_layers"))
    view.require("use_sliding_window", False, "windows of this family are not known")
    view.dismiss("sliding_window", "use_sliding_window is false")
    view.dismiss("max_window_layers", "use_sliding_window is false")
    bias = view.flag("attention_bias", default=False)
    return decoder(
        shape,
        style=AttentionStyle(qkv_bias=bias, out_bias=bias, qk_norm="head"),
        mlp=lambda i: moe if i not in lone and (i + 1) % step == 0 else dense,
    )


FAMILIES = {
    "llama": Family(
        llama,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "max_position_embeddings": 2048, "tie_word_embeddings": False,
        },
    ),
    "mistral": Family(
        mistral,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
        },
    ),
    "mixtral": Family(
        mixtral,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "num_experts_per_tok": 2, "num_local_experts": 8, "tie_word_embeddings": False,
        },
    ),
    "qwen3_moe": Family(
        qwen3_moe,
        {
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
            "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 32768,
            "decoder_sparse_step": 1, "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
            "mlp_only_layers": [], "tie_word_embeddings": False,
        },
    ),
}  # fmt: skip
