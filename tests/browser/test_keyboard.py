"""Whole tasks by keyboard alone: Tab, arrows, Enter and typing, and the place of the focus always seen."""

import pytest

import kvplan
from kvplan.explain import users_sentence
from kvplan.fleet import lengths_from_quantiles, plan_users

pytestmark = pytest.mark.browser

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
MOST_TABS = 120

HERE = """() => {
  const e = document.activeElement, box = e.closest('[class*="st-key-"]');
  const key = box ? [...box.classList].find(name => name.startsWith('st-key-')).slice(7) : '';
  return {key, tag: e.tagName, text: (e.getAttribute('aria-label') || e.textContent).trim()};
}"""

LOOK = """() => {
  const looks = [];
  for (let e = document.activeElement, i = 0; e && i < 4; e = e.parentElement, i++) {
    const s = getComputedStyle(e);
    looks.push(s.outlineStyle + s.outlineColor, s.boxShadow, s.borderColor, s.backgroundColor);
  }
  return looks.join('|');
}"""


class Keys:
    """A visitor without a mouse."""

    def __init__(self, visitor):
        self.visitor, self.page = visitor, visitor.page

    def press(self, *names):
        for name in names:
            self.page.keyboard.press(name)

    def tab_to(self, key=None, text=None, tag=None):
        """Press Tab until the focus is on a control: by key, by its words, or by its kind of element."""
        for _ in range(MOST_TABS):
            self.press("Tab")
            here = self.page.evaluate(HERE)
            if (key in (None, here["key"])) and (text is None or text in here["text"]) and tag in (None, here["tag"]):
                return
        pytest.fail(f"Tab does not reach {key or text}")

    def write(self, text):
        """Replace what stands in the focused field."""
        self.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
        self.done()

    def done(self, name="Enter"):
        self.press(name)
        self.page.wait_for_timeout(500)
        self.visitor.settle()


@pytest.fixture
def keys(visit):
    return lambda path="": Keys(visit(path))


def test_a_plan_is_made_without_a_mouse(keys):
    one = keys()
    for key, text in (("model", "llama 3.1 70b"), ("tp", "2"), ("ctx", "16k"), ("weights", "fp8_per_tensor")):
        one.tab_to(key, tag="INPUT")
        one.write(text)
    expected = kvplan.Scenario(
        "llama-3.1-70b", "h100-sxm-80gb", context_length=16384, tensor_parallel=2, weight_dtype="fp8_per_tensor"
    )
    assert one.visitor.heading() == kvplan.plan(expected).sentence


def test_what_would_make_it_fit_is_applied_without_a_mouse(keys):
    one = keys("/?model=llama-3.1-70b&tp=2&ctx=16k&batch=20&weights=fp8_per_tensor")
    one.tab_to("apply_kv_dtype")
    one.done("Space")
    assert one.visitor.heading().startswith("Fits")


def test_the_formula_opens_without_a_mouse(keys):
    one = keys()
    one.tab_to("formula")
    one.done()
    assert one.page.get_by_text("What the cache formula takes for granted").is_visible()


def test_users_are_planned_without_a_mouse(keys):
    one = keys("/users")
    one.tab_to("users_at_once", tag="INPUT")
    one.write("200")
    one.tab_to("p95", tag="INPUT")
    one.write("6k")
    lengths = lengths_from_quantiles((1024, 6144), (256, 1024), 8192)
    assert one.visitor.heading() == users_sentence(LLAMA, 200, lengths, plan_users(LLAMA, 200, lengths)[1])


def test_models_are_compared_and_one_is_planned_without_a_mouse(keys):
    one = keys("/models")
    one.tab_to("filter", tag="INPUT")
    one.write("gemma")
    one.tab_to("compare", tag="INPUT")
    one.page.keyboard.type("gemma-3-27b")
    one.done()
    one.press("Escape")
    one.tab_to("use_gemma-3-27b")
    one.done()
    expected = kvplan.plan(kvplan.Scenario("gemma-3-27b", "h100-sxm-80gb"))
    assert one.visitor.heading() == expected.sentence


def test_a_model_of_ones_own_is_made_without_a_mouse(keys):
    one = keys("/define")
    for key, text in (("own_name", "Keyed"), ("own_num_layers", "24"), ("own_num_kv_heads", "4")):
        one.tab_to(key, tag="INPUT")
        one.write(text)
    one.tab_to("use_model")
    one.done()
    model = kvplan.define_model(
        name="Keyed", num_layers=24, hidden_size=3072, num_attention_heads=24, num_kv_heads=4, intermediate_size=8192,
        vocab_size=128256,
    )  # fmt: skip
    assert one.visitor.heading() == kvplan.plan(kvplan.Scenario(model, "h100-sxm-80gb")).sentence


@pytest.mark.parametrize("path", ["/", "/users", "/models", "/define"])
def test_the_focus_is_always_seen_and_walks_in_reading_order(keys, path):
    one = keys(path)
    walked, hidden = [], []
    for _ in range(MOST_TABS):
        one.press("Tab")
        one.page.wait_for_timeout(30)
        here = one.page.evaluate(HERE)
        if here["tag"] in ("BODY", "HTML"):
            break
        focused = one.page.evaluate(LOOK)
        element = one.page.evaluate_handle("() => document.activeElement")
        one.page.evaluate("() => document.activeElement.blur()")
        one.page.wait_for_timeout(200)
        plain = one.page.evaluate(
            LOOK.replace("document.activeElement", "arguments_[0]").replace("() =>", "arguments_ =>"), [element]
        )
        # a table draws its focus on its canvas
        if here["tag"] not in ("MAIN", "CANVAS", "TD", "TH", "TABLE") and focused == plain:
            hidden.append(here)
        element.evaluate("e => e.focus()")
        walked.append(here["key"])
    assert hidden == []
    order = [key for key in dict.fromkeys(walked) if key in ("model", "gpu", "tp", "ctx", "batch", "kv", "weights")]
    assert order == ["model", "gpu", "tp", "ctx", "batch", "kv", "weights"]
