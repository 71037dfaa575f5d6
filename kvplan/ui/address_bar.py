"""The browser's address bar: on every page, at every moment, a complete link of the scenario.

One small script in the page writes it, always in the place of the entry that stands in the history. So a change of a
widget makes no entry, and each page keeps the address that it was left with.

What Streamlit leaves undone beside it stands here too, since a second script would cost each first visit another
message: where the focus goes when the sidebar folds, and a few lines of style.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from kvplan.errors import KvplanError, LinkError
from kvplan.hardware import Gpu
from kvplan.library import is_shipped
from kvplan.model import Model
from kvplan.share import LINK_KEYS, THINGS, LinkThing, compared_fields, query_text, written_fields
from kvplan.ui.address import COMPARE_PAGE, ENGINE
from kvplan.ui.answers import ADDRESS
from kvplan.ui.compared import compared
from kvplan.ui.exports import offer_own
from kvplan.ui.fields import FIELDS, NO_DRAFT, Field
from kvplan.ui.library import find_gpu, find_model
from kvplan.ui.scenario import held
from kvplan.ui.words import unit

_SCRIPT = """
// Keys of the link, with the letter of a compared scenario before them, and the unit, which all pages share; all others
// belong to the pages.
const OURS = /^([bcd][.])?(KEYS)$/;
let link = "", session = "", isReturning = false, write;

function completed(address) {
  const url = new URL(address, location.href);
  const others = [...url.searchParams].filter(([key]) => !OURS.test(key));
  url.search = new URLSearchParams([...new URLSearchParams(link), ...others]).toString();
  return url;
}

// An address of the same page is no new place. Right before another page comes, the server takes the settings of the
// page that is left out of the address; its entry in the history keeps them. After Back or Forward the entry says all,
// until the person does something: what Streamlit writes there is late news of the pages in between.
function takeOver() {
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let before = "", since = -Infinity;
  history.replaceState = (state, title, address) => {
    if (!isReturning) replace(state, title, completed(address ?? location.href));
  };
  history.pushState = (state, title, address) => {
    if (isReturning) return;
    const url = completed(address ?? location.href), recent = performance.now() - since < 1000;
    if (url.pathname === location.pathname) {
      if (!recent) [before, since] = [location.href, performance.now()];
      return replace(state, title, url);
    }
    if (recent) replace(history.state, title, before);
    since = -Infinity;
    push(state, title, url);
    document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);  // another page begins at its answer
  };
  addEventListener("popstate", () => { [isReturning, since] = [true, -Infinity]; }, true);
  for (const act of ["pointerdown", "keydown", "click", "input"])
    addEventListener(act, () => { isReturning = false; }, true);
  for (const act of ["pointerdown", "contextmenu", "keydown"]) addEventListener(act, carryScenario, true);
  addEventListener("click", followFold, true);
  return replace;
}

// The button that folds the sidebar, or unfolds it, goes away by that: a key that pressed it goes on at the other one,
// once that is there, unless the person has gone on elsewhere.
function followFold({target, detail}) {
  const pressed = detail === 0 && target.closest?.("[data-testid=stExpandSidebarButton], #stSidebar [aria-controls]");
  if (!pressed) return;
  const other = pressed.closest("#stSidebar") ? "[data-testid=stExpandSidebarButton]" : "#stSidebar [aria-controls]";
  const end = performance.now() + 3000;
  const follow = () => {
    const place = document.activeElement, next = document.querySelector(other);
    if (place === next || ![pressed, document.body].includes(place) || performance.now() > end) return;
    next?.focus();
    setTimeout(follow, 50);
  };
  setTimeout(follow, 50);
}

// A link to another page names its path alone: opened in a new tab, or copied, it has to take the scenario along.
function carryScenario({target}) {
  const to = target.closest?.("a[data-testid$=NavLink]");
  if (to && to.origin === location.origin) to.href = completed(to.href).href;
}

export default function ({data}) {
  if (session === "") write = takeOver();
  // A server that started anew knows nothing of this page: open it from the address, which says all.
  else if (session !== data.session) return location.reload();
  link = data.link;
  session = data.session;
  const url = completed(location.href), isHere = !isReturning || location.pathname.endsWith(`/${data.page}`);
  if (isHere && url.href !== location.href) write(history.state, "", url);
}
""".replace("KEYS", "|".join(sorted({*LINK_KEYS, "unit"})))

# A folded sidebar stands beside the screen, where no key should lead: hidden, its controls cannot be reached.
# The button that folds it is Streamlit's only while a mouse is over it: no key and no finger would reach it.
# A name that is longer than its list says so: gemma-3-27 instead of gemma-3-27b would be another model.
_STYLE = """
.st-key-address_bar { display: none }
[data-testid=stSidebarCollapseButton] { visibility: visible !important }
[data-testid=stSelectbox] input { text-overflow: ellipsis }
[data-testid=stSidebar][data-collapsed=true] * { visibility: hidden !important }
"""

_bar: Any = st.components.v2.component("kvplan_address", js=_SCRIPT, css=_STYLE, isolate_styles=False)


@st.fragment(key=ADDRESS)
def keep_address(page: str) -> None:
    """Have the browser's address say what the widgets hold; `page` is the path of the page that is shown."""
    settings = _settings()
    try:
        others = compared() if page == COMPARE_PAGE else ()
        query = query_text(compared_fields(written_fields(settings), others))
    except LinkError as error:
        query = urlencode(_without_files(settings))
        _offer_files(settings, error)
    _bar(key="address_bar", data={"link": query + _unit(), "page": page, "session": _session()})


def _unit() -> str:
    """The unit as it follows a link, where it is not the usual one."""
    return "" if unit() == "GiB" else f"&unit={unit()}"


def _session() -> str:
    """A word that differs for every session."""
    word: str = st.session_state.setdefault("session", secrets.token_hex(8))
    return word


def _settings() -> dict[str, Any]:
    """What the widgets hold, by keyword of `Scenario`."""
    return {**{field.setting: _read(field) for field in FIELDS.values()}, "engine": st.session_state.get(ENGINE)}


def _read(field: Field) -> Any:
    """What a widget stands for; text that cannot be read is written as it is, and opens with the reason."""
    holds = held(field)
    read: Callable[[Any], Any] = _FINDERS.get(field.key) or field.read
    try:
        return read(holds)
    except KvplanError:
        return None if field.key in _FINDERS else holds


def _find_draft(name: str) -> Model | None:
    return None if name == NO_DRAFT else find_model(name)


_FINDERS: dict[str, Callable[[str], Any]] = {"model": find_model, "gpu": find_gpu, "draft": _find_draft}


# -------------------------------------------------------------------------------------------- what no link can carry


def _own(settings: Mapping[str, Any]) -> dict[LinkThing, Model | Gpu]:
    """The models and GPUs that only a file can carry."""
    found = {thing: settings[thing.setting] for thing in THINGS}
    return {thing: value for thing, value in found.items() if value is not None and not is_shipped(value)}


def _without_files(settings: Mapping[str, Any]) -> dict[str, str]:
    """The link's fields with nothing but the names of what it cannot carry."""
    own = _own(settings)
    fields = written_fields({**settings, **dict.fromkeys(thing.setting for thing in own)})
    return {**fields, **{thing.key: found.id for thing, found in own.items()}}


def _offer_files(settings: Mapping[str, Any], error: LinkError) -> None:
    """Say that the address does not carry the scenario, and give the files that do."""
    with st.container(border=True, gap="small"):
        st.warning("The address cannot carry this scenario", icon=":material/warning:")
        st.text(f"{error}.")
        for found in _own(settings).values():
            offer_own(found, "carry")
