"""Many visitors at once, each changing a widget again and again, without a browser.

    python tests/benchmarks/load.py                         50 on Plan and 15 on Sweep, two minutes each
    python tests/benchmarks/load.py plan --sessions 20 --seconds 30 --every 1
    python tests/benchmarks/load.py waves                   visitors who come and leave: is their memory given back?
    python tests/benchmarks/load.py beside                  20 on Plan while others train in the Lab and measure configs

Every change of every visitor asks for numbers that nobody else asks for, and what comes back must be kvplan's answer
to them: an answer to somebody else's question counts as mixed. Nothing here is asserted by a test, since a busy machine
is no fault; the bare page (bare_page.py) under the same load says what Streamlit alone takes at that moment.

answer       from a change to the message that ends the script's run, at the client, waiting in line included
server CPU   of one change: the server's CPU time over the whole run, divided by the number of changes
lost         no answer within 30 s, or the connection ended
error        an answer that shows an exception or has no figure
resident     of the server: after one visitor has come and gone, at most while all are there, and after all have left
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
from websockets.exceptions import ConnectionClosed

from kvplan import charts
from kvplan.plan import plan
from tests.benchmarks.floor import (
    APP_QUERIES,
    FIRST,
    KV_DTYPES,
    bare_server,
    chosen_measurements,
    measurement_parser,
    sweep_figures,
    write_constants,
)
from tests.benchmarks.visitors import Answer, Session, wire
from tests.servers import Server, running

LIMIT_SECONDS = 30
EXPIRY_SECONDS = 3
"""How long the server keeps a visitor who left; 120 s where nothing else is said."""

SESSIONS = {"plan": 50, "sweep": 15}
TARGET_P95 = 250


# ------------------------------------------------------------------------------------------------------ questions


class Question(NamedTuple):
    """What visitors of a page change, and how their answers are told apart.

    page, query   where they are
    change        number of the change -> the widget and its text; no two numbers give the same
    seen          what an answer holds of its numbers
    expected      number of the change -> what an answer to it must hold
    """

    page: str
    query: str
    change: Callable[[int], dict[str, str]]
    seen: Callable[[Answer], str]
    expected: Callable[[int], str]


def plan_change(number: int) -> dict[str, str]:
    return {"ctx": str(2_000 + number)}


def plan_seen(answer: Answer) -> str:
    """The heading, and every number of the memory bar."""
    traces = json.loads(answer.figures[0].spec)["data"]
    return json.dumps([answer.headings[0], [trace["customdata"] for trace in traces]])


def plan_expected(number: int) -> str:
    p = plan(FIRST.with_changes(context_length=2_000 + number))
    return json.dumps([p.sentence, [trace["customdata"] for trace in charts.memory_bar(p)["data"]]])


def sweep_change(number: int) -> dict[str, str]:
    return {"overhead": str(2_000_000_000 + number)}


def sweep_seen(answer: Answer) -> str:
    """A digest of the exact bytes of all 20,000 cells."""
    cells = json.loads(answer.figures[0].spec)["data"][0]["customdata"]
    return hashlib.sha256(base64.b64decode(cells["bdata"])).hexdigest()


def sweep_expected(number: int) -> str:
    figure = sweep_figures(FIRST.with_changes(overhead_bytes=2_000_000_000 + number))["fit"]
    return hashlib.sha256(np.asarray(figure["data"][0]["customdata"], np.float64).tobytes()).hexdigest()


QUESTIONS = {
    "plan": Question("", APP_QUERIES["plan"], plan_change, plan_seen, plan_expected),
    "sweep": Question("sweep", APP_QUERIES["sweep"], sweep_change, sweep_seen, sweep_expected),
}


def bare_question(page: str) -> Question:
    """The bare page has four answers, all constants."""
    return Question(
        "", f"page={page}", lambda number: {"kv": KV_DTYPES[number % len(KV_DTYPES)]}, lambda _: "", lambda _: ""
    )


# ------------------------------------------------------------------------------------------------------- visitors


@dataclass
class Tally:
    """What came back to all visitors together."""

    times: list[float] = field(default_factory=list)
    seen: dict[int, str] = field(default_factory=dict)
    lost: int = 0
    errors: int = 0

    @property
    def changes(self) -> int:
        return len(self.times) + self.lost

    def mixed(self, expected: Callable[[int], str]) -> int:
        return sum(expected(number) != found for number, found in self.seen.items())


@dataclass(frozen=True)
class Load:
    """So many visitors, so long, each with a change every so many seconds."""

    sessions: int
    seconds: float
    every: float

    def numbers(self, visitor: int) -> Iterator[int]:
        """The changes of one visitor; no other visitor has any of them."""
        return iter(range(visitor, self.sessions * int(self.seconds / self.every), self.sessions))


async def visit(session: Session, question: Question, load: Load, visitor: int, tally: Tally) -> None:
    """Changes at fixed times, so that a slow answer does not lower the load; the first at a random moment."""
    begin = time.perf_counter() + random.Random(visitor).uniform(0, load.every)
    for turn, number in enumerate(load.numbers(visitor)):
        await asyncio.sleep(max(0.0, begin + turn * load.every - time.perf_counter()))
        start = time.perf_counter()
        try:
            answer = await asyncio.wait_for(session.run(**question.change(number)), LIMIT_SECONDS)
        except (TimeoutError, ConnectionClosed):
            tally.lost += 1
            return
        tally.times.append(1000 * (time.perf_counter() - start))
        if answer.has_exception or not answer.figures:
            tally.errors += 1
        else:
            tally.seen[number] = question.seen(answer)


async def arrive(address: str, question: Question, number: int, room: AsyncExitStack) -> list[Session]:
    """Visitors who come one after another and see the page once."""
    sessions = []
    for _ in range(number):
        socket = await room.enter_async_context(wire(address))
        sessions.append(Session(socket, question.page, question.query))
        await sessions[-1].run()
    return sessions


@dataclass
class Run:
    """What one load did to one server. CPU in seconds, memory in bytes."""

    tally: Tally
    server_cpu: float = 0.0
    client_cpu: float = 0.0
    before: int = 0
    most: int = 0
    after: int = 0


async def watch_memory(server: Server, run: Run) -> None:
    while True:
        run.most = max(run.most, server.resident)
        await asyncio.sleep(0.5)


async def put_under_load(server: Server, question: Question, load: Load) -> Run:
    """All visitors come, work, and leave; then the server has time to forget them."""
    run = Run(Tally())
    await come_and_go(server, question, 1)
    run.before = server.resident
    async with AsyncExitStack() as room:
        sessions = await arrive(server.address, question, load.sessions, room)
        watcher = asyncio.create_task(watch_memory(server, run))
        server_cpu, client_cpu = server.cpu_seconds, time.process_time()
        await asyncio.gather(*(visit(one, question, load, i, run.tally) for i, one in enumerate(sessions)))
        run.server_cpu, run.client_cpu = server.cpu_seconds - server_cpu, time.process_time() - client_cpu
        watcher.cancel()
    await forget(server, question)
    run.after = server.resident
    return run


async def come_and_go(server: Server, question: Question, number: int, changes: int = 3) -> None:
    async with AsyncExitStack() as room:
        for visitor, session in enumerate(await arrive(server.address, question, number, room)):
            for turn in range(changes):
                await session.run(**question.change(turn * number + visitor))


async def forget(server: Server, question: Question) -> None:
    """Until those who left have expired; the server looks for them when somebody leaves."""
    await asyncio.sleep(EXPIRY_SECONDS + 1)
    await come_and_go(server, question, 1)
    await asyncio.sleep(EXPIRY_SECONDS + 1)


# --------------------------------------------------------------------------------------------------------- report


def row(what: str, found: str, target: str = "", met: bool | None = None) -> None:
    judged = "" if met is None else "met" if met else "MISSED"
    print(f"  {what:52}{found:>24}  {target:20}{judged}", flush=True)


def show(name: str, load: Load, run: Run, expected: Callable[[int], str]) -> None:
    """The table of one load."""
    tally = run.tally
    print(f"{name}: {load.sessions} visitors, {tally.changes} changes, load average {os.getloadavg()[0]:.1f}")
    asked = load.sessions * int(load.seconds / load.every)
    row("answers, of those asked for", f"{len(tally.times)} of {asked}", "all", len(tally.times) == asked)
    for what, found in (("lost", tally.lost), ("errors", tally.errors), ("mixed", tally.mixed(expected))):
        row(what, str(found), "0", found == 0)
    median, p95, most = (float(np.percentile(tally.times, q)) for q in (50, 95, 100))
    row(
        "answer: median, p95, most",
        f"{median:.0f}, {p95:.0f}, {most:.0f} ms",
        f"p95 < {TARGET_P95} ms",
        p95 < TARGET_P95,
    )
    row("server CPU of a change", f"{1000 * run.server_cpu / tally.changes:.1f} ms")
    row("CPU of server, of clients", f"{run.server_cpu / load.seconds:.2f}, {run.client_cpu / load.seconds:.2f} cores")


def show_memory(load: Load, run: Run) -> None:
    each = (run.most - run.before) / load.sessions
    row("resident: before, most, after", ", ".join(f"{size / 1e6:.0f}" for size in (run.before, run.most, run.after)))
    row("memory of a visitor", f"{each / 1e6:.2f} MB", "< 12 MB", each < 12e6)


def show_page(page: str, load: Load, figures: Path) -> None:
    """A page of the app, then the bare page with the same figures under the same load for a while."""
    expiry = f"--server.disconnectedSessionTTL={EXPIRY_SECONDS}"
    with running("app.py", expiry) as server:
        question = QUESTIONS[page]
        run = asyncio.run(put_under_load(server, question, load))
    show(page, load, run, question.expected)
    show_memory(load, run)
    short = Load(load.sessions, min(load.seconds, 30), load.every)
    with running(*bare_server(figures)) as server:
        bare = asyncio.run(put_under_load(server, bare_question(page), short))
    show(f"bare page with the figures of {page}", short, bare, lambda _: "")
    ratio = np.percentile(run.tally.times, 95) / np.percentile(bare.tally.times, 95)
    row("p95 over the bare page's", f"{ratio:.2f}")


def show_waves(waves: int, sessions: int) -> None:
    """The same crowd again and again: memory that is given back does not pile up."""
    with running("app.py", f"--server.disconnectedSessionTTL={EXPIRY_SECONDS}") as server:
        print(f"{waves} waves of {sessions} visitors of Plan who leave after three changes: resident, MB")
        sizes = asyncio.run(_waves(server, waves, sessions))
    row("after each wave", ", ".join(f"{size / 1e6:.0f}" for size in sizes))
    growth = (sizes[-1] - sizes[0]) / (waves - 1) / sessions
    row("growth a visitor after the first wave", f"{growth / 1e3:.0f} kB", "< 50 kB", growth < 50e3)


async def _waves(server: Server, waves: int, sessions: int) -> list[int]:
    sizes = []
    for _ in range(waves):
        await come_and_go(server, QUESTIONS["plan"], sessions)
        await forget(server, QUESTIONS["plan"])
        sizes.append(server.resident)
    return sizes


# --------------------------------------------------------------------------------------------------- heavy work beside

MEASURED = {
    "architectures": ["PersimmonForCausalLM"], "model_type": "persimmon", "hidden_size": 256, "num_hidden_layers": 4,
    "intermediate_size": 512, "num_attention_heads": 4, "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
}  # fmt: skip
"""A config that no rule counts."""


async def train(address: str) -> None:
    """A visitor of the Lab who trains its model again and again."""
    async with wire(address) as socket:
        session = Session(socket, "lab", urlencode({"lab_screen": "7 Shrink the heads"}))
        await session.run()
        while True:
            await session.press("lab_train_start")


async def measure(address: str) -> None:
    """A visitor of the Import page, each of whose configs is measured in a process of its own."""
    async with wire(address) as socket:
        session = Session(socket, "import")
        await session.run()
        for vocabulary in count(1000):
            await session.run(import_text=json.dumps({**MEASURED, "vocab_size": vocabulary}))


async def plan_beside(server: Server, load: Load, heavy: Sequence[Callable[[str], Coroutine[Any, Any, None]]]) -> Tally:
    """What visitors of Plan get while others let the server work."""
    tally, question = Tally(), QUESTIONS["plan"]
    work = [asyncio.create_task(kind(server.address)) for kind in heavy]
    async with AsyncExitStack() as room:
        sessions = await arrive(server.address, question, load.sessions, room)
        await asyncio.gather(*(visit(one, question, load, i, tally) for i, one in enumerate(sessions)))
    for task in work:
        if task.done():
            task.result()  # it ends with nothing but an error
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    return tally


def show_beside(load: Load) -> None:
    """The same visitors alone, beside one who trains, beside three who do, and beside one who measures."""
    print(f"{load.sessions} visitors of Plan beside heavy work, load average {os.getloadavg()[0]:.1f}")
    kinds = {"nobody": [], "one in the Lab": [train], "three in the Lab": [train] * 3, "one who measures": [measure]}
    for name, heavy in kinds.items():
        with running("app.py") as server:
            tally = asyncio.run(plan_beside(server, load, heavy))
        wrong = tally.lost + tally.errors + tally.mixed(plan_expected)
        median, p95 = (float(np.percentile(tally.times, q)) for q in (50, 95))
        row(f"beside {name}: median, p95", f"{median:.0f}, {p95:.0f} ms", f"{wrong} wrong or lost", wrong == 0)


# ----------------------------------------------------------------------------------------------------------- main

MEASUREMENTS = ("plan", "sweep", "waves", "beside")


def options() -> argparse.Namespace:
    parser = measurement_parser(__doc__, MEASUREMENTS)
    parser.add_argument("--sessions", type=int, help="visitors (50 on Plan, 15 on Sweep)")
    parser.add_argument("--seconds", type=float, default=120, help="how long they work (120)")
    parser.add_argument("--every", type=float, default=2, help="seconds between the changes of one visitor (2)")
    parser.add_argument("--waves", type=int, default=4, help="how often the crowd comes back (4)")
    return chosen_measurements(parser, MEASUREMENTS)


def main() -> None:
    """Print every table that was asked for."""
    given = options()
    wanted = given.measurements or MEASUREMENTS
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement")
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        write_constants(figures)
        for page, usual in SESSIONS.items():
            if page in wanted:
                show_page(page, Load(given.sessions or usual, given.seconds, given.every), figures)
    if "waves" in wanted:
        show_waves(given.waves, given.sessions or SESSIONS["plan"])
    if "beside" in wanted:
        show_beside(Load(given.sessions or 20, min(given.seconds, 30), given.every))


if __name__ == "__main__":
    main()
