"""Recorded reads of a config: what was read, what was passed over, and what refuses the import."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer.view import ConfigView


def view(**data: Any) -> ConfigView:
    return ConfigView(data)


def test_a_key_that_nobody_read_refuses_the_import_by_name() -> None:
    with pytest.raises(UnsupportedConfigError, match="no rule reads extra_layers"):
        view(extra_layers=4).finish()


def test_an_unread_key_of_an_inner_object_is_named_with_its_place() -> None:
    outer = view(vision_config={"extra_layers": 4})
    outer.child("vision_config")
    with pytest.raises(UnsupportedConfigError, match=r"vision_config\.extra_layers"):
        outer.finish()


@pytest.mark.parametrize("name", ["hidden_act", "image_token_id", "attention_dropout", "transformers_version"])
def test_a_key_that_cannot_change_memory_is_passed_over(name: str) -> None:
    assert view(**{name: "anything"}).finish() == ()


def test_a_switch_that_is_off_is_passed_over_and_refuses_where_it_is_on() -> None:
    assert view(add_cross_attention=False, pruned_heads={}).finish() == ()
    with pytest.raises(UnsupportedConfigError, match="add_cross_attention"):
        view(add_cross_attention=True).finish()


def test_null_counts_as_absent() -> None:
    assert view(some_new_key=None).finish() == ()
    assert view(hidden_size=None).integer("hidden_size", default=7) == 7


def test_a_class_default_is_used_with_a_note() -> None:
    config = ConfigView({}, defaults={"hidden_size": 64})
    assert config.integer("hidden_size") == 64
    assert config.finish() == ("hidden_size is not in the config; the class default 64 is used",)


def test_a_missing_key_without_default_is_an_error() -> None:
    with pytest.raises(ConfigError, match="lacks hidden_size or n_embd"):
        view().integer("hidden_size", "n_embd")


def test_two_names_of_one_thing_must_agree() -> None:
    assert view(hidden_size=64, n_embd=64).integer("hidden_size", "n_embd") == 64
    with pytest.raises(ConfigError, match="hidden_size is 64 but n_embd is 32"):
        view(hidden_size=64, n_embd=32).integer("hidden_size", "n_embd")


@pytest.mark.parametrize("value", [0, -1, 1.5, "64", True, [64], 2**40])
def test_a_size_that_cannot_be_is_an_error_with_its_name(value: Any) -> None:
    with pytest.raises(ConfigError, match="hidden_size"):
        view(hidden_size=value).integer("hidden_size")


def test_a_switch_with_another_value_than_the_known_one_refuses() -> None:
    config = view(rope_mode="3d", bias=None)
    config.require("rope_mode", "3d", "unknown")
    config.require("bias", False, "unknown")
    with pytest.raises(UnsupportedConfigError, match="rope_mode is '2d': unknown"):
        view(rope_mode="2d").require("rope_mode", "3d", "unknown")


def test_dismissing_a_key_says_why_and_passing_over_one_does_not() -> None:
    config = view(draft_layers=1, image_width=2)
    config.dismiss("draft_layers", "drafts are not built")
    config.dismiss("absent_key", "never said")
    config.pass_over("no weights", "image_width")
    assert config.finish() == ("draft_layers is not counted: drafts are not built",)


def test_an_absent_inner_object_may_be_built_from_its_class() -> None:
    config = view()
    assert config.child_or_defaults("vision_config", {"depth": 3}).integer("depth") == 3
    assert any("vision_config is not in the config" in note for note in config.finish())


def test_an_outer_object_may_decide_for_an_inner_one() -> None:
    inner = view(text_config={"tie_word_embeddings": True}).child("text_config")
    inner.decide("tie_word_embeddings", False)
    assert inner.flag("tie_word_embeddings") is False


def test_the_entries_of_a_list_are_counted_whatever_they_are() -> None:
    assert view(shapes=[[1, 1], "x"]).count_of("shapes", default=8) == 2
    assert view().count_of("shapes", default=8) == 8
    with pytest.raises(ConfigError, match="shapes is 3; a list is needed"):
        view(shapes=3).count_of("shapes", default=8)
