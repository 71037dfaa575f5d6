"""Controls of a page that stand in the address and may be left by a button.

A page with a control bound to the address cannot be left by `st.switch_page`, so these are read and written here.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import streamlit as st


def read_address(key: str, accepted: Container[str] | None = None, most: int | None = None) -> None:
    """Before its widget: give a control what the address says, once, where the control accepts it.

    most  how many values a control of several may hold; None: it holds one
    """
    if key in st.session_state:
        if most is not None and accepted is not None:  # an entry may have left the list since
            st.session_state[key] = [text for text in st.session_state[key] if text in accepted]
        return
    given = [text for text in st.query_params.get_all(key) if accepted is None or text in accepted]
    if given:
        st.session_state[key] = given[0] if most is None else given[:most]


def write_address(key: str, value: str | Sequence[str] | None, usual: str | None = None) -> None:
    """After its widget: have the address hold what a control holds, unless it is what it usually holds."""
    values = [value] if isinstance(value, str) else list(value or ())
    if values in ([], [""], [usual]):
        st.query_params.pop(key, None)
    elif st.query_params.get_all(key) != values:
        st.query_params[key] = values
