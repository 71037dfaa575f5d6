"""The first visit: static files that travel packed, and what pages need loaded meanwhile.

Streamlit ships its frontend unpacked, 9.4 MB. Each file is packed once and kept. Only files whose name holds a digest
of their content are: everything else, such as the page that stands for every unknown address, stays Streamlit's.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import streamlit as st

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

PACKED_ENDINGS = (".js", ".css", ".svg", ".json")
_SCRIPTS = "/static/js/"
MAX_PACKED = 500
MIN_BYTES = 1024
LEVEL = 4
"""Half the time of gzip's usual 6 for 4 % more bytes: the first visitor may have to wait for it."""

Ahead = MutableMapping[str, "Future[bytes]"]
"""By path, the files that are being packed before anyone asks for them."""


class _Packed(NamedTuple):
    """A finished answer: the message that starts it, and its body."""

    start: Message
    body: bytes


def pack_ahead() -> Ahead:
    """Pack what every first visit fetches while Python still loads the server, which keeps one core busy, not two."""
    static = Path(st.__file__).parent / "static"
    named = re.findall(rf'{_SCRIPTS}([\w.-]+\.js)"', (static / "index.html").read_text(encoding="utf-8"))
    scripts = static / _SCRIPTS.strip("/")
    files = [*(scripts / name for name in named), *scripts.glob("PlotlyChart.*.js")]
    worker = ThreadPoolExecutor(max_workers=1)
    found = {_SCRIPTS + file.name: worker.submit(_pack_file, file) for file in files}
    worker.shutdown(wait=False)
    return found


def _pack_file(file: Path) -> bytes:
    return _gzip(file.read_bytes())


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=LEVEL)


class PackedStatic:
    """Middleware: static files travel with gzip.

    ahead  files that are being packed already; one that is gone when it is asked for is packed then
    """

    def __init__(self, app: Asgi, ahead: Ahead | None = None) -> None:
        self.app = app
        self.ahead = {} if ahead is None else ahead
        self.packed: dict[str, _Packed] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _wants_packed(scope):
            await _play(await self._answer(scope, receive), send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive) -> _Packed:
        path: str = scope["path"]
        kept = self.packed.get(path)
        if kept is not None:
            return kept
        answer = await _collect(self.app, scope, receive)
        if _can_pack(answer):
            answer = _packed(answer, await self._body(path, answer.body))
            if len(self.packed) < MAX_PACKED:
                self.packed[path] = answer
        return answer

    async def _body(self, path: str, body: bytes) -> bytes:
        """The body, packed; meanwhile the visitor's other requests go on."""
        ahead = self.ahead.pop(path[path.find(_SCRIPTS) :], None)
        return await (asyncio.to_thread(_gzip, body) if ahead is None else asyncio.wrap_future(ahead))


class BesideFirstVisit:
    """Middleware: does its work once, in a thread, while the first visitor's browser fetches the frontend."""

    def __init__(self, app: Asgi, work: Callable[[], None]) -> None:
        self.app = app
        self.waiting: Callable[[], None] | None = work

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self.waiting is not None and scope["type"] == "http" and scope["path"].endswith(".js"):
            Thread(target=self.waiting, daemon=True).start()
            self.waiting = None
        await self.app(scope, receive, send)


def _wants_packed(scope: Message) -> bool:
    """A plain request for a text file, by a client that unpacks; conditional and partial ones stay Streamlit's."""
    headers = dict(scope["headers"])
    plain = scope["method"] == "GET" and not headers.keys() & {b"range", b"if-none-match", b"if-modified-since"}
    return plain and scope["path"].endswith(PACKED_ENDINGS) and b"gzip" in headers.get(b"accept-encoding", b"")


async def _collect(app: Asgi, scope: Message, receive: Receive) -> _Packed:
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, keep)
    return _Packed(messages[0], b"".join(message.get("body", b"") for message in messages[1:]))


def _can_pack(answer: _Packed) -> bool:
    headers = {name.lower(): value for name, value in answer.start["headers"]}
    is_file = b"immutable" in headers.get(b"cache-control", b"") and b"html" not in headers.get(b"content-type", b"")
    return (
        answer.start["status"] == 200
        and is_file
        and b"content-encoding" not in headers
        and len(answer.body) >= MIN_BYTES
    )


def _packed(answer: _Packed, body: bytes) -> _Packed:
    """An answer with its body packed, and the headers that say so."""
    kept = [(name, value) for name, value in answer.start["headers"] if name.lower() != b"content-length"]
    added = [
        (b"content-encoding", b"gzip"),
        (b"vary", b"Accept-Encoding"),
        (b"content-length", str(len(body)).encode()),
    ]
    return _Packed({**answer.start, "headers": kept + added}, body)


async def _play(answer: _Packed, send: Send) -> None:
    await send(dict(answer.start))
    await send({"type": "http.response.body", "body": answer.body})
