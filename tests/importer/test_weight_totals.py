"""Weight bytes against `metadata.total_size` of published indexes: a difference is the one that its row explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import UnsupportedConfigError
from kvplan.importer import import_config

DATA = Path(__file__).parent.parent / "data"
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "weight_totals.jsonl").read_text(encoding="utf-8").splitlines()
]
EXACT_QUANTIZED = {
    "Arp1tMoga/fast_qwen",
    "IrfanUruchi/Llama-3.1-8B-Computer-Networks-LLM",
    "gaoqinqinshan/qingshanyiliao",
    "jeevanchaps/Meta-Llama3.1-8B-Instruct-assessment",
    "roshinpv/mpx",
}
"""MLX in 4 and 8 bits, LLM.int8, GPTQ in 4 bits, LLM.int8, MLX in 3 bits."""
REFUSED = {
    "IDLEOAK/openpangu-lightweight-methods": "PanguEmbedded",
    "alibaba/Logics-Thinking": "logics",
    "hbcbh1999/llama3v": "llama3v",
    "junqi-jiang/oasstpythia1.5brm": "gpt_neox_reward_model",
    "oguzaybilir/LocateAnything-3B-FineTuning": "causal_attn",
    "wxiangqi1202-cpu/deskocr2-ascend": "deepseek_vl_v2",
}
"""Checkpoints that no rule counts, and a word of the refusal."""


def weight_bytes(row: dict[str, Any]) -> int:
    """What kvplan says; the row's dtype where its config states none."""
    return import_config(row["config_json"], dtype=row["oracle_dtype"]).weight_bytes()


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['repo']}-{row['path']}" for row in rows]


PLAIN = [
    row
    for row in ROWS
    if row["repo"] not in REFUSED and row["predicted_bytes"] and row["explanation"] != "quantized storage"
]


@pytest.mark.parametrize("row", PLAIN, ids=names(PLAIN))
def test_a_published_index_holds_the_weight_bytes_and_what_its_row_explains(row: dict[str, Any]) -> None:
    assert row["total_size"] - weight_bytes(row) == row["diff"]


QUANTIZED = [row for row in ROWS if row["repo"] in EXACT_QUANTIZED]


@pytest.mark.parametrize("row", QUANTIZED, ids=names(QUANTIZED))
def test_a_quantized_checkpoint_holds_exactly_the_bytes_of_its_storage_formats(row: dict[str, Any]) -> None:
    assert weight_bytes(row) == row["total_size"]


@pytest.mark.parametrize("row", [r for r in ROWS if r["repo"] in REFUSED], ids=lambda row: row["repo"])
def test_a_checkpoint_that_is_not_understood_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedConfigError, match=REFUSED[row["repo"]]):
        weight_bytes(row)


def test_every_row_is_compared_refused_or_without_a_config() -> None:
    known = {row["repo"] for row in (*PLAIN, *QUANTIZED)} | set(REFUSED)
    assert all(row["repo"] in known for row in ROWS if row["config_json"])
