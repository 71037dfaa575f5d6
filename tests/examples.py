"""Examples that several tests share: layers of every kind, and strategies for models, GPUs and scenarios.

A new kind of layer joins the laws by a line in `LAYERS`; a test fails until it does.
"""

from __future__ import annotations

from hypothesis import strategies as st

from kvplan.attention import (
    ChunkedAttention,
    CombinedCache,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexedAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    MeasuredRows,
    NoCache,
    RecurrentState,
    SharedCache,
    ShortConvolution,
    SlidingAttention,
    SlidingLatentAttention,
)
from kvplan.blocks import attention, embedding, gated_mlp, lm_head, norm, routed_experts, router
from kvplan.define import define_model
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.hardware import define_gpu
from kvplan.model import Layer, Model
from kvplan.plan import Scenario
from kvplan.units import GIB

FP32, BF16 = WEIGHT_FORMATS["fp32"], WEIGHT_FORMATS["bf16"]

MAMBA = RecurrentState(
    heads=16, head_elements=64 * 128, state_storage=FP32, conv_channels=2048, conv_width=4, conv_storage=BF16
)

LAYERS: dict[str, tuple[LayerCache, ...]] = {
    "full": (FullAttention(8, 128), FullAttention(4, 192, 128), FullAttention(1, 64)),
    "sliding": (SlidingAttention(8, 128, window=1000), SlidingAttention(1, 256, 64, window=1)),
    "chunked": (ChunkedAttention(8, 128, chunk=8192),),
    "indexed": (
        IndexedAttention(4, 128, index_head_dim=128, max_read_tokens=2048),
        IndexedAttention(8, 64, index_head_dim=64, num_index_heads=2),
    ),
    "latent": (LatentAttention(512, 64),),
    "sliding_latent": (SlidingLatentAttention(512, 64, window=513),),
    "indexed_latent": (IndexedLatentAttention(512, 64, 128, 2048), IndexedLatentAttention(512, 64, None)),
    "compressed": (
        CompressedAttention(512, 64, 128),
        CompressedAttention(512, 64, 128, 4, index_head_dim=128, overlap_elements=8192, index_topk=512),
        CompressedAttention(512, 64, 128, 128),
    ),
    "recurrent": (
        MAMBA,
        RecurrentState(heads=8, head_elements=4096, state_storage=FP32),
        RecurrentState(16, 64 * 128, FP32, 1024, 4, BF16, conv_groups=8, group_channels=256),
    ),
    "convolution": (ShortConvolution(2048, 3, BF16),),
    "rows": (
        MeasuredRows(4, 96),
        MeasuredRows(1, 512, 128),
        MeasuredRows(1, 64, None, 4),
        MeasuredRows(2, 8, storage=FP32),
    ),
    "cross": (CrossAttention(8, 128, 1601),),
    "shared": (SharedCache(0), SharedCache()),
    "none": (NoCache(),),
    "combined": (CombinedCache((FullAttention(2, 128), MAMBA)),),
}
"""Layers of every kind, by the name of the kind."""

ALL_LAYERS = [layer for layers in LAYERS.values() for layer in layers]

KV_FOR_ALL = ("fp32", "bf16", "fp16", "fp8")
"""Cache dtypes that every kind of layer can be stored in."""

LLAMA_8B = define_model(
    name="An 8B of the Llama layout",
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_kv_heads=8,
    intermediate_size=14336,
    vocab_size=128256,
    context_limit=131072,
)
"""The sizes of Llama 3.1 8B."""

SMALL_GPU = define_gpu(name="A card of 24 GiB", usable_bytes=24 * GIB, bandwidth=936 * 10**9)


def model_of(layers: list[LayerCache], *, heads: int | None = 16, tied: bool = False, name: str = "Mixed") -> Model:
    """A model whose layers keep what `layers` say, each with the weights of an ordinary decoder layer."""
    inside = (
        *attention(256, heads or 1, 4, 64),
        *gated_mlp(256, 512),
        *router(256, 8),
        *routed_experts(256, 128, 8, 2),
        *norm(256, count=2),
    )
    head = () if tied else lm_head(1000, 256)
    return Model(
        name=name,
        layers=tuple(Layer(cache, inside, heads) for cache in layers),
        weights=(*embedding(1000, 256), *norm(256, role="final_norm"), *head),
        dtype=BF16,
        hidden_size=256,
        num_attention_heads=heads,
        vocab_size=1000,
        context_limit=4096,
        tied_embeddings=tied,
        model_type="mixed",
        source="made by hand",
        notes=('A note with "quotes", \\ and ü.',),
    )


layer_lists = st.lists(st.sampled_from(ALL_LAYERS), min_size=1, max_size=8)
models = st.builds(model_of, layer_lists, heads=st.sampled_from([16, 32]), tied=st.booleans())
gpus = st.builds(
    define_gpu,
    name=st.just("A GPU"),
    usable_bytes=st.integers(2**20, 2**36),
    bandwidth=st.none() | st.integers(10**9, 10**13),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Random scenarios that divide: mixed models, small and large GPUs, several stages, shared prefixes, images."""
    model = draw(models)
    context = draw(st.integers(1, 300_000))
    return Scenario(
        model,
        draw(gpus),
        context_length=context,
        batch_size=draw(st.integers(1, 300)),
        kv_dtype=draw(st.sampled_from(KV_FOR_ALL)),
        weight_dtype=draw(st.sampled_from([None, "fp32", "fp8_per_channel", "mxfp4"])),
        tensor_parallel=draw(st.sampled_from([1, 2, 4, 8, 16])),
        pipeline_parallel=draw(st.integers(1, model.num_layers)),
        memory_fraction=draw(st.sampled_from([1, 0.9, 0.85, 0.123456789])),
        overhead_bytes=draw(st.none() | st.integers(0, 2**32)),
        image_tokens=draw(st.sampled_from([0, 0, 576])),
        shared_prefix=draw(st.integers(0, context)),
        adapter_bytes=draw(st.sampled_from([0, 0, 12_345_678])),
    )
