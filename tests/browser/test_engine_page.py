"""The Engine page in a real browser: a pasted log, its overhead in the plan, and the engine in the address."""

import re

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
    with visitor.rerun():
        box.press("Control+Enter")
    button = visitor.page.locator(".st-key-take_overhead button")
    button.wait_for()
    assert visitor.spilled() == 0
    with visitor.rerun():
        button.click()
    button.wait_for(state="detached")
    total = sum(round(gib * 2**30) for gib in (1.44, 8.80, 0.25)) - round(8.61 * 2**30)
    visitor.page.wait_for_url(re.compile(f"overhead={total}"))


def test_the_engine_of_the_address_is_started_and_drawn(visit):
    visitor = visit("/engine?engine=sglang")
    code = visitor.page.locator("[data-testid=stCode]").first.inner_text()
    assert code.split() == command(launch_of(LLAMA, "sglang")).split()
    bars = visitor.figure("reserved")[0]
    assert bars["y"] == ["resident", "reserved", "pool, low", "pool, typical", "pool, high"]
    assert bars["x"][0] == kvplan.plan(LLAMA).cache_bytes / 2**30


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "light"), (DESKTOP, "dark")], ids=["phone", "desktop"])
def test_the_server_and_the_overheads_unfold_on_the_plan_page(visit, viewport, scheme):
    visitor = visit("/?tp=8&dp=2&batch=64", viewport=viewport, color_scheme=scheme)
    for section in ("Overhead: low, typical and high", "Serve it: the command"):
        visitor.page.get_by_text(section).first.click()
        visitor.settle()
    visitor.page.locator("[data-testid=stCode]").first.wait_for()
    shared = LLAMA.with_changes(tensor_parallel=8, data_parallel=2, batch_size=64)
    code = visitor.page.locator("[data-testid=stCode]").first.inner_text()
    assert code.split() == command(launch_of(shared, "vllm")).split()
    assert visitor.page.get_by_text("16 GPUs on 2 nodes of 8").first.is_visible()
    assert visitor.spilled() == 0


def test_a_whole_node_is_chosen_in_the_sidebar(visit):
    visitor = visit("/", viewport=DESKTOP)
    box = visitor.page.get_by_role("combobox", name="Node")
    box.click()
    box.fill("8xh200")
    with visitor.rerun():
        visitor.page.get_by_role("option").first.click()
    visitor.page.get_by_text("8 GPUs: one whole node").first.wait_for()
    node = kvplan.load_node("8xh200-141gb")
    scenario = LLAMA.with_changes(gpu=kvplan.load_gpu(node.gpu), tensor_parallel=node.num_gpus)
    assert visitor.heading() == kvplan.plan(scenario).sentence
