"""Files of plans, sweeps and comparisons: the same numbers, the inputs and the link in each, and nothing that runs."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given

from kvplan import charts
from kvplan.documents import Figure, table_csv
from kvplan.errors import InputError
from kvplan.explain import part_bytes
from kvplan.hardware import Price
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.report import (
    MAX_SHOWN_ROWS,
    Beside,
    plain_setting_rows,
    plan_csv,
    plan_html,
    plan_json,
    plan_markdown,
    setting_rows,
    sweep_csv,
    sweep_html,
    sweep_json,
    sweep_markdown,
)
from kvplan.share import from_link, to_link
from kvplan.sweep import sweep
from tests.examples import LLAMA_8B, SMALL_GPU, scenarios

SCENARIO = Scenario(
    replace(LLAMA_8B, source="https://example.org/config"), SMALL_GPU, context_length=4096, batch_size=2
)
PLAN = plan(SCENARIO)
HOSTILE = "<script>alert(1)</script> ![x](https://evil.example/p.png) $x$ | `a` :material/home:"
HOSTILE_SCENARIO = Scenario(replace(LLAMA_8B, source=HOSTILE, notes=(HOSTILE, "=1+1")), SMALL_GPU)

ALL_PLAN_FILES = pytest.mark.parametrize("write", [plan_csv, plan_json, plan_markdown, plan_html])
ALL_SWEEP_FILES = pytest.mark.parametrize("write", [sweep_csv, sweep_json, sweep_markdown, sweep_html])


class _Text(HTMLParser):
    """The tags of a page, and its text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)


# -------------------------------------------------------------------------------------------------------- every file


@ALL_PLAN_FILES
def test_every_file_of_a_plan_carries_inputs_sources_numbers_and_a_link_that_opens(
    write: Callable[[MemoryPlan, str], str],
) -> None:
    text = write(PLAN, "https://plan.example/")
    numbers = [4096, PLAN.cache_bytes, PLAN.weight_bytes]
    for_people = write in (plan_markdown, plan_html)
    for wanted in (*(f"{n:,}" if for_people else str(n) for n in numbers), "given by the user"):
        assert wanted in text
    link = re.search(r"https://plan.example/\?[\w=&;%.-]+", text)
    assert link is not None
    assert from_link(link[0]) == SCENARIO


@ALL_SWEEP_FILES
def test_every_file_of_a_sweep_carries_inputs_sources_and_a_link_that_opens(
    write: Callable[[pd.DataFrame, Scenario], str],
) -> None:
    text = write(sweep(SCENARIO, batch_size=[1, 2]), SCENARIO)
    assert "context length (tokens)" in text or '"context_length": 4096' in text
    assert "example.org/config" in text
    link = re.search(r"\?v=1&(amp;)?model=[\w=&;%.-]*", text)
    assert link is not None
    assert from_link(link[0]) == SCENARIO


@ALL_PLAN_FILES
def test_a_scenario_that_fits_in_no_link_says_so_in_its_files(write: Callable[[MemoryPlan], str]) -> None:
    assert "no link: the model" in write(plan(Scenario(replace(LLAMA_8B, name="<b>"), SMALL_GPU)))


def test_numbers_of_settings_carry_separators_where_a_person_reads_them_and_none_where_a_program_does() -> None:
    scenario = SCENARIO.with_changes(context_length=12_288, adapter_bytes=2**30)
    words, plain = dict(setting_rows(scenario)), dict(plain_setting_rows(scenario))
    assert (words["context length (tokens)"], words["adapters (bytes)"]) == ("12,288", "1,073,741,824")
    assert (plain["context length (tokens)"], plain["adapters (bytes)"]) == ("12288", "1073741824")
    assert words["experts stay whole (expert parallelism)"] == plain["experts stay whole (expert parallelism)"] == "no"
    assert words["memory fraction"] == plain["memory fraction"] == "0.9"
    rows = {row["what"]: row for row in csv.DictReader(io.StringIO(plan_csv(plan(scenario))))}
    context = rows["context length (tokens)"]
    assert (context["value"], context["exact"]) == ("12,288", "12288")
    assert "# context length (tokens): 12288\n" in sweep_csv(sweep(scenario, batch_size=[1]), scenario)
    for write in (plan_markdown, plan_html):
        assert "12,288" in write(plan(scenario))


def test_every_setting_has_words() -> None:
    rows = dict(setting_rows(SCENARIO))
    assert rows["weight precision"] == "as published"
    assert rows["run-time overhead (bytes)"] == "an estimate"
    assert not any("_" in label for label in rows)


# ---------------------------------------------------------------------------------------------------------- the plan


def test_the_json_of_a_plan_holds_its_numbers_as_ints() -> None:
    read = json.loads(plan_json(PLAN))
    assert read["result"]["cache_bytes"] == 2 * 32 * 8 * 128 * 4096 * 2 * 2
    assert sum(read["result"]["parts"].values()) == SMALL_GPU.usable_bytes
    assert sum(term["bytes"] for term in read["terms"]) == PLAN.total_bytes
    assert read["inputs"]["model"] == {"id": "", "name": LLAMA_8B.name}


@given(scenarios())
def test_the_parts_of_a_plan_add_up_to_its_capacity(scenario: Scenario) -> None:
    assert sum(part_bytes(plan(scenario)).values()) == scenario.gpu.usable_bytes


def test_the_csv_of_a_plan_is_a_table_of_sections() -> None:
    rows = list(csv.DictReader(io.StringIO(plan_csv(PLAN))))
    assert [row["section"] for row in rows if row["section"] != "term"].count("link") == 1
    exact = {row["what"]: row["exact"] for row in rows if row["section"] == "result"}
    assert int(exact["KV cache"]) == PLAN.cache_bytes


@pytest.mark.parametrize("note", ["a,=1+1", 'a,"=1+1"', "a;@SUM(1)", "a\t=1", "a,,-1+1", "a,'+1"])
def test_no_cell_of_a_comment_is_a_formula(note: str) -> None:
    hostile = SCENARIO.with_changes(model=replace(SCENARIO.model, id="", notes=(note,)))
    (line,) = [row for row in sweep_csv(sweep(SCENARIO), hostile).splitlines() if row.startswith("# note: a")]
    for separator in ",;\t":
        cells = next(csv.reader([line], delimiter=separator))
        assert not [cell for cell in cells if cell.strip("'\"").startswith(("=", "+", "-", "@"))], cells


def test_the_link_of_a_page_can_be_followed() -> None:
    link = "https://kv.example/" + to_link(PLAN.scenario)
    assert f'<a href="{html.escape(link)}"' in plan_html(PLAN, "https://kv.example/")
    assert 'href="javascript' not in plan_html(PLAN, "javascript:alert(1)//")


def test_a_shortfall_stays_a_number_in_csv() -> None:
    short = plan(SCENARIO.with_changes(batch_size=1000))
    exact = {row["what"]: row["exact"] for row in csv.DictReader(io.StringIO(plan_csv(short)))}
    assert int(exact["free"]) == short.free_bytes < 0


# --------------------------------------------------------------------------------------------------------- the sweep

TABLE = sweep(SCENARIO, context_length=[1024, 2048], kv_dtype=["bf16", "q8_0/q4_0"], weight_dtype=[None, "fp8"])
SHOWN = TABLE[TABLE["context_length"] == 2048]


@pytest.mark.parametrize("table", [TABLE, SHOWN, SHOWN.iloc[:0]], ids=["all", "filtered", "none"])
def test_a_sweep_exports_exactly_the_rows_it_is_given(table: pd.DataFrame) -> None:
    back = pd.read_csv(io.StringIO(sweep_csv(table, SCENARIO)), comment="#")
    assert list(back.columns) == list(table.columns)
    assert back.to_numpy().tolist() == table.astype(object).to_numpy().tolist()
    read = json.loads(sweep_json(table, SCENARIO))
    assert read["columns"] == list(table.columns)
    assert read["rows"] == table.astype(object).to_numpy().tolist()


@pytest.mark.parametrize("write", [sweep_markdown, sweep_html])
def test_the_table_on_a_page_has_every_row_and_cell(write: Callable[[pd.DataFrame, Scenario], str]) -> None:
    text = write(TABLE, SCENARIO)
    for size in TABLE["total_bytes"]:
        assert text.count(str(size)) >= (TABLE["total_bytes"] == size).sum()


@pytest.mark.parametrize("write", [sweep_markdown, sweep_html])
def test_a_table_too_long_to_show_is_refused_and_not_cut(write: Callable[[pd.DataFrame, Scenario], str]) -> None:
    table = sweep(SCENARIO, context_length=range(1, MAX_SHOWN_ROWS + 2))
    with pytest.raises(InputError, match=r"has 20,001 rows; Markdown and HTML hold at most 20,000, so use CSV or JSON"):
        write(table, SCENARIO)


@pytest.mark.parametrize(
    ("table", "title"),
    [
        (TABLE.assign(tensor_parallel=2), "Answer: Llama 3.1 8B on 2 × Small"),
        (pd.DataFrame({"tensor_parallel": [2, 2], "batch_size": [1, 2]}), "Answer: Llama 3.1 8B on 2 × Small"),
        (pd.DataFrame({"tensor_parallel": [1, 2]}), "Answer: Llama 3.1 8B on Small"),
        (pd.DataFrame({"tensor parallel": [1]}), "Answer: Llama 3.1 8B on Small"),
        (pd.DataFrame({"gpu": ["t4-16gb", "l4-24gb"], "tensor_parallel": [1, 2]}), "Answer: Llama 3.1 8B"),
        (pd.DataFrame({"model": ["Llama 3.1 8B"] * 2, "GPU": ["t4-16gb", "l4-24gb"]}), "Answer: Llama 3.1 8B"),
        (pd.DataFrame({"model": ["a", "b"], "GPU": ["t4-16gb", "t4-16gb"]}), "Answer"),
    ],
)
def test_the_title_of_a_sweep_names_no_gpu_or_model_that_its_rows_differ_in(table: pd.DataFrame, title: str) -> None:
    scenario = Scenario(replace(LLAMA_8B, name="Llama 3.1 8B"), replace(SMALL_GPU, name="Small"), tensor_parallel=2)
    assert f"<h1>{title}</h1>" in sweep_html(table, scenario, title="Answer")
    assert sweep_markdown(table, scenario, title="Answer").startswith(f"# {title}\n")


OWN = "each row has its own, whatever the inputs say: "
SWEPT = {
    "contexts, precisions": (TABLE, "context length (tokens), weight precision, KV cache precision"),
    "GPUs": (pd.DataFrame({"gpu": ["t4-16gb", "l4-24gb"], "tensor_parallel": [1, 1]}), "GPU"),
    "the page's fewest GPUs": (
        pd.DataFrame({"GPU": ["Small"], "tensor parallel": [4], "pipeline stages": [2], "price of": ["2026"]}),
        "tensor parallelism, pipeline stages",
    ),
    "KV heads": (pd.DataFrame({"KV heads": [1, 8, 32]}), "KV heads"),
}


@ALL_SWEEP_FILES
@pytest.mark.parametrize(("table", "own"), SWEPT.values(), ids=SWEPT)
def test_the_inputs_of_a_sweep_say_which_of_them_are_each_rows_own(
    write: Callable[[pd.DataFrame, Scenario], str], table: pd.DataFrame, own: str
) -> None:
    scenario = Scenario(LLAMA_8B, replace(SMALL_GPU, name="Small"), batch_size=2)
    text = write(table, scenario).replace("\\", "")
    assert re.search(f'{re.escape(OWN + own)}(<|"| \\||\n)', text)


@ALL_SWEEP_FILES
def test_sources_of_other_models_and_gpus_that_rows_are_of_come_along_with_prices_where_there_are_any(
    write: Callable[..., str],
) -> None:
    model = replace(LLAMA_8B, name="Other", source="a paper", notes=("counted by hand",))
    rent = (Price("rent", 2.5, "2026-11-01", "a price list"), Price("rent", 2.25, "2026-10-01", "a cheaper one"))
    gpu = replace(SMALL_GPU, name="Large", usable_basis="read from a driver", sources=("a data sheet",), prices=rent)
    rows = pd.DataFrame({"model": ["Other"], "GPU": ["Large"], "USD an hour": [2.25]})
    text = write(rows, SCENARIO, beside=Beside((model,), (gpu,)))
    for said in ("a paper", "counted by hand", "read from a driver", "a data sheet"):
        assert text.count(said) == 1
    assert "$2.25 an hour on 2026-10-01, a cheaper one" in text.replace("\\", "")
    assert "a cheaper one" not in write(rows.drop(columns="USD an hour"), SCENARIO, beside=Beside((model,), (gpu,)))


@ALL_SWEEP_FILES
def test_a_sweep_of_nothing_but_the_inputs_has_no_word_on_its_rows(
    write: Callable[[pd.DataFrame, Scenario], str],
) -> None:
    for scenario in (SCENARIO, SCENARIO.with_changes(num_kv_heads=4, weight_dtype="fp8")):
        assert OWN not in write(sweep(scenario), scenario)


def test_counts_are_integers_beside_a_gap_and_other_numbers_stay() -> None:
    table = pd.DataFrame(
        {"GPUs": [2, None], "rent": [2.5, None], "huge": [2.0**60, None], "none": [None, float("nan")]}
    )
    rows = json.loads(sweep_json(table, SCENARIO))["rows"]
    assert rows == [[2, 2.5, 2.0**60, None], [None] * 4]
    assert type(rows[0][0]) is int
    assert table_csv(table) == "GPUs,rent,huge,none\n2,2.5,1.152921504606847e+18,\n,,,\n"


def test_a_missing_value_is_null_in_json_and_empty_elsewhere() -> None:
    table = pd.DataFrame({"heads": pd.array([8, None], dtype="Int64"), "rent": [0.5, None], "name": ["a", None]})
    assert json.loads(sweep_json(table, SCENARIO))["rows"] == [[8, 0.5, "a"], [None, None, None]]
    assert table_csv(table) == "heads,rent,name\n8,0.5,a\n,,\n"


# ------------------------------------------------------------------------------------------------------ what runs


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_no_cell_is_a_formula_to_a_spreadsheet(start: str) -> None:
    cell = f"{start}cmd|' /C calc'!A0"
    table = pd.DataFrame({cell: ["x"], "name": [cell], "kind": pd.Categorical([cell]), "bytes": [-1]})
    head, row = list(csv.reader(io.StringIO(table_csv(table), newline="")))
    assert (head[0], row) == (f"'{cell}", ["x", f"'{cell}", f"'{cell}", "-1"])
    scenario = Scenario(replace(LLAMA_8B, source=cell), SMALL_GPU)
    cells = [field for line in csv.reader(io.StringIO(plan_csv(plan(scenario)))) for field in line]
    assert not any(field.startswith(("=", "+", "@")) for field in cells)


def test_a_cell_stays_on_its_line() -> None:
    assert table_csv(pd.DataFrame({"a": ["x\r=1+1\n=2", "b"]})) == "a\nx =1+1 =2\nb\n"


def test_a_page_shows_hostile_text_as_text() -> None:
    for page in (plan_html(plan(HOSTILE_SCENARIO)), sweep_html(TABLE, HOSTILE_SCENARIO, title=HOSTILE)):
        read = _Text(page)
        assert "alert(1)" in "".join(read.words)
        assert {tag for tag, _ in read.tags} <= {
            "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "table", "caption",
            "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "script", "code",
        }  # fmt: skip
        assert [tag for tag, _ in read.tags].count("script") in (0, 5)  # three figures, their program, its call


def test_a_figure_cannot_end_the_script_that_it_stands_in() -> None:
    figure = Figure("</script><b>", "' onload='x", {"data": [{"name": "</script><img src=x>"}], "layout": {}})
    read = _Text(sweep_html(TABLE, SCENARIO, [figure]))
    assert [tag for tag, _ in read.tags].count("script") == 3
    assert not {"b", "img"} & {tag for tag, _ in read.tags}
    assert not any("onload" in attributes for _, attributes in read.tags)


def test_a_page_asks_no_server_for_anything() -> None:
    read = _Text(plan_html(PLAN))
    assert not any({"src", "href"} & set(attributes) for _, attributes in read.tags)
    policy = next(attributes["content"] for _, attributes in read.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_markdown_shows_hostile_text_as_text() -> None:
    text = plan_markdown(plan(HOSTILE_SCENARIO))
    body = text.partition("## Link")[0]
    assert "<script" not in body
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(", body)
    assert "://" not in body
    assert ":material" not in body
    for line in body.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4)


# -------------------------------------------------------------------------------------------------------- the figures


def test_the_figures_of_a_page_hold_the_plans_own_numbers() -> None:
    page = plan_html(PLAN)
    figures = [json.loads(text) for text in re.findall(r"<script type='application/json'>(.*?)</script>", page)]
    bar, curve, _ = figures
    sizes = {trace["customdata"][0][0] for trace in bar["data"]}
    assert {PLAN.cache_bytes, PLAN.free_bytes, PLAN.runtime.typical_bytes} <= sizes
    assert len(curve["data"]) == len(charts.cache_against_weights(PLAN, TABLE)["data"])


@pytest.mark.parametrize("write", [plan_csv, plan_json, plan_markdown, plan_html])
def test_only_a_plan_is_written_into_a_file(write: Callable[..., str]) -> None:
    with pytest.raises(InputError, match=r"^the plan is 3; a MemoryPlan is needed$"):
        write(3)
