"""The plan on an engine: its command, the lines that it will print, and whether it holds all requests at once."""

from __future__ import annotations

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.plan import MemoryPlan
from kvplan.serving import serve
from kvplan.ui.engine_overheads import known_overheads
from kvplan.ui.engine_server import ask_server, show_refusal, show_server_suggestions, show_start
from kvplan.ui.words import unit

ENGINE_PAGE = "kvplan/ui/engine.py"


def show_engine(p: MemoryPlan) -> None:
    """A folded section; what it holds is counted when it is opened."""
    section = st.expander("Serve it: the command, and what the engine will print", key="serve", on_change="rerun")
    if section.open:
        with section:
            _show_server(p)
            st.page_link(ENGINE_PAGE, label="More on the Engine page, with a check of your log")


def _show_server(p: MemoryPlan) -> None:
    asked = ask_server()
    try:
        serving = serve(p.scenario, asked.engine, asked.version, known_overheads(p.scenario, asked.engine))
    except KvplanError as error:
        show_refusal(p.scenario, asked.engine, error)
        return
    held = "all requests at once" if serving.fits else "not all requests at once"
    st.text(
        f"{serving.sentence_in(unit())}: {held}. "
        "This counts what the engine reserves; the plan above counts resident bytes."
    )
    if serving.offload:
        st.text(serving.offload)
    show_start(serving.launch)
    show_server_suggestions(serving, "serve")
