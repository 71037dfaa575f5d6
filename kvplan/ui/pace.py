"""What a browser is told of a run, and when: it draws the whole page anew for nearly every message that comes alone.

Three things between Streamlit's runtime and the websocket, all about what is on screen first:

- That a script runs is told with its end, or where it runs for longer than a person would notice.
- A callback that asks for parts of the page (`st.rerun`) ends the run that it was called in, before anything was
  drawn. That run is not told of.
- A table that follows a figure waits until the browser had the time to draw the figure.

Nothing that is drawn is lost, nor changes its order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from kvplan.ui.packed import Message, Send

SECONDS_TO_NOTICE = 0.3
"""How long a script may run before the page says that it does."""

SECONDS_TO_BEGIN = 0.03
"""How long the news that a run has begun may wait for what comes next."""

SECONDS_TO_DRAW = 0.1
"""How long a browser takes for a figure, from its arrival, on a machine that is not fast."""

FIGURE, TABLE = "plotly_chart", frozenset({"space", "dataframe"})
"""Kinds of elements; a table begins with the room above it."""


GONE = (OSError, RuntimeError)
"""What sending to a browser that has gone raises."""


def paced(send: Send) -> Send:
    """`send` of a websocket to a browser, with the pace of this module."""
    return _RunsThatBegin(_RunsThatLast(_TablesAfterFigures(send)))


class _RunsThatLast:
    """Tells that a script runs only after a while, if it still does then, or together with its end.

    A page that asked for the run itself, by its key R, does not take the news of an end without that of a beginning.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._untold: Message | None = None
        self._timer: asyncio.Task[None] | None = None

    async def __call__(self, message: Message) -> None:
        told = _told(message)
        if told is None or told.WhichOneof("type") != "session_status_changed":
            await self._send(message)
        elif told.session_status_changed.script_is_running:
            self._untold = message
            self._timer = asyncio.create_task(self._tell_later())
        else:
            await self._tell()
            await self._send(message)

    async def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        message, self._untold, self._timer = self._untold, None, None
        if message is not None:
            await self._send(message)

    async def _tell_later(self) -> None:
        await asyncio.sleep(SECONDS_TO_NOTICE)
        self._timer = None  # what is being sent is not called back
        with contextlib.suppress(*GONE):
            await self._tell()


class _Holding:
    """Messages that wait, for a while or until they are released; whatever comes meanwhile stays behind them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[Message] = deque()
        self._sending = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None

    async def __call__(self, message: Message) -> None:
        raise NotImplementedError

    def hold(self, message: Message, seconds: float) -> None:
        """Have a message wait; the first one that does sets the time for all."""
        self._waiting.append(message)
        if self._timer is None:
            self._timer = asyncio.create_task(self._release_after(seconds))

    async def release(self, *more: Message) -> None:
        """Send what waits, then `more`."""
        if self._timer is not None and self._timer is not asyncio.current_task():
            self._timer.cancel()
        self._timer = None
        self._waiting.extend(more)
        async with self._sending:
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _release_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(*GONE):
            await self.release()


class _RunsThatBegin(_Holding):
    """Leaves out the beginning and the end of a run that another one replaces before it has drawn anything."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._gave_way = False

    async def __call__(self, message: Message) -> None:
        told = _told(message)
        kind = told and told.WhichOneof("type")
        if kind == "session_status_changed" and self._gave_way:  # nothing runs for a moment, which is over already
            self._gave_way = False
        elif kind == "new_session" or (self._waiting and kind == "session_status_changed"):
            self._gave_way = False
            self.hold(message, SECONDS_TO_BEGIN)
        elif self._waiting and told is not None and _gives_way(told):
            self._waiting.clear()
            self._gave_way = True
        else:
            await self.release(message)


def _gives_way(told: ForwardMsg) -> bool:
    early: int = ForwardMsg.FINISHED_EARLY_FOR_RERUN
    return bool(told.WhichOneof("type") == "script_finished" and told.script_finished == early)


class _TablesAfterFigures(_Holding):
    """Has a table, and what comes after it, wait until the figure before it is drawn; another figure ends that."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._drawn = 0.0

    async def __call__(self, message: Message) -> None:
        kind = _element(message)
        left = self._drawn - time.monotonic()
        if kind == FIGURE:
            await self.release(message)
            self._drawn = time.monotonic() + SECONDS_TO_DRAW
        elif message.get("bytes") is not None and (self._waiting or (kind in TABLE and left > 0)):
            self.hold(message, left)
        else:
            await self.release(message)


def _told(message: Message) -> Any:
    """What a message says; None where it is no data, such as the end of the connection."""
    data = message.get("bytes")
    return None if data is None else ForwardMsg.FromString(data)


def _element(message: Message) -> str | None:
    """The kind of the element that a message adds, if it adds one."""
    told = _told(message)
    if told is None or told.WhichOneof("type") != "delta" or told.delta.WhichOneof("type") != "new_element":
        return None
    kind: str = told.delta.new_element.WhichOneof("type")
    return kind
