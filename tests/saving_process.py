"""One process that saves into a library, for tests of several at once and of one that dies in the middle.

`python -m tests.saving_process USABLE_BYTES SEEN [STEPS]` saves the GPU `card`; it prints `saved` or the refusal.
SEEN is the version that it replaces, or "new". After STEPS system calls that change a file it dies without a word.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvplan.errors import KvplanError
from kvplan.hardware import define_gpu
from kvplan.library import save


def dying(call: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """`call`, until the steps are used up."""

    def step(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return call(*arguments, **named)

    return step


def main() -> None:
    size, seen = int(sys.argv[1]), None if sys.argv[2] == "new" else sys.argv[2]
    if len(sys.argv) > 3:
        left = [int(sys.argv[3])]
        os.fsync = dying(os.fsync, left)
        pathlib.Path.replace = dying(pathlib.Path.replace, left)  # type: ignore[method-assign]
        pathlib.Path.open = dying(pathlib.Path.open, left)  # type: ignore[method-assign]
    try:
        save(replace(define_gpu(name="A card", usable_bytes=size), id="card"), seen)
        print("saved")
    except KvplanError as error:
        print(error)


if __name__ == "__main__":
    main()
