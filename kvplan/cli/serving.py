"""`engine`: does a server hold the plan, what is it started with, and what will it print?"""

from __future__ import annotations

import argparse

from kvplan.cli.options import DOES_NOT_FIT, FITS, Command, warning_lines
from kvplan.cli.planning import asked_scenario, plan_options
from kvplan.engines import ENGINES
from kvplan.engines.commands import start_text
from kvplan.engines.lines import predicted_lines
from kvplan.engines.reserved import HAS_SLOTS
from kvplan.plan import plan
from kvplan.serving import Serving, serve, server_suggestions
from kvplan.units import format_bytes


def _engine_command(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    parser.add_argument("--engine", default="vllm", help=f"one of {', '.join(ENGINES)} (default vllm)")
    parser.add_argument("--engine-version", default=None, help="vLLM's, such as 0.11 (default: the newest known)")
    parser.set_defaults(run=run_engine)


def run_engine(options: argparse.Namespace) -> int:
    """`engine`: status 0 where every request of the plan is held at once, by what the engine reserves."""
    serving = serve(asked_scenario(options), options.engine, options.engine_version)
    warned = warning_lines(plan(serving.scenario).warnings)
    blocks = [_answer_lines(serving), _suggestion_lines(serving), _start_lines(serving), warned]
    print("\n\n".join("\n".join(lines) for lines in blocks if lines))
    return FITS if serving.fits else DOES_NOT_FIT


def _answer_lines(serving: Serving) -> list[str]:
    held = "all requests at once" if serving.fits else "not all requests at once"
    slots = serving.launch.engine in HAS_SLOTS
    where = "on all GPUs together" if slots else "on each GPU"
    alone = {"tensor_parallel": 1, "pipeline_parallel": 1} if slots else {}
    resident = plan(serving.scenario.with_changes(**alone)).cache_bytes
    reserved, typical = serving.reserved, serving.reserved.typical
    pools = [item.pool_bytes for item in (reserved.low, typical, reserved.high)]
    lines = [
        f"{serving.sentence}: {held}",
        f"  reserved      {format_bytes(reserved.bytes)} {where}; {format_bytes(resident)} of it are resident tensors",
        f"  room          {', '.join(map(format_bytes, pools))} with high, typical and low overheads",
        *(f"  * {note}" for note in (*typical.notes, *serving.notes)),
    ]
    return [*lines, f"  ! {serving.offload}"] if serving.offload else lines


def _suggestion_lines(serving: Serving) -> list[str]:
    found = server_suggestions(serving)
    label = ENGINES[serving.launch.engine].label
    lines = [f"  {item.sentence}" for item in found]
    return [f"What would make it hold all, by what {label} reserves:", *lines] if lines else []


def _start_lines(serving: Serving) -> list[str]:
    text, _ = start_text(serving.launch)
    return [text, *(f"  {line}" for line in predicted_lines(serving.launch))]


COMMANDS = (
    Command("engine", "does a server hold it? its command and log lines (exit status 0 yes, 1 no)", _engine_command),
)
