"""SGLang: tokens of one pool, a second one for windows, one of states, and the default memory fraction."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kvplan.attention import FullAttention, IndexedLatentAttention, NoCache, SlidingAttention
from kvplan.engines import EngineCapacity, engine_capacity
from kvplan.engines.sglang import default_memory_fraction
from kvplan.errors import InputError
from kvplan.hardware import define_gpu
from kvplan.model import Model
from kvplan.units import GIB, MIB
from tests.engines.test_vllm import FULL, STATE, model

WINDOW = SlidingAttention(8, 128, window=1024)


def ask(made: Model, pool_bytes: int, **settings: Any) -> EngineCapacity:
    return engine_capacity(made, engine="sglang", pool_bytes=pool_bytes, **settings)


def test_tokens_are_the_pool_over_the_bytes_of_a_token() -> None:
    found = ask(model((32, FULL)), GIB, max_model_len=4096)
    assert (found.tokens, found.block_size, found.max_concurrency) == (GIB // (32 * 4096), 1, 2.0)
    assert found.longest_context == 8192


def test_two_pools_share_the_bytes_by_their_ratio() -> None:
    pool = 100 * (5 * 4096) + 25 * (25 * 4096)
    found = ask(model((5, FULL), (25, WINDOW)), pool, swa_full_tokens_ratio=0.25)
    assert found.tokens == 100
    assert "a pool of their own of 25 tokens" in found.notes[0]


def test_the_usual_ratio_is_four_fifths() -> None:
    pool = 1000 * (5 * 4096) + 800 * (25 * 4096)
    assert ask(model((5, FULL), (25, WINDOW)), pool).tokens == 1000


def test_where_every_layer_has_a_window_its_pool_is_the_only_one() -> None:
    assert ask(model((10, WINDOW)), GIB).tokens == GIB // (10 * 4096)


def test_states_have_a_pool_of_their_own() -> None:
    made = model((24, STATE), (8, FullAttention(4, 256)))
    found = ask(made, 19 * GIB)
    assert found.tokens == 10 * GIB // (8 * 4096)  # 1.9 parts: 1 of tokens, 0.9 of states
    state = 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert f"{9 * GIB // state:,} sequences of {state:,} B" in found.notes[0]
    assert found.longest_context == found.tokens
    without_room = ask(made, state)  # 0.9 of 1.9 parts hold no state
    assert (without_room.admits_one, without_room.longest_context) == (False, 0)


def test_requests_at_once_are_those_that_every_pool_admits() -> None:
    """Of short requests the states or the windows run out before the tokens do."""
    states = ask(model((24, STATE), (8, FullAttention(4, 256))), 19 * GIB, max_model_len=300)
    assert states.tokens // 300 > states.max_concurrency == 9 * GIB // (24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2))
    assert states.needed_bytes == 300 * 8 * 4096 + 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    pool = 10_000 * (5 * 4096) + 8_000 * (25 * 4096)
    windows = model((5, FULL), (25, WINDOW))
    assert ask(windows, pool, max_model_len=500).max_concurrency == 8_000 / 500
    assert ask(windows, pool, max_model_len=5_000).max_concurrency == 2  # 1,024 of 8,000 are no limit


def test_index_keys_in_eight_bits_beside_a_wider_cache_are_said() -> None:
    sparse = model((10, IndexedLatentAttention(512, 64, index_head_dim=128)))
    found = ask(sparse, GIB)
    assert found.bytes_per_block == 64 * 10 * (1152 + 132)
    assert found.tokens * sparse.cache_bytes_per_token() > GIB
    assert found.notes[0].startswith("index keys are kept in 8 bits whatever the cache dtype")
    assert not any("index keys" in note for note in ask(sparse, GIB, kv_dtype="fp8").notes)


def test_sparse_latent_models_page_64_tokens() -> None:
    sparse = model((10, IndexedLatentAttention(512, 64, index_head_dim=128)))
    found = ask(sparse, GIB, kv_dtype="fp8")
    assert (found.block_size, found.tokens % 64) == (64, 0)
    assert found.bytes_per_block == 64 * 10 * (656 + 132)


def test_the_last_stages_take_the_layers_left_over() -> None:
    found = ask(model((2, SlidingAttention(8, 128, window=8)), (3, FULL)), GIB, pipeline_parallel=2)
    assert found.tokens == GIB // (3 * 4096)  # 2 layers, then 3


def test_a_draft_head_adds_layers_to_the_last_stage() -> None:
    assert ask(model((31, FULL)), GIB, draft_layers=1).tokens == GIB // (32 * 4096)


def test_a_model_that_keeps_nothing_for_tokens_has_no_pool() -> None:
    with pytest.raises(InputError, match="keeps nothing for tokens"):
        ask(model((1, NoCache())), GIB)


@pytest.mark.parametrize("ratio", [0, -1, "half", True])
def test_a_ratio_must_be_a_number_above_zero(ratio: object) -> None:
    with pytest.raises(InputError, match="swa_full_tokens_ratio is"):
        ask(model((5, FULL), (25, WINDOW)), GIB, swa_full_tokens_ratio=ratio)


def test_the_default_fraction_leaves_the_reserve() -> None:
    small = define_gpu(name="S", usable_bytes=24_000 * MIB)
    reserve = 512 + 1.5 * 4096 + 1024 / 8 + 2 * 48
    assert default_memory_fraction(small, 1) == Fraction(24_000) / 24_000 - Fraction(str(reserve)) / 24_000
    large = define_gpu(name="B", usable_bytes=80 * GIB)
    reserve = 512 + 1.5 * 8192 + 8 / 8 * 1024 + 2 * 256  # above the least of 10,240
    assert default_memory_fraction(large, 8) == 1 - Fraction(str(reserve)) / (80 * 1024)
    assert default_memory_fraction(large, 1, chunked_prefill=2048) == 1 - Fraction(10240, 80 * 1024)


def test_a_model_that_states_no_dtype_counts_16_bits_and_says_so() -> None:
    found = ask(model((32, FULL), dtype=None), GIB)
    assert found.tokens == GIB // (32 * 4096)
    assert "16 bits a value are counted" in found.notes[0]
