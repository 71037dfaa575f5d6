"""Import: a config or a GGUF header, pasted or uploaded, as a model of the plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import kvplan
from kvplan.errors import UnsupportedConfigError
from kvplan.importer import hub, import_config
from kvplan.importer.gguf import import_gguf_header
from kvplan.library import read_preset
from tests.importer.test_gguf import header, small
from tests.importer.test_quantized_formats import SMALL, gptq_index

DATA = Path(__file__).resolve().parents[1] / "data"
CONFIGS = DATA / "configs"
GEMMA = CONFIGS / "google__gemma-3-27b-it.json"
WITHOUT_DTYPE = CONFIGS / "openai-community__gpt2.json"
NO_RULE = CONFIGS / "RWKV__rwkv-5-world-1b5.json"
HOSTILE = "![](https://example.org/p.png) <img src=x> [a](https://example.org) :material/home: $x$"
NOWHERE = {
    "architectures": ["NewForCausalLM"], "model_type": HOSTILE, "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000, "torch_dtype": "bfloat16",
    HOSTILE: HOSTILE,
}  # fmt: skip
"""A config that nothing counts, whose own words are Markdown."""


@pytest.fixture
def page(app):
    opened = app()
    opened.go("importing")
    return opened


@pytest.fixture
def refusing(page, monkeypatch):
    """The page where nothing can be measured: a refusal comes at once."""

    def refuse(*_, **__):
        raise UnsupportedConfigError("config.json: cannot be measured: no such class")

    monkeypatch.setattr("kvplan.importer.measure_parts", refuse)
    return page


def paste(page, config):
    page.set(import_text=config if isinstance(config, str) else json.dumps(config))


def upload(page, key, name, data):
    page.run.file_uploader(key=key).upload(name, data).run()
    page.check()


def figures(page):
    return next(table.set_index("what")["value"] for table in page.tables() if "what" in table)


def headings(page):
    return [heading.value for heading in page.run.subheader]


# --------------------------------------------------------------------------------------------------- what is shown


def test_a_pasted_config_is_understood_by_tower_layer_and_byte(page):
    paste(page, GEMMA.read_text())
    model = import_config(GEMMA)
    assert headings(page)[0] == "Understood: counted by the rules"
    shown = figures(page)
    for tower, count in model.params_by_tower.items():
        assert shown[f"parameters, {tower}"] == f"{count:,}"
    assert shown["cache of 131,072 tokens, bf16"].endswith(f"({model.cache_bytes(131_072):,} B)")
    assert shown["context limit"] == "131,072 tokens"
    assert (shown["layers, sliding window"], shown["layers, full attention"]) == ("52", "10")
    assert any(f"({model.weight_bytes():,} B) as published" in text for text in page.texts())


def test_the_table_of_layers_and_the_strip_hold_every_layer_of_the_model(page):
    paste(page, GEMMA.read_text())
    model = import_config(GEMMA)
    table = next(table for table in page.tables() if "each keeps of a sequence" in table)
    assert len(table) == len(model.layer_runs)
    assert table["layers"].tolist()[:3] == ["0 to 4", "5", "6 to 10"]
    assert table["each keeps of a sequence"].tolist()[:2] == ["8,192 B a token up to 1,024", "8,192 B a token"]
    strip = page.figure("The model's layers in order")
    assert sum(sum(trace["x"]) for trace in strip["data"]) == 62


def test_the_weights_of_all_roles_add_up_to_the_model(page):
    paste(page, GEMMA.read_text())
    model = import_config(GEMMA)
    table = next(table for table in page.tables() if "role" in table)
    assert (table["parameters"].sum(), table["bytes"].sum()) == (model.num_params, model.weight_bytes())


def test_every_note_of_the_model_stands_on_the_page_once(page):
    paste(page, GEMMA.read_text())
    texts = page.texts()
    assert all(texts.count(note) == 1 for note in import_config(GEMMA).notes)


def test_keys_that_change_no_byte_are_listed_with_the_reason(page):
    paste(page, GEMMA.read_text())
    table = next(table for table in page.tables() if "why" in table).set_index("key")["why"]
    assert table["initializer_range"] == "only used in training"
    assert "hidden_size" not in table


def test_an_uploaded_config_is_the_same_as_a_pasted_one(page):
    page.set(import_from="config.json")
    upload(page, "import_file", "config.json", GEMMA.read_bytes())
    assert figures(page)["active for a token"] == f"{import_config(GEMMA).num_active_params:,}"


def test_a_companion_says_how_the_weights_are_stored(page):
    name = "nvidia__DeepSeek-V3.2-NVFP4"
    config, companion = CONFIGS / f"{name}.json", DATA / "quant_configs" / f"{name}.hf_quant_config.json"
    paste(page, config.read_text())
    upload(page, "import_quant", "hf_quant_config.json", companion.read_bytes())
    size = import_config(config, companion).weight_bytes()
    assert size != import_config(config).weight_bytes()
    assert any(f"({size:,} B) as published" in text for text in page.texts())


def with_index(page, **index):
    page.set(import_text=GEMMA.read_text())
    upload(page, "import_index", "model.safetensors.index.json", json.dumps(index).encode())


def test_an_index_is_compared_with_what_is_counted(page):
    size = import_config(GEMMA).weight_bytes()
    with_index(page, metadata={"total_size": size}, weight_map={"model.norm.weight": "a"})
    assert headings(page)[1] == "Stored tensors: every byte is explained"
    with_index(page, metadata={"total_size": size + 5}, weight_map={"model.norm.weight": "a"})
    assert headings(page)[1] == "Stored tensors: not every byte is explained"
    assert "+5 B are not explained" in page.texts()


def test_the_names_of_an_index_make_the_bytes_of_an_old_gptq_checkpoint_exact(page):
    old = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False}
    config = {**SMALL, "quantization_config": old}
    paste(page, config)
    assert page.metric("Weights as published") == "not known"
    assert any("give the model.safetensors.index.json beside it" in text for text in page.texts())
    upload(page, "import_index", "model.safetensors.index.json", json.dumps(gptq_index()).encode())
    model = import_config(config, index=gptq_index())
    assert any(f"({model.weight_bytes():,} B) as published" in text for text in page.texts())
    assert sum(" stores 1 B" in text for text in page.texts()) == 1


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": {"a": "b"}, "metadata": {"total_size": -1}}])
def test_a_broken_index_is_refused_below_its_field(page, index):
    with_index(page, **index)
    assert page.errors() == ["This file cannot be read"]
    assert any(text.startswith("the index: ") for text in page.texts())


# ------------------------------------------------------------------------------------------------------- dtype, name


def test_a_dtype_is_asked_for_only_where_the_config_states_none(page):
    paste(page, GEMMA.read_text())
    assert not [box for box in page.run.selectbox if box.key == "import_dtype"]
    paste(page, WITHOUT_DTYPE.read_text())
    assert page.metric("Weights as published") == "not known"
    page.set(import_dtype="float16")
    size = import_config(WITHOUT_DTYPE, dtype="float16").weight_bytes()
    assert any(f"({size:,} B) as published" in text for text in page.texts())


def test_a_name_that_pages_would_render_is_refused_below_its_field(page):
    paste(page, GEMMA.read_text())
    page.set(import_name="![](https://example.org/p.png)")
    assert page.errors() == ["Not possible"]
    assert any(text.startswith("model name is") for text in page.texts())


# ---------------------------------------------------------------------------------------------------------- in use


def test_an_imported_model_is_planned_by_one_click_which_lands_on_the_answer(page):
    paste(page, GEMMA.read_text())
    page.set(import_name="Mine 27B")
    page.click("use_import")
    assert page.value("model") == "my-mine-27b"
    assert page.heading() == kvplan.plan(kvplan.Scenario(import_config(GEMMA), "h100-sxm-80gb")).sentence


def test_a_dtype_of_the_cache_that_a_layer_cannot_have_is_said_in_its_row(app):
    opened = app(kv="q8_0")
    opened.go("importing")
    paste(opened, (CONFIGS / "deepseek-ai__DeepSeek-V3.2.json").read_text())
    assert any("no known engine stores" in text for text in figures(opened))


def test_the_preset_file_reads_back_to_the_same_model(page, monkeypatch):
    kept = {}
    monkeypatch.setattr("streamlit.download_button", lambda _, make, name, *__, **___: kept.update({name: make}))
    paste(page, GEMMA.read_text())
    ((name, make),) = kept.items()
    assert read_preset(make(), name) == import_config(GEMMA)


# ------------------------------------------------------------------------------------------------------- estimates


def test_an_estimate_is_offered_only_after_a_refusal(refusing):
    paste(refusing, GEMMA.read_text())
    assert not refusing.run.checkbox
    paste(refusing, NO_RULE.read_text())
    assert refusing.errors() == ["No exact figure for this config"]
    assert [box.label for box in refusing.run.checkbox] == ["Treat it as an estimate"]


def test_an_accepted_estimate_is_marked_and_says_what_is_not_exact(refusing):
    paste(refusing, NOWHERE)
    refusing.set(import_estimate=True)
    assert headings(refusing)[0] == "Understood: an estimate"
    assert (
        refusing.metric("Parameters, an estimate") == f"{import_config(NOWHERE, estimate=True).num_params / 1e6:.2f} M"
    )
    assert any("it is counted as a Llama layout" in text for text in refusing.texts())
    refusing.click("use_import")
    assert refusing.value("own_models")[refusing.value("model")].is_estimate
    assert any(text.startswith("Imported model is itself an estimate") for text in refusing.texts())


def test_another_config_needs_an_estimate_to_be_accepted_again(refusing):
    paste(refusing, NOWHERE)
    refusing.set(import_estimate=True)
    paste(refusing, {**NOWHERE, "hidden_size": 512})
    assert refusing.value("import_estimate") is False
    assert refusing.errors() == ["No exact figure for this config"]


def test_what_is_measured_says_with_which_transformers(page, monkeypatch):
    plain = {**json.loads(WITHOUT_DTYPE.read_text()), "torch_dtype": "float32"}
    rules = import_config(plain)

    def measured(config, *_, measure, **__):
        if measure == "never":
            raise UnsupportedConfigError("config.json: no rule knows it")
        return replace(rules, notes=("measured with transformers 9.9: Some, on shapes without values",))

    monkeypatch.setattr("kvplan.importer.import_config", measured)
    paste(page, plain)
    assert headings(page)[0] == "Understood: measured with transformers 9.9"


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", '{"model_type": 5}', "{}", '{"model_type": "llama", "hidden_size": NaN}', "[" * 500],
)
def test_a_broken_config_is_refused_in_words(page, text):
    paste(page, text)
    assert len(page.errors()) == 1
    assert not page.run.metric
    assert not page.run.checkbox


@pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b"[1]", b" " * (4 * 2**20 + 1)])
@pytest.mark.parametrize("key", ["import_file", "import_quant", "import_index"])
def test_a_file_that_cannot_be_read_is_named(page, key, data):
    page.set(import_from="config.json")
    upload(page, key, "x.json", data)
    assert page.errors() == ["This file cannot be read"]
    assert any("x.json" in text for text in page.texts())


def test_words_of_a_config_reach_no_element_that_renders_markdown(refusing):
    paste(refusing, NOWHERE)
    refusing.set(import_estimate=True)
    rendered = ("markdown", "header", "subheader", "caption", "metric", "warning", "error", "button", "expander")
    shown = [str(element.proto) for kind in rendered for element in refusing.run.get(kind)]
    assert shown
    assert not any("example.org" in text for text in shown)


# ---------------------------------------------------------------------------------------------------------- the hub


def test_a_hub_id_is_not_looked_up_and_the_page_says_so(page, monkeypatch):
    monkeypatch.delenv("KVPLAN_HUB", raising=False)
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("asked"))
    page.set(import_from="a hub id")
    assert page.texts()[0].startswith("Hub ids are not enabled")


@pytest.fixture
def hub_page(page, monkeypatch):
    """The page where the hub is allowed and has one model; the addresses that were asked for."""
    asked = []

    def fetch(url, _):
        asked.append(url)
        return GEMMA.read_bytes() if url.endswith("google/gemma-3-27b-it/resolve/main/config.json") else None

    monkeypatch.setenv("KVPLAN_HUB", "1")
    monkeypatch.setattr(hub, "fetch", fetch)
    page.set(import_from="a hub id")
    return page, asked


def fetch(page, repo):
    page._widget("import_repo").set_value(repo)
    next(button for button in page.run.get("button") if button.label == "Fetch its config").click().run()
    page.check()


def test_a_hub_id_is_fetched_once_it_is_asked_for_and_not_again_by_a_rerun(hub_page):
    page, asked = hub_page
    assert not asked
    assert page.texts()[0].startswith("Three small files are asked of huggingface.co")
    fetch(page, "google/gemma-3-27b-it")
    assert len(asked) == 3
    assert figures(page)["active for a token"] == f"{import_config(GEMMA).num_active_params:,}"
    page.click("use_import")
    assert len(asked) == 3
    assert page.value("model") == "my-gemma-3-27b-it"
    assert page.value("own_models")["my-gemma-3-27b-it"].source == "https://huggingface.co/google/gemma-3-27b-it"


@pytest.mark.parametrize(
    ("repo", "reason"),
    [("nobody/nothing", "nobody/nothing has no config.json at main"), ("../secret", "write it as org/name")],
)
def test_what_the_hub_does_not_have_is_said_in_words(hub_page, repo, reason):
    page, _ = hub_page
    fetch(page, repo)
    assert page.errors() == ["This model cannot be fetched"]
    assert any(reason in text for text in page.texts())


# --------------------------------------------------------------------------------------------------- files beside it


def test_headers_of_all_parts_are_compared_with_what_is_counted(page):
    config = {
        "model_type": "llama", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 16, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    paste(page, config)
    size = import_config(config).weight_bytes()
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    files = [(names[0], stored({"a": size - 32}), ""), (names[1], stored({"b": 32}), "")]
    page.run.file_uploader(key="import_index").set_value(files).run()
    page.check()
    assert headings(page)[1] == "Stored tensors: every byte is explained"
    page.run.file_uploader(key="import_index").set_value(files[:1]).run()
    page.check()
    assert page.errors() == ["This file cannot be read"]
    assert any(names[1] in text for text in page.texts())


def stored(sizes):
    """The header of a .safetensors file with byte tensors of these sizes."""
    table, end = {}, 0
    for name, size in sizes.items():
        table[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head


def test_what_a_checkpoint_stores_besides_is_named_apart(page):
    config = CONFIGS / "deepseek-ai__DeepSeek-V3.json"
    paste(page, config.read_text())
    sentences = [part.sentence for part in import_config(config).beside]
    assert sentences
    assert all(page.texts().count(sentence) == 1 for sentence in sentences)
    assert "Stored beside them and not counted" in [caption.value for caption in page.run.caption]


def test_all_parts_of_a_split_gguf_are_read_together(page):
    keys, tensors = small()
    common = {"split.count": 2, "split.tensors.count": len(tensors)}
    parts = [
        ("m-00001-of-00002.gguf", header(keys | common | {"split.no": 0}, tensors[:5]), ""),
        ("m-00002-of-00002.gguf", header(common | {"split.no": 1}, tensors[5:]), ""),
    ]
    page.set(import_from="a GGUF file")
    page.run.file_uploader(key="import_gguf").set_value(parts).run()
    page.check()
    whole = import_gguf_header(header(*small()), "m.gguf")
    assert any(f"({whole.weight_bytes():,} B) as published" in text for text in page.texts())
    page.run.file_uploader(key="import_gguf").set_value(parts[:1]).run()
    page.check()
    assert page.errors() == ["This cannot be imported"]


# -------------------------------------------------------------------------------------------------------------- saved


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library of this server's own, beside the shipped presets."""
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    return tmp_path


def test_an_imported_model_is_saved_into_the_library(library, page):
    paste(page, GEMMA.read_text())
    page.set(save_import_id="my-gemma")
    page.click("save_import")
    assert "my-gemma is saved in the library of this server." in page.texts()
    assert (library / "models" / "my-gemma.toml").is_file()
    assert kvplan.load_model("my-gemma") == import_config(GEMMA)
    page.click("save_import")
    assert any(text.startswith("Not saved: my-gemma exists already") for text in page.texts())


def test_a_server_that_saves_nothing_offers_no_save(library, page, monkeypatch):
    monkeypatch.setenv("KVPLAN_READ_ONLY", "1")
    paste(page, GEMMA.read_text())
    assert not [button for button in page.run.get("button") if button.key == "save_import"]


# ------------------------------------------------------------------------------------------------------------- GGUF


def test_a_gguf_header_is_read_used_and_named_as_such(page):
    page.set(import_from="a GGUF file")
    data = header(*small())
    upload(page, "import_gguf", "small.gguf", data)
    model = import_gguf_header(data, "small.gguf")
    assert headings(page)[0] == "Understood: read from the GGUF header"
    assert any(f"({model.weight_bytes():,} B) as published" in text for text in page.texts())
    page.click("use_import")
    assert page.value("own_models")[page.value("model")] == model


@pytest.mark.parametrize("data", [b"", b"GGUF", b"no gguf at all", header(*small())[:-40]])
def test_a_broken_gguf_header_is_refused_in_words(page, data):
    page.set(import_from="a GGUF file")
    upload(page, "import_gguf", "small.gguf", data)
    assert page.errors() == ["This cannot be imported"]
    assert any("small.gguf" in text for text in page.texts())
