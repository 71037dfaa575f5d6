"""`import` and `verify`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvplan.cli.browsing import model_head
from kvplan.cli.options import DOES_NOT_FIT, FITS, Command, dtype_option, is_gguf, is_preset_file
from kvplan.errors import InputError, shorten
from kvplan.explain import kinds_sentence
from kvplan.library import SAVED_LINE, file_text
from kvplan.model import Model
from kvplan.names import preset_id
from kvplan.presets import is_readable_folder, list_models
from kvplan.units import format_params

LENGTHS = (16, 4_096, 131_072)
"""Context lengths at which `verify` compares caches."""

KEPT_CONFIGS = Path(__file__).resolve().parents[2] / "tests" / "data"
"""The published configs that shipped presets are made from, in a full copy of kvplan."""


def _import_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", nargs="?", default=None, help="the path of a config.json, of a GGUF file, or of a checkpoint's folder"
    )
    parser.add_argument("--hub", default=None, metavar="ORG/NAME", help="a hub id instead of a file (KVPLAN_HUB=1)")
    parser.add_argument("--revision", default="main", help="the branch, tag or commit, with --hub")
    parser.add_argument("--quant-config", default=None, help="the hf_quant_config.json beside it")
    parser.add_argument(
        "--index", default=None,
        help="to compare with: model.safetensors.index.json, a .safetensors file (all its parts), or a folder of them",
    )  # fmt: skip
    parser.add_argument("--name", default=None, help="how to call the model (default: its model_type)")
    parser.add_argument("--measure", default="auto", choices=("auto", "never", "always"), help="see the README")
    parser.add_argument("--estimate", action="store_true", help="accept an estimate where nothing counts it exactly")
    parser.add_argument("--save", default=None, metavar="DIR", help="write a preset file into this folder")
    parser.add_argument("--id", default=None, help="the preset's id and file name, with --save")
    dtype_option(parser)
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    """`import`: what a config or a GGUF file was understood as; saved as a preset where asked."""
    model = _imported_from_hub(options) if options.hub is not None else _imported(options)
    print("\n".join([*model_head(model), f"  layers {kinds_sentence(model)}", *(f"* {note}" for note in model.notes)]))
    if options.save is not None:
        named = replace(model, id=preset_id(options.id or options.name or model.model_type))
        path = _new_file(named.id, Path(options.save))
        path.write_text(SAVED_LINE + file_text(named), encoding="utf-8")
        print(f"saved {path}")
    return FITS


def _imported_from_hub(options: argparse.Namespace) -> Model:
    given = {"a path": options.config, "--quant-config": options.quant_config, "--index": options.index}
    if wrong := [name for name, value in given.items() if value is not None]:
        raise InputError(f"--hub reads all files of a repository; {wrong[0]} cannot stand beside it")
    from kvplan.importer import hub, import_config

    files = hub.fetch_repo(options.hub, options.revision)
    return import_config(
        files.config, files.companion, files.index, name=options.name or options.hub.partition("/")[2],
        dtype=options.dtype, measure=options.measure, estimate=options.estimate, source=files.source,
    )  # fmt: skip


def _imported(options: argparse.Namespace) -> Model:
    if options.config is None:
        raise InputError("which model? Give the path of a config.json, a folder or a GGUF file, or --hub ORG/NAME")
    from kvplan.importer.files import is_folder

    path = Path(options.config)
    if is_folder(path):
        return _imported(_from_folder(path, options))
    if path.suffix == ".safetensors":
        raise InputError(
            f"{path.name} lists tensors and does not say what they are for; import the config.json beside it, with "
            f"--index {path.name}"
        )
    if is_preset_file(options.config):
        raise InputError(
            f"{shorten(path.name)} is named as a preset file, which needs no import: give it to plan or show as it is, "
            "or import a config.json, a folder or a GGUF file"
        )
    if is_gguf(options.config):
        _refuse_for_gguf(options)
        from kvplan.importer.gguf import import_gguf

        model = import_gguf(path)
        return replace(model, name=options.name or model.name)
    from kvplan.importer import import_config  # the slowest part to load, and only needed here

    return import_config(
        path, options.quant_config, options.index, name=options.name, dtype=options.dtype,
        measure=options.measure, estimate=options.estimate, source=path.name,
    )  # fmt: skip


def _from_folder(folder: Path, options: argparse.Namespace) -> argparse.Namespace:
    """The options for the files in a folder; what is named otherwise takes the place of what lies there."""
    from kvplan.importer.checkpoint import find_checkpoint

    found = find_checkpoint(folder)
    beside = {
        "config": str(found.config or found.gguf),
        "quant_config": options.quant_config or found.companion,
        "index": options.index or found.stored,
    }
    return argparse.Namespace(**{**vars(options), **beside})


def _refuse_for_gguf(options: argparse.Namespace) -> None:
    """A GGUF file holds all of it; an option that would change nothing is not passed over."""
    given = {
        "--quant-config": options.quant_config, "--index": options.index, "--dtype": options.dtype,
        "--estimate": options.estimate or None, "--measure": None if options.measure == "auto" else options.measure,
    }  # fmt: skip
    if wrong := [name for name, value in given.items() if value is not None]:
        raise InputError(f"{wrong[0]} is for a config.json; a GGUF file says itself how it stores its weights")


def _new_file(name: str, folder: Path) -> Path:
    """The file that a preset will be written to. Raises InputError where it is there already, or has no folder."""
    path = folder / f"{name}.toml"
    if not is_readable_folder(folder):
        raise InputError(f"{shorten(folder, 200)} is no folder; make it first")
    if path.exists():
        raise InputError(f"{path} is there already; choose another --id")
    return path


def _verify_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="MODEL", help="a shipped model preset, or the path of a config.json")
    dtype_option(parser)
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    """`verify`: the rules' count beside what the installed transformers builds. Status 0 where they agree."""
    from kvplan.importer import import_config

    config, stated = _config_of(options.config)
    dtype = options.dtype or stated
    rules, measured = (import_config(config, dtype=dtype, measure=way) for way in ("never", "always"))
    rows = [("parameters", rules.num_params, measured.num_params)]
    rows += [(f"cache of {n:,} tokens", rules.cache_bytes(n), measured.cache_bytes(n)) for n in LENGTHS]
    for label, ours, seen in rows:
        print(f"{'same' if ours == seen else 'DIFFERENT':<10}{label:<26}rules {ours:,}  measured {seen:,}")
    print(f"{rules.name}: {format_params(rules.num_params)} parameters, {kinds_sentence(rules)}")
    return FITS if all(ours == seen for _, ours, seen in rows) else DOES_NOT_FIT


def _config_of(given: str) -> tuple[Path | dict[str, Any], str | None]:
    """The config to build a class from, and the dtype that it lacks; a preset's is kept beside the tests.

    Raises InputError for what holds no config.
    """
    if is_gguf(given):
        raise InputError(f"verify compares what a config.json describes; {shorten(given)} lists its tensors itself")
    if is_preset_file(given):
        raise InputError(f"verify compares what a config.json describes; {shorten(given)} is named as a preset file")
    if given not in list_models():
        return Path(given), None
    row = next((row for row in _preset_rows() if row["id"] == given), None)
    if row is None:
        raise InputError(f"the config that the preset {given} was made from is not kept here; give the path of one")
    config = json.loads((KEPT_CONFIGS / "configs" / f"{row['config']}.json").read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in row.get("without", ())}, row.get("dtype")


def _preset_rows() -> list[dict[str, Any]]:
    """What each shipped preset was made from; none where kvplan was copied without its tests."""
    path = KEPT_CONFIGS / "model_presets.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


COMMANDS = (
    Command("import", "a config.json, a folder or a GGUF file as a model, and as a preset file", _import_command),
    Command("verify", "the rules beside what transformers builds from a config.json", _verify_command),
)
