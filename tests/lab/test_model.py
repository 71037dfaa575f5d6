import numpy as np
import pytest
import torch

from kvplan import lab
from kvplan.errors import InputError, KvplanError, UnknownNameError
from kvplan.lab.caches import DynamicCache, StaticCache
from kvplan.lab.limits import MAX_LAYERS
from kvplan.lab.model import TinyDecoder


def ids(rows=1, count=9, seed=1):
    return torch.randint(0, 50, (rows, count), generator=torch.Generator().manual_seed(seed))


def test_logits_have_one_row_per_token_and_one_column_per_vocabulary_entry():
    assert TinyDecoder()(ids(2, 9)).shape == (2, 9, 50)


def test_a_prompt_may_be_a_list():
    model = TinyDecoder()
    assert torch.equal(model([1, 2, 3]), model(torch.tensor([[1, 2, 3]])))


def test_the_same_seed_draws_the_same_weights_in_every_dtype():
    wide, narrow = TinyDecoder(dtype="float64", seed=5), TinyDecoder(dtype="bf16", seed=5)
    assert torch.equal(wide.head.weight.to(torch.bfloat16), narrow.head.weight)
    assert not torch.equal(wide.head.weight, TinyDecoder(dtype="float64", seed=6).head.weight)


def test_no_bias_is_zero_and_no_norm_is_one_or_they_would_hide_mistakes():
    weights = dict(TinyDecoder(qkv_bias=True).named_parameters())
    assert all((weight != (1 if "norm.weight" in name else 0)).all() for name, weight in weights.items())


def test_a_later_token_never_changes_an_earlier_logit():
    model, tokens = TinyDecoder(dtype="float64"), ids()
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 50
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_a_window_of_w_reads_the_token_itself_and_w_minus_1_before_it():
    model, tokens = TinyDecoder(num_layers=1, window=3, dtype="float64"), ids()
    changed = tokens.clone()
    changed[0, 2] = (changed[0, 2] + 1) % 50
    reached = (model(tokens) - model(changed)).abs().amax(-1)[0] > 1e-9
    assert reached.tolist() == [False, False, True, True, True, False, False, False, False]


def test_query_head_i_reads_kv_head_i_divided_by_the_group():
    model = TinyDecoder(num_attention_heads=8, num_kv_heads=2)
    kv = torch.arange(2.0)[None, :, None, None]
    assert model.share_heads(kv).flatten().tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_rotary_logits_depend_on_distances_only():
    model, tokens = TinyDecoder(dtype="float64"), ids()
    moved = model(tokens, positions=torch.arange(9)[None] + 100)
    assert torch.allclose(model(tokens), moved, atol=1e-12)


def test_learned_positions_depend_on_the_position_itself():
    model, tokens = TinyDecoder(dtype="float64", position="learned"), ids()
    assert not torch.allclose(model(tokens), model(tokens, positions=torch.arange(9)[None] + 100))


def test_padding_changes_nothing_for_the_tokens_before_it():
    model = TinyDecoder(dtype="float64")
    padded = torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    logits = model(padded, lengths=torch.tensor([3, 5]))
    assert torch.allclose(logits[:1, :3], model([1, 2, 3]), atol=1e-12)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_attention_heads": 4, "num_kv_heads": 3}, "must be a multiple"),
        ({"num_attention_heads": 2, "num_kv_heads": 4}, "must be a multiple"),
        ({"head_dim": 7}, "must be even, not 7"),
        ({"num_layers": 0}, f"from 1 to {MAX_LAYERS}"),
        ({"num_layers": MAX_LAYERS + 1}, f"from 1 to {MAX_LAYERS}"),
        ({"head_dim": 2048}, "from 1 to 1,024"),
        ({"vocab_size": 10_000_000}, "number of parameters"),
        ({"window": 0}, "window"),
        ({"rope_theta": 0}, "rope_theta must be a positive number"),
        ({"norm_eps": float("nan")}, "norm_eps must be a positive number"),
        ({"num_layers": True}, "num_layers"),
        ({"position": "rotary"}, "position encoding"),
        ({"norm": "batch"}, "the choice is layer, rms"),
        ({"mlp": "relu"}, "did you mean gelu"),
        ({"dtype": "int4"}, "dtype"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_a_sentence(wrong, words):
    with pytest.raises(InputError, match=words):
        TinyDecoder(**wrong)


def test_an_odd_head_dim_is_fine_without_rotary_positions():
    assert TinyDecoder(head_dim=7, position="learned")([1, 2]).shape == (1, 2, 50)


def test_a_misspelt_dtype_names_the_nearest_one():
    with pytest.raises(UnknownNameError, match="float32"):
        TinyDecoder(dtype="flaot32")


@pytest.mark.parametrize(
    "wrong", [[1, 50], [-1], [[1, 2], [3]], [], "12", [1.5], torch.ones(1, 2), torch.tensor([[50]])]
)
def test_bad_token_ids_are_refused_before_a_cache_is_touched(wrong):
    model = TinyDecoder()
    cache = StaticCache(model, 1, 8)
    with pytest.raises(InputError):
        model(wrong, cache)
    assert cache.length.tolist() == [0]


@pytest.mark.parametrize("lengths", [[3], [0, 2], [1, 3]])
def test_row_lengths_must_fit_the_ids(lengths):
    model = TinyDecoder()
    with pytest.raises(InputError, match="lengths"):
        model([[1, 2], [3, 4]], DynamicCache(model, 2), lengths=torch.tensor(lengths))


def test_a_position_beyond_the_learned_table_is_refused_before_the_cache_is_touched():
    model = TinyDecoder(position="learned", max_positions=4)
    cache = DynamicCache(model)
    model([1, 2, 3, 4], cache)
    with pytest.raises(InputError, match="0 to 3"):
        model([5], cache)
    assert cache.length.tolist() == [4]
    assert cache.read(0)[0].shape[2] == 4


@pytest.mark.parametrize("positions", [torch.arange(2), torch.arange(8).view(2, 4), torch.ones(3), torch.tensor(-1)])
def test_positions_must_fit_the_ids(positions):
    model = TinyDecoder()
    cache = DynamicCache(model)
    with pytest.raises(InputError, match="positions"):
        model([1, 2, 3], cache, positions=positions)
    assert cache.length.tolist() == [0]


def test_a_call_that_would_hang_the_server_is_refused():
    model = TinyDecoder(num_attention_heads=8, num_kv_heads=2, head_dim=2)
    with pytest.raises(KvplanError, match="attention scores"):
        model(torch.zeros(1, 4096, dtype=torch.long))


@pytest.mark.parametrize(
    "work",
    [
        lambda model: lab.check_parity(model, [1] * 100, 156),
        lambda model: lab.generate(model, [[1, 2, 3]] * 16, 4000),
        lambda model: lab.measure_savings(model, 512),
        lambda model: lab.train(model, 400),
        lambda model: lab.check_matrix(model, [1, 2, 3], 30),
        lambda model: model(torch.zeros(64, 800, dtype=torch.long)),
    ],
)
def test_work_that_would_take_minutes_is_refused_before_it_starts(work):
    wide = lab.TinyDecoder(num_layers=1, num_attention_heads=8, num_kv_heads=1, head_dim=128, mlp_size=4096)
    with pytest.raises(InputError, match="the lab stops at"):
        work(wide)


def test_a_prompt_may_be_an_array():
    model = TinyDecoder()
    assert torch.equal(model(np.array([1, 2, 3])), model([1, 2, 3]))
    assert torch.equal(lab.generate(model, np.array([[1, 2], [3, 4]]), 2), lab.generate(model, [[1, 2], [3, 4]], 2))
