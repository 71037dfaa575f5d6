"""llama.cpp and Ollama: memory of all GPUs together, since whole layers are spread over them, and what fits of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from kvplan.attention import first_true
from kvplan.engines.budget import PoolBudget
from kvplan.engines.launch import Launch, llamacpp_cache, llamacpp_options_of
from kvplan.engines.llamacpp import allocated, ollama_context
from kvplan.engines.overheads import Overhead, compute_buffer, cuda_contexts
from kvplan.model import Layer, as_weight_format

MAX_SLOTS = 2**20
"""More parallel requests than any server takes."""

STAYS_ON_CPU = frozenset({"embedding", "position_embedding", "per_layer_embedding"})
"""Tables that llama.cpp looks up in main memory; a tied one is copied to the GPU as the head."""


def slots_budget(launch: Launch) -> PoolBudget:
    """What weights and compute buffers leave for the cache on all GPUs together; there is no memory fraction."""
    gpus = launch.placement.num_gpus
    visible = gpus * launch.gpu.usable_bytes
    weights = launch.model.weight_bytes(launch.weight_dtype) + gpus * launch.extra_weight_bytes
    replaced = {part.name: _on_all(part, gpus) for part in launch.known}
    estimates = (compute_buffer(launch.model, gpus), cuda_contexts(gpus))
    everything = replaced.get("other")
    parts = (everything,) if everything else tuple(replaced.get(part.name, part) for part in estimates)
    left = visible - weights
    return PoolBudget(
        visible_bytes=visible,
        requested_bytes=visible,
        weight_bytes=weights,
        overheads=parts,
        outside=(),
        low_bytes=max(0, left - sum(part.high for part in parts)),
        pool_bytes=max(0, left - sum(part.typical for part in parts)),
        high_bytes=max(0, left - sum(part.low for part in parts)),
    )


def _on_all(part: Overhead, gpus: int) -> Overhead:
    return replace(part, low=gpus * part.low, typical=gpus * part.typical, high=gpus * part.high)


def most_slots(launch: Launch, room_bytes: int) -> int:
    """Parallel requests of the launch's context whose cells fit into `room_bytes`."""

    def bytes_for(slots: int) -> int:
        return llamacpp_cache(replace(launch, batch_size=slots))[0].total_bytes

    beyond = first_true(lambda slots: bytes_for(max(1, slots)) > room_bytes, MAX_SLOTS)
    return MAX_SLOTS if beyond is None else max(0, beyond - 1)


def layers_on_gpu(launch: Launch) -> int:
    """`-ngl`: layers, from the last on, that fit with their part of the cache; the head counts as one more.

    The output head is placed first, as llama.cpp does; typical overheads are left free.
    """
    budget = slots_budget(launch)
    extra = launch.placement.num_gpus * launch.extra_weight_bytes
    room = budget.visible_bytes - extra - sum(part.typical for part in budget.overheads)
    sizes = [_head_bytes(launch), *(_layer_bytes(launch, layer) for layer in reversed(launch.model.layers))]
    return sum(total <= room for total in accumulate(sizes))


def _head_bytes(launch: Launch) -> int:
    """What stands outside the layers and moves to the GPU."""
    model, wanted = launch.model, as_weight_format(launch.weight_dtype)
    stays = STAYS_ON_CPU - ({"embedding"} if model.tied_embeddings else frozenset())
    groups = (group for group in model.weights if group.role not in stays)
    return sum(group.count * group.matrix_bytes(model.storage_of(group, wanted)) for group in groups)


def _layer_bytes(launch: Launch, layer: Layer) -> int:
    wanted = as_weight_format(launch.weight_dtype)
    weights = sum(group.count * group.matrix_bytes(launch.model.storage_of(group, wanted)) for group in layer.weights)
    return weights + layer_cache_bytes(launch, layer)


def layer_cache_bytes(launch: Launch, layer: Layer) -> int:
    """What llama.cpp allocates for one layer, all slots together."""
    alone = replace(launch.model, layers=(layer,))
    total = ollama_context(launch.context_length, launch.batch_size)
    return allocated(alone, total, llamacpp_options_of(launch)).total_bytes


def offload_sentence(launch: Launch) -> str:
    """How much of the model and its cache lies on the GPUs, for a person; "" where all of it does."""
    layers, fit = launch.model.num_layers + 1, layers_on_gpu(launch)
    if fit == layers:
        return ""
    if not fit:
        return "Not even the output head fits on the GPU: the whole model would run on the CPU (-ngl 0)"
    return (
        f"About {fit:,} of {layers:,} layers fit on the GPU with their part of the cache: start with -ngl {fit}, and "
        "the other layers and their cache lie in main memory and run on the CPU, much slower"
    )
