"""The Define page: a model or a GPU of one's own, checked as it is typed, used at once, kept as a file."""

from dataclasses import replace

import pytest

import kvplan
from kvplan.presets import (
    dump_toml,
    gpu_to_table,
    list_gpus,
    list_models,
    load_gpu,
    load_model,
    load_node,
    model_to_table,
    node_to_table,
)
from kvplan.sizes import kept_parts, sizes_of
from kvplan.ui.define_gpu import form_values, wanted_gpu
from kvplan.ui.starting import differences, nearest_presets
from kvplan.variant import variant


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


def test_an_empty_count_is_missing_and_not_some_count_again(app):
    page = on_define(app)
    page.set(own_how="parameters in billions")
    page.set(own_billions=None)
    assert page.value("own_billions") is None
    assert "“Parameters in billions” is missing; give the parameters in billions, such as 3.2" in page.texts()


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


SAME = "Every number is that of {}: change a field and this says what changes."
UNUSUAL = (
    "nemotron-h-8b", "mamba2-2.7b", "jamba-v0.1", "deepseek-v4-flash", "gemma-4-e2b", "llama-3.2-11b-vision",
    "falcon-h1-0.5b", "lfm2.5-vl-1.6b", "llama-4-maverick", "minimax-m3", "nemotron-super-49b", "falcon-40b", "gpt2",
    "qwen3-next-80b-a3b", "deepseek-v3.2", "opt-350m", "qwen-7b-int4",
)  # fmt: skip
"""Presets with layers that no field names, layers that differ, or weights of their own kind."""


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b", *UNUSUAL])
def test_a_form_filled_from_a_preset_is_the_preset(app, name):
    page = on_define(app)
    page.set(start=name)
    assert page.errors() == []
    assert SAME.format(load_model(name).name) in page.texts()
    page.click("use_model")
    kept = page.run.session_state["own_models"][page.value("model")]
    assert kept == load_model(name)


def test_a_form_filled_from_any_preset_is_the_preset(app):
    page = on_define(app)
    for name in list_models():
        page.set(start=name)
        assert page.errors() == [], name
        assert SAME.format(load_model(name).name) in page.texts(), name


def test_a_form_filled_from_any_gpu_is_without_a_fault(app):
    page = on_define(app)
    page.set(define="a GPU")
    for name in list_gpus():
        page.set(start_gpu=name)
        assert page.errors() == [], name
        assert any(text.startswith(f"My {load_gpu(name).name}"[:40]) for text in page.texts()), name


def fields_of(name):
    """What the form holds for a preset, by keyword: the widgets take whole numbers from 1 up, or nothing."""
    return {key: value for key, value in sizes_of(load_model(name)).items() if key != "tied_embeddings"}


@pytest.mark.parametrize("name", list_models())
def test_every_preset_fits_the_fields_of_the_form(name):
    assert all(value is None or 1 <= value <= 2**31 for value in fields_of(name).values())


def test_one_field_of_a_preset_changes_what_it_names_and_the_page_says_so(app):
    page = on_define(app)
    page.set(start="nemotron-h-8b")
    page.set(own_num_kv_heads=4)
    total = load_model("nemotron-h-8b").num_params
    assert page.tables()[0].values.tolist() == [  # 4 layers, 8 heads of 128 become 4
        ["cache a token, bf16", "16,384 B", "8,192 B"],
        ["parameters", f"{total:,}", f"{total - 2 * 8388608:,}"],
        ["attention keys", "16,777,216", "8,388,608"],
        ["attention values", "16,777,216", "8,388,608"],
    ]
    assert "Made from Nemotron-H 8B Base 8K; changed: KV heads 8 to 4." in page.texts()


def test_what_no_field_names_is_said_to_be_carried_over(app):
    page = on_define(app)
    page.set(start="deepseek-v4-flash")
    said = "Kept as in the preset, since no field here names it: 2 layers of sliding window; 41 layers of compressed"
    assert any(text.startswith(said) for text in page.texts())
    assert kept_parts(load_model("llama-3.1-8b")) == ()


def test_a_field_in_which_layers_differ_is_empty_and_says_so(app):
    page = on_define(app)
    page.set(start="gemma-4-26b-a4b")
    assert page.value("own_num_kv_heads") is None
    assert "Its layers have 8, 2. Empty: kept so; a number is for all of them." in [c.value for c in page.run.caption]


def test_a_number_of_layers_that_the_order_does_not_allow_is_refused_beside_the_field(app):
    page = on_define(app)
    page.set(start="nemotron-super-49b")
    page.set(own_num_layers=81)
    assert page.errors() == ["Not possible"]
    assert any("so 80 or a multiple of it is accepted" in text for text in page.texts())


def test_dense_layers_and_interleaved_experts_are_fields(app):
    page = on_define(app)
    page.set(start="llama-4-maverick")
    assert page.value("own_experts_every") == 2
    page.set(own_experts_every=4)
    change = 12 * (3 * 5120 * 16384 - 129 * 3 * 5120 * 8192 - 128 * 5120)  # 12 layers have an MLP instead of experts
    total = load_model("llama-4-maverick").num_params + change
    assert next(metric.help for metric in page.run.metric if metric.label == "Parameters, exact") == f"{total:,}"


def test_every_size_can_be_emptied_in_a_browser_which_fills_a_field_that_has_a_default(app):
    fields = [field for field in on_define(app).run.get("number_input") if field.key.startswith("own_")]
    assert len(fields) == 27  # shape, weights, window, experts, latents and states
    assert not [field.key for field in fields if field.proto.HasField("default")]


def test_nothing_to_start_from_empties_the_form_of_a_preset(app):
    page = on_define(app)
    page.set(start="deepseek-v3")
    page.set(start=None)
    assert [page.value(f"own_{name}") for name in ("num_layers", "num_experts", "name")] == [26, None, "My 3B"]
    assert page.errors() == []


def test_the_count_alone_of_a_preset_keeps_its_cache(app):
    page = on_define(app)
    page.set(start="qwen3-next-80b-a3b")
    page.set(own_how="parameters in billions")
    page.set(own_billions=40.0)
    assert page.metric("Parameters, an estimate") == "40.0 B"
    assert page.tables()[0].values.tolist() == [["parameters", "79,674,391,296", "40,000,000,000"]]
    assert page.metric("Cache a token, bf16") == "24.0 KiB"  # 2 × 12 layers × 2 heads × 256 × 2 B


def test_differences_name_layers_cache_and_parameters():
    llama, gemma = load_model("llama-3.1-8b"), load_model("gemma-2-2b")
    assert differences(llama, llama) == ()
    assert differences(llama, gemma)[0] == (
        "layers", "32 full attention", "13 sliding window, 13 full attention",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ GPUs


def test_a_defined_gpu_is_planned_at_once(app):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(own_gpu_name="Card", own_usable_bytes="20GiB", own_label_bytes="", own_rent=0.5)
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


@pytest.mark.parametrize("name", list_gpus())
def test_a_gpu_form_filled_from_a_preset_is_the_preset(name):
    state = {"own_gpu_name": "Mine", "start_gpu": name, **form_values(load_gpu(name))}
    assert replace(wanted_gpu(state), name=load_gpu(name).name, id=name) == load_gpu(name)


def test_a_gpu_starts_from_a_preset_and_one_figure_changes(app):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(start_gpu="l4-24gb")
    assert page.value("own_bandwidth") == "300GB"
    page.set(own_bandwidth="1TB")
    page.click("use_gpu")
    made = page.run.session_state["own_gpus"][page.value("gpu")]
    assert (made.bandwidth, made.usable_bytes, made.tflops) == (
        10**12, load_gpu("l4-24gb").usable_bytes, load_gpu("l4-24gb").tflops,
    )  # fmt: skip


def test_an_estimated_total_with_its_range_is_shown_as_an_estimate(app):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(own_basis="estimated", own_usable_low="15GiB", own_usable_high="15.9GiB")
    said = next(text for text in page.texts() if text.startswith("My GPU: "))
    assert ", an estimate, from 15.0 GiB" in said
    page.click("use_gpu")
    made = page.run.session_state["own_gpus"][page.value("gpu")]
    assert (made.is_estimate, made.usable_range[0]) == (True, 15 * 2**30)


@pytest.mark.parametrize(
    ("values", "key", "said"),
    [
        ({"own_usable_low": "15.7GiB"}, "own_usable_high", "“Lowest to highest” is 16,857,746,636 to"),
        ({"own_usable_high": "much"}, "own_usable_high", "“Highest” is 'much'; write a size such as 24GiB"),
        ({"own_label_bytes": "8GiB"}, "own_label_bytes", "“Label” is 8GiB, less than “Usable memory” 16750372454B"),
        ({"own_driver_bytes": "15GiB"}, "own_driver_bytes", "“Driver's total” is 15GiB, less than “Usable memory”"),
        ({"own_bandwidth": "2000TB"}, "own_bandwidth", "“Bandwidth a second” is 2"),
    ],
)
def test_a_figure_of_a_gpu_that_cannot_be_is_refused_beside_its_field(app, values, key, said):
    page = on_define(app)
    page.set(define="a GPU")
    page.set(**values)
    assert page.errors() == ["Not possible"]
    assert any(said in text for text in page.texts()), page.texts()
    main = [element.key or element.type for element in page.run.main if element.type != "flex_container"]
    assert [found for found in main[: main.index("error")] if found.startswith("own_")][-1] == key


# ----------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (model_to_table(load_model("gemma-3-27b")), "model"),
        (model_to_table(variant(load_model("deepseek-v4-flash"), {"vocab_size": 1024}, "Changed")), "model"),
        (gpu_to_table(load_gpu("l4-24gb")), "gpu"),
    ],
)
def test_a_preset_file_is_loaded_and_used(app, table, key):
    page = on_define(app)
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("mine.toml", dump_toml(table).encode()).run()
    page.check()
    page.click("use_file")
    assert page.value(key).startswith("my-")


HOSTILE = {
    "a range that does not hold the total": dump_toml({**gpu_to_table(load_gpu("l4-24gb")), "usable_range": [1, 2]}),
    "a node of a GPU that nobody has": dump_toml({**node_to_table(load_node("8xh200-141gb")), "gpu": "none-such"}),
    "another number of parameters": dump_toml({**model_to_table(load_model("gpt2")), "num_params": 7}),
    "a name with markup": dump_toml({**model_to_table(load_model("gpt2")), "name": "<img src=x>"}),
    "an unknown key": dump_toml({**model_to_table(load_model("gpt2")), "code": "import os"}),
    "no layers": dump_toml({**model_to_table(load_model("gpt2")), "layers": []}),
    "a billion layers": dump_toml({**model_to_table(load_model("gpt2")), "layers": ["99999 x full"] * 9}),
    "lists in lists": "schema = 1\nlayers = " + "[" * 200 + "]" * 200,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_in_a_sentence(app, what):
    page = on_define(app)
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("x.toml", HOSTILE[what].encode()).run()
    page.check()
    assert page.errors() == ["This file cannot be loaded"]
    assert not [button for button in page.run.button if button.key == "use_file"]


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


def test_a_node_file_takes_all_its_gpus_into_the_plan(app):
    page = on_define(app)
    page.set(define="a preset file")
    table = dump_toml(node_to_table(load_node("8xh200-141gb")))
    page.run.file_uploader(key="own_file").upload("box.toml", table.encode()).run()
    page.check()
    page.click("use_file")
    assert (page.value("gpu"), page.value("tp")) == ("h200-141gb", "8")


def test_a_downloaded_model_is_loaded_again_as_it_was(app):
    page = on_define(app)
    page.set(start="jamba-v0.1")
    page.set(own_num_experts=8, own_name="Half Jamba")
    page.click("use_model")
    made = page.run.session_state["own_models"][page.value("model")]
    page.go("define")
    page.set(define="a preset file")
    page.run.file_uploader(key="own_file").upload("half.toml", dump_toml(model_to_table(made)).encode()).run()
    page.click("use_file")
    assert page.run.session_state["own_models"][page.value("model")] == made
