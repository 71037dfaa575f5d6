import pytest

from kvplan import lab
from kvplan.errors import InputError


def decoder(**changes):
    return lab.TinyDecoder(**{"head_dim": 8, **changes})


def test_every_lossless_cache_gives_the_tokens_of_no_cache_and_passes_the_logic_gate():
    table = lab.compare_caches(decoder(), [1, 2, 3, 4]).set_index("cache")
    assert list(table.index) == list(lab.CACHES)
    lossless = table.drop(index="quantized")
    assert lossless["tokens_equal"].all()
    assert lossless["logic_passed"].all()
    assert lossless["first_over_bar"].tolist() == [None] * 4
    assert all(len(tokens) == 30 for tokens in table["tokens"])


def test_the_quantized_cache_fails_the_logic_gate_and_says_where_first():
    row = lab.compare_caches(decoder(), [1, 2, 3, 4], 5).set_index("cache").loc["quantized"]
    assert not row["logic_passed"]
    assert row["logic_diff"] > row["logic_bar"]
    assert row["first_over_bar"] == 0  # the prompt is read back from int8 too


def test_a_ring_runs_on_a_model_whose_window_the_row_outgrows():
    table = lab.compare_caches(decoder(), [1, 2, 3, 4], 6).set_index("cache")
    assert table["window"].tolist() == [None, None, None, 5, None]
    kept = lab.compare_caches(decoder(window=3), [1, 2], 2).set_index("cache")
    assert kept.loc["sliding", "window"] == 3


def test_the_first_other_token_is_named_by_position():
    from kvplan.lab.greedy import _first_difference

    assert _first_difference([1, 2, 3], [1, 2, 3]) is None
    assert _first_difference([1, 5, 3], [1, 2, 3]) == 1


def test_progress_is_told_and_can_stop_the_work():
    seen = []
    lab.compare_caches(decoder(), [1, 2], 2, on_step=seen.append)
    assert seen == [0.2, 0.4, 0.6, 0.8, 1.0]

    def stop(part):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        lab.compare_caches(decoder(), [1, 2], 2, on_step=stop)


def test_several_prompts_are_refused():
    with pytest.raises(InputError, match="one prompt, and 2"):
        lab.compare_caches(decoder(), [[1], [2]])
