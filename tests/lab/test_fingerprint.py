import numpy as np
import pytest

from kvplan import lab
from kvplan.errors import InputError
from kvplan.lab.fingerprint import name_family

PROMPT = [1, 2, 3, 4]


def decoder(**changes):
    return lab.TinyDecoder(**{"num_layers": 3, "head_dim": 8, "dtype": "float64", **changes})


@pytest.mark.parametrize("name", lab.FAULTS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_grids_name_the_family_of_every_fault(name, dtype):
    assert lab.fingerprint(decoder(dtype=dtype), PROMPT, 8, fault=name).family == lab.FAULTS[name].family


@pytest.mark.parametrize("cache", ["dynamic", "static", "paged"])
def test_a_sound_cache_is_clean(cache):
    found = lab.fingerprint(decoder(), PROMPT, 8, cache=cache)
    assert found.family == "clean"
    assert np.nanmax(found.keys) < 1e-12


def test_a_ring_is_clean_where_it_still_holds_and_not_a_number_where_it_let_go():
    found = lab.fingerprint(decoder(window=5), PROMPT, 8, cache="sliding")
    assert found.family == "clean"
    assert np.isnan(found.keys[:, : 12 - 5]).all()
    assert not np.isnan(found.keys[:, 12 - 5 :]).any()


def test_the_quantized_cache_is_a_little_off_everywhere():
    found = lab.fingerprint(decoder(), PROMPT, 8, cache="quantized")
    assert found.family == "quantized"
    assert 0 < np.max(found.keys[0]) < 0.01


def test_the_rules_read_layer_0_first():
    clean, dirty = np.zeros((2, 6)), np.zeros((2, 6))
    dirty[1, 3] = 0.5
    assert name_family(clean, clean, 2) == "clean"
    assert name_family(dirty, clean, 2) == "read"
    dirty[0, 2:] = 0.5
    assert name_family(dirty, clean, 2) == "positions"
    assert name_family(dirty, dirty, 2) == "write"


def test_with_learned_positions_a_position_fault_looks_like_a_write_fault():
    assert lab.fingerprint(decoder(position="learned"), PROMPT, 8, fault="positions_one_late").family == "write"


def test_the_table_has_a_line_for_each_part_layer_and_position():
    found = lab.fingerprint(decoder(), PROMPT, 5, fault="write_one_late")
    table = found.table()
    assert len(table) == 2 * 3 * 9
    dirty = table[table["dirty"] & (table["layer"] == 0)]
    assert set(dirty["phase"]) == {"decode"}
    assert found.reading == lab.FAMILIES["write"]


def test_a_mystery_hides_one_fault_among_choices_of_other_families_and_repeats_for_its_seed():
    model = decoder()
    for seed in range(12):
        riddle = lab.mystery(seed, model, PROMPT)
        assert riddle.answer in riddle.choices
        assert len(set(riddle.choices)) == 4
        assert riddle.fingerprint.fault.title == riddle.answer
        families = {fault.title: fault.family for fault in lab.FAULTS.values()}
        assert len({families[choice] for choice in riddle.choices}) == 4
        assert riddle.fingerprint.family == families[riddle.answer]
        assert lab.mystery(seed, model, PROMPT).choices == riddle.choices


def test_different_seeds_hide_different_faults_also_for_a_model_with_learned_positions():
    model = decoder(position="learned", num_layers=2)
    answers = {lab.mystery(seed, model, PROMPT).answer for seed in range(12)}
    assert len(answers) > 5


def test_more_choices_than_families_are_refused():
    with pytest.raises(InputError, match="num_choices"):
        lab.mystery(1, decoder(), PROMPT, num_choices=9)
