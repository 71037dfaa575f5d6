"""Results -> figures, as plain plotly dictionaries: no streamlit, and no number that is not a result's own.

Bytes go into a figure twice: scaled to the axis unit where they are drawn, and exact in `customdata`, which hovers
show and tests read back. Colour never stands alone: a dash, a marker or a pattern says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvplan.explain import StripSegment, bytes_by_role
from kvplan.model import ROLES
from kvplan.plan import MemoryPlan
from kvplan.units import EXACT_FLOAT, MAX_COUNT, UNIT_BYTES, counted, format_bytes, format_exact_bytes, format_tokens

if TYPE_CHECKING:
    import pandas as pd

Figure = dict[str, Any]

# Okabe and Ito's hues, which people with any colour vision can tell apart, each as light as it may be to stand out
# 3 to 1 from a white ground and from a dark one. Their yellow cannot, so violet is in its place.
ORANGE, SKY, GREEN, VIOLET = "#CC8500", "#359DD3", "#099261", "#8148D6"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#C44F00", "#CA79AC", "#808080"

SERIES: tuple[tuple[str, str, str], ...] = (
    (BLUE, "solid", "circle"),
    (ORANGE, "dash", "square"),
    (GREEN, "dot", "diamond"),
    (PURPLE, "longdash", "triangle-up"),
    (SKY, "longdashdot", "cross"),
    (GREY, "12px,3px,3px,3px,3px,3px", "x"),
    (VERMILLION, "3px,8px", "star"),
    (VIOLET, "24px,4px", "pentagon"),
)
"""(colour, dash, marker) of the first, second ... line of a chart; none looks like the usable capacity."""

CAPACITY = (VERMILLION, "dashdot")
"""(colour, dash) of the usable capacity in every chart of lines."""

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
    Family("Weights, role not known", "", frozenset({"unsplit"})),
)
"""Every weight role once, in the order of the memory bar."""

FREE_FILL = "rgba(9, 146, 97, 0.18)"


def bytes_by_family(p: MemoryPlan) -> dict[str, int]:
    """The plan's weight bytes by family, without empty ones; adds up to `p.weight_bytes`."""
    by_label = bytes_by_role(p)
    sums = {
        family.label: sum(by_label.get(ROLES[role].label, 0) for role in family.roles) for family in WEIGHT_FAMILIES
    }
    return {label: size for label, size in sums.items() if size}


def exact(size: int, unit: str) -> str:
    """`size` bytes rounded in the kind of unit of an axis, and exactly."""
    return format_exact_bytes(size, decimal=unit == "GB")


def exact_hover(sizes: npt.NDArray[Any], *beside: npt.NDArray[Any]) -> tuple[Any, str]:
    """Bytes as `customdata` of a trace, and what writes each of them in its hover, to the last digit.

    Plotly's "," alone keeps twelve digits. What a browser cannot count exactly goes out as words.

    beside  numbers in the shape of `sizes` that a hover writes too, as `customdata[1]` and on
    """
    place = "customdata[0]" if beside else "customdata"
    if sizes.max(initial=0) <= EXACT_FLOAT:
        return _with(sizes.astype(np.float64), beside), f"%{{{place}:,d}} B"
    words = np.array([f"{size:,}" for size in sizes.flat], object).reshape(sizes.shape)
    return _with(words, beside).tolist(), f"%{{{place}}} B"


def _with(first: npt.NDArray[Any], others: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays of one shape as one with a row for each place; a single one as it is."""
    return np.stack([first, *others], -1) if others else first


def scaled(size: int, unit: str) -> float:
    """`size` bytes in the unit of an axis."""
    return size / UNIT_BYTES[unit]


def _part_word(family: str) -> str:
    """A family of weights after the word weights."""
    return family.removeprefix("Weights, ")


def _mid_sentence(word: str) -> str:
    """A word without its capital; `MLP` keeps them."""
    return word if word.isupper() else word.lower()


def plan_words(p: MemoryPlan, unit: str = "GiB") -> list[tuple[str, str, str]]:
    """(what, rounded, exact) of a plan as people read them: exact numbers carry separators."""
    rows = plan_rows(p, unit)
    return [(what, rounded, exact if exact == rounded else _separated(exact)) for what, rounded, exact in rows]


def _separated(exact: str) -> str:
    """A number with separators; any other text as it is."""
    return f"{int(exact):,}" if exact.removeprefix("-").isdecimal() else exact


def plan_rows(p: MemoryPlan, unit: str = "GiB") -> list[tuple[str, str, str]]:
    """(what, rounded, exact) for everything that a plan says, in reading order; programs read the exact numbers."""
    scenario = p.scenario
    guess = ", an estimate" if scenario.model.is_estimate else ""
    sizes = [
        (f"weights: {_mid_sentence(_part_word(label))}{guess}", size) for label, size in bytes_by_family(p).items()
    ]
    sizes += [
        (f"weights{guess}", p.weight_bytes),
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
    ]
    counts = [
        ("GPUs", scenario.num_gpus),
        ("context length", scenario.context_length),
        ("sequences at once", scenario.batch_size),
    ]
    return [
        *((what, text, text) for what, text in settings),
        *((what, f"{count:,}", str(count)) for what, count in counts),
        *((what, format_bytes(size, decimal=unit == "GB"), str(size)) for what, size in sizes),
        *((what, "none" if n is None else f"{n:,}", "" if n is None else str(n)) for what, n in limits),
        ("answer", p.sentence_in(unit), p.sentence),
    ]


# ----------------------------------------------------------------------------------------------------- memory bar


def memory_bar(p: MemoryPlan, unit: str = "GiB") -> Figure:
    """What one GPU holds as one stacked bar: weights by family, cache, overhead, free; capacity and label as lines.

    Where the plan does not fit, the bar runs past the capacity line by the shortfall. What is an estimate is drawn
    as hatching on an empty ground: weights of an estimated model, and the overhead, which carries its spread.
    """
    guessed = p.scenario.model.is_estimate
    traces = [_weight_bar(label, size, unit, guessed) for label, size in bytes_by_family(p).items()]
    parts = (
        _bar("KV cache", p.cache_bytes, unit, ORANGE),
        _runtime_bar(p, unit),
        _bar("Adapters", p.scenario.adapter_bytes, unit, SKY, "."),
        _bar("Draft model", p.draft_bytes, unit, VIOLET, "x"),
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
        "layout": layout(
            barmode="stack",
            height=350,
            margin=BELOW_TOOLBAR | {"l": 12, "b": 114},
            legend=LEGEND | {"entrywidth": 125, "font": {"size": 11}},
            xaxis=axis(f"{unit} on each GPU" if p.scenario.num_gpus > 1 else unit)
            | {"range": [0, reach * 1.03 / UNIT_BYTES[unit]]},
            yaxis={"visible": False, "fixedrange": True, "range": [-0.75, 1.15]},
            **_marks(p, unit, reach),
        ),
    }


class _Mark(NamedTuple):
    """A line across the memory bar, and the height at which its words stand."""

    text: str
    size: int
    color: str
    dash: str
    top: float


def _marks(p: MemoryPlan, unit: str, reach: int) -> Figure:
    """The lines of the usable capacity and of the label, each with its words on a row of its own.

    reach  bytes at which the axis ends
    """
    label, guessed = p.scenario.gpu.label_bytes, p.scenario.gpu.is_estimate
    usable = f"usable {format_bytes(p.capacity_bytes, unit)}" + (", an estimate" if guessed else "")
    lines = [_Mark(usable, p.capacity_bytes, VERMILLION, "dash" if guessed else "solid", 0.7)]
    if label is not None:
        lines.append(_Mark("label " + format_bytes(label, unit), label, GREY, "dot", 1.0))
    shapes = [_vertical(line.size / UNIT_BYTES[unit], line.color, line.dash, line.top) for line in lines]
    return {
        "shapes": shapes + _spread(p, unit),
        "annotations": [_end_note(line, unit, reach) for line in lines],
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


def _end_note(line: _Mark, unit: str, reach: int) -> Figure:
    """The words of a line, on the side of it that has more room."""
    side = {"xanchor": "right", "xshift": -5} if 2 * line.size > reach else {"xanchor": "left", "xshift": 5}
    place = {"x": line.size / UNIT_BYTES[unit], "y": line.top, "yanchor": "middle", "showarrow": False}
    return {"text": line.text, "hovertext": exact(line.size, unit), **place, **side}


def _weight_bar(label: str, size: int, unit: str, is_estimate: bool) -> Figure:
    pattern = {family.label: family.pattern for family in WEIGHT_FAMILIES}[label]
    if is_estimate:
        short = label.partition(",")[0]  # what the legend has room for; the hover says it in full
        bar = _as_estimate(_bar(f"{short}, est.", size, unit, BLUE, pattern or "/"))
        return bar | {
            "hovertemplate": f"Weights: {_part_word(label)}, an estimate<br>%{{customdata[1]}}<extra></extra>"
        }
    return _bar(label, size, unit, BLUE, pattern, group="Weights: ")


def _as_estimate(bar: Figure) -> Figure:
    """The look of an estimate: hatching in the segment's colour on an empty ground."""
    marker = bar["marker"]
    hollow = {"shape": marker["pattern"]["shape"], "size": 7, "fillmode": "replace", "fgcolor": marker["color"]}
    return bar | {"marker": {**marker, "pattern": hollow, "line": {"width": 1, "color": marker["color"]}}}


def _runtime_bar(p: MemoryPlan, unit: str) -> Figure:
    runtime = p.runtime
    if not runtime.is_estimate:
        return _bar("Overhead, as given", runtime.typical_bytes, unit, PURPLE)
    bar = _as_estimate(_bar("Overhead, estimate", runtime.typical_bytes, unit, PURPLE, "/"))
    bar["hovertemplate"] = (
        "Run-time overhead, an estimate<br>%{customdata[1]}<br>"
        f"90th percentile {exact(runtime.high_bytes, unit)}<extra></extra>"
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
        "customdata": [[size, exact(size, unit)]],
        "hovertemplate": f"{group}{name}<br>%{{customdata[1]}}<extra></extra>",
        "marker": marker,
    }


# ------------------------------------------------------------------------------------------ cache against context


def context_values(p: MemoryPlan, lowest: int = 512) -> list[int]:
    """Context lengths for a curve: eight an octave, and each length at which something happens.

    All hold the scenario's shared prefix, as a plan's context does.
    """
    model, scenario = p.scenario.model, p.scenario
    marks = [p.crossover_context_length, p.max_context_length, model.context_limit, scenario.context_length]
    reach = max(2 * scenario.context_length, model.context_limit or 2**17, *_drawable(marks))
    windows = [term.max_tokens for usage in p.stages for term in usage.shard.curve.terms if term.max_tokens]
    last = min(MAX_COUNT, 2 ** (reach - 1).bit_length())
    wanted = [*octave_values(lowest, last), *windows, *_drawable(marks)]
    least = max(lowest, scenario.least_context_length)
    return sorted({value for value in wanted if least <= value <= last})


def octave_values(first: int, last: int) -> list[int]:
    """Eight values an octave from `first` to `last`, both powers of two: enough for a smooth line on a log axis."""
    octaves = range(first.bit_length() - 1, last.bit_length() - 1)
    return [*(2**octave * eighth // 8 for octave in octaves for eighth in range(8, 16)), last]


def _drawable(marks: Iterable[int | None]) -> list[int]:
    """Marks that a chart can reach; a limit of a billion tokens would flatten everything else."""
    return [mark for mark in marks if mark is not None and 0 < mark <= 2**22]


def cache_against_weights(p: MemoryPlan, table: Mapping[str, Any] | pd.DataFrame, unit: str = "GiB") -> Figure:
    """Cache, weights and their sum with the overhead over context, for the plan's batch.

    table  `over_context(p.scenario, ...)`, or `sweep(p.scenario, context_length=...)`

    The usable capacity is a line; the crossover and the plan's own context are marked.
    """
    lines = (
        ("KV cache", "cache_bytes", ORANGE, "solid"),
        ("Weights", "weight_bytes", BLUE, "dash"),
        ("Everything with overhead", "total_bytes", GREY, "dot"),
        ("Usable capacity", "capacity_bytes", *CAPACITY),
    )
    contexts = np.asarray(table["context_length"])
    traces = [
        bytes_line(name, contexts, np.asarray(table[column]), unit, color, dash) for name, column, color, dash in lines
    ]
    traces += _curve_marks(p, unit)
    top = max(p.capacity_bytes, p.weight_bytes, p.total_bytes) * 1.2 / UNIT_BYTES[unit]
    return {
        "data": traces,
        "layout": layout(
            height=470,
            margin=BELOW_TOOLBAR | {"l": 74, "r": 16, "b": 153},
            xaxis=context_axis(contexts) | {"automargin": "height"},
            yaxis=axis(f"{unit} on each GPU" if p.scenario.num_gpus > 1 else unit)
            | {"range": [0, top], "automargin": "width"},
        ),
    }


def _curve_marks(p: MemoryPlan, unit: str) -> list[Figure]:
    context, crossover, longest = p.scenario.context_length, p.crossover_context_length, p.max_context_length
    marks = [_point("This plan", context, p.cache_bytes, unit, ORANGE, "circle")]
    if crossover is not None and crossover <= 2**22:
        size = p.fullest_stage(crossover).cache_bytes(crossover, p.scenario.batch_size)
        marks.append(_point("Crossover: cache as large as weights", crossover, size, unit, BLUE, "diamond"))
    if longest and longest <= 2**22:
        size = p.fullest_stage(longest).total_bytes(longest, p.scenario.batch_size)
        marks.append(_point("Longest context that fits", longest, size, unit, GREEN, "triangle-down"))
    return marks


def bytes_line(name: str, x: Any, sizes: Any, unit: str, color: str, dash: str) -> Figure:
    """A line of bytes over contexts."""
    customdata, exact_bytes = exact_hover(sizes)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": sizes / UNIT_BYTES[unit],
        "customdata": customdata,
        "hovertemplate": f"{name}<br>%{{x:,d}} tokens<br>%{{y:,.3f}} {unit} ({exact_bytes})<extra></extra>",
        "line": {"color": color, "dash": dash, "width": 3},
    }


def _point(name: str, context: int, size: int, unit: str, color: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}: {counted(context, 'token')}" if ":" not in name else f"{name}, {counted(context, 'token')}",
        "x": [context],
        "y": [size / UNIT_BYTES[unit]],
        "customdata": [[size, exact(size, unit)]],
        "hovertemplate": f"{name}<br>%{{x:,d}} tokens<br>%{{customdata[1]}}<extra></extra>",
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
    "compressed": (VIOLET, "\\"),
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
        "layout": layout(
            barmode="overlay",
            height=150,
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            showlegend=True,  # a single kind has no legend otherwise
            xaxis=axis("layer") | {"range": [0, total], "showgrid": False, "fixedrange": True},
            yaxis={"type": "category", "range": [-0.5, 0.5], "showticklabels": False, "fixedrange": True},
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
        "layout": layout(
            height=90 + 30 * len(names),
            showlegend=False,
            xaxis=axis(title) | {"rangemode": "tozero"},
            yaxis={"type": "category", "autorange": "reversed", "automargin": True},
        ),
    }


# ----------------------------------------------------------------------------------------------------------- axes


def context_axis(contexts: Iterable[int]) -> Figure:
    """A log axis of context lengths whose ticks are powers of two; its ends where there are not two of those."""
    values = np.asarray(list(contexts))
    low, high = int(values.min()), int(values.max())
    powers = [2**bits for bits in range((low - 1).bit_length(), high.bit_length())]
    ticks = powers[:: -(-len(powers) // MAX_TICKS)] if len(powers) > 1 else sorted({low, high})
    return axis("context length (tokens)") | {
        "type": "log",
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [format_tokens(value) for value in ticks],
        "range": [float(np.log10(low)), float(np.log10(high * 1.03))],
    }


def axis(title: str) -> Figure:
    """What every axis shares."""
    return {"title": {"text": title}, "automargin": True, "zeroline": False, "fixedrange": False}


LEGEND: Figure = {
    "orientation": "h",
    "yref": "container",
    "yanchor": "bottom",
    "y": 0,
    "xanchor": "left",
    "x": 0,
    "traceorder": "normal",
}


BELOW_TOOLBAR = {"l": 8, "r": 8, "t": 38, "b": 8}
"""Margins that leave a row for the toolbar: a touch screen shows it all the time.

Plotly draws a figure a second time where these do not hold its words; figures that change often have what theirs need
on a wide screen.
"""


def layout(**changes: Any) -> Figure:
    """What every figure shares: no template to ship, a legend below that wraps, tight margins."""
    return {
        "template": {},
        "margin": {"l": 8, "r": 8, "t": 16, "b": 8},
        "legend": LEGEND,
        "hoverlabel": {"align": "left"},
        **changes,
    }
