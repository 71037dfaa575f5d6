"""Import in a real browser: a pasted config becomes a figure, a file and the plan."""

import re
from pathlib import Path

import pytest

from kvplan.importer import import_config
from kvplan.library import read_preset

pytestmark = pytest.mark.browser

CONFIG = Path(__file__).resolve().parents[1] / "data" / "configs" / "google__gemma-3-27b-it.json"
PHONE = {"width": 390, "height": 844}


def test_a_pasted_config_is_drawn_downloaded_and_planned(visit):
    model = import_config(CONFIG)
    visitor = visit("/import", viewport=PHONE, color_scheme="dark")
    box = visitor.page.locator(".st-key-import_text textarea")
    box.fill(CONFIG.read_text(encoding="utf-8"))
    box.press("Control+Enter")
    strip = {trace["name"]: sum(trace["x"]) for trace in visitor.figure("import_strip")}
    assert strip == {"sliding window (52)": 52, "full attention (10)": 10}
    visitor.settle()
    assert visitor.spilled() == 0
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Download as a preset file").click()
    file = download.value
    assert read_preset(file.path().read_bytes(), file.suggested_filename) == model
    visitor.page.get_by_role("button", name="Plan with this model").click()
    visitor.page.wait_for_url(re.compile("model=my-gemma3"))
    visitor.settle()
    assert visitor.page.get_by_text("The plan uses gemma3 now").count() == 1
