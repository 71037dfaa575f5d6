"""Figures on their way to the browser: dressed in the colours of the page, and drawn there once.

Streamlit's frontend hands Plotly every new figure twice: first itself, then a copy of it. Plotly computes the copy
anew, which costs as much as drawing, where anything in it could be new: a template, which Streamlit's own theme is; a
typed array of one dimension; any array at all, unless the layout has a revision of its data. So what a theme would say
stands in the figure itself.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import streamlit as st
from plotly.basedatatypes import BaseFigure

CHART_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg", "filename": "kvplan"},
}
"""The toolbar of a figure; its camera saves the figure as SVG, which prints at any size."""
STILL = {"displayModeBar": False}
"""For a figure too simple to zoom: no toolbar, which on a touch screen always covers a corner."""


def show_chart(figure: Mapping[str, Any], alt: str, key: str, config: Mapping[str, Any] = CHART_CONFIG) -> None:
    """A figure as wide as the page, with its text alternative."""
    st.plotly_chart(
        _Finished(dressed(figure, st.context.theme.type)), width="stretch", theme=None, config=dict(config), alt=alt,
        key=key,
    )  # fmt: skip


class _Finished(BaseFigure):  # type: ignore[misc]  # Plotly carries no types
    """A figure that goes out as it is: Plotly's own copies and checks all of it, which costs more than making it.

    Tests validate every figure.
    """

    def __init__(self, figure: Mapping[str, Any]) -> None:
        self._finished = figure

    def to_dict(self) -> Any:
        return _packed(self._finished)


# ------------------------------------------------------------------------------------------------------ its colours


class _Colors(NamedTuple):
    """Colours of words and lines on the ground of a theme."""

    words: str
    legend: str
    lines: str


COLORS = {"light": _Colors("#59616E", "#262730", "#E6EAF1"), "dark": _Colors("#E6EAF1", "#FAFAFA", "#31333F")}
"""By kind of theme; words and legend stand out from the ground as small text should, 4.5 to 1."""

FAMILY = '"Source Sans", sans-serif'


def dressed(figure: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """A figure with the look of a kind of theme; what it says of its own look holds.

    kind  "light" or "dark"; None, which a browser that has not told its theme counts as, is light
    """
    kind = _kind(kind)
    ground, ink = (st.get_option(f"theme.{kind}.{name}Color") for name in ("background", "text"))
    own = {name: value for name, value in figure["layout"].items() if name != "template"}
    axes = ["xaxis", "yaxis", *(name for name in own if re.fullmatch(r"[xy]axis\d+", name))]
    look = _look(COLORS[kind], ground, ink) | {name: _axis(COLORS[kind], name[0], own.get(name, {})) for name in axes}
    if all("range" in own.get(name, ()) for name in axes):  # another's range is found when it is computed
        look["datarevision"] = 1
    if "coloraxis" in own:
        look["coloraxis"] = {"colorbar": _COLORBAR}
    return {**figure, "layout": _over(look, own)}


def _kind(told: str | None) -> str:
    return "dark" if told == "dark" else "light"


def _look(colors: _Colors, ground: str, ink: str) -> dict[str, Any]:
    font = {"family": FAMILY, "size": 12, "color": colors.words}
    return {
        "font": font,
        "title": {"x": 0, "xanchor": "left", "pad": {"l": 4}, "font": {"size": 16, "color": ink}},
        "legend": {
            "valign": "top",
            "font": {"color": colors.legend},
            "title": {"side": "top", "font": {"size": 12, "color": colors.words}},
        },
        "paper_bgcolor": ground,
        "plot_bgcolor": ground,
        "hoverlabel": {"bgcolor": ground, "bordercolor": colors.lines, "font": font},
        "margin": {"pad": 8},
    }


def _axis(colors: _Colors, way: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """An axis; `way` is x or y. Only the lines of a y axis cross the figure, and none at names."""
    title = {"standoff": 20 if way == "x" else 24, "font": {"size": 14}}
    lines = {} if own.get("type") == "category" else {"gridcolor": colors.lines, "zerolinecolor": colors.lines}
    return {**lines, **({"showgrid": False} if way == "x" else {}), "automargin": True, "title": title}


_COLORBAR = {"thickness": 16, "xpad": 24, "outlinewidth": 0}


def _over(look: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `look`, mapping by mapping."""
    return {**look, **{name: _laid(look.get(name), value) for name, value in own.items()}}


def _laid(look: Any, own: Any) -> Any:
    return _over(look, own) if isinstance(look, Mapping) and isinstance(own, Mapping) else own


_SCRIPT = """
export default function ({data, setTriggerValue}) {
  const app = document.querySelector("[data-testid=stApp]");
  const sum = (color) => color.match(/[\\d.]+/g).slice(0, 3).reduce((all, part) => all + Number(part), 0);
  let told = data.drawn;
  const look = () => {
    const kind = sum(getComputedStyle(app).backgroundColor) < 384 ? "dark" : "light";
    if (app.dataset.testConnectionState !== "CONNECTED") told = data.drawn;  // what was said last may be lost
    else if (kind !== told) setTriggerValue("theme", told = kind);
  };
  const watch = new MutationObserver(look);
  watch.observe(app, {attributes: true, attributeFilter: ["class", "data-test-connection-state"]});
  look();
  return () => watch.disconnect();
}
"""

_watch: Any = st.components.v2.component(
    "kvplan_theme", js=_SCRIPT, css=".st-key-theme { display: none }", isolate_styles=False
)


def follow_theme() -> None:
    """Have the page drawn anew when its theme changes, by hand or at dusk: Streamlit tells nobody.

    The browser compares its own theme with the one that was drawn, also after it has lost its connection: a computer
    that sleeps at dusk wakes up with both changed.
    """
    _watch(key="theme", data={"drawn": _kind(st.context.theme.type)})


# ------------------------------------------------------------------------------------------------------- its arrays

INTS = ("i1", "i2", "i4")
TYPED = frozenset({*INTS, "f4", "f8"})
"""Kinds of arrays that Plotly takes in base64."""


def _packed(part: Any) -> Any:
    """A part of a figure with its tables of numbers as Plotly's typed arrays, and its rows as lists.

    Plotly's own packing asks pandas what it knows, also one that another visitor's run is still loading, and fails.
    """
    if isinstance(part, np.ndarray):
        return _typed_array(part) if part.ndim > 1 else part.tolist()
    if isinstance(part, Mapping):
        return {key: _packed(value) for key, value in part.items()}
    return [_packed(value) for value in part] if isinstance(part, list | tuple) else part


def _typed_array(values: npt.NDArray[Any]) -> Any:
    """An array in base64, its integers in as few bytes as hold them; as a list where Plotly has no such array."""
    if values.dtype.kind == "i" and values.size:
        low, high = values.min(), values.max()
        values = values.astype(next((k for k in INTS if np.iinfo(k).min <= low and high <= np.iinfo(k).max), "i8"))
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    if kind not in TYPED:
        return values.tolist()
    return {
        "dtype": kind, "bdata": b64encode(values.tobytes()).decode(), "shape": ", ".join(map(str, values.shape)),
    }  # fmt: skip
