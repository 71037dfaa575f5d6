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
from kvplan.units import UNIT_BYTES, format_bytes, format_exact_bytes, format_tokens

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
        _bar("Not for the engine", p.unused_bytes, unit, GREY, "-"),
    )
    traces += [bar for bar in parts if bar["customdata"][0][0]]
    if p.free_bytes > 0:
        traces.append(_bar("Free", p.free_bytes, unit, FREE_FILL, outline=GREEN))
    gpu = p.scenario.gpu
    reach = max(p.total_bytes, p.capacity_bytes, gpu.label_bytes or 0)
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
    octaves = range(lowest.bit_length() - 1, (reach - 1).bit_length())
    grid = [2**octave * eighth // 8 for octave in octaves for eighth in range(8, 16)]
    windows = [term.max_tokens for usage in p.stages for term in usage.shard.curve.terms if term.max_tokens]
    last = 2 ** (reach - 1).bit_length()
    return sorted({value for value in [*grid, *windows, *_drawable(marks), last] if lowest <= value <= last})


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
        "customdata": sizes,
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


def fit_map(table: pd.DataFrame, unit: str = "GiB") -> Figure:
    """Context x batch: how much of the capacity is taken, with the frontier between what fits and what does not.

    table  a sweep over context_length and batch_size alone

    Cells that do not fit are crossed out. Both axes count the swept values; their labels are the values.
    """
    contexts = sorted(table["context_length"].unique().tolist())
    batches = sorted(table["batch_size"].unique().tolist())
    total = _grid(table, "total_bytes", batches, contexts)
    capacity = _grid(table, "capacity_bytes", batches, contexts)
    fits = total <= capacity
    return {
        "data": [_fit_cells(total, capacity, fits, contexts, batches, unit), _frontier(fits), *_crosses(fits)],
        "layout": _layout(
            height=470,
            xaxis=_index_axis("context length (tokens)", [format_tokens(value) for value in contexts]),
            yaxis=_index_axis("sequences at once", [f"{value:,}" for value in batches]),
        ),
    }


def _grid(table: pd.DataFrame, column: str, batches: Sequence[int], contexts: Sequence[int]) -> Any:
    """A column as an array (batch, context)."""
    grid = table.pivot(index="batch_size", columns="context_length", values=column)
    return grid.reindex(index=np.array(batches), columns=np.array(contexts)).to_numpy()


def _fit_cells(
    total: Any, capacity: Any, fits: Any, contexts: Sequence[int], batches: Sequence[int], unit: str
) -> Figure:
    words = [
        [
            f"{context:,} tokens × {batch:,} sequences<br>"
            f"{format_exact_bytes(int(total[row, column]))} of {format_bytes(int(capacity[row, column]), unit)}<br>"
            f"{'fits' if fits[row, column] else 'does not fit'}"
            for column, context in enumerate(contexts)
        ]
        for row, batch in enumerate(batches)
    ]
    return {
        "type": "heatmap",
        "z": np.where(fits, total / capacity * 100, np.nan),
        "customdata": total,
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 100,
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": True,
        "colorbar": {"title": {"text": "% of usable"}, "thickness": 12, "len": 0.9},
    }


def _crosses(fits: Any) -> list[Figure]:
    """A cross on every cell that does not fit."""
    rows, columns = np.nonzero(~fits)
    if not len(rows):
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "does not fit",
            "x": columns,
            "y": rows,
            "hoverinfo": "skip",
            "marker": {"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": GREY}},
        }
    ]


def _frontier(fits: Any) -> Figure:
    """The steps between the cells that fit and those that do not, along the largest batch of each context."""
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
