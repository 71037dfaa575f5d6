"""What every test shares: one thread for numeric libraries, hypothesis without a clock, one process that measures."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy or torch start: two workers share two cores

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvplan",
    deadline=None,  # a slow machine is not a fault
    derandomize=True,  # the same examples everywhere, so that a failure can be repeated
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kvplan")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests first: one process does them while the other does the rest, and steals from them when it is done.

    Two browsers at once on two cores would each wait for the other, and redraw while they wait.
    """
    items.sort(key=lambda item: item.get_closest_marker("browser") is None)


@pytest.fixture(scope="session", autouse=True)
def one_worker_for_all() -> Iterator[None]:
    """The process that measures configs takes seconds to start: all tests share one, and none outlives them."""
    from kvplan.importer import measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "CONFIGS_PER_WORKER", 1_000)
        yield
        measure.close_workers()


@pytest.fixture
def measuring() -> None:
    """For tests that may start a process that measures a config; all others see rules alone."""


@pytest.fixture(autouse=True)
def rules_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the rules stands, and no test starts a process that it does not know of."""
    if "measuring" not in request.fixturenames:
        from kvplan import importer
        from kvplan.errors import UnsupportedConfigError

        def refuse(*_: object) -> None:
            raise UnsupportedConfigError("config.json: not measured in this test")

        monkeypatch.setattr(importer, "measure_parts", refuse)
