"""A model taken apart into the sizes that people name: what a form can hold of it, and what it cannot, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kvplan.attention import CombinedCache, LayerCache, NoCache, RecurrentState
from kvplan.define import Experts, Latent, Recurrent, latent_projections
from kvplan.model import ROLES, ROUTED, Layer, Model, WeightGroup, require_model
from kvplan.units import counted

FEED_FORWARD = frozenset({"mlp", ROUTED, "shared_experts", "router"})
"""Roles of what stands behind the attention of a layer."""

STATE_SIZES = {
    "state_heads": "num_heads",
    "state_head_dim": "head_dim",
    "state_size": "state_size",
    "state_groups": "num_groups",
    "conv_width": "conv_width",
}
"""The sizes of recurrent layers, and the field of `Recurrent` that holds each."""

LATENT_KINDS = frozenset({"latent", "sliding_latent", "indexed_latent"})
SWITCHED_KINDS = frozenset({"full", "sliding"})
"""Kinds of layer between which a pattern of windows chooses."""


def sizes_of(model: Model) -> dict[str, Any]:
    """The sizes of `model` by their keyword of `define_model`, experts and latent ranks among them.

    None where the model has no such size, and where its layers differ: `varying` tells the one from the other.

    Raises InputError where it is no model.
    """
    require_model(model)
    found = {name: _one(values) for name, values in _all_sizes(model).items()}
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        **found,
        "context_limit": model.context_limit,
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "full_attention_every": full_every(model.layers),
        **_expert_pattern(model.layers),
        **_latent_sizes(model),
        "attention_every": attention_every(model.layers),
    }


def varying(model: Model) -> dict[str, tuple[int, ...]]:
    """The sizes of which the layers of `model` have several, each with its values in the order of the layers."""
    return {name: tuple(values) for name, values in _all_sizes(model).items() if len(values) > 1}


def _all_sizes(model: Model) -> dict[str, list[int]]:
    """Every value of each size that layers may differ in, in the order of the layers."""
    layers = [layer for layer, _ in model.layer_runs]
    return {name: _values(find, layers) for name, find in _BY_LAYER.items()}


def _values(find: Callable[[Layer], int | None], layers: Iterable[Layer]) -> list[int]:
    return list(dict.fromkeys(value for layer in layers if (value := find(layer)) is not None))


def _one(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None


# ------------------------------------------------------------------------------------------------------ attention


def members(cache: LayerCache) -> tuple[LayerCache, ...]:
    """The mixers of one layer: more than one where it combines them."""
    return cache.members if isinstance(cache, CombinedCache) else (cache,)


def has_heads(cache: LayerCache) -> bool:
    """Whether a mixer keeps keys and values for each token and KV head."""
    return cache.kv_heads() is not None and bool(cache.cache_parts())


def headed(layer: Layer) -> LayerCache | None:
    """The attention of a layer whose keys are projected for each KV head, or None."""
    roles = {group.role for group in layer.weights}
    uses_shared_ones = bool(roles) and "attention_q" not in roles  # Zamba: the first such layer has them
    if "attention_k" not in roles and not uses_shared_ones:
        return None
    return next((member for member in members(layer.cache) if has_heads(member)), None)


def attention_heads(layer: Layer) -> int | None:
    """Query heads of a layer that the form can change: not those of attention to images."""
    return None if layer.cache.kind == "cross" else layer.num_attention_heads


def kv_heads(layer: Layer) -> int | None:
    """KV heads of a layer; None where its cache keeps another number of them than it projects (Falcon)."""
    attention = headed(layer)
    kept = None if attention is None else attention.kv_heads()
    return kept if all(group.kv_heads in (None, kept) for group in layer.weights) else None


def head_dim(layer: Layer) -> int | None:
    """Values of one key of a layer; of one that reads another layer's cache, those of one query."""
    attention = headed(layer)
    if attention is not None:
        return int(attention.head_dim)  # type: ignore[attr-defined]  # kinds with KV heads have it
    if layer.cache.kind != "shared" or not layer.num_attention_heads:
        return None
    return next((g.rows // layer.num_attention_heads for g in layer.weights if g.role == "attention_q"), None)


def window(layer: Layer) -> int | None:
    """Tokens that a window layer keeps."""
    known = layer.cache.kind == "sliding_latent" or (layer.cache.kind == "sliding" and headed(layer) is not None)
    return int(layer.cache.window) if known else None  # type: ignore[attr-defined]


def is_switched(layer: Layer) -> bool:
    """Whether a pattern of full attention and windows covers this layer."""
    return layer.cache.kind in SWITCHED_KINDS and headed(layer) is not None


def full_every(layers: Iterable[Layer]) -> int | None:
    """n where every n-th attention layer keeps every token and the others a window; None without such a pattern."""
    full = [layer.cache.kind == "full" for layer in layers if is_switched(layer)]
    every = full.index(True) + 1 if any(full) and not all(full) else None
    fits = every is not None and all(((index + 1) % every == 0) == kind for index, kind in enumerate(full))
    return every if fits else None


def latent_of(layer: Layer, hidden: int) -> Latent | None:
    """The sizes of latent attention of a layer that is laid out as DeepSeek has it, else None."""
    shapes = {group.role: (group.rows, group.columns) for group in layer.weights if group.columns > 1}
    heads = layer.num_attention_heads
    if layer.cache.kind not in LATENT_KINDS or heads is None or not {"attention_q", "attention_o"} <= set(shapes):
        return None
    (query, rank), (_, value) = shapes["attention_q"], shapes["attention_o"]
    lora, rope = int(layer.cache.kv_lora_rank), int(layer.cache.qk_rope_head_dim)  # type: ignore[attr-defined]
    found = Latent(lora, rope, query // heads - rope, value // heads, rank)
    if rank == hidden and missing_from(layer, hidden, found):
        found = found._replace(q_lora_rank=None)
    return found if found.qk_nope_head_dim > 0 and not missing_from(layer, hidden, found) else None


def missing_from(layer: Layer, hidden: int, latent: Latent) -> bool:
    """Whether a projection of latent attention of these sizes is not among the weights of the layer."""
    have = {shape_of(group) for group in layer.weights}
    return any(
        shape_of(group) not in have for group in latent_projections(hidden, layer.num_attention_heads or 1, latent)
    )


def shape_of(group: WeightGroup) -> tuple[str, int, int]:
    """What a projection is recognised by, however it is stored."""
    return group.role, group.rows, group.columns


def _latent_sizes(model: Model) -> dict[str, int | None]:
    latent = [layer for layer, _ in model.layer_runs if layer.cache.kind in LATENT_KINDS]
    found = {latent_of(layer, model.hidden_size) for layer in latent}
    one = found.pop() if len(found) == 1 else None
    return dict.fromkeys(Latent._fields) if one is None else dict(one._asdict())


# --------------------------------------------------------------------------------------------- recurrent layers


class State(NamedTuple):
    """A recurrent layer whose sizes are known.

    sizes     its heads, their width, the size of the state, groups (key heads), the width of the convolution
    is_delta  a gated delta rule (Qwen3-Next, Qwen3.5), else Mamba-2
    """

    sizes: Recurrent
    is_delta: bool

    def rows(self) -> dict[str, tuple[int, ...]]:
        """The rows that projections of each role may have, in an order that does not depend on the sizes."""
        inner, keys, heads = (
            self.sizes.layout.inner,
            self.sizes.num_groups * self.sizes.state_size,
            self.sizes.num_heads,
        )
        fused = (2 * keys + 2 * inner, 2 * heads, 2 * keys + inner, inner, heads)
        return {
            "recurrent": fused if self.is_delta else (2 * inner + 2 * keys + heads,),
            "recurrent_state": (self.sizes.layout.channels, heads),
            "norm": (self.sizes.head_dim,) if self.is_delta else (inner,),
        }


def _recurrent(layer: Layer) -> RecurrentState | None:
    return next((member for member in members(layer.cache) if isinstance(member, RecurrentState)), None)


def state_of(layer: Layer) -> State | None:
    """The sizes of a recurrent layer laid out as Mamba-2 or the gated delta rule; None for any other."""
    cache = _recurrent(layer)
    out = next((g for g in layer.weights if g.role == "recurrent" and g.split == "columns"), None)
    found = None if cache is None or out is None else _state(cache, out.columns)
    return found if found is not None and all(_is_known(group, found) for group in layer.weights) else None


def _state(cache: RecurrentState, inner: int) -> State | None:
    """The sizes of a state whose heads are `inner` values wide together, where they come out whole."""
    width, rest = divmod(inner, cache.heads)
    size, more = divmod(cache.head_elements, width or 1)
    is_delta = not cache.conv_groups
    shared, left = divmod(cache.conv_channels - inner, 2 * size or 1) if is_delta else (cache.conv_groups, 0)
    if rest or more or left or shared < 1 or cache.conv_width < 2:  # a filter of one is not told from its bias
        return None
    found = State(Recurrent(cache.heads, width, size, shared, cache.conv_width), is_delta)
    channels = cache.conv_channels + cache.conv_groups * cache.group_channels
    return found if channels == found.sizes.layout.channels else None


def _is_known(group: WeightGroup, state: State) -> bool:
    """Whether the sizes of the state say how many rows a recurrent projection has."""
    if group.role not in ("recurrent", "recurrent_state") or group.split != "rows":
        return True
    filter_width = group.role == "recurrent_state" and group.columns > 1
    rows = state.rows()[group.role]
    return rows.count(group.rows) == 1 and (not filter_width or group.columns == state.sizes.conv_width)


CHANNEL_ROLES = frozenset({"recurrent", "recurrent_state", "convolution"})
"""Roles of the matrices that read, filter or write the channels of a recurrent layer or a short convolution."""


def channel_side(group: WeightGroup) -> str:
    """The side of such a matrix that its channels are: what reads them has them as columns."""
    return "columns" if group.split == "columns" else "rows"


def mamba_of(layer: Layer) -> RecurrentState | None:
    """The state of a Mamba layer, each channel with one of its own; None for any other.

    Its channels are a multiple of the hidden size, `expand` in its config. Those of Mamba-2 and of a gated delta rule
    are what heads and their width make, which are sizes themselves.
    """
    cache = _recurrent(layer)
    if cache is None or cache.head_elements == 1 or state_of(layer) is not None:
        return None
    sides = [getattr(group, channel_side(group)) for group in layer.weights if group.role in CHANNEL_ROLES]
    is_mamba = cache.conv_channels == cache.heads and not cache.conv_groups
    return cache if is_mamba and not any(side % cache.heads for side in sides) else None


def _state_size(name: str) -> Callable[[Layer], int | None]:
    def find(layer: Layer) -> int | None:
        state = state_of(layer)
        return None if state is None else int(getattr(state.sizes, name))

    return find


def attention_every(layers: Iterable[Layer]) -> int | None:
    """n where every n-th layer has attention and the others a state; None without such an order."""
    attends = [headed(layer) is not None for layer in layers if is_mixed(layer)]
    every = attends.index(True) + 1 if any(attends) and not all(attends) else None
    fits = every is not None and all(((index + 1) % every == 0) == kind for index, kind in enumerate(attends))
    return every if fits else None


def is_mixed(layer: Layer) -> bool:
    """Whether an order of attention and recurrent layers covers this layer."""
    return not isinstance(layer.cache, CombinedCache) and (headed(layer) is not None or state_of(layer) is not None)


# --------------------------------------------------------------------------------------------- MLP and experts


def _down(layer: Layer, role: str) -> WeightGroup | None:
    """The projection back to the hidden size of an MLP or of experts."""
    return next((g for g in layer.weights if g.role == role and g.split == "columns"), None)


def mlp_width(layer: Layer) -> int | None:
    """The width of a layer's MLP."""
    down = _down(layer, "mlp")
    return None if down is None else down.columns


def _experts(layer: Layer) -> int | None:
    return layer.num_experts or None


def _experts_per_token(layer: Layer) -> int | None:
    down = _down(layer, ROUTED)
    return None if down is None else down.num_active * layer.num_experts // down.count


def expert_width(layer: Layer) -> int | None:
    """The width of one routed expert."""
    down = _down(layer, ROUTED)
    return None if down is None else down.columns


def shared_experts(layer: Layer) -> int | None:
    """Shared experts as multiples of a routed one; None where there is none, or no whole number of them."""
    shared, width = _down(layer, "shared_experts"), expert_width(layer)
    return None if shared is None or width is None or shared.columns % width else shared.columns // width


def feed_forward(layer: Layer) -> tuple[WeightGroup, ...]:
    """The weights of a layer behind its attention."""
    return tuple(group for group in layer.weights if group.role in FEED_FORWARD)


def _expert_pattern(layers: Iterable[Layer]) -> dict[str, int | None]:
    """num_dense_layers and experts_every; both None where every layer has experts, none has, or there is no order."""
    routed = [bool(layer.num_experts) for layer in layers if feed_forward(layer)]
    first = routed.index(True) if any(routed) else len(routed)
    for dense, every in ((first, 1), (0, first + 1)):
        if any(routed) and routed == [has_experts_at(index, dense, every) for index in range(len(routed))]:
            return {"num_dense_layers": dense or None, "experts_every": every if every > 1 else None}
    return {"num_dense_layers": None, "experts_every": None}


def has_experts_at(index: int, dense: int, every: int) -> bool:
    """Whether layer `index` (from 0) has experts: the first `dense` have none, later every n-th one has."""
    return Experts(1, 1, 1, num_dense_layers=dense, every=every).stand_in(index)


_BY_LAYER: dict[str, Callable[[Layer], int | None]] = {
    "num_attention_heads": attention_heads,
    "num_kv_heads": kv_heads,
    "head_dim": head_dim,
    "window": window,
    "intermediate_size": mlp_width,
    "num_experts": _experts,
    "num_experts_per_token": _experts_per_token,
    "expert_intermediate_size": expert_width,
    "num_shared_experts": shared_experts,
    **{name: _state_size(field) for name, field in STATE_SIZES.items()},
}


# ---------------------------------------------------------------------------------------------------- what is kept

UNEVEN = "keys and values kept for more heads than are projected"

OWN_SIZES = frozenset({"full", "sliding", "latent"})
"""Kinds of layer whose cache follows from the sizes alone."""


def kept_layers(model: Model) -> dict[str, int]:
    """Layers that have something which no size names, by what that is, with how many there are."""
    counts: dict[str, int] = {}
    for layer, count in model.layer_runs:
        for label in dict.fromkeys(_kept(layer, model.hidden_size)):
            counts[label] = counts.get(label, 0) + count
    return counts


def _kept(layer: Layer, hidden: int) -> list[str]:
    has_sizes = headed(layer) is not None or latent_of(layer, hidden) is not None
    has_state = state_of(layer) is not None
    mamba = mamba_of(layer)
    others = [
        f"{m.label}, {mamba.heads / hidden:g} times as wide as the hidden size" if mamba and m is mamba else m.label
        for m in members(layer.cache)
        if not (has_state if m.kind == "recurrent" else has_sizes and m.kind in OWN_SIZES)
    ]
    return [*others, UNEVEN] if headed(layer) is not None and kv_heads(layer) is None else others


def kept_weights(model: Model) -> dict[str, int]:
    """Parameters that no size names, by the label of their role."""
    sums: dict[str, int] = {}
    named = [layer for layer, _ in model.layer_runs if state_of(layer) or mamba_of(layer)]
    known = {group for layer in named for group in layer.weights if group.role in ("recurrent", "recurrent_state")}
    for group, count in model.all_groups:
        if group.role in KEPT_ROLES and group not in known:
            label = ROLES[group.role].label
            sums[label] = sums.get(label, 0) + count * group.params
    return sums


KEPT_ROLES = frozenset(
    {"indexer", "recurrent", "recurrent_state", "convolution", "residual", "per_layer_embedding", "per_layer_input"}
    | {"vision", "audio", "projector", "other"}
)


def kept_parts(model: Model) -> tuple[str, ...]:
    """What a change of sizes leaves as it is in `model`, a phrase for each."""
    layers = [
        f"{counted(count, 'layer')} {'without a cache' if label == NoCache.label else f'of {label}'}"
        for label, count in kept_layers(model).items()
    ]
    weights = [f"{label}, {counted(count, 'parameter')}" for label, count in kept_weights(model).items()]
    return (*layers, *weights)
