"""Figures of sweeps: their numbers are the rows' own, to the byte, and their marks are the plans'."""

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.colors import sample_colorscale, unlabel_rgb

import kvplan
from kvplan.charts import SERIES, octave_values
from kvplan.fleet import cheapest_first, which_gpu
from kvplan.hardware import define_gpu
from kvplan.sweep_charts import (
    CIVIDIS,
    DARK_CELLS,
    MAX_CROSSES,
    MAX_TEXTS,
    SCALES,
    TITLES,
    Curve,
    Panel,
    cache_curves,
    fit_map,
    fleet_bars,
    head_bars,
    largest_point,
    total_lines,
)
from tests.contrast import contrast

GIB = 2**30
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
GPUS = ["rtx-4090-24gb", "h100-sxm-80gb", "mi300x-192gb"]


def swept(**axes):
    return kvplan.sweep(LLAMA, **axes)


def traces(figure, kind):
    return [trace for trace in figure["data"] if trace["type"] == kind]


def curves(scenario=LLAMA, **values):
    ((setting, choices),) = values.items()
    contexts = octave_values(512, 2**19)
    scenarios = [scenario.with_changes(**{setting: choice}) for choice in choices]
    return [
        Curve(str(choice), kvplan.plan(here), kvplan.sweep(here, context_length=contexts))
        for choice, here in zip(choices, scenarios, strict=True)
    ]


# ----------------------------------------------------------------------------------------------------------- maps


def test_the_fit_map_holds_each_rows_total_in_its_cell():
    table = swept(context_length=[1024, 65536], batch_size=[1, 8, 64])
    (cells,) = traces(fit_map([Panel("", table)]), "heatmap")
    assert cells["customdata"].ravel().tolist() == table["total_bytes"].tolist()
    assert cells["z"].ravel() == pytest.approx(table["total_bytes"] / GIB)
    assert (cells["x"], cells["y"]) == (["1K", "64K"], ["1", "8", "64"])


def _colored(figure):
    """Which cells of each map have a colour, from what Plotly's scale says of their values; a gap has none."""
    scale = figure["layout"]["coloraxis"]
    beyond = max(place for place, color in scale["colorscale"] if not color.startswith("rgba"))
    places = [
        (cells["z"].astype(float) - scale["cmin"]) / (scale["cmax"] - scale["cmin"])
        for cells in traces(figure, "heatmap")
    ]
    return [place <= beyond for place in places]


def test_exactly_the_cells_that_fit_have_a_colour():
    table = swept(context_length=[1024, 65536], batch_size=[1, 8, 64])
    (colored,) = _colored(fit_map([Panel("", table)]))
    assert colored.ravel().tolist() == table["fits"].tolist()
    assert 0 < table["fits"].sum() < len(table)


@pytest.mark.parametrize("gpus", [GPUS[:1], GPUS[:2]], ids=["in bytes", "in shares of each GPU's memory"])
@pytest.mark.parametrize("unit", ["GiB", "GB"])
@pytest.mark.parametrize("size", [79_456_894_976, 1_599_858_278_400, 2**50 + 1])
def test_a_byte_decides_whether_a_cell_has_a_colour(gpus, unit, size):
    table = swept(gpu=gpus, context_length=[1024, 2048, 4096])
    capacity = table["gpu"].astype(str).map({gpu: size + 7 * index for index, gpu in enumerate(gpus)})
    beyond = table["context_length"].map({1024: -1, 2048: 0, 4096: 1})
    table = table.assign(capacity_bytes=capacity, total_bytes=capacity + beyond, fits=beyond <= 0)
    figure = fit_map([Panel("", table)], "context_length", "gpu", unit)
    (colored,) = _colored(figure)
    assert colored.tolist() == [[True, True, False]] * len(gpus)
    (cells,) = traces(figure, "heatmap")
    shown = table["total_bytes"] / (capacity / 100 if len(gpus) > 1 else {"GiB": GIB, "GB": 10**9}[unit])
    assert cells["z"].ravel() == pytest.approx(shown, rel=1.2e-6)


def test_a_cell_that_does_not_fit_says_what_it_would_take_and_what_there_is():
    table = swept(context_length=[1024, 2**20], batch_size=[1, 64])
    (cells,) = traces(fit_map([Panel("", table)]), "heatmap")
    capacity = int(table["capacity_bytes"][0])
    assert cells["hovertemplate"] == (
        "context length (tokens): %{x}<br>sequences at once: %{y}<br>%{z:,.2f} GiB (%{customdata:,d} B)"
        f"<br>usable: {kvplan.units.format_exact_bytes(capacity)}<extra></extra>"
    )
    assert cells["z"][1, 1] == pytest.approx(table["total_bytes"].iloc[-1] / GIB)
    assert table["total_bytes"].iloc[-1] > capacity
    (crosses,) = (trace for trace in fit_map([Panel("", table)])["data"] if trace.get("name") == "does not fit")
    assert crosses["hoverinfo"] == "skip"  # the cell below it says more


def test_the_fit_map_takes_axes_in_any_order_of_the_table():
    table = swept(context_length=[65536, 1024], kv_dtype=["bf16", "fp8"])
    (cells,) = traces(fit_map([Panel("", table)], across="kv_dtype", up="context_length"), "heatmap")
    assert cells["y"] == ["1K", "64K"]
    assert cells["customdata"].T[:, ::-1].ravel().tolist() == table["total_bytes"].tolist()


@pytest.mark.parametrize("across", TITLES)
@pytest.mark.parametrize("up", TITLES)
def test_any_two_axes_make_a_map_that_plotly_accepts(across, up):
    if across == up:
        return
    values = {
        "context_length": [1024, 65536], "batch_size": [1, 64], "kv_dtype": ["bf16", "fp8"], "num_kv_heads": [8, 1],
        "weight_dtype": [None, "fp8"], "tensor_parallel": [1, 2], "gpu": GPUS[:2],
    }  # fmt: skip
    table = swept(**{column: values[column] for column in (across, up)})
    figure = fit_map([Panel("", table)], across, up)
    go.Figure(figure)  # refuses what it does not know
    (cells,) = traces(figure, "heatmap")
    for row in table.itertuples():
        column = cells["x"].index(_word(getattr(row, across), across))
        line = cells["y"].index(_word(getattr(row, up), up))
        assert np.ravel(cells["customdata"][line, column])[0] == row.total_bytes
    assert len(table) == 4


def _word(value, column):
    return {1024: "1K", 65536: "64K"}[value] if column == "context_length" else str(value)


def test_the_frontier_steps_along_the_largest_batch_of_each_context():
    table = swept(context_length=[1024, 65536, 2**20], batch_size=[1, 4, 64])
    (frontier,) = fit_map([Panel("", table)])["layout"]["shapes"]
    assert table.groupby("context_length")["fits"].sum().tolist() == [3, 2, 0]
    assert frontier["path"] == "M-0.5,2.5V2.5H0.5V1.5H1.5V-0.5H2.5"


def test_where_gpus_differ_colours_are_shares_of_each_ones_memory():
    table = swept(gpu=GPUS, tensor_parallel=[1, 2])
    (cells,) = traces(fit_map([Panel("", table)], "gpu", "tensor_parallel"), "heatmap")
    share = table["total_bytes"] / table["capacity_bytes"] * 100
    assert cells["z"].T.ravel() == pytest.approx(share.tolist(), rel=1e-6)


def test_a_cell_of_a_map_of_gpus_says_its_share_its_size_and_what_its_own_gpu_has():
    table = swept(gpu=GPUS, tensor_parallel=[1, 2])
    capacity = [int(size) for size in table["capacity_bytes"]]
    assert len(set(capacity)) == len(GPUS)
    for unit, size in (("GiB", GIB), ("GB", 10**9)):
        (cells,) = traces(fit_map([Panel("", table)], "tensor_parallel", "gpu", unit), "heatmap")
        assert cells["hovertemplate"] == (
            "number of GPUs: %{x}<br>GPU: %{y}<br>%{z:,.1f} % of usable"
            f"<br>%{{customdata[1]:,.2f}} {unit} (%{{customdata[0]:,d}} B)"
            f"<br>usable: %{{customdata[2]:,.2f}} {unit} (%{{customdata[3]:,d}} B)<extra></extra>"
        )
        rows = cells["customdata"].reshape(-1, 4).tolist()
        taken = [int(row) for row in table["total_bytes"]]
        assert rows == [[a, a / size, b / size, b] for a, b in zip(taken, capacity, strict=True)]


def test_a_size_that_no_float32_holds_to_a_hundredth_is_drawn_and_said_in_float64():
    table = swept(context_length=[1024], batch_size=[1, 2**29])
    (cells,) = traces(fit_map([Panel("", table)]), "heatmap")
    total = 2**29 * 1024 * 131072 + 26_981_483_477  # 8 sequences or 2**29: what is fixed is the same
    assert (int(table["total_bytes"].iloc[1]), cells["z"].tolist()[1]) == (total, [total / GIB])
    (small,) = traces(fit_map([Panel("", table[:1])]), "heatmap")
    assert (cells["z"].dtype, small["z"].dtype) == (np.float64, np.float32)


def test_a_map_of_names_with_few_cells_has_its_bytes_written_in_them():
    table = swept(gpu=GPUS, num_kv_heads=[32, 8, 1])
    figure = fit_map([Panel("", table)], "num_kv_heads", "gpu")
    (written,) = (trace for trace in figure["data"] if trace.get("mode") == "text")
    fitting = table[table["fits"]]  # what does not fit is crossed out
    expected = {
        (str(row.num_kv_heads), str(row.gpu)): kvplan.units.format_bytes(row.total_bytes)
        for row in fitting.itertuples()
    }
    assert dict(zip(zip(written["x"], written["y"], strict=True), written["text"], strict=True)) == expected
    assert len(expected) < len(table) < MAX_TEXTS


@pytest.mark.parametrize("share", [*np.linspace(0, 1, 41), DARK_CELLS - 1e-9, DARK_CELLS])
def test_letters_stand_out_from_every_colour_of_the_scale(share):
    (shade,) = sample_colorscale(list(CIVIDIS), [share])
    letters = "#FFFFFF" if share < DARK_CELLS else "#000000"
    assert contrast(letters, "#" + "".join(f"{round(float(part)):02X}" for part in unlabel_rgb(shade))) >= 4.5


def test_each_cells_letters_are_white_on_dark_and_black_on_light():
    table = swept(gpu=GPUS, num_kv_heads=[32, 8, 1])
    figure = fit_map([Panel("", table)], "num_kv_heads", "gpu")
    (written,) = (trace for trace in figure["data"] if trace.get("mode") == "text")
    rows = table.assign(head=table["num_kv_heads"].astype(str), name=table["gpu"].astype(str)).set_index(
        ["head", "name"]
    )
    shares = [
        rows.loc[place, "total_bytes"] / rows.loc[place, "capacity_bytes"]
        for place in zip(written["x"], written["y"], strict=True)
    ]
    assert written["textfont"]["color"] == ["#FFFFFF" if share < DARK_CELLS else "#000000" for share in shares]
    assert len(set(written["textfont"]["color"])) == 2


def test_a_combination_that_cannot_be_planned_is_neither_coloured_nor_crossed_out():
    table = swept(gpu=GPUS[:1], num_kv_heads=[8, 1])
    whole = swept(gpu=GPUS[:2], num_kv_heads=[8, 1])
    figure = fit_map([Panel("", whole[:3])], "num_kv_heads", "gpu")
    (cells,) = traces(figure, "heatmap")
    assert np.isnan(cells["z"][1, 0])
    assert cells["hoverongaps"] is False  # there is nothing to say of it
    assert all(len(trace["x"]) <= 2 for trace in traces(figure, "scatter"))
    assert len(table) == 2


def test_a_fine_map_has_no_crosses():
    many = swept(context_length="1..500", batch_size=[1, 2**20])
    assert len(many) > MAX_CROSSES
    assert "does not fit" not in {trace.get("name") for trace in fit_map([Panel("", many)])["data"]}


def test_a_map_of_several_panels_has_one_band_each_that_do_not_overlap_and_one_scale():
    tables = [swept(context_length=[1024, 2048], batch_size=[1, 2], kv_dtype=[name]) for name in ("bf16", "fp8")]
    figure = fit_map([Panel(str(index), table) for index, table in enumerate(tables)])
    upper, lower = figure["layout"]["yaxis"]["domain"], figure["layout"]["yaxis2"]["domain"]
    assert 0 <= lower[0] < lower[1] < upper[0] < upper[1] <= 1
    assert {trace["coloraxis"] for trace in traces(figure, "heatmap")} == {"coloraxis"}


def test_the_largest_point_has_the_most_tokens_in_flight_and_of_equal_ones_the_longest_context():
    table = swept(context_length="1k..1m*2", batch_size="1..1024*2")
    largest = largest_point(table)
    fitting = table[table["fits"]]
    in_flight = fitting["context_length"] * fitting["batch_size"]
    assert largest.context_length * largest.batch_size == in_flight.max()
    assert largest.equals == (in_flight == in_flight.max()).sum() - 1
    assert largest.context_length == fitting["context_length"][in_flight == in_flight.max()].max()


def test_nothing_that_fits_has_no_largest_point():
    assert largest_point(swept(context_length=[2**30], batch_size=[1024])) is None


def test_contexts_beyond_the_models_limit_do_not_count_where_there_are_others():
    table = swept(context_length="128k..256k*2", batch_size=[1])
    assert largest_point(table, 131072).context_length == 131072
    assert largest_point(table[1:], 131072).context_length == 262144


def test_the_largest_point_and_the_context_limit_are_marked_on_the_map():
    table = swept(context_length="64k..256k*2", batch_size=[1, 2])
    figure = fit_map([Panel("", table)], context_limit=131072)
    star = next(trace for trace in figure["data"] if trace.get("name") == "largest point")
    assert (star["x"], star["y"]) == (["128K"], ["2"])
    limit = next(shape for shape in figure["layout"]["shapes"] if shape["type"] == "line")
    assert (limit["x0"], limit["name"]) == (1.5, "context limit 128K")


def test_ticks_of_a_long_axis_of_contexts_are_powers_of_two():
    table = swept(context_length="1k..200k+1k", batch_size="1..100")
    layout = fit_map([Panel("", table)])["layout"]
    assert layout["xaxis"]["tickvals"] == ["1K", "16K", "32K", "64K", "128K"]
    assert layout["yaxis"]["tickvals"] == ["1", "8", "16", "32", "64"]


def test_a_map_of_numbers_measures_no_margin_for_itself():
    layout = fit_map([Panel("", swept(context_length="1k..200k+1k", batch_size="1..100"))])["layout"]
    assert not layout["xaxis"]["automargin"]
    assert not layout["yaxis"]["automargin"]
    assert layout["coloraxis"]["colorbar"]["yref"] == "container"


# ---------------------------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize(("scale", "places"), [(0, ["top left", "bottom center"]), (1, ["top left", "bottom right"])])
def test_the_label_of_a_crossover_near_the_end_of_the_axis_is_not_cut(scale, places):
    contexts = [1024, 2**17, 2**18]  # 122,532 stands at 0.86 of a log axis, at 0.46 of a linear one
    plans = [kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=1)) for _ in range(2)]
    lines = [
        Curve(str(number), plan, kvplan.sweep(plan.scenario, context_length=contexts))
        for number, plan in enumerate(plans)
    ]
    marks = [
        trace for trace in cache_curves(lines, scale=SCALES[scale])["data"] if trace["name"].startswith("Crossover")
    ]
    assert [mark["textposition"] for mark in marks] == places


def test_crossovers_of_compared_lines_are_their_plans_and_are_written_beside_them():
    found = curves(kv_dtype=["bf16", "fp8"])
    marks = [trace for trace in cache_curves(found)["data"] if trace["mode"] == "markers+text"]
    crossovers = [curve.plan.crossover_context_length for curve in found]
    assert [mark["x"] for mark in marks] == [[at] for at in crossovers]
    assert [mark["text"] for mark in marks] == [[f"{at:,}"] for at in crossovers]


def labelled(figure):
    """(context, where its label stands) of each crossover, None for a mark without one."""
    marks = [trace for trace in figure["data"] if trace["name"].startswith("Crossover")]
    return [(mark["x"][0], mark["textposition"] if "text" in mark["mode"] else None) for mark in marks]


def test_a_crossover_is_never_labelled_beside_the_mark_of_another_one():
    """On a linear axis of 512K these marks lie within 6 pixels of a phone's 280: a label would be another's."""
    found = curves(LLAMA.with_changes(batch_size=8), weight_dtype=[None, "fp8_per_tensor", "awq_int4_g128"])
    assert labelled(cache_curves(found, scale="linear")) == [
        (15317, "top right"), (8661, None), (5463, "bottom right"),
    ]  # fmt: skip
    assert None not in dict(labelled(cache_curves(found, scale=SCALES[0]))).values()


@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_a_logarithmic_axis_of_memory_writes_each_tick_in_full(unit):
    axis = cache_curves(curves(kv_dtype=["bf16"]), unit, "logarithmic")["layout"]["yaxis"]
    assert axis["ticktext"][-5:] == ["5", "10", "20", "50", "100"]  # up to 1.3 × 79.1 GiB, of 84.9 GB
    assert axis["tickvals"][-5:] == [5, 10, 20, 50, 100]


def test_a_logarithmic_axis_begins_below_the_weights_also_where_the_cache_is_larger_all_along():
    found = curves(batch_size=[1024])  # 512 tokens of 1,024 keep 64 GiB, the weights are 15
    bottom, top = cache_curves(found, scale="logarithmic")["layout"]["yaxis"]["range"]
    assert 10**bottom == pytest.approx(16_060_522_496 / GIB)
    assert bottom < top


def test_lines_with_other_weights_have_their_own_line_of_weights():
    figure = cache_curves(curves(num_kv_heads=[32, 1]))
    names = [trace["name"] for trace in figure["data"] if trace["mode"] == "lines"]
    assert names == ["Cache, 32", "Weights, 32", "Cache, 1", "Weights, 1", "Usable capacity"]
    dashes = [trace["line"]["dash"] for trace in figure["data"] if trace["mode"] == "lines"]
    assert dashes == ["solid", "solid", "dash", "dash", "dashdot"]


@pytest.mark.parametrize("scale", SCALES)
def test_the_capacity_is_labelled_on_every_scale(scale):
    figure = cache_curves(curves(kv_dtype=["bf16"]), scale=scale)
    (label,) = figure["layout"]["annotations"]
    assert label["text"] == "usable 79.1 GiB"
    height = LLAMA.gpu.usable_bytes / GIB
    assert label["y"] == pytest.approx(np.log10(height) if scale == "logarithmic" else height)
    assert figure["layout"]["xaxis"].get("type") == (None if scale == "linear" else "log")


def test_ticks_of_a_linear_axis_are_multiples_of_a_power_of_two():
    axis = cache_curves(curves(kv_dtype=["bf16"]), scale="linear")["layout"]["xaxis"]
    assert axis["ticktext"] == ["0", "64K", "128K", "192K", "256K", "320K", "384K", "448K", "512K"]


def test_lines_of_totals_hold_the_sweeps_totals():
    table = swept(context_length="1k..64k*2", kv_dtype=["bf16", "fp8"])
    for line in total_lines(table, "context_length", "kv_dtype")["data"]:
        rows = table[table["kv_dtype"] == line["name"]]
        assert line["customdata"].tolist() == rows["total_bytes"].tolist()
        assert line["y"] == pytest.approx(rows["total_bytes"] / GIB)


def test_lines_of_gpus_are_shares_of_each_ones_memory():
    table = swept(batch_size="1..64*2", gpu=GPUS)
    figure = total_lines(table, "batch_size", "gpu")
    for line in figure["data"]:
        rows = table[table["gpu"] == line["name"]]
        assert line["y"] == pytest.approx(rows["total_bytes"] / rows["capacity_bytes"] * 100)
        taken, usable = [int(size) for size in rows["total_bytes"]], int(rows["capacity_bytes"].iloc[0])
        assert line["customdata"].tolist() == [[size, size / GIB] for size in taken]
        assert line["hovertemplate"] == (
            f"{line['name']}<br>sequences at once: %{{x:,d}}<br>%{{y:,.2f}} % of usable"
            "<br>%{customdata[1]:,.2f} GiB (%{customdata[0]:,d} B)"
            f"<br>usable: {kvplan.units.format_exact_bytes(usable)}<extra></extra>"
        )
    assert figure["layout"]["shapes"][0]["y0"] == 100


def test_lines_differ_in_dash_and_marker_and_not_only_in_colour():
    figure = total_lines(swept(context_length=[1024, 2048], gpu=GPUS), "context_length", "gpu")
    assert len({line["line"]["dash"] for line in figure["data"]}) == 3
    assert len({line["marker"]["symbol"] for line in figure["data"]}) == 3
    assert len(set(SERIES)) == len(SERIES)


# ----------------------------------------------------------------------------------------------------------- bars


def test_head_bars_name_each_kind_and_show_the_trained_number_in_full_colour():
    bars = head_bars({32: 524288, 8: 131072}, {32: "MHA", 8: "GQA<br>as trained"}, "KiB a token", "KiB")
    (trace,) = bars["data"]
    assert bars["layout"]["xaxis"]["ticktext"] == ["32<br>MHA", "8<br>GQA<br>as trained"]
    assert trace["y"] == [512, 128]
    assert trace["customdata"] == ["512.0 KiB (524,288 B)", "128.0 KiB (131,072 B)"]
    assert trace["hovertext"] == ["32 KV heads", "8 KV heads"]
    assert trace["hovertemplate"] == "%{hovertext}<br>%{customdata}<extra></extra>"
    assert trace["marker"]["opacity"][1] == 1 > trace["marker"]["opacity"][0]


def test_a_bar_says_its_number_in_the_unit_of_the_axis_alone_so_that_eight_fit_on_a_phone():
    sizes = {8: 1_032_192, 4: 129_024, 2: 11_392, 1: 2_560}  # 1,008 and 126, 11.125 and 2.5 KiB
    (trace,) = head_bars(sizes, dict.fromkeys(sizes, "GQA"), "KiB a token", "KiB")["data"]
    assert trace["text"] == ["1,008", "126", "11.1", "2.5"]
    (trace,) = head_bars(sizes, dict.fromkeys(sizes, "GQA"), "kB a token", "kB")["data"]
    assert trace["text"] == ["1,032.2", "129", "11.4", "2.56"]
    assert trace["customdata"][3] == "2.56 kB (2,560 B)"


def test_words_below_bars_are_never_turned_and_an_axis_of_nothing_has_one_tick():
    kinds = {8: "GQA<br>as trained", 1: "MQA"}
    empty, full = (head_bars({8: size, 1: size}, kinds, "longest context (tokens)")["layout"] for size in (0, 9))
    assert (empty["xaxis"]["tickangle"], full["xaxis"]["tickangle"]) == (0, 0)
    assert (empty["yaxis"]["tickvals"], empty["yaxis"]["range"]) == ([0], [0, 1])
    assert full["yaxis"]["tickformat"] == ",d"
    assert "tickvals" not in full["yaxis"]


def test_a_number_without_limit_has_no_bar_but_says_so():
    (trace,) = head_bars({8: None, 1: 100}, {8: "GQA", 1: "MQA"}, "tokens")["data"]
    assert (trace["y"], trace["text"]) == ([None, 100], ["no limit", "100"])


def test_fleet_bars_show_price_and_number_of_each_gpu_for_each_model():
    rows = cheapest_first(which_gpu(LLAMA, ["llama-3.1-8b", "llama-3.1-70b"], GPUS))
    figure = fleet_bars(rows, by_price=True)
    for trace in figure["data"]:
        mine = [row for row in rows if row.model == trace["name"]]
        assert trace["x"] == [row.rent_per_hour for row in mine]
        assert [text.split()[0] for text in trace["text"]] == [str(row.num_gpus) for row in mine]
    assert len({trace["marker"]["pattern"]["shape"] for trace in figure["data"]}) == 2
    assert fleet_bars(rows, by_price=False)["data"][0]["x"] == [
        row.num_gpus for row in rows if row.model == rows[0].model
    ]


def test_every_figure_is_one_that_plotly_accepts():
    table = swept(context_length=[1024, 2048], batch_size=[1, 2])
    figures = [
        *(cache_curves(curves(kv_dtype=["bf16", "fp8"]), scale=scale) for scale in SCALES),
        fit_map([Panel("one", table), Panel("two", table)], context_limit=1024),
        total_lines(swept(context_length=[1024, 2048], gpu=GPUS), "context_length", "gpu"),
        head_bars({8: 2, 4: None}, {8: "GQA, as trained", 4: "GQA"}, "tokens"),
        fleet_bars(which_gpu(LLAMA, ["llama-3.1-8b"], GPUS), by_price=True),
    ]
    for figure in figures:
        go.Figure(figure)  # refuses what it does not know
        assert figure["layout"]["template"] == {}


def test_a_long_name_leaves_room_for_the_figure_and_is_whole_in_its_hover():
    gpu = define_gpu(name="M" * 80, usable_bytes=80 * GIB, rent_usd_per_hour=1.0)
    figure = fleet_bars(which_gpu(LLAMA, ["llama-3.1-8b"], [gpu]), by_price=True)
    assert figure["layout"]["yaxis"]["ticktext"] == ["M" * 33 + "…"]
    assert figure["data"][0]["y"] == figure["layout"]["yaxis"]["tickvals"] == ["M" * 80]
    table = kvplan.sweep(LLAMA, gpu=[gpu], weight_dtype=["fp8_per_tensor", "awq_int4_g128"])
    axis = fit_map([Panel("", table)], "weight_dtype", "gpu")["layout"]["yaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == (["M" * 80], ["M" * 33 + "…"])


def test_beside_names_the_scale_of_colours_has_no_mark_in_its_middle_which_a_phone_has_no_room_for():
    table = swept(kv_dtype=["bf16", "fp8"], weight_dtype=["fp8_per_tensor", "awq_int4_g128"])
    bar = fit_map([Panel("", table)], "kv_dtype", "weight_dtype")["layout"]["coloraxis"]["colorbar"]
    assert bar["ticktext"] == ["0", "", "79.1 GiB usable"]
