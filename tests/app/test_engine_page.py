"""Engine: what a server reserves, prints and is started with, and a start-up log beside the plan."""

from urllib.parse import parse_qsl

import pytest

import kvplan
from kvplan.define import define_model
from kvplan.engines import ENGINES
from kvplan.engines.commands import command
from kvplan.engines.launch import budget_of
from kvplan.engines.lines import predicted_lines
from kvplan.engines.overheads import measured
from kvplan.engines.reserved import reserved_of
from kvplan.engines.support import default_cache_dtype
from kvplan.serving import serve, server_suggestions
from kvplan.suggest import launch_of
from kvplan.units import GIB, format_bytes

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
LOG = "paste your log"

VLLM_LOG = """
INFO [api_server.py:1805] vLLM API server version 0.10.1.1
INFO [core.py:74] Initializing a V1 LLM engine (v0.10.1.1) with config: model='Qwen/Qwen2-7B-Instruct', \
dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=1, kv_cache_dtype=auto
INFO [gpu_model_runner.py:2007] Model loading took 14.2488 GiB and 30.1 seconds
INFO [gpu_worker.py:276] Available KV cache memory: 24.83 GiB
INFO [kv_cache_utils.py:849] GPU KV cache size: 464,848 tokens
INFO [kv_cache_utils.py:853] Maximum concurrency for 16,384 tokens per request: 28.37x
INFO [gpu_model_runner.py:2706] Graph capturing finished in 18 secs, took 0.50 GiB
"""
WHOLE_LOG = """
INFO [utils.py:302] vLLM API server version 0.23.0
INFO [gpu_worker.py:692] Available KV cache memory: 10.21 GiB
INFO [model_runner.py:407] Model loading took 8.61 GiB memory and 5.4 seconds
INFO [gpu_worker.py:955] Free memory on device (22.84/23.25 GiB) on startup. Desired GPU memory utilization is \
(0.9, 20.92 GiB). Actual usage is 8.80 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, \
and 0.23 GiB for CUDAGraph memory.
INFO [gpu_model_runner.py:2706] Graph capturing finished in 18 secs, took 0.23 GiB
"""
LLAMACPP_LOG = """
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 8192
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
"""


def on_engine(app, **address):
    page = app(**address)
    page.go("engine")
    return page


def with_log(app, text, **values):
    page = on_engine(app)
    page.set(engine_view=LOG)
    page.set(log_text=text)
    if values:
        page.set(**values)
    return page


def test_a_pasted_log_has_a_limit_that_says_to_upload_the_file(app):
    page = with_log(app, "x\n" * 10)
    assert not any("Upload it as a file" in text for text in page.texts())
    (field,) = (area for area in page.run.text_area if area.key == "log_text")
    assert field.proto.max_chars == 1_000_000
    page = with_log(app, "x\n" * 500_000)
    assert any("reaches the 1,000,000 characters" in text and "a file of up to 5 MB" in text for text in page.texts())


def codes(page):
    return [code.value for code in page.run.code]


def subheads(page):
    return [head.value for head in page.run.subheader]


def frame(page, column):
    """The first table with that column."""
    return next(table for table in page.tables() if column in table.columns)


# --------------------------------------------------------------------------------------------------------- server


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_the_command_and_the_lines_are_those_of_the_engine(app, name):
    page = on_engine(app)
    page.set(engine=name)
    launch = launch_of(LLAMA, name)
    assert codes(page) == [command(launch), "\n".join(predicted_lines(launch))]
    assert not page.errors()


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_page_that_names_both_numbers(app, name):
    kv = default_cache_dtype(name, LLAMA.model)
    page = on_engine(app, kv=kv)
    page.set(engine=name)
    found = reserved_of(launch_of(LLAMA.with_changes(kv_dtype=kv), name), 0)
    assert page.metric("Resident") == "8.00 GiB"  # 8 x 8192 tokens x 2 x 32 layers x 8 heads x 128 x 2 bytes
    assert page.metric("Reserved") == format_bytes(found.bytes, "GiB")
    assert not page.errors()


def test_a_model_that_is_an_estimate_says_so_above_what_an_engine_makes_of_it(app):
    guess = define_model(
        name="Guess", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, num_params=8 * 10**9
    )
    fields = parse_qsl(kvplan.to_link(LLAMA.with_changes(model=guess))[1:], keep_blank_values=True)
    page = on_engine(app, **dict(fields))
    assert "Guess is itself an estimate, and so is every figure here; its notes say why" in page.texts()


def test_a_window_model_reserves_another_number_than_it_holds(app):
    page = on_engine(app, model="gemma-3-27b", ctx="32k")
    assert page.metric("Resident") != page.metric("Reserved")


def test_the_pool_stands_with_its_low_typical_and_high_figure(app):
    page = on_engine(app)
    budget = budget_of(launch_of(LLAMA, "vllm"))
    table = frame(page, "requests at once")
    assert table["pool"].tolist() == ["low", "typical", "high"]
    assert table["bytes"].tolist() == [budget.low_bytes, budget.pool_bytes, budget.high_bytes]


def test_every_overhead_shows_its_spread_and_its_source(app):
    page = on_engine(app)
    budget = budget_of(launch_of(LLAMA, "vllm"))
    rows = frame(page, "out of the pool")
    assert rows["what"].tolist() == [part.label for part in budget.overheads]
    assert rows["high"].tolist() == [format_bytes(part.high, "GiB") for part in budget.overheads]
    assert {f"{part.label}: {part.source}" for part in budget.overheads} <= set(page.texts())


def test_the_version_changes_what_is_printed(app):
    page = on_engine(app)
    page.set(engine_version="0.11")
    assert codes(page)[1].splitlines() == list(predicted_lines(launch_of(LLAMA, "vllm", "0.11")))


REFUSED = "cannot serve this plan, so nothing is counted for it"


def test_a_version_that_is_none_is_said_in_words(app):
    page = on_engine(app)
    page.set(engine_version="latest")
    assert page.errors() == [f"vLLM {REFUSED}"]
    assert "engine_version is 'latest'; write it as 0.11 or 0.20.1" in page.texts()
    assert not page.run.metric


@pytest.mark.parametrize(
    ("name", "address", "words"),
    [
        ("vllm", {"kv": "q8_0"}, "vLLM has no cache dtype q8_0; choose bf16, its default"),
        ("sglang", {"kv": "q8_0/q4_0"}, "SGLang stores K and V alike"),
        ("ollama", {"kv": "bf16"}, "Ollama has no cache dtype bf16; choose fp16, its default, or q8_0, q4_0"),
        ("llama.cpp", {"kv": "fp8"}, "llama.cpp has no cache dtype fp8"),
        ("tensorrt-llm", {"kv": "nvfp4"}, "TensorRT-LLM has no cache dtype nvfp4"),
        ("transformers", {"kv": "fp8"}, "transformers keeps its cache in the dtype that the model is computed in"),
        ("transformers-static", {"pp": "2"}, "transformers, static cache has no pipeline stages"),
        ("llama.cpp", {"dp": "2"}, "llama.cpp has neither data nor expert parallelism"),
        ("vllm", {"model": "qwen3-235b-a22b-fp8", "tp": "8"}, "would be cut to 192 rows"),
    ],
)
def test_what_an_engine_cannot_serve_is_said_and_nothing_is_counted(app, name, address, words):
    page = on_engine(app, **address)
    page.set(engine=name)
    assert page.errors() == [f"{ENGINES[name].label} {REFUSED}"]
    assert any(words in text for text in page.texts()), page.texts()
    assert (codes(page), subheads(page), list(page.run.metric)) == ([], [], [])


def test_a_cache_dtype_that_the_engine_has_is_one_click_away(app):
    page = on_engine(app)
    page.set(engine="ollama")
    page.click("cache_ollama_fp16")
    assert page.value("kv") == "fp16"
    assert page.metric("Reserved") == "8.00 GiB"


def test_a_plan_too_large_offers_the_smallest_changes_by_what_the_engine_reserves(app):
    page = on_engine(app, ctx="128k", batch="16", gpu="rtx-4090-24gb")
    assert "cannot hold one request" in subheads(page)[0]
    scenario = kvplan.Scenario("llama-3.1-8b", "rtx-4090-24gb", context_length=131072, batch_size=16)
    found = server_suggestions(serve(scenario, "vllm"))
    assert found
    assert {suggestion.sentence for suggestion in found} <= set(page.texts())
    lever = found[0].lever
    page.click(f"engine_{lever}")
    assert serve(found[0].serving.scenario, "vllm").fits
    assert not any("What would make" in head for head in subheads(page))


def test_layers_that_do_not_fit_on_the_gpu_are_said(app):
    page = on_engine(app, model="llama-3.1-70b", kv="fp16", batch="1")
    page.set(engine="llama.cpp")
    assert any("start with -ngl" in text for text in page.texts())


def test_replicas_hold_the_requests_of_all(app):
    page = on_engine(app, dp="2")
    found = serve(LLAMA.with_changes(data_parallel=2), "vllm").reserved.typical
    assert f"{found.max_concurrency * 2:,.2f} requests" in subheads(page)[0]
    assert "--data-parallel-size 2" in codes(page)[0]


def test_transformers_is_called_from_python(app):
    page = on_engine(app)
    page.set(engine="transformers-static")
    assert 'cache_implementation="static"' in codes(page)[0]
    assert len(codes(page)) == 1  # it prints nothing about its memory


def test_weights_that_do_not_fit_are_told_by_how_much(app):
    page = on_engine(app, model="llama-3.1-70b")
    short = budget_of(launch_of(kvplan.Scenario("llama-3.1-70b", "h100-sxm-80gb"), "vllm")).shortfall_bytes
    assert format_bytes(short, "GiB") in subheads(page)[0]


def test_requests_that_must_wait_are_said(app):
    page = on_engine(app, batch="200")
    assert "the others wait" in subheads(page)[0]


def test_a_given_overhead_replaces_every_estimate(app):
    page = on_engine(app, overhead="3GiB")
    launch = launch_of(LLAMA, "vllm", None, (measured("other", 3 * GIB, "given"),))
    assert frame(page, "out of the pool")["what"].tolist() == ["everything else"]
    assert frame(page, "requests at once")["bytes"].tolist() == [budget_of(launch).pool_bytes] * 3


def test_one_figure_for_all_overheads_says_nothing_of_the_pool_of_sglang(app):
    page = on_engine(app, overhead="3GiB")
    page.set(engine="sglang")
    assert frame(page, "requests at once")["bytes"].tolist()[1] == budget_of(launch_of(LLAMA, "sglang")).pool_bytes
    assert any("not used" in text for text in page.texts())


def test_an_engine_of_the_address_that_is_not_known_is_said(app):
    page = app()
    page.run.query_params["engine"] = "vlmm"
    page.go("engine")
    assert "vlmm" in page.texts()
    assert page.value("engine") == "vllm"


def test_the_engine_stays_while_moving_between_pages(app):
    page = on_engine(app)
    page.set(engine="sglang")
    page.go("plan")
    page.go("engine")
    assert codes(page)[0] == command(launch_of(LLAMA, "sglang"))


def test_the_engine_of_a_link_is_the_engine_of_the_page(app):
    link = kvplan.to_link(LLAMA.with_changes(engine="sglang"))
    address = dict(part.split("=", 1) for part in link.split("?")[-1].split("&"))
    assert codes(on_engine(app, **address))[0] == command(launch_of(LLAMA, "sglang"))


# ------------------------------------------------------------------------------------------------------------ log


def test_a_log_stands_beside_the_plan_line_by_line(app):
    page = with_log(app, VLLM_LOG)
    table = frame(page, "verdict")
    assert table["figure"].tolist() == ["weights", "cache size", "requests at once"]
    assert table["verdict"].tolist() == ["agrees"] * 3
    assert table["log"].tolist() == ["14.2 GiB", "464,848", "28.37x"]
    assert subheads(page)[0] == "3 of 3 figures agree"


def test_a_line_that_differs_says_by_how_much_and_why(app):
    page = with_log(app, VLLM_LOG.replace("464,848", "929,776"))
    row = frame(page, "verdict").set_index("figure").loc["cache size"]
    assert (row["verdict"], row["difference"]) == ("differs", "-50.00%")
    assert "cache size: the cache is 8 bits wide: that gives the printed figure" in page.texts()


def test_a_log_without_a_models_name_asks_for_it(app):
    page = with_log(app, LLAMACPP_LOG)
    assert any("names no model" in text for text in page.texts())
    page.set(log_model="llama-3.1-8b")
    assert frame(page, "verdict")["verdict"].tolist() == ["agrees"] * 3


def test_another_model_may_be_chosen_than_the_one_that_is_named(app):
    page = with_log(app, VLLM_LOG, log_model="llama-3.1-70b")
    assert "agrees" not in frame(page, "verdict")["verdict"].tolist()


def test_the_gpu_of_a_log_is_compared_where_it_is_given(app):
    page = with_log(app, WHOLE_LOG, log_model="llama-3.1-8b", log_gpu="h100-sxm-80gb")
    row = frame(page, "verdict").set_index("figure").loc["usable memory"]
    assert (row["verdict"], row["log"]) == ("differs", "23.2 GiB")


def test_one_click_takes_the_logs_overhead_into_the_plan(app):
    page = with_log(app, WHOLE_LOG)
    page.click("take_overhead")
    total = round(1.44 * GIB) + round(8.80 * GIB) - round(8.61 * GIB) + round(0.23 * GIB)
    assert page.value("overhead") == str(total)
    page.set(engine_view="the server of this plan")
    rows = frame(page, "out of the pool").set_index("what")
    assert rows.loc["activation peak"].tolist()[:3] == ["1.44 GiB"] * 3
    page.go("plan")
    assert kvplan.plan(LLAMA.with_changes(overhead_bytes=total)).sentence == page.heading()


def test_what_a_log_does_not_state_is_estimated_and_says_so(app):
    page = with_log(app, VLLM_LOG)
    rows = frame(page, "from").set_index("what")["from"]
    assert rows.to_dict() == {
        "activation peak": "an estimate",
        "CUDA context and communication": "an estimate",
        "CUDA graphs": "from the pasted log",
    }


def test_a_log_of_another_model_than_the_plan_says_so_beside_its_overhead(app):
    other = "The log is of qwen2-7b and the plan is of Llama 3.1 8B: what they take may differ."
    assert other in with_log(app, VLLM_LOG).texts()
    assert other not in with_log(app, VLLM_LOG.replace("Qwen/Qwen2-7B-Instruct", "Llama-3.1-8B")).texts()


def test_a_log_without_overheads_offers_none(app):
    page = with_log(app, LLAMACPP_LOG)
    assert not [button for button in page.run.button if button.key == "take_overhead"]


def test_an_overhead_that_no_gpu_has_is_refused_in_words(app):
    page = with_log(app, VLLM_LOG.replace("took 0.50 GiB", "took 99999999 GiB"))
    assert page.errors() == ["This overhead cannot be taken"]


@pytest.mark.parametrize("text", ["hello", "vllm is nice", "0" * 1000, "<script>alert(1)</script>"])
def test_text_that_is_no_log_is_answered_politely(app, text):
    page = with_log(app, text)
    assert not page.errors()
    assert not page.tables()


def test_a_log_may_come_as_a_file(app):
    page = on_engine(app)
    page.set(engine_view=LOG)
    page.run.file_uploader[0].upload("start.log", VLLM_LOG.encode() + b"\xff", "text/plain").run()
    page.check()
    assert subheads(page)[0] == "3 of 3 figures agree"


def test_a_log_over_5_mb_is_refused_in_words(app):
    page = on_engine(app)
    page.set(engine_view=LOG)
    page.run.file_uploader(key="log_file").upload("vllm.log", b"x" * 5_000_001).run()
    page.check()
    assert "the log is over 5 MB; paste the part from the start to the first request" in page.texts()


def test_nothing_of_a_log_is_shown_as_markdown(app):
    page = with_log(app, VLLM_LOG.replace("Qwen/Qwen2-7B-Instruct", "![](https://example.org/p.png)"))
    shown = [page.run.markdown, page.run.caption, page.run.subheader, page.run.error, page.run.warning]
    assert not any("example.org" in element.value for kind in shown for element in kind)
    assert any("example.org" in text for text in page.texts())


HOSTILE = (
    VLLM_LOG.replace("464,848", "9" * 400),
    VLLM_LOG.replace("tensor_parallel_size=1", "tensor_parallel_size=7"),
    VLLM_LOG.replace("tensor_parallel_size=1", f"tensor_parallel_size={'9' * 50}"),
    VLLM_LOG.replace("16,384", "0"),
    VLLM_LOG.replace("14.2488", "0"),
    VLLM_LOG.replace("24.83", "9" * 39),
    VLLM_LOG.replace("24.83", "0.00"),
    VLLM_LOG.replace("v0.10.1.1", "v9").replace("version 0.10.1.1", "version 9"),
    VLLM_LOG.replace("kv_cache_dtype=auto", "kv_cache_dtype=q9"),
    LLAMACPP_LOG.replace("8192\n", f"{'9' * 60}\n"),
    LLAMACPP_LOG.replace("n_seq_max     = 1", "n_seq_max     = 0"),
    LLAMACPP_LOG.replace("(f16)", "(made_up)"),
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_log_with_absurd_figures_never_breaks_the_page(app, text):
    with_log(app, text, log_model="qwen2-7b")
