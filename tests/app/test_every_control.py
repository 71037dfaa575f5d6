"""Every control of every page is touched, and no page shows a person a name of the code, a None or a nan."""

import ast
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.presets import list_models, load_model
from kvplan.share import LINK_KEYS, PAGE_KEYS
from kvplan.ui.fields import FIELDS

UI = Path(__file__).resolve().parents[2] / "kvplan" / "ui"
SIDEBAR = {*FIELDS, "example", "node", "unit", "lora_rank", "lora_count"}
VIEWS = {
    ("plan",): set(),
    ("users",): {"users_at_once", "lengths", "p50", "p95", "a50", "a95"},
    ("users", "lengths", "a list of lengths"): {"users_at_once", "lengths", "length_list"},
    ("users", "lengths", "prompt, answer pairs"): {"users_at_once", "lengths", "length_list"},
    ("models",): {"browse", "filter", "kind", "compare"},
    ("models", "browse", "GPUs"): {"browse", "gpu_filter", "compare_gpus"},
    ("define",): {
        "define", "start", "own_name", "own_num_layers", "own_hidden_size", "own_num_attention_heads",
        "own_num_kv_heads", "own_head_dim", "own_context_limit", "own_how", "own_intermediate_size", "own_vocab_size",
        "own_tied", "own_num_experts", "own_num_experts_per_token", "own_expert_intermediate_size",
        "own_num_shared_experts", "own_num_dense_layers", "own_experts_every", "own_window",
        "own_full_attention_every", "own_kv_lora_rank", "own_qk_rope_head_dim", "own_qk_nope_head_dim",
        "own_v_head_dim", "own_q_lora_rank", "own_state_heads", "own_state_head_dim", "own_state_size",
        "own_state_groups", "own_conv_width", "own_attention_every",
    },
    ("define", "define", "a GPU"): {
        "define", "start_gpu", "own_gpu_name", "own_usable_bytes", "own_usable_low", "own_usable_high", "own_basis",
        "own_label_bytes", "own_driver_bytes", "own_bandwidth", "own_node", "own_rent",
    },
    ("define", "define", "a preset file"): {"define"},
}  # fmt: skip
"""The controls of each view beside the sidebar's; one that is not here fails, so that each is known and touched."""

KINDS = (
    "selectbox",
    "number_input",
    "text_input",
    "text_area",
    "button_group",
    "multiselect",
    "radio",
    "checkbox",
    "toggle",
)
NEW_TEXTS = {
    "overhead": "2GiB", "adapters": "100MiB", "own_name": "Another", "own_gpu_name": "Another", "filter": "llama",
    "own_usable_bytes": "20GiB", "own_label_bytes": "24GiB", "own_bandwidth": "500GB", "length_list": "100\n200",
    "gpu_filter": "h100", "p95": "5k", "a95": "2k", "images": "576", "prefix": "100",
}  # fmt: skip
ALLOWED = {*KV_DTYPES, *WEIGHT_FORMATS, "gpu_memory_utilization", "fp8_per_tensor"}
"""Words with an underscore that people know: formats, and vLLM's own setting."""


def opened(app, view):
    page = app()
    page.go(view[0])
    if len(view) > 1:
        page.set(**{view[1]: view[2]})
    return page


def controls(page):
    return {widget.key: widget for kind in KINDS for widget in page.run.get(kind) if widget.key}


def another(widget):
    """A value that the control does not have now and that it accepts."""
    if widget.type in ("selectbox", "radio"):
        return next((option for option in _values(widget) if option != widget.value), widget.value)
    if widget.type == "multiselect":
        return _values(widget)[:1]
    if widget.type == "button_group":
        return next(option for option in widget.options if option != widget.value)
    if widget.type == "number_input":
        return (widget.min or 1) if widget.value is None else widget.value + (widget.step or 1)
    if widget.type in ("checkbox", "toggle"):
        return not widget.value
    return NEW_TEXTS.get(widget.key, "1")


def _values(widget):
    """The options by the values behind their labels: `Llama 3.1 8B · llama-3.1-8b` is the id at its end."""
    return [option.rpartition(" · ")[2] for option in widget.options]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_control_of_a_view_is_known(app, view):
    assert set(controls(opened(app, view))) == SIDEBAR | VIEWS[view]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_control_of_a_view_can_be_touched(app, view):
    page = opened(app, view)
    for key in sorted(VIEWS[view] - {view[1] if len(view) > 1 else ""}):
        page = page if key in controls(page) else opened(app, view)  # another control may have put it away
        page.set(**{key: another(controls(page)[key])})
        assert shown_nonsense(page) == []
        assert [name for name in page.run.query_params if name not in LINK_KEYS and not PAGE_KEYS.fullmatch(name)] == []


@pytest.mark.parametrize("key", sorted(SIDEBAR))
def test_every_control_of_the_sidebar_can_be_touched(app, key):
    page = app()
    page.set(**{key: another(controls(page)[key])})
    assert page.run.header
    assert shown_nonsense(page) == []


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
@pytest.mark.parametrize(
    "address", [{}, {"gpu": "t4-16gb", "model": "deepseek-v2-lite", "tp": "2"}], ids=["fits", "short"]
)
def test_no_page_shows_a_name_of_the_code_or_a_none(app, view, address):
    page = app(**address)
    page.go(view[0])
    for formula in ("formula", "users_formula"):
        page.open(formula)
    if len(view) > 1:
        page.set(**{view[1]: view[2]})
    assert shown_nonsense(page) == []


def shown_nonsense(page):
    """Words of a page that no person should see."""
    found = [text for text in words_of(page) if re.search(r"\b(None|nan|NaN|NoneType|True|False)\b", text)]
    plain = (" ".join(word for word in text.split() if "/" not in word) for text in words_of(page))  # no addresses
    names = [name for text in plain for name in re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", text)]
    return found + [name for name in names if name not in ALLOWED]


def words_of(page):
    """Everything that a page says: texts, labels, options, helps, cells and figures."""
    run = page.run
    notes = {note for name in list_models() for note in load_model(name).notes}  # they quote keys of a config
    for kind in ("header", "subheader", "caption", "text", "markdown", "error", "warning", "info", "success"):
        yield from (element.value for element in run.get(kind) if element.value not in notes)
    for kind in (*KINDS, "button", "metric"):
        for widget in run.get(kind):
            yield from filter(None, (widget.label, getattr(widget, "help", "")))
    yield from (metric.value for metric in run.metric)
    for table in page.tables():
        yield from map(str, table.columns)
        yield from (cell for name in table for cell in table[name] if isinstance(cell, str) and pd.notna(cell))
    for chart in run.get("plotly_chart"):
        figure = json.loads(chart.proto.spec)
        yield chart.proto.alt
        yield from (trace.get("name") or "" for trace in figure["data"])


@pytest.mark.parametrize("path", sorted(UI.rglob("*.py")), ids=lambda path: path.stem)
def test_no_list_of_several_has_an_entry_for_all_matches_which_enter_would_take_instead_of_the_one_typed(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    lists = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "multiselect"]
    said = [{word.arg: word.value for word in call.keywords}.get("select_all") for call in lists]
    assert [isinstance(word, ast.Constant) and word.value is False for word in said] == [True] * len(lists)
