"""Mutated quantizations of published checkpoints: exact bytes or a reason, and never another exception."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.importer import import_config
from kvplan.model import Model

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
Config = dict[str, Any]


def quantizations() -> Iterator[tuple[str, Config]]:
    """The quantization of every published config that has one, cut where it is long."""
    for path in sorted(CONFIGS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        stated = found.get("quantization_config") or (found.get("text_config") or {}).get("quantization_config")
        if stated and path.stat().st_size < 200_000:
            yield path.stem, stated


PUBLISHED = dict(quantizations())
SMALL = {
    "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 320,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip
ODD = st.sampled_from(
    [None, True, False, 0, -1, 1, 2**63, 1.5, float("nan"), float("inf"), "", "x", "re:(", "re:.*", "*", [], {}, [1],
     [None], ["lm_head"], {"a": 1}, [[["x"]]], {"": {}}, "float", "int", "channel", "group", "MIXED_PRECISION", "NVFP4"]
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside an object."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [] if not path else [path]
    for key, item in list(inside)[:12]:
        found += places(item, (*path, key))
    return found


def mutated(config: Config, path: tuple[Any, ...], value: Any) -> Config:
    changed = copy.deepcopy(config)
    inside: Any = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def outcome(config: Config) -> tuple[Model | None, str]:
    """The model of a config, or the sentence of its refusal."""
    try:
        return import_config(config, measure="never"), ""
    except KvplanError as refusal:
        return None, str(refusal)


def assert_exact_or_unknown(config: Config) -> None:
    """Parameters and cache are those of the unquantized model, whatever the quantization says."""
    plain = import_config(SMALL, measure="never")
    model, refusal = outcome(config)
    assert refusal.isprintable()
    if model is None:
        return
    assert model.num_params == plain.num_params
    assert model.cache_bytes(100) == plain.cache_bytes(100)
    assert model.storage_unknown.isprintable()
    if not model.storage_unknown:
        assert 0 < model.weight_bytes() <= 2 * plain.weight_bytes()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_quantization_on_another_model_is_exact_or_unknown(name: str) -> None:
    assert_exact_or_unknown({**SMALL, "quantization_config": PUBLISHED[name]})


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_quantization_is_exact_or_unknown(data: st.DataObject) -> None:
    published = PUBLISHED[data.draw(st.sampled_from(sorted(PUBLISHED)))]
    path = data.draw(st.sampled_from(places(published)))
    config = mutated(published, path, data.draw(ODD))
    where = data.draw(st.sampled_from(["quantization_config", "quantization"]))
    assert_exact_or_unknown({**SMALL, where: config})
