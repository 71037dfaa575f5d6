# ruff: noqa: E501, ISC004 - log lines stand as engines print them
"""Start-up logs in the words of many versions, with all that stands around them: what is read is the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kvplan.engines.compare import compare
from kvplan.engines.log import MAX_LOG_BYTES, overheads_of, read_log
from kvplan.units import GIB, MIB
from tests.engines.log_cases import published


def gib(size: float) -> int:
    return round(size * GIB)


WORDINGS: list[tuple[str, str, str, dict[str, Any]]] = [
    # (what it is, engine, text, figures)
    (
        "vLLM 0.2", "vllm",
        "INFO 08-22 15:27:08 llm_engine.py:70] Initializing an LLM engine with config: model='meta-llama/Llama-2-13b-chat-hf', dtype=torch.float16, tensor_parallel_size=1, seed=0)\n"
        "INFO 08-22 15:27:25 llm_engine.py:196] # GPU blocks: 865, # CPU blocks: 327\n",
        {"model": "meta-llama/Llama-2-13b-chat-hf", "num_blocks": 865, "tensor_parallel": 1, "dtype": "float16"},
    ),
    (
        "vLLM 0.6 profile in one line", "vllm",
        "INFO 11-04 10:23:22 worker.py:232] Memory profiling results: duration=2.14 seconds, total_gpu_memory=79.10GiB, initial_memory_usage=15.41GiB, peak_torch_memory=16.20GiB, memory_usage_post_profile=15.50GiB, non_torch_memory=0.21GiB, kv_cache_size=54.78GiB, gpu_memory_utilization=0.90\n"
        "INFO 11-04 10:23:22 gpu_executor.py:76] # GPU blocks: 28046, # CPU blocks: 2048\n"
        "INFO 11-04 10:23:22 gpu_executor.py:80] Maximum concurrency for 8192 tokens per request: 54.78x\n",
        {"total_bytes": gib(79.10), "non_torch_bytes": gib(0.21), "pool_bytes": gib(54.78), "num_blocks": 28046,
         "memory_fraction": 0.9, "max_model_len": 8192},
    ),
    (
        "vLLM 0.7 V1", "vllm",
        "   INFO 02-13 15:01:40 kv_cache_utils.py:407] # GPU blocks: 33660\n"
        "   INFO 02-13 15:01:40 kv_cache_utils.py:410] Maximum concurrency for 4096 tokens per request: 131.48x\n"
        "   INFO 02-13 15:01:59 gpu_model_runner.py:1043] Graph capturing finished in 18 secs, took 0.62 GiB\n"
        "   INFO 02-13 15:01:59 api_server.py:756] Using supplied chat template:^M\n",
        {"num_blocks": 33660, "max_concurrency": 131.48, "cuda_graph_bytes": gib(0.62)},
    ),
    (
        "vLLM 0.12 with several processes, in a comment", "vllm",
        "# (Worker_TP0 pid=2412213) INFO 12-11 00:06:53 [gpu_worker.py:359] Available KV cache memory: 52.36 GiB\n"
        "# (EngineCore_DP0 pid=2412130) INFO 12-11 00:06:53 [kv_cache_utils.py:1286] GPU KV cache size: 686,320 tokens\n"
        "# (EngineCore_DP0 pid=2412130) INFO 12-11 00:06:54 [kv_cache_utils.py:1291] Maximum concurrency for 100,000 tokens per request: 6.86x\n",
        {"pool_bytes": gib(52.36), "tokens": 686320, "max_concurrency": 6.86, "max_model_len": 100000},
    ),
    (
        "vLLM's balance with four parts", "vllm",
        "(Worker_TP0 pid=123) Free memory on device (264.19/267.69 GiB) on startup. Desired GPU memory utilization is (0.95, 254.31 GiB). Actual usage is 205.08 GiB for weight, 3.75 GiB for peak activation, 1.63 GiB for non-torch memory, and 0.14 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=46943000000` (43.72 GiB) to fit into requested memory. Current kv cache memory in use is 43.85 GiB.\n",
        {"weight_bytes": gib(205.08), "activation_bytes": gib(3.75), "non_torch_bytes": gib(1.63), "cuda_graph_bytes": gib(0.14),
         "pool_bytes": gib(43.85), "total_bytes": gib(267.69), "requested_bytes": gib(254.31), "memory_fraction": 0.95},
    ),
    (
        "vLLM's balance with three parts, pool in bytes", "vllm",
        "INFO Free memory on device cuda:0 (30.94/31.33 GiB) on startup. Actual usage is 17.54 GiB for consumed memory (weights + non-torch), 0.31 GiB for peak activation, and 0.23 GiB for CUDAGraph memory. Current kv cache memory in use is 11725260718 bytes.\n",
        {"consumed_bytes": gib(17.54), "activation_bytes": gib(0.31), "cuda_graph_bytes": gib(0.23), "pool_bytes": 11725260718},
    ),
    (
        "vLLM with replicas", "vllm",
        "(APIServer pid=1) INFO non-default args: {'model': 'deepseek-ai/DeepSeek-V3', 'tensor_parallel_size': 1, 'data_parallel_size': 8, 'enable_expert_parallel': True}\n"
        "(EngineCore_DP0 pid=7) INFO GPU KV cache size: 577,333 tokens\n(EngineCore_DP1 pid=8) INFO GPU KV cache size: 577,269 tokens\n",
        {"data_parallel": 8, "expert_parallel": "True", "tokens": 577269, "model": "deepseek-ai/DeepSeek-V3"},
    ),
    (
        "vLLM V0 refused", "vllm",
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (34912). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine. vllm\n",
        {"max_model_len": 131072, "tokens": 34912},
    ),
    (
        "vLLM V1 refused", "vllm",
        "ERROR 09-01 [core.py:586] ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.11 GiB). Based on the available memory, the estimated maximum model length is 22,640. vllm\n",
        {"needed_bytes": gib(5.62), "pool_bytes": gib(3.11), "estimated_max_len": 22640, "max_model_len": 40960},
    ),
    (
        "SGLang in 2025", "sglang",
        "[2025-07-14 05:48:43] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=7.37 GB, mem usage=15.02 GB.\n"
        "[2025-07-14 05:48:43] KV Cache is allocated. #tokens: 38141, K size: 2.33 GB, V size: 2.33 GB\n"
        "[2025-07-14 05:48:43] Memory pool end. avail mem=1.46 GB\n"
        "Capturing batches (bs=1 avail_mem=0.86 GB): 100%|##########| 4/4 [00:18<00:00,  4.51s/it]\n"
        "[2025-07-14 05:49:02] Capture cuda graph end. Time elapsed: 18.07 s. mem usage=0.11 GB. avail mem=0.83 GB.\n"
        "[2025-07-14 05:49:02] max_total_num_tokens=38141, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=2048, context_len=131072\n",
        {"weight_bytes": gib(15.02), "tokens": 38141, "k_bytes": gib(2.33), "cuda_graph_bytes": gib(0.11), "max_model_len": 131072},
    ),
    (
        "SGLang in 2026: dtypes, states, two captures", "sglang",
        "[2026-08-15 TP0] Mamba Cache is allocated. max_mamba_cache_size: 43, conv_state size: 0.12GB, ssm_state size: 3.09GB\n"
        "[2026-08-15 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 171008, K size: 5.22 GB, V size: 5.22 GB\n"
        "[2026-08-15 TP0] Capture target decode CUDA graph end. elapsed=8.80 s, mem usage=1.31 GB, avail mem=8.40 GB\n",
        {"tokens": 171008, "v_bytes": gib(5.22), "kv_dtype": "float8_e4m3fn", "state_bytes": gib(3.09)},
    ),
    (
        "SGLang with latent rows", "sglang",
        "[TP3] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 402560, KV size: 26.35 GB\nmax_total_num_tokens=402560, context_len=163840\n",
        {"tokens": 402560, "latent_bytes": gib(26.35)},
    ),
    (
        "llama.cpp in 2023", "llama.cpp",
        "llama_model_load_internal: n_ctx      = 512\nllama_new_context_with_model: kv self size  =  162.50 MB\n",
        {"n_ctx": 512, "kv_bytes": round(162.5 * MIB)},
    ),
    (
        "llama.cpp in 2024, with times before every line", "llama.cpp",
        "0.00.040.680 I llama_new_context_with_model: n_seq_max     = 1\n"
        "0.00.040.689 I llama_new_context_with_model: n_ctx         = 512\n"
        "0.00.040.689 I llama_new_context_with_model: n_ctx_per_seq = 512\n"
        "0.00.366.572 I llama_kv_cache_init:      CUDA0 KV buffer size =     9.00 MiB\n"
        "0.00.366.583 I llama_new_context_with_model: KV self size  =    9.00 MiB, K (f16):    4.50 MiB, V (f16):    4.50 MiB\n"
        "0.00.371.223 I llama_new_context_with_model:      CUDA0 compute buffer size =    16.00 MiB\n"
        "0.00.371.232 I llama_new_context_with_model:  CUDA_Host compute buffer size =     2.51 MiB\n",
        {"n_ctx": 512, "kv_bytes": 9 * MIB, "k_bytes": round(4.5 * MIB), "type_k": "f16", "activation_bytes": 16 * MIB, "slots": 1},
    ),
    (
        "llama.cpp on Metal", "llama.cpp",
        "llama_init_from_model: KV self size  =    9.00 MiB, K (f16):    4.50 MiB, V (f16):    4.50 MiB\n"
        "llama_init_from_model:      Metal compute buffer size =    16.00 MiB\nllm_load_tensors:      Metal buffer size =  4155.99 MiB\n",
        {"kv_bytes": 9 * MIB, "activation_bytes": 16 * MIB, "weight_bytes": round(4155.99 * MIB)},
    ),
    (
        "llama.cpp under another program's prefix", "llama.cpp",
        "[2025-07-09 18:09:10.458] [info] [WASI-NN] llama.cpp: llama_context: n_ctx         = 4096\n"
        "[2025-07-09 18:09:10.514] [info] [WASI-NN] llama.cpp: llama_kv_cache_unified: size =  128.00 MiB (  4096 cells,  16 layers,  1 seqs), K (f16):   64.00 MiB, V (f16):   64.00 MiB\n",
        {"n_ctx": 4096, "kv_bytes": 128 * MIB, "v_bytes": 64 * MIB},
    ),
    (
        "llama.cpp with weights on host and GPU", "llama.cpp",
        "load_tensors: offloaded 29/33 layers to GPU\nload_tensors:        CUDA0 model buffer size =  2228.82 MiB\n"
        "load_tensors:   CPU_Mapped model buffer size =    52.84 MiB\nload_tensors:    CUDA_Host model buffer size =   100.00 MiB\n",
        {"weight_bytes": round(2228.82 * MIB), "cpu_weight_bytes": round(52.84 * MIB), "offloaded_layers": 29},
    ),
    (
        "llama.cpp with a window pool", "llama.cpp",
        "llama_context: n_seq_max     = 1\nllama_context: n_ctx         = 8192\n"
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
        "llama_kv_cache: size =  128.00 MiB (  8192 cells,   8 layers,  1/1 seqs), K (q8_0):   64.00 MiB, V (q4_0):   64.00 MiB\n"
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells\n"
        "llama_kv_cache: size =  120.00 MiB (  1536 cells,  40 layers,  1/1 seqs), K (q8_0):   60.00 MiB, V (q4_0):   60.00 MiB\n",
        {"kv_bytes": 248 * MIB, "k_bytes": 124 * MIB, "type_k": "q8_0", "type_v": "q4_0"},
    ),
    (
        "llama.cpp that tries what fits first", "llama.cpp",
        "".join(
            f"llama_context: n_seq_max     = 4\nllama_context: n_ctx         = {cells}\n"
            f"llama_kv_cache: size =  {mib:.2f} MiB ({cells} cells, 32 layers, 4/4 seqs), K (f16): {mib / 2:.2f} MiB, V (f16): {mib / 2:.2f} MiB\n"
            for cells, mib in ((4096, 512.0), (32768, 4096.0), (32768, 4096.0))
        ),
        {"n_ctx": 32768, "kv_bytes": 4096 * MIB, "slots": 4},
    ),
    (
        "Ollama", "llama.cpp",
        'time=2025-11-02T10:11:12Z level=INFO source=ggml.go:136 msg="" architecture=qwen3 file_type=Q4_K_M name="Qwen3 32B" description="" num_tensors=707 num_key_values=27\n'
        'time=2025-11-02T10:11:12Z level=INFO source=runner.go:1172 msg=load request="{Operation:commit LoraPath:[] Parallel:2 BatchSize:512 FlashAttention:true KvSize:16384 KvCacheType:q8_0}"\n'
        'time=2025-11-02T10:11:13Z level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="18.5 GiB"\n'
        'time=2025-11-02T10:11:13Z level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="1.2 GiB"\n'
        "time=2025-11-02T10:11:14Z level=INFO llama runner started\n",
        {"n_ctx": 16384, "slots": 2, "kv_bytes": gib(1.2), "weight_bytes": gib(18.5), "type_k": "q8_0",
         "model": "Qwen3 32B"},
    ),
    (
        "TensorRT-LLM", "tensorrt-llm",
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 63.62 GiB\n"
        "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4607\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 64.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 62.99 GiB for max tokens in paged KV cache (294848).\n"
        "[02/14/2025-09:38:53] [TRT-LLM] [I] max_seq_len=131072, max_num_requests=2048, max_num_tokens=8192\n",
        {"total_bytes": gib(79.10), "num_blocks": 4607, "block_size": 64, "pool_bytes": gib(62.99), "tokens": 294848,
         "max_model_len": 131072},
    ),
]  # fmt: skip

IDS = [name for name, *_ in WORDINGS]
CASES = [case[1:] for case in WORDINGS]


@pytest.mark.parametrize(("engine", "text", "figures"), CASES, ids=IDS)
def test_every_wording_gives_its_figures(engine: str, text: str, figures: dict[str, Any]) -> None:
    found = read_log(text)
    assert found.engine == engine
    assert {name: found.values.get(name) for name in figures} == figures


def coloured(text: str) -> str:
    return "\n".join(f"\x1b[1;36m(EngineCore_DP0 pid=9)\x1b[0;0m \x1b[32m{line}\x1b[0m" for line in text.splitlines())


def in_json(text: str) -> str:
    lines = [json.dumps({"ts": 1, "level": "info", "message": line}) for line in text.splitlines()]
    return "\n".join(line.replace("'", "\\u0027") if "'" not in line else line for line in lines)


def of_docker(text: str) -> str:
    return "\n".join(f"vllm-1  | 2026-01-02T03:04:05.678901234Z {line}" for line in text.splitlines())


def with_requests(text: str) -> str:
    noise = 'INFO:     127.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    return noise * 50 + text.replace("\n", "\n" + noise) + noise * 200


@pytest.mark.parametrize(
    "around",
    [lambda text: text.replace("\n", "\r\n"), coloured, of_docker, with_requests, lambda text: "﻿" + text],
    ids=["CRLF", "colours", "docker", "requests", "byte order mark"],
)
@pytest.mark.parametrize(("engine", "text", "figures"), CASES, ids=IDS)
def test_what_stands_around_a_line_changes_nothing(
    around: Any, engine: str, text: str, figures: dict[str, Any]
) -> None:
    plain, found = read_log(text), read_log(around(text))
    assert (found.engine, dict(found.values)) == (engine, dict(plain.values))


@pytest.mark.parametrize(
    ("engine", "text", "figures"),
    [c for c in CASES if '"' not in c[1]],
    ids=[n for n, c in zip(IDS, CASES, strict=True) if '"' not in c[1]],
)
def test_lines_inside_json_are_read(engine: str, text: str, figures: dict[str, Any]) -> None:
    found = read_log(in_json(text))
    assert found.engine == engine
    assert {name: found.values.get(name) for name in figures} == figures


def test_a_real_log_of_tensorrt_llm_agrees() -> None:
    text = (
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008)\n"
        "[TRT-LLM] [I] max_seq_len=8192\n"
    )
    lines = {line.label: line for line in compare(read_log(text), published("meta-llama/Llama-3.1-8B"))}
    assert not lines["cache size"].agrees  # its cache is 8 bits wide: 65,536 B a token
    assert lines["cache size"].reason == "the cache is 8 bits wide: that gives the printed figure"


def test_weights_of_replicas_are_those_of_one() -> None:
    text = (
        "non-default args: {'data_parallel_size': 8, 'enable_expert_parallel': True} vllm\n"
        "Model loading took 11.5 GiB memory\n"
    )
    (line,) = compare(read_log(text), published("Qwen/Qwen3-30B-A3B"))
    model = published("Qwen/Qwen3-30B-A3B")
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    assert line.planned == model.weight_bytes() - experts + experts // 8


def test_graphs_are_read_from_the_balance_too() -> None:
    text = "vllm Actual usage is 8.80 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.\n"
    assert {part.name: part.typical for part in overheads_of(read_log(text))} == {
        "activation": gib(1.44), "cuda_graphs": gib(0.23),
    }  # fmt: skip


RUBBISH = (
    "0123456789 ,.:=()[]{}'\"\n",
    "abc KV cache = n_ctx 1,2 took GiB\n",
    "\x1b[0m\x00ÿ\n",
    "block_size took size = MiB ",
)


@pytest.mark.parametrize("alphabet", RUBBISH)
def test_megabytes_of_rubbish_are_ignored_politely(alphabet: str) -> None:
    source = random.Random(7)
    words = ["".join(source.choices(alphabet, k=200)) for _ in range(200)]
    text = "".join(source.choices(words, k=MAX_LOG_BYTES // 200))[: MAX_LOG_BYTES // 2]
    found = read_log(text)
    assert found.engine is None or found.values


@pytest.mark.parametrize("name", IDS)
def test_mangled_lines_are_read_or_left_out_and_never_break(name: str) -> None:
    """A few hundred copies of each log with wrong characters in it: numbers without end, doubled points, cut lines."""
    source = random.Random(name)
    text = next(text for other, _, text, _ in WORDINGS if other == name)
    model = published("meta-llama/Llama-3.1-8B")
    for _ in range(100):
        letters = list(text)
        for _ in range(source.randint(1, 20)):
            letters[source.randrange(len(letters))] = source.choice(["", ".", "9" * 30, "-", "\n", "x", "1e9", "٣"])
        found = read_log("".join(letters))
        overheads_of(found)
        if found.engine is not None:
            assert all(line.as_text(line.planned) for line in compare(found, model))
