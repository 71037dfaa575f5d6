"""Figures as the browser gets them, without one."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import streamlit as st
from plotly.basedatatypes import convert_to_base64

import kvplan
from kvplan import charts
from kvplan.ui import figures
from tests.contrast import contrast

TABLES = [
    np.array([[1, 2, 300], [4, 5, 6]]), np.array([[-128, 127]]), np.array([[2**31]]), np.array([[2**53 + 1]]),
    np.zeros((2, 3), np.float32), np.arange(10.0).reshape(2, 5)[:, ::2], np.array([[1.5, np.nan, -0.0]]),
]  # fmt: skip


@pytest.mark.parametrize("values", TABLES)
def test_a_table_of_numbers_is_packed_as_plotly_packs_it(values):
    figure = {"data": [{"z": values.copy(), "marker": {"size": values.copy()}}], "layout": {"title": "a"}}
    ours = figures._Finished(figure).to_dict()
    convert_to_base64(figure)
    if isinstance(figure["data"][0]["z"], np.ndarray):  # where Plotly has no such array, its encoder makes a list
        figure["data"][0] = {"z": values.tolist(), "marker": {"size": values.tolist()}}
    assert ours == figure


@pytest.mark.parametrize("values", [[1, 2, 2**53 + 1], [1.5, -0.0], [True, False], ["a", "b"], [10**30, 1]])
def test_a_row_of_values_is_a_list_with_each_of_them(values):
    assert figures._Finished({"x": np.array(values)}).to_dict() == {"x": values}


def a_figure(**layout):
    return {"data": [{"type": "scatter", "x": [1], "y": [2]}], "layout": {"template": {}, **layout}}


@pytest.mark.parametrize(("kind", "like"), [("light", "light"), ("dark", "dark"), (None, "light")])
def test_a_figure_has_the_colours_of_the_page(kind, like):
    layout = figures.dressed(a_figure(xaxis={"title": {"text": "tokens"}}), kind)["layout"]
    ground = st.get_option(f"theme.{like}.backgroundColor")
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == layout["hoverlabel"]["bgcolor"] == ground
    for words in (layout["font"], layout["legend"]["font"], layout["hoverlabel"]["font"], layout["title"]["font"]):
        assert contrast(words["color"], ground) >= 4.5


def test_what_a_figure_says_of_its_look_holds_and_the_figure_stays_as_it_was():
    margin = {"l": 1, "r": 2, "t": 3, "b": 4}
    figure = a_figure(margin=margin, xaxis={"title": {"text": "a"}, "automargin": False}, yaxis2={"range": [0, 1]})
    before = json.dumps(figure)
    layout = figures.dressed(figure, "light")["layout"]
    assert json.dumps(figure) == before
    assert layout["margin"] == {**margin, "pad": 8}
    assert layout["xaxis"]["automargin"] is False
    assert layout["xaxis"]["title"] == {"text": "a", "standoff": 20, "font": {"size": 14}}
    assert layout["yaxis2"]["gridcolor"] == layout["yaxis"]["gridcolor"] == "#E6EAF1"


def test_a_colour_scale_is_dressed_only_where_there_is_one():
    assert "coloraxis" not in figures.dressed(a_figure(), "dark")["layout"]
    scale = {"colorscale": "Cividis", "colorbar": {"thickness": 10}}
    dressed = figures.dressed(a_figure(coloraxis=scale), "dark")["layout"]["coloraxis"]
    assert dressed == {"colorscale": "Cividis", "colorbar": {"thickness": 10, "xpad": 24, "outlinewidth": 0}}


def test_names_on_an_axis_have_no_lines_across_the_figure():
    layout = figures.dressed(a_figure(yaxis={"type": "category"}), "light")["layout"]
    assert "gridcolor" not in layout["yaxis"]
    assert layout["xaxis"]["showgrid"] is False


def test_data_has_a_revision_only_where_no_range_has_to_be_found():
    ranges = {"xaxis": {"range": [0, 1]}, "yaxis": {"range": [0, 1]}}
    assert figures.dressed(a_figure(**ranges), "light")["layout"]["datarevision"] == 1
    for more in ({"yaxis": {}}, {"yaxis2": {"automargin": True}}):
        assert "datarevision" not in figures.dressed(a_figure(**{**ranges, **more}), "light")["layout"]
    assert "datarevision" not in figures.dressed(a_figure(xaxis={"range": [0, 1]}), "light")["layout"]


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_a_dressed_figure_is_one_that_plotly_takes(kind):
    p = kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb"))
    go.Figure(figures.dressed(charts.memory_bar(p), kind))  # refuses what it does not know


@pytest.mark.parametrize(("page", "count"), [("", 3), ("sweep", 1)])
def test_a_changed_figure_holds_nothing_that_the_browser_would_compute_twice(app, page, count):
    """A template, an array of one dimension that is no list, or no revision of the data."""
    specs = [json.loads(chart.proto.spec) for chart in app(page=page).run.get("plotly_chart")]
    assert len(specs) == count
    for spec in specs:
        assert spec["layout"]["datarevision"] == 1
        assert "template" not in spec["layout"]
        packed = [value for trace in spec["data"] for value in trace.values() if isinstance(value, dict)]
        assert all("shape" in value for value in packed if "bdata" in value)
