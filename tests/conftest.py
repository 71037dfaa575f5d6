"""What every test shares: one thread for numeric libraries, and hypothesis without a clock."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy or torch start: two workers share two cores

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvplan",
    deadline=None,  # a slow machine is not a fault
    derandomize=True,  # the same examples everywhere, so that a failure can be repeated
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kvplan")
