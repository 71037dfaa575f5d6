"""What an engine takes on a GPU besides weights and cache: low, typical and high, each with its source.

These are estimates. The activation peak follows the batch that an engine profiles itself with; the two others
are medians and percentiles of public start-up logs. A figure from a person's own log replaces any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvplan.engines.capacity import Version, ceil_div
from kvplan.errors import InputError
from kvplan.model import Layer, Model
from kvplan.units import GIB, counted

COUNTS_GRAPHS = (0, 21)
"""vLLM takes CUDA graphs out of the pool from here; before, they came from what the fraction leaves unused."""

SORTED_LOGITS_BYTES = 39
"""Bytes for one vocabulary entry of one row where the profile run sorts the logits: values, indices, probabilities
and their cumulative sum. Nine V0 rows give 38.5 to 39.2."""


class PeakRule(NamedTuple):
    """How the profile run of a vLLM version peaks.

    logits_bytes  bytes for one vocabulary entry of one sampled row
    together      whether the batch's activations are still held when the rows are sampled
    """

    logits_bytes: int
    together: bool


PEAK_RULES: dict[Version, PeakRule] = {
    (0, 0): PeakRule(SORTED_LOGITS_BYTES, together=False),
    (0, 9): PeakRule(SORTED_LOGITS_BYTES, together=True),
    (0, 10): PeakRule(10, together=True),
}
"""The rule of each version from there on; 10 B are the logits twice in float32 and once in 16 bits.

The rule of 0.9, whose usual engine is V1, rests on one log (its pool is 22 % too large without it). Started as V0,
0.9 still peaks as the versions before: at 131,072 tokens of one batch 14.63 GiB, of which 14.50 are its forward.
"""


def peak_rule(version: Version) -> PeakRule:
    """The rule of a vLLM version."""
    return PEAK_RULES[max(start for start in PEAK_RULES if start <= version)]


MLP_ROLES = frozenset({"mlp", "routed_experts", "shared_experts"})


@dataclass(frozen=True, slots=True)
class Overhead:
    """One part, in bytes on one GPU.

    name      activation, non_torch, cuda_graphs or other
    label     the word on a page
    source    where the three figures come from
    measured  whether it is a figure from a log: then the three are equal
    """

    name: str
    label: str
    low: int
    typical: int
    high: int
    source: str
    measured: bool = False


LABELS = {
    "activation": "activation peak",
    "non_torch": "CUDA context and communication",
    "cuda_graphs": "CUDA graphs",
    "other": "everything else",
}


def measured(name: str, size: int, source: str) -> Overhead:
    """A part whose bytes were read from a log. Raises InputError for an unknown part."""
    if name not in LABELS:
        raise InputError(f"overhead is {name!r}; one of {', '.join(LABELS)} is needed")
    return Overhead(name, LABELS[name], size, size, size, source, measured=True)


def activation_peak(
    model: Model, batched_tokens: int, max_num_seqs: int, tensor_parallel: int, rule: PeakRule
) -> Overhead:
    """The peak of the engine's profile run: one batch forward, then the logits of `max_num_seqs` rows."""
    forward = batched_tokens * max(_token_bytes(layer, model, tensor_parallel) for layer, _ in model.layer_runs)
    entries = (model.vocab_size or 0) * max_num_seqs
    sampled = entries * rule.logits_bytes
    apart = max(forward, sampled)
    return Overhead(
        "activation",
        LABELS["activation"],
        low=apart * 9 // 10,
        typical=forward + sampled if rule.together else apart,
        high=forward + entries * SORTED_LOGITS_BYTES,
        source=(
            f"{counted(batched_tokens, 'token')} through the widest layer, and {counted(max_num_seqs, 'row')} of "
            f"logits at {rule.logits_bytes} to {SORTED_LOGITS_BYTES} B an entry, as public start-up logs show; the "
            "towers of image models come on top"
        ),
    )


def compute_buffer(model: Model, gpus: int, ubatch: int = 512) -> Overhead:
    """llama.cpp's compute buffers with flash attention: the logits of a micro-batch, and more where K is latent."""
    logits = (model.vocab_size or 0) * 4 * ubatch
    latent = any(layer.cache.kind.endswith("latent") for layer, _ in model.layer_runs)
    low, typical, high, count = (104, 203, 1054, 13) if latent else (101, 105, 129, 15)
    return Overhead(
        "activation",
        "compute buffers",
        low=gpus * logits * low // 100,
        typical=gpus * logits * typical // 100,
        high=gpus * logits * high // 100,
        source=(
            f"the logits of {counted(ubatch, 'token')} in 32 bit on each GPU, times {low / 100:.2f}, "
            f"{typical / 100:.2f} and {high / 100:.2f}: smallest, median and 90th percentile of {count} public "
            "llama.cpp logs"
        ),
    )


def _token_bytes(layer: Layer, model: Model, tensor_parallel: int) -> int:
    """Bytes that one token's activations take at most in `layer`, in 16 bits.

    The MLP's up projections and half as much again after the gate, which tensor parallelism divides; the down
    projection of every expert that the token uses, which it does not; and three rows of the hidden size.
    """
    groups = [group for group in layer.weights if group.role in MLP_ROLES and group.columns > 1]
    up = sum(group.rows * group.num_active for group in groups if group.split == "rows")
    down = sum(group.rows * group.num_active for group in groups if group.split != "rows")
    return 2 * (ceil_div(3 * up, 2 * tensor_parallel) + down + 3 * (model.hidden_size or 0))


def _gib(hundredths: int) -> int:
    return hundredths * GIB // 100


def cuda_contexts(num_gpus: int) -> Overhead:
    """What the driver takes for a program that is no PyTorch, on all GPUs together."""
    one = non_torch(1)
    source = f"{one.source}, for each GPU"
    return Overhead(one.name, one.label, num_gpus * one.low, num_gpus * one.typical, num_gpus * one.high, source)


def non_torch(num_gpus: int) -> Overhead:
    """CUDA context, libraries and NCCL buffers."""
    if num_gpus > 1:
        low, typical, high, count = 20, 55, 358, 4
    else:
        low, typical, high, count = 3, 13, 66, 27
    source = f"median and 90th percentile of {count} public vLLM start-up logs; low is the 10th percentile"
    return Overhead("non_torch", LABELS["non_torch"], _gib(low), _gib(typical), _gib(high), source)


def cuda_graphs(*, eager: bool = False) -> Overhead:
    """Captured CUDA graphs; nothing where the engine runs eagerly."""
    if eager:
        return Overhead("cuda_graphs", LABELS["cuda_graphs"], 0, 0, 0, "the engine captures none (eager mode)")
    source = "median and 90th percentile of 45 public vLLM start-up logs, 10th of 32 of them"
    return Overhead("cuda_graphs", LABELS["cuda_graphs"], _gib(11), _gib(64), _gib(173), source)
