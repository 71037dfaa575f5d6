"""Name the fault: how far the cached keys and values are from recomputed ones, layer by layer and column by column.

Layer 0 is the witness, because its keys and values depend on nothing but tokens and positions:

    layer 0 clean, deeper layers dirty      what was kept is right, it was read wrongly: wiring or mask
    layer 0 keys dirty, values clean        positions: with rotary positions only keys carry them
    both dirty from the first decode step   decode steps are not written where they belong
    both dirty in prompt columns only       the prompt's heads were viewed wrongly
    both dirty in one or two blocks         the block table
    all a little dirty                      quantized
    all far off                             shared memory, another row, or bits of another type

Learned positions are part of the values too, so that with them a position fault looks like the write side.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvplan.lab.caches import Cache
from kvplan.lab.faults import FAMILIES, FAULTS, Fault
from kvplan.lab.kinds import BLOCK_SIZE
from kvplan.lab.limits import whole_number
from kvplan.lab.model import TinyDecoder
from kvplan.lab.reference import Uncached
from kvplan.lab.scenarios import Replay, replay, set_up
from kvplan.lab.trial import Trial, prepare
from kvplan.lab.variants import variant

CLEAN = 1e-4  # relative differences up to here are rounding, in float32 too
SMALL = 0.05  # up to here they look like a quantized cache

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Fingerprint:
    """Two grids (layers, positions): the largest difference over heads, relative to the layer's largest value.

    A token that the cache should hold and does not counts as zeros; one that a ring let go of is NaN.
    """

    keys: Grid
    values: Grid
    prompt_length: int
    trial: Trial
    row: int

    @property
    def fault(self) -> Fault | None:
        return self.trial.fault

    @property
    def family(self) -> str:
        """What the grids look like, by the rules of this module: read from the numbers, not from the fault."""
        return name_family(self.keys, self.values, self.prompt_length)

    @property
    def reading(self) -> str:
        return FAMILIES[self.family]

    def table(self) -> pd.DataFrame:
        """One line a cell: part (key or value), layer, position, phase, difference, dirty."""
        parts = [("key", self.keys), ("value", self.values)]
        return pd.DataFrame(
            [
                {
                    "part": part,
                    "layer": layer,
                    "position": position,
                    "phase": "prompt" if position < self.prompt_length else "decode",
                    "difference": float(difference),
                    "dirty": bool(difference > CLEAN),
                }
                for part, grid in parts
                for layer, line in enumerate(grid)
                for position, difference in enumerate(line)
            ]
        )


def fingerprint(
    model: TinyDecoder,
    prompt: Any,
    num_new_tokens: int = 8,
    fault: str | None = None,
    cache: str | None = None,
) -> Fingerprint:
    """The grids of the scenario that shows a fault best, of the batch row that is furthest off; see `check_parity`."""
    trial = prepare(model, prompt, num_new_tokens, cache, fault)
    wanted = "generations" if trial.fault is None else trial.fault.shows_in
    scenario = next((s for s in trial.scenarios if s.name == wanted), trial.scenarios[0])
    bench = set_up(trial.model, trial.cache, trial.fault, num_new_tokens, trial.capacity, exact=False)
    played = replay(bench, scenario)
    grids = [_grids(played, row, trial.model.shape.window) for row in range(len(played.truths))]
    row = max(range(len(grids)), key=lambda i: float(np.nansum(grids[i][0][0] + grids[i][1][0])))
    prompt_length = len(played.truths[row].tokens) - num_new_tokens
    return Fingerprint(*grids[row], prompt_length, trial, row)


def name_family(keys: Grid, values: Grid, prompt_length: int) -> str:
    """The family that two grids (layers, positions) point to."""
    dirty_keys, dirty_values = keys[0] > CLEAN, values[0] > CLEAN  # (positions,)
    if not dirty_keys.any() and not dirty_values.any():
        return "read" if (keys > CLEAN).any() or (values > CLEAN).any() else "clean"
    if not dirty_values.any():
        return "positions"
    return _name_write_side(np.fmax(keys[0], values[0]), prompt_length)


def _name_write_side(difference: Grid, prompt_length: int) -> str:
    """Among the families whose values are dirty in layer 0 too: by which columns, and by how much."""
    dirty = np.flatnonzero(difference > CLEAN)
    if np.nanmax(difference) <= SMALL:
        return "quantized"
    if len(dirty) > BLOCK_SIZE and dirty[0] == prompt_length:
        return "write"
    if len(dirty) > BLOCK_SIZE and dirty[-1] == prompt_length - 1:
        return "heads"
    blocks, columns = np.unique(dirty // BLOCK_SIZE, return_counts=True)
    return "block" if len(blocks) <= 2 and (columns == BLOCK_SIZE).all() else "shared"


def _grids(played: Replay, row: int, window: int | None) -> tuple[Grid, Grid]:
    truth, cache = played.truths[row], played.cache
    layers = [_layer_differences(cache, layer, row, truth, window) for layer in range(len(truth.keys))]
    keys, values = zip(*layers, strict=True)
    return np.stack(keys), np.stack(values)


def _layer_differences(cache: Cache, layer: int, row: int, truth: Uncached, window: int | None) -> tuple[Grid, Grid]:
    held = cache.held()[row]  # (C,)
    parts = zip(cache.read(layer), (truth.keys[layer], truth.values[layer]), strict=True)
    gone = len(held) < len(truth.tokens) and window is not None
    keys, values = (_difference(part[row], held, true, window if gone else None) for part, true in parts)
    return keys, values


def _difference(cached: Tensor, held: Tensor, true: Tensor, window: int | None) -> Grid:
    """cached (H_kv, C, D) in the columns of tokens `held` (C,), true (H_kv, S, D) -> (S,)."""
    columns = ((held >= 0) & (held < true.shape[1])).nonzero()[:, 0]
    placed = torch.zeros_like(true)  # (H_kv, S, D)
    placed[:, held[columns]] = cached[:, columns]
    difference = ((placed - true).abs().amax((0, 2)) / true.abs().max()).double()  # (S,)
    if window is not None:
        difference[: true.shape[1] - window] = torch.nan
    return difference.numpy()


@dataclass(frozen=True)
class Mystery:
    """A fingerprint without its name, and the titles to choose from; `answer` is one of `choices`."""

    seed: int
    fingerprint: Fingerprint
    choices: tuple[str, ...]
    answer: str


def mystery(seed: int, model: TinyDecoder, prompt: Any, num_new_tokens: int = 8, num_choices: int = 4) -> Mystery:
    """A hidden fault that the seed decides, so that a link can carry the seed and not the answer.

    The choices are faults of different families, since only a family can be read from a fingerprint; positions are
    rotary, since with learned ones a position fault looks like a write fault.
    """
    whole_number("seed", seed, 0, 2**63 - 1)
    whole_number("num_choices", num_choices, 2, len(FAMILIES) - 1)
    draw = random.Random(f"mystery {seed}")
    visible = [fault for fault in FAULTS.values() if fault.family != "clean" and fault.in_float64 != "never"]
    hidden = draw.choice(visible)
    others = sorted({fault.family for fault in visible} - {hidden.family})
    chosen = [
        draw.choice([f for f in visible if f.family == family]) for family in draw.sample(others, num_choices - 1)
    ]
    choices = [fault.title for fault in [hidden, *chosen]]
    draw.shuffle(choices)
    rotary = variant(model, position="rope")
    return Mystery(seed, fingerprint(rotary, prompt, num_new_tokens, hidden.name), tuple(choices), hidden.title)
