"""Weights on one GPU where experts or attention are placed otherwise than by tensor parallelism alone.

Expert parallelism gives every GPU whole experts; data parallel attention copies everything but the experts to each
replica. The cache of a GPU is that of its own requests, so it does not change.
"""

from __future__ import annotations

from kvplan.engines.capacity import ceil_div
from kvplan.hardware import Gpu
from kvplan.model import Layer, Model, WeightGroup, as_weight_format
from kvplan.units import whole_number

ROUTED = "routed_experts"


def expert_parallel_weight_bytes(
    model: Model, weight_dtype: str | None = None, tensor_parallel: int = 1, data_parallel: int = 1
) -> int:
    """Bytes of the weights on the GPU that holds the most, with experts spread over all GPUs as whole experts.

    Raises InputError, DtypeError or ParallelError.
    """
    model.require_parallel(tensor_parallel, 1)
    gpus = tensor_parallel * whole_number(data_parallel, "data_parallel", high=4096)
    wanted = as_weight_format(weight_dtype)

    def size(group: WeightGroup, count: int, parallel: int) -> int:
        return count * group.matrix_bytes(model.storage_of(group, wanted), parallel)

    total = sum(size(group, group.count, tensor_parallel) for group in model.weights)
    for layer, repeats in model.layer_runs:
        held = _held_experts(layer, gpus)
        for group in layer.weights:
            routed = group.role == ROUTED
            total += repeats * size(group, held.get(group, group.count), 1 if routed else tensor_parallel)
    return total


def _held_experts(layer: Layer, gpus: int) -> dict[WeightGroup, int]:
    """Matrices of each routed group on the GPU with the most experts; experts are not cut."""
    routed = [group for group in layer.weights if group.role == ROUTED]
    if not routed:
        return {}
    experts = min(group.count for group in routed)
    most = ceil_div(experts, gpus)
    return {group: most * ceil_div(group.count, experts) for group in routed}


def node_size(gpu: Gpu) -> int:
    """GPUs of the usual node of this kind; 1 where none is known."""
    return gpu.node_gpus or 1
