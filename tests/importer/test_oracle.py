"""Every published config against what transformers builds from it: parameters and cache bytes to the unit.

A config that no rule counts exactly stands in REFUSED with the reason that the user reads; a wrong number never
does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvplan import importer
from kvplan.errors import UnsupportedConfigError

DATA = Path(__file__).parent.parent / "data"
ROWS = {row["file"].removeprefix("configs/").removesuffix(".json"): row for row in map(
    json.loads, (DATA / "config_oracle.jsonl").read_text(encoding="utf-8").splitlines()
)}  # fmt: skip
KV_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
CONTEXTS = (16, 4096, 131072)

REFUSED: dict[str, str] = {}


def oracle_cache_bytes(expected: dict[str, Any], tokens: int) -> int:
    """The cache of one sequence, from the oracle's runs of equal layers."""
    return sum(
        run["layers"] * (min(tokens, run["window"] or tokens) * int(run["bytes_per_token"]) + int(run["fixed_bytes"]))
        for run in expected["cache_runs"]
    )


def import_row(name: str) -> importer.Model:
    return importer.import_config(DATA / "configs" / f"{name}.json")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row["expected"] and name not in REFUSED])
def test_a_published_config_has_the_parameters_and_cache_bytes_of_its_class(name: str) -> None:
    expected, model = ROWS[name]["expected"], import_row(name)
    if expected["params_scope"] == "text":
        assert model.params_by_tower["text"] == expected["text_params"]
    else:
        assert model.num_params == expected["n_params"]
    if expected["cache_runs"] and expected.get("cache_runs_comparable", True):
        found = [model.cache_bytes(tokens, kv_dtype=KV_DTYPES[expected["oracle_dtype"]]) for tokens in CONTEXTS]
        assert found == [oracle_cache_bytes(expected, tokens) for tokens in CONTEXTS]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_config_that_no_rule_counts_exactly_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=re.escape(REFUSED[name])):
        import_row(name)


def test_a_row_without_expectation_is_refused_or_stated_elsewhere() -> None:
    unknown = {name for name, row in ROWS.items() if not row["expected"]}
    assert unknown <= set(REFUSED)


@pytest.mark.parametrize(
    "name", [n for n, r in ROWS.items() if (r["expected"] or {}).get("cache_runs_comparable") is False]
)
def test_deepseek_v4_keeps_the_bytes_that_the_oracle_states_for_a_long_context(name: str) -> None:
    expected = ROWS[name]["expected"]
    assert import_row(name).cache_bytes(expected["long_T"]) == expected["cache_bytes_at_long_T"]
