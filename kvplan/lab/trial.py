"""What is tried: a decoder, a cache, perhaps a fault, and the scenarios that they go through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvplan.errors import InputError
from kvplan.lab.faults import Fault, find_fault
from kvplan.lab.kinds import cache_kind
from kvplan.lab.limits import MAX_PARITY_TOKENS, check_work, token_rows, whole_number
from kvplan.lab.model import TinyDecoder
from kvplan.lab.scenarios import Prompt, Scenario, ragged_batch, scenarios
from kvplan.lab.variants import variant

MAX_GENERATIONS = 4
MAX_ROWS = 8


@dataclass(frozen=True)
class Trial:
    """A decoder, the name of a cache, a fault or None, and the scenarios."""

    model: TinyDecoder
    cache: str
    fault: Fault | None
    num_new_tokens: int
    scenarios: tuple[Scenario, ...]

    @property
    def capacity(self) -> int:
        """Columns that no scenario outgrows, not even one that forgets to reset and writes one column late."""
        generations = max(len(scenario.generations) for scenario in self.scenarios)
        return generations * (max(map(len, self._prompts)) + self.num_new_tokens) + 1

    @property
    def flops(self) -> int:
        """Of the uncached side, which computes every row again at every step, in two dtypes."""
        steps = self.num_new_tokens
        tokens = sum((steps + 1) * len(prompt) + steps * (steps + 1) // 2 for prompt in self._prompts)
        return 2 * 2 * self.model.shape.matrix_elements * tokens

    @property
    def kernels(self) -> int:
        """Matrix products and the like that both sides start, in two dtypes: the uncached side goes head by head."""
        shape, passes = self.model.shape, (self.num_new_tokens + 1) * len(self._prompts)
        return 2 * passes * shape.num_layers * (40 + 6 * shape.num_attention_heads)

    @property
    def _prompts(self) -> set[Prompt]:
        return {row for scenario in self.scenarios for rows in scenario.generations for row in rows}


def prepare(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int,
    cache: str | None,
    fault: str | None,
    rows: Any = None,
    generations: int = 2,
) -> Trial:
    """Check the arguments of `check_parity`, and fill in what was left open so that the fault shows itself."""
    found = find_fault(fault)
    prompts = _prompts(prompt, model, num_new_tokens)
    whole_number("generations", generations, 1, MAX_GENERATIONS)
    must_differ = cache is None and found is not None and found.ragged
    batch = _batch(prompts, model, must_differ) if rows is None else _prompts(rows, model, num_new_tokens)
    if cache is None and found is not None:
        model = _showing(model, found, len(prompts[0]) + num_new_tokens)
    name = _cache_name(cache, found, model)
    drops = "middle" if found is None else found.drops
    plan = scenarios(prompts[0], batch, generations, drops, model.shape.vocab_size)
    trial = Trial(model, name, found, num_new_tokens, tuple(plan))
    check_work(trial.flops, trial.kernels)
    return trial


def _prompts(prompt: Any, model: TinyDecoder, num_new_tokens: int) -> list[Prompt]:
    rows = [tuple(row) for row in token_rows(prompt, model.shape.vocab_size)]
    whole_number("the number of rows", len(rows), 1, MAX_ROWS)
    longest = max(map(len, rows))
    whole_number("the length of a prompt", longest, 1, MAX_PARITY_TOKENS - 3)
    whole_number("num_new_tokens", num_new_tokens, 1, MAX_PARITY_TOKENS - longest)
    return rows


def _batch(prompts: Sequence[Prompt], model: TinyDecoder, must_differ: bool) -> Sequence[Prompt]:
    """The rows that were given, or rows made from the only one; with different lengths where they must."""
    lengths = {len(row) for row in prompts}
    if len(prompts) > 1 and (len(lengths) > 1 or not must_differ):
        return prompts
    return ragged_batch(prompts[0], model.shape.vocab_size, longer=must_differ)


def _cache_name(cache: str | None, fault: Fault | None, model: TinyDecoder) -> str:
    name = cache if cache is not None else "dynamic" if fault is None else fault.cache
    cache_kind(name)
    if name == "sliding" and model.shape.window is None:
        raise InputError("a sliding cache forgets old tokens, so it needs a model with a window: TinyDecoder(window=4)")
    return name


def _showing(model: TinyDecoder, fault: Fault, tokens: int) -> TinyDecoder:
    """`model`, or a variant with the positions and the window that show the fault."""
    changes: dict[str, Any] = {}
    if model.shape.position not in fault.positions:
        changes["position"] = fault.positions[0]
    if fault.needs_window and (model.shape.window is None or model.shape.window >= tokens):
        changes["window"] = max(1, tokens // 2)
    return variant(model, **changes) if changes else model
