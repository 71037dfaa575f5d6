"""Speed of the app in a real Chromium, beside a bare page measured in turns with it.

    python tests/benchmarks/app_speed.py                    every measurement, under four minutes
    python tests/benchmarks/app_speed.py plan sessions      only these: plan, sweep, start, sessions, transfer
    python tests/benchmarks/app_speed.py --changes 5 --starts 1    fewer turns

The bare page (bare_page.py) is plain Streamlit that redraws the very figures of the app from constants. Nothing here
is asserted by a test: a busy machine is no fault. Each line says the target and whether it was met.

server CPU   the server's utime and stime, as /proc/<pid>/stat counts them, read through the process's CPU clock, whose
             grain is finer than that file's 10 ms; less what the idle server takes in the same time
screen       from the key press that changes a widget to the frame after every changed figure is drawn
start        from the start of the server's process to the first figure, in a browser without a cache
sessions     websocket clients; an answer is over when the script has finished and every message has arrived
transfer     what a first visit receives, by HTTP as encoded and by websocket
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from tests.benchmarks.floor import (
    APP_QUERIES,
    KV_DTYPES,
    bare_server,
    chosen_measurements,
    measurement_parser,
    write_constants,
)
from tests.benchmarks.visitors import Session, wire
from tests.browser.conftest import DESKTOP, FLAGS, chromium
from tests.servers import Server, running

CHANGED = {"plan": ("memory", "curve"), "sweep": ("fit",)}
CPU_TARGETS = {"plan": 30, "sweep": 60}
APP_ADDRESSES = {"plan": "/", "sweep": f"/sweep?{APP_QUERIES['sweep']}"}
SECONDS_TO_LOAD = 5
"""After the first visit the server loads what tables need, which is no part of a change."""

NUM_SESSIONS = 20
SESSION_CHANGES = 10


# -------------------------------------------------------------------------------------------------------- report


def report(what: str, values: list[float], unit: str, target: float, judged: str = "median") -> None:
    """One line: median and p95, the target, and whether `judged`, one of the two, met it."""
    found = {"median": float(np.median(values)), "p95": float(np.percentile(values, 95))}
    p95 = f"{found['p95']:9.2f}" if len(values) > 1 else f"{'':9}"
    met = "met" if found[judged] <= target else "MISSED"
    print(f"{what:62}{found['median']:9.2f}{p95} {unit:3} target {target:5g} {judged:6} {met}", flush=True)


def report_floor(what: str, values: list[float], unit: str) -> None:
    """One line of the bare page's, which has no target."""
    print(f"{what:62}{np.median(values):9.2f}{np.percentile(values, 95):9.2f} {unit:3}", flush=True)


def report_ratio(what: str, values: list[float], floor: list[float], target: float) -> None:
    """The medians' ratio, and the one of the 95th percentiles beside it."""
    ratio, high = (float(np.percentile(values, q) / np.percentile(floor, q)) for q in (50, 95))
    met = "met" if ratio <= target else "MISSED"
    print(f"{what:62}{ratio:9.2f}{high:9.2f} {'x':3} target {target:5g} median {met}", flush=True)


# ------------------------------------------------------------------------------------------------ widget changes

SETTLED = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    return app && app.dataset.testConnectionState === 'CONNECTED' && app.dataset.testScriptState === 'notRunning'
        && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]');
}"""

WATCH = """figures => {
    const drawn = key => {
        const plot = document.querySelector(`.st-key-${key} .js-plotly-plot`);
        if (!plot || !plot._fullData || !plot.querySelector('.cartesianlayer :is(.trace, image)')) return null;
        return plot._fullData.map(trace => `${trace.name} ${trace.customdata && trace.customdata[0]}`).join();
    };
    const before = figures.map(drawn);
    const changed = () => figures.every((key, i) => { const now = drawn(key); return now && now !== before[i]; });
    window.took = new Promise(resolve => addEventListener('keydown', event => {
        if (event.key !== 'Enter') return;
        const start = performance.now();
        const look = () => requestAnimationFrame(changed() ? () => resolve(performance.now() - start) : look);
        look();
    }, {capture: true}));
}"""
"""Watch figures from the Enter that is about to be pressed to the frame after all of them have other numbers."""

DRAWN = "() => document.querySelector('.js-plotly-plot .cartesianlayer :is(.trace, image)')"


class Change(NamedTuple):
    """What one widget change took: server CPU and time to the screen, in ms."""

    cpu: float
    screen: float


class Visit:
    """A page of a server in a browser, whose widget is changed again and again."""

    def __init__(self, server: Server, browser: Browser, address: str, figures: tuple[str, ...]) -> None:
        self.server, self.figures = server, figures
        self.page = visit(browser, server, address)
        time.sleep(SECONDS_TO_LOAD)
        self.idle_rate = self._idle_rate()

    def _idle_rate(self, seconds: float = 2.0) -> float:
        start = self.server.cpu_seconds
        time.sleep(seconds)
        return (self.server.cpu_seconds - start) / seconds

    def change(self, choice: str) -> Change:
        """Choose an entry of the list with the keyboard."""
        box = self.page.locator(".st-key-kv input")
        box.click()
        box.fill(choice)
        self.page.evaluate(WATCH, list(self.figures))
        cpu, start = self.server.cpu_seconds, time.perf_counter()
        box.press("Enter")
        screen = self.page.evaluate("window.took")
        settle(self.page)
        time.sleep(0.3)  # what the server does after its answer counts too; then the table is drawn, beside nothing
        idle = self.idle_rate * (time.perf_counter() - start)
        return Change(1000 * (self.server.cpu_seconds - cpu - idle), screen)


def settle(page: Page) -> None:
    page.wait_for_function(SETTLED)


def visit(browser: Browser, server: Server, address: str) -> Page:
    """A first visit, up to figures that stand still."""
    page = browser.new_context(viewport=DESKTOP).new_page()
    page.goto(f"http://{server.address}{address}")
    page.wait_for_function(DRAWN)
    settle(page)
    return page


def changes_in_turns(visits: list[Visit], count: int) -> list[list[Change]]:
    """`count` changes of each visit, in turns, after two that warm up."""
    found: list[list[Change]] = [[] for _ in visits]
    for turn in range(1, count + 3):
        for taken, one in zip(found, visits, strict=True):
            taken.append(one.change(KV_DTYPES[turn % len(KV_DTYPES)]))
    return [taken[2:] for taken in found]


def show_changes(browser: Browser, figures: Path, name: str, count: int) -> None:
    """One page of the app and the bare page's redrawing of it."""
    with running("app.py") as app, running(*bare_server(figures)) as bare:
        visits = [
            Visit(app, browser, APP_ADDRESSES[name], CHANGED[name]),
            Visit(bare, browser, f"/?page={name}", CHANGED[name]),
        ]
        ours, floor = changes_in_turns(visits, count)
        torch = "torch loaded" if app.has_torch else "torch not loaded"
    cpu, screen = [c.cpu for c in ours], [c.screen for c in ours]
    words = {"plan": "Plan", "sweep": "Sweep, 20,000 points"}[name]
    report(f"{words}: server CPU of a change, {torch}", cpu, "ms", CPU_TARGETS[name])
    report_floor("  bare page", [c.cpu for c in floor], "ms")
    report(f"{words}: change to figure on screen", screen, "ms", 250)
    report_floor("  bare page", [c.screen for c in floor], "ms")
    report_ratio("  over the bare page", screen, [c.screen for c in floor], 1.5)
    close_pages(browser)


def close_pages(browser: Browser) -> None:
    for context in browser.contexts:
        context.close()


# --------------------------------------------------------------------------------------------------- cold starts


def seconds_to_first_plot(browser: Browser, arguments: tuple[str, ...], address: str) -> float:
    """A new server, a visitor without a cache, and the first figure."""
    with running(*arguments) as server:
        page = browser.new_context(viewport=DESKTOP).new_page()
        page.goto(f"http://{server.address}{address}", wait_until="commit")
        page.wait_for_function(DRAWN)
        took = time.perf_counter() - server.started
        close_pages(browser)
    return took


def show_start(browser: Browser, figures: Path, count: int) -> None:
    """Cold starts in turns."""
    app, bare = [], []
    for _ in range(count):
        app.append(seconds_to_first_plot(browser, ("app.py",), "/"))
        bare.append(seconds_to_first_plot(browser, bare_server(figures), "/?page=plan"))
    report_floor("Cold start: server's start to first plot", app, "s")
    report_floor("  bare page", bare, "s")
    report_ratio("  over the bare page", app, bare, 1.3)


# ------------------------------------------------------------------------------------------------------ transfer


def show_transfer(browser: Browser) -> None:
    """A first visit of Plan by a browser without a cache."""
    sizes = {"http": 0, "websocket": 0}

    def count(event: dict[str, float], kind: str, size: float) -> None:
        sizes[kind] += int(size)

    with running("app.py") as server:
        page = browser.new_context(viewport=DESKTOP).new_page()
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda event: count(event, "http", event["encodedDataLength"]))
        page.on("websocket", lambda ws: ws.on("framereceived", lambda frame: count({}, "websocket", len(frame))))
        page.goto(f"http://{server.address}/")
        page.wait_for_function(DRAWN)
        settle(page)
        page.wait_for_load_state("networkidle")
        close_pages(browser)
    parts = ", ".join(f"{size / 1e6:.2f} MB {kind}" for kind, size in sizes.items())
    report(f"Cold transfer ({parts})", [sum(sizes.values()) / 1e6], "MB", 3.2)


# ------------------------------------------------------------------------------------------------------ sessions


async def times_of_changes(session: Session, number: int) -> list[float]:
    """Answer times in ms of one session, with a second between its changes, give or take half a second."""
    times, between = [], random.Random(number)
    await asyncio.sleep(between.uniform(0, 1))
    for turn in range(1, SESSION_CHANGES + 1):
        start = time.perf_counter()
        answer = await session.run(kv=KV_DTYPES[(turn + number) % len(KV_DTYPES)])
        if len(answer.figures) < len(CHANGED["plan"]):
            raise RuntimeError("an answer came without its figures")
        times.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(between.uniform(0.5, 1.5))
    return times


async def times_of_sessions(address: str) -> list[float]:
    """Answer times of all sessions, which come one after another and then work side by side."""
    async with AsyncExitStack() as open_sockets:
        sessions = []
        for _ in range(NUM_SESSIONS):
            sessions.append(Session(await open_sockets.enter_async_context(wire(address))))
            await sessions[-1].run()
        found = await asyncio.gather(*(times_of_changes(one, number) for number, one in enumerate(sessions)))
    return [took for times in found for took in times]


def show_sessions() -> None:
    """Twenty visitors at once."""
    with running("app.py") as server:
        times = asyncio.run(times_of_sessions(server.address))
        resident = server.peak_resident
    report(f"{NUM_SESSIONS} sessions (websocket clients) on Plan: answer", times, "ms", 150, "p95")
    report("  resident memory of the server, at its highest", [resident / 1e6], "MB", 260)


# ---------------------------------------------------------------------------------------------------------- main

MEASUREMENTS = ("plan", "sweep", "start", "sessions", "transfer")


def options() -> argparse.Namespace:
    parser = measurement_parser(__doc__, MEASUREMENTS)
    parser.add_argument("--changes", type=int, default=25, help="widget changes of each page (25)")
    parser.add_argument("--starts", type=int, default=5, help="cold starts (5)")
    return chosen_measurements(parser, MEASUREMENTS)


def main() -> None:
    """Print every figure that was asked for."""
    given = options()
    wanted = given.measurements or MEASUREMENTS
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement")
    print(f"{'':62}{'median':>9}{'p95':>9}")
    if "sessions" in wanted:  # before the browser, whose own event loop would stand in the way
        show_sessions()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        figures = Path(folder) / "figures.json"
        write_constants(figures)
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for name in ("plan", "sweep"):
            if name in wanted:
                show_changes(browser, figures, name, given.changes)
        if "start" in wanted:
            show_start(browser, figures, given.starts)
        if "transfer" in wanted:
            show_transfer(browser)
        browser.close()


if __name__ == "__main__":
    main()
