"""The model library: every preset is what the importer makes of its config, and its numbers are the oracle's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvplan.attention import LAYER_KINDS
from kvplan.importer import import_config
from kvplan.model import Model
from kvplan.presets import SHIPPED, list_models, load_model
from tests.make_model_presets import DATA, config_of, model_rows, read_rows, write_presets

NAMED = [
    "llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "mistral-7b-v0.1", "qwen3-8b", "qwen3-30b-a3b",
    "qwen3-next-80b-a3b", "gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "falcon-7b", "gpt2",
]  # fmt: skip
ROWS = {row["id"]: row for row in read_rows("model_presets.jsonl")}
ORACLE = {row["file"]: row for row in read_rows("config_oracle.jsonl")}
MADE: dict[str, Model] = {model.id: model for model in model_rows()}
KV_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
UNPUBLISHED_KINDS = {"sliding_latent", "rows"}
"""Kinds of which the tests hold no published config."""


def expectation(name: str) -> dict[str, Any]:
    """What transformers builds; empty where the oracle has no row or no class."""
    row = ORACLE.get(f"configs/{ROWS[name]['config']}.json", {})
    return row.get("expected") or {}


def has_cache(name: str) -> bool:
    return bool(expectation(name)["cache_runs"]) and expectation(name).get("cache_runs_comparable", True)


COMPARED = [name for name in ROWS if expectation(name)]
WITH_CACHE = [name for name in COMPARED if has_cache(name)]


def test_the_library_holds_at_least_160_models_and_the_named_ones() -> None:
    assert len(ROWS) >= 160
    assert set(NAMED) <= set(list_models())


def test_no_two_presets_are_of_one_config_or_one_name() -> None:
    assert len({(row["config"], *row.get("without", ())) for row in ROWS.values()}) == len(ROWS)
    assert len({row["name"] for row in ROWS.values()}) == len(ROWS)


QUANTIZED = re.compile(r"NVFP4|FP8|AWQ|Int4|GPTQ|4bit", re.IGNORECASE)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if QUANTIZED.search(row["repo"])])
def test_a_checkpoint_whose_name_says_quantized_is_not_counted_in_16_bits(name: str) -> None:
    """Public copies may lack their quantization_config; their bytes would be wrong by a factor."""
    model = load_model(name)
    assert model.storage_unknown or model.weight_bytes() < 1.5 * model.num_params


NOT_MEASURABLE = {
    "llama-3.2-11b-vision": "text alone does not fill the cache of its cross-attention; test_vision builds its class",
    "llama-3.2-90b-vision": "text alone does not fill the cache of its cross-attention; test_vision builds its class",
    "phi-3.5-moe": "the class asks for values when its positions are long; its published count is 41.9 billion",
    "internlm2-7b": "transformers has no class for it",
}
MEASURABLE = sorted({name for name, row in ROWS.items() if "config_source" in row} - set(NOT_MEASURABLE))


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize("name", MEASURABLE)
def test_a_preset_without_an_oracle_row_has_the_figures_that_transformers_measures(name: str) -> None:
    pytest.importorskip("transformers")
    measured = import_config(config_of(ROWS[name]), measure="always")
    assert measured.num_params == load_model(name).num_params
    assert measured.cache_bytes(131_072) == load_model(name).cache_bytes(131_072)


def test_every_kind_of_layer_stands_in_some_preset() -> None:
    kinds = {layer.cache.kind for model in MADE.values() for layer, _ in model.layer_runs}
    assert kinds == set(LAYER_KINDS) - UNPUBLISHED_KINDS


def test_the_files_are_what_the_script_writes(tmp_path: Path) -> None:
    for path in write_presets(tmp_path):
        assert (SHIPPED / "models" / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_preset_equals_the_import_of_its_config(name: str) -> None:
    loaded, made = load_model(name), MADE[name]
    assert loaded == made
    assert (loaded.name, loaded.source, loaded.notes) == (made.name, made.source, made.notes)


@pytest.mark.parametrize("name", COMPARED)
def test_a_preset_has_the_parameters_that_transformers_builds(name: str) -> None:
    expected, model = expectation(name), load_model(name)
    found = {"all": model.num_params, "text": model.params_by_tower["text"]}
    assert found[expected["params_scope"]] == expected.get("text_params", expected["n_params"])


def held_bytes(expected: dict[str, Any], tokens: int) -> int:
    """Cache bytes of one sequence, from the oracle's runs of equal layers."""
    return sum(
        run["layers"] * (min(tokens, run["window"] or tokens) * int(run["bytes_per_token"]) + int(run["fixed_bytes"]))
        for run in expected["cache_runs"]
    )


@pytest.mark.parametrize("name", WITH_CACHE)
@pytest.mark.parametrize("tokens", [1, 4096, 262144])
def test_a_preset_keeps_the_cache_bytes_that_transformers_keeps(name: str, tokens: int) -> None:
    expected = expectation(name)
    found = load_model(name).cache_bytes(tokens, kv_dtype=KV_DTYPES[expected["oracle_dtype"]])
    assert found == held_bytes(expected, tokens)


def test_deepseek_v4_keeps_the_bytes_that_the_oracle_states_at_a_long_context() -> None:
    expected = expectation("deepseek-v4-flash")
    assert load_model("deepseek-v4-flash").cache_bytes(expected["long_T"]) == expected["cache_bytes_at_long_T"]


def test_llama_3_2_vision_holds_an_image_in_every_cross_attention_layer() -> None:
    """8 such layers of 8 KV heads x 128 in 16 bits, for 4 tiles of 40 x 40 patches and a class token each."""
    image = 8 * 2 * 8 * 128 * 2 * 4 * (40 * 40 + 1)
    text = 32 * 2 * 8 * 128 * 2
    model = load_model("llama-3.2-11b-vision")
    assert (model.cache_bytes(0), model.cache_bytes(1000)) == (image, image + 1000 * text)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row["id"])
def test_whatever_a_row_adds_or_leaves_out_has_a_reason(row: dict[str, Any]) -> None:
    assert bool(row.get("dtype")) == bool(row.get("dtype_reason"))
    assert bool(row.get("without")) == bool(row.get("without_reason"))
    config = json.loads((DATA / "configs" / f"{row['config']}.json").read_text(encoding="utf-8"))
    assert "dtype" not in row or not (config.get("torch_dtype") or config.get("dtype"))


def test_ids_that_are_written_for_many_years_keep_their_models() -> None:
    """The named presets by parameters: an id in a link must never come to mean another model."""
    sizes = {name: load_model(name).num_params for name in NAMED}
    assert sizes == {
        "llama-2-7b": 6_738_415_616,
        "llama-3.1-8b": 8_030_261_248,
        "llama-3.1-70b": 70_553_706_496,
        "mistral-7b-v0.1": 7_241_732_096,
        "qwen3-8b": 8_190_735_360,
        "qwen3-30b-a3b": 30_532_122_624,
        "qwen3-next-80b-a3b": 79_674_391_296,
        "gemma-3-27b": 27_432_406_640,
        "gpt-oss-20b": 20_914_757_184,
        "gpt-oss-120b": 116_829_156_672,
        "deepseek-v3": 671_026_404_352,
        "falcon-7b": 6_921_720_704,
        "gpt2": 124_439_808,
    }
