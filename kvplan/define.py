"""A model of the user's own: a Llama layout (RMSNorm, gated MLP, no biases, untied) unless said."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.attention import FullAttention, LatentAttention, LayerCache, SlidingAttention
from kvplan.blocks import (
    Groups,
    Mamba2,
    attention,
    embedding,
    gated_mlp,
    linear,
    lm_head,
    norm,
    routed_experts,
    router,
)
from kvplan.dtypes import StorageFormat, weight_format
from kvplan.errors import InputError, quoted
from kvplan.model import Layer, Model, WeightGroup
from kvplan.names import clean_name
from kvplan.units import counted, whole_number

MAX_LAYERS = 10_000
MAX_SIZE = 2**31
MAX_PARAMS = 10**15


class Latent(NamedTuple):
    """Sizes of multi-head latent attention. `q_lora_rank` None: queries are projected directly."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None


class Experts(NamedTuple):
    """`num_experts` routed experts in every layer, of which a token reads `num_experts_per_token`, and shared ones.

    num_dense_layers  first layers that have an MLP of `define_model`'s intermediate_size instead
    every             of the layers only every n-th one has experts, the others that MLP (Llama 4, Jamba)
    """

    num_experts: int
    num_experts_per_token: int
    intermediate_size: int
    num_shared_experts: int = 0
    num_dense_layers: int = 0
    every: int = 1

    def stand_in(self, index: int) -> bool:
        """Whether layer `index` (from 0) has experts."""
        return index >= self.num_dense_layers and (index + 1) % self.every == 0


class Recurrent(NamedTuple):
    """Sizes of layers with a state of fixed size in place of keys and values, laid out as Mamba-2 has them.

    num_heads, head_dim  heads of the state, and their width
    state_size           values of the state for each value of a head
    num_groups           groups of heads that share their inputs to the state
    conv_width           inputs that the convolution sees
    attention_every      every n-th layer has attention instead; None: none has
    """

    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int = 1
    conv_width: int = 4
    attention_every: int | None = None

    @property
    def layout(self) -> Mamba2:
        """One layer of these sizes: projections without a bias, the convolution with one."""
        sizes = (self.num_heads, self.head_dim, self.num_groups, self.state_size, self.conv_width)
        return Mamba2(*sizes, in_bias=False, out_bias=False, filter_bias=True)

    def has_attention_at(self, index: int) -> bool:
        """Whether layer `index` (from 0) has attention."""
        return self.attention_every is not None and (index + 1) % self.attention_every == 0


class _Sizes(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int


def define_model(
    *,
    name: str,
    num_layers: int,
    hidden_size: int,
    num_attention_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    intermediate_size: int | None = None,
    vocab_size: int | None = None,
    num_params: int | None = None,
    dtype: str = "bf16",
    tied_embeddings: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    window: int | None = None,
    full_attention_every: int | None = None,
    experts: Experts | None = None,
    latent: Latent | None = None,
    recurrent: Recurrent | None = None,
    context_limit: int | None = None,
) -> Model:
    """A model from its sizes.

    num_kv_heads          KV heads; may be left out only where `latent` is given
    head_dim              None: hidden_size / num_attention_heads, which must be whole
    intermediate_size, vocab_size   the MLP's width and the vocabulary; both, or `num_params`
    num_params            where only the count is known: the weights are then an estimate, and marked as one
    window                tokens that window layers keep; None: full attention everywhere
    full_attention_every  with a window: every n-th layer is full attention; None: no layer is
    experts, latent       mixture of experts, a kvplan.Experts; latent attention, a kvplan.Latent
    recurrent             layers with a state of fixed size, a kvplan.Recurrent

    Raises InputError with the field, what was found and what is accepted.
    """
    _require_kinds(
        experts, latent, recurrent, tied_embeddings=tied_embeddings, attention_bias=attention_bias, mlp_bias=mlp_bias
    )
    sizes = _sizes(hidden_size, num_attention_heads, num_kv_heads, head_dim, latent)
    count = whole_number(num_layers, "num_layers", high=MAX_LAYERS)
    storage = _plain_dtype(dtype)
    has_attention = _attention_layers(count, recurrent)
    attending = _caches(sum(has_attention), sizes, latent, window, full_attention_every)
    caches = _in_place(has_attention, attending, None if recurrent is None else recurrent.layout.cache(storage))
    if num_params is None:
        _require_used(attention_bias, mlp_bias, intermediate_size, experts, latent)
        mixer = _mixer_weights(sizes, attention_bias, latent)
        state = () if recurrent is None else recurrent.layout.weights(sizes.hidden)
        behind = _behind_weights(count, sizes.hidden, intermediate_size, mlp_bias, experts)
        mixers = [mixer if attends else state for attends in has_attention]
        norms = norm(sizes.hidden, count=2)
        inside: list[Groups] = [(*first, *groups, *norms) for first, groups in zip(mixers, behind, strict=True)]
        outside = _outer_weights(sizes, vocab_size, tied_embeddings)
    else:
        _require_only_count(intermediate_size, vocab_size, experts, tied_embeddings, attention_bias, mlp_bias)
        params = whole_number(num_params, "num_params", high=MAX_PARAMS)
        inside, outside = [()] * count, counted_weights(params, sizes.hidden)
    heads = [sizes.heads if attends else None for attends in has_attention]
    kinds = list(zip(caches, inside, heads, strict=True))
    made = {kind: Layer(*kind) for kind in kinds}
    return Model(
        name=clean_name(name, "model name"),
        layers=tuple(made[kind] for kind in kinds),
        weights=outside,
        dtype=storage,
        hidden_size=sizes.hidden,
        num_attention_heads=sizes.heads,
        vocab_size=vocab_size,
        context_limit=None if context_limit is None else whole_number(context_limit, "context_limit"),
        tied_embeddings=tied_embeddings,
        model_type="defined",
        source="defined by the user",
        notes=() if num_params is None else (ESTIMATE_NOTE,),
        is_estimate=num_params is not None,
    )


ESTIMATE_NOTE = (
    "The weights are an estimate from the parameter count alone: what a quantized format leaves at full width, "
    "and what changes with the KV heads, is not known."
)


def _require_used(
    attention_bias: bool, mlp_bias: bool, width: int | None, experts: Experts | None, latent: Latent | None
) -> None:
    """Refuse what the layout has no place for, instead of leaving it out of the sum."""
    unused = {
        "attention_bias": attention_bias and latent is not None,
        "mlp_bias": mlp_bias and experts is not None,
        "intermediate_size": width is not None
        and experts is not None
        and not experts.num_dense_layers
        and experts.every == 1,
    }
    for name in (name for name, is_unused in unused.items() if is_unused):
        other = "latent" if name == "attention_bias" else "experts"
        both = ", or num_dense_layers to say how many layers come first without experts"
        raise InputError(
            f"{name} and {other} are both given; a defined model has one or the other"
            + (both if name == "intermediate_size" else "")
        )


def _checked_latent(latent: Latent) -> Latent:
    for name, value in latent._asdict().items():
        if name != "q_lora_rank" or value is not None:
            whole_number(value, f"latent {name}", high=MAX_SIZE)
    return latent


def _attention_layers(count: int, recurrent: Recurrent | None) -> list[bool]:
    """Whether each of `count` layers has attention."""
    if recurrent is None:
        return [True] * count
    check_recurrent(recurrent)
    return [recurrent.has_attention_at(index) for index in range(count)]


def check_recurrent(recurrent: Recurrent) -> None:
    """Raise InputError unless the sizes make recurrent layers; they are named as the form names them."""
    names = ("state_heads", "state_head_dim", "state_size", "state_groups", "conv_width", "attention_every")
    for name, value in zip(names, recurrent, strict=True):
        if name != "attention_every" or value is not None:
            whole_number(value, name, high=MAX_SIZE)
    if recurrent.num_heads % recurrent.num_groups:
        raise InputError(
            f"state_groups is {recurrent.num_groups}, which does not divide state_heads {recurrent.num_heads}"
        )


def _in_place(has_attention: list[bool], attending: list[LayerCache], state: LayerCache | None) -> list[LayerCache]:
    """The cache of each layer: the next one of attention, or the state."""
    following = iter(attending)
    return [next(following) if attends or state is None else state for attends in has_attention]


def _require_kinds(experts: object, latent: object, recurrent: object, **flags: object) -> None:
    kinds = (("experts", experts, Experts), ("latent", latent, Latent), ("recurrent", recurrent, Recurrent))
    for name, value, wanted in kinds:
        if value is not None and not isinstance(value, wanted):
            raise InputError(f"{name} is {quoted(value)}; a kvplan.{wanted.__name__} is needed")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"{name} is {quoted(value)}; True or False is needed")


def _plain_dtype(name: str) -> StorageFormat:
    found = weight_format(name)
    if not found.is_plain:
        raise InputError(f"dtype is {found.name}; give fp32, bf16 or fp16 here, and quantize with weight_dtype")
    return found


def _sizes(hidden: int, heads: int, kv_heads: int | None, head_dim: int | None, latent: Latent | None) -> _Sizes:
    hidden = whole_number(hidden, "hidden_size", high=MAX_SIZE)
    heads = whole_number(heads, "num_attention_heads", high=MAX_SIZE)
    if kv_heads is None and latent is None:
        raise InputError(f"num_kv_heads is missing; give {heads} for MHA, 1 for MQA, or a divisor of {heads} for GQA")
    kv_heads = heads if kv_heads is None else whole_number(kv_heads, "num_kv_heads", high=MAX_SIZE)
    if heads % kv_heads:
        raise InputError(f"num_kv_heads is {kv_heads}, which does not divide num_attention_heads {heads}")
    if head_dim is None and hidden % heads and latent is None:
        raise InputError(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give head_dim")
    head_dim = hidden // heads if head_dim is None else whole_number(head_dim, "head_dim", high=MAX_SIZE)
    return _Sizes(hidden, heads, kv_heads, head_dim)


def _caches(
    count: int, sizes: _Sizes, latent: Latent | None, window: int | None, full_every: int | None
) -> list[LayerCache]:
    if latent is not None:
        if window is not None:
            raise InputError("window and latent are both given; a defined model has one or the other")
        return [LatentAttention(latent.kv_lora_rank, latent.qk_rope_head_dim)] * count
    full = FullAttention(sizes.kv_heads, sizes.head_dim)
    if window is None:
        if full_every is not None:
            raise InputError("full_attention_every is given without a window, so it has no meaning")
        return [full] * count
    sliding = SlidingAttention(sizes.kv_heads, sizes.head_dim, window=whole_number(window, "window"))
    every = count + 1 if full_every is None else whole_number(full_every, "full_attention_every", high=MAX_LAYERS)
    return [full if (index + 1) % every == 0 else sliding for index in range(count)]


def _mixer_weights(sizes: _Sizes, bias: bool, latent: Latent | None) -> Groups:
    if latent is not None:
        return latent_projections(sizes.hidden, sizes.heads, _checked_latent(latent))
    return attention(*sizes, q_bias=bias, k_bias=bias, v_bias=bias, out_bias=bias)


def _behind_weights(
    count: int, hidden: int, width: int | None, mlp_bias: bool, experts: Experts | None
) -> list[Groups]:
    """What stands behind the attention of each of `count` layers: an MLP, or experts."""
    if experts is None:
        return [mlp_weights(hidden, width, mlp_bias)] * count
    whole_number(experts.num_dense_layers, "num_dense_layers", low=0, high=count - 1)
    whole_number(experts.every, "experts_every", high=count)
    here = [experts.stand_in(index) for index in range(count)]
    if not any(here):
        raise InputError(
            f"num_dense_layers is {experts.num_dense_layers} and experts_every is {experts.every}; of "
            f"{counted(count, 'layer')} none would have experts"
        )
    routed = expert_weights(hidden, experts)
    mlp = () if all(here) else mlp_weights(hidden, width, bias=False)
    return [routed if has_experts else mlp for has_experts in here]


def latent_projections(hidden: int, heads: int, latent: Latent) -> Groups:
    """The projections of latent attention, as DeepSeek-V2 and V3 have them."""
    query = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    if latent.q_lora_rank is None:
        queries = linear("attention_q", query, hidden, split="rows")
    else:
        rank = latent.q_lora_rank
        down = linear("attention_latent", rank, hidden)
        queries = (*down, *norm(rank), *linear("attention_q", query, rank, split="rows"))
    up = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return (
        *queries,
        *linear("attention_latent", latent.kv_lora_rank + latent.qk_rope_head_dim, hidden),
        *norm(latent.kv_lora_rank),
        *linear("attention_latent", up, latent.kv_lora_rank, split="rows"),
        *linear("attention_o", hidden, heads * latent.v_head_dim, split="columns"),
    )


def mlp_weights(hidden: int, width: int | None, bias: bool) -> Groups:
    """A gated MLP. Raises InputError where its width is missing."""
    if width is None:
        raise InputError("intermediate_size is missing; give the MLP's width, or num_params for an estimate")
    return gated_mlp(hidden, whole_number(width, "intermediate_size", high=MAX_SIZE), bias=bias)


def expert_weights(hidden: int, experts: Experts) -> Groups:
    """The router, the routed experts and the shared ones of a layer. Raises InputError."""
    count = whole_number(experts.num_experts, "num_experts", high=MAX_SIZE)
    per_token = whole_number(experts.num_experts_per_token, "num_experts_per_token", high=count)
    width = whole_number(experts.intermediate_size, "the experts' intermediate_size", high=MAX_SIZE)
    shared = whole_number(experts.num_shared_experts, "num_shared_experts", low=0, high=MAX_SIZE)
    both = (*router(hidden, count), *routed_experts(hidden, width, count, per_token))
    return (*both, *gated_mlp(hidden, width * shared, role="shared_experts")) if shared else both


def _outer_weights(sizes: _Sizes, vocab: int | None, tied: bool) -> Groups:
    if vocab is None:
        raise InputError("vocab_size is missing; give the vocabulary's size, or num_params for an estimate")
    vocab = whole_number(vocab, "vocab_size", high=MAX_SIZE)
    head = () if tied else lm_head(vocab, sizes.hidden)
    return (*embedding(vocab, sizes.hidden), *norm(sizes.hidden, role="final_norm"), *head)


def _require_only_count(
    width: int | None,
    vocab: int | None,
    experts: Experts | None,
    tied: bool,
    attention_bias: bool,
    mlp_bias: bool,
) -> None:
    given = {"intermediate_size": width, "vocab_size": vocab, "experts": experts}
    flags = {"tied_embeddings": tied, "attention_bias": attention_bias, "mlp_bias": mlp_bias}
    for name, value in {**given, **{name: flag or None for name, flag in flags.items()}}.items():
        if value is not None:
            raise InputError(
                f"num_params and {name} are both given; the count alone makes an estimate, the sizes a sum"
            )


def counted_weights(params: int, hidden: int) -> Groups:
    """Weights known only by their number, as rows of hidden_size and what is left over."""
    rows, rest = divmod(params, hidden)
    matrix = (WeightGroup("unsplit", rows, hidden, split="rows"),) if rows else ()
    return (*matrix, WeightGroup("unsplit", rest, 1)) if rest else matrix
