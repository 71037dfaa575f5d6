"""One process that saves into a library, for tests of several at once and of one that dies in the middle.

`python -m tests.saving_process USABLE_BYTES SEEN [STEPS]` saves the GPU `card` when a line comes on its standard
input, and prints `saved` or the refusal. SEEN is the version that it replaces, or "new". After STEPS calls that
change a file it dies without a word, in the middle of what it was writing. Each call to the disk takes a while, so
that several processes do meet.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvplan.errors import KvplanError
from kvplan.hardware import define_gpu
from kvplan.library import save


class Steps:
    """Calls that change a file, each slow, until the last one that is allowed."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> None:
        time.sleep(0.01)
        self.left -= 1
        if self.left < 0:
            os._exit(9)

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.take()
            return call(*arguments, **named)

        return step

    def opened(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`Path.open`, whose files write the first half of what they are given before the step that writes the rest."""

        def step(*arguments: Any, **named: Any) -> Any:
            self.take()
            return Halfway(call(*arguments, **named), self)

        return step


class Halfway:
    """A file that writes in two halves, with a step between."""

    def __init__(self, file: Any, steps: Steps) -> None:
        self.file, self.steps = file, steps

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.steps.take()
        self.file.write(data[len(data) // 2 :])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Halfway:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def main() -> None:
    """Save once, as the arguments say."""
    size, seen = int(sys.argv[1]), None if sys.argv[2] == "new" else sys.argv[2]
    steps = Steps(int(sys.argv[3]) if len(sys.argv) > 3 else 1000)
    os.fsync = steps.wrapped(os.fsync)
    pathlib.Path.replace = steps.wrapped(pathlib.Path.replace)  # type: ignore[method-assign]
    pathlib.Path.open = steps.opened(pathlib.Path.open)  # type: ignore[method-assign]
    sys.stdin.readline()
    try:
        save(replace(define_gpu(name="A card", usable_bytes=size), id="card"), seen)
        print("saved")
    except KvplanError as error:
        print(error)


if __name__ == "__main__":
    main()
