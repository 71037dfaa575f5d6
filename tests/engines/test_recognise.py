"""Names of models in logs, and the presets that they are."""

from __future__ import annotations

import pytest

from kvplan.engines.recognise import preset_of


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("/models/Qwen2.5-7B-Instruct-AWQ/", "qwen2.5-7b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8"),
        ("unsloth/Qwen3-4B-Base", "qwen3-4b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("gpt-oss-120b-Q4_K_M.gguf", "gpt-oss-120b"),
        ("unsloth/phi-4-bnb-4bit", "phi-4"),
        ("Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"),
    ],
)
def test_a_name_is_recognised_without_its_endings(name: str, preset: str) -> None:
    assert preset_of(name) == preset


@pytest.mark.parametrize("name", [None, "", "/", "my-own-model", "llama", "Qwen/Qwen9-7B-Instruct", "..", "a" * 5000])
def test_a_name_that_no_preset_has_is_not_guessed(name: str | None) -> None:
    assert preset_of(name) is None
