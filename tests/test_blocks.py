"""The weights of usual blocks, in torch.nn.Linear's shapes."""

from __future__ import annotations

import pytest
import torch

from kvplan.blocks import (
    Groups,
    attention,
    embedding,
    gated_mlp,
    linear,
    lm_head,
    norm,
    pinned_matrix,
    pinned_vector,
    plain_mlp,
    qk_norms,
    routed_experts,
    router,
    vector,
)
from kvplan.dtypes import WEIGHT_FORMATS


def params(groups: Groups) -> int:
    """Values of all groups together."""
    return sum(group.params for group in groups)


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_is_what_torch_makes(bias: bool) -> None:
    module = torch.nn.Linear(30, 20, bias=bias, device="meta")
    assert params(linear("mlp", 20, 30, bias=bias)) == sum(p.numel() for p in module.parameters())
    assert (linear("mlp", 20, 30)[0].rows, linear("mlp", 20, 30)[0].columns) == tuple(module.weight.shape)


def test_biases_of_attention_follow_what_is_asked() -> None:
    none = params(attention(512, 8, 2, 64))
    assert none == 512 * 512 * 2 + 2 * 128 * 512
    assert params(attention(512, 8, 2, 64, q_bias=True, k_bias=True, v_bias=True)) - none == 512 + 2 * 128
    assert params(attention(512, 8, 2, 64, out_bias=True)) - none == 512


def test_values_may_be_narrower_than_keys() -> None:
    assert params(attention(512, 8, 2, 64, value_head_dim=32)) == 512 * (8 * 64 + 2 * 64 + 2 * 32 + 8 * 32)


@pytest.mark.parametrize(("kind", "expected"), [("none", 0), ("head", 2 * 64), ("full", (8 + 2) * 64)])
def test_norms_of_queries_and_keys(kind: str, expected: int) -> None:
    assert params(qk_norms(kind, 8, 2, 64)) == expected  # type: ignore[arg-type]


def test_an_mlp_is_gated_or_plain() -> None:
    assert params(gated_mlp(100, 300)) == 3 * 100 * 300
    assert params(gated_mlp(100, 300, bias=True)) == 3 * 100 * 300 + 2 * 300 + 100
    assert params(plain_mlp(100, 300)) == 2 * 100 * 300
    assert params(plain_mlp(100, 300, bias=True)) == 2 * 100 * 300 + 300 + 100


def test_experts_are_counted_resident_and_active() -> None:
    groups = routed_experts(100, 30, 16, 4)
    assert params(groups) == 16 * 3 * 100 * 30
    assert sum(group.active_params for group in groups) == 4 * 3 * 100 * 30
    assert params(router(100, 16)) == 1600


def test_embedding_and_head_have_a_row_a_word() -> None:
    assert params(embedding(1000, 64)) == params(lm_head(1000, 64)) == 64_000
    assert params(lm_head(1000, 64, bias=True)) == 65_000


def test_a_layer_norm_has_a_bias_and_an_rms_norm_has_none() -> None:
    assert params(norm(64)) == 64
    assert params(norm(64, bias=True, count=2)) == 4 * 64
    assert params(norm(64, bias=True)) == sum(p.numel() for p in torch.nn.LayerNorm(64, device="meta").parameters())


def test_pinned_tensors_stay_float32() -> None:
    for group in (*pinned_vector("router", 8), *pinned_matrix("router", 8, 4)):
        assert group.pinned
        assert group.storage == WEIGHT_FORMATS["fp32"]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (linear("mlp", 64, 32, split="rows"), 64 * 32 // 4),
        (linear("mlp", 64, 32, split="columns"), 64 * 32 // 4),
        (linear("mlp", 64, 32, bias=True, split="rows"), (64 * 32 + 64) // 4),
        (linear("mlp", 64, 32, bias=True, split="columns"), 64 * 32 // 4 + 64),
        (linear("attention_k", 64, 32, split="kv_heads", kv_heads=2), 32 * 32),
        (linear("router", 64, 32), 64 * 32),
        (vector("norm", 64, split="rows"), 16),
        (linear("embedding", 66, 32, split="rows"), 17 * 32),
    ],
)
def test_what_one_of_four_gpus_holds(groups: Groups, expected: int) -> None:
    shapes = [group.shape_per_gpu(4) for group in groups]
    assert sum(rows * columns for rows, columns in shapes) == expected
