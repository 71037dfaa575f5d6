"""From toy to planner: the same arithmetic on a decoder of this file's size and on published models.

Every number is computed from a `Model`, as the planner's own pages do; nothing here is written in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from kvplan import blocks
from kvplan.attention import FullAttention, LayerCache, SlidingAttention
from kvplan.dtypes import weight_format
from kvplan.lab.caches import Cache, QuantizedCache
from kvplan.lab.model import TinyDecoder
from kvplan.lab.shape import Shape
from kvplan.model import Layer, Model, WeightGroup
from kvplan.presets import load_model
from kvplan.units import counted

PLANNER_DTYPES = {"float64": "fp32", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
CROSSOVER_PRESETS = ("llama-2-7b", "llama-3.1-8b", "llama-3.1-70b")


@dataclass(frozen=True)
class Formula:
    """Bytes by the planner, and how they come about."""

    bytes: int
    text: str


def model_like(model: TinyDecoder) -> Model:
    """The planner's `Model` of the same shape: the same layers, weights and windows, so the same bytes.

    No engine stores float64, so a float64 decoder becomes an fp32 model, and holds twice its bytes.
    """
    shape = model.shape
    layer = Layer(_layer_cache(shape, shape.window), _layer_weights(shape), shape.num_attention_heads)
    return Model(
        name=f"lab decoder, {counted(shape.num_layers, 'layer')}",
        layers=(layer,) * shape.num_layers,
        weights=_outer_weights(shape),
        dtype=weight_format(PLANNER_DTYPES[shape.dtype]),
        hidden_size=shape.hidden,
        num_attention_heads=shape.num_attention_heads,
        vocab_size=shape.vocab_size,
        context_limit=shape.position_limit,
        tied_embeddings=False,
        model_type="lab",
        source="the lab's decoder",
        notes=("float64 is planned as fp32: half the bytes that the lab holds",) if shape.dtype == "float64" else (),
    )


def cache_formula(cache: Cache) -> Formula:
    """The planner's bytes for the columns that `cache` has memory for; they equal `cache.nbytes`."""
    shape, columns = cache.shape, cache.read(0)[0].shape[2]
    held = cache.layers[0][0].numel() // (shape.num_kv_heads * shape.head_dim)  # columns of all rows, or of all blocks
    is_int8 = isinstance(cache, QuantizedCache)
    kv_dtype = "int8_per_token_head" if is_int8 else PLANNER_DTYPES[shape.dtype]
    twice = 2 if shape.dtype == "float64" and not is_int8 else 1  # no engine stores 8 bytes a value
    total = twice * _only_cache(_layer_cache(shape, None), shape.num_layers).cache_bytes(held, 1, kv_dtype)
    width = f"({shape.head_dim} x 1 B + 4 B)" if is_int8 else f"{shape.head_dim} x {cache.dtype.itemsize} B"
    rows = held // max(columns, 1)
    text = (
        f"2 x {counted(shape.num_layers, 'layer')} x {counted(shape.num_kv_heads, 'KV head')} x {width} x "
        f"{counted(columns, 'column')} x {counted(rows, 'row')}"
    )
    return Formula(total, text)


def ladder() -> pd.DataFrame:
    """From one token in one layer to a batch: step, layers, kv_heads, tokens, sequences, dtype, bytes, formula."""
    rungs = [
        ("one token, one layer", 1, 8, 1, 1, "bf16"),
        ("one token, all layers", 32, 8, 1, 1, "bf16"),
        ("1,024 tokens", 32, 8, 1024, 1, "bf16"),
        ("8 sequences", 32, 8, 1024, 8, "bf16"),
        ("half the KV heads, one sequence", 32, 4, 1024, 1, "bf16"),
        ("as many KV heads as query heads", 32, 32, 1024, 1, "bf16"),
        ("32 bits instead of 16", 32, 8, 1024, 1, "fp32"),
    ]
    return pd.DataFrame([_rung(*rung) for rung in rungs])


def crossovers() -> pd.DataFrame:
    """Where cache bytes reach weight bytes, in 16-bit tokens in flight.

    Columns: preset (loads it into the planner), name, num_layers, num_kv_heads, weight_bytes, bytes_per_token, tokens:
    the smallest whole number of tokens whose cache is at least the weights.
    """
    return pd.DataFrame([_crossover(preset, load_model(preset)) for preset in CROSSOVER_PRESETS])


def seventy_billion() -> pd.DataFrame:
    """Llama 3.1 70B at 32,768 tokens with other numbers of KV heads and requests: kv_heads, requests, bytes."""
    model = load_model("llama-3.1-70b")
    cases = [(8, 1), (8, 8), (64, 1), (1, 1)]
    return pd.DataFrame(
        [
            {
                "kv_heads": kv_heads,
                "requests": requests,
                "bytes": model.with_kv_heads(kv_heads).cache_bytes(context_length=32768, batch_size=requests),
            }
            for kv_heads, requests in cases
        ]
    )


@dataclass(frozen=True)
class Misconception:
    """A common belief that is wrong, and what settles it; a page asks first and shows the numbers then."""

    claim: str
    settled_by: str


def misconceptions() -> tuple[Misconception, ...]:
    """Three beliefs for a learner to judge."""
    larger, smaller = load_model("llama-3.1-70b"), load_model("llama-2-7b")
    large, small = (model.cache_bytes_per_token("bf16") for model in (larger, smaller))
    return (
        Misconception(
            "A KV cache is an approximation.",
            "An ordinary cache holds the very numbers that would be computed again: in float64 the parity check finds "
            "no difference beyond rounding, and in exact shapes none at all. Quantizing the cache is an approximation.",
        ),
        Misconception(
            "A KV cache stores attention weights.",
            "It stores keys and values. Attention weights belong to one query and are computed anew at every step: the "
            "cache grows by one column a token, and a table of attention weights would grow by a row and a column.",
        ),
        Misconception(
            "A bigger model needs a bigger cache.",
            f"{larger.name} keeps {large:,} B a token ({larger.num_layers} layers x {larger.num_kv_heads} KV heads), "
            f"and {smaller.name} {small:,} B ({smaller.num_layers} layers x {smaller.num_kv_heads} KV heads).",
        ),
    )


def _layer_cache(shape: Shape, window: int | None) -> LayerCache:
    if window is None:
        return FullAttention(shape.num_kv_heads, shape.head_dim)
    return SlidingAttention(shape.num_kv_heads, shape.head_dim, window=window)


def _layer_weights(shape: Shape) -> tuple[WeightGroup, ...]:
    is_gelu, bias = shape.mlp == "gelu", shape.qkv_bias
    mlp: Callable[..., tuple[WeightGroup, ...]] = blocks.plain_mlp if is_gelu else blocks.gated_mlp
    sizes = (shape.hidden, shape.num_attention_heads, shape.num_kv_heads, shape.head_dim)
    return (
        *blocks.attention(*sizes, q_bias=bias, k_bias=bias, v_bias=bias, out_bias=is_gelu),
        *mlp(shape.hidden, shape.mlp_width, bias=is_gelu),
        *blocks.norm(shape.hidden, bias=shape.norm == "layer", count=2),
    )


def _outer_weights(shape: Shape) -> tuple[WeightGroup, ...]:
    table = (WeightGroup("position_embedding", shape.max_positions, shape.hidden),)
    return (
        *blocks.embedding(shape.vocab_size, shape.hidden),
        *(table if shape.position == "learned" else ()),
        *blocks.norm(shape.hidden, bias=shape.norm == "layer", role="final_norm"),
        *blocks.lm_head(shape.vocab_size, shape.hidden),
    )


def _only_cache(cache: LayerCache, num_layers: int) -> Model:
    """A model with layers and no weights, for its cache arithmetic."""
    return Model(
        name="layers",
        layers=(Layer(cache),) * num_layers,
        weights=(),
        dtype=None,
        hidden_size=1,
        num_attention_heads=None,
        vocab_size=None,
        context_limit=None,
        tied_embeddings=False,
        model_type="lab",
    )


def _rung(step: str, layers: int, kv_heads: int, tokens: int, sequences: int, dtype: str) -> dict[str, object]:
    model = _only_cache(FullAttention(kv_heads, 128), layers)
    width = 4 if dtype == "fp32" else 2
    return {
        "step": step,
        "layers": layers,
        "kv_heads": kv_heads,
        "tokens": tokens,
        "sequences": sequences,
        "dtype": dtype,
        "bytes": model.cache_bytes(tokens, sequences, dtype),
        "formula": f"2 x {layers} x {kv_heads} x 128 x {tokens:,} x {sequences} x {width} B",
    }


def _crossover(preset: str, model: Model) -> dict[str, object]:
    weights = model.weight_bytes()
    per_token = int(model.cache_bytes_per_token("bf16"))
    return {
        "preset": preset,
        "name": model.name,
        "num_layers": model.num_layers,
        "num_kv_heads": model.num_kv_heads,
        "weight_bytes": weights,
        "bytes_per_token": per_token,
        "tokens": -(-weights // per_token),
    }
