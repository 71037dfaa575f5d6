"""The commands that start a server, and the lines that it will print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.engines.commands import command, python_call, start_text
from kvplan.engines.compare import compare
from kvplan.engines.launch import Launch
from kvplan.engines.lines import predicted_lines
from kvplan.engines.log import read_log
from kvplan.engines.offload import layers_on_gpu
from kvplan.engines.overheads import measured
from kvplan.errors import InputError, UnknownNameError
from kvplan.hardware import define_gpu
from kvplan.model import Model, Placement
from kvplan.units import GIB, MIB
from tests.engines.log_cases import published

SGLANG = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B"


def llama() -> Model:
    made = define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip
    return replace(made, source="https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json")


def launch(engine: str, **settings: Any) -> Launch:
    gpu = define_gpu(name="G", usable_bytes=80 * GIB)
    values = {"model": llama(), "gpu": gpu, "context_length": 8192, "batch_size": 4, **settings}
    return Launch(engine, **values)


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vllm", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --max-num-seqs 4"),
        ("sglang", f"{SGLANG} --context-length 8192 --max-running-requests 4"),
        ("llama.cpp", "llama-server -m model.gguf -c 32768 -np 4 -ngl 999 -fa on"),
        ("ollama", "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=4 ollama serve"),
        ("tensorrt-llm", "trtllm-serve meta-llama/Llama-3.1-8B --max_seq_len 8192 --max_batch_size 4"),
    ],
)
def test_the_command_states_what_differs_from_the_engines_defaults(engine: str, line: str) -> None:
    assert command(launch(engine)) == line


@pytest.mark.parametrize(
    ("engine", "kv_dtype", "words"),
    [
        ("vllm", "fp8", "--kv-cache-dtype fp8"),
        ("sglang", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("llama.cpp", "q8_0/q4_0", "--cache-type-k q8_0 --cache-type-v q4_0"),
        ("ollama", "q8_0", "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0"),
    ],
)
def test_a_cache_dtype_is_written_in_the_engines_own_words(engine: str, kv_dtype: str, words: str) -> None:
    assert words in command(launch(engine, kv_dtype=kv_dtype))


def test_fraction_and_parallelism_are_written_where_set() -> None:
    words = command(launch("vllm", memory_fraction=0.85, placement=Placement(2, 2)))
    assert words.endswith("--gpu-memory-utilization 0.85 --tensor-parallel-size 2 --pipeline-parallel-size 2")


@pytest.mark.parametrize(
    ("engine", "kv_dtype", "message"),
    [
        ("vllm", "q8_0", "vLLM has no cache dtype q8_0; choose bf16, its default, or fp16"),
        ("vllm", "q8_0/q4_0", "stores K and V alike"),
        ("llama.cpp", "fp8", "llama.cpp has no cache dtype fp8; choose fp16"),
        ("ollama", "q8_0/q4_0", "Ollama stores K and V alike"),
        ("tensorrt-llm", "nvfp4", "TensorRT-LLM has no cache dtype nvfp4"),
        ("transformers", "auto", "called from Python"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(engine: str, kv_dtype: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        command(launch(engine, kv_dtype=kv_dtype))


def test_replicas_and_whole_experts_are_written_in_the_engines_words() -> None:
    shared = {"model": published("Qwen/Qwen3-30B-A3B"), "placement": Placement(2, 1, 4, expert_parallel=True)}
    vllm = command(launch("vllm", **shared))
    assert "--max-num-seqs 1 " in vllm  # of one replica
    assert vllm.endswith("--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel")
    assert command(launch("sglang", **shared)).endswith("--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8")
    dense = command(launch("sglang", placement=Placement(2, 1, 4)))
    assert dense.endswith("--tp-size 2 --dp-size 4")  # whole replicas of a model without experts


def test_weights_of_another_format_are_another_checkpoint() -> None:
    assert "vllm serve MODEL-IN-awq_int4_g128 " in command(launch("vllm", weight_dtype="awq_int4_g128"))
    assert "--dtype float16" in command(launch("vllm", weight_dtype="fp16"))
    assert "--dtype" not in command(launch("sglang", weight_dtype="bf16"))  # as published


def test_the_fork_of_llamacpp_has_a_command_of_its_own() -> None:
    assert command(launch("ik_llama.cpp", kv_dtype="q8_0")) == (
        "llama-server -m model.gguf -c 32768 -np 4 -ngl 999 -fa on -ctk q8_0 -ctv q8_0"
    )
    latent = launch("ik_llama.cpp", model=published("deepseek-ai/DeepSeek-V3"), weight_dtype="mxfp4")
    assert "-mla 3" in command(latent)
    assert "c^KV (f16)" in predicted_lines(latent)[-1]


def test_layers_that_do_not_fit_stay_on_the_cpu() -> None:
    small = launch("llama.cpp", gpu=define_gpu(name="G", usable_bytes=12 * GIB))
    assert f"-ngl {layers_on_gpu(small)} " in command(small)
    assert 0 < layers_on_gpu(small) < 32


def test_transformers_is_called_with_its_cache() -> None:
    dynamic, static = (python_call(launch(name)) for name in ("transformers", "transformers-static"))
    assert 'from_pretrained("meta-llama/Llama-3.1-8B", dtype="bfloat16", device_map="cuda")' in dynamic
    assert dynamic.endswith("model.generate(**inputs, max_length=8192)")
    assert static.endswith('model.generate(**inputs, max_length=8192, cache_implementation="static")')
    shared = python_call(launch("transformers", placement=Placement(4)))
    assert shared.startswith("# torchrun --nproc-per-node 4 this_file.py\n")
    assert 'tp_plan="auto"' in shared
    assert start_text(launch("transformers")) == (dynamic, "python")
    assert start_text(launch("vllm"))[1] == "bash"
    with pytest.raises(InputError, match="started by a command"):
        python_call(launch("vllm"))


def test_an_unknown_engine_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean vllm"):
        launch("vlm")


def known(gib: float) -> dict[str, Any]:
    return {"known": (measured("other", round(gib * GIB), "a log"),)}


def test_vllm_lines_follow_from_the_pool() -> None:
    lines = predicted_lines(launch("vllm", engine_version="0.11", memory_fraction=0.5, **known(1)))
    # 40 GiB less 1 GiB less 14.96 GiB of weights; 131,072 B a token in blocks of 16
    pool = 39 * GIB - 16_060_522_496
    blocks = pool // (16 * 131_072)
    assert lines == (
        "Model loading took 14.9575 GiB memory",
        f"Available KV cache memory: {pool / GIB:.2f} GiB",
        f"GPU KV cache size: {blocks * 16:,} tokens",
        f"Maximum concurrency for 8,192 tokens per request: {blocks / 512:.2f}x",
    )


def test_newer_vllm_writes_both_in_one_line() -> None:
    lines = predicted_lines(launch("vllm", engine_version="0.21", memory_fraction=0.5, **known(1)))
    assert len(lines) == 3
    assert "tokens, Maximum concurrency for 8,192 tokens per request: " in lines[-1]


def test_a_refused_start_says_what_one_request_needs() -> None:
    lines = predicted_lines(launch("vllm", context_length=1_000_000, memory_fraction=0.25, **known(1)))
    assert "(122.07 GiB KV cache is needed" in lines[-1]  # 62,500 blocks of 2 MiB
    assert "estimated maximum model length is" in lines[-1]


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vllm", "No available memory for the cache blocks"),
        ("sglang", "Not enough memory. Please try to increase --mem-fraction-static"),
    ],
)
def test_where_nothing_is_left_for_a_cache_the_engine_stops_with_its_own_words(engine: str, line: str) -> None:
    """14.96 GiB of weights: more than a fifth of 60 GiB, and less than all of it; 8 GiB hold no part of them."""
    settings = {"memory_fraction": 0.2, "gpu": define_gpu(name="G", usable_bytes=60 * GIB)}
    assert predicted_lines(launch(engine, **settings))[-1] == line
    small = {**settings, "gpu": define_gpu(name="G", usable_bytes=8 * GIB)}
    assert predicted_lines(launch(engine, **small)) == ("torch.OutOfMemoryError: CUDA out of memory",)


def test_the_predicted_lines_read_back_as_a_log() -> None:
    figures = read_log("vLLM\n" + "\n".join(predicted_lines(launch("vllm", memory_fraction=0.5, **known(1)))))
    assert figures.count("tokens")
    assert figures.count("max_model_len") == 8192


def test_llamacpp_prints_its_cache_to_the_digit() -> None:
    lines = predicted_lines(launch("llama.cpp", kv_dtype="q8_0"))
    half = 4 * 8192 * 32 * 8 * 128 * 34 // 32  # 4 slots, 32 layers, 8 heads of 128 values
    pool = f"llama_kv_cache: size = {2 * half / MIB:.2f} MiB (  8192 cells,  32 layers,  4/4 seqs)"
    assert lines == (
        "llama_context: n_ctx         = 32768",
        f"{pool}, K (q8_0): 1088.00 MiB, V (q8_0): 1088.00 MiB",
    )


def test_windows_and_states_have_lines_of_their_own() -> None:
    full, windows = predicted_lines(launch("llama.cpp", model=published("openai/gpt-oss-120b"), batch_size=1))[1:]
    assert "(  8192 cells,  18 layers,  1/1 seqs), K (f16):  144.00 MiB" in full
    assert "(   768 cells,  18 layers,  1/1 seqs)" in windows  # 128 + 512 in multiples of 256
    states = predicted_lines(launch("llama.cpp", model=published("Qwen/Qwen3-Next-80B-A3B-Instruct"), batch_size=1))
    assert states[-1] == (
        "llama_memory_recurrent: size =   75.38 MiB (     1 cells,  48 layers,  1 seqs), R (f32):    3.38 MiB, "
        "S (f32):   72.00 MiB"
    )


@pytest.mark.parametrize("name", ["openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct", "google/gemma-3-27b-it"])
def test_the_lines_of_llamacpp_read_back_as_a_log_that_agrees(name: str) -> None:
    made = launch("llama.cpp", model=published(name), batch_size=2)
    slots = "llama_context: n_seq_max     = 2\n"
    found = compare(read_log(slots + "\n".join(predicted_lines(made))), made.model)
    assert len(found) >= 3
    assert all(line.agrees for line in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Qwen/Qwen2-7B", "KV Cache is allocated. #tokens: "),
        ("google/gemma-3-27b-it", "SWAKVPool mem usage: "),
        ("deepseek-ai/DeepSeek-V3", "KV size: "),
    ],
)
def test_the_lines_of_sglang_read_back_as_a_log_that_agrees(name: str, words: str) -> None:
    wide = define_gpu(name="G", usable_bytes=2000 * GIB)
    made = launch("sglang", model=published(name), gpu=wide, memory_fraction=0.9)
    lines = predicted_lines(made)
    assert words in lines[1]
    (line,) = (found for found in compare(read_log("\n".join(lines)), made.model) if found.label == "cache size")
    assert line.agrees


def test_sglang_and_tensorrt_print_the_tokens_of_their_pool() -> None:
    sglang = predicted_lines(launch("sglang", memory_fraction=0.5, **known(1)))
    tokens = (39 * GIB - 16_060_522_496) // 131_072
    assert sglang[-1] == f"max_total_num_tokens={tokens}, context_len=8192"
    tensorrt = predicted_lines(launch("tensorrt-llm", memory_fraction=0.5, **known(1)))
    free = 79 * GIB - 16_060_522_496  # half of what is left
    assert tensorrt[0].startswith(f"Allocated {free // 2 / GIB:.2f} GiB")


def test_transformers_prints_nothing_about_its_memory() -> None:
    assert predicted_lines(launch("transformers")) == ()
