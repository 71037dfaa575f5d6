"""The Library page: what is listed, compared, edited, uploaded and saved, and who sees what of it."""

from dataclasses import replace

import pytest

import kvplan
from kvplan.hardware import Node, define_gpu
from kvplan.library import (
    GPU,
    MODEL,
    SCENARIO,
    differences,
    export_zip,
    file_text,
    load_previous,
    read_zip,
    save,
    scenario_of,
    stored_text,
    version,
)
from kvplan.presets import (
    ScenarioPreset,
    list_gpus,
    list_models,
    list_nodes,
    list_scenarios,
    load_gpu,
    load_model,
    load_node,
)
from kvplan.schema import all_schemas
from kvplan.ui.shelf import zip_of
from kvplan.units import GIB
from tests.app.conftest import ROOT

CARD = replace(define_gpu(name="A card", usable_bytes=24 * GIB), id="card")
SMALLER = replace(CARD, usable_bytes=12 * GIB, usable_range=(12 * GIB, 12 * GIB))
CONFIG = ROOT / "tests" / "data" / "configs" / "meta-llama__Llama-3.1-8B.json"


@pytest.fixture(autouse=True)
def team(tmp_path, monkeypatch):
    """The server's own library, empty."""
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    monkeypatch.delenv("KVPLAN_READ_ONLY", raising=False)
    return tmp_path


def library(app, **address):
    page = app(**address)
    page.go("presets")
    return page


def open_one(app, shelf, name):
    """The page with one preset chosen."""
    page = library(app)
    choose(page, shelf, name)
    return page


def choose(page, shelf, *names):
    page.set(shelf=shelf)
    page.set(**{f"chosen_{shelf.lower()}": list(names)})


def listed(page):
    return page.tables()[0].set_index("id")


def edit(page, kind, name, *change):
    """Open a file for editing and replace one text by another."""
    page.set(**{f"edit_{kind}_{name}": True})
    key = f"text_{kind}_{name}"
    if change:
        page.set(**{key: page.value(key).replace(*change)})
    return page.value(key)


def upload(page, *files):
    page.run.file_uploader(key="library_files").set_value([(*file, "application/octet-stream") for file in files]).run()
    page.check()


def labels(page):
    return [button.label for kind in ("button", "download_button") for button in page.run.get(kind)]


# ----------------------------------------------------------------------------------------------------------- browse


@pytest.mark.parametrize(
    ("shelf", "ids"),
    [("models", list_models), ("GPUs", list_gpus), ("nodes", list_nodes), ("scenarios", list_scenarios)],
)
def test_every_preset_is_listed_with_where_it_comes_from(app, shelf, ids):
    page = library(app)
    page.set(shelf=shelf)
    assert list(listed(page).index) == list(ids())
    assert set(listed(page)["from"]) == {"shipped"}


def test_the_list_is_narrowed_by_words_and_by_where_presets_come_from(app):
    save(CARD)
    page = library(app)
    page.set(shelf="GPUs", find="h100 80gb")
    assert len(listed(page)) > 1
    assert all("h100" in name for name in listed(page).index)
    page.set(find="", **{"from": "this server"})
    assert list(listed(page).index) == ["card"]
    page.set(**{"from": "this session"})
    assert len(listed(page)) == 0


def test_one_preset_is_shown_as_its_file_with_source_and_notes(app):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    gpu = load_gpu("rtx-4090-24gb")
    assert page.run.code[0].value == stored_text(GPU, "rtx-4090-24gb").rstrip()
    shown = "\n".join(page.texts())
    assert "Shipped with kvplan." in shown
    assert all(f"Source: {source}" in shown for source in gpu.sources)
    assert all(note in shown for note in gpu.notes)


def test_two_presets_are_compared_field_by_field(app):
    page = library(app)
    choose(page, "models", "llama-3.1-8b", "llama-3.1-70b")
    table = page.tables()[1]
    expected = differences(load_model("llama-3.1-8b"), load_model("llama-3.1-70b"))
    assert list(table.columns) == ["field", "llama-3.1-8b", "llama-3.1-70b"]
    assert [tuple(row) for row in table.itertuples(index=False)] == list(expected)


def test_a_chosen_preset_whose_file_is_gone_is_chosen_no_more(app):
    path = save(CARD)
    page = open_one(app, "GPUs", "card")
    path.unlink()
    page.run.run()
    page.check()
    assert page.value("chosen_gpus") == []


# -------------------------------------------------------------------------------------------------------------- use


def test_a_model_and_a_gpu_are_taken_into_the_plan(app):
    page = library(app, heads="4")
    choose(page, "models", "gemma-3-27b")
    page.click("use_preset")
    choose(page, "GPUs", "l4-24gb")
    page.click("use_preset")
    assert (page.value("model"), page.value("heads"), page.value("gpu")) == ("gemma-3-27b", "as trained", "l4-24gb")
    assert "The plan uses l4-24gb now." in page.texts()


def test_a_node_is_taken_into_the_plan_with_all_its_gpus(app):
    name = list_nodes()[0]
    node = load_node(name)
    page = open_one(app, "nodes", name)
    page.click("use_preset")
    assert (page.value("gpu"), page.value("tp")) == (node.gpu, str(node.num_gpus))


def test_a_scenario_is_taken_into_the_plan_with_all_its_settings(app):
    name = list_scenarios()[0]
    preset = kvplan.load_scenario(name)
    page = open_one(app, "scenarios", name)
    page.click("use_preset")
    assert (page.value("model"), page.value("gpu")) == (preset.fields["model"], preset.fields["gpu"])


@pytest.mark.parametrize(
    ("shelf", "name", "address"),
    [
        ("models", "mistral-7b-v0.1", "define=a+model&start=mistral-7b-v0.1"),
        ("GPUs", "l4-24gb", "define=a+GPU&start_gpu=l4-24gb"),
    ],
)
def test_a_preset_leads_to_the_form_of_define_your_own_filled_in(app, shelf, name, address):
    page = open_one(app, shelf, name)
    links = [link.proto for link in page.run.get("page_link")]
    assert [(link.page, link.query_string) for link in links] == [("define", address)]


def test_the_plan_becomes_a_scenario_that_others_find(app):
    page = library(app, ctx="32k", batch="3")
    page.set(shelf="scenarios")
    page.set(scenario_name="Chat at night", scenario_lesson="Three at once.")
    page.click("save_scenario")
    saved = kvplan.load_scenario("chat-at-night")
    assert (saved.name, saved.lesson) == ("Chat at night", "Three at once.")
    assert scenario_of(saved) == kvplan.Scenario(
        "llama-3.1-8b", "h100-sxm-80gb", context_length=32768, batch_size=3
    )  # fmt: skip


@pytest.mark.parametrize("name", ["<b>x</b>", "!!!", "[x](y)"])
def test_a_scenario_whose_name_could_be_rendered_is_refused(app, name):
    page = library(app)
    page.set(shelf="scenarios")
    page.set(scenario_name=name)
    assert page.errors() == ["Not possible"]


# ------------------------------------------------------------------------------------------------------------- edit


def test_a_fault_in_the_text_is_named_with_its_line(app):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    text = edit(page, "gpus", "rtx-4090-24gb", "usable_bytes = ", "usable_bites = ")
    line = text[: text.index("usable_bites")].count("\n") + 1
    assert page.errors() == [f"Line {line}"]
    assert any("did you mean 'usable_bytes'" in words for words in page.texts())
    assert "edit_keep" not in [button.key for button in page.run.button]


def test_an_edited_preset_stays_in_the_session_and_is_planned(app):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    edit(page, "gpus", "rtx-4090-24gb", "usable_bytes = 25253904384", "usable_bytes = 25253904385")
    assert "usable_bytes was 25253904384, is 25253904385" in page.texts()
    page.click("edit_keep")
    (name,) = page.value("chosen_gpus")
    assert listed(page).loc[name, "from"] == "this session"
    page.click("use_preset")
    page.go("plan")
    assert page.value("gpu") == name
    assert load_gpu("rtx-4090-24gb").usable_bytes == 25253904384
    assert name not in listed(open_one(app, "GPUs", "l4-24gb")).index  # of another visitor


def test_a_text_in_the_middle_of_an_edit_is_still_there_after_another_page(app):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    edit(page, "gpus", "rtx-4090-24gb", "GeForce", "Our")
    page.go("plan")
    page.go("presets")
    choose(page, "GPUs", "rtx-4090-24gb")
    assert 'name = "Our RTX 4090 24GB"' in page.value("text_gpus_rtx-4090-24gb")
    assert "name was GeForce RTX 4090 24GB, is Our RTX 4090 24GB" in page.texts()


def test_a_save_that_replaces_says_what_changes_first_and_everybody_sees_it(app):
    save(CARD)
    other = open_one(app, "GPUs", "card")
    page = open_one(app, "GPUs", "card")
    edit(page, "gpus", "card", f"usable_bytes = {24 * GIB}", f"usable_bytes = {12 * GIB}")
    edit(page, "gpus", "card", f"[{24 * GIB}, {24 * GIB}]", f"[{12 * GIB}, {12 * GIB}]")
    assert load_gpu("card") == CARD
    assert f"usable_bytes was {24 * GIB}, is {12 * GIB}\nusable_range changed" in page.texts()
    assert "card is in the library. A save replaces it, and keeps it as the previous version." in page.texts()
    page.click("save_edit_card")
    assert load_gpu("card") == SMALLER
    assert load_previous(GPU, "card") == CARD
    other.run.run()
    other.check()
    assert listed(other).loc["card", "what it is"] == "12.0 GiB usable"
    assert other.run.code[0].value == file_text(SMALLER).rstrip()
    other.set(unit="GB")
    assert listed(other).loc["card", "what it is"] == "12.9 GB usable"


def test_the_previous_version_is_brought_back(app):
    save(CARD)
    save(SMALLER, version(GPU, "card"))
    page = open_one(app, "GPUs", "card")
    page.click("bring_back")
    assert load_gpu("card") == CARD
    assert load_previous(GPU, "card") == SMALLER


def test_of_two_visitors_who_edit_one_file_the_second_is_told(app):
    save(CARD)
    pages = [open_one(app, "GPUs", "card") for _ in range(2)]
    for index, page in enumerate(pages):
        edit(page, "gpus", "card", "A card", f"Card {index}")
    for page in pages:
        page.click("save_edit_card")
    assert load_gpu("card").name == "Card 0"
    assert any("was changed by someone else in the meantime" in text for text in pages[1].texts())
    assert pages[1].value("text_gpus_card").count("Card 1") == 1  # nothing of the work is lost
    pages[1].click("edit_again")
    assert pages[1].value("text_gpus_card").count("Card 0") == 1


def test_a_broken_file_of_the_library_is_mended_on_the_page(app, team):
    path = save(CARD)
    path.write_text(path.read_text().replace("usable_bytes", "usable", 1))
    page = open_one(app, "GPUs", "card")
    assert page.errors() == ["This file cannot be read"]
    edit(page, "gpus", "card", "usable =", "usable_bytes =")
    page.click("save_edit_card")
    assert load_gpu("card") == CARD


def test_a_copy_is_kept_in_the_session_or_saved_under_its_own_id(app):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    page.set(**{"copy_name_rtx-4090-24gb": "Our 4090"})
    page.click("save_copy_rtx-4090-24gb")
    assert load_gpu("rtx-4090-24gb-copy").name == "Our 4090"
    assert page.value("chosen_gpus") == ["rtx-4090-24gb-copy"]
    choose(page, "GPUs", "l4-24gb")
    page.click("copy_keep")
    assert page.value("chosen_gpus") == ["my-l4-24gb-copy"]


@pytest.mark.parametrize("name", ["<b>x</b>", "![x](https://evil.example/x.png)", "$x$", ""])
def test_a_copy_whose_name_could_be_rendered_is_refused(app, name):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    page.set(**{"copy_name_rtx-4090-24gb": name})
    assert any("GPU name is" in text or "name is" in text for text in page.texts())
    assert "copy_keep" not in [button.key for button in page.run.button]


@pytest.mark.parametrize("name", ["../up", "A B", "a..b", ""])
def test_an_id_that_could_be_a_path_is_refused_beside_its_field(app, name):
    page = open_one(app, "GPUs", "rtx-4090-24gb")
    page.set(**{"id_copy_rtx-4090-24gb": name})
    assert any("preset id is" in text for text in page.texts())
    assert "save_copy_rtx-4090-24gb" not in [button.key for button in page.run.button]


def test_a_read_only_server_offers_no_save_and_says_why(app, monkeypatch):
    save(CARD)
    save(SMALLER, version(GPU, "card"))
    monkeypatch.setenv("KVPLAN_READ_ONLY", "1")
    page = open_one(app, "GPUs", "card")
    edit(page, "gpus", "card", "A card", "Another card")
    upload(page, ("new.toml", file_text(CARD).encode()))
    keys = [button.key or "" for button in page.run.button]
    assert not [key for key in keys if key.startswith("save_") or key in ("bring_back", "upload_save")]
    assert any("read-only (KVPLAN_READ_ONLY=1)" in text for text in page.texts())


# ----------------------------------------------------------------------------------------------------------- upload


def test_an_uploaded_zip_is_shown_first_and_its_chosen_presets_are_kept(app):
    mine = replace(load_model("mistral-7b-v0.1"), id="mine", name="Mine")
    scenario = ScenarioPreset("Both", "", {"model": "mine", "gpu": "card", "batch_size": 2}, "", "both")
    node = Node("Two cards", "card", 2, "", "two")
    page = library(app)
    upload(page, ("team.zip", export_zip([CARD, mine, node, scenario, load_gpu("l4-24gb")])))
    table = page.tables()[-1].set_index("id")
    assert table["in the library"].to_dict() == {
        "card": "new", "mine": "new", "two": "new", "both": "new", "l4-24gb": "the same is there",
    }  # fmt: skip
    page.click("upload_keep")
    page.set(shelf="scenarios")
    page.set(chosen_scenarios=["my-both"])
    page.click("use_preset")
    assert (page.value("model"), page.value("gpu"), page.value("batch")) == ("my-mine", "my-a-card", 2)
    choose(page, "nodes", "my-two-cards")
    page.click("use_preset")
    assert (page.value("gpu"), page.value("tp")) == ("my-a-card", "2")
    assert "card" not in list_gpus()


def test_chosen_presets_of_an_upload_are_saved_and_the_others_are_not(app):
    page = library(app)
    upload(page, ("a.toml", file_text(CARD).encode()), ("b.toml", file_text(SMALLER).encode()))
    (take,) = [box for box in page.run.multiselect if box.label == "Take"]
    take.set_value(["GPU b"]).run()
    page.click("upload_save")
    assert load_gpu("b") == replace(SMALLER, id="b")
    assert "a" not in list_gpus()


def test_an_upload_replaces_a_preset_only_where_that_is_asked_for(app):
    save(CARD)
    page = library(app)
    upload(page, ("card.toml", file_text(SMALLER).encode()))
    assert page.tables()[-1]["in the library"][0].startswith("would replace: usable_bytes was 25769803776")
    assert next(button for button in page.run.button if button.key == "upload_save").disabled
    page.set(upload_replace=True)
    page.click("upload_save")
    assert load_gpu("card") == SMALLER
    assert load_previous(GPU, "card") == CARD


def test_a_config_json_becomes_a_model_of_the_library(app):
    page = library(app)
    upload(page, ("Our Llama.json", CONFIG.read_bytes()))
    page.click("upload_save")
    assert load_model("our-llama").num_params == 8030261248


def test_what_cannot_be_read_of_an_upload_is_named_and_the_rest_is_offered(app):
    page = library(app)
    upload(page, ("bad.toml", b"schema = 1"), ("evil.zip", b"PK\x03\x04"), ("card.toml", file_text(CARD).encode()))
    assert page.tables()[-1]["id"].tolist() == ["card"]
    shown = "\n".join(page.texts())
    assert "bad.toml is no preset" in shown
    assert "not a sound zip" in shown


def test_an_upload_of_too_many_bytes_is_refused_before_it_is_read(app):
    page = library(app)
    upload(page, *((f"{index}.zip", b"x" * 4 * 2**20) for index in range(3)))
    assert page.errors() == ["Too much at once"]


def test_more_presets_than_a_session_holds_are_refused_in_words(app):
    page = library(app)
    many = [replace(CARD, id=f"card-{index}", name=f"Card {index}") for index in range(51)]
    upload(page, ("many.zip", export_zip(many)))
    page.click("upload_keep")
    assert "51 gpus were chosen; a session holds up to 50, so choose fewer" in page.texts()


# --------------------------------------------------------------------------------------------------------- download


def test_presets_are_downloaded_as_a_zip_that_is_read_back():
    packed = zip_of([(GPU, "l4-24gb"), (MODEL, "llama-3.1-8b"), (SCENARIO, list_scenarios()[0]), (GPU, "none")])
    assert [preset.id for preset in read_zip(packed).presets] == ["l4-24gb", "llama-3.1-8b", list_scenarios()[0]]


def test_files_zips_and_schemas_are_offered(app):
    page = open_one(app, "GPUs", "l4-24gb")
    page.click("copy_keep")
    assert {"Chosen as a zip", "Yours as a zip", "All as a zip", "Download the file"} <= set(labels(page))
    assert set(all_schemas()) <= set(labels(page))


# ---------------------------------------------------------------------------------------------------------- trouble

PAGES = ("plan", "users", "engine", "sweep", "models", "presets", "define", "importing", "share")


@pytest.mark.parametrize("page", PAGES)
def test_broken_files_in_the_library_break_no_page(app, team, page):
    for folder in ("models", "gpus", "nodes", "scenarios"):
        (team / folder).mkdir()
        (team / folder / "broken.toml").write_bytes(b"\xff\x00 = [")
        (team / folder / "a-name-that-is-none!.toml").write_text("")
    opened = app(batch="64", ctx="128k")  # too much for the GPU, so that others are looked for
    opened.go(page)
    assert opened.run.header or opened.run.metric


def test_broken_files_are_named_once_on_the_library_page(app, team):
    (team / "gpus").mkdir()
    (team / "gpus" / "broken.toml").write_text("schema = 2")
    page = library(app)
    page.set(shelf="GPUs")
    assert [warning.value for warning in page.run.warning] == ["Files that cannot be read are left out everywhere else"]
    assert page.texts().count("broken.toml: schema is 2; this version reads schema = 1") == 1


@pytest.mark.parametrize(("browse", "folder"), [("models", "models"), ("GPUs", "gpus")])
def test_the_lists_of_the_models_page_say_how_many_files_are_left_out(app, team, browse, folder):
    (team / folder).mkdir()
    (team / folder / "broken.toml").write_text("schema = 2")
    page = app()
    page.go("models")
    page.set(browse=browse)
    captions = [caption.value for caption in page.run.caption]
    assert "1 file that cannot be read left out: the Library page says why." in captions


def test_a_team_s_file_in_place_of_a_shipped_one_says_what_differs(app):
    ours = replace(load_gpu("l4-24gb"), bandwidth=1)
    save(ours, version(GPU, "l4-24gb"))
    page = open_one(app, "GPUs", "l4-24gb")
    assert listed(page).loc["l4-24gb", "note"] == "in place of the shipped one; the version before is kept"
    assert any(text.startswith("shipped bandwidth was 300000000000, is 1") for text in page.texts())


@pytest.mark.parametrize("folder", ["none", "a-file"])
def test_a_library_that_is_no_folder_is_said_on_every_page(app, team, monkeypatch, folder):
    (team / "a-file").write_text("")
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(team / folder))
    page = app()
    assert page.errors() == ["This server has no library of presets"]
    assert any("which is no folder that can be read" in text for text in page.texts())


HOSTILE = (
    "<img src=x onerror=alert(1)> ![x](https://evil.example/x.png) $\\href{a}{b}$ :material/lock: www.evil.example"
)


def test_words_of_a_file_are_never_rendered(app, team):
    """They may stand only in elements that show plain text, code or a table's cells."""
    (team / "gpus").mkdir()
    save(replace(CARD, notes=(HOSTILE,), sources=(HOSTILE,), usable_basis=HOSTILE, vendor=HOSTILE))
    (team / "gpus" / "broken.toml").write_text(f"'''{HOSTILE}''' = 1\nusable_bytes = 1")
    page = library(app)
    upload(page, (f"{HOSTILE}.toml", b"x"), ("card.toml", file_text(replace(CARD, notes=(HOSTILE,))).encode()))
    choose(page, "GPUs", "card")
    edit(page, "gpus", "card")
    found = {element.type for element in page.run.main if HOSTILE[:20] in str(element.proto)}
    assert found <= {"text", "code", "dataframe", "text_area"}


def test_a_saved_name_reaches_every_list_at_once(app):
    page = app()
    save(replace(CARD, name="First name"))
    page.go("plan")
    assert "First name · card" in page.run.selectbox(key="gpu").options
    save(replace(CARD, name="Second name"), version(GPU, "card"))
    page.go("plan")
    assert "Second name · card" in page.run.selectbox(key="gpu").options
