"""JSON Schemas say what the reader says: every preset passes both, and every damage that one sees the other sees."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from kvplan.attention import LayerCache
from kvplan.errors import PresetError
from kvplan.hardware import Node, Price, define_gpu
from kvplan.library import GPU, KINDS, MODEL, NODE, SCENARIO, Kind, kind_from_table
from kvplan.presets import SHIPPED, ScenarioPreset, read_toml
from kvplan.schema import all_schemas, json_schema, json_schema_text
from tests.examples import ALL_LAYERS, LLAMA_8B, model_of

PRICED = replace(define_gpu(name="A card", usable_bytes=2**30), prices=(Price("rent", 1.5, "2026-01-01", "x"),))
BOX = Node("A box", "card", 8, "x")
PLANNED = ScenarioPreset("One", "Why.", {"model": "llama", "gpu": "card", "memory_fraction": 0.9}, "me")
EXAMPLES: list[tuple[Kind, Any]] = [
    (MODEL, LLAMA_8B),
    (MODEL, model_of(ALL_LAYERS)),
    (GPU, PRICED),
    (SCENARIO, PLANNED),
]


def passes(kind: Kind, table: Any) -> bool:
    return bool(jsonschema.Draft7Validator(json_schema(kind.name)).is_valid(table))


def is_read(kind: Kind, table: Any) -> bool:
    try:
        kind_from_table(kind, table, "x", "")
    except PresetError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_schema_is_a_sound_schema(kind: Kind) -> None:
    jsonschema.Draft7Validator.check_schema(json_schema(kind.name))
    assert json.loads(json_schema_text(kind.name)) == json_schema(kind.name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_shipped_preset_passes_its_schema(kind: Kind) -> None:
    checked = jsonschema.Draft7Validator(json_schema(kind.name))
    files = sorted((SHIPPED / kind.folder).glob("*.toml"))
    assert [(file.name, error.message) for file in files for error in checked.iter_errors(read_toml(file))] == []


@pytest.mark.parametrize(("kind", "example"), EXAMPLES, ids=["llama", "all layers", "gpu", "scenario"])
def test_an_example_of_everything_passes_both(kind: Kind, example: Any) -> None:
    table = kind.to_table(example)
    assert passes(kind, table)
    assert is_read(kind, table)


def damaged(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of a table with one key less, one more, or one of another type, at every depth."""
    for path in places(table):
        for name, damage in (("more", _more), ("less", _less), ("list", _list)):
            hurt = copy.deepcopy(table)
            inside = hurt
            for step in path[:-1]:
                inside = inside[step]
            damage(inside, path[-1])
            yield f"{name} {'.'.join(map(str, path))}", hurt


def _more(inside: dict[str, Any], key: str) -> None:
    inside[f"{key}_x"] = inside[key]


def _less(inside: dict[str, Any], key: str) -> None:
    del inside[key]


def _list(inside: dict[str, Any], key: str) -> None:
    inside[key] = [[inside[key]]]


def places(table: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all keys of a table that stand for a field."""
    items: Any = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for step, value in items:
        if isinstance(step, str) and (not path or path[-1] not in ("layer", "tflops")):
            yield (*path, step)
        yield from places(value, (*path, step))


@pytest.mark.parametrize(("kind", "example"), EXAMPLES[::2] + EXAMPLES[3:], ids=["llama", "gpu", "scenario"])
def test_schema_and_reader_agree_on_every_damage(kind: Kind, example: Any) -> None:
    wrong = []
    for name, table in damaged(kind.to_table(example)):
        if name.startswith("less layer") or "kv_heads" in name:  # sums and divisions: the reader knows more
            continue
        if passes(kind, table) != is_read(kind, table):
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("layer", ALL_LAYERS, ids=str)
def test_schema_and_reader_agree_on_which_sizes_of_a_layer_may_be_zero(layer: LayerCache) -> None:
    table = MODEL.to_table(model_of([layer]))
    (inside,) = table["layer"].values()
    for name in [name for name, value in inside["cache"].items() if isinstance(value, int)]:
        hurt = {**table, "layer": {key: {**inside, "cache": {**inside["cache"], name: 0}} for key in table["layer"]}}
        assert passes(MODEL, hurt) == is_read(MODEL, hurt), name


def test_every_kind_of_preset_has_a_schema_with_a_file_name() -> None:
    assert set(all_schemas()) == {
        "model.schema.json", "gpu.schema.json", "scenario.schema.json", "node.schema.json",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [0, -1, 2**62, 1.5, "", "<b>", "x" * 81, "$x$", "[x](y)", "Qwen3 8B (v2.5, +1)"], ids=str
)
@pytest.mark.parametrize(
    ("kind", "example", "field"),
    [
        (MODEL, LLAMA_8B, "name"), (MODEL, LLAMA_8B, "hidden_size"), (MODEL, LLAMA_8B, "vocab_size"),
        (MODEL, LLAMA_8B, "num_attention_heads"), (MODEL, LLAMA_8B, "context_limit"),
        (GPU, PRICED, "name"), (GPU, PRICED, "usable_bytes"), (GPU, PRICED, "bandwidth"), (GPU, PRICED, "node_gpus"),
        (NODE, BOX, "name"), (NODE, BOX, "num_gpus"), (SCENARIO, PLANNED, "name"),
    ],
)  # fmt: skip
def test_schema_and_reader_agree_on_names_and_numbers(kind: Kind, example: Any, field: str, value: Any) -> None:
    table = {**kind.to_table(example), field: value}
    assert passes(kind, table) == is_read(kind, table)


@pytest.mark.parametrize(("field", "value"), [("batch_size", 0), ("tensor_parallel", 0), ("context_length", 2**41)])
def test_a_schema_refuses_settings_that_no_scenario_has(field: str, value: int) -> None:
    table = SCENARIO.to_table(PLANNED)
    assert not passes(SCENARIO, {**table, "fields": {**table["fields"], field: value}})
