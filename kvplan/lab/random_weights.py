"""Weights to start from, drawn so that every part of the model matters."""

from __future__ import annotations

import torch
from torch import nn


def draw_weights(model: nn.Module, seed: int) -> None:
    """Random weights with outputs of size about 1; biases are not 0 and norms not 1, or they would hide mistakes.

    Drawn in float64: one seed means the same weights, rounded, in every dtype.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        size = 0.1 if weight.ndim == 1 else 1.0 if "embedding" in name else weight.shape[1] ** -0.5
        draw = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * size
        weight.data = draw + 1 if name.endswith("norm.weight") else draw
