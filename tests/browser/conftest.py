"""A real Chromium on the real app: one server for all tests, a fresh context for each.

A page that logs an error to the console, sends a request to another host, or leaves a traceback in the server's log
fails its test, whatever the test looks at.
"""

import os
import shutil

import pytest

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


class Visit:
    """One visitor's tab, and everything that went wrong in it."""

    def __init__(self, server, browser, **context):
        self.server = server
        self.context = browser.new_context(**{"viewport": DESKTOP, **context})
        self.page = self.context.new_page()
        self.trouble = []
        self.page.on("pageerror", lambda error: self.trouble.append(f"page error: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message):
        probe = "_stcore" in message.location.get("url", "")  # a deep link probes its own path first
        if message.type == "error" and not probe:
            self.trouble.append(f"console: {message.text}")

    def _request(self, request):
        if not request.url.startswith((self.server.url, "data:", "blob:")):
            self.trouble.append(f"request left the server: {request.url}")

    def open(self, path=""):
        self.page.goto(self.server.url + path)
        self.settle()
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
        box.press("Enter")
        self.page.wait_for_timeout(400)
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
        assert not self.trouble, "\n".join(self.trouble)
        assert "Traceback" not in self.server.log.read_text()


@pytest.fixture
def visit(server, browser):
    """A function that opens a visit: `visit("/sweep", viewport=PHONE)`."""
    opened = []

    def start(path="", **context):
        opened.append(Visit(server, browser, **context))
        return opened[-1].open(path)

    yield start
    for one in opened:
        one.close()
