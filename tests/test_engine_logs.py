"""Public start-up logs against the rules: run with -s to see the tables, every miss with its reason."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Any

from kvplan.engines import EngineCapacity, engine_capacity
from kvplan.engines.budget import Flags, PoolBudget, pool_budget
from kvplan.engines.llamacpp import KvBytes, kv_bytes
from kvplan.errors import InputError
from kvplan.model import Placement
from kvplan.presets import load_gpu
from kvplan.units import GIB, MIB
from tests.engines.log_cases import (
    BUSY,
    GPUS,
    NAMED,
    OTHER_CHECKPOINT,
    Case,
    budget_cases,
    cases,
    other_checkpoints,
    published,
    weight_dtype,
)

CASES = cases()
POOLS = [case for case in CASES if {"available_kv_gib", "kv_tokens"} <= case.row.keys()]
LLAMA = [case for case in CASES if "llama.cpp" in case.row["engine"] and "kv_mib" in case.row]
REFUSED = [case for case in CASES if "error_needed_gib" in case.row]
BLOCKS = [case for case in CASES if case.row.get("block_size", 0) > 64 and case.row["engine"] == "vllm"]

KNOWN_MISSES = {
    (93, 2493464): "a fork's nvfp4 layout of DeepSeek V4: its pages are not known here, so it is refused",
    (97, 178880): "1.1 % under its pool line: tokens follow from the rank with the least memory, the line is another's",
}
"""(row, its printed tokens): why it cannot come out."""


@dataclass(frozen=True)
class Outcome:
    case: Case
    figures: tuple[int, int, int] | None
    why: str

    @property
    def printed(self) -> int:
        return int(self.case.row["kv_tokens"])

    @property
    def hit(self) -> bool:
        """Within the pool's own rounding, or one block (of every group, as the older line divides by them)."""
        return self.figures is not None and self.figures[0] <= self.printed <= self.figures[2]


def answer(case: Case, pool_gib: float) -> EngineCapacity:
    return engine_capacity(case.model, pool_bytes=round(pool_gib * GIB), **case.settings)


def outcome(case: Case) -> Outcome:
    pool, half = case.row["available_kv_gib"], case.pool_rounding_gib
    try:
        low, middle, high = (answer(case, pool + step) for step in (-half, 0, half))
    except InputError as error:
        return Outcome(case, None, str(error))
    block = middle.block_size * case.settings["context_parallel"]
    return Outcome(case, (low.tokens - block, middle.tokens, high.tokens + block), "")


def test_printed_tokens_come_out_within_the_logs_own_rounding_on_95_percent_of_the_known_models() -> None:
    outcomes = [outcome(case) for case in POOLS]
    print(f"\ntokens: {'row':60s} {'printed':>10s} {'kvplan':>10s}")
    for item in outcomes:
        middle = item.figures[1] if item.figures else item.why
        print(f"{'   ok' if item.hit else ' MISS'}: {item.case.name} {item.printed:>10,d} {middle:>10}")
    missed = {(item.case.number, item.printed) for item in outcomes if not item.hit}
    for key in sorted(missed):
        print(f"why row {key[0]}: {KNOWN_MISSES.get(key, 'not known')}")
    print(f"tokens within rounding: {len(outcomes) - len(missed)} of {len(outcomes)}")
    assert len(outcomes) >= 45
    assert missed <= KNOWN_MISSES.keys()
    assert len(missed) <= 0.05 * len(outcomes)


def test_printed_concurrency_comes_out_to_its_last_digit() -> None:
    checked = 0
    for case in POOLS:
        found = outcome(case)
        if not found.hit or "max_concurrency" not in case.row:
            continue
        pool, half = case.row["available_kv_gib"], case.pool_rounding_gib
        low, high = (answer(case, pool + step).max_concurrency for step in (-half, half))
        one_block = high / max(1, answer(case, pool).num_blocks)
        assert low - 0.005 - one_block <= case.row["max_concurrency"] <= high + 0.005 + one_block, case.name
        checked += 1
    assert checked >= 25


def test_the_raised_block_of_hybrid_models_is_the_logs() -> None:
    for case in BLOCKS:
        free = {**case.settings, "block_size": None}
        found = engine_capacity(case.model, pool_bytes=64 * GIB, **free)
        assert found.block_size == case.row["block_size"], case.name
    assert len(BLOCKS) >= 6


def test_refused_starts_need_what_the_engine_says() -> None:
    print("\nrefused starts: needed GiB printed, kvplan; longest context printed, kvplan")
    for case in REFUSED:
        found = answer(case, case.row["error_available_gib"])
        print(
            f"  {case.name} {case.row['error_needed_gib']:>7} {found.needed_bytes / GIB:7.2f}"
            f"  {case.row.get('estimated_max_len')} {found.longest_context}"
        )
        assert f"{found.needed_bytes / GIB:.2f}" == f"{case.row['error_needed_gib']:.2f}", case.name
        assert not found.admits_one
        if "estimated_max_len" in case.row:
            low, high = (
                answer(case, case.row["error_available_gib"] + step).longest_context for step in (-0.005, 0.005)
            )
            assert low is not None
            assert high is not None
            assert low <= case.row["estimated_max_len"] <= high, case.name
    assert len(REFUSED) == 5


def llama_bytes(case: Case) -> KvBytes:
    row, notes = case.row, case.row.get("notes", "")
    per_head = row.get("head_dim_k") == 192 and "c^KV" not in notes
    return kv_bytes(
        case.model, row["n_ctx"], row["type_k"], row.get("type_v") or row["type_k"],
        slots=row["n_seq"], pad=32, swa_full=row["engine"] == "ik_llama.cpp", latent=not per_head,
    )  # fmt: skip


def test_llamacpp_cache_sizes_come_out_to_the_printed_digit() -> None:
    print(f"\nllama.cpp: {'row':60s} {'MiB printed':>12s} {'kvplan':>12s}")
    misses = 0
    for case in LLAMA:
        found = llama_bytes(case)
        printed = {key: f"{case.row[key]:.2f}" for key in ("kv_mib", "k_mib", "v_mib") if key in case.row}
        made = {"kv_mib": found.kv_bytes, "k_mib": found.k_bytes, "v_mib": found.v_bytes}
        hit = all(f"{made[key] / MIB:.2f}" == text for key, text in printed.items())
        misses += not hit
        print(f"{'   ok' if hit else ' MISS'}: {case.name} {case.row['kv_mib']:12.2f} {found.kv_bytes / MIB:12.2f}")
    print(f"llama.cpp to the printed digit: {len(LLAMA) - misses} of {len(LLAMA)}")
    assert len(LLAMA) >= 42
    assert misses <= 0.05 * len(LLAMA)


def test_llamacpp_states_come_out_to_the_printed_digit() -> None:
    checked = 0
    for case in LLAMA:
        stated = re.search(r"R ([\d.]+) \+ S ([\d.]+), f32", case.row.get("notes", ""))
        if stated:
            found = llama_bytes(case)
            assert (f"{found.r_bytes / MIB:.2f}", f"{found.s_bytes / MIB:.2f}") == stated.groups()
            checked += 1
    assert checked >= 5


def test_tokens_never_exceed_the_pool_over_resident_bytes_unless_the_notes_say_why() -> None:
    for case in POOLS:
        try:
            found = answer(case, case.row["available_kv_gib"])
        except InputError:
            continue
        length = case.settings["max_model_len"] or case.model.context_limit or found.tokens
        kv: Any = case.settings["kv_dtype"]
        resident = case.model.cache_bytes(length, 1, "bf16" if kv == "auto" else kv, case.settings["tensor_parallel"])
        if case.settings["context_parallel"] > 1:
            assert any("spread over" in note for note in found.notes)
        else:
            assert found.tokens * resident <= (case.row["available_kv_gib"] + 0.01) * GIB * length, case.name


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def test_percentiles_are_taken_from_the_sorted_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert statistics.median([3.0, 1.0, 2.0]) == 2.0


def budget_of(case: Case, stored: str | None = None) -> PoolBudget:
    """stored: the weight dtype, where the row does not say what can be counted."""
    row, storage = case.row, stored or weight_dtype(case.row)
    model = case.model if storage else published(NAMED[row["model_id"]] or "", with_quantization=True)
    flags = Flags(
        engine=row["engine"],
        engine_version=case.settings["engine_version"] if row["engine"] == "vllm" else None,
        memory_fraction=row["gpu_memory_utilization"],
        max_num_batched_tokens=case.settings["max_num_batched_tokens"],
        max_num_seqs=row.get("max_num_seqs"),
        placement=Placement(case.settings["tensor_parallel"], case.settings["pipeline_parallel"]),
        weight_dtype=storage,
        eager=bool(row.get("enforce_eager")),
    )
    return pool_budget(model, load_gpu(GPUS[row["gpu_name"]]), flags)


POOL_MISSES = {
    12: "the image tower's part of the profile run, which is not counted, raises its activation peak to 2.71 GiB",
    70: "6.3 GiB beside weights and pool where 2.8 are typical: what Mamba-2's kernels take is not known here",
}
"""Rows that miss their pool by more than 15 %: why."""


def test_the_pool_from_gpu_model_and_flags_alone_is_near_the_printed_one() -> None:
    print(f"\npool GiB: {'row':60s} {'printed':>8s} {'low':>7s} {'typical':>7s} {'high':>7s} {'error':>7s}")
    errors, inside, missed = [], 0, set()
    for case in budget_cases():
        found, pool = budget_of(case), case.row["available_kv_gib"]
        low, typical, high = (size / GIB for size in (found.low_bytes, found.pool_bytes, found.high_bytes))
        errors.append(abs(typical - pool) / pool)
        missed |= {case.number} if errors[-1] > 0.15 else set()
        inside += low <= pool <= high
        print(f"  {case.name} {pool:8.2f} {low:7.2f} {typical:7.2f} {high:7.2f} {100 * (typical / pool - 1):6.1f}%")
    median, ninetieth = statistics.median(errors), percentile(errors, 0.9)
    print(f"measured over {len(errors)} rows: median error {median:.1%}, 90th percentile {ninetieth:.1%}; ", end="")
    print(f"{inside} pools lie between low and high")
    for number, why in POOL_MISSES.items():
        print(f"why row {number}: {why}")
    for number, why in sorted((OTHER_CHECKPOINT | BUSY).items()):
        print(f"left out: row {number}: {why}")
    assert len(errors) >= 20
    assert median <= 0.05
    assert ninetieth <= 0.15
    assert missed == POOL_MISSES.keys()


PRINTED_MISSES = {
    24: "a fork whose figure of graphs, 4.94 GiB, is taken before they are captured",
    25: "as row 24, 6.26 GiB, and a draft head of three tokens",
    26: "as row 25, 6.84 GiB",
    150: "its figure of weights includes the CUDA context; 1.95 GiB of pool are 8 % of the GPU",
}
"""Rows that miss their pool by more than 15 % even with the weights that they print: why."""


def test_where_only_the_weights_are_unknown_the_printed_ones_give_the_pool() -> None:
    """The rows that are left out above for their checkpoint, with its printed size in the place of the model's."""
    print(f"\npool GiB with the printed weights: {'row':50s} {'printed':>8s} {'typical':>8s} {'error':>7s}")
    errors = {}
    for case in other_checkpoints():
        found = budget_of(case, "bf16")
        taken = round(case.row["weights_gib"] * GIB) + sum(part.typical for part in found.overheads)
        pool, typical = case.row["available_kv_gib"], (found.requested_bytes - taken) / GIB
        errors[case.number] = abs(typical - pool) / pool
        print(f"  {case.name} {pool:8.2f} {typical:8.2f} {100 * (typical / pool - 1):6.1f}%", end="")
        print(f"  {PRINTED_MISSES[case.number]}" if case.number in PRINTED_MISSES else "")
    assert len(errors) >= 8
    assert {number for number, error in errors.items() if error > 0.15} <= PRINTED_MISSES.keys()
    assert statistics.median(errors.values()) <= 0.05


def test_rows_without_a_pool_print_what_some_number_of_blocks_gives() -> None:
    rows = [case for case in CASES if {"kv_tokens", "max_concurrency"} <= case.row.keys()]
    rows = [case for case in rows if "available_kv_gib" not in case.row and case.row["engine"] == "vllm"]
    rows = [case for case in rows if case.model.model_type != "deepseek_v4"]  # the rows do not state the cache dtype
    print("\nrows without a pool: printed tokens and concurrency, kvplan's with the number of blocks that fits")
    for case in rows:
        one = answer(case, 1)
        blocks = round(case.row["max_concurrency"] * one.request_blocks)
        spread = range(max(0, blocks - one.request_blocks // 50 - 1), blocks + one.request_blocks // 50 + 2)
        found = [answer(case, count * one.bytes_per_block / GIB) for count in spread]
        hits = [item for item in found if item.tokens == case.row["kv_tokens"]]
        print(f"  {case.name} {case.row['kv_tokens']:>10,} {case.row['max_concurrency']:8.2f}", end="")
        print(f" {hits[0].max_concurrency:8.2f} with {hits[0].num_blocks} blocks" if hits else "  none")
        assert any(abs(item.max_concurrency - case.row["max_concurrency"]) < 0.0051 for item in hits), case.name
    assert len(rows) >= 10
