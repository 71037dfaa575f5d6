"""The pool from GPU, model and flags: parts, spreads, and the settings that matter."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.engines.budget import Flags, PoolBudget, default_max_num_seqs, pool_budget
from kvplan.engines.overheads import activation_peak, cuda_graphs, measured, non_torch, peak_rule
from kvplan.errors import InputError, UnknownNameError
from kvplan.hardware import Gpu, define_gpu
from kvplan.model import Model, Placement
from kvplan.presets import load_gpu
from kvplan.units import GIB


def llama() -> Model:
    return define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip


def gpu(gib: int = 80) -> Gpu:
    return define_gpu(name="G", usable_bytes=gib * GIB)


def ask(**flags: Any) -> PoolBudget:
    return pool_budget(llama(), gpu(), Flags(**{"memory_fraction": 0.5, **flags}))


def test_what_is_requested_less_weights_and_overheads_is_the_pool() -> None:
    found = ask(engine_version="0.11")
    assert found.requested_bytes == 40 * GIB
    assert found.pool_bytes == 40 * GIB - found.weight_bytes - sum(part.typical for part in found.overheads)
    assert found.low_bytes < found.pool_bytes < found.high_bytes
    assert found.shortfall_bytes == 0


def test_every_part_has_a_spread_and_a_source() -> None:
    for part in (*ask().overheads, *ask(engine_version="0.11").outside):
        assert part.low <= part.typical <= part.high
        assert "public" in part.source
        assert not part.measured


def test_graphs_come_out_of_the_pool_only_in_newer_versions() -> None:
    assert [part.name for part in ask(engine_version="0.20").overheads] == ["activation", "non_torch"]
    assert [part.name for part in ask(engine_version="0.20").outside] == ["cuda_graphs"]
    assert [part.name for part in ask(engine_version="0.21").overheads] == ["activation", "non_torch", "cuda_graphs"]
    eager = ask(engine_version="0.21", eager=True).overheads[-1]
    assert (eager.low, eager.typical, eager.high) == (0, 0, 0)


def test_sglang_counts_neither_activations_nor_graphs_inside_its_fraction() -> None:
    found = ask(engine="sglang")
    assert [part.name for part in found.overheads] == ["non_torch"]
    assert {part.name for part in found.outside} == {"activation", "cuda_graphs"}


def test_tensorrt_llm_takes_its_fraction_of_the_rest() -> None:
    found = ask(engine="tensorrt-llm")
    left = 80 * GIB - found.weight_bytes - sum(part.typical for part in found.overheads)
    assert found.pool_bytes == left // 2


def test_tensor_parallelism_divides_weights_and_costs_communication() -> None:
    one, two = ask(), ask(placement=Placement(2))
    assert two.weight_bytes < one.weight_bytes * 0.51
    assert two.overheads[1].typical > one.overheads[1].typical == non_torch(1).typical


def test_where_the_weights_do_not_fit_nothing_is_left_and_the_shortfall_is_stated() -> None:
    found = pool_budget(llama(), gpu(12), Flags(memory_fraction=0.9))
    assert (found.pool_bytes, found.low_bytes) == (0, 0)
    taken = found.weight_bytes + sum(part.typical for part in found.overheads)
    assert found.shortfall_bytes == taken - found.requested_bytes


def test_the_default_fraction_is_the_versions() -> None:
    assert ask(memory_fraction=None, engine_version="0.32").requested_bytes == -(-80 * GIB * 90 // 100)
    assert ask(memory_fraction=None, engine_version="0.33").requested_bytes == -(-80 * GIB * 92 // 100)


def test_sglangs_default_fraction_leaves_its_own_reserve() -> None:
    reserve = 512 + 1.5 * 8192 + 1024 / 8 + 2 * 256  # MiB, of 80 GiB with chunks of 8,192 tokens
    found = ask(engine="sglang", memory_fraction=None)
    assert found.requested_bytes == 80 * GIB - int(reserve * 2**20)


def test_replicas_that_share_no_experts_are_budgeted_like_one() -> None:
    """Each is a server of its own: SGLang's reserve counts --tp-size and --pp-size, and nothing is exchanged."""
    for engine in ("vllm", "sglang"):
        alone = pool_budget(llama(), gpu(), Flags(engine))
        assert pool_budget(llama(), gpu(), Flags(engine, placement=Placement(data_parallel=4))) == alone
        assert pool_budget(llama(), gpu(), Flags(engine, placement=Placement(4))).overheads[-2:] != alone.overheads[-2:]


def test_a_figure_from_a_log_replaces_an_estimate_and_other_replaces_all() -> None:
    one = pool_budget(llama(), gpu(), Flags(), [measured("activation", GIB, "a log")])
    assert [part.measured for part in one.overheads] == [True, False, False]
    everything = pool_budget(llama(), gpu(), Flags(), [measured("other", 2 * GIB, "a log")])
    assert [part.typical for part in everything.overheads] == [2 * GIB]
    with pytest.raises(InputError, match="one of activation, non_torch"):
        measured("memory", GIB, "a log")


def test_the_activation_peak_is_a_batch_forward_and_the_logits_of_every_row() -> None:
    newer = activation_peak(llama(), 2048, 256, 1, peak_rule((0, 11)))
    forward = 2048 * 2 * (3 * 14336 + 4 * 4096)  # gate, up and their product; the down projection and three more rows
    assert newer.typical == forward + 256 * 128256 * 10
    assert newer.high == forward + 256 * 128256 * 39
    older = activation_peak(llama(), 2048, 256, 1, peak_rule((0, 8)))
    assert older.typical == max(forward, 256 * 128256 * 39)
    assert peak_rule((0, 9)).together


def test_the_whole_context_in_one_batch_peaks_at_its_forward_in_the_older_engine() -> None:
    """A public log of Llama 3.1 8B with 131,072 batched tokens (MI300X, V0) prints 14.63 GiB."""
    found = activation_peak(llama(), 131072, 1024, 1, peak_rule((0, 8)))
    assert found.typical == 131072 * 2 * (3 * 14336 + 4 * 4096)
    assert abs(found.typical / GIB - 14.63) < 0.15


def test_the_usual_number_of_rows_follows_from_memory() -> None:
    assert default_max_num_seqs(load_gpu("h100-sxm-80gb")) == 1024
    assert default_max_num_seqs(load_gpu("a100-sxm-80gb")) == default_max_num_seqs(load_gpu("t4-16gb")) == 256


def test_graphs_and_context_are_stated_as_seen_in_logs() -> None:
    assert cuda_graphs().typical == 64 * GIB // 100
    assert (non_torch(1).typical, non_torch(2).typical) == (13 * GIB // 100, 55 * GIB // 100)


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"engine": "ollama"}, UnknownNameError, "no engine with a budget"),
        ({"memory_fraction": 1.5}, InputError, "memory_fraction is 1.5"),
        ({"memory_fraction": True}, InputError, "memory_fraction is True"),
        ({"max_num_seqs": -4}, InputError, "max_num_seqs is -4"),
        ({"max_num_seqs": 0}, InputError, "max_num_seqs is 0"),
    ],
)
def test_bad_flags_are_refused_by_name(flags: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        ask(**flags)
