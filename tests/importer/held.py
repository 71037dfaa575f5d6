"""Everything that a model of transformers holds: parameters by dtype, and all tensors of its cache, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kvplan.dtypes import kv_dtype
from kvplan.importer import import_config
from kvplan.model import Layer, Model
from tests.importer.conftest import vary

TOKENS = 16
"""Tokens that the built model reads; windows of these tests are larger, so that every layer keeps all of them."""

WORKING_MEMORY = frozenset({"buffer_kv", "buffer_gate"})
"""Tokens of an unfinished block, which are noted and not counted."""


@dataclass(frozen=True)
class Held:
    """A model as transformers builds it in bf16.

    params      values of the parameters, tied ones once, by bytes a value
    cache       bytes that each layer holds after TOKENS tokens
    windows     tokens that each layer keeps at most, None for all
    """

    params: dict[int, int]
    cache: list[int]
    windows: list[int | None]


def build(config: Mapping[str, Any]) -> Held:
    """The causal model of `config`, after it has read TOKENS tokens; it is small, and has values."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    settings = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16, attn_implementation="eager").eval()
    cache = None if model.config.model_type == "minimax" else DynamicCache(config=settings)
    with torch.no_grad():
        output = model(input_ids=torch.zeros((1, TOKENS), dtype=torch.int64), cache=cache, use_cache=True)
    held = output.past_key_values
    return Held(
        by_width(model),
        [sum(tensor.nbytes for tensor in tensors(layer)) for layer in cache_layers(held)],
        [getattr(layer, "sliding_window", None) for layer in cache_layers(held)],
    )


def cache_layers(cache: Any) -> list[Any]:
    """The layers of a cache; MiniMax keeps the states of its linear layers in a list beside them."""
    states = getattr(cache, "linear_cache", [])
    return [
        layer if isinstance(state, list) else LinearState(state)
        for layer, state in zip_longest(cache.layers, states, fillvalue=[])
    ]


@dataclass(frozen=True)
class LinearState:
    """The state of a linear layer of MiniMax."""

    state: Any


def by_width(model: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for parameter in model.parameters():
        found[parameter.itemsize] = found.get(parameter.itemsize, 0) + parameter.numel()
    return found


def tensors(layer: Any) -> list[Any]:
    """The tensors that a cache layer holds, each once, however many names it has."""
    named = (value for name, value in vars(layer).items() if name not in WORKING_MEMORY)
    return list({id(tensor): tensor for value in named for tensor in inside(value)}.values())


def inside(value: Any) -> Iterator[Any]:
    import torch

    values = value.values() if isinstance(value, dict) else [value]
    return (item for item in values if isinstance(item, torch.Tensor) and item.dim() > 1)


def planned_params(model: Model) -> dict[int, int]:
    found: dict[int, int] = {}
    for group, count in model.all_groups:
        width = 4 if group.pinned else 2
        found[width] = found.get(width, 0) + group.params * count
    return found


def planned_bytes(layer: Layer) -> int:
    kv = kv_dtype("bf16")
    return sum(part.bytes(TOKENS, kv) for part in layer.cache.cache_parts()) + sum(
        part.bytes(kv) for part in layer.cache.state_parts()
    )


def planned_window(layer: Layer) -> int | None:
    return next((part.max_tokens for part in layer.cache.cache_parts()), None)


def assert_held(options: Mapping[str, Any], seed: int) -> None:
    """The rule counts variation `seed` of `options` as transformers builds it, pinned dtypes and states included."""
    config = vary({"dtype": ["bfloat16"]} | options, seed)
    truth, model = build(config), import_config(config)
    assert planned_params(model) == truth.params, config
    assert [planned_window(layer) for layer in model.layers] == truth.windows, config
    assert [planned_bytes(layer) for layer in model.layers] == truth.cache, config
