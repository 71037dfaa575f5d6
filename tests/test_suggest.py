"""The smallest single change of each lever that makes a scenario fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.engines.commands import command
from kvplan.engines.lines import predicted_lines
from kvplan.hardware import define_gpu
from kvplan.model import Model
from kvplan.plan import Scenario
from kvplan.suggest import Suggestion, launch_of, suggestions
from kvplan.units import GIB


def llama() -> Model:
    """Llama 3.1 8B: 131,072 B a token, 16,060,522,496 B of weights."""
    return define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip


def scenario(usable_gib: int, **settings: Any) -> Scenario:
    gpu = define_gpu(name="G", usable_bytes=usable_gib * GIB, node_gpus=8)
    return Scenario(llama(), gpu, **{"overhead_bytes": 0, "memory_fraction": 1.0, **settings})


def found(asked: Scenario) -> dict[str, Suggestion]:
    return {item.lever: item for item in suggestions(asked)}


def test_a_scenario_that_fits_needs_no_suggestion() -> None:
    assert suggestions(scenario(80)) == ()


def test_every_suggestion_fits_and_changes_one_setting_only() -> None:
    asked = scenario(24, context_length=32768, batch_size=8, memory_fraction=0.9)  # 32 GiB of cache, 15 of weights
    items = suggestions(asked)
    assert items
    for item in items:
        assert item.plan.fits
        assert asked.with_changes(**{item.lever: getattr(item.scenario, item.lever)}) == item.scenario


def test_context_and_batch_are_as_large_as_memory_allows() -> None:
    asked = scenario(24, context_length=32768, batch_size=8)
    free = 24 * GIB - 16_060_522_496
    assert found(asked)["context_length"].scenario.context_length == free // (8 * 131_072)
    assert found(asked)["batch_size"].scenario.batch_size == free // (32768 * 131_072)


def test_the_widest_cache_dtype_that_fits_is_suggested() -> None:
    asked = scenario(24, context_length=32768, batch_size=3)  # 12 GiB at 16 bits; 9.04 GiB are free
    assert found(asked)["kv_dtype"].scenario.kv_dtype == "fp8"  # 6 GiB
    tight = asked.with_changes(batch_size=6)  # 24 GiB at 16 bits, 12 at 8, 6.75 at 4.5
    assert found(tight)["kv_dtype"].scenario.kv_dtype == "nvfp4"


def test_a_cache_in_fp4_is_suggested_only_where_the_gpu_computes_in_fp4() -> None:
    asked = scenario(24, context_length=32768, batch_size=6)  # only 4 bits a value fit
    hopper = replace(asked.gpu, tflops={"bf16": 989.0, "fp8": 1979.0})
    assert "kv_dtype" not in found(asked.with_changes(gpu=hopper))
    blackwell = replace(asked.gpu, tflops={"bf16": 2250.0, "fp4": 9000.0})
    assert found(asked.with_changes(gpu=blackwell))["kv_dtype"].scenario.kv_dtype == "nvfp4"


def test_only_cache_dtypes_that_the_engine_has_are_suggested() -> None:
    asked = scenario(24, context_length=32768, batch_size=3, engine="llama.cpp")
    assert found(asked)["kv_dtype"].scenario.kv_dtype == "q8_0"  # 12 x 34 / 64 = 6.4 GiB


def test_the_fewest_gpus_that_divide_the_heads_are_suggested() -> None:
    asked = scenario(24, context_length=32768, batch_size=8)  # 47 GiB in all
    item = found(asked)["tensor_parallel"]
    assert item.scenario.tensor_parallel == 2  # 23.5 GiB each
    assert item.sentence.startswith("Divide the model over 2 GPUs: ")


def test_weights_are_narrowed_only_as_far_as_needed() -> None:
    asked = scenario(16, context_length=16384, batch_size=2)  # 4 GiB of cache, 15 GiB of weights
    item = found(asked)["weight_dtype"]
    assert item.scenario.weight_dtype in ("fp8_per_channel", "int8_per_channel")
    assert item.plan.weight_bytes < 12 * GIB


def test_a_gpu_of_the_same_maker_with_the_least_memory_that_holds_it() -> None:
    asked = Scenario(
        llama(), "t4-16gb", context_length=8192, batch_size=9, overhead_bytes=GIB, memory_fraction=1.0
    )  # 24.96 GiB in all: more than any 24 GB card, and the 27 GiB in between are another maker's
    assert found(asked)["gpu"].scenario.gpu.id == "rtx-5090-32gb"
    assert found(asked)["gpu"].sentence.startswith("Use another GPU, ")


def test_the_fraction_is_a_whole_percentage_and_never_all_of_it() -> None:
    asked = scenario(20, context_length=8192, batch_size=2, memory_fraction=0.8)  # 16.96 GiB of 20, 16 allowed
    item = found(asked)["memory_fraction"]
    assert item.scenario.memory_fraction == 0.85  # 16.96 / 20 = 0.848
    assert "memory_fraction" not in found(asked.with_changes(batch_size=5))  # 19.96 GiB would need 100 %


def test_a_lever_that_cannot_do_it_alone_is_left_out() -> None:
    asked = scenario(8, context_length=8192, batch_size=1)  # the weights alone need 15 GiB
    assert {"kv_dtype", "context_length", "batch_size", "memory_fraction"}.isdisjoint(found(asked))
    assert "tensor_parallel" in found(asked)


def test_a_scenario_becomes_a_command_and_the_lines_to_expect() -> None:
    asked = scenario(80, context_length=16384, batch_size=32, kv_dtype="fp8", tensor_parallel=2, memory_fraction=0.9)
    launch = launch_of(asked, "vllm")
    assert command(launch) == (
        "vllm serve MODEL --max-model-len 16384 --max-num-seqs 32 --gpu-memory-utilization 0.9 --kv-cache-dtype fp8 "
        "--tensor-parallel-size 2"
    )
    lines = predicted_lines(launch)
    assert lines[0] == "Model loading took 7.4790 GiB memory"  # half of the matrices, the norms whole
    assert [line.split(":")[0] for line in lines[1:]] == ["Available KV cache memory", "GPU KV cache size"]


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_a_scenario_of_16_bits_is_llamacpps_own_width(engine: str) -> None:
    launch = launch_of(scenario(80, kv_dtype="q8_0", batch_size=2), engine)
    assert "q8_0" in command(launch)


def test_a_suggestion_speaks_of_binary_or_decimal_units() -> None:
    item = found(scenario(24, context_length=32768, batch_size=3))["kv_dtype"]
    free = item.plan.free_bytes
    assert item.sentence == f"Store the cache as fp8: {free / GIB:.2f} GiB would be free"
    assert item.sentence_in("GB") == f"Store the cache as fp8: {free / 10**9:.2f} GB would be free"
