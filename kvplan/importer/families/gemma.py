"""Gemma 1 to 4 (text): tied embeddings, wide heads, windows and full layers in turn, shared caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvplan.attention import LayerCache, SharedCache
from kvplan.blocks import Groups, gated_mlp, linear, norm, routed_experts, router, vector
from kvplan.importer.decoder import (
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
    with_outer,
)
from kvplan.importer.families import Family
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted, counted_and


def gemma(view: ConfigView) -> Parts:
    """A Llama layout with a head_dim of its own."""
    shape, bias = read_shape(view), view.flag("attention_bias")
    return decoder(shape, style=AttentionStyle(bias, bias), mlp=plain_gated_mlp(view, shape))


def gemma2(view: ConfigView) -> Parts:
    """Four norms a layer; the first layer of each pair has a window."""
    window = read_window(view, "sliding_window", "sliding_window_size")
    return _four_norms(view, AttentionStyle(), window, period=2)


def gemma3_text(view: ConfigView) -> Parts:
    """Gemma 2 with per-head norms of q and k, and a full layer after each five with a window."""
    period = view.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _four_norms(view, AttentionStyle(qk_norm="head"), read_window(view), period)


def _four_norms(view: ConfigView, style: AttentionStyle, window: int | None, period: int) -> Parts:
    _causal(view)
    shape, bias = read_shape(view), view.flag("attention_bias")
    return decoder(
        shape,
        style=AttentionStyle(bias, bias, style.qk_norm),
        mlp=plain_gated_mlp(view, shape),
        window=layer_windows(view, shape.num_layers, window, _but_each(period)),
        norms=norm(shape.hidden, count=4),
    )


def _but_each(period: int) -> Callable[[int], bool]:
    """All layers but each `period`-th."""
    return lambda index: bool((index + 1) % period)


def _causal(view: ConfigView) -> None:
    view.require("use_bidirectional_attention", False, "attention in both directions has another window")


# --------------------------------------------------------------------------------------- layers that share a cache


class _Kind(NamedTuple):
    """What tells one layer of Gemma 3n and 4 from another.

    window  None for full attention
    source  the layer whose cache it reads; None where it keeps its own
    width   values of its MLP
    """

    window: int | None
    source: int | None
    width: int


def _kinds(view: ConfigView, windows: Sequence[int | None], shared: int, widths: Sequence[int]) -> list[_Kind]:
    """The kind of each layer: the last `shared` ones read the cache of the last earlier layer of their type.

    Raises ConfigError where there is no such layer.
    """
    own = len(windows) - shared
    last = {windows[index] is None: index for index in range(own)}
    if any((window is None) not in last for window in windows):
        raise view.error(f"num_kv_shared_layers is {shared}, which leaves a type of layer without one of its own cache")
    return [
        _Kind(window, None if index < own else last[window is None], widths[index])
        for index, window in enumerate(windows)
    ]


@dataclass(frozen=True, slots=True)
class _Heads:
    """Attention of one layer. `has_value` is false where the keys' projection is the values' too."""

    heads: int
    kv_heads: int
    head_dim: int
    bias: bool
    has_value: bool = True

    def weights(self, hidden: int, keeps_cache: bool) -> Groups:
        """Projections and per-head norms; a layer that reads another's cache has queries and output only."""
        query = linear("attention_q", self.heads * self.head_dim, hidden, bias=self.bias, split="rows")
        out = linear("attention_o", hidden, self.heads * self.head_dim, bias=self.bias, split="columns")
        if not keeps_cache:
            return (*query, *out, *norm(self.head_dim))
        value = self._kv("attention_v", hidden) if self.has_value else ()
        return (*query, *self._kv("attention_k", hidden), *value, *out, *norm(self.head_dim, count=2))

    def _kv(self, role: str, hidden: int) -> Groups:
        rows = self.kv_heads * self.head_dim
        return linear(role, rows, hidden, bias=self.bias, split="kv_heads", kv_heads=self.kv_heads)

    def cache(self, kind: _Kind) -> LayerCache:
        if kind.source is not None:
            return SharedCache(kind.source)
        return attention_cache(self.kv_heads, self.head_dim, kind.window)


@dataclass(frozen=True, slots=True)
class _PerLayerInputs:
    """A second embedding that gives each layer `width` values of its own for each token."""

    width: int
    vocab: int

    def of_layer(self, hidden: int) -> Groups:
        gate = linear("per_layer_input", self.width, hidden)
        return (*gate, *linear("per_layer_input", hidden, self.width), *norm(hidden))

    def outside(self, shape: Shape) -> Groups:
        total = shape.num_layers * self.width
        table = linear("per_layer_embedding", self.vocab, total, split="rows")
        return (*table, *linear("per_layer_input", total, shape.hidden, split="rows"), *norm(self.width))


def _per_layer_inputs(view: ConfigView) -> _PerLayerInputs:
    return _PerLayerInputs(view.integer("hidden_size_per_layer_input"), view.integer("vocab_size_per_layer_input"))


# ------------------------------------------------------------------------------------------------------- Gemma 3n


def gemma3n_text(view: ConfigView) -> Parts:
    """Gemma 3 with shared caches, per-layer inputs, residual streams (AltUp) and low-rank residuals (LAuReL)."""
    _causal(view)
    view.pass_over("they choose streams and clip values", "altup_active_idx", "altup_coef_clip", "altup_correct_scale")
    view.pass_over("it drops values of the MLP, not weights", "activation_sparsity_pattern")
    shape, inputs = read_shape(view), _per_layer_inputs(view)
    heads = _Heads(shape.heads, shape.kv_heads, shape.head_dim, view.flag("attention_bias"))
    streams = view.integer("altup_num_inputs", low=2)
    window = layer_windows(view, shape.num_layers, read_window(view), _but_each(5))
    windows = [window(index) for index in range(shape.num_layers)]
    kinds = _kinds(view, windows, _shared_layers(view, shape), _widths(view, shape.num_layers))
    beside = (
        *_residual_streams(shape.hidden, streams),
        *_low_rank_residual(shape.hidden, view.integer("laurel_rank")),
        *inputs.of_layer(shape.hidden),
    )
    layers = layers_of(kinds, lambda kind: _layer(shape, heads, kind, beside))
    merge = linear("residual", shape.hidden, shape.hidden, count=2 * (streams - 1))
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"), (*inputs.outside(shape), *merge))


def _shared_layers(view: ConfigView, shape: Shape) -> int:
    return int(view.integer("num_kv_shared_layers", low=0, high=shape.num_layers - 1))


def _widths(view: ConfigView, num_layers: int) -> list[int]:
    """intermediate_size: one number, or one for each layer."""
    if not isinstance(view.data.get("intermediate_size"), list):
        return [view.integer("intermediate_size")] * num_layers
    widths = view.integers("intermediate_size", low=1)
    if len(widths) != num_layers:
        raise view.error(
            f"intermediate_size has {counted(len(widths), 'entry')}; {num_layers}, one for each layer, are needed"
        )
    return list(widths)


def _residual_streams(hidden: int, streams: int) -> Groups:
    """Coefficients that predict and correct `streams` copies of the hidden state, and the router that weighs them."""
    return (
        *vector("residual", hidden),
        *linear("residual", streams, streams),
        *linear("residual", streams**2, streams),
        *linear("residual", streams, hidden),
        *norm(hidden),
    )


def _low_rank_residual(hidden: int, rank: int) -> Groups:
    return (*linear("residual", rank, hidden), *linear("residual", hidden, rank), *norm(hidden))


def _layer(shape: Shape, heads: _Heads, kind: _Kind, beside: Groups) -> Layer:
    weights = (
        *heads.weights(shape.hidden, kind.source is None),
        *gated_mlp(shape.hidden, kind.width),
        *norm(shape.hidden, count=4),
        *beside,
    )
    return Layer(heads.cache(kind), weights, heads.heads)


# -------------------------------------------------------------------------------------------------------- Gemma 4


def gemma4_text(view: ConfigView) -> Parts:
    """Full layers have heads of their own; shared caches, per-layer inputs and experts where the config says so."""
    if view.text("use_bidirectional_attention", default=None) == "all":
        raise view.unsupported("use_bidirectional_attention is 'all': attention in both directions has another window")
    view.require("expert_intermediate_size", None, "the width of experts is named moe_intermediate_size")
    shape, window = read_shape(view), read_window(view)
    sliding = layer_windows(view, shape.num_layers, window, _but_each(6))
    windows = [*(sliding(index) for index in range(shape.num_layers - 1)), None]  # the class makes the last one full
    shared = _shared_layers(view, shape)
    kinds = _kinds(view, windows, shared, _gemma4_widths(view, shape.num_layers, shared))
    local, full = _gemma4_heads(view, shape)
    beside, outside = _gemma4_inputs(view, shape)
    beside += _gemma4_experts(view, shape.hidden)
    layers = layers_of(kinds, lambda kind: _layer(shape, full if kind.window is None else local, kind, beside))
    return with_outer(shape, layers, norm(shape.hidden, role="final_norm"), outside)


def _gemma4_widths(view: ConfigView, num_layers: int, shared: int) -> list[int]:
    width = view.integer("intermediate_size")
    wide = 2 * width if view.flag("use_double_wide_mlp") else width
    return [width] * (num_layers - shared) + [wide] * shared


def _gemma4_heads(view: ConfigView, shape: Shape) -> tuple[_Heads, _Heads]:
    """Window layers and full layers; keys are the full layers' values too where attention_k_eq_v says so."""
    bias, shares_key = view.flag("attention_bias"), view.flag("attention_k_eq_v")
    stated = view.integer("num_global_key_value_heads", default=shape.kv_heads)
    if shape.heads % stated:
        raise view.error(
            f"{counted_and(shape.heads, 'attention head', 'are')} not a multiple of {stated} num_global_key_value_heads"
        )
    kv_heads, head_dim = stated if shares_key else shape.kv_heads, view.integer("global_head_dim")
    local = _Heads(shape.heads, shape.kv_heads, shape.head_dim, bias)
    return local, _Heads(shape.heads, kv_heads, head_dim, bias, has_value=not shares_key)


def _gemma4_inputs(view: ConfigView, shape: Shape) -> tuple[Groups, Groups]:
    """Per-layer inputs in a layer and outside; hidden_size_per_layer_input 0 means none."""
    if view.integer("hidden_size_per_layer_input", low=0) == 0:
        view.dismiss("vocab_size_per_layer_input", "hidden_size_per_layer_input is 0")
        return (), ()
    inputs = _per_layer_inputs(view)
    return inputs.of_layer(shape.hidden), inputs.outside(shape)


def _gemma4_experts(view: ConfigView, hidden: int) -> Groups:
    """Experts beside the dense MLP, with three norms and two scales of the router."""
    names = ("num_experts", "top_k_experts", "moe_intermediate_size")
    if not view.flag("enable_moe_block"):
        for name in names:
            view.dismiss(name, "enable_moe_block is false")
        return ()
    experts, per_token, width = (view.integer(name) for name in names)
    return (
        *router(hidden, experts),
        *vector("router", hidden),
        *vector("router", experts),
        *routed_experts(hidden, width, experts, per_token),
        *norm(hidden, count=3),
    )


FAMILIES = {
    "gemma": Family(
        gemma, class_sizes(256000, 3072, 24576, 28, 16, 16, 8192, True, head_dim=256, attention_bias=False)
    ),
    "gemma2": Family(
        gemma2,
        class_sizes(256000, 2304, 9216, 26, 8, 4, 8192, True, head_dim=256, attention_bias=False, sliding_window=4096),
    ),
    "gemma3_text": Family(
        gemma3_text,
        class_sizes(
            262208, 2304, 9216, 26, 8, 4, 131072, True, head_dim=256, attention_bias=False, sliding_window=4096
        ),
    ),
    "gemma3n_text": Family(
        gemma3n_text,
        class_sizes(
            262400, 2048, 16384, 35, 8, 2, 32768, True,
            head_dim=256, attention_bias=False, sliding_window=512, vocab_size_per_layer_input=262144,
            hidden_size_per_layer_input=256, altup_num_inputs=4, num_kv_shared_layers=15, laurel_rank=64,
        ),
    ),
    "gemma4_text": Family(
        gemma4_text,
        class_sizes(
            262144, 2304, 9216, 30, 8, 4, 131072, True,
            head_dim=256, attention_bias=False, sliding_window=512, vocab_size_per_layer_input=262144,
            hidden_size_per_layer_input=256, attention_k_eq_v=False, num_kv_shared_layers=0, enable_moe_block=False,
            use_double_wide_mlp=False, global_head_dim=512,
        ),
    ),
}  # fmt: skip
