"""A model made from another by changing sizes: what a size names changes, and everything else stays as it is.

A change reaches the cache and the projections that follow from the size; biases, norms of queries and keys, the
storage of each matrix, towers, recurrent states and whatever else no size names are carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from kvplan.attention import (
    CombinedCache,
    FullAttention,
    LatentAttention,
    LayerCache,
    RecurrentState,
    ShortConvolution,
    SlidingAttention,
)
from kvplan.blocks import Groups, attention, gated_mlp, lm_head
from kvplan.define import (
    ESTIMATE_NOTE,
    MAX_LAYERS,
    MAX_PARAMS,
    MAX_SIZE,
    Experts,
    Latent,
    Recurrent,
    check_recurrent,
    counted_weights,
    expert_weights,
    latent_projections,
)
from kvplan.dtypes import StorageFormat
from kvplan.errors import InputError, quoted
from kvplan.model import ROLES, ROUTED, Layer, Model, WeightGroup, require_model
from kvplan.names import clean_name
from kvplan.sizes import (
    CHANNEL_ROLES,
    LATENT_KINDS,
    STATE_SIZES,
    State,
    attention_heads,
    channel_side,
    expert_width,
    feed_forward,
    has_experts_at,
    has_heads,
    head_dim,
    headed,
    is_mixed,
    is_switched,
    kv_heads,
    latent_of,
    mamba_of,
    members,
    mlp_width,
    shape_of,
    shared_experts,
    sizes_of,
    state_of,
    varying,
    window,
)
from kvplan.units import counted, whole_number

EXPERT_SIZES = ("num_experts", "num_experts_per_token", "expert_intermediate_size")
"""Sizes without which there are no experts."""


class Wanted(NamedTuple):
    """What a model is to become: its sizes before and after, by their keyword."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def changed(self, *names: str) -> bool:
        return any(self.before[name] != self.after[name] for name in names)

    @property
    def has_latent(self) -> bool:
        return any(self.after[name] is not None for name in Latent._fields)

    @property
    def has_experts(self) -> bool:
        return any(self.after[name] for name in (*EXPERT_SIZES, "num_shared_experts"))


def variant(model: Model, sizes: Mapping[str, Any], name: str | None = None) -> Model:
    """`model` with the `sizes` that differ from its own, by the keywords of `sizes_of`; the others stay.

    A size that `sizes` leaves out stays too. None where the model has a size takes it away, as far as there can be a
    model without it; None where its layers differ keeps them; a number where they differ is for all of them.

    Raises InputError with the size, what was found and what is accepted.
    """
    require_model(model)
    before = sizes_of(model)
    wanted = Wanted(before, _with_usual_width(before, {**before, **_checked(sizes, before)}))
    named = model if name is None else replace(model, name=clean_name(name, "model name"), id="")
    if before == wanted.after:
        return named
    made = named
    for step in _STEPS:
        made = step(made, wanted)
    _require_whole_groups(made)
    told = f"Made from {model.name}; changed: {', '.join(changes(wanted))}."
    source = f"defined by the user from {model.name}; {model.source}"
    return replace(made, id="", source=source, notes=(told, *model.notes), beside=())


def with_num_params(model: Model, num_params: int) -> Model:
    """`model` with weights of which only the number is known: an estimate, and marked as one. Raises InputError."""
    require_model(model)
    count = whole_number(num_params, "num_params", high=MAX_PARAMS)
    bare = {layer: replace(layer, weights=()) for layer in dict.fromkeys(model.layers)}
    return replace(
        model,
        layers=tuple(bare[layer] for layer in model.layers),
        weights=counted_weights(count, model.hidden_size),
        dtype=model.dtype,
        tied_embeddings=False,
        id="",
        storage_unknown="",
        notes=(ESTIMATE_NOTE, *model.notes),
        is_estimate=True,
        beside=(),
    )


def changes(wanted: Wanted) -> list[str]:
    """What differs, in words: `KV heads 8 to 4`."""
    return [
        f"{SIZE_WORDS[name]} {_word(wanted.before[name])} to {_word(value)}"
        for name, value in wanted.after.items()
        if value != wanted.before[name]
    ]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:,}"


SIZE_WORDS = {
    "num_layers": "layers",
    "hidden_size": "hidden size",
    "num_attention_heads": "query heads",
    "num_kv_heads": "KV heads",
    "head_dim": "head dimension",
    "context_limit": "context limit",
    "vocab_size": "vocabulary",
    "tied_embeddings": "tied embedding and head",
    "intermediate_size": "MLP width",
    "window": "window",
    "full_attention_every": "full attention every n-th layer",
    "num_experts": "experts",
    "num_experts_per_token": "experts a token",
    "expert_intermediate_size": "width of an expert",
    "num_shared_experts": "shared experts",
    "num_dense_layers": "dense layers first",
    "experts_every": "experts every n-th layer",
    "kv_lora_rank": "KV latent rank",
    "qk_rope_head_dim": "rope width",
    "qk_nope_head_dim": "query and key width without rope",
    "v_head_dim": "value width",
    "q_lora_rank": "query latent rank",
    "state_heads": "state heads",
    "state_head_dim": "state head dimension",
    "state_size": "state size",
    "state_groups": "state groups",
    "conv_width": "convolution width",
    "attention_every": "attention every n-th layer",
}
"""What each size is called in a sentence."""


# --------------------------------------------------------------------------------------------------------- checking

NEVER_NONE = ("num_layers", "hidden_size", "num_attention_heads", "num_kv_heads", "intermediate_size", "vocab_size")


def _checked(sizes: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that were given, each a whole number or None; no number of first or shared things is the same as 0."""
    if not isinstance(sizes, Mapping):
        raise InputError(f"sizes is {quoted(sizes)}; a dict of sizes by their keyword is needed")
    for name in sizes:
        if name not in before:
            raise InputError(f"{quoted(name)} is not a size of a model; one of {', '.join(before)} is needed")
    return {name: _checked_size(name, value, before[name]) for name, value in sizes.items()}


def _checked_size(name: str, value: Any, before: Any) -> Any:
    if name == "tied_embeddings":
        if not isinstance(value, bool):
            raise InputError(f"tied_embeddings is {quoted(value)}; True or False is needed")
        return value
    if value is None:
        return None
    low = 0 if name in ("num_shared_experts", "num_dense_layers") else 1
    high = MAX_LAYERS if name in ("num_layers", "num_dense_layers") else MAX_SIZE
    number = whole_number(value, name, low, high)
    return None if number == 0 or (name == "experts_every" and number == 1 and before is None) else number


def _require(wanted: Wanted, name: str, what: str) -> int:
    value = wanted.after[name]
    if value is None:
        raise InputError(f"{name} is missing; {what}")
    return int(value)


def _require_whole_groups(model: Model) -> None:
    """Query heads share KV heads evenly."""
    for layer, _ in model.layer_runs:
        heads = attention_heads(layer)
        for shared in {kv_heads(layer), *(group.kv_heads for group in layer.weights)}:
            if heads and shared and heads % shared:
                raise InputError(f"num_kv_heads is {shared}, which does not divide num_attention_heads {heads}")


def _scaled(group: WeightGroup, side: str, old: int, new: int, name: str) -> WeightGroup:
    """A side of a matrix in proportion; both are whole for every layout that a size names."""
    size, rest = divmod(getattr(group, side) * new, old)
    if rest or not size:
        raise InputError(
            f"{name} is {new}; the {ROLES[group.role].label} of {group.rows} x {group.columns} were made for {old} "
            "and do not divide so"
        )
    return replace(group, rows=size) if side == "rows" else replace(group, columns=size)


def _each_layer(model: Model, change: Callable[[Layer], Layer]) -> Model:
    """The model with every layer changed; equal layers are changed once."""
    made = {layer: change(layer) for layer, _ in model.layer_runs}
    return replace(model, layers=tuple(made[layer] for layer in model.layers))


def _weights(layer: Layer, change: Callable[[WeightGroup], WeightGroup]) -> Layer:
    return replace(layer, weights=tuple(change(group) for group in layer.weights))


def _require_some(model: Model, has: Callable[[Layer], object], name: str, value: object, what: str) -> None:
    if not any(has(layer) for layer, _ in model.layer_runs):
        raise InputError(f"{name} is {value}; {model.name} has no {what}, so leave this empty")


# ----------------------------------------------------------------------------------------------------------- layers

MAX_ENDS = 4
"""Layers at either end that may stand outside of the order that repeats."""


class Order(NamedTuple):
    """Layers as `first` ones, then `period` layers over and over, then `last` ones."""

    first: int
    period: int
    last: int


def order_of(layers: tuple[Layer, ...]) -> Order:
    """The shortest order that repeats at least twice; else all layers as one period."""
    kinds: dict[Layer, int] = {}
    numbers = [kinds.setdefault(layer, len(kinds)) for layer in layers]
    found = [
        Order(first, period, last)
        for last in range(MAX_ENDS + 1)
        for first in range(MAX_ENDS + 1)
        if (period := _period(numbers[first : len(numbers) - last]))
    ]
    return min(found, key=lambda order: (sum(order), order.last), default=Order(0, len(layers), 0))


def _period(numbers: list[int]) -> int | None:
    return next((p for p in range(1, len(numbers) // 2 + 1) if numbers[p:] == numbers[:-p]), None)


def _with_layers(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("num_layers"):
        return model
    count = _require(wanted, "num_layers", "give a whole number from 1 up")
    if any(layer.cache.kind == "shared" for layer in model.layers):
        raise InputError(
            f"num_layers is {count}; layers of {model.name} read the cache of layers before them, and which ones they "
            f"would read in another number of layers is not known: {model.num_layers} is accepted"
        )
    return replace(model, layers=_repeated(model, count))


def _repeated(model: Model, count: int) -> tuple[Layer, ...]:
    order, layers = order_of(model.layers), model.layers
    if order.period == len(layers) and count % len(layers):
        raise InputError(
            f"num_layers is {count}; the layers of {model.name} follow no order that repeats, so {len(layers)} or a "
            "multiple of it is accepted"
        )
    least = order.first + order.last + 1
    if count < least:
        ends = counted(least - 1, "layer")
        raise InputError(
            f"num_layers is {count}; {model.name} has {ends} of their own kind at its ends, so {least} or more is "
            "accepted"
        )
    period = layers[order.first : order.first + order.period]
    middle = tuple(period[index % order.period] for index in range(count - least + 1))
    return (*layers[: order.first], *middle, *layers[len(layers) - order.last :])


# ------------------------------------------------------------------------------------------------------ hidden size


def _with_hidden(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("hidden_size"):
        return model
    new, old = _require(wanted, "hidden_size", "give a whole number from 1 up"), model.hidden_size
    wider = _each_layer(model, lambda layer: _hidden_layer(layer, old, new))
    return replace(wider, hidden_size=new, weights=tuple(_hidden(group, old, new) for group in model.weights))


def _hidden_layer(layer: Layer, old: int, new: int) -> Layer:
    """A layer for another hidden state: a short convolution (LFM2) has as many channels, Mamba a multiple."""
    cache = layer.cache
    if isinstance(cache, ShortConvolution) and cache.channels == old:
        layer = replace(_channelled(layer, old, new), cache=replace(cache, channels=new))
    elif mamba := mamba_of(layer):
        inner = _inner(Fraction(mamba.heads, old), new)
        wider = _state_changed(cache, lambda state: replace(state, heads=inner, conv_channels=inner))
        layer = replace(_channelled(layer, old, new), cache=wider)
    return _weights(layer, lambda group: _hidden(group, old, new))


def _inner(expand: Fraction, hidden: int) -> int:
    """The channels of a Mamba layer."""
    inner = expand * hidden
    if inner.denominator != 1:
        raise InputError(f"hidden_size is {hidden}; {expand} times as many channels of a recurrent layer is not whole")
    return inner.numerator


def _channelled(layer: Layer, old: int, new: int) -> Layer:
    """The projections and the filter of a layer on the side of its channels."""

    def change(group: WeightGroup) -> WeightGroup:
        return _scaled(group, channel_side(group), old, new, "hidden_size") if group.role in CHANNEL_ROLES else group

    return _weights(layer, change)


def _hidden(group: WeightGroup, old: int, new: int) -> WeightGroup:
    """A group of the text model with the side that is as wide as the hidden state."""
    if group.tower != "text":
        return group
    if group.role == "residual" and group.rows == group.columns == old:  # from one stream to another
        return replace(group, rows=new, columns=new)
    side = _hidden_side(group, old)
    return _scaled(group, side, old, new, "hidden_size") if side else group


WRITING_ROLES = frozenset({"mlp", "per_layer_input", "other"})
"""Roles whose matrices may write the hidden state although every GPU has a copy of them."""


def _hidden_side(group: WeightGroup, hidden: int) -> str | None:
    """rows where a matrix writes the hidden state, columns where it reads it; None where it does neither."""
    if group.role == "residual":
        return next((side for side in ("columns", "rows") if getattr(group, side) % hidden == 0), None)
    low_rank_output = group.role == "attention_o" and group.split == "rows"
    if group.columns == 1 and group.split != "columns":
        return "rows" if group.split == "copied" and group.rows == hidden else None
    if group.split != "columns" and group.columns == hidden and not low_rank_output:
        return "columns"
    writes = group.split == "columns" or (group.split == "copied" and group.role in WRITING_ROLES)
    return "rows" if writes and group.rows == hidden else None


# ------------------------------------------------------------------------------------------------------------ heads


def _with_heads(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("num_attention_heads"):
        return model
    new = wanted.after["num_attention_heads"]
    if new is None and not any(attention_heads(layer) for layer in model.layers):
        return model
    new = _require(wanted, "num_attention_heads", "give a whole number from 1 up")
    _require_some(model, attention_heads, "num_attention_heads", new, "attention layers")
    return replace(_each_layer(model, lambda layer: _query_heads(layer, new)), num_attention_heads=new)


def _query_heads(layer: Layer, new: int) -> Layer:
    old = attention_heads(layer)
    if old is None:
        return layer
    output = "rows" if any(g.role == "attention_o" and g.split == "rows" for g in layer.weights) else "columns"

    def change(group: WeightGroup) -> WeightGroup:
        if group.role == "attention_o":
            is_input = group.columns > 1 and group.split == output
            return _scaled(group, "columns", old, new, "num_attention_heads") if is_input else group
        by_head = group.role in ("attention_q", "attention_sink") or (
            group.role in ("attention_latent", "attention_gate") and group.split == "rows"
        )
        is_norm = group.role == "norm" and group.split == "rows" and not _has_state(layer)
        return _scaled(group, "rows", old, new, "num_attention_heads") if by_head or is_norm else group

    is_copied = headed(layer) is not None and kv_heads(layer) is None and layer.cache.kv_heads() == old
    cache = layer.cache.with_kv_heads(new) if is_copied else layer.cache  # kept for each query head (Falcon)
    return replace(_weights(layer, change), num_attention_heads=new, cache=cache)


def _has_state(layer: Layer) -> bool:
    """Whether norms over channels may belong to a recurrent state."""
    return any(group.role == "recurrent" for group in layer.weights)


def _with_kv_heads(model: Model, wanted: Wanted) -> Model:
    new = wanted.after["num_kv_heads"]
    if not wanted.changed("num_kv_heads") or (new is not None and wanted.has_latent and _makes_latent(model, wanted)):
        return model
    if new is None and (wanted.has_latent or not any(kv_heads(layer) for layer in model.layers)):
        return model
    new = _require(wanted, "num_kv_heads", "as many as query heads for MHA, 1 for MQA, or a divisor for GQA")
    if not any(headed(layer) for layer in model.layers) and wanted.changed(*Latent._fields) and not wanted.has_latent:
        return model  # the layers get their KV heads with the keys and values that take the place of latents
    _require_some(model, kv_heads, "num_kv_heads", new, "layers that keep keys and values for each KV head")
    return _each_layer(model, lambda layer: layer.with_kv_heads(new) if kv_heads(layer) else layer)


def _makes_latent(model: Model, wanted: Wanted) -> bool:
    return wanted.changed(*Latent._fields) and not any(layer.cache.kind in LATENT_KINDS for layer in model.layers)


def _with_head_dim(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("head_dim") or not any(head_dim(layer) for layer in model.layers):
        return model
    new = wanted.after["head_dim"]
    return _each_layer(model, lambda layer: _head_width(layer, new))


def _require_used_heads(model: Model, wanted: Wanted) -> Model:
    """Whatever was said of KV heads is true of some layer."""
    for name, has in (("num_kv_heads", kv_heads), ("head_dim", head_dim)):
        if wanted.changed(name) and wanted.after[name] is not None:
            what = "layers that keep keys and values for each KV head"
            _require_some(model, has, name, wanted.after[name], what)
    return model


def _with_usual_width(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Where a head dimension is taken away, the usual one."""
    is_taken_away = before["head_dim"] is not None and after["head_dim"] is None
    return {**after, "head_dim": _usual_head_dim(after)} if is_taken_away else after


def _usual_head_dim(sizes: Mapping[str, Any]) -> int | None:
    """Hidden size divided by query heads, as an empty field means it; None where one of them is missing too."""
    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    if not heads or not hidden:
        return None
    if hidden % heads:
        raise InputError(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give head_dim")
    return int(hidden // heads)


def _head_width(layer: Layer, new: int) -> Layer:
    old = head_dim(layer)
    if old is None:
        return layer
    cache = _each_member(layer.cache, lambda member: _sized(member, head_dim=new))
    values_too = getattr(headed(layer), "value_head_dim", None) is None
    norms = [group for group in layer.weights if _is_head_norm(group, old)][:1]  # an indexer has its own

    def change(index: int, group: WeightGroup) -> WeightGroup:
        is_norm = bool(norms) and index == layer.weights.index(norms[0])
        return _head_sized(group, layer, old, new, values_too) if not is_norm else replace(group, rows=new)

    return replace(layer, cache=cache, weights=tuple(change(*item) for item in enumerate(layer.weights)))


def _is_head_norm(group: WeightGroup, width: int) -> bool:
    """Whether a group is the norm of single queries and keys."""
    return group.role == "norm" and group.split == "copied" and group.rows == width


def _each_member(cache: LayerCache, change: Callable[[LayerCache], LayerCache]) -> LayerCache:
    """A cache whose mixers with KV heads are changed."""
    made = tuple(change(member) if has_heads(member) else member for member in members(cache))
    return CombinedCache(made) if isinstance(cache, CombinedCache) else made[0]


def _state_changed(cache: LayerCache, change: Callable[[RecurrentState], LayerCache]) -> LayerCache:
    """A cache whose recurrent mixer is changed."""
    made = tuple(change(member) if isinstance(member, RecurrentState) else member for member in members(cache))
    return CombinedCache(made) if isinstance(cache, CombinedCache) else made[0]


def _sized(cache: LayerCache, **sizes: int) -> LayerCache:
    """A cache with other sizes, which its kind has."""
    made: LayerCache = replace(cache, **sizes)  # type: ignore[type-var]
    return made


def _head_sized(group: WeightGroup, layer: Layer, old: int, new: int, values_too: bool) -> WeightGroup:
    """A group of an attention layer for another head dimension."""
    if group.role in ("attention_q", "attention_k") or (group.role == "attention_v" and values_too):
        return _scaled(group, "rows", old, new, "head_dim")
    if group.role == "attention_o" and group.columns > 1 and group.split != "copied" and values_too:
        return _scaled(group, "columns", old, new, "head_dim")
    heads = layer.num_attention_heads or 1
    is_gate = group.role == "attention_gate" and group.rows % (heads * old) == 0
    is_norm = group.role == "norm" and group.split != "copied" and not _has_state(layer)
    return _scaled(group, "rows", old, new, "head_dim") if is_gate or is_norm else group


# ---------------------------------------------------------------------------------------------------------- latents


def _with_latent(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed(*Latent._fields):
        return model
    has_now = any(layer.cache.kind in LATENT_KINDS for layer in model.layers)
    if not wanted.has_latent:
        return _each_layer(model, lambda layer: _without_latent(layer, model, wanted))
    latent = _wanted_latent(wanted)
    if has_now:
        return _each_layer(model, lambda layer: _latent_resized(layer, model, latent))
    if wanted.after["window"] is not None:
        raise InputError("window and latent are both given; a defined model has one or the other")
    _require_some(model, is_switched, "kv_lora_rank", latent.kv_lora_rank, "attention layers that could keep latents")
    return _each_layer(model, lambda layer: _latent_instead(layer, model, latent) if is_switched(layer) else layer)


def _wanted_latent(wanted: Wanted) -> Latent:
    for name in Latent._fields:
        if name != "q_lora_rank":
            _require(wanted, name, "latent attention needs it, or none of its fields")
    return Latent(*(wanted.after[name] for name in Latent._fields))


Stored = Mapping[tuple[str, str], tuple[StorageFormat | None, bool]]
"""How a projection is stored, and whether it is pinned to that, by its role and its split."""


def _latent_resized(layer: Layer, model: Model, latent: Latent) -> Layer:
    """A layer of latent attention with other ranks; each projection stays stored as it is."""
    if layer.cache.kind not in LATENT_KINDS:
        return layer
    old = latent_of(layer, model.hidden_size)
    if old is None:
        raise InputError(
            f"kv_lora_rank is {latent.kv_lora_rank}; the latent attention of {model.name} is laid out in its own way, "
            "so its ranks stay as they are: leave these fields empty"
        )
    heads = layer.num_attention_heads or 1
    rest, taken = _taken_out(layer.weights, latent_projections(model.hidden_size, heads, old))
    stored: Stored = {(group.role, group.split): (group.storage, group.pinned) for group in taken}
    new = tuple(_stored(group, stored) for group in latent_projections(model.hidden_size, heads, latent))
    rest = tuple(_indexer(group, old.q_lora_rank, latent.q_lora_rank) for group in rest)
    cache = _sized(layer.cache, kv_lora_rank=latent.kv_lora_rank, qk_rope_head_dim=latent.qk_rope_head_dim)
    return replace(layer, cache=cache, weights=(*new, *rest))


def _indexer(group: WeightGroup, old: int | None, new: int | None) -> WeightGroup:
    """A projection of the indexer, which may read the latent of the queries."""
    reads_latent = group.role == "indexer" and group.columns == old
    return replace(group, columns=new) if reads_latent and new is not None else group


def _taken_out(weights: Groups, out: Groups) -> tuple[Groups, Groups]:
    """(what stays, what was taken) of the weights, one for each group of `out`."""
    rest, taken = list(weights), []
    for group in out:
        found = next(item for item in rest if shape_of(item) == shape_of(group))
        rest.remove(found)
        taken.append(found)
    return tuple(rest), tuple(taken)


def _stored(group: WeightGroup, stored: Stored) -> WeightGroup:
    storage, pinned = stored.get((group.role, group.split), (None, False))
    return replace(group, storage=storage, pinned=pinned)


def _latent_instead(layer: Layer, model: Model, latent: Latent) -> Layer:
    """A layer that keeps latents in place of keys and values."""
    heads = layer.num_attention_heads or 1
    made = latent_projections(model.hidden_size, heads, latent)
    cache = LatentAttention(latent.kv_lora_rank, latent.qk_rope_head_dim)
    return Layer(cache, (*made, *_without_heads(layer)), heads)


def _without_heads(layer: Layer) -> Groups:
    """The weights of a layer less its projections of queries, keys and values, and their norms."""
    width = head_dim(layer)
    return tuple(
        group
        for group in layer.weights
        if not group.role.startswith("attention_")
        and not (group.role == "norm" and (group.rows == width or group.split != "copied"))
    )


def _without_latent(layer: Layer, model: Model, wanted: Wanted) -> Layer:
    """A layer that keeps keys and values for each KV head in place of latents."""
    old = latent_of(layer, model.hidden_size)
    if old is None:
        return layer
    kept = _require(wanted, "num_kv_heads", "layers without latents keep keys and values for each KV head")
    heads, width = layer.num_attention_heads or 1, wanted.after["head_dim"] or _usual_head_dim(wanted.after) or 1
    rest, _ = _taken_out(layer.weights, latent_projections(model.hidden_size, heads, old))
    made = attention(model.hidden_size, heads, kept, width)
    return Layer(FullAttention(kept, width), (*made, *(g for g in rest if g.role != "indexer")), heads)


# ------------------------------------------------------------------------------------------------------------ windows


def _with_windows(model: Model, wanted: Wanted) -> Model:
    size, every = wanted.after["window"], wanted.after["full_attention_every"]
    full = [layer.cache.kind == "full" for layer in model.layers if is_switched(layer)]
    is_placed = size is None or _every_nth(full, every)
    if is_placed and not wanted.changed("window", "full_attention_every"):
        return model
    if size is None and every is not None:
        raise InputError("full_attention_every is given without a window, so it has no meaning")
    if size is None and (wanted.changed("full_attention_every") or wanted.before["window"] is not None):
        return _each_layer(model, lambda layer: _as_full(layer, model) if is_switched(layer) else layer)
    sized = _each_layer(model, lambda layer: _window_sized(layer, size))
    if wanted.before["window"] is None and not varying(model).get("window"):
        _require_some(model, is_switched, "window", size, "full attention that could keep a window")
    elif is_placed and not wanted.changed("full_attention_every"):
        return sized
    return _switched(sized, size, every)


def _every_nth(kinds: list[bool], every: int | None) -> bool:
    """Whether every n-th of the layers, and no other, is of a kind; more layers than before may not be in order."""
    return every is None or all(((index + 1) % every == 0) == kind for index, kind in enumerate(kinds))


def _window_sized(layer: Layer, size: int) -> Layer:
    return layer if window(layer) is None else replace(layer, cache=_sized(layer.cache, window=size))


def _switched(model: Model, size: int, every: int | None) -> Model:
    """Every n-th attention layer keeps every token, the others a window."""
    layers, seen = list(model.layers), 0
    for index, layer in enumerate(layers):
        if is_switched(layer):
            seen += 1
            is_full = every is not None and seen % every == 0
            layers[index] = _as_full(layer, model) if is_full else _as_window(layer, model, size)
    return replace(model, layers=tuple(layers))


def _as_full(layer: Layer, model: Model) -> Layer:
    return layer if layer.cache.kind == "full" else _as_kind(layer, model, "full", FullAttention(*_head_sizes(layer)))


def _as_window(layer: Layer, model: Model, size: int) -> Layer:
    if layer.cache.kind == "sliding":
        return layer
    return _as_kind(layer, model, "sliding", SlidingAttention(*_head_sizes(layer), window=size))


def _head_sizes(layer: Layer) -> tuple[int, int, int | None]:
    cache: Any = layer.cache
    return cache.num_kv_heads, cache.head_dim, cache.value_head_dim


def _as_kind(layer: Layer, model: Model, kind: str, cache: LayerCache) -> Layer:
    """A layer with the attention of the model's layers of a kind, where it has some, else with a cache alone."""
    like = next((other for other in model.layers if other.cache.kind == kind and headed(other)), None)
    if like is None:
        return replace(layer, cache=cache)
    return _with_mixer_of(layer, like)


# -------------------------------------------------------------------------------------------------- recurrent layers


def _with_state(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed(*STATE_SIZES):
        return model
    if all(wanted.after[name] is None for name in STATE_SIZES):
        raise InputError("state_heads is missing; recurrent layers need it, or start from a preset without them")
    for name in STATE_SIZES:
        _require(wanted, name, "recurrent layers need it, or none of their fields")
    sizes = _wanted_state(wanted)
    check_recurrent(sizes)
    if not any(state_of(layer) for layer in model.layers):
        return _with_new_state(model, sizes)
    return _each_layer(model, lambda layer: _state_resized(layer, sizes))


def _wanted_state(wanted: Wanted) -> Recurrent:
    sizes = {field: wanted.after[name] for name, field in STATE_SIZES.items()}
    return Recurrent(**sizes, attention_every=wanted.after["attention_every"])


def _state_resized(layer: Layer, sizes: Recurrent) -> Layer:
    """A recurrent layer with other sizes."""
    old = state_of(layer)
    if old is None:
        return layer
    new = State(sizes, old.is_delta)
    cache = _state_changed(layer.cache, lambda state: _state_cache(state, new))
    return replace(_weights(layer, lambda group: _state_sized(group, old, new)), cache=cache)


def _state_cache(cache: RecurrentState, new: State) -> LayerCache:
    sizes = new.sizes
    own = replace(
        cache, heads=sizes.num_heads, head_elements=sizes.head_dim * sizes.state_size, conv_width=sizes.conv_width
    )
    if new.is_delta:
        return replace(own, conv_channels=sizes.layout.channels)
    return replace(
        own, conv_channels=sizes.layout.inner, conv_groups=sizes.num_groups, group_channels=2 * sizes.state_size
    )


def _state_sized(group: WeightGroup, old: State, new: State) -> WeightGroup:
    """A weight of a recurrent layer: its rows stand in the list of rows that the sizes make."""
    if group.role == "recurrent" and group.split == "columns" and group.columns > 1:
        return replace(group, columns=new.sizes.layout.inner)
    own_norm = group.role == "norm" and group.split == ("copied" if old.is_delta else "rows")
    if not own_norm and (group.role not in ("recurrent", "recurrent_state") or group.split != "rows"):
        return group
    before, after = old.rows()[group.role], new.rows()[group.role]
    if group.rows not in before:
        return group
    columns = new.sizes.conv_width if group.role == "recurrent_state" and group.columns > 1 else group.columns
    return replace(group, rows=after[before.index(group.rows)], columns=columns)


def _with_new_state(model: Model, sizes: Recurrent) -> Model:
    """A model with recurrent layers in place of attention, but in every n-th layer."""
    _require_some(model, headed, "state_heads", sizes.num_heads, "attention layers in whose place a state could stand")
    made = {layer: _state_instead(layer, model, sizes) for layer, _ in model.layer_runs if headed(layer)}
    places = [index for index, layer in enumerate(model.layers) if headed(layer)]
    kept = {place for index, place in enumerate(places) if sizes.has_attention_at(index)}
    return replace(
        model,
        layers=tuple(layer if index in kept else made.get(layer, layer) for index, layer in enumerate(model.layers)),
    )


def _state_instead(layer: Layer, model: Model, sizes: Recurrent) -> Layer:
    return Layer(sizes.layout.cache(model.dtype), (*sizes.layout.weights(model.hidden_size), *_without_heads(layer)))


def _with_attention_order(model: Model, wanted: Wanted) -> Model:
    every = wanted.after["attention_every"]
    is_placed = _every_nth([headed(layer) is not None for layer in model.layers if is_mixed(layer)], every)
    if is_placed and not wanted.changed("attention_every"):
        return model
    if all(wanted.before[name] is None for name in STATE_SIZES):
        if all(wanted.after[name] is None for name in STATE_SIZES):
            raise InputError(f"attention_every is {every}; {model.name} has no recurrent layers, so leave it empty")
        return model  # the layers were placed when they were made
    attends = next((layer for layer in model.layers if is_mixed(layer) and headed(layer)), None)
    recurs = next((layer for layer in model.layers if is_mixed(layer) and state_of(layer)), None)
    if recurs is None:
        raise InputError(
            f"attention_every is {every}; {model.name} has attention and a state in the same layers, so leave it empty"
        )
    if every is not None and attends is None:
        raise InputError(f"attention_every is {every}; {model.name} has no attention layer to place, so leave it empty")
    return _mixed(model, every, attends or recurs, recurs)


def _mixed(model: Model, every: int | None, attends: Layer, recurs: Layer) -> Model:
    """Every n-th of the layers with the attention of the model, the others with its state."""
    layers, seen = list(model.layers), 0
    for index, layer in enumerate(layers):
        if is_mixed(layer):
            seen += 1
            layers[index] = _with_mixer(layer, attends if every is not None and seen % every == 0 else recurs)
    return replace(model, layers=tuple(layers))


def _with_mixer(layer: Layer, like: Layer) -> Layer:
    """A layer with the attention or the state of another one; of the same kind it stays as it is."""
    if (headed(layer) is None) == (headed(like) is None):
        return layer
    return _with_mixer_of(layer, like)


def _with_mixer_of(layer: Layer, like: Layer) -> Layer:
    """What stands behind the attention or the state of `layer`, behind that of `like`."""
    behind = feed_forward(like)
    mixer = tuple(group for group in like.weights if group not in behind)
    return Layer(like.cache, (*mixer, *feed_forward(layer)), like.num_attention_heads)


# -------------------------------------------------------------------------------------------------- MLP and experts


def _with_mlp(model: Model, wanted: Wanted) -> Model:
    new = wanted.after["intermediate_size"]
    if not wanted.changed("intermediate_size") or new is None:
        return model
    return _each_layer(model, lambda layer: _mlp_sized(layer, new))


def _mlp_sized(layer: Layer, new: int) -> Layer:
    old = mlp_width(layer)
    return layer if old is None else _weights(layer, lambda g: _width(g, "mlp", old, new, "intermediate_size"))


def _width(group: WeightGroup, role: str, old: int, new: int, name: str) -> WeightGroup:
    """A projection of an MLP or of experts for another width between its two sides."""
    side = {"rows": "rows", "columns": "columns"}.get(group.split)
    if group.role != role or side is None:
        return group
    return _scaled(group, side, old, new, name)


def _with_experts(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed(*EXPERT_SIZES, "num_shared_experts"):
        return model
    if not wanted.has_experts:
        return _each_layer(model, lambda layer: _dense(layer, model, wanted))
    for name in EXPERT_SIZES:
        if name not in varying(model):
            _require(wanted, name, "a mixture of experts needs it, or none of its fields")
    if model.has_experts:
        return _each_layer(model, lambda layer: _experts_resized(layer, wanted))
    return _as_mixture(model, wanted)


def _dense(layer: Layer, model: Model, wanted: Wanted) -> Layer:
    """A layer with an MLP alone where it has experts."""
    if not layer.num_experts:
        return layer
    kept = tuple(g for g in layer.weights if g.role not in (ROUTED, "shared_experts", "router"))
    if mlp_width(layer):
        return replace(layer, weights=kept)
    width = _require(wanted, "intermediate_size", "layers without experts have an MLP of this width")
    return replace(layer, weights=(*kept, *gated_mlp(model.hidden_size, width)))


def _experts_resized(layer: Layer, wanted: Wanted) -> Layer:
    old_count, old_width = layer.num_experts, expert_width(layer)
    if not old_count or old_width is None:
        return layer
    count, per_token, width = (wanted.after[name] for name in EXPERT_SIZES)
    shared = shared_experts(layer)
    resized = _weights(layer, lambda group: _expert_sized(group, old_count, count, per_token))
    resized = _weights(resized, lambda g: _width(g, ROUTED, old_width, width, "expert_intermediate_size"))
    wanted_shared = wanted.after["num_shared_experts"]
    if not wanted.changed("num_shared_experts"):
        old, new = old_width, width if shared else old_width
        return _weights(resized, lambda g: _width(g, "shared_experts", old, new, "expert_intermediate_size"))
    return _with_shared(resized, layer, (wanted_shared or 0) * width)


def _expert_sized(group: WeightGroup, old: int, new: int, per_token: int) -> WeightGroup:
    """Matrices of routed experts, and rows of the router, for another number of experts."""
    if group.role == ROUTED:
        each = group.count // old
        whole_number(per_token, "num_experts_per_token", high=new)
        return replace(group, count=each * new, active=each * per_token)
    return replace(group, rows=new) if group.role == "router" and group.rows == old else group


def _with_shared(layer: Layer, before: Layer, width: int) -> Layer:
    """A layer whose shared experts have this width together; 0: it has none."""
    others = tuple(group for group in layer.weights if group.role != "shared_experts")
    if not width:
        return replace(layer, weights=others)
    old = next((g.columns for g in before.weights if g.role == "shared_experts" and g.split == "columns"), None)
    if old is not None:
        return _weights(layer, lambda g: _width(g, "shared_experts", old, width, "num_shared_experts"))
    down = next(g for g in layer.weights if g.role == ROUTED and g.split == "columns")
    made = tuple(
        replace(group, storage=down.storage, pinned=down.pinned)
        for group in gated_mlp(down.rows, width, role="shared_experts")
    )
    return replace(layer, weights=(*layer.weights, *made))


def _as_mixture(model: Model, wanted: Wanted) -> Model:
    """A dense model with experts in place of its MLPs, in the layers that the pattern says."""
    count, per_token, width = (wanted.after[name] for name in EXPERT_SIZES)
    experts = Experts(count, per_token, width, wanted.after["num_shared_experts"] or 0)
    routed = expert_weights(model.hidden_size, experts)
    return _placed(model, wanted, routed)


def _with_expert_pattern(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("num_layers", "num_dense_layers", "experts_every") or not wanted.has_experts:
        return _require_used_pattern(model, wanted)
    if not any(wanted.before[name] or wanted.after[name] for name in ("num_dense_layers", "experts_every")):
        return model
    if not wanted.before["num_experts"] and not any(layer.num_experts for layer in model.layers):
        return model
    return _placed(model, wanted, next(feed_forward(layer) for layer in model.layers if layer.num_experts))


def _require_used_pattern(model: Model, wanted: Wanted) -> Model:
    for name in ("num_dense_layers", "experts_every"):
        if not wanted.has_experts and wanted.after[name]:
            raise InputError(f"{name} is {wanted.after[name]}; {model.name} is left without experts, so leave it empty")
    return model


def _placed(model: Model, wanted: Wanted, routed: Groups) -> Model:
    """The model with `routed` where the pattern has experts, and an MLP elsewhere."""
    dense, every = wanted.after["num_dense_layers"] or 0, wanted.after["experts_every"] or 1
    places = [index for index, layer in enumerate(model.layers) if feed_forward(layer)]
    if not places:
        raise InputError(
            f"num_experts is {wanted.after['num_experts']}; {model.name} has no MLP in whose place experts could "
            "stand, so leave it empty"
        )
    at = {place: has_experts_at(index, dense, every) for index, place in enumerate(places)}
    if not any(at.values()):
        raise InputError(
            f"num_dense_layers is {dense} and experts_every is {every}; of {counted(len(places), 'layer')} none would "
            "have experts"
        )
    mlp = _lone_mlp(model, wanted) if not all(at.values()) else ()
    layers = [
        _behind(layer, routed if at[index] else mlp) if index in at and at[index] != bool(layer.num_experts) else layer
        for index, layer in enumerate(model.layers)
    ]
    return replace(model, layers=tuple(layers))


def _behind(layer: Layer, groups: Groups) -> Layer:
    """A layer with other weights behind its attention."""
    own = feed_forward(layer)
    return replace(layer, weights=(*(group for group in layer.weights if group not in own), *groups))


def _lone_mlp(model: Model, wanted: Wanted) -> Groups:
    """The MLP of a layer without experts, as the model has it, else a gated one."""
    found = next((feed_forward(layer) for layer in model.layers if mlp_width(layer) and not layer.num_experts), None)
    if found is not None:
        return found
    width = _require(wanted, "intermediate_size", "layers without experts have an MLP of this width")
    return gated_mlp(model.hidden_size, width)


def _require_used_width(model: Model, wanted: Wanted) -> Model:
    """An MLP's width is given exactly where the model has MLPs of one width."""
    width = wanted.after["intermediate_size"]
    has_mlp = any(mlp_width(layer) for layer in model.layers)
    if width is not None and not has_mlp:
        raise InputError(
            f"intermediate_size is {width}; {model.name} has no layer with an MLP of its own, so leave this empty, or "
            "say with num_dense_layers or experts_every which layers have one"
        )
    if width is None and has_mlp and wanted.changed("intermediate_size"):
        raise InputError("intermediate_size is missing; give the MLP's width")
    return model


# ------------------------------------------------------------------------------------------- embedding and context


def _with_vocabulary(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("vocab_size"):
        return model
    new = _require(wanted, "vocab_size", "give the vocabulary's size")
    old = model.vocab_size or new
    weights = tuple(  # a table may hold a few rows more than the vocabulary
        replace(g, rows=g.rows - old + new) if g.role in ("embedding", "lm_head") and g.rows >= old else g
        for g in model.weights
    )
    return replace(model, vocab_size=new, weights=weights)


def _with_head(model: Model, wanted: Wanted) -> Model:
    if not wanted.changed("tied_embeddings"):
        return model
    others = tuple(group for group in model.weights if group.role != "lm_head" or group.columns == 1)
    table = next((group for group in others if group.role == "embedding"), None)
    is_tied = wanted.after["tied_embeddings"]
    head = () if is_tied or table is None else lm_head(table.rows, table.columns)
    return replace(model, weights=(*others, *head), tied_embeddings=is_tied)


def _with_limit(model: Model, wanted: Wanted) -> Model:
    new, old = wanted.after["context_limit"], model.context_limit
    if new == old:
        return model
    more = new - old if new and old else 0  # a table of positions may hold a few rows more than the limit
    weights = tuple(
        replace(g, rows=max(g.rows + more, 1)) if g.role == "position_embedding" else g for g in model.weights
    )
    return replace(model, context_limit=new, weights=weights)


_STEPS: tuple[Callable[[Model, Wanted], Model], ...] = (
    _with_layers,
    _with_hidden,
    _with_heads,
    _with_kv_heads,
    _with_head_dim,
    _with_latent,
    _with_state,
    _with_attention_order,
    _with_windows,
    _with_mlp,
    _with_experts,
    _with_expert_pattern,
    _require_used_width,
    _require_used_heads,
    _with_vocabulary,
    _with_head,
    _with_limit,
)
"""The changes in their order: what layers there are, then how wide they are, then what stands outside them."""
