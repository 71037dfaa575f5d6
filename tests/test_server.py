"""The server before the pages: every kind of answer, what is closed and what is bounded, visitors side by side."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import re
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import streamlit
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from kvplan.plan import Scenario, plan
from kvplan.ui import server as front
from kvplan.ui.packed import BesideFirstVisit, PackedStatic, pack_ahead
from tests.benchmarks.visitors import Session, wire
from tests.servers import Server, running, wait_for

SECURE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running("app.py", log=tmp_path_factory.mktemp("server") / "log") as started:
        yield started


class Reply:
    """What a plain HTTP client gets."""

    def __init__(self, server: Server, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> None:
        client = http.client.HTTPConnection(server.address, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, body=body or None, headers=named)
        answer = client.getresponse()
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()
        client.close()


def assert_secure(headers: Any) -> None:
    found = {name.lower(): value for name, value in headers.items()}
    assert {name: found.get(name) for name in SECURE} == SECURE
    assert "default-src 'none'" in found["content-security-policy"]
    assert "frame-ancestors 'self'" in found["content-security-policy"]
    assert "camera=()" in found["permissions-policy"]
    assert "server" not in found


# ------------------------------------------------------------------------------------------------------------ headers

ANSWERS = {
    "the page": ("GET", "/", 200),
    "a page that does not exist": ("GET", "/nothing", 200),
    "health": ("GET", "/_stcore/health", 200),
    "health of ours": ("GET", "/healthz", 200),
    "a missing file": ("GET", "/media/none.csv", 404),
    "a closed address": ("GET", "/_stcore/metrics", 404),
    "a method that is not allowed": ("POST", "/", 405),
    "a path that climbs": ("GET", "/../../etc/passwd", 400),
    "an upload for nobody": ("PUT", "/_stcore/upload_file/none/none", 403),
}


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS.values(), ids=ANSWERS)
def test_every_kind_of_answer_carries_the_headers(server: Server, method: str, path: str, status: int) -> None:
    reply = Reply(server, path, method)
    assert reply.status == status
    assert_secure(reply.headers)
    assert b"Traceback" not in reply.body


def test_a_packed_file_carries_the_headers_and_comes_out_as_it_went_in(server: Server) -> None:
    page = Reply(server, "/").body.decode()
    path = "/" + page.split('src="./')[1].split('"')[0]
    plain, packed = Reply(server, path), Reply(server, path, accept_encoding="gzip")
    assert_secure(packed.headers)
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 2


def test_a_websocket_carries_the_headers(server: Server) -> None:
    with connect(f"ws://{server.address}/_stcore/stream", origin=f"http://{server.address}") as socket:
        assert_secure(socket.response.headers)


def test_every_script_of_the_page_is_allowed_by_its_own_words(server: Server) -> None:
    reply = Reply(server, "/")
    policy = reply.headers["content-security-policy"]
    assert policy.count("'sha256-") == reply.body.decode().count("<script>") == 1
    assert "'unsafe-eval'" not in policy
    assert "script-src 'self' blob: 'sha256-" in policy


def test_cookies_stay_on_encrypted_connections_where_a_proxy_says_that_it_is_one(server: Server) -> None:
    assert "Secure" not in Reply(server, "/_stcore/health").headers["set-cookie"]
    assert "Secure" in Reply(server, "/_stcore/health", x_forwarded_proto="https").headers["set-cookie"]


# -------------------------------------------------------------------------------------------------------------- doors

CLOSED = (
    "/_stcore/metrics", "/_stcore/script-health-check", "/_stcore/agent/openapi.json", "/_stcore/agent/interact",
    "/_stcore/agent/mcp", "/_stcore", "/component/x/index.html", "/auth/login", "/oauth2callback", "/app/static/x",
)  # fmt: skip


@pytest.mark.parametrize("path", CLOSED)
def test_what_the_pages_do_not_use_is_closed(server: Server, path: str) -> None:
    assert Reply(server, path).status == 404


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://[", f"http://localhost.example.org:{8501}"])
def test_a_page_of_another_site_gets_no_websocket(server: Server, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{server.address}/_stcore/stream", origin=origin)
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("sent", ["hello", b"\xff\xff\xff", b"hello"], ids=["text", "no message", "other bytes"])
def test_what_no_page_sends_on_a_websocket_ends_it_and_is_no_fault(tmp_path: Path, sent: str | bytes) -> None:
    log = tmp_path / "log"
    with running("app.py", log=log) as started:
        with connect(f"ws://{started.address}/_stcore/stream", origin=f"http://{started.address}") as socket:
            socket.send(sent)
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=20)
        assert Reply(started, "/healthz").status == 200
    assert "Traceback" not in log.read_text()
    assert "a websocket was ended: it sent what no page sends" in log.read_text()


def test_a_page_of_another_site_may_not_read_answers(server: Server) -> None:
    reply = Reply(server, "/_stcore/health", origin="https://example.org")
    assert "access-control-allow-origin" not in reply.headers


def test_metrics_open_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert front._is_closed(["_stcore", "metrics"])
    monkeypatch.setenv("KVPLAN_METRICS", "1")
    assert not front._is_closed(["_stcore", "metrics"])


def test_health_says_what_the_library_holds(server: Server) -> None:
    found = json.loads(Reply(server, "/healthz").body)
    assert found["status"] == "ok"
    assert found["models"] > 100
    assert found["gpus"] > 50


def test_health_fails_where_the_library_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[str]:
        raise OSError(f"{tmp_path}: no such folder")

    monkeypatch.setattr(front, "list_models", broken)
    reply = wait_for(front._health(None))  # type: ignore[arg-type]
    assert reply.status_code == 503
    assert str(tmp_path).encode() not in reply.body


# ------------------------------------------------------------------------------------------------------------- limits


class Wire:
    """A caller of an ASGI application, who keeps what it sends."""

    def __init__(self, kind: str, path: str = "/", **headers: str) -> None:
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope: Any = {"type": kind, "path": path, "method": "GET", "headers": named, "scheme": "http"}
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        return {"type": "http.request", "body": b""}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def call(self, app: Any) -> None:
        await app(self.scope, self.receive, self.send)


async def stays(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    await asyncio.sleep(60)


def test_visitors_beyond_the_limit_are_turned_away_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_MAX_SESSIONS", "2")

    async def crowd() -> tuple[Wire, Wire]:
        door = front.FrontDoor(stays)
        inside = [asyncio.create_task(Wire("websocket").call(door)) for _ in range(2)]
        await asyncio.sleep(0)
        third, page = Wire("websocket"), Wire("http", accept="text/html")
        await third.call(door)
        await page.call(door)
        for task in inside:
            task.cancel()
        await asyncio.gather(*inside, return_exceptions=True)
        assert door.sessions == 0
        return third, page

    third, page = wait_for(crowd())
    assert third.sent == [{"type": "websocket.close", "code": 1008}]
    assert page.sent[0]["status"] == 503
    assert b"try again in a minute" in page.sent[1]["body"]


@pytest.mark.parametrize(("given", "limit"), [("", 200), ("7", 7), ("0", 200), ("-3", 200), ("many", 200)])
def test_the_limit_of_visitors_is_a_number_above_0(monkeypatch: pytest.MonkeyPatch, given: str, limit: int) -> None:
    monkeypatch.setenv("KVPLAN_MAX_SESSIONS", given)
    assert front.max_sessions() == limit


def test_a_slow_upload_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "UPLOAD_SECONDS", 0.01)
    monkeypatch.setattr(front, "_holds_too_much", lambda _: False)

    async def never(_scope: Any, _receive: Any, _send: Any) -> None:
        await asyncio.sleep(60)

    wire = Wire("http", "/_stcore/upload_file/a/b")
    wire.scope["method"] = "PUT"
    wait_for(wire.call(front.FrontDoor(never)))
    assert wire.sent[0]["status"] == 408


def test_what_pages_need_is_loaded_once_and_only_when_a_browser_comes() -> None:
    loads, loaded = [], Event()

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def load() -> None:
        loads.append(1)
        loaded.set()

    door = BesideFirstVisit(answer, load)
    wait_for(Wire("http", "/healthz").call(door))
    assert loads == []
    for _ in range(2):
        wait_for(Wire("http", "/static/js/index.js").call(door))
    assert loaded.wait(20)
    assert loads == [1]


def test_only_files_whose_name_changes_with_them_are_kept_packed() -> None:
    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"no-cache"), (b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 5000})

    packed = PackedStatic(answer)
    wait_for(Wire("http", "/static/js/none.js", accept_encoding="gzip").call(packed))
    assert packed.packed == {}


STATIC = Path(streamlit.__file__).parent / "static"


async def send_script(send: Any, body: bytes) -> None:
    headers = [(b"cache-control", b"public, immutable"), (b"content-type", b"text/javascript")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def packed_answer(app: PackedStatic, path: str) -> bytes:
    wire = Wire("http", path, accept_encoding="gzip")
    wait_for(wire.call(app))
    return gzip.decompress(b"".join(message.get("body", b"") for message in wire.sent))


def test_what_every_visit_fetches_is_packed_ahead_and_as_it_is() -> None:
    ahead = pack_ahead()
    page = (STATIC / "index.html").read_text()
    assert {f"/static/js/{name.split('/')[-1]}" for name in re.findall(r'"([^"]+[.]js)"', page)} < set(ahead)
    assert any("/PlotlyChart." in path for path in ahead)
    for path, made in ahead.items():
        assert gzip.decompress(made.result(60)) == (STATIC / path.strip("/")).read_bytes(), path


@pytest.mark.parametrize("base", ["", "/kvplan"])
def test_a_file_that_was_packed_ahead_is_used_and_then_kept(base: str) -> None:
    made: Future[bytes] = Future()
    made.set_result(gzip.compress(b"a" * 5000, mtime=1))
    app = PackedStatic(lambda _scope, _receive, send: send_script(send, b"a" * 5000), {"/static/js/a.js": made})
    for _ in range(2):
        assert packed_answer(app, f"{base}/static/js/a.js") == b"a" * 5000
    assert app.packed[f"{base}/static/js/a.js"].body == made.result()
    assert app.ahead == {}


def test_a_file_of_the_same_name_elsewhere_is_another_one() -> None:
    made: Future[bytes] = Future()
    made.set_result(gzip.compress(b"a" * 5000))
    app = PackedStatic(lambda _scope, _receive, send: send_script(send, b"b" * 5000), {"/static/js/a.js": made})
    assert packed_answer(app, "/media/a.js") == b"b" * 5000


# ------------------------------------------------------------------------------------------------------------ uploads

BOUNDARY = "part"


def multipart(size: int) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="f"; filename="m.gguf"\r\n\r\n'
    return head.encode() + bytes(size) + f"\r\n--{BOUNDARY}--\r\n".encode()


def upload(server: Server, session: str, size: int, file: str = "file", **headers: str) -> Reply:
    token = Reply(server, "/_stcore/health").headers["set-cookie"].split("=", 1)[1].split(";")[0]
    named = {
        "cookie": f"_streamlit_xsrf={token}",
        "x_xsrftoken": token,
        "content_type": f"multipart/form-data; boundary={BOUNDARY}",
        **headers,
    }
    path = f"/_stcore/upload_file/{session}/{file}"
    return Reply(server, path, "PUT", multipart(size), **named)


def visiting(server: Server, visit: Any) -> None:
    """Run `visit(session id)` while that session is open."""

    async def go() -> None:
        async with wire(server.address) as socket:
            session = Session(socket)
            await session.run()
            await asyncio.to_thread(visit, session.identity)

    wait_for(go())


def test_uploads_are_taken_up_to_their_size_and_not_from_another_site(server: Server) -> None:
    def visit(session: str) -> None:
        assert upload(server, session, 1000).status == 204
        assert upload(server, session, 1000, x_xsrftoken="forged").status == 403
        assert upload(server, "nobody", 1000).status == 400
        too_large = upload(server, session, 33 * 2**20)
        assert too_large.status == 413
        assert_secure(too_large.headers)

    visiting(server, visit)


def test_one_visitor_cannot_fill_the_memory_with_files(server: Server) -> None:
    def visit(session: str) -> None:
        found = [upload(server, session, 30 * 2**20, f"file{number}").status for number in range(6)]
        assert found == [204, 204, 204, 204, 204, 413]
        assert Reply(server, "/healthz").status == 200

    visiting(server, visit)


# ---------------------------------------------------------------------------------------------- one beside another


def test_two_visitors_see_nothing_of_each_other(server: Server) -> None:
    first = Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=8)

    async def go() -> list[str]:
        async with wire(server.address) as one, wire(server.address) as other:
            a, b = Session(one), Session(other)
            await a.run()
            await b.run()
            answers = [await a.run(ctx="32k"), await b.run(kv="fp8"), await a.run(ctx="16k"), await b.run(kv="fp32")]
            return [answer.headings[0] for answer in answers]

    changes = ({"context_length": 32768}, {"kv_dtype": "fp8"}, {"context_length": 16384}, {"kv_dtype": "fp32"})
    assert wait_for(go()) == [plan(first.with_changes(**change)).sentence for change in changes]


def test_no_message_is_replaced_by_a_reference_to_one_that_the_browser_may_have_forgotten(server: Server) -> None:
    """A browser that is asked for one that it has not gives the connection up; 10 kB are where Streamlit begins."""

    async def go() -> list[list[ForwardMsg]]:
        async with wire(server.address) as socket:
            visitor = Session(socket, "library")
            runs = []
            for _ in range(2):
                await visitor.run()
                runs.append(list(map(ForwardMsg.FromString, visitor.received)))
            return runs

    first, second = wait_for(go())
    assert max(message.ByteSize() for message in first) > 10_000
    assert [message.ref_hash for message in second if message.WhichOneof("type") == "ref_hash"] == []
    assert max(message.ByteSize() for message in second) > 10_000


FAILING = """
import sys
from pathlib import Path

sys.path.insert(0, {root!r})
import streamlit as st

if __name__ == "__main__":
    raise RuntimeError("the secret of the server")
else:
    from kvplan.ui.server import FrontDoor, apologize

    app = st.App(Path(__file__).resolve(), on_script_error=apologize)
    app = FrontDoor(app)
"""


def test_a_fault_reaches_the_log_and_no_page(tmp_path: Path) -> None:
    script, log = tmp_path / "app.py", tmp_path / "log"
    script.write_text(FAILING.format(root=str(Path(__file__).resolve().parents[1])))

    async def everything(server: Server) -> bytes:
        async with wire(server.address) as socket:
            session = Session(socket)
            await session.run()
            return b"".join(session.received)

    with running(str(script), log=log) as server:
        shown = wait_for(everything(server))
    assert b"Something went wrong on this page" in shown
    assert b"secret" not in shown
    assert b"Traceback" not in shown
    assert "RuntimeError: the secret of the server" in log.read_text()
    assert "Traceback" in log.read_text()
