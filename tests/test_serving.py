"""The server of a scenario: by what an engine reserves, and what would make it hold everything."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.engines import ENGINES
from kvplan.engines.overheads import measured
from kvplan.engines.reserved import HAS_POOL, holds_all
from kvplan.engines.support import default_cache_dtype
from kvplan.errors import InputError
from kvplan.plan import Scenario, plan
from kvplan.presets import load_gpu, load_model
from kvplan.serving import MOST_TIMES, Serving, serve, server_suggestions
from kvplan.units import GIB

MODEL = load_model("llama-3.1-8b")


def scenario(engine: str, gpu: str = "rtx-4090-24gb", **settings: Any) -> Scenario:
    given = {"kv_dtype": default_cache_dtype(engine, MODEL), "context_length": 32768, "batch_size": 8, **settings}
    return Scenario(MODEL, gpu, **given)


def large(engine: str) -> Serving:
    """A plan whose weights fit on its card, and whose cache does not."""
    return serve(scenario(engine), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_small_plan_is_held_and_needs_no_change(engine: str) -> None:
    found = serve(scenario(engine, "h100-sxm-80gb", context_length=4096), engine)
    assert found.fits
    assert server_suggestions(found) == ()
    assert found.offload == ""


@pytest.mark.parametrize("engine", ENGINES)
def test_every_suggestion_holds_it_all_and_changes_one_setting(engine: str) -> None:
    now = large(engine)
    assert not now.fits
    found = server_suggestions(now)
    assert found
    for suggestion in found:
        assert suggestion.serving.fits
        assert suggestion.sentence.startswith(suggestion.change)
        changed = suggestion.serving.scenario
        assert changed.with_changes(**{suggestion.lever: getattr(now.scenario, suggestion.lever)}) == now.scenario


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lever", ["context_length", "batch_size"])
def test_the_largest_number_that_is_held_is_suggested(engine: str, lever: str) -> None:
    found = next((item for item in server_suggestions(large(engine)) if item.lever == lever), None)
    if found is None:  # not even a small part of it is held
        least = getattr(large(engine).scenario, lever) // MOST_TIMES
        assert not serve(scenario(engine, **{lever: max(1, least)}), engine).fits
        return
    value = getattr(found.serving.scenario, lever)
    assert not serve(scenario(engine, **{lever: value + 1}), engine).fits


def test_the_narrowest_step_of_the_cache_is_taken_first() -> None:
    asked = scenario("llama.cpp", context_length=8192, batch_size=12)  # 12 GiB in f16 beside 15 of 24
    (found,) = (item for item in server_suggestions(serve(asked, "llama.cpp")) if item.lever == "kv_dtype")
    wider = [name for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0") if name != found.serving.scenario.kv_dtype]
    held = [name for name in wider if serve(asked.with_changes(kv_dtype=name), "llama.cpp").fits]
    size = plan(found.serving.scenario).cache_bytes
    assert all(plan(asked.with_changes(kv_dtype=name)).cache_bytes <= size for name in held)


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_engines_that_read_gguf_files_are_offered_their_formats(engine: str) -> None:
    """Q6_K takes 23.0 of 23.5 GiB, which leaves nothing for the compute buffers; Q5_K takes 19.8."""
    asked = Scenario("gemma-3-27b", "rtx-4090-24gb", kv_dtype="fp16", context_length=1024, batch_size=1)
    (found,) = (item for item in server_suggestions(serve(asked, engine)) if item.lever == "weight_dtype")
    assert found.serving.scenario.weight_dtype == "gguf_q5_k"


def test_an_engine_counts_what_it_reserves_and_not_what_is_resident() -> None:
    """Window layers reserve for a batch in flight: the plan fits, and vLLM cannot hold it all."""
    asked = Scenario("gemma-3-27b", "h100-sxm-80gb", context_length=8192, batch_size=8)
    assert plan(asked).fits
    assert not serve(asked, "vllm").fits


@pytest.mark.parametrize("engine", ENGINES)
def test_the_quick_answer_is_that_of_the_whole_count(engine: str) -> None:
    for size in (1, 4, 8, 64):
        found = serve(scenario(engine, "a100-pcie-40gb", batch_size=size), engine)
        reserved = found.reserved
        if engine in HAS_POOL:
            assert found.fits == (reserved.typical.max_concurrency >= size)
        else:
            assert found.fits == (reserved.bytes <= reserved.typical.pool_bytes)
        assert holds_all(found.launch, found.room_bytes) == found.fits


def test_replicas_share_the_requests() -> None:
    one, four = (serve(scenario("vllm", data_parallel=count), "vllm") for count in (1, 4))
    assert not one.fits
    assert four.launch.replica_requests == 2
    assert f"{four.reserved.typical.max_concurrency * 4:,.2f} requests" in four.sentence


def test_the_known_overhead_counts() -> None:
    asked = scenario("vllm", batch_size=2, context_length=16384)
    assert serve(asked, "vllm", None, (measured("other", GIB, "a log"),)).fits
    assert not serve(asked, "vllm", None, (measured("other", 8 * GIB, "a log"),)).fits


def test_a_model_larger_than_its_gpu_says_how_much_of_it_fits() -> None:
    asked = Scenario("llama-3.1-70b", load_gpu("h100-sxm-80gb"), kv_dtype="fp16", batch_size=1)
    assert "start with -ngl" in serve(asked, "llama.cpp").offload
    assert serve(asked.with_changes(kv_dtype="bf16"), "vllm").offload == ""


def test_what_the_engine_cannot_serve_is_refused() -> None:
    with pytest.raises(InputError, match="Ollama has no cache dtype bf16; choose fp16, its default"):
        serve(Scenario(MODEL, "h100-sxm-80gb"), "ollama")


@pytest.mark.parametrize(("known", "said"), [(3, "known is 3"), ("log", "known is 'log'"), ([3], "known holds 3")])
def test_what_is_known_of_a_server_are_overheads(known: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}; (a tuple of Overhead is|overheads of a log are) needed$"):
        serve(scenario("vllm"), "vllm", known=known)


def test_adapters_and_a_draft_model_take_from_the_pool() -> None:
    plain = serve(scenario("vllm", "h100-sxm-80gb"), "vllm").reserved.typical.pool_bytes
    adapted = serve(scenario("vllm", "h100-sxm-80gb", adapter_bytes=GIB), "vllm").reserved.typical.pool_bytes
    assert plain - adapted == GIB
    draft = load_model("llama-3.2-1b")
    drafted = serve(scenario("vllm", "h100-sxm-80gb", draft_model=draft), "vllm")
    assert plain - drafted.reserved.typical.pool_bytes == draft.weight_bytes()
    assert any("draft model" in note for note in drafted.notes)
    cells = serve(scenario("llama.cpp", "h100-sxm-80gb", adapter_bytes=GIB), "llama.cpp").reserved.budget
    assert cells is not None
    assert cells.weight_bytes == MODEL.weight_bytes() + GIB


def test_what_an_engine_has_no_setting_for_is_said() -> None:
    assert any("no memory fraction" in note for note in serve(scenario("transformers"), "transformers").notes)
    assert serve(scenario("vllm"), "vllm").notes == ()
    assert any("shared prefix" in note for note in serve(scenario("vllm", shared_prefix=100), "vllm").notes)


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_an_engine_that_spreads_whole_layers_is_offered_any_number_of_gpus(engine: str) -> None:
    """32 heads do not divide by 3, and need not: two cards hold 141 GB of weights nowhere near, three do."""
    asked = Scenario("llama-3.1-70b", "h100-sxm-80gb", kv_dtype="fp16", context_length=8192, batch_size=16)
    (found,) = (item for item in server_suggestions(serve(asked, engine)) if item.change.endswith("share the model"))
    assert (found.lever, found.serving.scenario.num_gpus) == ("pipeline_parallel", 3)
    assert found.change == "Let 3 GPUs share the model"
    for wide in (2, 3):
        changed = {"pipeline_parallel": wide} if wide == 3 else {"tensor_parallel": 2}
        assert serve(asked.with_changes(**changed), engine).fits == (wide == 3)


@pytest.mark.parametrize("bad", [None, 3, "vllm"], ids=repr)
def test_only_a_server_has_suggestions(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^the server is .*; a Serving is needed$"):
        server_suggestions(bad)
