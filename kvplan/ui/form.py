"""Parts of the forms of a model and a GPU: where a form starts from, and errors beside the field at fault."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import streamlit as st

from kvplan.errors import InputError, KvplanError
from kvplan.ui import words
from kvplan.ui.page_address import write_address


class Size(NamedTuple):
    """One field of a form: its keyword, its label, its first value, and what it means."""

    name: str
    label: str
    first: Any = None
    help: str | None = None


def own_key(name: str) -> str:
    """The key of the widget of a field."""
    return f"own_{name}"


def start_from(key: str, ids: Sequence[str], labels: Callable[[str], str], take: Callable[[], None]) -> None:
    """The list of presets that a form may start from; `take` fills the form from the one that was chosen.

    The address holds the choice under the same key, so that a link opens the form filled in.
    """
    if st.session_state.get(key) not in ids:  # a session forgets the oldest of many
        st.session_state[key] = None
    if follow_address(key, ids):
        take()
    st.selectbox(
        "Start from", ids, None, key=key, placeholder="nothing", on_change=take, persist_state="session",
        format_func=labels,
    )  # fmt: skip
    keep_address(key)


def follow_address(key: str, accepted: Container[str]) -> bool:
    """Before its widget: give a control what the address says, where a link led here. Returns whether one did."""
    asked = st.query_params.get(key)
    if asked is None or asked == st.session_state.get(_seen(key)) or asked not in accepted:
        return False
    st.session_state[key] = asked
    return True


def keep_address(key: str, usual: str | None = None) -> None:
    """After its widget: have the address hold what a control holds, and know it for no link the next time."""
    write_address(key, st.session_state[key], usual)
    st.session_state[_seen(key)] = st.session_state[key]


def _seen(key: str) -> str:
    return f"{key}_seen"


def label_of(name: str, labels: Mapping[str, str]) -> str:
    """What a field is called, by its keyword; every form has a name."""
    return labels.get(name, "Name")


def say_beside(
    slots: Mapping[str, Any], error: KvplanError, labels: Mapping[str, str], folded: Mapping[str, str]
) -> None:
    """An error below the field that it names first, else below the form.

    slots   an empty place below each field, by its keyword
    folded  the part of the form under which a field is found, for those that may be out of sight
    """
    message = str(error)
    named = [name for name in slots if name in message]
    if not named:
        words.show_error(error, "Not possible", labels)
        return
    first = min(named, key=lambda name: (message.index(name), -len(name)))
    with slots[first].container():
        words.show_error(_labelled(error, first, labels), "Not possible", labels)
    under = f", under {folded[first]}" if first in folded else ""
    st.caption(f"Nothing can be planned before this is right: {label_of(first, labels)}{under}.")


def _labelled(error: KvplanError, name: str, labels: Mapping[str, str]) -> KvplanError:
    """The error with its field's label in front, also where the keyword is a plain word such as `window`."""
    message = str(error)
    if name not in labels or not message.startswith(f"{name} "):
        return error
    return InputError(f"“{labels[name]}”{message.removeprefix(name)}")


def offer_file(label: str, text: str, name: str, key: str) -> None:
    """A download of a preset file."""
    words.offer(label, f"{name}.toml", "text/plain", lambda: text, key)
