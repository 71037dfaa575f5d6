"""One decode step twice: the logits that the cache gives, and those of the whole sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from kvplan.lab.model import TinyDecoder
from kvplan.lab.scenarios import set_up
from kvplan.lab.trial import prepare


@dataclass(frozen=True)
class SideBySide:
    """The last decode step of the last generation: what it read, and the logits (1, V) of both ways."""

    token: int
    length_before: int
    length_after: int
    cached: Tensor  # (1, V)
    uncached: Tensor  # (1, V)

    @property
    def max_abs_diff(self) -> float:
        return float((self.cached.double() - self.uncached.double()).abs().max())

    def table(self) -> pd.DataFrame:
        """One row a token of the vocabulary: token, cached, uncached, difference."""
        cached, uncached = self.cached[0].double(), self.uncached[0].double()  # (V,)
        columns = {"cached": cached, "uncached": uncached, "difference": cached - uncached}
        values = {name: column.tolist() for name, column in columns.items()}
        return pd.DataFrame({"token": range(len(cached)), **values})


def side_by_side(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int = 1,
    cache: str | None = None,
    fault: str | None = None,
    exact_shapes: bool = False,
) -> SideBySide:
    """The last decode step of the generations that `check_parity` runs on one cache; the arguments are the same."""
    trial = prepare(model, prompt, num_new_tokens, cache, fault)
    bench = set_up(trial.model, trial.cache, trial.fault, num_new_tokens, trial.capacity, exact_shapes)
    held = bench.make_cache(1)
    for rows in trial.scenarios[0].generations:
        held.reset()
        truth = bench.truth(rows[0])
        bench.cached(torch.tensor([rows[0]]), held)
        for token in truth.tokens[len(rows[0]) :]:
            before = int(held.length[0])
            logits = bench.cached(torch.tensor([[token]]), held)[:, -1]  # (1, 1, V) -> (1, V)
    return SideBySide(token, before, int(held.length[0]), logits, truth.logits[-1:])
