"""Names that people give: what may stand in one, so that no page ever renders it as anything but text."""

from __future__ import annotations

import re
import unicodedata

from kvplan.errors import InputError, quoted

_NAME = r"[^\W_][\w .+/(),-]{0,79}"
_RENDERED = r"(?i)www\.|//|\.\.|(?:^|\W)_|_(?:\W|$)|__|[\u115F\u1160\u3164\uFFA0]"  # those four letters are not seen
_ORDER = "with a letter or digit first, and without // or .."
_ID = r"[a-z0-9](?:[a-z0-9.-]{0,78}[a-z0-9])?"


def clean_name(name: object, what: str = "name") -> str:
    """`name` without outer spaces, where it is plain text of up to 80 letters, digits, spaces and `.+/(),-_`.

    Pages render labels as Markdown, so whatever Markdown could turn into a link, an image, an icon, emphasis or
    a formula stays out. Raises InputError.
    """
    text = name.strip() if isinstance(name, str) else ""
    if not re.fullmatch(_NAME, text) or re.search(_RENDERED, text):
        raise InputError(f"{what} is {quoted(name)}; use up to 80 letters, digits, spaces and .+/(),- {_ORDER}")
    return text


def preset_id(name: object, what: str = "preset id") -> str:
    """`name` where it can be a preset's id and file name: a-z, 0-9, dots and dashes. Raises InputError."""
    if not isinstance(name, str) or not re.fullmatch(_ID, name) or re.search(_RENDERED, name):
        raise InputError(f"{what} is {quoted(name)}; use a-z, 0-9, dots and dashes, such as llama-3.1-8b")
    return name


FIRST_STRONG, POP = "\u2068", "\u2069"


def isolated(name: str) -> str:
    """`name` for the middle of a sentence: one that runs from right to left keeps to itself.

    Without it the numbers behind a Hebrew or Arabic name turn round: 8 × 8,192 tokens would be shown as 8,192 × 8.
    """
    turns = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in name)
    return f"{FIRST_STRONG}{name}{POP}" if turns else name


def without_isolates(text: str) -> str:
    """A sentence for a file, which keeps no character that is not seen."""
    return text.replace(FIRST_STRONG, "").replace(POP, "")
