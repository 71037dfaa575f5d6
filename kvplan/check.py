"""What is wrong in a folder of presets, with file and line: for `python -m kvplan presets check` and for reviews."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import KvplanError, PresetError, UnknownNameError, shorten
from kvplan.hardware import Node
from kvplan.library import (
    GPU,
    KINDS,
    MAX_PRESET_BYTES,
    MODEL,
    Kind,
    Preset,
    file_id,
    kind_from_table,
    parse_preset,
    scenario_of,
)
from kvplan.presets import ScenarioPreset, is_readable_folder, leads_outside, load_file, shipped_file, shipped_ids


class Problem(NamedTuple):
    """Something wrong: the file inside the folder, its line from 1, and a sentence."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def check_directory(path: Path | str) -> list[Problem]:
    """Everything that is wrong with the presets in the folders models, gpus, nodes and scenarios of `path`.

    What a scenario or a node names must be in the same folder or ship with kvplan, and a scenario be plannable.
    Raises PresetError where `path` is no folder or holds none of the four.
    """
    root = Path(path)
    if not any(is_readable_folder(root / kind.folder) for kind in KINDS.values()):
        raise PresetError(f"{shorten(root, 200)} has no folder models, gpus, nodes or scenarios")
    check = _Check(root)
    for kind in KINDS.values():
        for file in sorted((root / kind.folder).glob("*.toml")):
            check.file(kind, file)
    return [*_stray(root), *check.problems]


def _stray(root: Path) -> Iterator[Problem]:
    folders = {kind.folder for kind in KINDS.values()}
    for file in sorted(root.rglob("*.toml")):
        inside = file.relative_to(root)
        if inside.parts[0].startswith("."):  # settings of a tool, such as .taplo.toml and .git
            continue
        if len(inside.parts) != 2 or inside.parts[0] not in folders:
            yield Problem(str(inside), 1, "stands outside models/, gpus/, nodes/ and scenarios/, so no kvplan reads it")


class Checked(NamedTuple):
    """A preset file that was read: the preset, or what is wrong with it."""

    preset: Preset | None
    problem: Problem | None


def check_text(text: str, file: str, kind: Kind) -> Checked:
    """The text of one preset file of a kind, as someone edits it; its id follows from the file's name."""
    table: dict[str, Any] = {}
    try:
        table = parse_preset(text.encode("utf-8", "replace"), file)
        return Checked(kind_from_table(kind, table, file, file_id(file)), None)
    except KvplanError as error:
        words = _without_file(str(error), file)
        return Checked(None, Problem(file, line_of(text, table, words), words))


def _without_file(message: str, file: str) -> str:
    return message.removeprefix(f"{file}: ").removeprefix(f"{file} ")


class _Check:
    """Reads one folder, models and GPUs first, and keeps what it found for the scenarios."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[Problem] = []
        self.found: dict[str, dict[str, Any]] = {kind.name: {} for kind in KINDS.values()}

    def file(self, kind: Kind, file: Path) -> None:
        """Check one file and note what is wrong with it."""
        table: dict[str, Any] = {}
        text = ""
        try:
            data = _read(file)
            text = data.decode("utf-8", "replace")
            table = parse_preset(data, file.name)
            preset = self._preset(kind, table, file)
        except KvplanError as error:
            words = _without_file(str(error), file.name)
            self.problems.append(Problem(str(file.relative_to(self.root)), line_of(text, table, words), words))
        else:
            self.found[kind.name][preset.id] = preset

    def _preset(self, kind: Kind, table: dict[str, Any], file: Path) -> Preset:
        preset: Preset = kind_from_table(kind, table, file.name, file_id(file.name))
        if isinstance(preset, ScenarioPreset):
            scenario_of(preset, self._finder(MODEL), self._finder(GPU))
        elif isinstance(preset, Node):
            self._finder(GPU)(preset.gpu)
        return preset

    def _finder(self, kind: Kind) -> Callable[[str], Any]:
        def find(name: str) -> Any:
            known = self.found[kind.name]
            if name in known:
                return known[name]
            if not (self.root / kind.folder / f"{file_id(name)}.toml").is_file():  # a broken one hides the shipped one
                shipped = shipped_file(kind.folder, name)
                if shipped.is_file():
                    return load_file(shipped)
                raise UnknownNameError(kind.name, name, sorted({*known, *shipped_ids(kind.folder)}))
            raise PresetError(f"the {kind.name} {name} cannot be used: see what is wrong with its own file")

        return find


def _read(file: Path) -> bytes:
    """The bytes of a file; a pipe would never end, and a link out of the folder is never followed."""
    if not file.is_file():
        raise PresetError("is no plain file, so no kvplan reads it")
    if leads_outside(file):
        raise PresetError("is a link to a file outside of the library, so no kvplan reads it")
    try:
        if (size := file.stat().st_size) > MAX_PRESET_BYTES:
            raise PresetError(f"has {size:,} bytes; a preset has at most {MAX_PRESET_BYTES:,}")
        return file.read_bytes()
    except OSError as error:
        raise PresetError(f"cannot be read: {error.strerror}") from None


# ----------------------------------------------------------------------------------------------------------- lines

_STEP = r"([^.\[\]\s]+)|\[(\d+)\]"


def line_of(text: str, table: Mapping[str, Any], message: str) -> int:
    """The line of `text` that a message means: the one that it states, that of the key that it names, or the first.

    table  what `text` holds; empty where it is not TOML
    """
    stated = re.search(r"\(at line (\d+)", message)
    if stated is not None:
        return int(stated[1])
    if message.endswith("(at end of document)"):
        return max(len(text.splitlines()), 1)
    return text.count("\n", 0, _position(text, _steps(message, table))) + 1


def _steps(message: str, table: Mapping[str, Any]) -> list[str | int]:
    """The path that a message starts with, such as layer.full.weights[3].rows; or the first key that it mentions."""
    first = message.split(" ", 1)[0]
    steps: list[str | int] = [key or int(index) for key, index in re.findall(_STEP, first)]
    if not steps or steps[0] not in table:
        steps = _mentioned(re.findall(r"[\w-]+", message), table)
    unknown = re.search(r"unknown key '([^']+)'", message)
    return [*steps, unknown[1]] if unknown and unknown[1] not in steps else steps


def _mentioned(words: list[str], table: Mapping[str, Any]) -> list[str | int]:
    """The first setting of a scenario, else the first key of the file, that a message mentions."""
    settings, lower = table.get("fields"), [word.lower() for word in words]
    inside = [word for word in lower if isinstance(settings, Mapping) and word in settings]
    return ["fields", inside[0]] if inside else next(([word] for word in lower if word in table), [])


def _position(text: str, steps: list[str | int]) -> int:
    """Where the value of a path stands in a TOML text, as far as it can be followed."""
    position, rest = _after_header(text, steps)
    for step in rest:
        found = _item_start(text, position, step) if isinstance(step, int) else _key_start(text, position, step)
        if found is None:
            break
        position = found
    return position


def _after_header(text: str, steps: list[str | int]) -> tuple[int, list[str | int]]:
    """The longest start of the path that is a [header], and the steps that are left."""
    names = [step for step in steps if isinstance(step, str)]
    for count in range(len(names), 0, -1):
        header = r"\s*\.\s*".join(rf'"?{re.escape(name)}"?' for name in names[:count])
        found = re.search(rf"(?m)^[ \t]*\[\s*({header})\s*\]", text)
        if found is not None:
            return found.start(1), steps[count:]
    return 0, steps


def _key_start(text: str, position: int, key: str) -> int | None:
    found = re.compile(rf'(?<![\w.-])"?{re.escape(key)}"?\s*=').search(text, position)
    return None if found is None else found.start()


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#[^\n]*|[\[{\]},]')


def _item_start(text: str, position: int, index: int) -> int | None:
    """The start of item `index` of the list that opens after `position`."""
    depth, commas = 0, 0
    for token in _TOKEN.finditer(text, position):
        depth += (token[0] in "[{") - (token[0] in "]}")
        commas += token[0] == "," and depth == 1
        if depth == 0 and token[0] == "]":
            return None
        if depth >= 1 and commas == index:
            space = re.compile(r"[\s\[,]*").match(text, token.start())
            return space.end() if space else token.start()
    return None
