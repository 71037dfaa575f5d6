"""Is a cached decode the same as an uncached one? A check that can fail.

Two gates, and a line for decisions (r is the largest difference over eps times the largest logit; it stayed under 81 in
float64, 77 in float32 and 3 in half precision for correct caches):

    logic gate     float64: largest difference <= 1e-9 * max(1, largest logit)
    number gate    the working dtype: largest difference <= C * eps * largest logit, C = 256 in float32, 8 in 16 bits
    decision line  greedy tokens are safe while the largest difference is under half the smallest top-1/top-2 margin

Greedy tokens are no check: most faults leave them as they were. Half precision is a weak one: an int8 cache is no worse
than its own rounding, so the logic gate is run beside it, on a float64 copy of the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from kvplan.lab.faults import Fault
from kvplan.lab.limits import DTYPES
from kvplan.lab.model import TinyDecoder
from kvplan.lab.scenarios import RowDifference, Scenario, replay, set_up
from kvplan.lab.trial import Trial, prepare
from kvplan.lab.variants import in_dtype
from kvplan.units import counted

LOGIC_BAR = 1e-9
NUMBER_BAR = {"float32": 256, "float16": 8, "bfloat16": 8}  # C, in eps of the dtype
USUAL_LINES = (  # constants often seen, and when they hold; they are not the verdict
    (1e-5, "float32", "logits of about 2 and few layers; 84 float32 epsilons, not one"),
    (1e-3, "float16", "logits of about 2 and few layers"),
)


@dataclass(frozen=True)
class Gate:
    """A bar and what came under or over it."""

    name: str
    dtype: str
    max_abs_diff: float
    max_abs_logit: float
    bar: float
    formula: str

    @property
    def passed(self) -> bool:
        return self.max_abs_diff <= self.bar


@dataclass(frozen=True)
class UsualLine:
    """A constant that is often used as a bar."""

    value: float
    dtype: str
    holds_for: str
    is_over: bool


@dataclass(frozen=True)
class Comparison:
    """Rows of cached and uncached logits, and the verdict of a gate over all of them."""

    gate: Gate
    rows: tuple[RowDifference, ...]

    @property
    def passed(self) -> bool:
        return self.gate.passed

    @property
    def max_abs_diff(self) -> float:
        return self.gate.max_abs_diff

    @property
    def max_abs_logit(self) -> float:
        return self.gate.max_abs_logit

    @property
    def bar(self) -> float:
        return self.gate.bar

    @property
    def dtype(self) -> str:
        return self.gate.dtype

    @property
    def r(self) -> float:
        """The largest difference over eps times the largest logit."""
        return self.max_abs_diff / (torch.finfo(DTYPES[self.dtype]).eps * self.max_abs_logit)

    @property
    def bit_equal(self) -> bool:
        """Whether every cached logit is the uncached one to the bit."""
        return self.max_abs_diff == 0

    @property
    def tokens_equal(self) -> bool:
        """Whether greedy decoding would have chosen the same token in every row."""
        return self.first_divergence is None

    @property
    def first_divergence(self) -> RowDifference | None:
        """The first row whose greedy token differs; None: all are equal."""
        return next((row for row in self.rows if not row.same_token), None)

    @property
    def first_over_bar(self) -> RowDifference | None:
        """The first row whose difference is over the bar."""
        return next((row for row in self.rows if row.max_abs_diff > self.bar), None)

    @property
    def decision_line(self) -> float:
        """Half the smallest margin between the best and the second-best logit: below it no greedy token can change."""
        return min(row.margin for row in self.rows) / 2

    @property
    def greedy_is_safe(self) -> bool:
        return self.max_abs_diff < self.decision_line

    @property
    def usual_lines(self) -> tuple[UsualLine, ...]:
        return tuple(UsualLine(*line, is_over=self.max_abs_diff > line[0]) for line in USUAL_LINES)

    @property
    def what(self) -> str:
        """The cache that was checked, in words."""
        return "cached"

    @property
    def remark(self) -> str:
        """What a passed check should add about itself."""
        return ""

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, with its numbers."""
        where = f"over {counted(len(self.rows), 'row')} in {self.dtype}, {self.what}"
        size = f"largest difference {self.max_abs_diff:.2g} against a bar of {self.bar:.2g} ({self.gate.formula})"
        row = self.first_over_bar
        if row is not None:
            at = f"first at position {row.position} of row {row.row} ({row.phase})"
            return f"Cached and uncached logits differ: {size}, {where}, {at}."
        verdict = "are bit-equal" if self.bit_equal else "agree"
        return f"Cached and uncached logits {verdict}: {size}, {where}{self.remark}."

    def table(self) -> pd.DataFrame:
        """One line a compared row: scenario, generation, row, phase, position, token, differences, margin, tokens."""
        return pd.DataFrame([{**vars(row), "same_token": row.same_token, "bar": self.bar} for row in self.rows])


@dataclass(frozen=True)
class ParityResult(Comparison):
    """The verdict of the gate of the dtype that was run, and everything behind it.

    passed, max_abs_diff, max_abs_logit, bar, r: of `gate`. rows: one record for each compared row of logits.
    logic: the same check in float64 and ordinary shapes, so that half precision hides nothing.
    """

    logic: Gate
    trial: Trial
    exact_shapes: bool

    @property
    def model(self) -> TinyDecoder:
        """The decoder that was run: a variant of the one given, where a fault needed other positions or a window."""
        return self.trial.model

    @property
    def cache(self) -> str:
        return self.trial.cache

    @property
    def fault(self) -> Fault | None:
        return self.trial.fault

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        return self.trial.scenarios

    @property
    def exceeds_window(self) -> bool:
        """Whether some row was longer than the model's window, so that the window was tried at all."""
        window = self.model.shape.window
        return window is not None and max(row.position for row in self.rows) >= window

    @property
    def what(self) -> str:
        return f"{self.cache} cache"

    @property
    def remark(self) -> str:
        if self.logic.passed:
            return ""
        return (
            f"; but {self.dtype} cannot see it: in float64 the same cache is off by {self.logic.max_abs_diff:.2g},"
            f" over its bar of {self.logic.bar:.2g}"
        )


def check_parity(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int = 8,
    cache: str | None = None,
    fault: str | None = None,
    exact_shapes: bool = False,
    rows: Any = None,
    generations: int = 2,
) -> ParityResult:
    """Compare cached with uncached logits, row by row, in several scenarios.

    prompt: token ids, or several rows of them. num_new_tokens: decode steps after each prompt.
    cache: dynamic, static, paged, sliding or quantized. None: dynamic, or, with a fault, the cache, rows, positions and
    window that show it; an explicit cache is obeyed together with the model's own positions and window, so that a fault
    can hide. rows: the prompts of the ragged batch; None: made from the prompt. generations: how many share one cache.
    exact_shapes: compute both sides in matrix products of one shape, and demand equality to the bit.
    """
    trial = prepare(model, prompt, num_new_tokens, cache, fault, rows, generations)
    differences = _measure(trial, trial.model, exact_shapes)
    dtype = trial.model.shape.dtype
    gate = exact_gate(dtype, differences) if exact_shapes else gate_of(dtype, differences)
    logic = gate_of("float64", _in_float64(trial, differences, exact_shapes))
    return ParityResult(gate, differences, logic, trial, exact_shapes)


def _measure(trial: Trial, model: TinyDecoder, exact: bool) -> tuple[RowDifference, ...]:
    bench = set_up(model, trial.cache, trial.fault, trial.num_new_tokens, trial.capacity, exact)
    return tuple(row for scenario in trial.scenarios for row in replay(bench, scenario).rows)


def _in_float64(trial: Trial, rows: tuple[RowDifference, ...], exact: bool) -> tuple[RowDifference, ...]:
    """The same rows in float64 and ordinary shapes; `rows` themselves where they are that already."""
    if trial.model.shape.dtype == "float64" and not exact:
        return rows
    return _measure(trial, in_dtype(trial.model, "float64"), False)


def gate_of(dtype: str, rows: Sequence[RowDifference]) -> Gate:
    """The logic gate in float64, the number gate in any other dtype."""
    diff, logit = _largest(rows)
    if dtype == "float64":
        return Gate("logic", dtype, diff, logit, LOGIC_BAR * max(1.0, logit), "1e-9 * max(1, largest logit)")
    bar = NUMBER_BAR[dtype] * torch.finfo(DTYPES[dtype]).eps * logit
    return Gate("number", dtype, diff, logit, bar, f"{NUMBER_BAR[dtype]} * eps * largest logit")


def exact_gate(dtype: str, rows: Sequence[RowDifference]) -> Gate:
    """In exact shapes the bar is zero."""
    return Gate("exact shapes", dtype, *_largest(rows), 0.0, "torch.equal")


def _largest(rows: Sequence[RowDifference]) -> tuple[float, float]:
    return max(row.max_abs_diff for row in rows), max(row.max_abs_logit for row in rows)
