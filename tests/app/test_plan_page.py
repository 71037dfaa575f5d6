"""The Plan page: the answer, its parts, and what goes wrong."""

import pytest

import kvplan
from kvplan.explain import ASSUMPTIONS, cache_terms, limit_lines, size_reasons, weight_terms
from kvplan.share import to_fields
from kvplan.suggest import suggestions
from kvplan.ui.fields import FIELDS

LLAMA = ("llama-3.1-8b", "h100-sxm-80gb")


def planned(**settings):
    return kvplan.plan(kvplan.Scenario(*LLAMA, **settings))


def sizes(figure):
    return [trace["customdata"][0][0] for trace in figure["data"]]


def test_the_page_opens_with_the_plan_of_every_default(app):
    assert app().heading() == planned().sentence


def test_the_bars_segments_add_up_to_the_capacity(app):
    assert sum(sizes(app().figure("Memory of one GPU"))) == planned().capacity_bytes


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [
        ("ctx", "32k", {"context_length": 32768}),
        ("batch", 3, {"batch_size": 3}),
        ("kv", "fp8", {"kv_dtype": "fp8"}),
        ("weights", "int8_per_channel", {"weight_dtype": "int8_per_channel"}),
        ("heads", "4", {"num_kv_heads": 4}),
        ("tp", "2", {"tensor_parallel": 2}),
        ("pp", 2, {"pipeline_parallel": 2}),
        ("fraction", 0.8, {"memory_fraction": 0.8}),
        ("overhead", "3GiB", {"overhead_bytes": 3 * 2**30}),
        ("images", "576", {"image_tokens": 576}),
        ("prefix", "1k", {"shared_prefix": 1024}),
        ("adapters", "300MiB", {"adapter_bytes": 300 * 2**20}),
        ("draft", "llama-3.1-8b", {"draft_model": "llama-3.1-8b"}),
    ],
)
def test_each_widget_changes_its_setting(app, key, value, setting):
    page = app()
    page.set(**{key: value})
    plan = planned(**setting)
    assert page.heading() == plan.sentence
    parts = sizes(page.figure("Memory of one GPU"))
    assert sum(parts) == max(plan.capacity_bytes, plan.total_bytes)


def test_the_widgets_above_are_all_fields_but_model_and_gpu():
    covered = {"ctx", "batch", "kv", "weights", "heads", "tp", "pp", "dp", "ep", "fraction", "overhead", "images"}
    assert set(FIELDS) == covered | {"prefix", "adapters", "draft", "model", "gpu"}


def test_model_and_gpu_are_the_chosen_presets(app):
    page = app(model="llama-3.1-70b", gpu="a100-sxm-80gb")
    assert page.heading() == kvplan.plan(kvplan.Scenario("llama-3.1-70b", "a100-sxm-80gb")).sentence


def test_another_model_brings_its_own_kv_heads(app):
    page = app(heads="4")
    page.set(model="llama-3.1-70b")
    assert page.value("heads") == "as trained"


def test_the_limits_stand_in_the_row_of_numbers(app):
    page, plan = app(), planned()
    assert page.metric("Largest batch") == str(plan.max_batch_size)
    assert page.metric("Longest context") == f"{plan.max_context_length:,}"
    assert page.metric("Crossover") == f"{plan.crossover_context_length:,}"
    assert page.metric("Cache a token") == "131,072 B"
    assert page.metric("Decode step, at least") == f"{plan.decode_floor_seconds * 1000:,.2f} ms"


def test_the_formula_shows_terms_that_add_up_and_its_five_assumptions(app):
    page, plan = app(), planned()
    page.open("formula")
    cache, weights, overhead, limits = page.tables()[-4:]
    assert cache["bytes"].sum() == plan.cache_bytes == sum(term.bytes for term in cache_terms(plan))
    assert weights["bytes"].sum() == plan.weight_bytes == sum(term.bytes for term in weight_terms(plan))
    assert overhead["bytes"].sum() == plan.overhead_bytes
    assert [tuple(row) for row in limits.itertuples(index=False)] == [tuple(line) for line in limit_lines(plan)]
    assert [text[3:] for text in page.texts()[-5:]] == list(ASSUMPTIONS)


def test_a_plan_that_does_not_fit_says_what_would_and_applies_it(app):
    page = app(model="llama-3.1-70b", ctx="16k", batch="20", tp="2", weights="fp8_per_tensor")
    scenario = kvplan.Scenario(
        "llama-3.1-70b", "h100-sxm-80gb", context_length=2**14, batch_size=20, tensor_parallel=2,
        weight_dtype="fp8_per_tensor",
    )  # fmt: skip
    found = {suggestion.lever: suggestion for suggestion in suggestions(scenario)}
    assert {suggestion.sentence for suggestion in found.values()} <= set(page.texts())
    assert any(text.startswith("As few of these GPUs as hold it: 3 GPUs") for text in page.texts())
    page.click("apply_kv_dtype")
    assert page.heading() == found["kv_dtype"].plan.sentence
    assert page.value("kv") == found["kv_dtype"].scenario.kv_dtype


def test_where_no_single_change_is_enough_the_fewest_gpus_are_applied(app):
    page = app(model="llama-3.1-70b", ctx="128k", batch="16")
    assert "No single change is enough." in page.texts()
    assert "As few of these GPUs as hold it: 12 GPUs in 3 stages." in page.texts()
    page.click("apply_fewest")
    assert (page.value("tp"), page.value("pp")) == ("4", 3)
    assert page.heading().startswith("Fits")


NO_STAGES = "Pipeline stages are left out, since a draft model over them is not planned: engines place it differently."


def test_with_a_draft_model_the_fewest_gpus_say_why_no_stages_were_tried(app):
    page = app(model="llama-3.1-70b", ctx="128k", batch="16", draft="llama-3.1-8b")
    assert NO_STAGES in page.texts()
    assert "Tried: 1, 2, 4, 8 GPUs side by side." in page.texts()
    assert NO_STAGES not in app(model="llama-3.1-70b", ctx="128k", batch="16").texts()


def test_where_no_number_of_gpus_is_enough_the_page_says_so(app):
    # 64 sequences of 1m tokens × 128 KiB on at most 64 GPUs: 128 GiB of cache on each, of 14.6 GiB usable
    page = app(gpu="t4-16gb", ctx="1m", batch="64")
    assert "No single change is enough." in page.texts()
    assert "No number of these GPUs that was tried holds it." in page.texts()
    assert "Tried: 1, 2, 4 GPUs side by side, each in 1 to 16 pipeline stages." in page.texts()


def test_the_line_below_the_answer_says_what_is_set_out_of_sight(app):
    """What another person's link shares, adds or lays apart makes the answer, and its fields are folded."""
    page = app(model="deepseek-v3", gpu="h200-141gb", tp="4", dp="2", ep="yes", prefix="1000", images="256")
    said = (
        "DeepSeek V3 on 8 × H200 SXM 141GB, 2 in data parallel with whole experts: 8 × 8,192 tokens + 256 image tokens"
    )
    assert f"{said}, the first 1,000 shared, cache bf16, weights as published" in page.texts()


def test_the_kinds_of_layer_say_what_one_layer_keeps(app):
    texts = app(model="gemma-3-27b").texts()
    assert "52 × sliding window: each keeps 8,192 B a token up to 1,024 of a sequence" in texts
    assert "10 × full attention: each keeps 8,192 B a token of a sequence" in texts


def test_the_page_says_why_the_cache_is_as_small_as_it_is(app):
    page = app(model="gemma-3-27b")
    (windows, heads) = size_reasons(kvplan.plan(kvplan.Scenario("gemma-3-27b", "h100-sxm-80gb")))
    assert {f"{windows}.", f"{heads}."} <= set(page.texts())


@pytest.mark.parametrize(
    ("key", "text", "where"),
    [
        ("overhead", "much", "Run-time overhead on each GPU, under More settings"),
        ("adapters", "-1", "Adapters on each GPU, under Easily forgotten"),
        ("prefix", "1m", "Shared prompt prefix, under Easily forgotten"),
    ],
)
def test_a_setting_out_of_sight_is_named_with_the_button_that_holds_it(app, key, text, where):
    page = app()
    page.set(**{key: text})
    assert f"Not possible: {where}" in page.errors()
    assert f"Change it in the sidebar: {where}." in [caption.value for caption in page.run.caption]


def test_an_error_names_a_setting_by_its_label(app):
    page = app(model="llama-3.1-70b")
    page.set(prefix="1m")
    assert any(text.startswith("“Shared prompt prefix” is 1,048,576") for text in page.texts())


def test_every_size_on_the_page_is_of_the_chosen_kind_of_unit(app):
    page = app(model="llama-3.1-70b")
    page.set(unit="GB")
    page.open("formula")
    page.open("overheads")
    cells = [str(cell) for table in page.tables() for cell in table.to_numpy().flat]
    said = [*page.texts(), page.heading(), *(caption.value for caption in page.run.caption), *cells]
    assert [text for text in said if "GiB" in text] == []
    graphs = "45 public vLLM start-up logs: median 0.69 GB, 90th percentile 1.86 GB, at most 7.04 GB"
    assert any(graphs in text for text in said)  # 0.64, 1.73 and 6.56 GiB
    assert not any("iB" in trace["name"] for trace in page.figure("Memory of one GPU")["data"])


def test_an_estimated_overhead_says_so_with_spread_and_source(app):
    page = app()
    assert any("estimate" in caption.value and "90th percentile" in caption.value for caption in page.run.caption)
    page.set(overhead="2GiB")
    assert not any("estimate" in caption.value for caption in page.run.caption)


def test_a_context_beyond_the_models_limit_is_planned_with_a_warning(app):
    page = app(ctx="256k")
    assert page.heading() == planned(context_length=2**18).sentence
    assert planned(context_length=2**18).warnings[0] in page.texts()


def test_the_unit_can_be_switched_to_decimal(app):
    page = app()
    page.set(unit="GB")
    assert page.figure("Memory of one GPU")["layout"]["xaxis"]["title"]["text"] == "GB"


def test_a_versioned_link_sets_every_field(app):
    scenario = kvplan.Scenario(
        "llama-3.1-70b", "a100-sxm-80gb", context_length=50_000, batch_size=3, weight_dtype="fp8_per_tensor",
        kv_dtype="fp8", num_kv_heads=4, tensor_parallel=4, memory_fraction=0.85, overhead_bytes=3 * 2**30,
        image_tokens=100, shared_prefix=500, adapter_bytes=1000, draft_model="llama-3.1-8b",
    )  # fmt: skip
    page = app(**to_fields(scenario))
    assert page.heading() == kvplan.plan(scenario).sentence
    assert page.value("ctx") == "50000"


def test_the_engine_of_a_link_stays_in_the_scenario(app):
    scenario = kvplan.Scenario(*LLAMA, engine="vllm")
    page = app(**to_fields(scenario))
    page.go("share")
    assert kvplan.from_link(page.run.code[0].value) == scenario


def test_a_link_that_cannot_be_read_whole_says_so_once_and_opens_the_rest(app):
    page = app(v="1", model="no-such-model", gpu="h100-sxm-80gb", ctx="4k")
    assert page.heading() == planned(context_length=4096).sentence
    assert any("no-such-model" in text for text in page.texts())
    page.run.run()
    assert not any("no-such-model" in text for text in page.texts())


def test_a_damaged_value_of_a_link_becomes_the_default_and_is_named(app):
    page = app(v="1", model="llama-3.1-8b", gpu="h100-sxm-80gb", ctx="lots", batch="3")
    assert page.heading() == planned(batch_size=3).sentence
    assert any("lots" in text for text in page.texts())


@pytest.mark.parametrize(
    "setting",
    [{"batch_size": 2**40}, {"memory_fraction": 0.001}, {"memory_fraction": 0.123456}, {"context_length": 2**40}],
)
def test_a_link_may_hold_any_value_that_a_plan_accepts(app, setting):
    scenario = kvplan.Scenario(*LLAMA, **setting)
    assert app(**to_fields(scenario)).heading() == kvplan.plan(scenario).sentence


def test_a_link_may_carry_a_model_that_is_no_preset(app):
    model = kvplan.define_model(
        name="Another", num_layers=4, hidden_size=256, num_attention_heads=4, num_kv_heads=2, intermediate_size=512,
        vocab_size=1000,
    )  # fmt: skip
    scenario = kvplan.Scenario(model, "h100-sxm-80gb")
    page = app(**to_fields(scenario))
    assert page.heading() == kvplan.plan(scenario).sentence
    assert page.value("model") == "my-another"


def test_an_address_part_that_is_not_understood_is_named(app):
    page = app(batch="many", model="nonsense")
    assert page.heading() == planned().sentence
    (said,) = [text for text in page.texts() if "many" in text]
    assert "nonsense" in said


UNPLANNABLE = [
    {"ctx": "lots"},
    {"ctx": "0"},
    {"kv": "bf17"},
    {"weights": "int4"},
    {"tp": "3"},
    {"heads": "5"},
    {"overhead": "much"},
    {"prefix": "1m"},
    {"adapters": "-1"},
    {"kv": "![](https://example.org/p.png)"},
]


@pytest.mark.parametrize("values", UNPLANNABLE)
def test_what_cannot_be_planned_is_a_sentence_beside_its_cause_and_no_traceback(app, values):
    page = app(values)
    cannot, where = page.errors()
    assert cannot == "This cannot be planned"
    assert where.startswith("Not possible: ")
    assert not page.run.header
    assert where in [error.value for error in page.run.sidebar.error]


@pytest.mark.parametrize("values", UNPLANNABLE)
def test_an_address_that_cannot_be_planned_opens_the_rest_and_names_it(app, values):
    page = app(**values, batch="3")
    assert page.heading() == planned(batch_size=3).sentence
    (key,) = values
    assert any(f"the link's {key}" in text for text in page.texts())


def test_an_example_fills_in_the_whole_scenario(app):
    name = kvplan.list_scenarios()[0]
    page = app(ctx="64k")
    page.set(example=name)
    fields = dict(kvplan.load_scenario(name).fields)
    assert page.heading() == kvplan.plan(kvplan.Scenario(**fields)).sentence
    assert kvplan.load_scenario(name).lesson in page.texts()


def test_the_adapter_calculator_fills_in_its_bytes(app):
    page = app()
    page.set(lora_rank=8, lora_count=3)
    page.click("fill_adapters")
    from kvplan.fleet import adapter_bytes

    assert page.value("adapters") == str(adapter_bytes(kvplan.load_model("llama-3.1-8b"), 8, 3))
