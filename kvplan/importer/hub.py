"""Configs of the Hugging Face hub, by the id of a repository. Off unless KVPLAN_HUB=1: then nothing else goes out.

Three small JSON files are read and no others: config.json, hf_quant_config.json and model.safetensors.index.json.
They come from one host, over https, redirects included; each has a limit of bytes and of time. No code of a
repository is read, and no token is sent but the one that the operator gives in KVPLAN_HUB_TOKEN.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvplan.errors import ConfigError, InputError, quoted, shorten
from kvplan.importer.files import json_object

HOST = "huggingface.co"
MAX_CONFIG_BYTES = 4 * 2**20
MAX_INDEX_BYTES = 32 * 2**20
SECONDS = 20
"""Of one file, from the question to its last byte."""

WAIT_SECONDS = 5
"""For one answer of the network."""

MAX_REDIRECTS = 3
CHUNK_BYTES = 2**16

OFF = (
    "hub ids are off, so that nothing is requested from another host: set KVPLAN_HUB=1 to allow it, or read the "
    "config.json itself"
)

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,95}")


@dataclass(frozen=True, slots=True)
class HubFiles:
    """What a repository says of its model.

    config     the object of config.json
    companion  that of hf_quant_config.json, None without one
    index      that of model.safetensors.index.json, None without one
    source     where they were read
    """

    config: Mapping[str, Any]
    companion: Mapping[str, Any] | None
    index: Mapping[str, Any] | None
    source: str


def is_enabled() -> bool:
    """Whether this process may ask the hub (KVPLAN_HUB=1)."""
    return os.environ.get("KVPLAN_HUB", "") not in ("", "0")


def fetch_repo(repo: str, revision: str = "main") -> HubFiles:
    """The files of `repo` (`org/name`) at `revision`, a branch, a tag or a commit.

    Raises InputError where the hub is off or an id is malformed, ConfigError where it cannot be reached, has no such
    repository or file, or gives something that is no config.
    """
    if not is_enabled():
        raise InputError(OFF)
    checked_repo(repo), checked_revision(revision)
    config = _object(repo, revision, "config.json", MAX_CONFIG_BYTES)
    if config is None:
        raise ConfigError(f"{repo} has no config.json at {revision}, or there is no such repository")
    return HubFiles(
        config,
        _object(repo, revision, "hf_quant_config.json", MAX_CONFIG_BYTES),
        _object(repo, revision, "model.safetensors.index.json", MAX_INDEX_BYTES),
        f"https://{HOST}/{repo}" + ("" if revision == "main" else f" at {revision}"),
    )


def checked_repo(repo: object) -> str:
    """`repo` where it is `org/name`. Raises InputError."""
    if not isinstance(repo, str) or not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise InputError(f"the hub id is {quoted(repo)}; write it as org/name, such as Qwen/Qwen3-8B")
    return repo


def checked_revision(revision: object) -> str:
    """`revision` where it is the name of a branch, a tag or a commit. Raises InputError."""
    if not isinstance(revision, str) or not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        raise InputError(f"the revision is {quoted(revision)}; write a branch, a tag or a commit, such as main")
    return revision


def _object(repo: str, revision: str, file: str, limit: int) -> dict[str, Any] | None:
    data = fetch(f"https://{HOST}/{repo}/resolve/{revision.replace('/', '%2F')}/{file}", limit)
    return None if data is None else json_object(data, f"{repo} {file}", "utf-8-sig")


# ------------------------------------------------------------------------------------------------------- the network


def fetch(url: str, limit: int) -> bytes | None:
    """The bytes at `url`, None where there is no such file.

    Raises ConfigError where the host cannot be reached, refuses, sends more than `limit` bytes or takes too long.
    """
    from http.client import HTTPException  # here and not above: a process that asks no hub loads none of it
    from urllib.error import HTTPError, URLError

    deadline = time.monotonic() + SECONDS
    try:
        with _opener().open(_request(url), timeout=WAIT_SECONDS) as answer:
            return _read(answer, limit, deadline, url)
    except HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise ConfigError(_refused(error.code, url)) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{HOST} cannot be reached: {shorten(reason, 120)}") from None


def _request(url: str) -> Any:
    from urllib.request import Request

    token = os.environ.get("KVPLAN_HUB_TOKEN", "")
    headers = {"User-Agent": "kvplan", "Accept-Encoding": "identity"}
    return Request(url, headers=headers | ({"Authorization": f"Bearer {token}"} if token else {}))


def _opener() -> Any:
    """Opens https addresses of HOST, and follows no redirect to anywhere else."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class SameHost(HTTPRedirectHandler):
        max_redirections = MAX_REDIRECTS

        def redirect_request(self, request: Any, file: Any, code: int, text: str, headers: Any, url: str) -> Any:
            if not is_on_host(url):
                raise ConfigError(f"{HOST} sends {shorten(request.full_url, 160)} on to another host, which is refused")
            return super().redirect_request(request, file, code, text, headers, url)

    return build_opener(SameHost())


def is_on_host(url: str) -> bool:
    """Whether `url` is an https address of HOST at its usual port, without a name or a password in it."""
    return url.startswith(f"https://{HOST}/")


def _read(answer: Any, limit: int, deadline: float, url: str) -> bytes:
    """The whole answer. Raises ConfigError past `limit` bytes or the deadline."""
    parts, size = [], 0
    while part := answer.read1(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise ConfigError(f"{url.rpartition('/')[2]} is over {limit // 2**20} MiB, too large to be read")
        if time.monotonic() > deadline:
            raise ConfigError(f"{HOST} takes longer than {SECONDS} seconds to send {url.rpartition('/')[2]}")
    return b"".join(parts)


def _refused(code: int, url: str) -> str:
    repo = "/".join(url.split("/")[3:5])
    if code in (401, 403):
        return (
            f"{HOST} shows {repo} only to those it knows ({code}): it may not exist, be private, or ask to accept a "
            "licence; a token in KVPLAN_HUB_TOKEN is sent along"
        )
    if code == 429:
        return f"{HOST} takes no more questions from here for a while (429); try later"
    return f"{HOST} answers {code} for {repo}"
