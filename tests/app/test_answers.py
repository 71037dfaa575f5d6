"""Which parts of a run a change draws anew: the answer alone where the sidebar stays as it is, else everything."""

import pytest

import kvplan
import kvplan.ui.sidebar
from kvplan.ui.answers import QUIET
from kvplan.ui.fields import FIELDS
from tests.app.conftest import WIDGETS

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")

CHANGES = {
    "ctx": "64k", "batch": 3, "kv": "fp8", "weights": "fp8_per_tensor", "heads": "1", "ep": "yes", "fraction": 0.8,
    "overhead": "2GiB", "images": "576", "prefix": "1k", "adapters": "300MiB", "draft": "llama-3.2-1b",
}  # fmt: skip


@pytest.fixture
def sidebars(monkeypatch):
    """One entry for each time that the sidebar was drawn."""
    drawn, show = [], kvplan.ui.sidebar._example
    monkeypatch.setattr(kvplan.ui.sidebar, "_example", lambda: (drawn.append(1), show()))
    return drawn


@pytest.fixture
def sweep(app, sidebars):
    """The Sweep page, with no sidebar counted yet."""
    page = app()
    page.go("sweep")
    sidebars.clear()
    return page


def fill(page, key, value):
    """What a person does to one widget of the sidebar, before the browser tells of it."""
    next(widget for kind in WIDGETS for widget in page.run.get(kind) if widget.key == key).set_value(value)


def change(page, key, value):
    """What a person does to one widget of the sidebar."""
    fill(page, key, value)
    page.run.run()
    page.check()


def address_of(page):
    return kvplan.from_link(page.address())


def test_every_quiet_field_is_tried_here():
    assert set(CHANGES) == QUIET < set(FIELDS)


@pytest.mark.parametrize("key", CHANGES)
def test_a_change_that_the_sidebar_shows_by_itself_draws_the_answer_alone(sweep, sidebars, key):
    change(sweep, key, CHANGES[key])
    assert sidebars == []
    field = FIELDS[key]
    asked = LLAMA.with_changes(**{field.setting: field.read(CHANGES[key])})
    assert address_of(sweep) == asked
    assert f"{asked.context_length:,} tokens" in sweep.texts()[0]
    assert f"cache {asked.kv_dtype}" in sweep.texts()[0]


@pytest.mark.parametrize(("key", "value"), [("model", "qwen3-8b"), ("gpu", "h200-141gb"), ("pp", 2), ("dp", 2)])
def test_a_change_of_which_other_fields_speak_draws_the_sidebar_too(sweep, sidebars, key, value):
    change(sweep, key, value)
    assert len(sidebars) == 1


def test_what_is_wrong_is_said_in_the_sidebar_and_taken_back_there(sweep, sidebars):
    change(sweep, "overhead", "much")
    assert len(sidebars) == 1
    assert any("Run-time overhead" in error for error in sweep.errors())
    change(sweep, "overhead", "1GiB")
    assert len(sidebars) == 2
    assert sweep.errors() == []


def test_a_page_without_an_answer_is_drawn_whole(app, sidebars):
    page = app()
    page.go("users")
    sidebars.clear()
    change(page, "kv", "fp8")
    assert len(sidebars) == 1


@pytest.mark.parametrize("other", ["users", "plan"])
def test_a_change_that_comes_with_the_way_to_another_page_draws_that_page(sweep, sidebars, other):
    fill(sweep, "ctx", "64k")
    sweep.go(other)
    assert len(sidebars) == 1
    assert not any(radio.label == "Question" for radio in sweep.run.radio)
    assert address_of(sweep) == LLAMA.with_changes(context_length=65536)
