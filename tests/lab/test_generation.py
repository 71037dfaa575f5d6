import pytest
import torch

from kvplan.errors import InputError
from kvplan.lab.caches import DynamicCache, PagedCache, SlidingCache, StaticCache
from kvplan.lab.generation import generate
from kvplan.lab.model import TinyDecoder

MODEL = TinyDecoder(dtype="float64", seed=4, window=9)


def without_cache(prompt, count):
    row = list(prompt)
    for _ in range(count):
        row.append(int(MODEL(row)[0, -1].argmax()))
    return row


@pytest.mark.parametrize(
    "make", [DynamicCache, lambda m: StaticCache(m, 1, 40), lambda m: PagedCache(m, 1, 40), SlidingCache]
)
def test_thirty_greedy_tokens_equal_those_without_a_cache(make):
    assert generate(MODEL, [1, 2, 3, 4], 30, make(MODEL)).tolist() == [without_cache([1, 2, 3, 4], 30)]


def test_the_result_has_the_prompt_and_the_new_tokens():
    assert generate(MODEL, torch.tensor([[1, 2, 3], [4, 5, 6]]), 4).shape == (2, 7)
    assert generate(MODEL, [1, 2], 0).tolist() == [[1, 2]]


def test_the_cache_ends_one_token_short_because_the_last_is_never_read():
    cache = DynamicCache(MODEL)
    generate(MODEL, [1, 2, 3, 4], 10, cache)
    assert cache.length.tolist() == [4 + 10 - 1]


def test_prompts_of_different_length_continue_as_they_do_alone():
    prompts = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    together = generate(MODEL, prompts, 6).tolist()
    assert [row[: len(p) + 6] for row, p in zip(together, prompts, strict=True)] == [
        without_cache(p, 6) for p in prompts
    ]
    assert together[1][7:] == [-1] * 4


def test_a_row_that_ends_leaves_the_batch_and_the_others_continue_as_alone():
    prompts = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    alone = [without_cache(p, 8) for p in prompts]
    eos = alone[1][4]
    cut = [row[: row.index(eos, 3) + 1] if eos in row[3:] else row for row in alone]
    cache = DynamicCache(MODEL, 3)
    together = generate(MODEL, prompts, 8, cache, eos=eos).tolist()
    assert [[token for token in row if token >= 0] for row in together] == cut
    assert len(cache.length) < 3


def test_more_tokens_than_the_longest_context_are_refused():
    with pytest.raises(InputError, match="max_new_tokens"):
        generate(MODEL, [1, 2], 5000)
    with pytest.raises(InputError, match="max_new_tokens"):
        generate(MODEL, [1, 2], -1)
