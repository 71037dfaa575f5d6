"""Users, Models, Define your own and Share."""

import pytest

import kvplan
from kvplan.fleet import layouts, lengths_from_list, lengths_from_quantiles, plan_users
from kvplan.presets import dump_toml, gpu_to_table, list_gpus, list_models, load_gpu, load_model, model_to_table
from kvplan.share import to_fields
from kvplan.ui.starting import starting_values

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")


def on(app, page, **address):
    opened = app(**address)
    opened.go(page)
    assert not opened.errors()
    return opened


# ---------------------------------------------------------------------------------------------------------- users


def test_users_at_mean_95th_percentile_and_maximum(app):
    table = on(app, "users").tables()[0]
    points = plan_users(LLAMA, 100, lengths_from_quantiles((1024, 4096), (256, 1024), 8192))
    assert table["tokens"].tolist() == [point.tokens for point in points]
    assert table["cache bytes of all users"].tolist() == [point.cache_bytes for point in points]
    assert table["GPUs"].tolist() == [point.num_gpus for point in points]


def test_users_from_a_pasted_list(app):
    page = on(app, "users")
    page.set(lengths="a list of lengths")
    assert page.errors() == ["This cannot be planned"]
    page.set(length_list="100, 200;300\n4000")
    points = plan_users(LLAMA, 100, lengths_from_list([100, 200, 300, 4000]))
    assert page.tables()[0]["tokens"].tolist() == [point.tokens for point in points]


def test_the_fewest_gpus_are_those_of_the_best_layout(app):
    page = on(app, "users", model="llama-3.1-70b")
    lengths = lengths_from_quantiles((1024, 4096), (256, 1024), 8192)
    scenario = kvplan.Scenario("llama-3.1-70b", "h100-sxm-80gb")
    counts = [plan_users(p.scenario, 100, lengths)[1].num_gpus for p in layouts(scenario)]
    assert page.metric("GPUs") == str(min(count for count in counts if count))


@pytest.mark.parametrize("text", ["many", "-1", "0"])
def test_a_length_that_is_no_length_is_refused_in_words(app, text):
    page = on(app, "users")
    page.set(p50=text)
    assert page.errors() == ["This cannot be planned"]


# ---------------------------------------------------------------------------------------------------------- models


def test_every_preset_model_is_listed_with_its_exact_numbers(app):
    table = on(app, "models").tables()[0].set_index("id")
    assert list(table.index) == list(list_models())
    assert table.loc["llama-3.1-8b", "parameters"] == load_model("llama-3.1-8b").num_params
    assert table.loc["deepseek-v3", "cache bytes a token, bf16"] == 70272


def test_models_can_be_filtered_by_words_and_by_kind_of_layer(app):
    page = on(app, "models")
    page.set(filter="gemma 27b", kind="sliding window")
    shown = page.tables()[0]["id"].tolist()
    assert "gemma-3-27b" in shown
    assert all("gemma" in name for name in shown)


def test_three_models_side_by_side_layer_by_layer(app):
    page = on(app, "models")
    page.set(compare=["gemma-3-27b", "deepseek-v3"])
    assert len(page.run.get("plotly_chart")) == 3
    facts, _, layers, _ = page.tables()[1:]
    assert list(facts.columns) == ["what", "llama-3.1-8b", "gemma-3-27b", "deepseek-v3"]
    assert facts.set_index("what").loc["cache a token, bf16", "deepseek-v3"] == "68.6 KiB (70,272 B)"
    assert layers["kind"].tolist()[:2] == ["sliding window", "full attention"]


def test_a_model_is_taken_into_the_plan(app):
    page = on(app, "models", heads="4")
    page.set(compare=["gemma-3-27b"])
    page.click("use_gemma-3-27b")
    assert page.value("model") == "gemma-3-27b"
    assert page.value("heads") == "as trained"


def test_every_gpu_is_listed_and_can_be_compared_and_used(app):
    page = on(app, "models")
    page.set(browse="GPUs")
    assert page.tables()[0]["id"].tolist() == list(list_gpus())
    page.set(compare_gpus=["t4-16gb", "l4-24gb"])
    page.click("use_t4-16gb")
    assert page.value("gpu") == "t4-16gb"


# ---------------------------------------------------------------------------------------------------------- define


def test_a_defined_model_is_planned_at_once(app):
    page = on(app, "define")
    page.set(
        own_name="My own 3B", own_num_layers=28, own_hidden_size=2048, own_num_attention_heads=16, own_num_kv_heads=2
    )
    page.click("use_model")
    page.go("plan")
    model = kvplan.define_model(
        name="My own 3B", num_layers=28, hidden_size=2048, num_attention_heads=16, num_kv_heads=2,
        intermediate_size=8192, vocab_size=128256,
    )  # fmt: skip
    assert page.value("model") == "my-my-own-3b"
    assert page.heading() == kvplan.plan(kvplan.Scenario(model, "h100-sxm-80gb")).sentence


def test_names_that_differ_never_share_an_id(app):
    page = on(app, "define")
    page.set(own_name="Model A")
    page.click("use_model")
    page.set(own_name="Model-A")
    page.click("use_model")
    assert page.value("model") == "my-model-a-2"


def test_parameters_in_billions_make_an_estimate(app):
    page = on(app, "define")
    page.set(own_how="parameters in billions")
    page.set(own_billions=3.0)
    assert page.metric("Parameters, an estimate") == "3.00 B"
    page.click("use_model")
    page.go("plan")
    assert page.heading().startswith("Fits")


@pytest.mark.parametrize(
    ("values", "beside"),
    [
        ({"own_num_kv_heads": 5}, "num_kv_heads"),
        ({"own_hidden_size": 3001}, "hidden_size"),
        ({"own_full_attention_every": 6}, "full_attention_every"),
        ({"own_num_experts": 8}, "num_experts_per_token"),
        ({"own_kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"own_name": "![](https://example.org/p.png)"}, "model name"),
    ],
)
def test_what_is_wrong_with_a_definition_stands_beside_the_field_at_fault(app, values, beside):
    page = on(app, "define")
    page.set(**values)
    assert page.errors() == ["Not possible"]
    assert any(beside in text for text in page.texts())
    main = [element.key or element.type for element in page.run.main if element.type != "flex_container"]
    keys = [key for key in main[: main.index("error")] if key.startswith("own_")]
    assert keys[-1] == f"own_{beside.removeprefix('model ')}"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-2-7b", "llama-3.1-70b", "mistral-7b-v0.1"])
def test_starting_from_a_llama_preset_gives_the_same_model(app, name):
    page = on(app, "define")
    page.set(own_start=name)
    assert f"Parameters and cache equal those of {load_model(name).name}." in page.texts()


def test_starting_values_of_a_window_model_hold_its_pattern():
    values = starting_values(load_model("gemma-3-27b"))
    assert (values["window"], values["full_attention_every"]) == (1024, 6)


def test_a_form_that_cannot_hold_a_preset_says_so(app):
    page = on(app, "define")
    page.set(own_start="qwen3-30b-a3b")
    assert any("a form cannot hold every layer" in text for text in page.texts())


def test_a_defined_gpu_is_planned_at_once(app):
    page = on(app, "define")
    page.set(define="a GPU")
    page.set(own_gpu_name="Card", own_usable_bytes="20GiB", own_rent=0.5)
    page.click("use_gpu")
    page.go("plan")
    gpu = kvplan.define_gpu(name="Card", usable_bytes=20 * 2**30)
    assert page.heading() == kvplan.plan(kvplan.Scenario("llama-3.1-8b", gpu)).sentence


@pytest.mark.parametrize("text", ["", "a lot", "1B", "-5GiB"])
def test_a_gpu_without_a_size_is_refused_beside_the_field(app, text):
    page = on(app, "define")
    page.set(define="a GPU")
    page.set(own_usable_bytes=text)
    assert page.errors() == ["Not possible"]


@pytest.mark.parametrize(
    ("table", "key"),
    [(model_to_table(load_model("gemma-3-27b")), "model"), (gpu_to_table(load_gpu("l4-24gb")), "gpu")],
)
def test_a_preset_file_is_loaded_and_used(app, table, key):
    page = on(app, "define")
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("mine.toml", dump_toml(table).encode()).run()
    page.check()
    page.click("use_file")
    assert page.value(key).startswith("my-")


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\xfe", b"schema = 1", b"= broken", b"schema = 99\nusable_bytes = 1", b"a" * (2**21 + 1)]
)
def test_a_file_that_is_no_preset_is_refused_in_words(app, data):
    page = on(app, "define")
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("x.toml", data).run()
    page.check()
    assert page.errors() == ["This file cannot be loaded"]
    assert any("x.toml" in text for text in page.texts())


# ----------------------------------------------------------------------------------------------------------- share


def test_the_shared_link_reads_back_to_the_scenario(app):
    page = on(app, "share", ctx="32k", kv="fp8", batch="3")
    link = page.run.code[0].value
    assert kvplan.from_link(link) == LLAMA.with_changes(context_length=32768, kv_dtype="fp8", batch_size=3)


def test_the_plan_is_offered_in_four_kinds_of_file(app):
    labels = [button.label for button in on(app, "share").run.get("download_button")]
    assert labels == ["CSV", "JSON", "Markdown", "Page with its figures (HTML)"]


def test_the_shown_plan_holds_every_byte_of_the_answer(app):
    table = on(app, "share").tables()[0].set_index("what")["exact"]
    assert int(table["free"]) == kvplan.plan(LLAMA).free_bytes


def test_a_model_of_ones_own_travels_in_the_link_and_as_a_file(app):
    page = on(app, "define")
    page.click("use_model")
    page.go("share")
    opened = kvplan.from_link(page.run.code[0].value)
    assert opened.model.name == "My 3B"
    assert [button.label for button in page.run.get("download_button")][-1] == "Model as a preset file"


def test_own_models_reach_every_page(app):
    page = on(app, "define")
    page.click("use_model")
    for name in ("plan", "users", "sweep", "models"):
        page.go(name)
        assert not page.errors()


# -------------------------------------------------------------------------------------------------------- extremes


EXTREMES = {
    "largest": LLAMA.with_changes(context_length=2**40, batch_size=2**40),
    "no-limit": kvplan.Scenario("mamba2-2.7b", "h100-sxm-80gb", context_length=2**20),
    "far-too-small": kvplan.Scenario("deepseek-v3", "t4-16gb", context_length=1),
    "no-room": LLAMA.with_changes(memory_fraction=0.001, overhead_bytes=16 * 2**40),
    "blocks": kvplan.Scenario("gpt2", "h100-sxm-80gb", kv_dtype="q4_0"),
}


@pytest.mark.parametrize("page", ["plan", "users", "sweep", "models", "share", "define"])
@pytest.mark.parametrize("name", EXTREMES)
def test_no_scenario_leaves_a_page_without_words(app, page, name):
    opened = app(**to_fields(EXTREMES[name]))
    opened.go(page)
    assert opened.run.header or opened.errors()


@pytest.mark.parametrize("name", EXTREMES)
def test_no_scenario_leaves_a_question_without_words(app, name):
    opened = app(**to_fields(EXTREMES[name]))
    opened.go("sweep")
    for question in opened.run.radio[0].options:
        opened.set(q=question)
        assert opened.run.get("plotly_chart") or opened.errors() or opened.run.info
