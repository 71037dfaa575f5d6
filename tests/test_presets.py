"""Preset files: strict reading, exact writing, and refusals that name file, field, and what is accepted."""

from __future__ import annotations

import os
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan import presets
from kvplan.attention import FullAttention, IndexedLatentAttention, LayerCache
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import KvplanError, PresetError, UnknownNameError
from kvplan.hardware import Gpu, Price, define_gpu
from kvplan.model import Layer, Model, WeightGroup
from kvplan.plan import Scenario
from kvplan.presets import (
    MAX_FILE_BYTES,
    dump_toml,
    gpu_from_table,
    gpu_to_table,
    is_nested_over,
    list_gpus,
    list_models,
    list_scenarios,
    load_gpu,
    load_model,
    load_scenario,
    model_from_table,
    model_to_table,
    parse_toml,
    presets_dir,
    read_toml,
    readable,
    save_gpu,
    save_model,
    scenario_from_table,
    title,
)
from kvplan.units import GIB
from tests.examples import ALL_LAYERS, LLAMA_8B, model_of

MODEL = replace(model_of([FullAttention(4, 64)] * 3), id="mine")
GPU = replace(
    define_gpu(name="A card", usable_bytes=23 * GIB, bandwidth=936 * 10**9),
    id="card",
    tflops={"bf16": 71.5, "fp8 dense": 285.0},
    prices=(Price("rent", 0.34, "2026-11-01", "a price list"),),
    notes=('"Quotes", \\ back, tab\t, newline\n and ü.',),
)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty library of a kvplan that ships nothing."""
    for name in ("models", "gpus", "scenarios"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    monkeypatch.setattr(presets, "SHIPPED", tmp_path / "nothing")
    return tmp_path


# ---------------------------------------------------------------------------------------------------- the library


def test_a_saved_preset_is_listed_and_loads_as_it_was(library: Path) -> None:
    save_model(MODEL, library / "models")
    save_gpu(GPU, library / "gpus")
    assert (list_models(), list_gpus(), list_scenarios()) == (("mine",), ("card",), ())
    assert load_model("mine") == MODEL
    assert (load_model("mine").id, load_model("mine").notes) == ("mine", MODEL.notes)
    assert load_gpu("card") == GPU
    assert presets_dir() == library


def test_the_first_lines_of_a_file_name_it_as_the_whole_file_does() -> None:
    assert {name: title("models", name) for name in list_models()} == {n: load_model(n).name for n in list_models()}
    assert {name: title("gpus", name) for name in list_gpus()} == {n: load_gpu(n).name for n in list_gpus()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        'schema = 1\n[part]\nname = "Inner"\n',
        'name = "[a](https://b)"\n',
        "name = 'Single'\n",
        'name = "Cut',
        "\xff",
    ],
)
def test_a_file_that_does_not_begin_with_a_plain_name_has_no_title(library: Path, text: str) -> None:
    (library / "models").mkdir(exist_ok=True)
    (library / "models" / "odd.toml").write_text(text, encoding="latin-1")
    assert title("models", "odd") == title("models", "missing") == title("models", "../odd") == ""


def test_a_changed_file_is_read_again(library: Path) -> None:
    path = save_gpu(GPU, library / "gpus")
    assert load_gpu("card").name == "A card"
    path.write_text(path.read_text().replace("A card", "Another card"))
    os.utime(path, ns=(1, 1))
    assert load_gpu("card").name == "Another card"


@pytest.mark.parametrize(
    "name", ["mini", "MINE", "../gpus/card", "", "mine.toml", "a\x00b", "x" * 5000, "mine/", None, 7]
)
def test_an_unknown_preset_is_refused(library: Path, name: Any) -> None:
    save_model(MODEL, library / "models")
    with pytest.raises(UnknownNameError, match="no model is called"):
        load_model(name)


def test_an_unknown_preset_offers_the_nearest_names(library: Path) -> None:
    for name in ("llama-3.1-8b", "llama-3.1-70b", "gpt2"):
        save_model(replace(MODEL, id=name), library / "models")
    with pytest.raises(
        UnknownNameError, match=r"no model is called 'llama-31-8b'; did you mean llama-3.1-8b or llama-3.1-70b\?"
    ):
        load_model("llama-31-8b")


@pytest.mark.parametrize("name", ["", "A b", "../x", "a_b"])
def test_a_preset_is_not_saved_under_a_bad_id(library: Path, name: str) -> None:
    with pytest.raises(KvplanError, match="preset id is"):
        save_model(replace(MODEL, id=name), library / "models")


# ----------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("layer", ALL_LAYERS, ids=lambda layer: layer.kind)
def test_every_kind_of_layer_reads_back(layer: LayerCache) -> None:
    model = model_of([layer, layer, FullAttention(4, 64), layer])
    assert read_back(model).layers == model.layers


def test_a_field_that_may_be_none_may_be_missing() -> None:
    assert read_back(model_of([IndexedLatentAttention(512, 64, None)])).layers[0].cache == IndexedLatentAttention(
        512, 64
    )


@pytest.mark.parametrize("storage", [None, *WEIGHT_FORMATS.values()], ids=lambda storage: storage and storage.name)
def test_every_weight_format_reads_back(storage: Any) -> None:
    group = WeightGroup("routed_experts", 6, 4, 8, storage, True, "rows", None, 2, "text")
    keys = WeightGroup("attention_k", 6, 4, split="kv_heads", kv_heads=2)
    model = replace(MODEL, layers=(Layer(FullAttention(2, 64), (group, keys), 4),))
    assert read_back(model) == model


def read_back(model: Model) -> Model:
    """`model` after a trip through its file's text."""
    return model_from_table(parse_toml(dump_toml(model_to_table(model)).encode(), "mine.toml"), "mine.toml")


def test_equal_layers_are_written_once() -> None:
    table = model_to_table(LLAMA_8B)
    assert table["layers"] == ["32 x full"]
    assert list(table["layer"]) == ["full"]


def test_a_gpu_reads_back_field_by_field() -> None:
    again = gpu_from_table(parse_toml(dump_toml(gpu_to_table(GPU)).encode(), "card.toml"), "card.toml", "card")
    for item in fields(Gpu):
        assert getattr(again, item.name) == getattr(GPU, item.name)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@given(
    st.dictionaries(
        TEXT,
        PLAIN | st.lists(PLAIN) | st.dictionaries(TEXT, PLAIN) | st.lists(st.dictionaries(TEXT, PLAIN), min_size=1),
    )
)
def test_what_is_written_is_toml_that_reads_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(dump_toml(table)) == table


# --------------------------------------------------------------------------------------------------- shipped files


@pytest.mark.parametrize("name", list_models())
def test_a_shipped_model_loads_and_reads_back(name: str) -> None:
    model = load_model(name)
    assert read_back(model) == model
    assert model.source
    assert model.num_params > 0


@pytest.mark.parametrize("name", list_scenarios())
def test_a_shipped_scenario_can_be_planned(name: str) -> None:
    preset = load_scenario(name)
    assert preset.lesson
    assert isinstance(Scenario(**preset.fields), Scenario)


# -------------------------------------------------------------------------------------------------------- refusals


def model_table(**changes: Any) -> dict[str, Any]:
    """The table of a small sound model, with some keys changed; a key of None is taken away."""
    table = {**tomllib.loads(dump_toml(model_to_table(MODEL))), **changes}
    return {key: value for key, value in table.items() if value is not None}


def layer_table(**changes: Any) -> dict[str, Any]:
    """The table of a model whose only layer has some keys of its cache changed."""
    cache = {"kind": "full", "num_kv_heads": 4, "head_dim": 64, **changes}
    return model_table(
        layers=["3 x full"], layer={"full": {"cache": {k: v for k, v in cache.items() if v is not None}}}
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (model_table(schema=2), "schema is 2; this version reads schema = 1"),
        (model_table(schema=None), "lacks 'schema'; this version reads schema = 1"),
        (model_table(schema=True), "schema is True"),
        (model_table(name=None), "lacks 'name'"),
        (model_table(name=7), "name is 7; text in quotes is needed"),
        (model_table(name="[a](b)"), r"name is '\[a\]\(b\)'; use up to 80 letters"),
        (model_table(hiden_size=7), "has the unknown key 'hiden_size'; did you mean 'hidden_size'"),
        (model_table(hidden_size="512"), "hidden_size is '512'; a whole number is needed"),
        (model_table(hidden_size=512.0), "hidden_size is 512.0; a whole number is needed"),
        (model_table(hidden_size=True), "hidden_size is True; a whole number is needed"),
        (model_table(hidden_size=0), "hidden_size is 0; it must be from 1"),
        (model_table(hidden_size=-1), "hidden_size is -1; a number from 0 up is needed"),
        (model_table(context_limit=2**63), "context_limit is 9223372036854775808; a number from 0 up is"),
        (model_table(tied_embeddings="yes"), "tied_embeddings is 'yes'; true or false is needed"),
        (
            model_table(dtype="bf17"),
            "dtype is not a storage format: no weight dtype is called 'bf17'; did you mean bf16",
        ),
        (model_table(dtype=16), "dtype is 16; text in quotes is needed"),
        (model_table(notes="a note"), "notes is 'a note'; a list is needed"),
        (
            model_table(notes=["as it is", "counts \u202e0001 rows"]),
            r"notes\[1\] is 'counts \\u202e0001 rows'; text without marks that turn its direction is needed",
        ),
        (model_table(source="\u2067a"), "source is '.u2067a'; text without marks that turn its direction is needed"),
        (model_table(notes=[7]), r"notes\[0\] is 7; text in quotes is needed"),
        (model_table(layers=None), "layers is None; a list is needed"),
        (model_table(layers=[]), "layers does not name the layer 'full', which the file describes"),
        (model_table(layers=["x"]), r"layers\[0\] is 'x'; write '5 x NAME' with one of full"),
        (model_table(layers=["0 x full"]), r"layers\[0\] is '0 x full'"),
        (model_table(layers=["3 x fool"]), r"layers\[0\] is '3 x fool'; write '5 x NAME' with one of full"),
        (model_table(layers=["9999 x full", "2 x full"]), "layers has over 10,000 layers"),
        (model_table(layers=[], layer={}), "layers is empty; a model has at least one layer"),
        (model_table(layer=7), "layer is 7; a table is needed"),
        (model_table(layer={"full": 7}), "layer.full is 7; a table is needed"),
        (model_table(layer={"full": {}}), "layer.full lacks 'cache'"),
        (layer_table(kind="fool"), "layer.full.cache.kind is 'fool'; one of full, sliding"),
        (layer_table(kind=None), "layer.full.cache.kind is None; text in quotes is needed"),
        (layer_table(head_dim=None), "layer.full.cache lacks 'head_dim'"),
        (layer_table(head_dim=0), "layer.full.cache head_dim of full attention is 0; it must be from 1"),
        (layer_table(window=7), "layer.full.cache has the unknown key 'window'"),
        (
            model_table(weights=[{"role": "mlp2", "rows": 1, "columns": 1}]),
            r"weights\[0\] weight role is 'mlp2'; one of",
        ),
        (model_table(weights=[{"role": "mlp", "rows": 1}]), r"weights\[0\] lacks 'columns'"),
        (
            model_table(weights=[{"role": "mlp", "rows": 1, "columns": 1, "split": "half"}]),
            "split is 'half'; one of copied",
        ),
        (model_table(weights=[{"role": "mlp", "rows": 0, "columns": 1}]), "each must be at least 1"),
    ],
)
def test_a_broken_model_names_file_and_field(table: dict[str, Any], message: str) -> None:
    with pytest.raises(PresetError, match=rf"^mine\.toml: .*{message}"):
        model_from_table(table, "mine.toml")


def gpu_table(**changes: Any) -> dict[str, Any]:
    """The table of a sound GPU, with some keys changed; a key of None is taken away."""
    table = {**tomllib.loads(dump_toml(gpu_to_table(GPU))), **changes}
    return {key: value for key, value in table.items() if value is not None}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (gpu_table(id="other"), "has the unknown key 'id'; the file's name is the id"),
        (gpu_table(name="<b>"), "GPU name is '<b>'"),
        (gpu_table(usable_bytes=0), "usable_bytes is 0; it must be from 1,048,576"),
        (gpu_table(usable_bytes=None), "lacks 'usable_bytes'"),
        (gpu_table(bandwidth=0), "bandwidth is 0; it must be from 1"),
        (gpu_table(node_gpus=0), "node_gpus is 0; it must be from 1"),
        (gpu_table(usable_range=[1]), r"usable_range must be \[lowest, highest\]"),
        (gpu_table(usable_range=[2, 1]), r"usable_range must be \[lowest, highest\]"),
        (gpu_table(confidence="sure"), "confidence is 'sure'; one of high, medium, low is needed"),
        (
            gpu_table(prices=[{"kind": "gift", "usd": 1, "date": "", "source": ""}]),
            r"prices\[0\].kind is 'gift'; one of rent",
        ),
        (
            gpu_table(prices=[{"kind": "rent", "usd": -1, "date": "", "source": ""}]),
            r"prices\[0\].usd is -1; a number from 0",
        ),
        (
            gpu_table(prices=[{"kind": "rent", "usd": float("inf"), "date": "", "source": ""}]),
            r"prices\[0\].usd is inf",
        ),
        (gpu_table(tflops={"bf16": "many"}), "tflops.bf16 is 'many'; a number from 0 up is needed"),
    ],
)
def test_a_broken_gpu_names_file_and_field(table: dict[str, Any], message: str) -> None:
    with pytest.raises(PresetError, match=rf"^card\.toml: .*{message}"):
        gpu_from_table(table, "card.toml")


def test_a_broken_scenario_names_file_and_field() -> None:
    with pytest.raises(PresetError, match=r"^s\.toml: lacks 'lesson'"):
        scenario_from_table({"schema": 1, "name": "A", "fields": {}}, "s.toml")
    with pytest.raises(PresetError, match=r"^s\.toml: fields is 7; a table is needed"):
        scenario_from_table({"schema": 1, "name": "A", "lesson": "b", "fields": 7}, "s.toml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"name = ", "is not valid TOML"),
        (b'name = "half', "is not valid TOML"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not UTF-8 text"),
        (b"\x00\x01\x02", "is not valid TOML"),
        (b"a = 1\na = 2", "is not valid TOML"),
        (b"a = " + b"[" * 100_000, "is not valid TOML"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
        (b"#" * (MAX_FILE_BYTES + 1), "is over 2 MiB, too large for a preset"),
    ],
    ids=["truncated", "open quote", "binary", "control characters", "twice", "nested", "long number", "huge"],
)
def test_a_file_that_is_no_toml_is_refused_in_a_sentence(library: Path, data: bytes, message: str) -> None:
    (library / "models" / "mine.toml").write_bytes(data)
    with pytest.raises(PresetError, match=rf"^mine\.toml {message}") as error:
        load_model("mine")
    assert len(str(error.value)) < 300


def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match=r"^none\.toml cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(PresetError, match="cannot be read: Is a directory"):
        read_toml(tmp_path)


def test_a_file_cut_short_anywhere_is_refused_and_never_half_read() -> None:
    text = dump_toml(model_to_table(model_of([FullAttention(4, 64), *ALL_LAYERS[:2]]))).strip().encode()
    line_ends = [at for at, byte in enumerate(text) if byte == ord("\n")]
    for size in {*line_ends, *range(0, len(text), 19), *range(len(text) - 150, len(text))}:
        with pytest.raises(PresetError):
            model_from_table(parse_toml(text[:size], "mine.toml"), "mine.toml")


def test_a_stated_number_of_parameters_must_be_the_sum() -> None:
    with pytest.raises(PresetError, match=r"^mine\.toml: num_params is 7; the weights in the file have [\d,]+ values"):
        model_from_table(model_table(num_params=7), "mine.toml")
    assert model_from_table(model_table(num_params=None), "mine.toml") == MODEL


# ------------------------------------------------------------------------------------------------------------ fuzz

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full", "mlp", "3 x full"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(model_table())), ANYTHING)
def test_only_a_preset_error_comes_out_of_a_broken_model(key: str, value: Any) -> None:
    try:
        made: object = model_from_table({**model_table(), key: value}, "mine.toml")
    except PresetError as error:
        made = str(error)
    assert made


@given(st.sampled_from(["kind", "num_kv_heads", "head_dim", "value_head_dim", "window", "members"]), ANYTHING)
def test_only_a_preset_error_comes_out_of_a_broken_layer(key: str, value: Any) -> None:
    try:
        made: object = model_from_table(layer_table(**{key: value}), "mine.toml")
    except PresetError as error:
        made = str(error)
    assert made


@given(st.sampled_from(sorted(gpu_table())), ANYTHING)
def test_only_a_preset_error_comes_out_of_a_broken_gpu(key: str, value: Any) -> None:
    try:
        made: object = gpu_from_table({**gpu_table(), key: value}, "card.toml")
    except PresetError as error:
        made = str(error)
    assert made


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_only_a_preset_error_comes_out_of_any_bytes(data: bytes) -> None:
    try:
        made: object = model_from_table(parse_toml(data, "mine.toml"), "mine.toml")
    except PresetError as error:
        made = str(error)
    assert made


def test_a_library_that_is_no_folder_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path / "none"))
    with pytest.raises(PresetError, match="is no folder that can be read"):
        kvplan.list_models()


def test_a_link_to_a_file_outside_of_the_library_is_not_read(library: Path, tmp_path_factory: Any) -> None:
    outside = save_gpu(GPU, tmp_path_factory.mktemp("outside"))
    (library / "gpus" / "linked.toml").symlink_to(outside)
    with pytest.raises(PresetError, match=r"linked\.toml is a link to a file outside of the library"):
        kvplan.load_gpu("linked")


def test_a_link_inside_of_the_library_is_read(library: Path) -> None:
    save_gpu(GPU, library / "gpus")
    (library / "gpus" / "same.toml").symlink_to("card.toml")
    assert kvplan.load_gpu("same") == replace(GPU, id="same")


def test_a_library_without_its_folders_has_nothing_of_its_own(library: Path) -> None:
    for name in ("models", "gpus", "scenarios"):
        (library / name).rmdir()
    assert (list_models(), list_gpus(), list_scenarios()) == ((), (), ())


def test_a_folder_that_has_long_been_as_it_is_is_listed_again_once_it_changes(library: Path) -> None:
    save_gpu(GPU, library / "gpus")
    os.utime(library / "gpus", (1, 1))
    assert list_gpus() == ("card",)
    save_gpu(replace(GPU, id="second"), library / "gpus")
    assert list_gpus() == ("card", "second")


def test_one_broken_file_does_not_take_the_others_away(library: Path) -> None:
    save_gpu(GPU, library / "gpus")
    (library / "gpus" / "broken.toml").write_text("schema = 2")
    found = readable(list_gpus(), load_gpu)
    assert found.presets == (GPU,)
    assert [text[:12] for text in found.troubles] == ["broken.toml:"]


@pytest.mark.parametrize(("value", "depth"), [({"a": [{"b": []}]}, 4), ([], 1), ({"a": 1}, 1), ([[1], {"a": 2}], 2)])
def test_depth_is_counted_from_the_outside(value: Any, depth: int) -> None:
    assert not is_nested_over(value, depth)
    assert is_nested_over(value, depth - 1)


def test_a_file_whose_name_cannot_be_an_id_is_no_preset(library: Path) -> None:
    (library / "models" / "folder.toml").mkdir(parents=True)
    (library / "models" / "My Model.toml").write_text("schema = 1")
    assert kvplan.list_models() == ()


def test_a_model_preset_published_in_a_format_with_scales_is_refused() -> None:
    table = {**model_to_table(kvplan.load_model("llama-3.1-8b")), "dtype": "fp8"}
    with pytest.raises(PresetError, match="dtype is fp8_per_tensor; a width without scales is needed"):
        model_from_table(table, "x.toml")
