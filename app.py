"""The app: `streamlit run app.py`. Page config, warm-up, the shared scenario, navigation; no arithmetic."""

from __future__ import annotations

import gc
from pathlib import Path

import streamlit as st

UI = Path(__file__).parent / "kvplan" / "ui"

# Before anything else: a material or emoji icon of a page would be fetched from another host.
st.set_page_config(page_title="kvplan", page_icon=str(UI / "icon.svg"), layout="wide")

from kvplan.ui.sidebar import read_address, show_address_trouble, show_sidebar  # noqa: E402


@st.cache_resource
def warm_up() -> bool:
    """Load what every page needs, then take it out of the garbage collector's sight.

    Streamlit collects after every run; frozen objects are not scanned again, so a run costs a quarter.
    """
    import pandas  # noqa: F401
    import plotly.graph_objects

    import kvplan.charts  # noqa: F401

    plotly.graph_objects.Figure({"data": [{"type": "bar"}, {"type": "scatter"}, {"type": "heatmap"}]})
    gc.collect()
    gc.freeze()
    return True


warm_up()
read_address()
page = st.navigation(
    [
        st.Page(UI / "plan.py", title="Plan", default=True),
        st.Page(UI / "sweep.py", title="Sweep", url_path="sweep"),
    ],
    position="top",
)
show_sidebar()
show_address_trouble()
page.run()
