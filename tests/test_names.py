"""Names: plain text stays, whatever a page could turn into something else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.names import clean_name, preset_id


@pytest.mark.parametrize(
    "name",
    ["Llama 3.1 8B", "Qwen2.5-Coder (32B)", "gpt-oss-120b", "A, B + C", "NVIDIA H100/H200", "x_1", "Ünïcode 7B", "7"],
)
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert clean_name(name) == name


def test_outer_spaces_are_dropped() -> None:
    assert clean_name("  My model ") == "My model"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "*bold*",
        "_emphasis_",
        "__strong__",
        "a __b__",
        "[a](b)",
        "![a](b)",
        "<b>",
        "$x$",
        ":smile:",
        "`code`",
        "http://a",
        "www.a.b",
        "a//b",
        "../a",
        "a\nb",
        "#1",
        "-dash",
        "a" * 81,
        "~a~",
        "a|b",
        "a\\b",
        "a_ b",
        None,
        7,
        ["a"],
    ],
)
def test_what_a_page_could_render_is_refused(name: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"model name is .*use up to 80 letters.* with a letter or digit first, and without // or \.\.$",
    ):
        clean_name(name, "model name")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "a", "7b"])
def test_a_preset_id_is_a_file_name_everywhere(name: str) -> None:
    assert preset_id(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "Llama", "a b", "a/b", "../a", "a..b", ".a", "a.", "-a", "a-", "a_b", "ä", "a" * 81, "a\x00", "a\n", None, 7],
)
def test_what_is_no_preset_id_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match=r"use a-z, 0-9, dots and dashes, such as llama-3.1-8b"):
        preset_id(name)


@given(st.text(max_size=100))
def test_a_name_that_passes_once_passes_again(text: str) -> None:
    try:
        name = clean_name(text)
    except InputError:
        return
    assert clean_name(name) == name
    assert not set(name) & set("*`[]<>$:|~#\\\n")
