"""Qwen 1, 2 and 3, dense and with experts."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.blocks import Groups, gated_mlp, linear, routed_experts, router
from kvplan.importer.decoder import (
    MAX_LAYERS,
    AttentionStyle,
    Parts,
    Shape,
    class_sizes,
    decoder,
    layer_windows,
    plain_gated_mlp,
    read_shape,
    read_window,
    same_mlp,
)
from kvplan.importer.families import Family
from kvplan.importer.view import ConfigView


def qwen2(view: ConfigView) -> Parts:
    """Biases of q, k and v; windows from layer max_window_layers on, where use_sliding_window says so."""
    for name, expected in (("attention_bias", True), ("qkv_bias", True), ("mlp_bias", False)):
        view.require(name, expected, "the biases of this family are those of q, k and v")
    return _dense(view, AttentionStyle(qkv_bias=True))


def qwen3(view: ConfigView) -> Parts:
    """Per-head norms of q and k instead of the biases."""
    return _dense(view, _qwen3_style(view))


def _qwen3_style(view: ConfigView) -> AttentionStyle:
    view.require("use_qk_norm", True, "this family is known with norms of q and k")
    view.require("qkv_bias", False, "biases of this family are named attention_bias")
    bias = view.flag("attention_bias", default=False)
    return AttentionStyle(qkv_bias=bias, out_bias=bias, qk_norm="head")


def mimo(view: ConfigView) -> Parts:
    """MiMo 7B: Qwen 2 and, in the checkpoint only, layers that predict further tokens."""
    view.dismiss("num_nextn_predict_layers", "its layers predict further tokens, and the class does not build them")
    return qwen2(view)


def _dense(view: ConfigView, style: AttentionStyle) -> Parts:
    _keeps_chunks(view)
    shape = read_shape(view)
    window = _window(view)
    first = shape.num_layers if window is None else view.integer("max_window_layers", low=0)
    windows = layer_windows(view, shape.num_layers, window, lambda index: index >= first)
    return decoder(shape, style=style, mlp=plain_gated_mlp(view, shape), window=windows)


def _keeps_chunks(view: ConfigView) -> None:
    view.pass_over("attention in two chunks reads fewer tokens and keeps them all", "dual_chunk_attention_config")


def _window(view: ConfigView) -> int | None:
    """The window where use_sliding_window says that it is in use."""
    if view.flag("use_sliding_window"):
        return read_window(view)
    for name in ("sliding_window", "max_window_layers"):
        view.dismiss(name, "use_sliding_window is false")
    return None


# ------------------------------------------------------------------------------------------------------- experts


def qwen2_moe(view: ConfigView) -> Parts:
    """One shared expert with a gate beside the routed ones; every second of the first layers may have a window."""
    shape, window = read_shape(view), _window(view)
    last = 0 if window is None else view.integer("max_window_layers", low=0)
    windows = layer_windows(view, shape.num_layers, window, lambda index: index % 2 == 0 and index < last)
    shared = (
        *gated_mlp(shape.hidden, view.integer("shared_expert_intermediate_size"), role="shared_experts"),
        *linear("router", 1, shape.hidden),
    )
    style = AttentionStyle(qkv_bias=view.flag("qkv_bias"))
    return decoder(shape, style=style, mlp=sparse_mlp(view, shape, shared), window=windows)


def qwen3_moe(view: ConfigView) -> Parts:
    """Per-head norms of q and k; no shared expert; one window for all layers where use_sliding_window says so."""
    _keeps_chunks(view)
    view.require("shared_expert_intermediate_size", 0, "this family is known without shared experts")
    shape, window = read_shape(view), _window(view)
    mlp = sparse_mlp(view, shape, ())
    return decoder(shape, style=_qwen3_style(view), mlp=mlp, window=lambda _: window)


def sparse_mlp(view: ConfigView, shape: Shape, shared: Groups) -> Callable[[int], Groups]:
    """Experts (and `shared` beside them) every `decoder_sparse_step` layers, except in `mlp_only_layers`."""
    experts = view.integer("num_experts", "num_local_experts")
    per_token, width = view.integer("num_experts_per_tok", high=experts), view.integer("moe_intermediate_size")
    moe = (*router(shape.hidden, experts), *routed_experts(shape.hidden, width, experts, per_token), *shared)
    dense = gated_mlp(shape.hidden, view.integer("intermediate_size"))
    step, lone = view.integer("decoder_sparse_step"), set(view.integers("mlp_only_layers"))
    return lambda index: moe if index not in lone and (index + 1) % step == 0 else dense


# ------------------------------------------------------------------------------------------------- the first Qwen


def qwen(view: ConfigView) -> Parts:
    """Qwen 1, in both of its layouts: MHA of `kv_channels` a head, and an MLP half as wide as its key states."""
    view.require("no_bias", True, "only biases of q, k and v are known")
    view.dismiss("seq_length", "it is the length of training, not a limit")
    heads = view.integer("num_attention_heads", "n_head")
    hidden = view.integer("hidden_size", "n_embd")
    shape = Shape(
        num_layers=view.integer("num_hidden_layers", "n_layer", high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=view.integer("kv_channels"),
        vocab=view.integer("vocab_size", "padded_vocab_size"),
        context=view.integer("max_position_embeddings", "n_positions", default=None),
        tied=view.flag("tie_word_embeddings"),
    )
    doubled = view.integer("intermediate_size", "ffn_hidden_size", low=2)
    if doubled % 2:
        raise view.error(f"intermediate_size is {doubled}; an even number is needed")
    return decoder(shape, style=AttentionStyle(qkv_bias=True), mlp=same_mlp(gated_mlp(hidden, doubled // 2)))


_QWEN2 = class_sizes(
    151936, 4096, 22016, 32, 32, 32, 32768, False,
    use_sliding_window=False, sliding_window=4096, max_window_layers=28,
)  # fmt: skip

FAMILIES = {
    "qwen": Family(qwen, {"kv_channels": 128, "tie_word_embeddings": False}),
    "qwen2": Family(qwen2, _QWEN2),
    "mimo": Family(mimo, _QWEN2),
    "qwen3": Family(qwen3, _QWEN2 | {"head_dim": 128}),
    "qwen2_moe": Family(
        qwen2_moe,
        class_sizes(
            151936, 2048, 5632, 24, 16, 16, 32768, False,
            use_sliding_window=False, sliding_window=4096, max_window_layers=28, decoder_sparse_step=1,
            moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts_per_tok=4, num_experts=60,
            qkv_bias=True, mlp_only_layers=[],
        ),
    ),
    "qwen3_moe": Family(
        qwen3_moe,
        class_sizes(
            151936, 2048, 6144, 24, 32, 4, 32768, False,
            use_sliding_window=False, sliding_window=4096, decoder_sparse_step=1, moe_intermediate_size=768,
            num_experts_per_tok=8, num_experts=128, mlp_only_layers=[],
        ),
    ),
}  # fmt: skip
