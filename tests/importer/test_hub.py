"""The hub: off unless allowed, three files of one host, bounded, and nothing sent that nobody asked for."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from kvplan.cli import main
from kvplan.errors import ConfigError, InputError
from kvplan.importer import hub, import_config

CONFIG = Path(__file__).parent.parent / "data" / "configs" / "Qwen__Qwen3-8B.json"
INDEX = {"metadata": {"total_size": 16_381_470_720}, "weight_map": {"model.embed_tokens.weight": "a.safetensors"}}
REPO = "Qwen/Qwen3-8B"
FILES = {"config.json": CONFIG.read_bytes(), "model.safetensors.index.json": json.dumps(INDEX).encode()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """A hub that is allowed and has FILES; the addresses and limits that were asked for."""
    calls: list[tuple[str, int]] = []

    def fetch(url: str, limit: int) -> bytes | None:
        calls.append((url, limit))
        return FILES.get(url.rpartition("/")[2])

    monkeypatch.setenv("KVPLAN_HUB", "1")
    monkeypatch.delenv("KVPLAN_HUB_TOKEN", raising=False)
    monkeypatch.setattr(hub, "fetch", fetch)
    return calls


@pytest.mark.parametrize("value", [None, "", "0"])
def test_the_hub_is_off_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setattr(hub, "fetch", lambda *_: pytest.fail("asked"))
    monkeypatch.delenv("KVPLAN_HUB", raising=False)
    if value is not None:
        monkeypatch.setenv("KVPLAN_HUB", value)
    assert not hub.is_enabled()
    with pytest.raises(InputError, match="set KVPLAN_HUB=1"):
        hub.fetch_repo(REPO)


def test_three_small_files_of_one_host_are_asked_for(asked: list[tuple[str, int]]) -> None:
    hub.fetch_repo(REPO, "refs/pr/1")
    base = "https://huggingface.co/Qwen/Qwen3-8B/resolve/refs%2Fpr%2F1/"
    assert [url.removeprefix(base) for url, _ in asked] == [
        "config.json",
        "hf_quant_config.json",
        "model.safetensors.index.json",
    ]
    assert [limit for _, limit in asked] == [4 * 2**20, 4 * 2**20, 32 * 2**20]


@pytest.mark.usefixtures("asked")
def test_what_the_hub_gives_imports_like_the_files_themselves() -> None:
    files = hub.fetch_repo(REPO)
    assert (files.companion, files.index) == (None, INDEX)
    assert files.source == "https://huggingface.co/Qwen/Qwen3-8B"
    assert import_config(files.config) == import_config(CONFIG)


@pytest.mark.usefixtures("asked")
def test_the_terminal_imports_a_hub_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--hub", REPO]) == 0
    assert "exactly what is counted" in capsys.readouterr().out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("more", [["config.json"], ["--index", "x.json"], ["--quant-config", "x.json"]])
def test_a_hub_id_stands_alone_in_the_terminal(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--hub", REPO, *more]) == 2
    assert "cannot stand beside it" in capsys.readouterr().err


def test_the_terminal_asks_for_a_file_or_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import"]) == 2
    assert "--hub ORG/NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    "repo",
    ["", "Qwen", "a/b/c", "../etc/passwd", "a/..", "a/b?x=1", "a/b#c", "a/b c", "a\\b", "@evil.com/x", "http://a/b",
     "a/b\n", "/b", "a/", "-a/b", "a/" + "b" * 97, "ä/b", 7, None, "a%2fb/c", "org/na--me"],
)  # fmt: skip
def test_only_org_slash_name_is_an_id(repo: Any, asked: list[tuple[str, int]]) -> None:
    with pytest.raises(InputError, match="write it as org/name"):
        hub.fetch_repo(repo)
    assert not asked


@pytest.mark.parametrize("revision", ["", "../main", "a//b", "a b", "main?x", "#", "x" * 97, 3])
def test_only_a_branch_a_tag_or_a_commit_is_a_revision(revision: Any, asked: list[tuple[str, int]]) -> None:
    with pytest.raises(InputError, match="a branch, a tag or a commit"):
        hub.fetch_repo(REPO, revision)
    assert not asked


def test_a_repository_without_a_config_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_HUB", "1")
    monkeypatch.setattr(hub, "fetch", lambda *_: None)
    with pytest.raises(ConfigError, match=r"Qwen/Qwen3-8B has no config\.json at main"):
        hub.fetch_repo(REPO)


def test_what_is_no_json_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_HUB", "1")
    monkeypatch.setattr(hub, "fetch", lambda *_: b"<html>")
    with pytest.raises(ConfigError, match=r"Qwen/Qwen3-8B config\.json is not valid JSON"):
        hub.fetch_repo(REPO)


# ------------------------------------------------------------------------------------------------------- the network

URL = "https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json"


class Answer(io.BytesIO):
    """An answer of the network."""


class Opener:
    """What would open an address: `give` makes the answer from the question."""

    def __init__(self, give: Callable[[Any], Any]) -> None:
        self.give = give

    def open(self, request: Any, timeout: float) -> Any:
        assert timeout == hub.WAIT_SECONDS
        return self.give(request)


def opened(monkeypatch: pytest.MonkeyPatch, give: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(hub, "_opener", lambda: Opener(give))


def fail(error: Exception) -> Callable[[Any], Any]:
    def give(_: Any) -> Any:
        raise error

    return give


def http_error(code: int) -> HTTPError:
    return HTTPError(URL, code, "no", Message(), io.BytesIO())


def test_an_answer_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, lambda _: Answer(b"x" * 200_000))
    assert hub.fetch(URL, 200_000) == b"x" * 200_000


def test_an_answer_over_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, lambda _: Answer(b"x" * (2**20 + 1)))
    with pytest.raises(ConfigError, match=r"config\.json is over 1 MiB"):
        hub.fetch(URL, 2**20)


def test_an_answer_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, lambda _: Answer(b"x" * 100))
    monkeypatch.setattr(hub, "SECONDS", -1)
    with pytest.raises(ConfigError, match="takes longer than"):
        hub.fetch(URL, 2**20)


def test_a_file_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch, fail(http_error(404)))
    assert hub.fetch(URL, 10) is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http_error(401), r"shows Qwen/Qwen3-8B only to those it knows \(401\)"),
        (http_error(403), "KVPLAN_HUB_TOKEN"),
        (http_error(429), "try later"),
        (http_error(500), "answers 500 for Qwen/Qwen3-8B"),
        (URLError("Temporary failure in name resolution"), "cannot be reached: Temporary failure"),
        (TimeoutError("timed out"), "cannot be reached: timed out"),
        (ConnectionResetError("reset"), "cannot be reached: reset"),
    ],
)
def test_a_hub_that_cannot_be_reached_or_refuses_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    opened(monkeypatch, fail(error))
    with pytest.raises(ConfigError, match=message):
        hub.fetch(URL, 10)


def token_sent(monkeypatch: pytest.MonkeyPatch) -> str | None:
    sent: list[str | None] = []

    def give(request: Any) -> Answer:
        sent.append(request.get_header("Authorization"))
        return Answer()

    opened(monkeypatch, give)
    hub.fetch(URL, 10)
    return sent[0]


def test_no_token_is_sent_but_the_one_that_was_configured_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret of another program")
    monkeypatch.delenv("KVPLAN_HUB_TOKEN", raising=False)
    assert token_sent(monkeypatch) is None
    monkeypatch.setenv("KVPLAN_HUB_TOKEN", "mine")
    assert token_sent(monkeypatch) == "Bearer mine"


def redirected(url: str) -> Any:
    handler = next(item for item in hub._opener().handlers if type(item).__name__ == "SameHost")
    return handler.redirect_request(hub._request(URL), io.BytesIO(), 307, "moved", Message(), url)


def test_a_redirect_within_the_host_is_followed() -> None:
    assert redirected("https://huggingface.co/api/resolve-cache/config.json").host == "huggingface.co"


@pytest.mark.parametrize(
    "url",
    [
        "https://cdn.example.org/config.json",
        "http://huggingface.co/config.json",
        "https://huggingface.co.example.org/config.json",
        "https://huggingface.co@example.org/config.json",
        "https://huggingface.co:8443/config.json",
        "file:///etc/passwd",
        "https://169.254.169.254/latest",
    ],
)
def test_a_redirect_to_anywhere_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="on to another host, which is refused"):
        redirected(url)
