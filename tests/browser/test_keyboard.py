"""Whole tasks by keyboard alone: Tab, arrows, Enter and typing, and the place of the focus always seen."""

import pytest

import kvplan
from kvplan.explain import users_sentence
from kvplan.fleet import lengths_from_quantiles, plan_users
from tests.browser.conftest import PHONE

pytestmark = pytest.mark.browser

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
MOST_TABS = 120

HERE = """() => {
  const e = document.activeElement, box = e.closest('[class*="st-key-"]');
  const key = box ? [...box.classList].find(name => name.startsWith('st-key-')).slice(7) : '';
  return {key, tag: e.tagName, text: (e.getAttribute('aria-label') || e.textContent).trim()};
}"""

SIDEBAR = ["model", "gpu", "tp", "ctx", "batch", "kv", "weights"]
"""Keys of the sidebar in reading order."""

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


def test_no_key_leads_into_the_sidebar_while_it_is_folded_and_into_it_when_it_opens(visit):
    one = Keys(visit(viewport=PHONE))
    one.page.wait_for_url("**v=1&**")
    order = []
    for _ in range(3):
        one.press("Tab")
        order.append(one.page.evaluate(HERE))
    assert [here["text"] for here in order[:2]] == ["Skip to main content", "Expand sidebar"]
    assert order[2]["tag"] == "MAIN"
    one.press("Shift+Tab", "Enter")
    one.page.wait_for_function("() => document.activeElement.getAttribute('aria-label') === 'Collapse sidebar'")
    one.tab_to("model", tag="INPUT")
    one.write("gemma-3-27b")
    assert one.visitor.page.url.count("gemma-3-27b")
    while one.page.evaluate(HERE)["text"] != "Collapse sidebar":
        one.press("Shift+Tab")
    one.press("Enter")
    one.page.wait_for_function("() => document.activeElement.getAttribute('aria-label') === 'Expand sidebar'")


def test_keys_fold_the_sidebar_of_a_wide_screen_and_unfold_it_again(keys):
    one = keys()
    one.page.wait_for_url("**v=1&**")  # what follows the fold writes the address too
    one.press("Tab", "Tab")
    assert one.page.evaluate(HERE)["text"] == "Collapse sidebar"
    for key, then in (("Enter", "Expand sidebar"), ("Enter", "Collapse sidebar"), ("Space", "Expand sidebar")):
        one.press(key)
        one.page.wait_for_function("then => document.activeElement.getAttribute('aria-label') === then", arg=then)


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


PAGES = (
    "/", "/users?lengths=a+list+of+lengths&list=100", "/engine", "/sweep?q=Which+GPU%3F",
    "/models?compare=gemma-3-27b", "/library", "/define", "/import", "/lab", "/compare", "/share",
)  # fmt: skip

STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"

STEP = """() => {
  const e = document.activeElement, seen = (window.walked ??= []);
  if (seen.length > 1 && seen[0].e === e) return false;
  // between two rounds the focus is on the browser's own parts; a table moves its focus a little later
  if (!['BODY', 'HTML'].includes(e.tagName) && !seen.some(one => one.e === e)) seen.push({e, look: LOOK(e)});
  return true;
}"""

WALKED = """() => {
  document.activeElement.blur();
  const own = e => [...e.closest('[class*="st-key-"]')?.classList ?? []].find(name => name.startsWith('st-key-'));
  const named = e => `${e.tagName} ${own(e)} ${(e.getAttribute('aria-label') || e.textContent).trim().slice(0, 40)}`;
  // a table draws its focus on its canvas, and the page itself needs none
  const drawn = e => e.closest('canvas, main') === e || e.closest('table');
  const seen = window.walked.filter(({e}) => e.isConnected);
  const inMain = [...document.querySelectorAll('main :is(input, textarea, button, a, [role=slider], canvas)')];
  // the arrows move between the choices of one question, and between the cells of a table
  const one = e => e.closest('[role=radiogroup], canvas') ?? e;
  const reached = new Set(seen.map(({e}) => one(e)));
  return {
    keys: seen.map(({e}) => own(e)?.slice(7)),
    hidden: seen.filter(({e, look}) => !drawn(e) && LOOK(e) === look).map(({e}) => named(e)),
    missed: inMain.filter(e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({visibilityProperty: true})
      && !e.closest('[data-testid=stElementToolbar], .modebar') && !reached.has(one(e))).map(named),
  };
}"""


def walk(page):
    """Press Tab until the focus has been everywhere: what it passed, where it was not seen, what it never reached."""
    page.add_style_tag(content=STILL)
    look = f"(e => {{ const one = {LOOK.replace('document.activeElement', 'e_')}; let e_ = e; return one(); }})"
    for _ in range(4 * MOST_TABS):
        page.keyboard.press("Tab")
        if not page.evaluate(STEP.replace("LOOK", look)):
            break
    return page.evaluate(WALKED.replace("LOOK", look))


@pytest.mark.parametrize("path", PAGES)
def test_tab_reaches_every_control_and_its_place_is_always_seen(visit, path):
    walked = walk(visit(path).page)
    assert walked["hidden"] == []
    assert walked["missed"] == []
    order = [key for key in dict.fromkeys(walked["keys"]) if key in SIDEBAR]
    assert order == SIDEBAR


def test_a_table_shows_the_cell_in_focus_and_the_arrows_move_it(keys):
    one = keys("/users")
    table = one.page.locator("[data-testid=stDataFrame]").first
    table.scroll_into_view_if_needed()
    looks = [table.screenshot()]
    one.page.evaluate("document.querySelector('[data-testid=stDataFrame] canvas').focus()")
    for name in ("mean", "95th percentile", "maximum"):
        one.page.wait_for_function("name => document.activeElement.textContent === name", arg=name)
        one.page.wait_for_timeout(100)  # the canvas is drawn in the next frame
        looks.append(table.screenshot())
        one.press("ArrowDown")
    assert len(set(looks)) == 4
