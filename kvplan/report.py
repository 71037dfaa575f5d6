"""Plans and sweeps as files: CSV, JSON, Markdown, and one HTML page that needs no network.

Every file carries the inputs, the sources and the link.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan import charts
from kvplan.documents import (
    About,
    Figure,
    csv_comment,
    csv_text,
    html_figures,
    html_page,
    html_table,
    json_document,
    markdown_document,
    markdown_table,
    markdown_text,
    table_csv,
    whole_column,
)
from kvplan.errors import InputError, LinkError
from kvplan.explain import cache_terms, kinds_sentence, layer_strip, overhead_terms, plan_values, weight_terms
from kvplan.hardware import Gpu
from kvplan.model import Model
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.share import YES_NO, to_link
from kvplan.sweep import AS_PUBLISHED, over_context
from kvplan.units import counted, format_rate, require_kind

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN_ROWS = 20_000
"""Rows of a table in Markdown or HTML; more would not open. CSV and JSON hold any number."""

USD_AN_HOUR = "USD an hour"
"""The column of rental prices; their sources come along where a table has it."""

_COUNTED = "overhead_bytes"
"""A column of sweeps that is named like a setting, and holds what was found for the row."""


class Beside(NamedTuple):
    """Models and GPUs that rows of a sweep are of besides the scenario's own: their sources come along."""

    models: tuple[Model, ...] = ()
    gpus: tuple[Gpu, ...] = ()


NOTHING_BESIDE = Beside()


# ------------------------------------------------------------------------------------- what every file carries

_LABELS: dict[str, str] = {
    "model": "model",
    "gpu": "GPU",
    "context_length": "context length (tokens)",
    "batch_size": "sequences at once",
    "kv_dtype": "KV cache precision",
    "weight_dtype": "weight precision",
    "num_kv_heads": "KV heads",
    "tensor_parallel": "tensor parallelism",
    "pipeline_parallel": "pipeline stages",
    "memory_fraction": "memory fraction",
    "overhead_bytes": "run-time overhead (bytes)",
    "image_tokens": "image tokens of each sequence",
    "shared_prefix": "shared prefix (tokens)",
    "adapter_bytes": "adapters (bytes)",
    "draft_model": "draft model",
    "engine": "engine",
    "data_parallel": "replicas (data parallelism)",
    "expert_parallel": "experts stay whole (expert parallelism)",
}
"""Words for the settings of a scenario; one that is missing here goes by its own name."""

_NONE_WORDS = {
    "weight_dtype": AS_PUBLISHED,
    "num_kv_heads": "as trained",
    "overhead_bytes": "an estimate",
    "draft_model": "none",
    "engine": "none",
}


def setting_rows(scenario: Scenario) -> list[tuple[str, str]]:
    """(setting, value) of every setting, in words."""
    return [(setting_label(item.name), setting_words(scenario, item.name)) for item in fields(Scenario)]


def plain_setting_rows(scenario: Scenario) -> list[tuple[str, str]]:
    """`setting_rows` for a program: numbers are digits alone."""
    return [(setting_label(item.name), plain_setting(scenario, item.name)) for item in fields(Scenario)]


def setting_label(setting: str) -> str:
    """A keyword of `Scenario` in words."""
    return _LABELS.get(setting, setting.replace("_", " "))


def setting_words(scenario: Scenario, setting: str) -> str:
    """What a scenario says for one of its keywords, in words: `bf16`, `32,768`."""
    value = getattr(scenario, setting)
    return f"{value:,}" if type(value) is int else plain_setting(scenario, setting)


def plain_setting(scenario: Scenario, setting: str) -> str:
    """`setting_words` for a program: `32768`."""
    value = getattr(scenario, setting)
    if value is None:
        return _NONE_WORDS.get(setting, "none")
    return YES_NO[value] if isinstance(value, bool) else str(getattr(value, "name", value))


def source_rows(scenario: Scenario) -> list[tuple[str, str]]:
    """(what, where from) for every figure that the scenario rests on, notes included."""
    p = plan(scenario)
    model, gpu, draft = scenario.model, scenario.gpu, scenario.draft_model
    rows = _model_sources(model)
    if draft is not None:
        rows.append((f"draft model {draft.name}", draft.source or "defined by the user"))
    rows += _gpu_sources(gpu)
    rows.append(("run-time overhead", p.runtime.source))
    return rows + [("warning", text) for text in p.warnings]


def _model_sources(model: Model) -> list[tuple[str, str]]:
    return [(f"model {model.name}", model.source or "defined by the user"), *(("note", note) for note in model.notes)]


def _gpu_sources(gpu: Gpu) -> list[tuple[str, str]]:
    return [
        (f"usable memory of {gpu.name}", gpu.usable_basis),
        *((f"GPU {gpu.name}", source) for source in gpu.sources),
        *(("note", note) for note in gpu.notes),
    ]


def about(scenario: Scenario, address: str = "", settings: str = "") -> About:
    """What every file of a scenario carries; see `link_or_reason`."""
    return _about(scenario, source_rows(scenario), address, settings)


def _about(scenario: Scenario, sources: list[tuple[str, str]], address: str, settings: str) -> About:
    return About(
        [("setting", "value"), *setting_rows(scenario)],
        plain_inputs(scenario),
        sources,
        link_or_reason(scenario, address, settings),
    )


def plain_inputs(scenario: Scenario) -> dict[str, Any]:
    """Every setting as a plain value; a model or GPU by its id and name."""
    return {item.name: _plain_setting(getattr(scenario, item.name)) for item in fields(Scenario)}


def _plain_setting(value: Any) -> Any:
    return {"id": value.id, "name": value.name} if hasattr(value, "name") else value


def link_or_reason(scenario: Scenario, address: str = "", settings: str = "") -> str:
    """The link of a scenario after `address`, or the sentence why it has none.

    settings  a page's own, from `&` on, such as "&q=Which+GPU%3F"
    """
    try:
        return address + to_link(scenario) + settings
    except LinkError as error:
        return f"no link: {error}"


# -------------------------------------------------------------------------------------------------------- the plan


def term_rows(p: MemoryPlan) -> list[tuple[str, str, str]]:
    """(what, formula with the plan's numbers, bytes) for every term of the sums."""
    terms = [*weight_terms(p), *cache_terms(p), *overhead_terms(p)]
    return [(term.label, term.formula, str(term.bytes)) for term in terms]


def plan_csv(p: MemoryPlan, address: str = "") -> str:
    """A plan as CSV of the columns section, what, value, exact."""
    require_kind(p, "the plan", MemoryPlan)
    inputs = zip(setting_rows(p.scenario), plain_setting_rows(p.scenario), strict=True)
    rows: list[tuple[str, ...]] = [("input", *row, exact) for row, (_, exact) in inputs]
    rows += [("result", *row) for row in charts.plan_rows(p)]
    rows += [("term", *row) for row in term_rows(p)]
    rows += [("source", what, text, "") for what, text in source_rows(p.scenario)]
    rows.append(("link", "link", link_or_reason(p.scenario, address), ""))
    return csv_text(("section", "what", "value", "exact"), rows)


def plan_json(p: MemoryPlan, address: str = "") -> str:
    """A plan as one JSON object: inputs, result, terms, sources, link."""
    require_kind(p, "the plan", MemoryPlan)
    terms = [{"what": what, "formula": formula, "bytes": int(size)} for what, formula, size in term_rows(p)]
    return json_document(about(p.scenario, address), {"result": plan_values(p), "terms": terms})


def plan_markdown(p: MemoryPlan, address: str = "") -> str:
    """A plan as a Markdown document."""
    require_kind(p, "the plan", MemoryPlan)
    answer = [f"**{markdown_text(p.sentence)}**", markdown_table(("what", "value", "exact"), charts.plan_words(p))]
    terms = ["## Terms", markdown_table(("what", "formula", "bytes"), term_rows(p))]
    return markdown_document(plan_title(p.scenario), about(p.scenario, address), [*answer, *terms])


def plan_title(scenario: Scenario) -> str:
    """`Llama 3.1 8B on 2 × H100`."""
    gpus = f"{scenario.num_gpus:,} × {scenario.gpu.name}" if scenario.num_gpus > 1 else scenario.gpu.name
    return f"{scenario.model.name} on {gpus}"


def plan_html(p: MemoryPlan, address: str = "", unit: str = "GiB") -> str:
    """A plan as one HTML page with its figures, which opens anywhere and asks no server for anything."""
    require_kind(p, "the plan", MemoryPlan)
    body = [
        f"<p class='answer'>{html.escape(p.sentence)}</p>",
        *html_figures(plan_figures(p, unit)),
        html_table("The plan", ("what", "value", "exact"), charts.plan_words(p, unit)),
        html_table("Every term of the sums", ("what", "formula", "bytes"), term_rows(p)),
    ]
    return html_page(plan_title(p.scenario), about(p.scenario, address), body)


def plan_figures(p: MemoryPlan, unit: str = "GiB") -> tuple[Figure, ...]:
    """The figures of the Plan page: the memory bar, cache against weights, and the layers."""
    curve = over_context(p.scenario, charts.context_values(p))
    return (
        Figure("What one GPU holds", f"A bar of the memory of one GPU. {p.sentence}", charts.memory_bar(p, unit)),
        Figure(
            "Cache against weights",
            "Cache, weights and their sum over context length, with the usable capacity",
            charts.cache_against_weights(p, curve, unit),
        ),
        Figure("Layers", kinds_sentence(p.scenario.model), charts.layer_strip(layer_strip(p.scenario.model))),
    )


# ------------------------------------------------------------------------------------------------------ the sweep


def sweep_csv(
    table: pd.DataFrame, scenario: Scenario, address: str = "", settings: str = "", beside: Beside = NOTHING_BESIDE
) -> str:
    """The very rows of `table` as CSV, after comment lines (#) with the inputs, the sources and the link.

    `pandas.read_csv(..., comment="#")` reads it.
    """
    link = link_or_reason(scenario, address, settings)
    head = [*plain_setting_rows(scenario), *_sweep_sources(table, scenario, beside), ("link", link)]
    comments = "".join(csv_comment(f"{what}: {text}") for what, text in head)
    return comments + table_csv(table)


def sweep_json(
    table: pd.DataFrame, scenario: Scenario, address: str = "", settings: str = "", beside: Beside = NOTHING_BESIDE
) -> str:
    """The very rows of `table` as JSON: columns, and rows in their order; bytes are ints, a missing value is null."""
    rows = [list(row) for row in _plain_rows(table)]
    return json_document(
        _sweep_about(table, scenario, address, settings, beside),
        {"columns": [str(name) for name in table.columns], "rows": rows},
    )


def sweep_markdown(
    table: pd.DataFrame,
    scenario: Scenario,
    address: str = "",
    settings: str = "",
    title: str = "Sweep",
    beside: Beside = NOTHING_BESIDE,
) -> str:
    """The very rows of `table` as a Markdown document. Raises InputError beyond MAX_SHOWN_ROWS."""
    _require_showable(table)
    shown = markdown_table([str(name) for name in table.columns], _text_rows(table))
    return markdown_document(
        _sweep_title(table, scenario, title), _sweep_about(table, scenario, address, settings, beside), [shown]
    )


def sweep_html(
    table: pd.DataFrame,
    scenario: Scenario,
    figures: Sequence[Figure] = (),
    address: str = "",
    settings: str = "",
    title: str = "Sweep",
    beside: Beside = NOTHING_BESIDE,
) -> str:
    """The very rows of `table`, and the figures as they are on the page, as one HTML page without network.

    Raises InputError beyond MAX_SHOWN_ROWS.
    """
    _require_showable(table)
    rows = html_table(title, [str(name) for name in table.columns], _text_rows(table))
    heading = _sweep_title(table, scenario, title)
    return html_page(heading, _sweep_about(table, scenario, address, settings, beside), [*html_figures(figures), rows])


def _sweep_about(table: pd.DataFrame, scenario: Scenario, address: str, settings: str, beside: Beside) -> About:
    return _about(scenario, _sweep_sources(table, scenario, beside), address, settings)


def _sweep_sources(table: pd.DataFrame, scenario: Scenario, beside: Beside) -> list[tuple[str, str]]:
    """`source_rows` and those of what else rows are of, after a word on the settings that are each row's own."""
    own = [setting_label(setting) for setting in _swept_settings(table, scenario)]
    said = f"each row has its own, whatever the inputs say: {', '.join(own)}"
    rows = [
        *([("rows", said)] if own else []),
        *source_rows(scenario),
        *(row for model in beside.models for row in _model_sources(model)),
        *(row for gpu in beside.gpus for row in _gpu_sources(gpu)),
        *(_price_sources([scenario.gpu, *beside.gpus]) if USD_AN_HOUR in table else []),
    ]
    return list(dict.fromkeys(rows))


def _price_sources(gpus: Iterable[Gpu]) -> list[tuple[str, str]]:
    priced = [(gpu.name, gpu.rent_per_hour) for gpu in gpus]
    return [
        (f"price of {name}", f"{format_rate(price.usd)} an hour on {price.date}, {price.source}")
        for name, price in priced
        if price is not None
    ]


def _swept_settings(table: pd.DataFrame, scenario: Scenario) -> list[str]:
    """Settings that have a column in which something else stands than the scenario's own value."""
    columns = {_column_setting(str(name)): table[name] for name in table.columns if name != _COUNTED}
    return [
        item.name
        for item in fields(Scenario)
        if item.name in columns and not set(columns[item.name].dropna()) <= {_in_column(scenario, item.name)}
    ]


def _column_setting(column: str) -> str:
    """The setting that a column holds: those of a page's own tables have words."""
    name = column.lower().replace(" ", "_")
    return {"kv_heads": "num_kv_heads", "pipeline_stages": "pipeline_parallel"}.get(name, name)


def _in_column(scenario: Scenario, setting: str) -> Any:
    """A scenario's own value as `kvplan.sweep` and `kvplan.fleet` write it into rows."""
    value = getattr(scenario.planned_model if setting == "num_kv_heads" else scenario, setting)
    if value is None:
        return AS_PUBLISHED
    return (value.id or value.name) if hasattr(value, "name") else value


def _sweep_title(table: pd.DataFrame, scenario: Scenario, title: str) -> str:
    """The answer, and what of the scenario holds for every row: `What fits: Llama 3.1 8B on 2 × H100`."""
    swept = _swept_settings(table, scenario)
    if "model" in swept:
        return title
    if "gpu" in map(_column_setting, map(str, table.columns)):
        return f"{title}: {scenario.model.name}"
    if "tensor_parallel" in swept or "pipeline_parallel" in swept:
        return f"{title}: {scenario.model.name} on {scenario.gpu.name}"
    return f"{title}: {plan_title(scenario)}"


def _require_showable(table: pd.DataFrame) -> None:
    if len(table) > MAX_SHOWN_ROWS:
        raise InputError(
            f"the table has {counted(len(table), 'row')}; Markdown and HTML hold at most {MAX_SHOWN_ROWS:,}, so use "
            "CSV or JSON"
        )


def _plain_rows(table: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    """Rows of Python values; what is missing is None."""
    columns = [_plain_column(table.iloc[:, index]) for index in range(table.shape[1])]
    return zip(*columns, strict=True)


def _plain_column(column: pd.Series[Any]) -> list[Any]:
    exact = whole_column(column)
    return [None if gone else value for value, gone in zip(exact.tolist(), exact.isna().tolist(), strict=True)]


def _text_rows(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return [tuple("" if value is None else str(value) for value in row) for row in _plain_rows(table)]
