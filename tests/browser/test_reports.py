"""The HTML reports in a real Chromium, from a file and without a network: figures drawn, nothing asked for."""

import json

import pytest

from kvplan.charts import memory_bar
from kvplan.documents import Figure
from kvplan.plan import Scenario, plan
from kvplan.report import plan_html, sweep_html
from kvplan.sweep import sweep
from kvplan.sweep_charts import Panel, fit_map, head_bars
from tests.examples import LLAMA_8B, SMALL_GPU

pytestmark = pytest.mark.browser

SCENARIO = Scenario(LLAMA_8B, SMALL_GPU)
PLAN = plan(SCENARIO)
TABLE = sweep(SCENARIO, context_length="1k..64k*2", batch_size="1..16*2")
FIT = Figure("What fits", "A map", fit_map([Panel("", TABLE)]))


@pytest.fixture
def opened(browser, tmp_path):
    """A page from a file, and everything that it asked for or complained about."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    trouble = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("request", lambda request: trouble.append(request.url))

    def open_text(text):
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_function("() => document.querySelectorAll('.main-svg').length > 0")
        return page, [item for item in trouble if item != path.as_uri()]

    yield open_text
    context.close()


def sizes(page, figure):
    """The exact bytes behind each bar that Chromium draws."""
    script = "index => JSON.stringify(document.querySelectorAll('.js-plotly-plot')[index]._fullData"
    return json.loads(page.evaluate(f"{script}.map(trace => trace.customdata?.[0]?.[0] ?? null))", figure))


def test_a_plan_report_draws_the_plans_numbers_and_asks_for_nothing(opened):
    page, trouble = opened(plan_html(PLAN, "https://plan.example/"))
    assert trouble == []
    assert page.locator(".js-plotly-plot").count() == 3
    assert {PLAN.cache_bytes, PLAN.runtime.typical_bytes} <= set(sizes(page, 0))
    assert page.locator(".answer").inner_text() == PLAN.sentence
    assert page.locator("#link").inner_text().startswith("https://plan.example/?v=1&model=&gpu=&ctx=8192")


def test_a_sweep_report_draws_the_figure_of_the_page_and_every_row(opened):
    page, trouble = opened(sweep_html(TABLE, SCENARIO, [FIT]))
    assert trouble == []
    assert page.locator(".js-plotly-plot").count() == 1
    assert page.locator("table").first.locator("tbody tr").count() == len(TABLE)


def test_a_report_keeps_within_a_phones_width(opened):
    page, _ = opened(plan_html(PLAN))
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_text_in_a_report_runs_nothing(opened):
    hostile = Figure("<img src=x onerror=alert(1)>", "'><script>alert(1)</script>", FIT.figure)
    page, trouble = opened(sweep_html(TABLE, SCENARIO, [hostile], title="<script>alert(1)</script>"))
    assert trouble == []
    assert page.locator("img").count() == 0


OVERLAPS = """() => {
  const box = e => e.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
    const words = [...plot.querySelectorAll('.xtick, .ytick')], legend = plot.querySelector('.legend .bg');
    const titles = [...plot.querySelectorAll('.xtitle, .ytitle')];
    const cut = [...plot.querySelectorAll('.legendtext')].filter(e => box(e).right > box(legend).right);
    return [...titles.filter(title => words.some(word => meet(box(title), box(word)))), ...cut]
      .map(e => e.textContent);
  });
}"""


def test_in_a_report_no_words_of_a_figure_overlap_or_are_cut_and_no_number_stands_on_two_lines(opened):
    by_gpu = sweep(SCENARIO, context_length="1k..64k*2", gpu=["t4-16gb", "a100-sxm-40gb", "h100-sxm-80gb"])
    bars = head_bars({8: 55276, 1: 445795}, {8: "", 1: ""}, "longest context (tokens)")
    figures = [
        Figure("GPUs", "A map", fit_map([Panel("", by_gpu)], "context_length", "gpu")),
        Figure("Heads", "Bars", bars),
        Figure("Memory", "A bar", memory_bar(PLAN)),
    ]
    page, _ = opened(sweep_html(TABLE, SCENARIO, figures))
    assert page.evaluate(OVERLAPS) == []
    heights = page.evaluate("() => [...document.querySelectorAll('tbody')].slice(0, 1).flatMap(t => [...t.rows])"
                            ".map(row => row.offsetHeight)")  # fmt: skip
    assert len(heights) == len(TABLE)
    assert max(heights) < 40  # a line of 15 pixels takes 22, two take 45
