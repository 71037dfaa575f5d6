"""Models: parameters, weight bytes by role and format, shards, and other numbers of KV heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.attention import CrossAttention, FullAttention, LatentAttention, SharedCache
from kvplan.blocks import attention, linear, norm, pinned_vector
from kvplan.define import Experts, define_model
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import DtypeError, InputError, ParallelError
from kvplan.model import ROLES, Layer, Model, Placement, WeightGroup
from tests.examples import LLAMA_8B, MAMBA, model_of

SMALL = define_model(
    name="Small",
    num_layers=2,
    hidden_size=512,
    num_attention_heads=4,
    num_kv_heads=2,
    intermediate_size=1024,
    vocab_size=1000,
)
MATRICES = 2 * (512 * 512 * 2 + 2 * 256 * 512 + 3 * 512 * 1024)
NORMS = 2 * 2 * 512 + 512
EMBEDDINGS = 2 * 1000 * 512


def moe(**changes: Any) -> Model:
    """Two layers with 8 experts of which a token reads 2, and one shared expert."""
    sizes = {"num_layers": 2, "hidden_size": 512, "num_attention_heads": 4, "num_kv_heads": 2, "vocab_size": 1000}
    return define_model(name="Experts", experts=Experts(8, 2, 256, 1), **{**sizes, **changes})


# -------------------------------------------------------------------------------------------------- parameters


def test_parameters_are_the_sum_of_the_matrices() -> None:
    assert SMALL.num_params == MATRICES + NORMS + EMBEDDINGS
    assert SMALL.num_active_params == SMALL.num_params
    assert SMALL.params_by_tower == {"text": SMALL.num_params}


def test_a_tied_embedding_counts_once() -> None:
    tied = define_model(
        name="Tied",
        num_layers=2,
        hidden_size=512,
        num_attention_heads=4,
        num_kv_heads=2,
        intermediate_size=1024,
        vocab_size=1000,
        tied_embeddings=True,
    )
    assert SMALL.num_params - tied.num_params == 1000 * 512


def test_active_parameters_leave_out_only_unread_routed_experts() -> None:
    model = moe()
    assert model.num_params - model.num_active_params == 2 * (8 - 2) * 3 * 512 * 256


def test_towers_are_counted_apart() -> None:
    vision = linear("vision", 100, 50, tower="vision")
    model = replace(SMALL, weights=(*SMALL.weights, *vision))
    assert model.params_by_tower == {"text": SMALL.num_params, "vision": 5000}


# ------------------------------------------------------------------------------------------------ weight bytes


@pytest.mark.parametrize(("dtype", "width"), [(None, 2), ("bf16", 2), ("fp16", 2), ("fp32", 4), ("float32", 4)])
def test_a_plain_dtype_applies_to_every_tensor(dtype: str | None, width: int) -> None:
    assert SMALL.weight_bytes(dtype) == SMALL.num_params * width


def test_a_quantized_dtype_leaves_embeddings_head_norms_and_biases_at_their_width() -> None:
    scales = 2 * 4 * (512 + 256 + 256 + 512 + 1024 + 1024 + 512)
    assert SMALL.weight_bytes("fp8_per_channel") == MATRICES + scales + (NORMS + EMBEDDINGS) * 2


def test_a_quantized_dtype_leaves_the_router_at_its_width() -> None:
    roles, plain = moe().weight_bytes_by_role("mxfp4"), moe().weight_bytes_by_role()
    assert roles["router"] == plain["router"] == 2 * 8 * 512 * 2
    assert roles["routed_experts"] == plain["routed_experts"] * 17 // 64  # 4.25 of 16 bits


def test_a_pinned_tensor_keeps_its_format() -> None:
    model = replace(SMALL, weights=(*SMALL.weights, *pinned_vector("recurrent_state", 100)))
    for dtype in (None, "bf16", "fp8", "fp32"):
        assert model.weight_bytes(dtype) - SMALL.weight_bytes(dtype) == 400


def test_a_published_format_stays_until_another_is_asked_for() -> None:
    mxfp4 = WEIGHT_FORMATS["mxfp4"]
    group = WeightGroup("routed_experts", 64, 64, 4, mxfp4)
    model = replace(SMALL, layers=(Layer(FullAttention(2, 128), (group,), 4),), weights=())
    assert model.weight_bytes() == 4 * mxfp4.matrix_bytes(64, 64)
    assert model.weight_bytes("bf16") == 4 * 64 * 64 * 2


def test_the_roles_add_up_to_the_weights() -> None:
    for dtype in (None, "fp8_block128", "nvfp4"):
        assert sum(moe().weight_bytes_by_role(dtype).values()) == moe().weight_bytes(dtype)


def test_a_model_that_states_no_dtype_is_refused_where_the_dtype_matters_and_only_there() -> None:
    unknown = replace(SMALL, dtype=None)
    with pytest.raises(InputError, match="does not state its dtype; choose weight_dtype bf16, fp16 or fp32"):
        unknown.weight_bytes()
    assert unknown.weight_bytes("bf16") == SMALL.weight_bytes()
    assert unknown.cache_bytes(100) == SMALL.cache_bytes(100)


def test_a_model_whose_published_storage_is_not_known_refuses_only_what_asks_for_it() -> None:
    unknown = replace(SMALL, storage_unknown="the width of its scales is not stated")
    with pytest.raises(
        InputError, match=r"is not known \(the width of its scales is not stated\); choose a weight dtype"
    ):
        unknown.weight_bytes()
    with pytest.raises(InputError, match="the width of its scales is not stated"):
        unknown.shards()
    for dtype in ("fp32", "bf16", "fp8_block128"):
        assert unknown.weight_bytes(dtype) == SMALL.weight_bytes(dtype)
    assert unknown.cache_bytes(100) == SMALL.cache_bytes(100)
    assert (SMALL.why_no_weight_bytes, unknown == SMALL) == ("", False)


def test_a_matrix_that_does_not_fit_a_format_is_named() -> None:
    assert SMALL.weight_bytes("q4_k") > 0
    with pytest.raises(DtypeError, match=r"attention output of 512 x 128: gguf_Q4_K stores blocks of 256 values"):
        SMALL.weight_bytes("q4_k", tensor_parallel=4)


# ----------------------------------------------------------------------------------------------- cache numbers


@pytest.mark.parametrize("bad", [-1, 1.5, "8", None, True, 2**41])
def test_an_absurd_context_or_batch_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="context_length is"):
        SMALL.cache_bytes(bad)
    with pytest.raises(InputError, match="batch_size is"):
        SMALL.cache_bytes(10, bad)


def test_nothing_is_held_for_nothing() -> None:
    assert SMALL.cache_bytes(0, 5) == SMALL.cache_bytes(5, 0) == 0


# ------------------------------------------------------------------------------------------- tensor parallelism


def test_matrices_divide_over_gpus_and_norms_are_copied() -> None:
    assert SMALL.weight_bytes(None, 2) == (MATRICES + EMBEDDINGS) + NORMS * 2


def test_more_gpus_than_kv_heads_copy_key_and_value_weights() -> None:
    kv = 2 * 2 * 256 * 512 * 2
    assert SMALL.weight_bytes(None, 4) == (2 * (MATRICES + EMBEDDINGS) - kv) // 4 + kv // 2 + NORMS * 2


def test_scales_are_those_of_the_divided_matrix() -> None:
    half = SMALL.weight_bytes_by_role("fp8_block128", 2)["mlp"]
    assert half == 2 * 3 * (512 * 512 + 4 * 4 * 4)


@pytest.mark.parametrize("gpus", [3, 8, 16])
def test_attention_heads_that_do_not_divide_are_refused(gpus: int) -> None:
    with pytest.raises(
        ParallelError, match=f"4 attention heads, which do not divide by tensor_parallel={gpus}; choose"
    ):
        SMALL.cache_bytes(1, 1, "bf16", gpus)


@pytest.mark.parametrize("gpus", [0, -1, 2.0, "2", 10**6, None, True, {}, [1], float("nan")], ids=repr)
def test_an_absurd_number_of_gpus_is_refused(gpus: Any) -> None:
    SMALL.cache_bytes(1)  # after which the same sum for one GPU, which equals True, is known
    for ask in (SMALL.weight_bytes, SMALL.cache_bytes_per_token):
        with pytest.raises(InputError, match="tensor_parallel is"):
            ask(tensor_parallel=gpus)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ParallelError, match="has 2 layers, too few for pipeline_parallel=3"):
        SMALL.shards(placement=Placement(1, 3))


# ------------------------------------------------------------------------------------------------------- shards


@pytest.mark.parametrize(
    ("layers", "stages", "expected"), [(7, 3, [2, 3, 2]), (8, 3, [3, 3, 2]), (9, 3, [3, 3, 3]), (5, 1, [5])]
)
def test_layers_that_do_not_divide_go_to_the_stages_before_the_last(
    layers: int, stages: int, expected: list[int]
) -> None:
    model = model_of([FullAttention(4, 64)] * layers)
    assert [len(stage.layers) for stage in model.stages(stages)] == expected


def test_the_embedding_stands_on_the_first_stage_and_the_head_on_the_last() -> None:
    first, last = SMALL.shards(placement=Placement(1, 2))
    each = (MATRICES // 2 + 2 * 512) * 2
    assert first.weight_bytes == each + 1000 * 512 * 2
    assert last.weight_bytes == each + 1000 * 512 * 2 + 512 * 2


def test_a_decode_step_reads_everything_but_the_embedding() -> None:
    (shard,) = SMALL.shards()
    assert shard.dense_read_bytes == SMALL.weight_bytes() - 1000 * 512 * 2
    assert shard.weight_read_bytes(1) == shard.dense_read_bytes


def test_a_tied_embedding_is_read_as_the_head() -> None:
    tied = model_of([FullAttention(4, 64)], tied=True)
    untied = model_of([FullAttention(4, 64)])
    assert tied.shards()[0].dense_read_bytes == untied.shards()[0].dense_read_bytes


@pytest.mark.parametrize(("batch", "share"), [(1, 2 / 8), (2, 1 - (6 / 8) ** 2), (10**6, 1.0)])
def test_a_batch_reads_more_experts_than_a_token(batch: int, share: float) -> None:
    (shard,) = moe().shards()
    experts = moe().weight_bytes_by_role()["routed_experts"]
    assert float(shard.weight_read_bytes(batch) - shard.dense_read_bytes) == pytest.approx(experts * share)


# ----------------------------------------------------------------------------------------------------- KV heads


def test_other_kv_heads_change_key_and_value_weights_too() -> None:
    wide = SMALL.with_kv_heads(4)
    assert wide.num_kv_heads == 4
    assert wide.num_params - SMALL.num_params == 2 * 2 * (2 * 128 * 512)
    assert wide.cache_bytes(10) == 2 * SMALL.cache_bytes(10)
    assert wide.with_kv_heads(2) == SMALL


def test_the_norm_over_all_keys_changes_with_the_heads() -> None:
    weights = attention(512, 4, 2, 128, qk_norm="full")
    layer = Layer(FullAttention(2, 128), weights, 4).with_kv_heads(4)
    assert sum(group.params for group in layer.weights) - sum(group.params for group in weights) == 2 * 128 * (
        2 * 512 + 1
    )


def test_layers_without_growing_keys_stay_as_they_are() -> None:
    image, shared = CrossAttention(4, 64, 10), SharedCache(0)
    changed = model_of([FullAttention(4, 64), image, shared, MAMBA]).with_kv_heads(8)
    assert [layer.cache for layer in changed.layers] == [FullAttention(8, 64), image, shared, MAMBA]


@pytest.mark.parametrize(
    ("heads", "reason"), [(3, "does not divide the 4"), (8, "does not divide the 4"), (0, "must be from 1")]
)
def test_kv_heads_that_do_not_divide_are_refused(heads: int, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SMALL.with_kv_heads(heads)


def test_a_latent_model_has_no_kv_heads_to_change() -> None:
    with pytest.raises(InputError, match="latent attention, which keeps no KV heads"):
        model_of([LatentAttention(512, 64)]).with_kv_heads(4)


# ------------------------------------------------------------------------------------------------- weight groups


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"role": "mlp2", "rows": 1, "columns": 1}, "weight role is 'mlp2'; one of embedding"),
        ({"role": "mlp", "rows": 0, "columns": 1}, "each must be at least 1"),
        ({"role": "mlp", "rows": 1, "columns": 1, "count": 0}, "each must be at least 1"),
        ({"role": "mlp", "rows": 1, "columns": 1, "count": 4, "active": 5}, "active at most the count"),
        ({"role": "mlp", "rows": 1, "columns": 1, "count": 4, "active": 0}, "each must be at least 1"),
        ({"role": "mlp", "rows": 6, "columns": 1, "split": "kv_heads"}, "kv_heads is None"),
        ({"role": "mlp", "rows": 6, "columns": 1, "split": "kv_heads", "kv_heads": 4}, "must divide the 6 rows"),
        ({"role": "mlp", "rows": 6, "columns": 1, "kv_heads": 2}, "exactly where split is kv_heads"),
    ],
)
def test_a_weight_group_that_cannot_be_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        WeightGroup(**settings)


def test_every_role_has_a_label_of_its_own() -> None:
    assert len({role.label for role in ROLES.values()}) == len(ROLES)


# ------------------------------------------------------------------------------------------------------ equality


def test_models_are_equal_when_their_numbers_are() -> None:
    assert replace(SMALL, name="Other", id="other", source="elsewhere", notes=("a note",)) == SMALL
    assert replace(SMALL, context_limit=5) != SMALL
    assert SMALL.with_kv_heads(4) != SMALL


def test_equal_layers_are_one_run() -> None:
    assert [count for _, count in LLAMA_8B.layer_runs] == [32]
    mixed = model_of([FullAttention(4, 64), FullAttention(4, 64), MAMBA, FullAttention(4, 64)])
    assert [count for _, count in mixed.layer_runs] == [2, 1, 1]
    assert norm(3)[0].params == 3


def test_the_numbers_of_kv_heads_run_from_mha_to_mqa_and_all_are_taken() -> None:
    assert LLAMA_8B.kv_head_choices == (32, 16, 8, 4, 2, 1)
    assert [LLAMA_8B.kv_head_kind(count) for count in (32, 8, 1)] == ["MHA", "GQA", "MQA"]
    assert [LLAMA_8B.with_kv_heads(count).num_kv_heads for count in LLAMA_8B.kv_head_choices] == [32, 16, 8, 4, 2, 1]


def test_a_model_without_one_number_of_kv_heads_has_none_to_choose() -> None:
    assert model_of([LatentAttention(512, 64)]).kv_head_choices == ()
    assert model_of([MAMBA]).kv_head_choices == ()
