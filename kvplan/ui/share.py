"""Share: the scenario as a link that keeps its meaning, and the plan as a table."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvplan.charts import plan_rows
from kvplan.errors import LinkError
from kvplan.plan import plan
from kvplan.presets import dump_toml, gpu_to_table, model_to_table
from kvplan.report import plan_csv, plan_html, plan_json, plan_markdown
from kvplan.share import to_link
from kvplan.ui import words
from kvplan.ui.library import own_gpus, own_models
from kvplan.ui.sidebar import current_or_stop, unit

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
    st.code(words.home() + link, language=None, wrap_lines=True)
    st.caption("Every field is written out, so the link opens this same plan even when defaults change.")

st.subheader("Plan", anchor=False)
answer = plan(scenario)
FILES: tuple[tuple[str, str, str, Callable[[], str]], ...] = (
    ("CSV", "plan.csv", "text/csv", lambda: plan_csv(answer, words.home())),
    ("JSON", "plan.json", "application/json", lambda: plan_json(answer, words.home())),
    ("Markdown", "plan.md", "text/markdown", lambda: plan_markdown(answer, words.home())),
    ("Page with its figures (HTML)", "plan.html", "text/html", lambda: plan_html(answer, words.home(), unit())),
)
with st.container(horizontal=True):
    for label, file, mime, make in FILES:
        words.offer(label, file, mime, make)
words.show_facts(plan_rows(answer), ("what", "value", "exact"))

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
