from kvplan import lab

MODEL = lab.TinyDecoder(num_layers=2, head_dim=8, dtype="float64", seed=4)


def caught(faults):
    table = lab.check_matrix(MODEL, [1, 2, 3, 4], 5, faults)
    return table.set_index(["fault", "check"])["caught"]


def test_one_pass_misses_what_is_wrong_only_when_the_cache_is_read():
    matrix = caught(["write_one_late", "decode_not_kept", "positions_restart", "no_reset"])
    for fault in ("write_one_late", "decode_not_kept", "positions_restart", "no_reset"):
        assert not matrix[(fault, "one_pass")]
        assert matrix[(fault, "everything")]


def test_each_further_scenario_catches_what_the_one_before_it_misses():
    matrix = caught(["no_reset", "chunk_without_mask", "ragged_shared_slot"])
    assert not matrix[("no_reset", "one_generation")]
    assert matrix[("no_reset", "two_generations")]
    assert not matrix[("chunk_without_mask", "two_generations")]
    assert matrix[("chunk_without_mask", "chunked")]
    assert not matrix[("ragged_shared_slot", "chunked")]
    assert matrix[("ragged_shared_slot", "everything")]


def test_token_ids_miss_a_quantized_cache_and_logits_do_not():
    matrix = caught(["int8_cache"])
    assert not matrix[("int8_cache", "token_ids")]
    assert matrix[("int8_cache", "two_generations")]


def test_no_check_sees_a_mistake_that_both_paths_share():
    assert not caught(["repeat_heads_both_paths"]).any()


def test_the_matrix_has_a_cell_for_each_fault_and_check_and_tells_its_progress():
    seen = []
    table = lab.check_matrix(MODEL, [1, 2, 3], 2, ["mask_one_short", "wrong_bits"], on_step=seen.append)
    assert len(table) == 2 * len(lab.CHECKS)
    assert seen == [0.5, 1.0]
    assert set(table["title"]) == {lab.FAULTS["mask_one_short"].title, lab.FAULTS["wrong_bits"].title}
