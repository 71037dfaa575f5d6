"""A GPU as the planner sees it: the memory that a program can use, its bandwidth, its price, and the sources.

Three totals are never mixed: the label on the box, the driver's total (`nvidia-smi`), and the usable total that
a program can allocate (CUDA-visible). Planning starts from the usable one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kvplan.errors import InputError, quoted
from kvplan.names import clean_name
from kvplan.units import GIB, MIB, TIB, listed, whole_number, write_bytes

Confidence = Literal["high", "medium", "low"]

MAX_GPU_BYTES = 16 * TIB


@dataclass(frozen=True, slots=True)
class Price:
    """A public price of one GPU.

    kind    "rent" in US dollars an hour, or "list" in US dollars to buy
    usd     the price
    date    when it was read, as YYYY-MM-DD
    source  where
    """

    kind: Literal["rent", "list"]
    usd: float
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator.

    name               as people write it
    usable_bytes       what a program can allocate
    usable_basis       how that total is known: measured, driver total less the usual reserve, ...
    usable_range       (lowest, highest) seen or expected, in bytes
    is_estimate        the usable total was not measured
    label_bytes        the number on the box, read as GiB, since memory chips come in powers of two; or None
    driver_bytes       the driver's total, or None
    bandwidth          bytes a second from its memory, or None
    tflops             dense TFLOP/s by dtype
    link, link_bandwidth  how GPUs of a node are connected, and bytes a second both ways together, or None
    node_gpus          GPUs of the usual node, or None
    prices             public prices, dated
    confidence         how well the figures are sourced; never show "low" without saying so
    """

    name: str
    usable_bytes: int
    usable_basis: str
    usable_range: tuple[int, int]
    is_estimate: bool
    id: str = ""
    vendor: str = ""
    architecture: str = ""
    memory: str = ""
    label_bytes: int | None = None
    driver_bytes: int | None = None
    bandwidth: int | None = None
    tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    link: str = ""
    link_bandwidth: int | None = None
    node_gpus: int | None = None
    prices: tuple[Price, ...] = ()
    confidence: Confidence = "high"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        clean_name(self.name, "GPU name")
        whole_number(self.usable_bytes, "usable_bytes", low=MIB, high=MAX_GPU_BYTES)
        for name, high in GPU_LIMITS.items():
            if (value := getattr(self, name)) is not None:
                whole_number(value, name, high=high)
        if self.driver_bytes is not None and self.usable_bytes > self.driver_bytes:
            raise InputError(f"usable_bytes {self.usable_bytes:,} is more than the driver's {self.driver_bytes:,}")
        if not isinstance(self.is_estimate, bool):
            raise InputError(f"is_estimate is {quoted(self.is_estimate)}; True or False is needed")
        object.__setattr__(self, "usable_range", _whole_range(self.usable_range))
        low, high = self.usable_range
        if not low <= self.usable_bytes <= high:
            raise InputError(
                f"usable_range is {low:,} to {high:,}, which does not hold usable_bytes {self.usable_bytes:,}"
            )

    @property
    def rent_per_hour(self) -> Price | None:
        """The lowest public rental price, or None."""
        return min((price for price in self.prices if price.kind == "rent"), key=lambda p: p.usd, default=None)

    @property
    def list_price(self) -> Price | None:
        """The lowest public purchase price, or None."""
        return min((price for price in self.prices if price.kind == "list"), key=lambda p: p.usd, default=None)


def _whole_range(given: object) -> tuple[int, int]:
    what = "(lowest, highest) in bytes"
    ends = listed(given, "usable_range", what)
    if len(ends) != 2:
        raise InputError(f"usable_range is {quoted(given)}; {what} is needed")
    low, high = (whole_number(end, "usable_range", high=MAX_GPU_BYTES) for end in ends)
    return low, high


GPU_LIMITS = {
    "label_bytes": MAX_GPU_BYTES,
    "driver_bytes": MAX_GPU_BYTES,
    "bandwidth": 10**15,
    "link_bandwidth": 10**15,
    "node_gpus": 4096,
}
"""The most that a GPU's field may say; beyond it a number is a slip of the hand."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of several equal GPUs.

    name      as people write it
    gpu       the id of its GPUs' preset
    num_gpus  how many it has
    source    where that is known from
    """

    name: str
    gpu: str
    num_gpus: int
    source: str
    id: str = ""

    def __post_init__(self) -> None:
        clean_name(self.name, "node name")
        whole_number(self.num_gpus, "num_gpus", high=4096)


def usual_usable_bytes(driver_bytes: int) -> int:
    """The CUDA-visible total where nobody measured it: the driver's total less 350 MiB and 0.25 % of it.

    Within 140 MiB on most parts whose both totals are known.
    """
    return driver_bytes - 350 * MIB - driver_bytes * 25 // 10_000


USUAL_USABLE_SPREAD = 140 * MIB
"""How far `usual_usable_bytes` was off on the parts where it could be checked."""


def define_gpu(
    *,
    name: str,
    usable_bytes: int,
    bandwidth: int | None = None,
    label_bytes: int | None = None,
    driver_bytes: int | None = None,
    node_gpus: int | None = None,
    rent_usd_per_hour: float | None = None,
    usable_range: tuple[int, int] | None = None,
    is_estimate: bool = False,
) -> Gpu:
    """A GPU of the user's own.

    usable_bytes  what a program can allocate (torch.cuda.mem_get_info()[1]), in bytes
    bandwidth     bytes a second, for the decode floor; None: no floor is shown
    usable_range  (lowest, highest) expected; None: exactly usable_bytes
    is_estimate   nobody measured usable_bytes

    Raises InputError.
    """
    for total, field_name in ((label_bytes, "label_bytes"), (driver_bytes, "driver_bytes")):
        _require_room(total, field_name, usable_bytes)
    price = () if rent_usd_per_hour is None else (_own_price(rent_usd_per_hour),)
    return Gpu(
        name=clean_name(name, "GPU name"),
        usable_bytes=usable_bytes,
        usable_basis=ESTIMATED if is_estimate is True else GIVEN,
        usable_range=(usable_bytes, usable_bytes) if usable_range is None else usable_range,
        is_estimate=is_estimate,
        bandwidth=bandwidth,
        label_bytes=label_bytes,
        driver_bytes=driver_bytes,
        node_gpus=node_gpus,
        prices=price,
        sources=("defined by the user",),
    )


def _require_room(total: int | None, name: str, usable_bytes: int) -> None:
    """No program can allocate more than the box says or the driver sees."""
    usable = whole_number(usable_bytes, "usable_bytes", MIB, MAX_GPU_BYTES)
    if total is not None and whole_number(total, name, high=MAX_GPU_BYTES) < usable:
        raise InputError(
            f"{name} is {write_bytes(total)}, less than usable_bytes {write_bytes(usable_bytes)}; it is at least that, "
            "or empty"
        )


GIVEN, ESTIMATED = "given by the user", "estimated by the user"


def facts_of(gpu: Gpu) -> dict[str, Any]:
    """What a form can hold of `gpu`, by the keywords of `define_gpu`; the range only where it is one."""
    low, high = gpu.usable_range
    rent = gpu.rent_per_hour
    return {
        "usable_bytes": gpu.usable_bytes,
        "is_estimate": gpu.is_estimate,
        "usable_range": None if low == high else (low, high),
        "label_bytes": gpu.label_bytes,
        "driver_bytes": gpu.driver_bytes,
        "bandwidth": gpu.bandwidth,
        "node_gpus": gpu.node_gpus,
        "rent_usd_per_hour": None if rent is None else rent.usd,
    }


def gpu_variant(gpu: Gpu, facts: Mapping[str, Any], name: str) -> Gpu:
    """`gpu` under another name with the facts that differ from its own; whatever else is known of it stays.

    facts  by the keywords of `define_gpu`, all of them

    Raises InputError.
    """
    before = facts_of(gpu)
    if facts == before:
        return replace(gpu, name=clean_name(name, "GPU name"), id="")
    own = define_gpu(name=name, **facts)
    usable = {key: getattr(own, key) for key in ("usable_bytes", "usable_range", "is_estimate", "usable_basis")}
    memory = ("usable_bytes", "usable_range", "is_estimate")
    changed = usable if any(facts[key] != before[key] for key in memory) else {}
    prices = gpu.prices if facts["rent_usd_per_hour"] == before["rent_usd_per_hour"] else _with_rent(gpu, own.prices)
    plain = {key: facts[key] for key in ("label_bytes", "driver_bytes", "bandwidth", "node_gpus")}
    told = f"Made from {gpu.name}, with figures of the user's own."
    return replace(gpu, name=own.name, id="", prices=prices, notes=(told, *gpu.notes), **plain, **changed)


def _with_rent(gpu: Gpu, rent: tuple[Price, ...]) -> tuple[Price, ...]:
    return (*rent, *(price for price in gpu.prices if price.kind != "rent"))


def _own_price(usd: float) -> Price:
    number = isinstance(usd, int | float) and not isinstance(usd, bool)
    if not number or not math.isfinite(usd) or not 0 < usd <= 10_000:
        raise InputError(f"rent_usd_per_hour is {quoted(usd)}; give US dollars an hour, up to 10,000")
    return Price("rent", float(usd), "", "given by the user")


def label_gib(gpu: Gpu) -> int | None:
    """The label as the box writes it, in whole GiB."""
    return None if gpu.label_bytes is None else gpu.label_bytes // GIB
