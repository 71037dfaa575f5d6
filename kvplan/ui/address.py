"""The address of a page: what it says is read when a session starts and when the browser goes back.

The address itself is kept by `address_bar`. Widgets of pages that are bound to it (BIND) hold the pages' own
settings; the scenario's keys belong to the link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvplan.errors import KvplanError, shorten
from kvplan.plan import Scenario
from kvplan.share import OpenedLink, comparison_keys, open_comparison
from kvplan.ui.compared import keep_compared
from kvplan.ui.fields import FIELDS, widget_values
from kvplan.ui.library import known_gpu, known_model

_STARTED, _ASKED, _TROUBLE = "started", "asked", "link_trouble"
MAX_SAID = 300
"""Characters of an address that are repeated to the visitor."""

ENGINE = "engine"
"""Key of the engine, whose widget stands on a page of its own; no byte of a plan depends on it."""

BIND: Any = "query-params"

COMPARE_PAGE = "compare"
"""Path of the page whose address holds more than one scenario."""

_KEYS = frozenset(comparison_keys())


def page_settings() -> str:
    """What the address holds of the page's own settings, from `&` on; "" where it holds none."""
    own = [(key, text) for key in st.query_params if key not in _KEYS for text in st.query_params.get_all(key)]
    return f"&{urlencode(own)}" if own else ""


def say_once(trouble: str) -> None:
    """Have a sentence shown above the next page."""
    st.session_state[_TROUBLE] = trouble


def is_trouble_pending() -> bool:
    """Whether something is still to be said."""
    return _TROUBLE in st.session_state


def read_address(page: str) -> None:
    """Take the address as the scenario where a session starts, or where the browser went back or forward to it.

    page  the path of the page that is shown
    """
    if st.session_state.get(_STARTED) and not _went_back():
        return
    st.session_state[_STARTED] = True
    given = {key.removeprefix("amp;"): st.query_params.get_all(key) for key in st.query_params}
    link = [(key, text) for key, texts in given.items() for text in texts if key in _KEYS]
    st.session_state[_ASKED] = {key: texts for key, texts in given.items() if key not in _KEYS}
    if page == COMPARE_PAGE:
        keep_compared(())
    if link:
        _take_link(link)


def _went_back() -> bool:
    """Whether the browser's own Back or Forward asked for this run."""
    run = get_script_run_ctx()
    return run is not None and run.is_history_navigation


def _take_link(link: list[tuple[str, str]]) -> None:
    """Open what a link describes; what could not be used is said once."""
    is_by_hand = all(key != "v" for key, _ in link)
    first, *others = open_comparison(urlencode(_completed(link) if is_by_hand else link), _stand_in())
    if is_by_hand:
        first = replace(first, lacking="")
    if first.scenario is not None:
        take_scenario(first.scenario)
    if others:
        keep_compared(opened.scenario for opened in others if opened.scenario is not None)
    if said := _sentence((first, *others)):
        say_once(said)


def _completed(link: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """An address that somebody wrote by hand names no version, and what it leaves out is as usual."""
    usual = {"v": "1", **{key: FIELDS[key].default for key in ("model", "gpu")}}
    given = {key for key, _ in link}
    return [*((key, text) for key, text in usual.items() if key not in given), *link]


def _sentence(opened: Iterable[OpenedLink]) -> str:
    return "; ".join(one.sentence for one in opened if one.sentence)


def _stand_in() -> Scenario | None:
    """What stands in for a model or GPU that a link cannot give; None where the library has no such presets."""
    try:
        return Scenario(FIELDS["model"].default, FIELDS["gpu"].default)
    except KvplanError:
        return None


def take_scenario(scenario: Scenario) -> None:
    """Write a scenario into the widgets; to be called before they are shown, so from a callback."""
    settings = {field.setting: getattr(scenario, field.setting) for field in FIELDS.values()}
    draft = scenario.draft_model
    things = {
        "model": known_model(scenario.model),
        "gpu": known_gpu(scenario.gpu),
        "draft_model": None if draft is None else known_model(draft),
    }
    st.session_state.update(widget_values({**settings, **things}))
    if scenario.engine is not None:
        st.session_state[ENGINE] = scenario.engine


def show_address_trouble() -> bool:
    """Say once, in one sentence, what of a link or an address was not used; to be called after the page.

    Returns whether there was anything to say.
    """
    trouble = st.session_state.pop(_TROUBLE, None)
    asked: Mapping[str, list[str]] = st.session_state.pop(_ASKED, {})
    unused = [f"{key}={text}" for key, texts in asked.items() if not _stands(key, texts) for text in texts]
    said = [trouble] if trouble else []
    if unused:
        said.append(f"this page does not use {shorten(', '.join(unused), MAX_SAID)}")
    if said:
        st.warning("Not everything could be used", icon=":material/warning:")
        st.text("; ".join(said))
    return bool(said)


def _stands(key: str, texts: list[str]) -> bool:
    """Whether a widget of the page holds what the address said, however its numbers were written: 1 and 1.0."""
    try:
        value = st.session_state.get(key)
    except StreamlitAPIException:  # an empty key, or one that Streamlit keeps for itself
        return False
    held = list(value) if isinstance(value, list | tuple) else [value]
    return len(held) == len(texts) and all(map(_is_same, held, texts))


def _is_same(value: object, text: str) -> bool:
    said = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return value is not None and (said == text or float(said) == float(text))
    except ValueError:
        return False
