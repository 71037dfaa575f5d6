# ruff: noqa: E501 - log lines stand as engines print them
"""Pasted start-up logs: what is read from them, and what is ignored politely."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.define import define_model
from kvplan.engines.budget import Flags, pool_budget
from kvplan.engines.compare import Line, compare
from kvplan.engines.log import MAX_LOG_BYTES, overhead_total, overheads_of, read_log
from kvplan.errors import InputError
from kvplan.hardware import define_gpu
from kvplan.model import Model
from kvplan.units import GIB, MIB
from tests.engines.log_cases import published

OLD_VLLM = """
INFO 09-04 10:11:12 [api_server.py:1805] vLLM API server version 0.10.1.1
INFO 09-04 10:11:12 [utils.py:326] non-default args: {'model': 'Qwen/Qwen2-7B-Instruct', 'gpu_memory_utilization': 0.5}
(EngineCore_0 pid=9) INFO 09-04 10:11:20 [core.py:74] Initializing a V1 LLM engine (v0.10.1.1) with config: \
model='Qwen/Qwen2-7B-Instruct', dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=1, \
pipeline_parallel_size=1, quantization=None, kv_cache_dtype=auto, device_config=cuda
(EngineCore_0 pid=9) INFO 09-04 10:12:01 [gpu_model_runner.py:2007] Model loading took 14.2488 GiB and 30.1 seconds
(EngineCore_0 pid=9) INFO 09-04 10:12:30 [gpu_worker.py:276] Available KV cache memory: 24.83 GiB
(EngineCore_0 pid=9) INFO 09-04 10:12:30 [kv_cache_utils.py:849] GPU KV cache size: 464,848 tokens
(EngineCore_0 pid=9) INFO 09-04 10:12:30 [kv_cache_utils.py:853] Maximum concurrency for 16,384 tokens per request: 28.37x
(EngineCore_0 pid=9) INFO 09-04 10:12:50 [gpu_model_runner.py:2706] Graph capturing finished in 18 secs, took 0.50 GiB
"""
V0 = """
INFO 03-21 10:00:00 worker.py:267] Memory profiling takes 5.1 seconds
INFO 03-21 10:00:00 worker.py:267] the current vLLM instance can use total_gpu_memory (39.56GiB) x gpu_memory_utilization (0.79) = 31.28GiB
INFO 03-21 10:00:00 worker.py:267] model weights take 6.25GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 1.49GiB; the rest of the memory reserved for KV Cache is 23.46GiB.
INFO 03-21 10:00:01 executor_base.py:111] # cuda blocks: 13724, # CPU blocks: 3510
INFO 03-21 10:00:01 executor_base.py:116] Maximum concurrency for 2048 tokens per request: 107.22x
INFO 03-21 10:00:09 model_runner.py:1110] Loading model weights took 6.2472 GB
"""
NEW_VLLM = """
(APIServer pid=1) INFO 10-06 16:59:12 [utils.py:302] vLLM API server version 0.23.0
(EngineCore pid=326) INFO 10-06 17:00:11 [model_runner.py:407] Model loading took 8.61 GiB memory and 5.420225 seconds
(EngineCore pid=326) INFO 10-06 17:00:20 [hybrid.py:500] Setting attention block size to 528 tokens to ensure that attention page size is >= mamba page size.
(EngineCore pid=326) INFO 10-06 17:00:33 [gpu_worker.py:692] Available KV cache memory: 10.21 GiB
(EngineCore pid=326) INFO 10-06 17:00:33 [kv_cache_utils.py:2464] GPU KV cache size: 235,706 tokens, Maximum concurrency for 4,096 tokens per request: 57.55x
(EngineCore pid=326) INFO 10-06 17:00:41 [gpu_worker.py:955] Free memory on device (22.84/23.25 GiB) on startup. Desired GPU memory utilization is (0.9, 20.92 GiB). Actual usage is 8.80 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.
"""
REFUSED = """
ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, \
which is larger than the available KV cache memory (0.71 GiB). Based on the available memory, the estimated maximum \
model length is 5808. vLLM V1 INFO max_model_len=131072
"""
SGLANG = """
[2026-06-10 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-235B-A22B-FP8', mem_fraction_static=0.93, tp_size=4, pp_size=1, context_length=None, kv_cache_dtype='auto', chunked_prefill_size=8192)
[2026-06-10 10:00:09 TP0] Load weight begin. avail mem=78.58 GB
[2026-06-10 10:02:00 TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=22.97 GB, mem usage=55.61 GB.
[2026-06-10 10:02:01 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[2026-06-10 10:02:01 TP0] Memory pool end. avail mem=5.55 GB
[2026-06-10 10:02:20 TP0] Capture cuda graph end. Time elapsed: 18.1 s. mem usage=2.10 GB. avail mem=3.40 GB.
[2026-06-10 10:02:21 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, max_running_requests=2048, context_len=40960
"""
LLAMACPP = """
print_info: arch                  = qwen3next
load_tensors:        CUDA0 model buffer size = 43760.42 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 34048
llama_context: n_ubatch      = 512
llama_context: kv_unified    = false
llama_kv_cache:      CUDA0 KV buffer size =   798.00 MiB
llama_kv_cache: size =  798.00 MiB ( 34048 cells,  12 layers,  1/1 seqs), K (f16):  399.00 MiB, V (f16):  399.00 MiB
llama_memory_recurrent: size =   75.38 MiB (     1 cells,  48 layers,  1 seqs), R (f32):    3.38 MiB, S (f32):   72.00 MiB
llama_context:      CUDA0 compute buffer size =   308.75 MiB
"""
IK_LLAMA = """
llm_load_print_meta: arch             = deepseek2
llama_new_context_with_model: n_ctx      = 2048
llama_new_context_with_model: KV self size  =   72.91 MiB, c^KV (q8_0):   72.91 MiB, kv^T: not used
"""


def by_label(lines: tuple[Line, ...]) -> dict[str, Line]:
    return {line.label: line for line in lines}


def test_an_older_vllm_log_gives_its_version_model_and_figures() -> None:
    found = read_log(OLD_VLLM)
    assert (found.engine, found.text("version"), found.text("model")) == ("vllm", "0.10.1.1", "Qwen/Qwen2-7B-Instruct")
    assert (found.count("tokens"), found.number("max_concurrency")) == (464848, 28.37)
    assert found.count("pool_bytes") == round(24.83 * GIB)
    assert found.count("weight_bytes") == round(14.2488 * GIB)
    assert found.count("cuda_graph_bytes") == GIB // 2
    assert (found.count("max_model_len"), found.number("memory_fraction")) == (16384, 0.5)


def test_a_v0_log_gives_blocks_and_every_part_of_its_profile() -> None:
    found = read_log(V0)
    assert (found.engine, found.count("num_blocks"), found.count("max_model_len")) == ("vllm", 13724, 2048)
    assert found.count("total_bytes") == round(39.56 * GIB)
    assert found.count("activation_bytes") == round(1.49 * GIB)
    assert found.count("non_torch_bytes") == round(0.09 * GIB)


def test_a_newer_vllm_log_puts_both_figures_into_one_line() -> None:
    found = read_log(NEW_VLLM)
    assert (found.count("tokens"), found.number("max_concurrency"), found.count("max_model_len")) == (
        235706,
        57.55,
        4096,
    )
    assert (found.count("block_size"), found.count("requested_bytes")) == (528, round(20.92 * GIB))


def test_sglang_writes_gib_as_gb_and_k_and_v_apart() -> None:
    found = read_log(SGLANG)
    assert (found.engine, found.count("tokens"), found.count("tensor_parallel")) == ("sglang", 367404, 4)
    assert found.count("k_bytes") == found.count("v_bytes") == round(8.23 * GIB)
    assert found.count("weight_bytes") == round(55.61 * GIB)
    assert (found.number("memory_fraction"), found.count("max_model_len")) == (0.93, 40960)


def test_llamacpp_names_its_types_and_states() -> None:
    found = read_log(LLAMACPP)
    assert (found.engine, found.text("type_k"), found.text("type_v")) == ("llama.cpp", "f16", "f16")
    assert (found.count("n_ctx"), found.count("s_bytes")) == (34048, 72 * MIB)
    assert found.count("activation_bytes") == round(308.75 * MIB)


def test_two_pools_of_llamacpp_add_up() -> None:
    line = "llama_kv_cache: size =   18.00 MiB (   512 cells,  18 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB\n"
    found = read_log(line * 2)
    assert (found.count("kv_bytes"), found.count("k_bytes")) == (36 * MIB, 18 * MIB)


def test_of_several_ranks_the_smallest_pool_and_the_largest_weights_count() -> None:
    text = "".join(
        f"(Worker_TP{rank}) INFO vllm Model loading took {weights} GiB\n(Worker_TP{rank}) Available KV cache memory: {pool} GiB\n"
        for rank, (weights, pool) in enumerate([(7.12, 12.02), (7.20, 11.95)])
    )
    found = read_log(text)
    assert (found.count("weight_bytes"), found.count("pool_bytes")) == (round(7.20 * GIB), round(11.95 * GIB))


def test_colours_of_a_terminal_do_not_hide_a_figure() -> None:
    found = read_log("\x1b[1;36m(EngineCore_0)\x1b[0;0m INFO GPU KV cache size: \x1b[1m1,024\x1b[0m tokens vLLM")
    assert found.count("tokens") == 1024


@pytest.mark.parametrize("text", ["", "Dear diary, today it rained.", "\x00\xff" * 500, "{" * 10_000, "a" * 1_000_000])
def test_other_text_is_ignored_politely(text: str) -> None:
    found = read_log(text)
    assert found.engine is None
    assert not found.values
    assert found.note.startswith("This does not look like")


def test_a_text_that_only_mentions_an_engine_says_so() -> None:
    assert (
        read_log("we use vLLM at work, any version").note
        == "This mentions vLLM, but holds none of the lines about its memory."
    )


def test_text_over_five_megabytes_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="over 5 MB; paste the part"):
        read_log("x" * (MAX_LOG_BYTES + 1))
    with pytest.raises(InputError, match="text is needed"):
        read_log(b"vLLM")  # type: ignore[arg-type]


def test_absurd_numbers_do_not_break_the_reading() -> None:
    found = read_log(f"vLLM GPU KV cache size: {'9' * 5000} tokens\nAvailable KV cache memory: {'9' * 400} GiB")
    assert found.count("tokens") == int("9" * 40)


def test_the_log_of_a_known_model_agrees_line_by_line() -> None:
    found = by_label(compare(read_log(OLD_VLLM), published("Qwen/Qwen2-7B")))
    assert {label: line.agrees for label, line in found.items()} == {
        "weights": True, "cache size": True, "requests at once": True,
    }  # fmt: skip


def test_a_log_of_the_older_engine_agrees_without_stating_its_version() -> None:
    found = by_label(compare(read_log(V0), published("meta-llama/Llama-3.2-3B-Instruct")))
    assert found["GPU blocks"].agrees  # 23.46 GiB / (16 x 114,688 B) = 13,727 of 13,724, rounded to 0.01 GiB
    assert found["requests at once"].agrees


def test_a_hybrid_model_agrees_by_the_newer_rule() -> None:
    found = by_label(compare(read_log(NEW_VLLM), published("Qwen/Qwen3.5-4B")))
    assert found["cache size"].agrees
    assert found["requests at once"].agrees
    assert found["pool from the log's own parts"].planned is not None


def test_sglang_and_llamacpp_agree_as_well() -> None:
    assert by_label(compare(read_log(SGLANG), published("Qwen/Qwen3-235B-A22B")))["cache size"].agrees
    lines = compare(read_log(LLAMACPP), published("Qwen/Qwen3-Next-80B-A3B-Instruct"))
    assert [line.label for line in lines if line.agrees] == [
        "keys",
        "values",
        "KV cache",
        "convolution state",
        "recurrent state",
    ]
    assert by_label(compare(read_log(IK_LLAMA), published("deepseek-ai/DeepSeek-V3"), pad=32))["keys"].agrees


def test_tokens_without_their_bytes_are_said_with_what_they_take() -> None:
    """1,381 blocks of 16 tokens of 131,072 B; without blocks, 10.79 requests of 2,048 tokens."""
    text = "INFO kv_cache_utils.py:395] # GPU blocks: 1381\n"
    (line,) = compare(read_log(text), published("meta-llama/Llama-3.1-8B"))
    assert (line.label, line.printed, line.planned) == ("GPU blocks", 1381, None)
    assert line.reason == "the log does not say of how many bytes: of this model they take 2.70 GiB on each GPU"
    text = "INFO vllm GPU KV cache size: 22,096 tokens\nMaximum concurrency for 2,048 tokens per request: 10.79x\n"
    (line,) = compare(read_log(text), published("meta-llama/Llama-3.1-8B"))
    assert (line.label, line.printed, line.planned) == ("cache size", 22096, None)
    assert "they take 2.70 GiB on each GPU" in line.reason


def restarts(version_line: str) -> str:
    """A start that was refused, one with a shorter limit, and a third of which only the beginning is there."""
    starts = [(131072, "5.00", "131,072 (16.00 GiB KV cache is needed)"), (32768, "6.50", ""), (16384, "", "")]
    return "".join(
        f"INFO {version_line}\n"
        f"INFO Initializing a V1 LLM engine (v0.10.1.1) with config: model='L', max_seq_len={length}, \n"
        + (f"INFO Available KV cache memory: {pool} GiB\n{rest}\n" if pool else "")
        for length, pool, rest in starts
    )


@pytest.mark.parametrize("version_line", ["vLLM API server version 0.10.1.1", "vllm"])
def test_of_several_starts_the_last_that_came_to_its_pool_counts(version_line: str) -> None:
    figures = read_log(restarts(version_line))
    assert (figures.count("pool_bytes"), figures.count("max_model_len")) == (6.5 * GIB, 32768)
    assert figures.count("needed_bytes") is None


def test_replicas_are_no_starts_one_after_the_other() -> None:
    text = restarts("vllm").replace("model='L'", "model='L', data_parallel_size=3")
    assert read_log(text).count("pool_bytes") == 5 * GIB  # the least of the ranks


def test_a_refused_start_is_compared_too() -> None:
    found = by_label(compare(read_log(REFUSED), published("meta-llama/Llama-3.1-8B")))
    assert found["bytes that one request needs"].agrees  # 131,072 tokens x 131,072 B = 16 GiB
    assert found["longest request"].agrees  # 0.71 GiB / 131,072 B = 5,816 tokens, in blocks of 16


def test_a_figure_that_differs_names_the_setting_that_would_explain_it() -> None:
    line = by_label(compare(read_log(OLD_VLLM), published("Qwen/Qwen2-7B"), kv_dtype="fp8"))["cache size"]
    assert not line.agrees
    assert line.difference == pytest.approx(1.0, abs=0.01)
    assert line.reason == "the cache is 16 bits wide: that gives the printed figure"


def test_another_model_is_named_as_the_reason() -> None:
    line = by_label(compare(read_log(OLD_VLLM), published("microsoft/phi-4")))["cache size"]
    assert line.reason.startswith("another model than the one compared")


def test_parts_that_do_not_add_up_to_the_pool_are_explained() -> None:
    label, llama = "pool from the log's own parts", published("meta-llama/Llama-3.2-3B-Instruct")
    whole = by_label(compare(read_log(V0), llama))[label]
    assert whole.agrees  # 0.79 x 39.56 - 6.25 - 0.09 - 1.49 = 23.42 of 23.46
    held = by_label(compare(read_log(V0.replace("KV Cache is 23.46", "KV Cache is 19.46")), llama))[label]
    assert (held.agrees, held.reason) == (False, "memory held by others")
    graphs = (
        V0.replace("KV Cache is 23.46", "KV Cache is 21.46") + "vLLM Graph capturing finished in 9 secs, took 2.00 GiB"
    )
    assert "CUDA graphs are taken out" in by_label(compare(read_log(graphs), llama))[label].reason


def test_text_that_is_no_log_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        compare(read_log("hello"), published("microsoft/phi-4"))


def test_the_overheads_of_a_log_replace_the_estimates() -> None:
    figures = read_log(V0)
    parts = {part.name: part.typical for part in overheads_of(figures)}
    assert parts == {"activation": round(1.49 * GIB), "non_torch": round(0.09 * GIB)}
    gpu = define_gpu(name="A100", usable_bytes=round(39.56 * GIB))
    flags = Flags(engine_version="0.8.1", memory_fraction=0.79, max_num_seqs=320)
    budget = pool_budget(small(), gpu, flags, overheads_of(figures))
    assert [part.typical for part in budget.overheads] == list(parts.values())
    assert budget.low_bytes == budget.pool_bytes == budget.high_bytes  # nothing is left to estimate


def test_where_only_sums_are_printed_the_rest_is_one_part() -> None:
    text = OLD_VLLM + "total_gpu_memory (79.14GiB)"
    other = round(round(79.14 * GIB) * 0.5) - round(14.2488 * GIB) - round(24.83 * GIB)
    assert overhead_total(read_log(text)) == other + GIB // 2  # graphs lie outside in 0.10
    assert overhead_total(read_log("vLLM GPU KV cache size: 1 tokens")) is None


def test_newer_vllm_counts_the_context_with_the_weights() -> None:
    parts = {part.name: part.typical for part in overheads_of(read_log(NEW_VLLM))}
    assert parts["non_torch"] == round(8.80 * GIB) - round(8.61 * GIB)


def small() -> Model:
    return define_model(
        name="S", num_layers=4, hidden_size=256, num_attention_heads=4, num_kv_heads=2, intermediate_size=512,
        vocab_size=1024,
    )  # fmt: skip


def test_a_line_says_its_figures_in_words() -> None:
    line = by_label(compare(read_log(OLD_VLLM), published("Qwen/Qwen2-7B")))["weights"]
    assert (line.as_text(line.printed), line.as_text(None)) == ("14.2 GiB", "not known")
    times = Line("requests at once", 28.37, 28.377, "times", True)
    assert times.as_text(times.planned) == "28.38x"
    assert Line("cache size", 464848, None, "tokens", False, "why").as_text(464848) == "464,848"
    assert Line("cache size", 464848, None, "tokens", False, "why").difference is None


def test_the_gpu_is_compared_where_the_log_states_its_total() -> None:
    llama = published("meta-llama/Llama-3.2-3B-Instruct")
    same = define_gpu(name="A", usable_bytes=round(39.25 * GIB))
    assert by_label(compare(read_log(V0), llama, same))["usable memory"].agrees
    other = by_label(compare(read_log(V0), llama, define_gpu(name="B", usable_bytes=80 * GIB)))["usable memory"]
    assert (other.agrees, other.reason) == (False, "another GPU, or a share of one")


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("5.90", "quantized more than this description"),
        ("28.40", "wider than this description"),
        ("15.10", "adapters, a draft head or a tower"),
        ("13.00", "leaves a tower or a head out"),
    ],
)
def test_weights_that_differ_have_a_likeliest_reason(printed: str, reason: str) -> None:
    text = OLD_VLLM.replace("took 14.2488 GiB", f"took {printed} GiB")
    line = by_label(compare(read_log(text), published("Qwen/Qwen2-7B")))["weights"]
    assert not line.agrees
    assert reason in line.reason


def test_what_cannot_be_planned_is_a_line_that_says_why() -> None:
    silent = replace(published("Qwen/Qwen2-7B"), dtype=None)
    line = by_label(compare(read_log(OLD_VLLM), silent))["weights"]
    assert line.planned is None
    assert "does not state its dtype" in line.reason
    v4 = published("deepseek-ai/DeepSeek-V4-Pro")
    packed = by_label(compare(read_log(OLD_VLLM), v4, kv_dtype="bf16"))["cache size"]
    assert (packed.planned, packed.agrees) == (None, False)
    cells = by_label(compare(read_log(LLAMACPP), v4))["KV cache"]
    assert "how llama.cpp stores compressed attention is not known" in cells.reason


def test_the_ratio_of_two_pools_is_read_from_sglangs_arguments() -> None:
    text = (
        "server_args=ServerArgs(model_path='g', tp_size=2, swa_full_tokens_ratio=0.0625, context_length=8192)\n"
        "KV Cache is allocated. #tokens: 40790, K size: 1.95 GB, V size: 1.95 GB\n"
        "KV Cache is allocated. #tokens: 652652, K size: 3.11 GB, V size: 3.11 GB\n"
        "SWAKVPool mem usage: 10.11 GB, swa size: 40790, full size: 652652\nsglang\n"
    )
    found = by_label(compare(read_log(text), published("google/gemma-4-26B-A4B")))["cache size"]
    assert found.planned == 652375  # 10.11 GiB / (10,240 + 0.0625 x 102,400) B
    assert (found.printed, found.agrees) == (652652, True)  # within 0.005 GiB


def test_a_different_llamacpp_build_is_named_as_the_reason() -> None:
    text = LLAMACPP.replace("34048", "32768").replace("K (f16):  399.00", "K (f16):  9216.00")
    line = by_label(compare(read_log(text), published("openai/gpt-oss-120b")))["keys"]
    assert not line.agrees
    assert line.reason.startswith("another model")
    whole = "llama_context: n_ctx = 32768\nllama_kv_cache: size = 2304.00 MiB (32768 cells), K (f16): 1152.00 MiB, V (f16): 1152.00 MiB\n"
    line = by_label(compare(read_log(whole), published("openai/gpt-oss-120b")))["keys"]
    assert line.reason.startswith("window layers keep every cell (--swa-full")


def test_only_the_first_million_characters_about_memory_are_read() -> None:
    filler = "INFO version took dtype block_size\n" * 30_000
    assert read_log(filler + "vLLM GPU KV cache size: 1,024 tokens\n").engine is None
    assert read_log("vLLM GPU KV cache size: 1,024 tokens\n" + filler).count("tokens") == 1024
