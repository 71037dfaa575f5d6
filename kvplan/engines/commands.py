"""The command that starts a server with the settings of a plan, as one line for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from kvplan.engines.capacity import compute_dtype
from kvplan.engines.launch import Launch, llamacpp_types, single_cache_dtype
from kvplan.errors import InputError

_REPOSITORY = re.compile(r"huggingface\.co/([\w.-]{1,96}/[\w.-]{1,96})")

Words = list[str]


def command(launch: Launch) -> str:
    """The shell line. Raises InputError where the engine has no such cache dtype, or is no server."""
    if launch.engine not in _COMMANDS:
        raise InputError(f"{launch.engine} is not started by a command; it is called from Python")
    return shlex.join(_COMMANDS[launch.engine](launch))


def repository(launch: Launch) -> str:
    """The model as a server is told it: the repository that its source names, else a placeholder."""
    found = _REPOSITORY.search(launch.model.source)
    return found[1] if found else "MODEL"


def _vllm(launch: Launch) -> Words:
    return [
        "vllm", "serve", repository(launch),
        "--max-model-len", str(launch.context_length),
        "--max-num-seqs", str(launch.batch_size),
        *_fraction(launch, "--gpu-memory-utilization"),
        *_cache_dtype(launch, _VLLM_DTYPES, "--kv-cache-dtype"),
        *_parallel(launch, "--tensor-parallel-size", "--pipeline-parallel-size"),
    ]  # fmt: skip


def _sglang(launch: Launch) -> Words:
    return [
        "python", "-m", "sglang.launch_server", "--model-path", repository(launch),
        "--context-length", str(launch.context_length),
        "--max-running-requests", str(launch.batch_size),
        *_fraction(launch, "--mem-fraction-static"),
        *_cache_dtype(launch, _SGLANG_DTYPES, "--kv-cache-dtype"),
        *_parallel(launch, "--tp-size", "--pp-size"),
    ]  # fmt: skip


def _tensorrt(launch: Launch) -> Words:
    if single_cache_dtype(launch) not in ("auto", compute_dtype(launch.model).name, "fp8"):
        raise InputError(
            f"trtllm-serve takes the cache dtype from the checkpoint; {launch.kv_dtype} cannot be asked for"
        )
    return [
        "trtllm-serve", repository(launch),
        "--max_seq_len", str(launch.context_length),
        "--max_batch_size", str(launch.batch_size),
        *_fraction(launch, "--kv_cache_free_gpu_memory_fraction"),
        *_parallel(launch, "--tp_size", "--pp_size"),
    ]  # fmt: skip


def _llamacpp(launch: Launch) -> Words:
    """All layers on the GPU; a quantized V needs flash attention."""
    type_k, type_v = llamacpp_types(launch)
    types = ["--cache-type-k", type_k, "--cache-type-v", type_v] if (type_k, type_v) != ("f16", "f16") else []
    return [
        "llama-server", "-m", f"{launch.model.id or 'model'}.gguf",
        "-c", str(launch.context_length * launch.batch_size), "-np", str(launch.batch_size),
        "-ngl", "999", "-fa", "on", *types,
    ]  # fmt: skip


def _ollama(launch: Launch) -> Words:
    type_k, type_v = llamacpp_types(launch)
    if type_k != type_v or type_k not in ("f16", "q8_0", "q4_0"):
        raise InputError(f"Ollama has one cache type for K and V: f16, q8_0 or q4_0, not {launch.kv_dtype}")
    quantized = ["OLLAMA_FLASH_ATTENTION=1", f"OLLAMA_KV_CACHE_TYPE={type_k}"] if type_k != "f16" else []
    return [
        f"OLLAMA_CONTEXT_LENGTH={launch.context_length}", f"OLLAMA_NUM_PARALLEL={launch.batch_size}", *quantized,
        "ollama", "serve",
    ]  # fmt: skip


def _fraction(launch: Launch, flag: str) -> Words:
    return [] if launch.memory_fraction is None else [flag, f"{launch.memory_fraction:g}"]


def _parallel(launch: Launch, tensor: str, pipeline: str) -> Words:
    words = [tensor, str(launch.tensor_parallel)] if launch.tensor_parallel > 1 else []
    return words + ([pipeline, str(launch.pipeline_parallel)] if launch.pipeline_parallel > 1 else [])


_VLLM_DTYPES = {
    "bf16": "bfloat16", "fp16": "float16", "fp8": "fp8", "nvfp4": "nvfp4",
    "int8_per_token_head": "int8_per_token_head", "fp8_per_token_head": "fp8_per_token_head",
    "int4_per_token_head": "int4_per_token_head",
}  # fmt: skip
_SGLANG_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3", "nvfp4": "fp4_e2m1"}


def _cache_dtype(launch: Launch, names: dict[str, str], flag: str) -> Words:
    """Nothing where the cache is as the model is computed, which every engine takes as auto."""
    wanted = single_cache_dtype(launch)
    if wanted in ("auto", compute_dtype(launch.model).name):
        return []
    if wanted not in names:
        raise InputError(f"{launch.engine} has no cache dtype {wanted}; it has {', '.join(names)}")
    return [flag, names[wanted]]


_COMMANDS: dict[str, Callable[[Launch], Words]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llamacpp,
    "ollama": _ollama,
    "tensorrt-llm": _tensorrt,
}
