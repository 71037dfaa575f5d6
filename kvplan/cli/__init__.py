"""The same answers in a terminal: `python -m kvplan plan llama-3.1-8b --gpu h100-sxm-80gb --context 32k`.

Exit status: 0 the plan fits (or the check passes), 1 it does not, 2 wrong input. A message is one sentence on
standard error. Each module here holds a few commands and says which in `COMMANDS`.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from kvplan.cli import browsing, checking, comparing, importing, planning, serving
from kvplan.cli.options import WRONG_INPUT, Parser
from kvplan.errors import KvplanError

COMMANDS = (
    *planning.COMMANDS,
    *comparing.COMMANDS,
    *serving.COMMANDS,
    *browsing.COMMANDS,
    *importing.COMMANDS,
    *checking.COMMANDS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    answer = io.StringIO()  # the status is known before a word is written, whatever the reader does
    try:
        options = _parser().parse_args(arguments)
        with contextlib.redirect_stdout(answer):
            status: int = options.run(options)
    except KvplanError as error:
        print(f"kvplan: {error}", file=sys.stderr)
        return WRONG_INPUT
    except KeyboardInterrupt:
        print("kvplan: stopped", file=sys.stderr)
        return WRONG_INPUT
    _write(answer.getvalue())
    return status


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that closing it at exit is quiet


def _parser() -> Parser:
    parser = Parser(prog="python -m kvplan", description="LLM inference memory planning, exact to the byte.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for command in COMMANDS:
        command.declare(commands.add_parser(command.name, help=command.help))
    return parser
