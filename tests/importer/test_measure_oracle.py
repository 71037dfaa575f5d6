"""Published configs that no rule counts, measured: parameters and cache bytes to the unit as the oracle states them."""

from __future__ import annotations

import re

import pytest

from kvplan.errors import UnsupportedConfigError
from kvplan.importer import import_config
from tests.importer.test_oracle import CONTEXTS, DATA, KV_DTYPES, REFUSED, ROWS, oracle_cache_bytes

pytest.importorskip("transformers")

NOT_MEASURED: dict[str, str] = {
    "Efficient-Large-Model__VILA1.5-3b": "knows no model_type 'llava_llama'",
    "OpenBMB__Scicore-Omics": "knows no model_type 'minicpmv'",
    "RWKV__rwkv-5-world-1b5": "knows no model_type 'rwkv5'",
    "RWKV__rwkv-6-world-1b6": "knows no model_type 'rwkv6'",
    "alibaba__Logics-Thinking-8B": "knows no model_type 'logics'",
    "deepseek-ai__DeepSeek-OCR": "knows no model_type 'deepseek_vl_v2'",
    "github_reubzdubz__Molmo-7B-D-NF4": "knows no model_type 'molmo'",
    "nvidia__LocateAnything-3B_auto-round_": "knows no model_type 'locateanything'",
    "openbmb__MiniCPM-V-4": "knows no model_type 'minicpmv'",
    "sgl-project__DeepSeek-V4-Flash-FP8": "knows no model_type 'deepseek_ref'",
    "stepfun-ai__Step-3.7-Flash": "architectures names Step3p7FlashForCausalLM",
    "stepfun-ai__Step-3.7-Flash-FP8": "architectures names Step3p7FlashForCausalLM",
}
"""What neither rules nor measurement count, with the words of the second refusal."""

TOKEN_COUNTER = {"NX-AI__xLSTM-7b@tfdefault": 8}
"""Bytes of an integer that counts tokens for the whole model: the oracle has it, and no layer keeps it."""

SLOW = frozenset(
    {
        "NX-AI__xLSTM-7b@tfdefault",
        "mistralai__Mistral-Large-4-1T-A52B@tfdefault",
        "tencent__Hy4@tfdefault",
        "thinkingmachines__Inkling-2-Small-MXFP8@tfdefault",
        "thinkingmachines__Inkling@tfdefault",
    }
)
"""Rows that take seconds: tests/benchmarks/measure_all.py --oracle measures them too."""

pytestmark = pytest.mark.usefixtures("measuring")


@pytest.mark.parametrize("name", sorted(set(REFUSED) - set(NOT_MEASURED) - SLOW))
def test_a_config_that_no_rule_counts_is_measured_as_the_oracle_states(name: str) -> None:
    assert_as_the_oracle_states(name)


def assert_as_the_oracle_states(name: str) -> None:
    expected, model = ROWS[name]["expected"], import_config(DATA / "configs" / f"{name}.json")
    is_text = expected["params_scope"] == "text"
    found = model.params_by_tower["text"] if is_text else model.num_params
    assert found == expected["text_params" if is_text else "n_params"]
    kv_dtype = KV_DTYPES[expected["oracle_dtype"]]
    held = [model.cache_bytes(tokens, kv_dtype=kv_dtype) + TOKEN_COUNTER.get(name, 0) for tokens in CONTEXTS]
    assert held == [oracle_cache_bytes(expected, tokens) for tokens in CONTEXTS]


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_a_config_that_nothing_counts_is_refused_with_both_reasons(name: str) -> None:
    both = f"{re.escape(REFUSED[name])}.*{re.escape(NOT_MEASURED[name])}"
    with pytest.raises(UnsupportedConfigError, match=both):
        import_config(DATA / "configs" / f"{name}.json")
