"""The Plan page in a real browser."""

import re

import pytest

import kvplan
from kvplan.charts import bytes_by_family

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}


def segments(plan):
    """What the memory bar must show, in its order."""
    parts = [plan.cache_bytes, plan.runtime.typical_bytes, plan.unused_bytes, plan.free_bytes]
    return [*bytes_by_family(plan).values(), *parts]


def drawn(visitor):
    return [trace["customdata"][0][0] for trace in visitor.figure("memory")]


def test_the_memory_bar_on_screen_holds_the_plans_bytes(visit):
    visitor = visit()
    plan = kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb"))
    assert drawn(visitor) == segments(plan)
    assert sum(drawn(visitor)) == plan.capacity_bytes
    assert visitor.heading() == plan.sentence


def test_changing_a_widget_changes_figure_sentence_and_address(visit):
    visitor = visit()
    visitor.choose("ctx", "32k")
    plan = kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", context_length=32768))
    assert drawn(visitor) == segments(plan)
    assert visitor.heading() == plan.sentence
    visitor.page.wait_for_url(re.compile("ctx=32768"))


def test_the_address_of_a_page_opens_the_same_plan_elsewhere(visit):
    first = visit()
    first.choose("ctx", "16k")
    first.choose("kv", "fp8")
    first.page.wait_for_url(re.compile("ctx=16384&batch=8&kv=fp8"))
    second = visit(first.page.url.removeprefix(first.server.url))
    assert second.heading() == first.heading()
    assert drawn(second) == drawn(first)


def test_a_versioned_link_opens_its_scenario(visit):
    scenario = kvplan.Scenario(
        "llama-3.1-70b", "h100-sxm-80gb", context_length=32768, tensor_parallel=2, kv_dtype="fp8"
    )
    visitor = visit("/" + kvplan.to_link(scenario))
    assert visitor.heading() == kvplan.plan(scenario).sentence


def test_the_curve_on_screen_holds_the_sweeps_bytes(visit):
    visitor = visit()
    cache = next(trace for trace in visitor.figure("curve") if trace["name"] == "KV cache")
    contexts = [int(value) for value in cache["x"]]
    table = kvplan.sweep(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb"), context_length=contexts)
    assert cache["customdata"] == table["cache_bytes"].tolist()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_screen(visit, viewport, scheme):
    visitor = visit(viewport=viewport, color_scheme=scheme)
    visitor.figure("memory")
    assert visitor.spilled() == 0


def test_the_fit_map_on_screen_holds_the_sweeps_totals(visit):
    visitor = visit("/sweep")
    cells = next(trace for trace in visitor.figure("fit") if trace["type"] == "heatmap")
    scenario = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
    table = kvplan.sweep(scenario, context_length="1k..256k*2", batch_size="1..256*2")
    assert [size for row in cells["customdata"] for size in row] == table["total_bytes"].tolist()


def test_a_damaged_link_opens_what_it_can_and_its_address_is_clean(visit):
    visitor = visit("/?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb&ctx=lots&batch=3&kv=fp8")
    plan = kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=3, kv_dtype="fp8"))
    assert visitor.heading() == plan.sentence
    visitor.page.wait_for_url(re.compile(f"ctx={plan.scenario.context_length}&batch=3"))
    with visitor.rerun():
        visitor.page.reload()
    assert visitor.heading() == plan.sentence


@pytest.mark.parametrize("path", ["/", "/?model=deepseek-v3&gpu=h200-sxm-141gb&tp=8", "/?ctx=1m&batch=3", "/?kv=fp8"])
def test_on_a_wide_screen_figures_that_change_often_have_the_margins_that_their_words_need(visit, path):
    """Plotly draws a figure again where they do not: a fifth of the time of a change."""
    visitor = visit(path)
    for key in ("memory", "curve"):
        plot = f".st-key-{key} .js-plotly-plot"
        visitor.page.wait_for_selector(f"{plot} .main-svg")
        given, taken = visitor.page.evaluate(
            "plot => (({margin, _size}) => [margin, _size])(document.querySelector(plot)._fullLayout)", plot
        )
        assert [given[side] for side in "lrtb"] == pytest.approx([taken[side] for side in "lrtb"], abs=1)
