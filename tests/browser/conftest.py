"""A real Chromium on the real app: one server for all tests, and tabs that visits use one after the other.

Two visits of a test are two profiles, as of two people. A tab that is used again remembers nothing but what Chromium
has compiled, which makes the app open three times as fast as in a fresh profile.

A page that logs an error to the console, sends a request to another host, or leaves a traceback in the server's log
fails its test, whatever the test looks at.
"""

import os
import shutil
import time
from contextlib import contextmanager

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.servers import running

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "no Chromium on PATH: install one to run the browser tests"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found


def _playwright():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        reason = "playwright is not installed: see tests/requirements.txt"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return sync_playwright()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with running("app.py", log=tmp_path_factory.mktemp("server") / "log") as started:
        yield started


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    with _playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture(scope="session")
def tabs(browser):
    return Tabs(browser)


class Tabs:
    """Tabs that no visit uses now, each in a profile of its own."""

    def __init__(self, browser):
        self.browser, self.free = browser, []

    def take(self, viewport=DESKTOP, color_scheme="light"):
        page = self.free.pop() if self.free else self.browser.new_context().new_page()
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme)
        return page

    def give_back(self, page):
        """Have the tab forget its visit: what the page has stored, cookies, the history, the place of the mouse."""
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        page.context.clear_cookies()
        page.mouse.move(0, 0)
        page.goto("about:blank")
        session = page.context.new_cdp_session(page)
        session.send("Page.resetNavigationHistory")
        session.detach()
        self.free.append(page)


LONGEST_SILENCE = 2.0
"""Seconds after which an action that has ended no run has changed nothing."""
QUIET = 0.05
"""Seconds without a message after which no other run follows the one that has ended."""


class Visit:
    """One visitor's tab, and everything that went wrong in it."""

    def __init__(self, server, browser, **context):
        self._watch(server, browser.new_context(**{"viewport": DESKTOP, **context}).new_page())

    @classmethod
    def in_tab(cls, server, page):
        """A visit in a tab that others have used before."""
        visit = cls.__new__(cls)
        visit._watch(server, page)
        return visit

    def _watch(self, server, page):
        self.server, self.page, self.context = server, page, page.context
        self.trouble = []
        self._watched = {"pageerror": self._error, "console": self._console, "request": self._request}
        self._watched["websocket"] = lambda socket: socket.on("framereceived", self._message)
        self.runs, self._heard = 0, time.monotonic()
        for event, note in self._watched.items():
            page.on(event, note)

    def _message(self, data):
        """Count the runs of the script that have come to their end: the page itself says so of long ones alone."""
        told = ForwardMsg.FromString(data)
        self._heard = time.monotonic()
        self.runs += (
            told.WhichOneof("type") == "script_finished" and told.script_finished != told.FINISHED_EARLY_FOR_RERUN
        )

    def _error(self, error):
        self.trouble.append(f"page error: {error}")

    def _console(self, message):
        probe = "_stcore" in message.location.get("url", "")  # a deep link probes its own path first
        if message.type == "error" and not probe:
            self.trouble.append(f"console: {message.text}")

    def _request(self, request):
        if not request.url.startswith((self.server.url, "data:", "blob:")):
            self.trouble.append(f"request left the server: {request.url}")

    def open(self, path=""):
        with self.rerun():
            self.page.goto(self.server.url + path)
        return self

    def settle(self):
        """Until the script has run and figures stand."""
        self.page.wait_for_selector("[data-testid=stApp][data-test-connection-state=CONNECTED]")
        self.page.wait_for_selector("[data-testid=stMainBlockContainer] :is(h1,h2,h3,[role=alert])")
        self.page.wait_for_function(
            "() => { const app = document.querySelector('[data-testid=stApp]');"
            " return app.dataset.testScriptState === 'notRunning'"
            " && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]'); }"
        )

    def choose(self, key, text):
        """Pick or type an entry of the list with that key."""
        box = self.page.locator(f".st-key-{key} input")
        box.click()
        box.fill(text)
        with self.rerun():
            box.press("Enter")

    @contextmanager
    def rerun(self):
        """What is done inside makes the page run, unless it changes nothing; after it the page has run."""
        before = self.runs
        yield
        end = time.monotonic() + LONGEST_SILENCE
        while (self.runs == before and time.monotonic() < end) or time.monotonic() - self._heard < QUIET:
            self.page.wait_for_timeout(10)
        self.settle()

    def figure(self, key):
        """The traces that Chromium draws, typed arrays as lists."""
        plot = f".st-key-{key} .js-plotly-plot"
        self.page.wait_for_selector(f"{plot} .main-svg")
        return self.page.evaluate(
            "selector => document.querySelector(selector)._fullData.map(trace => ({name: trace.name, type: trace.type,"
            " x: Array.from(trace.x || []), y: Array.from(trace.y || []),"
            " customdata: Array.from(trace.customdata || [], row => row.length ? Array.from(row) : row)}))",
            plot,
        )

    def heading(self):
        return self.page.locator("h2").first.inner_text()

    def spilled(self):
        """Pixels by which the page is wider than the screen."""
        return self.page.evaluate(
            "() => { const main = document.querySelector('[data-testid=stMain]');"
            " return main.scrollWidth - main.clientWidth; }"
        )

    def close(self):
        self.context.close()
        self.check()

    def leave(self):
        """Look at the tab no more; whoever lent it takes it back."""
        for event, note in self._watched.items():
            self.page.remove_listener(event, note)

    def check(self):
        assert not self.trouble, "\n".join(self.trouble)
        assert "Traceback" not in self.server.log.read_text()


@pytest.fixture
def visit(server, tabs):
    """A function that opens a visit: `visit("/sweep", viewport=PHONE)`."""
    opened = []

    def start(path="", **settings):
        opened.append(Visit.in_tab(server, tabs.take(**settings)))
        return opened[-1].open(path)

    yield start
    for one in opened:
        one.leave()
        tabs.give_back(one.page)
    for one in opened:
        one.check()
