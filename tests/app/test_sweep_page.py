"""The Sweep page: four questions, each a figure and its table."""

import numpy as np
import pytest

import kvplan
from kvplan.charts import octave_values
from kvplan.fleet import which_gpu
from kvplan.ui.axes import POPULAR_GPUS

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
CROSSOVER, FIT = "When does the cache pass the weights?", "What fits?"
HEADS, GPU = "What would more or fewer KV heads cost?", "Which GPU?"


def asked(app, question, **address):
    page = app(**address)
    page.go("sweep")
    page.set(q=question)
    return page


def numbers(array):
    """A column of a figure's JSON: a list, or base64 with its dtype."""
    import base64

    if isinstance(array, list):
        return array
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).tolist()


def test_every_line_holds_the_sweeps_cache_bytes(app):
    page = asked(app, CROSSOVER)
    lines = {trace["name"]: trace for trace in page.figure("Cache over context")["data"]}
    for kv in ("bf16", "fp8"):
        table = kvplan.sweep(LLAMA, context_length=octave_values(512, 2**19), kv_dtype=[kv])
        assert numbers(lines[f"Cache, {kv}"]["customdata"]) == table["cache_bytes"].tolist()


def test_the_table_beside_names_each_lines_crossover(app):
    table = asked(app, CROSSOVER).tables()[0]
    expected = [kvplan.plan(LLAMA.with_changes(kv_dtype=kv)).crossover_context_length for kv in ("bf16", "fp8")]
    assert table["crossover (tokens)"].tolist() == expected


@pytest.mark.parametrize(
    "axis", ["Weight precision", "KV heads", "Sequences at once", "Number of GPUs", "KV cache precision"]
)
def test_any_axis_can_make_the_lines(app, axis):
    page = asked(app, CROSSOVER)
    page.set(line=axis, line_log=True)
    assert page.figure("Cache over context")["layout"]["yaxis"]["type"] == "log"
    assert len(page.tables()[0]) >= 2
    assert not page.errors()


def test_a_value_that_cannot_be_planned_is_named_and_the_others_stand(app):
    page = asked(app, CROSSOVER)
    page.set(line="Number of GPUs")
    page.set(line_tensor_parallel="1,3")
    assert page.tables()[0]["Number of GPUs"].tolist() == ["1"]
    assert any(text.startswith("3:") for text in page.texts())


def test_the_fit_map_and_its_table_hold_the_sweep(app):
    page = asked(app, FIT)
    table = kvplan.sweep(LLAMA, context_length="1k..256k*2", batch_size="1..256*2")
    cells = page.figure("What fits")["data"][0]
    assert numbers(cells["customdata"]) == table["total_bytes"].tolist()
    assert page.tables()[0]["total_bytes"].tolist() == table["total_bytes"].tolist()
    assert "Most tokens in flight that fit: 1 × 256K tokens." in page.texts()


@pytest.mark.parametrize(
    ("across", "up"),
    [("GPU", "Context length"), ("KV cache precision", "KV heads"), ("Context length", "Weight precision")],
)
def test_the_map_takes_any_two_axes(app, across, up):
    page = asked(app, FIT)
    page.set(across=across, up=up)
    assert page.figure("What fits")["data"][0]["type"] == "heatmap"
    assert not page.errors()


def test_one_map_for_each_precision(app):
    page = asked(app, FIT)
    page.set(panel="KV cache precision")
    maps = [trace for trace in page.figure("What fits")["data"] if trace["type"] == "heatmap"]
    assert len(maps) == 2
    assert set(page.tables()[0]["kv_dtype"]) == {"bf16", "fp8"}


def test_more_maps_than_can_be_drawn_are_refused_in_words(app):
    page = asked(app, FIT)
    page.set(panel="KV heads")
    assert not page.errors()
    page.set(panel_num_kv_heads=["32", "16", "8", "4", "2"])
    assert page.errors() == ["This cannot be planned"]


def test_two_equal_axes_are_refused_in_words(app):
    page = asked(app, FIT)
    page.set(up="Context length")
    assert page.errors() == ["This cannot be planned"]


def test_an_axis_that_cannot_be_read_is_refused_in_words(app):
    page = asked(app, FIT)
    page.set(map_context_length="1k to 8k")
    assert page.errors() == ["This cannot be planned"]
    assert any("1k to 8k" in text for text in page.texts())


def test_kv_heads_from_mha_to_mqa(app):
    page = asked(app, HEADS)
    table = page.tables()[0]
    assert table["KV heads"].tolist() == [32, 16, 8, 4, 2, 1]
    assert table["cache bytes a token"].tolist() == [524288, 262144, 131072, 65536, 32768, 16384]
    plans = [kvplan.plan(LLAMA.with_changes(num_kv_heads=n)) for n in (32, 16, 8, 4, 2, 1)]
    assert table["longest context that fits"].tolist() == [p.max_context_length for p in plans]
    assert any("decided before training" in text for text in page.texts())


@pytest.mark.parametrize("model", ["deepseek-v3", "mamba2-2.7b"])
def test_a_model_without_that_axis_says_why(app, model):
    page = asked(app, HEADS, model=model)
    assert not page.run.get("plotly_chart")
    with pytest.raises(kvplan.KvplanError) as reason:
        kvplan.load_model(model).with_kv_heads(1)
    assert str(reason.value) in page.texts()


def test_which_gpu_ranks_by_price_and_by_number(app):
    page = asked(app, GPU)
    rows = {row.gpu: row for row in which_gpu(LLAMA, ["llama-3.1-8b"], POPULAR_GPUS)}
    table = page.tables()[0]
    assert dict(zip(table["GPU"], table["GPUs"], strict=True)) == {gpu: row.num_gpus for gpu, row in rows.items()}
    prices = [price for price in table["USD an hour"] if price == price]
    assert prices == sorted(prices)
    page.set(fleet_by="fewest GPUs")
    counts = page.tables()[0]["GPUs"].dropna().tolist()
    assert counts == sorted(counts)


def test_no_choice_of_gpus_is_refused_in_words(app):
    page = asked(app, GPU)
    page.set(fleet_gpus=[])
    assert page.errors() == ["This cannot be planned"]
