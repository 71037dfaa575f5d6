"""What the commands share: exit statuses, the parser, a command, and the options of a scenario."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kvplan.errors import ConfigError, InputError, shorten
from kvplan.hardware import Node
from kvplan.library import MAX_PRESET_BYTES, kind_of, read_preset
from kvplan.model import Model
from kvplan.plan import Scenario
from kvplan.presets import is_readable_folder, load_gpu, load_model, load_node
from kvplan.units import parse_bytes, parse_count

FITS, DOES_NOT_FIT, WRONG_INPUT = 0, 1, 2

MODEL_HELP = "a preset id, or the path of a preset file, a config.json, a GGUF file or a checkpoint's folder"


class Command(NamedTuple):
    """One command: its name, what the help says, and the function that adds its options."""

    name: str
    help: str
    declare: Callable[[argparse.ArgumentParser], None]


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{shorten(message, 500)} (see {self.prog} --help)")


def scenario_options(parser: argparse.ArgumentParser) -> None:
    """The options that name a model, a GPU and the engine's part of the memory."""
    parser.add_argument("model", help=MODEL_HELP)
    hardware = parser.add_mutually_exclusive_group(required=True)
    hardware.add_argument("--gpu", help="a GPU preset id")
    hardware.add_argument("--node", help="a node preset id, such as 8xh100-sxm-80gb: its GPUs share every layer")
    parser.add_argument("--pipeline-parallel", "--pp", default="1", help="pipeline stages (default 1)")
    parser.add_argument("--data-parallel", "--dp", default="1", help="replicas that share the batch (default 1)")
    parser.add_argument(
        "--expert-parallel", "--ep", action="store_true",
        help="routed experts lie whole on the GPUs of all replicas (default: each is cut over them)",
    )  # fmt: skip
    parser.add_argument(
        "--memory-fraction", default="0.9", help="part of the usable memory for the engine (default 0.9)"
    )
    parser.add_argument(
        "--overhead", default=None, help="run-time overhead a GPU, such as 2.5GiB (default: an estimate)"
    )
    dtype_option(parser)


def dtype_option(parser: argparse.ArgumentParser) -> None:
    """The width of published tensors, for a config that does not state one."""
    parser.add_argument("--dtype", default=None, help="for a config.json that does not state one: bf16, fp16 or fp32")


def is_gguf(path: str) -> bool:
    """Whether a path is that of a GGUF file, by its name."""
    return path.lower().endswith(".gguf")


def is_preset_file(path: str) -> bool:
    """Whether a path is that of a preset file, by its name."""
    return path.endswith(".toml")


def find_model(text: str, dtype: str | None = None) -> Model:
    """A preset by its id, or the model of a preset file, a config.json, a folder or a GGUF file by its path.

    Raises KvplanError.
    """
    if "/" in text and is_readable_folder(Path(text)):
        return _model_of_folder(Path(text), dtype)
    if is_gguf(text):
        from kvplan.importer.gguf import import_gguf

        return import_gguf(text)
    if is_preset_file(text):
        return _model_of_preset_file(Path(text))
    if not text.endswith(".json") and "/" not in text and not _is_file(text):
        return load_model(text)
    return _model_of_config(Path(text), dtype)


def _is_file(text: str) -> bool:
    """Whether a path is that of a file; a text that no path can be is none."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _model_of_preset_file(path: Path) -> Model:
    """The model of a preset file that need not lie in a library."""
    from kvplan.importer.files import read_start

    preset = read_preset(read_start(path, MAX_PRESET_BYTES + 1), path.name)
    if not isinstance(preset, Model):
        raise InputError(f"{shorten(path.name)} is the preset of a {kind_of(preset).name}; a model's is needed")
    return preset


def _model_of_config(path: Path, dtype: str | None) -> Model:
    """The model of a config.json, whatever the file is called."""
    from kvplan.importer import import_config  # only needed for a file, and the slowest part to load

    try:
        return import_config(path, dtype=dtype)
    except ConfigError as error:
        if path.suffix == ".json":
            raise
        raise ConfigError(f"{error}; a preset file must end in .toml, and a GGUF file in .gguf") from None


def _model_of_folder(folder: Path, dtype: str | None) -> Model:
    """The model of a checkpoint's folder."""
    from kvplan.importer import import_config
    from kvplan.importer.checkpoint import find_checkpoint
    from kvplan.importer.gguf import import_gguf

    found = find_checkpoint(folder)
    if found.gguf is not None:
        return import_gguf(found.gguf)
    return import_config(found.config or folder, found.companion, found.stored, dtype=dtype)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} is {shorten(text)!r}; a number such as 0.9 is needed") from None


def _node(options: argparse.Namespace) -> Node:
    return load_node(options.node)


def tensor_parallel(options: argparse.Namespace) -> str:
    """What is written as --tensor-parallel; without it all GPUs of the node, or 1."""
    given: str | None = options.tensor_parallel
    if given is None:
        return str(_node(options).num_gpus if options.node else 1)
    return given


def base_scenario(options: argparse.Namespace, **settings: Any) -> Scenario:
    """The scenario of `scenario_options` with the command's own settings. Raises KvplanError."""
    return Scenario(
        find_model(options.model, options.dtype),
        load_gpu(_node(options).gpu if options.node else options.gpu),
        pipeline_parallel=parse_count(options.pipeline_parallel, "pipeline_parallel", 1),
        data_parallel=parse_count(options.data_parallel, "data_parallel", 1),
        expert_parallel=options.expert_parallel,
        memory_fraction=_number(options.memory_fraction, "memory_fraction"),
        overhead_bytes=None if options.overhead is None else parse_bytes(options.overhead, "overhead"),
        **settings,
    )


def warning_lines(warnings: Iterable[str]) -> list[str]:
    """Warnings as every command prints them."""
    return [f"! {text}" for text in warnings]
