"""The Library in a real browser: upload, save, download, what others see, a phone, and the keyboard alone."""

import io
import re
import zipfile
from dataclasses import replace

import pytest

from kvplan.hardware import define_gpu
from kvplan.library import export_zip, file_text, read_preset, read_zip
from kvplan.presets import ScenarioPreset, load_model, load_node, save_gpu
from kvplan.units import GIB
from tests.browser.conftest import PHONE
from tests.servers import running

pytestmark = pytest.mark.browser

CARD = replace(define_gpu(name="A card", usable_bytes=24 * GIB), id="card")
MAX_TABS = 120


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """The folder of the server's own presets, with one GPU that nobody's test changes."""
    folder = tmp_path_factory.mktemp("team")
    (folder / "gpus").mkdir()
    save_gpu(replace(CARD, id="steady", name="Steady"), folder / "gpus")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory, team):
    """A server of its own, since these tests save."""
    log = tmp_path_factory.mktemp("server") / "log"
    with running("app.py", log=log, KVPLAN_PRESETS_DIR=str(team), KVPLAN_READ_ONLY="") as started:
        yield started


def press(visitor, name):
    """Press the visible button of that name and let the page run."""
    with visitor.rerun():
        visitor.page.get_by_role("button", name=name, exact=True).first.click()


def download(visitor, name):
    with visitor.page.expect_download() as coming:
        visitor.page.get_by_role("button", name=name, exact=True).click()
    return coming.value


def type_into(visitor, key, change):
    """Replace text in a text area and have it read."""
    box = visitor.page.locator(f".st-key-{key} textarea")
    text = box.input_value()
    assert change[0] in text
    box.fill(text.replace(*change))
    with visitor.rerun():
        box.press("Control+Enter")


def upload(visitor, name, data):
    if not visitor.page.get_by_text("Preset files (.toml)").is_visible():
        visitor.page.get_by_text("Add files").click()
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    with visitor.rerun():
        visitor.page.locator(".st-key-library_files input[type=file]").set_input_files([file])
    visitor.page.locator(".st-key-upload_keep").wait_for()


def test_an_upload_is_saved_seen_by_others_and_downloaded_again(visit, team):
    mine = replace(CARD, id="uploaded", name="Uploaded")
    visitor = visit("/library?shelf=GPUs")
    upload(visitor, "team.zip", export_zip([mine]))
    press(visitor, "Save into the library")
    visitor.page.get_by_text("Saved in the library of this server: uploaded.").wait_for()
    assert (team / "gpus" / "uploaded.toml").is_file()
    other = visit("/library?shelf=GPUs&chosen_gpus=uploaded")
    file = download(other, "Download the file")
    assert file.suggested_filename == "uploaded.toml"
    assert read_preset(file.path().read_bytes(), file.suggested_filename) == mine
    packed = download(other, "Chosen as a zip").path().read_bytes()
    assert read_zip(packed).presets == (mine,)
    assert len(zipfile.ZipFile(io.BytesIO(download(other, "All as a zip").path().read_bytes())).namelist()) > 100


def test_a_file_is_edited_beside_what_is_wrong_with_it_and_replaced(visit, team):
    save_gpu(CARD, team / "gpus")
    visitor = visit("/library?shelf=GPUs&chosen_gpus=card", viewport=PHONE, color_scheme="dark")
    visitor.page.get_by_text("Edit the file").click()
    visitor.page.locator(".st-key-text_gpus_card textarea").wait_for()
    type_into(visitor, "text_gpus_card", ("usable_bytes", "usable_bites"))
    visitor.page.get_by_text("Line 3").wait_for()
    visitor.page.get_by_text("did you mean 'usable_bytes'").wait_for()
    assert visitor.spilled() == 0
    type_into(visitor, "text_gpus_card", ("usable_bites", "usable_bytes"))
    type_into(visitor, "text_gpus_card", ("A card", "Our card"))
    visitor.page.get_by_text("name was A card, is Our card").first.wait_for()
    press(visitor, "Replace it in the library")
    visitor.page.get_by_text("card is saved in the library of this server").wait_for()
    assert 'name = "Our card"' in (team / "gpus" / "card.toml").read_text(encoding="utf-8")
    press(visitor, "Bring back the previous version")
    press(visitor, "Bring it back")
    assert 'name = "A card"' in (team / "gpus" / "card.toml").read_text(encoding="utf-8")
    assert visitor.spilled() == 0


def test_a_row_that_is_marked_is_chosen(visit):
    visitor = visit("/library?shelf=GPUs&find=steady")
    with visitor.rerun():
        visitor.page.locator("[data-testid=stMain] [data-testid=stDataFrame]").first.click(position={"x": 16, "y": 51})
    visitor.page.locator(".st-key-get_preset").wait_for()
    visitor.page.wait_for_url(re.compile("chosen_gpus=steady"))


@pytest.mark.parametrize("shelf", ["models", "GPUs", "nodes", "scenarios"])
def test_nothing_of_the_page_stands_beyond_a_phone_s_screen(visit, shelf):
    visitor = visit(f"/library?shelf={shelf}", viewport=PHONE)
    assert visitor.heading() == "Library"
    assert visitor.spilled() == 0


def focus(visitor, words):
    """Go on with Tab until what is focused is named by `words`."""
    for _ in range(MAX_TABS):
        visitor.page.keyboard.press("Tab")
        named = visitor.page.evaluate(
            "() => { const now = document.activeElement; const named = ['INPUT', 'BUTTON'].includes(now.tagName);"
            " return named ? now.getAttribute('aria-label') || now.innerText : ''; }"
        )
        if named.startswith(words):
            return
    pytest.fail(f"no key leads to {words}")


def test_a_preset_is_found_and_used_with_the_keyboard_alone(visit):
    visitor = visit("/library?shelf=GPUs")
    keys = visitor.page.keyboard
    focus(visitor, "Filter")
    keys.type("l4-24gb")
    with visitor.rerun():
        keys.press("Enter")
    focus(visitor, "Chosen GPUs")
    keys.type("l4-24gb")
    with visitor.rerun():
        keys.press("Enter")
    keys.press("Escape")
    visitor.page.locator(".st-key-get_preset").wait_for()
    focus(visitor, "Use in the plan")
    keys.press("Enter")
    visitor.page.locator(".st-key-use_preset").wait_for()
    focus(visitor, "Use it")
    keys.press("Enter")
    visitor.page.get_by_text("The plan uses l4-24gb now.").wait_for()
    visitor.page.wait_for_url(re.compile("gpu=l4-24gb"))


def test_words_of_a_file_stay_words(visit, team):
    hostile = "<img src=https://evil.example/a.png onerror=alert(1)> ![x](https://evil.example/b.png) $\\href{a}{b}$"
    text = file_text(replace(CARD, id="hostile", notes=(hostile,), sources=(hostile,), usable_basis=hostile))
    (team / "gpus" / "hostile.toml").write_text(text, encoding="utf-8")
    visitor = visit("/library?shelf=GPUs&chosen_gpus=hostile&chosen_gpus=steady")
    visitor.page.get_by_text("What differs").wait_for()
    visitor = visit("/library?shelf=GPUs&chosen_gpus=hostile")
    visitor.page.get_by_text("![x](https://evil.example/b.png)").first.wait_for()
    assert visitor.page.locator(RENDERED).count() == 0


RENDERED = ", ".join(f"[data-testid=stApp] {what}" for what in ("img", ".katex", "strong", "[aria-label='bolt icon']"))
"""What Markdown, HTML, LaTeX or an icon of a visitor's own words would become on a page."""

SHOWN = (
    "/?", "/users?", "/engine?", "/sweep?q=Which+GPU%3F&", "/sweep?q=What+do+two+settings+do+together%3F&", "/models?",
    "/models?browse=GPUs&", "/library?chosen_models=hostile&", "/library?shelf=nodes&chosen_nodes=hostile&",
    "/library?shelf=scenarios&chosen_scenarios=hostile&", "/define?start=hostile&", "/compare?", "/share?",
)  # fmt: skip


def test_words_of_files_stay_words_on_every_page(visit, team):
    words = (
        "<img src=https://evil.example/a.png onerror=alert(1)> ![x](https://evil.example/b.png) **bold** "
        "$\\href{a}{b}$ :material/bolt:"
    )
    model = replace(load_model("llama-3.1-8b"), id="hostile", source=words, notes=(words,))
    gpu = replace(CARD, id="hostile", notes=(words,), sources=(words,), usable_basis=words)
    node = replace(load_node("4xh100-sxm-80gb"), id="hostile", gpu="hostile", source=words)
    fields = {"model": "hostile", "gpu": "hostile", "context_length": 1024}
    scenario = ScenarioPreset("Hostile", words, fields, words, "hostile")
    for folder, preset in (("models", model), ("gpus", gpu), ("nodes", node), ("scenarios", scenario)):
        (team / folder).mkdir(exist_ok=True)
        (team / folder / "hostile.toml").write_text(file_text(preset), encoding="utf-8")
    asked = "v=1&model=hostile&gpu=hostile&ctx=1024&batch=1"
    others = "&b.v=1&b.model=hostile&b.gpu=h100-sxm-80gb"
    visitor = visit()
    for path in SHOWN:
        visitor.open(path + asked + (others if "compare" in path else ""))
        visitor.page.wait_for_url(re.compile("model=hostile.*gpu=hostile"))
        assert visitor.page.locator(RENDERED).count() == (2 if "compare" in path else 0), path  # its bold answers
