"""Import in a real browser: a pasted config becomes a figure, a file and the plan."""

import re
from pathlib import Path

import pytest

from kvplan import Scenario, plan
from kvplan.importer import import_config
from kvplan.library import read_preset

pytestmark = pytest.mark.browser

CONFIG = Path(__file__).resolve().parents[1] / "data" / "configs" / "google__gemma-3-27b-it.json"
PHONE = {"width": 390, "height": 844}


def test_a_pasted_config_is_drawn_downloaded_and_planned(visit):
    model = import_config(CONFIG)
    visitor = visit("/import?ctx=64k&batch=3&kv=fp8", viewport=PHONE, color_scheme="dark")
    box = visitor.page.locator(".st-key-import_text textarea")
    box.fill(CONFIG.read_text(encoding="utf-8"))
    with visitor.rerun():
        box.press("Control+Enter")
    strip = {trace["name"]: sum(trace["x"]) for trace in visitor.figure("import_strip")}
    assert strip == {"sliding window (52)": 52, "full attention (10)": 10}
    assert visitor.spilled() == 0
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Download as a preset file").click()
    file = download.value
    assert read_preset(file.path().read_bytes(), file.suggested_filename) == model
    with visitor.rerun():
        visitor.page.get_by_role("button", name="Plan with this model").click()
    visitor.page.wait_for_url(re.compile(r"/\?.*model=my-gemma3.*ctx=65536.*batch=3.*kv=fp8"))
    expected = Scenario(model, "h100-sxm-80gb", context_length=65536, batch_size=3, kv_dtype="fp8")
    assert visitor.heading() == plan(expected).sentence
    with visitor.rerun():
        visitor.page.goto(visitor.page.url)  # the model travels in the address
    assert visitor.heading() == plan(expected).sentence
