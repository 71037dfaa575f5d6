"""The Lab page in a real browser: a link opens it, a click fills the cache, long work stops, an answer stays hidden."""

import re

import pytest

from kvplan import lab

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}


def press(visitor, key):
    with visitor.rerun():
        visitor.page.locator(f".st-key-{key} button").first.click()


def written(visitor):
    """The words in the cells of the cache, row by row."""
    visitor.figure("lab_grid")
    return visitor.page.evaluate(
        "() => document.querySelector('.st-key-lab_grid .js-plotly-plot')._fullData[0].text.map(row => Array.from(row))"
    )


def test_a_class_fills_the_cache_hides_a_fault_and_stops_a_training(visit):
    visitor = visit("/lab?lab_step=1")
    model = lab.TinyDecoder(num_layers=2, num_attention_heads=2, num_kv_heads=2, head_dim=16, vocab_size=50)
    cells = lab.trace_grid(model, [1, 2, 3, 4], 4)
    press(visitor, "lab_forward")
    tokens = cells[(cells["step"] == 2) & (cells["layer"] == 0)]["token"].tolist()
    assert [cell.split("</b>")[0].removeprefix("<b>") for cell in written(visitor)[0]] == [str(t) for t in tokens]
    visitor.page.wait_for_url(re.compile("lab_step=2"))

    with visitor.rerun():
        visitor.page.locator(".st-key-lab_screen").get_by_text("4 Name the fault").click()
    press(visitor, "lab_next_riddle")
    riddle = lab.mystery(2, lab.TinyDecoder(num_layers=3, head_dim=8, dtype="float64", seed=2), [1, 2, 3, 4])
    visitor.page.wait_for_url(re.compile("lab_riddle=2"))
    assert riddle.fingerprint.fault.name not in visitor.page.url
    assert visitor.page.get_by_text(riddle.fingerprint.fault.goes_wrong).count() == 0
    press(visitor, "lab_name_show")
    visitor.page.get_by_text(riddle.fingerprint.fault.goes_wrong).wait_for()

    with visitor.rerun():
        visitor.page.locator(".st-key-lab_screen").get_by_text("7 Shrink the heads").click()
    visitor.page.locator(".st-key-lab_train_start button").click()
    visitor.page.locator(".st-key-lab_train_stop button").click()
    visitor.page.wait_for_selector(".st-key-lab_train_stop", state="detached")
    visitor.settle()
    assert visitor.page.get_by_text("Loss after training").count() == 0


def test_no_screen_is_wider_than_a_phone(visit):
    visitor = visit("/lab", viewport=PHONE, color_scheme="dark")
    for _ in range(7):
        assert visitor.spilled() == 0
        press(visitor, "lab_next")
    assert visitor.heading() == "8 From toy to planner"
    assert visitor.spilled() == 0


CUT = """() => [...document.querySelectorAll('[data-testid=stMain] button *')].filter(
  part => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).textOverflow === 'ellipsis'
).map(part => part.textContent)"""
"""The words of buttons that end in an ellipsis, since they are longer than their button."""


@pytest.mark.parametrize("size", [{"width": 1440, "height": 900}, PHONE], ids=["wide", "phone"])
def test_no_button_of_the_ladder_is_cut(visit, size):
    visitor = visit("/lab?lab_screen=8+From+toy+to+planner", viewport=size)
    with visitor.rerun():
        visitor.page.get_by_text("Show every answer at once").click()
    visitor.page.get_by_role("button", name="as many KV heads as query heads").wait_for()
    assert visitor.page.evaluate(CUT) == []
