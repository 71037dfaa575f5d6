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

from kvplan.errors import InputError, UnsupportedConfigError
from kvplan.importer import import_config
from kvplan.model import Model

DATA = Path(__file__).parent.parent / "data"
ROWS = {row["file"].removeprefix("configs/").removesuffix(".json"): row for row in map(
    json.loads, (DATA / "config_oracle.jsonl").read_text(encoding="utf-8").splitlines()
)}  # fmt: skip
KV_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
CONTEXTS = (16, 4096, 131072)

REFUSED: dict[str, str] = {
    "CohereLabs__command-a-plus-05-2026@tfdefault": "no rule knows model_type 'cohere2_moe'",
    "Efficient-Large-Model__VILA1.5-3b": "no rule knows model_type 'llava_llama'",
    "JetBrains__Mellum2-12B-A2.5B-Base@tfdefault": "no rule knows model_type 'mellum'",
    "NX-AI__xLSTM-7b@tfdefault": "no rule knows model_type 'xlstm'",
    "OpenBMB__Scicore-Omics": "no rule knows model_type 'minicpmv'",
    "RWKV__rwkv-5-world-1b5": "no rule knows model_type 'rwkv5'",
    "RWKV__rwkv-6-world-1b6": "no rule knows model_type 'rwkv6'",
    "RecursiveSI__flint@tfdefault": "no rule knows model_type 'flint'",
    "alibaba__Logics-Thinking-8B": "no rule knows model_type 'logics'",
    "baidu__ERNIE-4.5-VL-28B-A3B-PT@tfdefault": "no rule knows model_type 'ernie4_5_vl_moe'",
    "deepseek-ai__DeepSeek-OCR": "no rule knows model_type 'deepseek_vl_v2'",
    "dots-studio__dots3-note-prev@tfdefault": "no rule knows model_type 'dots3_note'",
    "github_reubzdubz__Molmo-7B-D-NF4": "no rule knows model_type 'molmo'",
    "meta-models__Muse-Glimmer-30B@tfdefault": "no rule knows model_type 'muse_glimmer'",
    "mistralai__Mistral-Large-4-1T-A52B@tfdefault": "no rule knows model_type 'mistral_large4'",
    "nvidia__LocateAnything-3B_auto-round_": "no rule reads text_config.block_size",
    "nvidia__NVIDIA-Nemotron-Labs-Dory1.0-4B-BF16@tfdefault": "no rule knows model_type 'dory'",
    "openbmb__MiniCPM-V-4": "no rule knows model_type 'minicpmv'",
    "openbmb__MiniCPM-V-4_6-AWQ": "no rule knows model_type 'minicpmv4_6'",
    "poolside__laguna-XS.2@tfdefault": "no rule knows model_type 'laguna'",
    "sgl-project__DeepSeek-V4-Flash-FP8": "no rule knows model_type 'deepseek_ref'",
    "skt__A.X-K2@tfdefault": "no rule knows model_type 'axk2'",
    "stepfun-ai__Step-3.7-Flash": "no rule knows model_type 'step3p7'",
    "stepfun-ai__Step-3.7-Flash-FP8": "no rule knows model_type 'step3p7'",
    "swiss-ai__Apertus-v1.5-8B@tfdefault": "no rule knows model_type 'apertus1p5'",
    "tencent__Hy4@tfdefault": "no rule knows model_type 'hy_v4_vl'",
    "thinkingmachines__Inkling-2-Small-MXFP8@tfdefault": "no rule knows model_type 'inkling2'",
    "thinkingmachines__Inkling@tfdefault": "no rule knows model_type 'inkling_mm_model'",
    "translated__Lara-4-Mini-Base@tfdefault": "no rule knows model_type 'lara_mini'",
}
"""What no rule counts exactly, with the words of the refusal: this table shrinks as rules are written."""

STORAGE_UNKNOWN: dict[str, str] = {
    "meta-llama__Llama-4-Maverick-17B-128E-Instruct-FP8": "lacks ignore: by its number of elements only the routed",
    "mistralai__Devstral-2-123B-Instruct-2512": "the dtype of one scale a matrix is not stated",
    "mistralai__Devstral-Small-2-24B-Instruct-2512": "the dtype of one scale a matrix is not stated",
    "nvidia__Qwen3.6-35B-A3B-NVFP4": "config_groups group_1 and quantized_layers do not say the same",
}
"""Exact in parameters and cache, but how their files store the weights is not known, with the reason that is read."""


def oracle_cache_bytes(expected: dict[str, Any], tokens: int) -> int:
    """The cache of one sequence, from the oracle's runs of equal layers."""
    return sum(
        run["layers"] * (min(tokens, run["window"] or tokens) * int(run["bytes_per_token"]) + int(run["fixed_bytes"]))
        for run in expected["cache_runs"]
    )


def read(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return config


def assert_equals_the_oracle(model: Model, expected: dict[str, Any]) -> None:
    found = {"all": model.num_params, "text": model.params_by_tower["text"]}
    assert found[expected["params_scope"]] == expected.get("text_params", expected["n_params"])
    if expected["cache_runs"] and expected.get("cache_runs_comparable", True):
        kv_dtype = KV_DTYPES[expected["oracle_dtype"]]
        held = [model.cache_bytes(tokens, kv_dtype=kv_dtype) for tokens in CONTEXTS]
        assert held == [oracle_cache_bytes(expected, tokens) for tokens in CONTEXTS]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row["expected"] and name not in REFUSED])
def test_a_published_config_has_the_parameters_and_cache_bytes_of_its_class(name: str) -> None:
    assert_equals_the_oracle(import_config(read(name)), ROWS[name]["expected"])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_config_that_no_rule_counts_exactly_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=re.escape(REFUSED[name])):
        import_config(read(name))


@pytest.mark.parametrize("name", sorted(STORAGE_UNKNOWN))
def test_where_the_storage_is_not_known_only_the_published_weight_bytes_are_refused(name: str) -> None:
    model = import_config(read(name))
    with pytest.raises(InputError, match=re.escape(STORAGE_UNKNOWN[name])):
        model.weight_bytes()
    assert any(STORAGE_UNKNOWN[name] in note for note in model.notes)
    pinned = sum(g.params * n for g, n in model.all_groups if g.pinned)  # float32 whatever the weight dtype
    assert model.weight_bytes("bf16") == 2 * model.num_params + 2 * pinned


def test_the_storage_of_every_other_quantized_config_is_known() -> None:
    unknown = {name for name in ROWS if name not in REFUSED and import_config(read(name)).storage_unknown}
    assert unknown == set(STORAGE_UNKNOWN)


V4 = [name for name, row in ROWS.items() if (row["expected"] or {}).get("cache_runs_comparable") is False]


@pytest.mark.parametrize("name", sorted(set(V4) - set(REFUSED)))
def test_deepseek_v4_keeps_the_bytes_that_the_oracle_states_for_a_long_context(name: str) -> None:
    expected, model = ROWS[name]["expected"], import_config(read(name))
    assert model.cache_bytes(expected["long_T"]) == expected["cache_bytes_at_long_T"]


def test_no_refusal_stands_for_a_config_that_the_tests_do_not_hold() -> None:
    assert set(REFUSED) | set(STORAGE_UNKNOWN) <= set(ROWS)


# ------------------------------------------------------------------------------------------- what vLLM's reader finds

VLLM = {
    row["model_id"].replace("/", "__"): row
    for row in map(json.loads, (DATA / "vllm_importer_golden.jsonl").read_text(encoding="utf-8").splitlines())
}
SAME_MODEL = {"tiiuae__falcon-7b": "tiiuae__falcon-7b@RefinedWebModel"}
COMMON = {SAME_MODEL.get(name, name): row for name, row in VLLM.items() if SAME_MODEL.get(name, name) in ROWS}


COPIED_HEADS = {"tiiuae__falcon-40b"}
"""transformers keeps a copy of the 8 KV heads for each of the 128 query heads, and the oracle counts what it keeps."""


@pytest.mark.parametrize("name", [name for name in COMMON if name not in REFUSED])
def test_the_geometry_is_the_one_that_vllm_reads(name: str) -> None:
    row, model = COMMON[name], import_config(read(name))
    assert (model.num_layers, model.hidden_size) == (row["total_num_hidden_layers"], row["hidden_size"])
    assert (model.num_attention_heads, model.vocab_size) == (row["total_num_attention_heads"], row["vocab_size"])
    if not row["is_deepseek_mla"] and name not in COPIED_HEADS:
        assert model.num_kv_heads == row["total_num_kv_heads"]
