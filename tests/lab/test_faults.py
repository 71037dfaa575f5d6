"""Every fault is caught where it should be, and hides where it should hide."""

import pytest

from kvplan import lab
from kvplan.errors import InputError, UnknownNameError

NAMES = [
    "write_one_late",
    "write_one_late_wide_mask",
    "no_reset",
    "positions_not_reset",
    "positions_restart",
    "positions_one_early",
    "positions_one_late",
    "repeat_heads",
    "repeat_heads_both_paths",
    "layers_share_cache",
    "mask_one_short",
    "mask_one_long",
    "mask_top_left",
    "ragged_shared_slot",
    "first_row_not_compacted",
    "last_row_not_compacted",
    "int8_cache",
    "block_duplicated",
    "block_of_other_row",
    "blocks_swapped",
    "window_one_more",
    "window_one_less",
    "decode_not_kept",
    "key_before_rotation",
    "heads_not_transposed",
    "wrong_bits",
    "chunk_without_mask",
]

NEVER_CAUGHT = {"repeat_heads_both_paths", "last_row_not_compacted", "blocks_swapped"}

PREALLOCATED = {"static", "paged", "sliding"}
SHOWS_IN_CACHE = {
    "write_one_late": PREALLOCATED,
    "write_one_late_wide_mask": PREALLOCATED,
    "mask_one_long": {"static", "paged"},  # in a ring, the newest key is the last column that is read
    "block_duplicated": {"paged"},
    "block_of_other_row": {"paged"},
    "blocks_swapped": {"paged"},
}
SHOWS_WITH_POSITIONS = {
    "positions_not_reset": {"learned"},
    "positions_restart": {"rope", "learned"},
    "positions_one_early": {"rope", "learned"},
    "positions_one_late": {"rope", "learned"},
    "key_before_rotation": {"rope"},
}
NEEDS_WINDOW = {"window_one_more", "window_one_less", "blocks_swapped"}
BOTH_WIRINGS_ARE_ONE = {"num_kv_heads": 1}, {"num_kv_heads": 4}


def decoder(**changes):
    sizes = {"num_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2, "head_dim": 8, "dtype": "float64"}
    return lab.TinyDecoder(**{**sizes, **changes})


def check(fault, model=None, prompt=(1, 2, 3, 4), steps=5, **how):
    return lab.check_parity(model or decoder(), list(prompt), steps, fault=fault, **how)


def test_the_faults_are_those_of_the_lesson_each_with_its_own_words():
    assert list(lab.FAULTS) == NAMES
    assert all(fault.name == name for name, fault in lab.FAULTS.items())
    assert len({fault.title for fault in lab.FAULTS.values()}) == len(NAMES)
    assert all(fault.goes_wrong and fault.hides_when and fault.found_by for fault in lab.FAULTS.values())


def test_each_fault_states_when_float64_sees_it():
    assert {name for name, fault in lab.FAULTS.items() if fault.in_float64 == "never"} == NEVER_CAUGHT
    for name, fault in lab.FAULTS.items():
        assert set(fault.positions) == SHOWS_WITH_POSITIONS.get(name, {"rope", "learned", "none"})
        assert fault.family in lab.FAMILIES


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_left_to_choose_its_setting_shows_itself_unless_it_never_can(name, position):
    result = check(name, decoder(position=position))
    assert result.passed == (name in NEVER_CAUGHT)
    assert result.max_abs_diff < 1e-11 if result.passed else result.max_abs_diff > 1e-5


SETTINGS = [(cache, window) for cache in ("dynamic", "static", "paged") for window in (None, 4)] + [("sliding", 4)]


@pytest.mark.parametrize(("cache", "window"), SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_hides_in_a_cache_without_its_place_and_shows_in_the_others(name, cache, window):
    shows = (
        cache in SHOWS_IN_CACHE.get(name, {cache})
        and (window is not None or name not in NEEDS_WINDOW)
        and name not in {"repeat_heads_both_paths", "last_row_not_compacted"}
        and "rope" in SHOWS_WITH_POSITIONS.get(name, {"rope"})
    )
    assert check(name, decoder(window=window), cache=cache).passed == (not shows)


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize("name", SHOWS_WITH_POSITIONS)
def test_a_position_fault_shows_only_with_the_positions_it_spoils(name, position):
    result = check(name, decoder(position=position), cache="static")
    assert result.passed == (position not in SHOWS_WITH_POSITIONS[name])


@pytest.mark.parametrize("heads", BOTH_WIRINGS_ARE_ONE)
def test_repeat_hides_when_both_wirings_are_the_same(heads):
    assert check("repeat_heads", decoder(**heads)).passed


def test_a_mistake_shared_by_both_paths_passes_although_the_answers_are_wrong():
    model = decoder()
    wrong, right = check("repeat_heads_both_paths", model), check(None, model)
    assert wrong.passed
    assert wrong.max_abs_logit != right.max_abs_logit


def test_layers_cannot_be_mixed_up_when_there_is_one():
    assert check("layers_share_cache", decoder(num_layers=1)).passed


@pytest.mark.parametrize("name", ["no_reset", "positions_not_reset"])
def test_a_missing_reset_hides_when_only_one_generation_is_run(name):
    model = decoder(position="learned")
    assert check(name, model, generations=1).passed
    assert not check(name, model, generations=2).passed


def test_ragged_faults_hide_among_rows_of_equal_length():
    equal = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert check("ragged_shared_slot", rows=equal).passed
    assert not check("ragged_shared_slot", rows=[[1, 2, 3], [4, 5], [7, 8, 9]]).passed


def test_ragged_rows_are_made_even_from_a_prompt_of_one_token():
    assert not check("ragged_shared_slot", prompt=[1]).passed


@pytest.mark.parametrize("name", ["block_of_other_row", "first_row_not_compacted"])
def test_a_mix_up_of_rows_hides_when_there_is_one_row(name):
    assert check(name, rows=[[1, 2, 3, 4]]).passed


@pytest.mark.parametrize("name", ["block_duplicated", "block_of_other_row"])
def test_block_faults_hide_until_two_blocks_are_full(name):
    assert check(name, prompt=[1], steps=2).passed
    assert not check(name, prompt=[1], steps=5).passed


def test_swapped_blocks_are_seen_once_a_window_cuts_between_them():
    assert check("blocks_swapped", decoder(window=None), steps=8).passed
    assert not check("blocks_swapped", decoder(window=5), steps=8).passed
    assert check("blocks_swapped", decoder(window=12), steps=8).passed


@pytest.mark.parametrize(("name", "widest"), [("window_one_more", 8), ("window_one_less", 9)])
def test_a_window_fault_hides_while_no_row_fills_the_window(name, widest):
    hidden, seen = decoder(window=widest + 1), decoder(window=widest)
    assert check(name, hidden, cache="static").passed
    assert not check(name, seen, cache="static").passed
    assert not check(name, hidden).passed, "left to choose, it takes a window that shows it"


def test_decode_that_is_not_kept_hides_behind_a_single_step():
    assert check("decode_not_kept", steps=1).passed
    assert not check("decode_not_kept", steps=2).passed


def test_heads_without_their_transpose_hide_behind_a_prompt_of_one_token():
    assert check("heads_not_transposed", prompt=[1]).passed
    assert not check("heads_not_transposed", prompt=[1, 2]).passed


def test_an_unmasked_chunk_hides_when_chunks_have_one_token():
    assert check("chunk_without_mask", prompt=[1, 2]).passed
    assert not check("chunk_without_mask", prompt=[1, 2, 3]).passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_int8_cache_hides_in_half_precision_and_the_float64_gate_still_sees_it(dtype):
    result = check("int8_cache", decoder(dtype=dtype))
    assert result.passed
    assert not result.logic.passed
    assert "float64" in result.sentence


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_int8_cache_is_caught_where_arithmetic_is_finer(dtype):
    assert not check("int8_cache", decoder(dtype=dtype)).passed


@pytest.mark.parametrize("name", ["write_one_late", "mask_top_left", "heads_not_transposed", "no_reset"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gross_fault_is_caught_in_every_dtype(name, dtype):
    assert not check(name, decoder(dtype=dtype)).passed


def test_the_model_that_is_checked_is_never_changed():
    model, prompt = decoder(), [1, 2, 3, 4]
    before, kind = model(prompt), type(model)
    for name in NAMES:
        check(name, model, steps=2)
    assert type(model) is kind
    assert (model(prompt) == before).all()


def test_an_unknown_fault_or_cache_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="write_one_late"):
        check("write_one_lat")
    with pytest.raises(UnknownNameError, match="dynamic"):
        check(None, cache="dynamical")
    with pytest.raises(InputError, match="the choice is dynamic, static, paged, sliding, quantized"):
        check(None, cache="xyz")
