"""What an engine cannot do is a sentence, and comes before any figure."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.dtypes import kv_dtype
from kvplan.engines import ENGINES, engine_capacity, kv_bytes
from kvplan.engines.launch import Launch
from kvplan.engines.lines import predicted_lines
from kvplan.engines.reserved import reserved_of
from kvplan.engines.support import CACHE_WORDS, LABELS, cache_dtypes, why_no_cache, why_not_cut, why_not_placed
from kvplan.errors import InputError, UnknownNameError
from kvplan.hardware import define_gpu
from kvplan.model import ONE_GPU, Placement
from kvplan.units import GIB
from tests.engines.log_cases import published

LLAMA = published("meta-llama/Llama-3.1-8B")
LATENT = published("deepseek-ai/DeepSeek-V3")
GPU = define_gpu(name="G", usable_bytes=80 * GIB)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_names_its_cache_dtypes_its_default_first(engine: str) -> None:
    assert set(CACHE_WORDS) == set(LABELS) == set(ENGINES)
    names = cache_dtypes(engine, LLAMA)
    assert names[0] == ("fp16" if "llama" in engine else "bf16")
    for name in names:
        assert why_no_cache(engine, LLAMA, kv_dtype(name)) == ""
        assert engine_capacity(LLAMA, engine=engine, pool_bytes=GIB, kv_dtype=name, max_model_len=4096).tokens > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_refused_for_the_cache_has_neither_a_capacity_nor_lines(engine: str) -> None:
    refused = next(name for name in ("fp8", "int8") if name not in cache_dtypes(engine, LLAMA) or name == "int8")
    if refused in cache_dtypes(engine, LLAMA):  # llama.cpp's builds for other devices have i8
        return
    launch = Launch(engine, LLAMA, GPU, 4096, 1, kv_dtype=refused)
    for ask in (lambda: reserved_of(launch, GIB), lambda: predicted_lines(launch)):
        with pytest.raises(InputError, match=refused):
            ask()
    with pytest.raises(InputError, match=refused):
        engine_capacity(LLAMA, engine=engine, pool_bytes=GIB, kv_dtype=refused, max_model_len=4096)


def test_latent_rows_have_fewer_cache_dtypes() -> None:
    assert cache_dtypes("vllm", LATENT) == ("bf16", "fp16", "fp8")
    assert "vLLM has no cache dtype nvfp4" in why_no_cache("vllm", LATENT, kv_dtype("nvfp4"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.11.0", "vLLM 0.11.0 has no cache dtype nvfp4, new after 0.16; choose bf16, its default"),
        ("0.16.3", "vLLM 0.16.3 has no cache dtype nvfp4"),
        (
            "0.20.2rc1",
            "whether vLLM 0.20.2rc1 has the cache dtype nvfp4 is not known: 0.16 has not, 0.25 has; choose bf16",
        ),
        ("0.25", ""),
        ("0.33.0", ""),
        (None, ""),
    ],
)
def test_a_cache_dtype_that_a_version_is_not_known_to_have_is_refused(version: str | None, words: str) -> None:
    assert why_no_cache("vllm", LLAMA, kv_dtype("nvfp4"), version).startswith(words)
    assert why_no_cache("vllm", LLAMA, kv_dtype("fp8"), version) == ""
    assert why_no_cache("sglang", LLAMA, kv_dtype("nvfp4"), version) == ""
    asked = {"engine_version": version, "pool_bytes": GIB, "max_model_len": 4096, "kv_dtype": "nvfp4"}
    launch = Launch("vllm", LLAMA, GPU, 4096, 1, kv_dtype="nvfp4", engine_version=version)
    if words:
        with pytest.raises(InputError, match="nvfp4"):
            engine_capacity(LLAMA, **asked)
        with pytest.raises(InputError, match="nvfp4"):
            reserved_of(launch, GIB)
    else:
        assert engine_capacity(LLAMA, **asked).tokens > 0
        assert reserved_of(launch, GIB).bytes > 0


@pytest.mark.parametrize(
    ("engine", "placement", "words"),
    [
        ("llama.cpp", Placement(1, 1, 2), "neither data nor expert parallelism"),
        ("ollama", Placement(1, 1, 1, True), "neither data nor expert parallelism"),
        ("transformers", Placement(1, 2), "no pipeline stages"),
        ("tensorrt-llm", Placement(1, 1, 2), "from a file of options"),
        ("vllm", Placement(8, 2, 4, True), ""),
        ("sglang", Placement(8, 2, 4, True), ""),
        ("llama.cpp", Placement(2, 2), ""),
    ],
)
def test_ways_over_gpus_that_an_engine_does_not_know(engine: str, placement: Placement, words: str) -> None:
    found = why_not_placed(engine, placement)
    assert words in found
    assert bool(found) == bool(words)


def test_quantized_blocks_are_not_cut() -> None:
    experts = published("Qwen/Qwen3-235B-A22B-FP8", with_quantization=True)  # of 1,536 inner features
    assert why_not_cut("vllm", experts, None, Placement(4)) == ""  # 384 = 3 x 128
    assert "would be cut to 192 rows or columns on each of 8 GPUs" in why_not_cut("vllm", experts, None, Placement(8))
    assert why_not_cut("vllm", experts, None, Placement(8, expert_parallel=True)) == ""  # they stay whole
    assert why_not_cut("llama.cpp", experts, None, Placement(8)) == ""


def test_rows_that_do_not_divide_are_refused() -> None:
    odd = define_model(
        name="O", num_layers=2, hidden_size=256, num_attention_heads=8, num_kv_heads=4, intermediate_size=510,
        vocab_size=1023,
    )  # fmt: skip
    assert "510 rows of dense MLP do not divide by 4 GPUs" in why_not_cut("sglang", odd, None, Placement(4))
    assert why_not_cut("sglang", odd, None, Placement(2)) == ""  # a vocabulary is filled up before it is cut
    assert why_not_cut("transformers", odd, None, ONE_GPU) == ""


def test_latent_layers_are_not_divided_by_llamacpp() -> None:
    with pytest.raises(InputError, match="does not divide the latent layers"):
        kv_bytes(LATENT, 4096, tensor_parallel=2)
    with pytest.raises(InputError, match="does not divide the latent layers"):
        engine_capacity(LATENT, engine="llama.cpp", pool_bytes=GIB, tensor_parallel=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "sglang", "context_parallel": 2}, "sglang has no context_parallel, and 2 is given"),
        ({"engine": "llama.cpp", "block_size": 64}, "llama.cpp has no block_size, and 64 is given"),
        ({"engine": "vllm", "engine_version": "newest"}, "engine_version is 'newest'; write it as 0.11"),
        ({"engine": "vllm", "data_parallel": 0}, "data_parallel is 0"),
        ({"engine": "transformers", "pipeline_parallel": 2}, "no pipeline stages"),
    ],
)
def test_settings_that_an_engine_has_not_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine_capacity(LLAMA, pool_bytes=GIB, max_model_len=4096, **settings)


def test_an_unknown_engine_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean sglang"):
        engine_capacity(LLAMA, pool_bytes=GIB, engine="sglan")


def test_every_setting_of_the_one_function_is_taken_by_vllm() -> None:
    found = engine_capacity(
        LLAMA, engine="vllm", engine_version="0.11", pool_bytes=10 * GIB, kv_dtype="auto", tensor_parallel=2,
        pipeline_parallel=2, block_size=32, max_model_len=8192, max_num_batched_tokens=2048, context_parallel=2,
        data_parallel=3,
    )  # fmt: skip
    # 16 layers of a stage, 4 of 8 heads on each GPU, K and V of 128 values in 16 bits, 32 tokens a block
    assert found.bytes_per_block == 16 * 4 * 2 * 128 * 2 * 32
    assert found.num_blocks == 10 * GIB // found.bytes_per_block
    assert found.request_blocks == 8192 // 2 // 32
    assert found.total_tokens == 3 * found.tokens


def test_transformers_divides_its_cache_over_the_gpus_that_share_it() -> None:
    one, four = (
        engine_capacity(LLAMA, engine="transformers-static", pool_bytes=GIB, max_model_len=4096, tensor_parallel=count)
        for count in (1, 4)
    )
    assert four.needed_bytes * 4 == one.needed_bytes


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"engine": "vllm", "engine_version": "0.99.1"}, "vLLM 0.99.1 is newer than 0.33, the newest whose rules"),
        ({"engine": "vllm"}, "no vLLM version is given: the rules of 0.33 are used"),
        ({"engine": "sglang", "engine_version": "0.5"}, "engine_version 0.5 is not used: only vLLM's rules are known"),
    ],
)
def test_what_a_version_means_is_noted(settings: dict[str, Any], note: str) -> None:
    found = engine_capacity(LLAMA, pool_bytes=GIB, max_model_len=4096, **settings)
    assert any(note in text for text in found.notes)
    known = engine_capacity(LLAMA, pool_bytes=GIB, max_model_len=4096, engine="vllm", engine_version="0.11")
    assert not any("version" in text or "newer" in text for text in known.notes)
