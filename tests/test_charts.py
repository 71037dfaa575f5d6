"""Figures: their numbers are the results' own, to the byte."""

import re
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import kvplan
from kvplan import charts
from kvplan.attention import LAYER_KINDS
from kvplan.explain import StripSegment, layer_strip
from kvplan.model import ROLES
from kvplan.presets import list_gpus
from kvplan.units import format_bytes
from tests.contrast import VISIONS, contrast, distance

GIB = 2**30


def planned(model="llama-3.1-8b", gpu="h100-sxm-80gb", **settings):
    return kvplan.plan(kvplan.Scenario(model, gpu, **settings))


def sizes(figure):
    return {trace["hovertemplate"].split("<br>")[0]: trace["customdata"][0][0] for trace in figure["data"]}


def test_every_weight_role_belongs_to_one_family():
    roles = [role for family in charts.WEIGHT_FAMILIES for role in family.roles]
    assert sorted(roles) == sorted(ROLES)


def test_every_kind_of_layer_has_a_look_of_its_own():
    assert set(charts.KIND_LOOKS) == set(LAYER_KINDS)
    assert len(set(charts.KIND_LOOKS.values())) == len(LAYER_KINDS)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt-oss-20b"])
def test_families_add_up_to_the_weights(model):
    plan = planned(model)
    assert sum(charts.bytes_by_family(plan).values()) == plan.weight_bytes


def test_the_memory_bar_holds_every_part_and_adds_up_to_the_capacity():
    plan = planned(adapter_bytes=1000, draft_model="llama-3.2-1b")
    parts = sizes(charts.memory_bar(plan))
    assert sum(parts.values()) == plan.capacity_bytes
    assert parts["KV cache"] == plan.cache_bytes
    assert parts["Adapters"] == 1000
    assert parts["Draft model"] == plan.draft_bytes
    assert parts["Free"] == plan.free_bytes


def test_a_plan_that_does_not_fit_has_no_free_segment_and_reaches_past_the_capacity():
    plan = planned("llama-3.1-70b")
    figure = charts.memory_bar(plan)
    assert "Free" not in sizes(figure)
    assert sum(trace["x"][0] for trace in figure["data"]) == pytest.approx(plan.total_bytes / GIB)
    assert figure["layout"]["xaxis"]["range"][1] > plan.total_bytes / GIB


def test_the_bar_marks_usable_capacity_and_label():
    plan = planned()
    marked = {shape["x0"] for shape in charts.memory_bar(plan)["layout"]["shapes"] if shape["x0"] == shape["x1"]}
    assert {plan.capacity_bytes / GIB, plan.scenario.gpu.label_bytes / GIB} <= marked


@pytest.mark.parametrize(("batch_size", "side"), [(8, "right"), (10_000, "left")])
def test_words_of_the_lines_stand_on_the_side_that_has_room(batch_size, side):
    """Far beyond the capacity its line is close to the left edge, which would cut them off."""
    notes = charts.memory_bar(planned(batch_size=batch_size))["layout"]["annotations"]
    assert [note["xanchor"] for note in notes] == [side, side]


def test_an_estimated_overhead_is_hatched_and_has_a_whisker_to_its_90th_percentile():
    plan = planned()
    figure = charts.memory_bar(plan)
    bar = next(trace for trace in figure["data"] if trace["name"].startswith("Overhead, estimate"))
    assert bar["marker"]["pattern"]["shape"] == "/"
    end = (plan.weight_bytes + plan.cache_bytes + plan.runtime.high_bytes) / GIB
    assert any(shape["x1"] == pytest.approx(end) for shape in figure["layout"]["shapes"])


def test_weights_of_an_estimated_model_are_hatched_on_an_empty_ground():
    counted = kvplan.define_model(
        name="C", num_layers=2, hidden_size=64, num_attention_heads=4, num_kv_heads=4, num_params=10**9
    )
    figure = charts.memory_bar(planned(counted))
    weights = figure["data"][0]
    assert weights["name"] == "Weights, est. 1.86 GiB"
    assert weights["hovertemplate"].startswith("Weights: role not known, an estimate")
    assert weights["marker"]["pattern"]["fillmode"] == "replace"
    assert charts.plan_rows(planned(counted))[5][0] == "weights: role not known, an estimate"
    assert charts.plan_rows(planned(counted))[6] == ("weights, an estimate", "1.86 GiB", "2000000000")
    known = charts.memory_bar(planned())["data"][0]
    assert "pattern" not in known["marker"]


def test_an_estimated_capacity_says_so_and_is_dashed():
    guessed = next(gpu for gpu in map(kvplan.load_gpu, list_gpus()) if gpu.is_estimate)
    layout = charts.memory_bar(planned(gpu=guessed))["layout"]
    assert layout["annotations"][0]["text"].endswith(", an estimate")
    assert layout["annotations"][0]["hovertext"].endswith(f"({guessed.usable_bytes:,} B)")
    assert layout["shapes"][0]["line"]["dash"] == "dash"


def test_a_hover_counts_bytes_to_the_last_digit():
    numbers, written = charts.exact_hover(np.array([[8_823_074_505_693, 2**53]]))
    assert written == "%{customdata:,d} B"  # "," alone keeps twelve digits
    assert numbers.tolist() == [[8_823_074_505_693, 2**53]]


def test_bytes_that_no_browser_counts_exactly_are_words_in_a_hover():
    assert charts.exact_hover(np.array([[2**53 + 1], [7]])) == ([["9,007,199,254,740,993"], ["7"]], "%{customdata} B")
    beside = np.array([[0.5], [0.25]])
    assert charts.exact_hover(np.array([[2**53 + 1], [7]]), beside) == (
        [[["9,007,199,254,740,993", 0.5]], [["7", 0.25]]],
        "%{customdata[0]} B",
    )
    numbers, written = charts.exact_hover(np.array([[8], [7]]), beside)
    assert (numbers.tolist(), written) == ([[[8.0, 0.5]], [[7.0, 0.25]]], "%{customdata[0]:,d} B")


def test_no_hover_leaves_digits_of_a_count_to_plotly():
    sources = {path: path.read_text() for path in (Path(__file__).parents[1] / "kvplan").rglob("*.py")}
    formats = [written for text in sources.values() for written in re.findall(r"%\{+[a-z0-9\[\]]+:([^}]+)\}", text)]
    assert formats.count(",d") > 3
    assert "," not in formats


def test_hovers_speak_the_unit_of_the_axis():
    binary, decimal = charts.memory_bar(planned(), "GiB"), charts.memory_bar(planned(), "GB")
    assert binary["data"][0]["customdata"][0][1] == "1.96 GiB (2,101,346,304 B)"
    assert decimal["data"][0]["customdata"][0][1] == "2.10 GB (2,101,346,304 B)"


def test_a_given_overhead_has_neither():
    figure = charts.memory_bar(planned(overhead_bytes=GIB))
    bar = next(trace for trace in figure["data"] if trace["name"].startswith("Overhead, as given"))
    assert "pattern" not in bar["marker"]
    assert len(figure["layout"]["shapes"]) == 2


def test_gigabytes_and_gibibytes_draw_the_same_bytes():
    binary, decimal = charts.memory_bar(planned(), "GiB"), charts.memory_bar(planned(), "GB")
    assert sizes(binary) == sizes(decimal)
    assert decimal["data"][0]["x"][0] == pytest.approx(binary["data"][0]["x"][0] * GIB / 10**9)


def test_octaves_have_eight_values_each_and_end_at_both_ends():
    assert charts.octave_values(1024, 2048) == [1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048]


def test_the_curve_visits_each_length_at_which_something_happens():
    plan = planned("gemma-3-27b", context_length=5000)
    values = charts.context_values(plan)
    assert {5000, 1024, plan.max_context_length, plan.scenario.model.context_limit} <= set(values)
    assert values == sorted(set(values))


def test_the_curve_begins_where_a_sequence_holds_the_shared_prefix():
    values = charts.context_values(planned(context_length=8000, shared_prefix=6000, image_tokens=1000))
    assert values[0] == 5120  # the first of eight in an octave that is not below 6000 - 1000


def test_the_curve_draws_the_sweeps_bytes_and_marks_the_crossover():
    plan = planned()
    table = kvplan.sweep(plan.scenario, context_length=charts.context_values(plan))
    figure = charts.cache_against_weights(plan, table)
    lines = {trace["name"]: trace for trace in figure["data"]}
    assert lines["KV cache"]["customdata"].tolist() == table["cache_bytes"].tolist()
    assert lines["Everything with overhead"]["customdata"].tolist() == table["total_bytes"].tolist()
    crossing = next(trace for name, trace in lines.items() if name.startswith("Crossover"))
    assert crossing["x"] == [plan.crossover_context_length]
    assert crossing["customdata"][0][0] >= plan.weight_bytes


def test_marks_lie_on_the_lines_where_stages_hold_different_numbers_of_layers():
    """61 layers on two stages: the one that holds the most is another one at short contexts than at long ones."""
    plan = planned("deepseek-v3", batch_size=10_000, pipeline_parallel=2)
    table = kvplan.sweep(plan.scenario, context_length=[plan.crossover_context_length])
    crossing = next(t for t in charts.cache_against_weights(plan, table)["data"] if t["name"].startswith("Crossover"))
    assert crossing["customdata"][0][0] == table["cache_bytes"].item()


@pytest.mark.parametrize("name", ["deepseek-v3", "mamba2-2.7b", "gemma-3-27b"])
def test_a_strip_names_its_kinds_even_where_there_is_only_one(name):
    figure = charts.layer_strip(layer_strip(kvplan.load_model(name)))
    assert figure["layout"]["showlegend"]
    assert len(figure["data"]) == len({layer.cache.label for layer in kvplan.load_model(name).layers})


def test_lines_of_one_chart_differ_in_dash_and_not_only_in_colour():
    plan = planned()
    table = kvplan.sweep(plan.scenario, context_length=[1024, 2048])
    dashes = [t["line"]["dash"] for t in charts.cache_against_weights(plan, table)["data"] if t["mode"] == "lines"]
    assert len(set(dashes)) == len(dashes)
    looks = [charts.CAPACITY, *((color, dash) for color, dash, _ in charts.SERIES)]
    assert len({dash for _, dash in looks}) == len(looks)
    assert len({symbol for _, _, symbol in charts.SERIES}) == len(charts.SERIES)


THEME = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text())["theme"]
GROUNDS = [THEME["light"]["backgroundColor"], THEME["dark"]["backgroundColor"]]
COLORS = {name: value for name, value in vars(charts).items() if re.fullmatch(r"#[0-9A-F]{6}", str(value))}


def test_every_colour_of_a_figure_stands_out_from_both_grounds():
    assert len(COLORS) == 8
    faint = {name: [contrast(color, ground) for ground in GROUNDS] for name, color in COLORS.items()}
    assert {name: found for name, found in faint.items() if min(found) < 3} == {}  # WCAG 1.4.11


def test_each_line_of_a_chart_has_a_colour_of_its_own_that_the_theme_knows():
    colors = [color for color, _, _ in charts.SERIES]
    assert sorted(colors) == sorted(COLORS.values()) == sorted(THEME["chartCategoricalColors"])


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_colours_of_a_chart_look_alike_with_any_colour_vision(vision):
    least = min(distance(one, other, vision) for one, other in combinations(COLORS.values(), 2))
    assert least > 13  # Okabe and Ito's own eight have pairs of 8.5


def test_words_and_outlines_of_both_themes_can_be_seen():
    for name in ("light", "dark"):
        theme = THEME[name]
        for ground in (theme["backgroundColor"], theme["secondaryBackgroundColor"]):
            assert contrast(theme["textColor"], ground) >= 7
            assert contrast(theme["borderColor"], ground) >= 3  # WCAG 2.2 of the outlines of controls
    assert contrast(THEME["light"]["primaryColor"], GROUNDS[0]) >= 4.5
    assert contrast(THEME["dark"]["primaryColor"], GROUNDS[1]) >= 4.5
    assert contrast("#FFFFFF", charts.BLUE) >= 4.5  # letters inside of bars


@pytest.mark.parametrize(("contexts", "ticks"), [([1100, 1200], [1100, 1200]), ([5, 6, 7], [5, 7]), ([9], [9])])
def test_an_axis_between_two_powers_of_two_has_its_ends_as_ticks(contexts, ticks):
    assert charts.context_axis(contexts)["tickvals"] == ticks


def test_context_ticks_are_powers_of_two_and_few():
    axis = charts.context_axis([512, 3000, 4 * 2**20])
    assert all(tick & (tick - 1) == 0 for tick in axis["tickvals"])
    assert len(axis["tickvals"]) <= charts.MAX_TICKS
    assert axis["ticktext"][0] == "512"


def test_the_strip_shows_each_layer_once():
    figure = charts.layer_strip(layer_strip(kvplan.load_model("gemma-3-27b")))
    layers = [
        index
        for trace in figure["data"]
        for base, width in zip(trace["base"], trace["x"], strict=True)
        for index in range(base, base + width)
    ]
    assert sorted(layers) == list(range(62))
    assert {trace["name"] for trace in figure["data"]} == {"full attention (10)", "sliding window (52)"}


def test_every_figure_is_one_that_plotly_accepts():
    plan = planned()
    line = kvplan.sweep(plan.scenario, context_length=[1024, 2048])
    figures = [
        charts.memory_bar(plan),
        charts.cache_against_weights(plan, line),
        charts.layer_strip([StripSegment(0, 2, kind, kind) for kind in LAYER_KINDS]),
        charts.named_bars(["a"], [1.0], ["one"], "GPUs"),
    ]
    for figure in figures:
        go.Figure(figure)  # refuses what it does not know
        assert figure["layout"]["template"] == {}


def test_the_plans_table_holds_every_part_in_exact_bytes():
    plan = planned()
    exact = {what: text for what, _, text in charts.plan_rows(plan)}
    assert ("context length", "8,192", "8192") in charts.plan_rows(planned(context_length=8192))
    assert {"weights: embeddings", "weights: MLP"} <= set(exact)
    assert int(exact["free"]) == plan.free_bytes
    assert int(exact["KV cache"]) == plan.cache_bytes
    assert exact["answer"] == plan.sentence


def test_people_read_the_exact_numbers_of_a_plan_with_separators_and_in_their_unit():
    plan = planned(context_length=8192)
    rows = {what: (rounded, exact) for what, rounded, exact in charts.plan_words(plan, "GB")}
    assert rows["context length"] == ("8,192", "8,192")
    assert rows["KV cache"] == (format_bytes(plan.cache_bytes, decimal=True), f"{plan.cache_bytes:,}")
    assert rows["answer"] == (plan.sentence_in("GB"), plan.sentence)


def test_a_name_made_of_digits_is_no_number():
    own = kvplan.define_model(
        name="70000", num_layers=2, hidden_size=64, num_attention_heads=4, num_kv_heads=4, intermediate_size=128,
        vocab_size=100,
    )  # fmt: skip
    assert charts.plan_words(planned(own))[0] == ("model", "70000", "70000")
