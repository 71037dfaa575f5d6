"""The lab's results -> figures, as plain plotly dictionaries: no streamlit, no torch, no number that is not a result's.

Letters are large, since these figures are shown to a class. Colour never stands alone: cells carry their words, lines a
dash and a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kvplan.charts import BELOW_TOOLBAR, BLUE, GREY, ORANGE, PURPLE, SERIES, SKY, VERMILLION, Figure

FONT = 16
PALE, YELLOW, CORAL = "#DDE3EA", "#F0E442", "#E8703A"
INK = "#0E1116"
"""The letters in a cell; every ground that a cell may have is light enough for them."""


class Level(NamedTuple):
    """One state of a cell: its colour, and the word for a cell of that state."""

    color: str
    word: str


# ------------------------------------------------------------------------------------------------------ the cache


CELLS = {"empty": Level(PALE, "empty"), "held": Level(SKY, "held"), "new": Level(ORANGE, "new")}


def cache_grid(cells: pd.DataFrame, columns: int) -> Figure:
    """Layers by columns of the cache after one step: which token stands where, and which were written now.

    cells    the rows of one step of `lab.trace_grid`
    columns  room for so many, since a cache may still grow
    """
    table = cells.pivot(index="layer", columns="column", values="state")
    tokens = cells.pivot(index="layer", columns="column", values="token")
    words = [
        [_cell_words(state, token) for state, token in zip(*rows, strict=True)]
        for rows in zip(table.to_numpy(), tokens.to_numpy(), strict=True)
    ]
    names = list(CELLS)
    states = np.array([[names.index(state) for state in row] for row in table.to_numpy()])
    return {
        "data": [_cells(states, words, list(CELLS.values()))],
        "layout": _layout(
            height=120 + 70 * len(table),
            xaxis=_ticks("column of the cache", [str(column) for column in range(columns)])
            | {"range": [-0.5, columns - 0.5]},
            yaxis=_ticks("", [f"layer {layer}" for layer in table.index]) | {"autorange": "reversed"},
        ),
    }


def _cell_words(state: str, token: int) -> str:
    return "empty" if state == "empty" else f"<b>{token}</b><br>{CELLS[state].word}"


# --------------------------------------------------------------------------------------------------- fingerprints


def fingerprint(grid: Any, prompt_length: int, clean: float, small: float) -> Figure:
    """How far the cached rows of one part are off: layers by positions.

    grid   (layers, positions) differences relative to the layer's largest value; NaN: let go of
    clean  differences up to here are rounding; small  up to here they look like a quantized cache
    """
    levels = [Level(PALE, "clean"), Level(YELLOW, "small"), Level(CORAL, "far off")]
    states = np.where(grid <= clean, 0.0, np.where(grid <= small, 1.0, 2.0))
    states[np.isnan(grid)] = np.nan
    words = [[_difference_words(value, clean) for value in row] for row in grid]
    layers, positions = grid.shape
    edge = {"type": "line", "x0": prompt_length - 0.5, "x1": prompt_length - 0.5, "y0": -0.5, "y1": layers - 0.5}
    return {
        "data": [_cells(states, words, levels) | {"textfont": {"size": 13, "color": INK}}],
        "layout": _layout(
            height=120 + 52 * layers,
            xaxis=_ticks("position of the token", [str(position) for position in range(positions)]),
            yaxis=_ticks("", [f"layer {layer}" for layer in range(layers)]) | {"autorange": "reversed"},
            shapes=[edge | {"line": {"color": BLUE, "width": 4, "dash": "dash"}}],
        ),
    }


def _difference_words(value: float, clean: float) -> str:
    """In percent, short enough for a phone."""
    if np.isnan(value):
        return "gone"
    percent = 100 * value
    return "·" if value <= clean else f"{percent:.1g}" if percent < 1 else f"{min(percent, 999):.0f}"


# --------------------------------------------------------------------------------------------------------- logits


def side_by_side(table: pd.DataFrame) -> Figure:
    """Cached and uncached logits over the vocabulary: where they agree, the crosses stand in the circles.

    table  `SideBySide.table()`
    """
    shared = {"type": "scatter", "mode": "markers", "x": table["token"].to_numpy()}
    hover = {"hovertemplate": "token %{x}<br>%{y:.7f}<extra>%{fullData.name}</extra>"}
    circle = {"symbol": "circle-open", "size": 13, "color": BLUE, "line": {"width": 2.5}}
    cross = {"symbol": "x-thin", "size": 9, "line": {"width": 2.5, "color": ORANGE}}
    return {
        "data": [
            {**shared, **hover, "name": "whole sequence", "y": table["uncached"].to_numpy(), "marker": circle},
            {**shared, **hover, "name": "from the cache", "y": table["cached"].to_numpy(), "marker": cross},
        ],
        "layout": _layout(height=360, xaxis=_axis("token of the vocabulary"), yaxis=_axis("logit")),
    }


class Line(NamedTuple):
    """A level to compare with: its name, value, colour and dash."""

    name: str
    value: float
    color: str
    dash: str


LINES = {"bar": (VERMILLION, "solid"), "decision": (PURPLE, "dash"), "usual": (GREY, "dot")}


def row_differences(table: pd.DataFrame, levels: Sequence[tuple[str, str, float]]) -> Figure:
    """The largest difference of every compared row, on a log axis, with the levels (kind, name, value) as lines.

    table  `ParityResult.table()`; a difference of exactly 0 stands at the lower edge
    """
    lines = [Line(name, value, *LINES[kind]) for kind, name, value in levels if value > 0]
    found = table["max_abs_diff"].clip(upper=1e6)
    visible = [*found[found > 0], *(line.value for line in lines)]
    floor = min(visible, default=1e-9) / 10
    top = max([*visible, floor * 100]) * 10
    traces = [
        _rows(str(name), part, floor, style)
        for (name, part), style in zip(
            table.assign(max_abs_diff=found).groupby("scenario", sort=False), SERIES, strict=False
        )
    ]
    spread = [-0.5, len(table) - 0.5]
    return {
        "data": [*traces, *(_level(line, spread) for line in lines)],
        "layout": _layout(
            height=430,
            xaxis=_axis("compared row of logits") | {"range": spread},
            yaxis=_axis("largest difference")
            | {"type": "log", "range": [np.log10(floor / 3), np.log10(top)], "exponentformat": "power", "dtick": 2},
        ),
    }


def _rows(name: str, part: pd.DataFrame, floor: float, style: tuple[str, str, str]) -> Figure:
    color, _, symbol = style
    places = part["phase"] + ", position " + part["position"].astype(str) + ", batch row " + part["row"].astype(str)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": SCENARIOS[name],
        "x": part.index.to_numpy(),
        "y": part["max_abs_diff"].clip(lower=floor).to_numpy(),
        "customdata": part["max_abs_diff"].to_numpy(),
        "text": places.tolist(),
        "hovertemplate": "%{text}<br>difference %{customdata:.3g}<extra></extra>",
        "marker": {"color": color, "symbol": symbol, "size": 10},
    }


SCENARIOS = {"generations": "generations on one cache", "chunked": "prompt in chunks", "ragged": "ragged batch"}


def _level(line: Line, spread: list[float]) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{line.name}: {line.value:.2g}",
        "x": spread,
        "y": [line.value, line.value],
        "hoverinfo": "skip",
        "line": {"color": line.color, "dash": line.dash, "width": 3},
    }


# --------------------------------------------------------------------------------------------------------- wiring


def wiring(query_heads: Sequence[int], kv_heads: Sequence[int] | None, num_kv_heads: int) -> Figure:
    """Query heads above, KV heads below; `kv_heads` holds the one that each query head reads, None draws no lines."""
    count = len(query_heads)
    places = [(head + 0.5) * count / num_kv_heads - 0.5 for head in range(num_kv_heads)]
    lines = [] if kv_heads is None else [_wire(q, kv, places[kv]) for q, kv in zip(query_heads, kv_heads, strict=True)]
    return {
        "data": [
            *lines,
            _heads("query heads", list(query_heads), list(query_heads), 1, GREY),
            _heads("KV heads", places, list(range(num_kv_heads)), 0, GREY),
        ],
        "layout": _layout(
            height=300,
            showlegend=False,
            xaxis={"visible": False, "range": [-0.7, count - 0.3], "fixedrange": True},
            yaxis={
                "tickfont": {"size": FONT},
                "tickvals": [0, 1],
                "ticktext": ["KV heads", "query heads"],
                "range": [-0.3, 1.3],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "automargin": True,
            },
        ),
    }


def _wire(query_head: int, kv_head: int, place: float) -> Figure:
    color, dash, _ = SERIES[kv_head % len(SERIES)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [query_head, place],
        "y": [1, 0],
        "hovertemplate": f"query head {query_head} reads KV head {kv_head}<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 4},
    }


def _heads(name: str, places: Sequence[float], numbers: Sequence[int], height: int, color: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": list(places),
        "y": [height] * len(places),
        "text": [f"<b>{number}</b>" for number in numbers],
        "textfont": {"color": "#FFFFFF", "size": FONT},
        "hovertemplate": f"{name[:-1]} %{{text}}<extra></extra>",
        "marker": {"size": 30, "color": "#3A4653", "line": {"width": 2, "color": color}},
    }


# --------------------------------------------------------------------------------------------------------- checks


def check_matrix(table: pd.DataFrame) -> Figure:
    """Faults by checks, a tick where the fault is caught and a cross where it is missed; `lab.check_matrix`."""
    caught = table.pivot(index="title", columns="check", values="caught")
    caught = caught.loc[table["title"].drop_duplicates(), table["check"].drop_duplicates()]
    words = [["✓" if cell else "✗" for cell in row] for row in caught.to_numpy()]
    levels = [Level(YELLOW, "missed"), Level(SKY, "caught")]
    return {
        "data": [_cells(caught.to_numpy().astype(float), words, levels) | {"textfont": {"size": 16, "color": INK}}],
        "layout": _layout(
            height=170 + 30 * len(caught),
            xaxis=_ticks("", [_broken(check.replace("_", " ")) for check in caught.columns]) | {"side": "top"},
            yaxis=_ticks("", list(caught.index)) | {"autorange": "reversed", "tickfont": {"size": 14}},
        ),
    }


def _broken(words: str) -> str:
    return words.replace(" ", "<br>")


# -------------------------------------------------------------------------------------------------- counts, losses


class Curve(NamedTuple):
    """One line of a chart: its name and values."""

    name: str
    values: Any


def curves(x: Any, lines: Iterable[Curve], x_title: str, y_title: str) -> Figure:
    """Lines over the number of tokens, each with a colour and a dash of its own."""
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": line.name,
                "x": np.asarray(x),
                "y": np.asarray(line.values),
                "hovertemplate": f"{line.name}<br>%{{x:,d}} tokens: %{{y:,.4~f}}<extra></extra>",
                "line": {"color": color, "dash": dash, "width": 4},
            }
            for line, (color, dash, _) in zip(lines, SERIES, strict=False)
        ],
        "layout": _layout(height=340, xaxis=_axis(x_title), yaxis=_axis(y_title) | {"rangemode": "tozero"}),
    }


def bars(names: Sequence[str], values: Sequence[float], texts: Sequence[str], title: str, log: bool = False) -> Figure:
    """One horizontal bar for each name with its text, the first on top; a log axis is one of bytes."""
    units = {"type": "log", "tickmode": "array", "tickvals": [2**10, 2**20, 2**30], "ticktext": ["KiB", "MiB", "GiB"]}
    scale: Figure = units if log else {"rangemode": "tozero"}
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": list(names),
                "x": list(values),
                "text": list(texts),
                "textposition": "auto",
                "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                "marker": {"color": BLUE},
            }
        ],
        "layout": _layout(
            height=100 + 44 * len(names),
            showlegend=False,
            xaxis=_axis(title) | scale,
            yaxis={"type": "category", "autorange": "reversed", "automargin": True, "tickfont": {"size": FONT}},
        ),
    }


# ---------------------------------------------------------------------------------------------------------- shared


def _cells(states: Any, words: Sequence[Sequence[str]], levels: Sequence[Level]) -> Figure:
    """A heat map of states 0, 1 .., each in its colour and with its words."""
    last = len(levels)
    scale = [[edge / last, level.color] for i, level in enumerate(levels) for edge in (i, i + 1)]
    return {
        "type": "heatmap",
        "z": np.asarray(states, dtype=np.float32),
        "zmin": -0.5,
        "zmax": last - 0.5,
        "text": [list(row) for row in words],
        "texttemplate": "%{text}",
        "textfont": {"size": 15, "color": INK},
        "hovertemplate": "%{y}, %{x}<br>%{text}<extra></extra>",
        "colorscale": scale,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }


def _ticks(title: str, words: Sequence[str]) -> Figure:
    """An axis of cells, one tick each."""
    return _axis(title) | {
        "tickmode": "array",
        "tickvals": list(range(len(words))),
        "ticktext": list(words),
        "tickcolor": GREY,
        "showgrid": False,
        "fixedrange": True,
    }


def _axis(title: str) -> Figure:
    return {
        "title": {"text": title, "font": {"size": FONT}},
        "tickfont": {"size": FONT},
        "automargin": True,
        "zeroline": False,
    }


def _layout(height: int, **changes: Any) -> Figure:
    """What every figure shares; `height` is without the row of its toolbar, which on a touch screen never goes away."""
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "xanchor": "left", "x": 0}
    return {
        "template": {},
        "height": height + BELOW_TOOLBAR["t"] - 16,
        "margin": BELOW_TOOLBAR,
        "font": {"size": FONT},
        "legend": legend | {"traceorder": "normal", "font": {"size": FONT}},
        "hoverlabel": {"align": "left", "font": {"size": FONT}},
        **changes,
    }
