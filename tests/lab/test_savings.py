import pytest

from kvplan import lab
from kvplan.errors import InputError
from kvplan.lab.savings import MAX_TIMED_TOKENS


def test_two_thousand_steps_save_1_999_000_projections():
    counts = lab.projections(2000)
    assert counts.uncached == 2000 * 2001 // 2
    assert counts.cached == 2000
    assert counts.saved == 1_999_000


def test_the_counts_of_the_running_model_are_those_of_the_formula():
    table = lab.measure_savings(lab.savings_model(), 24)
    for _, row in table.iterrows():
        counts = lab.projections(int(row["tokens"]))
        assert row["uncached_projections"] == counts.uncached
        assert row["dynamic_projections"] == row["static_projections"] == counts.cached


def test_growing_by_cat_copies_all_that_is_held_and_preallocating_copies_nothing():
    model = lab.savings_model()
    table = lab.measure_savings(model, 24)
    per_token = 2 * 4 * 2 * 8 * 4
    assert table["dynamic_copied_bytes"].iloc[-1] == per_token * (24 * 23 // 2) == lab.cat_bytes(model, 24)
    assert (table["static_copied_bytes"] == 0).all()


def test_2048_steps_of_the_small_model_copy_a_gigabyte():
    assert lab.cat_bytes(lab.savings_model(), 2048) == 2 * 4 * 2 * 8 * 4 * (2048 * 2047 // 2) == 1_073_217_536


def test_seconds_add_up_and_are_never_negative():
    table = lab.measure_savings(lab.savings_model(), 8)
    for kind in ("uncached", "dynamic", "static"):
        assert table[f"{kind}_seconds"].is_monotonic_increasing
        assert table[f"{kind}_seconds"].iloc[0] > 0


def test_progress_is_told_and_may_stop_the_work():
    seen = []
    lab.measure_savings(lab.savings_model(), 6, on_step=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)

    class StopHereError(Exception):
        pass

    def stop(fraction):
        raise StopHereError

    model = lab.savings_model()
    with pytest.raises(StopHereError):
        lab.measure_savings(model, 6, on_step=stop)
    assert not model.blocks[0].k._forward_hooks, "the counter is taken off again"


def test_sizes_are_bounded():
    with pytest.raises(InputError, match=f"from 1 to {MAX_TIMED_TOKENS}"):
        lab.measure_savings(lab.savings_model(), MAX_TIMED_TOKENS + 1)
    with pytest.raises(InputError, match="tokens"):
        lab.projections(0)
