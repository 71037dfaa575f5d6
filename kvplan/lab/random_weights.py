"""Weights to start from, drawn so that every part of the model matters."""

from __future__ import annotations

import torch
from torch import nn

ATTENTION_SIZE = 0.3  # of what a token itself brings: with more, any slip of attention would change the greedy token


def draw_weights(model: nn.Module, seed: int) -> None:
    """Random weights with outputs of size about 1; biases are not 0 and norms not 1, or they would hide mistakes.

    Drawn in float64: one seed means the same weights, rounded, in every dtype.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * _size(name, weight)
        weight.data = draw + 1 if name.endswith("norm.weight") else draw


def _size(name: str, weight: torch.Tensor) -> float:
    if weight.ndim == 1:
        return 0.1
    if "embedding" in name:
        return 1.0
    gain = ATTENTION_SIZE if name.endswith("out.weight") else 1.0
    return float(gain * weight.shape[1] ** -0.5)
