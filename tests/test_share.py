"""Links: every setting, version 1's defaults for ever, and refusals. The round trip over random scenarios is a law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError, LinkError
from kvplan.hardware import define_gpu
from kvplan.plan import Scenario
from kvplan.presets import save_gpu, save_model
from kvplan.share import FIELDS, MAX_LINK_CHARACTERS, from_fields, from_link, to_fields, to_link
from kvplan.units import GIB, TIB
from tests.examples import LLAMA_8B

MODEL = replace(LLAMA_8B, id="llama")
GPU = replace(define_gpu(name="A card", usable_bytes=24 * GIB), id="card")


@pytest.fixture(autouse=True, scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A library of one model and one GPU."""
    folder = tmp_path_factory.mktemp("presets")
    for name in ("models", "gpus"):
        (folder / name).mkdir()
    save_model(MODEL, folder / "models")
    save_gpu(GPU, folder / "gpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVPLAN_PRESETS_DIR", str(folder))
        yield folder


def test_every_setting_of_a_scenario_is_in_its_link() -> None:
    assert {field.setting for field in FIELDS} == {item.name for item in fields(Scenario)}
    assert len({field.key for field in FIELDS}) == len(FIELDS)


def test_a_link_written_out() -> None:
    scenario = Scenario(MODEL, GPU, context_length=32768, kv_dtype="q8_0/q4_0", weight_dtype="mxfp4", num_kv_heads=4)
    assert to_link(scenario) == (
        "?v=1&model=llama&gpu=card&ctx=32768&batch=8&kv=q8_0%2Fq4_0&weights=mxfp4&heads=4&tp=1&pp=1&fraction=0.9"
        "&overhead=&images=0&prefix=0&adapters=0&draft=&engine="
    )


FIRST_LINKS = {
    "?v=1&model=llama&gpu=card": {},
    "?v=1&model=llama&gpu=card&ctx=32k&batch=1&kv=fp8": {"context_length": 32768, "batch_size": 1, "kv_dtype": "fp8"},
    "?v=1&model=llama&gpu=card&weights=&heads=&overhead=": {},
    "?v=1&gpu=card&model=llama&tp=2&pp=4&fraction=0.85": {
        "tensor_parallel": 2, "pipeline_parallel": 4, "memory_fraction": 0.85,
    },
    "?v=1&model=llama&gpu=card&draft=llama&prefix=7&images=576&adapters=1MiB": {
        "draft_model": MODEL, "shared_prefix": 7, "image_tokens": 576, "adapter_bytes": 2**20,
    },
}  # fmt: skip
"""Links of version 1 as once written: what they mean never changes."""

VERSION_1_DEFAULTS = {
    "context_length": 8192,
    "batch_size": 8,
    "kv_dtype": "bf16",
    "weight_dtype": None,
    "num_kv_heads": None,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "memory_fraction": 0.9,
    "overhead_bytes": None,
    "image_tokens": 0,
    "shared_prefix": 0,
    "adapter_bytes": 0,
    "draft_model": None,
    "engine": None,
}


@pytest.mark.parametrize(("link", "settings"), FIRST_LINKS.items(), ids=range(len(FIRST_LINKS)))
def test_a_link_of_version_1_means_what_it_always_meant(link: str, settings: dict[str, object]) -> None:
    assert from_link(link) == Scenario(MODEL, GPU, **{**VERSION_1_DEFAULTS, **settings})


@pytest.mark.parametrize("address", ["http://localhost:8501/{}", "{}#part", " {} ", "https://a.b/c/{}#d"])
def test_a_whole_address_is_read(address: str) -> None:
    scenario = Scenario(MODEL, GPU, overhead_bytes=2 * TIB, adapter_bytes=2 * TIB)
    assert from_link(address.format(to_link(scenario))) == scenario


def test_the_question_mark_may_be_missing() -> None:
    assert from_link("v=1&model=llama&gpu=card") == from_link("?v=1&model=llama&gpu=card")


def test_fields_are_the_link_as_a_mapping() -> None:
    scenario = Scenario(MODEL, GPU, batch_size=3)
    assert from_fields(to_fields(scenario)) == scenario


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("", "version is missing; this kvplan reads v=1"),
        ("?v=2&model=llama&gpu=card", "version is 2; this kvplan reads v=1"),
        ("?v=1&gpu=card", "the link names no model"),
        ("?v=1&model=llama", "the link names no gpu"),
        ("?v=1&model=lama&gpu=card", "cannot be planned: no model is called 'lama'; did you mean llama"),
        ("?v=1&model=../card&gpu=card", "no model is called"),
        ("?v=1&model=llama&gpu=card&contxt=5", "the unknown key 'contxt'"),
        ("?v=1&model=llama&gpu=card&ctx=", "the link's ctx: number is ''"),
        ("?v=1&model=llama&gpu=card&ctx=0", "cannot be planned: context_length is 0"),
        ("?v=1&model=llama&gpu=card&ctx=-5", "the link's ctx: number is '-5'"),
        ("?v=1&model=llama&gpu=card&ctx=1e9", "the link's ctx: number is '1e9'"),
        ("?v=1&model=llama&gpu=card&ctx=" + "9" * 5000, "the link's ctx: number is '999"),
        ("?v=1&model=llama&gpu=card&fraction=x", "the link's fraction: 'x' is not a number"),
        ("?v=1&model=llama&gpu=card&fraction=nan", "memory_fraction is nan"),
        ("?v=1&model=llama&gpu=card&fraction=2", "memory_fraction is 2.0"),
        ("?v=1&model=llama&gpu=card&kv=fp9", "no kv dtype is called 'fp9'"),
        ("?v=1&model=llama&gpu=card&tp=3", "do not divide by tensor_parallel=3"),
        ("?v=1&model=llama&gpu=card&heads=3", "num_kv_heads is 3"),
        ("?v=1&model=llama&gpu=card&ctx=1&ctx=2", "a key twice"),
        ("?v=1&model=llama&gpu=card&engine=x", "no engine is called 'x'"),
        ("?" + "&".join(f"k{i}=1" for i in range(200)), "too many fields"),
        ("?v=1&model=" + "a" * MAX_LINK_CHARACTERS, "characters; at most 8,000 are read"),
    ],
)
def test_a_link_that_cannot_be_read_is_refused_with_its_key(link: str, reason: str) -> None:
    with pytest.raises(LinkError, match=reason) as error:
        from_link(link)
    assert len(str(error.value)) < 400


def test_what_is_not_a_preset_cannot_be_in_a_link() -> None:
    with pytest.raises(LinkError, match="the model An 8B of the Llama layout is not a preset"):
        to_link(Scenario(LLAMA_8B, GPU))
    with pytest.raises(LinkError, match="the GPU A card is not a preset"):
        to_link(Scenario(MODEL, replace(GPU, id="")))


def test_a_changed_copy_of_a_preset_cannot_pass_as_the_preset() -> None:
    with pytest.raises(LinkError, match="is not a preset"):
        to_link(Scenario(MODEL.with_kv_heads(4), GPU))
    with pytest.raises(LinkError, match="is not a preset"):
        to_link(Scenario(MODEL, replace(GPU, usable_bytes=GIB)))
    with pytest.raises(LinkError, match=r"the draft model .* is not a preset"):
        to_link(Scenario(MODEL, GPU, draft_model=MODEL.with_kv_heads(4)))


KEYS = st.sampled_from([field.key for field in FIELDS] + ["v", "x"])
VALUES = st.text(max_size=12) | st.sampled_from(["1", "llama", "card", "8k", "fp8", "0.5", "", "%", "999999999999"])


@given(st.dictionaries(KEYS, VALUES))
def test_only_a_kvplan_error_comes_out_of_a_broken_link(given_fields: dict[str, str]) -> None:
    valid = {"v": "1", "model": "llama", "gpu": "card"}
    for pairs in (given_fields, {**valid, **given_fields}, {**given_fields, **valid}):
        try:
            message = to_link(from_fields(pairs))
        except KvplanError as error:
            message = str(error)
        assert message


@given(st.text(max_size=200))
def test_any_text_is_a_link_or_a_kvplan_error(text: str) -> None:
    for link in (text, "?v=1&model=llama&gpu=card&" + text):
        try:
            message = to_link(from_link(link))
        except KvplanError as error:
            message = str(error)
        assert message
