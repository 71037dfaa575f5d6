"""Configs that are broken, truncated, binary, huge or of a wrong type: a sentence, and never a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import ConfigError, InputError, KvplanError, UnsupportedConfigError
from kvplan.importer import MAX_CONFIG_BYTES, import_config

CONFIGS = Path(__file__).parent.parent / "data" / "configs"

NAMES = [
    "Qwen__Qwen3-8B",
    "Qwen__Qwen3-30B-A3B",
    "Qwen__Qwen3-Next-80B-A3B-Instruct",
    "Qwen__Qwen2.5-VL-7B-Instruct",
    "deepseek-ai__DeepSeek-V3.2-Exp",
    "google__gemma-3-4b-it",
    "LiquidAI__LFM2.5-VL-1.6B",
]


def config(name: str = NAMES[0], **changes: Any) -> dict[str, Any]:
    """A published config with some keys changed."""
    return {**json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")), **changes}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not valid JSON"),
        (b'{"model_type": "llama", ', "is not valid JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not UTF-8 text"),
        (b"\x00\x01", "is not valid JSON"),
        (b"[" * 100_000, "is nested too deep to be read"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "is not valid JSON: a number has 5,000 digits"),
        (b'{"x": [' + b"1, " * 150_000 + b"1]}", "holds over 150,000 values"),
        (b" " * (MAX_CONFIG_BYTES + 1), "is over 8 MiB, too large for a config"),
        (b"[1, 2]", "holds a list; an object in braces is needed"),
        (b"null", "holds null; an object in braces is needed"),
        (b"{}", "lacks model_type"),
    ],
    ids=[
        "empty",
        "truncated",
        "binary",
        "control",
        "nested",
        "long number",
        "many values",
        "huge",
        "a list",
        "null",
        "no type",
    ],
)
def test_a_file_that_is_no_config_is_refused_in_a_sentence(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"^config\.json:? {message}") as error:
        import_config(path)
    assert len(str(error.value)) < 300


def test_a_file_that_is_not_there_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^none\.json cannot be read: No such file"):
        import_config(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        import_config(tmp_path)


@pytest.mark.parametrize("cut", [1, 7, 50, 300])
def test_a_truncated_config_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "config.json"
    path.write_bytes((CONFIGS / f"{NAMES[0]}.json").read_bytes().rstrip()[:-cut])
    with pytest.raises(ConfigError, match="is not valid JSON"):
        import_config(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "4096"}, "hidden_size is '4096'; a whole number is needed"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5; a whole number is needed"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"vocab_size": [1]}, r"vocab_size is \[1\]"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"torch_dtype": "bfloat17"}, "bfloat17"),
        ({"architectures": "Qwen3ForCausalLM"}, "architectures is 'Qwen3ForCausalLM'"),
    ],
)
def test_a_key_of_a_wrong_type_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_config(config(**changes))


def test_a_key_that_no_rule_knows_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedConfigError, match="num_memory_heads"):
        import_config(config(num_memory_heads=4))


def test_a_family_that_no_rule_knows_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="qwen33"):
        import_config(config(model_type="qwen33"))


ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.lists(st.none() | st.integers(), max_size=3) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
    | st.sampled_from(["full_attention", "bf16", 2**63])
)  # fmt: skip


@given(st.sampled_from(NAMES), st.data())
def test_only_a_kvplan_error_comes_out_of_a_changed_config(name: str, data: st.DataObject) -> None:
    changed = config(name)
    inner = [changed, *(value for value in changed.values() if isinstance(value, dict) and value)]
    table = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(sorted(table)))
    table[key] = data.draw(ANYTHING)
    try:
        made: object = import_config(changed).cache_bytes(1000)
    except KvplanError as error:
        made = str(error)
    assert made is not None


def test_a_key_that_stands_twice_is_refused_since_one_value_would_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}')
    with pytest.raises(ConfigError, match="'hidden_size' stands twice"):
        import_config(path)


def test_one_key_of_very_many_that_stands_twice_is_found_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{" + ", ".join(f'"k{at}": 1' for at in [*range(120_000), 119_999]) + "}")
    with pytest.raises(ConfigError, match="'k119999' stands twice"):  # not by comparing each with each: 7 billion
        import_config(path)


def test_what_is_neither_a_path_nor_an_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="a path or a parsed object is needed"):
        import_config(7)  # type: ignore[arg-type]


def test_a_message_names_the_file_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "mymodel.json"
    path.write_text(json.dumps(config(hidden_size=-4)))
    with pytest.raises(ConfigError, match=r"^mymodel\.json: hidden_size is -4"):
        import_config(path)


def test_a_name_that_a_page_could_render_is_refused() -> None:
    with pytest.raises(KvplanError, match="model name is '<script>'"):
        import_config(config(), name="<script>")


def test_a_dtype_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="the given dtype is 3"):
        import_config(config(), dtype=3)  # type: ignore[arg-type]


def test_a_model_type_that_is_asked_for_and_not_known_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedConfigError, match="'grok-1': it was published as a JAX checkpoint in 8 bits"):
        import_config({"model_type": "grok-1", "torch_dtype": "bfloat16"}, measure="never")


@pytest.mark.parametrize("bad", [None, 3, [], {}], ids=repr)
def test_a_way_to_measure_is_one_of_three_words(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^no way to measure is called .*; there is auto, never, always$"):
        import_config({"model_type": "llama"}, measure=bad)
