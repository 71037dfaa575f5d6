"""The Define page: a model or a GPU of one's own, checked as it is typed, used at once, kept as a file."""

import pytest

import kvplan
from kvplan.presets import dump_toml, gpu_to_table, load_gpu, load_model, model_to_table
from kvplan.ui.starting import left_out, nearest_presets, starting_values, without_place


def on_define(app, **address):
    opened = app(**address)
    opened.go("define")
    assert not opened.errors()
    return opened


# ---------------------------------------------------------------------------------------------------------- models


def test_a_defined_model_is_planned_at_once(app):
    page = on_define(app)
    page.set(
        own_name="My own 3B", own_num_layers=28, own_hidden_size=2048, own_num_attention_heads=16, own_num_kv_heads=2
    )
    page.click("use_model")
    model = kvplan.define_model(
        name="My own 3B", num_layers=28, hidden_size=2048, num_attention_heads=16, num_kv_heads=2,
        intermediate_size=8192, vocab_size=128256,
    )  # fmt: skip
    assert page.value("model") == "my-my-own-3b"
    assert page.heading() == kvplan.plan(kvplan.Scenario(model, "h100-sxm-80gb")).sentence


def test_the_way_to_the_plan_keeps_what_the_sidebar_says(app):
    page = on_define(app, gpu="t4-16gb", ctx="2k", batch="3")
    page.click("use_model")
    assert [page.value(key) for key in ("model", "gpu", "ctx", "batch")] == ["my-my-3b", "t4-16gb", "2k", 3]


def test_names_that_differ_never_share_an_id(app):
    page = on_define(app)
    for name in ("Model A", "Model-A"):
        page.go("define")
        page.set(own_name=name)
        page.click("use_model")
    assert page.value("model") == "my-model-a-2"


def test_parameters_in_billions_make_an_estimate_that_looks_like_one(app):
    page = on_define(app)
    page.set(own_how="parameters in billions")
    page.set(own_billions=3.0)
    assert page.metric("Parameters, an estimate") == "3.00 B"
    page.click("use_model")
    assert page.heading().startswith("Fits")
    weights = page.figure("Memory of one GPU")["data"][0]
    assert weights["name"] == "Weights, est. 5.59 GiB"
    assert weights["marker"]["pattern"]["fillmode"] == "replace"


def test_layers_and_heads_of_a_model_of_that_size_are_taken_where_the_count_alone_is_known(app):
    page = on_define(app)
    page.set(own_how="parameters in billions")
    page.set(own_billions=70.0)
    page.set(own_like="llama-3.1-70b")
    assert [page.value(f"own_{name}") for name in ("num_layers", "hidden_size", "num_kv_heads")] == [80, 8192, 8]
    assert page.metric("Parameters, an estimate") == "70.0 B"
    assert page.metric("Cache a token, bf16") == "320.0 KiB"  # 2 × 80 layers × 8 heads × 128 × 2 B


def test_models_near_a_count_have_full_attention_and_no_experts():
    assert nearest_presets(13 * 10**9)[0].id == "llama-2-13b"
    assert {model.id for model in nearest_presets(70 * 10**9)} >= {"llama-3-70b", "llama-3.1-70b", "qwen-72b"}
    assert all(layer.cache.kind == "full" for model in nearest_presets(10**9) for layer in model.layers)


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"own_num_kv_heads": 5}, "num_kv_heads", "“KV heads” is 5"),
        ({"own_hidden_size": 3001}, "hidden_size", "“Hidden size” 3001 is not a multiple"),
        ({"own_full_attention_every": 6}, "full_attention_every", "“Full attention every n-th layer” is given"),
        ({"own_num_experts": 8}, "num_experts_per_token", "“Experts that a token reads” is missing"),
        ({"own_kv_lora_rank": 512}, "qk_rope_head_dim", "“Rope width” is missing"),
        ({"own_name": "![](https://example.org/p.png)"}, "name", "model name is"),
    ],
)
def test_what_is_wrong_with_a_definition_stands_beside_the_field_at_fault(app, values, field, said):
    page = on_define(app)
    page.set(**values)
    assert page.errors() == ["Not possible"]
    assert any(said in text for text in page.texts())
    main = [element.key or element.type for element in page.run.main if element.type != "flex_container"]
    keys = [key for key in main[: main.index("error")] if key.startswith("own_")]
    assert keys[-1] == f"own_{field}"


def test_a_fault_in_a_folded_part_says_where_it_is(app):
    page = on_define(app)
    page.set(own_num_experts=8)
    assert any(
        caption.value.endswith("Experts that a token reads, under Mixture of experts.") for caption in page.run.caption
    )


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-2-7b", "llama-3.1-70b", "mistral-7b-v0.1"])
def test_starting_from_a_llama_preset_gives_the_same_model(app, name):
    page = on_define(app)
    page.set(own_start=name)
    assert f"Parameters and cache equal those of {load_model(name).name}." in page.texts()


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite", "minicpm3-4b", "kimi-k2"])
def test_starting_from_a_latent_preset_gives_the_same_model(app, name):
    page = on_define(app)
    page.set(own_start=name)
    assert f"Parameters and cache equal those of {load_model(name).name}." in page.texts()


def test_starting_values_of_deepseek_are_those_of_its_config():
    values = starting_values(load_model("deepseek-v3"))
    assert [values[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")] == [
        512, 64, 128, 128,
    ]  # fmt: skip
    assert [values[name] for name in ("q_lora_rank", "num_dense_layers", "intermediate_size")] == [1536, 3, 18432]
    assert [values[name] for name in ("num_experts", "num_experts_per_token", "num_shared_experts")] == [256, 8, 1]


@pytest.mark.parametrize("name", ["glm-4.5-air", "llama-4-maverick", "gemma-4-26b-a4b", "deepseek-v3.2", "jamba-v0.1"])
def test_a_form_filled_from_a_preset_lacks_nothing_and_says_what_differs(app, name):
    page = on_define(app)
    page.set(own_start=name)
    assert not page.errors()
    assert any("a form cannot hold all" in text for text in page.texts())


def test_starting_values_of_a_window_model_hold_its_pattern():
    values = starting_values(load_model("gemma-3-27b"))
    assert (values["window"], values["full_attention_every"]) == (1024, 6)


def test_a_form_that_cannot_hold_a_preset_says_what_it_leaves_out(app):
    page = on_define(app)
    page.set(own_start="qwen3-30b-a3b")
    assert any("a form cannot hold all" in text for text in page.texts())
    norms = 48 * 2 * 128  # a norm of the queries and one of the keys in each layer
    theirs = 48 * 2 * 2048 + norms
    assert f"norms: {theirs:,} parameters there, {theirs - norms:,} here" in [c.value for c in page.run.caption]


def test_layers_that_the_form_has_no_place_for_are_named():
    assert without_place(load_model("llama-3.1-8b")) == ""
    assert without_place(load_model("mamba2-2.7b")).startswith("64 layers of ")


def test_nothing_is_left_out_of_a_model_that_the_form_holds_whole():
    model = load_model("llama-3.1-8b")
    assert left_out(model, model) == ()


# ------------------------------------------------------------------------------------------------------------ GPUs


def test_a_defined_gpu_is_planned_at_once(app):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(own_gpu_name="Card", own_usable_bytes="20GiB", own_rent=0.5)
    page.click("use_gpu")
    gpu = kvplan.define_gpu(name="Card", usable_bytes=20 * 2**30)
    assert page.heading() == kvplan.plan(kvplan.Scenario("llama-3.1-8b", gpu)).sentence


@pytest.mark.parametrize("text", ["", "a lot", "1B", "-5GiB"])
def test_a_gpu_without_a_size_is_refused_beside_the_field_by_its_label(app, text):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(own_usable_bytes=text)
    assert page.errors() == ["Not possible"]
    assert any("“Usable memory”" in found for found in page.texts())


# ----------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("table", "key"),
    [(model_to_table(load_model("gemma-3-27b")), "model"), (gpu_to_table(load_gpu("l4-24gb")), "gpu")],
)
def test_a_preset_file_is_loaded_and_used(app, table, key):
    page = on_define(app)
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("mine.toml", dump_toml(table).encode()).run()
    page.check()
    page.click("use_file")
    assert page.value(key).startswith("my-")


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\xfe", b"schema = 1", b"= broken", b"schema = 99\nusable_bytes = 1", b"a" * (2**21 + 1)]
)
def test_a_file_that_is_no_preset_is_refused_in_words(app, data):
    page = on_define(app)
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("x.toml", data).run()
    page.check()
    assert page.errors() == ["This file cannot be loaded"]
    assert any("x.toml" in text for text in page.texts())
