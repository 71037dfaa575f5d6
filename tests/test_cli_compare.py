"""`compare` in the terminal: links side by side."""

from __future__ import annotations

import json
import re

import pytest

import kvplan
from kvplan.cli import main
from kvplan.comparison import compare
from kvplan.share import from_comparison_link, from_link, open_link, to_comparison_link, to_link

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
LONG = LLAMA.with_changes(context_length=65536)
FOUND = compare(LLAMA, LONG)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["compare", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_two_links_are_laid_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, to_link(LLAMA), f"http://localhost:8501/sweep{to_link(LONG)}&q=anything")
    assert status == 1  # one does not fit
    assert out.startswith("\n".join((*FOUND.answers, *FOUND.sentences)))
    difference = 8 * (65536 - 8192) * 131072
    assert f"+{difference:,} B" in out
    assert from_comparison_link(out.splitlines()[-1]) == (LLAMA, LONG)


def test_one_link_of_a_comparison_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, to_comparison_link([LLAMA, LONG]))[1] == run(capsys, to_link(LLAMA), to_link(LONG))[1]


def test_all_that_fit_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, to_link(LLAMA), to_link(LLAMA.with_changes(batch_size=1)))[0] == 0


def test_a_file_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, to_link(LLAMA), to_link(LONG), "--format", "json")
    assert json.loads(out)["inputs"]["B"]["context_length"] == 65536


def test_what_a_link_lacks_is_said_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    short = "?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb"
    _, out, err = run(capsys, short, to_link(LONG))
    assert err.startswith("link 1: the link was cut or edited, and what it lacks is as usual: ctx, batch, kv")
    assert (out, "") == run(capsys, to_link(from_link(short)), to_link(LONG))[1:]


def test_of_two_links_that_lack_the_same_each_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    short = "?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb"
    _, _, err = run(capsys, short, to_link(LONG), short)
    lacking = open_link(short).lacking
    assert err.splitlines() == [f"link 1: {lacking}", f"link 3: {lacking}"]
    _, _, err = run(capsys, f"{short}&b.v=1&b.model=llama-3.1-8b&b.gpu=l4-24gb")
    assert err.splitlines() == [f"scenario A of the link: {lacking}", f"scenario B of the link: {lacking}"]


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        (["?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb"], "a comparison has 2 to 4"),
        (["?v=1&model=llama-3.1-8b&gpu=h100-sxm-80gb", "hello"], "kvplan: link 2: the link's version is missing"),
        (["?v=1&model=nonsense&gpu=h100-sxm-80gb"] * 2, "no model is called .nonsense."),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    capsys: pytest.CaptureFixture[str], links: list[str], reason: str
) -> None:
    status, out, err = run(capsys, *links)
    assert (status, out) == (2, "")
    assert re.search(reason, err)
