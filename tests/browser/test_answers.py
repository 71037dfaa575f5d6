"""What a browser keeps when only the answer of a page is drawn anew, and what is drawn when the answer is not all."""

import re

import pytest

import kvplan

pytestmark = pytest.mark.browser

FULL = kvplan.Scenario("llama-3.1-70b", "h100-sxm-80gb", context_length=32768)


def link_of(visitor):
    return kvplan.from_link(visitor.page.url.split("?", 1)[1])


def held(visitor, key):
    return visitor.page.locator(f".st-key-{key} input").first.input_value()


@pytest.mark.parametrize("path", ["/", "/sweep"])
def test_changes_one_after_the_other_all_count_and_go_along_to_other_pages(visit, path):
    visitor = visit(path)
    visitor.choose("kv", "fp8")
    visitor.choose("ctx", "64k")
    visitor.choose("model", "Qwen3 8B")  # the sidebar is drawn with it
    visitor.choose("weights", "fp8_per_tensor")
    asked = kvplan.Scenario(
        "qwen3-8b", "h100-sxm-80gb", context_length=65536, batch_size=8, kv_dtype="fp8", weight_dtype="fp8_per_tensor"
    )
    visitor.page.wait_for_url(re.compile("weights=fp8_per_tensor"))
    assert link_of(visitor) == asked
    with visitor.rerun():
        visitor.page.get_by_test_id("stTopNavLink").get_by_text("Users").click()
    visitor.page.wait_for_url(re.compile("/users"))
    assert link_of(visitor) == asked
    assert [held(visitor, key) for key in ("kv", "ctx", "weights")] == ["fp8", "64k", "fp8_per_tensor"]


def test_a_change_that_the_answer_offers_is_seen_in_the_sidebar(visit):
    visitor = visit("/" + kvplan.to_link(FULL))
    assert held(visitor, "tp") == "1"
    with visitor.rerun():
        visitor.page.locator(".st-key-apply_tensor_parallel button").click()
    visitor.page.wait_for_url(re.compile("tp=4"))
    assert held(visitor, "tp") == "4"
    assert link_of(visitor) == FULL.with_changes(tensor_parallel=4)
    assert visitor.heading() == kvplan.plan(FULL.with_changes(tensor_parallel=4)).sentence


def test_what_is_wrong_is_said_beside_its_field_and_gone_when_it_is_mended(visit):
    visitor = visit()
    visitor.choose("kv", "fp9")
    alert = visitor.page.locator("[data-testid=stSidebar] [role=alert]")
    assert "KV cache precision" in alert.inner_text()
    visitor.choose("kv", "fp8")
    alert.wait_for(state="detached")
    assert visitor.heading() == kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", kv_dtype="fp8")).sentence


def test_settings_behind_a_closed_button_count_when_the_answer_is_drawn_alone(visit):
    visitor = visit()
    visitor.page.get_by_role("button", name="More settings").click()
    box = visitor.page.locator(".st-key-fraction input")
    box.fill("0.5")
    box.press("Enter")
    visitor.page.wait_for_url(re.compile("fraction=0.5"))
    visitor.page.keyboard.press("Escape")
    box.wait_for(state="detached")
    visitor.choose("kv", "fp8")
    visitor.choose("ctx", "64k")
    visitor.page.wait_for_url(re.compile("ctx=65536.*kv=fp8.*fraction=0.5"))
    asked = kvplan.Scenario(
        "llama-3.1-8b", "h100-sxm-80gb", context_length=65536, batch_size=8, kv_dtype="fp8", memory_fraction=0.5
    )
    assert link_of(visitor) == asked
    assert visitor.heading() == kvplan.plan(asked).sentence


@pytest.mark.parametrize(
    ("path", "button", "key", "text", "appears"),
    [
        ("/", "More settings", "dp", "2", "1 × 1 stage × 2 replicas = 2 GPUs"),
        ("/?tp=8", "Easily forgotten", "draft", "gemma-3-1b", "Not possible: Number of GPUs"),
    ],
)
def test_what_appears_above_a_button_leaves_it_open_and_the_hand_in_its_field(visit, path, button, key, text, appears):
    visitor = visit(path)
    visitor.page.get_by_role("button", name=button).click()
    visitor.choose(key, text)
    visitor.page.get_by_test_id("stSidebar").get_by_text(appears).wait_for()
    field = visitor.page.locator(f".st-key-{key} input")
    assert field.is_visible()
    assert field.evaluate("field => field === document.activeElement")
