"""The lab's figures hold the results' numbers, and words beside every colour."""

import numpy as np
import pandas as pd
import pytest

from kvplan import lab_charts
from kvplan.charts import ORANGE, SKY
from kvplan.lab_charts import Curve
from tests.contrast import contrast


def cells():
    rows = [(layer, column, token, state) for layer in (0, 1) for column, token, state in
            ((0, 7, "held"), (1, 9, "new"), (2, -1, "empty"))]  # fmt: skip
    return pd.DataFrame(rows, columns=["layer", "column", "token", "state"])


def test_a_cell_of_the_cache_shows_its_token_and_its_state_in_words():
    figure = lab_charts.cache_grid(cells(), 5)
    trace = figure["data"][0]
    assert trace["text"] == [["<b>7</b><br>held", "<b>9</b><br>new", "empty"]] * 2
    assert trace["z"].tolist() == [[1, 2, 0]] * 2
    assert figure["layout"]["xaxis"]["range"] == [-0.5, 4.5]


def test_a_fingerprint_shows_percent_a_point_where_clean_and_a_word_where_nothing_is_held():
    grid = np.array([[1e-9, 0.004, 0.03, 0.8, 25.0, np.nan]])
    figure = lab_charts.fingerprint(grid, 2, 1e-4, 0.05)
    trace = figure["data"][0]
    assert trace["text"] == [["·", "0.4", "3", "80", "999", "gone"]]
    assert trace["z"][0, :5].tolist() == [0, 1, 1, 2, 2]
    assert np.isnan(trace["z"][0, 5])
    assert figure["layout"]["shapes"][0]["x0"] == 1.5


def test_every_wire_goes_from_a_query_head_to_its_kv_head():
    figure = lab_charts.wiring([0, 1, 2, 3], [0, 0, 1, 1], 2)
    wires = [trace for trace in figure["data"] if trace["mode"] == "lines"]
    assert [wire["x"] for wire in wires] == [[0, 0.5], [1, 0.5], [2, 2.5], [3, 2.5]]
    assert len({wire["line"]["dash"] for wire in wires}) == 2
    assert [trace["mode"] for trace in lab_charts.wiring([0, 1], None, 1)["data"]] == ["markers+text"] * 2


def differences(values):
    return pd.DataFrame({
        "scenario": "generations", "phase": "decode", "position": range(len(values)), "row": 0, "max_abs_diff": values,
    })  # fmt: skip


def test_the_rows_keep_their_difference_and_the_levels_their_value():
    levels = [("bar", "bar", 1e-4), ("usual", "usual", 1e-5)]
    figure = lab_charts.row_differences(differences([1e-6, 0.0, np.inf]), levels)
    rows, bar, usual = figure["data"]
    assert rows["customdata"].tolist() == [1e-6, 0, 1e6]
    assert rows["y"].tolist() == [1e-6, 1e-7, 1e6]
    assert bar["y"] == [1e-4, 1e-4]
    assert bar["line"]["dash"] != usual["line"]["dash"]


def test_a_level_of_zero_has_no_place_on_a_log_axis():
    assert len(lab_charts.row_differences(differences([1e-6]), [("bar", "bar", 0.0)])["data"]) == 1


def test_cached_and_uncached_logits_have_different_marks():
    table = pd.DataFrame({"token": [0, 1], "cached": [1.0, 2.0], "uncached": [1.0, 2.5]})
    uncached, cached = lab_charts.side_by_side(table)["data"]
    assert uncached["y"].tolist() == [1.0, 2.5]
    assert cached["y"].tolist() == [1.0, 2.0]
    assert uncached["marker"]["symbol"] != cached["marker"]["symbol"]


def test_the_matrix_keeps_the_order_of_faults_and_checks_and_marks_each_cell():
    table = pd.DataFrame({
        "title": ["z", "z", "a", "a"], "check": ["one_pass", "everything"] * 2, "caught": [False, True, False, False],
    })  # fmt: skip
    figure = lab_charts.check_matrix(table)
    assert figure["data"][0]["text"] == [["✗", "✓"], ["✗", "✗"]]
    assert figure["layout"]["yaxis"]["ticktext"] == ["z", "a"]
    assert figure["layout"]["xaxis"]["ticktext"] == ["one<br>pass", "everything"]


@pytest.mark.parametrize("ground", [lab_charts.PALE, lab_charts.YELLOW, lab_charts.CORAL, SKY, ORANGE])
def test_the_letters_of_a_cell_can_be_read_on_every_ground_that_it_may_have(ground):
    assert contrast(lab_charts.INK, ground) >= 4.5


def test_a_cell_has_only_grounds_that_its_letters_can_be_read_on():
    grid = np.array([[0.0, 0.01, 0.8]])
    matrix = pd.DataFrame({"title": ["a", "a"], "check": ["one", "two"], "caught": [False, True]})
    for figure in (lab_charts.fingerprint(grid, 1, 1e-4, 0.05), lab_charts.check_matrix(matrix)):
        cells = figure["data"][0]
        assert cells["textfont"]["color"] == lab_charts.INK
        grounds = {lab_charts.PALE, lab_charts.YELLOW, lab_charts.CORAL, SKY}
        assert {color for _, color in cells["colorscale"]} <= grounds


@pytest.mark.parametrize("log", [False, True])
def test_bars_carry_their_texts(log):
    figure = lab_charts.bars(["a", "b"], [1024, 2048], ["1 KiB", "2 KiB"], "bytes", log=log)
    assert figure["data"][0]["text"] == ["1 KiB", "2 KiB"]
    assert (figure["layout"]["xaxis"].get("type") == "log") is log


def test_curves_differ_in_dash():
    lines = [Curve("without", [1, 3, 6]), Curve("with", [1, 2, 3])]
    traces = lab_charts.curves([1, 2, 3], lines, "steps", "projections")["data"]
    assert [trace["y"].tolist() for trace in traces] == [[1, 3, 6], [1, 2, 3]]
    assert len({trace["line"]["dash"] for trace in traces}) == 2
