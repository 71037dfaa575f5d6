"""What a browser is told of a run, and when: nothing is lost but a run that another one replaces at once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from kvplan.ui import pace
from tests.benchmarks.visitors import Session, wire
from tests.servers import running, wait_for

A_LONG_TIME = 600.0
"""No test waits for it: what is sent in spite of it was released."""


def told(kind: str, element: str = "") -> ForwardMsg:
    message = ForwardMsg()
    if kind == "element":
        getattr(message.delta.new_element, element).SetInParent()
    elif kind == "rerun":
        message.script_finished = ForwardMsg.FINISHED_EARLY_FOR_RERUN
    elif kind == "finished":
        message.script_finished = ForwardMsg.FINISHED_SUCCESSFULLY
    elif kind == "runs":
        message.session_status_changed.script_is_running = True
    elif kind == "rests":
        message.session_status_changed.SetInParent()
    else:
        getattr(message, kind).SetInParent()
    return message


BEGINS, RUNS, RERUN, FINISHED, RESTS = map(told, ("new_session", "runs", "rerun", "finished", "rests"))
TEXT, FIGURE, ROOM, TABLE = (told("element", kind) for kind in ("text", "plotly_chart", "space", "dataframe"))


class Browser:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.got: list[ForwardMsg] = []

    async def __call__(self, message: Any) -> None:
        self.got.append(ForwardMsg.FromString(message["bytes"]))


async def hand(send: Any, *messages: ForwardMsg) -> None:
    for message in messages:
        await send({"type": "websocket.send", "bytes": message.SerializeToString()})


def sent(*messages: ForwardMsg) -> list[ForwardMsg]:
    """What a browser has by the time that the last message is handed over."""

    async def go() -> list[ForwardMsg]:
        browser = Browser()
        await hand(pace.paced(browser), *messages)
        return list(browser.got)

    return wait_for(go())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent because its time is over."""
    monkeypatch.setattr(pace, "SECONDS_TO_NOTICE", A_LONG_TIME)
    monkeypatch.setattr(pace, "SECONDS_TO_BEGIN", A_LONG_TIME)
    monkeypatch.setattr(pace, "SECONDS_TO_DRAW", A_LONG_TIME)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is sent as soon as the loop has a moment."""
    monkeypatch.setattr(pace, "SECONDS_TO_NOTICE", 0)
    monkeypatch.setattr(pace, "SECONDS_TO_BEGIN", 0)
    monkeypatch.setattr(pace, "SECONDS_TO_DRAW", 0.01)


@pytest.mark.usefixtures("patient")
def test_a_run_that_a_callback_replaces_before_it_draws_is_not_told() -> None:
    run = (BEGINS, RUNS, TEXT, FINISHED, RESTS)
    assert sent(BEGINS, RUNS, RERUN, RESTS, *run) == [BEGINS, TEXT, FINISHED, RUNS, RESTS]


@pytest.mark.usefixtures("patient")
def test_a_page_is_told_that_it_rests_also_where_nothing_was_said_between_a_run_and_the_one_that_replaces_it() -> None:
    assert sent(BEGINS, RERUN, BEGINS, TEXT, FINISHED, RESTS) == [BEGINS, TEXT, FINISHED, RESTS]


@pytest.mark.usefixtures("patient")
def test_a_run_that_has_drawn_is_told_to_its_end_also_where_another_replaces_it() -> None:
    run = (BEGINS, TEXT, RERUN, RESTS, BEGINS, TEXT, FINISHED)
    assert sent(*run) == list(run)


def test_that_a_script_runs_is_told_once_it_does_for_long_and_holds_nothing_up(monkeypatch: Any) -> None:
    monkeypatch.setattr(pace, "SECONDS_TO_NOTICE", 0.01)

    async def go() -> tuple[list[ForwardMsg], list[ForwardMsg]]:
        browser = Browser()
        send = pace.paced(browser)
        await hand(send, BEGINS, RUNS, TEXT)
        at_once = list(browser.got)
        async with asyncio.timeout(20):
            while len(browser.got) < 3:
                await asyncio.sleep(0.01)
        await hand(send, FINISHED, RESTS)
        return at_once, browser.got

    at_once, found = wait_for(go())
    assert at_once == [BEGINS, TEXT]
    assert found == [BEGINS, TEXT, RUNS, FINISHED, RESTS]


def test_that_a_script_runs_is_told_once_with_its_end_where_it_soon_rests(monkeypatch: Any) -> None:
    monkeypatch.setattr(pace, "SECONDS_TO_NOTICE", 0.02)

    async def go() -> list[ForwardMsg]:
        browser = Browser()
        await hand(pace.paced(browser), BEGINS, RUNS, TEXT, FINISHED, RESTS)
        await asyncio.sleep(0.1)
        return browser.got

    assert wait_for(go()) == [BEGINS, TEXT, FINISHED, RUNS, RESTS]


@pytest.mark.usefixtures("patient")
def test_a_table_its_room_and_what_follows_wait_behind_a_figure() -> None:
    assert sent(TEXT, FIGURE, TEXT, ROOM, TABLE, TEXT, FINISHED) == [TEXT, FIGURE, TEXT]


@pytest.mark.usefixtures("patient")
def test_another_figure_waits_for_nothing_and_keeps_its_place() -> None:
    run = (FIGURE, ROOM, TABLE, TEXT, FIGURE)
    assert sent(*run) == list(run)
    assert sent(*run, TABLE) == list(run)


@pytest.mark.usefixtures("patient")
def test_a_table_without_a_figure_before_it_does_not_wait() -> None:
    assert sent(TEXT, ROOM, TABLE, FINISHED) == [TEXT, ROOM, TABLE, FINISHED]


@pytest.mark.usefixtures("patient")
def test_the_end_of_a_connection_waits_for_nothing_and_comes_last() -> None:
    async def go() -> list[str]:
        order: list[str] = []

        async def send(message: Any) -> None:
            order.append(message["type"])

        end = pace.paced(send)
        await end({"type": "websocket.accept"})
        await hand(end, FIGURE, TABLE)
        await end({"type": "websocket.close"})
        return order

    assert wait_for(go()) == ["websocket.accept", "websocket.send", "websocket.send", "websocket.close"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("run", [(BEGINS, RUNS), (FIGURE, ROOM, TABLE, TEXT, FINISHED, RESTS)])
def test_everything_that_waits_arrives_by_itself_in_its_order(run: tuple[ForwardMsg, ...]) -> None:
    async def go() -> list[ForwardMsg]:
        browser = Browser()
        await hand(pace.paced(browser), *run)
        async with asyncio.timeout(20):
            while len(browser.got) < len(run):
                await asyncio.sleep(0.01)
        return browser.got

    assert wait_for(go()) == list(run)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("late", [(TABLE, TEXT), (RUNS,)])
@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_browser_that_has_gone_meanwhile_is_no_trouble(error: type[Exception], late: tuple[ForwardMsg]) -> None:
    async def go() -> list[str]:
        troubles: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context["message"]))
        tried = asyncio.Event()

        async def gone(message: Any) -> None:
            if message["bytes"] != FIGURE.SerializeToString():
                tried.set()
                raise error("gone")

        send = pace.paced(gone)
        await hand(send, FIGURE, *late)
        await asyncio.wait_for(tried.wait(), 20)
        await asyncio.sleep(0.05)
        del send
        gc.collect()  # trouble in a task is told of when nobody can ask for it any more
        return troubles

    assert wait_for(go()) == []


def kinds(messages: list[bytes]) -> list[str]:
    found = []
    for message in map(ForwardMsg.FromString, messages):
        kind = message.WhichOneof("type")
        is_element = kind == "delta" and message.delta.WhichOneof("type") == "new_element"
        found.append(message.delta.new_element.WhichOneof("type") if is_element else kind)
    return found


def test_a_change_of_one_field_is_one_run_to_the_browser_and_its_figure_comes_first() -> None:
    async def go() -> list[str]:
        with running("app.py") as server:
            async with wire(server.address) as socket:
                visitor = Session(socket, "sweep")
                await visitor.run()
                await visitor.run(kv="fp8")
                return kinds(visitor.received)

    found = wait_for(go())
    assert found.count("new_session") == 1
    assert found.count("script_finished") == 1
    order = [kind for kind in found if kind in ("plotly_chart", "heading", "dataframe")]
    assert order == ["plotly_chart", "heading", "dataframe"]
