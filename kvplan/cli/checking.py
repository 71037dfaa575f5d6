"""`presets`, `log` and `parity`: is this right?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvplan.check import check_directory
from kvplan.cli.options import DOES_NOT_FIT, FITS, Command
from kvplan.engines.compare import Line, compare
from kvplan.engines.log import MAX_LOG_BYTES, LogFigures, overhead_total, overheads_of, read_log
from kvplan.engines.overheads import LABELS
from kvplan.engines.recognise import preset_of
from kvplan.errors import InputError, shorten
from kvplan.library import KINDS
from kvplan.presets import load_gpu, load_model
from kvplan.schema import json_schema_text
from kvplan.units import format_bytes, parse_count

# -------------------------------------------------------------------------------------------------------- presets


def _presets_command(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    check = actions.add_parser("check", help="what is wrong in a folder of presets, with file and line")
    check.add_argument("folder", help="a folder with models, gpus, nodes or scenarios in it")
    check.set_defaults(run=run_check)
    schema = actions.add_parser("schema", help="the JSON Schema of preset files, for editors")
    schema.add_argument("kind", choices=[kind.name.lower() for kind in KINDS.values()])
    schema.set_defaults(run=run_schema)


def run_schema(options: argparse.Namespace) -> int:
    """`presets schema KIND`: the JSON Schema of a kind of preset file."""
    print(json_schema_text(next(kind.name for kind in KINDS.values() if kind.name.lower() == options.kind)), end="")
    return FITS


def run_check(options: argparse.Namespace) -> int:
    """`presets check DIR`: everything that is wrong, with file and line. Status 0 where nothing is."""
    problems = check_directory(Path(options.folder))
    print("\n".join(map(str, problems)) or "nothing is wrong")
    return DOES_NOT_FIT if problems else FITS


# ------------------------------------------------------------------------------------------------------------ log


def _log_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="an engine's start-up log; - reads standard input")
    parser.add_argument("--model", default=None, help="a model preset id, where the log does not name one")
    parser.add_argument("--gpu", default=None, help="a GPU preset id")
    parser.set_defaults(run=run_log)


def run_log(options: argparse.Namespace) -> int:
    """`log`: the plan beside the log, line by line. Status 0 where every line agrees."""
    figures = read_log(_log_text(options.file))
    if figures.engine is None:
        raise InputError(figures.note)
    model = options.model or preset_of(figures.text("model"))
    if model is None:
        raise InputError(f"{figures.note} It names no model that is a preset; give one with --model")
    lines = compare(figures, load_model(model), options.gpu and load_gpu(options.gpu))
    print("\n".join([figures.note, *(_line_text(line) for line in lines), *_overhead_lines(figures)]))
    return FITS if all(line.agrees or line.planned is None for line in lines) else DOES_NOT_FIT


def _log_text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(MAX_LOG_BYTES + 1) if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"{shorten(name)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return data.decode("utf-8", "replace")


def _line_text(line: Line) -> str:
    verdict = "agrees" if line.agrees else "differs" if line.planned is not None else "-"
    reason = f"  {line.reason}" if line.reason else ""
    return f"  {verdict:<9}{line.label}: log {line.as_text(line.printed)}, plan {line.as_text(line.planned)}{reason}"


def _overhead_lines(figures: LogFigures) -> list[str]:
    """What the log states. Only a sum of all that runs beside weights and cache stands for a plan's overhead."""
    parts = {part.name: format_bytes(part.typical) for part in overheads_of(figures)}
    if not parts:
        return []
    missing = [] if "other" in parts else [name for name in ("activation", "non_torch") if name not in parts]
    stated = ", ".join(f"{LABELS[name]} {size}" for name, size in parts.items())
    if missing:
        words = " and ".join(LABELS[name] for name in missing)
        return [f"  overhead of this log: {stated}; it does not state {words}, so this is not all"]
    return [f"  overhead of this log: {stated}; plan with --overhead {overhead_total(figures)}"]


# --------------------------------------------------------------------------------------------------------- parity


def _parity_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a folder with a causal language model")
    parser.add_argument("--steps", default="8", help="decode steps (default 8)")
    parser.add_argument("--dtype", default="float32", help="float64, float32, float16 or bfloat16 (default float32)")
    parser.add_argument("--download", action="store_true", help="let transformers fetch a hub id")
    parser.set_defaults(run=run_parity)


def run_parity(options: argparse.Namespace) -> int:
    """`parity`: a checkpoint's cached logits against uncached ones. Status 0 where they agree."""
    from kvplan.lab.real import check_checkpoint  # loads torch

    steps = parse_count(options.steps, "steps", 1)
    result = check_checkpoint(options.path, num_new_tokens=steps, dtype=options.dtype, download=options.download)
    print(result.sentence)
    return FITS if result.passed else DOES_NOT_FIT


COMMANDS = (
    Command("presets", "what is wrong in a folder of presets, and JSON Schemas for editors", _presets_command),
    Command("log", "an engine's start-up log beside the plan", _log_command),
    Command("parity", "a checkpoint's cached logits against uncached ones", _parity_command),
)
