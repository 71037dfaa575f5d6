"""The GPU library: every preset is what the script makes of the data, and its totals agree with real machines."""

from __future__ import annotations

import re
from datetime import date

import pytest

from kvplan.hardware import Gpu
from kvplan.presets import SHIPPED, list_gpus, load_gpu
from kvplan.units import GIB, MIB
from tests.make_gpu_presets import gpu_rows, read_rows, write_presets

USUAL = [
    "h100-sxm-80gb",
    "a100-sxm-80gb",
    "h200-141gb",
    "rtx-4090-24gb",
    "rtx-3090-24gb",
    "l4-24gb",
    "t4-16gb",
    "mi300x-192gb",
]
POPULAR = [
    "a10-24gb",
    "a10g-24gb",
    "a100-pcie-80gb",
    "b200-180gb",
    "h100-pcie-80gb",
    "l40s-48gb",
    "rtx-5090-32gb",
    "rtx-a6000-48gb",
    "v100-sxm-16gb",
]
MADE = [gpu.id for gpu in gpu_rows()]
"""Presets of the script; others may have been written by hand."""

NAMES = {
    "Tesla T4": "t4-16gb",
    "A10": "a10-24gb",
    "A10G": "a10g-24gb",
    "L4": "l4-24gb",
    "L40S": "l40s-48gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "H100 80GB": "h100-sxm-80gb",
    "H100 80GB HBM3": "h100-sxm-80gb",
    "H200 141GB": "h200-141gb",
    "B200": "b200-180gb",
    "MI300X": "mi300x-192gb",
    "RTX 3060 12GB": "rtx-3060-12gb",
    "RTX 3090": "rtx-3090-24gb",
    "RTX 4080": "rtx-4080-16gb",
    "RTX 4090": "rtx-4090-24gb",
    "RTX 5070": "rtx-5070-12gb",
    "RTX 5070 Ti": "rtx-5070-ti-16gb",
    "RTX 5080": "rtx-5080-16gb",
    "RTX 5090": "rtx-5090-32gb",
    "RTX PRO 6000 Blackwell 96GB": "rtx-pro-6000-96gb",
    "GB10 (DGX Spark)": "gb10-128gb",
    "Intel Arc A770 16GB": "arc-a770-16gb",
    "Gaudi2 96GB": "gaudi2-96gb",
}
"""The names under which totals were reported, and the preset that each one is."""


@pytest.fixture(params=list_gpus())
def gpu(request: pytest.FixtureRequest) -> Gpu:
    """Every preset."""
    return load_gpu(request.param)


@pytest.fixture(params=MADE)
def made(request: pytest.FixtureRequest) -> Gpu:
    """Every preset of the script."""
    return load_gpu(request.param)


# -------------------------------------------------------------------------------------------------------- library


def test_at_least_60_gpus_are_shipped_among_them_the_usual_ones():
    assert len(list_gpus()) >= 60
    assert set(USUAL) <= set(list_gpus())


def test_a_preset_file_is_what_the_script_makes_of_the_data(tmp_path):
    made = {path.name: path.read_text(encoding="utf-8") for path in write_presets(tmp_path)}
    shipped = {name: (SHIPPED / "gpus" / name).read_text(encoding="utf-8") for name in made}
    assert shipped == made


def test_a_preset_reads_back_to_the_gpu_that_was_written():
    assert [load_gpu(name) for name in MADE] == gpu_rows()


def test_every_row_of_the_data_becomes_a_preset_or_has_a_reason():
    choices = read_rows("gpu_presets.jsonl")
    assert sorted(row["row"] for row in choices) == sorted(row["id"] for row in read_rows("gpus.jsonl"))
    assert all(bool(row.get("label_gb")) != bool(row.get("left_out")) for row in choices)


def test_ids_are_unique_and_end_in_the_memory():
    assert len(set(MADE)) == len(MADE)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-\d+gb", name) for name in MADE)


def test_display_names_are_unique():
    names = [load_gpu(name).name for name in list_gpus()]
    assert len(set(names)) == len(names)


# --------------------------------------------------------------------------------------------------------- totals


def test_the_usable_total_lies_in_its_range_and_below_driver_and_label(gpu: Gpu):
    low, high = gpu.usable_range
    assert 0 < low <= gpu.usable_bytes <= high
    assert high <= (gpu.driver_bytes or high)
    assert high <= (gpu.label_bytes or high)
    assert (gpu.driver_bytes or 0) <= (gpu.label_bytes or high)


def test_no_usable_total_is_far_below_its_label_unless_the_memory_is_shared(made: Gpu):
    share = 0.5 if "unified" in made.memory else 0.9
    assert made.usable_range[0] >= share * (made.label_bytes or 0)


def test_an_estimate_says_so_and_a_measured_total_is_the_lowest_seen(made: Gpu):
    kind, _, how = made.usable_basis.partition(": ")
    assert kind == ("estimate" if made.is_estimate else "measured")
    assert how
    assert made.is_estimate or made.usable_bytes == made.usable_range[0]


def test_low_confidence_is_said_in_the_notes(made: Gpu):
    assert any("Low confidence" in note for note in made.notes) == (made.confidence == "low")


def reported(*, by_driver: bool) -> list[tuple[str, str, float]]:
    """(preset, name, MiB) of the totals reported on real machines, without rounded ones and free amounts."""
    rows = [row for row in read_rows("gpu_memory.jsonl") if row["gpu_name"] in NAMES]
    exact = [row for row in rows if not re.search("rounded|free", row["source_kind"])]
    of_kind = [row for row in exact if ("nvidia-smi" in row["source_kind"]) == by_driver]
    return [
        (NAMES[row["gpu_name"]], row["gpu_name"], row["reported_mib"])
        for row in of_kind
        if "rocm-smi" not in row["source_kind"]
    ]


@pytest.mark.parametrize(("preset", "name", "mib"), reported(by_driver=False))
def test_a_total_that_a_program_reported_lies_in_the_usable_range(preset: str, name: str, mib: float):
    low, high = load_gpu(preset).usable_range
    assert low <= mib * MIB <= high


@pytest.mark.parametrize(("preset", "name", "mib"), reported(by_driver=True))
def test_a_total_that_the_driver_reported_is_the_drivers_total(preset: str, name: str, mib: float):
    assert load_gpu(preset).driver_bytes == mib * MIB


def test_the_usual_gpus_have_these_totals():
    """Lowest totals that programs read, and the drivers' totals, in MiB."""
    totals = {name: (load_gpu(name).usable_bytes / MIB, (load_gpu(name).driver_bytes or 0) / MIB) for name in USUAL}
    assert totals == {
        "h100-sxm-80gb": (81_008, 81_559),
        "a100-sxm-80gb": (81_039, 81_920),
        "h200-141gb": (143_073, 143_771),
        "rtx-4090-24gb": (24_084, 24_564),
        "rtx-3090-24gb": (24_115, 24_576),
        "l4-24gb": (22_559, 23_034),
        "t4-16gb": (14_909, 15_360),
        "mi300x-192gb": (196_592, 0),
    }


def test_a_gpu_that_nobody_measured_gets_the_usual_reserve_and_its_spread():
    a30 = load_gpu("a30-24gb")
    assert a30.driver_bytes == 24 * GIB
    assert a30.usable_bytes == 24 * GIB - 350 * MIB - 24 * GIB // 400
    assert a30.usable_range == (a30.usable_bytes - 140 * MIB, a30.usable_bytes + 140 * MIB)
    assert a30.is_estimate


def test_an_apple_chip_is_estimated_from_what_macos_lets_the_gpu_use():
    m4 = load_gpu("apple-m4-16gb")
    assert (m4.label_bytes, m4.driver_bytes) == (16 * GIB, None)
    assert m4.usable_range == (11_453_200_000, 12_713_100_000)  # two thirds and 74 % of 16 GiB
    assert m4.usable_bytes == 11_453_200_000
    assert m4.is_estimate


def test_shared_memory_on_linux_starts_from_half_of_it():
    assert [load_gpu(f"strix-halo-{gb}gb").usable_bytes for gb in (64, 96, 128)] == [32 * GIB, 48 * GIB, 64 * GIB]


# --------------------------------------------------------------------------------------------------- other figures


def test_the_bandwidth_is_that_of_a_real_memory(made: Gpu):
    assert made.bandwidth is not None
    assert 60 * 10**9 <= made.bandwidth <= 8_000 * 10**9


def test_bandwidths_are_exact():
    names = ("h100-sxm-80gb", "t4-16gb", "rtx-4080-16gb", "apple-m1-16gb", "apple-m5-32gb")
    assert [load_gpu(name).bandwidth for name in names] == [
        3_350_000_000_000,
        320_000_000_000,
        716_800_000_000,
        68_250_000_000,
        153_600_000_000,
    ]


def test_a_gpu_without_bf16_states_its_16_bit_rate_as_fp16():
    assert dict(load_gpu("t4-16gb").tflops) == {"fp16": 65, "int8": 130}
    assert dict(load_gpu("h100-sxm-80gb").tflops) == {"bf16": 989, "fp8": 1979, "int8": 1979}


def test_sources_are_pages_or_plain_words(made: Gpu):
    assert any(source.startswith("https://") for source in made.sources) or made.vendor == "Apple"
    assert all(re.match(r"https?://\S+$|[A-Za-z][\w', ]+$", source) for source in made.sources)


# --------------------------------------------------------------------------------------------------------- prices


def test_every_price_belongs_to_a_preset_and_has_a_date_and_a_page():
    for row in read_rows("gpu_prices.jsonl"):
        assert row["gpu"] in list_gpus()
        assert date.fromisoformat(row["date"]) >= date(2018, 1, 1)
        assert row["page"].startswith("https://")
        assert row["seller"]


def test_a_price_names_its_page_and_is_plausible(gpu: Gpu):
    bounds = {"rent": (0.04, 15), "list": (200, 10_000)}
    for price in gpu.prices:
        low, high = bounds[price.kind]
        assert low <= price.usd <= high
        assert "https://" in price.source


@pytest.mark.parametrize("name", [*USUAL, *POPULAR])
def test_popular_gpus_have_a_rental_price(name: str):
    assert load_gpu(name).rent_per_hour is not None


def test_the_lowest_rental_price_and_the_launch_price_are_found():
    h100, rtx_4090 = load_gpu("h100-sxm-80gb"), load_gpu("rtx-4090-24gb")
    assert (h100.rent_per_hour.usd, h100.rent_per_hour.date, h100.list_price) == (2.69, "2026-11-09", None)
    assert (rtx_4090.rent_per_hour.usd, rtx_4090.list_price.usd) == (0.34, 1599)
