"""The check that cannot fail: common ways to test a cache, against every fault, caught or missed.

Each check is a way to look at the same rows: which of them it reads, and what it calls different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvplan.lab.faults import FAULTS, find_fault
from kvplan.lab.limits import check_work
from kvplan.lab.model import TinyDecoder
from kvplan.lab.parity import ParityResult, check_parity
from kvplan.lab.scenarios import RowDifference
from kvplan.lab.trial import prepare


@dataclass(frozen=True)
class Check:
    """A way to test: the rows that it looks at, and when it calls one wrong (row, bar of the gate)."""

    title: str
    looks_at: Callable[[RowDifference], bool]
    is_wrong: Callable[[RowDifference, float], bool]

    def catches(self, result: ParityResult) -> bool:
        return any(self.is_wrong(row, result.bar) for row in result.rows if self.looks_at(row))


def _over_bar(row: RowDifference, bar: float) -> bool:
    return row.max_abs_diff > bar


def _other_token(row: RowDifference, bar: float) -> bool:
    return not row.same_token


def _is_alone(row: RowDifference) -> bool:
    return row.scenario == "generations"


CHECKS: Mapping[str, Check] = {
    "one_pass": Check(
        "one pass, cache on against off: what is kept is never read again",
        lambda row: _is_alone(row) and row.generation == 0 and row.phase == "prefill",
        _over_bar,
    ),
    "one_generation": Check(
        "one prompt, decoded step by step", lambda row: _is_alone(row) and row.generation == 0, _over_bar
    ),
    "token_ids": Check("greedy token ids of two generations", _is_alone, _other_token),
    "two_generations": Check("every logit row of two generations, with a reset between", _is_alone, _over_bar),
    "chunked": Check("the same, and a prompt in two chunks", lambda row: row.scenario != "ragged", _over_bar),
    "everything": Check("the same, and a ragged batch that loses a row", lambda row: True, _over_bar),
    "loose_bar": Check("all of that with a bar of 1e-2", lambda row: True, lambda row, bar: row.max_abs_diff > 1e-2),
}


def check_matrix(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int = 6,
    faults: Iterable[str] | None = None,
    on_step: Callable[[float], None] | None = None,
) -> pd.DataFrame:
    """One row for each fault and check: fault, title, check, check_title, caught.

    Each fault runs in the setting that shows it. on_step is told the fraction done; it may raise to stop.
    """
    names = list(FAULTS if faults is None else faults)
    for name in names:
        find_fault(name)
    trial = prepare(model, prompt, num_new_tokens, None, None)
    check_work(len(names) * trial.flops, len(names) * trial.kernels)
    rows: list[dict[str, Any]] = []
    for done, name in enumerate(names, 1):
        result = check_parity(model, prompt, num_new_tokens, fault=name)
        rows += [
            {
                "fault": name,
                "title": FAULTS[name].title,
                "check": key,
                "check_title": check.title,
                "caught": check.catches(result),
            }
            for key, check in CHECKS.items()
        ]
        if on_step is not None:
            on_step(done / len(names))
    return pd.DataFrame(rows)
