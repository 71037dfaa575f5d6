"""How the pages look: text that can be read in both themes, nothing under a toolbar, alternatives for figures."""

from itertools import pairwise

import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
COMPARED = "v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb&b.v=1&b.model=gemma-3-27b&b.gpu=h100-sxm-80gb"
LAB = (
    "2+Wire+the+heads", "3+Same+answer%3F", "4+Name+the+fault", "5+The+check+that+cannot+fail", "6+What+it+saves",
    "7+Shrink+the+heads", "8+From+toy+to+planner",
)  # fmt: skip
PAGES = (
    "/", "/users", "/users?lengths=a+list+of+lengths&list=100", "/engine", "/engine?engine_view=paste+your+log",
    "/sweep", "/sweep?q=When+does+the+cache+pass+the+weights%3F",
    "/sweep?q=What+would+more+or+fewer+KV+heads+cost%3F", "/sweep?q=Which+GPU%3F",
    "/sweep?q=What+do+two+settings+do+together%3F", "/models?compare=gemma-3-27b&compare=deepseek-v3",
    "/models?browse=GPUs", "/library", "/define", "/define?define=a+GPU", "/import", "/lab",
    *(f"/lab?lab_screen={screen}" for screen in LAB),
    f"/compare?{COMPARED}", "/share",
)  # fmt: skip
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text of usual size

FAINT = """least => {
  const channel = v => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3]));
  const ground = e => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) {
      const c = parse(getComputedStyle(p).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255]);
  };
  const opacity = e => e ? +getComputedStyle(e).opacity * opacity(e.parentElement) : 1;
  const said = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const seen = e => e.closest('svg') || e.offsetParent !== null;
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!said(e) || !seen(e) || ['STYLE', 'SCRIPT'].includes(e.tagName)) continue;
    // above the thumb that it seems to stand on; hidden by its clip
    if (e.closest('[disabled], [data-testid=stIconMaterial], [data-testid=stSliderThumbValue], h1')) continue;
    const style = getComputedStyle(e);
    // letters on a bar or a cell: the tests of charts hold their colours against the marks
    const letters = ['rgb(255, 255, 255)', 'rgb(0, 0, 0)', 'rgb(14, 17, 22)'];
    if (e.closest('.js-plotly-plot') && letters.includes(style.fill)) continue;
    const color = parse(e.closest('svg') ? style.fill : style.color), under = ground(e);
    color[3] *= opacity(e);
    if (color[3] === 0) continue;
    const [a, b] = [light(over(color, under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) faint.push(`${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return faint;
}"""


@pytest.fixture(scope="module")
def walker(server, browser):
    """A visitor who goes from page to page by day, and leaves what he looks at as it is."""
    visitor = Visit(server, browser, color_scheme="light")
    yield visitor
    visitor.close()


def assert_looks(visitor):
    visitor.page.wait_for_function("() => !document.querySelector('.stPlotlyChart:not(:has(.main-svg))')")
    assert visitor.page.evaluate(FAINT, LEAST_CONTRAST) == []
    assert visitor.spilled() == 0


@pytest.mark.parametrize("path", PAGES)
def test_all_text_stands_out_and_everything_has_a_name_and_nothing_is_wider_than_the_screen(walker, path):
    walker.open(path)
    assert_looks(walker)
    assert walker.page.evaluate(NAMELESS) == []
    levels = walker.page.evaluate("() => [...document.querySelectorAll('h1, h2, h3, h4')].map(e => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels)), levels
    assert walker.page.evaluate("document.documentElement.lang") == "en"


def test_all_text_beside_a_wide_sidebar_stands_out_in_the_dark(visit):
    assert_looks(visit("/users", color_scheme="dark"))


NAMELESS = """() => [
  ...[...document.querySelectorAll('input, textarea, button, [role=combobox], a')].filter(e => e.checkVisibility()
    && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.title
      || e.getAttribute('aria-labelledby') || e.closest('.modebar'))),
  ...[...document.querySelectorAll('[role=figure], .stPlotlyChart')].filter(
    e => !e.closest('[role=figure]')?.getAttribute('aria-label')),
  ...[...document.querySelectorAll('[data-testid=stDataFrame]')].filter(
    e => !e.querySelector('[role=region][aria-label]')),
].map(e => e.outerHTML.slice(0, 200))"""
"""Controls without a label, figures without a text, tables without a name."""


COVERED = """() => {
  const box = e => e.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const plots = [...document.querySelectorAll('.js-plotly-plot')].filter(plot => {
    const bar = plot.querySelector('.modebar'), area = plot.querySelector('.nsewdrag');
    return bar && bar.children.length && area && box(bar).bottom > box(area).top + 1;
  }).map(plot => plot.closest('[class*=st-key-]').className);
  const tables = [...document.querySelectorAll('[data-testid=stDataFrame]')].flatMap(table => {
    const bar = table.querySelector('[data-testid=stElementToolbarButtonContainer]');
    const before = [...document.querySelectorAll('main :is(p, input, button, [data-baseweb], .js-plotly-plot)')];
    return bar ? before.filter(e => !table.contains(e) && e.checkVisibility() && meet(box(bar), box(e)))
      .map(e => `toolbar over ${e.tagName} ${e.textContent.slice(0, 40)}`) : [];
  });
  return [...plots, ...tables];
}"""


@pytest.fixture(scope="module")
def phone(server, browser):
    """A visitor with a touch screen by night, who looks and changes nothing."""
    visitor = Visit(server, browser, viewport=PHONE, has_touch=True, color_scheme="dark")
    yield visitor
    visitor.close()


@pytest.mark.parametrize("path", PAGES)
def test_on_a_dark_touch_screen_text_stands_out_no_toolbar_covers_a_part_and_nothing_is_cut_off(phone, path):
    phone.open(path)
    assert_looks(phone)
    assert phone.page.evaluate(COVERED) == []


def test_a_chosen_name_that_is_longer_than_its_list_ends_in_dots(visit):
    """gemma-3-27 without them would be read as another model than gemma-3-27b."""
    chosen = visit("/?model=gemma-3-27b").page.locator(".st-key-model input")
    width, room, look = chosen.evaluate("e => [e.scrollWidth, e.clientWidth, getComputedStyle(e).textOverflow]")
    assert width > room
    assert look == "ellipsis"


CUT = """() => [...document.querySelectorAll('[data-testid=stMain] :is([role=radiogroup], a, a *, button)')]
  .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth && getComputedStyle(e).overflowX !== 'visible')
  .map(e => e.textContent)"""


@pytest.mark.parametrize("path", ["/", "/lab"])
def test_what_a_phone_unfolds_is_whole_too(phone, path):
    phone.open(path)
    for part in phone.page.locator("[data-testid=stMain] summary").all():
        with phone.rerun():
            part.click()
    assert phone.page.evaluate(CUT) == []


@pytest.mark.parametrize("path", ["/", "/users", "/sweep"])
def test_what_cannot_be_planned_leaves_the_sidebar_in_which_to_mend_it(visit, path):
    visitor = visit(path)
    visitor.choose("ctx", "lots")
    assert visitor.page.get_by_text("This cannot be planned").is_visible()
    assert visitor.page.get_by_text("Not possible: Context length").is_visible()
    visitor.choose("ctx", "16k")
    assert visitor.page.get_by_text("This cannot be planned").count() == 0


FIGURE_LOOKS = """() => {
  const {paper_bgcolor, font} = document.querySelector('.st-key-memory .js-plotly-plot')._fullLayout;
  const box = document.createElement('i'), app = document.querySelector('.stApp');
  box.style.color = paper_bgcolor;
  return [box.style.color === getComputedStyle(app).backgroundColor, font.color];
}"""
"""Whether the memory bar has the ground of the page, and the colour of its words."""


def wait_for_looks(visitor, words):
    visitor.page.wait_for_function(
        f"words => ({FIGURE_LOOKS})().every((look, i) => look === [true, words][i])", arg=words
    )


def test_figures_follow_a_theme_that_changes_while_the_page_is_open(visit):
    visitor = visit("/?ctx=16k", color_scheme="light")
    heading = visitor.heading()
    for scheme, words in (("dark", "#E6EAF1"), ("light", "#59616E")):
        with visitor.rerun():
            visitor.page.emulate_media(color_scheme=scheme)
        wait_for_looks(visitor, words)
        assert visitor.page.evaluate(FAINT, LEAST_CONTRAST) == []
    assert visitor.heading() == heading
    assert "ctx=16384" in visitor.page.url


@pytest.mark.parametrize("dies", ["at once", "long before anyone knows"])
def test_figures_follow_a_theme_that_changes_while_the_connection_is_down(visit, dies):
    visitor = visit(color_scheme="light")
    visitor.page.add_init_script(
        "window.sockets = []; window.WebSocket = class extends WebSocket {"
        " constructor(...given) { super(...given); window.sockets.push(this); } };"
    )
    visitor.open("/")
    wait_for_looks(visitor, "#59616E")
    if dies == "at once":
        visitor.page.evaluate("() => window.sockets.at(-1).close()")
    else:
        visitor.page.evaluate("() => { window.sockets.at(-1).send = () => {}; }")
    visitor.page.emulate_media(color_scheme="dark")
    visitor.page.wait_for_timeout(100)  # the browser says so, and nobody hears it
    visitor.page.evaluate("() => window.sockets.at(-1).close()")
    wait_for_looks(visitor, "#E6EAF1")
    lost = "console: Cannot send rerun backMessage when disconnected from server."
    visitor.trouble = [words for words in visitor.trouble if words != lost]  # Streamlit's word for what was lost


def test_a_page_is_drawn_once_in_the_theme_that_it_opens_in(visit):
    for scheme in ("light", "dark"):
        visitor = visit(color_scheme=scheme)
        visitor.page.wait_for_timeout(500)
        assert visitor.runs == 1


def test_a_page_that_is_asked_to_run_again_by_its_key_comes_to_rest(visit):
    visitor = visit("/?ctx=16k")
    heading = visitor.heading()
    for _ in range(3):
        visitor.page.locator("h2").first.click()
        with visitor.rerun():
            visitor.page.keyboard.press("r")
        assert visitor.heading() == heading
        assert visitor.page.locator("[data-stale=true]").count() == 0
