"""`plan` and `sweep`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from kvplan.cli.options import (
    DOES_NOT_FIT,
    FITS,
    Command,
    base_scenario,
    scenario_options,
    tensor_parallel,
    warning_lines,
)
from kvplan.dtypes import KV_DTYPES
from kvplan.explain import (
    ASSUMPTIONS,
    GENERAL_FORMULA,
    Term,
    cache_terms,
    overhead_terms,
    plan_values,
    weight_terms,
)
from kvplan.plan import MemoryPlan, Scenario, node_sentence, plan
from kvplan.sweep import AS_PUBLISHED, sweep
from kvplan.units import counted, format_bytes, parse_count


def plan_options(parser: argparse.ArgumentParser) -> None:
    """The options of one scenario."""
    scenario_options(parser)
    parser.add_argument("--context", default="8k", help="tokens of one sequence, such as 32k (default 8k)")
    parser.add_argument("--batch", default="8", help="sequences held at once (default 8)")
    parser.add_argument("--kv-dtype", default="bf16", help=f"one of {', '.join(KV_DTYPES)}, or K/V such as q8_0/q4_0")
    parser.add_argument("--weight-dtype", default=None, help="such as fp8 or awq_int4_g128 (default: as published)")
    parser.add_argument("--kv-heads", default=None, help="another number of KV heads (default: the model's own)")
    parser.add_argument(
        "--tensor-parallel", "--tp", default=None, help="GPUs that share each layer (default 1, or a node's)"
    )


def _plan_command(parser: argparse.ArgumentParser) -> None:
    plan_options(parser)
    parser.add_argument("--formula", action="store_true", help="show every term of the sums")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run_plan)


def _sweep_command(parser: argparse.ArgumentParser) -> None:
    scenario_options(parser)
    axis = "values such as 1k,4k,32k or 1..64 or 1..64*2"
    parser.add_argument("--context", default="8k", help=axis)
    parser.add_argument("--batch", default="8", help=axis)
    parser.add_argument("--kv-dtype", default="bf16", help="names with commas between")
    parser.add_argument("--weight-dtype", default=None, help="names with commas between")
    parser.add_argument("--kv-heads", default=None, help=axis)
    parser.add_argument("--tensor-parallel", "--tp", default=None, help=axis)
    parser.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    parser.set_defaults(run=run_sweep)


# ----------------------------------------------------------------------------------------------------------- plan


def as_published(name: str | None) -> str | None:
    """A weight dtype as the terminal writes it: the words "as published" mean none."""
    return None if name is None or name.strip() == AS_PUBLISHED else name


def asked_scenario(options: argparse.Namespace) -> Scenario:
    """The scenario of `plan_options`. Raises KvplanError."""
    return base_scenario(
        options,
        context_length=parse_count(options.context, "context", 1),
        batch_size=parse_count(options.batch, "batch", 1),
        kv_dtype=options.kv_dtype,
        weight_dtype=as_published(options.weight_dtype),
        num_kv_heads=None if options.kv_heads is None else parse_count(options.kv_heads, "kv_heads", 1),
        tensor_parallel=parse_count(tensor_parallel(options), "tensor_parallel", 1),
    )


def run_plan(options: argparse.Namespace) -> int:
    """`plan`: the answer, its parts, the limits."""
    answer = plan(asked_scenario(options))
    print(json.dumps(plan_to_json(answer), indent=2) if options.json else _plan_text(answer, options.formula))
    return FITS if answer.fits else DOES_NOT_FIT


def plan_to_json(p: MemoryPlan) -> dict[str, Any]:
    """A plan as plain values; bytes are ints."""
    s = p.scenario
    return {
        "model": s.model.id or s.model.name,
        "gpu": s.gpu.id or s.gpu.name,
        "context_length": s.context_length,
        "batch_size": s.batch_size,
        "kv_dtype": s.kv_dtype,
        "weight_dtype": s.weight_dtype,
        "num_kv_heads": s.planned_model.num_kv_heads,
        "tensor_parallel": s.tensor_parallel,
        "pipeline_parallel": s.pipeline_parallel,
        "data_parallel": s.data_parallel,
        "expert_parallel": s.expert_parallel,
        "memory_fraction": s.memory_fraction,
        **plan_values(p),
        "notes": list(s.model.notes),
    }


def _plan_text(p: MemoryPlan, with_formula: bool) -> str:
    s = p.scenario
    gpus = f"{s.num_gpus:,} × {s.gpu.name}" if s.num_gpus > 1 else s.gpu.name
    title = f"{s.model.name} on {gpus}: {s.batch_size:,} × {counted(s.context_length, 'token')}, cache in {s.kv_dtype}"
    lying = node_sentence(s)
    blocks = [[p.sentence], [title, *([lying] if lying else [])], _part_lines(p), _limit_lines(p)]
    if with_formula:
        blocks += [term_lines("Cache", cache_terms(p)), term_lines("Weights", weight_terms(p))]
        blocks += [term_lines("Overhead", overhead_terms(p)), assumption_lines()]
    blocks.append(warning_lines(p.warnings) + [f"* {text}" for text in s.model.notes])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _part_lines(p: MemoryPlan) -> list[str]:
    low, high = format_bytes(p.runtime.low_bytes), format_bytes(p.runtime.high_bytes)
    spread = f"  estimate; 10th percentile {low}, 90th percentile {high}" if p.runtime.is_estimate else ""
    rows = [
        ("weights", p.weight_bytes, "  estimate" if p.scenario.model.is_estimate else ""),
        ("cache", p.cache_bytes, ""),
        ("run-time overhead", p.runtime.typical_bytes, spread),
        ("left unused", p.unused_bytes, f"  memory_fraction {p.scenario.memory_fraction}"),
        ("free" if p.fits else "short", abs(p.free_bytes), ""),
        ("usable", p.capacity_bytes, "  an estimate" if p.scenario.gpu.is_estimate else ""),
    ]
    return [f"  {name:<18}{format_bytes(size, 'GiB'):>12}  {size:>18,} B{note}" for name, size, note in rows]


def _limit_lines(p: MemoryPlan) -> list[str]:
    def limit(value: int | None) -> str:
        return "memory sets no limit" if value is None else f"{value:,}"

    crossover = p.crossover_context_length
    floor = p.decode_floor_seconds
    return [
        f"  largest batch      {limit(p.max_batch_size)} at {counted(p.scenario.context_length, 'token')}",
        f"  longest context    {limit(p.max_context_length)} at batch {p.scenario.batch_size:,}",
        f"  cache = weights    {'never' if crossover is None else 'from ' + counted(crossover, 'token')}",
        f"  bytes per token    {bytes_per_token(p.bytes_per_token)} a sequence, once windows are full",
        f"  decode floor       {_floor_words(floor)}",
    ]


def bytes_per_token(size: int | Fraction) -> str:
    """The slope of a cache in words; compressed layers may add a part of a byte."""
    return f"{size:,} B" if isinstance(size, int) else f"{float(size):,.2f} B"


def _floor_words(seconds: float | None) -> str:
    return "bandwidth not known" if seconds is None else f"at least {seconds * 1000:.2f} ms a step"


def term_lines(title: str, terms: Iterable[Term]) -> list[str]:
    """A title and every term of a sum."""
    return [f"{title}:", *(f"  {term.label}: {term.formula} = {term.bytes:,} B" for term in terms)]


def assumption_lines() -> list[str]:
    """The general formula and what it takes for granted."""
    return [f"The general form is {GENERAL_FORMULA}. It takes for granted:", *(f"  - {text}" for text in ASSUMPTIONS)]


# ---------------------------------------------------------------------------------------------------------- sweep


def run_sweep(options: argparse.Namespace) -> int:
    """`sweep`: the table, as text or CSV; warnings go to the errors. Status 0 where at least one row fits."""
    # A model whose published weights have no known size can still be swept over dtypes that have one.
    first = options.weight_dtype and options.weight_dtype.partition(",")[0]
    scenario = base_scenario(options, weight_dtype=as_published(first))
    frame = sweep(
        scenario,
        context_length=options.context,
        batch_size=options.batch,
        kv_dtype=options.kv_dtype,
        weight_dtype=options.weight_dtype,
        num_kv_heads=options.kv_heads,
        tensor_parallel=tensor_parallel(options),
    )
    print(frame.to_csv(index=False) if options.csv else frame.to_string(index=False), end="" if options.csv else "\n")
    most = {name: int(frame[name].max()) for name in ("context_length", "batch_size")}
    for line in warning_lines(plan(scenario.with_changes(**most)).warnings):
        print(line, file=sys.stderr)
    return FITS if bool(frame["fits"].any()) else DOES_NOT_FIT


COMMANDS = (
    Command("plan", "will it fit? (exit status 0 yes, 1 no, 2 wrong input)", _plan_command),
    Command("sweep", "every combination of the axes as a table (exit status 0 where any row fits)", _sweep_command),
)
