"""What stands before Streamlit in the web server: headers, closed doors, limits, a health check, and calm errors.

Nothing here knows of a plan. `FrontDoor` is the outermost layer, so every answer passes it, refusals and errors too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from streamlit.proto.BackMsg_pb2 import BackMsg

from kvplan.errors import KvplanError
from kvplan.presets import list_gpus, list_models
from kvplan.ui.pace import paced
from kvplan.ui.packed import Asgi, Message, Receive, Send

LOG = logging.getLogger("kvplan")

# ----------------------------------------------------------------------------------------------------------- headers


def _inline_scripts() -> list[str]:
    """A content-security-policy's word for each script that stands in Streamlit's own page."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts]


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        # blob: is how Streamlit loads the script of the address bar.
        " ".join(("script-src 'self' blob:", *_inline_scripts())),
        "style-src 'self' 'unsafe-inline'",  # Streamlit and Plotly write styles from their scripts
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "manifest-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)

SECURITY_HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "SAMEORIGIN",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }.items()
)

_STARTS = ("http.response.start", "websocket.accept")


def _hide_server(send: Send) -> None:
    """Uvicorn names itself in every answer, and Streamlit leaves no way to tell it not to."""
    answer = getattr(send, "__self__", None)
    headers = getattr(answer, "default_headers", None)
    if headers is not None:
        answer.default_headers = [(name, value) for name, value in headers if name != b"server"]  # type: ignore[union-attr]


def _guarded(scope: Message, send: Send) -> Send:
    """`send`, with the security headers; cookies stay on encrypted connections where the visitor's is one."""
    _hide_server(send)
    # A forged header makes nothing but the forger's own cookie stricter, so it needs no trust.
    is_secure = scope["scheme"] == "https" or dict(scope["headers"]).get(b"x-forwarded-proto") == b"https"

    async def add(message: Message) -> None:
        if message["type"] in _STARTS:
            given = message.get("headers", ())
            kept = [(name, _secured(name, value) if is_secure else value) for name, value in given]
            message = {**message, "headers": [*kept, *SECURITY_HEADERS]}
        await send(message)

    return add


def _secured(name: bytes, value: bytes) -> bytes:
    is_open = name.lower() == b"set-cookie" and b"secure" not in value.lower()
    return value + b"; Secure" if is_open else value


# ------------------------------------------------------------------------------------------------------------- doors

OPEN = frozenset({"health", "host-config", "stream", "upload_file", "bidi-components"})
"""What of Streamlit's own addresses the pages use; all others answer that there is nothing."""

CLOSED = frozenset({"app", "auth", "component", "oauth2callback"})

MAX_SESSIONS = 200
"""Visitors at once, where KVPLAN_MAX_SESSIONS says nothing else. One with a large sweep holds about 10 MB."""

MAX_UPLOADED = 512 * 2**20
MAX_UPLOADED_EACH = 128 * 2**20
"""Bytes of uploads that the server holds, of all visitors and of one."""

UPLOADS_AT_ONCE = 8
UPLOAD_SECONDS = 60
POLICY_VIOLATION = 1008
UNSUPPORTED_DATA = 1003
DESCRIPTORS = 4096
"""Every visitor takes four, and many systems start a process with 1,024."""


def max_sessions() -> int:
    """How many visitors the server takes at once."""
    given = os.environ.get("KVPLAN_MAX_SESSIONS", "")
    return int(given) if given.isdecimal() and int(given) else MAX_SESSIONS


def shows_metrics() -> bool:
    """Whether `/_stcore/metrics` answers."""
    return os.environ.get("KVPLAN_METRICS", "") not in ("", "0")


def base_path() -> str:
    """The path below which the app is served, such as `/kvplan`; empty where it is the root."""
    given = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{given}" if given else ""


class FrontDoor:
    """The outermost layer of the server."""

    def __init__(self, app: Asgi) -> None:
        self.app = app
        self.sessions = 0
        self.uploads = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, _guarded(scope, send))
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, _guarded(scope, send))
        else:  # start and end of the server
            _allow_descriptors()
            await self.app(scope, receive, send)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        parts = _parts(scope)
        if _is_foreign(scope):  # Streamlit would ask another host for its own address to decide that
            scope = {**scope, "headers": [item for item in scope["headers"] if item[0] != b"origin"]}
        if _is_closed(parts):
            await _say(send, 404, "Not found")
        elif scope["method"] == "PUT" and parts[:2] == ["_stcore", "upload_file"]:
            await self._upload(scope, receive, send, parts[2] if len(parts) > 2 else "")
        elif self._is_full() and _wants_page(scope):
            await _say(send, 503, "kvplan is full at the moment. Please try again in a minute.")
        else:
            await self.app(scope, receive, send)

    def _is_full(self) -> bool:
        return self.sessions >= max_sessions()

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        if _is_foreign(scope) or self._is_full():
            LOG.warning("a websocket was refused: %s", "another site" if _is_foreign(scope) else "the server is full")
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        self.sessions += 1
        try:
            await self.app(scope, _only_messages(receive), paced(send))
        finally:
            self.sessions -= 1

    async def _upload(self, scope: Message, receive: Receive, send: Send, session: str) -> None:
        """A few uploads at once and none for ever, so that what they may add to memory stays bounded."""
        try:
            async with asyncio.timeout(UPLOAD_SECONDS), self.uploads:
                if _holds_too_much(session):
                    await _say(send, 413, "Too many files are held already; remove some first")
                else:
                    await self.app(scope, receive, send)
        except TimeoutError:
            await _say(send, 408, "The file took too long")


def _only_messages(receive: Receive) -> Receive:
    """`receive` of a websocket; what no page sends and Streamlit trips over, text or broken bytes, ends it."""

    async def read() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive" and not _is_whole(message.get("bytes")):
            LOG.warning("a websocket was ended: it sent what no page sends")
            return {"type": "websocket.disconnect", "code": UNSUPPORTED_DATA}
        return message

    return read


def _is_whole(data: bytes | None) -> bool:
    """Whether a page may have sent this."""
    if data is None:
        return False
    try:
        BackMsg.FromString(data)
    except DecodeError:
        return False
    return True


def _parts(scope: Message) -> list[str]:
    path: str = scope["path"].removeprefix(base_path())
    return path.strip("/").split("/")


def _is_closed(parts: list[str]) -> bool:
    if parts[0] == "_stcore":
        known = OPEN | {"metrics"} if shows_metrics() else OPEN
        return len(parts) < 2 or parts[1] not in known
    return parts[0] in CLOSED


def _wants_page(scope: Message) -> bool:
    return b"text/html" in dict(scope["headers"]).get(b"accept", b"")


def _holds_too_much(session: str) -> bool:
    """Whether this visitor, or all of them, have more on the server than they may."""
    files = st.runtime.get_instance().uploaded_file_mgr.file_storage  # type: ignore[attr-defined]
    held = {name: sum(len(file.data) for file in list(kept.values())) for name, kept in list(files.items())}
    return held.get(session, 0) >= MAX_UPLOADED_EACH or sum(held.values()) >= MAX_UPLOADED


async def _say(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode()})


def _is_foreign(scope: Message) -> bool:
    """Whether the request comes from a page of another site."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or not st.get_option("server.enableCORS"):
        return False
    if _place(origin) == f"//{headers.get(b'host', b'').decode('latin-1')}":
        return False
    known = [f"//{st.get_option('browser.serverAddress')}", *st.get_option("server.corsAllowedOrigins")]
    return _host(origin) not in {_host(other) for other in known}


def _place(origin: str) -> str:
    """An origin without its scheme: a proxy may add encryption."""
    return origin[origin.find("//") :]


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return ""


def _allow_descriptors() -> None:
    if sys.platform == "win32":  # where there is no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# ------------------------------------------------------------------------------------------------------------ health


def health_route() -> Route:
    """`/healthz`: whether this server can answer a visitor, its library included."""
    return Route(f"{base_path()}/healthz", _health)


async def _health(_: Request) -> Response:
    try:
        found = {"models": len(list_models()), "gpus": len(list_gpus())}
    except (KvplanError, OSError) as error:
        LOG.error("the library of presets cannot be read: %s", error)
        return JSONResponse({"status": "the library of presets cannot be read"}, 503)
    if not all(found.values()):
        return JSONResponse({"status": "the library of presets is empty", **found}, 503)
    return JSONResponse({"status": "ok", **found}, headers={"cache-control": "no-store"})


# ------------------------------------------------------------------------------------------------------------ errors


def apologize(error: Exception) -> bool:
    """What a visitor sees of a fault of ours: calm words. The log has the rest."""
    LOG.error("a page failed", exc_info=error)
    st.error("Something went wrong on this page", icon=":material/error:")
    st.text(
        "This is a fault of kvplan and not of what you gave; whoever runs this server finds it in its log. "
        "Change the last setting back, or load the page again."
    )
    return True
