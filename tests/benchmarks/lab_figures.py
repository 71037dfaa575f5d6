"""The lab's measured figures, printed as tables: `python tests/benchmarks/lab_figures.py [seeds]` (100 unless said).

1  parity r = largest difference / (eps * largest logit) of correct caches: worst over seeds, positions and head counts
2  every fault: how often float64 logits catch it, the smallest and largest difference, how often greedy tokens notice
3  CPU seconds of the page's pieces at their defaults
4  lines of each file

One torch thread. The counts repeat on one machine and build; differences and seconds do not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from kvplan import lab

LOSSLESS = ("dynamic", "static", "paged", "sliding")
DTYPES = ("float64", "float32", "float16", "bfloat16")
HEADS = ((4, 4), (4, 2), (4, 1))


def prompt_of(seed: int, length: int = 4) -> list[int]:
    return torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def decoder(seed: int, **changes: object) -> lab.TinyDecoder:
    return lab.TinyDecoder(**{"num_layers": 2, "head_dim": 16, "dtype": "float64", "seed": seed, **changes})


def parity_table(seeds: int) -> None:
    print(f"\n1  parity r, worst of {seeds} seeds (positions and heads in turn), and rows that were bit-equal")
    print(f"{'dtype':10}" + "".join(f"{cache:>22}" for cache in LOSSLESS) + f"{'exact shapes':>16}")
    for dtype in DTYPES:
        cells = [f"{dtype:10}"]
        for cache in LOSSLESS:
            results = [parity(seed, dtype, cache) for seed in range(seeds)]
            equal = sum(row.max_abs_diff == 0 for result in results for row in result.rows)
            share = equal / sum(len(result.rows) for result in results)
            failed = sum(not result.passed for result in results)
            cells.append(f"{max(result.r for result in results):10.2f} {share:6.0%} {failed:2} bad")
        exact = sum(parity(seed, dtype, "static", exact_shapes=True).bit_equal for seed in range(min(seeds, 40)))
        print("".join(cells) + f"{exact:9} of {min(seeds, 40)}")


def parity(seed: int, dtype: str, cache: str, **how: bool) -> lab.ParityResult:
    heads, kv_heads = HEADS[seed % 3]
    position = ("rope", "learned", "none")[seed // 3 % 3]
    model = decoder(
        seed, dtype=dtype, position=position, num_attention_heads=heads, num_kv_heads=kv_heads, window=6, num_layers=3
    )
    return lab.check_parity(model, prompt_of(seed), 8, cache=cache, **how)


def fault_table(seeds: int) -> None:
    print(f"\n2  faults in float64 over {seeds} seeds: prompt of 4, 8 steps, each in the setting that shows it")
    print(f"{'fault':28}{'caught':>8}{'smallest':>11}{'largest':>11}{'greedy notices':>16}")
    for name in lab.FAULTS:
        results = [lab.check_parity(decoder(seed), prompt_of(seed), 8, fault=name) for seed in range(seeds)]
        diffs = [result.max_abs_diff for result in results]
        caught = sum(not result.passed for result in results) / seeds
        noticed = sum(greedy_notices(result) for result in results) / seeds
        print(f"{name:28}{caught:8.0%}{min(diffs):11.1e}{max(diffs):11.1e}{noticed:16.0%}")


def greedy_notices(result: lab.ParityResult) -> bool:
    """Whether a decode step (or a chunk) of the scenario that shows the fault chooses another token."""
    scenario = result.fault.shows_in if result.fault else "generations"
    return any(not row.same_token for row in result.rows if row.scenario == scenario and row.phase != "prefill")


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def timings() -> None:
    print("\n3  seconds of one core (CPU time, so that other load does not count)")
    model, prompt = lab.TinyDecoder(), [1, 2, 3, 4]
    pieces: dict[str, Callable[[], object]] = {
        "check_parity, float32": lambda: lab.check_parity(model, prompt, 8),
        "check_parity, float32, exact shapes": lambda: lab.check_parity(model, prompt, 8, exact_shapes=True),
        "fingerprint": lambda: lab.fingerprint(model, prompt, 8, "write_one_late"),
        "trace, 8 layers": lambda: lab.trace(lab.TinyDecoder(num_layers=8), prompt, 8),
        "check_matrix, all faults": lambda: lab.check_matrix(decoder(0, head_dim=8), prompt),
        "measure_savings, 192 tokens": lab.measure_savings,
        "train, 160 steps": lambda: lab.train(lab.training_model()),
    }
    for name, work in pieces.items():
        work() if "train" not in name else None
        print(f"{name:40}{seconds(work):8.3f}")


def line_counts() -> None:
    print("\n4  lines")
    files = sorted(Path(lab.__file__).parent.glob("*.py"))
    counts = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    for name, count in counts.items():
        print(f"{name:24}{count:5}")
    print(f"{'model.py + caches.py':24}{counts['model.py'] + counts['caches.py']:5}")
    print(f"{'all':24}{sum(counts.values()):5}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    line_counts()
    timings()
    parity_table(number)
    fault_table(number)
