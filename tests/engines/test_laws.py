"""What holds for every engine, model and pool."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention import FullAttention, LatentAttention, LayerCache, SlidingAttention
from kvplan.dtypes import kv_dtype
from kvplan.engines import ENGINES, EngineCapacity, engine_capacity
from kvplan.engines.reserved import HAS_SLOTS
from kvplan.errors import InputError, KvplanError, UnknownNameError
from kvplan.model import Model, Placement
from kvplan.units import GIB
from tests.engines.test_vllm import STATE, model

BF16 = kv_dtype("bf16")
KINDS: list[LayerCache] = [FullAttention(8, 128), FullAttention(4, 128), SlidingAttention(8, 128, window=512)]
POOLED = [name for name in ENGINES if name not in HAS_SLOTS]
SIXTEEN_BITS = {name: "fp16" if name in HAS_SLOTS else "bf16" for name in ENGINES}


def runs(kinds: list[LayerCache]) -> st.SearchStrategy[list[tuple[int, LayerCache]]]:
    return st.lists(st.tuples(st.integers(1, 12), st.sampled_from(kinds)), min_size=1, max_size=4)


plain_models = runs(KINDS).map(lambda found: model(*found))
mixed_models = runs([*KINDS[:1], STATE]).map(lambda found: model((1, KINDS[0]), *found))
latent_models = st.integers(1, 60).map(lambda count: model((count, LatentAttention(512, 64))))
some_models = st.one_of(plain_models, mixed_models, latent_models)
pools = st.integers(0, 64 * GIB)
lengths = st.integers(1, 200_000)
versions = st.sampled_from(["0.8", "0.11", "0.20", "0.21", "0.24", "0.33"])


def ask(made: Model, name: str, pool: int, length: int, **settings: Any) -> EngineCapacity:
    return engine_capacity(
        made, engine=name, pool_bytes=pool, max_model_len=length, max_num_batched_tokens=2048, **settings
    )


@given(made=some_models, name=st.sampled_from(POOLED), pool=pools, length=lengths, version=versions)
def test_blocks_never_take_more_than_the_pool(made: Model, name: str, pool: int, length: int, version: str) -> None:
    found = ask(made, name, pool, length, engine_version=version)
    assert 0 <= found.num_blocks * found.bytes_per_block <= pool
    assert found.tokens >= 0


@given(
    made=some_models, name=st.sampled_from(["sglang", "tensorrt-llm"]), length=st.one_of(lengths, st.integers(1, 99))
)
def test_a_request_reserves_at_least_what_it_holds_in_other_pools(made: Model, name: str, length: int) -> None:
    """States are kept as the engine keeps them, so only what grows is compared."""
    found = ask(made, name, 8 * GIB, length)
    growing = sum(part.bytes(length, BF16) for layer in made.layers for part in layer.cache.cache_parts())
    assert found.needed_bytes - found.request_rest >= growing


@given(made=some_models, pool=pools, length=lengths, version=versions)
def test_a_request_reserves_at_least_what_it_holds(made: Model, pool: int, length: int, version: str) -> None:
    found = ask(made, "vllm", pool, length, engine_version=version)
    growing = sum(part.bytes(length, BF16) for layer in made.layers for part in layer.cache.cache_parts())
    assert found.needed_bytes >= growing


@given(made=some_models, pool=pools, length=lengths, version=versions)
def test_tokens_of_vllm_never_exceed_the_pool_over_resident_bytes(
    made: Model, pool: int, length: int, version: str
) -> None:
    found = ask(made, "vllm", pool, length, engine_version=version)
    growing = sum(part.bytes(length, BF16) for layer in made.layers for part in layer.cache.cache_parts())
    if version >= "0.21":  # concurrency times length: what requests of that length hold
        assert found.tokens * growing <= pool * length
    else:
        unlimited = sum(
            part.entry_bytes(BF16)
            for layer in made.layers
            for part in layer.cache.cache_parts()
            if part.max_tokens is None
        )
        assert found.tokens * unlimited <= pool


placements = st.fixed_dictionaries(
    {
        "tensor_parallel": st.sampled_from([1, 2, 4]),
        "pipeline_parallel": st.integers(1, 3),
        "data_parallel": st.integers(1, 5),
    }
)


def resident_slope(made: Model, tensor_parallel: int, pipeline_parallel: int) -> Fraction:
    """Bytes that one more token of one sequence holds, once all windows are full, on the stage that holds the most."""
    placement = Placement(tensor_parallel, pipeline_parallel)
    return max(Fraction(shard.curve.bytes_per_token) for shard in made.shards("bf16", "bf16", placement))


@given(
    made=some_models, name=st.sampled_from(list(ENGINES)), pool=pools, length=lengths, version=versions,
    placement=placements, context_parallel=st.sampled_from([1, 1, 2, 8]),
)  # fmt: skip
def test_tokens_never_exceed_the_pool_over_resident_bytes_per_token(
    made: Model, name: str, pool: int, length: int, version: str, placement: dict[str, int], context_parallel: int
) -> None:
    """For every engine, however the model lies; where a sequence is shared by GPUs, a note says so."""
    spread = {"context_parallel": context_parallel} if name == "vllm" else {}
    try:
        found = ask(
            made, name, pool, length, engine_version=version, kv_dtype=SIXTEEN_BITS[name], **placement, **spread
        )
    except KvplanError:  # this engine cannot lie so, or the model has too few layers
        return
    slope = resident_slope(made, placement["tensor_parallel"], placement["pipeline_parallel"])
    if found.tokens * slope > found.pool_bytes:
        assert any("spread over" in note for note in found.notes)
    assert found.replicas == placement["data_parallel"]
    assert found.total_tokens == found.tokens * found.replicas


@given(made=plain_models, name=st.sampled_from(list(ENGINES)), pool=pools, length=lengths)
def test_requests_at_once_never_hold_more_than_the_pool(made: Model, name: str, pool: int, length: int) -> None:
    found = ask(made, name, pool, length, kv_dtype=SIXTEEN_BITS[name])
    if name == "sglang" and any("pool of their own" in note for note in found.notes):
        return  # its notes say that the window pool may fill first
    assert int(found.max_concurrency) * made.cache_bytes(length) <= pool


@given(made=some_models, name=st.sampled_from(POOLED), pool=st.integers(0, 8 * GIB), more=st.integers(0, GIB))
def test_a_larger_pool_never_holds_less(made: Model, name: str, pool: int, more: int) -> None:
    small, large = ask(made, name, pool, 4096), ask(made, name, pool + more, 4096)
    assert small.tokens <= large.tokens
    assert small.max_concurrency <= large.max_concurrency


@given(made=some_models, pool=st.integers(GIB // 4, 8 * GIB), version=versions)
def test_the_longest_context_is_admitted_and_the_next_one_is_not(made: Model, pool: int, version: str) -> None:
    longest = ask(made, "vllm", pool, 4096, engine_version=version).longest_context
    if not longest:
        return
    assert ask(made, "vllm", pool, longest, engine_version=version).admits_one
    assert not ask(made, "vllm", pool, longest + 1, engine_version=version).admits_one


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("vllm", "prefix_caching"), ("vllm", "async_scheduling"), ("vllm", "hybrid_manager"),
        ("llama.cpp", "unified"), ("ollama", "swa_full"), ("ik_llama.cpp", "latent"),
    ],
)  # fmt: skip
def test_a_word_is_no_switch(name: str, option: str) -> None:
    with pytest.raises(InputError, match=f"{option} is 'no'; True or False is needed"):
        ask(model((1, KINDS[0])), name, GIB, 4096, kv_dtype="fp16", **{option: "no"})


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_drafts_are_counted_in_whole_layers(name: str) -> None:
    with pytest.raises(InputError, match="draft_layers is -1"):
        ask(model((1, KINDS[0])), name, GIB, 4096, draft_layers=-1)


@pytest.mark.parametrize("name", list(ENGINES))
def test_an_answer_carries_the_name_of_the_engine_that_was_asked(name: str) -> None:
    assert ask(model((1, KINDS[0])), name, GIB, 4096, kv_dtype=SIXTEEN_BITS[name]).engine == name


@pytest.mark.parametrize("name", list(ENGINES))
def test_every_engine_has_a_label_and_refuses_options_of_others(name: str) -> None:
    assert ENGINES[name].label
    with pytest.raises(UnknownNameError, match=f"no {name} option is called 'no_such_option'"):
        ask(model((1, KINDS[0])), name, GIB, 4096, no_such_option=1, kv_dtype="fp16")
