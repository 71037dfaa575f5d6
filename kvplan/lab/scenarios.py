"""What parity runs: situations in which a wrong cache shows itself, replayed row by row against the uncached path.

One pass with a cache against one without is no check: the cache is written and never read. So each scenario decodes
several steps after its prompt, and every logit row of every step is compared.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvplan.lab.caches import Cache
from kvplan.lab.exact import attend_at, exact_shapes
from kvplan.lab.faults import Fault, plant, plant_in_cache, reference_heads
from kvplan.lab.generation import pad
from kvplan.lab.kinds import cache_kind, new_cache
from kvplan.lab.model import TinyDecoder
from kvplan.lab.reference import AttendHead, Uncached, attend_head, uncached_generation
from kvplan.units import counted

Prompt = tuple[int, ...]


@dataclass(frozen=True)
class Scenario:
    """Prompts for one cache object: one list of rows a generation, with a reset before each."""

    name: str  # generations, chunked or ragged
    title: str
    generations: tuple[tuple[Prompt, ...], ...]
    pieces: tuple[int, ...] = ()  # sizes of the chunks that a prompt is read in; (): at once
    keep: tuple[int, ...] | None = None  # rows that stay when, half-way, the others have finished


@dataclass(frozen=True)
class RowDifference:
    """One row of logits, cached against uncached."""

    scenario: str
    generation: int
    row: int  # of the batch
    phase: str  # prefill, chunk or decode
    position: int  # of the token that was read
    token: int
    max_abs_diff: float
    max_abs_logit: float
    margin: float  # between the two largest uncached logits
    cached_token: int
    uncached_token: int

    @property
    def same_token(self) -> bool:
        return self.cached_token == self.uncached_token


@dataclass(frozen=True)
class Replay:
    """The rows of one scenario, and the cache as it stands at the end, with the truth behind each of its rows."""

    rows: tuple[RowDifference, ...]
    cache: Cache
    truths: tuple[Uncached, ...]


@dataclass(frozen=True)
class Bench:
    """A cached and an uncached side with the same weights, set up to be compared."""

    cached: TinyDecoder
    reference: TinyDecoder
    make_cache: Callable[[int], Cache]
    attend: AttendHead
    kv_head_of: tuple[int, ...]
    num_new_tokens: int
    truths: dict[Prompt, Uncached] = field(default_factory=dict)

    def truth(self, prompt: Prompt) -> Uncached:
        """What the uncached path makes of a prompt; computed once."""
        if prompt not in self.truths:
            self.truths[prompt] = uncached_generation(
                self.reference, prompt, self.num_new_tokens, self.attend, self.kv_head_of
            )
        return self.truths[prompt]


def set_up(
    model: TinyDecoder, cache: str, fault: Fault | None, num_new_tokens: int, capacity: int, exact: bool
) -> Bench:
    """The two sides; `exact` computes both in exact shapes, keys padded to `capacity`."""
    kind = plant_in_cache(cache_kind(cache), fault)
    cached = plant(model, fault)
    return Bench(
        cached=exact_shapes(cached, capacity) if exact else cached,
        reference=exact_shapes(model, capacity) if exact else model,
        make_cache=lambda rows: new_cache(kind, model, rows, capacity),
        attend=attend_at(capacity) if exact else attend_head,
        kv_head_of=tuple(reference_heads(model, fault)),
        num_new_tokens=num_new_tokens,
    )


def scenarios(prompt: Prompt, batch: Sequence[Prompt], generations: int, drops: str, vocab_size: int) -> list[Scenario]:
    """All scenarios: a prompt after others on one cache, the prompt in chunks, and a batch that loses a row."""
    others = [shifted(prompt, i + 1, vocab_size) for i in range(generations - 1)]
    runs = tuple((row,) for row in [*reversed(others), prompt])
    found = [Scenario("generations", f"{generations} generations on one cache, with a reset between", runs)]
    if len(prompt) > 2:
        first = len(prompt) // 2
        chunks = (first, len(prompt) - first)
        found.append(Scenario("chunked", "a prompt read in two chunks", ((prompt,),), chunks))
    if len(batch) > 1:
        leaves = {"first": 0, "middle": len(batch) // 2, "last": len(batch) - 1}[drops]
        keep = tuple(row for row in range(len(batch)) if row != leaves)
        title = f"a batch of {counted(len(batch), 'row')} whose {drops} row finishes first"
        found.append(Scenario("ragged", title, (tuple(batch),), keep=keep))
    return found


def ragged_batch(prompt: Prompt, vocab_size: int, longer: bool) -> list[Prompt]:
    """Three rows of different length, no longer than the prompt, so that one token stays one; or else `longer`."""
    if longer:
        extra = shifted(prompt, 4, vocab_size)
        return [prompt, shifted((*prompt, *extra[:2]), 1, vocab_size), shifted((*prompt, *extra[:1]), 2, vocab_size)]
    second, third = shifted(prompt, 1, vocab_size), shifted(prompt, 2, vocab_size)
    return [prompt, second[: max(1, len(prompt) - 2)], third[: max(1, len(prompt) - 1)]]


def shifted(prompt: Prompt, by: int, vocab_size: int) -> Prompt:
    """Another prompt of the same length."""
    return tuple((token + by) % vocab_size for token in prompt)


def replay(bench: Bench, scenario: Scenario) -> Replay:
    """Run a scenario on a new cache, fed with the uncached path's tokens, and compare every row."""
    bench = dataclasses.replace(bench, cached=copy.copy(bench.cached))  # a fault may keep a counter in the model
    cache = bench.make_cache(len(scenario.generations[0]))
    rows: list[RowDifference] = []
    truths: tuple[Uncached, ...] = ()
    for generation, prompts in enumerate(scenario.generations):
        cache.reset()
        truths = tuple(bench.truth(prompt) for prompt in prompts)
        rows += _one_generation(bench, scenario, generation, cache, truths)
    live = range(len(truths)) if scenario.keep is None else scenario.keep
    return Replay(tuple(rows), cache, tuple(truths[row] for row in live))


def _one_generation(
    bench: Bench, scenario: Scenario, generation: int, cache: Cache, truths: tuple[Uncached, ...]
) -> list[RowDifference]:
    lengths = [len(prompt) for prompt in scenario.generations[generation]]
    live = list(range(len(truths)))
    found = _read_prompts(bench, scenario, generation, cache, truths, lengths)
    for step in range(bench.num_new_tokens):
        if scenario.keep is not None and step == bench.num_new_tokens // 2:
            live = list(scenario.keep)
            cache.compact(live)
        ids = torch.tensor([[truths[row].tokens[lengths[row] + step]] for row in live])  # (B, 1)
        logits = bench.cached(ids, cache)  # (B, 1, V)
        for place, row in enumerate(live):
            where = (scenario.name, generation, row, "decode", lengths[row] + step)
            found += _compare(where, logits[place], truths[row])
    return found


def _read_prompts(
    bench: Bench,
    scenario: Scenario,
    generation: int,
    cache: Cache,
    truths: tuple[Uncached, ...],
    lengths: list[int],
) -> list[RowDifference]:
    found: list[RowDifference] = []
    ids = pad([truth.tokens[:length] for truth, length in zip(truths, lengths, strict=True)])  # (B, P)
    start = 0
    for chunk in torch.split(ids, list(scenario.pieces) or [ids.shape[1]], 1):
        held = None if scenario.pieces else torch.tensor(lengths)
        logits = bench.cached(chunk, cache, lengths=held)  # (B, S, V)
        for row, length in enumerate(lengths):
            where = (scenario.name, generation, row, "chunk" if scenario.pieces else "prefill", start)
            found += _compare(where, logits[row, : length - start], truths[row])
        start += chunk.shape[1]
    return found


def _compare(where: tuple[str, int, int, str, int], cached: Tensor, truth: Uncached) -> list[RowDifference]:
    start = where[4]
    return compare(where, cached, truth.logits[start : start + len(cached)], truth.tokens)


def compare(
    where: tuple[str, int, int, str, int], cached: Tensor, uncached: Tensor, tokens: Sequence[int]
) -> list[RowDifference]:
    """Rows of cached and uncached logits (S, V); where: scenario, generation, row, phase, position of the first."""
    scenario, generation, row, phase, start = where
    diff = (cached.double() - uncached.double()).abs().nan_to_num(nan=torch.inf).amax(1)  # (S,)
    top = uncached.double().topk(2, 1).values  # (S, 2)
    columns = zip(
        range(start, start + len(cached)),
        diff.tolist(),
        uncached.double().abs().amax(1).tolist(),
        (top[:, 0] - top[:, 1]).tolist(),
        cached.argmax(1).tolist(),
        uncached.argmax(1).tolist(),
        strict=True,
    )
    return [
        RowDifference(scenario, generation, row, phase, position, tokens[position], *rest)
        for position, *rest in columns
    ]
