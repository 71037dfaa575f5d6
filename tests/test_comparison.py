"""Scenarios side by side: what differs, by how many bytes, and the files and the link of it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention import CompressedAttention
from kvplan.comparison import (
    change_rows,
    compare,
    comparison_csv,
    comparison_html,
    comparison_json,
    comparison_markdown,
    figure_alt,
    memory_bars,
    part_rows,
)
from kvplan.errors import InputError, LinkError
from kvplan.hardware import define_gpu
from kvplan.plan import Scenario, plan
from kvplan.share import from_comparison_link
from kvplan.units import GIB
from tests.examples import LLAMA_8B, SMALL_GPU, model_of, scenarios

SCENARIO = Scenario(
    replace(LLAMA_8B, source="https://example.org/config"), SMALL_GPU, context_length=4096, batch_size=2
)
OTHER = SCENARIO.with_changes(kv_dtype="fp8", batch_size=3)
BIG_GPU = define_gpu(name="Other", usable_bytes=100 * GIB)
THREE = compare(SCENARIO, OTHER, SCENARIO.with_changes(gpu=BIG_GPU))
ONE = 2 * 32 * 8 * 128 * 4096  # values of one sequence's cache

WORDS = "".join(hashlib.sha256(bytes([index])).hexdigest() for index in range(200))  # which no packing makes short

ALL_FILES = pytest.mark.parametrize(
    "write", [comparison_csv, comparison_json, comparison_markdown, comparison_html], ids=lambda write: write.__name__
)


# ------------------------------------------------------------------------------------------------------- differences


@given(st.lists(scenarios(), min_size=2, max_size=4))
def test_the_differences_of_the_parts_add_up_to_that_of_the_capacity(compared: list[Scenario]) -> None:
    *parts, capacity = compare(*compared).parts
    for index, scenario in enumerate(compared):
        assert capacity.differences[index] == scenario.gpu.usable_bytes - compared[0].gpu.usable_bytes
        assert sum(part.differences[index] for part in parts) == capacity.differences[index]
        assert sum(part.sizes[index] for part in parts) == scenario.gpu.usable_bytes


def test_a_comparison_says_what_changed_and_by_how_many_bytes() -> None:
    found = compare(SCENARIO, OTHER)
    assert [tuple(change) for change in found.settings] == [
        ("sequences at once", ("2", "3")),
        ("KV cache precision", ("bf16", "fp8")),
    ]
    differences = {part.what: part.differences for part in found.parts}
    assert differences["KV cache"] == (0, 3 * ONE * 1 - 2 * ONE * 2)
    assert differences["weights"] == (0, 0)
    assert differences["free"] == (0, ONE)
    assert found.sentences == ("B holds 256.0 MiB less than A on each GPU; both fit",)


def test_numbers_of_settings_carry_separators_where_a_person_reads_them_and_none_where_a_program_does() -> None:
    found = compare(SCENARIO, SCENARIO.with_changes(context_length=12_288))
    assert found.settings == (("context length (tokens)", ("4,096", "12,288")),)
    assert json.loads(comparison_json(found))["changed"] == [
        {"what": "context length (tokens)", "values": ["4096", "12288"]}
    ]
    rows = [row[1:4] for row in csv.reader(io.StringIO(comparison_csv(found))) if row[0] == "input"]
    assert ["context length (tokens)", "4096", "12288"] in rows
    for write in (comparison_markdown, comparison_html):
        assert "12,288" in write(found)


def test_each_of_three_is_measured_against_the_first() -> None:
    assert THREE.letters == "ABC"
    assert THREE.sentences == (
        "B holds 256.0 MiB less than A on each GPU; both fit",
        "C holds exactly as much as A on each GPU; both fit",
    )
    assert {part.what: part.differences for part in THREE.parts}["usable capacity"] == (
        0, 0, 100 * GIB - SMALL_GPU.usable_bytes,
    )  # fmt: skip
    assert [change.words for change in THREE.settings if change.what == "GPU"] == [
        (SMALL_GPU.name, SMALL_GPU.name, "Other")
    ]


def test_what_the_engine_leaves_unused_is_held_by_nobody() -> None:
    """The other GPU is larger, the other engine leaves more of it alone: the tensors are the same."""
    first = SCENARIO.with_changes(overhead_bytes=GIB)
    for other in (first.with_changes(gpu=BIG_GPU), first.with_changes(memory_fraction=0.95)):
        found = compare(first, other.with_changes(overhead_bytes=2 * GIB))
        assert found.sentences == ("B holds 1.00 GiB more than A on each GPU; both fit",)
        assert {part.what: part.differences[1] for part in found.parts}["left unused"] != 0


def test_a_scenario_compared_with_itself_changes_nothing() -> None:
    found = compare(SCENARIO, SCENARIO)
    assert found.settings == ()
    assert {part.differences for part in found.parts} == {(0, 0)}
    assert found.sentences == ("B holds exactly as much as A on each GPU; both fit",)
    assert all(len(set(change.words)) == 1 for change in found.limits)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [(2, 1000, "only A fits"), (1000, 2, "only B fits"), (1000, 999, "neither fits")],
)
def test_a_comparison_says_which_fits(first: int, second: int, verdict: str) -> None:
    found = compare(SCENARIO.with_changes(batch_size=first), SCENARIO.with_changes(batch_size=second))
    assert found.sentences[0].endswith(verdict)


def test_the_answer_of_each_is_its_plans() -> None:
    assert THREE.answers[1] == f"B: {plan(OTHER).sentence}"


def test_models_of_one_name_still_differ_in_words() -> None:
    found = compare(SCENARIO, SCENARIO.with_changes(num_kv_heads=4))
    saved = 32 * 2 * 4 * 128 * 4096  # four heads fewer in the k and v weights of every layer
    assert [change.what for change in found.settings] == ["KV heads", "parameters"]
    assert {part.what: part.differences for part in found.parts}["weights"] == (0, -2 * saved)


def test_bytes_a_token_are_whole_or_say_that_they_are_not() -> None:
    shared = model_of([CompressedAttention(512, 64, 128, 128)])  # one entry of 1,024 B for every 128 tokens
    odd = model_of([CompressedAttention(511, 64, 128, 128)])  # 1,022 B for every 128
    found = compare(Scenario(shared, SMALL_GPU), Scenario(odd, SMALL_GPU))
    assert [change.words for change in found.limits if change.what == "cache bytes a token"] == [("8", "7.98")]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_two_to_four_scenarios_are_compared(count: int) -> None:
    with pytest.raises(LinkError, match="2 to 4"):
        compare(*[SCENARIO] * count)


def test_a_comparison_is_itself_a_link() -> None:
    assert from_comparison_link(THREE.link) == tuple(p.scenario for p in THREE.plans)


# ------------------------------------------------------------------------------------------------------------- tables


def test_a_row_of_bytes_holds_each_and_its_difference() -> None:
    head, *rows = part_rows(THREE, str)
    assert head == ("what", "A", "B", "B − A", "C", "C − A")
    cache = next(row for row in rows if row[0] == "KV cache")
    assert cache == (
        "KV cache", f"{2 * 2 * ONE}", f"{3 * ONE}", f"{3 * ONE - 4 * ONE:+,} B", f"{2 * 2 * ONE}", "0 B",
    )  # fmt: skip


def test_a_row_of_what_differs_holds_the_words_of_each() -> None:
    assert change_rows(compare(SCENARIO, OTHER))[:2] == [("what", "A", "B"), ("sequences at once", "2", "3")]


# ------------------------------------------------------------------------------------------------------------- figure


def test_the_bars_hold_the_plans_own_bytes() -> None:
    figure = memory_bars(THREE)
    drawn = {trace["name"]: [cell[0] for cell in trace["customdata"]] for trace in figure["data"]}
    assert drawn["KV cache"] == [p.cache_bytes for p in THREE.plans]
    assert drawn["Free"] == [p.free_bytes for p in THREE.plans]
    assert {tuple(trace["y"]) for trace in figure["data"]} == {("A", "B", "C")}
    assert [line["x0"] for line in figure["layout"]["shapes"]] == [p.capacity_bytes / GIB for p in THREE.plans]


def test_what_is_short_is_not_drawn_as_memory() -> None:
    found = compare(SCENARIO, SCENARIO.with_changes(batch_size=1000))
    free = next(trace for trace in memory_bars(found)["data"] if trace["name"] == "Free")
    assert free["x"][1] is None
    assert free["customdata"][1][0] == plan(SCENARIO.with_changes(batch_size=1000)).free_bytes


def test_what_is_an_estimate_is_hatched_on_an_empty_ground_and_what_was_given_is_filled() -> None:
    found = compare(SCENARIO, SCENARIO.with_changes(overhead_bytes=GIB))
    drawn = {trace["name"]: trace for trace in memory_bars(found)["data"]}
    overhead = drawn["Overhead"]
    assert overhead["marker"]["pattern"]["shape"] == ["/", ""]
    assert overhead["marker"]["pattern"]["fillmode"] == "replace"
    assert [cell[2] for cell in overhead["customdata"]] == [", an estimate", ""]
    assert "pattern" not in drawn["Weights"]["marker"]


def test_the_figure_says_in_words_what_it_shows() -> None:
    assert "B holds 256.0 MiB less than A" in figure_alt(THREE)


def test_a_warning_that_not_all_share_says_whose_it_is() -> None:
    guess = SCENARIO.with_changes(model=replace(LLAMA_8B, name="Guess", is_estimate=True))
    said = "Guess is itself an estimate, and so is every figure here; its notes say why"
    assert compare(SCENARIO, guess).warnings == (f"B: {said}",)
    assert compare(guess, SCENARIO, guess).warnings == (f"A, C: {said}",)
    assert compare(guess, guess).warnings == (said,)


# -------------------------------------------------------------------------------------------------------------- files


@ALL_FILES
def test_every_file_carries_the_inputs_of_all_the_sources_and_the_link_that_opens(write) -> None:  # type: ignore[no-untyped-def]
    text = write(THREE, "https://kv.example/compare").replace("&amp;", "&")
    for word in ("fp8", "Other", "example.org/config"):
        assert word in text
    link = re.search(r"https://kv\.example/compare(\?v=1[^\s\",<]*)", text)
    assert link is not None
    assert from_comparison_link(link[1]) == tuple(p.scenario for p in THREE.plans)


def test_the_csv_has_a_column_for_each_scenario_and_each_difference() -> None:
    head, *rows = csv.reader(io.StringIO(comparison_csv(THREE)))
    assert head == ["section", "what", "A", "B", "B − A", "C", "C − A"]
    assert {len(row) for row in rows} == {len(head)}
    cache = next(row for row in rows if row[:2] == ["bytes", "KV cache"])
    assert [cache[2], cache[3], cache[5]] == [str(p.cache_bytes) for p in THREE.plans]
    assert [cache[4], cache[6]] == [str(-ONE), "0"]


def test_numbers_of_the_csv_are_read_by_programs() -> None:
    rows = {(row[0], row[1]): row[2:] for row in csv.reader(io.StringIO(comparison_csv(THREE)))}
    for section, what in (("bytes", "free"), ("limit", "longest context"), ("limit", "cache bytes a token")):
        assert [int(cell) for cell in rows[section, what] if cell], what
    assert [cell for cell in rows["answer", "answer"] if cell] == [p.sentence for p in THREE.plans]


def test_the_json_holds_bytes_as_numbers() -> None:
    found = json.loads(comparison_json(THREE))
    sizes = {row["what"]: row for row in found["bytes"]}
    assert sizes["KV cache"]["bytes"] == [p.cache_bytes for p in THREE.plans]
    assert sizes["KV cache"]["more_than_the_first"] == [0, -ONE, 0]
    assert found["inputs"]["B"]["kv_dtype"] == "fp8"
    limits = {row["what"]: row["values"] for row in found["limits"]}
    assert limits["longest context"] == [str(p.max_context_length) for p in THREE.plans]


def test_the_page_holds_the_figure() -> None:
    page = comparison_html(THREE)
    (figure,) = re.findall(r"<script type='application/json'>(.*?)</script>", page)
    assert json.loads(figure)["data"][0]["name"] == "Weights"


def test_a_source_that_not_all_share_says_whose_it_is() -> None:
    text = comparison_markdown(THREE)
    assert "usable memory of Other (C)" in text
    assert f"| usable memory of {SMALL_GPU.name} (A, B) |" in text


def test_a_comparison_that_no_link_carries_says_so_in_its_files() -> None:
    large = replace(LLAMA_8B, id="", name="L", notes=(WORDS,))
    text = comparison_csv(compare(SCENARIO, SCENARIO.with_changes(model=large)))
    assert "no link: " in text


@ALL_FILES
def test_names_stay_text_in_every_file(write) -> None:  # type: ignore[no-untyped-def]
    hostile = replace(LLAMA_8B, source="<script>alert(1)</script>", notes=("=1+1", "![x](https://evil.example/p.png)"))
    text = write(compare(SCENARIO, SCENARIO.with_changes(model=hostile)))
    if write is comparison_html:
        assert "<script>alert" not in text
    if write is comparison_markdown:
        assert "![x]" not in text
    if write is comparison_csv:
        assert "\n=1" not in text


@ALL_FILES
def test_only_a_comparison_is_written_into_a_file(write) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=r"^the comparison is 3; a Comparison is needed$"):
        write(3)
