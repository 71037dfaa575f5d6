"""What checkpoints store besides: the decoder's values and these make the published number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.importer import import_config
from kvplan.importer.unloaded import PREDICTING
from kvplan.model import ROLES, Model, WeightGroup

DATA = Path(__file__).parent.parent / "data"


def read(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return config


def official(name: str) -> int:
    """Elements of the published safetensors files."""
    rows = map(json.loads, (DATA / "config_oracle.jsonl").read_text(encoding="utf-8").splitlines())
    return next(int(row["official_params"]) for row in rows if row["file"] == f"configs/{name}.json")


def sizes(model: Model) -> dict[str, tuple[int | None, int | None]]:
    return {part.name: (part.params, part.bytes) for part in model.beside}


@pytest.mark.parametrize(
    "name",
    ["Qwen__Qwen3.5-0.8B", "Qwen__Qwen3.5-4B", "Qwen__Qwen3.5-9B", "Qwen__Qwen3.5-27B", "Qwen__Qwen3.5-122B-A10B",
     "XiaomiMiMo__MiMo-7B-Base", "zai-org__GLM-4.5-Air", "zai-org__GLM-5",
     "zai-org__GLM-5.1"],
)  # fmt: skip
def test_the_decoder_and_what_is_stored_beside_it_make_the_published_number(name: str) -> None:
    model = import_config(read(name))
    assert model.num_params + sum(part.params or 0 for part in model.beside) == official(name)


def tiles(group: WeightGroup) -> int:
    """Scales of 128 x 128 tiles; the gate of the shared expert and the narrow recurrent projection have none."""
    narrow = (group.role, group.rows) in (("shared_experts", 1), ("recurrent", 64))
    quantized = ROLES[group.role].quantized and group.columns > 1 and not narrow
    return group.count * -(-group.rows // 128) * -(-group.columns // 128) if quantized else 0


def test_qwen3_next_in_fp8_has_a_scale_for_every_tile_those_of_its_extra_layer_included() -> None:
    """Its published config says neither that it is quantized nor that it has the layer."""
    name = "Qwen__Qwen3-Next-80B-A3B-Instruct-FP8"
    model = import_config(read(name))
    (extra,) = model.beside
    scales = sum(count * tiles(group) for group, count in model.all_groups) + sum(map(tiles, model.layers[-1].weights))
    assert model.num_params + (extra.params or 0) + scales == official(name)


def test_mimo_stores_one_more_layer_with_a_projection_of_two_hidden_states_and_three_norms() -> None:
    layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 11008 + (4096 + 2 * 1024) + 2 * 4096
    values = layer + 4096 * 2 * 4096 + 3 * 4096
    assert sizes(import_config(read("XiaomiMiMo__MiMo-7B-Base"))) == {PREDICTING: (values, 2 * values)}


def test_deepseek_v3_stores_one_more_layer_quantized_as_the_others_with_its_own_embedding_and_head() -> None:
    model = import_config(read("deepseek-ai__DeepSeek-V3"))
    last = model.layers[-1]
    layer = sum(group.params for group in last.weights)
    stored = sum(
        group.count * group.matrix_bytes(group.storage or model.dtype) for group in last.weights if model.dtype
    )
    outside = 7168 * 2 * 7168 + 3 * 7168 + 2 * 129_280 * 7168
    assert sizes(model) == {
        PREDICTING: (layer + outside, stored + 2 * outside),
        "biases of the routers": (59 * 256, None),
    }


def test_hashed_routers_have_a_table_instead_of_a_bias() -> None:
    found = sizes(import_config(read("deepseek-ai__DeepSeek-V4-Pro")))
    table = 3 * 6 * 129_280
    assert found["tables of the hashed routers"] == (table, 8 * table)
    assert found["biases of the routers"] == ((61 - 3 + 1) * 384, None)


@pytest.mark.parametrize("name", ["nvidia__Qwen3.6-27B-NVFP4", "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"])
def test_bytes_are_not_guessed(name: str) -> None:
    parts = import_config(read(name)).beside
    assert all(part.bytes is None for part in parts)


def test_a_family_whose_extra_layers_are_not_known_says_so() -> None:
    (part,) = import_config(read("nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4")).beside
    assert part.params is None
    assert "not known of this family" in part.reason


@pytest.mark.parametrize("value", [-1, True, "1", 10**9, None, [1]])
def test_a_number_that_is_none_counts_nothing(value: object) -> None:
    config = read("zai-org__GLM-4.5-Air") | {"num_nextn_predict_layers": value}
    try:
        found = import_config(config)
    except ValueError:
        return
    assert PREDICTING not in sizes(found)


def test_an_ordinary_model_stores_nothing_besides() -> None:
    assert import_config(read("01-ai__Yi-34B")).beside == ()
