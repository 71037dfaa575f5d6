"""A model as the planner sees it: layers, the weights of each, and what stands outside the layers.

Weights are matrices and not only a number of values, since scales and zero points follow from the shape.
Each group says what tensor parallelism does with it, and whether a weight dtype may change it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

from kvplan.attention import CacheCurve, LayerCache, add_up, one_kv_head_count, require_kv_head_axis, rows_per_gpu
from kvplan.dtypes import KvDtype, StorageFormat, weight_format
from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.errors import DtypeError, InputError, ParallelError, quoted
from kvplan.units import counted, format_exact_bytes, whole_number

Split = Literal["copied", "rows", "columns", "kv_heads"]

MAX_GPUS = 4096

ROUTED = "routed_experts"


class Role(NamedTuple):
    """What a weight is for.

    label      the word on a page
    quantized  whether a quantized weight_dtype applies to its matrices; other roles keep their width
    decoded    whether a decode step reads it (an embedding is looked up, a vision tower rests)
    stage      which pipeline stage holds it when it stands outside the layers
    """

    label: str
    quantized: bool = False
    decoded: bool = True
    stage: Literal["first", "last"] = "first"


ROLES: dict[str, Role] = {
    "embedding": Role("token embedding", decoded=False),
    "position_embedding": Role("position embedding", decoded=False),
    "attention_q": Role("attention queries", quantized=True),
    "attention_k": Role("attention keys", quantized=True),
    "attention_v": Role("attention values", quantized=True),
    "attention_o": Role("attention output", quantized=True),
    "attention_latent": Role("attention latents", quantized=True),
    "attention_gate": Role("attention gate", quantized=True),
    "attention_sink": Role("attention sinks"),
    "indexer": Role("sparse attention indexer", quantized=True),
    "recurrent": Role("recurrent projections", quantized=True),
    "recurrent_state": Role("recurrent parameters"),
    "convolution": Role("convolution projections", quantized=True),
    "mlp": Role("dense MLP", quantized=True),
    "routed_experts": Role("routed experts", quantized=True),
    "shared_experts": Role("shared experts", quantized=True),
    "router": Role("router"),
    "norm": Role("norms"),
    "residual": Role("residual mixing"),
    "per_layer_embedding": Role("per-layer embedding", decoded=False),
    "per_layer_input": Role("per-layer input projections", quantized=True),
    "final_norm": Role("final norm", stage="last"),
    "lm_head": Role("output head", stage="last"),
    "vision": Role("vision tower", decoded=False),
    "audio": Role("audio tower", decoded=False),
    "projector": Role("projector", decoded=False),
    "other": Role("other weights"),
    "unsplit": Role("weights, role not known", quantized=True),
}
"""Every role; a group's role decides whether a quantized weight dtype changes it."""


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """`count` equal matrices of `rows` output and `columns` input features (a bias or a norm has one column).

    role      a key of ROLES
    storage   the format it is published in; None: the model's own dtype
    pinned    it keeps that format whatever weight_dtype says
    split     what tensor parallelism divides: rows, columns, whole KV heads (then copied), or nothing
    kv_heads  for split "kv_heads": how many heads the rows are made of
    active    of `count` (routed experts), how many one token reads; None: all
    tower     text, vision, audio ...
    """

    role: str
    rows: int
    columns: int
    count: int = 1
    storage: StorageFormat | None = None
    pinned: bool = False
    split: Split = "copied"
    kv_heads: int | None = None
    active: int | None = None
    tower: str = "text"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f"weight role is {quoted(self.role)}; one of {', '.join(ROLES)} is needed")
        if min(self.rows, self.columns, self.count) < 1 or not 1 <= self.num_active <= self.count:
            raise InputError(
                f"{ROLES[self.role].label} of {self.rows} x {self.columns}, {self.count} times with {self.active} "
                "active: each must be at least 1, and active at most the count"
            )
        if (self.split == "kv_heads") != bool(self.kv_heads) or self.rows % (self.kv_heads or 1):
            raise InputError(
                f"{ROLES[self.role].label}: kv_heads is {self.kv_heads}; exactly where split is kv_heads it must "
                f"divide the {counted(self.rows, 'row')}"
            )

    @property
    def num_active(self) -> int:
        """How many of the matrices one token reads."""
        return self.count if self.active is None else self.active

    @property
    def params(self) -> int:
        return self.rows * self.columns * self.count

    @property
    def active_params(self) -> int:
        """Values that one token reads."""
        return self.rows * self.columns * self.num_active

    def shape_per_gpu(self, tensor_parallel: int) -> tuple[int, int]:
        """(rows, columns) of one matrix on the GPU that holds the most of it."""
        if self.split == "kv_heads":
            heads = self.kv_heads or 1  # never None for this split
            return self.rows // heads * rows_per_gpu(heads, tensor_parallel), self.columns
        rows = -(-self.rows // tensor_parallel) if self.split == "rows" else self.rows
        columns = -(-self.columns // tensor_parallel) if self.split == "columns" else self.columns
        return rows, columns

    def matrix_bytes(self, storage: StorageFormat, tensor_parallel: int = 1) -> int:
        """Bytes of one of the matrices on one GPU. Raises DtypeError with the role and shape."""
        rows, columns = self.shape_per_gpu(tensor_parallel)
        try:
            return storage.matrix_bytes(rows, columns)
        except DtypeError as error:
            raise DtypeError(f"{ROLES[self.role].label} of {rows} x {columns}: {error}") from None

    def with_kv_heads(self, num_kv_heads: int) -> WeightGroup:
        """The same group for another number of KV heads: only key and value projections change."""
        if self.split != "kv_heads" or self.kv_heads is None:
            return self
        return replace(self, rows=self.rows // self.kv_heads * num_kv_heads, kv_heads=num_kv_heads)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what it keeps for a sequence, its weights, and its query heads where it has attention."""

    cache: LayerCache
    weights: tuple[WeightGroup, ...] = ()
    num_attention_heads: int | None = None

    def __post_init__(self) -> None:
        if self.num_attention_heads is not None:
            whole_number(self.num_attention_heads, "num_attention_heads")

    @property
    def num_experts(self) -> int:
        """Routed experts; 0 where it has none. Of a gated expert one group holds two matrices."""
        return min((group.count for group in self.weights if group.role == ROUTED), default=0)

    def with_kv_heads(self, num_kv_heads: int) -> Layer:
        if self.cache.kv_heads() is None or not self.cache.cache_parts():
            return self
        weights = tuple(group.with_kv_heads(num_kv_heads) for group in self.weights)
        return replace(self, cache=self.cache.with_kv_heads(num_kv_heads), weights=weights)


class Placement(NamedTuple):
    """How a model lies over GPUs, as vLLM means it (docs.vllm.ai, data and expert parallel deployment).

    tensor_parallel    GPUs that share each layer
    pipeline_parallel  stages, each with a part of the layers
    data_parallel      replicas: each has all weights but routed experts, and the cache of its own sequences
    expert_parallel    routed experts lie whole on the GPUs of all replicas; else each is cut over these GPUs
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def expert_gpus(self) -> int:
        """GPUs of a stage that share its routed experts."""
        return self.tensor_parallel * self.data_parallel

    def held(self, group: WeightGroup, experts: int) -> tuple[int, int]:
        """(matrices of `group` on the GPU that holds the most, GPUs that each of them is cut over).

        experts  routed experts of the layer; a group may hold two matrices of each
        """
        if group.role != ROUTED:
            return group.count, self.tensor_parallel
        if not self.expert_parallel:
            return group.count, self.expert_gpus
        most = -(-experts // self.expert_gpus)
        return -(-group.count * most // experts), 1


ONE_GPU = Placement()


class ExpertRead(NamedTuple):
    """Routed experts of one kind: a token reads `num_active` of `num_experts`, of which the GPU holds `held_bytes`."""

    num_experts: int
    num_active: int
    held_bytes: int

    def typical_bytes(self, batch_size: int) -> Fraction:
        """Bytes that `batch_size` tokens read, if each picks its experts independently: E * (1 - (1 - k/E)^B)."""
        missed = (1 - self.num_active / self.num_experts) ** batch_size
        return self.held_bytes * (1 - Fraction(missed))


class PlacedGroup(NamedTuple):
    """A weight group on the GPU that holds the most of it.

    storage        the format it is stored in
    matrices       how many of them, of all layers that have it
    rows, columns  of one of them
    """

    group: WeightGroup
    storage: StorageFormat
    matrices: int
    rows: int
    columns: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one GPU of a pipeline stage holds.

    weight_bytes      all weights
    curve             cache bytes of one sequence
    dense_read_bytes  weights that a decode step reads whatever the batch
    expert_reads      weights of which it reads a part
    """

    weight_bytes: int
    curve: CacheCurve
    dense_read_bytes: int
    expert_reads: tuple[ExpertRead, ...]

    def weight_read_bytes(self, batch_size: int) -> Fraction:
        """Weight bytes that one decode step of `batch_size` sequences reads from this GPU's memory, as typical."""
        experts = sum((read.typical_bytes(batch_size) for read in self.expert_reads), Fraction(0))
        return self.dense_read_bytes + experts


class StoredPart(NamedTuple):
    """Something that a checkpoint stores and `weight_bytes` does not count.

    name    what it is
    params  its values, or None where they are not known
    bytes   what it takes in the files, or None where that is not known
    reason  why it is not counted
    """

    name: str
    params: int | None
    bytes: int | None
    reason: str

    @property
    def sentence(self) -> str:
        """The part in words, with its numbers where they are known."""
        values = "" if self.params is None else f" of {counted(self.params, 'value')}"
        size = "" if self.bytes is None else f" in {format_exact_bytes(self.bytes)}"
        return f"{self.name}{values}{size}: {self.reason}"


class Stage(NamedTuple):
    """The layers of one pipeline stage, and what it holds outside them."""

    layers: tuple[Layer, ...]
    outer: tuple[WeightGroup, ...]
    is_last: bool


@dataclass(frozen=True)
class Model:
    """A model: exact bytes of weights and cache, from its layers up.

    name                 as people write it
    layers               one `Layer` each, in order
    weights              groups outside the layers
    dtype                width of whatever is not quantized, as published; None where the config does not say
    hidden_size, num_attention_heads, vocab_size   as published; None where the model has none
    context_limit        the longest context that the config allows, or None
    tied_embeddings      the head is the embedding: stored once, and on both ends of a pipeline
    model_type           the config's model_type
    id                   preset id, or ""
    source               where the description comes from
    notes                sentences that a user should read
    is_estimate          True only where the user accepted an estimate
    storage_unknown      why the bytes of the weights as published are not known, or "" where they are
    beside               what the checkpoint stores besides, such as layers that predict further tokens

    Two models are equal when their numbers are; names, sources, notes and what is stored besides do not count.
    """

    name: str = field(compare=False)
    layers: tuple[Layer, ...]
    weights: tuple[WeightGroup, ...]
    dtype: StorageFormat | None
    hidden_size: int
    num_attention_heads: int | None
    vocab_size: int | None
    context_limit: int | None
    tied_embeddings: bool
    model_type: str
    id: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    is_estimate: bool = False
    storage_unknown: str = ""
    beside: tuple[StoredPart, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.dtype is not None and not self.dtype.is_plain:
            raise InputError(f"dtype is {self.dtype.name}; a width without scales is needed: fp32, bf16 or fp16")

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def has_experts(self) -> bool:
        """Whether any layer has routed experts."""
        return any(layer.num_experts for layer, _ in self.layer_runs)

    @cached_property
    def num_kv_heads(self) -> int | None:
        """The number of KV heads that all growing attention layers share, else None."""
        return one_kv_head_count(layer.cache for layer in self.layers)

    @cached_property
    def layer_runs(self) -> tuple[tuple[Layer, int], ...]:
        """Consecutive equal layers as (layer, how many)."""
        return _runs(self.layers)

    # ---------------------------------------------------------------------------------------------- parameters

    @cached_property
    def all_groups(self) -> tuple[tuple[WeightGroup, int], ...]:
        """Every weight group with the number of layers that have it."""
        inside = [(group, count) for layer, count in self.layer_runs for group in layer.weights]
        return (*((group, 1) for group in self.weights), *inside)

    @cached_property
    def num_params(self) -> int:
        """All values that are resident; tied tensors once."""
        return sum(group.params * count for group, count in self.all_groups)

    @cached_property
    def num_active_params(self) -> int:
        """Values less those of routed experts that a token does not read; embedding and head included."""
        return sum(group.active_params * count for group, count in self.all_groups)

    @cached_property
    def params_by_tower(self) -> dict[str, int]:
        """Values of each tower: text, and vision, audio, projector where counted."""
        towers: dict[str, int] = {}
        for group, count in self.all_groups:
            towers[group.tower] = towers.get(group.tower, 0) + group.params * count
        return towers

    # --------------------------------------------------------------------------------------------------- bytes

    def cache_bytes(
        self, context_length: int, batch_size: int = 1, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1
    ) -> int:
        """Bytes resident on one GPU for `batch_size` sequences of `context_length` tokens each.

        Raises InputError, DtypeError or ParallelError.
        """
        tokens = whole_number(context_length, "context_length", low=0)
        batch = whole_number(batch_size, "batch_size", low=0)
        return self.cache_curve(kv_dtype, tensor_parallel).bytes_at(tokens) * batch

    def cache_bytes_per_token(self, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1) -> int | Fraction:
        """Bytes that one more token of one sequence adds on one GPU, once all windows are full.

        A Fraction where compressed layers make it not whole.
        """
        return self.cache_curve(kv_dtype, tensor_parallel).bytes_per_token

    def cache_curve(self, kv_dtype: str | KvDtype = "bf16", tensor_parallel: int = 1) -> CacheCurve:
        """Cache bytes of one sequence as a function of its tokens, on one GPU without pipeline stages."""
        key = (as_kv_dtype(kv_dtype), whole_number(tensor_parallel, "tensor_parallel", high=MAX_GPUS))
        if key not in self._curve_cache:
            self.require_parallel(tensor_parallel, 1)
            layers = ((layer.cache, count) for layer, count in self.layer_runs)
            self._curve_cache[key] = add_up(layers, *key)
        return self._curve_cache[key]

    @cached_property
    def _curve_cache(self) -> dict[tuple[KvDtype, int], CacheCurve]:
        return {}

    def weight_bytes(self, weight_dtype: str | StorageFormat | None = None, tensor_parallel: int = 1) -> int:
        """Bytes of all weights on one GPU. None: as published, its quantization included.

        A plain dtype (fp32, bf16, fp16) applies to every tensor that is not pinned; a quantized one to the
        matrices of the roles that it can quantize, while embeddings, head, norms, routers and biases keep
        their width. Raises InputError, DtypeError or ParallelError.
        """
        return sum(self.weight_bytes_by_role(weight_dtype, tensor_parallel).values())

    def weight_bytes_by_role(
        self, weight_dtype: str | StorageFormat | None = None, tensor_parallel: int = 1
    ) -> dict[str, int]:
        """`weight_bytes` split by role, in the order of the model."""
        self.require_parallel(tensor_parallel, 1)
        wanted = as_weight_format(weight_dtype)
        roles: dict[str, int] = {}
        for group, count in self.all_groups:
            roles[group.role] = roles.get(group.role, 0) + count * self._group_bytes(group, wanted, tensor_parallel)
        return roles

    def storage_of(self, group: WeightGroup, weight_dtype: StorageFormat | None) -> StorageFormat:
        """The format of `group` when the plan asks for `weight_dtype` (None: as published).

        Raises InputError where that is the published storage and it is not known.
        """
        if weight_dtype is None and self.storage_unknown:
            raise InputError(self.why_no_weight_bytes)
        if weight_dtype is None or group.pinned:
            return group.storage or self._published_dtype()
        if weight_dtype.is_plain or (ROLES[group.role].quantized and group.columns > 1):
            return weight_dtype
        return group.storage if group.storage and group.storage.is_plain else self._published_dtype()

    @property
    def why_no_weight_bytes(self) -> str:
        """Why `weight_bytes()` as published is refused, as a sentence; "" where it is not."""
        if self.storage_unknown:
            return (
                f"how the checkpoint of {self.name} stores its weights is not known ({self.storage_unknown}); "
                "choose a weight dtype, such as bf16"
            )
        if self.dtype is None:
            return f"the config of {self.name} does not state its dtype; choose weight_dtype bf16, fp16 or fp32"
        return ""

    def _published_dtype(self) -> StorageFormat:
        if self.dtype is None:
            raise InputError(self.why_no_weight_bytes)
        return self.dtype

    def _group_bytes(self, group: WeightGroup, wanted: StorageFormat | None, tensor_parallel: int) -> int:
        return group.count * group.matrix_bytes(self.storage_of(group, wanted), tensor_parallel)

    # -------------------------------------------------------------------------------------------------- shards

    def shards(
        self,
        kv: str | KvDtype = "bf16",
        weight_dtype: str | StorageFormat | None = None,
        placement: Placement = ONE_GPU,
    ) -> tuple[Shard, ...]:
        """One GPU of each pipeline stage. Computed once for each combination.

        Raises InputError, DtypeError or ParallelError.
        """
        rows, wanted = as_kv_dtype(kv), as_weight_format(weight_dtype)
        key = (rows, wanted, placement)
        if key not in self._shard_cache:
            self.require_placement(placement)
            stages = self.stages(placement.pipeline_parallel)
            self._shard_cache[key] = tuple(self._shard(stage, rows, wanted, placement) for stage in stages)
        return self._shard_cache[key]

    @cached_property
    def _shard_cache(self) -> dict[object, tuple[Shard, ...]]:
        return {}

    def require_placement(self, placement: Placement) -> None:
        """Raise InputError or ParallelError unless the model can lie over GPUs so."""
        self.require_parallel(placement.tensor_parallel, placement.pipeline_parallel)
        whole_number(placement.data_parallel, "data_parallel", high=MAX_GPUS)
        if not isinstance(placement.expert_parallel, bool):
            raise InputError(f"expert_parallel is {quoted(placement.expert_parallel)}; True or False is needed")

    def require_parallel(self, tensor_parallel: int, pipeline_parallel: int) -> None:
        """Raise ParallelError unless the model divides over tensor_parallel x pipeline_parallel GPUs."""
        whole_number(tensor_parallel, "tensor_parallel", high=MAX_GPUS)
        whole_number(pipeline_parallel, "pipeline_parallel", high=MAX_GPUS)
        if pipeline_parallel > self.num_layers:
            raise ParallelError(
                f"{self.name} has {counted(self.num_layers, 'layer')}, too few for "
                f"pipeline_parallel={pipeline_parallel}"
            )
        for layer, _ in self.layer_runs:
            heads = layer.num_attention_heads
            if heads is not None and heads % tensor_parallel:
                raise ParallelError(
                    f"{self.name} has {counted(heads, 'attention head')}, which do not divide by tensor_parallel="
                    f"{tensor_parallel}; choose a divisor of {heads}"
                )

    def stages(self, count: int) -> list[Stage]:
        """The pipeline stages; extra layers go to the second-to-last stage, then backwards."""
        base, extra = divmod(self.num_layers, count)
        stages, start = [], 0
        for index in range(count):
            size = base + (count - 1 - extra <= index < count - 1)
            layers = self.layers[start : start + size]
            stages.append(Stage(layers, self._outer_weights(index, count), is_last=index == count - 1))
            start += size
        return stages

    def _outer_weights(self, index: int, count: int) -> tuple[WeightGroup, ...]:
        here = {stage for stage, at in (("first", 0), ("last", count - 1)) if at == index}
        both_ends = {"embedding"} if self.tied_embeddings and index == count - 1 else set()
        return tuple(g for g in self.weights if ROLES[g.role].stage in here or g.role in both_ends)

    def placed_groups(
        self, stage: Stage, weight_dtype: StorageFormat | None, placement: Placement
    ) -> tuple[PlacedGroup, ...]:
        """The weights of `stage` on the GPU that holds the most, equal ones together.

        Raises InputError or DtypeError.
        """
        totals: dict[tuple[WeightGroup, int], int] = {}
        for group in stage.outer:  # a tower may hold equal groups more than once
            totals[group, group.count] = totals.get((group, group.count), 0) + 1
        for layer, times in _runs(stage.layers):
            for group in layer.weights:
                key = group, layer.num_experts
                totals[key] = totals.get(key, 0) + times
        return tuple(
            self._placed(group, times, experts, weight_dtype, placement) for (group, experts), times in totals.items()
        )

    def _placed(
        self, group: WeightGroup, times: int, experts: int, weight_dtype: StorageFormat | None, placement: Placement
    ) -> PlacedGroup:
        storage = self.storage_of(group, weight_dtype)
        held, cut = placement.held(group, experts)
        size = times * held * group.matrix_bytes(storage, cut)
        return PlacedGroup(group, storage, times * held, *group.shape_per_gpu(cut), size)

    def _shard(self, stage: Stage, kv: KvDtype, wanted: StorageFormat | None, placement: Placement) -> Shard:
        placed = self.placed_groups(stage, wanted, placement)
        head_is_here = self.tied_embeddings and stage.is_last  # then the embedding is read as the head
        return Shard(
            weight_bytes=sum(item.bytes for item in placed),
            curve=add_up(((layer.cache, count) for layer, count in _runs(stage.layers)), kv, placement.tensor_parallel),
            dense_read_bytes=sum(
                item.bytes
                for item in placed
                if item.group.active is None
                and (ROLES[item.group.role].decoded or (head_is_here and item.group.role == "embedding"))
            ),
            expert_reads=tuple(
                ExpertRead(item.group.count, item.group.active, item.bytes)
                for item in placed
                if item.group.active is not None
            ),
        )

    # ------------------------------------------------------------------------------------------------ KV heads

    @cached_property
    def kv_head_choices(self) -> tuple[int, ...]:
        """The numbers of KV heads that `with_kv_heads` takes, from MHA down to MQA; none without such an axis."""
        heads = {layer.num_attention_heads for layer in self.layers if layer.cache.kv_heads()}
        known = [count for count in heads if count is not None]
        if self.num_kv_heads is None or not known:
            return ()
        most = math.gcd(*known)
        return tuple(count for count in range(most, 0, -1) if most % count == 0)

    def kv_head_kind(self, num_kv_heads: int) -> str:
        """What attention with one of `kv_head_choices` is called: MHA, GQA or MQA."""
        return "MHA" if num_kv_heads == self.kv_head_choices[0] else "MQA" if num_kv_heads == 1 else "GQA"

    def with_kv_heads(self, num_kv_heads: int) -> Model:
        """This model with another number of KV heads in every growing attention layer, and matching k and v weights.

        Raises InputError where the number does not divide the query heads, where layers differ, or where
        latent layers have no KV heads. It is arithmetic: a trained model cannot be converted for free.
        """
        now = require_kv_head_axis((layer.cache for layer in self.layers), self.name)
        wanted = whole_number(num_kv_heads, "num_kv_heads")
        if wanted == now:
            return self
        heads = {layer.num_attention_heads for layer in self.layers if layer.cache.kv_heads()} - {None}
        for count in sorted(heads, key=str):
            if count is not None and count % wanted:
                raise InputError(
                    f"num_kv_heads is {wanted}, which does not divide the {counted(count, 'attention head')} of "
                    f"{self.name}"
                )
        changed = {id(layer): layer.with_kv_heads(wanted) for layer in self.layers}
        return replace(self, layers=tuple(changed[id(layer)] for layer in self.layers))


def weight_dtype_name(name: str | StorageFormat | None) -> str | None:
    """`name` as a scenario and a table hold it: lower case, a format by its name, None for the published weights."""
    found = as_weight_format(name)
    if isinstance(name, str):
        return name.strip().lower()
    return None if found is None else found.name


def as_weight_format(name: str | StorageFormat | None) -> StorageFormat | None:
    """A weight format from its name; None (as published) and formats pass through."""
    return name if name is None or isinstance(name, StorageFormat) else weight_format(name)


def _runs(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, int], ...]:
    runs: list[tuple[Layer, int]] = []
    for layer in layers:
        if runs and (runs[-1][0] is layer or runs[-1][0] == layer):
            runs[-1] = (layer, runs[-1][1] + 1)
        else:
            runs.append((layer, 1))
    return tuple(runs)


def require_model(value: object) -> None:
    """Raise InputError unless `value` is a Model."""
    if not isinstance(value, Model):
        raise InputError(f"model is {quoted(value)}; a kvplan.Model is needed")
