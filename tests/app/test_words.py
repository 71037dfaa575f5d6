"""Small pieces of pages, without a page."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from kvplan.names import without_isolates
from kvplan.plan import Scenario
from kvplan.presets import load_gpu, load_model
from kvplan.ui import words


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("memory_fraction is 2; give a number", "“Part of the memory that the engine may use” is 2; give a number"),
        ("64 heads do not divide over tensor_parallel=3", "64 heads do not divide over “Number of GPUs” 3"),
        ("rope_theta=3 and awq_int4_g128 stay", "rope_theta=3 and awq_int4_g128 stay"),
    ],
)
def test_settings_are_named_by_their_labels_and_other_names_stay(message, said):
    assert words.in_words(message) == said


def test_only_plain_addresses_become_links():
    text = "https://huggingface.co/a/B-1.5; config in https://github.com/x/y, then http://x.org and javascript:alert(1)"
    assert words.links(text) == ["https://huggingface.co/a/B-1.5", "https://github.com/x/y"]
    assert words.links("https://x.org/](https://evil.org)") == ["https://x.org", "https://evil.org"]
    assert words.links("https://a.org/<b>") == ["https://a.org"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama-3.1-8b", "8"),
        ("deepseek-v3", "none"),
        ("mamba2-2.7b", "none"),
        ("jamba-v0.1", "8"),
        ("gemma-4-26b-a4b", "not one number for all layers"),
    ],
)
def test_kv_heads_of_latent_and_recurrent_layers_are_none(name, said):
    assert words.kv_heads(load_model(name)) == said


@pytest.mark.parametrize(("heads", "said"), [(32, "32"), (1024, "1,024"), (None, "none")])
def test_query_heads_are_written_as_other_numbers_are(heads, said):
    assert words.query_heads(SimpleNamespace(num_attention_heads=heads)) == said


def test_a_scenario_is_said_in_one_line():
    scenario = Scenario("llama-3.1-70b", "h100-sxm-80gb", tensor_parallel=4, pipeline_parallel=2, num_kv_heads=4)
    assert words.about(scenario) == (
        "Llama 3.1 70B on 8 × H100 SXM5 80GB in 2 stages: 8 × 8,192 tokens, cache bf16, weights as published, "
        "4 KV heads"
    )


def test_numbers_that_a_browser_would_round_become_text():
    table = pd.DataFrame({"small": [1, 2**53], "large": [1, 2**53 + 1], "huge": [1, 2**80], "words": ["a", "b"]})
    shown = table.apply(words._exact_column)
    assert shown["small"].tolist() == [1, 2**53]
    assert shown["large"].tolist() == ["1", "9,007,199,254,740,993"]
    assert shown["huge"].tolist() == ["1", f"{2**80:,}"]
    assert shown["words"].tolist() == ["a", "b"]


def test_numbers_behind_a_name_from_right_to_left_stay_in_their_order():
    """U+2068 and U+2069 keep a name to itself: without them 8 × 8,192 behind a Hebrew name is shown as 8,192 × 8."""
    model, gpu = replace(load_model("llama-3.1-8b"), name="מודל"), replace(load_gpu("t4-16gb"), name="بطاقة")
    said = words.about(Scenario(model, gpu, context_length=8192, batch_size=8))
    assert said.startswith("\u2068מודל\u2069 on \u2068بطاقة\u2069: 8 × 8,192 tokens")
    assert without_isolates(said).startswith("מודל on بطاقة: 8 × 8,192 tokens")
    assert words.hardware(Scenario("llama-3.1-8b", "t4-16gb")) == "Llama 3.1 8B on T4 16GB"
