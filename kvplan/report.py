"""Plans, sweeps and comparisons as files: CSV, JSON, Markdown, and one HTML page that needs no network.

Every file carries the inputs, the sources and the link. Text from people is escaped for the format that it goes
into; a cell that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan import charts
from kvplan.errors import InputError, LinkError
from kvplan.explain import (
    cache_terms,
    kinds_sentence,
    layer_strip,
    overhead_terms,
    part_bytes,
    plan_values,
    weight_terms,
)
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.share import YES_NO, to_comparison_link, to_link
from kvplan.sweep import AS_PUBLISHED, sweep
from kvplan.units import format_bytes, format_exact_bytes, format_params

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN_ROWS = 20_000
"""Rows of a table in Markdown or HTML; more would not open. CSV and JSON hold any number."""

Rows = Sequence[tuple[str, ...]]


class Figure(NamedTuple):
    """A figure for the HTML page: its title, what it shows in words, and the plotly dictionary."""

    title: str
    alt: str
    figure: Mapping[str, Any]


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
    return [(_label(item.name), _setting_words(scenario, item.name)) for item in fields(Scenario)]


def _label(setting: str) -> str:
    return _LABELS.get(setting, setting.replace("_", " "))


def _setting_words(scenario: Scenario, setting: str) -> str:
    value = getattr(scenario, setting)
    if value is None:
        return _NONE_WORDS.get(setting, "none")
    return YES_NO[value] if isinstance(value, bool) else str(getattr(value, "name", value))


def source_rows(scenario: Scenario) -> list[tuple[str, str]]:
    """(what, where from) for every figure that the scenario rests on, notes included."""
    p = plan(scenario)
    model, gpu, draft = scenario.model, scenario.gpu, scenario.draft_model
    rows = [(f"model {model.name}", model.source or "defined by the user")]
    rows += [("note", note) for note in model.notes]
    if draft is not None:
        rows.append((f"draft model {draft.name}", draft.source or "defined by the user"))
    rows.append((f"usable memory of {gpu.name}", gpu.usable_basis))
    rows += [(f"GPU {gpu.name}", source) for source in gpu.sources]
    rows += [("note", note) for note in gpu.notes]
    rows.append(("run-time overhead", p.runtime.source))
    return rows + [("warning", text) for text in p.warnings]


def link_or_reason(scenario: Scenario, address: str = "") -> str:
    """The link of a scenario after `address`, or the sentence why it has none."""
    try:
        return address + to_link(scenario)
    except LinkError as error:
        return f"no link: {error}"


# -------------------------------------------------------------------------------------------------------- the plan


def term_rows(p: MemoryPlan) -> list[tuple[str, str, str]]:
    """(what, formula with the plan's numbers, bytes) for every term of the sums."""
    terms = [*weight_terms(p), *cache_terms(p), *overhead_terms(p)]
    return [(term.label, term.formula, str(term.bytes)) for term in terms]


def plan_csv(p: MemoryPlan, address: str = "") -> str:
    """A plan as CSV of the columns section, what, value, exact."""
    rows: list[tuple[str, ...]] = [("input", what, value, value) for what, value in setting_rows(p.scenario)]
    rows += [("result", *row) for row in charts.plan_rows(p)]
    rows += [("term", *row) for row in term_rows(p)]
    rows += [("source", what, text, "") for what, text in source_rows(p.scenario)]
    rows.append(("link", "link", link_or_reason(p.scenario, address), ""))
    return _csv(("section", "what", "value", "exact"), rows)


def plan_json(p: MemoryPlan, address: str = "") -> str:
    """A plan as one JSON object: inputs, result, terms, sources, link."""
    terms = [{"what": what, "formula": formula, "bytes": int(size)} for what, formula, size in term_rows(p)]
    return _json(p.scenario, address, {"result": plan_values(p), "terms": terms})


def plan_markdown(p: MemoryPlan, address: str = "") -> str:
    """A plan as a Markdown document."""
    answer = [f"**{_markdown_text(p.sentence)}**", _markdown_table(("what", "value", "exact"), charts.plan_rows(p))]
    terms = ["## Terms", _markdown_table(("what", "formula", "bytes"), term_rows(p))]
    return _markdown(plan_title(p.scenario), p.scenario, address, [*answer, *terms])


def plan_title(scenario: Scenario) -> str:
    """`Llama 3.1 8B on 2 × H100`."""
    gpus = f"{scenario.num_gpus} × {scenario.gpu.name}" if scenario.num_gpus > 1 else scenario.gpu.name
    return f"{scenario.model.name} on {gpus}"


def plan_html(p: MemoryPlan, address: str = "", unit: str = "GiB") -> str:
    """A plan as one HTML page with its figures, which opens anywhere and asks no server for anything."""
    body = [
        f"<p class='answer'>{html.escape(p.sentence)}</p>",
        *_figures(plan_figures(p, unit)),
        _html_table("The plan", ("what", "value", "exact"), charts.plan_rows(p)),
        _html_table("Every term of the sums", ("what", "formula", "bytes"), term_rows(p)),
    ]
    return _page(plan_title(p.scenario), p.scenario, address, body)


def plan_figures(p: MemoryPlan, unit: str = "GiB") -> tuple[Figure, ...]:
    """The figures of the Plan page: the memory bar, cache against weights, and the layers."""
    curve = sweep(p.scenario, context_length=charts.context_values(p))
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


def sweep_csv(table: pd.DataFrame, scenario: Scenario, address: str = "") -> str:
    """The very rows of `table` as CSV, after comment lines (#) with the inputs, the sources and the link.

    `pandas.read_csv(..., comment="#")` reads it.
    """
    head = [*setting_rows(scenario), *source_rows(scenario), ("link", link_or_reason(scenario, address))]
    comments = "".join(f"# {_one_line(f'{what}: {text}')}\n" for what, text in head)
    return comments + table_csv(table)


def table_csv(table: pd.DataFrame) -> str:
    """Any table as CSV without its index, safe to open in a spreadsheet."""
    safe = table.rename(columns=lambda name: _no_formula(str(name)))
    for name, kind in safe.dtypes.items():
        if str(kind) in ("object", "str", "string", "category"):
            safe[name] = [_no_formula(value) for value in safe[name]]
    text: str = safe.to_csv(index=False, lineterminator="\n")
    return text


def sweep_json(table: pd.DataFrame, scenario: Scenario, address: str = "") -> str:
    """The very rows of `table` as JSON: columns, and rows in their order; bytes are ints, a missing value is null."""
    rows = [list(row) for row in _plain_rows(table)]
    return _json(scenario, address, {"columns": [str(name) for name in table.columns], "rows": rows})


def sweep_markdown(table: pd.DataFrame, scenario: Scenario, address: str = "", title: str = "Sweep") -> str:
    """The very rows of `table` as a Markdown document. Raises InputError beyond MAX_SHOWN_ROWS."""
    _require_showable(table)
    shown = _markdown_table([str(name) for name in table.columns], _text_rows(table))
    return _markdown(f"{title}: {plan_title(scenario)}", scenario, address, [shown])


def sweep_html(
    table: pd.DataFrame,
    scenario: Scenario,
    figures: Sequence[Figure] = (),
    address: str = "",
    title: str = "Sweep",
) -> str:
    """The very rows of `table`, and the figures as they are on the page, as one HTML page without network.

    Raises InputError beyond MAX_SHOWN_ROWS.
    """
    _require_showable(table)
    rows = _html_table(title, [str(name) for name in table.columns], _text_rows(table))
    return _page(f"{title}: {plan_title(scenario)}", scenario, address, [*_figures(figures), rows])


def _require_showable(table: pd.DataFrame) -> None:
    if len(table) > MAX_SHOWN_ROWS:
        raise InputError(
            f"the table has {len(table):,} rows; Markdown and HTML hold at most {MAX_SHOWN_ROWS:,}, so use CSV or JSON"
        )


def _plain_rows(table: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    """Rows of Python values; what is missing is None."""
    columns = [_plain_column(table.iloc[:, index]) for index in range(table.shape[1])]
    return zip(*columns, strict=True)


def _plain_column(column: pd.Series[Any]) -> list[Any]:
    missing = column.isna()
    return [None if gone else value for value, gone in zip(column.tolist(), missing.tolist(), strict=True)]


def _text_rows(table: pd.DataFrame) -> list[tuple[str, ...]]:
    return [tuple("" if value is None else str(value) for value in row) for row in _plain_rows(table)]


# ------------------------------------------------------------------------------------------------------ comparison


class Change(NamedTuple):
    """Something that two scenarios have in common by name: in words, in the first and in the second."""

    what: str
    first: str
    second: str


class PartChange(NamedTuple):
    """A part of the memory: bytes in the first and in the second, and how many more the second has."""

    what: str
    first: int
    second: int
    difference: int


@dataclass(frozen=True)
class Comparison:
    """Two plans side by side.

    settings  the settings that differ
    parts     every part of one GPU's memory; the differences add up to that of the capacity, the last row
    limits    largest batch, longest context and the like, whether they differ or not
    """

    first: MemoryPlan
    second: MemoryPlan
    settings: tuple[Change, ...]
    parts: tuple[PartChange, ...]
    limits: tuple[Change, ...]

    @property
    def sentence(self) -> str:
        """What the second takes more or less, and whether each fits."""
        more = self.second.total_bytes - self.first.total_bytes
        taken = f"{format_bytes(abs(more))} {'more' if more > 0 else 'less'}" if more else "exactly as much"
        verdicts = {
            (True, True): "both fit",
            (False, False): "neither fits",
            (True, False): "only the first fits",
            (False, True): "only the second fits",
        }
        return f"The second takes {taken} on each GPU; {verdicts[self.first.fits, self.second.fits]}"

    @property
    def link(self) -> str:
        """The link of both. Raises LinkError where they do not fit into one."""
        return to_comparison_link([self.first.scenario, self.second.scenario])


def compare(first: Scenario, second: Scenario) -> Comparison:
    """What changes from one scenario to another, in settings, bytes and limits."""
    a, b = plan(first), plan(second)
    return Comparison(a, b, _setting_changes(first, second), _part_changes(a, b), _limit_changes(a, b))


def _setting_changes(first: Scenario, second: Scenario) -> tuple[Change, ...]:
    names = [item.name for item in fields(Scenario) if getattr(first, item.name) != getattr(second, item.name)]
    changes = [Change(_label(name), _setting_words(first, name), _setting_words(second, name)) for name in names]
    if first.planned_model != second.planned_model:
        changes += _model_changes(first, second)
    return tuple(changes)


def _model_changes(first: Scenario, second: Scenario) -> list[Change]:
    """What makes two models differ, in words that two models of one name do not share."""
    rows = [
        ("parameters", *(format_params(s.planned_model.num_params) for s in (first, second))),
        ("layers", *(kinds_sentence(s.planned_model) for s in (first, second))),
    ]
    return [Change(*row) for row in rows if row[1] != row[2]]


def _part_changes(a: MemoryPlan, b: MemoryPlan) -> tuple[PartChange, ...]:
    first, second = part_bytes(a), part_bytes(b)
    first["usable capacity"], second["usable capacity"] = a.capacity_bytes, b.capacity_bytes
    rows = [(name, first.get(name, 0), second.get(name, 0)) for name in dict.fromkeys([*first, *second])]
    return tuple(PartChange(name, old, new, new - old) for name, old, new in rows if old or new)


def _limit_changes(a: MemoryPlan, b: MemoryPlan) -> tuple[Change, ...]:
    rows = zip(_limits(a), _limits(b), strict=True)
    return tuple(Change(what, old, new) for (what, old), (_, new) in rows)


def _limits(p: MemoryPlan) -> list[tuple[str, str]]:
    floor, per_token = p.decode_floor_seconds, p.bytes_per_token
    whole = int(per_token)
    return [
        ("largest batch", _count_words(p.max_batch_size, "no limit")),
        ("longest context", _count_words(p.max_context_length, "no limit")),
        ("crossover context", _count_words(p.crossover_context_length, "never")),
        ("cache bytes a token", f"{whole:,}" if whole == per_token else f"{float(per_token):,.2f}"),
        ("decode floor", "bandwidth not known" if floor is None else f"{floor * 1000:.2f} ms a step"),
        ("GPUs", str(p.scenario.num_gpus)),
    ]


def _count_words(count: int | None, none: str) -> str:
    return none if count is None else f"{count:,}"


def comparison_rows(found: Comparison) -> list[tuple[str, str, str, str]]:
    """(what, first, second, difference) for a table: settings, then parts in bytes, then limits."""
    rows = [(change.what, change.first, change.second, "") for change in found.settings]
    rows += [
        (part.what, format_exact_bytes(part.first), format_exact_bytes(part.second), f"{part.difference:+,} B")
        for part in found.parts
    ]
    return rows + [(change.what, change.first, change.second, "") for change in found.limits]


# ------------------------------------------------------------------------------------------------------------ CSV

_FORMULA_START = ("=", "+", "-", "@", "\t")


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe in front, on one line; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    line = re.sub(r"[\r\n]+", " ", value)
    return f"'{line}" if line.startswith(_FORMULA_START) else line


def _csv_cell(value: str) -> str:
    is_number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
    return value if is_number else str(_no_formula(value))


def _csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    import csv

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


# ----------------------------------------------------------------------------------------------------------- JSON


def _json(scenario: Scenario, address: str, content: Mapping[str, Any]) -> str:
    inputs = {item.name: _plain_setting(getattr(scenario, item.name)) for item in fields(Scenario)}
    sources = [{"what": what, "source": text} for what, text in source_rows(scenario)]
    whole = {"inputs": inputs, **content, "sources": sources, "link": link_or_reason(scenario, address)}
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain_setting(value: Any) -> Any:
    return {"id": value.id, "name": value.name} if hasattr(value, "name") else value


# ------------------------------------------------------------------------------------------------------- Markdown


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown_text(text: str) -> str:
    """`text` so that no renderer takes any of it for markup, a link, an image, an icon or a formula."""
    plain = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = re.sub(r"([\\`*_\[\]{}|~$#!])", r"\\\1", plain)
    return re.sub(r"(?i):(?=//|\w)|(?<=www)\.|@", lambda found: f"&#{ord(found[0])};", escaped)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head)]
    cells = [[_markdown_text(cell) for cell in head], lines[1], *([_markdown_text(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _markdown(title: str, scenario: Scenario, address: str, content: Sequence[str]) -> str:
    blocks = [
        f"# {_markdown_text(title)}",
        *content,
        "## Inputs",
        _markdown_table(("setting", "value"), setting_rows(scenario)),
        "## Sources",
        _markdown_table(("what", "source"), source_rows(scenario)),
        "## Link",
        f"```text\n{link_or_reason(scenario, address).replace('`', '')}\n```",
    ]
    return "\n\n".join(blocks) + "\n"


# ----------------------------------------------------------------------------------------------------------- HTML

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the page may do: run what stands in it, and reach nothing."""

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
.answer { font-size: 1.25rem; font-weight: 600 }
figure { margin: 1.5rem 0; background: #fff; color: #222; padding: .5rem; overflow-x: auto }
figcaption { font-weight: 600 }
.table { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: .25rem 0 }
th, td { text-align: left; vertical-align: top; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #8886 }
td { overflow-wrap: anywhere }
code { overflow-wrap: anywhere }
"""

_DRAW = """
document.querySelectorAll("script[type='application/json']").forEach((data) => {
  const figure = JSON.parse(data.textContent);
  Plotly.newPlot(data.previousElementSibling, figure.data, figure.layout,
    {responsive: true, displaylogo: false, toImageButtonOptions: {format: "svg"}});
});
"""


def _page(title: str, scenario: Scenario, address: str, body: Sequence[str]) -> str:
    link = html.escape(link_or_reason(scenario, address))
    content = [
        f"<h1>{html.escape(title)}</h1>",
        *body,
        _html_table("Inputs", ("setting", "value"), setting_rows(scenario)),
        _html_table("Sources", ("what", "source"), source_rows(scenario)),
        f"<h2>Link</h2><p><code id='link'>{link}</code></p>",
    ]
    script = _plotly_script() if any("<figure" in part for part in body) else ""
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(content)
        + f"\n</main>\n{script}</body>\n</html>\n"
    )


def _plotly_script() -> str:
    """The figures' program, 4.8 MB, so that the page needs nothing else."""
    from plotly.offline import get_plotlyjs  # here and not above: only a page with figures needs it

    return f"<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script>\n"


def _figures(figures: Sequence[Figure]) -> list[str]:
    return [_html_figure(item) for item in figures]


def _html_figure(item: Figure) -> str:
    white = {"paper_bgcolor": "#fff", "plot_bgcolor": "#fff", "font": {"color": "#222"}}
    layout = {**item.figure["layout"], **white}
    drawn = {"data": item.figure["data"], "layout": layout}
    height = int(layout.get("height", 450))
    return (
        f"<figure><figcaption>{html.escape(item.title)}</figcaption>"
        f"<div role='img' aria-label='{html.escape(item.alt)}' style='height:{height}px'></div>"
        f"<script type='application/json'>{_script_json(drawn)}</script></figure>"
    )


def _script_json(figure: Mapping[str, Any]) -> str:
    """A figure as JSON; plotly writes < and > as escapes, so that it cannot end the script that it stands in."""
    from plotly.io.json import to_json_plotly

    text: str = to_json_plotly(figure)
    return text


def _html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<div class='table'><table>{caption}<thead><tr>{top}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
