"""Fewest GPUs, users with spread lengths, adapters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.errors import InputError
from kvplan.fleet import (
    Lengths,
    adapter_bytes,
    cheapest_first,
    fewest_first,
    fewest_for_users,
    fewest_gpus,
    first_full,
    grouped_digits,
    layouts,
    layouts_tried,
    lengths_from_list,
    lengths_from_quantiles,
    parse_lengths,
    parse_pairs,
    plan_users,
    user_warnings,
    which_gpu,
    why_no_stages,
)
from kvplan.hardware import define_gpu
from kvplan.model import Model
from kvplan.plan import Scenario, plan
from kvplan.units import GIB


def model() -> Model:
    return define_model(
        name="L", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip


def scenario(usable_gib: int = 24, **settings: object) -> Scenario:
    gpu = define_gpu(name="G", usable_bytes=usable_gib * GIB, node_gpus=8, rent_usd_per_hour=2.0)
    return Scenario(model(), gpu, **{"overhead_bytes": GIB, "memory_fraction": 1.0, **settings})  # type: ignore[arg-type]


def test_the_fewest_gpus_hold_the_scenario_and_fewer_do_not() -> None:
    asked = scenario(context_length=32768, batch_size=8)  # 32 GiB of cache and 15 GiB of weights
    found = fewest_gpus(asked)
    assert found is not None
    assert found.fits
    assert found.scenario.num_gpus == 3  # three stages of 11 layers: 12 GiB of cache and 6 of weights at the most
    assert found.scenario.pipeline_parallel == 3
    assert not plan(asked.with_changes(tensor_parallel=2)).fits
    assert not plan(asked.with_changes(pipeline_parallel=2)).fits


def test_no_layout_fits_where_the_cache_is_larger_than_any_that_is_tried() -> None:
    assert fewest_gpus(scenario(context_length=2**30, batch_size=1024)) is None


def test_layouts_are_tried_from_few_gpus_to_many() -> None:
    sizes = [p.scenario.num_gpus for p in layouts(scenario())]
    assert sizes == sorted(sizes)
    assert sizes[:6] == [1, 2, 2, 3, 4, 4]
    assert sizes[-1] == 8 * 16


def test_the_fewest_gpus_are_not_more_because_the_scenario_is_in_data_parallel() -> None:
    asked = scenario(context_length=32768, batch_size=8)  # 32 GiB of cache and 15 GiB of weights
    apart = asked.with_changes(data_parallel=4)
    assert [len(list(layouts(one))) for one in (asked, apart)] == [64, 128]
    found, best = fewest_gpus(apart), fewest_for_users(apart, 8, lengths_from_list([32768]))
    assert found is not None
    assert best is not None
    assert found.scenario.num_gpus == best.point.num_gpus == 3


def test_what_was_tried_is_said_with_the_gpus_of_a_node() -> None:
    assert layouts_tried(scenario()) == "Tried: 1, 2, 4, 8 GPUs side by side, each in 1 to 16 pipeline stages"
    alone = define_gpu(name="G", usable_bytes=GIB, node_gpus=1)
    assert layouts_tried(scenario().with_changes(gpu=alone)).startswith("Tried: 1 GPU, each in")


NO_STAGES = "pipeline stages are left out, since a draft model over them is not planned: engines place it differently"


def test_with_a_draft_model_no_stages_are_tried_and_that_is_said() -> None:
    asked = scenario(draft_model=model())
    assert [p.scenario.num_gpus for p in layouts(asked)] == [1, 2, 4, 8]
    assert layouts_tried(asked) == f"Tried: 1, 2, 4, 8 GPUs side by side; {NO_STAGES}"
    assert (why_no_stages(asked), why_no_stages(scenario())) == (NO_STAGES, "")
    small = scenario(2, draft_model=model())
    own, other = which_gpu(small, [model(), model().with_kv_heads(4)], [small.gpu])
    assert own.reason == f"does not fit in any layout tried; {NO_STAGES}"
    assert other.reason == ""  # the draft is the scenario's own model's, and 16 stages hold 15 GiB


@pytest.mark.parametrize("bad", [None, 3, "scenario"], ids=repr)
def test_layouts_are_those_of_a_scenario(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^the scenario is .*; a kvplan.Scenario is needed$"):
        layouts_tried(bad)


def test_lengths_of_a_list_are_its_own_mean_quantile_and_maximum() -> None:
    assert lengths_from_list(range(1, 101)) == Lengths(51, 95, 100, False, "100 given lengths")  # mean 50.5, up


def test_a_single_length_is_mean_quantile_and_maximum() -> None:
    found = lengths_from_list([7])
    assert (found.mean, found.p95, found.maximum) == (7, 7, 7)


def test_log_normal_means_follow_from_median_and_95th_percentile() -> None:
    found = lengths_from_quantiles((1000, 4000), (200, 200), 100_000)
    sigma = math.log(4) / 1.6448536269514722
    assert found.mean == math.ceil(1000 * math.exp(sigma**2 / 2) + 200)
    assert found.p95 == 4200
    assert found.is_estimate


def test_lengths_are_cut_at_the_longest_that_is_allowed() -> None:
    assert lengths_from_quantiles((1000, 4000), (200, 400), 900).p95 == 900


NO_NUMBERS = [None, "100", b"12", {5: 1}, math.nan, math.inf, True, 7]


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
def test_what_is_no_list_of_lengths_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^values is .*; a list of whole numbers is needed$"):
        lengths_from_list(bad)


@pytest.mark.parametrize("bad", [*NO_NUMBERS, (1,), (1, 2, 3)], ids=repr)
def test_what_is_no_pair_of_quantiles_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^answer is .*; a pair of median and 95th percentile is needed$"):
        lengths_from_quantiles((1, 2), bad, 10)


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
def test_every_question_about_a_fleet_refuses_what_is_no_scenario_or_model(bad: Any) -> None:
    lengths = lengths_from_list([100])
    for ask in (
        fewest_gpus,
        lambda scenario: plan_users(scenario, 5, lengths),
        lambda scenario: fewest_for_users(scenario, 5, lengths),
        lambda scenario: which_gpu(scenario, [model()], [scenario]),
    ):
        with pytest.raises(InputError, match=r"^the scenario is .*; a kvplan.Scenario is needed$"):
            ask(bad)
    with pytest.raises(InputError, match=r"^model is .*; a kvplan.Model is needed$"):
        adapter_bytes(bad, 8)


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("ranked", [cheapest_first, fewest_first])
def test_only_rows_of_a_fleet_are_ranked(ranked: Any, bad: Any) -> None:
    with pytest.raises(InputError, match=r"^rows is .*; a list of FleetRow, as which_gpu returns it, is needed$"):
        ranked(bad)
    with pytest.raises(InputError, match=r"^a row is .*; a FleetRow, as which_gpu returns it, is needed$"):
        ranked([bad])


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
def test_models_gpus_and_roles_are_lists(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^models is .*; a list of models or preset ids is needed$"):
        which_gpu(scenario(), bad, [scenario().gpu])
    with pytest.raises(InputError, match=r"^gpus is .*; a list of GPUs or preset ids is needed$"):
        which_gpu(scenario(), [model()], bad)
    with pytest.raises(InputError, match=r"^roles is .*; a list of roles is needed$"):
        adapter_bytes(model(), 8, roles=bad)
    with pytest.raises(InputError, match=r"^role is .*; one of "):
        adapter_bytes(model(), 8, roles=[[bad]])  # type: ignore[list-item]


@pytest.mark.parametrize("bad", [None, "4", [4], {}, math.nan, True, 0, -1, 1.0], ids=repr)
def test_an_adapter_is_cut_over_a_whole_number_of_gpus(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^tensor_parallel is "):
        adapter_bytes(model(), 8, tensor_parallel=bad)


@pytest.mark.parametrize("bad", [None, 5, b"1", [1], {}, math.nan, True], ids=repr)
def test_a_list_that_is_to_be_read_is_a_text(bad: Any) -> None:
    for read in (parse_lengths, parse_pairs):
        with pytest.raises(InputError, match=r"^the list of lengths is .*; a text is needed$"):
            read(bad)


@pytest.mark.parametrize("bad", [[], [0], [-1], ["x"], [1.5], [None], [True], [math.nan], [[1]]])
def test_a_list_that_is_no_list_of_lengths_is_refused(bad: list[int]) -> None:
    with pytest.raises(InputError):
        lengths_from_list(bad)


def test_a_percentile_below_the_median_is_refused() -> None:
    with pytest.raises(InputError, match="95th percentile prompt"):
        lengths_from_quantiles((100, 50), (1, 1), 1000)


def test_users_need_as_many_replicas_as_their_sequences_fill() -> None:
    lengths = lengths_from_list([4096])
    rows = plan_users(scenario(), 100, lengths)
    room = plan(scenario(context_length=4096)).max_batch_size
    assert room == (24 * GIB - GIB - 16_060_522_496) // (4096 * 131_072)
    assert [row.replicas for row in rows] == [-(-100 // room)] * 3
    assert rows[0].num_gpus == rows[0].replicas
    assert rows[0].rent_per_hour == 2.0 * rows[0].num_gpus
    assert rows[0].cache_bytes == 100 * 4096 * 131_072


def test_users_whose_one_sequence_does_not_fit_get_no_number_of_replicas() -> None:
    (row, *_) = plan_users(scenario(usable_gib=16), 5, lengths_from_list([100_000]))
    assert (row.replicas, row.num_gpus, row.rent_per_hour) == (None, None, None)


def test_an_adapter_has_a_and_b_of_its_rank_on_each_matrix() -> None:
    attention = (4096 + 4096) + 2 * (1024 + 4096) + (4096 + 4096)
    mlp = 3 * (14336 + 4096)
    assert adapter_bytes(model(), rank=16, count=3) == 3 * 2 * 16 * 32 * (attention + mlp)


def test_an_unknown_role_for_an_adapter_is_refused() -> None:
    with pytest.raises(InputError, match="role is 'nose'"):
        adapter_bytes(model(), 8, roles=["nose"])


# ------------------------------------------------------------------------------------------------- models x GPUs


def test_gpus_are_ranked_by_price_and_by_number_with_what_is_unknown_last() -> None:
    asked = scenario(context_length=32768, batch_size=8)  # 15 GiB of weights and 32 GiB of cache
    cheap = define_gpu(name="cheap", usable_bytes=24 * GIB, node_gpus=8, rent_usd_per_hour=0.5)
    large = define_gpu(name="large", usable_bytes=96 * GIB, node_gpus=8, rent_usd_per_hour=3.0)
    unpriced = define_gpu(name="unpriced", usable_bytes=40 * GIB, node_gpus=8)
    hopeless = define_gpu(name="hopeless", usable_bytes=GIB, node_gpus=8)
    rows = which_gpu(asked, [model()], [hopeless, unpriced, large, cheap])
    assert {row.gpu: row.num_gpus for row in rows} == {"hopeless": None, "unpriced": 2, "large": 1, "cheap": 3}
    assert [row.gpu for row in cheapest_first(rows)] == ["cheap", "large", "unpriced", "hopeless"]
    assert [row.gpu for row in fewest_first(rows)] == ["large", "unpriced", "cheap", "hopeless"]
    assert cheapest_first(rows)[0].rent_per_hour == 1.5


def test_the_price_of_several_gpus_is_exactly_so_many_times_the_price_of_one() -> None:
    gpu = define_gpu(name="G", usable_bytes=24 * GIB, node_gpus=8, rent_usd_per_hour=0.1)
    asked = Scenario(model(), gpu, context_length=32768, batch_size=8, memory_fraction=1.0, overhead_bytes=GIB)
    (row,) = which_gpu(asked, [model()], [gpu])
    assert (row.num_gpus, row.rent_per_hour) == (3, 0.3)  # of floats 3 * 0.1 is 0.30000000000000004
    (users, *_) = plan_users(asked, 14, lengths_from_list([32768]))
    assert (users.num_gpus, users.rent_per_hour) == (7, 0.7)


def test_of_equal_numbers_the_cheaper_comes_first_and_of_equal_prices_the_name_decides() -> None:
    prices = {"b": 2.0, "a": 2.0, "c": 1.0}
    gpus = [
        define_gpu(name=name, usable_bytes=96 * GIB, node_gpus=8, rent_usd_per_hour=usd) for name, usd in prices.items()
    ]
    rows = which_gpu(scenario(), [model()], gpus)
    assert [row.gpu for row in fewest_first(rows)] == ["c", "a", "b"]
    assert fewest_first(rows) == fewest_first(rows[::-1])


def test_the_scenarios_own_model_keeps_its_number_of_kv_heads_and_another_does_not() -> None:
    asked = scenario(num_kv_heads=1)
    other = define_model(
        name="M", num_layers=16, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, intermediate_size=14336,
        vocab_size=128256,
    )  # fmt: skip
    own, another = which_gpu(asked, [model(), other], [asked.gpu])
    assert own.answer is not None
    assert another.answer is not None
    assert own.answer.scenario.num_kv_heads == 1
    assert another.answer.scenario.num_kv_heads is None


# ----------------------------------------------------------------------------------------------------- users, in detail


@pytest.mark.parametrize("text", ["1, 20;300", "1 20\n300", "length\n1\n20\n300\n", "1,,20,\r\n300"])
def test_lengths_are_read_with_whatever_stands_between_them(text: str) -> None:
    assert parse_lengths(text) == [1, 20, 300]


def test_lengths_may_be_written_with_their_suffix() -> None:
    assert parse_lengths("1k 1.5k") == [1024, 1536]


@pytest.mark.parametrize("text", ["", "\n \n", "prompt,answer"])
def test_an_empty_list_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="empty"):
        parse_lengths(text)


def test_a_length_that_is_none_is_named_by_its_line() -> None:
    with pytest.raises(InputError, match="a length in line 2 is '-3'"):
        parse_lengths("1\n-3")


@pytest.mark.parametrize(("read", "text"), [(parse_lengths, "tokens\n\n100\nx"), (parse_pairs, "a,b\n\n1,2\nx,3")])
def test_a_line_is_counted_as_an_editor_counts_it(read: Any, text: str) -> None:
    with pytest.raises(InputError, match="a length in line 4 is 'x'"):
        read(text)


def test_a_thousands_separator_that_leaves_a_zero_is_explained() -> None:
    with pytest.raises(InputError, match=r"a length in line 2 is 0; .* a comma ends a number: 12000 and not 12,000"):
        parse_lengths("800\n12,000")
    with pytest.raises(InputError, match="a length in line 1 is 0"):
        parse_pairs("0,0")


def test_pairs_are_prompt_and_answer_added_up() -> None:
    assert parse_pairs("prompt;answer\n100;20\n7 1") == [120, 8]


@pytest.mark.parametrize("text", ["1 2 3", "1\n2", "1 2\n3"])
def test_a_line_that_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a prompt and an answer are needed"):
        parse_pairs(text)


SHAPES = [
    {},
    {"shared_prefix": 512, "batch_size": 3},
    {"pipeline_parallel": 3},
    {"tensor_parallel": 4, "adapter_bytes": 7},
    {"draft_model": "draft"},
]


@pytest.mark.parametrize("settings", SHAPES)
def test_bytes_are_what_is_fixed_and_as_much_again_for_each_sequence(settings: dict[str, object]) -> None:
    given = {**settings, "draft_model": model()} if "draft_model" in settings else settings
    answer = plan(scenario(80, context_length=1024, **given))
    fixed, each = first_full(answer)
    most = answer.max_batch_size
    assert most is not None
    assert most == (answer.capacity_bytes - fixed) // each
    assert max(usage.total_bytes(1024, 7) for usage in answer.stages) == fixed + 7 * each


def test_the_fewest_gpus_for_users_are_the_least_of_all_layouts() -> None:
    asked, lengths = scenario(24), lengths_from_list([8192])
    best = fewest_for_users(asked, 50, lengths)
    assert best is not None
    counts = [plan_users(p.scenario, 50, lengths)[1].num_gpus for p in layouts(asked)]
    assert best.point.num_gpus == min(count for count in counts if count is not None)


def test_there_is_no_layout_for_users_whose_sequence_fits_nowhere() -> None:
    assert fewest_for_users(scenario(2), 1, lengths_from_list([2**30])) is None


def test_adapters_of_a_model_known_by_its_count_alone_are_refused() -> None:
    counted = define_model(
        name="C", num_layers=2, hidden_size=64, num_attention_heads=4, num_kv_heads=4, num_params=10**9
    )
    with pytest.raises(InputError, match="not known by role"):
        adapter_bytes(counted, rank=16)


def test_lengths_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match=r"lengths is \[100\]; what lengths_from_list makes is needed"):
        plan_users(scenario(), 5, [100])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"lengths is \[100\]; what lengths_from_list makes is needed"):
        user_warnings(scenario(), 1, [100])  # type: ignore[arg-type]


def test_replicas_are_idle_by_the_number_of_users_and_not_by_the_batch() -> None:
    """Of 4 replicas 3 users leave one idle and 4 none, whatever the batch is; a plan of 1 sequence leaves 3 idle."""
    idle, ten = "leave some of the 4 replicas idle", lengths_from_list([10])
    one, many = (scenario(data_parallel=4, batch_size=batch) for batch in (1, 100))
    assert [any(f"3 sequences {idle}" in text for text in user_warnings(s, 3, ten)) for s in (one, many)] == [True] * 2
    assert [user_warnings(s, 4, ten) for s in (one, many)] == [plan(many).warnings] * 2
    assert any(text.startswith("1 sequence leaves some of the 4") for text in plan(one).warnings)


def test_a_prefix_may_reach_into_the_images_of_users_as_into_those_of_a_batch() -> None:
    """Of 100 text and 50 image tokens 120 are shared, on Users as in a plan: 5 users hold 120 + 5 × 30 tokens."""
    shared = scenario(image_tokens=50, shared_prefix=120, context_length=100, batch_size=5)
    point = plan_users(shared, 5, lengths_from_list([100]))[1]
    assert point.cache_bytes == plan(shared).cache_bytes == (120 + 5 * 30) * shared.model.cache_bytes_per_token()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("900\n12,500", "12,500"),
        ("1,234,567 8", "1,234,567"),
        ("12, 500", ""),
        ("812,1530,97", ""),
        ("0,500", ""),
        ("", ""),
    ],
)
def test_what_may_be_one_number_with_separators_is_found_in_a_list(text, found):
    assert grouped_digits(text) == found
