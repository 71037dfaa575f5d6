import pytest
import torch

from kvplan import lab

PROMPT = [1, 2, 3, 4]


def smallest(**changes):
    sizes = {"num_layers": 2, "num_attention_heads": 2, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 50}
    return lab.TinyDecoder(**{**sizes, **changes})


def test_the_smallest_program_reads_one_token_on_top_of_four():
    step = lab.side_by_side(smallest(), PROMPT, 1)
    assert (step.length_before, step.length_after) == (4, 5)
    assert step.cached.shape == step.uncached.shape == (1, 50)
    assert step.token == int(lab.uncached(smallest(), PROMPT).logits[-1].argmax())


def test_the_uncached_logits_are_those_of_the_whole_row():
    model = smallest(dtype="float64")
    step = lab.side_by_side(model, PROMPT, 1)
    whole = model([[*PROMPT, step.token]])[:, -1]
    assert torch.allclose(step.uncached, whole, rtol=1e-12)
    assert step.max_abs_diff < 1e-11


def test_in_exact_shapes_both_are_equal_to_the_bit():
    step = lab.side_by_side(smallest(), PROMPT, 3, exact_shapes=True)
    assert torch.equal(step.cached, step.uncached)


@pytest.mark.parametrize("fault", ["no_reset", "write_one_late", "key_before_rotation"])
def test_a_fault_shows_in_the_logits(fault):
    step = lab.side_by_side(smallest(dtype="float64"), PROMPT, 2, fault=fault)
    assert step.max_abs_diff > 1e-5


def test_the_table_has_a_row_for_each_token_of_the_vocabulary():
    step = lab.side_by_side(smallest(), PROMPT, 1)
    table = step.table()
    assert table["token"].tolist() == list(range(50))
    assert table["difference"].abs().max() == step.max_abs_diff
