"""Scenario presets: each can be planned and linked, and what its lesson says is what the plan says."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.share import from_link, to_link
from kvplan.units import GIB


def planned(name: str, **changes: object) -> MemoryPlan:
    return plan(Scenario(**{**kvplan.load_scenario(name).fields, **changes}))


def test_at_least_six_scenarios_are_shipped() -> None:
    assert len(kvplan.list_scenarios()) >= 6


@pytest.mark.parametrize("name", kvplan.list_scenarios())
def test_every_scenario_can_be_planned_and_linked_and_teaches_something(name: str) -> None:
    scenario = Scenario(**kvplan.load_scenario(name).fields)
    assert plan(scenario).fits
    assert from_link(to_link(scenario)) == scenario
    assert len(kvplan.load_scenario(name).lesson) > 80


def test_llama_2_7b_keeps_half_a_mebibyte_a_token_and_8_gib_for_four_sequences() -> None:
    four = planned("7b-on-a-24-gb-card", batch_size=4)
    assert four.bytes_per_token == 2 * 32 * 32 * 128 * 2 == 524_288
    assert four.cache_bytes == 8 * GIB
    assert not four.fits


def test_70b_in_16_bit_leaves_no_room_for_one_sequence_of_5_gib_on_two_h100() -> None:
    one = planned("70b-on-two-h100-at-32k", weight_dtype=None, kv_dtype="bf16", batch_size=1)
    assert one.cache_bytes == 5 * GIB
    assert one.fits_empty
    assert one.max_batch_size == 0


def test_mha_would_take_four_times_the_cache() -> None:
    assert planned("what-mha-would-cost").cache_bytes == 4 * planned("what-mha-would-cost", num_kv_heads=8).cache_bytes


def test_the_bigger_model_has_the_smaller_cache() -> None:
    big = planned("bigger-model-smaller-cache")
    assert big.bytes_per_token * 2 == 80 * 8 * 128 * 2 * 2 == 327_680  # two GPUs
    assert big.bytes_per_token * 2 < planned("7b-on-a-24-gb-card").bytes_per_token
    assert big.scenario.model.num_params > 10 * kvplan.load_model("llama-2-7b").num_params


def test_a_latent_is_the_same_on_every_number_of_gpus() -> None:
    sizes = {planned("latent-attention-at-128k", tensor_parallel=n).bytes_per_token for n in (1, 2, 4, 8, 16)}
    assert sizes == {61 * (512 + 64) * 2}


def test_gemmas_windows_make_a_sixth_of_full_attention() -> None:
    full = 62 * 2 * 16 * 128 * 2 * 131_072
    windows = (10 * 131_072 + 52 * 1024) * 2 * 16 * 128 * 2
    assert planned("window-model-at-128k").cache_bytes == windows
    assert 0.15 < windows / full < 0.18


def test_a_hybrid_pays_for_one_layer_in_four() -> None:
    p = planned("hybrid-at-256k", tensor_parallel=1)
    assert p.bytes_per_token == 12 * 2 * 2 * 256 * 2 == 24_576
    assert (
        p.cache_bytes // 4 == 262_144 * 24_576 + 36 * 2_162_688
    )  # 36 states: 32 x 128 x 128 fp32, and the convolution


def test_scales_cost_four_bytes_a_row() -> None:
    rows = 2 * 36 * 8
    assert planned("two-kinds-of-8-bit-cache").bytes_per_token == rows * (128 + 4)
    assert planned("two-kinds-of-8-bit-cache", kv_dtype="fp8").bytes_per_token == rows * 128


def test_latents_in_replicas_are_an_eighth_and_fit_where_tensor_parallelism_does_not() -> None:
    replicas = planned("attention-in-replicas")
    shared = planned("attention-in-replicas", tensor_parallel=8, data_parallel=1)
    assert replicas.cache_bytes * 8 == shared.cache_bytes == 64 * 32768 * 61 * (512 + 64) * 2
    assert replicas.weight_bytes > shared.weight_bytes
    assert replicas.scenario.num_gpus == shared.scenario.num_gpus == 8
    assert replicas.fits
    assert not shared.fits
