"""Results -> figures, as plain plotly dictionaries: no streamlit, and no number that is not a result's own.

Bytes go into a figure twice: scaled to the axis unit where they are drawn, and exact in `customdata`, which hovers
show and tests read back. Colour never stands alone: a dash, a marker or a pattern says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kvplan.explain import StripSegment, bytes_by_role
from kvplan.model import ROLES
from kvplan.plan import MemoryPlan
from kvplan.units import MAX_COUNT, UNIT_BYTES, format_bytes, format_exact_bytes, format_tokens

Figure = dict[str, Any]

# Okabe and Ito's palette, which people with any colour vision can tell apart.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"

SERIES: tuple[tuple[str, str, str], ...] = (
    (BLUE, "solid", "circle"),
    (ORANGE, "dash", "square"),
    (GREEN, "dot", "diamond"),
    (VERMILLION, "dashdot", "triangle-up"),
    (PURPLE, "longdash", "cross"),
    (SKY, "longdashdot", "x"),
    (YELLOW, "solid", "star"),
    (GREY, "dash", "pentagon"),
)
"""(colour, dash, marker) of the first, second ... line of a chart."""

MAX_TICKS = 9


class Family(NamedTuple):
    """Weight roles that one segment of the memory bar stands for."""

    label: str
    pattern: str
    roles: frozenset[str]


WEIGHT_FAMILIES: tuple[Family, ...] = (
    Family(
        "Embeddings",
        "",
        frozenset({"embedding", "position_embedding", "per_layer_embedding", "per_layer_input", "lm_head"}),
    ),
    Family(
        "Attention",
        "/",
        frozenset(
            {
                "attention_q",
                "attention_k",
                "attention_v",
                "attention_o",
                "attention_latent",
                "attention_gate",
                "attention_sink",
                "indexer",
            }
        ),
    ),
    Family("Recurrent", "\\", frozenset({"recurrent", "recurrent_state", "convolution"})),
    Family("MLP", "x", frozenset({"mlp"})),
    Family("Experts", "+", frozenset({"routed_experts", "shared_experts", "router"})),
    Family("Towers", "|", frozenset({"vision", "audio", "projector"})),
    Family("Other weights", ".", frozenset({"norm", "residual", "final_norm", "other"})),
)
"""Every weight role once, in the order of the memory bar."""

FREE_FILL = "rgba(0, 158, 115, 0.18)"


def bytes_by_family(p: MemoryPlan) -> dict[str, int]:
    """The plan's weight bytes by family, without empty ones; adds up to `p.weight_bytes`."""
    by_label = bytes_by_role(p)
    sums = {
        family.label: sum(by_label.get(ROLES[role].label, 0) for role in family.roles) for family in WEIGHT_FAMILIES
    }
    return {label: size for label, size in sums.items() if size}


def scaled(size: int, unit: str) -> float:
    """`size` bytes in the unit of an axis."""
    return size / UNIT_BYTES[unit]


def plan_rows(p: MemoryPlan) -> list[tuple[str, str, str]]:
    """(what, rounded, exact) for everything that a plan says, in reading order."""
    scenario = p.scenario
    sizes = [(f"weights: {label.lower()}", size) for label, size in bytes_by_family(p).items()]
    sizes += [
        ("weights", p.weight_bytes),
        ("KV cache", p.cache_bytes),
        ("run-time overhead" + (", an estimate" if p.runtime.is_estimate else ""), p.runtime.typical_bytes),
        ("adapters", scenario.adapter_bytes),
        ("draft model", p.draft_bytes),
        ("left by the engine", p.unused_bytes),
        ("free", p.free_bytes),
        ("usable capacity", p.capacity_bytes),
    ]
    limits = [
        ("largest batch", p.max_batch_size),
        ("longest context", p.max_context_length),
        ("crossover context", p.crossover_context_length),
    ]
    settings = [
        ("model", scenario.model.name),
        ("GPU", scenario.gpu.name),
        ("GPUs", str(scenario.num_gpus)),
        ("context length", f"{scenario.context_length}"),
        ("sequences at once", f"{scenario.batch_size}"),
    ]
    return [
        *((what, text, text) for what, text in settings),
        *((what, format_bytes(size), str(size)) for what, size in sizes),
        *((what, "none" if n is None else f"{n:,}", "" if n is None else str(n)) for what, n in limits),
        ("answer", p.sentence, p.sentence),
    ]


# ----------------------------------------------------------------------------------------------------- memory bar


def memory_bar(p: MemoryPlan, unit: str = "GiB") -> Figure:
    """What one GPU holds as one stacked bar: weights by family, cache, overhead, free; capacity and label as lines.

    Where the plan does not fit, the bar runs past the capacity line by the shortfall. The overhead segment is
    hatched and carries its spread where it is an estimate.
    """
    traces = [_weight_bar(label, size, unit) for label, size in bytes_by_family(p).items()]
    parts = (
        _bar("KV cache", p.cache_bytes, unit, ORANGE),
        _runtime_bar(p, unit),
        _bar("Adapters", p.scenario.adapter_bytes, unit, SKY, "."),
        _bar("Draft model", p.draft_bytes, unit, YELLOW, "x"),
        _bar("Left by the engine", p.unused_bytes, unit, GREY, "-"),
    )
    traces += [bar for bar in parts if bar["customdata"][0][0]]
    if p.free_bytes > 0:
        traces.append(_bar("Free", p.free_bytes, unit, FREE_FILL, outline=GREEN))
    gpu = p.scenario.gpu
    whisker = p.weight_bytes + p.cache_bytes + p.runtime.high_bytes
    reach = max(p.total_bytes, p.capacity_bytes, gpu.label_bytes or 0, whisker)
    return {
        "data": traces,
        "layout": _layout(
            barmode="stack",
            height=330,
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            legend=_LEGEND | {"entrywidth": 125, "font": {"size": 11}},
            xaxis=_axis(f"{unit} on each GPU" if p.scenario.num_gpus > 1 else unit)
            | {"range": [0, reach * 1.03 / UNIT_BYTES[unit]]},
            yaxis={"visible": False, "fixedrange": True, "range": [-0.75, 1.15]},
            **_marks(p, unit),
        ),
    }


def _marks(p: MemoryPlan, unit: str) -> Figure:
    """The lines of the usable capacity and of the label, each with its words on a row of its own."""
    label = p.scenario.gpu.label_bytes
    lines = [("usable " + format_bytes(p.capacity_bytes, unit), p.capacity_bytes, VERMILLION, "solid", 0.7)]
    if label is not None:
        lines.append(("label " + format_bytes(label, unit), label, GREY, "dot", 1.0))
    shapes = [_vertical(size / UNIT_BYTES[unit], color, dash, top) for _, size, color, dash, top in lines]
    return {
        "shapes": shapes + _spread(p, unit),
        "annotations": [_end_note(text, size / UNIT_BYTES[unit], top) for text, size, _, _, top in lines],
    }


def _spread(p: MemoryPlan, unit: str) -> list[Figure]:
    """How far the estimated overhead may reach: a whisker below the bar, up to its 90th percentile."""
    if not p.runtime.is_estimate:
        return []
    start = (p.weight_bytes + p.cache_bytes + p.runtime.typical_bytes) / UNIT_BYTES[unit]
    end = start + (p.runtime.high_bytes - p.runtime.typical_bytes) / UNIT_BYTES[unit]
    line = {"color": PURPLE, "width": 3}
    ends = [(start, start, -0.66, -0.52), (start, end, -0.59, -0.59), (end, end, -0.66, -0.52)]
    return [{"type": "line", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line} for x0, x1, y0, y1 in ends]


def _vertical(x: float, color: str, dash: str, top: float) -> Figure:
    line = {"color": color, "width": 2, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": -0.75, "y1": top + 0.12, "line": line}


def _end_note(text: str, x: float, y: float) -> Figure:
    place = {"xanchor": "right", "yanchor": "middle", "xshift": -5, "showarrow": False}
    return {"text": text, "x": x, "y": y, **place}


def _weight_bar(label: str, size: int, unit: str) -> Figure:
    pattern = {family.label: family.pattern for family in WEIGHT_FAMILIES}[label]
    return _bar(label, size, unit, BLUE, pattern, group="Weights: ")


def _runtime_bar(p: MemoryPlan, unit: str) -> Figure:
    runtime = p.runtime
    if not runtime.is_estimate:
        return _bar("Overhead, as given", runtime.typical_bytes, unit, PURPLE)
    bar = _bar("Overhead, estimate", runtime.typical_bytes, unit, PURPLE, "/")
    bar["hovertemplate"] = (
        "Run-time overhead, an estimate<br>%{customdata[1]}<br>"
        f"90th percentile {format_exact_bytes(runtime.high_bytes)}<extra></extra>"
    )
    return bar


def _bar(
    name: str,
    size: int,
    unit: str,
    color: str,
    pattern: str = "",
    outline: str = "rgba(255,255,255,0.6)",
    group: str = "",
) -> Figure:
    """One segment, whose legend entry carries its rounded size and whose hover the exact one."""
    marker: Figure = {"color": color, "line": {"width": 1, "color": outline}}
    if pattern:
        marker["pattern"] = {"shape": pattern, "fgcolor": "rgba(255,255,255,0.75)", "size": 7, "fillmode": "overlay"}
    return {
        "type": "bar",
        "orientation": "h",
        "name": f"{name} {format_bytes(size, decimal=unit == 'GB')}",
        "y": [0],
        "width": 0.9,
        "x": [size / UNIT_BYTES[unit]],
        "customdata": [[size, format_exact_bytes(size)]],
        "hovertemplate": f"{group}{name}<br>%{{customdata[1]}}<extra></extra>",
        "marker": marker,
    }


# ------------------------------------------------------------------------------------------ cache against context


def context_values(p: MemoryPlan, lowest: int = 512) -> list[int]:
    """Context lengths for a curve: eight an octave, and each length at which something happens."""
    model, scenario = p.scenario.model, p.scenario
    marks = [p.crossover_context_length, p.max_context_length, model.context_limit, scenario.context_length]
    reach = max(2 * scenario.context_length, model.context_limit or 2**17, *_drawable(marks))
    windows = [term.max_tokens for usage in p.stages for term in usage.shard.curve.terms if term.max_tokens]
    last = min(MAX_COUNT, 2 ** (reach - 1).bit_length())
    wanted = [*octave_values(lowest, last), *windows, *_drawable(marks)]
    return sorted({value for value in wanted if lowest <= value <= last})


def octave_values(first: int, last: int) -> list[int]:
    """Eight values an octave from `first` to `last`, both powers of two: enough for a smooth line on a log axis."""
    octaves = range(first.bit_length() - 1, last.bit_length() - 1)
    return [*(2**octave * eighth // 8 for octave in octaves for eighth in range(8, 16)), last]


def _drawable(marks: Iterable[int | None]) -> list[int]:
    """Marks that a chart can reach; a limit of a billion tokens would flatten everything else."""
    return [mark for mark in marks if mark is not None and 0 < mark <= 2**22]


def cache_against_weights(p: MemoryPlan, table: pd.DataFrame, unit: str = "GiB") -> Figure:
    """Cache, weights and their sum with the overhead over context, for the plan's batch.

    table  `sweep(p.scenario, context_length=...)`

    The usable capacity is a line; the crossover and the plan's own context are marked.
    """
    lines = (
        ("KV cache", "cache_bytes", ORANGE, "solid"),
        ("Weights", "weight_bytes", BLUE, "dash"),
        ("Everything with overhead", "total_bytes", GREY, "dot"),
        ("Usable capacity", "capacity_bytes", VERMILLION, "dashdot"),
    )
    contexts = table["context_length"].to_numpy()
    traces = [_line(name, contexts, table[column].to_numpy(), unit, color, dash) for name, column, color, dash in lines]
    traces += _curve_marks(p, unit)
    top = max(p.capacity_bytes, p.weight_bytes, p.total_bytes) * 1.2 / UNIT_BYTES[unit]
    return {
        "data": traces,
        "layout": _layout(
            height=430,
            xaxis=context_axis(contexts),
            yaxis=_axis(f"{unit} on each GPU" if p.scenario.num_gpus > 1 else unit) | {"range": [0, top]},
        ),
    }


def _curve_marks(p: MemoryPlan, unit: str) -> list[Figure]:
    context, crossover, longest = p.scenario.context_length, p.crossover_context_length, p.max_context_length
    marks = [_point("This plan", context, p.cache_bytes, unit, ORANGE, "circle")]
    if crossover is not None and crossover <= 2**22:
        size = _cache_at(p, crossover)
        marks.append(_point("Crossover: cache as large as weights", crossover, size, unit, BLUE, "diamond"))
    if longest and longest <= 2**22:
        size = p.stages[p.stage].total_bytes(longest, p.scenario.batch_size)
        marks.append(_point("Longest context that fits", longest, size, unit, VERMILLION, "triangle-down"))
    return marks


def _cache_at(p: MemoryPlan, context_length: int) -> int:
    return p.stages[p.stage].cache_bytes(context_length, p.scenario.batch_size)


def _line(name: str, x: Any, sizes: Any, unit: str, color: str, dash: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": sizes / UNIT_BYTES[unit],
        "customdata": sizes.astype(np.float64),
        "hovertemplate": f"{name}<br>%{{x:,}} tokens<br>%{{y:,.3f}} {unit} (%{{customdata:,}} B)<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 3},
    }


def _point(name: str, context: int, size: int, unit: str, color: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}: {context:,} tokens" if ":" not in name else f"{name}, {context:,} tokens",
        "x": [context],
        "y": [size / UNIT_BYTES[unit]],
        "customdata": [[size, format_exact_bytes(size)]],
        "hovertemplate": f"{name}<br>%{{x:,}} tokens<br>%{{customdata[1]}}<extra></extra>",
        "marker": {"color": color, "size": 12, "symbol": symbol, "line": {"width": 2, "color": "white"}},
    }


# ---------------------------------------------------------------------------------------------------- layer strip

KIND_LOOKS: dict[str, tuple[str, str]] = {
    "full": (BLUE, ""),
    "sliding": (SKY, "/"),
    "chunked": (SKY, "x"),
    "indexed": (BLUE, "+"),
    "latent": (ORANGE, ""),
    "sliding_latent": (ORANGE, "/"),
    "indexed_latent": (ORANGE, "+"),
    "compressed": (YELLOW, "\\"),
    "recurrent": (GREEN, "."),
    "convolution": (GREEN, "|"),
    "cross": (PURPLE, ""),
    "shared": (GREY, "/"),
    "none": (GREY, ""),
    "rows": (PURPLE, "|"),
    "combined": (VERMILLION, "x"),
}
"""(colour, pattern) of every kind of layer."""


def layer_strip(strip: Sequence[StripSegment]) -> Figure:
    """A model's layers in order as one strip, a colour and pattern for each kind."""
    kinds = {segment.kind: segment.label for segment in strip}
    traces = [_kind_bars(kind, label, [s for s in strip if s.kind == kind]) for kind, label in kinds.items()]
    total = sum(segment.num_layers for segment in strip)
    return {
        "data": traces,
        "layout": _layout(
            barmode="overlay",
            height=150,
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=_axis("layer") | {"range": [0, total], "showgrid": False},
            yaxis={"showticklabels": False, "fixedrange": True},
        ),
    }


def _kind_bars(kind: str, label: str, segments: Sequence[StripSegment]) -> Figure:
    color, pattern = KIND_LOOKS[kind]
    count = sum(segment.num_layers for segment in segments)
    return {
        "type": "bar",
        "orientation": "h",
        "name": f"{label} ({count})",
        "y": ["layers"] * len(segments),
        "x": [segment.num_layers for segment in segments],
        "base": [segment.first for segment in segments],
        "customdata": [[s.first, s.first + s.num_layers - 1] for s in segments],
        "hovertemplate": f"{label}<br>layers %{{customdata[0]}} to %{{customdata[1]}}<extra></extra>",
        "marker": {
            "color": color,
            "line": {"width": 1, "color": "white"},
            "pattern": {"shape": pattern, "fgcolor": "rgba(255,255,255,0.75)", "size": 6, "fillmode": "overlay"},
        },
    }


# -------------------------------------------------------------------------------------------------------- fit map

AXES: dict[str, str] = {
    "context_length": "context length (tokens)",
    "batch_size": "sequences at once",
    "kv_dtype": "KV cache precision",
    "weight_dtype": "weight precision",
    "num_kv_heads": "KV heads",
    "tensor_parallel": "number of GPUs",
    "gpu": "GPU",
}
"""Columns that can be an axis of a fit map, with their titles."""

_HAS_FRONTIER = frozenset({"context_length", "batch_size"})
MAX_CROSSES = 400
"""Crosses are drawn one by one; a finer map leaves its cells blank."""


class Panel(NamedTuple):
    """One map of several: its title ("" for none), and a sweep over the two axes alone."""

    title: str
    table: pd.DataFrame


def fit_map(panels: Sequence[Panel], across: str = "context_length", up: str = "batch_size") -> Figure:
    """How much of the capacity is taken, over two axes, one map below the other.

    Cells that do not fit are blank and crossed out. Where growing up the axis takes more memory, the frontier is
    drawn. Axes count the swept values; their labels are the values.
    """
    grids = [_Grid.of(panel.table, across, up) for panel in panels]
    bands = _bands(len(panels))
    traces: list[Figure] = []
    layout = _layout(
        height=120 + len(panels) * (350 if len(panels) == 1 else 260),
        coloraxis={
            "colorscale": "Cividis",
            "cmin": 0,
            "cmax": 100,
            "colorbar": {"title": {"text": "% of usable"}, "thickness": 12, "len": 0.9},
        },
        xaxis=_index_axis(AXES[across], grids[0].across_words) | {"anchor": _axis_name("y", len(panels) - 1)},
        annotations=[_panel_title(panel.title, band) for panel, band in zip(panels, bands, strict=True)],
    )
    for index, (grid, band) in enumerate(zip(grids, bands, strict=True)):
        name = _axis_name("y", index)
        layout[f"yaxis{name[1:]}"] = _index_axis(AXES[up], grid.up_words) | {"domain": band}
        drawn = [_fit_cells(grid), *_crosses(grid), *([_frontier(grid.fits)] if up in _HAS_FRONTIER else [])]
        traces += [trace | {"yaxis": name, "showlegend": index == 0 and "showlegend" not in trace} for trace in drawn]
    return {"data": traces, "layout": layout}


class _Grid(NamedTuple):
    """A sweep as arrays (up, across): bytes taken, capacity, whether it fits; and the words on the axes."""

    total: Any
    capacity: Any
    fits: Any
    across_words: list[str]
    up_words: list[str]

    @classmethod
    def of(cls, table: pd.DataFrame, across: str, up: str) -> _Grid:
        columns, rows = table[across].drop_duplicates(), table[up].drop_duplicates()
        shape = (len(rows), len(columns))
        order = _positions(table[up], rows) * len(columns) + _positions(table[across], columns)
        total, capacity = np.empty(shape, np.int64), np.empty(shape, np.int64)
        total.flat[order], capacity.flat[order] = table["total_bytes"], table["capacity_bytes"]
        return cls(total, capacity, total <= capacity, _axis_words(columns, across), _axis_words(rows, up))


def _positions(column: pd.Series[Any], values: pd.Series[Any]) -> Any:
    return pd.Index(values).get_indexer(pd.Index(column))


def _axis_words(values: Iterable[Any], column: str) -> list[str]:
    if column == "context_length":
        return [format_tokens(int(value)) for value in values]
    return [f"{value:,}" if column == "batch_size" else str(value) for value in values]


def _axis_name(letter: str, index: int) -> str:
    return letter if index == 0 else f"{letter}{index + 1}"


def _bands(count: int) -> list[list[float]]:
    """The share of the height that each panel takes, from the top, with room for its title."""
    step = 1 / count
    room = 0 if count == 1 else 0.09 / count * 2
    return [[1 - (index + 1) * step, 1 - index * step - room] for index in range(count)]


def _panel_title(title: str, band: list[float]) -> Figure:
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": band[1], "xanchor": "left", "yanchor": "bottom"}
    return {"text": title, "showarrow": False, **place}


def _fit_cells(grid: _Grid) -> Figure:
    """Percent taken; `customdata` holds the exact bytes of each cell."""
    shown = np.where(grid.fits, grid.total / grid.capacity * 100, np.nan)
    across = np.broadcast_to(np.array(grid.across_words, dtype=object), grid.total.shape)
    up = np.broadcast_to(np.array(grid.up_words, dtype=object)[:, None], grid.total.shape)
    return {
        "type": "heatmap",
        "z": shown.astype(np.float32),
        "customdata": grid.total.astype(np.float64),
        "text": np.char.add(np.char.add(across.astype(str), " and "), up.astype(str)),
        "hovertemplate": "%{text}<br>%{customdata:,} B, %{z:.1f} % of usable<extra></extra>",
        "coloraxis": "coloraxis",
        "hoverongaps": True,
        "showlegend": False,
        "xgap": int(grid.total.size <= MAX_CROSSES),
        "ygap": int(grid.total.size <= MAX_CROSSES),
    }


def _crosses(grid: _Grid) -> list[Figure]:
    """A cross on every cell that does not fit."""
    rows, columns = np.nonzero(~grid.fits)
    if not 0 < len(rows) <= MAX_CROSSES:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "does not fit",
            "x": columns,
            "y": rows,
            "customdata": grid.total[rows, columns].astype(np.float64),
            "hovertemplate": "%{customdata:,} B, does not fit<extra></extra>",
            "marker": {"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": GREY}},
        }
    ]


def _frontier(fits: Any) -> Figure:
    """The steps between the cells that fit and those that do not, along the highest that fits of each column."""
    heights = fits.sum(axis=0) - 0.5
    x = np.repeat(np.arange(len(heights) + 1) - 0.5, 2)[1:-1]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "frontier",
        "x": x,
        "y": np.repeat(heights, 2),
        "hoverinfo": "skip",
        "line": {"color": VERMILLION, "width": 3},
    }


def largest_point(table: pd.DataFrame) -> tuple[int, int] | None:
    """(context, batch) that fits with the most tokens in flight, the longer context first; None where nothing fits."""
    fitting = table[table["fits"]]
    if fitting.empty:
        return None
    in_flight = fitting["context_length"] * fitting["batch_size"]
    best = fitting[in_flight == in_flight.max()].sort_values("context_length").iloc[-1]
    return int(best["context_length"]), int(best["batch_size"])


# ---------------------------------------------------------------------------------------- one line for each value


class Curve(NamedTuple):
    """One line of a comparison: its words, its plan, and the plan's sweep over context."""

    label: str
    plan: MemoryPlan
    table: pd.DataFrame


def cache_curves(curves: Sequence[Curve], unit: str = "GiB", log: bool = False) -> Figure:
    """Cache over context, one line for each curve, with weights, capacity and crossovers."""
    contexts = curves[0].table["context_length"].to_numpy()
    traces: list[Figure] = []
    weights = list(dict.fromkeys(curve.plan.weight_bytes for curve in curves))
    for curve, (color, dash, symbol) in zip(curves, SERIES, strict=False):
        cache = curve.table["cache_bytes"].to_numpy()
        traces.append(_line(f"Cache, {curve.label}", contexts, cache, unit, color, dash))
        traces += _crossover_mark(curve, unit, color, symbol, float(contexts.max()))
        if len(weights) > 1:
            sizes = curve.table["weight_bytes"].to_numpy()
            traces.append(_thin(_line(f"Weights, {curve.label}", contexts, sizes, unit, color, "dot")))
    if len(weights) == 1:
        sizes = curves[0].table["weight_bytes"].to_numpy()
        traces.append(_thin(_line("Weights", contexts, sizes, unit, GREY, "dash")))
    capacity = curves[0].table["capacity_bytes"].to_numpy()
    traces.append(_line("Usable capacity", contexts, capacity, unit, VERMILLION, "dashdot"))
    top = max(curves[0].plan.capacity_bytes, *weights) * 1.3 / UNIT_BYTES[unit]
    bottom = min(int(curve.table["cache_bytes"].min()) for curve in curves) / UNIT_BYTES[unit]
    linear, logarithmic = {"range": [0, top]}, {"type": "log", "range": [_log10(bottom, top), float(np.log10(top))]}
    yaxis = _axis(f"{unit} on each GPU") | (logarithmic if log else linear)
    return {"data": traces, "layout": _layout(height=480, xaxis=context_axis(contexts), yaxis=yaxis)}


def _log10(bottom: float, top: float) -> float:
    """The lower end of a log axis: the smallest value, where there is one above zero."""
    return float(np.log10(bottom if bottom > 0 else top / 1000))


def _thin(line: Figure) -> Figure:
    return line | {"line": line["line"] | {"width": 1.5}}


def _crossover_mark(curve: Curve, unit: str, color: str, symbol: str, reach: float) -> list[Figure]:
    crossover = curve.plan.crossover_context_length
    if crossover is None or crossover > reach:
        return []
    size = _cache_at(curve.plan, crossover)
    return [_point(f"Crossover, {curve.label}", crossover, size, unit, color, symbol)]


# ------------------------------------------------------------------------------------------------- bars by name


def named_bars(
    names: Sequence[str], values: Sequence[float], texts: Sequence[str], title: str, hovers: Sequence[str] | None = None
) -> Figure:
    """One horizontal bar for each name with its text, the first on top; a hover says `hovers`, or the text again."""
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": list(names),
                "x": list(values),
                "text": list(texts),
                "textposition": "auto",
                "customdata": list(texts if hovers is None else hovers),
                "hovertemplate": "%{y}<br>%{customdata}<extra></extra>",
                "marker": {"color": BLUE},
            }
        ],
        "layout": _layout(
            height=90 + 30 * len(names),
            showlegend=False,
            xaxis=_axis(title) | {"rangemode": "tozero"},
            yaxis={"type": "category", "autorange": "reversed", "automargin": True},
        ),
    }


def head_bars(heads: Sequence[int], values: Sequence[int | None], title: str, unit: str | None = None) -> Figure:
    """One bar for each number of KV heads; values are bytes where `unit` is given, else counts."""
    scale = 1 if unit is None else UNIT_BYTES[unit]
    words = [
        "no limit" if value is None else format_exact_bytes(value) if unit else f"{value:,} tokens" for value in values
    ]
    return {
        "data": [
            {
                "type": "bar",
                "x": [str(count) for count in heads],
                "y": [None if value is None else value / scale for value in values],
                "text": ["no limit" if v is None else format_bytes(v) if unit else format_tokens(v) for v in values],
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": words,
                "hovertemplate": "%{x} KV heads<br>%{customdata}<extra></extra>",
                "marker": {"color": ORANGE if unit else BLUE},
            }
        ],
        "layout": _layout(
            height=330,
            showlegend=False,
            xaxis=_axis("KV heads") | {"type": "category"},
            yaxis=_axis(title) | {"rangemode": "tozero", "tickformat": ",d"},
        ),
    }


# ----------------------------------------------------------------------------------------------------------- axes


def context_axis(contexts: Iterable[int]) -> Figure:
    """A log axis of context lengths whose ticks are powers of two."""
    values = np.asarray(list(contexts))
    low, high = int(values.min()), int(values.max())
    powers = [2**bits for bits in range((low - 1).bit_length(), high.bit_length())]
    ticks = powers[:: -(-len(powers) // MAX_TICKS)]
    return _axis("context length (tokens)") | {
        "type": "log",
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [format_tokens(value) for value in ticks],
        "range": [float(np.log10(low)), float(np.log10(high * 1.03))],
    }


def _index_axis(title: str, words: Sequence[str]) -> Figure:
    step = -(-len(words) // (2 * MAX_TICKS))
    return _axis(title) | {
        "tickmode": "array",
        "tickvals": list(range(0, len(words), step)),
        "ticktext": list(words[::step]),
        "range": [-0.5, len(words) - 0.5],
        "showgrid": False,
    }


def _axis(title: str) -> Figure:
    return {"title": {"text": title}, "automargin": True, "zeroline": False, "fixedrange": False}


_LEGEND: Figure = {
    "orientation": "h",
    "yref": "container",
    "yanchor": "bottom",
    "y": 0,
    "xanchor": "left",
    "x": 0,
    "traceorder": "normal",
}


def _layout(**changes: Any) -> Figure:
    """What every figure shares: no template to ship, a legend below that wraps, tight margins."""
    return {
        "template": {},
        "margin": {"l": 8, "r": 8, "t": 16, "b": 8},
        "legend": _LEGEND,
        "hoverlabel": {"align": "left"},
        **changes,
    }
