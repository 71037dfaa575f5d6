"""Engine: what a server will reserve, print and be started with; and a start-up log beside the plan."""

from __future__ import annotations

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.plan import plan
from kvplan.ui import words
from kvplan.ui.address import BIND
from kvplan.ui.engine_log import show_log
from kvplan.ui.engine_server import show_server
from kvplan.ui.scenario import current_or_stop

SERVER, LOG = "the server of this plan", "paste your log"

st.header("Engine", anchor=False)
asked = current_or_stop()
st.text(words.about(asked))
words.show_warnings(plan(asked).warnings)
view = st.segmented_control("Show", [SERVER, LOG], default=SERVER, key="engine_view", bind=BIND, required=True)
try:
    (show_log if view == LOG else show_server)(asked)
except KvplanError as error:
    words.show_error(error, "This cannot be said")
