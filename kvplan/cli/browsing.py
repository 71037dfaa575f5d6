"""`models`, `gpus` and `show`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from kvplan.cli.options import FITS, MODEL_HELP, Command, dtype_option, find_model
from kvplan.cli.planning import assumption_lines, bytes_per_token, term_lines
from kvplan.explain import Term, kinds_sentence, layer_terms, layer_words
from kvplan.hardware import Gpu
from kvplan.library import GPU, MODEL, Kind, entries
from kvplan.model import Model
from kvplan.units import counted, format_bytes, format_exact_bytes, format_params, parse_count


def _list_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(run=run)


def _show_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--context", default="8k", help="tokens of one sequence (default 8k)")
    parser.add_argument("--batch", default="1", help="sequences (default 1)")
    parser.add_argument("--kv-dtype", default="bf16", help="cache dtype (default bf16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    dtype_option(parser)
    parser.set_defaults(run=show_model)


# ---------------------------------------------------------------------------------------------------------- lists


def show_models(options: argparse.Namespace) -> int:
    """`models`: every model preset in a line."""
    models = _listed(MODEL)
    if options.json:
        print(json.dumps([_model_to_json(model) for model in models], indent=2))
    else:
        print("\n".join(_model_line(model) for model in models))
    return FITS


def _listed(kind: Kind) -> list[Any]:
    """Every preset of a kind that can be read; what is wrong with the others stands on standard error."""
    found = entries(kind)
    for item in found:
        if item.trouble:
            print(f"kvplan: left out: {item.trouble}", file=sys.stderr)
        if item.replaces:
            print(f"kvplan: {item.id} is this library's own, in place of the shipped one", file=sys.stderr)
    return [kind.load(item.id) for item in found if not item.trouble]


def _model_to_json(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.name,
        "num_params": model.num_params,
        "num_active_params": model.num_active_params,
        "is_estimate": model.is_estimate,
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
    per_token = f"{bytes_per_token(model.cache_bytes_per_token())}/token"
    if model.cache_curve().largest_window:
        per_token += " past its window"
    params = f"{'about ' if model.is_estimate else ''}{format_params(model.num_params)}{active}"
    return f"{model.id + ' ':<28}{params:<26}{per_token:<32}{kinds_sentence(model)}"


def show_gpus(options: argparse.Namespace) -> int:
    """`gpus`: every GPU preset in a line."""
    gpus = _listed(GPU)
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
    return f"{gpu.id + ' ':<28}{usable:<24}{bandwidth:<20}{gpu.name}"


# ----------------------------------------------------------------------------------------------------------- show


def show_model(options: argparse.Namespace) -> int:
    """`show`: a model layer by layer, with the formula and its numbers."""
    model = find_model(options.model, options.dtype)
    context, batch = parse_count(options.context, "context", 1), parse_count(options.batch, "batch", 1)
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
    print("\n".join(model_head(model)))
    for index, layer in enumerate(model.layers):
        print(f"  layer {index:>3}  {layer.cache.label:<24} {layer_words(layer.cache, options.kv_dtype)}")
    print(f"\nCache of {batch:,} × {counted(context, 'token')} in {options.kv_dtype}: {format_exact_bytes(total)}")
    for kind, count, terms in kinds:
        print("\n".join(term_lines(f"{count} × {kind}", terms)) if terms else f"{count} × {kind}: keeps nothing")
    print("\n" + "\n".join(assumption_lines() + [f"* {note}" for note in model.notes]))
    return FITS


def _term_to_json(term: Term) -> dict[str, Any]:
    return {"label": term.label, "formula": term.formula, "bytes": term.bytes}


def model_head(model: Model) -> list[str]:
    """What a model is, in a few lines."""
    limit = "not stated" if model.context_limit is None else f"{counted(model.context_limit, 'token')}"
    guess = ", an estimate" if model.is_estimate else ""
    weights = "not known" if model.why_no_weight_bytes else format_exact_bytes(model.weight_bytes())
    return [
        f"{model.name} ({model.model_type})",
        f"  parameters {model.num_params:,}, active {model.num_active_params:,}{guess}",
        f"  weights as published {weights}{guess}",
        *(f"  stored besides {part.sentence}" for part in model.beside),
        f"  context limit {limit}",
        f"  source {model.source or 'not stated'}",
    ]


COMMANDS = (
    Command("models", "the model presets", lambda parser: _list_command(parser, show_models)),
    Command("gpus", "the GPU presets", lambda parser: _list_command(parser, show_gpus)),
    Command("show", "a model layer by layer, with the formula and its numbers", _show_command),
)
