"""Weights under expert and data parallelism."""

from __future__ import annotations

import pytest

from kvplan.define import define_model
from kvplan.engines.parallel import expert_parallel_weight_bytes, node_size
from kvplan.errors import InputError
from kvplan.hardware import define_gpu
from kvplan.presets import load_gpu
from kvplan.units import GIB
from tests.engines.log_cases import published


def test_experts_are_dealt_out_whole_and_the_rest_is_divided() -> None:
    mixtral = published("Qwen/Qwen3-30B-A3B")  # 128 experts of 3 x 2048 x 768 values in 48 layers
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    one = mixtral.weight_bytes()
    assert expert_parallel_weight_bytes(mixtral) == one
    dense = one - experts
    assert expert_parallel_weight_bytes(mixtral, data_parallel=8) == dense + experts // 8
    tensor = mixtral.weight_bytes(tensor_parallel=4)
    assert expert_parallel_weight_bytes(mixtral, tensor_parallel=4) == tensor  # 128 divide evenly either way


def test_the_gpu_with_one_expert_more_counts() -> None:
    model = published("Qwen/Qwen3-30B-A3B")
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    uneven = expert_parallel_weight_bytes(model, data_parallel=3)
    assert uneven == model.weight_bytes() - experts + experts * 43 // 128  # 43, 43, 42


def test_a_dense_model_gains_nothing_from_data_parallelism() -> None:
    dense = define_model(
        name="L", num_layers=2, hidden_size=256, num_attention_heads=4, num_kv_heads=2, intermediate_size=512,
        vocab_size=1024,
    )  # fmt: skip
    assert expert_parallel_weight_bytes(dense, data_parallel=8) == dense.weight_bytes()


def test_a_bad_number_is_refused() -> None:
    with pytest.raises(InputError, match="data_parallel is 0"):
        expert_parallel_weight_bytes(published("Qwen/Qwen3-30B-A3B"), data_parallel=0)


def test_the_usual_node_is_the_gpus() -> None:
    assert node_size(load_gpu("h100-sxm-80gb")) == 8
    assert node_size(define_gpu(name="G", usable_bytes=GIB)) == 1
