"""Sweep: what fits as context and batch grow."""

from __future__ import annotations

import streamlit as st

from kvplan import charts
from kvplan.sweep import sweep
from kvplan.ui import words
from kvplan.ui.sidebar import current_or_stop, unit

scenario = current_or_stop()
st.header("What fits", anchor=False)
st.text(words.about(scenario))
table = sweep(scenario, context_length="1k..256k*2", batch_size="1..256*2")
words.show_chart(charts.fit_map(table, unit()), "What fits: context length against sequences at once", "fit")
