"""Every check of the project, one after the other: format, lint, types, tests. Exit status 0 when all of them pass.

All stages run even when one fails, so that one run shows everything; the summary names what failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STAGES = {
    "format": ("ruff", "format", "--check"),
    "lint": ("ruff", "check"),
    "types": ("mypy",),
    "tests": ("pytest", "-n", "2"),
}


def main() -> int:
    """Run every stage in the project's root and print a line for each; the number of failed ones is the status."""
    results = {name: _run(command) for name, command in STAGES.items()}
    print("\nsummary")
    for name, (status, seconds) in results.items():
        print(f"  {name:7} {'passed' if status == 0 else 'FAILED'}  {seconds:6.1f} s")
    return sum(status != 0 for status, _ in results.values())


def _run(command: tuple[str, ...]) -> tuple[int, float]:
    print(f"\n$ {' '.join(command)}", flush=True)
    start = time.perf_counter()
    status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
    return status, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
