"""TensorRT-LLM and transformers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.attention import FullAttention, SlidingAttention
from kvplan.engines import ENGINES, engine_capacity
from kvplan.engines.tensorrt_llm import pool_bytes
from kvplan.engines.transformers import dynamic_bytes, growing_bytes, static_bytes
from kvplan.errors import InputError
from kvplan.units import GIB, MIB
from tests.engines.log_cases import published
from tests.engines.test_vllm import FULL, STATE, model

WINDOW = SlidingAttention(8, 128, window=1024)


def test_tensorrt_llm_divides_the_pool_into_blocks_of_32_tokens() -> None:
    found = engine_capacity(model((32, FULL)), engine="tensorrt-llm", pool_bytes=GIB, max_model_len=4096)
    assert (found.num_blocks, found.tokens, found.request_blocks) == (256, 8192, 128)
    assert found.longest_context == 8192


def test_tensorrt_llm_counts_windows_like_full_layers_and_says_so() -> None:
    found = engine_capacity(model((16, FULL), (16, WINDOW)), engine="tensorrt-llm", pool_bytes=GIB)
    assert found.tokens == 8192
    assert "counted like full attention" in found.notes[0]


def test_tensorrt_llm_counts_the_state_of_each_sequence_and_says_so() -> None:
    made = model((24, STATE), (8, FullAttention(4, 256)))
    found = engine_capacity(made, engine="tensorrt-llm", pool_bytes=GIB, max_model_len=1000)
    state = 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert found.tokens == GIB // (32 * 8 * 4096) * 32
    assert found.max_concurrency == GIB / (1024 * 8 * 4096 + state)
    assert found.needed_bytes == 1024 * 8 * 4096 + state
    (note,) = found.notes
    assert note.startswith("how TensorRT-LLM reserves recurrent states is not known: each sequence is counted with its")
    assert f"own of {state:,} B besides its blocks" in note


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_a_request_whose_state_finds_no_room_is_not_admitted(engine: str) -> None:
    """8 MiB of blocks and 49 MiB of state: of 64 MiB SGLang gives the states 30, TensorRT-LLM all that is left."""
    made = model((24, STATE), (8, FullAttention(4, 256)))
    found = engine_capacity(made, engine=engine, pool_bytes=64 * MIB, max_model_len=256)
    assert found.num_blocks >= found.request_blocks
    assert found.admits_one == (engine == "tensorrt-llm") == (found.max_concurrency >= 1)
    assert not engine_capacity(made, engine=engine, pool_bytes=50 * MIB, max_model_len=256).admits_one


def test_tensorrt_llm_takes_a_fraction_of_what_is_left() -> None:
    assert pool_bytes(10 * GIB) == 9 * GIB


def test_a_dynamic_cache_holds_every_column_and_windows_one_less() -> None:
    mixed = model((2, FULL), (3, WINDOW))
    assert dynamic_bytes(mixed, 500) == 5 * 500 * 4096
    assert dynamic_bytes(mixed, 4096) == (2 * 4096 + 3 * 1023) * 4096
    assert dynamic_bytes(mixed, 1024) == (2 * 1024 + 3 * 1023) * 4096
    assert static_bytes(mixed, 4096) == (2 * 4096 + 3 * 1024) * 4096


def test_the_largest_layer_exists_twice_while_it_grows() -> None:
    made = model((4, FULL), (4, FullAttention(2, 128)))
    assert growing_bytes(made, 1000, 2) == 2 * 1000 * (4 * 4096 + 4 * 1024 + 4096)


def test_capacity_of_both_caches_is_their_longest_sequence() -> None:
    settings = {"pool_bytes": GIB, "max_model_len": 1024}
    static = engine_capacity(model((32, FULL)), engine="transformers-static", **settings)
    assert (static.longest_context, static.max_concurrency, static.request_blocks) == (8192, 8.0, 1)
    dynamic = engine_capacity(model((32, FULL)), engine="transformers", **settings)
    assert dynamic.longest_context == GIB // (33 * 4096)


def test_states_set_no_limit() -> None:
    found = engine_capacity(model((4, STATE)), engine="transformers-static", pool_bytes=GIB, max_model_len=1024)
    assert (found.longest_context, found.tokens) == (None, 0)


def test_every_engine_answers_for_a_usual_model_within_the_law() -> None:
    made = published("meta-llama/Llama-3.1-8B")  # 131,072 B a token
    for name in ENGINES:
        found = engine_capacity(made, engine=name, pool_bytes=10 * GIB, max_model_len=8192)
        assert 0 < found.tokens <= 10 * GIB // 131_072, name
        assert found.num_blocks * found.bytes_per_block <= 10 * GIB, name


def test_a_model_that_keeps_nothing_for_tokens_has_no_blocks() -> None:
    with pytest.raises(InputError, match="keeps nothing for tokens, so there are no blocks"):
        engine_capacity(model((4, STATE)), engine="tensorrt-llm", pool_bytes=GIB)


def test_a_model_without_a_limit_needs_a_length() -> None:
    endless = replace(model((4, FULL)), context_limit=None)
    with pytest.raises(InputError, match="states no limit; give a length"):
        engine_capacity(endless, pool_bytes=GIB)
    assert engine_capacity(endless, pool_bytes=GIB, max_model_len=4096).tokens > 0
