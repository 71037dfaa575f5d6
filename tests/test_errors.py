"""Errors: one tree, one sentence each, and no value that can flood or break a message."""

from __future__ import annotations

import inspect

import pytest

from kvplan import errors
from kvplan.errors import KvplanError, UnknownNameError, nearest_names, quoted, shorten

CLASSES = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if issubclass(thing, Exception)]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_a_kvplan_error_and_stands_in_the_tree(error: type[Exception]) -> None:
    assert issubclass(error, KvplanError)
    assert error.__name__ in (errors.__doc__ or "")


def test_an_unknown_name_offers_the_nearest_ones() -> None:
    error = UnknownNameError("model", "llama-3.1-8", ["llama-3.1-8b", "gpt2", "llama-3.1-70b"])
    assert error.nearest[0] == "llama-3.1-8b"
    assert str(error) == "no model is called 'llama-3.1-8'; did you mean llama-3.1-8b or llama-3.1-70b?"


def test_an_unknown_name_like_no_other_lists_what_there_is() -> None:
    error = UnknownNameError("GPU", "zzz", ["l4-24gb", "t4-16gb"])
    assert error.nearest == ()
    assert str(error) == "no GPU is called 'zzz'; there is l4-24gb, t4-16gb"


def test_an_unknown_name_in_an_empty_list_says_so() -> None:
    assert str(UnknownNameError("model", "a", [])) == "no model is called 'a'; there is none yet"


def test_a_hostile_name_cannot_flood_the_message() -> None:
    assert len(str(UnknownNameError("model", "x" * 100_000, [f"name-{i}" for i in range(1000)]))) < 400


def test_near_names_come_most_alike_first_and_are_few() -> None:
    assert nearest_names("H100", ["h100-pcie-80gb", "h100", "h200"])[0] == "h100"
    assert len(nearest_names("aaa", ["aaa1", "aaa2", "aaa3", "aaa4"])) == 3
    assert nearest_names("zzz", ["h100"]) == ()


@pytest.mark.parametrize("cut", [shorten, quoted])
def test_a_long_value_is_cut_with_a_mark(cut: object) -> None:
    text = cut("a" * 500)  # type: ignore[operator]
    assert len(text) == 60
    assert text.endswith("…")


@pytest.mark.parametrize("cut", [shorten, quoted])
def test_a_number_that_python_will_not_write_has_words(cut: object) -> None:
    assert cut(10**5000) == "a number of thousands of digits"  # type: ignore[operator]


def test_a_short_value_stays_as_it_is() -> None:
    assert shorten("abc") == "abc"
    assert quoted("abc") == "'abc'"
    assert shorten(17) == "17"


@pytest.mark.parametrize("name", [None, 3, 10**5000, ["a"], b"a"], ids=lambda name: type(name).__name__)
def test_a_name_that_is_no_text_is_unknown_like_any_other(name: object) -> None:
    assert str(UnknownNameError("GPU", name, ["l4-24gb"])).endswith("; there is l4-24gb")
