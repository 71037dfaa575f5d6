"""The command that starts a server with the settings of a plan, as one line for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from kvplan.engines.launch import Launch, require_supported
from kvplan.engines.llamacpp import cache_type_name, ollama_context
from kvplan.engines.offload import layers_on_gpu
from kvplan.engines.support import CACHE_WORDS, PLAIN_WORDS, TRANSFORMERS, default_cache_dtype
from kvplan.errors import InputError
from kvplan.model import as_weight_format
from kvplan.units import counted

_REPOSITORY = re.compile(r"huggingface\.co/([\w.-]{1,96}/[\w.-]{1,96})")

Words = list[str]


def command(launch: Launch) -> str:
    """The shell line. Raises InputError where the engine cannot serve so, or is no server."""
    require_supported(launch)
    if launch.engine not in _COMMANDS:
        raise InputError(f"{launch.engine} is not started by a command; it is called from Python")
    return shlex.join(_COMMANDS[launch.engine](launch))


def start_text(launch: Launch) -> tuple[str, str]:
    """How the engine is started or called, and the language of that text: bash or python. Raises as `command` does."""
    if launch.engine in _COMMANDS:
        return command(launch), "bash"
    return python_call(launch), "python"


def python_call(launch: Launch) -> str:
    """The call of transformers, in whose own process the model runs. Raises InputError where it cannot serve so."""
    require_supported(launch)
    if launch.engine not in TRANSFORMERS:
        raise InputError(f"{launch.engine} is started by a command and not called from Python")
    gpus, dtype = launch.placement.tensor_parallel, CACHE_WORDS[launch.engine][launch.kv.name]
    spread = 'tp_plan="auto"' if gpus > 1 else 'device_map="cuda"'
    static = ', cache_implementation="static"' if launch.engine == "transformers-static" else ""
    tokens = counted(launch.context_length, "token")
    lines = [
        *([f"# torchrun --nproc-per-node {gpus} this_file.py"] if gpus > 1 else []),
        "from transformers import AutoModelForCausalLM",
        f'model = AutoModelForCausalLM.from_pretrained("{repository(launch)}", dtype="{dtype}", {spread})',
        f"# inputs: {counted(launch.batch_size, 'prompt')}, prompt and answer of at most {tokens}",
        f"model.generate(**inputs, max_length={launch.context_length}{static})",
    ]
    return "\n".join(lines)


def repository(launch: Launch) -> str:
    """The model as a server is told it: the repository that its source names, else a placeholder.

    Weights in another quantization than the published one are another checkpoint, whose name is not known.
    """
    wanted = as_weight_format(launch.weight_dtype)
    if wanted is not None and not wanted.is_plain:
        return f"MODEL-IN-{launch.weight_dtype}"
    found = _REPOSITORY.search(launch.model.source)
    return found[1] if found else "MODEL"


def _vllm(launch: Launch) -> Words:
    return [
        "vllm", "serve", repository(launch),
        "--max-model-len", str(launch.context_length),
        "--max-num-seqs", str(launch.replica_requests),
        *_fraction(launch, "--gpu-memory-utilization"),
        *_weight_dtype(launch, "--dtype"),
        *_cache_dtype(launch, "--kv-cache-dtype"),
        *_parallel(launch, "--tensor-parallel-size", "--pipeline-parallel-size"),
        *_above_one("--data-parallel-size", launch.placement.data_parallel),
        *(["--enable-expert-parallel"] if launch.placement.expert_parallel else []),
    ]  # fmt: skip


def _sglang(launch: Launch) -> Words:
    """A replica of a model with routed experts shares them: its GPUs are counted in --tp-size as well."""
    return [
        "python", "-m", "sglang.launch_server", "--model-path", repository(launch),
        "--context-length", str(launch.context_length),
        "--max-running-requests", str(launch.batch_size),
        *_fraction(launch, "--mem-fraction-static"),
        *_weight_dtype(launch, "--dtype"),
        *_cache_dtype(launch, "--kv-cache-dtype"),
        *_sglang_parallel(launch),
    ]  # fmt: skip


def _sglang_parallel(launch: Launch) -> Words:
    placement = launch.placement
    shared = placement.data_parallel > 1 and launch.model.has_experts
    gpus = placement.expert_gpus if shared else placement.tensor_parallel
    return [
        *_above_one("--tp-size", gpus),
        *_above_one("--pp-size", placement.pipeline_parallel),
        *_above_one("--dp-size", placement.data_parallel),
        *(["--enable-dp-attention"] if shared else []),
        *(_above_one("--ep-size", gpus) if placement.expert_parallel else []),
    ]


def _tensorrt(launch: Launch) -> Words:
    """The cache dtype is that of the checkpoint, or fp8."""
    return [
        "trtllm-serve", repository(launch),
        "--max_seq_len", str(launch.context_length),
        "--max_batch_size", str(launch.batch_size),
        *_fraction(launch, "--kv_cache_free_gpu_memory_fraction"),
        *_cache_dtype(launch, "--kv_cache_dtype"),
        *_parallel(launch, "--tp_size", "--pp_size"),
        *(_above_one("--ep_size", launch.placement.tensor_parallel) if launch.placement.expert_parallel else []),
    ]  # fmt: skip


def _llamacpp(launch: Launch) -> Words:
    """As many layers on the GPU as fit; a quantized V needs flash attention."""
    type_k, type_v = _types(launch)
    types = ["--cache-type-k", type_k, "--cache-type-v", type_v] if (type_k, type_v) != ("f16", "f16") else []
    return [
        *_server(launch), "-fa", "on", *types,
    ]  # fmt: skip


def _ik_llamacpp(launch: Launch) -> Words:
    """The fork: latent attention is chosen by -mla."""
    type_k, type_v = _types(launch)
    types = ["-ctk", type_k, "-ctv", type_v] if (type_k, type_v) != ("f16", "f16") else []
    latent = any(layer.cache.kind.endswith("latent") for layer, _ in launch.model.layer_runs)
    return [*_server(launch), "-fa", "on", *(["-mla", "3"] if latent else []), *types]


def _server(launch: Launch) -> Words:
    return [
        "llama-server", "-m", f"{launch.model.id or 'model'}.gguf",
        "-c", str(ollama_context(launch.context_length, launch.batch_size)), "-np", str(launch.batch_size),
        "-ngl", _gpu_layers(launch),
    ]  # fmt: skip


def _gpu_layers(launch: Launch) -> str:
    """999, which means all, where all of them fit."""
    fit = layers_on_gpu(launch)
    return "999" if fit > launch.model.num_layers else str(fit)


def _types(launch: Launch) -> tuple[str, str]:
    return cache_type_name(launch.kv.key), cache_type_name(launch.kv.value)


def _ollama(launch: Launch) -> Words:
    """Ollama asks llama.cpp for num_ctx times num_parallel cells itself."""
    type_k, _ = _types(launch)
    quantized = ["OLLAMA_FLASH_ATTENTION=1", f"OLLAMA_KV_CACHE_TYPE={type_k}"] if type_k != "f16" else []
    return [
        f"OLLAMA_CONTEXT_LENGTH={launch.context_length}", f"OLLAMA_NUM_PARALLEL={launch.batch_size}", *quantized,
        "ollama", "serve",
    ]  # fmt: skip


def _fraction(launch: Launch, flag: str) -> Words:
    return [] if launch.memory_fraction is None else [flag, f"{launch.memory_fraction:g}"]


def _above_one(flag: str, count: int) -> Words:
    return [flag, str(count)] if count > 1 else []


def _parallel(launch: Launch, tensor: str, pipeline: str) -> Words:
    placement = launch.placement
    return [*_above_one(tensor, placement.tensor_parallel), *_above_one(pipeline, placement.pipeline_parallel)]


def _weight_dtype(launch: Launch, flag: str) -> Words:
    """Weights in another plain width than the published one."""
    wanted = as_weight_format(launch.weight_dtype)
    if wanted is None or wanted == launch.model.dtype or wanted.name not in PLAIN_WORDS:
        return []
    return [flag, PLAIN_WORDS[wanted.name]]


def _cache_dtype(launch: Launch, flag: str) -> Words:
    """Nothing where the cache is as the model is computed, which every engine takes as auto."""
    wanted = launch.kv.name
    if wanted == default_cache_dtype(launch.engine, launch.model):
        return []
    return [flag, CACHE_WORDS[launch.engine][wanted]]


_COMMANDS: dict[str, Callable[[Launch], Words]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llamacpp,
    "ollama": _ollama,
    "ik_llama.cpp": _ik_llamacpp,
    "tensorrt-llm": _tensorrt,
}
