"""Figures that are settled to the byte: worked out by hand, published, or held by torch's own tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kvplan
from kvplan import Model, Scenario, plan
from kvplan.attention import FullAttention, IndexedLatentAttention
from kvplan.define import Latent, define_model
from kvplan.units import GIB, MIB
from tests.examples import SMALL_GPU, model_of

CONFIGS = Path(__file__).parent / "data" / "configs"


def shape(num_layers: int, num_attention_heads: int, num_kv_heads: int, **more: int) -> Model:
    """A model of heads of 128 values; the MLP and vocabulary do not matter to its cache."""
    return define_model(
        name="A shape",
        num_layers=num_layers,
        hidden_size=num_attention_heads * 128,
        num_attention_heads=num_attention_heads,
        num_kv_heads=num_kv_heads,
        head_dim=128,
        intermediate_size=more.get("intermediate_size", 1024),
        vocab_size=more.get("vocab_size", 1000),
    )


@pytest.fixture(scope="module")
def llama_2_7b() -> Model:
    return shape(32, 32, 32, intermediate_size=11008, vocab_size=32000)


@pytest.fixture(scope="module")
def llama_3_8b() -> Model:
    return shape(32, 32, 8, intermediate_size=14336, vocab_size=128256)


@pytest.fixture(scope="module")
def llama_3_70b() -> Model:
    return shape(80, 64, 8, intermediate_size=28672, vocab_size=128256)


@pytest.fixture(scope="module")
def deepseek_v3() -> Model:
    latent = Latent(kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536)
    return define_model(
        name="The attention of DeepSeek V3",
        num_layers=61,
        hidden_size=7168,
        num_attention_heads=128,
        latent=latent,
        intermediate_size=18432,
        vocab_size=129280,
    )


# ---------------------------------------------------------------------------------------------------- the ladder


def test_one_layer_keeps_4096_bytes_a_token(llama_3_8b: Model) -> None:
    assert llama_3_8b.cache_bytes_per_token() == 32 * 4096 == 128 * 1024


@pytest.mark.parametrize(
    ("num_kv_heads", "tokens", "batch", "expected"),
    [
        (8, 1024, 1, 134_217_728),
        (8, 1024, 8, 1 * GIB),
        (4, 1024, 1, 64 * MIB),
        (32, 1024, 1, 512 * MIB),
        (8, 8192, 8, 8 * GIB),
        (4, 8192, 8, 4 * GIB),
    ],
)
def test_32_layers_of_128_wide_heads(num_kv_heads: int, tokens: int, batch: int, expected: int) -> None:
    model = shape(32, 32, num_kv_heads)
    assert model.cache_bytes(tokens, batch, "bf16") == expected
    assert model.cache_bytes(tokens, batch, "fp16") == expected
    assert model.cache_bytes(tokens, batch, "fp32") == 2 * expected
    assert model.cache_bytes(tokens, batch, "fp8") == expected // 2


@pytest.mark.parametrize(("heads", "expected"), [(8, 10_737_418_240), (64, 85_899_345_920), (1, 1_342_177_280)])
def test_llama_3_1_70b_at_32768_tokens(llama_3_70b: Model, heads: int, expected: int) -> None:
    assert llama_3_70b.with_kv_heads(heads).cache_bytes(32_768, 1, "bf16") == expected


def test_eight_requests_to_the_70b_take_80_gib(llama_3_70b: Model) -> None:
    assert llama_3_70b.cache_bytes(32_768, 8) == 80 * GIB == 85_899_345_920


def test_a_bigger_model_may_have_a_smaller_cache(llama_2_7b: Model, llama_3_70b: Model) -> None:
    assert llama_3_70b.cache_bytes_per_token() == 80 * 8 * 128 * 2 * 2 == 327_680
    assert llama_2_7b.cache_bytes_per_token() == 32 * 32 * 128 * 2 * 2 == 524_288


# ------------------------------------------------------------------------------------------------- latent rows


@pytest.mark.parametrize("tensor_parallel", [1, 2, 4, 8, 16])
def test_deepseek_v3_keeps_70272_bytes_a_token_on_every_gpu(deepseek_v3: Model, tensor_parallel: int) -> None:
    assert deepseek_v3.cache_bytes_per_token("bf16", tensor_parallel) == 61 * (512 + 64) * 2 == 70_272


def test_a_sparse_latent_layer_keeps_656_and_132_bytes_a_token_at_fp8() -> None:
    model = model_of([IndexedLatentAttention(512, 64, 128, 2048)])
    assert model.cache_bytes(1, 1, "fp8") == 656 + 132
    assert model.cache_bytes(1, 1, "bf16") == (512 + 64 + 128) * 2


# --------------------------------------------------------------------------------------------------- crossovers

CROSSOVERS = {"llama_2_7b": 25_706, "llama_3_8b": 122_533, "llama_3_70b": 430_626}


@pytest.mark.parametrize(("name", "tokens"), CROSSOVERS.items())
def test_the_cache_reaches_the_weights_at(name: str, tokens: int, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    scenario = Scenario(model, SMALL_GPU, batch_size=1, weight_dtype="bf16")
    assert plan(scenario).crossover_context_length == tokens
    assert model.cache_bytes(tokens) >= model.weight_bytes("bf16") > model.cache_bytes(tokens - 1)


def test_parameters_of_the_llamas(llama_2_7b: Model, llama_3_8b: Model, llama_3_70b: Model) -> None:
    assert llama_2_7b.num_params == 6_738_415_616
    assert llama_3_8b.num_params == 8_030_261_248
    assert llama_3_70b.num_params == 70_553_706_496


def test_a_batch_divides_the_crossover(llama_3_8b: Model) -> None:
    scenario = Scenario(llama_3_8b, SMALL_GPU, batch_size=16, weight_dtype="bf16")
    assert plan(scenario).crossover_context_length == -(-122_533 // 16)


# ------------------------------------------------------------------------------------------ the presets say so too


@pytest.mark.parametrize(
    ("preset", "params", "crossover"),
    [
        ("llama-2-7b", 6_738_415_616, 25_706),
        ("llama-3.1-8b", 8_030_261_248, 122_533),
        ("llama-3.1-70b", 70_553_706_496, 430_626),
    ],
)
def test_a_preset_has_the_settled_figures(preset: str, params: int, crossover: int) -> None:
    model = kvplan.load_model(preset)
    assert model.num_params == params
    scenario = Scenario(model, SMALL_GPU, batch_size=1, weight_dtype="bf16")
    assert plan(scenario).crossover_context_length == crossover


def test_the_preset_of_llama_2_7b_is_multi_head_attention() -> None:
    model = kvplan.load_model("llama-2-7b")
    assert (model.num_attention_heads, model.num_kv_heads) == (32, 32)
    assert all(layer.cache == FullAttention(32, 128) for layer in model.layers)


@pytest.mark.parametrize("tensor_parallel", [1, 8, 16])
def test_the_preset_of_deepseek_v3_keeps_70272_bytes_a_token(tensor_parallel: int) -> None:
    assert kvplan.load_model("deepseek-v3").cache_bytes_per_token("bf16", tensor_parallel) == 70_272


# -------------------------------------------------------------------------------------------- torch's own tensors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("layers", "heads", "head_dim", "tokens", "batch"), [(2, 2, 16, 5, 1), (3, 1, 80, 7, 2), (1, 8, 128, 33, 3)]
)
def test_the_cache_is_what_torch_holds(
    layers: int, heads: int, head_dim: int, tokens: int, batch: int, dtype: str
) -> None:
    held = [torch.zeros(batch, heads, tokens, head_dim, dtype=getattr(torch, dtype)) for _ in range(2 * layers)]
    model = model_of([FullAttention(heads, head_dim)] * layers)
    assert model.cache_bytes(tokens, batch, dtype) == sum(tensor.nbytes for tensor in held)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_a_byte_a_value_is_what_torch_holds(dtype: str) -> None:
    held = torch.zeros(2, 1, 4, 9, 64, dtype=getattr(torch, dtype))
    name = "int8" if dtype == "int8" else "fp8"
    assert model_of([FullAttention(4, 64)]).cache_bytes(9, 1, name) == held.nbytes


def test_the_weights_are_what_torch_holds() -> None:
    model = shape(2, 4, 2, intermediate_size=300, vocab_size=77)
    with torch.device("meta"):
        hidden, kv = 4 * 128, 2 * 128
        layer = [torch.empty(s, dtype=torch.bfloat16) for s in (
            (hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden), (300, hidden), (300, hidden), (hidden, 300),
            (hidden,), (hidden,),
        )]  # fmt: skip
        outside = [torch.empty(s, dtype=torch.bfloat16) for s in ((77, hidden), (hidden,), (77, hidden))]
    assert model.weight_bytes() == 2 * sum(t.nbytes for t in layer) + sum(t.nbytes for t in outside)
