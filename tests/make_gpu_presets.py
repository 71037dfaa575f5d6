"""Writes presets/gpus/ from tests/data: `python tests/make_gpu_presets.py`.

gpus.jsonl         the figures of each accelerator, with their sources
gpu_memory.jsonl   totals as reported on real machines
gpu_presets.jsonl  which rows become presets and under which ids, with notes; or why a row is left out
gpu_prices.jsonl   public prices, dated
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvplan.hardware import USUAL_USABLE_SPREAD, Gpu, Price, usual_usable_bytes
from kvplan.presets import SHIPPED, save_gpu
from kvplan.units import GIB, MIB

DATA = Path(__file__).resolve().parent / "data"
VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "google": "Google", "apple": "Apple"}
READERS = {"NVIDIA": "CUDA", "AMD": "ROCm", "Intel": "SYCL", "Google": "JAX"}
"""Whose programs read the total, by vendor; Gaudi has its own."""

Row = dict[str, Any]
Usable = dict[str, Any]


def read_rows(name: str) -> list[Row]:
    """The rows of one file in tests/data."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def gpu_rows() -> list[Gpu]:
    """Every GPU preset, sorted by id."""
    figures = {row["id"]: row for row in read_rows("gpus.jsonl")}
    readings = read_rows("gpu_memory.jsonl")
    prices = read_rows("gpu_prices.jsonl")
    made = [
        _gpu(figures[choice["row"]], choice, gb, readings, prices)
        for choice in read_rows("gpu_presets.jsonl")
        for gb in choice.get("label_gb", ())
    ]
    return sorted(made, key=lambda gpu: gpu.id)


def _gpu(row: Row, choice: Row, gb: int, readings: list[Row], prices: list[Row]) -> Gpu:
    own = [reading for reading in readings if reading["gpu_name"] in choice.get("memory_names", ())]
    usable = _usable(row, choice, gb, own)
    name = f"{choice['stem']}-{gb}gb"
    return Gpu(
        id=name,
        name=_display_name(choice.get("name", row["name"]), gb),
        vendor=VENDORS[row["vendor"]],
        architecture=row["arch"],
        memory=row["mem_type"],
        # Google's 95 GB is less than the 95.7 GiB that programs see, so it is no size in GiB
        label_bytes=gb * GIB if gb * GIB >= usable["usable_bytes"] else None,
        driver_bytes=_mib(row["driver_total_mib"]),
        bandwidth=_gigabytes(row["bandwidth_gb_s"]),
        tflops=_tflops(row),
        link=row["interconnect"] or "",
        link_bandwidth=_gigabytes(row["interconnect_gb_s_bidir"]),
        node_gpus=row["node_gpus"],
        prices=tuple(_price(price) for price in prices if price["gpu"] == name),
        confidence=row["confidence"],
        sources=_sources(row, own),
        notes=_notes(row, choice, gb),
        **usable,
    )


# --------------------------------------------------------------------------------------------------- usable total


def program_totals_mib(readings: Iterable[Row]) -> list[float]:
    """The totals that programs read: neither the driver's, nor rounded ones, nor what was free."""
    words = ("smi", "rounded", "free")
    return [row["reported_mib"] for row in readings if not any(word in row["source_kind"] for word in words)]


def _usable(row: Row, choice: Row, gb: int, readings: list[Row]) -> Usable:
    measured = [*(row["visible_total_mib"] or ()), *program_totals_mib(readings)]
    if "usable" in choice:
        given = choice["usable"]
        return _estimate(given["basis"], given["mib"] * MIB, *(mib * MIB for mib in given["range_mib"]))
    if row["vendor"] == "apple":
        return _apple_usable(_apple_limit(row, gb))
    if measured:
        return _measured(row, measured)
    return _usual(row["driver_total_mib"] * MIB)


def _measured(row: Row, totals_mib: list[float]) -> Usable:
    low, high = math.floor(min(totals_mib)) * MIB, math.ceil(max(totals_mib)) * MIB
    reader = "HPU" if row["arch"].startswith("Gaudi") else READERS[VENDORS[row["vendor"]]]
    return {
        "usable_bytes": low,
        "usable_basis": f"measured: the lowest total that {reader} programs read on real machines",
        "usable_range": (low, high),
        "is_estimate": False,
    }


def _usual(driver_bytes: int) -> Usable:
    usable = usual_usable_bytes(driver_bytes)
    basis = (
        "estimate: the driver's total less 350 MiB and 0.25 % of it, within 140 MiB on most parts that were measured"
    )
    return _estimate(basis, usable, usable - USUAL_USABLE_SPREAD, usable + USUAL_USABLE_SPREAD)


def _apple_usable(limit: Row) -> Usable:
    low, high = _megabytes(limit["old_macos_mb"]), _megabytes(limit["new_macos_mb"])
    basis = "estimate: what macOS lets the GPU use by default, by older releases; newer ones allow the high end"
    return _estimate(basis, low, low, high)


def _apple_limit(row: Row, gb: int) -> Row:
    return next(limit for limit in row["gpu_limit"] if limit["gb"] == gb)


def _estimate(basis: str, usable: int, low: int, high: int) -> Usable:
    return {"usable_bytes": usable, "usable_basis": basis, "usable_range": (low, high), "is_estimate": True}


# ------------------------------------------------------------------------------------------------- figures, words


def _mib(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def _gigabytes(figure: float | None) -> int | None:
    return None if figure is None else int(Decimal(str(figure)) * 10**9)


def _megabytes(figure: float) -> int:
    return int(Decimal(str(figure)) * 10**6)


def _tflops(row: Row) -> dict[str, float]:
    """Dense TFLOP/s by dtype; the 16-bit figure of the tensor cores before Ampere is fp16's."""
    old = row["arch"] in ("Volta", "Turing")
    rates = {"fp16" if old and dtype == "bf16" else dtype: rate for dtype, rate in row["tflops_dense"].items()}
    return {dtype: float(rate) for dtype, rate in rates.items() if rate}


def _display_name(name: str, gb: int) -> str:
    """`name` with its memory, before any remark in brackets."""
    head, bracket, tail = name.partition(" (")
    return name if f"{gb}GB" in name else f"{head} {gb}GB{bracket}{tail}"


def _price(row: Row) -> Price:
    where = f"{row['seller']}: {row['page']}"
    seen = f", as listed in {row['read_in']}" if "read_in" in row else ""
    note = f" ({row['note']})" if "note" in row else ""
    return Price(row["kind"], float(row["usd"]), row["date"], where + seen + note)


def _sources(row: Row, readings: list[Row]) -> tuple[str, ...]:
    pages = [_address(page) for page in (row["vendor_url"], row["secondary_url"]) if page]
    pages += [reading["source_url"] for reading in readings]
    said = {
        "Apple's specification pages": row["vendor"] == "apple",
        "total of the driver, read on real machines": row["driver_total_mib"],
        "total that programs see, read on real machines": row["visible_total_mib"],
    }
    return tuple(dict.fromkeys([*pages, *(text for text, holds in said.items() if holds)]))


def _address(page: str) -> str:
    """The address in `page`, which may stand in brackets behind the name of a file."""
    inside = re.search(r"\((https?://[^)]+)\)$", page)
    return inside[1] if inside else page


def _notes(row: Row, choice: Row, gb: int) -> tuple[str, ...]:
    notes = list(choice.get("notes", ()))
    if row["vendor"] == "apple" and _apple_limit(row, gb)["new_status"] == "interpolated":
        notes.append("The high end of the usable range is interpolated from machines with other memory sizes.")
    if row["confidence"] == "low":
        notes.append("Low confidence: few sources state these figures, so check them before relying on them.")
    return tuple(notes)


def write_presets(directory: Path) -> list[Path]:
    """Write every preset into `directory`, beside those that were written by hand. Returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    return [save_gpu(gpu, directory) for gpu in gpu_rows()]


if __name__ == "__main__":
    print(f"{len(write_presets(SHIPPED / 'gpus'))} presets")
