"""The toy's tensors and the planner's arithmetic, to the byte."""

import pytest

from kvplan import lab

SHAPES = [
    {},
    {"position": "learned", "qkv_bias": True, "num_kv_heads": 4},
    {"norm": "rms", "mlp": "swiglu", "qkv_bias": True, "num_kv_heads": 1, "hidden_size": 40, "mlp_size": 96},
    {"position": "none", "norm": "rms"},
]
PLANNER_NAME = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@pytest.mark.parametrize("dtype", PLANNER_NAME)
@pytest.mark.parametrize("fields", SHAPES)
def test_the_bytes_that_torch_holds_are_the_bytes_the_planner_says(fields, dtype):
    model = lab.TinyDecoder(**fields, dtype=dtype)
    planned = lab.model_like(model)
    cache = lab.DynamicCache(model, 3)
    lab.generate(model, [[1, 2, 3], [4, 5, 6], [7, 8, 9]], 6, cache)
    assert cache.nbytes == planned.cache_bytes(context_length=8, batch_size=3, kv_dtype=PLANNER_NAME[dtype])
    assert planned.weight_bytes() == sum(weight.nbytes for weight in model.parameters())
    assert planned.num_params == sum(weight.numel() for weight in model.parameters())


def test_a_ring_holds_what_the_planner_says_of_a_window_layer():
    model = lab.TinyDecoder(window=4)
    cache = lab.SlidingCache(model)
    lab.generate(model, [1, 2, 3], 9, cache)
    assert cache.nbytes == lab.model_like(model).cache_bytes(context_length=11, kv_dtype="fp32")


def test_a_quantized_cache_holds_what_the_planner_says_of_int8_with_scales():
    model = lab.TinyDecoder()
    cache = lab.QuantizedCache(model, 2, 24)
    planned = lab.model_like(model).cache_bytes(context_length=24, batch_size=2, kv_dtype="int8_per_token_head")
    assert cache.nbytes == planned


@pytest.mark.parametrize("name", ["dynamic", "static", "paged", "sliding", "quantized"])
def test_the_formula_follows_a_cache_that_lost_a_row(name):
    model = lab.TinyDecoder(window=4)
    cache = lab.new_cache(lab.CACHES[name], model, 3, 8)
    model([[1, 2, 3], [4, 5, 6], [7, 8, 9]], cache)
    assert lab.cache_formula(cache).bytes == cache.nbytes
    cache.compact([0, 2])
    assert lab.cache_formula(cache).bytes == cache.nbytes


def test_a_float64_decoder_is_planned_as_fp32_and_says_so():
    planned = lab.model_like(lab.TinyDecoder(dtype="float64"))
    assert planned.dtype.name == "fp32"
    assert "float64" in planned.notes[0]


def test_the_ladder_goes_from_one_token_to_a_batch():
    assert lab.ladder()["bytes"].tolist() == [
        2 * 8 * 128 * 2,
        128 * 2**10,
        128 * 2**20,
        2**30,
        64 * 2**20,
        512 * 2**20,
        256 * 2**20,
    ]


def test_the_cache_reaches_the_weights_at_known_numbers_of_tokens():
    table = lab.crossovers().set_index("preset")
    assert table["tokens"].to_dict() == {"llama-2-7b": 25_706, "llama-3.1-8b": 122_533, "llama-3.1-70b": 430_626}
    for _, row in table.iterrows():
        assert row["tokens"] * row["bytes_per_token"] >= row["weight_bytes"]
        assert (row["tokens"] - 1) * row["bytes_per_token"] < row["weight_bytes"]


def test_llama_2_7b_is_multi_head():
    assert lab.crossovers().set_index("preset").loc["llama-2-7b", "num_kv_heads"] == 32


def test_seventy_billion_with_other_heads_and_requests():
    table = lab.seventy_billion().set_index(["kv_heads", "requests"])["bytes"]
    assert table[(8, 1)] == 80 * 2 * 8 * 128 * 2 * 32_768 == 10_737_418_240
    assert table[(8, 8)] == table[(64, 1)] == 80 * 2**30
    assert table[(1, 1)] == 10_737_418_240 // 8


def test_three_misconceptions_are_settled_by_numbers():
    texts = [item.settled_by for item in lab.misconceptions()]
    assert len(texts) == 3
    assert "327,680 B" in texts[2]
    assert "524,288 B" in texts[2]
