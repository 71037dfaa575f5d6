"""Numbers in sentences: one of a thing is written as one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvplan.units import counted, counted_and

PACKAGE = Path(__file__).resolve().parents[1] / "kvplan"
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in ("lines.py", "units.py")]
"""All but the log lines, which are in the engines' own words."""

NOUNS = (
    "blocks", "bytes", "cells", "characters", "columns", "copies", "entries", "experts", "files", "GPUs",
    "heads", "images", "layers", "lengths", "lines", "models", "nodes", "parameters", "parts", "points",
    "presets", "prompts", "replicas", "requests", "rows", "scenarios", "sequences", "slots", "stages", "steps",
    "tensors", "tokens", "users", "values",
)  # fmt: skip
PLURAL = re.compile(rf" (?:(?:attention|image|KV|more|query|shared|state) )?(?:{'|'.join(NOUNS)})\b")
VERBS = re.compile(r" (?:are|come|do|fit|have|hold|keep|make|need|stand|take|were)\b")
CONSTANT = re.compile(r"(?:\w+\.)*[A-Z][A-Z_]+(?: // .+)?")
NEVER_ONE = {
    "', '.join(map(str, counts))": "several numbers",
    "8 // kv_heads": "a pool of heads",
    "end - begin": "of a tensor",
    "format_params(model.num_params)": "a rounded number",
    "format_params(rules.num_params)": "a rounded number",
    "format_tokens(self.context_length)": "a rounded number",
    "found.total_concurrency": "with two decimals",
    "held": "a formula",
    **dict.fromkeys(
        ("larger.num_layers", "larger.num_kv_heads", "smaller.num_layers", "smaller.num_kv_heads"), "of two presets"
    ),
    "list(lengths)": "several numbers",
    "[s[axis] for s in shapes]": "several numbers",
    "size": "more than a limit",
    "layers": "with the output head as one more",
    "most": "a limit",
    "n": "of a fixed list",
    "self.values_per_pack": "a block of a format",
    "term.tokens_per_entry": "more than one, else it is not said",
    "text": "a limit in words",
    "theirs.get(label, 0)": "of a model",
    "unclear": "of a matrix",
    "value": "the edge of a map",
    "values": "a block of a format",
}
"""Expressions that are no count of one, and why."""


def told(path: Path) -> Iterator[tuple[str, str]]:
    """(expression, text right behind it) of every f-string of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for held, behind in zip(node.values, node.values[1:], strict=False) if isinstance(node, ast.JoinedStr) else ():
            if isinstance(held, ast.FormattedValue) and isinstance(behind, ast.Constant):
                yield ast.unparse(held.value), behind.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_count_is_written_with_its_noun_by_one_function(path: Path) -> None:
    loose = [f"{{{held}}}{behind}" for held, behind in told(path) if PLURAL.match(behind) and not _is_known(held)]
    assert loose == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_verb_behind_a_count_agrees_with_it(path: Path) -> None:
    loose = [f"{{{held}}}{text}" for held, text in told(path) if "counted(" in held and VERBS.match(text)]
    assert loose == []


def _is_known(held: str) -> bool:
    return bool(CONSTANT.fullmatch(held)) or held in NEVER_ONE or held.endswith(("name", "note", "where", "folder"))


def test_one_and_two_of_everything() -> None:
    for noun in NOUNS:
        one = {"copies": "copy", "entries": "entry"}.get(noun, noun.removesuffix("s"))
        assert (counted(1, one), counted(2, one)) == (f"1 {one}", f"2 {noun}")


@pytest.mark.parametrize(
    ("verb", "one"),
    [("are", "is"), ("were", "was"), ("have", "has"), ("do", "does"), ("keep", "keeps"), ("take", "takes")],
)
def test_one_and_two_with_a_verb(verb: str, one: str) -> None:
    assert counted_and(1, "layer", verb) == f"1 layer {one}"
    assert counted_and(2, "layer", verb) == f"2 layers {verb}"
