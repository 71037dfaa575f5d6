"""What a browser enforces and shows: the content-security policy, refused uploads, faults, a path below a proxy's."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import kvplan
from tests.browser.conftest import Visit
from tests.servers import running

pytestmark = pytest.mark.browser

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=8)


@pytest.fixture
def tab(server, browser):
    """A page whose complaints are the test's own matter."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_a_script_that_somebody_planted_does_not_run(server, tab):
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(server.url)
    tab.wait_for_selector("[data-testid=stApp]")
    tab.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'window.planted = 1';"
        " document.body.append(script); const image = document.createElement('img');"
        " image.setAttribute('onerror', 'window.planted = 2'); image.src = 'nothing:'; document.body.append(image); }"
    )
    tab.wait_for_timeout(300)
    assert tab.evaluate("() => window.planted ?? null") is None
    assert any("Content Security Policy" in text for text in complaints)


TRY = "try { window.found = String(Function('return 1')()); } catch (error) { window.found = error.name; }"


def test_no_eval_and_no_other_host(server, tab):
    tab.goto(server.url)
    tab.wait_for_selector("[data-testid=stApp]")
    own = "text => import(URL.createObjectURL(new Blob([text], {type: 'text/javascript'}))).then(() => window.found)"
    assert tab.evaluate(own, TRY) == "EvalError"
    fetched = "() => fetch('https://example.org/').then(() => 'sent', error => error.name)"
    assert tab.evaluate(fetched) == "TypeError"


def test_no_page_of_another_site_shows_the_app_in_a_frame(server, tab):
    page = f"<iframe src='{server.url}'></iframe>".encode()

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    other = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        tab.goto(f"http://127.0.0.1:{other.server_port}/")
        tab.wait_for_timeout(1000)
        frame = tab.frames[1]
        assert frame.url.startswith("chrome-error:")
        assert frame.locator("[data-testid=stApp]").count() == 0
    finally:
        other.shutdown()
        other.server_close()


def test_a_figure_is_saved_as_a_picture_and_a_table_by_its_own_toolbar(server, browser):
    visitor = Visit(server, browser).open()
    visitor.figure("memory")
    visitor.page.locator(".st-key-memory").hover()
    with visitor.page.expect_download() as picture:
        visitor.page.locator(".st-key-memory [data-title*=ownload]").first.click()
    assert picture.value.path().stat().st_size > 1000
    visitor.page.add_init_script("delete window.showSaveFilePicker")  # a dialog of the system's, which nobody answers
    visitor.open("/models")
    table = visitor.page.locator("[data-testid=stDataFrame]").first
    table.hover()
    with visitor.page.expect_download() as rows:
        visitor.page.get_by_label("Download as CSV").first.click()
    assert rows.value.path().stat().st_size > 100
    visitor.close()


def test_a_file_over_the_limit_is_answered_in_words(visit, tmp_path):
    large = tmp_path / "large.gguf"
    with large.open("wb") as file:
        file.truncate(40 * 2**20)  # by its path: its bytes would take half a minute on their way through the driver
    visitor = visit("/import")
    page = visitor.page
    with visitor.rerun():
        page.get_by_text("a GGUF file", exact=True).click()
    page.locator("input[type=file]").first.set_input_files(large)
    page.get_by_text("must be 32.0MB or smaller").wait_for()
    assert visitor.heading() == "Import"


def test_links_and_pages_stay_below_the_path_of_the_server(browser, tmp_path):
    with running("app.py", "--server.baseUrlPath=kv/plan", log=tmp_path / "log", base="/kv/plan") as server:
        visitor = Visit(server, browser).open("/?ctx=32k")
        sentence = kvplan.plan(LLAMA.with_changes(context_length=32768)).sentence
        assert visitor.heading() == sentence
        with visitor.rerun():
            visitor.page.get_by_role("link", name="Share", exact=True).click()
        link = visitor.page.locator("code").first.inner_text()
        assert link.startswith(f"{server.url}/?v=1&")
        with visitor.rerun():
            visitor.page.goto(link)
        assert visitor.heading() == sentence
        visitor.close()
