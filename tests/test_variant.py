"""A model made from another: nothing changes but what a size names, by hand, by the importer and for every preset."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention import FullAttention, LatentAttention, RecurrentState, SlidingAttention
from kvplan.define import Experts, Latent, Recurrent, define_model
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import InputError, KvplanError
from kvplan.importer import import_config
from kvplan.model import Layer, Model
from kvplan.presets import dump_toml, list_models, load_model, model_from_table, model_to_table, parse_toml
from kvplan.sizes import STATE_SIZES, kept_parts, mamba_of, sizes_of, varying
from kvplan.variant import SIZE_WORDS, order_of, variant, with_num_params
from tests.make_model_presets import companion_of, config_of, read_rows

CONFIGS = Path(__file__).parent / "data" / "configs"
CONTEXTS = (1, 100, 5_000, 200_000)


def params_by_role(model: Model) -> Counter[str]:
    sums: Counter[str] = Counter()
    for group, count in model.all_groups:
        sums[group.role] += count * group.params
    return sums


def changed_roles(before: Model, after: Model) -> dict[str, int]:
    """Parameters that each role has more, of the roles that differ."""
    then, now = params_by_role(before), params_by_role(after)
    return {role: now[role] - then[role] for role in then | now if now[role] != then[role]}


def cache_by_layer(model: Model, tokens: int) -> list[int]:
    return [replace(model, layers=(layer,)).cache_bytes(tokens) for layer in model.layers]


# ---------------------------------------------------------------------------------------------------------- nothing


@pytest.mark.parametrize("name", list_models())
def test_a_preset_of_which_nothing_is_changed_keeps_every_number(name: str) -> None:
    preset = load_model(name)
    made = variant(preset, sizes_of(preset), "Mine")
    assert made == preset
    assert params_by_role(made) == params_by_role(preset)
    assert [made.cache_bytes(tokens) for tokens in CONTEXTS] == [preset.cache_bytes(tokens) for tokens in CONTEXTS]
    assert made.name == "Mine"
    assert made.notes == preset.notes


def other_value(name: str, value: Any, model: Model) -> Any:
    """Another value that a size of a model can have, or None where there is none."""
    if name == "tied_embeddings":
        return not value
    if value is None or (name == "num_layers" and any(layer.cache.kind == "shared" for layer in model.layers)):
        return None
    if name == "num_layers":
        return value + order_of(model.layers).period
    if name == "num_kv_heads":
        return 1 if value > 1 else None
    if name == "state_groups":
        return value // 2 or None
    if name == "num_experts_per_token":
        return value - 1 if value > 1 else value + 1
    return value * 2


@pytest.mark.parametrize("name", list_models())
def test_every_size_that_is_shown_can_be_changed_alone_and_back(name: str) -> None:
    preset = load_model(name)
    sizes = sizes_of(preset)
    for size, value in sizes.items():
        other = other_value(size, value, preset)
        if other is not None:
            there = variant(preset, {size: other})
            assert sizes_of(there) == {**sizes, size: other}, size
            back = variant(there, {size: value})
            assert params_by_role(back) == params_by_role(preset), size
            assert back.cache_curve() == preset.cache_curve(), size


# ---------------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("size", "value", "more"),
    [
        ("num_kv_heads", 4, {"attention_k": -32 * 4 * 128 * 4096, "attention_v": -32 * 4 * 128 * 4096}),
        ("intermediate_size", 14337, {"mlp": 32 * 3 * 4096}),
        ("vocab_size", 128257, {"embedding": 4096, "lm_head": 4096}),
        ("tied_embeddings", True, {"lm_head": -128256 * 4096}),
        ("context_limit", 1024, {}),
        ("num_attention_heads", 40, {"attention_q": 32 * 8 * 128 * 4096, "attention_o": 32 * 8 * 128 * 4096}),
        (
            "head_dim", 64,
            {"attention_q": -32 * 32 * 64 * 4096, "attention_k": -32 * 8 * 64 * 4096,
             "attention_v": -32 * 8 * 64 * 4096, "attention_o": -32 * 32 * 64 * 4096},
        ),
        (
            "hidden_size", 4097,
            {"attention_q": 32 * 4096, "attention_k": 32 * 1024, "attention_v": 32 * 1024, "attention_o": 32 * 4096,
             "mlp": 32 * 3 * 14336, "norm": 32 * 2, "final_norm": 1, "embedding": 128256, "lm_head": 128256},
        ),
        (
            "num_layers", 33,
            {"attention_q": 4096 * 4096, "attention_k": 1024 * 4096, "attention_v": 1024 * 4096,
             "attention_o": 4096 * 4096, "mlp": 3 * 14336 * 4096, "norm": 2 * 4096},
        ),
    ],
)  # fmt: skip
def test_a_size_of_llama_changes_the_parameters_by(size: str, value: Any, more: dict[str, int]) -> None:
    preset = load_model("llama-3.1-8b")
    assert changed_roles(preset, variant(preset, {size: value})) == more


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-next-80b-a3b", "nemotron-h-8b", "gemma-3-27b", "jamba-v0.1"])
def test_half_the_kv_heads_halve_the_cache_of_attention_layers_alone(name: str) -> None:
    preset = load_model(name)
    made = variant(preset, {"num_kv_heads": (preset.num_kv_heads or 0) // 2})
    for layer, before, after in zip(
        preset.layers, cache_by_layer(preset, 5000), cache_by_layer(made, 5000), strict=True
    ):
        assert after == (before // 2 if layer.cache.kv_heads() else before)
    assert set(changed_roles(preset, made)) == {"attention_k", "attention_v"}


def test_keys_kept_for_every_query_head_follow_the_query_heads() -> None:
    half = variant(load_model("falcon-40b"), {"num_attention_heads": 64})
    assert half.cache_bytes(1000) == 2 * 60 * 64 * 64 * 1000 * 2


def test_a_short_convolution_is_as_wide_as_the_hidden_state() -> None:
    before, after = load_model("lfm2.5-vl-1.6b"), variant(load_model("lfm2.5-vl-1.6b"), {"hidden_size": 1024})
    roles = changed_roles(before, after)
    assert roles["convolution"] == 10 * 4 * (1024**2 - 2048**2)  # three projections in, one out
    assert roles["recurrent_state"] == 10 * 3 * (1024 - 2048)
    assert before.cache_curve().fixed_bytes - after.cache_curve().fixed_bytes == 10 * 3 * 1024 * 2


def test_norms_of_queries_and_keys_follow_the_head_dimension() -> None:
    preset = load_model("qwen3-8b")
    made = variant(preset, {"head_dim": 64})
    assert changed_roles(preset, made)["norm"] == -36 * 2 * 64
    assert made.cache_bytes(1000) * 2 == preset.cache_bytes(1000)


def test_a_window_changes_window_layers_alone() -> None:
    preset = load_model("gemma-3-27b")
    made = variant(preset, {"window": 2048})
    assert changed_roles(preset, made) == {}
    row = 2 * 16 * 128 * 2
    assert made.cache_bytes(5000) - preset.cache_bytes(5000) == 52 * 1024 * row


def test_another_pattern_of_windows_moves_whole_layers() -> None:
    preset = load_model("gemma-3-27b")  # 62 layers, every 6th full
    made = variant(preset, {"full_attention_every": 2})
    assert [layer.cache.kind for layer in made.layers] == ["sliding", "full"] * 31
    assert changed_roles(preset, made) == {}
    assert made.cache_bytes(5000) == (31 * 5000 + 31 * 1024) * 2 * 16 * 128 * 2


def test_layers_of_two_shapes_swap_with_their_projections() -> None:
    preset = load_model("gemma-4-26b-a4b")  # windows keep 8 heads of 256, full layers 2 of 512 and no values
    made = variant(preset, {"full_attention_every": 3})
    assert [layer.cache for layer in made.layers[:3]] == [preset.layers[0].cache] * 2 + [preset.layers[5].cache]
    full = next(layer for layer in preset.layers if layer.cache.kind == "full")
    assert sorted(map(repr, made.layers[2].weights)) == sorted(map(repr, full.weights))


def test_a_window_is_taken_away_or_given() -> None:
    gemma, llama = load_model("gemma-3-27b"), load_model("llama-3.1-8b")
    everywhere = variant(gemma, {"window": None, "full_attention_every": None})
    assert {layer.cache for layer in everywhere.layers} == {FullAttention(16, 128)}
    given = variant(llama, {"window": 512, "full_attention_every": 4})
    windows = [SlidingAttention(8, 128, window=512)] * 3
    assert [layer.cache for layer in given.layers] == [*windows, FullAttention(8, 128)] * 8
    assert changed_roles(llama, given) == {}


def test_more_layers_follow_the_order_of_the_preset() -> None:
    trinity = load_model("trinity-nano")  # two dense layers first; every 4th layer full
    made = variant(trinity, {"num_layers": 60})
    assert made.layers[:56] == trinity.layers
    assert made.layers[56:] == trinity.layers[52:]
    assert variant(trinity, {"num_layers": 10}).layers == trinity.layers[:10]


def test_a_layer_of_its_own_kind_stays_at_the_end() -> None:
    preset = load_model("llama-3.1-405b-fp8")  # the first and the last layer are not quantized
    made = variant(preset, {"num_layers": 4})
    assert made.layers == (preset.layers[0], preset.layers[1], preset.layers[1], preset.layers[-1])


@pytest.mark.parametrize(
    "kinds",
    [
        {"window": 64, "full_attention_every": 3},
        {"recurrent": Recurrent(4, 16, 8, attention_every=3)},
        {"experts": Experts(4, 2, 24, every=3)},
    ],
)
def test_more_layers_keep_every_third_of_its_kind_where_four_show_no_order(kinds: dict[str, Any]) -> None:
    shape: dict[str, Any] = {
        "name": "x", "hidden_size": 64, "num_attention_heads": 4, "num_kv_heads": 2, "intermediate_size": 100,
        "vocab_size": 100,
    }  # fmt: skip
    four, eight = (define_model(num_layers=count, **shape, **kinds) for count in (4, 8))
    made = variant(four, {"num_layers": 8})
    assert changed_roles(eight, made) == {}
    assert cache_by_layer(made, 500) == cache_by_layer(eight, 500)


@pytest.mark.parametrize(("size", "key"), [("num_kv_heads", "num_key_value_heads"), ("head_dim", "attention_head_dim")])
def test_layers_that_share_their_projections_keep_as_much_as_the_first(size: str, key: str) -> None:
    config = config_of({"config": "Zyphra__Zamba-7B-v1@tfdefault"})
    base = import_config(config, measure="never")
    half = sizes_of(base)[size] // 2
    imported = import_config({**config, key: half}, measure="never")
    made = variant(base, {size: half})
    assert changed_roles(imported, made) == {}
    assert made.cache_curve() == imported.cache_curve()


def test_layers_without_an_order_are_repeated_as_a_whole_or_not_at_all() -> None:
    preset = load_model("nemotron-3-nano-30b-a3b")
    assert variant(preset, {"num_layers": 104}).layers == preset.layers * 2
    with pytest.raises(InputError, match=r"num_layers is 53; .* follow no order that repeats, so 52 or a multiple"):
        variant(preset, {"num_layers": 53})


def test_experts_change_by_number_width_and_reading() -> None:
    preset = load_model("qwen3-30b-a3b")  # 48 layers, 128 experts of 768, 8 a token, hidden 2048
    one = 48 * 3 * 768 * 2048
    more = variant(preset, {"num_experts": 130})
    assert changed_roles(preset, more) == {"routed_experts": 2 * one, "router": 48 * 2 * 2048}
    assert more.num_active_params - preset.num_active_params == 48 * 2 * 2048
    wider = variant(preset, {"expert_intermediate_size": 769})
    assert changed_roles(preset, wider) == {"routed_experts": 48 * 128 * 3 * 2048}
    fewer = variant(preset, {"num_experts_per_token": 7})
    assert preset.num_active_params - fewer.num_active_params == one
    assert fewer.num_params == preset.num_params
    shared = variant(preset, {"num_shared_experts": 1})
    assert changed_roles(preset, shared) == {"shared_experts": one}


def test_dense_layers_come_first_or_between() -> None:
    preset = load_model("deepseek-v3")  # 3 dense layers of 18432, then 58 with 256 experts of 2048 and a shared one
    mlp, moe = 3 * 7168 * 18432, 256 * 3 * 7168 * 2048
    first = variant(preset, {"num_dense_layers": 5})
    assert changed_roles(preset, first) == {
        "mlp": 2 * mlp, "routed_experts": -2 * moe, "router": -2 * 256 * 7168, "shared_experts": -2 * 3 * 7168 * 2048,
    }  # fmt: skip
    maverick = load_model("llama-4-maverick")  # experts in every 2nd of 48 layers
    assert sizes_of(maverick)["experts_every"] == 2
    third = variant(maverick, {"experts_every": 3})
    assert [bool(layer.num_experts) for layer in third.layers] == [False, False, True] * 16
    assert changed_roles(maverick, third)["mlp"] == 8 * 3 * 5120 * 16384


def test_a_dense_model_gets_experts_and_a_mixture_loses_them() -> None:
    llama = load_model("llama-3.1-8b")
    sizes = {"num_experts": 4, "num_experts_per_token": 2, "expert_intermediate_size": 1000, "experts_every": 2}
    made = variant(llama, sizes)
    assert changed_roles(llama, made) == {
        "mlp": -16 * 3 * 4096 * 14336, "routed_experts": 16 * 4 * 3 * 4096 * 1000, "router": 16 * 4 * 4096,
    }  # fmt: skip
    mixtral = load_model("mixtral-8x7b")
    none = dict.fromkeys(("num_experts", "num_experts_per_token", "expert_intermediate_size"))
    dense = variant(mixtral, {**none, "intermediate_size": 14336})
    assert changed_roles(mixtral, dense) == {
        "mlp": 32 * 3 * 4096 * 14336, "routed_experts": -8 * 32 * 3 * 4096 * 14336, "router": -32 * 8 * 4096,
    }  # fmt: skip


def test_latent_ranks_change_the_projections_and_the_cache() -> None:
    preset = load_model("deepseek-v3")
    made = variant(preset, {"kv_lora_rank": 256})
    down, norm, up = 256 * 7168, 256, 128 * (128 + 128) * 256
    assert changed_roles(preset, made) == {"attention_latent": -61 * (down + up), "norm": -61 * norm}
    assert preset.cache_bytes(1000) - made.cache_bytes(1000) == 61 * 1000 * 256 * 2


def test_queries_have_a_latent_as_wide_as_the_hidden_state_or_none() -> None:
    preset = load_model("deepseek-v3")
    wide = variant(preset, {"q_lora_rank": 7168})
    assert sizes_of(wide)["q_lora_rank"] == 7168
    assert variant(wide, {"q_lora_rank": 1536}) == preset
    assert sizes_of(variant(preset, {"q_lora_rank": None}))["q_lora_rank"] is None


def test_what_leads_from_one_residual_stream_to_another_has_two_sides_of_the_hidden_size() -> None:
    config = config_of({"config": "google__gemma-3n-E4B@tfdefault"})
    wide = {**config, "text_config": {**config["text_config"], "hidden_size": 4096}}
    made = variant(import_config(config, measure="never"), {"hidden_size": 4096})
    assert changed_roles(import_config(wide, measure="never"), made) == {}


def test_keys_and_values_take_the_place_of_latents_and_the_other_way() -> None:
    deepseek, llama = load_model("deepseek-v3"), load_model("llama-3.1-8b")
    plain = variant(deepseek, {**dict.fromkeys(Latent._fields), "num_kv_heads": 8, "head_dim": 128})
    assert {layer.cache for layer in plain.layers} == {FullAttention(8, 128)}
    assert params_by_role(plain)["attention_k"] == 61 * 8 * 128 * 7168
    latent = variant(llama, Latent(64, 16, 32, 24)._asdict())
    assert {layer.cache for layer in latent.layers} == {LatentAttention(64, 16)}
    assert params_by_role(latent)["attention_latent"] == 32 * ((64 + 16) * 4096 + 32 * (32 + 24) * 64)


# ------------------------------------------------------------------------------------------------- outside truth

SIZES = {
    "name": "Mine", "num_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "num_kv_heads": 4, "head_dim": 64,
    "intermediate_size": 1024, "vocab_size": 1000,
}  # fmt: skip
EXPERTS = Experts(8, 2, 256, 1, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 5}, {"hidden_size": 640}, {"num_attention_heads": 16}, {"num_kv_heads": 2}, {"head_dim": 32},
        {"intermediate_size": 999}, {"vocab_size": 7}, {"tied_embeddings": True}, {"window": 64},
        {"window": 64, "full_attention_every": 3}, {"num_layers": 9, "hidden_size": 768, "num_attention_heads": 12},
    ],
)  # fmt: skip
def test_a_change_gives_what_defining_with_that_size_gives(changes: dict[str, Any]) -> None:
    assert variant(define_model(**SIZES), changes) == define_model(**{**SIZES, **changes})


STATE = Recurrent(16, 32, 64, 4, 4, 4)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"state_heads": 8}, STATE._replace(num_heads=8)),
        ({"state_head_dim": 64}, STATE._replace(head_dim=64)),
        ({"state_size": 16}, STATE._replace(state_size=16)),
        ({"state_groups": 1}, STATE._replace(num_groups=1)),
        ({"conv_width": 3}, STATE._replace(conv_width=3)),
        ({"attention_every": 2}, STATE._replace(attention_every=2)),
        ({"attention_every": None}, STATE._replace(attention_every=None)),
    ],
)
def test_a_change_of_recurrent_layers_gives_what_defining_with_it_gives(
    changes: dict[str, Any], state: Recurrent
) -> None:
    made, defined = variant(define_model(**SIZES, recurrent=STATE), changes), define_model(**SIZES, recurrent=state)
    assert params_by_role(made) == params_by_role(defined)
    assert [layer.cache for layer in made.layers] == [layer.cache for layer in defined.layers]


def test_recurrent_layers_take_the_place_of_attention() -> None:
    sizes = dict(zip(STATE_SIZES, STATE, strict=False))
    made = variant(define_model(**SIZES), {**sizes, "attention_every": 4})
    assert params_by_role(made) == params_by_role(define_model(**SIZES, recurrent=STATE))
    assert [layer.cache.kind for layer in made.layers] == ["recurrent", "recurrent", "recurrent", "full"] * 2


def test_a_wider_state_changes_the_state_and_its_projections_alone() -> None:
    preset = load_model("mamba2-2.7b")  # 64 layers, 80 heads of 64, state 128, one group, fp16
    made = variant(preset, {"state_size": 256})
    more = 2 * 128  # channels: one group, an input and an output of the state each
    assert changed_roles(preset, made) == {"recurrent": 64 * more * 2560, "recurrent_state": 64 * more * 5}
    assert made.cache_bytes(1) - preset.cache_bytes(1) == 64 * (80 * 64 * 128 * 4 + more * 4 * 2)


@pytest.mark.parametrize(
    ("changes", "experts"),
    [
        ({"num_experts": 16}, EXPERTS._replace(num_experts=16)),
        ({"num_experts_per_token": 4}, EXPERTS._replace(num_experts_per_token=4)),
        ({"expert_intermediate_size": 100}, EXPERTS._replace(intermediate_size=100)),
        ({"num_shared_experts": 3}, EXPERTS._replace(num_shared_experts=3)),
        ({"num_dense_layers": 4}, EXPERTS._replace(num_dense_layers=4)),
        ({"num_dense_layers": None, "experts_every": 2}, EXPERTS._replace(num_dense_layers=0, every=2)),
    ],
)
def test_a_change_of_experts_gives_what_defining_with_them_gives(changes: dict[str, Any], experts: Experts) -> None:
    made = variant(define_model(**SIZES, experts=EXPERTS), changes)
    defined = define_model(**SIZES, experts=experts)
    assert params_by_role(made) == params_by_role(defined)
    assert [layer.num_experts for layer in made.layers] == [layer.num_experts for layer in defined.layers]
    assert made.num_active_params == defined.num_active_params


KEYS = {
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "num_attention_heads": ("num_attention_heads",),
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate_size": ("intermediate_size", "ffn_dim"),
    "vocab_size": ("vocab_size",),
    "window": ("sliding_window",),
    "num_experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "num_experts_per_token": ("num_experts_per_tok",),
    "expert_intermediate_size": ("moe_intermediate_size",),
    "num_shared_experts": ("n_shared_experts",),
    "num_dense_layers": ("first_k_dense_replace",),
    "experts_every": ("interleave_moe_layer_step", "expert_layer_period"),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "q_lora_rank": ("q_lora_rank",),
    "state_heads": ("mamba_num_heads", "linear_num_value_heads"),
    "state_head_dim": ("mamba_head_dim", "linear_value_head_dim"),
    "state_size": ("ssm_state_size", "linear_key_head_dim"),
    "state_groups": ("n_groups", "linear_num_key_heads"),
    "conv_width": ("conv_kernel", "linear_conv_kernel_dim"),
    "attention_every": ("full_attention_interval",),
}
"""The keys of a config.json under which a size stands."""

OTHERWISE = {
    ("num_layers", "llama-3.2"): "a list says which layers attend to images",
    ("num_layers", "deepseek-v4"): "a list says what each layer compresses",
    ("num_kv_heads", "llama-3.2"): "the key counts for attention to images too, which the form keeps",
    ("expert_intermediate_size", "qwen3"): "shared experts have a width of their own there",
    ("expert_intermediate_size", "nemotron-3"): "shared experts have a width of their own there",
    ("expert_intermediate_size", "minimax-m3"): "the key is not the one that counts",
    ("num_dense_layers", "minimax-m3"): "a list of layers says which are dense",
    ("num_dense_layers", "glm-5"): "a list of layers says which are dense",
    ("intermediate_size", "jamba"): "one key for MLPs and experts",
    ("hidden_size", "minicpm3"): "the value width follows from it",
    ("num_attention_heads", "minicpm3"): "the value width follows from it",
}
"""Where another value under the key means more than another size: (size, beginning of the preset's id)."""

ROWS = read_rows("model_presets.jsonl")


def altered(row: dict[str, Any], size: str, base: Model) -> Iterator[tuple[Any, Model]]:
    """(the other value, what the importer makes of the config with it) where the config holds the size plainly."""
    value, config = sizes_of(base)[size], copy.deepcopy(config_of(row))
    other = other_value(size, value, base)
    tables = [config.get("text_config"), config.get("llm_config"), config]
    held = [(t, key) for t in tables if isinstance(t, dict) for key in KEYS[size] if key in t]
    if other is None or not held or held[0][0][held[0][1]] != value:
        return
    table, key = held[0]
    follows = size in ("hidden_size", "num_attention_heads") and sizes_of(base)["head_dim"]
    if (follows and "head_dim" not in table) or (size in ("num_layers", "attention_every") and "layer_types" in table):
        return
    table[key] = other
    try:
        yield other, import_config(config, companion_of(row), name="x", dtype=row.get("dtype"), measure="never")
    except KvplanError:  # the config contradicts itself now
        return


@pytest.mark.parametrize("size", KEYS)
def test_a_change_gives_what_the_importer_makes_of_the_changed_config(size: str) -> None:
    compared = 0
    for row in ROWS:
        if any(name == size and row["id"].startswith(start) for name, start in OTHERWISE):
            continue
        base = load_model(row["id"])
        for other, imported in altered(row, size, base):
            made = variant(base, {size: other})
            different = {
                role: more
                for role, more in changed_roles(imported, made).items()
                if not (role == "projector" and size == "hidden_size")  # carried over, as the page says
                and not (role == "per_layer_embedding" and size == "vocab_size")
            }
            assert different == {}, row["id"]
            assert made.cache_curve() == imported.cache_curve(), row["id"]
            compared += 1
    assert compared >= LEAST.get(size, 12)


LEAST = {
    "num_layers": 60, "num_kv_heads": 100, "intermediate_size": 120, "vocab_size": 150, "experts_every": 2,
    "attention_every": 1,
}  # fmt: skip
"""How many configs are compared at the least for a size."""


JAMBA = next(row for row in ROWS if row["id"] == "jamba-v0.1")


@pytest.mark.parametrize(("hidden", "heads"), [(8192, 64), (2048, 16), (4224, 33)])
def test_the_channels_of_a_mamba_layer_are_a_multiple_of_the_hidden_size(hidden: int, heads: int) -> None:
    config = {**config_of(JAMBA), "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": 1}
    imported = import_config(config, measure="never")
    changes = {"hidden_size": hidden, "num_attention_heads": heads, "num_kv_heads": 1}
    made = variant(load_model("jamba-v0.1"), changes)
    assert changed_roles(imported, made) == {}
    assert made.cache_curve() == imported.cache_curve()
    channels = 2 * hidden  # the config's mamba_expand
    assert made.cache_curve().fixed_bytes == 28 * channels * (16 * 4 + 4 * 2)  # a state in fp32, 4 inputs in bf16


def test_beside_shared_attention_mamba_follows_the_hidden_size_too() -> None:
    config = json.loads((CONFIGS / "Zyphra__Zamba-7B-v1@tfdefault.json").read_text(encoding="utf-8"))
    preset = import_config(config, dtype="bf16", measure="never")
    made = variant(preset, {"hidden_size": 2 * 3712})
    assert made.cache_curve().fixed_bytes == 2 * preset.cache_curve().fixed_bytes == 76 * 4 * 3712 * (16 * 4 + 4 * 2)
    assert kept_parts(made) == ("76 layers of recurrent state, 2 times as wide as the hidden size",)


def test_what_stays_of_a_mamba_layer_says_that_its_width_does_not() -> None:
    preset = load_model("jamba-v0.1")
    assert kept_parts(preset) == ("28 layers of recurrent state, 2 times as wide as the hidden size",)
    assert kept_parts(variant(preset, {"hidden_size": 8192})) == kept_parts(preset)


@pytest.mark.parametrize("name", ["mamba2-130m", "falcon-h1-0.5b", "nemotron-h-8b", "qwen3-next-80b-a3b"])
def test_the_channels_of_other_recurrent_layers_are_what_their_own_sizes_make(name: str) -> None:
    preset = load_model(name)
    made = variant(preset, {"hidden_size": 2 * preset.hidden_size})
    assert {layer.cache for layer in made.layers} == {layer.cache for layer in preset.layers}
    assert sizes_of(made)["state_heads"] == sizes_of(preset)["state_heads"]
    assert not any(mamba_of(layer) for layer in preset.layers)


def test_channels_that_would_not_be_whole_are_refused() -> None:
    cache = RecurrentState(6, 4, WEIGHT_FORMATS["fp32"], 6, 4, WEIGHT_FORMATS["bf16"])
    odd = replace(load_model("mamba2-130m"), layers=(Layer(cache, ()),), hidden_size=4)
    assert mamba_of(odd.layers[0]) == cache
    with pytest.raises(InputError, match=r"^hidden_size is 5; 3/2 times as many channels of a recurrent layer is not"):
        variant(odd, {"hidden_size": 5})


# -------------------------------------------------------------------------------------------------------- the rest


def test_a_changed_model_says_from_what_it_was_made_and_what_changed() -> None:
    preset = load_model("llama-3.1-8b")
    made = variant(preset, {"num_kv_heads": 4, "tied_embeddings": True}, "Mine")
    told = "Made from Llama 3.1 8B; changed: KV heads 8 to 4, tied embedding and head no to yes."
    assert made.notes[0] == told
    assert made.source.startswith("defined by the user from Llama 3.1 8B; https://")
    assert (made.id, preset.id) == ("", "llama-3.1-8b")


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "qwen3.6-27b-nvfp4"])
def test_what_is_quantized_stays_so(name: str) -> None:
    preset = load_model(name)
    made = variant(preset, {"vocab_size": (preset.vocab_size or 0) + 1024})
    bytes_of = preset.weight_bytes_by_role()
    others = {role: size for role, size in made.weight_bytes_by_role().items() if role not in ("embedding", "lm_head")}
    assert others == {role: size for role, size in bytes_of.items() if role not in ("embedding", "lm_head")}


@pytest.mark.parametrize("name", ["gemma-3-27b", "nemotron-h-8b", "deepseek-v4-flash", "llama-3.2-11b-vision"])
def test_a_changed_preset_is_written_and_read_again(name: str) -> None:
    made = variant(load_model(name), {"hidden_size": 8192, "vocab_size": 1024}, "Mine")
    text = dump_toml(model_to_table(made))
    assert model_from_table(parse_toml(text.encode(), "mine.toml"), "mine.toml") == made


def test_a_number_for_layers_that_differ_is_for_all_of_them() -> None:
    preset = load_model("gemma-4-26b-a4b")
    assert varying(preset)["num_kv_heads"] == (8, 2)
    assert {layer.cache.kv_heads() for layer in variant(preset, {"num_kv_heads": 4}).layers} == {4}
    assert variant(preset, {"num_kv_heads": None, "window": 2048}).num_kv_heads is None


@pytest.mark.parametrize("name", ["gemma-3-27b", "nemotron-h-8b", "deepseek-v4-flash"])
def test_the_count_alone_keeps_the_cache_and_makes_the_weights_an_estimate(name: str) -> None:
    preset = load_model(name)
    made = with_num_params(preset, 7 * 10**9)
    assert (made.num_params, made.is_estimate) == (7 * 10**9, True)
    assert made.cache_curve() == preset.cache_curve()
    assert set(params_by_role(made)) == {"unsplit"}


def test_an_empty_head_dimension_is_hidden_size_by_query_heads() -> None:
    qwen = load_model("qwen3-4b")  # hidden 2560, 32 heads of 128
    assert sizes_of(variant(qwen, {"head_dim": None}))["head_dim"] == 80
    llama = load_model("llama-3.1-8b")
    assert variant(llama, {"head_dim": None}) is llama


VALUES = st.sampled_from([None, 0, 1, 2, 3, 4, 8, 64, 100, 128, 1000])


@given(name=st.sampled_from(list_models()), changes=st.dictionaries(st.sampled_from(list(SIZE_WORDS)), VALUES))
def test_whatever_is_typed_gives_a_model_that_can_be_written_or_a_sentence(name: str, changes: dict[str, Any]) -> None:
    changes.pop("tied_embeddings", None)
    try:
        made = variant(load_model(name), changes)
    except InputError:
        return
    text = dump_toml(model_to_table(made))
    assert model_from_table(parse_toml(text.encode(), "mine.toml"), "mine.toml") == made
    assert made.weight_bytes("bf16") > 0


@pytest.mark.parametrize("name", ["olmoe-1b-7b", "deepseek-v3", "llama-3.1-8b"])
def test_a_width_of_one_is_a_width(name: str) -> None:
    preset = load_model(name)
    widths = {key: 1 for key in ("expert_intermediate_size", "intermediate_size") if sizes_of(preset)[key]}
    thin = variant(preset, widths)
    assert sizes_of(thin) == {**sizes_of(preset), **widths}
    assert params_by_role(variant(thin, sizes_of(preset))) == params_by_role(preset)


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "sizes", "reason"),
    [
        ("llama-3.1-8b", {"num_kv_heads": 5}, "num_kv_heads is 5, which does not divide num_attention_heads 32"),
        ("llama-3.1-8b", {"num_attention_heads": 30}, "num_kv_heads is 8, which does not divide"),
        ("llama-3.1-8b", {"num_layers": None}, "num_layers is missing; give a whole number"),
        ("llama-3.1-8b", {"hidden_size": 0}, "hidden_size is 0; it must be from 1"),
        ("llama-3.1-8b", {"vocab_size": True}, "vocab_size is True; a whole number is needed"),
        ("llama-3.1-8b", {"num_kv_heads": None}, "num_kv_heads is missing"),
        ("llama-3.1-8b", {"vocab_size": None}, "vocab_size is missing"),
        ("llama-3.1-8b", {"intermediate_size": None}, "intermediate_size is missing"),
        ("llama-3.1-8b", {"full_attention_every": 2}, "full_attention_every is given without a window"),
        ("llama-3.1-8b", {"num_experts": 8}, "num_experts_per_token is missing"),
        ("llama-3.1-8b", {"num_dense_layers": 2}, "num_dense_layers is 2; .* left without experts"),
        ("llama-3.1-8b", {"kv_lora_rank": 64}, "qk_rope_head_dim is missing"),
        ("llama-3.1-8b", {"tied_embeddings": 1}, "tied_embeddings is 1; True or False is needed"),
        ("llama-3.1-8b", {"depth": 1}, "'depth' is not a size of a model"),
        ("llama-3.1-8b", {"head_dim": None, "hidden_size": 4097}, "hidden_size 4097 is not a multiple"),
        ("mamba2-2.7b", {"num_kv_heads": 8}, "num_kv_heads is 8; Mamba 2 2.7B has no layers that keep keys"),
        ("mamba2-2.7b", {"num_attention_heads": 8}, "has no attention layers, so leave this empty"),
        ("mamba2-2.7b", {"window": 8}, "window is 8; .* has no full attention that could keep a window"),
        ("gemma-4-e2b", {"num_layers": 30}, "num_layers is 30; .* read the cache of layers before them"),
        ("deepseek-v3", {"num_layers": 3}, "num_layers is 3; .* so 4 or more is accepted"),
        ("deepseek-v3", {"num_kv_heads": 8}, "num_kv_heads is 8; DeepSeek V3 has no layers that keep keys"),
        ("deepseek-v3", {"num_dense_layers": 61}, "of 61 layers none would have experts"),
        ("deepseek-v3", {"num_experts": 4}, "num_experts_per_token is 8; it must be from 1 to 4"),
        ("deepseek-v3", {"v_head_dim": None}, "v_head_dim is missing"),
        ("deepseek-v3", {"window": 100}, "window is 100; .* has no full attention"),
        (
            "llama-3.1-8b",
            {"num_experts": 8, "num_experts_per_token": 2, "expert_intermediate_size": 100},
            "intermediate_size is 14336; .* has no layer with an MLP of its own",
        ),
        ("llama-3.1-8b", ["num_layers"], "sizes is .*; a dict of sizes by their keyword is needed"),
        ("deepseek-v3", {"head_dim": 64}, "head_dim is 64; DeepSeek V3 has no layers that keep keys"),
        ("deepseek-v3", {"head_dim": 64, "kv_lora_rank": 256}, "head_dim is 64; DeepSeek V3 has no layers that keep"),
        ("mamba2-2.7b", {"state_heads": None}, "state_heads is missing; recurrent layers need it"),
        (
            "mamba2-2.7b",
            {"num_experts": 8, "num_experts_per_token": 2, "expert_intermediate_size": 100},
            "num_experts is 8; Mamba 2 2.7B has no MLP in whose place experts could stand",
        ),
        (
            "falcon-40b",
            {"num_attention_heads": 100},
            "num_kv_heads is 8, which does not divide num_attention_heads 100",
        ),
        ("mamba2-2.7b", {"state_groups": 3}, "state_groups is 3, which does not divide state_heads 80"),
        ("mamba2-2.7b", {"attention_every": 3}, "attention_every is 3; Mamba 2 2.7B has no attention layer to place"),
        ("falcon-h1-0.5b", {"attention_every": 2}, "attention_every is 2; .* in the same layers, so leave it empty"),
        ("llama-3.1-8b", {"attention_every": 3}, "attention_every is 3; Llama 3.1 8B has no recurrent layers"),
        ("llama-3.1-8b", {"state_heads": 8}, "state_head_dim is missing"),
        ("mixtral-8x7b", {"num_dense_layers": 2}, "intermediate_size is missing; layers without experts"),
        (
            "mixtral-8x7b",
            {"intermediate_size": 100},
            "intermediate_size is 100; .* has no layer with an MLP of its own",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused(name: str, sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        variant(load_model(name), sizes)


def test_what_is_no_model_is_refused() -> None:
    asked: list[Callable[[Any], object]] = [
        lambda model: variant(model, {}), lambda model: with_num_params(model, 10**9), sizes_of,
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(InputError, match=r"^model is 'llama-3\.1-8b'; a kvplan\.Model is needed$"):
            ask("llama-3.1-8b")
