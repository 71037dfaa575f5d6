"""Every number of a plan as a formula with the user's own numbers in it, term by term; the terms add up exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kvplan.attention import CachePart, CacheTerm, LayerCache, StatePart, add_up, rows_per_gpu
from kvplan.dtypes import KvDtype, StorageFormat, kv_dtype
from kvplan.model import ROLES, Layer, Model, Stage, WeightGroup, as_weight_format
from kvplan.plan import MemoryPlan

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
    ("D", "head_dim"),
    ("S", "context_length"),
    ("B", "batch_size"),
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
    scenario = p.scenario
    layers = _stage(p).layers
    size = _Size(scenario.held_tokens, scenario.batch_size, kv_dtype(scenario.kv_dtype), scenario.tensor_parallel)
    terms = tuple(term for cache, count in count_layers(layers) for term in _layer_terms(cache, count, size))
    saved = sum(term.bytes for term in terms) - p.cache_bytes
    return (*terms, _prefix_term(p, saved)) if saved else terms


def _prefix_term(p: MemoryPlan, saved: int) -> Term:
    copies, prefix = p.scenario.batch_size - 1, p.scenario.shared_prefix
    return Term(
        "shared prefix, held once",
        f"−{copies:,} copies of the {prefix:,} shared tokens, {saved // copies:,} B each",
        -saved,
    )


def overhead_terms(p: MemoryPlan) -> tuple[Term, ...]:
    """The plan's overhead as terms; they add up to `p.overhead_bytes`."""
    s = p.scenario
    terms = [
        Term("left unused by memory_fraction", f"{p.capacity_bytes:,} B × (1 − {s.memory_fraction})", p.unused_bytes),
        Term("run-time overhead", p.runtime.source, p.runtime.typical_bytes),
        Term("adapters", "given by the user", s.adapter_bytes),
    ]
    if s.draft_model is not None:
        terms.append(Term(f"draft model {s.draft_model.name}", "its weights and its own cache", p.draft_bytes))
    return tuple(term for term in terms if term.bytes)


def layer_terms(
    model: Model, context_length: int, batch_size: int, kv: str
) -> tuple[tuple[str, int, tuple[Term, ...]], ...]:
    """(kind, how many layers, terms) for each distinct kind of layer of `model` on one GPU."""
    size = _Size(context_length, batch_size, kv_dtype(kv), 1)
    return tuple(
        (cache.label, count, tuple(_layer_terms(cache, count, size))) for cache, count in count_layers(model.layers)
    )


class _Size(NamedTuple):
    tokens: int
    batch: int
    kv: KvDtype
    tensor_parallel: int


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
        f"{size.batch:,} sequence{'s' * (size.batch != 1)}",
    ]
    total = count * size.batch * part.bytes(size.tokens, size.kv, size.tensor_parallel)
    return Term(f"{label}: {part.role.replace('_', ' ')}", " × ".join(factors), total)


def _state_term(label: str, part: StatePart, count: int, size: _Size) -> Term:
    entries = [f"{part.entries:,} tokens"] if part.entries > 1 else []
    factors = [
        _layers_word(count),
        _rows_word(part.rows, part.copied, size.tensor_parallel),
        _row_word(part.storage or size.kv.format_for(part.role), part.width),
        *entries,
        f"{size.batch:,} sequence{'s' * (size.batch != 1)}",
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
    return f"{count:,} layer{'s' * (count != 1)}"


def _rows_word(rows: int, copied: bool, tensor_parallel: int) -> str:
    here = rows if copied else rows_per_gpu(rows, tensor_parallel)
    word = f"{here:,} row{'s' * (here != 1)}"
    return word if here == rows else f"{word} (of {rows:,})"


def _row_word(storage: StorageFormat, width: int) -> str:
    if storage.is_plain:
        return f"{width:,} values × {storage.bytes_per_pack} B"
    return f"{storage.row_bytes(width):,} B ({width:,} values in {storage.name})"


def _entries_word(part: CachePart, tokens: int) -> str:
    held = f"{tokens:,}" if part.max_tokens is None else f"min({tokens:,}, {part.max_tokens:,})"
    return f"{held} tokens" if part.tokens_per_entry == 1 else f"floor({held} / {part.tokens_per_entry}) entries"


# -------------------------------------------------------------------------------------------------------- weights


def weight_terms(p: MemoryPlan) -> tuple[Term, ...]:
    """The plan's weight bytes as terms, one for each role and shape; they add up to `p.weight_bytes`."""
    scenario, stage = p.scenario, _stage(p)
    wanted = as_weight_format(scenario.weight_dtype)
    inside = [group for layer in stage.layers for group in layer.weights]
    totals: dict[WeightGroup, int] = {}
    for group in [*stage.outer, *inside]:  # a tower may hold equal groups more than once
        totals[group] = totals.get(group, 0) + 1
    model = scenario.planned_model
    return tuple(
        _weight_term(group, times, model.storage_of(group, wanted), scenario.tensor_parallel)
        for group, times in totals.items()
    )


def _weight_term(group: WeightGroup, times: int, storage: StorageFormat, tensor_parallel: int) -> Term:
    rows, columns = group.shape_per_gpu(tensor_parallel)
    count = group.count * times
    shape = f"{rows:,} × {columns:,}" if columns > 1 else f"{rows:,}"
    each = f"{storage.bytes_per_pack} B" if storage.is_plain else f"{storage.name} with its scales"
    total = count * group.matrix_bytes(storage, tensor_parallel)
    return Term(ROLES[group.role].label, f"{count:,} × ({shape}) in {each}", total)


def bytes_by_role(p: MemoryPlan) -> dict[str, int]:
    """The plan's weight bytes by the label of their role; adds up to `p.weight_bytes`."""
    roles: dict[str, int] = {}
    for term in weight_terms(p):
        roles[term.label] = roles.get(term.label, 0) + term.bytes
    return roles


def _stage(p: MemoryPlan) -> Stage:
    return p.scenario.planned_model.stages(p.scenario.pipeline_parallel)[p.stage]


# --------------------------------------------------------------------------------------------------------- values


def plan_values(p: MemoryPlan) -> dict[str, Any]:
    """Everything that a plan says as plain values; bytes are ints."""
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
        "overhead_90th_percentile_bytes": p.runtime.high_bytes,
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
