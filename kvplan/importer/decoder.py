"""The decoder that most families share: embedding, layers of attention and MLP, final norm, head.

A family's rule reads what is its own and hands it to `decoder`; everything that is alike stands here once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kvplan.attention import FullAttention, LayerCache, SlidingAttention
from kvplan.blocks import Groups, QkNorm, attention, embedding, gated_mlp, lm_head, norm
from kvplan.errors import shorten
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted, counted_and

LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model", "n_embed")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx", "model_max_length")

MAX_LAYERS = 10_000

_SIZE_NAMES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "tie_word_embeddings",
)  # fmt: skip

Kind = TypeVar("Kind", bound=Hashable)


def class_sizes(*sizes: int | bool | None, **more: Any) -> dict[str, Any]:
    """The defaults of a class as one row: vocabulary, hidden, MLP width, layers, heads, KV heads, context, tied.

    None where the class has no default of its own; `more` adds what only this class has.
    """
    return {name: value for name, value in zip(_SIZE_NAMES, sizes, strict=True) if value is not None} | more


@dataclass(frozen=True, slots=True)
class Parts:
    """What a rule makes of a config: everything of a `Model` but its name, dtype and notes.

    layers           in order
    weights          groups outside the layers
    tied_embeddings  the head is the embedding
    """

    layers: tuple[Layer, ...]
    weights: Groups
    hidden_size: int
    num_attention_heads: int | None
    vocab_size: int | None
    context_limit: int | None
    tied_embeddings: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that nearly every config states."""

    num_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int | None
    tied: bool


def read_shape(view: ConfigView) -> Shape:
    """The common sizes. KV heads absent means MHA; head_dim absent or 0 means hidden / heads.

    Raises ConfigError where one is missing, or does not divide.
    """
    hidden = view.integer(*HIDDEN_KEYS)
    heads = view.integer(*HEAD_KEYS)
    return Shape(
        num_layers=view.integer(*LAYER_KEYS, high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(view, heads),
        head_dim=read_head_dim(view, hidden, heads),
        vocab=view.integer("vocab_size"),
        context=read_context(view),
        tied=view.flag("tie_word_embeddings"),
    )


def read_context(view: ConfigView) -> int | None:
    """The first of CONTEXT_KEYS that is there is the limit; the others (a training length) may differ from it."""
    given = [name for name in CONTEXT_KEYS if view.has(name)] or CONTEXT_KEYS[:1]
    for name in given[1:]:
        if view.data[name] != view.data[given[0]]:
            view.note(f"{name} is {shorten(view.data[name])}; {given[0]} is taken as the limit")
    view.pass_over("the first one is the limit", *given[1:])
    return view.integer(given[0], default=None)  # type: ignore[no-any-return]


def is_null(view: ConfigView, name: str) -> bool:
    """Whether the config states null for `name`: "none" to some classes, where an absent key is their default."""
    return name in view.data and not view.has(name)


def read_kv_heads(view: ConfigView, heads: int) -> int:
    """num_key_value_heads; null means one for each of `heads`, and so does an absent key without class default."""
    kv_heads = heads if is_null(view, "num_key_value_heads") else view.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise view.error(
            f"{counted_and(heads, 'attention head', 'are')} not a multiple of {counted(kv_heads, 'KV head')}"
        )
    return int(kv_heads)


def read_head_dim(view: ConfigView, hidden: int, heads: int) -> int:
    """head_dim where the config or its class states one, else (or null) hidden / heads, which must be whole."""
    stated = 0 if is_null(view, "head_dim") else view.integer("head_dim", default=0, low=0)
    if not stated and hidden % heads:
        raise view.error(
            f"hidden_size {hidden} is not a multiple of {counted(heads, 'attention head')}, and head_dim is absent"
        )
    return int(stated) or hidden // heads


@dataclass(frozen=True, slots=True)
class AttentionStyle:
    """What families vary in their attention projections."""

    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QkNorm = "none"


def decoder(
    shape: Shape,
    *,
    style: AttentionStyle | None = None,
    mlp: Callable[[int], Groups],
    window: Callable[[int], int | None] = lambda _: None,
    norms: Groups | None = None,
    final_norm: Groups | None = None,
    outer: Groups = (),
) -> Parts:
    """A decoder of the shared shape.

    mlp         the weights behind the attention of layer i: an MLP, or router and experts
    window      the window of layer i, or None for full attention
    norms       the norms of one layer; None: two of `hidden` without bias
    final_norm  None: one of `hidden` without bias
    outer       further weights outside the layers
    """
    style = style or AttentionStyle()
    made: dict[tuple[int | None, Groups], Layer] = {}  # equal layers are one object, which keeps sums fast
    layers = []
    for index in range(shape.num_layers):
        key = (window(index), mlp(index))
        if key not in made:
            made[key] = _layer(shape, style, norm(shape.hidden, count=2) if norms is None else norms, *key)
        layers.append(made[key])
    last = norm(shape.hidden, role="final_norm") if final_norm is None else final_norm
    return with_outer(shape, tuple(layers), last, outer)


def _layer(shape: Shape, style: AttentionStyle, norms: Groups, window: int | None, mlp: Groups) -> Layer:
    weights = attention(
        shape.hidden,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        q_bias=style.qkv_bias,
        k_bias=style.qkv_bias,
        v_bias=style.qkv_bias,
        out_bias=style.out_bias,
        qk_norm=style.qk_norm,
    )
    return Layer(attention_cache(shape.kv_heads, shape.head_dim, window), (*weights, *mlp, *norms), shape.heads)


def attention_cache(kv_heads: int, head_dim: int, window: int | None) -> LayerCache:
    """Full attention, or a window where there is one."""
    if window is None:
        return FullAttention(kv_heads, head_dim)
    return SlidingAttention(kv_heads, head_dim, window=window)


def with_outer(shape: Shape, layers: tuple[Layer, ...], final_norm: Groups, extra: Groups = ()) -> Parts:
    """`layers` with embedding, final norm and head around them."""
    head = () if shape.tied else lm_head(shape.vocab, shape.hidden)
    return Parts(
        layers=layers,
        weights=(*embedding(shape.vocab, shape.hidden), *extra, *final_norm, *head),
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        vocab_size=shape.vocab,
        context_limit=shape.context,
        tied_embeddings=shape.tied,
    )


def layers_of(kinds: Sequence[Kind], build: Callable[[Kind], Layer]) -> tuple[Layer, ...]:
    """One layer for each of `kinds`, in order; equal kinds share one object, which keeps sums fast."""
    built = {kind: build(kind) for kind in dict.fromkeys(kinds)}
    return tuple(built[kind] for kind in kinds)


def read_window(view: ConfigView, *names: str) -> int | None:
    """The window under `names` (sliding_window): null means none, and an absent key the class default."""
    names = names or ("sliding_window",)
    return None if any(is_null(view, name) for name in names) else view.integer(*names, default=None)


def layer_windows(
    view: ConfigView, num_layers: int, window: int | None, otherwise: Callable[[int], bool]
) -> Callable[[int], int | None]:
    """The window of each layer: by `layer_types`, or where the config has none by `otherwise` (is i a window layer?).

    Raises ConfigError where the list has another length, or a layer needs a window and there is none.
    """
    types = view.texts("layer_types", default=None, choices=("full_attention", "sliding_attention"))
    if types is not None and len(types) != num_layers:
        raise view.error(
            f"layer_types has {counted(len(types), 'entry')}; {num_layers}, one for each layer, are needed"
        )
    sliding = [otherwise(i) if types is None else types[i] == "sliding_attention" for i in range(num_layers)]
    if window is None and any(sliding):
        raise view.error("sliding_window is absent, but some layers have one")
    return lambda index: window if sliding[index] else None


def same_mlp(groups: Groups) -> Callable[[int], Groups]:
    """The same MLP in every layer."""
    return lambda _: groups


def plain_gated_mlp(view: ConfigView, shape: Shape, bias: bool = False) -> Callable[[int], Groups]:
    """A gated MLP of `intermediate_size` in every layer."""
    return same_mlp(gated_mlp(shape.hidden, view.integer("intermediate_size"), bias=bias))
