"""The table of what cannot be measured by the defaults of its class: complete, current, and each reason as stated.

`tests/benchmarks/measure_all.py --write` makes the table; here the part of it is repeated that is fast.
"""

from __future__ import annotations

import re

import pytest

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import UnsupportedConfigError
from kvplan.importer.measure import measure_config
from tests.benchmarks.measure_all import NEEDS, config_of, decoder_types
from tests.importer.measurement_table import DIFFERS, MEASURED, REFUSED

pytest.importorskip("transformers")

SLOW = frozenset({"deepseek_ocr2", "qwen3_omni_moe"})
"""Types whose class takes long before it fails."""

SAMPLE = ("ministral3", "lfm3", "granite_swa", "minicpmv4_6", "longcat_flash", "zaya", "rwkv")
"""Measured types that no rule reads or that have a kind of their own, and that are fast."""


def test_every_decoder_type_of_the_installed_transformers_stands_in_the_table() -> None:
    assert sorted({*REFUSED, *DIFFERS, *MEASURED}) == decoder_types()


def test_no_type_is_measured_otherwise_than_its_rule_counts_it() -> None:
    assert DIFFERS == {}


@pytest.mark.parametrize("model_type", sorted(set(REFUSED) - SLOW))
def test_a_type_that_its_defaults_do_not_build_or_run_is_refused_with_the_reason(model_type: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=re.escape(REFUSED[model_type])):
        measure_config(config_of(model_type))


def test_what_a_class_needs_beside_its_defaults_makes_it_measurable() -> None:
    assert set(NEEDS) <= set(MEASURED)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_type_that_its_defaults_build_is_measured(model_type: str) -> None:
    assert model_type in MEASURED
    model = measure_config(config_of(model_type), dtype=WEIGHT_FORMATS["bf16"])
    assert model.num_params > 0
    assert model.cache_bytes(4_096) > 0
