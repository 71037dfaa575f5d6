"""vLLM's pages, groups and admission: the arithmetic written out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kvplan.attention import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    NoCache,
    RecurrentState,
    SharedCache,
    SlidingAttention,
)
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.engines import EngineCapacity, engine_capacity
from kvplan.engines.vllm import default_batched_tokens
from kvplan.errors import InputError, ParallelError, UnknownNameError
from kvplan.hardware import define_gpu
from kvplan.model import Layer, Model
from kvplan.presets import load_gpu
from kvplan.units import GIB
from tests.engines.log_cases import published

FULL = FullAttention(8, 128)  # 2 x 8 x 128 x 2 B = 4,096 B a token at 16 bits
WINDOW = SlidingAttention(8, 128, window=1024)
STATE = RecurrentState(32, 128 * 128, WEIGHT_FORMATS["fp32"], 8192, 4, WEIGHT_FORMATS["bf16"])


def model(*runs: tuple[int, LayerCache], model_type: str = "qwen3_5", dtype: str | None = "bf16") -> Model:
    layers = tuple(Layer(cache, num_attention_heads=32) for count, cache in runs for _ in range(count))
    storage = WEIGHT_FORMATS[dtype] if dtype else None
    return Model("M", layers, (), storage, 4096, 32, 1000, 131072, False, model_type)


def ask(made: Model, pool_bytes: int, **settings: Any) -> EngineCapacity:
    return engine_capacity(made, pool_bytes=pool_bytes, **{"engine_version": "0.11", **settings})


def test_one_kind_of_layer_divides_the_pool_by_its_pages() -> None:
    found = ask(model((32, FULL)), GIB, max_model_len=8192)
    page = 16 * 4096
    assert found.bytes_per_block == 32 * page
    assert found.num_blocks == GIB // (32 * page) == 512
    assert (found.tokens, found.request_blocks, found.max_concurrency) == (8192, 512, 1.0)
    assert found.needed_bytes == GIB
    assert found.admits_one
    assert found.longest_context == 8192
    assert found.notes == ()


def test_a_byte_less_is_a_block_less_and_the_start_is_refused() -> None:
    found = ask(model((32, FULL)), GIB - 1, max_model_len=8192)
    assert (found.num_blocks, found.admits_one, found.longest_context) == (511, False, 511 * 16)


def test_tensor_parallelism_divides_heads_until_one_is_left() -> None:
    pages = [ask(model((1, FULL)), GIB, tensor_parallel=count).bytes_per_block for count in (1, 2, 8, 16)]
    assert pages == [16 * 4096, 16 * 2048, 16 * 512, 16 * 512]


def test_latent_rows_are_copied_and_paged_in_64_tokens() -> None:
    latent = model((61, LatentAttention(512, 64)))
    for count in (1, 8):
        found = ask(latent, GIB, tensor_parallel=count)
        assert (found.block_size, found.bytes_per_block) == (64, 61 * 64 * 576 * 2)


def test_sparse_latent_rows_take_656_bytes_and_their_index_132() -> None:
    sparse = model((78, IndexedLatentAttention(512, 64, index_head_dim=128, index_topk=2048)))
    assert ask(sparse, GIB, kv_dtype="fp8").bytes_per_block == 78 * 64 * (656 + 132)
    assert ask(sparse, GIB, kv_dtype="fp8_ds_mla").bytes_per_block == 78 * 64 * (656 + 132)
    assert ask(sparse, GIB, kv_dtype="bf16").bytes_per_block == 78 * 64 * (1152 + 132)  # the indexer stays 8 bits wide


def test_full_layers_of_two_widths_are_one_group() -> None:
    found = ask(model((10, FULL), (5, FullAttention(4, 128))), GIB)
    assert found.bytes_per_block == 16 * (10 * 4096 + 5 * 2048)


def test_windows_and_full_layers_share_block_ids_in_groups_of_the_smaller_count() -> None:
    found = ask(model((5, FULL), (25, WINDOW)), GIB, max_model_len=8192, max_num_batched_tokens=2048)
    assert found.bytes_per_block == 5 * 16 * 4096  # 6 groups of 5
    assert found.request_blocks == 512 + 5 * ((1023 + 2048 + 15) // 16 + 1)
    assert found.tokens == found.num_blocks // 6 * 16
    assert "6 groups of layers share one pool" in found.notes[0]


def test_a_window_reserves_its_tokens_but_the_newest_and_those_in_flight() -> None:
    made = model((5, FULL), (5, SlidingAttention(8, 128, window=1025)))
    found = ask(made, GIB, max_model_len=8192, max_num_batched_tokens=2048)
    assert found.request_blocks == 512 + (1024 + 2048) // 16 + 1


def test_groups_of_nearly_equal_kinds_are_filled_up_to_the_larger() -> None:
    found = ask(model((13, FULL), (12, WINDOW)), GIB, max_num_batched_tokens=2048)
    assert found.bytes_per_block == 13 * 16 * 4096
    assert "filled up with 1 empty layer" in found.notes[1]
    apart = ask(model((10, FULL), (15, WINDOW)), GIB, max_num_batched_tokens=2048)  # exactly 1.5 times
    assert apart.bytes_per_block == 10 * 16 * 4096


def test_a_smaller_page_gets_a_larger_block() -> None:
    narrow = FullAttention(2, 256)  # half of the window's page
    found = ask(model((5, narrow), (25, WINDOW)), GIB, max_model_len=8192, max_num_batched_tokens=2048)
    assert found.bytes_per_block == 5 * 16 * 4096
    assert found.request_blocks == 8192 // 32 + 5 * ((1023 + 2048 + 15) // 16 + 1)
    assert found.block_size == 16


def test_pages_that_do_not_divide_cannot_start() -> None:
    with pytest.raises(InputError, match="cannot page this model: a page of 49,152 B does not divide"):
        ask(model((5, FullAttention(6, 128)), (25, WINDOW)), GIB)


def test_chunks_reserve_a_chunk_and_the_tokens_in_flight() -> None:
    made = model((12, FULL), (36, ChunkedAttention(8, 128, chunk=8192)))
    found = ask(made, GIB, max_model_len=65536, max_num_batched_tokens=4096, hybrid_manager=True)
    assert found.request_blocks == 4096 + 3 * ((8192 + 4096) // 16)


def test_older_versions_page_chunks_like_full_layers_unless_asked_otherwise() -> None:
    made = model((12, FULL), (36, ChunkedAttention(8, 128, chunk=8192)))
    assert ask(made, GIB, engine_version="0.14").bytes_per_block == 12 * 16 * 4096
    found = ask(made, GIB, max_model_len=65536)
    assert (found.request_blocks, found.bytes_per_block) == (4096, 48 * 16 * 4096)
    assert found.notes == ("window layers are paged like full attention: the hybrid cache manager is off",)


def test_without_the_hybrid_manager_windows_are_paged_like_full_layers() -> None:
    found = ask(model((5, FULL), (25, WINDOW)), GIB, max_model_len=8192, hybrid_manager=False)
    assert (found.bytes_per_block, found.request_blocks) == (30 * 16 * 4096, 512)
    assert "the hybrid cache manager is off" in found.notes[0]


def test_versions_before_the_hybrid_manager_knew_no_windows() -> None:
    made = model((5, FULL), (25, WINDOW))
    assert ask(made, GIB, engine_version="0.8.5").bytes_per_block == 30 * 16 * 4096
    assert ask(made, GIB, engine_version="0.9.2").bytes_per_block == 5 * 16 * 4096


def test_newer_versions_hold_two_batches_in_flight_unless_told() -> None:
    made = model((5, FULL), (25, WINDOW))
    settings = {"max_model_len": 65536, "max_num_batched_tokens": 2048}
    one, two = ask(made, GIB, **settings), ask(made, GIB, **{**settings, "engine_version": "0.30"})
    assert two.request_blocks - one.request_blocks == 5 * 2048 // 16
    told = ask(made, GIB, **{**settings, "engine_version": "0.30", "async_scheduling": False})
    assert told.request_blocks == one.request_blocks


def test_states_raise_the_attention_block_until_its_page_holds_them() -> None:
    made = model((24, STATE), (8, FullAttention(4, 256)))
    state = 32 * 128 * 128 * 4 + 3 * 8192 * 2  # the convolution keeps kernel - 1 inputs
    found = ask(made, 10 * GIB, max_model_len=4096)
    assert found.block_size == 528 == 16 * -(-state // (16 * 4096))
    assert found.bytes_per_block == 8 * 528 * 4096  # 4 groups of 8
    assert found.request_blocks == 8 + 3  # 4,096 tokens in blocks of 528, and a state in each of 3 groups


def test_the_groups_of_mamba_2_lose_one_input_of_their_convolution_as_its_heads_do() -> None:
    mamba2 = RecurrentState(80, 64 * 128, None, 5120, 4, None, conv_groups=1, group_channels=2 * 128)
    state = 80 * 64 * 128 * 2 + (4 - 1) * (5120 + 2 * 128) * 2
    assert ask(model((64, mamba2), model_type="mamba2"), GIB, max_model_len=4096).bytes_per_block == 64 * state


def test_drafts_and_prefix_caching_hold_more_states() -> None:
    made = model((24, STATE), (8, FullAttention(4, 256)))
    plain = ask(made, 10 * GIB, max_model_len=4096).request_blocks
    cached = ask(made, 10 * GIB, max_model_len=4096, prefix_caching=True).request_blocks
    drafted = ask(made, 10 * GIB, max_model_len=4096, draft_tokens=2).request_blocks
    assert (cached - plain, drafted - plain) == (3, 6)
    assert ask(made, 10 * GIB, max_model_len=4096, engine_version="0.24").request_blocks == cached


def test_a_draft_head_adds_attention_layers() -> None:
    assert ask(model((32, FULL)), GIB, draft_layers=1).bytes_per_block == 33 * 16 * 4096


def test_families_that_do_not_ask_for_float32_keep_their_states_narrow() -> None:
    runs = ((36, STATE), (12, FullAttention(2, 256)))
    assert ask(model(*runs, model_type="qwen3_next"), GIB).block_size == 544  # (1 MiB + 49,152 B) / 2,048 B
    assert ask(model(*runs), GIB).block_size == 1056  # (2 MiB + 49,152 B) / 2,048 B
    wide = ask(model(*runs, model_type="qwen3_next"), GIB, state_dtype="fp32")
    assert wide.block_size == 1056


def test_where_nothing_grows_a_block_is_a_whole_request() -> None:
    found = ask(model((48, STATE)), GIB, max_model_len=4096)
    assert (found.block_size, found.request_blocks, found.longest_context) == (4096, 1, None)


def test_layers_without_a_cache_take_no_page() -> None:
    found = ask(model((4, FULL), (4, NoCache()), (2, SharedCache(3))), GIB)
    assert found.bytes_per_block == 4 * 16 * 4096


def test_context_parallelism_multiplies_tokens_and_says_so() -> None:
    one, eight = (ask(model((4, FULL)), GIB, max_model_len=8192, context_parallel=count) for count in (1, 8))
    assert (eight.tokens, eight.request_blocks) == (8 * one.tokens, one.request_blocks // 8)
    assert "spread over 8 GPUs" in eight.notes[0]


def test_the_newer_line_is_concurrency_times_length() -> None:
    settings = {"max_model_len": 5000, "engine_version": "0.21"}  # 313 blocks for 5,000 tokens
    found = ask(model((32, FULL)), GIB, **settings)
    assert found.tokens == int(512 / 313 * 5000)


def test_the_stage_with_the_most_layers_limits_the_pool() -> None:
    found = ask(model((61, FULL)), GIB, pipeline_parallel=4)
    assert found.bytes_per_block == 16 * 16 * 4096  # 15, 15, 16, 15 layers


def test_stages_of_a_hybrid_share_their_groups() -> None:
    made = model(*[(1, FULL), (1, WINDOW)] * 12)
    assert ask(made, GIB, pipeline_parallel=2, max_num_batched_tokens=2048).bytes_per_block == 6 * 16 * 4096


def test_the_default_batch_follows_from_memory() -> None:
    assert default_batched_tokens(load_gpu("h100-sxm-80gb")) == 8192
    assert default_batched_tokens(load_gpu("a100-sxm-80gb")) == 2048
    assert default_batched_tokens(load_gpu("b200-180gb")) == 16384
    assert default_batched_tokens(define_gpu(name="S", usable_bytes=24 * GIB)) == 2048


def test_rules_of_the_newest_version_are_used_with_a_note_where_none_is_given() -> None:
    found = engine_capacity(model((32, FULL)), pool_bytes=GIB, max_model_len=5000)
    assert found.tokens == int(512 / 313 * 5000)
    assert found.notes == ("no vLLM version is given: the rules of 0.33 are used",)


def test_a_batch_that_is_not_given_is_noted_where_it_matters() -> None:
    assert any("8192 is assumed" in note for note in ask(model((5, FULL), (25, WINDOW)), GIB).notes)
    assert ask(model((5, FULL)), GIB).notes == ()


def test_auto_is_16_bits_for_a_model_that_states_no_dtype_and_says_so() -> None:
    found = ask(model((32, FULL), dtype=None), GIB)
    assert found.bytes_per_block == 32 * 16 * 4096
    assert "16 bits a value are counted" in found.notes[0]
    assert ask(model((32, FULL), dtype="fp32"), GIB).bytes_per_block == 32 * 16 * 4096


def test_per_token_scales_add_four_bytes_a_row() -> None:
    one = partial(ask, model((1, FULL)), GIB, engine_version="0.33")
    assert one(kv_dtype="int8_per_token_head").bytes_per_block == 16 * 2 * 8 * (128 + 4)
    assert one(kv_dtype="nvfp4").bytes_per_block == 16 * 2 * 8 * (64 + 8)


@pytest.mark.parametrize("version", ["0.20.2rc1.dev249 fork", "0.5.x rocm", "0.7.0 V1", "v0.11.0", None])
def test_versions_are_read_as_engines_print_them(version: str | None) -> None:
    assert ask(model((1, FULL)), GIB, engine_version=version).num_blocks == 16384


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"engine_version": "newest"}, InputError, "write it as 0.11 or 0.20.1"),
        ({"engine": "vlm"}, UnknownNameError, "did you mean vllm"),
        ({"pool_bytes": -1}, InputError, "pool_bytes is -1"),
        ({"pool_bytes": 1.5}, InputError, "pool_bytes is 1.5; a whole number"),
        ({"kv_dtype": "fp9"}, UnknownNameError, "no kv dtype is called 'fp9'"),
        ({"kv_dtype": 8}, InputError, "a name such as auto or fp8"),
        ({"tensor_parallel": 3}, ParallelError, "32 attention heads"),
        ({"max_model_len": 0}, InputError, "max_model_len is 0"),
        ({"draft_tokens": -1}, InputError, "draft_tokens is -1"),
        ({"slots": 4}, UnknownNameError, "no vllm option is called 'slots'"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        engine_capacity(model((1, FULL)), **{"pool_bytes": GIB, **settings})


def test_a_model_is_needed() -> None:
    with pytest.raises(InputError, match="a Model is needed"):
        engine_capacity("llama", pool_bytes=GIB)  # type: ignore[arg-type]


def test_layers_that_no_rule_knows_are_refused_not_guessed() -> None:
    with pytest.raises(InputError, match="cross-attention is not known here; plan its resident bytes"):
        ask(model((1, FULL), (1, CrossAttention(8, 128, 1600))), GIB)
    with pytest.raises(InputError, match="keeps no cache"):
        ask(model((1, NoCache())), GIB)


def test_an_empty_pool_admits_nothing() -> None:
    found = ask(model((32, FULL)), 0)
    assert (found.num_blocks, found.tokens, found.max_concurrency, found.longest_context) == (0, 0, 0.0, 0)


def test_the_longest_context_fits_and_one_block_more_does_not() -> None:
    made = published("google/gemma-3-27b-it")
    settings = {"max_num_batched_tokens": 2048, "engine_version": "0.20"}
    found = ask(made, 8 * GIB, **settings)
    longest = found.longest_context
    assert longest is not None
    assert ask(made, 8 * GIB, max_model_len=longest, **settings).admits_one
    assert not ask(made, 8 * GIB, max_model_len=longest + 1, **settings).admits_one
