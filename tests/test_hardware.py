"""GPUs of the user's own, and what no GPU can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.errors import InputError
from kvplan.hardware import Price, define_gpu, facts_of, gpu_variant, label_gib, usual_usable_bytes
from kvplan.presets import list_gpus, load_gpu
from kvplan.units import GIB, MIB, TIB


def test_a_gpu_of_ones_own_is_what_was_given() -> None:
    gpu = define_gpu(
        name="Mine", usable_bytes=23 * GIB, bandwidth=936 * 10**9, label_bytes=24 * GIB, rent_usd_per_hour=0.5
    )
    assert gpu.usable_bytes == 23 * GIB
    assert gpu.usable_range == (23 * GIB, 23 * GIB)
    assert not gpu.is_estimate
    assert label_gib(gpu) == 24
    assert gpu.rent_per_hour == Price("rent", 0.5, "", "given by the user")
    assert gpu.list_price is None


def test_what_is_not_given_is_not_known() -> None:
    gpu = define_gpu(name="Mine", usable_bytes=GIB)
    assert (gpu.bandwidth, gpu.label_bytes, gpu.driver_bytes, gpu.node_gpus, gpu.rent_per_hour) == (None,) * 5
    assert label_gib(gpu) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"usable_bytes": 0},
        {"usable_bytes": -GIB},
        {"usable_bytes": 24},
        {"usable_bytes": 17 * TIB},
        {"usable_bytes": 24.0},
        {"usable_bytes": "24GiB"},
        {"bandwidth": 0},
        {"bandwidth": 1e12},
        {"bandwidth": 10**16},
        {"label_bytes": 0},
        {"driver_bytes": -1},
        {"node_gpus": 0},
        {"node_gpus": 5000},
        {"usable_bytes": True},
    ],
)
def test_an_absurd_gpu_is_refused(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(InputError, match=f"{name} is .*; (it must be from|a whole number is needed)"):
        define_gpu(**{"name": "Mine", "usable_bytes": GIB, **settings})


@pytest.mark.parametrize("usd", [0, -1, float("nan"), float("inf"), 10_001, "1", True])
def test_an_absurd_price_is_refused(usd: Any) -> None:
    with pytest.raises(InputError, match=r"rent_usd_per_hour is .*; give US dollars an hour"):
        define_gpu(name="Mine", usable_bytes=GIB, rent_usd_per_hour=usd)


def test_a_name_that_a_page_could_render_is_refused() -> None:
    with pytest.raises(InputError, match="GPU name is"):
        define_gpu(name="[a](b)", usable_bytes=GIB)


def test_the_lowest_price_of_each_kind_is_the_price() -> None:
    prices = (Price("rent", 3.0, "", ""), Price("list", 30_000.0, "", ""), Price("rent", 2.0, "", ""))
    gpu = replace(define_gpu(name="Mine", usable_bytes=GIB), prices=prices)
    assert gpu.rent_per_hour == prices[2]
    assert gpu.list_price == prices[1]


def test_the_usual_reserve_is_350_mib_and_a_quarter_of_a_percent() -> None:
    assert usual_usable_bytes(80 * GIB) == 80 * GIB - 350 * MIB - 80 * GIB // 400


def test_a_gpu_cannot_use_more_than_its_driver_sees() -> None:
    with pytest.raises(
        InputError, match="driver_bytes is 1GiB, less than usable_bytes 2GiB; it is at least that, or empty"
    ):
        define_gpu(name="X", usable_bytes=2 * GIB, driver_bytes=GIB)


# ---------------------------------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize("span", [(24 * GIB, 25 * GIB), (20 * GIB, 22 * GIB), (25 * GIB, 20 * GIB)])
def test_a_range_that_does_not_hold_the_usable_total_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=r"usable_range is .*, which does not hold usable_bytes 24,696,061,952"):
        define_gpu(name="Mine", usable_bytes=23 * GIB, usable_range=span)


def test_an_estimated_total_carries_its_range() -> None:
    gpu = define_gpu(name="Mine", usable_bytes=23 * GIB, usable_range=(22 * GIB, 24 * GIB), is_estimate=True)
    assert (gpu.usable_range, gpu.is_estimate, gpu.usable_basis) == (
        (22 * GIB, 24 * GIB), True, "estimated by the user",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- made from another


@pytest.mark.parametrize("name", list_gpus())
def test_a_gpu_made_from_a_preset_without_a_change_is_the_preset(name: str) -> None:
    preset = load_gpu(name)
    assert replace(gpu_variant(preset, facts_of(preset), "Mine"), name=preset.name, id=preset.id) == preset


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("label_bytes", 30 * GIB),
        ("driver_bytes", None),
        ("bandwidth", 10**12),
        ("node_gpus", 3),
        ("is_estimate", True),
        ("usable_range", (22 * GIB, 24 * GIB)),
    ],
)
def test_one_fact_of_a_gpu_changes_and_every_other_stays(fact: str, value: object) -> None:
    preset = load_gpu("l4-24gb")
    made = gpu_variant(preset, {**facts_of(preset), fact: value}, "Mine")
    assert facts_of(made) == {**facts_of(preset), fact: value}
    assert (made.prices, made.tflops, made.link, made.sources) == (
        preset.prices, preset.tflops, preset.link, preset.sources,
    )  # fmt: skip
    assert made.notes[0] == f"Made from {preset.name}, with figures of the user's own."


def test_another_rent_takes_the_place_of_published_rents_and_no_purchase_price() -> None:
    preset = next(gpu for gpu in map(load_gpu, list_gpus()) if gpu.list_price and gpu.rent_per_hour)
    made = gpu_variant(preset, {**facts_of(preset), "rent_usd_per_hour": 0.25}, "Mine")
    assert made.rent_per_hour == Price("rent", 0.25, "", "given by the user")
    assert made.list_price == preset.list_price


@pytest.mark.parametrize("label", ["label_bytes", "driver_bytes"])
def test_a_gpu_of_two_tebibytes_may_have_a_label_and_a_drivers_total(label: str) -> None:
    gpu = define_gpu(name="Mine", usable_bytes=2 * TIB, **{label: 3 * TIB})  # type: ignore[arg-type]
    assert gpu.usable_bytes == 2 * TIB
    with pytest.raises(InputError, match=r"^usable_bytes is .*; it must be from 1,048,576 to 17,592,186,044,416$"):
        define_gpu(name="Mine", usable_bytes=17 * TIB, **{label: 3 * TIB})  # type: ignore[arg-type]


@pytest.mark.parametrize("span", [(0, GIB), (-5, GIB), (1.5, GIB), (True, GIB), (GIB, 17 * TIB), (None, GIB)])
def test_the_ends_of_a_range_are_whole_numbers_of_bytes(span: Any) -> None:
    with pytest.raises(InputError, match=r"^usable_range is .*; (it must be from 1 to|a whole number is needed)"):
        define_gpu(name="Mine", usable_bytes=GIB, usable_range=span)


@pytest.mark.parametrize("span", [3, "1,2", (), (GIB,), (1, GIB, 2 * GIB), {"low": 1}])
def test_a_range_has_two_ends(span: Any) -> None:
    with pytest.raises(InputError, match=r"^usable_range is .*; \(lowest, highest\) in bytes is needed$"):
        define_gpu(name="Mine", usable_bytes=GIB, usable_range=span)


@pytest.mark.parametrize("bad", [None, 0, 1, "yes"])
def test_a_gpu_is_an_estimate_or_it_is_not(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^is_estimate is .*; True or False is needed$"):
        define_gpu(name="Mine", usable_bytes=GIB, is_estimate=bad)
