"""The address: a complete link on every page, and what of an address is not used is said in one sentence."""

from dataclasses import replace
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given

import kvplan
from kvplan.share import FIELDS as LINK_FIELDS
from kvplan.share import MAX_LINK_CHARACTERS, PAGE_KEYS, to_fields, written_fields
from kvplan.ui.fields import FIELDS
from tests.examples import scenarios

PAGES = ("plan", "users", "engine", "sweep", "models", "presets", "define", "importing", "lab", "compare", "share")
QUESTIONS = (
    "When does the cache pass the weights?", "What fits?", "What would more or fewer KV heads cost?", "Which GPU?",
    "What do two settings do together?",
)  # fmt: skip
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
OWN = kvplan.define_model(
    name="Own", num_layers=4, hidden_size=256, num_attention_heads=4, num_kv_heads=2, intermediate_size=512,
    vocab_size=1000,
)  # fmt: skip


def said(page):
    """What of the address was not used: the text below its warning."""
    return page.texts()[0] if [warning.value for warning in page.run.warning] else ""


# ------------------------------------------------------------------------------------------------- what is written


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_a_complete_link_in_its_address(app, name):
    scenario = LLAMA.with_changes(context_length=50_000, kv_dtype="fp8", tensor_parallel=2, draft_model="llama-3.2-1b")
    page = app(**to_fields(scenario))
    page.go(name)
    opened = kvplan.from_link(page.address())
    assert opened.with_changes(engine=None) == scenario  # the Engine page chooses one
    assert set(to_fields(scenario)) == set(parse_qs(page.address(), keep_blank_values=True))


def test_the_address_follows_the_widgets(app):
    page = app()
    page.set(ctx="64k", batch=3)
    assert kvplan.from_link(page.address()) == LLAMA.with_changes(context_length=65536, batch_size=3)


def test_an_address_of_nothing_is_that_of_the_defaults(app):
    assert kvplan.from_link(app().address()) == LLAMA


def test_a_missing_key_means_the_same_in_a_link_and_in_a_widget():
    defaults = {field.setting: field.default for field in LINK_FIELDS}
    for field in FIELDS.values():
        held = field.read(field.default)
        assert field.key in ("model", "gpu") or {"none": None}.get(held, held) == defaults[field.setting]


def test_what_cannot_be_read_stays_in_the_address_as_it_is(app):
    assert parse_qs(app({"ctx": "lots"}).address())["ctx"] == ["lots"]


def test_what_cannot_be_planned_together_stays_in_the_address(app):
    assert parse_qs(app({"tp": "3"}).address())["tp"] == ["3"]


def test_an_own_model_travels_in_the_address_of_every_page(app):
    scenario = kvplan.Scenario(OWN, "h100-sxm-80gb")
    page = app(**to_fields(scenario))
    page.go("sweep")
    assert kvplan.from_link(page.address()) == scenario


def test_what_no_address_can_carry_is_said_in_a_sentence_with_the_file(app):
    words = "".join(f"{number * 7919 % 99991:x}" for number in range(9000))
    page = app({"own_models": {"my-own": replace(OWN, id="my-own", notes=(words,))}, "model": "my-own"})
    assert page.run.warning[0].value == "The address cannot carry this scenario"
    assert "at most 8,000 are read: send the model as a preset file instead" in page.texts()[0]
    assert "Model as a preset file" in [button.proto.label for button in page.run.get("download_button")]
    assert parse_qs(page.address())["model"] == ["my-own"]
    assert len(page.address()) < MAX_LINK_CHARACTERS


# ---------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ({"unit": "XX"}, "this page does not use unit=XX"),
        ({"q": "zzz"}, "this page does not use q=zzz"),
        ({"q": "a\u202eb\0"}, "this page does not use q=a?b?"),
        ({"utm_source": "mail"}, "this page does not use utm_source=mail"),
        ({"ctx": "lots"}, "the link's ctx: number is 'lots'"),
        ({"unit": "XX", "batch": "0", "foo": "1"}, "this page does not use unit=XX, foo=1"),
    ],
)
def test_what_is_not_used_is_said_in_one_sentence(app, address, words):
    page = app(**address)
    assert words in said(page)
    assert len(page.run.warning) == 1
    page.run.run()
    assert not said(page)


def test_a_pages_own_setting_is_used_and_nothing_is_said(app):
    page = app(unit="GB")
    assert not said(page)
    assert page.value("unit") == "GB"


def test_the_first_answer_of_a_link_is_in_the_unit_that_stands_beside_it(app):
    sentence = kvplan.plan(kvplan.Scenario("gemma-3-27b", "h100-sxm-80gb")).sentence_in("GB")
    assert app(model="gemma-3-27b", unit="GB").heading() == sentence
    assert app(model="gemma-3-27b", unit=["GB", "GiB"]).heading() == sentence


def test_an_address_without_a_model_means_the_usual_one(app):
    page = app(ctx="32k")
    assert not said(page)
    assert page.heading() == kvplan.plan(LLAMA.with_changes(context_length=32768)).sentence


def test_a_link_that_was_cut_says_what_it_lacks(app):
    fields = to_fields(LLAMA.with_changes(context_length=4096))
    page = app(**{key: fields[key] for key in ("v", "model", "gpu", "ctx", "batch", "kv")})
    assert "the link was cut or edited, and what it lacks is as usual: weights, heads, tp, pp" in said(page)
    assert page.heading() == kvplan.plan(LLAMA.with_changes(context_length=4096)).sentence


def test_a_preset_that_changed_since_says_what_changed(app):
    page = app(**{**to_fields(LLAMA), "mfp": "00000000"})
    assert "the model Llama 3.1 8B has changed since the link was made: " in said(page)
    assert "what its layers keep" in said(page)


@pytest.mark.parametrize("key", ["", "$$ID-1-2", "own_models", "\0", "_"])
def test_a_key_that_no_page_has_is_said_and_breaks_nothing(app, key):
    page = app(**{key: "1"})
    assert said(page) == f"this page does not use {key}=1".replace("\0", "?")


def test_ampersands_that_a_mail_escaped_are_read(app):
    first, *others = to_fields(LLAMA.with_changes(context_length=4096)).items()
    page = app(**dict([first]), **{f"amp;{key}": text for key, text in others})
    assert kvplan.from_link(page.address()) == LLAMA.with_changes(context_length=4096)


def test_a_link_that_is_too_long_opens_nothing_and_says_so(app):
    page = app(v="1", model="llama-3.1-8b", model_file="x" * 9000)
    assert "at most 8,000 are read" in said(page)
    assert page.heading() == kvplan.plan(LLAMA).sentence


# ------------------------------------------------------------------------------------------- keys of the pages' own


def bound_keys(node):
    """The key of every widget on the page that the browser writes into the address."""
    key = getattr(getattr(node, "proto", None), "query_param_key", None)
    if key:
        yield key
    for child in getattr(node, "children", {}).values():
        yield from bound_keys(child)


@pytest.mark.parametrize("name", PAGES)
def test_every_key_that_a_page_writes_beside_a_link_is_known_as_such(app, name):
    page = app()
    page.go(name)
    found = set(bound_keys(page.run._tree))
    assert "unit" in found
    assert [key for key in found if not PAGE_KEYS.fullmatch(key)] == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_key_that_a_question_writes_is_known_as_such(app, question):
    page = app()
    page.go("sweep")
    page.set(q=question)
    found = set(bound_keys(page.run._tree))
    assert len(found) > 2 or "heads" in question
    assert [key for key in found if not PAGE_KEYS.fullmatch(key)] == []


def test_the_address_of_any_page_is_a_link_that_reads_back():
    settings = urlencode({"q": "Which GPU?", "fleet_by": "fewest GPUs", "unit": "GB"})
    assert kvplan.from_link(f"http://localhost:8501/sweep{kvplan.to_link(LLAMA)}&{settings}") == LLAMA


# ---------------------------------------------------------------------------------------------------- there and back


@given(scenarios())
def test_the_widgets_of_any_scenario_write_the_link_that_it_came_from(scenario):
    """What a link sets in the widgets is what they write into the address, for every setting but model and GPU."""
    held = {field.key: field.write(getattr(scenario, field.setting)) for field in FIELDS.values() if plain(field)}
    settings = {FIELDS[key].setting: FIELDS[key].read(value) for key, value in held.items()}
    written = written_fields({**settings, "model": scenario.model, "gpu": scenario.gpu, "engine": scenario.engine})
    assert written == to_fields(scenario)


def plain(field):
    """Whether a setting is a value and no model or GPU."""
    return field.key not in ("model", "gpu", "draft")
