"""The terminal gives the API's answers, and one sentence for a wrong input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kvplan
from kvplan.cli import main
from kvplan.define import define_model
from kvplan.library import SAVED_LINE
from kvplan.model import Model
from kvplan.plan import Scenario, plan
from kvplan.presets import load_model, model_from_table, read_toml, save_gpu, save_model
from kvplan.schema import all_schemas
from kvplan.share import to_link
from kvplan.sweep import sweep

CONFIGS = Path(__file__).parent / "data" / "configs"
LLAMA = str(CONFIGS / "meta-llama__Llama-3.1-8B.json")
GPU_FILE = Path(__file__).resolve().parents[1] / "presets" / "gpus" / "l4-24gb.toml"
PLAN = ["plan", "llama-3.1-8b", "--gpu", "h100-sxm-80gb"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_a_plan_that_fits_exits_with_0_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *PLAN, "--context", "32k", "--batch", "8", "--kv-dtype", "fp8")
    expected = plan(Scenario("llama-3.1-8b", "h100-sxm-80gb", context_length=32768, batch_size=8, kv_dtype="fp8"))
    assert status == 0
    assert out.startswith(expected.sentence)
    assert f"{expected.cache_bytes:,} B" in out
    assert err == ""


def test_a_plan_that_does_not_fit_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "plan", "llama-3.1-70b", "--gpu", "rtx-4090-24gb")
    assert status == 1
    assert out.startswith("Does not fit: ")


def test_json_holds_the_plans_own_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *PLAN, "--context", "1k", "--batch", "1", "--json")
    found = json.loads(out)
    assert found["cache_bytes"] == 134_217_728
    assert found["capacity_bytes"] == sum(
        found[name] for name in ("weight_bytes", "cache_bytes", "overhead_bytes", "free_bytes")
    )


def test_kv_heads_and_parallelism_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *PLAN, "--context", "1k", "--batch", "1", "--kv-heads", "32", "--tp", "2", "--json")
    assert json.loads(out)["cache_bytes"] == 512 * 2**20 // 2


def test_the_formula_is_shown_with_its_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *PLAN, "--context", "1k", "--batch", "1", "--formula")
    assert "2 × 32 layers × 8 rows × 128 values × 2 B × 1,024 tokens × 1 sequence = 134,217,728 B" in out
    assert out.count("\n  - ") == 5


def test_a_config_file_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "plan", LLAMA, "--gpu", "h100-sxm-80gb", "--context", "1k", "--batch", "1", "--json")
    assert status == 0
    assert json.loads(out)["cache_bytes"] == 134_217_728


def test_a_preset_file_that_lies_in_no_library_can_be_shown_and_planned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = save_model(replace(load_model("llama-3.1-8b"), id="own", name="Ours"), tmp_path)
    status, out, err = run(capsys, "show", str(own), "--context", "1k")
    assert (status, err) == (0, "")
    assert out.startswith("Ours (llama)\n  parameters 8,030,261,248, ")
    _, out, _ = run(capsys, "plan", str(own), *PLAN[2:], "--context", "1k", "--batch", "1", "--json")
    assert json.loads(out)["model"] == "own"
    assert json.loads(out)["cache_bytes"] == 134_217_728


@pytest.fixture
def guess() -> Model:
    return define_model(
        name="Guess", num_layers=32, hidden_size=4096, num_attention_heads=32, num_kv_heads=8, num_params=8 * 10**9
    )


@pytest.fixture
def guess_file(guess: Model, tmp_path: Path) -> str:
    return str(save_model(replace(guess, id="guess"), tmp_path))


GUESS_WARNING = "! Guess is itself an estimate, and so is every figure here; its notes say why"


@pytest.mark.parametrize("command", ["plan", "engine"])
def test_a_model_that_is_an_estimate_is_marked_where_it_is_planned(
    capsys: pytest.CaptureFixture[str], guess_file: str, command: str
) -> None:
    _, out, _ = run(capsys, command, guess_file, "--gpu", "h100-sxm-80gb")
    assert GUESS_WARNING in out.splitlines()


def test_warnings_of_a_sweep_stand_among_the_errors_so_that_its_csv_stays_one(
    capsys: pytest.CaptureFixture[str], guess_file: str
) -> None:
    _, out, err = run(capsys, "sweep", guess_file, "--gpu", "h100-sxm-80gb", "--context", "1k,4k", "--csv")
    assert err.splitlines() == [GUESS_WARNING]
    assert [row["context_length"] for row in csv.DictReader(io.StringIO(out))] == ["1024", "4096"]


def test_a_sweep_warns_of_the_longest_context_that_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "sweep", "llama-3-8b", "--gpu", "h100-sxm-80gb", "--context", "4k,8k")
    assert err == ""
    _, _, err = run(capsys, "sweep", "llama-3-8b", "--gpu", "h100-sxm-80gb", "--context", "8k,16k")
    assert err == "! 16,384 tokens are beyond the 8,192 that Llama 3 8B is made for\n"


def test_a_model_that_is_an_estimate_is_marked_where_it_is_shown(
    capsys: pytest.CaptureFixture[str], guess_file: str
) -> None:
    _, out, _ = run(capsys, "show", guess_file)
    assert "  parameters 8,000,000,000, active 8,000,000,000, an estimate" in out.splitlines()
    assert "  weights as published 14.9 GiB (16,000,000,000 B), an estimate" in out.splitlines()
    _, out, _ = run(capsys, "show", guess_file, "--json")
    assert json.loads(out)["is_estimate"] is True


def test_a_model_that_is_an_estimate_is_marked_in_a_comparison(
    capsys: pytest.CaptureFixture[str], guess: Model
) -> None:
    links = [to_link(Scenario(model, "h100-sxm-80gb")) for model in (load_model("llama-3.1-8b"), guess)]
    _, out, _ = run(capsys, "compare", *links)
    assert GUESS_WARNING.replace("!", "! B:", 1) in out.splitlines()


def test_a_sweep_as_csv_holds_the_rows_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "sweep", "llama-3.1-8b", "--gpu", "rtx-4090-24gb", "--context", "1k,4k", "--batch", "1..4*2",
        "--kv-dtype", "bf16,fp8", "--csv",
    )  # fmt: skip
    frame = sweep(
        Scenario("llama-3.1-8b", "rtx-4090-24gb"),
        context_length=[1024, 4096],
        batch_size=[1, 2, 4],
        kv_dtype=["bf16", "fp8"],
    )
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [int(row["cache_bytes"]) for row in rows] == frame["cache_bytes"].tolist()


def test_every_model_and_gpu_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    _, models, _ = run(capsys, "models")
    _, gpus, _ = run(capsys, "gpus", "--json")
    assert [line.split()[0] for line in models.splitlines()] == list(kvplan.list_models())
    assert [row["id"] for row in json.loads(gpus)] == list(kvplan.list_gpus())


def test_show_goes_through_the_layers_with_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", "gemma-3-27b", "--context", "8k")
    assert status == 0
    assert out.count("\n  layer ") == 62
    assert "min(8,192, 1,024) tokens" in out
    assert "parameters 27,432,406,640" in out


def test_show_reads_a_config_file(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", LLAMA, "--json")
    assert status == 0
    assert json.loads(out)["num_params"] == 8_030_261_248


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "lama-3.1-8b", "--gpu", "h100-sxm-80gb"], "did you mean llama-3.1-8b"),
        (["plan", "llama-3.1-8b", "--gpu", "h100"], "no GPU is called 'h100'"),
        (["plan", "llama-3.1-8b"], "--gpu"),
        ([*PLAN, "--context", "0"], "context is 0; it must be from 1"),
        ([*PLAN, "--context", "-5"], "context"),
        ([*PLAN, "--context", "many"], "context is 'many'"),
        ([*PLAN, "--context", "99999999999999"], "context"),
        ([*PLAN, "--batch", "1.5"], "batch '1.5' is not a whole number"),
        ([*PLAN, "--kv-dtype", "fp9"], "kv dtype"),
        ([*PLAN, "--weight-dtype", "int4"], "int4 has many layouts"),
        ([*PLAN, "--kv-heads", "5"], "does not divide the 32 attention heads"),
        ([*PLAN, "--tp", "3"], "do not divide"),
        ([*PLAN, "--pp", "99"], "32 layers"),
        ([*PLAN, "--memory-fraction", "1.5"], "memory_fraction is 1.5"),
        ([*PLAN, "--memory-fraction", "nan"], "memory_fraction is nan"),
        ([*PLAN, "--memory-fraction", "x"], "memory_fraction is 'x'"),
        ([*PLAN, "--overhead", "2 bananas"], "overhead is '2 bananas'"),
        (["show", "/no/such/config.json"], "config.json cannot be read"),
        (["nonsense"], "nonsense"),
        ([], "command"),
        (["sweep", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--context", "5..1"], "runs backwards"),
        (["sweep", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--context", "1..4096", "--batch", "1..4096"], "rows"),
        (["plan", "/dev/null", "--gpu", "h100-sxm-80gb"], "a preset file must end in .toml, and a GGUF file in .gguf"),
        *(
            ([*command, option, count], f" is {count}; it must be from 1 to 1,099,511,627,776")
            for command in (PLAN, ["show", "llama-3.1-8b"], ["engine", *PLAN[1:]])
            for option in ("--context", "--batch")
            for count in ("0", "99999999999999")
        ),
        *(([*PLAN, option, "0"], " is 0; it must be from 1 to ") for option in ("--kv-heads", "--tp", "--pp", "--dp")),
        (["parity", "nowhere", "--steps", "0"], "steps is 0; it must be from 1 to "),
        (["show", "own.toml"], "own.toml cannot be read: No such file or directory"),
        (["show", str(GPU_FILE)], "l4-24gb.toml is the preset of a GPU; a model's is needed"),
        (["show", str(GPU_FILE.parents[2] / "pyproject.toml")], "pyproject.toml is no preset"),
        (["import", "own.toml"], "own.toml is named as a preset file, which needs no import"),
        (["verify", "own.toml"], "own.toml is named as a preset file"),
    ],
)
def test_a_wrong_input_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("kvplan: ")
    assert words in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("cut.json", b'{"model_type": "llama", "hidden', "is not valid JSON"),
        ("binary.json", b"\xff\xfe\x00\x01", "is not UTF-8"),
        ("list.json", b"[1, 2]", "an object in braces is needed"),
        ("empty.json", b"{}", "model_type"),
        ("type.json", b'{"model_type": "llama", "hidden_size": "big"}', "hidden_size is 'big'"),
        ("unknown.json", b'{"model_type": "llamba"}', "model_type 'llamba'"),
        ("key.json", b'{"model_type": "llama", "torch_dtype": "bfloat16", "secret_experts": 9}', "secret_experts"),
    ],
)
def test_a_broken_config_is_one_sentence_that_names_the_file_or_field(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    status, _, err = run(capsys, "show", str(path))
    assert status == 2
    assert words in err


def test_an_absurdly_large_config_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.write_bytes(b" " * (8 * 2**20 + 1))
    assert "too large" in run(capsys, "show", str(path))[2]


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", "gpus"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == len(kvplan.list_gpus())


# ------------------------------------------------------------------------------------------- import, verify, checks


def test_an_imported_config_is_saved_as_a_preset_that_reads_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, "import", LLAMA, "--name", "My 8B", "--save", str(tmp_path), "--id", "my-8b")
    assert status == 0
    assert "parameters 8,030,261,248" in out
    saved = tmp_path / "my-8b.toml"
    assert model_from_table(read_toml(saved), saved.name) == kvplan.load_model("llama-3.1-8b")
    assert saved.read_text(encoding="utf-8").startswith(SAVED_LINE)


def test_a_saved_preset_is_never_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save = ["import", LLAMA, "--save", str(tmp_path), "--id", "mine"]
    assert run(capsys, *save)[0] == 0
    status, _, err = run(capsys, *save)
    assert status == 2
    assert "is there already" in err


def test_a_folder_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is no folder" in run(capsys, "import", LLAMA, "--save", str(tmp_path / "none"), "--id", "x")[2]


@pytest.mark.usefixtures("measuring")
def test_a_shipped_preset_is_verified_by_the_config_that_it_is_made_from(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    status, out, err = run(capsys, "verify", "smollm2-135m")
    assert (status, err) == (0, "")
    params = load_model("smollm2-135m").num_params
    assert f"rules {params:,}  measured {params:,}" in out


def test_a_copy_without_its_tests_says_that_it_keeps_no_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvplan.cli.importing.KEPT_CONFIGS", tmp_path)
    status, _, err = run(capsys, "verify", "llama-3.1-8b")
    assert status == 2
    assert "is not kept here; give the path of one" in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("model.gguf", "what a config.json describes; model.gguf lists its tensors itself"),
    ],
)
def test_what_holds_no_config_cannot_be_verified(capsys: pytest.CaptureFixture[str], given: str, words: str) -> None:
    status, _, err = run(capsys, "verify", given)
    assert status == 2
    assert words in err


def test_the_shipped_presets_have_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "presets", "check", str(Path(__file__).parent.parent / "presets"))
    assert (status, out) == (0, "nothing is wrong\n")


def test_a_broken_preset_is_named_with_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "bad.toml").write_text('schema = 1\nname = "Bad"\nusable_bytes = "many"\n')
    status, out, _ = run(capsys, "presets", "check", str(tmp_path))
    assert status == 1
    assert "gpus/bad.toml:3: " in out


LOG = """INFO 09-04 10:00:00 [core.py:69] Initializing a V1 LLM engine (v0.10.1.1) with config: model='Qwen2-7B'
INFO 09-04 10:00:40 [gpu_worker.py:276] Available KV cache memory: 24.83 GiB
INFO 09-04 10:00:40 [kv_cache_utils.py:849] GPU KV cache size: 464,848 tokens
INFO 09-04 10:00:40 [kv_cache_utils.py:853] Maximum concurrency for 16,384 tokens per request: 28.37x
"""  # 24.83 GiB of 28 layers x 4 KV heads x 128 in 16 bit: 464,900 tokens, within the log's 0.01 GiB


def test_a_start_up_log_is_laid_beside_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    status, out, _ = run(capsys, "log", str(path), "--model", "qwen2-7b")
    assert status == 0
    assert "464,848" in out
    assert "differs" not in out


def test_only_a_whole_overhead_of_a_log_is_offered_to_a_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graphs = "INFO Graph capturing finished in 15 secs, took 1.12 GiB\n"
    path = tmp_path / "vllm.log"
    path.write_text(LOG + graphs)
    _, out, _ = run(capsys, "log", str(path), "--model", "qwen2-7b")
    assert "CUDA graphs 1.12 GiB; it does not state activation peak and CUDA context and communication" in out
    assert "--overhead" not in out
    path.write_text(LOG + "model weights take 14.20GiB; non_torch_memory takes 0.50GiB; "
                    "PyTorch activation peak memory takes 1.50GiB\n")  # fmt: skip
    _, out, _ = run(capsys, "log", str(path), "--model", "qwen2-7b")
    assert f"plan with --overhead {2 * 2**30}" in out


def test_text_that_is_no_log_is_refused_politely(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("roses are red")
    status, _, err = run(capsys, "log", str(path))
    assert status == 2
    assert "does not look like a start-up log" in err


def test_the_status_is_the_plans_own_when_the_reader_goes_away() -> None:
    command = f"set -o pipefail; {sys.executable} -m kvplan plan llama-3.1-70b --gpu l4-24gb | true"
    done = subprocess.run(["bash", "-c", command], check=False, cwd=Path(__file__).parent.parent)
    assert done.returncode == 1


def test_a_model_of_unknown_weight_bytes_can_be_swept_over_dtypes(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "sweep", "gpt2", "--gpu", "l4-24gb", "--weight-dtype", "bf16,as published", "--csv", "--context", "1k"
    )
    assert status == 0
    assert "as published" in out


def test_as_published_may_be_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *PLAN, "--weight-dtype", "as published")[0] == 0


# --------------------------------------------------------------------------------------------------------- library


def test_a_broken_preset_file_is_named_once_and_the_others_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("models", "gpus"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "broken.toml").write_text("schema = ")
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    for command, ids in (("models", kvplan.list_models()), ("gpus", kvplan.list_gpus())):
        assert main([command]) == 0
        said = capsys.readouterr()
        assert [line.split()[0] for line in said.out.splitlines()] == [name for name in ids if name != "broken"]
        assert said.err.startswith("kvplan: left out: broken.toml is not valid TOML")
        assert said.err.count("\n") == 1


def test_a_preset_in_place_of_a_shipped_one_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gpus").mkdir()
    save_gpu(kvplan.load_gpu("t4-16gb"), tmp_path / "gpus")
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    assert main(["gpus"]) == 0
    assert capsys.readouterr().err == "kvplan: t4-16gb is this library's own, in place of the shipped one\n"


@pytest.mark.parametrize("kind", ["model", "gpu", "scenario"])
def test_the_schema_of_a_kind_of_preset_is_printed(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert main(["presets", "schema", kind]) == 0
    assert capsys.readouterr().out == all_schemas()[f"{kind}.schema.json"]


@pytest.mark.parametrize("command", [["presets", "check"], ["import", LLAMA, "--save"]])
@pytest.mark.parametrize("name", ["x" * 50_000, "a\0b"], ids=["long", "null"])
def test_a_folder_that_no_file_system_can_hold_is_no_folder(
    capsys: pytest.CaptureFixture[str], command: list[str], name: str
) -> None:
    status, _, err = run(capsys, *command, name)
    assert status == 2
    assert re.search(r"has no folder models|is no folder; make it first", err)
    assert len(err) < 400


def test_an_argument_that_is_not_known_cannot_flood_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "models", "x" * 50_000)
    assert status == 2
    assert err.startswith("kvplan: unrecognized arguments: xxx")
    assert len(err) < 600
