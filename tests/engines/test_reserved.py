"""What a server sets aside for the requests of a plan."""

from __future__ import annotations

import pytest

from kvplan.engines import ENGINES
from kvplan.engines.launch import Launch, budget_of
from kvplan.engines.offload import layers_on_gpu, offload_sentence, slots_budget
from kvplan.engines.overheads import measured
from kvplan.engines.reserved import HAS_POOL, HAS_SLOTS, overhead_parts, reserved_of, typical_total
from kvplan.model import Placement
from kvplan.presets import load_gpu, load_model
from kvplan.units import GIB, MIB

TOKEN = 2 * 32 * 8 * 128 * 2  # K and V, 32 layers, 8 heads of 128, 16 bits
TENSORS_OF_A_LAYER = TOKEN // 32


def launch(engine: str, **settings: object) -> Launch:
    given = {"context_length": 8192, "batch_size": 4, **settings}
    values = {"model": load_model("llama-3.1-8b"), "gpu": load_gpu("h100-sxm-80gb"), **given}
    return Launch(engine, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "transformers-static"])
def test_full_attention_at_whole_blocks_reserves_what_it_holds(engine: str) -> None:
    assert reserved_of(launch(engine), 40 * GIB).bytes == 4 * 8192 * TOKEN


def test_a_growing_cache_needs_its_largest_layer_twice() -> None:
    found = reserved_of(launch("transformers"), 40 * GIB)
    assert found.bytes == 4 * 8192 * (TOKEN + TENSORS_OF_A_LAYER)


def test_a_request_is_rounded_up_to_whole_blocks() -> None:
    assert reserved_of(launch("vllm", context_length=8193), 0).bytes == 4 * (8192 + 16) * TOKEN
    assert reserved_of(launch("llama.cpp", context_length=8193), 0).bytes == 4 * (8192 + 256) * TOKEN


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_that_allocates_at_its_start_has_a_budget_and_a_spread(engine: str) -> None:
    found = reserved_of(launch(engine), 40 * GIB)
    pools = [found.low.pool_bytes, found.typical.pool_bytes, found.high.pool_bytes]
    if engine in HAS_POOL | HAS_SLOTS:
        assert found.budget == (budget_of if engine in HAS_POOL else slots_budget)(launch(engine))
        assert pools == [found.budget.low_bytes, found.budget.pool_bytes, found.budget.high_bytes]
    else:
        assert found.budget is None
        assert pools == [40 * GIB] * 3


def test_room_below_nothing_is_no_room() -> None:
    found = reserved_of(launch("transformers-static"), -1)
    assert (found.typical.pool_bytes, found.typical.longest_context) == (0, 0)


def test_k_and_v_of_llamacpp_keep_their_own_types() -> None:
    key, value = (8192 * 32 * 8 * size for size in (128 // 32 * 34, 128 // 32 * 18))  # q8_0 and q4_0 blocks of 32
    assert reserved_of(launch("llama.cpp", kv_dtype="q8_0/q4_0", batch_size=1), 0).bytes == key + value


def test_known_overheads_stand_beside_estimates_of_the_others() -> None:
    graphs = measured("cuda_graphs", 500 * MIB, "a log")
    parts = overhead_parts(launch("vllm", known=(graphs,)))
    assert [(part.name, part.measured) for part in parts] == [
        ("activation", False), ("non_torch", False), ("cuda_graphs", True),
    ]  # fmt: skip
    assert typical_total(parts) == parts[0].typical + parts[1].typical + 500 * MIB


def test_an_older_vllm_has_its_graphs_outside_and_they_count_too() -> None:
    parts = overhead_parts(launch("vllm", engine_version="0.11"))
    assert {part.name for part in parts} == {"activation", "non_torch", "cuda_graphs"}


def test_without_a_pool_only_what_is_known_is_an_overhead() -> None:
    peak = measured("activation", 300 * MIB, "a log")
    assert overhead_parts(launch("transformers", known=(peak,))) == (peak,)


def test_llamacpp_takes_what_weights_buffers_and_contexts_leave_of_all_gpus() -> None:
    budget = slots_budget(launch("llama.cpp", placement=Placement(2)))
    usable, weights = load_gpu("h100-sxm-80gb").usable_bytes, load_model("llama-3.1-8b").weight_bytes()
    logits = 128_256 * 4 * 512
    assert [part.typical for part in budget.overheads] == [2 * logits * 105 // 100, 2 * (13 * GIB // 100)]
    assert budget.pool_bytes == 2 * usable - weights - sum(part.typical for part in budget.overheads)
    assert not budget.outside


def test_known_buffers_of_llamacpp_replace_the_estimate() -> None:
    peak = measured("activation", 300 * MIB, "a log")
    assert [part.measured for part in slots_budget(launch("llama.cpp", known=(peak,))).overheads] == [True, False]


def test_layers_go_to_the_gpu_from_the_last_on_as_far_as_they_fit() -> None:
    small = launch("llama.cpp", gpu=load_gpu("rtx-4090-24gb"), batch_size=4, context_length=32768)
    budget = slots_budget(small)
    head = 128_256 * 4096 * 2 + 4096 * 2  # and the final norm; the embedding stays in main memory
    attention = 2 * 4096 * (4096 + 1024)  # q and o, k and v
    layer = 2 * (attention + 3 * 4096 * 14336 + 2 * 4096) + 4 * 32768 * TENSORS_OF_A_LAYER
    room = budget.visible_bytes - sum(part.typical for part in budget.overheads)
    assert layers_on_gpu(small) == 1 + (room - head) // layer
    assert f"About {1 + (room - head) // layer} of 33 layers fit" in offload_sentence(small)


def test_nothing_is_said_of_a_model_that_fits_whole() -> None:
    assert layers_on_gpu(launch("llama.cpp")) == 33
    assert offload_sentence(launch("llama.cpp")) == ""


def test_a_replica_reserves_for_its_own_requests() -> None:
    whole, half = reserved_of(launch("vllm"), 0), reserved_of(launch("vllm", placement=Placement(1, 1, 2)), 0)
    assert half.bytes * 2 == whole.bytes
    assert half.typical.replicas == 2
