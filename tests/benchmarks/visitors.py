"""Visitors without a browser: websocket clients in Streamlit's protocol."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.PlotlyChart_pb2 import PlotlyChart
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

WIDGETS = ("selectbox", "text_input", "text_area", "button")


class Answer(NamedTuple):
    """What one run of the script sent: figures in their order, headings, and whether an exception was shown."""

    figures: tuple[PlotlyChart, ...]
    headings: tuple[str, ...]
    has_exception: bool


def wire(address: str) -> AbstractAsyncContextManager[ClientConnection]:
    """A websocket to a server, as a browser opens it."""
    return connect(f"ws://{address}/_stcore/stream", subprotocols=[Subprotocol("streamlit")], max_size=None)


class Session:
    """One visitor, on the page of that name; the first page has none.

    identity   the server's word for this session
    page_hash  the server's word for the page, from the first run on
    received   the messages of the last run, as they came
    held       those of them that a browser keeps, by the hashes that it names when it asks again
    """

    def __init__(self, socket: ClientConnection, page: str = "", query: str = "") -> None:
        self.socket, self.page, self.query = socket, page, query
        self.widgets: dict[str, str] = {}
        self.fragments: dict[str, str] = {}
        self.values: dict[str, WidgetState] = {}
        self.identity = ""
        self.page_hash = ""
        self.received: list[bytes] = []
        self.held: list[str] = []

    async def run(self, **choices: str) -> Answer:
        """One run of the script, with the text of each widget that is named; all earlier choices stay."""
        for key, choice in choices.items():
            self.values[key] = WidgetState(id=self.widgets[key], string_value=choice)
        return await self._ask(next(reversed(choices), ""), *self.values.values())

    async def press(self, key: str) -> Answer:
        """A run that a button starts."""
        pressed = WidgetState(id=self.widgets[key], trigger_value=True)
        return await self._ask(key, *self.values.values(), pressed)

    async def _ask(self, changed: str, *states: WidgetState) -> Answer:
        """Send what stands in the widgets; one of a fragment runs only the fragment, as in a browser."""
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string, rerun.page_name = self.query, self.page
        rerun.page_script_hash = self.page_hash  # as a browser does once it knows the pages
        rerun.fragment_id = self.fragments.get(changed, "")
        rerun.widget_states.widgets.extend(states)
        rerun.cached_message_hashes.extend(self.held)
        await self.socket.send(message.SerializeToString())
        return await self._answer()

    async def _answer(self) -> Answer:
        """Everything up to the end of the run; a run that the script itself starts anew is not over."""
        seen = _Seen()
        self.received.clear()
        self.held.clear()
        while True:
            self.received.append(await self.socket.recv(decode=False))
            message = ForwardMsg.FromString(self.received[-1])
            self.identity = message.new_session.initialize.session_id or self.identity
            if message.metadata.cacheable:
                self.held.append(message.hash)
            kind = message.WhichOneof("type")
            if kind == "navigation":
                self.page_hash = message.navigation.page_script_hash
            if kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                self._learn(message.delta)
                seen.take(message.delta)
            elif kind == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                return seen.answer

    def _learn(self, delta: Delta) -> None:
        """Remember a widget, and which fragment it runs."""
        kind = delta.new_element.WhichOneof("type")
        if kind in WIDGETS:
            identity = getattr(delta.new_element, kind).id
            key = identity.split("-", 2)[2]  # $$ID-hash-key
            self.widgets[key], self.fragments[key] = identity, delta.fragment_id


class _Seen:
    """What a run has sent so far."""

    def __init__(self) -> None:
        self.figures: list[PlotlyChart] = []
        self.headings: list[str] = []
        self.has_exception = False

    def take(self, delta: Delta) -> None:
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "plotly_chart":
            self.figures.append(element.plotly_chart)
        elif kind == "heading":
            self.headings.append(element.heading.body)
        elif kind == "exception":
            self.has_exception = True

    @property
    def answer(self) -> Answer:
        return Answer(tuple(self.figures), tuple(self.headings), self.has_exception)
