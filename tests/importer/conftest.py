"""What transformers builds from a config: the truth that rules are compared with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kvplan.dtypes import kv_dtype
from kvplan.importer import import_config

TOKENS = 4
"""Tokens that the built model reads; windows of these tests are larger, so that every layer keeps all of them."""


@dataclass(frozen=True)
class Built:
    """A model as transformers builds it.

    num_params  values of all parameters, tied ones once
    windows     of each layer: tokens that it keeps at most, None for all, 0 for a layer without cache
    cache_bytes bytes of keys and values that each layer holds after TOKENS tokens, at two bytes a value
    """

    num_params: int
    windows: list[int | None]
    cache_bytes: list[int]


def build(config: Mapping[str, Any]) -> Built:
    """The causal model of `config`, which is small: with values it runs faster than on shapes alone."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    settings = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16, attn_implementation="eager")
    cache = DynamicCache(config=settings)
    fill(model, cache)
    return Built(
        sum(parameter.numel() for parameter in model.parameters()),
        [window_of(layer) for layer in cache.layers],
        [held_bytes(layer) for layer in cache.layers],
    )


def fill(model: Any, cache: Any) -> None:
    """Let `model` read TOKENS tokens into `cache`."""
    import torch

    with torch.no_grad():
        model.eval()(input_ids=torch.zeros((1, TOKENS), dtype=torch.int64), cache=cache, use_cache=True)


def window_of(layer: Any) -> int | None:
    if type(layer).__name__ == "DummyLayer":
        return 0
    return getattr(layer, "sliding_window", None)


def held_bytes(layer: Any) -> int:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    return 0 if keys is None or values is None else 2 * (keys.numel() + values.numel())


def vary(options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A config of one of the candidates for each key.

    A candidate that is callable makes its value from the others; the word "absent" leaves the key out.
    """
    chance = random.Random(seed)
    chosen = {name: chance.choice(candidates) for name, candidates in options.items()}
    config = {name: value for name, value in chosen.items() if value != "absent"}
    return {name: value(config) if callable(value) else value for name, value in config.items()}


def kept_at_most(layer: Any) -> int | None:
    parts = layer.cache.cache_parts()
    return parts[0].max_tokens if parts else 0


def kept_bytes(layer: Any) -> int:
    return sum(part.bytes(TOKENS, kv_dtype("bf16")) for part in layer.cache.cache_parts())


@pytest.fixture(scope="session")
def assert_counted() -> Callable[[Mapping[str, Any], int], None]:
    """Asserts that the rule counts variation `seed` of `options` as transformers builds it."""

    def check(options: Mapping[str, Any], seed: int) -> None:
        config = vary(options, seed)
        truth, model = build(config), import_config(config)
        assert model.num_params == truth.num_params, config
        assert [kept_at_most(layer) for layer in model.layers] == truth.windows, config
        assert [kept_bytes(layer) for layer in model.layers] == truth.cache_bytes, config

    return check
