"""The Plan page's folded sections: the overhead as low, typical and high, the server of the plan; and whole nodes."""

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.commands import start_text
from kvplan.engines.lines import predicted_lines
from kvplan.plan import plan
from kvplan.serving import serve, server_suggestions
from kvplan.suggest import launch_of
from kvplan.units import GIB, MIB

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")


def codes(page):
    return [code.value for code in page.run.code]


def table(page, column):
    return next(table for table in page.tables() if column in table.columns)


# ------------------------------------------------------------------------------------------------------- overheads


def test_the_folded_line_says_whether_it_fits_at_each_of_the_three(app):
    assert "Overhead: low fits; typical fits; high fits" in app().texts()
    tight = LLAMA.with_changes(context_length=65536, batch_size=6)
    answer = plan(tight)
    assert answer.fits
    assert answer.free_bytes_with(answer.runtime.high_bytes) < 0
    assert "Overhead: low fits; typical fits; high does not fit" in app(ctx="64k", batch="6").texts()


def test_closed_sections_count_nothing(app):
    page = app()
    assert not codes(page)
    assert not any("low" in table.columns for table in page.tables())


def test_each_part_stands_with_its_spread_and_the_logs_behind_it(app):
    page = app()
    page.open("overheads")
    found = table(page, "low")
    assert found["on each GPU"].tolist() == ["activations", "CUDA context", "CUDA graphs", "together", "would be free"]
    assert found.set_index("on each GPU").loc["together", "typical"] == "2.26 GiB"  # 1.49 + 0.13 + 0.64
    for part in plan(LLAMA).runtime.parts:
        assert f"{part.label}: {part.source_in('GiB')}" in page.texts()
    graphs = "CUDA graphs: 45 public vLLM start-up logs: median 0.64 GiB, 90th percentile 1.73 GiB, at most 6.56 GiB; "
    assert f"{graphs}10th percentile 0.11 GiB of 32 of them" in page.texts()


def test_figures_of_ones_own_replace_parts_and_travel_in_the_link(app):
    page = app()
    page.open("overheads")
    page.set(own_overhead_activation="500MiB", own_overhead_cuda_graphs="1GiB")
    page.click("use_overheads")
    context = next(part.typical for part in plan(LLAMA).runtime.parts if part.name == "non_torch")
    total = 500 * MIB + GIB + context
    assert page.value("overhead") == str(total)
    assert any(label.endswith("on each GPU, as given") for label in page.texts())
    again = app(overhead=str(total))
    assert any(label.endswith("on each GPU, as given") for label in again.texts())


def test_what_the_plan_counts_is_told_in_parts_where_they_are_known(app):
    page = app()
    page.open("overheads")
    page.set(own_overhead_activation="500MiB")
    page.click("use_overheads")
    taken = table(page, "the plan counts").set_index("the plan counts")
    assert taken.loc["activation peak", "from"] == "given on the Plan page"
    assert taken.loc["CUDA graphs", "from"] == "median of 45 public vLLM start-up logs"
    whole = app(overhead="3GiB")
    whole.open("overheads")
    assert table(whole, "the plan counts")["the plan counts"].tolist() == ["everything else"]


def test_the_parts_of_ones_own_are_known_to_the_engine(app):
    page = app()
    page.open("overheads")
    page.set(own_overhead_activation="500MiB")
    page.click("use_overheads")
    page.go("engine")
    rows = table(page, "out of the pool").set_index("what")
    assert rows.loc["activation peak", "low"] == rows.loc["activation peak", "high"] == "0.49 GiB"


def test_the_estimate_comes_back(app):
    page = app(overhead="3GiB")
    page.open("overheads")
    page.click("estimate_overhead")
    assert page.value("overhead") == ""
    assert "Overhead: low fits; typical fits; high fits" in page.texts()


def test_a_figure_that_is_none_is_said(app):
    page = app()
    page.open("overheads")
    page.set(own_overhead_activation="much")
    page.click("use_overheads")
    assert any("activations is 'much'" in text for text in page.texts())
    assert page.value("overhead") == ""


# ---------------------------------------------------------------------------------------------------------- server


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama.cpp", "ik_llama.cpp", "tensorrt-llm", "transformers"])
def test_the_command_and_the_lines_of_the_engine_stand_on_the_plan_page(app, name):
    page = app()
    page.open("serve")
    page.set(engine=name)
    launch = launch_of(LLAMA, name)
    lines = predicted_lines(launch)
    assert codes(page) == [start_text(launch)[0], *(["\n".join(lines)] if lines else [])]


def test_what_is_reserved_is_told_from_what_is_resident(app):
    page = app(batch="200")
    page.open("serve")
    served = serve(LLAMA.with_changes(batch_size=200), "vllm")
    assert any(text.startswith(f"{served.sentence}: not all requests at once") for text in page.texts())
    found = server_suggestions(served)
    assert {item.sentence for item in found} <= set(page.texts())
    page.click(f"serve_{found[0].lever}")
    assert str(page.value("kv")) == found[0].serving.scenario.kv_dtype


def test_the_engines_sizes_are_of_the_chosen_kind_of_unit(app):
    page = app(model="llama-3.1-70b", kv="q8_0", batch="32", unit="GB")
    page.open("serve")
    page.set(engine="llama.cpp")
    said = next(text for text in page.texts() if text.startswith("llama.cpp takes"))
    # 32 slots × 8,192 tokens × 80 layers × 2 × 8 heads × 128 values, 34 bytes for each 32 of them
    assert 32 * 8192 * 80 * 2 * 8 * 128 * 34 // 32 == 45_634_027_520
    assert said.startswith("llama.cpp takes 45.6 GB of 0 B for 32 slots of 8,192 tokens: ")
    assert not any("GiB" in text for text in page.texts() if "llama.cpp takes" in text)


def test_an_address_that_names_no_engine_is_no_reason_for_a_warning(app):
    page = app(engine="")
    page.open("serve")
    assert [warning.value for warning in page.run.warning] == []
    page = app(engine="nonesuch")
    page.open("serve")
    assert any("engine of the address is not known" in warning.value for warning in page.run.warning)


def test_an_engine_that_cannot_serve_says_so_and_offers_its_own_dtype(app):
    page = app()
    page.open("serve")
    page.set(engine="ollama")
    assert page.errors() == [f"{ENGINES['ollama'].label} cannot serve this plan, so nothing is counted for it"]
    assert codes(page) == []
    page.click("cache_ollama_fp16")
    assert page.value("kv") == "fp16"


# ----------------------------------------------------------------------------------------------------------- nodes


def test_a_node_sets_the_gpu_and_all_of_them(app):
    page = app(pp="2")
    page.set(node="8xh200-141gb")
    assert (page.value("gpu"), page.value("tp"), page.value("pp"), page.value("dp")) == ("h200-141gb", "8", 1, 1)
    assert "8 GPUs: one whole node" in page.texts()


def test_a_node_of_a_gpu_that_is_not_there_is_said(app, tmp_path, monkeypatch):
    (tmp_path / "nodes").mkdir()
    text = 'schema = 1\nname = "Four"\ngpu = "no-such-card"\nnum_gpus = 4\nsource = "a test"\n'
    (tmp_path / "nodes" / "four.toml").write_text(text)
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    page = app()
    page.set(node="four")
    assert (page.value("gpu"), page.value("tp")) == ("h100-sxm-80gb", "1")
    assert any("no GPU is called 'no-such-card'" in text for text in page.texts())


def test_more_than_a_node_is_said(app):
    assert "16 GPUs on 2 nodes of 8: they need a fast network between them" in app(tp="8", dp="2").texts()


def test_replicas_and_whole_experts_are_fields_of_the_address(app):
    page = app(model="qwen3-30b-a3b", dp="4", ep="yes")
    found = plan(kvplan.Scenario("qwen3-30b-a3b", "h100-sxm-80gb", data_parallel=4, expert_parallel=True))
    assert page.heading() == found.sentence
