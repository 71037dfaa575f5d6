"""Published configs, and the sizes that variations of most families draw from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parent.parent / "data" / "configs"

SIZES: dict[str, Any] = {
    "vocab_size": [96, 131],
    "hidden_size": [48, 96],
    "intermediate_size": [64, 72],
    "num_hidden_layers": [2, 5],
    "num_attention_heads": [4, 12],
    "num_key_value_heads": [1, 2, 4],
    "max_position_embeddings": [64, "absent"],
    "tie_word_embeddings": [True, False, "absent"],
    "pad_token_id": [0],
}
MHA = {"num_key_value_heads": [2, 4, None, "absent"]}
"""For classes that read null as one KV head for each head."""

BIAS = {"attention_bias": [True, False, "absent"]}


def published(name: str, **changes: Any) -> dict[str, Any]:
    """A config as published, but for `changes`."""
    return {**json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")), **changes}


def unquantized(name: str, **changes: Any) -> dict[str, Any]:
    """A published config without its quantization, which has tests of its own."""
    return {key: value for key, value in published(name).items() if key != "quantization_config"} | changes


def by_layer(*kinds: Any) -> Callable[[dict[str, Any]], list[Any]]:
    """A candidate that repeats `kinds` over the layers of the config so far."""
    return lambda config: [kinds[index % len(kinds)] for index in range(config["num_hidden_layers"])]
