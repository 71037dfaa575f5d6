"""Share: the scenario as a link that keeps its meaning, and the plan as a table."""

from __future__ import annotations

from urllib.parse import urlsplit

import pandas as pd
import streamlit as st

from kvplan.charts import plan_rows
from kvplan.errors import LinkError
from kvplan.plan import plan
from kvplan.presets import dump_toml, gpu_to_table, model_to_table
from kvplan.share import to_link
from kvplan.ui import words
from kvplan.ui.library import own_gpus, own_models
from kvplan.ui.sidebar import current_or_stop


def home() -> str:
    """The address of the Plan page, as this visitor reaches it."""
    here = urlsplit(st.context.url or "")
    return f"{here.scheme}://{here.netloc}/" if here.netloc else "/"


st.header("Share", anchor=False)
scenario = current_or_stop()
st.text(words.about(scenario))
st.subheader("Link", anchor=False)
try:
    link = to_link(scenario)
except LinkError as error:
    words.show_error(error, "A link cannot carry this scenario")
    st.caption("Send the file below along; it is loaded again under Define your own.")
else:
    st.code(home() + link, language=None, wrap_lines=True)
    st.caption("Every field is written out, so the link opens this same plan even when defaults change.")

st.subheader("Plan as a table", anchor=False)
rows = plan_rows(plan(scenario))
words.show_facts(rows, ("what", "value", "exact"))
table = pd.DataFrame(rows, columns=["what", "value", "exact"])
words.offer_csv(table, "plan", "This table as CSV")

if scenario.model.id in own_models():
    st.download_button(
        "Model as a preset file", dump_toml(model_to_table(scenario.model)), f"{scenario.model.id}.toml", "text/plain",
        key="share_model", on_click="ignore",
    )  # fmt: skip
if scenario.gpu.id in own_gpus():
    st.download_button(
        "GPU as a preset file", dump_toml(gpu_to_table(scenario.gpu)), f"{scenario.gpu.id}.toml", "text/plain",
        key="share_gpu", on_click="ignore",
    )  # fmt: skip
