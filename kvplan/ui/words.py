"""Small pieces of pages: errors and notes as plain text, numbers in a row, tables with alt text.

Whatever may hold a visitor's own words goes through `st.text` or a table, which never render Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import streamlit as st

from kvplan.documents import table_csv
from kvplan.errors import KvplanError
from kvplan.explain import Term
from kvplan.fleet import why_no_stages
from kvplan.model import Model
from kvplan.names import isolated
from kvplan.plan import Scenario
from kvplan.sweep import AS_PUBLISHED
from kvplan.ui.fields import SETTING_LABELS
from kvplan.units import EXACT_FLOAT, format_bytes, format_exact_bytes, format_tokens
from kvplan.units import counted as counted

if TYPE_CHECKING:
    import pandas as pd

PLAN_PAGE = "kvplan/ui/plan.py"

UNKNOWN = "–"
"""What stands in a table for a number that is not known."""


class Number(NamedTuple):
    """A headline number with its name, and what it means."""

    label: str
    value: str
    help: str


# ------------------------------------------------------------------------------------------------------ sizes


def unit() -> str:
    """The unit of memory that figures and numbers use: powers of two (GiB) or of ten (GB)."""
    # In a session's first run the page is drawn before the widget that reads the first one in the address.
    held = st.session_state.get("unit") or next(iter(st.query_params.get_all("unit")), None)
    return "GB" if held == "GB" else "GiB"


def size(count: int) -> str:
    """Bytes, rounded, in the visitor's kind of unit."""
    return format_bytes(count, decimal=unit() == "GB")


def exact_size(count: int) -> str:
    """Bytes in the visitor's kind of unit, and exactly."""
    return format_exact_bytes(count, decimal=unit() == "GB")


# ------------------------------------------------------------------------------------------------------ sentences


def in_words(message: str, labels: Mapping[str, str] = SETTING_LABELS) -> str:
    """A message whose names of settings are the labels that a visitor sees.

    labels  label of each setting by its keyword
    """
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)\b(=?)", lambda found: _label(found[1], found[2], labels), message)


def _label(name: str, equals: str, labels: Mapping[str, str]) -> str:
    if name not in labels:
        return name + equals
    return f"“{labels[name]}”" + (" " if equals else "")


def show_error(
    error: KvplanError, headline: str = "This cannot be planned", labels: Mapping[str, str] = SETTING_LABELS
) -> None:
    """An error in words: a fixed headline, and the message as plain text."""
    st.error(headline, icon=":material/error:")
    st.text(in_words(str(error), labels))


def show_warnings(sentences: Iterable[str]) -> None:
    """Each sentence as plain text under one headline; nothing where there are none."""
    found = list(sentences)
    if found:
        with st.container(border=True, gap="small"):
            st.warning("Before you trust this", icon=":material/warning:")
            for sentence in found:
                st.text(in_words(sentence))


def say_no_stages(scenario: Scenario) -> None:
    """Beside the fewest GPUs: that they are not looked for among pipeline stages, and why; nothing where they are."""
    if why := why_no_stages(scenario):
        st.text(f"{why[0].upper()}{why[1:]}.")


# ------------------------------------------------------------------------------------------------ numbers, tables


def show_numbers(numbers: Iterable[Number]) -> None:
    """Headline numbers side by side; they wrap on a narrow screen."""
    with st.container(horizontal=True, gap="small"):
        for number in numbers:
            st.metric(number.label, number.value, help=number.help, border=True, width="content")


def show_facts(rows: Iterable[tuple[str, ...]], columns: Sequence[str], alt: str, key: str | None = None) -> None:
    """A short table of words, shown whole; `alt` names it to those who do not see it.

    A table that is wider than the page scrolls; only a cell of more than a line of prose is cut, and opens by a click.
    """
    import pandas as pd

    table = pd.DataFrame(rows, columns=list(columns))
    widths = {name: st.column_config.Column(width=_cell_width([name, *table[name]])) for name in table.columns}
    leave_room()
    st.dataframe(table, hide_index=True, height="content", column_config=widths, key=key, alt=alt)


def _cell_width(texts: Iterable[object]) -> int:
    """Pixels of a column in which each of `texts` fits on one line, up to 120 letters."""
    return 24 + 13 * min(max(len(str(text)) for text in texts), 120) // 2


def show_table(table: pd.DataFrame, alt: str, key: str, **columns: Any) -> None:
    """A sortable table; whole numbers carry separators, and a dash stands for what is not known.

    alt  names the table to those who do not see it
    """
    _show_exactly(table, alt, f"{key}_table", "auto", columns)


def show_terms(terms: Sequence[Term], key: str | None = None) -> None:
    """A short table of terms, shown whole: what, how, bytes."""
    import pandas as pd

    table = pd.DataFrame([(t.label, t.formula, t.bytes) for t in terms], columns=["what", "how", "bytes"])
    _show_exactly(table, "Terms of the sum", key and f"{key}_table", "content", {})


def _show_exactly(
    table: pd.DataFrame, alt: str, key: str | None, height: Literal["auto", "content"], columns: Mapping[str, Any]
) -> None:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    shown = table.apply(_exact_column)
    numbers = {
        str(name): st.column_config.NumberColumn(format="localized")
        for name, kind in shown.dtypes.items()
        if is_numeric_dtype(kind) and not is_bool_dtype(kind)
    }
    leave_room()
    st.dataframe(
        shown, hide_index=True, column_config={**numbers, **columns}, key=key, placeholder=UNKNOWN, alt=alt,
        height=height,
    )  # fmt: skip


def _exact_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column as it is, or as text where a browser would round one of its whole numbers."""
    from pandas.api.types import is_integer_dtype

    whole = is_integer_dtype(column)
    held = column if column.dtype == object else ()
    values: list[Any] = [column.min(), column.max()] if whole else list(held)
    if any(isinstance(value, int | np.integer) and abs(int(value)) > EXACT_FLOAT for value in values):
        return column.map(lambda value: f"{value:,}")
    return column


def offer_csv(table: pd.DataFrame, name: str, label: str) -> None:
    """A button that makes the CSV of exactly this table, only when it is pressed."""
    offer(label, f"{name}.csv", "text/csv", lambda: table_csv(table))


def offer(label: str, file: str, mime: str, make: Callable[[], str], key: str = "") -> None:
    """A download whose content is made when it is asked for.

    The browser asks at once for one that is there already, and finds it gone where the page was left meanwhile.
    """
    st.download_button(label, lambda: make().encode(), file, mime, key=key or f"get_{file}", on_click="ignore")


def plan_button(label: str, key: str, use: Callable[[Any], None], thing: Any) -> None:
    """A button that takes `thing` into the scenario and lands on the Plan page, where its answer stands."""
    if st.button(label, key=key, on_click=use, args=(thing,)):
        st.switch_page(PLAN_PAGE)


def links(text: str) -> list[str]:
    """The addresses in a text, made only of letters that no page reads as anything else."""
    return re.findall(r"https://[A-Za-z0-9][A-Za-z0-9.-]*(?:/[A-Za-z0-9._~/%@-]*[A-Za-z0-9/])?", text)


def show_source(source: str, is_trusted: bool) -> None:
    """Where figures come from: as text, and as links where they come from the library and not from a visitor."""
    st.text(f"Source: {source}")
    for link in dict.fromkeys(links(source)) if is_trusted else ():
        st.link_button(f"Open {urlsplit(link).netloc}", link, type="tertiary")


def home() -> str:
    """The address of the Plan page, as this visitor reaches it."""
    here = urlsplit(st.context.url or "")
    base = f"/{str(st.get_option('server.baseUrlPath')).strip('/')}".rstrip("/")
    return f"{here.scheme}://{here.netloc}{base}/" if here.netloc else f"{base}/"


def leave_room() -> None:
    """Room above a table for its toolbar, which on a touch screen stands there all the time."""
    st.space("xsmall")


def show_beside(things: Mapping[str, Sequence[tuple[str, str]]], alt: str, key: str) -> None:
    """Facts of two or three things in one table: a row for each fact, a column for each thing."""
    facts = {name: dict(rows) for name, rows in things.items()}
    names = list(dict.fromkeys(what for rows in facts.values() for what in rows))
    table = [(what, *(rows.get(what, "none") for rows in facts.values())) for what in names]
    show_facts(table, ("what", *facts), alt, key)


def tokens(count: int | None, none: str = "no limit") -> str:
    """A number of tokens as people say it."""
    return none if count is None else format_tokens(count)


def about(scenario: Scenario) -> str:
    """The scenario in one line of plain text."""
    load = f"{scenario.batch_size:,} × {counted(scenario.context_length, 'token')}"
    return f"{hardware(scenario)}: {load}{besides(scenario)}, {precision(scenario)}"


def besides(scenario: Scenario) -> str:
    """What sequences hold besides their text and what they share, which no other word of a page would show."""
    images = f" + {counted(scenario.image_tokens, 'image token')}" if scenario.image_tokens else ""
    shared = f", the first {scenario.shared_prefix:,} shared" if scenario.shared_prefix else ""
    return images + shared


def hardware(scenario: Scenario) -> str:
    """The model and its GPUs: `Llama 3.1 70B on 4 × H100 SXM5 80GB`."""
    return f"{isolated(scenario.model.name)} on {gpus(scenario)}"


def gpus(scenario: Scenario) -> str:
    """The GPUs of one copy of the model, and how it lies over them."""
    name = isolated(scenario.gpu.name)
    many = f"{scenario.num_gpus:,} × {name}" if scenario.num_gpus > 1 else name
    stages, copies = scenario.pipeline_parallel, scenario.data_parallel
    whole = " with whole experts" if scenario.expert_parallel and scenario.model.has_experts else ""
    return (
        many
        + (f" in {counted(stages, 'stage')}" if stages > 1 else "")
        + (f", {copies:,} in data parallel" if copies > 1 else "")
        + (whole if scenario.num_gpus > 1 else "")
    )


def kv_heads(model: Model) -> str:
    """The number of KV heads of a model's layers, or that there is none, or not one."""
    if all(layer.cache.kv_heads() is None for layer in model.layers):
        return "none"
    return "not one number for all layers" if model.num_kv_heads is None else f"{model.num_kv_heads:,}"


def query_heads(model: Model) -> str:
    """The number of query heads of a model's layers, or that there is none."""
    return f"{model.num_attention_heads:,}" if model.num_attention_heads else "none"


def precision(scenario: Scenario) -> str:
    """How cache and weights are stored."""
    heads = "" if scenario.num_kv_heads is None else f", {counted(scenario.num_kv_heads, 'KV head')}"
    return f"cache {scenario.kv_dtype}, weights {scenario.weight_dtype or AS_PUBLISHED}{heads}"


def where_to_change() -> None:
    """Where the scenario of this page is set: on a phone the sidebar is out of sight."""
    st.caption("Model, GPU, context and precision are set in the sidebar; on a phone it opens with » at the top left.")
