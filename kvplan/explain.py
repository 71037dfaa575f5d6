"""Every number of a plan as a formula with the user's own numbers in it, term by term; the terms add up exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvplan.attention import CacheCurve, CachePart, CacheTerm, LayerCache, StatePart, add_up, rows_per_gpu
from kvplan.dtypes import KvDtype, StorageFormat, kv_dtype
from kvplan.fleet import Lengths, UserPlan, first_full
from kvplan.model import ROLES, Layer, Model, PlacedGroup, Stage, as_weight_format
from kvplan.plan import MemoryPlan, Scenario
from kvplan.units import agreeing, counted, counted_and, format_rate, format_usd, require_kind, whole_number

ASSUMPTIONS: tuple[str, ...] = (
    "Which layers keep every token: window, latent, recurrent and shared layers keep less, and count as they are.",
    "KV heads are counted, not query heads: with grouped-query attention there are fewer.",
    "Rows are dense and unpadded; blocks and padding of an engine come on top.",
    "One sequence per batch item, nothing shared: no prefix is counted once for several sequences.",
    "Tensor bytes only: what the allocator rounds up or fragments is overhead.",
)
"""What the cache formula takes for granted; shown under every formula."""

GENERAL_FORMULA = "2 × L × H × D × S × B × b"
FORMULA_LETTERS: tuple[tuple[str, str], ...] = (
    ("2", "keys and values"),
    ("L", "layers"),
    ("H", "KV heads"),
    ("D", "head dimension"),
    ("S", "context length"),
    ("B", "sequences at once"),
    ("b", "bytes a value"),
)


@dataclass(frozen=True, slots=True)
class Term:
    """One line of a sum: what it is, how it is computed, and its bytes."""

    label: str
    formula: str
    bytes: int


class StripSegment(NamedTuple):
    """`num_layers` consecutive layers of one kind from layer `first` on, for the picture of a model."""

    first: int
    num_layers: int
    kind: str
    label: str


# ---------------------------------------------------------------------------------------------------------- cache


def cache_terms(p: MemoryPlan) -> tuple[Term, ...]:
    """The plan's cache bytes as terms, one for each kind of row; they add up to `p.cache_bytes`."""
    require_kind(p, "the plan", MemoryPlan)
    scenario = p.scenario
    layers = _stage(p).layers
    batch, rows = scenario.replica_batch_size, kv_dtype(scenario.kv_dtype)
    size = _Size(scenario.held_tokens, batch, rows, scenario.tensor_parallel, scenario.batch_size)
    terms = tuple(term for cache, count in count_layers(layers) for term in _layer_terms(cache, count, size))
    saved = sum(term.bytes for term in terms) - p.cache_bytes
    return (*terms, _prefix_term(p, saved)) if saved else terms


def _prefix_term(p: MemoryPlan, saved: int) -> Term:
    copies, prefix = p.scenario.replica_batch_size - 1, p.scenario.shared_prefix
    return Term(
        "shared prefix, held once",
        f"−{counted(copies, 'copy')} of the {counted(prefix, 'shared token')}, {saved // copies:,} B each",
        -saved,
    )


def size_reasons(p: MemoryPlan) -> tuple[str, ...]:
    """Why the cache is as large as it is, in words: what windows, fewer KV heads and latents save. May be empty."""
    require_kind(p, "the plan", MemoryPlan)
    model = p.scenario.planned_model
    return tuple(found for find in (_window_reason, _heads_reason, _latent_reason) if (found := find(p, model)))


def _window_reason(p: MemoryPlan, model: Model) -> str:
    counts = count_layers(model.layers)
    curve = _curve(p, counts)
    # Compressed entries stand for tokens that a window has dropped, so they go when all are kept.
    every = tuple(replace(term, max_tokens=None) for term in curve.terms if term.tokens_per_entry == 1)
    now, then = _held_bytes(p, curve), _held_bytes(p, replace(curve, terms=every))
    kept = _window_words(counts, model.num_layers)
    if then <= now or not kept:
        return ""
    return f"{kept}: if every layer kept every token, the cache{_where(p)} would be {_times(then, now)}"


def _window_words(counts: list[tuple[LayerCache, int]], num_layers: int) -> str:
    """How many layers keep less than every token, and what they keep instead."""
    alone = behind = 0
    ratios: set[int] = set()
    for cache, count in counts:
        parts = cache.cache_parts()
        compressed = {part.tokens_per_entry for part in parts} - {1}
        windowed = any(part.max_tokens for part in parts)
        ratios |= compressed
        behind += count if compressed else 0
        alone += count if windowed and not compressed else 0
    said = [f"{alone:,} of {counted(num_layers, 'layer')} {agreeing(alone, 'keep')} a window only"] if alone else []
    if behind:
        every = " or ".join(counted(ratio, "token") for ratio in sorted(ratios))
        kept = f"{agreeing(behind, 'keep')} a window and one entry for every {every}"
        said.append(f"{behind:,} of {counted(num_layers, 'layer')} {kept}")
    return " and ".join(said)


def _heads_reason(p: MemoryPlan, model: Model) -> str:
    heads, kept = model.num_attention_heads, model.num_kv_heads
    if heads is None or kept is None or kept >= heads:
        return ""
    counts = count_layers(model.layers)
    grouped = _held_bytes(p, _curve(p, counts))
    full = _held_bytes(p, _curve(p, [(cache.with_kv_heads(heads), count) for cache, count in counts]))
    return (
        f"{counted(kept, 'KV head')} for {counted(heads, 'query head')} (grouped queries): with one for each (MHA), "
        f"the cache{_where(p)} would be {_times(full, grouped)}"
    )


def _curve(p: MemoryPlan, counts: list[tuple[LayerCache, int]]) -> CacheCurve:
    """As the plan's GPUs hold these layers: the last KV head is copied to each, so they share less than the model's."""
    return add_up(counts, kv_dtype(p.scenario.kv_dtype), p.scenario.tensor_parallel)


def _held_bytes(p: MemoryPlan, curve: CacheCurve) -> int:
    scenario = p.scenario
    return int(curve.batch_bytes(scenario.held_tokens, scenario.replica_batch_size, scenario.shared_prefix))


def _where(p: MemoryPlan) -> str:
    return " on each GPU" if p.scenario.tensor_parallel > 1 else ""


def _times(then: int, now: int) -> str:
    return f"{then / now:,.2f} times as large"


def _latent_reason(p: MemoryPlan, model: Model) -> str:
    latent = sum(layer.cache.kind.endswith("latent") for layer in model.layers)
    return f"{counted_and(latent, 'layer', 'keep')} one latent row a token for all heads" if latent else ""


def overhead_terms(p: MemoryPlan, unit: str = "GiB") -> tuple[Term, ...]:
    """The plan's overhead as terms; they add up to `p.overhead_bytes`. Rounded sizes in words are in "GiB" or "GB"."""
    require_kind(p, "the plan", MemoryPlan)
    s = p.scenario
    terms = [
        Term("left unused by the engine", f"{p.capacity_bytes:,} B × (1 − {s.memory_fraction})", p.unused_bytes),
        Term("run-time overhead", p.runtime.source_in(unit), p.runtime.typical_bytes),
        Term("adapters", "given by the user", s.adapter_bytes),
    ]
    if s.draft_model is not None:
        terms.append(Term(f"draft model {s.draft_model.name}", "its weights and its own cache", p.draft_bytes))
    return tuple(term for term in terms if term.bytes)


def layer_terms(
    model: Model, context_length: int, batch_size: int, kv: str
) -> tuple[tuple[str, int, tuple[Term, ...]], ...]:
    """(kind, how many layers, terms) for each distinct kind of layer of `model` on one GPU."""
    require_kind(model, "the model", Model)
    tokens, batch = whole_number(context_length, "context_length"), whole_number(batch_size, "batch_size")
    size = _Size(tokens, batch, kv_dtype(kv), 1, batch)
    return tuple(
        (cache.label, count, tuple(_layer_terms(cache, count, size))) for cache, count in count_layers(model.layers)
    )


class _Size(NamedTuple):
    tokens: int
    batch: int
    kv: KvDtype
    tensor_parallel: int
    whole_batch: int


def count_layers(layers: tuple[Layer, ...]) -> list[tuple[LayerCache, int]]:
    """Each distinct cache among `layers` with how often it occurs, in order of first appearance."""
    counts: dict[LayerCache, int] = {}
    for layer in layers:
        counts[layer.cache] = counts.get(layer.cache, 0) + 1
    return list(counts.items())


def _layer_terms(cache: LayerCache, count: int, size: _Size) -> list[Term]:
    parts = [_part_term(cache.label, part, count, size) for part in cache.cache_parts()]
    return _merged(parts) + [_state_term(cache.label, part, count, size) for part in cache.state_parts()]


def _part_term(label: str, part: CachePart, count: int, size: _Size) -> Term:
    factors = [
        _layers_word(count),
        _rows_word(part.rows, part.copied, size.tensor_parallel),
        _row_word(part.storage or size.kv.format_for(part.role), part.width),
        _entries_word(part, size.tokens),
        _sequences_word(size),
    ]
    total = count * size.batch * part.bytes(size.tokens, size.kv, size.tensor_parallel)
    return Term(f"{label}: {part.role.replace('_', ' ')}", " × ".join(factors), total)


def _state_term(label: str, part: StatePart, count: int, size: _Size) -> Term:
    entries = [counted(part.entries, "token")] if part.entries > 1 else []
    factors = [
        _layers_word(count),
        _rows_word(part.rows, part.copied, size.tensor_parallel),
        _row_word(part.storage or size.kv.format_for(part.role), part.width),
        *entries,
        _sequences_word(size),
    ]
    total = count * size.batch * part.bytes(size.kv, size.tensor_parallel)
    return Term(f"{label}: {part.role.replace('_', ' ')}", " × ".join(factors), total)


def _merged(terms: list[Term]) -> list[Term]:
    """Key and value terms with the same formula as one: 2 × ..."""
    if len(terms) < 2 or terms[0].formula != terms[1].formula:
        return terms
    key, value = terms[:2]
    label = f"{key.label} and {value.label.rpartition(': ')[2]}"
    return [Term(label, f"2 × {key.formula}", key.bytes + value.bytes), *terms[2:]]


def _layers_word(count: int) -> str:
    return counted(count, "layer")


def _sequences_word(size: _Size) -> str:
    word = counted(size.batch, "sequence")
    return word if size.batch == size.whole_batch else f"{word} (of {size.whole_batch:,})"


def _rows_word(rows: int, copied: bool, tensor_parallel: int) -> str:
    here = rows if copied else rows_per_gpu(rows, tensor_parallel)
    word = counted(here, "row")
    return word if here == rows else f"{word} (of {rows:,})"


def _row_word(storage: StorageFormat, width: int) -> str:
    if storage.is_plain:
        return f"{counted(width, 'value')} × {storage.bytes_per_pack} B"
    return f"{storage.row_bytes(width):,} B ({counted(width, 'value')} in {storage.name})"


def _entries_word(part: CachePart, tokens: int) -> str:
    held = f"{tokens:,}" if part.max_tokens is None else f"min({tokens:,}, {part.max_tokens:,})"
    return f"{held} tokens" if part.tokens_per_entry == 1 else f"floor({held} / {part.tokens_per_entry}) entries"


# -------------------------------------------------------------------------------------------------------- weights


def weight_terms(p: MemoryPlan) -> tuple[Term, ...]:
    """The plan's weight bytes as terms, one for each role and shape; they add up to `p.weight_bytes`."""
    require_kind(p, "the plan", MemoryPlan)
    scenario = p.scenario
    placed = scenario.planned_model.placed_groups(
        _stage(p), as_weight_format(scenario.weight_dtype), scenario.placement
    )
    return tuple(_weight_term(item) for item in placed)


def _weight_term(item: PlacedGroup) -> Term:
    shape = f"{item.rows:,} × {item.columns:,}" if item.columns > 1 else f"{item.rows:,}"
    each = f"{item.storage.bytes_per_pack} B" if item.storage.is_plain else f"{item.storage.name} with its scales"
    return Term(ROLES[item.group.role].label, f"{item.matrices:,} × ({shape}) in {each}", item.bytes)


def bytes_by_role(p: MemoryPlan) -> dict[str, int]:
    """The plan's weight bytes by the label of their role; adds up to `p.weight_bytes`."""
    roles: dict[str, int] = {}
    for term in weight_terms(p):
        roles[term.label] = roles.get(term.label, 0) + term.bytes
    return roles


def _stage(p: MemoryPlan) -> Stage:
    return p.scenario.planned_model.stages(p.scenario.pipeline_parallel)[p.stage]


# --------------------------------------------------------------------------------------------------------- limits


class Line(NamedTuple):
    """A number with the sum that makes it: what it is, and how it comes about."""

    what: str
    how: str


def limit_lines(p: MemoryPlan) -> tuple[Line, ...]:
    """How the plan's limits come about, each with its own numbers; those without a limit are left out."""
    require_kind(p, "the plan", MemoryPlan)
    lines = (_batch_line(p), _context_line(p), _crossover_line(p), _floor_line(p))
    return tuple(line for line in lines if line is not None)


def _batch_line(p: MemoryPlan) -> Line | None:
    if p.max_batch_size is None:
        return None
    fixed, each = first_full(p)
    copies = p.scenario.data_parallel
    times = f"{counted(copies, 'replica')} × " if copies > 1 else ""
    if not each:  # every token is shared, and what is held once does not fit
        return Line("largest batch", _none_words(fixed, p.capacity_bytes))
    how = f"{times}floor(({p.capacity_bytes:,} B usable − {fixed:,} B fixed) / {each:,} B a sequence)"
    return Line("largest batch", f"{how} = {p.max_batch_size:,}" if p.max_batch_size else f"{how}: none fits")


def _none_words(fixed: int, capacity: int) -> str:
    return f"{fixed:,} B fixed are more than {capacity:,} B usable: none fits"


def _context_line(p: MemoryPlan) -> Line | None:
    longest, batch = p.max_context_length, p.scenario.batch_size
    if not longest:
        return None
    last, next_one = (max(usage.total_bytes(tokens, batch) for usage in p.stages) for tokens in (longest, longest + 1))
    how = (
        f"{counted_and(longest, 'token', 'take')} {last:,} B, one more takes {next_one:,} B, of {p.capacity_bytes:,} "
        "B usable"
    )
    return Line("longest context", how)


def _crossover_line(p: MemoryPlan) -> Line | None:
    tokens, batch = p.crossover_context_length, p.scenario.batch_size
    if tokens is None:
        return None
    cache, weights = sum(u.cache_bytes(tokens, batch) for u in p.stages), sum(u.shard.weight_bytes for u in p.stages)
    sequences = f"{counted(tokens, 'token')} of {batch:,} {agreeing(tokens, 'keep')}"
    return Line("crossover", f"{sequences} {cache:,} B, the weights {weights:,} B")


def _floor_line(p: MemoryPlan) -> Line | None:
    seconds, bandwidth = p.decode_floor_seconds, p.scenario.gpu.bandwidth
    if seconds is None or bandwidth is None:
        return None
    read = f"{round(p.model_read_bytes):,} B read"
    if p.draft_read_bytes:
        read = f"({read} + {round(p.draft_read_bytes):,} B of the draft for one token)"
    return Line("decode step, at least", f"{read} / {bandwidth:,} B a second = {seconds * 1000:,.3f} ms")


def user_lines(scenario: Scenario, users: int, point: UserPlan) -> tuple[Line, ...]:
    """How the replicas and GPUs of `users` come about, with their own numbers."""
    room, copies, price = point.users_per_replica, point.replicas, scenario.gpu.rent_per_hour
    share = f"floor(({point.capacity_bytes:,} B usable − {point.fixed_bytes:,} B fixed) / {point.sequence_bytes:,} B)"
    if room is None:
        return (Line("users a replica", "no limit: a sequence adds nothing"),)
    if not point.sequence_bytes:
        return (Line("users a replica", _none_words(point.fixed_bytes, point.capacity_bytes)),)
    share = share if scenario.data_parallel == 1 else f"{scenario.data_parallel:,} × {share}"
    lines = [Line("users a replica", f"{share} = {room:,}")]
    if copies is None or point.num_gpus is None:
        return tuple(lines)
    lines.append(Line("replicas", f"ceil({users:,} / {room:,}) = {copies:,}"))
    lines.append(Line("GPUs", f"{copies:,} × {scenario.num_gpus:,} = {point.num_gpus:,}"))
    if price is not None and point.rent_per_hour is not None:
        total = format_usd(point.rent_per_hour)
        lines.append(Line("price an hour", f"{point.num_gpus:,} × {format_rate(price.usd)} = {total}"))
    return tuple(lines)


def users_sentence(scenario: Scenario, users: int, lengths: Lengths, point: UserPlan) -> str:
    """The answer for `users` on the scenario's layout, every sequence at its 95th percentile."""
    who = f"{counted(users, 'user')} at once"
    if point.num_gpus is None or point.replicas is None:
        return f"{who}: not even one sequence of {counted(lengths.p95, 'token')} fits"
    price = "" if point.rent_per_hour is None else f", {format_usd(point.rent_per_hour)} an hour"
    return f"{who}: {counted(point.num_gpus, 'GPU')} in {counted(point.replicas, 'replica')}{price}"


# --------------------------------------------------------------------------------------------------------- values


def plan_values(p: MemoryPlan) -> dict[str, Any]:
    """Everything that a plan says as plain values; bytes are ints."""
    require_kind(p, "the plan", MemoryPlan)
    return {
        "sentence": p.sentence,
        "fits": p.fits,
        "num_gpus": p.scenario.num_gpus,
        "capacity_bytes": p.capacity_bytes,
        "weight_bytes": p.weight_bytes,
        "cache_bytes": p.cache_bytes,
        "overhead_bytes": p.overhead_bytes,
        "free_bytes": p.free_bytes,
        "parts": part_bytes(p),
        "overhead_is_estimate": p.runtime.is_estimate,
        "overhead_source": p.runtime.source,
        "overhead_10th_percentile_bytes": p.runtime.low_bytes,
        "overhead_90th_percentile_bytes": p.runtime.high_bytes,
        "overhead_estimates": [part._asdict() for part in p.runtime.parts],
        "max_batch_size": p.max_batch_size,
        "max_context_length": p.max_context_length,
        "crossover_context_length": p.crossover_context_length,
        "cache_bytes_per_token": float(p.bytes_per_token),
        "decode_floor_seconds": p.decode_floor_seconds,
        "is_estimate": p.is_estimate,
        "warnings": list(p.warnings),
    }


def part_bytes(p: MemoryPlan) -> dict[str, int]:
    """The parts of one GPU's memory by name; they add up to its capacity."""
    require_kind(p, "the plan", MemoryPlan)
    return {
        "weights": p.weight_bytes,
        "KV cache": p.cache_bytes,
        "run-time overhead": p.runtime.typical_bytes,
        "adapters": p.scenario.adapter_bytes,
        "draft model": p.draft_bytes,
        "left unused": p.unused_bytes,
        "free": p.free_bytes,
    }


# ---------------------------------------------------------------------------------------------------------- strip


def layer_strip(model: Model) -> tuple[StripSegment, ...]:
    """The model's layers as runs of one kind, in order: why the number is what it is."""
    require_kind(model, "the model", Model)
    segments: list[StripSegment] = []
    for index, layer in enumerate(model.layers):
        kind, label = layer.cache.kind, layer.cache.label
        if segments and segments[-1].label == label:
            segments[-1] = segments[-1]._replace(num_layers=segments[-1].num_layers + 1)
        else:
            segments.append(StripSegment(index, 1, kind, label))
    return tuple(segments)


def kinds_sentence(model: Model) -> str:
    """The kinds of layer in words: `10 full attention, 52 sliding window`."""
    require_kind(model, "the model", Model)
    counts: dict[str, int] = {}
    for layer in model.layers:
        counts[layer.cache.label] = counts.get(layer.cache.label, 0) + 1
    return ", ".join(f"{count} {label}" for label, count in counts.items())


def layer_words(cache: LayerCache, kv: str) -> str:
    """What one layer keeps of one sequence, in words: `4,096 B a token up to 1,024`."""
    curve = add_up([(cache, 1)], kv_dtype(kv))
    words = [_growth_words(term) for term in curve.terms]
    if curve.fixed_bytes:
        words.append(f"{curve.fixed_bytes:,} B of state")
    return " + ".join(words) or "nothing"


def _growth_words(term: CacheTerm) -> str:
    if term.tokens_per_entry > 1:
        return f"{term.entry_bytes:,} B for every {term.tokens_per_entry} tokens"
    return f"{term.entry_bytes:,} B a token" + (f" up to {term.max_tokens:,}" if term.max_tokens else "")
