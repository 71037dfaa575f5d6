"""llama.cpp: cells, K and V in types of their own, windows, states, and Ollama's way of calling it."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.attention import (
    CombinedCache,
    CrossAttention,
    FullAttention,
    LatentAttention,
    RecurrentState,
    SlidingAttention,
)
from kvplan.engines import engine_capacity
from kvplan.engines.llamacpp import cache_type_name, kv_bytes, ollama_context
from kvplan.engines.overheads import compute_buffer
from kvplan.errors import DtypeError, InputError, UnknownNameError
from kvplan.units import GIB, MIB
from tests.engines.log_cases import published
from tests.engines.test_vllm import FULL, STATE, model

HALF = 8 * 128  # values of one layer's keys for one token


def test_k_and_v_have_types_of_their_own() -> None:
    found = kv_bytes(model((32, FULL)), 4096, "q8_0", "q4_0")
    assert found.k_bytes == 4096 * 32 * HALF * 34 // 32
    assert found.v_bytes == 4096 * 32 * HALF * 18 // 32
    assert found.kv_bytes == found.total_bytes == found.k_bytes + found.v_bytes


@pytest.mark.parametrize(
    ("name", "block_bytes"),
    [
        ("f32", 128),
        ("f16", 64),
        ("bf16", 64),
        ("q8_0", 34),
        ("q5_1", 24),
        ("q5_0", 22),
        ("q4_1", 20),
        ("q4_0", 18),
        ("iq4_nl", 18),
    ],
)
def test_a_type_stores_32_values_in_its_block(name: str, block_bytes: int) -> None:
    assert kv_bytes(model((1, FULL)), 256, name, name).k_bytes == 256 * HALF // 32 * block_bytes


@pytest.mark.parametrize(("n_ctx", "cells"), [(1, 256), (256, 256), (257, 512), (4096, 4096)])
def test_cells_are_rounded_up_to_256(n_ctx: int, cells: int) -> None:
    assert kv_bytes(model((1, FULL)), n_ctx).cells == cells


def test_slots_divide_the_context_and_each_is_rounded_up() -> None:
    assert kv_bytes(model((1, FULL)), 4000, slots=3).cells == 3 * 1536  # 1,333 each
    assert kv_bytes(model((1, FULL)), 4000, slots=3, unified=True).cells == 4096


def test_windows_have_a_pool_of_a_window_and_a_micro_batch() -> None:
    mixed = model((5, FULL), (25, SlidingAttention(8, 128, window=1024)))
    found = kv_bytes(mixed, 32768)
    assert (found.cells, found.window_cells) == (32768, 1536)  # 1,024 + 512
    assert found.k_bytes == (5 * 32768 + 25 * 1536) * HALF * 2
    assert kv_bytes(mixed, 1024).window_cells == 1024  # never more than the context
    assert kv_bytes(mixed, 32768, swa_full=True).k_bytes == 30 * 32768 * HALF * 2


def test_slots_of_a_unified_cache_share_the_windows_pool() -> None:
    mixed = model((1, FULL), (1, SlidingAttention(8, 128, window=1024)))
    assert kv_bytes(mixed, 65536, slots=4, unified=True).window_cells == 4 * 1024 + 512
    assert kv_bytes(mixed, 65536, slots=4).window_cells == 4 * 1536


def test_a_latent_row_is_kept_once_or_as_k_and_v_of_every_head() -> None:
    deepseek = published("deepseek-ai/DeepSeek-V3")
    latent = kv_bytes(deepseek, 512, "q8_0", "q8_0")
    assert (latent.k_bytes, latent.v_bytes) == (512 * 61 * 576 * 34 // 32, 0)
    heads = kv_bytes(deepseek, 512, latent=False)
    assert (heads.k_bytes, heads.v_bytes) == (512 * 61 * 128 * 192 * 2, 512 * 61 * 128 * 128 * 2)


def test_heads_of_a_latent_layer_that_is_not_described_are_not_guessed() -> None:
    with pytest.raises(InputError, match="are not described"):
        kv_bytes(model((1, LatentAttention(512, 64))), 512, latent=False)


def test_states_are_float32_for_every_sequence() -> None:
    found = kv_bytes(model((36, STATE), (12, FULL)), 4096, slots=2)
    assert found.s_bytes == 2 * 36 * 32 * 128 * 128 * 4
    assert found.r_bytes == 2 * 36 * 3 * 8192 * 4
    assert found.total_bytes == found.kv_bytes + found.s_bytes + found.r_bytes


def test_channels_that_heads_share_lose_one_input_each_as_the_others_do() -> None:
    """Mamba-2 convolves x, and B and C of each group; kernel - 1 inputs are kept of all of them."""
    mamba2 = RecurrentState(128, 64 * 128, None, 8192, 4, None, conv_groups=8, group_channels=2 * 128)
    found = kv_bytes(model((24, mamba2), (4, FULL)), 4096, slots=2)
    assert found.r_bytes == 2 * 24 * (4 - 1) * (8192 + 2 * 8 * 128) * 4
    assert found.s_bytes == 2 * 24 * 128 * 64 * 128 * 4


def test_a_layer_of_both_kinds_has_both() -> None:
    found = kv_bytes(model((1, CombinedCache((FULL, STATE)))), 256)
    assert (found.k_bytes, found.s_bytes) == (256 * HALF * 2, 32 * 128 * 128 * 4)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"type_k": "q9"}, UnknownNameError, "no llama.cpp cache type is called 'q9'"),
        ({"slot": 2}, UnknownNameError, "did you mean slots"),
        ({"slots": 0}, InputError, "slots is 0"),
        ({"n_ctx": 0}, InputError, "n_ctx is 0"),
    ],
)
def test_bad_options_are_refused_by_name(settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        kv_bytes(model((1, FULL)), **{"n_ctx": 512, **settings})


def test_a_row_that_fills_no_block_is_refused() -> None:
    with pytest.raises(DtypeError, match="does not fill whole blocks"):
        kv_bytes(model((1, FullAttention(8, 80))), 256, "q8_0", "q8_0")


def test_as_an_engine_it_gives_the_longest_context_of_a_pool() -> None:
    found = engine_capacity(model((32, FULL)), engine="llama.cpp", pool_bytes=GIB, max_model_len=4096, kv_dtype="fp16")
    assert (found.tokens, found.longest_context, found.max_concurrency) == (8192, 8192, 2.0)
    assert (found.needed_bytes, found.num_blocks, found.request_blocks) == (GIB // 2, 2, 1)
    assert found.notes == (
        "all is allocated at the start: 512.00 MiB for 4,096 tokens in one slot, K as f16 and V as f16",
    )


def test_slots_each_get_the_context() -> None:
    found = engine_capacity(
        model((32, FULL)), engine="ollama", pool_bytes=GIB, max_model_len=2048, kv_dtype="fp16", slots=2
    )
    assert (found.longest_context, found.tokens) == (4096, 8192)


def test_auto_is_llamacpps_own_default_and_types_may_differ() -> None:
    auto = engine_capacity(model((32, FULL)), engine="llama.cpp", pool_bytes=GIB, max_model_len=4096)
    assert "K as f16 and V as f16" in auto.notes[0]
    mixed = engine_capacity(
        model((32, FULL)), engine="llama.cpp", pool_bytes=GIB, max_model_len=4096, kv_dtype="q8_0/q4_0"
    )
    assert mixed.needed_bytes == 4096 * 32 * HALF * (34 + 18) // 32


def test_a_fork_without_a_window_pool_keeps_every_cell() -> None:
    mixed = model((5, FULL), (25, SlidingAttention(8, 128, window=1024)))
    found = engine_capacity(mixed, engine="ik_llama.cpp", pool_bytes=GIB, max_model_len=2528)
    assert found.needed_bytes == 30 * 2528 * HALF * 2 * 2  # 79 x 32 cells


def test_formats_that_llamacpp_lacks_are_refused() -> None:
    assert cache_type_name("fp16") == "f16"
    with pytest.raises(InputError, match="has no cache dtype fp8; choose fp16, its default, or fp32"):
        engine_capacity(model((1, FULL)), engine="llama.cpp", pool_bytes=GIB, kv_dtype="fp8")


def test_the_compute_buffer_is_about_the_logits_of_a_micro_batch() -> None:
    coder = published("Qwen/Qwen3-30B-A3B")  # of 151,936 entries; its log prints 300.75 MiB at a context of 4,096
    found = compute_buffer(coder, 1)
    assert found.typical == 151_936 * 4 * 512 * 105 // 100
    assert found.low <= 300.75 * MIB <= found.high
    assert compute_buffer(coder, 2).typical == 2 * found.typical  # a buffer on each GPU


def test_ollama_multiplies_the_context_by_its_slots() -> None:
    assert ollama_context(8192, 4) == 32768
    with pytest.raises(InputError, match="num_parallel is 0"):
        ollama_context(8192, 0)


def test_layers_that_llamacpp_stores_in_an_unknown_way_are_refused() -> None:
    with pytest.raises(InputError, match=r"how llama\.cpp stores cross-attention is not known here"):
        kv_bytes(model((1, FULL), (1, CrossAttention(8, 128, 1600))), 512)


@pytest.mark.parametrize("bad", [None, "llama-3.1-8b", 5, {}, [1]], ids=repr)
def test_what_is_no_model_and_what_is_no_type_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^model is .*; a kvplan.Model is needed$"):
        kv_bytes(bad, 4096)
    for types in ({"type_k": bad}, {"type_v": bad}):
        with pytest.raises(UnknownNameError, match=r"no llama\.cpp cache type is called"):
            kv_bytes(model((32, FULL)), 4096, **types)
