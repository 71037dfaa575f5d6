"""The Sweep page: five questions, each with its answer in words, a figure and its table."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import kvplan
from kvplan.charts import octave_values
from kvplan.fleet import layouts_tried, which_gpu, why_no_stages
from kvplan.hardware import define_gpu
from kvplan.presets import load_gpu, load_model
from kvplan.sweep_charts import largest_point
from kvplan.ui.axes import AXES, LABELS, POPULAR_GPUS

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
CROSSOVER, FIT = "When does the cache pass the weights?", "What fits?"
HEADS, GPU, PAIR = "What would more or fewer KV heads cost?", "Which GPU?", "What do two settings do together?"
QUESTIONS = (CROSSOVER, FIT, HEADS, GPU, PAIR)


def asked(app, question, **address):
    page = app(**address)
    page.go("sweep")
    page.set(q=question)
    return page


def numbers(array):
    """A column of a figure's JSON: a list, or base64 with its dtype."""
    return array if isinstance(array, list) else unpacked(array).ravel().tolist()


def unpacked(array):
    """What a figure's JSON has in base64, in its shape."""
    import base64

    shape = [int(count) for count in array["shape"].split(",")]
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).reshape(shape)


def sizes_drawn(trace, across_gpus):
    """The bytes of a trace of a sweep; where GPUs differ they are the first of several numbers of each point."""
    if "customdata" not in trace:
        return []
    return unpacked(trace["customdata"])[..., 0].ravel().tolist() if across_gpus else numbers(trace["customdata"])


def figure(page):
    """The first figure of the page."""
    import json

    return json.loads(page.run.get("plotly_chart")[0].proto.spec)


# ------------------------------------------------------------------------------------------------- every question


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_its_answer_as_heading_and_in_the_figures_text(app, question):
    page = asked(app, question)
    alternatives = [chart.proto.alt for chart in page.run.get("plotly_chart")]
    assert 1 <= len(alternatives) <= 2
    assert alternatives[0].endswith(page.heading())
    assert page.tables()
    assert not page.errors()


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_shows_its_formula_with_the_plans_numbers(app, question):
    page = asked(app, question)
    key = {CROSSOVER: "crossover", FIT: "fit", HEADS: "heads", GPU: "fleet", PAIR: "pair"}[question]
    page.open(f"{key}_formula")
    formulas = [text for table in page.tables() if "how" in table for text in table["how"]]
    assert any("× 128 values × 2 B" in text for text in formulas)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("model", ["deepseek-v3", "mamba2-2.7b", "jamba-v0.1", "gemma-3-27b", "qwen3-next-80b-a3b"])
def test_every_question_answers_for_latent_recurrent_and_mixed_models(app, question, model):
    page = asked(app, question, model=model, gpu="b200-180gb", tp="8")
    page.run.run()
    assert page.heading()
    assert not page.errors()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_model_whose_stored_bytes_are_not_known_says_what_to_choose(app, question):
    page = asked(app, FIT)
    page.set(q=question)
    page.set(model="devstral-small-2-24b")
    assert page.errors()
    assert any("choose a" in text for text in page.texts())
    page.set(weights="bf16")
    assert not [error for error in page.errors() if "cannot be planned so" not in error]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_context_beyond_the_models_limit_is_warned_of(app, question):
    page = asked(app, question, ctx="256k", batch="1")
    assert any("262,144 tokens are beyond the 131,072" in text for text in page.texts())


def test_the_unit_reaches_every_figure(app):
    page = asked(app, FIT, unit="GB")
    page.set(unit="GB")
    colours = figure(page)["layout"]["coloraxis"]
    assert colours["cmax"] == pytest.approx(LLAMA.gpu.usable_bytes / 10**9)
    assert colours["colorbar"]["ticktext"][-1] == "84.9 GB usable"
    page.set(q=HEADS)
    assert "131.1 kB a token" in page.heading()
    assert figure(page)["layout"]["yaxis"]["title"]["text"] == "kB a token"
    page.set(q=CROSSOVER)
    assert figure(page)["layout"]["yaxis"]["title"]["text"] == "GB on each GPU"
    page.set(q=PAIR)
    page.set(across="Context length", up="KV heads")
    assert figure(page)["layout"]["annotations"][0]["text"] == "usable 84.9 GB"


# ----------------------------------------------------------------------------------------------------- crossover


def test_every_line_holds_the_sweeps_cache_bytes(app):
    page = asked(app, CROSSOVER)
    lines = {trace["name"]: trace for trace in page.figure("Cache over context")["data"]}
    for kv in ("bf16", "fp8"):
        table = kvplan.sweep(LLAMA, context_length=octave_values(512, 2**19), kv_dtype=[kv])
        assert numbers(lines[f"Cache, {kv}"]["customdata"]) == table["cache_bytes"].tolist()


def test_heading_and_table_name_each_lines_crossover(app):
    page = asked(app, CROSSOVER)
    expected = [kvplan.plan(LLAMA.with_changes(kv_dtype=kv)).crossover_context_length for kv in ("bf16", "fp8")]
    assert page.tables()[0]["crossover (tokens)"].tolist() == expected
    bf16, fp8 = (f"{at:,}" for at in expected)
    assert page.heading() == f"The cache passes the weights at {bf16} tokens with bf16 and {fp8} with fp8"


def test_a_cache_that_passes_at_once_is_one_token(app):
    assert asked(app, CROSSOVER, batch="1000000").heading() == "The cache passes the weights at 1 token"


def test_a_cache_that_never_passes_says_so(app):
    page = asked(app, CROSSOVER, model="mamba2-2.7b")
    page.set(line="Sequences at once")
    page.set(line_batch_size="1")
    assert page.heading() == "The cache never passes the weights"
    assert page.tables()[0]["the crossover"].tolist() == ["never comes"]


@pytest.mark.parametrize(
    "axis", ["Weight precision", "KV heads", "Sequences at once", "Number of GPUs", "KV cache precision"]
)
@pytest.mark.parametrize("scale", ["linear", "logarithmic"])
def test_any_axis_can_make_the_lines_on_any_scale(app, axis, scale):
    page = asked(app, CROSSOVER)
    page.set(line=axis, line_scale=scale)
    layout = page.figure("Cache over context")["layout"]
    assert (layout["yaxis"].get("type"), layout["xaxis"].get("type")) == {
        "linear": (None, None),
        "logarithmic": ("log", "log"),
    }[scale]
    assert len(page.tables()[0]) >= 2
    assert not page.errors()


def test_a_value_that_cannot_be_planned_is_named_and_the_others_stand(app):
    page = asked(app, CROSSOVER)
    page.set(line="Number of GPUs")
    page.set(line_tensor_parallel="1,3")
    assert page.tables()[0]["Number of GPUs"].tolist() == [1]
    assert any(text.startswith("on 3 GPUs:") for text in page.texts())


def test_lines_begin_where_a_sequence_holds_the_shared_prefix(app):
    page = asked(app, CROSSOVER, ctx="128k", prefix="125000")
    assert min(numbers(page.figure("Cache over context length")["data"][0]["x"])) == 2**17
    assert "at 125,000 tokens" in page.heading()  # the cache passes the weights at 122,532 tokens already
    page.open("crossover_formula")
    assert not page.run.error


# ---------------------------------------------------------------------------------------------------------- fits


def test_contexts_that_do_not_hold_the_shared_prefix_are_left_out_with_the_reason(app):
    page = asked(app, FIT, ctx="64k", prefix="20000")
    assert page.tables()[0]["context_length"].min() == 2**15
    said = "with 1,024 tokens and 4 more: “Shared prompt prefix” is 20,000; a sequence only holds 16,384 tokens"
    assert said in page.texts()
    page.open("fit_formula")
    assert not page.run.error


def test_the_fit_map_its_table_and_its_heading_are_the_sweeps(app):
    page = asked(app, FIT)
    table = kvplan.sweep(LLAMA, context_length="1k..256k*2", batch_size="1..256*2")
    cells = page.figure("What fits")["data"][0]
    assert numbers(cells["customdata"]) == table["total_bytes"].tolist()
    assert page.tables()[0]["total_bytes"].tolist() == table["total_bytes"].tolist()
    assert page.heading() == f"The most that fits on this map: {largest_point(table, 131072).words}"


def test_one_map_for_each_precision(app):
    page = asked(app, FIT)
    page.set(panel="KV cache precision")
    maps = [trace for trace in page.figure("What fits")["data"] if trace["type"] == "heatmap"]
    assert len(maps) == 2
    assert set(page.tables()[0]["kv_dtype"]) == {"bf16", "fp8"}
    assert page.heading() == "The most that fits on these maps: 4 sequences of 128K tokens, with fp8"
    assert "with bf16: 2 sequences of 128K tokens" in page.texts()


def test_numbers_of_kv_heads_that_are_not_chosen_are_mha_the_models_own_and_mqa(app):
    page = asked(app, FIT)
    page.set(panel="KV heads")
    assert page.tables()[0]["num_kv_heads"].unique().tolist() == [32, 8, 1]
    page.set(model="llama-3.1-70b", tp="8")
    assert page.tables()[0]["num_kv_heads"].unique().tolist() == [64, 8, 1]


def test_more_maps_than_can_be_drawn_are_refused_in_words(app):
    page = asked(app, FIT)
    page.set(panel="KV heads")
    assert not page.errors()
    page.set(panel_num_kv_heads=["32", "16", "8", "4", "2"])
    assert page.errors() == ["This cannot be planned"]


@pytest.mark.parametrize("text", ["1k,,4k", "1..0", "8x", str(10**30), "1k to 8k", "", "0", "-1", "1..5*1"])
@pytest.mark.parametrize("axis", ["context_length", "batch_size"])
def test_an_axis_that_cannot_be_read_is_refused_in_words(app, axis, text):
    page = asked(app, FIT)
    page.set(**{f"map_{axis}": text})
    assert page.errors() == ["This cannot be planned"]
    name = {"context_length": "context length", "batch_size": "number of sequences"}[axis]
    assert any(name in said or LABELS[axis] in said for said in page.texts())


def test_twenty_thousand_points_are_drawn_and_one_more_row_is_refused(app):
    page = asked(app, FIT)
    page.set(map_context_length="1..20000", map_batch_size="1")
    assert len(page.tables()[0]) == 20_000
    page.set(map_batch_size="1,2")
    assert page.errors() == ["This cannot be planned"]
    assert any(text.startswith("40,000 points are asked for; at most 20,000") for text in page.texts())
    page.set(map_context_length="1..20001", map_batch_size="1")
    assert page.errors() == ["This cannot be planned"]


def test_numbers_beyond_what_a_table_can_hold_are_refused_in_words(app):
    page = asked(app, FIT)
    page.set(map_context_length=str(2**40), map_batch_size=str(2**40))
    assert page.errors() == ["This cannot be planned"]


# --------------------------------------------------------------------------------------------------- two settings


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(LABELS.values(), 2)))
def test_any_two_settings_make_a_figure_and_the_table_of_exactly_its_points(app, first, second):
    page = asked(app, PAIR)
    page.set(across=first, up=second)
    assert not page.errors()
    (table,) = page.tables()
    columns = [column for column, label in LABELS.items() if label in (first, second)]
    assert set(columns) == set(AXES) & set(table.columns)
    drawn = [
        size
        for trace in figure(page)["data"]
        if trace["type"] == "heatmap" or "lines" in trace.get("mode", "")
        for size in sizes_drawn(trace, LABELS["gpu"] in (first, second))
    ]
    assert sorted(drawn) == sorted(table["total_bytes"].tolist())


def test_lines_that_never_fit_and_contexts_beyond_the_models_limit_are_said(app):
    page = asked(app, PAIR)
    page.set(across="Context length", up="GPU")
    page.set(pair_gpu=["t4-16gb", "h100-sxm-80gb"], pair_context_length="16k,32k,256k")
    assert kvplan.plan(LLAMA.with_changes(context_length=2**15)).fits
    assert page.heading() == "Fits up to 32K tokens on h100-sxm-80gb; 1 line never fits"
    assert "What is above 131,072 tokens is beyond what the model is made for." in [c.value for c in page.run.caption]


def test_lines_that_reach_equally_far_are_not_told_apart_and_a_figure_claims_no_more_than_it_draws(app):
    """16,384 tokens take 2 GiB of cache and fit in 79.1 GiB by far: the figure ends there, the memory does not."""
    page = asked(app, PAIR, batch="1")
    page.set(across="Context length", up="Number of GPUs")
    page.set(pair_context_length="8k,16k", pair_tensor_parallel="1,2,4,8")
    assert page.heading() == "Fits up to 16K tokens on every line"
    said = "Of the values drawn: more may fit between two of them, or beyond the last."
    assert said in [caption.value for caption in page.run.caption]


def test_one_sequence_is_singular(app):
    page = asked(app, PAIR, ctx="128k")
    page.set(across="Sequences at once", up="KV cache precision")
    page.set(pair_batch_size="1,8", pair_kv_dtype=["bf16"])
    assert kvplan.plan(LLAMA.with_changes(context_length=2**17, batch_size=1)).fits
    assert page.heading() == "Fits up to 1 sequence with bf16"


def test_a_pair_of_settings_equals_the_sweep(app):
    page = asked(app, PAIR)
    page.set(across="KV heads")
    table = page.tables()[0]
    expected = kvplan.sweep(LLAMA, num_kv_heads=[32, 8, 1], gpu=POPULAR_GPUS)
    for column in ("gpu", "num_kv_heads", "cache_bytes", "weight_bytes", "overhead_bytes", "total_bytes", "fits"):
        assert table[column].tolist() == expected[column].tolist()
    assert page.heading() == f"{expected['fits'].sum()} of 36 combinations fit"


def test_combinations_that_cannot_be_planned_are_named_and_the_others_stand(app):
    page = asked(app, PAIR)
    page.set(across="Number of GPUs", up="KV cache precision")
    page.set(pair_tensor_parallel="1,2,3")
    assert sorted(page.tables()[0]["tensor_parallel"].unique()) == [1, 2]
    assert any(text.startswith("on 3 GPUs with bf16 and 1 more:") for text in page.texts())


def test_more_values_than_lines_can_be_told_apart_make_a_map(app):
    page = asked(app, PAIR)
    page.set(across="Context length", up="GPU")
    assert figure(page)["data"][0]["type"] == "heatmap"
    page.set(pair_gpu=["t4-16gb", "h100-sxm-80gb"])
    assert {trace["name"] for trace in figure(page)["data"]} == {"t4-16gb", "h100-sxm-80gb"}


@pytest.mark.parametrize(
    ("question", "chosen"),
    [(CROSSOVER, {"line": "Number of GPUs"}), (FIT, {"panel": "Number of GPUs"}), (PAIR, {"up": "Number of GPUs"})],
)
def test_numbers_of_gpus_say_what_they_are_in_all_with_stages_and_replicas(app, question, chosen):
    page = asked(app, question, pp="2", dp="3")
    page.set(**chosen)
    said = "Of each stage of each replica, as in the sidebar: 8 GPUs here × 2 stages × 3 replicas = 48 GPUs in all."
    assert said in [caption.value for caption in page.run.caption]


@pytest.mark.parametrize(
    ("layout", "of"),
    [
        ({}, ""), ({"pp": "2"}, " of each stage"), ({"dp": "2"}, " of each replica"),
        ({"pp": "2", "dp": "2"}, " of each stage of each replica"),
    ],
)  # fmt: skip
def test_an_answer_on_some_gpus_says_of_what_where_they_are_not_all(app, layout, of):
    page = asked(app, FIT, **layout)
    page.set(panel="Number of GPUs")
    page.set(panel_tensor_parallel="1,2")
    assert page.heading().endswith(f", on 2 GPUs{of}")
    page = asked(app, CROSSOVER, **layout)
    page.set(line="Number of GPUs")
    page.set(line_tensor_parallel="2")
    assert f"Cache, 2 GPUs{of}" in {trace["name"] for trace in figure(page)["data"]}


def test_two_equal_settings_are_refused_in_words(app):
    page = asked(app, PAIR)
    page.set(across="GPU")
    assert page.errors() == ["This cannot be planned"]


def test_kv_heads_of_a_model_that_has_none_are_refused_with_the_reason(app):
    page = asked(app, PAIR, model="deepseek-v3", tp="8", gpu="b200-180gb")
    assert not page.errors()
    page.set(across="KV heads")
    assert page.errors() == ["This cannot be planned"]
    assert any("keeps no KV heads to change" in text for text in page.texts())


# ------------------------------------------------------------------------------------------------------- KV heads


def test_kv_heads_from_mha_to_mqa(app):
    page = asked(app, HEADS)
    table = page.tables()[0]
    assert table["KV heads"].tolist() == [32, 16, 8, 4, 2, 1]
    assert table["kind"].tolist() == ["MHA", "GQA", "GQA, as trained", "GQA", "GQA", "MQA"]
    assert table["cache bytes a token"].tolist() == [524288, 262144, 131072, 65536, 32768, 16384]
    plans = [kvplan.plan(LLAMA.with_changes(num_kv_heads=n)) for n in (32, 16, 8, 4, 2, 1)]
    assert table["longest context that fits"].tolist() == [p.max_context_length for p in plans]
    assert any("decided before training" in text for text in page.texts())


def test_bytes_of_a_token_that_are_divided_are_said_to_be_each_gpus(app):
    page = asked(app, HEADS, tp="2")
    assert page.heading() == (
        "GQA with 8 KV heads, as trained, takes 64.0 KiB a token on each GPU; MHA with 32 KV heads 256.0 KiB and MQA "
        "with 1 KV head 16.0 KiB"
    )
    assert page.figure("Cache bytes a token")["layout"]["yaxis"]["title"]["text"] == "KiB a token on each GPU"


def test_the_bars_mark_the_number_that_was_trained(app):
    page = asked(app, HEADS)
    words = page.figure("Cache bytes a token")["layout"]["xaxis"]["ticktext"]
    assert [word for word in words if "as trained" in word] == ["8<br>GQA<br>as trained"]


@pytest.mark.parametrize("model", ["deepseek-v3", "mamba2-2.7b"])
def test_a_model_without_that_axis_says_why(app, model):
    page = asked(app, HEADS, model=model, tp="8" if model == "deepseek-v3" else "1")
    assert not page.run.get("plotly_chart")
    assert page.heading() == "This model has no number of KV heads to change"
    with pytest.raises(kvplan.KvplanError) as reason:
        kvplan.load_model(model).with_kv_heads(1)
    assert str(reason.value) in page.texts()


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("qwen3-next-80b-a3b", {}, "Of 48 layers these have no KV heads, and stay as they are: 36 recurrent state."),
        ("gemma-3-27b", {}, "52 layers keep a window: once it is full, a token more adds nothing there."),
        (
            "llama-3.1-8b",
            {"tp": "8"},
            "Each of 8 GPUs holds one KV head at least: fewer than 8 are copied and save no more.",
        ),
    ],
)
def test_why_the_number_of_kv_heads_changes_less_than_one_may_expect(app, model, settings, said):
    page = asked(app, HEADS, model=model, **settings)
    assert said in page.texts()


def test_a_model_without_kv_heads_speaks_of_no_figures(app):
    page = asked(app, HEADS, model="deepseek-v3")
    assert not page.run.get("plotly_chart")
    assert not any("figures" in text for text in page.texts())


# ------------------------------------------------------------------------------------------------------ which GPU


def test_which_gpu_ranks_by_price_and_by_number(app):
    page = asked(app, GPU)
    rows = {row.gpu: row for row in which_gpu(LLAMA, ["llama-3.1-8b"], POPULAR_GPUS)}
    table = page.tables()[0]
    assert dict(zip(table["GPU"], table["GPUs"], strict=True)) == {gpu: row.num_gpus for gpu, row in rows.items()}
    prices = [price for price in table["USD an hour"] if price == price]
    assert prices == sorted(prices)
    first = table.iloc[0]
    assert page.heading() == f"Cheapest: {first['GPUs']} × {first['GPU']}, ${first['USD an hour']:.2f} an hour"
    page.set(fleet_by="fewest GPUs")
    counts = page.tables()[0]["GPUs"].dropna().tolist()
    assert counts == sorted(counts)
    assert page.heading().startswith(f"Fewest: {counts[0]} × ")


def test_the_other_ranking_stands_below_the_answer(app):
    page = asked(app, GPU)
    rows = which_gpu(LLAMA, ["llama-3.1-8b"], POPULAR_GPUS)
    best = min((row for row in rows if row.num_gpus), key=lambda row: (row.num_gpus, row.rent_per_hour))
    assert f"Fewest: {best.num_gpus} × {best.gpu}, ${best.rent_per_hour:.2f} an hour" in page.texts()


def test_what_does_not_fit_in_any_layout_is_named_below_the_figure(app):
    page = asked(app, GPU, batch="1000", ctx="32k")
    rows = which_gpu(LLAMA.with_changes(batch_size=1000, context_length=2**15), ["llama-3.1-8b"], POPULAR_GPUS)
    absent = sorted(row.gpu for row in rows if row.num_gpus is None)
    assert "t4-16gb" in absent
    assert f"Not in the figure, nothing fits: {', '.join(absent)}" in page.texts()


def test_of_several_models_what_is_left_out_names_the_model_that_it_is_about(app):
    page = asked(app, GPU, model="llama-3.1-70b", draft="llama-3.2-1b", ctx="32k", batch="16", weights="fp8")
    page.set(fleet_models=["gemma-3-27b"], fleet_gpus=["t4-16gb", "h200-141gb"])
    assert "Not in the figure, nothing fits: t4-16gb for llama-3.1-70b" in page.texts()
    assert any(text.startswith("llama-3.1-70b: pipeline stages are left out") for text in page.texts())
    assert "gemma-3-27b" in page.tables()[0].query("GPU == 't4-16gb' and `pipeline stages` > 1")["model"].tolist()


def test_with_a_draft_model_the_fewest_gpus_say_why_no_stages_were_tried(app):
    here = LLAMA.with_changes(draft_model="llama-3.2-1b")
    said = f"P{why_no_stages(here)[1:]}."
    for page, scenario in ((asked(app, GPU, draft="llama-3.2-1b"), here), (asked(app, GPU), LLAMA)):
        page.open("fleet_formula")
        assert (said in page.texts()) == (scenario is here)
        best = scenario.with_changes(gpu=page.tables()[0]["GPU"][0])
        assert f"{layouts_tried(best)}. The first that fits has the fewest GPUs." in page.texts()


def test_the_sidebars_own_gpu_is_always_among_them(app):
    page = asked(app, GPU, gpu="a10-24gb")
    page.set(fleet_gpus=[])
    assert page.tables()[0]["GPU"].tolist() == ["a10-24gb"]


def test_two_models_are_laid_side_by_side(app):
    page = asked(app, GPU)
    page.set(fleet_models=["llama-3.1-70b"])
    assert [trace["name"] for trace in page.figure("Fewest GPUs")["data"]] == ["llama-3.1-8b", "llama-3.1-70b"]
    assert len(page.tables()[0]) == 2 * len(POPULAR_GPUS)
    assert "for llama-3.1-70b" in page.heading()
    shown = page.run.header[0].value
    assert shown.count(r"\$") == shown.count("$") == 2  # what stands between two bare ones is read as a formula


def test_a_gpu_of_ones_own_without_price_says_that_none_is_known(app):
    page = app()
    own = replace(define_gpu(name="Own 40", usable_bytes=40 * 2**30), id="my-own-40")
    page.run.session_state["own_gpus"] = {own.id: own}
    page.run.run()
    page.set(gpu=own.id)
    page.go("sweep")
    page.set(q=GPU)
    table = page.tables()[0].set_index("GPU")
    assert table.loc["my-own-40", "price of"] == "no price known"
    assert table.loc["my-own-40", "USD an hour"] != table.loc["my-own-40", "USD an hour"]
    assert "Not in the figure, no price known: my-own-40" in page.texts()
    page.set(fleet_by="fewest GPUs", fleet_gpus=[])
    assert page.heading() == "Fewest: 1 × my-own-40, no price known"
    assert not any(text.startswith("Not in the figure") for text in page.texts())


def test_another_model_that_cannot_be_planned_says_so_and_the_first_stands(app):
    page = asked(app, GPU)
    page.set(fleet_models=["devstral-small-2-24b"])
    assert page.errors() == ["devstral-small-2-24b cannot be planned so"]
    assert set(page.tables()[0]["model"]) == {"llama-3.1-8b"}


@pytest.mark.parametrize(("question", "name"), [(GPU, "which-gpu.json"), (PAIR, "two-settings.json")])
def test_a_file_has_the_sources_of_every_model_and_gpu_that_its_rows_are_of(app, monkeypatch, question, name):
    files = {}
    monkeypatch.setattr("streamlit.download_button", lambda _, make, name, *__, **___: files.update({name: make}))
    page = asked(app, question, fleet_models="qwen3-30b-a3b")
    sources = {row["source"] for row in json.loads(files[name]())["sources"]}
    assert {load_gpu(gpu).usable_basis for gpu in POPULAR_GPUS} <= sources
    assert (load_model("qwen3-30b-a3b").source in sources) == (question == GPU)
    assert any("an hour on" in source for source in sources) == (question == GPU)
    assert not page.errors()


def test_whether_a_row_fits_stands_before_its_bytes(app):
    """Behind seven columns of numbers it was beside the screen of 1,440 pixels."""
    (shown,) = asked(app, "What fits?").run.dataframe
    assert list(shown.proto.column_order)[:4] == ["context_length", "batch_size", "fits", "cache_bytes"]
    assert len(shown.proto.column_order) == len(shown.value.columns)


def test_the_sum_of_a_sweep_names_the_precision_of_the_weights_beside_them_and_not_that_of_the_cache(app):
    page = asked(app, "What fits?", weights="fp8_per_tensor", kv="fp8")
    page.open("fit_formula")
    rows = page.tables()[-1].set_index("what")
    assert rows.loc["weights", "how"] == "fp8_per_tensor"
