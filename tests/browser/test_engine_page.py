"""The Engine page in a real browser: a pasted log, its overhead in the plan, and the engine in the address."""

import pytest

import kvplan
from kvplan.engines.commands import command
from kvplan.suggest import launch_of

pytestmark = pytest.mark.browser

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
LOG = """
vLLM API server version 0.23.0
model='![](https://example.org/p.png)'
Model loading took 8.61 GiB memory and 5.4 seconds
Available KV cache memory: 10.21 GiB
Actual usage is 8.80 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for \
CUDAGraph memory.
Graph capturing finished in 18 secs, took 0.25 GiB
"""


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
def test_a_pasted_log_gives_the_plan_its_overhead(visit, viewport, scheme):
    visitor = visit("/engine?engine_view=paste+your+log", viewport=viewport, color_scheme=scheme)
    box = visitor.page.locator(".st-key-log_text textarea")
    box.fill(LOG)
    box.press("Control+Enter")
    button = visitor.page.locator(".st-key-take_overhead button")
    button.wait_for()
    visitor.settle()
    assert visitor.spilled() == 0
    button.click()
    button.wait_for(state="detached")
    visitor.settle()
    total = sum(round(gib * 2**30) for gib in (1.44, 8.80, 0.25)) - round(8.61 * 2**30)
    assert f"overhead={total}" in visitor.page.url


def test_the_engine_of_the_address_is_started_and_drawn(visit):
    visitor = visit("/engine?engine=sglang")
    code = visitor.page.locator("[data-testid=stCode]").first.inner_text()
    assert code.split() == command(launch_of(LLAMA, "sglang")).split()
    bars = visitor.figure("reserved")[0]
    assert bars["y"] == ["resident", "reserved", "pool, low", "pool, typical", "pool, high"]
    assert bars["x"][0] == kvplan.plan(LLAMA).cache_bytes / 2**30
