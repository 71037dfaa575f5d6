"""What the web server adds to Streamlit's own: packed static files and a few security headers.

Streamlit ships its frontend unpacked, 9.4 MB on a first visit. Each text file is packed once and kept.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

PACKED_ENDINGS = (".js", ".css", ".svg", ".html", ".json")
MAX_PACKED = 500
MIN_BYTES = 1024

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"SAMEORIGIN"),
)


class _Packed(NamedTuple):
    """A finished answer: the message that starts it, and its body."""

    start: Message
    body: bytes


class PackedStatic:
    """Middleware: static files travel with gzip, and every answer carries the security headers."""

    def __init__(self, app: Asgi) -> None:
        self.app = app
        self.packed: dict[str, _Packed] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif _wants_packed(scope):
            await self._send_packed(scope, receive, _with_security(send))
        else:
            await self.app(scope, receive, _with_security(send))

    async def _send_packed(self, scope: Message, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path not in self.packed:
            answer = await _collect(self.app, scope, receive)
            if not _can_pack(answer):
                await _play(answer, send)
                return
            if len(self.packed) < MAX_PACKED:
                self.packed[path] = _pack(answer)
            answer = self.packed.get(path) or _pack(answer)
        else:
            answer = self.packed[path]
        await _play(answer, send)


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
    encoded = any(name.lower() == b"content-encoding" for name, _ in answer.start["headers"])
    return answer.start["status"] == 200 and not encoded and len(answer.body) >= MIN_BYTES


def _pack(answer: _Packed) -> _Packed:
    body = gzip.compress(answer.body, compresslevel=6)
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


def _with_security(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS]}
        await send(message)

    return add
