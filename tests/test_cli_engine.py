"""`engine` in the terminal: what a server reserves, its command and its log lines."""

from __future__ import annotations

import pytest

from kvplan.cli import main
from kvplan.engines import ENGINES
from kvplan.engines.commands import command
from kvplan.engines.lines import predicted_lines
from kvplan.plan import Scenario
from kvplan.serving import serve
from kvplan.suggest import launch_of

LLAMA = Scenario("llama-3.1-8b", "h100-sxm-80gb", kv_dtype="fp16")
WORDS = ["engine", "llama-3.1-8b", "--gpu", "h100-sxm-80gb"]


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp", "ollama", "ik_llama.cpp"])
def test_the_command_and_the_lines_are_those_of_the_engine(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--engine", engine, "--kv-dtype", "fp16"]) == 0
    out = capsys.readouterr().out
    launch = launch_of(LLAMA, engine)
    assert command(launch) in out
    assert all(line in out for line in predicted_lines(launch))
    assert f"{serve(LLAMA, engine).sentence}: all requests at once" in out


@pytest.mark.parametrize("engine", ENGINES)
def test_too_much_is_said_with_what_would_help(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    kv = "fp16" if "llama" in engine else "bf16"
    assert main([*WORDS, "--engine", engine, "--kv-dtype", kv, "--context", "32k", "--batch", "64"]) == 1
    out = capsys.readouterr().out
    assert ": not all requests at once" in out
    assert f"What would make it hold all, by what {ENGINES[engine].label} reserves:" in out


def test_the_version_of_vllm_changes_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    main([*WORDS, "--engine-version", "0.11"])
    assert "GPU KV cache size: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "vlm"], "did you mean vllm"),
        (["--engine", "ollama"], "Ollama has no cache dtype bf16; choose fp16, its default"),
        (["--engine-version", "new"], "engine_version is 'new'; write it as 0.11"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, *words]) == 2
    assert message in capsys.readouterr().err


def test_the_resident_part_is_told_from_what_is_reserved(capsys: pytest.CaptureFixture[str]) -> None:
    main([*WORDS, "--batch", "1", "--context", "8193"])
    # 8,193 tokens of 131,072 B are 1.0001 GiB; vLLM sets aside whole blocks of 16
    assert "reserved      1.00 GiB on each GPU; 1.00 GiB of it are resident tensors" in capsys.readouterr().out
