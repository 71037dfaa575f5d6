"""Models of the user's own: sums by hand, and every setting used or refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.attention import FullAttention, LatentAttention, SlidingAttention
from kvplan.define import Experts, Latent, Recurrent, define_model
from kvplan.errors import InputError
from kvplan.model import Model

SIZES: dict[str, Any] = {
    "name": "Mine",
    "num_layers": 6,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_kv_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
LATENT = Latent(kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=24, q_lora_rank=48)


def define(**changes: Any) -> Model:
    """A small model with some settings changed; None takes one away."""
    settings = {**SIZES, **changes}
    return define_model(**{name: value for name, value in settings.items() if value is not None})


def test_a_defined_model_has_the_llama_layout() -> None:
    layer = 2 * 512 * 512 + 2 * 128 * 512 + 3 * 512 * 1024 + 2 * 512
    assert define().num_params == 6 * layer + 2 * 1000 * 512 + 512


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"attention_bias": True}, 6 * (512 + 128 + 128 + 512)),
        ({"mlp_bias": True}, 6 * (1024 + 1024 + 512)),
        ({"tied_embeddings": True}, -1000 * 512),
        ({"head_dim": 128}, 6 * 2 * (512 * 512 + 128 * 512)),
        ({"num_kv_heads": 8}, 6 * 2 * 384 * 512),
    ],
)
def test_a_setting_changes_the_parameters_by(changes: dict[str, Any], more: int) -> None:
    assert define(**changes).num_params - define().num_params == more


def test_windows_stand_everywhere_unless_some_layers_are_full() -> None:
    sliding, full = SlidingAttention(2, 64, window=100), FullAttention(2, 64)
    assert [layer.cache for layer in define(window=100).layers] == [sliding] * 6
    mixed = define(window=100, full_attention_every=3)
    assert [layer.cache for layer in mixed.layers] == [sliding, sliding, full] * 2


def test_latent_attention_has_its_projections() -> None:
    model = define(latent=LATENT, num_kv_heads=None)
    mixer = 48 * 512 + 48 + 8 * 48 * 48 + (64 + 16) * 512 + 64 + 8 * (32 + 24) * 64 + 512 * 8 * 24
    assert model.num_params == 6 * (mixer + 3 * 512 * 1024 + 2 * 512) + 2 * 1000 * 512 + 512
    assert all(layer.cache == LatentAttention(64, 16) for layer in model.layers)


def test_latent_queries_may_be_projected_directly() -> None:
    direct, down = (
        define(latent=LATENT._replace(q_lora_rank=None), num_kv_heads=None),
        define(latent=LATENT, num_kv_heads=None),
    )
    assert direct.num_params - down.num_params == 6 * (8 * 48 * 512 - (48 * 512 + 48 + 8 * 48 * 48))


def test_experts_stand_in_every_layer() -> None:
    model = define(experts=Experts(8, 2, 256, 1), intermediate_size=None)
    behind = 8 * 512 + 8 * 3 * 512 * 256 + 3 * 512 * 256
    assert model.num_params == define().num_params + 6 * (behind - 3 * 512 * 1024)
    assert model.num_params - model.num_active_params == 6 * 6 * 3 * 512 * 256


def test_dense_layers_may_come_before_those_with_experts() -> None:
    experts = Experts(8, 2, 256, 1)
    everywhere, later = (
        define(experts=experts, intermediate_size=None),
        define(experts=experts._replace(num_dense_layers=2)),
    )
    behind = 8 * 512 + 8 * 3 * 512 * 256 + 3 * 512 * 256
    assert later.num_params == everywhere.num_params + 2 * (3 * 512 * 1024 - behind)
    assert [layer.num_experts for layer in later.layers] == [0, 0, 8, 8, 8, 8]


def test_experts_may_stand_in_every_nth_layer() -> None:
    model = define(experts=Experts(8, 2, 256, 0, 2, every=3))
    assert [layer.num_experts for layer in model.layers] == [0, 0, 8, 0, 0, 8]
    assert sum(layer.num_experts > 0 for layer in define(experts=Experts(8, 2, 256, 0, 4, every=3)).layers) == 1


def test_recurrent_layers_have_a_state_and_its_projections() -> None:
    state = Recurrent(num_heads=16, head_dim=32, state_size=64, num_groups=2, conv_width=4)
    model = define(recurrent=state)
    inner, channels = 16 * 32, 16 * 32 + 2 * 2 * 64
    mixer = (inner + channels + 16) * 512 + channels * (4 + 1) + 3 * 16 + inner + 512 * inner
    assert model.num_params == 6 * (mixer + 3 * 512 * 1024 + 2 * 512) + 2 * 1000 * 512 + 512
    assert model.cache_bytes(1) == model.cache_bytes(9999) == 6 * (16 * 32 * 64 * 4 + channels * 4 * 2)


def test_attention_may_stand_in_every_nth_layer_between_recurrent_ones() -> None:
    state = Recurrent(16, 32, 64, attention_every=3)
    model = define(recurrent=state, window=10, full_attention_every=2)
    assert [layer.cache.kind for layer in model.layers] == [
        "recurrent", "recurrent", "sliding", "recurrent", "recurrent", "full",
    ]  # fmt: skip
    assert [layer.num_attention_heads for layer in model.layers] == [None, None, 8] * 2


def test_a_count_alone_makes_an_estimate_and_says_so() -> None:
    model = define(num_params=7_000_000_003, intermediate_size=None, vocab_size=None)
    assert model.num_params == 7_000_000_003
    assert model.is_estimate
    assert "estimate" in model.notes[0]
    assert not define().is_estimate


# ----------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "name", ["num_layers", "hidden_size", "num_attention_heads", "num_kv_heads", "intermediate_size", "vocab_size"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", 2**41, True])
def test_an_absurd_size_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is .*; (it must be from|a whole number is needed)"):
        define(**{name: value})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_kv_heads": None}, "num_kv_heads is missing; give 8 for MHA, 1 for MQA, or a divisor of 8 for GQA"),
        ({"num_kv_heads": 3}, "num_kv_heads is 3, which does not divide num_attention_heads 8"),
        ({"num_kv_heads": 16}, "num_kv_heads is 16, which does not divide num_attention_heads 8"),
        ({"hidden_size": 500}, "hidden_size 500 is not a multiple of num_attention_heads 8; give head_dim"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"full_attention_every": 2}, "without a window"),
        ({"window": 0}, "window is 0"),
        ({"window": 10, "full_attention_every": 0}, "full_attention_every is 0"),
        ({"window": 10, "latent": LATENT}, "window and latent are both given"),
        ({"num_params": 10**9}, "num_params and intermediate_size are both given"),
        (
            {"num_params": 10**9, "intermediate_size": None, "vocab_size": None, "mlp_bias": True},
            "num_params and mlp_bias",
        ),
        ({"experts": Experts(8, 2, 256)}, "intermediate_size and experts are both given.* num_dense_layers"),
        ({"experts": Experts(8, 2, 256, 0, 6)}, "num_dense_layers is 6; it must be from 0 to 5"),
        ({"experts": Experts(8, 2, 256, 0, 1), "intermediate_size": None}, "intermediate_size is missing"),
        ({"experts": Experts(8, 2, 256), "intermediate_size": None, "mlp_bias": True}, "mlp_bias and experts"),
        (
            {"experts": Experts(8, 9, 256), "intermediate_size": None},
            "num_experts_per_token is 9; it must be from 1 to 8",
        ),
        ({"experts": Experts(8, 2, 256, 0, 0, 7)}, "experts_every is 7; it must be from 1 to 6"),
        ({"experts": Experts(8, 2, 256, 0, 5, 4)}, "of 6 layers none would have experts"),
        ({"recurrent": Recurrent(0, 1, 1)}, "state_heads is 0"),
        ({"recurrent": Recurrent(8, 1, 1, 3)}, "state_groups is 3, which does not divide state_heads 8"),
        ({"recurrent": Recurrent(8, 1, 1, attention_every=0)}, "attention_every is 0"),
        ({"latent": LATENT, "attention_bias": True}, "attention_bias and latent are both given"),
        ({"latent": LATENT._replace(v_head_dim=0)}, "latent v_head_dim is 0"),
        ({"latent": LATENT._replace(qk_nope_head_dim="x")}, "latent qk_nope_head_dim is 'x'"),
        ({"dtype": "fp8"}, "dtype is fp8_per_tensor; give fp32, bf16 or fp16 here"),
        ({"dtype": "bf17"}, "no weight dtype is called 'bf17'"),
        ({"name": "<b>"}, "model name is '<b>'"),
        ({"context_limit": -5}, "context_limit is -5"),
    ],
)
def test_a_model_that_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        define(**changes)


@pytest.mark.parametrize("flag", ["tied_embeddings", "attention_bias", "mlp_bias"])
def test_a_flag_that_is_neither_true_nor_false_is_refused(flag: str) -> None:
    with pytest.raises(InputError, match=f"{flag} is 'no'; True or False is needed"):
        define_model(
            name="X", num_layers=1, hidden_size=64, num_attention_heads=4, num_kv_heads=4, intermediate_size=64,
            vocab_size=10, **{flag: "no"},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [("experts", {"num_experts": 8}), ("latent", (1, 2, 3, 4)), ("recurrent", (1, 2, 3))]
)
def test_experts_and_latents_of_another_kind_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"a kvplan.{name.title()} is needed"):
        define_model(
            name="X", num_layers=1, hidden_size=64, num_attention_heads=4, num_kv_heads=4, intermediate_size=64,
            vocab_size=10, **{name: value},
        )  # fmt: skip
