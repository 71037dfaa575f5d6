"""How a model lies over GPUs: replicas, experts cut or whole, and what each GPU then holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.define import Experts, define_model
from kvplan.errors import InputError
from kvplan.explain import cache_terms, weight_terms
from kvplan.hardware import define_gpu
from kvplan.model import Model, Placement
from kvplan.plan import MemoryPlan, Scenario, plan, usages
from kvplan.presets import load_model
from kvplan.sweep import sweep
from kvplan.units import GIB

CARD = define_gpu(name="Card", usable_bytes=80 * GIB, bandwidth=10**12, node_gpus=8)
EXPERT = 3 * 256 * 128  # gate, up and down of 128 inner features


def moe(experts: int = 16) -> Model:
    return define_model(
        name="M", num_layers=4, hidden_size=256, num_attention_heads=8, num_kv_heads=4, vocab_size=1024,
        experts=Experts(experts, 2, intermediate_size=128),
    )  # fmt: skip


DENSE = define_model(
    name="D", num_layers=4, hidden_size=256, num_attention_heads=8, num_kv_heads=4, intermediate_size=512,
    vocab_size=1024,
)  # fmt: skip


def ask(model: Model, **settings: object) -> MemoryPlan:
    return plan(Scenario(model, CARD, **{"context_length": 1000, "batch_size": 8, "overhead_bytes": 0, **settings}))


def routed(experts: int) -> int:
    return 4 * experts * EXPERT * 2  # 4 layers, 16 bits


def test_replicas_share_the_batch_and_copy_all_but_the_experts() -> None:
    one, two = ask(moe()), ask(moe(), data_parallel=2)
    assert two.scenario.num_gpus == 2
    assert two.cache_bytes * 2 == one.cache_bytes
    assert two.weight_bytes == one.weight_bytes - routed(16) // 2


def test_the_replica_with_one_sequence_more_counts() -> None:
    assert ask(moe(), batch_size=7, data_parallel=2).cache_bytes == ask(moe(), batch_size=4).cache_bytes
    assert ask(moe(), batch_size=1, data_parallel=4).cache_bytes == ask(moe(), batch_size=1).cache_bytes


def test_experts_are_cut_over_the_gpus_of_all_replicas_or_lie_whole_on_them() -> None:
    dense = ask(moe()).weight_bytes - routed(16)
    assert ask(moe(), data_parallel=4).weight_bytes == dense + routed(16) // 4
    assert ask(moe(), data_parallel=4, expert_parallel=True).weight_bytes == dense + routed(4)
    assert ask(moe(), data_parallel=3, expert_parallel=True).weight_bytes == dense + routed(6)  # 6, 5, 5
    assert ask(moe(), data_parallel=32, expert_parallel=True).weight_bytes == dense + routed(1)


def test_both_ways_weigh_the_same_where_experts_divide_by_the_gpus() -> None:
    for settings in ({"tensor_parallel": 4}, {"tensor_parallel": 2, "data_parallel": 4}):
        assert ask(moe(), **settings).weight_bytes == ask(moe(), expert_parallel=True, **settings).weight_bytes


def test_a_published_mixture_with_attention_in_replicas() -> None:
    model = load_model("qwen3-30b-a3b")  # 48 layers of 128 experts, each 3 x 2048 x 768 values
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    dense = model.weight_bytes() - experts
    found = plan(Scenario(model, CARD, data_parallel=8, expert_parallel=True))
    assert found.weight_bytes == dense + experts // 8


def test_a_dense_model_is_only_copied() -> None:
    assert ask(DENSE, data_parallel=4).weight_bytes == DENSE.weight_bytes()
    assert any("has no routed experts" in text for text in ask(DENSE, expert_parallel=True).warnings)


def test_a_batch_smaller_than_the_replicas_is_warned_of() -> None:
    assert any(
        "leave some of the 4 replicas idle" in text for text in ask(DENSE, batch_size=3, data_parallel=4).warnings
    )


def test_weights_that_do_not_divide_are_warned_of() -> None:
    odd = define_model(
        name="O", num_layers=2, hidden_size=256, num_attention_heads=8, num_kv_heads=4, intermediate_size=510,
        vocab_size=1024,
    )  # fmt: skip
    assert any("510 rows of dense MLP do not divide by 4 GPUs" in text for text in ask(odd, tensor_parallel=4).warnings)
    assert not any("do not divide" in text for text in ask(odd, tensor_parallel=2).warnings)


def test_a_vocabulary_that_does_not_divide_keeps_no_engine_from_starting_and_hides_no_matrix_that_does() -> None:
    """vLLM fills a vocabulary up to a multiple of 64 (`pad_vocab_size`); an MLP it refuses to cut unevenly."""
    shape = {"num_layers": 2, "hidden_size": 256, "num_attention_heads": 8, "num_kv_heads": 4, "vocab_size": 1023}
    (padded,) = ask(define_model(name="V", intermediate_size=512, **shape), tensor_parallel=4).warnings  # type: ignore[arg-type]
    assert padded.startswith("1,023 rows of token embedding do not divide by 4 GPUs: ")
    assert padded.endswith("engines add a few rows until they do")
    odd = ask(define_model(name="V", intermediate_size=510, **shape), tensor_parallel=4).warnings  # type: ignore[arg-type]
    assert [text.split(" do not")[0] for text in odd] == ["510 rows of dense MLP", "1,023 rows of token embedding"]
    assert odd[0].endswith("most engines refuse to start")


def test_rows_that_stand_behind_a_vocabulary_are_divided_with_it_and_not_for_themselves() -> None:
    """Llama 3.2 Vision has 128,256 rows and 8 for image tokens: engines cut 128,264 over 16 GPUs, 8,016.5 on each."""
    asked = Scenario("llama-3.2-11b-vision", "h100-sxm-80gb", tensor_parallel=16)
    found = [text.split(" do not")[0] for text in plan(asked).warnings if "do not divide" in text]
    assert found == ["128,264 rows of token embedding"]
    assert not any("do not divide" in text for text in plan(asked.with_changes(tensor_parallel=8)).warnings)


def test_the_largest_batch_is_that_of_all_replicas() -> None:
    one, four = ask(DENSE), ask(DENSE, data_parallel=4)
    assert one.max_batch_size is not None
    assert four.max_batch_size == 4 * one.max_batch_size


def test_a_prefix_is_held_once_in_each_replica() -> None:
    with_prefix = ask(DENSE, data_parallel=2, shared_prefix=600)
    token = ask(DENSE, batch_size=1, context_length=1).cache_bytes
    assert with_prefix.cache_bytes == token * (600 + 4 * 400)


def test_a_draft_model_lies_in_replicas_too() -> None:
    found = ask(DENSE, data_parallel=2, draft_model=DENSE)
    assert found.draft_bytes == found.weight_bytes + found.cache_bytes


def test_experts_serve_the_tokens_of_all_replicas() -> None:
    one, two = (usages(ask(moe(), data_parallel=count).scenario)[0].shard for count in (1, 2))
    reads_one, reads_two = (sum(read.typical_bytes(8) for read in shard.expert_reads) for shard in (one, two))
    assert reads_two * 2 == reads_one  # half of every expert, for the same eight sequences


@pytest.mark.parametrize(
    ("name", "value"),
    [("data_parallel", 0), ("data_parallel", "x"), ("expert_parallel", 1), ("expert_parallel", [])],
)
def test_a_bad_setting_is_refused_by_its_name(name: str, value: object) -> None:
    model = moe()
    ask(model, expert_parallel=True)  # what is remembered for True is no answer for 1
    with pytest.raises(InputError, match=name):
        ask(model, **{name: value})


placements = st.builds(
    Placement, st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 9), st.booleans()
)  # fmt: skip


def settings_of(placement: Placement) -> dict[str, object]:
    return dict(placement._asdict())


@given(placement=placements, experts=st.integers(2, 40), batch=st.integers(1, 30), tokens=st.integers(1, 5000))
def test_parts_and_terms_add_up_however_a_model_lies(
    placement: Placement, experts: int, batch: int, tokens: int
) -> None:
    found = ask(moe(experts), batch_size=batch, context_length=tokens, **settings_of(placement))
    assert found.weight_bytes + found.cache_bytes + found.overhead_bytes + found.free_bytes == found.capacity_bytes
    assert sum(term.bytes for term in weight_terms(found)) == found.weight_bytes
    assert sum(term.bytes for term in cache_terms(found)) == found.cache_bytes


@given(placement=placements, experts=st.integers(2, 40))
def test_no_byte_is_lost_over_all_gpus(placement: Placement, experts: int) -> None:
    model = moe(experts)
    held = placement.expert_gpus * sum(shard.weight_bytes for shard in model.shards("bf16", None, placement))
    assert held >= model.weight_bytes()


@given(placement=placements)
def test_a_row_of_a_sweep_is_the_plan(placement: Placement) -> None:
    base = ask(moe(), **settings_of(placement)).scenario
    table = sweep(base, context_length=[1, 77, 4096], batch_size=[1, 7, 64])
    for row in table.itertuples():
        here = plan(base.with_changes(context_length=row.context_length, batch_size=row.batch_size))
        assert (row.cache_bytes, row.weight_bytes, row.fits) == (here.cache_bytes, here.weight_bytes, here.fits)
