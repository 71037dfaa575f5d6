"""The laws that hold for every model, layer kind, GPU and scenario."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention import LAYER_KINDS, FullAttention, LayerCache, SlidingAttention, add_up
from kvplan.dtypes import kv_dtype
from kvplan.errors import InputError, ParallelError
from kvplan.hardware import define_gpu
from kvplan.model import Model, Placement
from kvplan.plan import Scenario, plan
from kvplan.presets import (
    dump_toml,
    load_gpu,
    load_model,
    model_from_table,
    model_to_table,
    parse_toml,
    save_gpu,
    save_model,
)
from kvplan.share import from_link, to_link
from kvplan.sweep import sweep
from kvplan.units import MAX_COUNT, TIB
from tests.examples import (
    ALL_LAYERS,
    KV_FOR_ALL,
    LAYERS,
    LLAMA_8B,
    SMALL_GPU,
    layer_lists,
    model_of,
    models,
    scenarios,
)

EDGES = [0, 1, 2, 3, 4, 5, 127, 128, 129, 512, 513, 514, 999, 1000, 1001, 8191, 8192, 8193, 131_072, 1_000_003]

each_layer = pytest.mark.parametrize(
    "layer", ALL_LAYERS, ids=[f"{layer.kind}-{i}" for i, layer in enumerate(ALL_LAYERS)]
)
each_kv = pytest.mark.parametrize("kv", KV_FOR_ALL)


def test_every_kind_of_layer_has_an_example_here() -> None:
    assert set(LAYERS) == set(LAYER_KINDS)
    assert all(layer.kind == kind for kind, layers in LAYERS.items() for layer in layers)


# --------------------------------------------------------------------------------------------- arrays and scalars


@each_layer
@each_kv
def test_an_array_of_tokens_gives_the_scalar_bytes(layer: LayerCache, kv: str) -> None:
    curve = add_up([(layer, 3)], kv_dtype(kv))
    found = curve.bytes_at(np.array(EDGES, np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == [curve.bytes_at(tokens) for tokens in EDGES]


@each_layer
def test_the_curve_is_the_sum_of_the_layers_parts(layer: LayerCache) -> None:
    kv = kv_dtype("bf16")
    for tokens in EDGES:
        growing = sum(part.bytes(tokens, kv) for part in layer.cache_parts())
        constant = sum(part.bytes(kv) for part in layer.state_parts())
        assert add_up([(layer, 5)], kv).bytes_at(tokens) == 5 * (growing + constant)


@given(layer_lists)
def test_a_model_keeps_what_its_layers_keep(layers: list[LayerCache]) -> None:
    alone = sum(model_of([layer]).cache_bytes(5000) for layer in layers)
    assert model_of(layers).cache_bytes(5000) == alone


# ---------------------------------------------------------------------------------------------------- monotone


@each_layer
@each_kv
def test_more_tokens_never_take_less(layer: LayerCache, kv: str) -> None:
    curve = add_up([(layer, 1)], kv_dtype(kv))
    held = curve.bytes_at(np.arange(0, 20_000, dtype=np.int64))
    assert (np.diff(held) >= 0).all()


@each_layer
def test_a_whole_block_more_takes_more_unless_every_window_is_full(layer: LayerCache) -> None:
    curve = add_up([(layer, 1)], kv_dtype("bf16"))
    block = max([part.tokens_per_entry for part in layer.cache_parts()], default=1)
    grows = any(part.max_tokens is None for part in layer.cache_parts())
    held = [curve.bytes_at(tokens) for tokens in range(100 * block, 110 * block, block)]
    window_grows = any(part.max_tokens is not None and part.max_tokens > 110 * block for part in layer.cache_parts())
    assert all((later > earlier) is (grows or window_grows) for earlier, later in pairwise(held))


@each_layer
def test_the_slope_is_what_one_more_token_adds_once_windows_are_full(layer: LayerCache) -> None:
    curve = add_up([(layer, 1)], kv_dtype("bf16"))
    block = max([part.tokens_per_entry for part in layer.cache_parts()], default=1)
    start = (curve.largest_window // block + 1) * block
    added = curve.bytes_at(start + 7 * block) - curve.bytes_at(start)
    assert curve.bytes_per_token == Fraction(added, 7 * block)


@each_layer
def test_a_wider_cache_dtype_never_takes_less(layer: LayerCache) -> None:
    sizes = [add_up([(layer, 1)], kv_dtype(kv)).bytes_at(5000) for kv in ("fp8", "bf16", "fp32")]
    assert sizes == sorted(sizes)


@given(models, st.integers(0, 10**6), st.integers(0, 1000))
def test_the_cache_is_linear_in_the_batch(model: Model, tokens: int, batch: int) -> None:
    assert model.cache_bytes(tokens, batch) == batch * model.cache_bytes(tokens, 1)


def test_more_kv_heads_take_more_cache_and_more_weights() -> None:
    changed = [LLAMA_8B.with_kv_heads(heads) for heads in (1, 2, 4, 8, 16, 32)]
    assert [model.cache_bytes(1000) for model in changed] == [
        heads * 32 * 2 * 128 * 2 * 1000 for heads in (1, 2, 4, 8, 16, 32)
    ]
    assert [b.weight_bytes() - a.weight_bytes() for a, b in pairwise(changed)] == [
        heads * 128 * 4096 * 2 * 2 * 32 for heads in (1, 2, 4, 8, 16)
    ]


@given(scenarios(), st.sampled_from(["context_length", "batch_size", "adapter_bytes"]), st.integers(0, 10**6))
def test_asking_for_more_never_frees_memory(scenario: Scenario, axis: str, more: int) -> None:
    larger = scenario.with_changes(**{axis: getattr(scenario, axis) + more})
    assert plan(larger).free_bytes <= plan(scenario).free_bytes


@given(scenarios())
def test_more_memory_is_free_memory(scenario: Scenario) -> None:
    usable = scenario.gpu.usable_bytes + 1000
    gpu = replace(scenario.gpu, usable_bytes=usable, usable_range=(usable, usable))
    larger = scenario.with_changes(gpu=gpu, memory_fraction=1)
    assert plan(larger).free_bytes == plan(scenario.with_changes(memory_fraction=1)).free_bytes + 1000


# ------------------------------------------------------------------------------------------------------ windows


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**6))
def test_a_window_layer_holds_the_smaller_of_tokens_and_window(window: int, tokens: int) -> None:
    layer = SlidingAttention(8, 128, window=window)
    assert add_up([(layer, 1)], kv_dtype("bf16")).bytes_at(tokens) == min(tokens, window) * 2 * 8 * 128 * 2


@given(st.integers(0, 10**5))
def test_a_compressed_layer_holds_an_entry_for_every_whole_block(tokens: int) -> None:
    _, layer, _ = LAYERS["compressed"]
    row, index = 512 * 2, 128 * 2
    expected = min(tokens, 128) * row + tokens // 4 * (row + index) + 8192 * (2 + 4)  # and fp32 gates
    assert add_up([(layer, 1)], kv_dtype("bf16")).bytes_at(tokens) == expected


# -------------------------------------------------------------------------------------------------------- plans


@given(scenarios())
def test_the_parts_add_up_to_the_capacity_exactly(scenario: Scenario) -> None:
    p = plan(scenario)
    assert p.weight_bytes + p.cache_bytes + p.overhead_bytes + p.free_bytes == p.capacity_bytes
    assert p.capacity_bytes == scenario.gpu.usable_bytes
    assert p.fits == (p.free_bytes >= 0)
    assert p.overhead_bytes == p.unused_bytes + p.runtime.typical_bytes + scenario.adapter_bytes + p.draft_bytes
    assert all(type(value) is int for value in (p.weight_bytes, p.cache_bytes, p.overhead_bytes, p.free_bytes))


@given(scenarios())
def test_a_plan_fits_at_its_largest_batch_and_not_with_one_more(scenario: Scenario) -> None:
    most = plan(scenario).max_batch_size
    if most is None:
        assert plan(scenario.with_changes(batch_size=MAX_COUNT)).fits
        return
    assert most == 0 or plan(scenario.with_changes(batch_size=most)).fits
    assert not plan(scenario.with_changes(batch_size=most + 1)).fits


@given(scenarios())
def test_a_plan_fits_at_its_longest_context_and_not_with_one_token_more(scenario: Scenario) -> None:
    whole = scenario.with_changes(shared_prefix=0)  # a prefix cannot be longer than the context
    longest = plan(whole).max_context_length
    if longest is None:
        assert plan(whole.with_changes(context_length=MAX_COUNT)).fits
        return
    assert longest == 0 or plan(whole.with_changes(context_length=longest)).fits
    assert not plan(whole.with_changes(context_length=longest + 1)).fits


@given(scenarios())
def test_the_crossover_is_the_smallest_context_whose_cache_is_at_least_the_weights(scenario: Scenario) -> None:
    one = scenario.with_changes(pipeline_parallel=1, shared_prefix=0)
    crossover = plan(one).crossover_context_length
    at = plan(one.with_changes(context_length=MAX_COUNT if crossover is None else crossover))
    assert (at.cache_bytes >= at.weight_bytes) is (crossover is not None)
    if crossover is not None and crossover > 1:
        before = plan(one.with_changes(context_length=crossover - 1))
        assert before.cache_bytes < before.weight_bytes


@given(scenarios())
def test_pipeline_stages_hold_the_whole_model_between_them(scenario: Scenario) -> None:
    model, stages = scenario.model, scenario.pipeline_parallel
    shards = model.shards("bf16", "bf16", Placement(1, stages))
    twice = 1000 * 256 * 2 if model.tied_embeddings and stages > 1 else 0  # a tied embedding stands at both ends
    assert sum(shard.weight_bytes for shard in shards) == model.weight_bytes("bf16") + twice
    assert sum(shard.curve.bytes_at(777) for shard in shards) == model.cache_bytes(777)


# ---------------------------------------------------------------------------------------------- tensor parallelism


@each_layer
@pytest.mark.parametrize("tensor_parallel", [2, 4, 8, 16])
def test_tensor_parallelism_never_loses_a_byte(layer: LayerCache, tensor_parallel: int) -> None:
    kv = kv_dtype("bf16")
    for part in layer.cache_parts():
        copies = tensor_parallel if part.copied else max(1, tensor_parallel // part.rows)
        assert tensor_parallel * part.bytes(9000, kv, tensor_parallel) == copies * part.bytes(9000, kv)
    for state in layer.state_parts():
        copies = tensor_parallel if state.copied else max(1, tensor_parallel // state.rows)
        assert tensor_parallel * state.bytes(kv, tensor_parallel) == copies * state.bytes(kv)


@given(models, st.sampled_from([2, 4, 8, 16]), st.sampled_from([None, "fp8_per_channel", "fp32"]))
def test_all_gpus_together_hold_at_least_the_weights(model: Model, tensor_parallel: int, weights: str | None) -> None:
    one, part = model.weight_bytes(weights), model.weight_bytes(weights, tensor_parallel)
    assert one <= tensor_parallel * part <= tensor_parallel * one


@given(st.integers(1, 64), st.integers(1, 64))
def test_kv_heads_divide_or_are_copied_or_are_refused(heads: int, tensor_parallel: int) -> None:
    layer = FullAttention(heads, 1)
    if heads % tensor_parallel and tensor_parallel % heads:
        with pytest.raises(ParallelError, match="do not divide"):
            add_up([(layer, 1)], kv_dtype("bf16"), tensor_parallel)
        return
    held = add_up([(layer, 1)], kv_dtype("bf16"), tensor_parallel).bytes_at(1)
    assert held == max(1, heads // tensor_parallel) * 2 * 2


# ------------------------------------------------------------------------------------------------------- sweeps


@given(scenarios(), st.data())
def test_every_row_of_a_sweep_is_the_plan_of_its_scenario(scenario: Scenario, data: st.DataObject) -> None:
    longest = st.integers(max(1, scenario.shared_prefix - scenario.image_tokens), 500_000)
    axes = {
        "context_length": data.draw(st.lists(longest, min_size=1, max_size=3)),
        "batch_size": data.draw(st.lists(st.integers(1, 500), min_size=1, max_size=3)),
        "kv_dtype": data.draw(st.lists(st.sampled_from(KV_FOR_ALL), min_size=1, max_size=2, unique=True)),
        "weight_dtype": data.draw(st.lists(st.sampled_from([None, "mxfp4"]), min_size=1, max_size=2, unique=True)),
        "tensor_parallel": data.draw(st.lists(st.sampled_from([1, 2, 16]), min_size=1, max_size=2, unique=True)),
    }  # fmt: skip
    base = scenario.with_changes(context_length=max(axes["context_length"]))
    rows = sweep(base, **axes)
    row = rows.iloc[data.draw(st.integers(0, len(rows) - 1))]
    weights = None if row.weight_dtype == "as published" else row.weight_dtype
    p = plan(
        base.with_changes(
            context_length=int(row.context_length),
            batch_size=int(row.batch_size),
            kv_dtype=row.kv_dtype,
            weight_dtype=weights,
            tensor_parallel=int(row.tensor_parallel),
        )
    )
    found = (row.cache_bytes, row.weight_bytes, row.overhead_bytes, row.total_bytes, row.capacity_bytes, row.fits)
    assert found == (p.cache_bytes, p.weight_bytes, p.overhead_bytes, p.total_bytes, p.capacity_bytes, p.fits)


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_a_sweep_over_kv_heads_is_the_plan_with_that_many(heads: int) -> None:
    scenario = Scenario(LLAMA_8B, SMALL_GPU, context_length=4096, tensor_parallel=2)
    rows = sweep(scenario, num_kv_heads="1,2,4,8,16,32", context_length="1k..4k*2")
    for row in rows[rows.num_kv_heads == heads].itertuples():
        p = plan(scenario.with_changes(num_kv_heads=heads, context_length=row.context_length))
        assert (row.cache_bytes, row.weight_bytes, row.fits) == (p.cache_bytes, p.weight_bytes, p.fits)


# --------------------------------------------------------------------------------------------- beyond 53 bits


def test_bytes_beyond_what_a_float_can_count_stay_exact() -> None:
    model = model_of([FullAttention(1, 1, 2)])  # three values a token: an odd number of bytes at one byte each
    tokens, batch = 2**40 - 1, 8_195
    exact = 3 * (2**40 - 1) * 8_195
    assert exact > 2**53
    assert exact != int(float(exact))
    scenario = Scenario(model, SMALL_GPU, context_length=tokens, batch_size=batch, kv_dtype="int8")
    assert plan(scenario).cache_bytes == exact
    assert sweep(scenario).cache_bytes.tolist() == [exact]


@each_layer
def test_an_array_stays_exact_beyond_53_bits(layer: LayerCache) -> None:
    curve = add_up([(layer, 1)], kv_dtype("fp8"))
    tokens = [2**50 + 1, 2**50 + 3]
    assert curve.bytes_at(np.array(tokens, np.int64)).tolist() == [curve.bytes_at(count) for count in tokens]


def test_a_sweep_refuses_what_an_int64_cannot_hold_and_a_plan_does_not() -> None:
    scenario = Scenario(LLAMA_8B, SMALL_GPU, context_length=2**40, batch_size=2**40)
    assert plan(scenario).cache_bytes == 2 * 32 * 8 * 128 * 2 * 2**80
    with pytest.raises(InputError, match="more than a table can hold exactly"):
        sweep(scenario)


def test_the_largest_gpu_and_the_smallest_part_still_add_up() -> None:
    gpu = define_gpu(name="The largest", usable_bytes=16 * TIB)
    p = plan(Scenario(LLAMA_8B, gpu, context_length=1, batch_size=1, overhead_bytes=0, memory_fraction=1))
    assert p.free_bytes == 16 * 2**40 - LLAMA_8B.weight_bytes() - 2 * 32 * 8 * 128 * 2


# ------------------------------------------------------------------------------------------------ files and links


@given(models)
def test_a_model_reads_back_from_its_file_as_it_was_written(model: Model) -> None:
    text = dump_toml(model_to_table(model)).encode()
    again = model_from_table(parse_toml(text, "mixed.toml"), "mixed.toml")
    for item in fields(Model):
        assert getattr(again, item.name) == getattr(model, item.name)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Preset ids of a small library of models, in place of the shipped one; GPUs are the shipped ones."""
    folder: Path = tmp_path_factory.mktemp("presets")
    (folder / "models").mkdir()
    shipped = load_gpu("h100-sxm-80gb")
    (folder / "gpus").mkdir()
    for index, layers in enumerate(LAYERS.values()):
        save_model(replace(model_of(list(layers)), id=f"mixed-{index}"), folder / "models")
    save_model(replace(LLAMA_8B, id="llama"), folder / "models")
    save_gpu(shipped, folder / "gpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVPLAN_PRESETS_DIR", str(folder))
        yield ["llama", *(f"mixed-{index}" for index in range(len(LAYERS)))]


@given(st.data())
def test_a_link_reads_back_to_the_scenario_it_came_from(library: list[str], data: st.DataObject) -> None:
    drawn = data.draw(scenarios())
    name = data.draw(st.sampled_from(library))
    stages = min(drawn.pipeline_parallel, load_model(name).num_layers)
    draft = data.draw(st.sampled_from([None, "llama"])) if stages == 1 else None
    scenario = drawn.with_changes(
        model=load_model(name), gpu=load_gpu("h100-sxm-80gb"), pipeline_parallel=stages, draft_model=draft
    )
    assert from_link(to_link(scenario)) == scenario
    assert from_link("https://example.org/plan" + to_link(scenario) + "#top") == scenario
