"""The floor of app_speed.py: `streamlit run tests/benchmarks/bare_page.py -- FIGURES`.

A page with one list and the figures of the chosen entry, all of them constants that are built once. FIGURES is a file
of JSON: page -> choice -> key -> figure; `?page=` names the page. They are drawn as Streamlit draws any figure, in its
own theme; how the app dresses its own is its business.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

CHART_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

Choices = dict[str, dict[str, go.Figure]]


@st.cache_resource
def constants(path: str) -> dict[str, Choices]:
    """The finished figures; frozen as the app freezes its own, so that the floor is no higher for it."""
    pages = json.loads(Path(path).read_text(encoding="utf-8"))
    built = {
        page: {
            choice: {key: go.Figure(figure, _validate=False) for key, figure in figures.items()}
            for choice, figures in choices.items()
        }
        for page, choices in pages.items()
    }
    gc.collect()
    gc.freeze()
    return built


st.set_page_config(page_title="bare page", layout="wide")
choices = constants(sys.argv[1])[st.query_params["page"]]
with st.sidebar:
    chosen = st.selectbox("Choice", list(choices), key="kv")
st.header("Figures", anchor=False)
for name, drawn in choices[chosen].items():
    st.plotly_chart(drawn, width="stretch", theme="streamlit", config=CHART_CONFIG, alt=name, key=name)
