"""The same weights in another dtype, or with other positions, window or heads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvplan.lab.model import TinyDecoder


def variant(model: TinyDecoder, **changes: Any) -> TinyDecoder:
    """A decoder with some fields of its shape changed, and every weight of `model` that still fits."""
    other = TinyDecoder(**{**asdict(model.shape), **changes})
    have, want = model.state_dict(), other.state_dict()
    fitting = {name: have[name] for name in have.keys() & want.keys() if have[name].shape == want[name].shape}
    other.load_state_dict(want | fitting)
    return other


def in_dtype(model: TinyDecoder, dtype: str) -> TinyDecoder:
    """The same weights in another dtype."""
    return variant(model, dtype=dtype)
