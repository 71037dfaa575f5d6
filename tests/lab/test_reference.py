"""The uncached path is independent: it agrees with the decoder, and shares none of its functions."""

import ast
import inspect

import pytest
import torch

from kvplan import lab
from kvplan.lab import reference
from kvplan.lab.reference import grouped_heads, uncached, uncached_generation


def test_it_calls_nothing_of_the_decoder_but_weights():
    allowed = {"shape", "blocks", "embedding", "position_embedding", "norm", "head"}
    tree = ast.parse(inspect.getsource(reference))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "model"
    }
    assert used <= allowed


@pytest.mark.parametrize("position", ["rope", "learned", "none"])
@pytest.mark.parametrize("window", [None, 3])
def test_it_agrees_with_the_decoder_without_a_cache(position, window):
    model = lab.TinyDecoder(position=position, window=window, dtype="float64", num_attention_heads=6, num_kv_heads=2)
    tokens = [3, 1, 4, 1, 5, 9, 2]
    assert (uncached(model, tokens).logits - model(tokens)[0]).abs().max() < 1e-12


def test_eight_query_heads_over_two_kv_heads_read_them_in_runs_of_four():
    assert grouped_heads(8, 2) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert grouped_heads(4, 4) == [0, 1, 2, 3]
    assert grouped_heads(3, 1) == [0, 0, 0]


def test_it_gives_the_keys_and_values_that_a_cache_holds():
    model = lab.TinyDecoder(dtype="float64")
    cache = lab.DynamicCache(model)
    model([1, 2, 3], cache)
    run = uncached(model, [1, 2, 3])
    for layer in range(2):
        keys, values = cache.read(layer)
        assert torch.allclose(keys[0], run.keys[layer], atol=1e-12)
        assert torch.allclose(values[0], run.values[layer], atol=1e-12)


def test_generation_consumes_every_token_and_keeps_a_row_of_logits_for_each():
    model = lab.TinyDecoder(dtype="float64")
    run = uncached_generation(model, [1, 2, 3], 4)
    assert len(run.tokens) == 7
    assert run.logits.shape == (7, 50)
    assert run.tokens[3:] == run.logits[2:6].argmax(1).tolist()
