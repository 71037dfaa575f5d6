"""The Models page: every preset to browse, and two or three side by side; GPUs likewise."""

import json

import kvplan
from kvplan.presets import list_gpus, list_models, load_gpu, load_model


def on_models(app, **address):
    opened = app(**address)
    opened.go("models")
    assert not opened.errors()
    return opened


def test_every_preset_model_is_listed_with_its_exact_numbers(app):
    table = on_models(app).tables()[0].set_index("id")
    assert list(table.index) == list(list_models())
    assert table.loc["llama-3.1-8b", "parameters"] == load_model("llama-3.1-8b").num_params
    assert table.loc["deepseek-v3", "cache bytes a token, bf16"] == 70272


def test_models_can_be_filtered_by_words_and_by_kind_of_layer(app):
    page = on_models(app)
    page.set(filter="gemma 27b", kind="sliding window")
    shown = page.tables()[0]["id"].tolist()
    assert "gemma-3-27b" in shown
    assert all("gemma" in name for name in shown)


def test_a_kind_of_layer_is_its_whole_name(app):
    page = on_models(app)
    page.set(kind="latent attention")
    shown = page.tables()[0]["id"].tolist()
    assert "deepseek-v3" in shown
    assert "deepseek-v3.2" not in shown  # sparse latent attention
    page.set(kind="attention and state")
    assert page.tables()[0]["id"].tolist() == ["falcon-h1-0.5b"]


def test_a_cell_of_a_line_is_as_wide_as_its_text(app):
    page = on_models(app)
    page.set(compare=["deepseek-v4-flash"])
    longest = page.tables()[2]["deepseek-v4-flash"].str.len().max()
    columns = json.loads(page.run.dataframe[2].proto.columns)
    assert columns["deepseek-v4-flash"]["width"] >= 6 * longest


def test_a_source_is_a_link_only_where_it_is_one(app):
    sources = on_models(app).tables()[0].set_index("id")["source"]
    assert sources["llama-3.1-8b"] == "https://huggingface.co/meta-llama/Llama-3.1-8B"


def test_three_models_side_by_side_layer_by_layer(app):
    page = on_models(app)
    page.set(compare=["gemma-3-27b", "deepseek-v3"])
    assert len(page.run.get("plotly_chart")) == 3
    facts, layers = page.tables()[1:]
    assert list(facts.columns) == ["what", "llama-3.1-8b", "gemma-3-27b", "deepseek-v3"]
    assert facts.set_index("what").loc["cache a token, bf16", "deepseek-v3"] == "68.6 KiB (70,272 B)"
    assert facts.set_index("what").loc["parameters, vision", "llama-3.1-8b"] == "none"
    assert layers.iloc[0].tolist() == [
        "0 to 4", "full attention: 4,096 B a token", "sliding window: 8,192 B a token up to 1,024",
        "latent attention: 1,152 B a token",
    ]  # fmt: skip
    assert layers.iloc[-1].tolist()[:2] == ["61", "–"]


def test_side_by_side_speaks_the_visitors_unit(app):
    page = on_models(app)
    page.set(unit="GB")
    facts = page.tables()[1].set_index("what")["llama-3.1-8b"]
    assert facts["weights as published"] == "16.1 GB (16,060,522,496 B)"


def test_a_model_is_taken_into_the_plan_and_the_plan_is_shown(app):
    page = on_models(app, heads="4")
    page.set(compare=["gemma-3-27b"])
    page.click("use_gemma-3-27b")
    assert page.value("model") == "gemma-3-27b"
    assert page.value("heads") == "as trained"
    assert page.heading() == kvplan.plan(kvplan.Scenario("gemma-3-27b", "h100-sxm-80gb")).sentence


def test_every_gpu_is_listed_and_can_be_compared_and_used(app):
    page = on_models(app)
    page.set(browse="GPUs")
    assert page.tables()[0]["id"].tolist() == list(list_gpus())
    page.set(compare_gpus=["t4-16gb", "l4-24gb"])
    facts = page.tables()[1].set_index("what")
    assert facts.loc["bandwidth", "t4-16gb"] == "320.0 GB (320,000,000,000 B) a second"  # as data sheets say it
    page.click("use_t4-16gb")
    assert page.value("gpu") == "t4-16gb"
    assert page.heading() == kvplan.plan(kvplan.Scenario("llama-3.1-8b", "t4-16gb")).sentence


def test_prices_are_numbers_or_nothing_and_carry_their_date(app):
    page = on_models(app)
    page.set(browse="GPUs")
    table = page.tables()[0].set_index("id")
    rent = load_gpu("h100-sxm-80gb").rent_per_hour
    assert table.loc["h100-sxm-80gb", "rent, USD an hour"] == rent.usd
    assert table.loc["h100-sxm-80gb", "rent seen"] == rent.date


def test_models_and_gpus_of_ones_own_are_listed_first_and_never_as_links(app):
    page = app()
    page.go("define")
    page.click("use_model")
    page.go("models")
    first = page.tables()[0].iloc[0]
    assert first["id"] == "my-my-3b"
    assert not isinstance(first["source"], str)
