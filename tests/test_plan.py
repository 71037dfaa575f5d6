"""Plans: one answer for one GPU, its limits, its words and its refusals. The laws stand in test_laws.py."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.attention import FullAttention, NoCache, SlidingAttention
from kvplan.define import define_model
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import DtypeError, InputError, KvplanError, ParallelError, UnknownNameError
from kvplan.hardware import define_gpu
from kvplan.plan import MANY_GPUS_OVERHEAD, ONE_GPU_OVERHEAD, MemoryPlan, Scenario, plan
from kvplan.units import GIB
from tests.examples import LLAMA_8B, MAMBA, SMALL_GPU, model_of

GPU_80 = define_gpu(name="A card of 80 GiB", usable_bytes=80 * GIB, bandwidth=3_350 * 10**9, node_gpus=8)
WEIGHTS = 8_030_261_248 * 2


def exact(model: Any = LLAMA_8B, gpu: Any = GPU_80, **settings: Any) -> MemoryPlan:
    """A plan without overhead, unless one is given."""
    return plan(Scenario(model, gpu, **{"memory_fraction": 1, "overhead_bytes": 0, **settings}))


# -------------------------------------------------------------------------------------------------------- parts


def test_the_parts_of_a_plan_worked_out() -> None:
    p = exact(context_length=8192, batch_size=8, overhead_bytes=GIB)
    assert p.weight_bytes == WEIGHTS
    assert p.cache_bytes == 8 * GIB
    assert p.overhead_bytes == GIB
    assert p.free_bytes == 80 * GIB - WEIGHTS - 9 * GIB
    assert p.total_bytes == WEIGHTS + 9 * GIB
    assert p.fits


def test_what_the_engine_may_not_take_is_overhead() -> None:
    p = exact(memory_fraction=0.9)
    assert p.unused_bytes == p.overhead_bytes == 80 * GIB - -(-80 * GIB * 9 // 10)


def test_a_fraction_is_the_decimal_that_was_written() -> None:
    gpu = define_gpu(name="Round", usable_bytes=10**10)
    assert exact(gpu=gpu, memory_fraction=0.9).unused_bytes == 10**9
    assert exact(gpu=gpu, memory_fraction=0.7).unused_bytes == 3 * 10**9
    assert exact(gpu=gpu, memory_fraction=np.float64(0.7)).unused_bytes == 3 * 10**9


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ONE_GPU_OVERHEAD),
        ({"tensor_parallel": 2}, MANY_GPUS_OVERHEAD),
        ({"pipeline_parallel": 2}, MANY_GPUS_OVERHEAD),
    ],
)
def test_overhead_that_is_not_given_is_an_estimate_with_a_source(settings: dict[str, Any], expected: object) -> None:
    p = exact(overhead_bytes=None, **settings)
    assert p.runtime == expected
    assert p.is_estimate
    context = "CUDA context 0.13" if p.scenario.num_gpus == 1 else "CUDA context and NCCL 0.55"
    said = f"medians of public vLLM start-up logs: activations 1.49 GiB, {context} GiB, CUDA graphs 0.64 GiB"
    assert p.runtime.source == said
    assert p.runtime.source_in("GB").endswith(" GB, CUDA graphs 0.69 GB")  # 0.64 × 1.073741824
    assert exact().runtime.source_in("GB") == "given by the user"
    assert p.runtime.high_bytes > p.runtime.typical_bytes
    assert not exact().is_estimate


def test_the_stage_that_holds_the_most_is_the_plan() -> None:
    layers = [NoCache(), NoCache(), FullAttention(4, 64), FullAttention(4, 64)]
    p = exact(model_of(layers), pipeline_parallel=2, context_length=100_000)
    assert p.stage == 1
    assert p.cache_bytes == 2 * 100_000 * 8 * 2 * 4 * 64 * 2


def test_images_are_held_besides_the_context() -> None:
    plain, images = exact(context_length=1000, batch_size=4), exact(context_length=1000, batch_size=4, image_tokens=576)
    assert images.cache_bytes - plain.cache_bytes == 4 * 576 * 131_072


def test_no_limit_is_a_context_that_does_not_hold_the_shared_prefix() -> None:
    small = kvplan.Scenario("llama-3.1-8b", "l4-24gb", context_length=65536, batch_size=8, shared_prefix=64000)
    p = plan(small)
    assert p.capacity_bytes - p.weight_bytes - p.overhead_bytes < 64000 * 131072  # the prefix alone is too large
    assert p.max_context_length == 0
    assert p.sentence.endswith("8 sequences would not fit even with nothing but the shared prefix of 64,000 tokens")
    large = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", context_length=250000, batch_size=8, shared_prefix=200000)
    assert plan(large).weight_bytes < 200000 * 131072  # so every context that holds the prefix is past the crossover
    assert plan(large).crossover_context_length == 200000
    assert plan(large.with_changes(image_tokens=500)).crossover_context_length == 199500


def test_a_shared_prefix_is_held_once() -> None:
    plain, shared = (
        exact(context_length=1000, batch_size=4),
        exact(context_length=1000, batch_size=4, shared_prefix=600),
    )
    assert plain.cache_bytes - shared.cache_bytes == 3 * 600 * 131_072


def test_adapters_and_a_draft_are_overhead() -> None:
    draft = define_model(
        name="Draft",
        num_layers=1,
        hidden_size=256,
        num_attention_heads=4,
        num_kv_heads=2,
        intermediate_size=512,
        vocab_size=1000,
    )
    p = exact(adapter_bytes=12_345, draft_model=draft, context_length=100, batch_size=3)
    assert p.draft_bytes == draft.weight_bytes() + draft.cache_bytes(100, 3)
    assert p.overhead_bytes == 12_345 + p.draft_bytes


# ------------------------------------------------------------------------------------------------------- limits


def test_limits_worked_out() -> None:
    p = exact(context_length=8192, batch_size=8)
    budget = 80 * GIB - WEIGHTS
    assert p.max_batch_size == budget // GIB
    assert p.max_context_length == budget // 8 // 131_072


def test_a_model_of_windows_has_no_longest_context() -> None:
    model = model_of([SlidingAttention(4, 64, window=100)] * 3)
    assert exact(model).max_context_length is None
    assert exact(model).max_batch_size is not None


def test_a_model_of_states_has_a_largest_batch_only() -> None:
    assert exact(model_of([MAMBA])).max_context_length is None
    assert exact(model_of([MAMBA])).crossover_context_length is None


def test_a_model_that_keeps_nothing_has_no_limits() -> None:
    p = exact(model_of([NoCache()]))
    assert (p.max_context_length, p.max_batch_size, p.crossover_context_length) == (None, None, None)
    assert p.sentence.startswith("Fits: ")


def test_nothing_fits_where_the_weights_do_not() -> None:
    p = exact(gpu=define_gpu(name="Tiny", usable_bytes=GIB))
    assert (p.max_context_length, p.max_batch_size, p.fits) == (0, 0, False)
    assert p.free_bytes == GIB - WEIGHTS - 8 * GIB


# -------------------------------------------------------------------------------------------------------- decode


def test_the_floor_is_bytes_read_over_bandwidth() -> None:
    embedding = 128256 * 4096 * 2
    p = exact(context_length=1000, batch_size=2)
    read = WEIGHTS - embedding + 2 * 1000 * 131_072
    assert p.decode_floor_seconds == pytest.approx(read / (3_350 * 10**9), rel=1e-12)


def test_a_draft_model_is_read_once_in_a_step() -> None:
    """Its layers, head and norms, and what its cache holds; rows of its embedding are looked up."""
    draft = define_model(
        name="Draft", num_layers=2, hidden_size=64, num_attention_heads=2, num_kv_heads=1, intermediate_size=128,
        vocab_size=1000,
    )  # fmt: skip
    alone, drafted = (exact(context_length=1000, batch_size=2, draft_model=model) for model in (None, draft))
    per_layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64
    read = 2 * (2 * per_layer + 64 + 1000 * 64) + 2 * 1000 * 2 * 2 * 32 * 2
    assert drafted.draft_read_bytes == read
    assert alone.draft_read_bytes == 0
    assert drafted.model_read_bytes == alone.model_read_bytes
    assert drafted.decode_floor_seconds == pytest.approx(alone.decode_floor_seconds + read / 3_350e9, rel=1e-12)


def test_stages_run_one_after_the_other() -> None:
    one, two = exact(context_length=1000), exact(context_length=1000, pipeline_parallel=2)
    assert two.decode_floor_seconds == pytest.approx(one.decode_floor_seconds, rel=1e-12)


def test_there_is_no_floor_without_a_bandwidth() -> None:
    assert exact(gpu=define_gpu(name="Unknown", usable_bytes=80 * GIB)).decode_floor_seconds is None


def test_bytes_per_token_is_the_slope() -> None:
    assert exact().bytes_per_token == 131_072
    assert isinstance(exact().bytes_per_token, int | Fraction)


# --------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 8}, "Fits: 57.0 GiB free, room for 65 sequences of 8,192 tokens"),
        (
            {"batch_size": 8, "tensor_parallel": 2},
            "Fits: 68.5 GiB free on each GPU, room for 145 sequences of 8,192 tokens",
        ),
        ({"batch_size": 1, "context_length": 400_000}, "Fits: 16.2 GiB free, room for 1 sequence of 400,000 tokens"),
        ({"batch_size": 100}, "Does not fit: 35.0 GiB short; 65 sequences of 8,192 tokens would fit"),
        (
            {"batch_size": 2, "context_length": 300_000},
            "Does not fit: 8.20 GiB short; 1 sequence of 300,000 tokens would fit",
        ),
        (
            {"batch_size": 1, "context_length": 10**6},
            "Does not fit: 57.0 GiB short; 1 sequence would fit up to 532,827 tokens each",
        ),
    ],
)
def test_the_answer_in_words(settings: dict[str, Any], sentence: str) -> None:
    assert exact(**settings).sentence == sentence


def test_weights_that_do_not_fit_are_named() -> None:
    p = exact(gpu=define_gpu(name="Tiny", usable_bytes=GIB), batch_size=1)
    assert p.sentence == "Does not fit: 15.0 GiB short; the weights and overhead alone exceed what the GPU can use"


def test_a_state_that_does_not_fit_at_all_is_named() -> None:
    model = model_of([MAMBA] * 4)
    gpu = define_gpu(name="Tiny", usable_bytes=model.weight_bytes() + 2**20)
    p = exact(model, gpu, batch_size=100)
    assert p.max_batch_size == (2**20) // model.cache_bytes(1)
    assert (
        replace(p, scenario=p.scenario.with_changes(context_length=7)).sentence.split("; ")[1]
        == "100 sequences would not fit even with one token each"
    )


def test_a_context_beyond_the_models_limit_is_planned_with_a_warning() -> None:
    p = exact(context_length=200_000, batch_size=1)
    assert p.warnings == ("200,000 tokens are beyond the 131,072 that An 8B of the Llama layout is made for",)
    assert exact(context_length=131_072).warnings == ()


def test_more_gpus_than_a_node_holds_are_a_warning() -> None:
    assert exact(tensor_parallel=16).warnings == (
        "tensor_parallel 16 is more than the 8 GPUs of the largest node known",
    )


def test_a_poorly_known_gpu_is_a_warning() -> None:
    gpu = replace(GPU_80, is_estimate=True, usable_basis="driver total less the usual reserve", confidence="low")
    first, second = exact(gpu=gpu).warnings
    assert "is an estimate: driver total less the usual reserve" in first
    apple = plan(Scenario("llama-3.1-8b", "apple-m5-pro-64gb")).warnings[0]
    assert "is an estimate: what macOS lets the GPU use" in apple
    assert "poorly sourced" in second
    assert exact(gpu=gpu).is_estimate


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "name", ["context_length", "batch_size", "tensor_parallel", "pipeline_parallel", "num_kv_heads"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", 2**41, True, float("nan")])
def test_an_absurd_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is .*; (it must be from|a whole number is needed)"):
        Scenario(LLAMA_8B, GPU_80, **{name: value})


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({"memory_fraction": 0}, InputError, "memory_fraction is 0; give a number above 0 and up to 1"),
        ({"memory_fraction": 1.01}, InputError, "memory_fraction is 1.01"),
        ({"memory_fraction": float("nan")}, InputError, "memory_fraction is nan"),
        ({"memory_fraction": "0.9"}, InputError, "memory_fraction is '0.9'"),
        ({"memory_fraction": True}, InputError, "memory_fraction is True"),
        ({"overhead_bytes": -1}, InputError, "overhead_bytes is -1"),
        ({"overhead_bytes": 1.5e9}, InputError, "overhead_bytes is 1500000000.0; a whole number is needed"),
        ({"adapter_bytes": -1}, InputError, "adapter_bytes is -1"),
        ({"image_tokens": -1}, InputError, "image_tokens is -1"),
        ({"shared_prefix": 9000}, InputError, "shared_prefix is 9,000; a sequence only holds 8,192 tokens"),
        ({"kv_dtype": "fp9"}, UnknownNameError, "no kv dtype is called 'fp9'; did you mean"),
        ({"kv_dtype": None}, InputError, "kv_dtype is None"),
        ({"weight_dtype": "int4"}, InputError, "int4 has many layouts"),
        ({"weight_dtype": 8}, InputError, "weight_dtype is 8"),
        ({"engine": "vlm"}, UnknownNameError, "no engine is called 'vlm'"),
        ({"num_kv_heads": 3}, InputError, "num_kv_heads is 3, which does not divide the 32 attention heads"),
        ({"tensor_parallel": 3}, ParallelError, "32 attention heads, which do not divide by tensor_parallel=3"),
        ({"pipeline_parallel": 33}, ParallelError, "32 layers, too few for pipeline_parallel=33"),
        ({"draft_model": 7}, InputError, "draft_model is 7; a Model or a preset id is needed"),
        (
            {"contxt_length": 7},
            UnknownNameError,
            "no scenario setting is called 'contxt_length'; did you mean context_length",
        ),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(settings: dict[str, Any], error: type[KvplanError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Scenario(LLAMA_8B, GPU_80, **settings)


@pytest.mark.parametrize("thing", [None, 7, {"name": "x"}])
def test_a_model_or_gpu_of_another_type_is_refused(thing: Any) -> None:
    with pytest.raises(InputError, match=r"model is .*; a Model or a preset id is needed"):
        Scenario(thing, GPU_80)
    with pytest.raises(InputError, match=r"gpu is .*; a Gpu or a preset id is needed"):
        Scenario(LLAMA_8B, thing)


def test_a_cache_dtype_that_no_engine_stores_is_refused_when_planned() -> None:
    with pytest.raises(DtypeError, match="a row of 80 does not fill whole blocks"):
        exact(model_of([FullAttention(4, 80)]), kv_dtype="q8_0")


# ---------------------------------------------------------------------------------------------------- scenarios


def test_a_scenario_keeps_plain_ints_and_the_usual_names() -> None:
    scenario = Scenario(
        LLAMA_8B, SMALL_GPU, context_length=np.int64(5), overhead_bytes=np.int64(7), kv_dtype="FP8_E4M3",
        weight_dtype=WEIGHT_FORMATS["mxfp4"],
    )  # fmt: skip
    assert type(scenario.context_length) is int
    assert type(scenario.overhead_bytes) is int
    assert (scenario.kv_dtype, scenario.weight_dtype) == ("fp8", "mxfp4")


def test_changes_are_checked_again() -> None:
    scenario = Scenario(LLAMA_8B, SMALL_GPU)
    assert scenario.with_changes(batch_size=3).batch_size == 3
    assert scenario.with_changes() == scenario
    with pytest.raises(InputError, match="batch_size is 0"):
        scenario.with_changes(batch_size=0)
    with pytest.raises(UnknownNameError, match="batchsize"):
        scenario.with_changes(batchsize=3)


def test_gpus_are_the_product_of_both_kinds_of_parallelism() -> None:
    assert Scenario(LLAMA_8B, SMALL_GPU, tensor_parallel=4, pipeline_parallel=2).num_gpus == 8


# ---------------------------------------------------------------------------------------------------------- fuzz

ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2) | st.dictionaries(st.text(max_size=2), st.none(), max_size=1)
    | st.sampled_from(["bf16", "fp8", "q8_0/", "/", "llama-3.1-8b", 10**5000, 2**63, 1e308, -0.0, 1j, np.int8(3)])
)  # fmt: skip
SETTINGS = st.sampled_from([item.name for item in fields(Scenario)])


@given(st.dictionaries(SETTINGS, ANYTHING, max_size=3))
def test_only_a_kvplan_error_comes_out_of_any_scenario(settings: dict[str, Any]) -> None:
    try:
        p = plan(Scenario(**{"model": LLAMA_8B, "gpu": GPU_80, **settings}))
        message = f"{p.sentence} {p.warnings} {p.max_context_length} {p.crossover_context_length}"
    except KvplanError as error:
        message = str(error)
    assert len(message) < 500


@pytest.mark.parametrize("value", [None, "llama-3.1-8b", 7])
def test_a_plan_of_anything_but_a_scenario_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"a kvplan\.Scenario is needed"):
        plan(value)  # type: ignore[arg-type]


def test_a_weight_dtype_is_kept_as_written_but_for_case_and_spaces() -> None:
    loud = kvplan.Scenario("llama-3.1-8b", "l4-24gb", weight_dtype=" FP8 ")
    assert loud == kvplan.Scenario("llama-3.1-8b", "l4-24gb", weight_dtype="fp8")
    assert loud.weight_dtype == "fp8"


def test_a_scenario_that_no_plan_could_answer_is_refused_at_once() -> None:
    with pytest.raises(DtypeError, match="no known engine stores"):
        kvplan.Scenario("deepseek-v3", "h200-141gb", tensor_parallel=8, kv_dtype="int8_per_token_head")


def test_images_that_cross_attention_holds_are_said_to_be_counted_already() -> None:
    """Llama 3.2 Vision: 6,404 tokens of an image in 8 layers; nothing of them is among the text, where others' are."""
    vision = Scenario("llama-3.2-11b-vision", "h100-sxm-80gb")
    assert vision.model.cache_curve().fixed_bytes == 8 * 2 * 8 * 128 * 6404 * 2
    assert plan(vision).warnings == ()
    (said,) = plan(vision.with_changes(image_tokens=1601)).warnings
    assert said == (
        "Llama 3.2 11B Vision Instruct always holds 6,404 tokens of images, in cross-attention layers, and they are "
        "counted: image_tokens 1,601 come on top, in the layers of text"
    )
    assert plan(Scenario("gemma-3-4b", "h100-sxm-80gb", image_tokens=256)).warnings == ()


def test_images_count_against_the_models_own_limit() -> None:
    settings = {"context_length": 100_000, "batch_size": 1}
    quiet = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", **settings)
    loud = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", image_tokens=40_000, **settings)
    assert not any("beyond" in text for text in plan(quiet).warnings)
    assert any("140,000 tokens are beyond the 131,072" in text for text in plan(loud).warnings)


def test_the_sentence_can_speak_in_powers_of_ten() -> None:
    p = plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=1, overhead_bytes=0, memory_fraction=1.0))
    assert p.free_bytes == 84_943_044_608 - 16_060_522_496 - 8192 * 131_072
    assert p.sentence_in("GB").startswith("Fits: 67.8 GB free")
    assert p.sentence.startswith("Fits: 63.2 GiB free")


def test_a_prefix_as_long_as_the_context_is_named_as_the_reason() -> None:
    p = plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", shared_prefix=8192))
    assert p.cache_bytes == 8192 * 131_072
    assert p.max_batch_size is None
    assert p.sentence.endswith("every token is in the shared prefix")


def test_a_prefix_takes_nothing_where_no_sequence_is_held() -> None:
    settings = {"image_tokens": 10**9, "shared_prefix": 10**9}
    p = plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", **settings))
    assert not p.fits
    assert p.fits_empty
