"""Documents in four formats: CSV, JSON, Markdown, and one HTML page that needs no network.

Each carries what it rests on: inputs, sources, link. Text from people is escaped for the format that it goes into; a
cell that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.units import EXACT_FLOAT

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str, ...]


class Figure(NamedTuple):
    """A figure for the HTML page: its title, what it shows in words, and the plotly dictionary."""

    title: str
    alt: str
    figure: Mapping[str, Any]


class About(NamedTuple):
    """What a document rests on.

    settings  a table of every setting, its first row the head
    inputs    the same for JSON
    sources   (what, where from) of every figure
    link      the link that opens the same thing, or why there is none
    """

    settings: Sequence[Row]
    inputs: Any
    sources: Sequence[Row]
    link: str


# ------------------------------------------------------------------------------------------------------------ CSV

_FORMULA_START = ("=", "+", "-", "@", "\t")


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe in front, on one line; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    line = re.sub(r"[\r\n]+", " ", value)
    return f"'{line}" if line.startswith(_FORMULA_START) else line


def csv_comment(text: str) -> str:
    """A comment line of a CSV file. A spreadsheet cuts it into cells too: none of them may start a formula."""
    return "# " + re.sub(r"([,;\t][\"']*)(?=[=+\-@])", r"\1 ", one_line(text)) + "\n"


def whole_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of counts as integers again, which a gap among them had turned into floats; others as they are."""
    if column.dtype.kind != "f":
        return column
    known = column.dropna()
    whole = len(known) > 0 and bool((known % 1 == 0).all()) and known.abs().max() <= EXACT_FLOAT
    return column.astype("Int64") if whole else column


def table_csv(table: pd.DataFrame) -> str:
    """Any table as CSV without its index, safe to open in a spreadsheet; counts are integers, also beside a gap."""
    safe = table.rename(columns=lambda name: _no_formula(str(name)))
    for name, kind in safe.dtypes.items():
        if str(kind) in ("object", "str", "string", "category"):
            safe[name] = [_no_formula(value) for value in safe[name]]
        else:
            safe[name] = whole_column(safe[name])
    text: str = safe.to_csv(index=False, lineterminator="\n")
    return text


def _csv_cell(value: str) -> str:
    is_number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
    return value if is_number else str(_no_formula(value))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of words as CSV, safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


# ----------------------------------------------------------------------------------------------------------- JSON


def json_document(about: About, content: Mapping[str, Any]) -> str:
    """One JSON object: inputs, the content, sources, link."""
    sources = [{"what": what, "source": text} for what, text in about.sources]
    whole = {"inputs": about.inputs, **content, "sources": sources, "link": about.link}
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# ------------------------------------------------------------------------------------------------------- Markdown


def one_line(text: str) -> str:
    """`text` without line breaks."""
    return " ".join(text.split())


def markdown_text(text: str) -> str:
    """`text` so that no renderer takes any of it for markup, a link, an image, an icon or a formula."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = re.sub(r"([\\`*_\[\]{}|~$#!])", r"\\\1", plain)
    return re.sub(r"(?i):(?=//|\w)|(?<=www)\.|@", lambda found: f"&#{ord(found[0])};", escaped)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a document."""
    lines = [head, ["---"] * len(head)]
    cells = [[markdown_text(cell) for cell in head], lines[1], *([markdown_text(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def markdown_document(title: str, about: About, content: Sequence[str]) -> str:
    """A Markdown document of blocks, with inputs, sources and link below."""
    blocks = [
        f"# {markdown_text(title)}",
        *content,
        "## Inputs",
        markdown_table(about.settings[0], about.settings[1:]),
        "## Sources",
        markdown_table(("what", "source"), about.sources),
        "## Link",
        f"```text\n{about.link.replace('`', '')}\n```",
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
td { white-space: nowrap }
td.long { white-space: normal; min-width: 16rem; overflow-wrap: anywhere }
code { overflow-wrap: anywhere }
"""

_DRAW = """
document.querySelectorAll("script[type='application/json']").forEach((data) => {
  const figure = JSON.parse(data.textContent);
  Plotly.newPlot(data.previousElementSibling, figure.data, figure.layout,
    {responsive: true, displaylogo: false, toImageButtonOptions: {format: "svg"}});
});
"""


def html_page(title: str, about: About, body: Sequence[str]) -> str:
    """A page of its own, which opens anywhere and asks no server for anything, with inputs, sources and link below."""
    content = [
        f"<h1>{html.escape(title)}</h1>",
        *body,
        html_table("Inputs", about.settings[0], about.settings[1:]),
        html_table("Sources", ("what", "source"), about.sources),
        f"<h2>Link</h2><p>{_html_link(about.link)}</p>",
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


def _html_link(link: str) -> str:
    """The link to be followed, where it is a whole address; else its words, such as why there is none."""
    words = f"<code id='link'>{html.escape(link)}</code>"
    if not link.startswith(("https://", "http://")):
        return words
    return f'<a href="{html.escape(link)}" rel="noreferrer noopener">{words}</a>'


def _plotly_script() -> str:
    """The figures' program, 4.8 MB, so that the page needs nothing else."""
    from plotly.offline import get_plotlyjs  # here and not above: only a page with figures needs it

    return f"<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script>\n"


def html_figures(figures: Sequence[Figure]) -> list[str]:
    """Figures for a page, as they are drawn on the screen but on white."""
    return [_html_figure(item) for item in figures]


def _html_figure(item: Figure) -> str:
    layout = _on_white(item.figure["layout"])
    drawn = {"data": item.figure["data"], "layout": layout}
    height = int(layout.get("height", 450))
    return (
        f"<figure><figcaption>{html.escape(item.title)}</figcaption>"
        f"<div role='img' aria-label='{html.escape(item.alt)}' style='height:{height}px'></div>"
        f"<script type='application/json'>{_script_json(drawn)}</script></figure>"
    )


def _on_white(layout: Mapping[str, Any]) -> dict[str, Any]:
    """A layout on white, with the room that the page's look gives its words, and a little more: letters are wider."""
    axes = {name: _with_room(name, own) for name, own in layout.items() if re.fullmatch(r"[xy]axis\d*", name)}
    legend = dict(layout.get("legend", {}))
    if "entrywidth" in legend:
        legend["entrywidth"] *= _WIDER
    white = {"paper_bgcolor": "#fff", "plot_bgcolor": "#fff", "font": {"color": "#222", "family": "Arial, sans-serif"}}
    return {**layout, **axes, **white, "legend": legend, "margin": {"pad": 8, **layout.get("margin", {})}}


_WIDER = 1.25
"""Arial over Source Sans, which is the page's own and not in a file."""


def _with_room(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """An axis whose title stands clear of its numbers."""
    title = {"standoff": 20 if name[0] == "x" else 24, **own["title"]} if "title" in own else None
    return {"automargin": True, **own, **({} if title is None else {"title": title})}


def _script_json(figure: Mapping[str, Any]) -> str:
    """A figure as JSON; plotly writes < and > as escapes, so that it cannot end the script that it stands in."""
    from plotly.io.json import to_json_plotly

    text: str = to_json_plotly(figure)
    return text


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page."""
    top = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in head)
    lines = "\n".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<div class='table'><table>{caption}<thead><tr>{top}</tr></thead>\n<tbody>{lines}</tbody></table></div>"


LONG_CELL = 40
"""Letters from which a cell is prose that wraps; a number or a name cut in two lines would be misread."""


def _html_cell(text: str) -> str:
    return f"<td{' class=long' if len(text) > LONG_CELL else ''}>{html.escape(text)}</td>"
