"""Speed of the kernel, as ratios to a floor measured in the same run: `python tests/benchmarks/core.py`.

Nothing here is asserted by a test: a busy machine is no fault. Each line says the target and whether it was met.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
import pandas as pd

import kvplan
from kvplan.attention import FullAttention, SlidingAttention
from kvplan.plan import MemoryPlan, Scenario, plan
from tests.examples import model_of

ROOT = Path(__file__).resolve().parent.parent.parent

TOKENS = list(range(1, 1001))
BATCHES = list(range(1, 101))
KV_DTYPES = ["fp32", "bf16", "fp8", "int8", "int8_per_token_head"]
KV_HEADS = [4, 8]


def best(action: Callable[[], object], repeats: int = 7, loops: int = 1) -> float:
    """The fastest of `repeats` runs of `loops` calls, in seconds a call."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(loops):
            action()
        times.append((time.perf_counter() - start) / loops)
    return min(times)


def report(what: str, found: float, unit: str, target: float) -> None:
    """One line: the figure, its target, and whether it was met."""
    print(f"{what:62} {found:8.2f} {unit:8} target {target:g} {'met' if found <= target else 'MISSED'}")


# ------------------------------------------------------------------------------------------------------- sweeps


def million_rows() -> pd.DataFrame:
    """The finished table of kvplan's sweep over four axes."""
    scenario = Scenario("llama-3.1-8b", "h100-sxm-80gb")
    return kvplan.sweep(scenario, context_length=TOKENS, batch_size=BATCHES, kv_dtype=KV_DTYPES, num_kv_heads=KV_HEADS)


def filled_columns() -> pd.DataFrame:
    """The floor: the same columns of the same types, filled by NumPy and pandas with one multiplication a row."""
    outer, inner = len(KV_HEADS) * len(KV_DTYPES), len(BATCHES) * len(TOKENS)
    size = outer * inner
    tokens = np.tile(np.array(TOKENS, np.int64), size // len(TOKENS))
    batches = np.tile(np.repeat(np.array(BATCHES, np.int64), len(TOKENS)), outer)
    codes = np.tile(np.repeat(np.arange(len(KV_DTYPES)), inner), len(KV_HEADS))
    cache = tokens * batches * 131_072
    weight, overhead = np.full(size, 16 * 10**9, np.int64), np.full(size, 10**9, np.int64)
    total = cache + weight + overhead
    columns = {
        "context_length": tokens,
        "batch_size": batches,
        "kv_dtype": pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(KV_DTYPES)),
        "weight_dtype": pd.Categorical.from_codes(np.zeros(size, np.int8), dtype=pd.CategoricalDtype(["as published"])),
        "num_kv_heads": pd.array(KV_HEADS, dtype="Int64").repeat(size // len(KV_HEADS)),
        "tensor_parallel": np.full(size, 1, np.int64),
        "cache_bytes": cache,
        "weight_bytes": weight,
        "overhead_bytes": overhead,
        "total_bytes": total,
        "capacity_bytes": np.full(size, 80 * 2**30, np.int64),
        "fits": total <= 80 * 2**30,
    }
    return pd.DataFrame(columns, copy=False)


def windows_over_plain() -> float:
    """A sweep of 60 window layers over one of 60 full layers."""

    def sweep_of(kind: list[FullAttention] | list[SlidingAttention]) -> Callable[[], object]:
        scenario = Scenario(model_of([*kind]), "h100-sxm-80gb")
        return lambda: kvplan.sweep(scenario, context_length="1..4000", batch_size="1..250")

    windows = best(sweep_of([SlidingAttention(8, 128, window=size) for size in range(1000, 1060)]))
    return windows / best(sweep_of([FullAttention(8, 128)] * 60))


def alternating_over_plain() -> float:
    """A sweep of 60 layers, five windows of one size to each full layer, over one of 60 full layers."""
    layers = [FullAttention(8, 128) if index % 6 == 5 else SlidingAttention(8, 128, window=1024) for index in range(60)]
    mixed, plain = (Scenario(model_of(kind), "h100-sxm-80gb") for kind in (layers, [FullAttention(8, 128)] * 60))
    axes = {"context_length": "1..4000", "batch_size": "1..250"}
    return best(lambda: kvplan.sweep(mixed, **axes)) / best(lambda: kvplan.sweep(plain, **axes))


# -------------------------------------------------------------------------------------------------------- plans


def searched(p: MemoryPlan) -> tuple[object, ...]:
    """Everything that a plan searches for."""
    return p.max_batch_size, p.max_context_length, p.crossover_context_length, p.decode_floor_seconds, p.sentence


def show_plans() -> None:
    """Plans with and without the searches, for models of every kind."""
    for name in ("llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b"):
        scenario = Scenario(name, "h200-141gb", context_length=32768)
        report(f"plan of {name}", 1e6 * best(lambda s=scenario: plan(s), loops=500), "us", 100)
        report(f"plan of {name} with its searches", 1e3 * best(lambda s=scenario: searched(plan(s)), loops=20), "ms", 2)


# ------------------------------------------------------------------------------------------------------ imports


def show_rule_imports() -> None:
    """Imports of configs through the rules."""
    for name in ("Qwen__Qwen3-8B", "Qwen__Qwen3-30B-A3B", "Qwen__Qwen3-Next-80B-A3B-Instruct"):
        path = ROOT / "tests" / "data" / "configs" / f"{name}.json"
        took = best(lambda p=path: kvplan.import_config(p), loops=10)
        report(f"rules on {name}", 1e3 * took, "ms", 5)


def show_import() -> None:
    """What `import kvplan` adds to NumPy's own import, in fresh processes; the least of 15 turns."""
    script = (
        "import time; first = time.perf_counter(); import numpy; second = time.perf_counter(); import kvplan; "
        "print(second - first, time.perf_counter() - second)"
    )
    turns = [
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True) for _ in range(15)
    ]
    numpy, added = (min(times) for times in zip(*(map(float, turn.stdout.split()) for turn in turns), strict=True))
    report(f"import kvplan after NumPy, which takes {1e3 * numpy:.0f} ms itself", 1e3 * added, "ms", 60)


def main() -> None:
    """Print every figure."""
    floor = best(filled_columns, repeats=5)
    assert len(million_rows()) == len(filled_columns()) == 10**6
    assert dict(million_rows().dtypes.map(str)) == dict(filled_columns().dtypes.map(str))
    report("a million rows over filling the same columns", best(million_rows, repeats=5) / floor, "x", 3)
    report("60 window layers of 60 sizes over 60 full layers", windows_over_plain(), "x", 2)
    report("60 layers of windows and full ones over 60 full layers", alternating_over_plain(), "x", 2)
    show_plans()
    show_rule_imports()
    show_import()


if __name__ == "__main__":
    main()
