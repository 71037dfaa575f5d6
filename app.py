"""The app: `streamlit run app.py`. Page config, warm-up, the shared scenario, navigation; no arithmetic."""

from __future__ import annotations

import gc
from pathlib import Path
from threading import Timer

import streamlit as st

SECONDS_TO_OPEN = 3
"""How long a browser takes for the first figures at most, while the server hands it what they are drawn with."""

SIDEBAR = 320
"""Pixels across, in which names of usual GPUs are whole: Streamlit's 300 cut the last letter of the first one off."""

UI = Path(__file__).resolve().parent / "kvplan" / "ui"


def load() -> None:
    """Load what the first page is computed and drawn with, a fifth of a second."""
    import streamlit.elements.lib.streamlit_plotly_theme  # noqa: F401

    import kvplan.suggest
    import kvplan.ui.plan_engine
    import kvplan.ui.plan_overheads
    import kvplan.ui.sidebar  # noqa: F401


@st.cache_resource
def warm_up() -> None:
    """Load what every page needs, then take it out of the garbage collector's sight."""
    load()
    freeze()


@st.cache_resource
def load_tables() -> None:
    """Load what tables need, a third of a second, once the first visitor's figures are drawn: they need none of it."""

    def work() -> None:
        import pandas  # noqa: F401

        freeze()

    later = Timer(SECONDS_TO_OPEN, work)
    later.daemon = True
    later.start()


def freeze() -> None:
    """Take what is loaded out of the garbage collector's sight.

    Streamlit collects after every run; frozen objects are not scanned again, so a run costs a quarter.
    """
    gc.collect()
    gc.freeze()


def show() -> None:
    """One run of the script, for one visitor."""
    # Before anything else: a material or emoji icon of a page would be fetched from another host.
    st.set_page_config(
        page_title="kvplan", page_icon=str(UI / "icon.svg"), layout="wide", initial_sidebar_state=SIDEBAR
    )
    warm_up()
    from kvplan.ui.address import read_address, show_address_trouble
    from kvplan.ui.address_bar import keep_address
    from kvplan.ui.answers import begin_run, end_run
    from kvplan.ui.figures import follow_theme
    from kvplan.ui.library import require_library
    from kvplan.ui.page_name import show_page_name
    from kvplan.ui.scenario import PageEnds
    from kvplan.ui.sidebar import show_sidebar

    require_library()
    page = st.navigation(
        [
            st.Page(UI / "plan.py", title="Plan", default=True),
            st.Page(UI / "users.py", title="Users", url_path="users"),
            st.Page(UI / "engine.py", title="Engine", url_path="engine"),
            st.Page(UI / "sweep.py", title="Sweep", url_path="sweep"),
            st.Page(UI / "models.py", title="Models", url_path="models"),
            st.Page(UI / "presets.py", title="Library", url_path="library"),
            st.Page(UI / "define.py", title="Define your own", url_path="define"),
            st.Page(UI / "importing.py", title="Import", url_path="import"),
            st.Page(UI / "lab.py", title="Lab", url_path="lab"),
            st.Page(UI / "compare.py", title="Compare", url_path="compare"),
            st.Page(UI / "share.py", title="Share", url_path="share"),
        ],
        position="top",
    )
    begin_run()
    read_address(page.url_path)
    address, trouble = st.container(), st.container()
    try:
        page.run()
    except PageEnds:
        pass
    finally:  # a page that stops early has not used everything either
        show_sidebar()  # the figures first: they are drawn while the browser sets up what hardly changes
        with address:
            show_page_name(page.title)
            keep_address(page.url_path)
            follow_theme()
        with trouble:
            has_trouble = show_address_trouble()
    end_run(is_passing=has_trouble)
    load_tables()


if __name__ == "__main__":  # Streamlit runs the script
    show()
else:  # the server imports it
    from starlette.middleware import Middleware

    from kvplan.ui.packed import Asgi, BesideFirstVisit, PackedStatic, pack_ahead
    from kvplan.ui.server import FrontDoor, apologize, health_route

    app: Asgi = st.App(
        Path(__file__).resolve(),
        middleware=[Middleware(BesideFirstVisit, work=load), Middleware(PackedStatic, ahead=pack_ahead())],
        routes=[health_route()],
        on_script_error=apologize,
    )
    app = FrontDoor(app)
