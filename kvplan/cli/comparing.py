"""`compare`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvplan.cli.options import DOES_NOT_FIT, FITS, Command
from kvplan.share import from_comparison_link, open_comparison

if TYPE_CHECKING:
    from kvplan.comparison import Comparison

FORMATS = ("csv", "json", "markdown", "html")


def _compare_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("links", nargs="+", metavar="LINK", help="two to four links, or one of a comparison; in quotes")
    parser.add_argument("--format", choices=FORMATS, help="print a file with inputs, sources and the link instead")
    parser.set_defaults(run=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    """`compare`: what differs, by how many bytes, and the answer of each; what a link lacks goes to the errors."""
    from kvplan.comparison import compare  # which brings pandas, for its figure

    found = compare(*(scenario for link in options.links for scenario in from_comparison_link(link)))
    for lacking in dict.fromkeys(one.lacking for link in options.links for one in open_comparison(link)):
        print(lacking, end="\n" if lacking else "", file=sys.stderr)
    print(_file(found, options.format) if options.format else _text(found), end="" if options.format else "\n")
    return FITS if all(p.fits for p in found.plans) else DOES_NOT_FIT


def _file(found: Comparison, ending: str) -> str:
    from kvplan.comparison import comparison_csv, comparison_html, comparison_json, comparison_markdown

    makers = (comparison_csv, comparison_json, comparison_markdown, comparison_html)
    return dict(zip(FORMATS, makers, strict=True))[ending](found)


def _text(found: Comparison) -> str:
    from kvplan.comparison import change_rows, limit_rows, part_rows

    tables = (change_rows(found), part_rows(found), limit_rows(found))
    return "\n\n".join(["\n".join((*found.answers, *found.sentences)), *map(_table, tables), found.link])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words in columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


COMMANDS = (
    Command("compare", "scenarios side by side, from their links (exit status 0 where all fit)", _compare_command),
)
