"""Compare: the sidebar's scenario beside others, which a button, a link or a preset adds, and the address holds."""

import json

import pytest

import kvplan
from kvplan.comparison import compare
from kvplan.define import define_model
from kvplan.library import scenario_of
from kvplan.share import from_comparison_link, to_comparison_link
from tests.app.test_address import said

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
OTHER = kvplan.Scenario("gemma-3-27b", "l40s-48gb", context_length=32768)


def on_page(app, *scenarios):
    """The page opened by the link of a comparison."""
    from urllib.parse import parse_qsl

    fields = dict(parse_qsl(to_comparison_link(scenarios)[1:], keep_blank_values=True)) if scenarios else {}
    page = app(**fields)
    page.go("compare")
    return page


def test_without_others_the_page_says_how_to_add_one(app):
    page = on_page(app)
    assert page.heading() == "Compare"
    assert "Keep it as B" in page.run.info[0].value


def test_the_current_scenario_is_kept_and_a_change_of_the_sidebar_stands_beside_it(app):
    page = on_page(app)
    page.click("compare_keep")
    page.set(ctx="64k")
    changed = LLAMA.with_changes(context_length=65536)
    assert f"{compare(changed, LLAMA).sentences[0]}." in page.texts()
    assert ("context length (tokens)", "65,536", "8,192") in [tuple(row) for row in page.tables()[0].to_numpy()]
    assert from_comparison_link(page.address()) == (changed, LLAMA)


def test_a_pasted_link_is_added(app):
    page = on_page(app)
    page.set(compare_link=f"https://kv.example/sweep{kvplan.to_link(OTHER)}&q=Which+GPU%3F")
    assert from_comparison_link(page.address()) == (LLAMA, OTHER)
    assert page.value("compare_link") == ""


def test_a_pasted_link_that_is_damaged_says_so(app):
    page = on_page(app)
    page.set(compare_link=kvplan.to_link(OTHER).replace("ctx=32768", "ctx=lots"))
    assert "the link's ctx" in said(page)
    assert from_comparison_link(page.address())[1].context_length == 8192


def test_a_pasted_comparison_with_more_than_there_is_room_for_says_how_many_were_taken(app):
    page = on_page(app)
    four = [OTHER.with_changes(batch_size=size) for size in (1, 2, 3, 4)]
    page.set(compare_link=to_comparison_link(four))
    assert from_comparison_link(page.address()) == (LLAMA, *four[:3])
    assert "only 3 of the link's 4 scenarios found room: a comparison has up to 4" in said(page)


@pytest.mark.parametrize("text", ["hello", "https://example.org/", "?v=9"])
def test_what_is_no_link_adds_nothing_and_says_so(app, text):
    page = on_page(app)
    page.set(compare_link=text)
    assert said(page)
    assert kvplan.from_link(page.address()) == LLAMA


def test_a_scenario_preset_is_added(app):
    name = kvplan.list_scenarios()[0]
    page = on_page(app)
    page.set(compare_preset=name)
    assert from_comparison_link(page.address()) == (LLAMA, scenario_of(kvplan.load_scenario(name)))


def test_a_link_of_a_comparison_opens_all_its_scenarios_with_their_answers(app):
    page = on_page(app, LLAMA, OTHER, LLAMA.with_changes(batch_size=64))
    shown = [text.value for text in page.run.markdown]
    for letter, scenario in zip("ABC", (LLAMA, OTHER, LLAMA.with_changes(batch_size=64)), strict=True):
        assert f"**{letter}: {kvplan.plan(scenario).sentence}**" in shown


def test_the_bars_hold_the_bytes_of_each(app):
    figure = on_page(app, LLAMA, OTHER).figure("Memory of one GPU side by side")
    cache = next(trace for trace in figure["data"] if trace["name"] == "KV cache")
    assert [cell[0] for cell in cache["customdata"]] == [kvplan.plan(s).cache_bytes for s in (LLAMA, OTHER)]


def test_one_is_removed(app):
    page = on_page(app, LLAMA, OTHER, LLAMA.with_changes(batch_size=64))
    page.click("compare_remove_1")
    assert from_comparison_link(page.address()) == (LLAMA, LLAMA.with_changes(batch_size=64))


def test_one_trades_places_with_the_sidebar(app):
    page = on_page(app, LLAMA, OTHER)
    page.click("compare_swap_1")
    assert from_comparison_link(page.address()) == (OTHER, LLAMA)
    assert page.value("model") == "gemma-3-27b"


def test_four_are_the_most(app):
    page = on_page(app, LLAMA, LLAMA, LLAMA, LLAMA)
    assert "compare_keep" not in [button.key for button in page.run.button]


def test_the_same_scenario_twice_differs_in_nothing(app):
    page = on_page(app, LLAMA, LLAMA)
    assert "Nothing: the scenarios are the same." in page.texts()


def test_the_comparison_is_offered_in_four_kinds_of_file(app):
    labels = [button.proto.label for button in on_page(app, LLAMA, OTHER).run.get("download_button")]
    assert labels == ["CSV", "JSON", "Markdown", "Page with its figures (HTML)"]


def test_the_shown_link_is_that_of_the_address(app):
    page = on_page(app, LLAMA, OTHER)
    assert from_comparison_link(page.run.code[0].value) == (LLAMA, OTHER)


def test_other_pages_hold_the_sidebars_scenario_alone(app):
    page = on_page(app, LLAMA, OTHER)
    page.go("plan")
    assert kvplan.from_link(page.address()) == LLAMA
    page.go("compare")
    assert from_comparison_link(page.address()) == (LLAMA, OTHER)


def test_the_table_of_bytes_is_in_the_visitors_unit(app):
    page = on_page(app, LLAMA, OTHER)
    page.set(unit="GB")
    cells = page.tables()[1].set_index("what")
    assert "GB (" in cells.loc["KV cache", "A"]
    assert json.loads(page.run.get("plotly_chart")[0].proto.spec)["layout"]["xaxis"]["title"]["text"].startswith("GB")


def test_a_model_that_is_an_estimate_says_so_beside_another(app):
    guess = define_model(
        name="Guess", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, num_params=8 * 10**9
    )
    page = on_page(app, LLAMA, LLAMA.with_changes(model=guess))
    assert "B: Guess is itself an estimate, and so is every figure here; its notes say why" in page.texts()
