"""The shape of the code: imports point one way, heavy packages stay in their place, functions are small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kvplan"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

LAYERS = [
    "errors", "names", "units", "dtypes", "attention", "model", "blocks", "define", "sizes", "variant", "hardware",
    "presets", "engines", "plan", "sweep", "fleet", "suggest", "serving", "importer", "lab", "explain", "charts",
    "sweep_charts", "lab_charts", "library", "check", "schema", "documents", "share", "report", "comparison", "cli",
    "__main__", "ui",
]  # fmt: skip
"""Modules and packages of kvplan; one may import those that stand before it, and its own parts."""

MAX_LINES = 40


def layer(path: Path) -> str:
    """The module or package of kvplan that `path` belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything that `tree` imports, wherever it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(path: Path) -> set[str]:
    """Top-level packages that `path` imports."""
    return {name.split(".")[0] for name in imported(TREES.get(path) or ast.parse(path.read_text(encoding="utf-8")))}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", FILES, ids=name_of)


# ------------------------------------------------------------------------------------------------------ imports


def test_every_module_stands_in_the_order() -> None:
    assert {layer(path) for path in FILES} - {"__init__"} <= set(LAYERS)


@each_file
def test_imports_point_only_to_modules_that_stand_before(path: Path) -> None:
    here = layer(path)
    if here == "__init__":
        return
    inside = {name.split(".")[1] for name in imported(TREES[path]) if name.startswith("kvplan.")}
    wrong = {name for name in inside if name in LAYERS and LAYERS.index(name) > LAYERS.index(here)}
    assert wrong == set()


@each_file
def test_nothing_is_imported_relative_to_a_place(path: Path) -> None:
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(TREES[path]))


@each_file
def test_only_the_pages_import_streamlit(path: Path) -> None:
    assert "streamlit" not in packages(path) or layer(path) == "ui"


@each_file
def test_only_the_lab_and_the_measuring_worker_import_torch(path: Path) -> None:
    measures = layer(path) == "importer" and path.stem.startswith("measure")
    assert not packages(path) & {"torch", "transformers"} or layer(path) == "lab" or measures


@each_file
def test_only_figures_reports_and_pages_import_plotly(path: Path) -> None:
    assert "plotly" not in packages(path) or layer(path) in {"charts", "documents", "ui"}


def test_the_app_computes_nothing() -> None:
    tree = ast.parse((ROOT / "app.py").read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Div) for node in ast.walk(tree))


# ---------------------------------------------------------------------------------------------------- functions

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the package with a name for a message."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def body_lines(function: Function) -> int:
    """Lines of a function's body, without its signature and docstring."""
    first, last = function.body[0], function.end_lineno or function.lineno
    return last - ((first.end_lineno or 0) if ast.get_docstring(function) is not None else first.lineno - 1)


def test_no_function_is_over_40_lines() -> None:
    assert [name for name, function in functions() if body_lines(function) > MAX_LINES] == []


def test_functions_are_small() -> None:
    sizes = sorted(body_lines(function) for _, function in functions())
    assert sizes[len(sizes) // 2] <= 8


USED_ELSEWHERE = {name for tree in TREES.values() for name in imported(tree) if name.startswith("kvplan.")}
"""Dotted names that some module of kvplan imports from another."""


def undocumented(path: Path) -> list[str]:
    """Public classes and functions of a module that other modules use and that have no docstring."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    made = [node for node in TREES[path].body if isinstance(node, ast.ClassDef | Function)]
    return [node.name for node in made if f"{module}.{node.name}" in USED_ELSEWHERE and not ast.get_docstring(node)]


@each_file
def test_modules_have_docstrings_and_so_has_all_that_others_use(path: Path) -> None:
    assert ast.get_docstring(TREES[path]) or not TREES[path].body
    assert undocumented(path) == []


@each_file
def test_no_input_is_checked_with_assert(path: Path) -> None:
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(TREES[path]))


@each_file
def test_no_error_is_caught_without_a_name(path: Path) -> None:
    handlers = [node for node in ast.walk(TREES[path]) if isinstance(node, ast.ExceptHandler)]
    assert all(node.type is not None for node in handlers)


# -------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=name_of)
def test_tests_read_nothing_outside_the_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "/work" + "/" not in text
    assert "shared" + "/data" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "browser").glob("test_*.py")), ids=name_of)
def test_tests_with_a_browser_say_that_they_need_one(path: Path) -> None:
    assert "\npytestmark = pytest.mark.browser\n" in path.read_text(encoding="utf-8")


def test_the_project_names_no_package_registry() -> None:
    hosts = ("pypi" + ".org", "pythonhosted" + ".org", "registry.npmjs" + ".org", "download.pytorch" + ".org")
    suffixes = {".py", ".toml", ".txt", ".md", ".sh", ""}
    for folder in (ROOT, PACKAGE, ROOT / "tests", ROOT / ".ci", ROOT / ".streamlit"):
        for path in folder.iterdir():
            if path.is_file() and path.suffix in suffixes:
                assert not any(host in path.read_text(encoding="utf-8", errors="replace") for host in hosts), path
