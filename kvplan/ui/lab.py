"""Lab: a tiny decoder that runs live, its cache opened, checked and broken, one screen at a time."""

from __future__ import annotations

from typing import Any

import streamlit as st

from kvplan.errors import KvplanError, LabError
from kvplan.ui import words
from kvplan.ui.address import BIND

_VISITED = "lab_visited"


@st.cache_resource(show_spinner="Loading torch")
def load_lab() -> bool:
    """Import the lab. Raises LabError without torch.

    What it loads stays in the garbage collector's sight: hiding it would hide every open session too, for ever.
    """
    from kvplan import lab

    lab.use_one_thread()
    lab.check_parity(lab.TinyDecoder(), [1, 2], 1)  # the first run of each torch function is slow
    return True


def asked_for() -> dict[str, str]:
    """What the address says of this page; only the first time, since later the widgets write it themselves."""
    if st.session_state.get(_VISITED):
        return {}
    st.session_state[_VISITED] = True
    return {key: text for key, text in st.query_params.to_dict().items() if key.startswith("lab_")}


def show_unused(asked: dict[str, str]) -> None:
    """Name the parts of the address that their widgets did not take."""
    here = st.session_state
    unused = [f"{key}={text}" for key, text in asked.items() if key in here and str(here[key]).lower() != text.lower()]
    if unused:
        st.warning("A part of the address was not understood, and the usual value stands instead.", icon="⚠️")
        st.text(", ".join(unused)[:300])


def go_to(title: str) -> None:
    """Open another screen; runs before the page does."""
    st.session_state["lab_screen"] = title


def show_screen(screens: dict[str, Any]) -> None:
    """The chosen screen, its errors in words, and the way to the next one."""
    from kvplan.ui.lab_screens.parts import ALL_SHOWN

    titles = list(screens)
    chosen = st.segmented_control(
        "Screen", titles, default=titles[0], key="lab_screen", required=True, bind=BIND, label_visibility="collapsed"
    )
    title = chosen or titles[0]
    st.header(title, anchor=False)
    try:
        screens[title]()
    except KvplanError as error:
        words.show_error(error, "This cannot be run")
    st.divider()
    with st.container(horizontal=True, vertical_alignment="center"):
        place = titles.index(title)
        if place + 1 < len(titles):
            following = titles[place + 1]
            st.button(f"Next: {following}", key="lab_next", on_click=go_to, args=(following,))
        st.toggle("Show every answer at once", key=ALL_SHOWN, persist_state="session")
    st.caption("The address of this page opens this screen with its settings elsewhere; answers are not in it.")


def show() -> None:
    """One run of the page."""
    try:
        load_lab()
    except LabError as error:
        st.header("Lab", anchor=False)
        words.show_error(error, "The lab cannot run here")
        st.caption("All other pages work without it.")
        return
    from kvplan.ui.lab_screens import SCREENS
    from kvplan.ui.lab_screens.parts import LARGE_LETTERS

    st.html(LARGE_LETTERS)
    asked = asked_for()
    with st.container(key="lab_room"):
        trouble = st.container()
        show_screen(SCREENS)
    with trouble:
        show_unused(asked)


show()
