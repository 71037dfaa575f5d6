"""Every cache, one interface: the same logits as without it, and the same bytes as the formula."""

import pytest
import torch

from kvplan.errors import InputError
from kvplan.lab.caches import DynamicCache, PagedCache, QuantizedCache, SlidingCache, StaticCache
from kvplan.lab.model import TinyDecoder

LOSSLESS = {
    "dynamic": lambda model, rows: DynamicCache(model, rows),
    "static": lambda model, rows: StaticCache(model, rows, 24),
    "paged": lambda model, rows: PagedCache(model, rows, 24, block_size=4),
    "paged, one token a block": lambda model, rows: PagedCache(model, rows, 24, block_size=1),
    "sliding": lambda model, rows: SlidingCache(model, rows),
}
ALL = {**LOSSLESS, "quantized": lambda model, rows: QuantizedCache(model, rows, 24)}


def decoder(**changes):
    sizes = {"num_layers": 3, "num_attention_heads": 4, "num_kv_heads": 2, "head_dim": 8, "dtype": "float64"}
    return TinyDecoder(**{**sizes, "window": 5, **changes})


def tokens(rows, count, seed=2):
    return torch.randint(0, 50, (rows, count), generator=torch.Generator().manual_seed(seed))


def in_chunks(model, ids, cache, sizes):
    return torch.cat([model(chunk, cache) for chunk in ids.split(sizes, 1)], 1)


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("sizes", [[14], [4, 6, 1, 1, 1, 1], [1] * 14, [1, 12, 1], [7, 7]])
def test_any_split_of_the_tokens_gives_the_logits_of_the_whole(name, sizes, position):
    model, ids = decoder(position=position), tokens(2, 14)
    logits = in_chunks(model, ids, LOSSLESS[name](model, 2), sizes)
    assert (logits - model(ids)).abs().max() < 1e-11


@pytest.mark.parametrize("name", [name for name in LOSSLESS if name != "sliding"])
def test_without_a_window_they_agree_too(name):
    model, ids = decoder(window=None), tokens(2, 14)
    logits = in_chunks(model, ids, LOSSLESS[name](model, 2), [5, 4, 1, 1, 1, 1, 1])
    assert (logits - model(ids)).abs().max() < 1e-11


@pytest.mark.parametrize("name", ALL)
def test_the_length_counts_the_tokens_of_each_row(name):
    model = decoder()
    cache = ALL[name](model, 2)
    model(tokens(2, 6), cache, lengths=torch.tensor([6, 4]))
    assert cache.length.tolist() == [6, 4]
    model(tokens(2, 1), cache)
    assert cache.length.tolist() == [7, 5]


@pytest.mark.parametrize("name", LOSSLESS)
def test_rows_of_different_length_get_the_logits_they_get_alone(name):
    model = decoder()
    cache = LOSSLESS[name](model, 3)
    prompts, steps, lengths = tokens(3, 6), tokens(3, 5, seed=9), [6, 3, 1]
    model(prompts, cache, lengths=torch.tensor(lengths))
    together = in_chunks(model, steps, cache, [1, 1, 1, 2])
    for row, length in enumerate(lengths):
        alone = model(torch.cat([prompts[row, :length], steps[row]])[None])
        assert (together[row] - alone[0, length:]).abs().max() < 1e-11


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("keep", [[0, 2], [1], [2, 0], [0, 1, 2]])
def test_after_rows_leave_the_others_get_the_logits_they_get_alone(name, keep):
    model = decoder()
    cache = LOSSLESS[name](model, 3)
    prompts, steps, lengths = tokens(3, 6), tokens(3, 5, seed=9), [2, 6, 4]
    model(prompts, cache, lengths=torch.tensor(lengths))
    cache.compact(keep)
    together = in_chunks(model, steps[keep], cache, [1, 2, 2])
    assert cache.length.tolist() == [lengths[row] + 5 for row in keep]
    for place, row in enumerate(keep):
        alone = model(torch.cat([prompts[row, : lengths[row]], steps[row]])[None])
        assert (together[place] - alone[0, lengths[row] :]).abs().max() < 1e-11


@pytest.mark.parametrize("name", ALL)
def test_a_reset_cache_is_a_new_one_with_all_its_rows(name):
    model, ids = decoder(), tokens(2, 7)
    cache = ALL[name](model, 2)
    first = model(ids, cache)
    cache.compact([1])
    cache.reset()
    assert cache.length.tolist() == [0, 0]
    assert torch.equal(model(ids, cache), first)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rows", [[2], [-1], [0, 0], [0.0], [True], []])
def test_a_row_that_does_not_exist_cannot_be_kept_and_nothing_changes(name, rows):
    model = decoder()
    cache = ALL[name](model, 2)
    model(tokens(2, 3), cache)
    with pytest.raises(InputError, match="row"):
        cache.compact(rows)
    assert cache.length.tolist() == [3, 3]
    assert cache.read(0)[0].shape[0] == 2


@pytest.mark.parametrize("name", ["static", "paged", "quantized"])
def test_a_token_beyond_the_capacity_is_refused_and_nothing_is_written(name):
    model = decoder()
    cache = ALL[name](model, 1)
    model(tokens(1, 23), cache)
    before = [tensor.clone() for tensor in cache.layers[0]]
    with pytest.raises(InputError, match="24 tokens, not for 25"):
        model(tokens(1, 2), cache)
    assert cache.length.tolist() == [23]
    assert all(torch.equal(a, b) for a, b in zip(before, cache.layers[0], strict=True))


def test_a_batch_of_another_size_or_a_model_of_another_shape_is_refused():
    model = decoder()
    with pytest.raises(InputError, match="3 rows"):
        model(tokens(3, 2), DynamicCache(model, 2))
    with pytest.raises(InputError, match="another shape"):
        model(tokens(1, 2), DynamicCache(decoder(num_layers=2)))


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda model: DynamicCache(model, 2), 7),
        (lambda model: StaticCache(model, 2, 24), 24),
        (lambda model: PagedCache(model, 2, 22, block_size=4), 24),
        (lambda model: SlidingCache(model, 2), 5),
    ],
)
@pytest.mark.parametrize(("dtype", "width"), [("float64", 8), ("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_the_bytes_held_are_2_layers_kv_heads_head_dim_columns_rows_width(make, columns, dtype, width):
    model = decoder(dtype=dtype)
    cache = make(model)
    model(tokens(2, 7), cache)
    assert cache.nbytes == 2 * 3 * 2 * 8 * columns * 2 * width


def test_a_quantized_row_is_one_byte_a_value_and_a_scale_of_four():
    cache = QuantizedCache(decoder(), 2, 24)
    assert cache.nbytes == 2 * 3 * 2 * (8 + 4) * 24 * 2


def test_the_quantized_cache_is_close_and_not_exact():
    model, ids = decoder(), tokens(1, 14)
    difference = (in_chunks(model, ids, QuantizedCache(model, 1, 24), [4] + [1] * 10) - model(ids)).abs().max()
    assert 1e-5 < difference < 0.2


def test_a_quantized_value_is_at_most_half_a_step_of_its_scale_away():
    model = decoder(window=None)
    quantized, exact = QuantizedCache(model, 1, 24), StaticCache(model, 1, 24)
    model(tokens(1, 9), quantized)
    model(tokens(1, 9), exact)
    (rounded, _), (kept, _) = quantized.read(0), exact.read(0)
    assert ((rounded - kept).abs() <= kept.abs().amax(-1, keepdim=True) / 127 / 2 * 1.0001).all()


def test_a_ring_holds_the_last_tokens_and_says_which():
    model = decoder()
    cache = SlidingCache(model, 1)
    model(tokens(1, 7), cache)
    assert cache.held().tolist() == [[5, 6, 2, 3, 4]]


def test_a_ring_without_a_window_is_refused():
    with pytest.raises(InputError, match="window"):
        SlidingCache(decoder(window=None))


def test_a_paged_cache_gives_the_blocks_of_finished_rows_to_others():
    model = decoder(window=None)
    cache = PagedCache(model, 2, 8, block_size=4)
    model(tokens(2, 5), cache)
    assert cache.table.tolist() == [[0, 1], [2, 3]]
    cache.compact([1])
    assert sorted(cache.free) == [0, 1]
    assert cache.held().tolist() == [[0, 1, 2, 3, 4, -1, -1, -1]]


def test_a_block_is_taken_only_when_a_token_needs_it():
    model = decoder(window=None)
    cache = PagedCache(model, 1, 8, block_size=4)
    model(tokens(1, 4), cache)
    assert cache.table.tolist() == [[0, -1]]
    model(tokens(1, 1), cache)
    assert cache.table.tolist() == [[0, 1]]


def test_a_cache_that_would_eat_the_memory_is_refused():
    model = decoder(num_layers=16, num_attention_heads=16, num_kv_heads=16, head_dim=16)
    with pytest.raises(InputError, match="268,435,456 bytes"):
        StaticCache(model, 64, 4096)
    with pytest.raises(InputError, match="from 1 to 4,096"):
        StaticCache(model, 1, 4097)
    with pytest.raises(InputError, match="batch_size"):
        DynamicCache(model, 0)
