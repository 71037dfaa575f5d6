"""What a server sets aside for the requests of a plan."""

from __future__ import annotations

import pytest

from kvplan.engines import ENGINES
from kvplan.engines.launch import Launch, budget_of
from kvplan.engines.overheads import measured
from kvplan.engines.reserved import HAS_POOL, overhead_parts, reserved_of, typical_total
from kvplan.presets import load_gpu, load_model
from kvplan.units import GIB, MIB

TOKEN = 2 * 32 * 8 * 128 * 2  # K and V, 32 layers, 8 heads of 128, 16 bits
TENSORS_OF_A_LAYER = TOKEN // 32


def launch(engine: str, **settings: object) -> Launch:
    given = {"context_length": 8192, "batch_size": 4, "kv_dtype": "fp16", **settings}
    return Launch(engine, load_model("llama-3.1-8b"), load_gpu("h100-sxm-80gb"), **given)  # type: ignore[arg-type]


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
def test_only_an_engine_with_a_pool_has_a_budget_and_a_spread(engine: str) -> None:
    found = reserved_of(launch(engine), 40 * GIB)
    pools = [found.low.pool_bytes, found.typical.pool_bytes, found.high.pool_bytes]
    if engine in HAS_POOL:
        assert found.budget == budget_of(launch(engine))
        assert pools == [found.budget.low_bytes, found.budget.pool_bytes, found.budget.high_bytes]
    else:
        assert found.budget is None
        assert pools == [40 * GIB] * 3


def test_room_below_nothing_is_no_room() -> None:
    found = reserved_of(launch("llama.cpp"), -1)
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
    assert overhead_parts(launch("llama.cpp", known=(peak,))) == (peak,)
