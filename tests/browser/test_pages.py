"""Every page in a real browser: it loads, its figures hold the API's numbers, and nothing is cut off."""

import re

import pytest

import kvplan
from kvplan.explain import users_sentence
from kvplan.fleet import lengths_from_list, plan_users, which_gpu
from kvplan.ui.axes import POPULAR_GPUS

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
PAGES = {
    "/": "Fits: ",
    "/users": "8 users at once",
    "/engine": "Engine",
    "/sweep": "The most that fits on this map: ",
    "/models": "Models and GPUs",
    "/define": "Define your own",
    "/import": "Import",
    "/lab": "1 Fill the cache",
    "/compare": "Compare",
    "/share": "Share",
}


@pytest.mark.parametrize("path", PAGES)
def test_each_page_loads_and_begins_with_its_answer_or_its_name(visit, path):
    assert visit(path).heading().startswith(PAGES[path])


def test_the_scenario_stays_while_moving_between_pages(visit):
    visitor = visit("/?fraction=0.8&images=5&dp=2")  # behind buttons that are closed
    visitor.choose("ctx", "64k")
    for name in ("Users", "Sweep", "Models", "Share", "Plan"):
        with visitor.rerun():
            visitor.page.get_by_role("link", name=name, exact=True).click()
        visitor.page.wait_for_url(re.compile("ctx=65536.*fraction=0.8.*images=5.*dp=2"))
    expected = LLAMA.with_changes(context_length=65536, memory_fraction=0.8, image_tokens=5, data_parallel=2)
    assert visitor.heading() == kvplan.plan(expected).sentence


KEPT = "ctx=64k&batch=3&kv=fp8&fraction=0.8"


@pytest.mark.parametrize(
    ("path", "press"),
    [
        (f"/models?{KEPT}&compare=gemma-3-27b", [".st-key-use_gemma-3-27b button"]),
        (f"/library?{KEPT}&chosen_models=gemma-3-27b", ["text=Use in the plan", ".st-key-use_preset button"]),
    ],
)
def test_planning_with_a_model_keeps_what_the_sidebar_says(visit, path, press):
    visitor = visit(path)
    for place in press:
        visitor.page.locator(place).click()
    visitor.page.wait_for_url(re.compile("model=gemma-3-27b.*ctx=65536.*batch=3.*kv=fp8.*fraction=0.8"))
    with visitor.rerun():
        visitor.page.get_by_role("link", name="Plan", exact=True).click()
    visitor.page.wait_for_url(re.compile(r"/\?v=1&model=gemma-3-27b.*ctx=65536.*batch=3.*kv=fp8.*fraction=0.8"))
    expected = kvplan.Scenario(
        "gemma-3-27b", "h100-sxm-80gb", context_length=65536, batch_size=3, kv_dtype="fp8", memory_fraction=0.8
    )
    visitor.page.get_by_text(kvplan.plan(expected).sentence, exact=True).first.wait_for()


def test_a_page_that_a_button_leads_to_begins_at_its_top(visit):
    visitor = visit("/models?compare=gemma-3-27b", viewport=PHONE)
    button = visitor.page.locator(".st-key-use_gemma-3-27b button")
    button.scroll_into_view_if_needed()
    assert scrolled(visitor) > 0
    with visitor.rerun():
        button.click()
    visitor.page.wait_for_url(re.compile("/\\?v=1&model=gemma-3-27b"))
    assert scrolled(visitor) == 0


def scrolled(visitor):
    return visitor.page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollTop")


def test_a_pasted_list_of_lengths_opens_from_its_link(visit):
    mine = visit("/users?batch=40")
    mine.page.get_by_text("a list of lengths").click()
    box = mine.page.locator(".st-key-length_list textarea")
    box.fill("812, 1530\n4k")
    with mine.rerun():
        box.press("Control+Enter")
    mine.page.wait_for_url(re.compile("list=812_1530%7E4k|list=812_1530~4k"))
    lengths = lengths_from_list([812, 1530, 4096])
    scenario = LLAMA.with_changes(batch_size=40)
    expected = users_sentence(scenario, 40, lengths, plan_users(scenario, 40, lengths)[1])
    assert mine.heading() == expected
    other = visit(mine.page.url.removeprefix(mine.server.url))
    assert other.heading() == expected
    assert other.page.locator(".st-key-length_list textarea").input_value() == "812, 1530\n4k"
    assert other.page.get_by_text("Not everything could be used").count() == 0


def test_kv_head_bars_on_screen_are_the_models_bytes(visit):
    visitor = visit("/sweep")
    visitor.page.get_by_text("What would more or fewer KV heads cost?").click()
    bars = visitor.figure("heads_token")[0]
    expected = [kvplan.plan(LLAMA.with_changes(num_kv_heads=int(n))).bytes_per_token / 1024 for n in bars["x"]]
    assert bars["y"] == expected


def test_gpu_bars_on_screen_are_the_prices(visit):
    visitor = visit("/sweep")
    visitor.page.get_by_text("Which GPU?").click()
    bars = visitor.figure("fleet")[0]
    prices = {row.gpu: row.rent_per_hour for row in which_gpu(LLAMA, ["llama-3.1-8b"], POPULAR_GPUS)}
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {k: v for k, v in prices.items() if v is not None}


def test_the_layer_strip_on_screen_is_the_models(visit):
    visitor = visit("/?model=gemma-3-27b")
    strip = {trace["name"]: sum(trace["x"]) for trace in visitor.figure("strip")}
    assert strip == {"full attention (10)": 10, "sliding window (52)": 52}


def test_the_plan_page_works_by_keyboard_alone(visit):
    visitor = visit()
    for _ in range(60):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("() => !!document.activeElement.closest('.st-key-ctx input')"):
            break
    visitor.page.keyboard.type("32k")
    with visitor.rerun():
        visitor.page.keyboard.press("Enter")
    assert visitor.heading() == kvplan.plan(LLAMA.with_changes(context_length=32768)).sentence


def test_every_control_has_a_label_and_every_figure_a_text(visit):
    visitor = visit()
    unnamed = visitor.page.evaluate(
        "() => [...document.querySelectorAll('input, textarea, button')].filter(e => e.offsetParent &&"
        " !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.title"
        " || e.getAttribute('aria-labelledby') || e.dataset.testid || e.closest('.modebar'))).map(e => e.outerHTML)"
    )
    assert unnamed == []
    figures = visitor.page.locator("[role=figure]")
    assert figures.count() == 3
    assert all(figures.nth(i).get_attribute("aria-label") for i in range(3))


def test_a_hostile_name_in_an_address_is_text_and_calls_nobody(visit):
    visitor = visit("/?kv=![](https://example.org/p.png)&model=<img src=https://example.org/q.png>")
    assert visitor.page.locator("[data-testid=stMain] img[src*=example]").count() == 0


def test_a_csv_holds_exactly_the_table(visit):
    visitor = visit("/sweep")
    visitor.figure("fit")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="CSV", exact=True).click()
    lines = [line for line in download.value.path().read_text().splitlines() if not line.startswith("#")]
    table = kvplan.sweep(LLAMA, context_length="1k..256k*2", batch_size="1..256*2")
    assert len(lines) == len(table) + 1
    total = lines[0].split(",").index("total_bytes")
    assert [int(line.split(",")[total]) for line in lines[1:]] == table["total_bytes"].tolist()


def test_the_plan_is_downloaded_as_a_page_that_asks_no_server_for_anything(visit):
    visitor = visit("/share")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Page with its figures").click()
    text = download.value.path().read_text()
    assert kvplan.plan(LLAMA).sentence in text
    assert 'src="http' not in text


def test_the_address_of_a_sweep_opens_the_same_question(visit):
    first = visit("/sweep")
    first.page.get_by_text("Which GPU?").click()
    first.figure("fleet")
    second = visit(first.page.url.removeprefix(first.server.url))
    assert second.figure("fleet")[0]["x"] == first.figure("fleet")[0]["x"]
