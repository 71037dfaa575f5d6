"""The browser's address bar: a complete link at every moment, no entry in the history for a widget, and Back."""

import time
from urllib.parse import parse_qs, urlsplit

import pytest

import kvplan
from kvplan.comparison import compare
from kvplan.share import from_comparison_link, to_comparison_link, to_fields

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
GEMMA = kvplan.Scenario("gemma-3-27b", "a100-sxm-80gb", context_length=32768, batch_size=3)
OWN = kvplan.define_model(
    name="Own", num_layers=12, hidden_size=512, num_attention_heads=8, num_kv_heads=2, intermediate_size=2048,
    vocab_size=32000,
)  # fmt: skip
TEXTS = "[data-testid=stMain] [data-testid=stText]"


def soon(visitor, look, expected):
    """Whether what is looked at is, or on a busy machine soon becomes, what is expected."""
    end = time.monotonic() + 20
    while (found := look()) != expected and time.monotonic() < end:
        visitor.page.wait_for_timeout(50)
    return found == expected


def shows(visitor, *scenarios):
    """Whether the address is exactly the link of these."""
    return soon(visitor, lambda: opened(visitor.page.url), scenarios)


def opened(address):
    try:
        return from_comparison_link(address)
    except kvplan.KvplanError:
        return None  # not yet


def entries(visitor):
    return visitor.page.evaluate("history.length")


def query(visitor):
    return parse_qs(urlsplit(visitor.page.url).query, keep_blank_values=True)


def held(visitor, key):
    return visitor.page.locator(f".st-key-{key} input").input_value()


def go(visitor, name):
    with visitor.rerun():
        visitor.page.get_by_role("link", name=name, exact=True).click()


def ask_which_gpu(visitor):
    """Have the Sweep page answer its fourth question."""
    with visitor.rerun():
        visitor.page.get_by_text("Which GPU?").click()
    visitor.figure("fleet")


def back(visitor):
    with visitor.rerun():
        visitor.page.go_back()


def hurry(visitor, *steps, pause):
    """Go through the history without waiting for any page; `pause` is in ms."""
    for step in steps:
        visitor.page.evaluate(f"history.go({step})")
        visitor.page.wait_for_timeout(pause)
    visitor.settle()


def click(visitor, name):
    with visitor.rerun():
        visitor.page.get_by_role("button", name=name, exact=True).click()


def relative(visitor):
    return visitor.page.url.removeprefix(visitor.server.url)


# ------------------------------------------------------------------------------------------------- what is written


def test_the_address_is_complete_from_the_first_moment_and_follows_each_widget_without_an_entry(visit):
    visitor = visit()
    assert shows(visitor, LLAMA)
    before = entries(visitor)
    visitor.choose("ctx", "64k")
    assert shows(visitor, LLAMA.with_changes(context_length=65536))
    visitor.choose("ctx", "8k")
    visitor.choose("model", "gemma-3-27b")
    assert shows(visitor, LLAMA.with_changes(model="gemma-3-27b"))
    assert soon(visitor, lambda: query(visitor).get("mfp"), [to_fields(GEMMA)["mfp"]])
    assert entries(visitor) == before


def test_every_page_has_it_while_moving_and_one_entry_each(visit):
    visitor = visit(f"/{kvplan.to_link(GEMMA)}")
    before = entries(visitor)
    for count, name in enumerate(("Users", "Sweep", "Models", "Compare", "Share"), 1):
        go(visitor, name)
        assert shows(visitor, GEMMA)
        assert entries(visitor) == before + count


def test_a_page_opened_in_another_tab_or_copied_from_its_link_has_the_scenario_as_it_stands(visit):
    visitor = visit(f"/{kvplan.to_link(GEMMA)}")
    link = visitor.page.get_by_role("link", name="Users", exact=True)
    visitor.choose("ctx", "64k")
    assert shows(visitor, GEMMA.with_changes(context_length=65536))
    link.click(button="right")  # as before "open in a new tab" and "copy the link's address"
    address = link.get_attribute("href")
    assert urlsplit(address).path == "/users"
    assert kvplan.from_link(address) == GEMMA.with_changes(context_length=65536)


def test_what_a_page_itself_asks_stands_beside_the_link_without_an_entry(visit):
    visitor = visit("/sweep")
    before = entries(visitor)
    ask_which_gpu(visitor)
    assert soon(visitor, lambda: query(visitor).get("q"), ["Which GPU?"])
    assert shows(visitor, LLAMA)
    assert entries(visitor) == before


def test_what_a_button_changes_makes_no_entry_either(visit):
    visitor = visit("/lab")
    before = entries(visitor)
    click(visitor, "Next step")
    click(visitor, "Next step")
    assert soon(visitor, lambda: query(visitor).get("lab_step"), ["2"])
    assert entries(visitor) == before


# ------------------------------------------------------------------------------------------------------------- back


def test_back_and_forward_pressed_faster_than_the_pages_come_end_where_they_lead(visit):
    early, late = LLAMA.with_changes(context_length=32768), LLAMA.with_changes(context_length=65536)
    visitor = visit(f"/{kvplan.to_link(early)}")
    go(visitor, "Sweep")
    ask_which_gpu(visitor)
    go(visitor, "Users")
    visitor.choose("ctx", "64k")
    assert shows(visitor, late)
    before = entries(visitor)
    for pause in (0, 60):
        hurry(visitor, -1, -1, pause=pause)
        assert soon(visitor, visitor.heading, kvplan.plan(early).sentence)
        assert shows(visitor, early)
        assert soon(visitor, lambda: held(visitor, "ctx"), "32k")
        hurry(visitor, 1, 1, pause=pause)
        assert shows(visitor, late)
        assert relative(visitor).startswith("/users")
        assert soon(visitor, lambda: held(visitor, "ctx"), "64k")
        hurry(visitor, -1, 1, -1, pause=pause)
        assert soon(visitor, visitor.page.locator(".st-key-fleet").count, 1)
        assert shows(visitor, early)
        assert query(visitor)["q"] == ["Which GPU?"]
        hurry(visitor, 1, pause=pause)
    assert entries(visitor) == before


def test_pages_that_are_left_as_soon_as_they_are_asked_for_never_break_the_connection(visit):
    """Ends of many runs reach a browser at once then: what it held when it asked, it holds no more at the answer."""
    visitor = visit()
    page = visitor.page
    for name in ("Models", "Users", "Share", "Plan"):
        page.get_by_role("link", name=name, exact=True).first.click()
        page.wait_for_timeout(60)
    page.locator(".st-key-batch input").fill("7")
    page.locator(".st-key-batch input").press("Enter")
    assert shows(visitor, LLAMA.with_changes(batch_size=7))
    for step in (page.go_back, page.go_forward):
        for _ in range(4):
            step()
            page.wait_for_timeout(50)
    assert shows(visitor, LLAMA.with_changes(batch_size=7))
    assert soon(visitor, visitor.heading, kvplan.plan(LLAMA.with_changes(batch_size=7)).sentence)


def test_back_returns_to_the_page_with_its_values_and_forward_too(visit):
    visitor = visit()
    visitor.choose("ctx", "32k")
    go(visitor, "Sweep")
    ask_which_gpu(visitor)
    go(visitor, "Users")
    visitor.choose("ctx", "64k")
    back(visitor)
    assert soon(visitor, visitor.page.locator(".st-key-fleet").count, 1)
    assert soon(visitor, lambda: query(visitor).get("q"), ["Which GPU?"])
    assert soon(visitor, lambda: held(visitor, "ctx"), "32k")
    back(visitor)
    assert soon(visitor, visitor.heading, kvplan.plan(LLAMA.with_changes(context_length=32768)).sentence)
    assert shows(visitor, LLAMA.with_changes(context_length=32768))
    for heading in ("Cheapest", "Users"):
        with visitor.rerun():
            visitor.page.go_forward()
        visitor.page.locator("h2", has_text=heading).first.wait_for()
    assert soon(visitor, lambda: held(visitor, "ctx"), "64k")
    assert visitor.page.locator(TEXTS, has_text="Not everything").count() == 0


def test_back_brings_back_an_own_model(visit):
    visitor = visit(f"/{kvplan.to_link(kvplan.Scenario(OWN, 'h100-sxm-80gb'))}")
    go(visitor, "Share")
    visitor.choose("model", "gemma-3-27b")
    back(visitor)
    assert shows(visitor, kvplan.Scenario(OWN, "h100-sxm-80gb"))
    assert soon(visitor, visitor.heading, kvplan.plan(kvplan.Scenario(OWN, "h100-sxm-80gb")).sentence)


# ------------------------------------------------------------------------------------------------------- other browsers


def test_the_address_of_a_changed_link_opens_the_same_numbers_in_another_browser(visit):
    first = visit(f"/{kvplan.to_link(GEMMA)}")
    first.choose("ctx", "64k")
    second = visit(relative(first))
    sentence = kvplan.plan(GEMMA.with_changes(context_length=65536)).sentence
    assert soon(first, first.heading, sentence)
    assert soon(second, second.heading, sentence)
    assert soon(second, lambda: second.figure("memory"), first.figure("memory"))
    assert soon(second, lambda: second.figure("curve"), first.figure("curve"))
    assert soon(second, lambda: relative(second), relative(first))


def test_the_link_of_the_share_page_opens_the_same_numbers_in_another_browser(visit):
    first = visit(f"/{kvplan.to_link(GEMMA)}")
    first.choose("ctx", "64k")
    numbers = first.figure("memory")
    go(first, "Share")
    link = first.page.locator("[data-testid=stCode] code").inner_text().replace("\n", "")
    assert kvplan.from_link(link) == GEMMA.with_changes(context_length=65536)
    second = visit(link.removeprefix(first.server.url))
    assert soon(second, lambda: second.figure("memory"), numbers)


def test_an_own_model_survives_reloading_and_opens_in_another_browser(visit):
    first = visit(f"/{kvplan.to_link(kvplan.Scenario(OWN, 'h100-sxm-80gb'))}")
    first.choose("ctx", "64k")
    numbers, address = first.figure("memory"), first.page.url
    with first.rerun():
        first.page.reload()
    assert soon(first, lambda: first.figure("memory"), numbers)
    assert first.page.url == address
    assert visit(relative(first)).figure("memory") == numbers
    assert kvplan.from_link(address).model == OWN


def test_a_page_whose_session_the_server_has_lost_opens_again_from_its_address(visit):
    visitor = visit()
    visitor.choose("ctx", "64k")
    # What a new session sends is a new word; the script of the page then opens it again, with its address.
    visitor.page.evaluate(
        "async () => { const blobs = performance.getEntriesByType('resource').map(e => e.name)"
        ".filter(name => name.startsWith('blob:')); for (const blob of blobs) { const found = await import(blob);"
        " if (found.default) found.default({data: {link: '', session: 'another'}}); } }"
    )
    visitor.page.wait_for_load_state()
    visitor.settle()
    assert soon(visitor, lambda: held(visitor, "ctx"), "64k")


def test_what_of_an_address_is_not_used_is_said_once(visit):
    visitor = visit("/?unit=XX&q=zzz&ctx=lots&batch=3")
    said = visitor.page.locator(TEXTS).first.inner_text()
    assert "the link's ctx: number is 'lots'" in said
    assert "unit=XX, q=zzz" in said
    assert shows(visitor, LLAMA.with_changes(batch_size=3))
    visitor.choose("ctx", "64k")
    assert "zzz" not in visitor.page.locator(TEXTS).first.inner_text()


# ----------------------------------------------------------------------------------------------------------- compare


def test_a_kept_scenario_stands_beside_the_changed_one_and_the_address_opens_both(visit):
    first = visit("/compare")
    click(first, "Keep the current scenario as B")
    first.choose("ctx", "64k")
    changed = LLAMA.with_changes(context_length=65536)
    assert shows(first, changed, LLAMA)
    bars = first.figure("compared")
    cache = next(trace for trace in bars if trace["name"] == "KV cache")
    assert [cell[0] for cell in cache["customdata"]] == [kvplan.plan(s).cache_bytes for s in (changed, LLAMA)]
    second = visit(relative(first))
    assert soon(second, lambda: second.figure("compared"), bars)
    assert soon(second, lambda: relative(second), relative(first))


def test_back_brings_back_a_comparison(visit):
    visitor = visit(f"/compare{to_comparison_link([LLAMA, GEMMA])}")
    go(visitor, "Plan")
    assert shows(visitor, LLAMA)
    visitor.choose("ctx", "64k")
    back(visitor)
    assert shows(visitor, LLAMA, GEMMA)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_of_four_fits_a_phone(visit, scheme):
    four = [LLAMA, GEMMA, LLAMA.with_changes(batch_size=64), LLAMA.with_changes(kv_dtype="fp8")]
    visitor = visit(f"/compare{to_comparison_link(four)}", viewport=PHONE, color_scheme=scheme)
    visitor.figure("compared")
    assert visitor.spilled() == 0
    assert visitor.page.get_by_text(f"{compare(*four).sentences[2]}.").is_visible()


def tab_to(visitor, where, tries=90):
    for _ in range(tries):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate(f"() => !!document.activeElement.closest({where!r})"):
            return
    pytest.fail(f"no Tab reaches {where}")


def test_compare_works_by_keyboard_alone(visit):
    visitor = visit("/compare")
    tab_to(visitor, ".st-key-compare_keep")
    with visitor.rerun():
        visitor.page.keyboard.press("Enter")
    assert shows(visitor, LLAMA, LLAMA)
    tab_to(visitor, ".st-key-compare_link")
    visitor.page.keyboard.type(kvplan.to_link(GEMMA))
    with visitor.rerun():
        visitor.page.keyboard.press("Enter")
    assert shows(visitor, LLAMA, LLAMA, GEMMA)
    tab_to(visitor, ".st-key-compare_remove_1")
    with visitor.rerun():
        visitor.page.keyboard.press("Enter")
    assert shows(visitor, LLAMA, GEMMA)


def test_share_works_by_keyboard_alone(visit):
    visitor = visit("/share")
    tab_to(visitor, "[class*='st-key-get_plan']")
    with visitor.page.expect_download() as download:
        visitor.page.keyboard.press("Enter")
    assert kvplan.plan(LLAMA).sentence in download.value.path().read_text()


# --------------------------------------------------------------------------------------------------------- downloads


def test_a_comparison_is_downloaded_with_its_link(visit):
    visitor = visit(f"/compare{to_comparison_link([LLAMA, GEMMA])}")
    with visitor.page.expect_download() as download:
        click(visitor, "Page with its figures (HTML)")
    text = download.value.path().read_text()
    assert compare(LLAMA, GEMMA).sentences[0] in text
    assert f"{visitor.server.url}/compare?v=1" in text


def test_a_sweep_is_downloaded_with_the_figure_on_screen_and_a_link_that_opens_the_same_question(visit):
    first = visit("/sweep")
    ask_which_gpu(first)
    bars = first.figure("fleet")
    with first.page.expect_download() as download:
        click(first, "Page with its figures (HTML)")
    text = download.value.path().read_text()
    link = text.split("<code id='link'>")[1].split("</code>")[0].replace("&amp;", "&")
    second = visit(link.removeprefix(first.server.url))
    assert soon(second, lambda: second.figure("fleet"), bars)
    assert bars[0]["y"][0] in text


def test_a_figure_is_saved_as_svg_from_its_own_toolbar(visit):
    visitor = visit(f"/compare{to_comparison_link([LLAMA, GEMMA])}")
    visitor.figure("compared")
    visitor.page.locator(".st-key-compared .js-plotly-plot").hover()
    with visitor.page.expect_download() as download:
        visitor.page.locator(".st-key-compared .modebar-btn[data-title*='Download']").click()
    assert download.value.suggested_filename == "kvplan.svg"
    assert "<svg" in download.value.path().read_text()


def test_the_unit_that_a_link_asks_for_stands_in_the_address_of_every_page(visit):
    visitor = visit("/?model=gemma-3-27b&unit=GB")
    for name in ("Users", "Models", "Plan"):
        go(visitor, name)
        assert query(visitor)["unit"] == ["GB"]
    visitor.page.get_by_role("button", name="More settings").click()
    with visitor.rerun():
        visitor.page.locator(".st-key-unit").get_by_text("GiB", exact=True).click()
    visitor.page.keyboard.press("Escape")
    go(visitor, "Users")
    assert "unit" not in query(visitor)
