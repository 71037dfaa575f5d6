"""What measured parameters are: names and shapes -> weight groups by role, inside the layers and around them.

The number of values is exact whatever the names say. A name only decides the role and what tensor parallelism
divides; where it does not say so clearly, the role is "other", every GPU keeps a copy, and a note says how much.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvplan.attention import LayerCache
from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.errors import UnsupportedConfigError
from kvplan.importer.decoder import MAX_LAYERS
from kvplan.model import Split, WeightGroup
from kvplan.units import counted_and

Groups = tuple[WeightGroup, ...]

PINNED = {"bfloat16": None, "float32": WEIGHT_FORMATS["fp32"], "float16": WEIGHT_FORMATS["fp16"]}
"""What a parameter is stored in when the model was built in bf16: None follows the model, the others are pinned."""


class Parameter(NamedTuple):
    """One tensor of the model: its path, shape, dtype, and the class of the module that has it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    owner: str


class Named(NamedTuple):
    """What a name says: the role, and what tensor parallelism divides."""

    role: str
    split: Split


_ATTENTION = r"(?:^|\.)(?:\w*attn|\w*attention|self_attn|mixer|temporal_block)\b.*\b"
_MLP = r"(?:mlp|feed_forward|ffn|ff|mlp_block|block_sparse_moe|mixer)\."
_RECURRENT = r"(?:mamba|linear_attn|mixer|temporal_block|rg_lru)\b.*"
_END = r"(?:\.linear)?\.(?:weight|bias)$"
_UP = r"(?:gate_proj|up_proj|gate_up_proj|w1|w3|fc1|fc_in|c_fc|dense_h_to_4h|wi\w*|proj_up\w*)\.(?:weight|bias)$"
_DOWN = r"(?:down_proj|w2|fc2|fc_out|c_proj|dense_4h_to_h|wo|proj_down)\.(?:weight|bias)$"
_ROUTER = r"(?:\.(?:weight|bias|\w*bias|layer\.weight|classifier\.weight))?$"

_PATTERNS: tuple[tuple[str, Named], ...] = (
    # experts and their routers stand before the MLPs whose names they share
    (r"shared_experts?\.(?:\w+\.)*(?:gate_proj|up_proj|gate_up_proj|w1|w3)\b", Named("shared_experts", "rows")),
    (r"shared_experts?\.(?:\w+\.)*(?:down_proj|w2)\b", Named("shared_experts", "columns")),
    (r"shared_mlp\.(?:gate_proj|up_proj|gate_up_proj|input_linear)\b", Named("shared_experts", "rows")),
    (r"shared_mlp\.(?:down_proj|output_linear)\b", Named("shared_experts", "columns")),
    (rf"(?:^|\.)(?:\w*router\w*|shared_expert_gate|gate){_ROUTER}", Named("router", "copied")),
    (r"e_score_correction_bias", Named("router", "copied")),
    (r"indexer\.", Named("indexer", "copied")),
    # recurrent layers
    (r"A_log$|\bdt_bias$|(?:mamba|mixer)\.D$|dt_proj_bias$|recurrent_param$", Named("recurrent_state", "copied")),
    (rf"{_RECURRENT}\bconv_?(?:1d)?\b", Named("recurrent", "copied")),
    (rf"{_RECURRENT}\b(?:in_proj|x_proj|dt_proj|out_proj|in_proj_\w+|\w+_proj_weight)\b", Named("recurrent", "copied")),
    (r"linear_attn\..*\b[abfgz]_proj\b|mlstm_layer\.", Named("recurrent", "copied")),
    (r"(?:^|\.)(?:short_)?conv(?:olution)?\.(?:in_proj|out_proj|conv)\b", Named("convolution", "copied")),
    # norms
    (r"(?:^|\.)\w*(?:norm|Norm)\w*(?:\.\d+)?(?:\.(?:weight|bias|scale))?$", Named("norm", "copied")),
    (r"(?:^|\.)ln_?\w*\.(?:weight|bias)$", Named("norm", "copied")),
    # latents
    (r"(?:kv_a_proj_with_mqa|kv_a_proj|q_a_proj)\b", Named("attention_latent", "copied")),
    (r"kv_b_proj\b", Named("attention_latent", "rows")),
    (r"q_b_proj\b", Named("attention_q", "rows")),
    # attention
    (rf"{_ATTENTION}(?:q_proj|query|wq|q){_END}", Named("attention_q", "rows")),
    (rf"{_ATTENTION}(?:k_proj|key|wk|k){_END}", Named("attention_k", "kv_heads")),
    (rf"{_ATTENTION}(?:v_proj|value|wv|v){_END}", Named("attention_v", "kv_heads")),
    (rf"{_ATTENTION}(?:qkv_proj|query_key_value|Wqkv|c_attn){_END}", Named("qkv", "rows")),
    (rf"{_ATTENTION}(?:o_proj|out_proj|dense|wo|c_proj){_END}", Named("attention_o", "columns")),
    (rf"{_ATTENTION}sinks?$", Named("attention_sink", "rows")),
    (rf"{_ATTENTION}(?:gate_proj|g_proj|output_gate){_END}", Named("attention_gate", "rows")),
    # MLPs
    (_MLP + _UP, Named("mlp", "rows")),
    (_MLP + _DOWN, Named("mlp", "columns")),
    (r"^fc1\.(?:weight|bias)$", Named("mlp", "rows")),
    (r"^fc2\.(?:weight|bias)$", Named("mlp", "columns")),
    (r"embed_tokens_per_layer\.", Named("per_layer_embedding", "rows")),
    (r"per_layer_(?:\w+_)?(?:projection|gate)\.weight$", Named("per_layer_input", "copied")),
    (r"(?:^|\.)(?:wpe|embed_positions|position_embeddings?)\.weight$", Named("position_embedding", "copied")),
)
_NAMES = tuple((re.compile(pattern), named) for pattern, named in _PATTERNS)
_UNCLEAR = Named("other", "copied")


def named_by(path: str) -> Named:
    """What `path`, inside its layer or the model, says of a parameter."""
    return next((named for pattern, named in _NAMES if pattern.search(path)), _UNCLEAR)


_EXPERTS = re.compile(r"^(.*\bexperts)(?:\.(\d+))?\.(.+)$")
_OUTER_ROLES = {
    "norm": "final_norm",
    **{role: role for role in ("position_embedding", "per_layer_embedding", "per_layer_input")},
}
"""Roles of names outside the layers; whatever else stands there is unclear."""

_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_projection)\.(?:weight|bias)$")
_FUSED = re.compile(r"gate_up_proj|gate_and_up|w13\b|input_linear")
_TOWERS = (
    ("audio", re.compile(r"audio|speech|sound|wav|whisper")),
    ("projector", re.compile(r"projector|connector|multi_modal|merger|adapter|img_projection|aligner|mm_")),
    (
        "vision",
        re.compile(r"vision|visual|image|img_|video|vit\b|patch_embed|resampler|perceiver|qformer|query_tokens"),
    ),
)


@dataclass(frozen=True, slots=True)
class Weights:
    """All groups of a measured model.

    layers  of each layer, in order
    outer   outside the layers
    tied    the head is the embedding
    notes   what the user should know about them
    """

    layers: tuple[Groups, ...]
    outer: Groups
    tied: bool
    notes: tuple[str, ...]


def weights_of(found: Sequence[Sequence[Any]], facts: Mapping[str, Any], caches: Sequence[LayerCache]) -> Weights:
    """Every parameter in a group. Raises UnsupportedConfigError where one has a dtype that no format stands for."""
    parameters = [Parameter(name, tuple(shape), dtype, owner) for name, shape, dtype, owner in found]
    stack = _layer_stack(parameters, facts, len(caches))
    inside: list[list[Parameter]] = [[] for _ in caches]
    outside: list[Parameter] = []
    for parameter in parameters:
        index = None if stack is None else stack.index_of(parameter.name)
        (outside if index is None else inside[index]).append(parameter)
    reader = _Reader(facts)
    layers = _grouped_layers(reader, inside, caches)
    outer = _merge([group for parameter in outside for group in reader.outer(parameter)])
    embedding, head = facts.get("embedding"), facts.get("head")
    notes = _notes(layers, outer, stack, len(caches))
    return Weights(layers, outer, embedding is not None and embedding == head, notes)


# -------------------------------------------------------------------------------------------------------------- layers


class _Stack(NamedTuple):
    """The list of layers: its path, and how many caches each of its members fills."""

    path: str
    caches_each: int

    def index_of(self, name: str) -> int | None:
        """The first cache layer of the member that `name` is in."""
        if not name.startswith(self.path):
            return None
        digits = name[len(self.path) :].partition(".")[0]
        return int(digits) * self.caches_each if digits.isdigit() and int(digits) < MAX_LAYERS else None


def _layer_stack(parameters: Sequence[Parameter], facts: Mapping[str, Any], count: int) -> _Stack | None:
    """The list of layers inside the decoder that has as many members as there are caches.

    A member may fill several caches; a model that repeats its layers has more caches at the end.
    """
    sizes = _list_sizes(parameters, facts.get("decoder") or "")
    layers = facts.get("text", {}).get("num_hidden_layers")
    if count in sizes.values():
        found = [_Stack(path, 1) for path, size in sizes.items() if size == count]
    elif layers == count:
        found = [_Stack(path, count // size) for path, size in sizes.items() if size > 1 and count % size == 0]
    else:
        found = [_Stack(path, 1) for path, size in sizes.items() if size == layers and size < count]
    return found[0] if len(found) == 1 else None


def _list_sizes(parameters: Sequence[Parameter], decoder: str) -> dict[str, int]:
    """The outermost lists of modules inside the decoder, each with its number of members."""
    prefix = re.escape(f"{decoder}." if decoder else "")
    sizes: dict[str, int] = {}
    for parameter in parameters:
        if match := re.match(rf"({prefix}(?:[a-zA-Z_]\w*\.)*?)(\d+)\.", parameter.name):
            sizes[match[1]] = max(sizes.get(match[1], 0), int(match[2]) + 1)
    return sizes


def _grouped_layers(
    reader: _Reader, inside: Sequence[Sequence[Parameter]], caches: Sequence[LayerCache]
) -> tuple[Groups, ...]:
    """The groups of each layer; layers whose parameters are alike share one tuple, which keeps sums fast."""
    made: dict[Any, Groups] = {}
    layers = []
    for members, cache in zip(inside, caches, strict=True):
        tails = [_inside_layer(parameter) for parameter in members]
        active = reader.active_of(members)
        key = (tuple(tails), active, cache)
        if key not in made:
            made[key] = _merge(reader.layer(tails, active, cache))
        layers.append(made[key])
    return tuple(layers)


def _inside_layer(parameter: Parameter) -> Parameter:
    """`parameter` with the path inside its layer as name."""
    return parameter._replace(name=re.sub(r"^.*?\.\d+\.", "", parameter.name))


# -------------------------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, slots=True)
class _Reader:
    """From one parameter to its groups."""

    facts: Mapping[str, Any]

    def active_of(self, members: Sequence[Parameter]) -> int | None:
        """Experts that a token reads, as seen when the layer's experts were called, else as the config says."""
        read: Mapping[str, int] = self.facts.get("experts_read", {})
        paths = {match[1] for parameter in members if (match := _EXPERTS.match(parameter.name))}
        seen = {count for path, count in read.items() if path in paths}
        stated = self.facts.get("text", {}).get("num_experts_per_tok")
        return seen.pop() if len(seen) == 1 else stated if isinstance(stated, int) else None

    def layer(self, members: Sequence[Parameter], active: int | None, cache: LayerCache) -> list[WeightGroup]:
        single = [parameter for parameter in members if not self._is_expert(parameter)]
        groups = [group for parameter in single for group in self._inner(parameter, cache)]
        return [*groups, *self._experts([p for p in members if self._is_expert(p)], active)]

    def _is_expert(self, parameter: Parameter) -> bool:
        match = _EXPERTS.match(parameter.name)
        if match is None or "shared_experts" in match[1]:
            return False
        return match[2] is not None or len(parameter.shape) > 1

    def _inner(self, parameter: Parameter, cache: LayerCache) -> Iterator[WeightGroup]:
        named = named_by(parameter.name)
        rows, columns = _matrix(parameter)
        if not rows * columns:
            return
        kv_heads = cache.kv_heads()
        if named.role == "qkv":
            yield from self._fused_qkv(parameter, rows, columns, kv_heads, cache)
        elif named.split == "kv_heads":
            whole = kv_heads if kv_heads and rows % kv_heads == 0 else None
            yield _group(parameter, named.role, rows, columns, "kv_heads" if whole else "copied", whole)
        elif _FUSED.search(parameter.name) and named.split == "rows" and rows % 2 == 0:
            yield replace(_group(parameter, named.role, rows // 2, columns, "rows"), count=2)
        elif named.split == "columns" and columns == 1:
            yield _group(parameter, named.role, rows, columns, "copied")
        else:
            yield _group(parameter, named.role, rows, columns, named.split)

    def _fused_qkv(
        self, parameter: Parameter, rows: int, columns: int, kv_heads: int | None, cache: LayerCache
    ) -> Iterator[WeightGroup]:
        """Queries, keys and values that the class stores as one matrix; copied whole where the sizes do not say how."""
        heads = self.facts.get("text", {}).get("num_attention_heads")
        widths = {part.width for part in cache.cache_parts()}
        width = widths.pop() if len(widths) == 1 else 0
        if not (isinstance(heads, int) and kv_heads and rows == (heads + 2 * kv_heads) * width):
            yield _group(parameter, "other", rows, columns, "copied")
            return
        yield _group(parameter, "attention_q", heads * width, columns, "rows")
        for role in ("attention_k", "attention_v"):
            yield _group(parameter, role, kv_heads * width, columns, "kv_heads", kv_heads)

    def _experts(self, members: Sequence[Parameter], active: int | None) -> Iterator[WeightGroup]:
        """Routed experts: one tensor for all of them, or a module for each."""
        alike: Counter[Parameter] = Counter()
        for parameter in members:
            match = _EXPERTS.match(parameter.name)
            if match is None:
                continue
            if match[2] is None:
                yield from self._stacked(parameter, active)
            else:
                alike[parameter._replace(name=match[3])] += 1
        for parameter, count in alike.items():
            rows, columns = _matrix(parameter)
            split: Split = "columns" if re.search(r"down_proj|w2\b", parameter.name) and columns > 1 else "rows"
            group = _group(parameter, "routed_experts", rows, columns, split)
            yield replace(group, count=count, active=_active(active, count))

    def _stacked(self, parameter: Parameter, active: int | None) -> Iterator[WeightGroup]:
        """(experts, out, in), or (experts, in, out), or biases (experts, out)."""
        experts, *sizes = parameter.shape
        rows, columns = sizes[0], _product(sizes[1:])
        hidden, fused = self.facts.get("text", {}).get("hidden_size"), bool(_FUSED.search(parameter.name))
        down = "down" in parameter.name or "output" in parameter.name
        if len(sizes) == 2 and (columns if down else rows) == hidden != (rows if down else columns):
            rows, columns = columns, rows
        count = experts
        if fused and rows % 2 == 0:
            rows, count = rows // 2, 2 * experts
        read = _active(active, experts)
        split: Split = "columns" if down and columns > 1 else "copied" if down else "rows"
        group = _group(parameter, "routed_experts", rows, columns, split)
        yield replace(group, count=count, active=None if read is None else read * (count // experts))

    def outer(self, parameter: Parameter) -> Iterator[WeightGroup]:
        rows, columns = _matrix(parameter)
        if rows * columns:
            yield self._outer(parameter, rows, columns)

    def _outer(self, parameter: Parameter, rows: int, columns: int) -> WeightGroup:
        name = parameter.name
        if name == self.facts.get("embedding"):
            return _group(parameter, "embedding", rows, columns, "rows")
        if name == self.facts.get("head") or _HEAD.search(name):
            return _group(parameter, "lm_head", rows, columns, "rows")
        tower = _tower(name)
        if tower is not None:
            return replace(_group(parameter, tower, rows, columns, "copied"), tower=tower)
        named = named_by(name)
        role = _OUTER_ROLES.get(named.role, "other")
        return _group(parameter, role, rows, columns, named.split if role != "other" else "copied")


def _tower(name: str) -> str | None:
    """The tower whose word comes first in the path."""
    found = {tower: match.start() for tower, pattern in _TOWERS if (match := pattern.search(name))}
    return min(found, key=lambda tower: found[tower], default=None)


def _active(active: int | None, experts: int) -> int | None:
    return None if active is None or not 1 <= active <= experts else active


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _matrix(parameter: Parameter) -> tuple[int, int]:
    """(output, input) features; a vector is a column. GPT-2's Conv1D stores them the other way round."""
    shape = parameter.shape or (1,)
    rows, columns = shape[0], _product(shape[1:])
    return (columns, rows) if parameter.owner == "Conv1D" and len(shape) == 2 else (rows, columns)


def _group(
    parameter: Parameter, role: str, rows: int, columns: int, split: Split, kv_heads: int | None = None
) -> WeightGroup:
    if parameter.dtype not in PINNED:
        raise UnsupportedConfigError(
            f"config.json: cannot be measured: {parameter.name} is {parameter.dtype}; known: {', '.join(PINNED)}"
        )
    storage: StorageFormat | None = PINNED[parameter.dtype]
    return WeightGroup(role, rows, columns, 1, storage, storage is not None, split, kv_heads)


def _merge(groups: Sequence[WeightGroup]) -> Groups:
    """Equal groups as one with their count, in the order of the first."""
    counts: dict[WeightGroup, int] = {}
    for group in groups:
        alike = replace(group, count=1, active=None) if group.active is None else group
        counts[alike] = counts.get(alike, 0) + (group.count if group.active is None else 1)
    return tuple(_with_count(group, count) for group, count in counts.items())


def _with_count(group: WeightGroup, count: int) -> WeightGroup:
    if group.active is None:
        return replace(group, count=count)
    return replace(group, count=group.count * count, active=group.active * count)


def _notes(layers: Sequence[Groups], outer: Groups, stack: _Stack | None, count: int) -> tuple[str, ...]:
    notes = []
    everything = [*outer, *(group for groups in layers for group in groups)]
    unclear = sum(group.params for group in everything if group.role == "other")
    if unclear:
        notes.append(f"{unclear:,} values have names that say no role; tensor parallelism is counted as copying them")
    if stack is None:
        notes.append("which weights belong to which layer is not clear, so a pipeline holds them in its first stage")
    if any(group.role == "recurrent" for group in everything):
        notes.append("tensor parallelism is counted as copying the projections of recurrent layers")
    experts = [group for group in everything if group.role == "routed_experts" and group.active is None]
    if experts:
        notes.append("how many experts a token reads is not known, so all count as active")
    without = sum(not groups for groups in layers)
    if stack is not None and without:
        notes.append(
            f"{without} of {counted_and(count, 'layer', 'keep')} a cache without weights of their own (the model "
            "repeats layers)"
        )
    return tuple(notes)
