"""How the pages look: text that can be read in both themes, nothing under a toolbar, alternatives for figures."""

import pytest

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
PAGES = ("/", "/users", "/models", "/define")
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
    if (e.closest('[disabled], [data-testid=stIconMaterial], .barlayer')) continue;
    const style = getComputedStyle(e), color = parse(e.closest('svg') ? style.fill : style.color), under = ground(e);
    color[3] *= opacity(e);
    if (color[3] === 0) continue;
    const [a, b] = [light(over(color, under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) faint.push(`${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return faint;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_all_text_stands_out_from_its_ground(visit, path, scheme):
    visitor = visit(path, color_scheme=scheme)
    visitor.page.wait_for_timeout(500)
    assert visitor.page.evaluate(FAINT, LEAST_CONTRAST) == []


UNNAMED = """() => [...document.querySelectorAll('input, textarea, button, [role=combobox], a')]
  .filter(e => e.offsetParent && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.title
    || e.getAttribute('aria-labelledby') || e.closest('.modebar')))
  .map(e => e.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("path", PAGES)
def test_every_control_has_a_name_and_every_figure_a_text(visit, path):
    visitor = visit(path)
    assert visitor.page.evaluate(UNNAMED) == []
    figures = visitor.page.locator("[role=figure]")
    assert all(figures.nth(i).get_attribute("aria-label") for i in range(figures.count()))


COVERED = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(plot => {
  const bar = plot.querySelector('.modebar'), area = plot.querySelector('.nsewdrag');
  if (!bar || !bar.children.length || !area) return false;
  return bar.getBoundingClientRect().bottom > area.getBoundingClientRect().top + 1;
}).map(plot => plot.closest('[class*=st-key-]').className)"""


@pytest.mark.parametrize("path", ["/", "/users", "/models?compare=gemma-3-27b"])
def test_no_toolbar_covers_a_figure_on_a_touch_screen(visit, path):
    visitor = visit(path, viewport=PHONE, has_touch=True)
    visitor.page.wait_for_timeout(500)
    assert visitor.page.evaluate(COVERED) == []


@pytest.mark.parametrize(
    "path", ["/models?compare=gemma-3-27b&compare=deepseek-v3", "/models?browse=GPUs", "/define?define=a+GPU"]
)
@pytest.mark.parametrize("viewport", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desktop"])
def test_no_view_is_wider_than_the_screen(visit, path, viewport):
    visitor = visit(path, viewport=viewport)
    visitor.page.wait_for_timeout(300)
    assert visitor.spilled() == 0


@pytest.mark.parametrize("path", ["/", "/users", "/sweep"])
def test_what_cannot_be_planned_leaves_the_sidebar_in_which_to_mend_it(visit, path):
    visitor = visit(path)
    visitor.choose("ctx", "lots")
    assert visitor.page.get_by_text("This cannot be planned").is_visible()
    assert visitor.page.get_by_text("Not possible: Context length").is_visible()
    visitor.choose("ctx", "16k")
    assert visitor.page.get_by_text("This cannot be planned").count() == 0
