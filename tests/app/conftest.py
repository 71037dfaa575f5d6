"""The app without a browser: pages, widgets and figures through Streamlit's own test runner."""

import functools
import gc
import json
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from kvplan.ui.answers import ANSWERED

ROOT = Path(__file__).resolve().parents[2]


class App:
    """The app of one visitor.

    page  the path of the page that the visit begins on
    held  what widgets hold by their keys, such as an entry of the visitor's own, which the runner's lists do not take
    """

    def __init__(self, held=None, page="", **address):
        self.run = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        self.run._page_hash = calc_hash(page) if page else ""  # `switch_page` knows the paths after a run only
        for key, text in address.items():
            self.run.query_params[key] = text
        for key, value in (held or {}).items():
            self.run.session_state[key] = value
        self.run.run()
        self.check()

    def check(self):
        assert not self.run.exception, self.run.exception[0].stack_trace

    def go(self, page):
        self.run.switch_page(f"kvplan/ui/{page}.py").run()
        self.check()

    def set(self, **values):
        """Give widgets values by key, then let the page run once, and whole.

        Streamlit's runner forgets what a run of the answer alone does not draw; a browser does not.
        """
        self.run.session_state[ANSWERED] = None
        for key, value in values.items():
            self._widget(key).set_value(value)
        self.run.run()
        self.check()

    def _widget(self, key):
        return next(widget for kind in WIDGETS for widget in self.run.get(kind) if getattr(widget, "key", None) == key)

    def click(self, key):
        next(button for button in self.run.get("button") if button.key == key).click().run()
        self.check()

    def open(self, key):
        """Open a part of the page that is only computed when it is open."""
        self.run.session_state[key] = True
        self.run.run()
        self.check()

    def value(self, key):
        return self.run.session_state[key]

    def heading(self):
        return self.run.header[0].value.replace(r"\$", "$")

    def texts(self):
        return [text.value for text in self.run.text]

    def errors(self):
        return [error.value for error in self.run.error]

    def metric(self, label):
        return next(metric.value for metric in self.run.metric if metric.label == label)

    def figure(self, alt):
        """The figure whose text alternative starts with `alt`."""
        charts = [chart.proto for chart in self.run.get("plotly_chart")]
        return json.loads(next(chart.spec for chart in charts if chart.alt.startswith(alt)))

    def address(self):
        """The query that the browser is told to show."""
        (bar,) = (bar for bar in self.run.get("bidi_component") if bar.proto.component_name == "kvplan_address")
        return json.loads(bar.proto.json)["link"]

    def tables(self):
        return [table.value for table in self.run.dataframe]


WIDGETS = (
    "selectbox", "number_input", "text_input", "text_area", "segmented_control", "button_group", "multiselect", "radio",
    "checkbox", "toggle", "pills",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def packages_are_searched_once():
    """The runner looks for components in every installed package each time it opens the app: a tenth of a second."""
    found = functools.cache(manifest_scanner.scan_component_manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", found)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_is_frozen():
    """The app hides what is loaded from the garbage collector; Hypothesis asks the collector who holds its things."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        yield


@pytest.fixture
def app():
    """A function that opens the app: `app(ctx="32k")`."""
    return App
