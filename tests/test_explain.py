"""Every sum shown term by term adds up to the plan's own number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.attention import (
    CombinedCache,
    CompressedAttention,
    FullAttention,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
)
from kvplan.blocks import BF16, FP32, attention, embedding, gated_mlp, norm, routed_experts
from kvplan.define import define_model
from kvplan.errors import InputError
from kvplan.explain import (
    bytes_by_role,
    cache_terms,
    kinds_sentence,
    layer_strip,
    layer_terms,
    layer_words,
    limit_lines,
    overhead_terms,
    part_bytes,
    plan_values,
    size_reasons,
    user_lines,
    users_sentence,
    weight_terms,
)
from kvplan.fleet import lengths_from_list, plan_users
from kvplan.hardware import define_gpu
from kvplan.model import Layer, Model
from kvplan.plan import Scenario, plan
from kvplan.units import GIB
from tests.examples import LLAMA_8B

GPU = define_gpu(name="A GPU", usable_bytes=80 * GIB)


def mixed_model() -> Model:
    weights = (*attention(64, 8, 4, 16), *gated_mlp(64, 128), *norm(64, count=2))
    experts = (*attention(64, 8, 4, 16), *routed_experts(64, 32, 8, 2), *norm(64, count=2))
    full = Layer(FullAttention(4, 16), weights, 8)
    window = Layer(SlidingAttention(4, 16, window=100), experts, 8)
    both = Layer(CombinedCache((FullAttention(4, 16), RecurrentState(8, 64, FP32, 32, 4, BF16))), weights, 8)
    latent = Layer(LatentAttention(32, 8), norm(64))
    compressed = Layer(CompressedAttention(32, 8, 16, 4, 8, 40), norm(64))
    layers = (full, full, window, both, latent, compressed, Layer(NoCache(), norm(64)))
    return Model("Mixed", layers, embedding(100, 64), BF16, 64, 8, 100, 4096, True, "mixed")


SCENARIOS = [
    Scenario(mixed_model(), GPU, context_length=1000, batch_size=3),
    Scenario(mixed_model(), GPU, context_length=1000, batch_size=3, tensor_parallel=4),
    Scenario(mixed_model(), GPU, context_length=1000, batch_size=3, pipeline_parallel=3),
    Scenario(mixed_model(), GPU, context_length=1000, batch_size=3, shared_prefix=950, image_tokens=77),
    Scenario(mixed_model(), GPU, kv_dtype="fp8", weight_dtype="fp8", adapter_bytes=5, draft_model=mixed_model()),
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_terms_of_the_cache_add_up_to_the_plan(scenario: Scenario) -> None:
    p = plan(scenario)
    assert sum(term.bytes for term in cache_terms(p)) == p.cache_bytes


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_terms_of_the_weights_add_up_to_the_plan(scenario: Scenario) -> None:
    p = plan(scenario)
    assert sum(term.bytes for term in weight_terms(p)) == p.weight_bytes
    assert sum(bytes_by_role(p).values()) == p.weight_bytes


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_terms_of_the_overhead_add_up_to_the_plan(scenario: Scenario) -> None:
    p = plan(scenario)
    assert sum(term.bytes for term in overhead_terms(p)) == p.overhead_bytes


def llama() -> Model:
    return define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip


def test_a_full_attention_model_is_one_term_with_the_users_numbers_in_it() -> None:
    (term,) = cache_terms(plan(Scenario(llama(), GPU, context_length=1024, batch_size=8)))
    assert term.formula == "2 × 32 layers × 8 rows × 128 values × 2 B × 1,024 tokens × 8 sequences"
    assert term.bytes == 2 * 32 * 8 * 128 * 2 * 1024 * 8


def test_a_quantized_cache_row_shows_its_bytes_with_scales() -> None:
    (term,) = cache_terms(plan(Scenario(llama(), GPU, context_length=10, batch_size=1, kv_dtype="q8_0")))
    assert "136 B (128 values in q8_0)" in term.formula
    assert term.bytes == 2 * 32 * 8 * 136 * 10


def test_keys_and_values_in_different_formats_are_two_terms() -> None:
    terms = cache_terms(plan(Scenario(llama(), GPU, context_length=10, batch_size=1, kv_dtype="q8_0/q4_0")))
    assert [term.bytes for term in terms] == [32 * 8 * 136 * 10, 32 * 8 * 72 * 10]


def test_a_shared_prefix_shows_what_it_saves() -> None:
    scenario = Scenario(llama(), GPU, context_length=100, batch_size=5, shared_prefix=60)
    assert cache_terms(plan(scenario))[-1].bytes == -4 * 60 * 131_072


def test_tensor_parallelism_shows_the_rows_of_one_gpu_and_of_all() -> None:
    (term,) = cache_terms(plan(Scenario(llama(), GPU, context_length=10, batch_size=1, tensor_parallel=2)))
    assert "4 rows (of 8)" in term.formula


def test_the_strip_names_runs_of_layers_in_order() -> None:
    strip = layer_strip(mixed_model())
    assert [(s.first, s.num_layers, s.label) for s in strip[:3]] == [
        (0, 2, "full attention"), (2, 1, "sliding window"), (3, 1, "attention and state"),
    ]  # fmt: skip
    assert sum(segment.num_layers for segment in strip) == 7


def test_kinds_are_counted_in_words() -> None:
    assert kinds_sentence(llama()) == "32 full attention"


def test_layer_terms_add_up_to_the_models_cache() -> None:
    model = mixed_model()
    total = sum(term.bytes for _, _, terms in layer_terms(model, 500, 2, "bf16") for term in terms)
    assert total == model.cache_bytes(500, 2)


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        (FullAttention(8, 128), "4,096 B a token"),
        (SlidingAttention(8, 128, window=1024), "4,096 B a token up to 1,024"),
        (NoCache(), "nothing"),
        (RecurrentState(8, 64, FP32), "2,048 B of state"),
        (CompressedAttention(512, 64, 128, 4), "1,024 B a token up to 128 + 1,024 B for every 4 tokens"),
    ],
)
def test_a_layer_says_in_words_what_it_keeps(cache: FullAttention, words: str) -> None:
    assert layer_words(cache, "bf16") == words


# --------------------------------------------------------------------------------------------------- limits and users


def plain_plan(usable_gib: int = 80, **settings: object) -> Scenario:
    """32 layers of 8 KV heads of 128: 131,072 B a token; 16,060,522,496 B of weights; 1 GiB of overhead."""
    model = define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip
    gpu = define_gpu(name="G", usable_bytes=usable_gib * GIB, bandwidth=10**12, rent_usd_per_hour=2.5)
    return Scenario(model, gpu, **{"overhead_bytes": GIB, "memory_fraction": 1.0, **settings})  # type: ignore[arg-type]


def test_limits_are_written_with_the_numbers_that_make_them() -> None:
    lines = dict(limit_lines(plan(plain_plan())))
    fixed = 16_060_522_496 + GIB
    each, usable = 131_072 * 8192, 80 * GIB
    assert lines["largest batch"] == (
        f"floor(({usable:,} B usable − {fixed:,} B fixed) / {each:,} B a sequence) = {(usable - fixed) // each}"
    )
    longest = (usable - fixed) // (131_072 * 8)
    assert lines["longest context"].startswith(f"{longest:,} tokens take {fixed + longest * 131_072 * 8:,} B")
    assert lines["crossover"] == "15,317 tokens of 8 keep 16,061,038,592 B, the weights 16,060,522,496 B"
    assert lines["decode step, at least"].endswith("B read / 1,000,000,000,000 B a second = 23.600 ms")
    many = dict(limit_lines(plan(plain_plan().with_changes(batch_size=122_533, context_length=1))))  # × 131,072 B
    assert many["crossover"] == "1 token of 122,533 keeps 16,060,645,376 B, the weights 16,060,522,496 B"


def test_the_decode_floor_says_what_its_draft_model_adds() -> None:
    p = plan(plain_plan(draft_model=LLAMA_8B))
    line = dict(limit_lines(p))["decode step, at least"]
    assert line.startswith(
        f"({int(p.model_read_bytes):,} B read + {int(p.draft_read_bytes):,} B of the draft for one token)"
    )


def test_a_limit_that_does_not_exist_has_no_line() -> None:
    lines = dict(limit_lines(plan(plain_plan(8))))
    assert "longest context" not in lines
    assert lines["largest batch"].endswith(": none fits")


def test_a_price_of_a_fraction_of_a_cent_is_written_so_that_the_sum_comes_out() -> None:
    scenario = Scenario("mamba2-130m", "t4-16gb")
    rent = scenario.gpu.rent_per_hour
    assert rent is not None
    assert rent.usd == 0.1502
    point = replace(
        plan_users(scenario, 1, lengths_from_list([8192]))[1], replicas=160, num_gpus=160, rent_per_hour=24.032
    )
    assert user_lines(scenario, 1, point)[-1].how == "160 × $0.1502 = $24.03"


def test_users_are_written_as_the_sums_that_make_them() -> None:
    scenario, lengths = plain_plan(24), lengths_from_list([8192])
    point = plan_users(scenario, 20, lengths)[1]
    fixed, each = 16_060_522_496 + GIB, 131_072 * 8192
    room = (24 * GIB - fixed) // each
    assert list(user_lines(scenario, 20, point)) == [
        ("users a replica", f"floor(({24 * GIB:,} B usable − {fixed:,} B fixed) / {each:,} B) = {room}"),
        ("replicas", f"ceil(20 / {room}) = 3"),
        ("GPUs", "3 × 1 = 3"),
        ("price an hour", "3 × $2.50 = $7.50"),
    ]
    assert users_sentence(scenario, 20, lengths, point) == "20 users at once: 3 GPUs in 3 replicas, $7.50 an hour"


def test_users_of_whom_not_one_fits_get_a_sentence_and_no_replicas() -> None:
    scenario, lengths = plain_plan(16), lengths_from_list([8192])
    point = plan_users(scenario, 1, lengths)[1]
    assert users_sentence(scenario, 1, lengths, point) == "1 user at once: not even one sequence of 8,192 tokens fits"
    assert [line.what for line in user_lines(scenario, 1, point)] == ["users a replica"]


def test_why_a_cache_is_small_is_said_with_what_it_would_be_else() -> None:
    shape = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 64, "vocab_size": 64}
    window = define_model(name="W", num_kv_heads=2, window=1024, full_attention_every=4, **shape)  # type: ignore[arg-type]
    reasons = size_reasons(plan(Scenario(window, GPU, context_length=4096)))
    assert reasons == (  # 3 × 1,024 + 4,096 tokens instead of 4 × 4,096; 8 heads instead of 2
        "3 of 4 layers keep a window only: if every layer kept every token, the cache would be 2.29 times as large",
        (
            "2 KV heads for 8 query heads (grouped queries): with one for each (MHA), the cache would be "
            "4.00 times as large"
        ),
    )


def test_what_all_heads_would_cost_is_said_of_a_gpu_that_holds_a_copy_of_its_only_kv_head() -> None:
    """Four GPUs hold 1 of 2 KV heads each, and would hold 2 of 8: twice as much, and not 8 / 2."""
    shape = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 64, "vocab_size": 64}
    model = define_model(name="G", num_kv_heads=2, **shape)  # type: ignore[arg-type]
    scenario = Scenario(model, GPU, context_length=4096, tensor_parallel=4)
    (reason,) = size_reasons(plan(scenario))
    assert reason.endswith("the cache on each GPU would be 2.00 times as large")
    assert plan(scenario.with_changes(num_kv_heads=8)).cache_bytes == 2 * plan(scenario).cache_bytes


def test_what_all_heads_would_cost_counts_a_shared_prefix_once_and_states_for_each_sequence() -> None:
    """Of 2 × 100 tokens 50 are held once, and each sequence has a state that heads do not change."""
    scenario = Scenario(mixed_hybrid(), GPU, context_length=100, batch_size=2, shared_prefix=50)
    now, then = plan(scenario).cache_bytes, plan(scenario.with_changes(num_kv_heads=8)).cache_bytes
    state, tokens = now - (then - now) // 3, (then - now) // 3
    assert tokens == 150 * 2 * 2 * 8 * 2  # tokens × keys and values × KV heads × head_dim × bytes
    (reason,) = size_reasons(plan(scenario))
    assert reason.endswith(f"the cache would be {(state + 4 * tokens) / (state + tokens):.2f} times as large")


def mixed_hybrid() -> Model:
    weights = (*attention(64, 8, 2, 8), *gated_mlp(64, 128), *norm(64, count=2))
    layers = (Layer(FullAttention(2, 8), weights, 8), Layer(RecurrentState(8, 64, FP32, 32, 4, BF16), norm(64)))
    return Model("Hybrid", layers, embedding(100, 64), BF16, 64, 8, 100, 4096, True, "hybrid")


def test_layers_that_compress_what_a_window_drops_are_not_said_to_keep_a_window_only() -> None:
    """At 1,048,576 tokens all rows are 61 × 1,024 B a token. Kept are a row of 1,024 B for every 128 tokens in 31
    layers, one of 1,280 B for every 4 tokens in 30, and windows that no longer count: 248 + 9,600 B a token."""
    (reason,) = size_reasons(plan(Scenario("deepseek-v4-pro", GPU, context_length=2**20)))
    kept = "61 of 61 layers keep a window and one entry for every 4 tokens or 128 tokens"
    times = 61 * 1024 / (31 * 1024 / 128 + 30 * 1280 / 4)
    assert reason == f"{kept}: if every layer kept every token, the cache would be {times:.2f} times as large"
    assert size_reasons(plan(Scenario("deepseek-v4-pro", GPU, context_length=64))) == ()  # nothing is dropped yet


@pytest.mark.parametrize(("model", "layers"), [("deepseek-v3", 61), ("deepseek-v3.2", 61), ("glm-5.2", 78)])
def test_latent_rows_are_a_reason_with_an_indexer_beside_them_and_without(model: str, layers: int) -> None:
    assert size_reasons(plan(Scenario(model, GPU))) == (f"{layers} layers keep one latent row a token for all heads",)


def test_a_cache_of_all_heads_and_all_tokens_has_no_excuse() -> None:
    plain = define_model(
        name="P", num_layers=2, hidden_size=64, num_attention_heads=8, num_kv_heads=8, intermediate_size=64,
        vocab_size=64,
    )  # fmt: skip
    assert size_reasons(plan(Scenario(plain, GPU))) == ()


def test_a_shared_prefix_that_does_not_fit_is_divided_by_nothing() -> None:
    scenario = Scenario(llama(), define_gpu(name="Tiny", usable_bytes=GIB), context_length=64, shared_prefix=64)
    lines = {line.what: line.how for line in limit_lines(plan(scenario))}
    assert lines["largest batch"].endswith(" B fixed are more than 1,073,741,824 B usable: none fits")
    (line,) = user_lines(scenario, 3, plan_users(scenario, 3, lengths_from_list([64]))[1])
    assert line.how == lines["largest batch"]


@pytest.mark.parametrize("bad", [None, 3, "a plan", []], ids=repr)
@pytest.mark.parametrize(
    "explain",
    [cache_terms, weight_terms, bytes_by_role, overhead_terms, limit_lines, size_reasons, plan_values, part_bytes],
)
def test_only_plans_are_explained(explain: Any, bad: Any) -> None:
    with pytest.raises(InputError, match=r"^the plan is .*; a MemoryPlan is needed$"):
        explain(bad)


@pytest.mark.parametrize("bad", [None, 3, "llama-3.1-8b"], ids=repr)
@pytest.mark.parametrize("explain", [layer_strip, kinds_sentence, lambda bad: layer_terms(bad, 1, 1, "bf16")])
def test_only_models_have_layers(explain: Any, bad: Any) -> None:
    with pytest.raises(InputError, match=r"^the model is .*; a Model is needed$"):
        explain(bad)


@pytest.mark.parametrize(("tokens", "batch", "said"), [("4k", 1, "context_length is '4k'"), (1, 0, "batch_size is 0")])
def test_layers_are_counted_for_whole_numbers(tokens: Any, batch: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}; "):
        layer_terms(llama(), tokens, batch, "bf16")
