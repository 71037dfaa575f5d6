"""Hostile names at every door: none is stored, so none reaches a page, a file name or a spreadsheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvplan.define import define_model
from kvplan.hardware import define_gpu
from kvplan.library import GPU, duplicate, file_of, load_previous, save
from kvplan.names import clean_name, preset_id
from kvplan.presets import ScenarioPreset, load_gpu, load_model, load_scenario
from kvplan.units import GIB

NAMES: dict[str, str] = {
    "nothing": "",
    "spaces": "   ",
    "zero": "a\0b",
    "line break": "a\nb",
    "tab": "a\tb",
    "escape code": "\x1b]0;title\x07",
    "script": "<script>alert(1)</script>",
    "image tag": "<img src=x onerror=alert(1)>",
    "entity": "&lt;b&gt;",
    "markdown image": "![x](https://evil.example/p.png)",
    "markdown link": "[x](javascript:alert(1))",
    "reference link": "[x][y]",
    "automatic link": "https://evil.example/",
    "bare link": "www.evil.example",
    "mail": "mailto:x@evil.example",
    "emphasis": "a *b* c",
    "underscores": "__b__",
    "emphasis in a word": "_b_",
    "code": "`id`",
    "strike": "~~a~~",
    "heading": "# a",
    "table": "a | b",
    "latex": "$x^2$",
    "latex display": "$$\\href{javascript:alert(1)}{x}$$",
    "latex brackets": "\\(x\\)",
    "icon": ":material/home:",
    "emoji code": ":bomb:",
    "colour": ":red[x]",
    "badge": ":blue-badge[x]",
    "arrow": "a -> b",
    "letter that is not seen": "\u3164",
    "formula": "=HYPERLINK(1)",
    "formula plus": "+1",
    "formula minus": "-1+1",
    "formula at": "@SUM(1)",
    "quote": 'a"b',
    "apostrophe": "a'b",
    "semicolon": "a;b",
    "percent": "%s%n",
    "braces": "{{7*7}}",
    "dollar braces": "${jndi:ldap://x}",
    "backslash": "a\\b",
    "path up": "../../etc/passwd",
    "share": "//host/share",
    "right to left": "\u202eabc",
    "zero width": "a\u200bb",
    "byte order": "\ufeffa",
    "surrogate": "a\ud800",
    "private use": "a\ue000",
    "combining": "\u0301a",
    "emoji": "a\U0001f4a3",
    "too long": "a" * 81,
    "far too long": "a" * 100_000,
    "spaces without end": "a" + " " * 50_000 + "<",
    "dots without end": "a" + "." * 50_000,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_hostile_name_is_refused_at_every_door(bounds: Any, name: str) -> None:
    doors: list[Callable[[], Any]] = [
        lambda: clean_name(name),
        lambda: define_gpu(name=name, usable_bytes=GIB),
        lambda: ScenarioPreset(name, "", {}),
        lambda: define_model(
            name=name, num_layers=1, hidden_size=64, num_attention_heads=1, intermediate_size=64, vocab_size=8
        ),
    ]
    for door in doors:
        bounds.refusal(door)


@pytest.mark.parametrize("name", [*NAMES.values(), "a/b", "A", "a..b", ".a", "a.", "a b", "é"])
def test_a_hostile_name_is_no_id_and_no_file(bounds: Any, name: str) -> None:
    card = define_gpu(name="A card", usable_bytes=GIB)
    doors: list[Callable[[], Any]] = [
        lambda: preset_id(name),
        lambda: file_of(GPU, name),
        lambda: save(replace(card, id=name)),
        lambda: load_model(name),
        lambda: load_gpu(name),
        lambda: load_scenario(name),
        lambda: duplicate(GPU, name, "card"),
    ]
    for door in doors:
        bounds.refusal(door)
    assert load_previous(GPU, name) is None
