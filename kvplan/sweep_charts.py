"""Sweeps -> figures, as plain plotly dictionaries; every number is a row's own, to the byte in `customdata`.

Maps stand on axes of categories, one for each swept value, so that a hover names the values and no cell carries text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kvplan.charts import (
    BELOW_TOOLBAR,
    BLUE,
    CAPACITY,
    GREY,
    LEGEND,
    MAX_TICKS,
    ORANGE,
    SERIES,
    VERMILLION,
    Figure,
    axis,
    bytes_line,
    context_axis,
    exact,
    exact_hover,
    layout,
)
from kvplan.fleet import FleetRow
from kvplan.plan import MemoryPlan
from kvplan.units import UNIT_BYTES, counted, format_bytes, format_tokens, format_usd

TITLES: dict[str, str] = {
    "context_length": "context length (tokens)",
    "batch_size": "sequences at once",
    "kv_dtype": "KV cache precision",
    "weight_dtype": "weight precision",
    "num_kv_heads": "KV heads",
    "tensor_parallel": "number of GPUs",
    "gpu": "GPU",
}
"""Every axis of a sweep by its column, with its title."""

GROWING = frozenset({"context_length", "batch_size"})
"""Axes along which memory only grows."""

MAX_CROSSES = 400
"""Crosses are drawn one by one; a finer map leaves its cells blank."""

MAP_TOP, MAP_BOTTOM, BAR_TOP = 88, 105, 40
"""Pixels above a map for the toolbar and the colour scale, below it for words and legend, and above the scale.

They are fixed: a margin that Plotly measures for itself draws the figure again, and costs more than the map.
"""

MAX_TEXTS = 60
"""A map of few cells has each one's bytes written in it."""


# ----------------------------------------------------------------------------------------------------------- maps


class Panel(NamedTuple):
    """One map of several: its title ("" for none), and a sweep over the two axes alone."""

    title: str
    table: pd.DataFrame


class Largest(NamedTuple):
    """The point of a map that fits with the most tokens in flight; `equals` others hold as many."""

    context_length: int
    batch_size: int
    equals: int

    @property
    def words(self) -> str:
        """`8 sequences of 32K tokens`."""
        return f"{counted(self.batch_size, 'sequence')} of {format_tokens(self.context_length)} tokens"


def largest_point(table: pd.DataFrame, context_limit: int | None = None) -> Largest | None:
    """The point with the most tokens in flight, of equal ones the longest context; None where nothing fits.

    context_limit  contexts beyond it count only where the table has no others
    """
    contexts, batches = table["context_length"].to_numpy(), table["batch_size"].to_numpy()
    fits = table["fits"].to_numpy()
    if context_limit is not None and contexts.min() <= context_limit:
        fits = fits & (contexts <= context_limit)
    if not fits.any():
        return None
    in_flight = np.where(fits, contexts * batches.astype(np.float64), -1.0)
    best = np.flatnonzero(in_flight == in_flight.max())
    first = best[np.argmax(contexts[best])]
    return Largest(int(contexts[first]), int(batches[first]), len(best) - 1)


def fit_map(
    panels: Sequence[Panel],
    across: str = "context_length",
    up: str = "batch_size",
    unit: str = "GiB",
    context_limit: int | None = None,
) -> Figure:
    """What one GPU must hold, over two axes, one map below the other; all share one scale of colour.

    Cells that do not fit are blank, and crossed out where there are few; combinations that cannot be planned are
    blank and say nothing. Where memory grows up the axis, the frontier is drawn; on a map of contexts and batches
    the largest point is marked, and so is the context limit of the model.
    """
    grids = [_Grid.of(panel.table, across, up) for panel in panels]
    bands = _bands(len(panels))
    scale = _Scale.of(grids, unit)
    size = sum(grid.total.size for grid in grids)
    traces: list[Figure] = []
    shapes: list[Figure] = []
    height = MAP_TOP + MAP_BOTTOM + len(panels) * (320 if len(panels) == 1 else 250)
    figure = layout(
        height=height,
        margin={"l": 40 + 7 * _longest(grids[0].up_words, up), "r": 12, "t": MAP_TOP, "b": MAP_BOTTOM},
        coloraxis=scale.coloraxis(1 - BAR_TOP / height, has_half=up in GROWING),
        xaxis=_category_axis(across, grids[0].across_words) | {"anchor": _axis_name("y", len(panels) - 1)},
        annotations=[_panel_title(panel.title, band) for panel, band in zip(panels, bands, strict=True) if panel.title],
    )
    for index, (panel, grid, band) in enumerate(zip(panels, grids, bands, strict=True)):
        name, first = _axis_name("y", index), index == 0
        figure[f"yaxis{name[1:]}"] = _category_axis(up, grid.up_words, upright=True) | {"domain": band}
        drawn = [_cells(grid, scale, across, up), *(_crosses(grid) if size <= MAX_CROSSES else [])]
        if not {across, up} & GROWING:
            drawn += _cell_texts(grid, scale)
        if {across, up} == GROWING:
            drawn += _largest_mark(largest_point(panel.table, context_limit), across)
            shapes += _limit_line(grid, across, context_limit, name, first)
        if up in GROWING:
            shapes.append(_frontier(grid.fits, name))
            drawn.append(_FRONTIER_ENTRY)
        traces += [trace | {"yaxis": name, "showlegend": first and trace.get("showlegend", True)} for trace in drawn]
    return {"data": traces, "layout": figure | {"shapes": shapes}}


class _Grid(NamedTuple):
    """A sweep as arrays (up, across): bytes taken, capacity, which are planned, which fit; and the axes' words."""

    total: Any
    capacity: Any
    planned: Any
    fits: Any
    across_values: list[Any]
    across_words: list[str]
    up_words: list[str]

    @classmethod
    def of(cls, table: pd.DataFrame, across: str, up: str) -> _Grid:
        columns, rows = _distinct(table[across]), _distinct(table[up])
        shape = (len(rows), len(columns))
        order = rows.get_indexer(pd.Index(table[up])) * len(columns) + columns.get_indexer(pd.Index(table[across]))
        total, capacity, planned = np.zeros(shape, np.int64), np.ones(shape, np.int64), np.zeros(shape, bool)
        total.flat[order], capacity.flat[order] = table["total_bytes"].to_numpy(), table["capacity_bytes"].to_numpy()
        planned.flat[order] = True
        words = axis_words(columns, across), axis_words(rows, up)
        return cls(total, capacity, planned, planned & (total <= capacity), list(columns), *words)


def _distinct(column: pd.Series[Any]) -> pd.Index[Any]:
    """The values of an axis, numbers from small to large, names in their order."""
    values: pd.Index[Any] = pd.Index(column.unique())
    return values.sort_values() if pd.api.types.is_numeric_dtype(column.dtype) else values


def axis_words(values: Iterable[Any], column: str) -> list[str]:
    """The values of an axis as people write them."""
    if column == "context_length":
        return [format_tokens(int(value)) for value in values]
    return [f"{value:,}" if isinstance(value, int | np.integer) else str(value) for value in values]


class _Scale(NamedTuple):
    """What colours mean: bytes in a unit up to the usable memory, or its share where GPUs differ."""

    unit: str
    capacity: int | None

    @classmethod
    def of(cls, grids: Sequence[_Grid], unit: str) -> _Scale:
        capacities = {int(size) for grid in grids for size in np.unique(grid.capacity[grid.planned])}
        return cls(unit, capacities.pop() if len(capacities) == 1 else None)

    @property
    def top(self) -> float:
        """The value of the last colour."""
        return 100.0 if self.capacity is None else self.capacity / UNIT_BYTES[self.unit]

    def coloraxis(self, y: float, has_half: bool) -> Figure:
        """The colours with their scale, whose top is at `y` of the figure; its last mark says what it counts.

        has_half  whether there is a mark in the middle: beside long names the scale is too short for it on a phone
        """
        top = self.top
        last = "100 % of usable" if self.capacity is None else f"{format_bytes(self.capacity, self.unit)} usable"
        bar = {"orientation": "h", "thickness": 10, "len": 0.7, "x": 0.04, "xanchor": "left", "y": y, "yanchor": "top"}
        half = f"{top / 2:.3g}" if has_half and self.capacity is not None else ""
        ticks = {"tickmode": "array", "tickvals": [0, top / 2, top], "ticktext": ["0", half, last], "tickangle": 0}
        place = {"xref": "container", "yref": "container"}
        return {"colorscale": _FITTING, "cmin": 0, "cmax": top * _BEYOND, "colorbar": {**bar, **ticks, **place}}

    def values(self, grid: _Grid) -> Any:
        """The value of each cell that is planned; one that does not fit is at least a hair beyond the last colour."""
        values = grid.total / (grid.capacity / 100 if self.capacity is None else UNIT_BYTES[self.unit])
        values = np.where(grid.fits, values, np.maximum(values, self.top * _BEYOND))
        kind = np.float32 if values.max(initial=0) < _HUNDREDTHS_END else np.float64
        return np.where(grid.planned, values, np.nan).astype(kind)

    def hover(self, grid: _Grid) -> tuple[Any, str]:
        """`customdata` of the cells, and what writes the size of each, with what there is to hold it."""
        if self.capacity is not None:
            customdata, exact_bytes = exact_hover(grid.total)
            return customdata, f"%{{z:,.2f}} {self.unit} ({exact_bytes})<br>usable: {exact(self.capacity, self.unit)}"
        unit = UNIT_BYTES[self.unit]
        customdata, exact_bytes = exact_hover(grid.total, grid.total / unit, grid.capacity / unit, grid.capacity)
        size = f"%{{customdata[1]:,.2f}} {self.unit} ({exact_bytes})"
        usable = f"%{{customdata[2]:,.2f}} {self.unit} (%{{customdata[3]:,d}} B)"
        return customdata, f"%{{z:,.1f}} % of usable<br>{size}<br>usable: {usable}"


_BEYOND = 1 + 1e-6
"""Where colours end, in shares of the last value: nearer to it than any digit shown, farther than a float32 errs."""

_HUNDREDTHS_END = 2**16
"""Where a float32 errs by half of a hundredth, the last digit that a hover writes."""

CIVIDIS = (
    "#00224E", "#123570", "#3B496C", "#575D6D", "#707173", "#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838",
)  # fmt: skip
_FITTING = [
    *([index / 9, color] for index, color in enumerate(CIVIDIS[:-1])),
    *([1 - (_BEYOND - 1) / 2, CIVIDIS[-1]], [1 - (_BEYOND - 1) / 2, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]),
]
"""Cividis up to what is usable; beyond it nothing is seen, so that a cell that does not fit has its value to show."""


def _cells(grid: _Grid, scale: _Scale, across: str, up: str) -> Figure:
    """The heat map of what fits; `customdata` holds the exact bytes of each cell first."""
    few = grid.total.size <= MAX_CROSSES
    customdata, value = scale.hover(grid)
    return {
        "type": "heatmap",
        "x": grid.across_words,
        "y": grid.up_words,
        "z": scale.values(grid),
        "customdata": customdata,
        "hovertemplate": f"{TITLES[across]}: %{{x}}<br>{TITLES[up]}: %{{y}}<br>{value}<extra></extra>",
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "showlegend": False,
        "xgap": int(few),
        "ygap": int(few),
    }


DARK_CELLS = 0.468
"""Share of the colour scale below which white letters stand out more, and above which black ones do."""


def _cell_texts(grid: _Grid, scale: _Scale) -> list[Figure]:
    """The bytes of each cell that fits, written in it; a heat map's own letters are grey on half of its colours."""
    rows, columns = np.nonzero(grid.fits)
    if not len(rows) or grid.total.size > MAX_TEXTS:
        return []
    share = scale.values(grid)[rows, columns] / scale.top
    return [
        {
            "type": "scatter",
            "mode": "text",
            "name": "bytes of a cell",
            "showlegend": False,
            "hoverinfo": "skip",
            "x": [grid.across_words[column] for column in columns],
            "y": [grid.up_words[row] for row in rows],
            "text": [format_bytes(int(size), decimal=scale.unit == "GB") for size in grid.total[rows, columns]],
            "textfont": {"color": ["#FFFFFF" if dark else "#000000" for dark in share < DARK_CELLS]},
        }
    ]


def _crosses(grid: _Grid) -> list[Figure]:
    """A cross on every cell that does not fit."""
    rows, columns = np.nonzero(grid.planned & ~grid.fits)
    if not len(rows):
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "does not fit",
            "x": [grid.across_words[column] for column in columns],
            "y": [grid.up_words[row] for row in rows],
            "hoverinfo": "skip",
            "marker": {"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": GREY}},
        }
    ]


def _frontier(fits: Any, yaxis: str) -> Figure:
    """The steps between the cells that fit and those that do not, along the highest that fits of each column."""
    heights = fits.sum(axis=0) - 0.5
    steps = [0, *(np.flatnonzero(np.diff(heights)) + 1), len(heights)]
    moves = [f"V{heights[start]:g}H{end - 0.5:g}" for start, end in pairwise(steps)]
    return {
        "type": "path",
        "path": f"M-0.5,{heights[0]:g}" + "".join(moves),
        "yref": yaxis,
        "line": {"color": VERMILLION, "width": 3},
        "name": "frontier",
    }


_FRONTIER_ENTRY: Figure = {
    "type": "scatter", "mode": "lines", "name": "frontier", "x": [None], "y": [None],
    "line": {"color": VERMILLION, "width": 3},
}  # fmt: skip
"""A path has no fitting place in a legend, so an empty line stands in for it."""


def _limit_line(grid: _Grid, across: str, limit: int | None, yaxis: str, named: bool) -> list[Figure]:
    """Where contexts begin that the model is not made for."""
    if limit is None or across != "context_length" or not grid.across_values[0] <= limit < grid.across_values[-1]:
        return []
    x = sum(value <= limit for value in grid.across_values) - 0.5
    line = {"color": GREY, "width": 2, "dash": "dot"}
    return [
        {
            "type": "line", "x0": x, "x1": x, "y0": -0.5, "y1": len(grid.up_words) - 0.5, "yref": yaxis, "line": line,
            "name": f"context limit {format_tokens(limit)}", "showlegend": named,
        }
    ]  # fmt: skip


def _largest_mark(largest: Largest | None, across: str) -> list[Figure]:
    if largest is None:
        return []
    point = {"context_length": format_tokens(largest.context_length), "batch_size": f"{largest.batch_size:,}"}
    x = point.pop(across)
    (y,) = point.values()
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "largest point",
            "x": [x],
            "y": [y],
            "hovertemplate": f"largest: {largest.words}<extra></extra>",
            "marker": {
                "symbol": "star",
                "size": 15,
                "color": "white",
                "line": {"width": 1.5, "color": "black"},
            },
        }
    ]


def _category_axis(column: str, words: Sequence[str], upright: bool = False) -> Figure:
    """Swept values side by side; of many, those are labelled that are powers of two, or evenly spaced ones.

    Names that stand upright begin on top, as in a table.
    """
    shown = [words[index] for index in _labelled(words)]
    ends = [-0.5, len(words) - 0.5]
    return axis(TITLES[column]) | {
        "type": "category",
        "tickmode": "array",
        "tickvals": shown,
        "ticktext": [_short_name(word) for word in shown],
        "automargin": column not in GROWING,
        "range": ends[::-1] if upright and column not in GROWING else ends,
        "showgrid": False,
        "tickcolor": GREY,
    }


def _longest(words: Sequence[str], column: str) -> int:
    """Letters of the longest label of an axis that does not measure its own margin."""
    return max(map(len, words)) if column in GROWING else 0


def _labelled(words: Sequence[str]) -> list[int]:
    room = -(-len(words) // (2 * MAX_TICKS))
    if room == 1:
        return list(range(len(words)))
    shown: list[int] = []
    for index, word in enumerate(words):
        if _is_power_of_two(word) and (not shown or index - shown[-1] >= room):
            shown.append(index)
    return shown if len(shown) > 2 else list(range(0, len(words), room))


def _is_power_of_two(word: str) -> bool:
    digits = word.rstrip("KM").replace(",", "")
    return digits.isdecimal() and int(digits).bit_count() == 1


def _axis_name(letter: str, index: int) -> str:
    return letter if index == 0 else f"{letter}{index + 1}"


def _bands(count: int) -> list[list[float]]:
    """The share of the height that each panel takes, from the top, with room for its title."""
    step = 1 / count
    room = 0 if count == 1 else 0.18 / count
    return [[1 - (index + 1) * step, 1 - index * step - room] for index in range(count)]


def _panel_title(title: str, band: list[float]) -> Figure:
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": band[1], "xanchor": "left", "yanchor": "bottom"}
    return {"text": title, "showarrow": False, **place}


# ---------------------------------------------------------------------------------------------------------- lines


class Curve(NamedTuple):
    """One line of a comparison: its words, its plan, and the plan's sweep over context."""

    label: str
    plan: MemoryPlan
    table: pd.DataFrame


SCALES = ("contexts doubling", "linear", "logarithmic")
"""Contexts on a log axis and memory on a linear one; both linear; both on log axes."""


def cache_curves(curves: Sequence[Curve], unit: str = "GiB", scale: str = SCALES[0]) -> Figure:
    """Cache over context, one line for each curve, with weights, capacity and crossovers."""
    contexts = curves[0].table["context_length"].to_numpy()
    capacity = curves[0].plan.capacity_bytes
    traces: list[Figure] = []
    weights = list(dict.fromkeys(curve.plan.weight_bytes for curve in curves))
    for curve, (color, dash, _) in zip(curves, SERIES, strict=False):
        traces.append(_line(f"Cache, {curve.label}", curve.table, "cache_bytes", unit, color, dash))
        if len(weights) > 1:
            traces.append(_thin(_line(f"Weights, {curve.label}", curve.table, "weight_bytes", unit, color, dash)))
    if len(weights) == 1:
        traces.append(_thin(_line("Weights", curves[0].table, "weight_bytes", unit, GREY, "dash")))
    traces.append(_line("Usable capacity", curves[0].table, "capacity_bytes", unit, *CAPACITY))
    top = max(capacity, *weights) * 1.3 / UNIT_BYTES[unit]
    lowest = min(*weights, *(int(curve.table["cache_bytes"].min()) for curve in curves)) / UNIT_BYTES[unit]
    log = scale == SCALES[2]
    bottom = (lowest if lowest > 0 else top / 1000) if log else 0.0
    limits = _log_limits(bottom, top) if log else {"range": [bottom, top]}
    traces += _crossover_marks(curves, unit, _share(contexts, scale != SCALES[1]), _share((bottom, top), log))
    return {
        "data": traces,
        "layout": layout(
            height=500,
            margin=BELOW_TOOLBAR,
            xaxis=_linear_contexts(contexts) if scale == SCALES[1] else context_axis(contexts),
            yaxis=axis(f"{unit} on each GPU") | limits,
            annotations=[_capacity_words(capacity, unit, log)],
        ),
    }


def _log10(value: float) -> float:
    return float(np.log10(value))


def _capacity_words(capacity: int, unit: str, log: bool) -> Figure:
    height = capacity / UNIT_BYTES[unit]
    place = {"xref": "paper", "x": 0.01, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {"text": f"usable {format_bytes(capacity, unit)}", "y": _log10(height) if log else height, **place}


def _linear_contexts(contexts: Any) -> Figure:
    """A linear axis of context lengths whose ticks are multiples of a power of two."""
    last = int(contexts[-1])
    step = 2 ** max(0, (last // 6).bit_length() - 1)
    ticks = list(range(0, last + 1, step))
    return axis(TITLES["context_length"]) | {
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [format_tokens(tick) for tick in ticks],
        "range": [0, last * 1.01],
    }


def _line(name: str, table: pd.DataFrame, column: str, unit: str, color: str, dash: str) -> Figure:
    return bytes_line(name, table["context_length"].to_numpy(), table[column].to_numpy(), unit, color, dash)


def _thin(line: Figure) -> Figure:
    return line | {"line": line["line"] | {"width": 1.5}}


def _log_limits(bottom: float, top: float) -> Figure:
    """A log axis between two sizes, each tick in full: Plotly's own say 5 for 50."""
    powers = range(math.floor(_log10(bottom)), math.ceil(_log10(top)) + 1)
    steps = (1, 2, 5) if _log10(top) - _log10(bottom) <= MAX_DECADES else (1,)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    shown = [tick for tick in ticks if bottom <= tick <= top]
    texts = [f"{tick:,.10g}" for tick in shown]
    limits = {"type": "log", "range": [_log10(bottom), _log10(top)]}
    return {**limits, "tickmode": "array", "tickvals": shown, "ticktext": texts}


def _share(ends: Any, log: bool) -> Callable[[float], float]:
    """Where a value stands on an axis: 0 at its beginning, 1 at its end."""
    axis_value = _log10 if log else float
    first, last = axis_value(ends[0]), axis_value(ends[-1])
    return lambda value: (axis_value(value) - first) / (last - first)


def _crossover_marks(
    curves: Sequence[Curve], unit: str, along: Callable[[float], float], up: Callable[[float], float]
) -> list[Figure]:
    """The crossovers inside the figure, each with its context where there is room for it beside the other marks."""
    marks: list[Figure] = []
    spots: list[_Spot] = []
    for curve, (color, _, symbol) in zip(curves, SERIES, strict=False):
        crossover = curve.plan.crossover_context_length
        if crossover is not None and 0 <= along(crossover) <= 1:
            mark = _crossover_mark(curve, crossover, unit, (color, symbol))
            marks.append(mark)
            spots.append(_Spot(along(crossover), up(mark["y"][0]), len(mark["text"][0])))
    return [_labelled_mark(mark, place) for mark, place in zip(marks, _label_places(spots), strict=True)]


def _labelled_mark(mark: Figure, place: str | None) -> Figure:
    """The context beside its mark, or none: a label beside another mark would be read as that one's."""
    return mark | ({"mode": "markers"} if place is None else {"textposition": place})


class _Spot(NamedTuple):
    """A mark: where it stands, as shares of the axes, and how many letters its label has."""

    along: float
    up: float
    letters: int

    def label_box(self, place: str) -> _Box:
        """What its label takes in the narrowest figure."""
        x, y, width = self.along * NARROW[0], self.up * NARROW[1], 7 * self.letters
        height, side = place.split()
        left = {"left": x - MARK - width, "center": x - width / 2, "right": x + MARK}[side]
        bottom = {"top": y + MARK, "middle": y - LINE / 2, "bottom": y - MARK - LINE}[height]
        return _Box(left, left + width, bottom, bottom + LINE)

    def mark_box(self) -> _Box:
        """What the mark takes, with the room around it in which a label is read as its own."""
        x, y, room = self.along * NARROW[0], self.up * NARROW[1], MARK + 6
        return _Box(x - room, x + room, y - room, y + room)


class _Box(NamedTuple):
    """A part of a figure in pixels, from its lower left corner."""

    left: float
    right: float
    bottom: float
    top: float

    def is_inside(self) -> bool:
        """Whether it is whole in the narrowest figure, which has a row for the toolbar above, and room below."""
        across = self.left >= 0 and self.right <= NARROW[0]
        return across and self.bottom >= -BELOW and self.top <= NARROW[1] + MARK + LINE

    def meets(self, other: _Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.top <= other.bottom or other.top <= self.bottom)


NARROW, MARK, LINE, BELOW = (280, 260), 7, 14, 8
"""Pixels of the narrowest figure, of half a mark, of a line of text, and between an axis and its ticks' labels."""

PLACES = (
    "top left", "bottom right", "bottom center", "top right", "top center", "bottom left", "middle right",
    "middle left",
)  # fmt: skip
"""Sides of a mark, those first on which no line passes through its label."""

MAX_DECADES = 4
"""More powers of ten leave no room for ticks between them."""


def _label_places(spots: Sequence[_Spot]) -> list[str | None]:
    """The side of each mark on which its label is whole, nearer to it than to any other mark; None where none is."""
    places: list[str | None] = []
    taken: list[_Box] = []
    for spot in spots:
        others = [other.mark_box() for other in spots if other[:2] != spot[:2]]
        boxes = {place: spot.label_box(place) for place in PLACES}
        free = (p for p, box in boxes.items() if box.is_inside() and not any(map(box.meets, [*others, *taken])))
        place = next(free, None)
        places.append(place)
        taken += [] if place is None else [boxes[place]]
    return places


def _crossover_mark(curve: Curve, crossover: int, unit: str, look: tuple[str, str]) -> Figure:
    p, (color, symbol) = curve.plan, look
    size = p.fullest_stage(crossover).cache_bytes(crossover, p.scenario.batch_size)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": f"Crossover, {curve.label}",
        "x": [crossover],
        "y": [size / UNIT_BYTES[unit]],
        "text": [f"{crossover:,}"],
        "cliponaxis": False,
        "customdata": [[size, exact(size, unit)]],
        "hovertemplate": f"crossover, {curve.label}<br>%{{x:,d}} tokens<br>%{{customdata[1]}}<extra></extra>",
        "marker": {"color": color, "size": 12, "symbol": symbol, "line": {"width": 2, "color": "white"}},
        "showlegend": False,
    }


def total_lines(table: pd.DataFrame, along: str, by: str, unit: str = "GiB") -> Figure:
    """Everything that one GPU holds along a growing axis, one line for each value of another, and what is usable.

    Where GPUs are the lines, their shares of the usable memory are drawn, since each has its own.
    """
    share = by == "gpu"
    measured = partial(_shares if share else _sizes, unit=unit)
    lines = [
        _total_line(table[table[by] == value], along, words, measured, look)
        for value, words, look in zip(_distinct(table[by]), axis_words(_distinct(table[by]), by), SERIES, strict=False)
    ]
    capacity = int(table["capacity_bytes"].iloc[0])
    usable = 100.0 if share else capacity / UNIT_BYTES[unit]
    words = "usable memory" if share else f"usable {format_bytes(capacity, unit)}"
    note = {"xref": "paper", "x": 0.01, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    rule = {"xref": "paper", "x0": 0, "x1": 1, "y0": usable, "y1": usable}
    return {
        "data": lines,
        "layout": layout(
            height=480,
            margin=BELOW_TOOLBAR,
            xaxis=context_axis(table[along]) | {"title": {"text": TITLES[along]}, "range": _room(table[along])},
            showlegend=True,
            legend=LEGEND | {"title": {"text": TITLES[by]}},
            yaxis=axis("% of the usable memory" if share else f"{unit} on each GPU") | {"range": [0, 1.3 * usable]},
            shapes=[{"type": "line", **rule, "line": {"color": CAPACITY[0], "width": 3, "dash": CAPACITY[1]}}],
            annotations=[{"text": words, "y": usable, **note}],
        ),
    }


def _room(values: pd.Series[Any]) -> list[float]:
    """A log axis with room for the markers at its ends."""
    return [_log10(int(values.min()) / 1.08), _log10(int(values.max()) * 1.08)]


class _Heights(NamedTuple):
    """How high a line is at each of its points, and what its hover says of that."""

    y: Any
    customdata: Any
    words: str


def _sizes(rows: pd.DataFrame, unit: str) -> _Heights:
    """Bytes in a unit."""
    sizes = rows["total_bytes"].to_numpy()
    customdata, exact_bytes = exact_hover(sizes)
    return _Heights(sizes / UNIT_BYTES[unit], customdata, f"%{{y:,.2f}} {unit} ({exact_bytes})")


def _shares(rows: pd.DataFrame, unit: str) -> _Heights:
    """Percent of what is usable on one kind of GPU."""
    sizes, capacity = rows["total_bytes"].to_numpy(), int(rows["capacity_bytes"].iloc[0])
    customdata, exact_bytes = exact_hover(sizes, sizes / UNIT_BYTES[unit])
    size = f"%{{customdata[1]:,.2f}} {unit} ({exact_bytes})<br>usable: {exact(capacity, unit)}"
    return _Heights(sizes / (capacity / 100), customdata, f"%{{y:,.2f}} % of usable<br>{size}")


def _total_line(
    rows: pd.DataFrame, along: str, words: str, measured: Callable[[pd.DataFrame], _Heights], look: tuple[str, str, str]
) -> Figure:
    rows = rows.sort_values(along)
    heights, (color, dash, symbol) = measured(rows), look
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) < 20 else "lines",
        "name": words,
        "x": rows[along].to_numpy(),
        "y": heights.y,
        "customdata": heights.customdata,
        "hovertemplate": f"{words}<br>{TITLES[along]}: %{{x:,d}}<br>{heights.words}<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 3},
        "marker": {"symbol": symbol, "size": 8},
    }


# ----------------------------------------------------------------------------------------------------------- bars


def head_bars(
    values: Mapping[int, int | float | None], kinds: Mapping[int, str], title: str, unit: str | None = None
) -> Figure:
    """One bar for each number of KV heads, in full colour where `kinds` says "as trained".

    values  bytes where `unit` is given, else counts; None: no limit
    kinds   the words below each number
    """
    scale = 1 if unit is None else UNIT_BYTES[unit]
    exacts = [_exact_words(value, unit) for value in values.values()]
    texts = [_short_words(value, unit) for value in values.values()]
    return {
        "data": [
            {
                "type": "bar",
                "x": [str(count) for count in values],
                "y": [None if value is None else float(value / scale) for value in values.values()],
                "text": texts,
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": exacts,
                "hovertext": [counted(count, "KV head") for count in values],  # %{x} would be the words below a bar
                "hovertemplate": "%{hovertext}<br>%{customdata}<extra></extra>",
                "marker": {
                    "color": ORANGE if unit else BLUE,
                    "opacity": [1.0 if "trained" in kinds[count] else 0.55 for count in values],
                },
            }
        ],
        "layout": layout(
            height=360,
            margin=BELOW_TOOLBAR,
            showlegend=False,
            xaxis=_heads_axis(kinds, list(values)),
            yaxis=axis(title) | (_FROM_ZERO if any(values.values()) else _ONLY_ZERO),
        ),
    }


_FROM_ZERO: Figure = {"rangemode": "tozero", "tickformat": ",d"}
_ONLY_ZERO: Figure = {"range": [0, 1], "tickvals": [0]}


def _heads_axis(kinds: Mapping[int, str], counts: Sequence[int]) -> Figure:
    """Numbers of KV heads with their words; turned, those of one bar would stand below another."""
    texts = [f"{count}<br>{kinds[count]}" for count in counts]
    ticks = {"tickmode": "array", "tickvals": [str(count) for count in counts], "ticktext": texts, "tickangle": 0}
    return axis("KV heads") | {"type": "category", **ticks}


def _exact_words(value: int | float | None, unit: str | None) -> str:
    if value is None:
        return "no limit"
    return f"{format_bytes(round(value), decimal=unit == 'kB')} ({value:,} B)" if unit else f"{value:,} tokens"


def _short_words(value: int | float | None, unit: str | None) -> str:
    """A number as it stands on a bar, in the unit of the axis, which names it: eight bars of a phone have no room."""
    if value is None:
        return "no limit"
    if unit is None:
        return f"{value:,}"
    scaled = value / UNIT_BYTES[unit]
    return f"{scaled:,.1f}".removesuffix(".0") if scaled >= 10 else f"{scaled:.3g}"


PATTERNS = ("", "/", "x")


def fleet_bars(rows: Sequence[FleetRow], by_price: bool) -> Figure:
    """Fewest GPUs, or their price an hour, for each GPU, in the order of `rows`; a bar for each model.

    The words stand behind the bars, which leave room for them.
    """
    models = list(dict.fromkeys(row.model for row in rows))
    gpus = list(dict.fromkeys(row.gpu for row in rows))
    longest = max((row.rent_per_hour if by_price else row.num_gpus) or 0 for row in rows)
    traces = [
        _fleet_bar([row for row in rows if row.model == model], model, by_price, color, pattern)
        for model, (color, _, _), pattern in zip(models, SERIES, PATTERNS, strict=False)
    ]
    return {
        "data": traces,
        "layout": layout(
            height=120 + len(gpus) * (14 + 18 * len(models)),
            margin=BELOW_TOOLBAR,
            barmode="group",
            showlegend=len(models) > 1,
            xaxis=axis("US dollars an hour" if by_price else "GPUs") | {"range": [0, 1.5 * longest]},
            yaxis={
                "type": "category",
                "categoryorder": "array",
                "categoryarray": gpus,
                "tickmode": "array",
                "tickvals": gpus,
                "ticktext": [_short_name(gpu) for gpu in gpus],
                "autorange": "reversed",
                "automargin": True,
            },
        ),
    }


def _fleet_bar(rows: Sequence[FleetRow], model: str, by_price: bool, color: str, pattern: str) -> Figure:
    texts = [f"{counted(row.num_gpus or 0, 'GPU')}, {price_words(row)}" for row in rows]
    short = [text.removesuffix(" an hour") for text in texts]
    values = [row.rent_per_hour if by_price else row.num_gpus for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": _short_name(model),
        "y": [row.gpu for row in rows],
        "x": values,
        "text": short,
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": texts,
        "hovertemplate": f"{model} on %{{y}}<br>%{{customdata}}<extra></extra>",
        "marker": {"color": color, "pattern": {"shape": pattern, "fillmode": "overlay", "size": 6, "solidity": 0.2}},
    }


MAX_NAME = 34
"""Letters of a name beside a figure, as many as ids of presets have; longer ones would take all room on a phone.

Hovers and tables have them whole.
"""


def _short_name(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def price_words(row: FleetRow) -> str:
    """`$3.52 an hour`, or that there is none."""
    return "no price known" if row.rent_per_hour is None else f"{format_usd(row.rent_per_hour)} an hour"
