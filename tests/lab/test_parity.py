import pytest
import torch

from kvplan import lab
from kvplan.errors import InputError

DTYPES = ["float64", "float32", "float16", "bfloat16"]
LOSSLESS = ["dynamic", "static", "paged", "sliding"]


def decoder(**changes):
    return lab.TinyDecoder(**{"num_layers": 2, "head_dim": 8, "dtype": "float64", "window": 5, **changes})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cache", LOSSLESS)
def test_a_lossless_cache_passes_both_gates_in_every_dtype(cache, dtype):
    result = lab.check_parity(decoder(dtype=dtype), [1, 2, 3, 4], 5, cache=cache)
    assert result.passed
    assert result.logic.passed
    assert result.max_abs_diff <= result.bar


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(("norm", "mlp"), [("layer", "gelu"), ("rms", "swiglu")])
def test_every_kind_of_decoder_passes(position, heads, kv_heads, norm, mlp):
    model = decoder(
        position=position, num_attention_heads=heads, num_kv_heads=kv_heads, norm=norm, mlp=mlp, qkv_bias=True
    )
    assert lab.check_parity(model, [5, 6, 7, 8], 4).max_abs_diff < 1e-11


def test_the_bars_are_those_of_the_two_gates():
    wide = lab.check_parity(decoder(), [1, 2, 3, 4], 3)
    assert wide.bar == 1e-9 * max(1, wide.max_abs_logit)
    for dtype, factor in [("float32", 256), ("float16", 8), ("bfloat16", 8)]:
        result = lab.check_parity(decoder(dtype=dtype), [1, 2, 3, 4], 3)
        assert result.bar == factor * torch.finfo(getattr(torch, dtype)).eps * result.max_abs_logit
        assert result.logic.dtype == "float64"


def test_every_row_of_every_scenario_is_compared():
    rows = lab.check_parity(decoder(), [1, 2, 3, 4], 6).rows
    count = {name: sum(row.scenario == name for row in rows) for name in ("generations", "chunked", "ragged")}
    # Two generations of 4 + 6 tokens; one of 4 + 6; prompts of 4, 2 and 3 and 6 steps, the middle row leaving after 3.
    assert count == {"generations": 2 * 10, "chunked": 10, "ragged": 4 + 2 + 3 + 3 * 6 - 3}
    assert {row.phase for row in rows} == {"prefill", "chunk", "decode"}


def test_the_batch_of_a_scenario_can_be_given():
    result = lab.check_parity(decoder(), [1, 2, 3], 4, rows=[[1], [2, 3, 4, 5, 6], [7, 8]])
    assert result.passed
    assert {row.row for row in result.rows if row.scenario == "ragged"} == {0, 1, 2}
    several = lab.check_parity(decoder(), [[1, 2, 3], [4, 5]], 4)
    assert several.scenarios[-1].generations == (((1, 2, 3), (4, 5)),)


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_exact_shapes_the_logits_are_equal_to_the_bit(dtype):
    result = lab.check_parity(decoder(dtype=dtype, window=None), [1, 2, 3, 4], 5, exact_shapes=True)
    assert result.bit_equal
    assert result.passed
    assert result.bar == 0
    assert "bit-equal" in result.sentence


@pytest.mark.parametrize("cache", LOSSLESS)
def test_exact_shapes_are_exact_for_every_lossless_cache(cache):
    assert lab.check_parity(decoder(dtype="float32"), [1, 2, 3, 4], 8, cache=cache, exact_shapes=True).bit_equal


def test_exact_shapes_still_catch_a_fault():
    assert not lab.check_parity(decoder(), [1, 2, 3, 4], 4, fault="mask_one_long", exact_shapes=True).passed
    assert not lab.check_parity(decoder(), [1, 2, 3, 4], 4, cache="quantized", exact_shapes=True).passed


@pytest.mark.parametrize("cache", LOSSLESS)
def test_thirty_greedy_tokens_equal_the_uncached_ones(cache):
    result = lab.check_parity(decoder(window=7), [1, 2, 3, 4], 30, cache=cache)
    assert result.tokens_equal
    assert result.first_divergence is None


def test_the_quantized_cache_fails_the_logic_gate_and_says_where_its_tokens_part():
    model = decoder(seed=2)
    for block in model.blocks:
        block.out.weight *= 5  # attention weighs as much as the tokens themselves
    result = lab.check_parity(model, [1, 2, 3, 4], 30, cache="quantized")
    assert not result.passed
    assert not result.tokens_equal
    row = result.first_divergence
    assert row.cached_token != row.uncached_token
    assert row.margin < 2 * row.max_abs_diff


def test_greedy_is_safe_while_the_difference_is_under_half_the_smallest_margin():
    result = lab.check_parity(decoder(), [1, 2, 3, 4], 5)
    assert result.decision_line == min(row.margin for row in result.rows) / 2
    assert result.greedy_is_safe
    assert not lab.check_parity(decoder(), [1, 2, 3, 4], 5, fault="mask_top_left").greedy_is_safe


def test_the_usual_constants_are_lines_and_no_verdict():
    result = lab.check_parity(decoder(dtype="bfloat16"), [1, 2, 3, 4], 5, fault="int8_cache")
    assert [line.value for line in result.usual_lines] == [1e-5, 1e-3]
    assert result.passed
    assert all(line.is_over for line in result.usual_lines)


def test_a_window_that_no_row_outgrew_is_not_claimed_to_be_checked():
    assert not lab.check_parity(decoder(window=50), [1, 2, 3], 3).exceeds_window
    assert lab.check_parity(decoder(window=4), [1, 2, 3], 3).exceeds_window


def test_a_failure_says_how_much_where_and_against_which_bar():
    sentence = lab.check_parity(decoder(), [1, 2, 3, 4], 4, fault="write_one_late").sentence
    assert "differ" in sentence
    assert "bar" in sentence
    assert "first at position 4 of row 0 (decode)" in sentence


def test_the_table_has_one_line_a_row():
    result = lab.check_parity(decoder(), [1, 2, 3, 4], 2)
    table = result.table()
    assert len(table) == len(result.rows)
    assert table["max_abs_diff"].max() == result.max_abs_diff
    assert table["same_token"].all()


def test_the_smallest_lesson_decodes_one_step_from_four_tokens_to_five():
    model = lab.TinyDecoder(num_layers=2, num_attention_heads=2, num_kv_heads=2, head_dim=16, vocab_size=50)
    cache = lab.DynamicCache(model)
    first = model([1, 2, 3, 4], cache)
    assert cache.length.tolist() == [4]
    assert model(first[:, -1:].argmax(-1), cache)[:, -1].shape == (1, 50)
    assert cache.length.tolist() == [5]
    assert lab.check_parity(model, [1, 2, 3, 4], 1).passed


def test_a_prompt_of_one_token_is_enough_to_check():
    assert lab.check_parity(decoder(), [3], 3).passed


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"prompt": [1, 99]}, "token id"),
        ({"prompt": []}, "prompt"),
        ({"num_new_tokens": 0}, "num_new_tokens"),
        ({"num_new_tokens": 500}, "num_new_tokens must be a whole number from 1 to 253"),
        ({"generations": 0}, "generations"),
        ({"prompt": [[1]] * 9}, "number of rows"),
        ({"rows": [[1, 77]]}, "token id"),
    ],
)
def test_what_cannot_be_checked_is_refused(how, words):
    with pytest.raises(InputError, match=words):
        lab.check_parity(decoder(), **{"prompt": [1, 2, 3], "num_new_tokens": 3, **how})


def test_a_ring_for_a_model_without_a_window_is_refused():
    with pytest.raises(InputError, match="window"):
        lab.check_parity(decoder(window=None), [1, 2, 3], cache="sliding")
