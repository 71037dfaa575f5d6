"""`compare`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvplan.cli.options import DOES_NOT_FIT, FITS, Command, warning_lines
from kvplan.errors import LinkError
from kvplan.share import from_comparison_link, open_comparison

if TYPE_CHECKING:
    from kvplan.comparison import Comparison
    from kvplan.plan import Scenario

FORMATS = ("csv", "json", "markdown", "html")


def _compare_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("links", nargs="+", metavar="LINK", help="two to four links, or one of a comparison; in quotes")
    parser.add_argument("--format", choices=FORMATS, help="print a file with inputs, sources and the link instead")
    parser.set_defaults(run=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    """`compare`: what differs, by how many bytes, and the answer of each; what a link lacks goes to the errors."""
    from kvplan.comparison import compare  # which brings pandas, for its figure

    found = compare(*(scenario for place, link in _placed(options.links) for scenario in _scenarios(place, link)))
    for place, link in _placed(options.links):
        for lacking in (one.lacking for one in open_comparison(link) if one.lacking):
            print(f"{place}{lacking}", file=sys.stderr)
    print(_file(found, options.format) if options.format else _text(found), end="" if options.format else "\n")
    return FITS if all(p.fits for p in found.plans) else DOES_NOT_FIT


def _placed(links: Sequence[str]) -> list[tuple[str, str]]:
    """(what a sentence about it starts with, link) of each: which link it is, where there are several."""
    return [(f"link {number}: " if len(links) > 1 else "", link) for number, link in enumerate(links, 1)]


def _scenarios(place: str, link: str) -> tuple[Scenario, ...]:
    """The scenarios of one link. Raises LinkError, which says which link it is."""
    try:
        return from_comparison_link(link)
    except LinkError as error:
        raise LinkError(f"{place}{error}") from None


def _file(found: Comparison, ending: str) -> str:
    from kvplan.comparison import comparison_csv, comparison_html, comparison_json, comparison_markdown

    makers = (comparison_csv, comparison_json, comparison_markdown, comparison_html)
    return dict(zip(FORMATS, makers, strict=True))[ending](found)


def _text(found: Comparison) -> str:
    from kvplan.comparison import change_rows, limit_rows, part_rows

    tables = (change_rows(found), part_rows(found), limit_rows(found))
    answers = "\n".join((*found.answers, *found.sentences))
    warned = ["\n".join(warning_lines(found.warnings))] if found.warnings else []
    return "\n\n".join([answers, *map(_table, tables), *warned, found.link])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words in columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


COMMANDS = (
    Command("compare", "scenarios side by side, from their links (exit status 0 where all fit)", _compare_command),
)
