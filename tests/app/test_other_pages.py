"""Share, models of one's own on every page, and scenarios at the ends of what is accepted."""

import pytest

import kvplan
from kvplan.share import to_fields

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")


def on(app, page, **address):
    opened = app(**address)
    opened.go(page)
    assert not opened.errors()
    return opened


# ------------------------------------------------------------------------------------------------------- first runs

OPENED = (
    ("", {}),
    ("", {"batch": "400"}),
    ("", {"prefix": "1k", "ctx": "2k"}),
    ("users", {}),
    ("engine", {}),
    ("sweep", {"q": "What would more or fewer KV heads cost?"}),
    ("models", {}),
    ("models", {"browse": "GPUs"}),
    ("library", {}),
    ("define", {}),
    ("define", {"define": "a GPU"}),
    ("import", {}),
    ("lab", {"lab_screen": "8 From toy to planner"}),
    ("compare", {}),
    ("share", {}),
)


def shown(page):
    """What a page says, shows and offers in its main part, in order of kinds."""
    main = page.run.main
    kinds = (main.header, main.subheader, main.text, main.caption, main.metric, main.error, main.selectbox, main.code)
    charts = [chart.proto.spec for chart in page.run.get("plotly_chart")]
    return [[element.value for element in kind] for kind in kinds], charts, [table.to_csv() for table in page.tables()]


LINK = {"model": "gemma-3-27b", "kv": "fp8", "tp": "2", "unit": "GB"}


@pytest.mark.parametrize("link", [{}, LINK], ids=["usual", "link"])
@pytest.mark.parametrize(("path", "address"), OPENED)
def test_a_page_that_a_session_begins_with_looks_as_in_its_second_run(path, address, link, app):
    """The page is drawn before the sidebar, whose widgets hold nothing yet in the first run."""
    opened = app(page=path, **{**link, **address})
    first = shown(opened)
    opened.run.run()
    opened.check()
    assert shown(opened) == first


@pytest.mark.parametrize(("path", "address"), OPENED)
def test_no_file_lies_ready_that_a_browser_asks_for_and_may_find_gone(path, address, app):
    buttons = app(page=path, **address).run.get("download_button")
    assert [button.label for button in buttons if button.proto.url] == []
    assert all(button.proto.deferred_file_id for button in buttons)


# ----------------------------------------------------------------------------------------------------------- share


def test_the_shared_link_reads_back_to_the_scenario(app):
    page = on(app, "share", ctx="32k", kv="fp8", batch="3")
    link = page.run.code[0].value
    assert kvplan.from_link(link) == LLAMA.with_changes(context_length=32768, kv_dtype="fp8", batch_size=3)


def test_the_plans_table_is_in_the_visitors_unit_and_its_exact_numbers_carry_separators(app):
    page = on(app, "share")
    assert page.tables()[0].set_index("what").loc["KV cache"].tolist() == ["8.00 GiB", "8,589,934,592"]
    page.set(unit="GB")
    assert page.tables()[0].set_index("what").loc["KV cache"].tolist() == ["8.59 GB", "8,589,934,592"]


def test_the_plan_is_offered_in_four_kinds_of_file(app):
    labels = [button.label for button in on(app, "share").run.get("download_button")]
    assert labels[:4] == ["CSV", "JSON", "Markdown", "Page with its figures (HTML)"]


def test_the_scenario_is_offered_as_a_preset_where_its_model_is_one(app):
    labels = [button.label for button in on(app, "share").run.get("download_button")]
    assert labels[4:] == ["Scenario as a preset file"]


def test_a_scenario_of_an_own_model_says_why_it_is_no_preset(app):
    page = on(app, "define")
    page.click("use_model")
    page.go("share")
    assert any(text.startswith("No scenario preset: the model My 3B is not in the library") for text in page.texts())


def test_the_shown_plan_holds_every_byte_of_the_answer(app):
    page = on(app, "share")
    table = page.tables()[0].set_index("what")["exact"]
    assert table["free"] == f"{kvplan.plan(LLAMA).free_bytes:,}"
    assert kvplan.plan(LLAMA).sentence in page.texts()
    assert max(map(len, table)) < 30  # nothing that a cell would cut off


def test_what_is_to_be_known_before_a_plan_is_trusted_stands_above_its_link(app):
    page = on(app, "share", ctx="256k")
    (warning,) = kvplan.plan(LLAMA.with_changes(context_length=2**18)).warnings
    assert warning == "262,144 tokens are beyond the 131,072 that Llama 3.1 8B is made for"
    assert warning in page.texts()


def test_a_model_of_ones_own_travels_in_the_link_and_as_a_file(app):
    page = on(app, "define")
    page.click("use_model")
    page.go("share")
    opened = kvplan.from_link(page.run.code[0].value)
    assert opened.model.name == "My 3B"
    assert [button.label for button in page.run.get("download_button")][-1] == "Model as a preset file"


def test_own_models_reach_every_page(app):
    page = on(app, "define")
    page.click("use_model")
    for name in ("plan", "users", "sweep", "models"):
        page.go(name)
        assert not page.errors()


# -------------------------------------------------------------------------------------------------------- extremes


EXTREMES = {
    "largest": LLAMA.with_changes(context_length=2**40, batch_size=2**40),
    "no-limit": kvplan.Scenario("mamba2-2.7b", "h100-sxm-80gb", context_length=2**20),
    "far-too-small": kvplan.Scenario("deepseek-v3", "t4-16gb", context_length=1),
    "no-room": LLAMA.with_changes(memory_fraction=0.001, overhead_bytes=16 * 2**40),
    "blocks": kvplan.Scenario("gpt2", "h100-sxm-80gb", kv_dtype="q4_0"),
}


@pytest.mark.parametrize("page", ["plan", "users", "sweep", "models", "share", "define"])
@pytest.mark.parametrize("name", EXTREMES)
def test_no_scenario_leaves_a_page_without_words(app, page, name):
    opened = app(**to_fields(EXTREMES[name]))
    opened.go(page)
    assert opened.run.header or opened.errors()


@pytest.mark.parametrize("name", EXTREMES)
def test_no_scenario_leaves_a_question_without_words(app, name):
    opened = app(**to_fields(EXTREMES[name]))
    opened.go("sweep")
    for question in opened.run.radio[0].options:
        opened.set(q=question)
        assert opened.run.header or opened.errors() or opened.run.info
