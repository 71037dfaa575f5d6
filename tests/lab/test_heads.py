import pytest
import torch

from kvplan import lab
from kvplan.errors import InputError
from kvplan.lab.heads import SYMBOLS, encode, held_out_loss, toy_text


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
def test_grouped_query_attention_is_multi_head_attention_with_duplicated_weights(kv_heads, bias):
    model = lab.TinyDecoder(
        num_attention_heads=8,
        num_kv_heads=kv_heads,
        head_dim=8,
        dtype="float64",
        qkv_bias=bias,
        mlp="swiglu",
        norm="rms",
    )
    assert lab.duplicate_kv_heads(model).shape.num_kv_heads == 8
    assert lab.duplication_difference(model, [1, 2, 3, 4, 5, 6]) < 1e-12


def test_duplicating_in_the_order_of_repeat_would_not_be_the_same_model():
    model = lab.TinyDecoder(num_attention_heads=4, num_kv_heads=2, head_dim=8, dtype="float64")
    twin = lab.duplicate_kv_heads(model)
    for block in twin.blocks:
        for part in (block.k, block.v):
            part.weight.data = part.weight.view(4, 8, -1)[[0, 2, 1, 3]].flatten(0, 1)
    assert (twin([1, 2, 3]) - model([1, 2, 3])).abs().max() > 1e-3


def test_eight_query_heads_over_two_kv_heads_are_wired_in_runs():
    table = lab.wiring(8, 2)
    assert table["kv_head"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert table["kv_head_of_repeat"].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_the_axis_from_multi_head_to_multi_query_saves_h_over_h_kv():
    table = lab.head_choices(8, 64, 2, 2)
    assert table["num_kv_heads"].tolist() == [8, 4, 2, 1]
    assert table["name"].tolist() == ["multi-head", "grouped-query", "grouped-query", "multi-query"]
    assert table["savings"].tolist() == [1, 2, 4, 8]
    assert table["bytes_per_token"].tolist() == [2 * 2 * heads * 64 * 2 for heads in (8, 4, 2, 1)]


def test_pooling_to_the_same_number_changes_nothing_and_pooling_equal_heads_neither():
    model = lab.TinyDecoder(num_attention_heads=4, num_kv_heads=2, head_dim=8, dtype="float64", qkv_bias=True)
    assert torch.equal(lab.mean_pool_kv_heads(model, 2)([1, 2, 3]), model([1, 2, 3]))
    pooled = lab.mean_pool_kv_heads(lab.duplicate_kv_heads(model), 2)
    assert (pooled([1, 2, 3]) - model([1, 2, 3])).abs().max() < 1e-12


def test_a_pooled_head_is_the_mean_of_those_it_replaces():
    model = lab.TinyDecoder(num_attention_heads=4, num_kv_heads=4, head_dim=8, dtype="float64")
    pooled = lab.mean_pool_kv_heads(model, 2)
    heads = model.blocks[0].k.weight.view(4, 8, -1)
    assert torch.allclose(pooled.blocks[0].k.weight[8:], (heads[2] + heads[3]) / 2)


def test_training_lowers_the_loss_pooling_raises_it_and_a_few_steps_mend_part_of_it():
    trained = lab.train(lab.training_model(), 60)
    assert trained.loss_before > 3
    assert trained.loss_after < 2
    shrunk = lab.shrink(trained.model, 2, 12)
    assert trained.loss_after < shrunk.loss_after < shrunk.loss_before
    assert not any(weight.requires_grad for weight in shrunk.model.parameters())


def test_training_leaves_the_model_it_was_given_alone_and_repeats_for_its_seed():
    model = lab.training_model()
    before = held_out_loss(model)
    first, second = lab.train(model, 2), lab.train(model, 2)
    assert held_out_loss(model) == before
    assert first.loss_after == second.loss_after


def test_the_toy_language_uses_its_symbols_and_brings_colours_back():
    text = toy_text(20, seed=5)
    assert set(text) <= set(SYMBOLS)
    assert encode(text).max() < len(SYMBOLS)
    words = text.split(". ")[0].split()
    assert text.split(". ")[1] == f"the {words[2]} is {words[1]}"


def test_progress_is_told():
    seen = []
    lab.train(lab.training_model(), 2, on_step=seen.append)
    assert seen == [0.5, 1.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lab.wiring(8, 3), "evenly"),
        (lambda: lab.wiring(8, 16), "num_kv_heads"),
        (lambda: lab.head_choices(0, 8, 1, 2), "num_attention_heads"),
        (lambda: lab.mean_pool_kv_heads(lab.training_model(), 3), "evenly"),
        (lambda: lab.mean_pool_kv_heads(lab.training_model(), 16), "num_kv_heads"),
        (lambda: lab.train(lab.training_model(), 401), "steps"),
    ],
)
def test_what_cannot_be_wired_pooled_or_trained_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
