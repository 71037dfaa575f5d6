"""What benchmarks share: bare_page.py beside the app, the app's figures as constants for it, and their options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import plotly.graph_objects as go

from kvplan import charts
from kvplan.explain import layer_strip
from kvplan.plan import Scenario, plan
from kvplan.sweep import sweep
from kvplan.sweep_charts import Panel, fit_map
from kvplan.units import parse_axis

FIRST = Scenario("llama-3.1-8b", "h100-sxm-80gb", batch_size=8)
"""What the app plans when nobody has changed anything."""

KV_DTYPES = ("bf16", "fp8", "fp32", "int8_per_token_head")
"""What the changed widget is set to, in turn: the change that redraws most on both pages."""

AXES = {"map_context_length": "1k..200k+1k", "map_batch_size": "1..100"}
"""A map of 20,000 points."""

APP_QUERIES = {"plan": "", "sweep": urlencode(AXES)}


def bare_server(figures: Path) -> tuple[str, ...]:
    return ("tests/benchmarks/bare_page.py", "--", str(figures))


def plan_figures(scenario: Scenario) -> dict[str, charts.Figure]:
    """What Plan draws."""
    p = plan(scenario)
    table = sweep(scenario, context_length=charts.context_values(p))
    return {
        "memory": charts.memory_bar(p),
        "curve": charts.cache_against_weights(p, table),
        "strip": charts.layer_strip(layer_strip(scenario.planned_model)),
    }


def sweep_figures(scenario: Scenario) -> dict[str, charts.Figure]:
    """What Sweep draws of its 20,000 points."""
    contexts, batches = (parse_axis(text) for text in AXES.values())
    table = sweep(scenario, context_length=contexts, batch_size=batches)
    return {"fit": fit_map([Panel("", table)], context_limit=scenario.model.context_limit)}


def write_constants(path: Path) -> None:
    """Every figure that the app will show, for the bare page."""
    scenarios = {name: FIRST.with_changes(kv_dtype=name) for name in KV_DTYPES}
    pages = {
        page: {
            name: {key: json.loads(go.Figure(figure).to_json()) for key, figure in figures(scenario).items()}
            for name, scenario in scenarios.items()
        }
        for page, figures in (("plan", plan_figures), ("sweep", sweep_figures))
    }
    path.write_text(json.dumps(pages), encoding="utf-8")


def measurement_parser(text: str | None, measurements: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of a benchmark's options, which begin with the measurements that are wanted."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", metavar="measurement", help=", ".join(measurements) + " (all)")
    return parser


def chosen_measurements(parser: argparse.ArgumentParser, measurements: Sequence[str]) -> argparse.Namespace:
    """The options as given; a measurement that is none ends the program with the list of them."""
    given = parser.parse_args()
    unknown = set(given.measurements) - set(measurements)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not a measurement; choose from {', '.join(measurements)}")
    return given
