"""Every check of the project: format, lint, types, tests. Exit status 0 when all of them pass.

All stages run even when one fails, so that one run shows everything; the summary names what failed. Types are checked
beside the others, and what that says is shown once they are through.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BESIDE = {"types": ("mypy",)}
STAGES = {
    "format": ("ruff", "format", "--check"),
    "lint": ("ruff", "check"),
    "tests": ("pytest", "-n", "2", "--dist", "worksteal"),
}


def main() -> int:
    """Run every stage in the project's root and print a line for each; the number of failed ones is the status."""
    with ThreadPoolExecutor() as pool:
        beside = {name: pool.submit(_quietly, command) for name, command in BESIDE.items()}
        results = {name: _run(command) for name, command in STAGES.items()}
    for name, stage in beside.items():
        status, seconds, written = stage.result()
        print(f"\n$ {' '.join(BESIDE[name])}\n{written}", end="")
        results[name] = status, seconds
    print("\nsummary")
    for name, (status, seconds) in results.items():
        print(f"  {name:7} {'passed' if status == 0 else 'FAILED'}  {seconds:6.1f} s")
    return sum(status != 0 for status, _ in results.values())


def _run(command: tuple[str, ...]) -> tuple[int, float]:
    print(f"\n$ {' '.join(command)}", flush=True)
    start = time.perf_counter()
    status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
    return status, time.perf_counter() - start


def _quietly(command: tuple[str, ...]) -> tuple[int, float, str]:
    """Run a stage and keep what it writes."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode, time.perf_counter() - start, done.stdout.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
