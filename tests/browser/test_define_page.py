"""Define your own, in a real browser: one click from the Library, and what is wrong stands by its field as it is typed.

The figures are those of the presets, whatever the width of the screen.
"""

import re

import pytest

from tests.browser.conftest import PHONE

pytestmark = pytest.mark.browser


def field(visitor, label):
    """The field of the form with that label: the sidebar has some of the same name."""
    return visitor.page.get_by_test_id("stMain").get_by_label(label, exact=True)


def type_into(visitor, label, text):
    field(visitor, label).fill(text)
    with visitor.rerun():
        field(visitor, label).press("Tab")


def appears(visitor, text):
    """The element with that text, once the page shows it."""
    found = visitor.page.get_by_text(text)
    found.wait_for()
    return found


def test_one_click_leads_from_the_library_to_the_form_and_keeps_the_plan(visit):
    visitor = visit("/library?chosen_models=nemotron-h-8b&gpu=t4-16gb&ctx=2k")
    with visitor.rerun():
        visitor.page.get_by_role("link", name="Edit its sizes").click()
    visitor.page.wait_for_url(re.compile(r"/define\?.*start=nemotron-h-8b"))
    assert field(visitor, "Name").input_value() == "My Nemotron-H 8B Base 8K"
    assert field(visitor, "State heads").input_value() == "128"
    assert "gpu=t4-16gb&ctx=2048" in visitor.page.url


def test_a_fault_stands_below_its_field_as_it_is_typed_and_goes_with_it_on_a_phone(visit):
    visitor = visit("/define?start=llama-3.1-8b", viewport=PHONE, color_scheme="dark")
    type_into(visitor, "KV heads", "5")
    alert = appears(visitor, "“KV heads” is 5, which does not divide “Query heads” 32")
    gap = alert.bounding_box()["y"] - field(visitor, "KV heads").bounding_box()["y"]
    assert 0 < gap < 200
    assert visitor.page.get_by_role("button", name="Plan with this model").count() == 0
    type_into(visitor, "KV heads", "4")
    appears(visitor, "64.0 KiB")  # 2 × 32 layers × 4 heads × 128 × 2 B
    assert alert.count() == 0
    assert visitor.spilled() <= 0


def test_a_mixture_of_experts_is_made_from_nothing_since_a_field_can_be_emptied(visit):
    visitor = visit("/define")
    visitor.page.get_by_text("Mixture of experts").click()
    for label, text in (("Experts in each layer", "8"), ("Experts that a token reads", "2")):
        type_into(visitor, label, text)
    type_into(visitor, "Width of one expert", "14336")
    refused = appears(visitor, "“MLP width” and experts are both given")
    type_into(visitor, "MLP width", "")
    appears(visitor, "28.9 B")  # 26 layers × 8 experts × 3 × 3072 × 14336, attention, embeddings and head
    assert refused.count() == 0
    assert field(visitor, "MLP width").input_value() == ""


def test_an_address_opens_the_form_of_a_gpu_filled_in_on_a_phone(visit):
    visitor = visit("/define?define=a+GPU&start_gpu=l4-24gb", viewport=PHONE)
    assert field(visitor, "Usable memory").input_value() == "22559MiB"
    type_into(visitor, "Lowest", "23GiB")
    appears(visitor, "“Lowest to highest” is 24,696,061,952 to 23,795,335,168")
    assert visitor.spilled() <= 0
    assert visitor.page.get_by_text("Not everything could be used").count() == 0
