"""Importing kvplan is light: NumPy comes with it and nothing heavier."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("pandas", "plotly", "streamlit", "torch", "transformers")


def loaded_after(code: str) -> set[str]:
    """Names of the heavy packages that a fresh process has loaded after `code`."""
    report = f"{code}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import kvplan",
        "import kvplan.cli",
        "import kvplan.importer",
        "import kvplan.share, kvplan.explain, kvplan.fleet, kvplan.define",
        "import kvplan; kvplan.plan(kvplan.Scenario('llama-3.1-8b', 'h100-sxm-80gb')).sentence",
        "import kvplan; kvplan.import_config('tests/data/configs/Qwen__Qwen3-8B.json')",
    ],
)
def test_a_plan_needs_no_heavy_package(code: str) -> None:
    assert loaded_after(code) == set()


def test_a_sweep_brings_pandas_and_nothing_else() -> None:
    code = "import kvplan; kvplan.sweep(kvplan.Scenario('llama-3.1-8b', 'h100-sxm-80gb'), context_length='1k,2k')"
    assert loaded_after(code) == {"pandas"}


def test_the_figures_of_a_plan_bring_no_heavy_package() -> None:
    code = (
        "import kvplan, kvplan.report\n"
        "plan = kvplan.plan(kvplan.Scenario('llama-3.1-8b', 'h100-sxm-80gb'))\n"
        "assert len(kvplan.report.plan_figures(plan)) == 3"
    )
    assert loaded_after(code) == set()


def test_the_first_page_is_drawn_without_what_only_tables_need() -> None:
    code = (
        "from streamlit.testing.v1 import AppTest\n"
        "page = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "assert not page.exception and len(page.get('plotly_chart')) == 3"
    )
    assert loaded_after(code) == {"plotly", "streamlit"}


def test_a_page_is_drawn_beside_another_visitors_run_that_still_loads_pandas() -> None:
    """Half a pandas is in `sys.modules` then, and has none of its names yet."""
    code = (
        "import sys\n"
        "from types import ModuleType\n"
        "from streamlit.testing.v1 import AppTest\n"
        "page = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "sys.modules.update(pandas=ModuleType('pandas'), pyarrow=ModuleType('pyarrow'))\n"
        "for change in ({'ctx': '32k'}, {'batch': 400}, {'model': 'gemma-3-27b'}, {'unit': 'GB'}):\n"
        "    page.session_state[next(iter(change))] = next(iter(change.values()))\n"
        "    page.run()\n"
        "    assert not page.exception and not page.error, page.exception\n"
        "    assert len(page.get('plotly_chart')) == 3\n"
    )
    loaded_after(code)


def test_the_lab_brings_torch_when_it_is_used() -> None:
    assert "torch" in loaded_after("import kvplan; kvplan.lab.TinyDecoder")


def test_every_public_name_can_be_had() -> None:
    code = "import kvplan\nfor name in kvplan.__all__: getattr(kvplan, name)"
    assert loaded_after(code) <= set(HEAVY)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import kvplan

    with pytest.raises(AttributeError, match="module 'kvplan' has no attribute 'plam'"):
        kvplan.plam  # noqa: B018


@pytest.mark.parametrize("name", ["engines", "explain", "fleet", "importer", "library", "report", "suggest"])
def test_a_part_is_there_under_its_own_name(name: str) -> None:
    code = f"import kvplan; print(kvplan.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == f"kvplan.{name}"


def test_what_the_readme_names_is_found_after_importing_kvplan_alone() -> None:
    named = set(re.findall(r"`(kvplan(?:\.[A-Za-z_]+)+)", (ROOT / "README.md").read_text()))
    assert {"kvplan.sizes.sizes_of", "kvplan.fleet.fewest_gpus"} <= named
    loaded_after(f"import kvplan\nfor name in {sorted(named)}: eval(name)")
