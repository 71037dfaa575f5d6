import pytest
import torch

from kvplan import lab
from kvplan.errors import InputError


def decoder(**changes):
    sizes = {"num_layers": 2, "num_attention_heads": 8, "num_kv_heads": 8, "head_dim": 64, "mlp_size": 64}
    return lab.TinyDecoder(**{**sizes, **changes})


def test_three_prompt_tokens_and_two_decode_inputs_fill_five_columns():
    table = lab.trace(decoder(), prompt=[7, 8, 9], num_new_tokens=2)
    assert table["phase"].tolist() == ["prefill", "decode", "decode"]
    assert table["key_shape"].tolist() == [(1, 8, 3, 64), (1, 8, 4, 64), (1, 8, 5, 64)]
    assert table["value_shape"].tolist() == table["key_shape"].tolist()
    assert table["length_before"].tolist() == [0, 3, 4]
    assert table["length_after"].tolist() == [3, 4, 5]
    assert table["columns_written"].tolist() == [(0, 1, 2), (3,), (4,)]
    assert table["query_length"].tolist() == [3, 1, 1]
    assert table["key_length"].tolist() == [3, 4, 5]
    assert table["mask_row"].tolist() == ["111", "1111", "11111"]


def test_what_is_predicted_is_what_goes_in_next_and_equals_generate():
    model = decoder()
    table = lab.trace(model, prompt=[7, 8, 9], num_new_tokens=4)
    predicted = table["predicted_token"].tolist()
    assert table["input_tokens"].tolist() == [(7, 8, 9), *((token,) for token in predicted[:-1])]
    assert predicted == lab.generate(model, [7, 8, 9], 5)[0, 3:].tolist()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "paged", "sliding", "quantized"])
def test_the_bytes_held_equal_the_planners_formula_to_the_byte(cache, dtype):
    model = decoder(num_kv_heads=2, head_dim=8, window=4, dtype=dtype)
    table = lab.trace(model, prompt=[1, 2, 3], num_new_tokens=4, cache=cache)
    assert table["bytes_held"].tolist() == table["formula_bytes"].tolist()


def test_a_growing_cache_of_known_shape_holds_known_bytes():
    table = lab.trace(decoder(), prompt=[1, 2, 3], num_new_tokens=2)
    assert table["bytes_held"].tolist() == [2 * 2 * 8 * 64 * columns * 4 for columns in (3, 4, 5)]
    assert table["formula"].iloc[0] == "2 x 2 layers x 8 KV heads x 64 x 4 B x 3 columns x 1 row"


def test_a_preallocated_cache_shows_its_empty_columns_in_the_mask():
    table = lab.trace(decoder(), prompt=[1, 2, 3], num_new_tokens=2, cache="static")
    assert table["mask_row"].tolist() == ["11100", "11110", "11111"]
    assert table["bytes_held"].nunique() == 1


def test_a_window_shows_in_the_mask_and_a_ring_in_the_columns_that_are_written():
    model = decoder(window=3)
    assert lab.trace(model, [1, 2, 3], 2)["mask_row"].tolist() == ["111", "0111", "00111"]
    assert lab.trace(model, [1, 2, 3], 2, cache="sliding")["columns_written"].tolist() == [(0, 1, 2), (0,), (1,)]


def test_the_grid_fills_column_by_column_in_every_layer():
    grid = lab.trace_grid(decoder(), [7, 8, 9], 2, cache="static")
    assert len(grid) == 3 * 2 * 5
    for layer in (0, 1):
        states = [grid[(grid["step"] == step) & (grid["layer"] == layer)]["state"].tolist() for step in range(3)]
        assert states == [
            ["new", "new", "new", "empty", "empty"],
            ["held", "held", "held", "new", "empty"],
            ["held", "held", "held", "held", "new"],
        ]
    assert (grid[grid["state"] == "empty"]["key_size"] == 0).all()
    assert (grid[grid["state"] != "empty"]["key_size"] > 0).all()
    assert grid[grid["step"] == 0]["token"].tolist()[:3] == [7, 8, 9]


def test_a_held_column_never_changes_again():
    grid = lab.trace_grid(decoder(), [7, 8, 9], 2)
    sizes = grid.groupby(["layer", "column"])["key_size"].nunique()
    assert (sizes == 1).all()


def test_the_model_is_left_as_it_was():
    model = decoder()
    lab.trace(model, [1, 2], 1)
    assert type(model) is lab.TinyDecoder
    assert not hasattr(model, "seen")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"prompt": [[1], [2]]}, "one row"),
        ({"prompt": [99]}, "token id"),
        ({"num_new_tokens": 65}, "num_new_tokens"),
        ({"prompt": [1] * 60, "num_new_tokens": 10}, "from 1 to 64"),
        ({"cache": "statik"}, "did you mean static"),
        ({"cache": "sliding"}, "window"),
    ],
)
def test_what_cannot_be_traced_is_refused(how, words):
    with pytest.raises(InputError, match=words):
        lab.trace(decoder(), **{"prompt": [1, 2], "num_new_tokens": 2, **how})


def test_a_tensor_prompt_is_traced_too():
    assert len(lab.trace(decoder(), torch.tensor([[1, 2]]), 1)) == 2
