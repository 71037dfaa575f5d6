"""What every threat must meet: an answer in one sentence, with bounded work and memory.

Work is counted in function calls and not in seconds, so that a slow machine is not a fault: a million of them take
less than a second everywhere.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError

MAX_CALLS = 1_000_000
MAX_BYTES = 64 * 2**20
MAX_SENTENCE = 700


class TooMuchWork(BaseException):
    """The work of one answer went over the limit; not an Exception, so that nothing on the way takes it for its own."""


class Bounds:
    """Runs a call, counts the function calls in it, and measures the most memory that it held."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, call: Callable[[], Any], most_bytes: int = MAX_BYTES) -> Any:
        """The result of `call`; fails where it takes too much."""
        tracemalloc.start()
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            result = call()
        finally:
            sys.setprofile(before)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak <= most_bytes
        return result

    def _count(self, _frame: Any, _event: str, _argument: Any) -> None:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise TooMuchWork

    def refusal(self, call: Callable[[], Any]) -> str:
        """The sentence with which `call` is refused."""
        with pytest.raises(KvplanError) as refused:
            self.run(call)
        return self.sentence(str(refused.value))

    @staticmethod
    def sentence(text: str) -> str:
        """`text`, where it is one plain sentence of bounded length."""
        assert text.strip()
        assert len(text) <= MAX_SENTENCE
        assert text.isprintable()
        assert "Traceback" not in text
        return text


@pytest.fixture
def bounds() -> Bounds:
    return Bounds()


@pytest.fixture(autouse=True)
def empty_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library of its own, outside of which nothing may appear."""
    library = tmp_path / "inside" / "library"
    library.mkdir(parents=True)
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(library))
    yield library
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in library.parent.iterdir()] == ["library"]
