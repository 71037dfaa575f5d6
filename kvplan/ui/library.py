"""Presets and the visitor's own models and GPUs, by id. Own ones live in the session and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import streamlit as st

from kvplan.errors import InputError, PresetError
from kvplan.hardware import Gpu, Node
from kvplan.library import GPU, KINDS, MODEL, NODE, SCENARIO, Kind, Preset, entries, entry, is_in_library, kind_of
from kvplan.model import Model
from kvplan.presets import (
    ScenarioPreset,
    ShelfFile,
    library_dirs,
    list_gpus,
    list_models,
    load_gpu,
    load_model,
    shelf,
    title,
)
from kvplan.ui.words import show_error
from kvplan.units import counted

Thing = TypeVar("Thing")

OWN = "my-"
MAX_OWN = 50
FRESH_SECONDS = 2
"""How long a list may show the name that a file had before somebody edited it in its place."""

_MODELS, _GPUS = "own_models", "own_gpus"
_SHELVES = {MODEL.name: _MODELS, GPU.name: _GPUS, NODE.name: "own_nodes", SCENARIO.name: "own_scenarios"}


def require_library() -> None:
    """Where the library's folders cannot be read at all, every page says so and ends here."""
    try:
        for kind in KINDS.values():
            kind.names()
    except PresetError as trouble:
        show_error(trouble, "This server has no library of presets")
        st.stop()


def say_left_out(kind: Kind) -> None:
    """How many files a list does not show, where there are any."""
    broken = sum(1 for item in entries(kind) if item.trouble)
    if broken:
        st.caption(f"{counted(broken, 'file')} that cannot be read left out: the Library page says why.")


def own_models() -> dict[str, Model]:
    """The visitor's models by id."""
    found: dict[str, Model] = st.session_state.get(_MODELS, {})
    return found


def own_gpus() -> dict[str, Gpu]:
    """The visitor's GPUs by id."""
    found: dict[str, Gpu] = st.session_state.get(_GPUS, {})
    return found


def model_ids() -> list[str]:
    """Own models first, then presets."""
    return [*own_models(), *list_models()]


def gpu_ids() -> list[str]:
    """Own GPUs first, then presets."""
    return [*own_gpus(), *list_gpus()]


def model_labels() -> Callable[[str], str]:
    """What a list shows for a model's id: its name, by which people look for it, and the id."""
    return _labels(MODEL)


def gpu_labels() -> Callable[[str], str]:
    """What a list shows for a GPU's id: its name and the id."""
    return _labels(GPU)


def _labels(kind: Kind) -> Callable[[str], str]:
    mine = {name: f"{thing.name} · {name}" for name, thing in own(kind).items()}
    listed = _titles(kind.name, _changed(kind), int(time.monotonic() / FRESH_SECONDS))
    return lambda name: mine.get(name) or listed.get(name, name)


def _changed(kind: Kind) -> tuple[int, ...]:
    """When a file was last put into, or taken out of, each folder of a kind: a save does both."""
    folders = [root / kind.folder for root in library_dirs()]
    return tuple(folder.stat().st_mtime_ns for folder in folders if folder.is_dir())


@lru_cache(maxsize=8)
def _titles(kind_name: str, _changed: tuple[int, ...], _moment: int) -> dict[str, str]:
    """The label of each preset; looking at every file for what changed takes its time."""
    return _titles_of(kind_name, shelf(KINDS[kind_name].folder))


@lru_cache(maxsize=8)
def _titles_of(kind_name: str, _files: tuple[ShelfFile, ...]) -> dict[str, str]:
    """Made once for each state of the library; what cannot be read keeps its id."""
    kind = KINDS[kind_name]
    named = {name: title(kind.folder, name) or entry(kind, name).name for name in kind.names()}
    return {name: f"{found} · {name}" for name, found in named.items() if found}


def find_model(name: str | None) -> Model:
    """An own model or a preset. Raises UnknownNameError or PresetError."""
    return own_models().get(name or "") or load_model(name or "")


def find_gpu(name: str | None) -> Gpu:
    """An own GPU or a preset. Raises UnknownNameError or PresetError."""
    return own_gpus().get(name or "") or load_gpu(name or "")


def known_model(model: Model) -> str:
    """The id under which `model` can be chosen: its preset's, or its own after keeping it."""
    return model.id if is_in_library(model) else keep_model(model)


def known_gpu(gpu: Gpu) -> str:
    """The id under which `gpu` can be chosen: its preset's, or its own after keeping it."""
    return gpu.id if is_in_library(gpu) else keep_gpu(gpu)


def keep_model(model: Model) -> str:
    """Keep a model for this session; one of the same name is replaced. Returns its id."""
    name = _free_id(model.name, own_models())
    st.session_state[_MODELS] = _newest({**own_models(), name: replace(model, id=name)})
    return name


def keep_gpu(gpu: Gpu) -> str:
    """Keep a GPU for this session; one of the same name is replaced. Returns its id."""
    name = _free_id(gpu.name, own_gpus())
    st.session_state[_GPUS] = _newest({**own_gpus(), name: replace(gpu, id=name)})
    return name


def own(kind: Kind) -> dict[str, Any]:
    """The visitor's presets of a kind by id."""
    found: dict[str, Any] = st.session_state.get(_SHELVES[kind.name], {})
    return found


def find(kind: Kind, name: str) -> Any:
    """An own preset of a kind, or one of the library. Raises UnknownNameError or PresetError."""
    return own(kind).get(name) or kind.load(name)


def keep(preset: Preset) -> str:
    """Keep a preset for this session; one of the same kind and name is replaced. Returns its id."""
    kind = kind_of(preset)
    name = _free_id(preset.name, own(kind))
    st.session_state[_SHELVES[kind.name]] = _newest({**own(kind), name: replace(preset, id=name)})
    return name


def keep_all(presets: Sequence[Preset]) -> list[str]:
    """Keep presets for this session; scenarios then name the models and GPUs as they are called here.

    Raises InputError where they are more than a session holds.
    """
    for kind in KINDS.values():
        count = sum(kind_of(preset) is kind for preset in presets)
        if count > MAX_OWN:
            raise InputError(f"{count} {kind.folder} were chosen; a session holds up to {MAX_OWN}, so choose fewer")
    named_by_others = (item for item in presets if kind_of(item) in (MODEL, GPU))
    called = {(kind_of(item).name, item.id): keep(item) for item in named_by_others}
    others = [_renamed(item, called) for item in presets if kind_of(item) not in (MODEL, GPU)]
    return [*called.values(), *map(keep, others)]


def _renamed(preset: Preset, called: Mapping[tuple[str, str], str]) -> Preset:
    """A node or a scenario with the ids that its GPU and models have in this session."""
    if isinstance(preset, Node):
        return replace(preset, gpu=called.get((GPU.name, preset.gpu), preset.gpu))
    if isinstance(preset, ScenarioPreset):
        kinds = {"model": MODEL.name, "gpu": GPU.name, "draft_model": MODEL.name}
        named = {key: called.get((kinds.get(key, ""), value), value) for key, value in preset.fields.items()}
        return replace(preset, fields=named)
    return preset


def _newest(things: dict[str, Thing]) -> dict[str, Thing]:
    return dict(list(things.items())[-MAX_OWN:])


def _free_id(name: str, kept: Mapping[str, Any]) -> str:
    """The id of a name; names that differ never share one."""
    first = own_id(name)
    tries = (first if number == 1 else f"{first}-{number}" for number in count(1))
    return next(found for found in tries if found not in kept or kept[found].name == name)


def own_id(name: str) -> str:
    """A preset id made of a name: `My 3B (test)` -> `my-my-3b-test`."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in name.lower())
    return (OWN + "-".join(plain.split()))[:70].rstrip("-")
