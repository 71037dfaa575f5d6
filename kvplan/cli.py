"""The same answers in a terminal: `python -m kvplan plan llama-3.1-8b --gpu h100-sxm-80gb --context 32k`.

Exit status: 0 the plan fits, 1 it does not fit, 2 wrong input. A message is one sentence on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kvplan.dtypes import KV_DTYPES
from kvplan.errors import InputError, KvplanError, shorten
from kvplan.explain import (
    ASSUMPTIONS,
    GENERAL_FORMULA,
    cache_terms,
    kinds_sentence,
    layer_terms,
    layer_words,
    weight_terms,
)
from kvplan.hardware import Gpu
from kvplan.model import Model
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.presets import list_gpus, list_models, load_gpu, load_model
from kvplan.sweep import sweep
from kvplan.units import format_bytes, format_exact_bytes, format_params, parse_bytes, parse_count

FITS, DOES_NOT_FIT, WRONG_INPUT = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    try:
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
        sys.stdout.flush()
    except KvplanError as error:
        print(f"kvplan: {error}", file=sys.stderr)
        return WRONG_INPUT
    except BrokenPipeError:  # the reader went away, as `| head` does; what it read was right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that closing it at exit is quiet
        return FITS
    return status


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m kvplan", description="LLM inference memory planning, exact to the byte.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    _plan_command(commands.add_parser("plan", help="will it fit? (exit status 0 yes, 1 no, 2 wrong input)"))
    _sweep_command(commands.add_parser("sweep", help="every combination of the given axes as a table"))
    _list_command(commands.add_parser("models", help="the model presets"), show_models)
    _list_command(commands.add_parser("gpus", help="the GPU presets"), show_gpus)
    _show_command(commands.add_parser("show", help="a model layer by layer, with the formula and its numbers"))
    return parser


# -------------------------------------------------------------------------------------------------------- options


def _plan_command(parser: argparse.ArgumentParser) -> None:
    _scenario_options(parser)
    parser.add_argument("--context", default="8k", help="tokens of one sequence, such as 32k (default 8k)")
    parser.add_argument("--batch", default="8", help="sequences held at once (default 8)")
    parser.add_argument("--kv-dtype", default="bf16", help=f"one of {', '.join(KV_DTYPES)}, or K/V such as q8_0/q4_0")
    parser.add_argument("--weight-dtype", default=None, help="such as fp8 or awq_int4_g128 (default: as published)")
    parser.add_argument("--kv-heads", default=None, help="another number of KV heads (default: the model's own)")
    parser.add_argument("--tensor-parallel", "--tp", default="1", help="GPUs that share each layer (default 1)")
    parser.add_argument("--formula", action="store_true", help="show every term of the sums")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run_plan)


def _sweep_command(parser: argparse.ArgumentParser) -> None:
    _scenario_options(parser)
    axis = "values such as 1k,4k,32k or 1..64 or 1..64*2"
    parser.add_argument("--context", default="8k", help=axis)
    parser.add_argument("--batch", default="8", help=axis)
    parser.add_argument("--kv-dtype", default="bf16", help="names with commas between")
    parser.add_argument("--weight-dtype", default=None, help="names with commas between")
    parser.add_argument("--kv-heads", default=None, help=axis)
    parser.add_argument("--tensor-parallel", "--tp", default="1", help=axis)
    parser.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    parser.set_defaults(run=run_sweep)


def _scenario_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a preset id, or the path of a config.json")
    parser.add_argument("--gpu", required=True, help="a GPU preset id")
    parser.add_argument("--pipeline-parallel", "--pp", default="1", help="pipeline stages (default 1)")
    parser.add_argument(
        "--memory-fraction", default="0.9", help="part of the usable memory for the engine (default 0.9)"
    )
    parser.add_argument(
        "--overhead", default=None, help="run-time overhead a GPU, such as 2.5GiB (default: an estimate)"
    )
    _dtype_option(parser)


def _dtype_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", default=None, help="for a config.json that does not state one: bf16, fp16 or fp32")


def _list_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(run=run)


def _show_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a preset id, or the path of a config.json")
    parser.add_argument("--context", default="8k", help="tokens of one sequence (default 8k)")
    parser.add_argument("--batch", default="1", help="sequences (default 1)")
    parser.add_argument("--kv-dtype", default="bf16", help="cache dtype (default bf16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _dtype_option(parser)
    parser.set_defaults(run=show_model)


def find_model(text: str, dtype: str | None = None) -> Model:
    """A preset by its id, or the model of a config.json by its path. Raises KvplanError."""
    if not text.endswith(".json") and "/" not in text:
        return load_model(text)
    from kvplan.importer import import_config  # only needed for a file, and the slowest part to load

    return import_config(Path(text), dtype=dtype)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} is {shorten(text)!r}; a number such as 0.9 is needed") from None


def _base_scenario(options: argparse.Namespace, **settings: Any) -> Scenario:
    return Scenario(
        find_model(options.model, options.dtype),
        load_gpu(options.gpu),
        pipeline_parallel=parse_count(options.pipeline_parallel, "pipeline_parallel"),
        memory_fraction=_number(options.memory_fraction, "memory_fraction"),
        overhead_bytes=None if options.overhead is None else parse_bytes(options.overhead, "overhead"),
        **settings,
    )


# ----------------------------------------------------------------------------------------------------------- plan


def run_plan(options: argparse.Namespace) -> int:
    """`plan`: the answer, its parts, the limits."""
    scenario = _base_scenario(
        options,
        context_length=parse_count(options.context, "context"),
        batch_size=parse_count(options.batch, "batch"),
        kv_dtype=options.kv_dtype,
        weight_dtype=options.weight_dtype,
        num_kv_heads=None if options.kv_heads is None else parse_count(options.kv_heads, "kv_heads"),
        tensor_parallel=parse_count(options.tensor_parallel, "tensor_parallel"),
    )
    answer = plan(scenario)
    print(json.dumps(plan_to_json(answer), indent=2) if options.json else _plan_text(answer, options.formula))
    return FITS if answer.fits else DOES_NOT_FIT


def plan_to_json(p: MemoryPlan) -> dict[str, Any]:
    """A plan as plain values; bytes are ints."""
    s = p.scenario
    return {
        "model": s.model.id or s.model.name,
        "gpu": s.gpu.id or s.gpu.name,
        "num_gpus": s.num_gpus,
        "context_length": s.context_length,
        "batch_size": s.batch_size,
        "kv_dtype": s.kv_dtype,
        "weight_dtype": s.weight_dtype,
        "num_kv_heads": s.planned_model.num_kv_heads,
        "tensor_parallel": s.tensor_parallel,
        "pipeline_parallel": s.pipeline_parallel,
        "memory_fraction": s.memory_fraction,
        "capacity_bytes": p.capacity_bytes,
        "weight_bytes": p.weight_bytes,
        "cache_bytes": p.cache_bytes,
        "overhead_bytes": p.overhead_bytes,
        "free_bytes": p.free_bytes,
        "fits": p.fits,
        "max_batch_size": p.max_batch_size,
        "max_context_length": p.max_context_length,
        "crossover_context_length": p.crossover_context_length,
        "decode_floor_seconds": p.decode_floor_seconds,
        "overhead_is_estimate": p.runtime.is_estimate,
        "overhead_source": p.runtime.source,
        "sentence": p.sentence,
        "warnings": list(p.warnings),
        "notes": list(s.model.notes),
    }


def _plan_text(p: MemoryPlan, with_formula: bool) -> str:
    s = p.scenario
    gpus = f"{s.num_gpus} × {s.gpu.name}" if s.num_gpus > 1 else s.gpu.name
    title = f"{s.model.name} on {gpus}: {s.batch_size:,} × {s.context_length:,} tokens, cache in {s.kv_dtype}"
    blocks = [[p.sentence], [title], _part_lines(p), _limit_lines(p)]
    if with_formula:
        blocks += [_term_lines("Cache", cache_terms(p)), _term_lines("Weights", weight_terms(p)), _assumption_lines()]
    blocks.append([f"! {text}" for text in p.warnings] + [f"* {text}" for text in s.model.notes])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _part_lines(p: MemoryPlan) -> list[str]:
    spread = f"  estimate; 90th percentile {format_bytes(p.runtime.high_bytes)}" if p.runtime.is_estimate else ""
    rows = [
        ("weights", p.weight_bytes, ""),
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
        f"  largest batch      {limit(p.max_batch_size)} at {p.scenario.context_length:,} tokens",
        f"  longest context    {limit(p.max_context_length)} at batch {p.scenario.batch_size:,}",
        f"  cache = weights    {'never' if crossover is None else f'from {crossover:,} tokens'}",
        f"  bytes per token    {p.bytes_per_token} a sequence",
        f"  decode floor       {_floor_words(floor)}",
    ]


def _floor_words(seconds: float | None) -> str:
    return "bandwidth not known" if seconds is None else f"at least {seconds * 1000:.2f} ms a step"


def _term_lines(title: str, terms: Iterable[Any]) -> list[str]:
    return [f"{title}:", *(f"  {term.label}: {term.formula} = {term.bytes:,} B" for term in terms)]


def _assumption_lines() -> list[str]:
    return [f"The general form is {GENERAL_FORMULA}. It takes for granted:", *(f"  - {text}" for text in ASSUMPTIONS)]


# ---------------------------------------------------------------------------------------------------------- sweep


def run_sweep(options: argparse.Namespace) -> int:
    """`sweep`: the table, as text or CSV. Status 0 where any row fits."""
    frame = sweep(
        _base_scenario(options),
        context_length=options.context,
        batch_size=options.batch,
        kv_dtype=options.kv_dtype,
        weight_dtype=options.weight_dtype,
        num_kv_heads=options.kv_heads,
        tensor_parallel=options.tensor_parallel,
    )
    print(frame.to_csv(index=False) if options.csv else frame.to_string(index=False), end="" if options.csv else "\n")
    return FITS if bool(frame["fits"].any()) else DOES_NOT_FIT


# ---------------------------------------------------------------------------------------------------------- lists


def show_models(options: argparse.Namespace) -> int:
    """`models`: every model preset in a line."""
    models = [load_model(name) for name in list_models()]
    if options.json:
        print(json.dumps([_model_to_json(model) for model in models], indent=2))
    else:
        print("\n".join(_model_line(model) for model in models))
    return FITS


def _model_to_json(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.name,
        "num_params": model.num_params,
        "num_active_params": model.num_active_params,
        "num_layers": model.num_layers,
        "num_kv_heads": model.num_kv_heads,
        "cache_bytes_per_token_bf16": float(model.cache_bytes_per_token()),
        "context_limit": model.context_limit,
        "layers": kinds_sentence(model),
        "source": model.source,
    }


def _model_line(model: Model) -> str:
    active = (
        "" if model.num_active_params == model.num_params else f" ({format_params(model.num_active_params)} active)"
    )
    per_token = f"{model.cache_bytes_per_token()} B/token"
    return f"{model.id:<28}{format_params(model.num_params) + active:<26}{per_token:<18}{kinds_sentence(model)}"


def show_gpus(options: argparse.Namespace) -> int:
    """`gpus`: every GPU preset in a line."""
    gpus = [load_gpu(name) for name in list_gpus()]
    if options.json:
        print(json.dumps([_gpu_to_json(gpu) for gpu in gpus], indent=2))
    else:
        print("\n".join(_gpu_line(gpu) for gpu in gpus))
    return FITS


def _gpu_to_json(gpu: Gpu) -> dict[str, Any]:
    return {
        "id": gpu.id,
        "name": gpu.name,
        "label_bytes": gpu.label_bytes,
        "driver_bytes": gpu.driver_bytes,
        "usable_bytes": gpu.usable_bytes,
        "usable_is_estimate": gpu.is_estimate,
        "bandwidth_bytes_per_second": gpu.bandwidth,
        "sources": list(gpu.sources),
    }


def _gpu_line(gpu: Gpu) -> str:
    bandwidth = "bandwidth not known" if gpu.bandwidth is None else f"{gpu.bandwidth // 10**9:,} GB/s"
    usable = f"{'about ' if gpu.is_estimate else ''}{format_bytes(gpu.usable_bytes, 'GiB')} usable"
    return f"{gpu.id:<28}{usable:<24}{bandwidth:<20}{gpu.name}"


# ----------------------------------------------------------------------------------------------------------- show


def show_model(options: argparse.Namespace) -> int:
    """`show`: a model layer by layer, with the formula and its numbers."""
    model = find_model(options.model, options.dtype)
    context, batch = parse_count(options.context, "context"), parse_count(options.batch, "batch")
    kinds = layer_terms(model, context, batch, options.kv_dtype)
    total = model.cache_bytes(context, batch, options.kv_dtype)
    if options.json:
        layers = [
            {"kind": kind, "count": count, "terms": [_term_to_json(t) for t in terms]} for kind, count, terms in kinds
        ]
        print(
            json.dumps(
                {**_model_to_json(model), "cache_bytes": total, "kinds": layers, "notes": list(model.notes)}, indent=2
            )
        )
        return FITS
    print("\n".join(_model_head(model)))
    for index, layer in enumerate(model.layers):
        print(f"  layer {index:>3}  {layer.cache.label:<24} {layer_words(layer.cache, options.kv_dtype)}")
    print(f"\nCache of {batch:,} × {context:,} tokens in {options.kv_dtype}: {format_exact_bytes(total)}")
    for kind, count, terms in kinds:
        print("\n".join(_term_lines(f"{count} × {kind}", terms)) if terms else f"{count} × {kind}: keeps nothing")
    print("\n" + "\n".join(_assumption_lines() + [f"* {note}" for note in model.notes]))
    return FITS


def _term_to_json(term: Any) -> dict[str, Any]:
    return {"label": term.label, "formula": term.formula, "bytes": term.bytes}


def _model_head(model: Model) -> list[str]:
    limit = "not stated" if model.context_limit is None else f"{model.context_limit:,} tokens"
    weights = "dtype not stated" if model.dtype is None else format_exact_bytes(model.weight_bytes())
    return [
        f"{model.name} ({model.model_type})",
        f"  parameters {model.num_params:,}, active {model.num_active_params:,}",
        f"  weights as published {weights}",
        f"  context limit {limit}",
        f"  source {model.source or 'not stated'}",
    ]
