"""What one layer of each kind keeps for one sequence, worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention import (
    LAYER_KINDS,
    CacheCurve,
    CachePart,
    ChunkedAttention,
    CombinedCache,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexedAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    NoCache,
    RecurrentState,
    SharedCache,
    ShortConvolution,
    SlidingAttention,
    SlidingLatentAttention,
    StatePart,
    add_up,
    first_true,
    one_kv_head_count,
    require_kv_head_axis,
    rows_per_gpu,
)
from kvplan.dtypes import WEIGHT_FORMATS, kv_dtype
from kvplan.errors import DtypeError, InputError, ParallelError
from tests.examples import ALL_LAYERS, MAMBA

FP32, BF16 = WEIGHT_FORMATS["fp32"], WEIGHT_FORMATS["bf16"]


def held(layer: LayerCache, tokens: int, kv: str = "bf16", tensor_parallel: int = 1) -> int:
    """Bytes that `layer` keeps for `tokens` tokens of one sequence."""
    return add_up([(layer, 1)], kv_dtype(kv), tensor_parallel).bytes_at(tokens)


# ------------------------------------------------------------------------------------------------ kind by kind


def test_full_attention_keeps_a_key_and_a_value_a_token() -> None:
    assert held(FullAttention(8, 128), 100) == 100 * 8 * (128 + 128) * 2


def test_keys_and_values_may_differ_in_width() -> None:
    assert held(FullAttention(8, 192, 128), 100) == 100 * 8 * (192 + 128) * 2


def test_keys_and_values_may_differ_in_dtype() -> None:
    assert held(FullAttention(8, 128), 100, "q8_0/q4_0") == 100 * 8 * (4 * 34 + 4 * 18)


@pytest.mark.parametrize(("tokens", "kept"), [(0, 0), (1, 1), (4095, 4095), (4096, 4096), (4097, 4096), (10**6, 4096)])
def test_a_window_keeps_its_last_tokens(tokens: int, kept: int) -> None:
    assert held(SlidingAttention(8, 128, window=4096), tokens) == kept * 8 * 256 * 2
    assert held(SlidingLatentAttention(512, 64, window=4096), tokens) == kept * 576 * 2


def test_a_chunk_keeps_at_most_itself() -> None:
    layer = ChunkedAttention(8, 128, chunk=8192)
    assert held(layer, 8191) == 8191 * 8 * 256 * 2
    assert held(layer, 100_000) == 8192 * 8 * 256 * 2


def test_a_latent_layer_keeps_one_row_whatever_the_tensor_parallelism() -> None:
    layer = LatentAttention(512, 64)
    assert held(layer, 10) == held(layer, 10, tensor_parallel=16) == 10 * 576 * 2
    assert held(layer, 10, "fp8") == 10 * 576


def test_indexed_attention_keeps_index_keys_besides_everything_else() -> None:
    layer = IndexedAttention(4, 128, index_head_dim=128, num_index_heads=2)
    assert held(layer, 10) == 10 * (4 * 256 * 2 + 2 * 128 * 2)
    assert held(layer, 10, "fp8") == 10 * (4 * 256 + 2 * 132)
    assert held(layer, 10, tensor_parallel=4) == 10 * (256 * 2 + 2 * 128 * 2)


def test_a_sparse_latent_layer_keeps_the_latent_its_rope_row_and_an_index_key() -> None:
    assert held(IndexedLatentAttention(512, 64, 128), 10) == 10 * (512 + 64 + 128) * 2
    assert held(IndexedLatentAttention(512, 64, 128), 10, "fp8") == 10 * (656 + 132)
    assert held(IndexedLatentAttention(512, 64), 10, "fp8") == 10 * 656


@pytest.mark.parametrize(
    ("tokens", "window", "entries"), [(3, 3, 0), (4, 4, 1), (7, 7, 1), (128, 128, 32), (1000, 128, 250)]
)
def test_a_compressed_layer_keeps_a_window_and_an_entry_for_each_whole_block(
    tokens: int, window: int, entries: int
) -> None:
    layer = CompressedAttention(512, 64, 128, 4, index_head_dim=128)
    assert held(layer, tokens) == window * 512 * 2 + entries * (512 + 128) * 2
    assert held(layer, tokens, "fp8") == (window + entries) * 584 + entries * 132


def test_a_compressed_layer_may_only_have_its_window() -> None:
    assert held(CompressedAttention(512, 64, 128), 1000) == 128 * 512 * 2


@pytest.mark.parametrize("tokens", [0, 1, 100_000])
@pytest.mark.parametrize("kv", ["bf16", "fp8", "q4_0"])
def test_a_recurrent_state_is_constant_and_keeps_its_own_storage(tokens: int, kv: str) -> None:
    assert held(MAMBA, tokens, kv) == 16 * 64 * 128 * 4 + 2048 * 4 * 2


def test_a_recurrent_state_divides_its_heads_and_channels() -> None:
    assert held(MAMBA, 1, tensor_parallel=16) * 16 == held(MAMBA, 1)


def test_a_short_convolution_keeps_its_last_inputs() -> None:
    assert held(ShortConvolution(2048, 3, BF16), 999) == 2048 * 3 * 2


def test_cross_attention_keeps_the_image_once() -> None:
    layer = CrossAttention(8, 128, 1601)
    assert held(layer, 0) == held(layer, 10**6) == 1601 * 8 * 256 * 2
    assert held(layer, 5, "q8_0/q4_0") == 1601 * 8 * (4 * 34 + 4 * 18)


@pytest.mark.parametrize("layer", [SharedCache(0), SharedCache(), NoCache()])
def test_a_layer_that_stores_nothing_keeps_nothing(layer: LayerCache) -> None:
    assert held(layer, 10**6) == 0


def test_two_mixers_in_one_layer_add_up() -> None:
    attention = FullAttention(2, 128)
    assert held(CombinedCache((attention, MAMBA)), 77) == held(attention, 77) + held(MAMBA, 77)


# ----------------------------------------------------------------------------------------------------- refusals

BAD = [
    lambda: FullAttention(0, 128),
    lambda: FullAttention(8, -1),
    lambda: FullAttention(8, 2**41),
    lambda: SlidingAttention(8, 128, window=0),
    lambda: ChunkedAttention(8, 128, chunk=0),
    lambda: LatentAttention(512, 0),
    lambda: CompressedAttention(512, 64, 128, 0),
    lambda: CrossAttention(8, 128, 0),
    lambda: RecurrentState(0, 10, FP32),
    lambda: FullAttention(8.0, 128),  # type: ignore[arg-type]
    lambda: FullAttention(True, 128),
]


@pytest.mark.parametrize("make", BAD)
def test_a_layer_of_absurd_size_is_refused(make: object) -> None:
    with pytest.raises(InputError, match=r" of .*(it must be from 1|a whole number is needed)"):
        make()  # type: ignore[operator]


def test_a_row_that_a_cache_dtype_cannot_hold_is_refused() -> None:
    with pytest.raises(DtypeError, match="a row of 80 does not fill whole blocks"):
        held(FullAttention(8, 80), 1, "q8_0")
    with pytest.raises(DtypeError, match="no known engine stores"):
        held(LatentAttention(512, 64), 1, "int8")


@pytest.mark.parametrize(
    ("rows", "gpus", "expected"), [(8, 1, 8), (8, 2, 4), (8, 8, 1), (8, 16, 1), (1, 7, 1), (6, 3, 2)]
)
def test_heads_divide_until_one_is_left_and_are_then_copied(rows: int, gpus: int, expected: int) -> None:
    assert rows_per_gpu(rows, gpus) == expected


@pytest.mark.parametrize(("rows", "gpus"), [(8, 3), (6, 4), (5, 2), (8, 12)])
def test_heads_that_do_not_divide_are_refused(rows: int, gpus: int) -> None:
    with pytest.raises(ParallelError, match=f"{rows} KV heads do not divide over tensor_parallel={gpus}"):
        rows_per_gpu(rows, gpus)


def test_a_state_that_does_not_divide_is_not_called_kv_heads() -> None:
    with pytest.raises(ParallelError, match="16 rows of state do not divide over tensor_parallel=3"):
        held(MAMBA, 1, tensor_parallel=3)


# -------------------------------------------------------------------------------------------------------- parts


def test_a_part_counts_its_entries_and_bytes() -> None:
    part = CachePart("key", 4, 64, max_tokens=100, tokens_per_entry=8)
    assert [part.entries(tokens) for tokens in (7, 8, 99, 100, 1000)] == [0, 1, 12, 12, 12]
    assert part.bytes(1000, kv_dtype("bf16")) == 12 * 4 * 64 * 2
    assert part.bytes(1000, kv_dtype("bf16"), 2) == 12 * 2 * 64 * 2


def test_a_state_counts_its_values() -> None:
    state = StatePart("image_key", 8, 128, entries=10)
    assert state.elements == 10 * 8 * 128
    assert state.bytes(kv_dtype("fp32")) == 10 * 8 * 128 * 4


# ------------------------------------------------------------------------------------------------------- curves


def test_equal_layers_are_one_term_however_many_there_are() -> None:
    one = add_up([(SlidingAttention(8, 128, window=100), 1)], kv_dtype("bf16"))
    sixty = add_up([(SlidingAttention(8, 128, window=100), 60)], kv_dtype("bf16"))
    assert len(sixty.terms) == len(one.terms) == 1
    assert sixty.bytes_at(77) == 60 * one.bytes_at(77)


def test_the_slope_counts_what_has_no_window() -> None:
    layers: list[tuple[LayerCache, int]] = [
        (FullAttention(8, 128), 2),
        (SlidingAttention(8, 128, window=9), 3),
        (MAMBA, 1),
    ]
    curve = add_up(layers, kv_dtype("bf16"))
    assert curve.bytes_per_token == 2 * 8 * 256 * 2
    assert curve.largest_window == 9


def test_a_slope_that_is_not_whole_is_a_fraction() -> None:
    assert add_up([(CompressedAttention(512, 64, 8, 3), 1)], kv_dtype("bf16")).bytes_per_token == Fraction(1024, 3)


def test_sparse_layers_read_only_what_they_pick_and_every_index_key() -> None:
    curve = add_up([(IndexedLatentAttention(512, 64, 128, 2048), 1)], kv_dtype("bf16"))
    assert curve.batch_read_bytes(10_000, 1) == 2048 * 576 * 2 + 10_000 * 128 * 2
    assert curve.batch_read_bytes(1_000, 3) == 3 * 1_000 * (576 + 128) * 2


@pytest.mark.parametrize("layer", ALL_LAYERS, ids=lambda layer: layer.kind)
def test_no_step_reads_more_than_is_held(layer: LayerCache) -> None:
    curve = add_up([(layer, 1)], kv_dtype("bf16"))
    for tokens in (1, 100, 5000, 10**6):
        assert 0 <= curve.batch_read_bytes(tokens, 3) <= curve.batch_bytes(tokens, 3)


@pytest.mark.parametrize("layer", ALL_LAYERS, ids=lambda layer: layer.kind)
def test_a_shared_prefix_is_held_once(layer: LayerCache) -> None:
    """By counting: the entries of the prefix that a sequence still holds stand there once and not `batch` times."""
    kv = kv_dtype("bf16")
    curve = add_up([(layer, 1)], kv)
    for tokens, prefix in ((10, 10), (200, 77), (5000, 4999), (5000, 1)):
        shared = 0
        for part in layer.cache_parts():
            first = 0 if part.max_tokens is None else max(0, tokens - part.max_tokens)
            shared += max(0, prefix - first) // part.tokens_per_entry * part.entry_bytes(kv)
        assert curve.batch_bytes(tokens, 5, prefix) == 5 * curve.bytes_at(tokens) - 4 * shared
    assert curve.batch_bytes(5000, 1, 4000) == curve.bytes_at(5000)


def test_a_batch_may_be_an_array_like_the_tokens() -> None:
    curve = add_up([(FullAttention(8, 128), 2), (SlidingAttention(8, 128, window=50), 3)], kv_dtype("bf16"))
    tokens, batches = np.array([[64, 100, 1000]]), np.array([[1], [7]])
    found = curve.batch_bytes(tokens, batches, 64)
    assert found.tolist() == [[curve.batch_bytes(t, b, 64) for t in (64, 100, 1000)] for b in (1, 7)]


def test_a_curve_without_terms_is_its_constant() -> None:
    assert CacheCurve(7, ()).bytes_at(100) == 7


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_a_search_finds_the_first_number_that_reaches(target: int, high: int) -> None:
    assert first_true(lambda number: number >= target, high) == (target if target <= high else None)


# ----------------------------------------------------------------------------------------------------- KV heads


def test_layers_with_one_head_count_have_an_axis() -> None:
    layers = [FullAttention(8, 128), SlidingAttention(8, 64, window=5), MAMBA, SharedCache(0)]
    assert one_kv_head_count(layers) == require_kv_head_axis(layers, "A model") == 8
    assert [layer.with_kv_heads(4).kv_heads() for layer in layers] == [4, 4, None, None]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([MAMBA, NoCache()], "keeps no keys and values for tokens"),
        ([LatentAttention(512, 64)], "latent attention, which keeps no KV heads"),
        ([FullAttention(8, 128), FullAttention(4, 128)], r"differ \(4, 8 KV heads\)"),
        ([FullAttention(8, 128), LatentAttention(512, 64)], "latent attention, which keeps no KV heads"),
    ],
)
def test_layers_without_one_head_count_are_refused_with_the_reason(layers: list[LayerCache], reason: str) -> None:
    assert one_kv_head_count(layers) is None
    with pytest.raises(InputError, match=reason):
        require_kv_head_axis(layers, "A model")


def test_a_combined_layer_changes_the_heads_of_its_attention() -> None:
    layer = CombinedCache((FullAttention(8, 128), MAMBA))
    assert layer.kv_heads() == 8
    assert layer.with_kv_heads(2) == CombinedCache((FullAttention(2, 128), MAMBA))


@pytest.mark.parametrize("kind", LAYER_KINDS.values(), ids=LAYER_KINDS)
def test_a_kind_has_words_for_a_page_and_its_own_name(kind: type[LayerCache]) -> None:
    assert kind.label
    assert LAYER_KINDS[kind.kind] is kind
