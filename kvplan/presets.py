"""The only reader and writer of preset files: models, GPUs and scenarios as TOML, one a file.

A model preset holds the layers and weights themselves, so that reading one needs no rule. Equal layers are
written once, and `layers` says in which order they stand: `["5 x sliding", "1 x full", ...]`. A written file
carries `num_params`, which must equal the sum, so that a file that was cut short is never half read.

Reading is strict: an unknown key, a wrong type or a missing field is a PresetError that names file and field.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kvplan.attention import LAYER_KINDS, LayerCache
from kvplan.dtypes import StorageFormat, weight_format
from kvplan.errors import InputError, KvplanError, PresetError, UnknownNameError, nearest_names, quoted, shorten
from kvplan.hardware import Gpu, Node, Price
from kvplan.model import Layer, Model, WeightGroup
from kvplan.names import clean_name, preset_id
from kvplan.units import counted, whole_number

SCHEMA = 1
MAX_FILE_BYTES = 2 * 2**20
MAX_LAYERS = 10_000
MAX_KEPT = 4096
"""Files that stay in memory as they were read."""

SHIPPED = Path(__file__).resolve().parent.parent / "presets"

Table = Mapping[str, Any]
FileState = tuple[int, int, int]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ScenarioPreset:
    """A scenario as plain fields, since this module does not know the planner.

    lesson  what it teaches, in a sentence or two
    fields  keyword arguments of `Scenario`, model and gpu as preset ids
    """

    name: str
    lesson: str
    fields: Mapping[str, Any] = field(hash=False)
    source: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        clean_name(self.name)


# ------------------------------------------------------------------------------------------------------- library


def presets_dir() -> Path:
    """Where this server keeps presets of its own: KVPLAN_PRESETS_DIR, or without it the presets beside the package."""
    given = os.environ.get("KVPLAN_PRESETS_DIR")
    if given and not is_readable_folder(Path(given)):
        raise PresetError(
            f"KVPLAN_PRESETS_DIR is {shorten(given)}, which is no folder that can be read; make it (empty is enough) "
            "or unset it"
        )
    return Path(given or SHIPPED)


def is_readable_folder(path: Path) -> bool:
    """Whether `path` is a folder; one below a closed folder is none, nor is a name that no file can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def library_dirs() -> tuple[Path, ...]:
    """The folders that make up the library, each with models, gpus and scenarios: the first that has an id gives it."""
    return (SHIPPED,) if keeps_own_among_shipped() else (presets_dir(), SHIPPED)


def keeps_own_among_shipped() -> bool:
    """Whether this server saves into the very folder that kvplan ships, since it was given no other."""
    own = presets_dir()
    return own == SHIPPED or own.resolve() == SHIPPED  # resolving asks the disk for every part of the path


def shipped_file(folder: str, name: str) -> Path:
    """Where a preset that kvplan ships stands, or would stand."""
    return SHIPPED / folder / f"{preset_id(name)}.toml"


def shipped_ids(folder: str) -> tuple[str, ...]:
    """Ids of what kvplan ships in a folder, sorted."""
    return tuple(sorted(_ids_in(SHIPPED, folder)))


def list_models() -> tuple[str, ...]:
    """Ids of all model presets, sorted."""
    return _ids("models")


def list_gpus() -> tuple[str, ...]:
    """Ids of all GPU presets, sorted."""
    return _ids("gpus")


def list_scenarios() -> tuple[str, ...]:
    """Ids of all scenario presets, sorted."""
    return _ids("scenarios")


def list_nodes() -> tuple[str, ...]:
    """Ids of all node presets, sorted."""
    return _ids("nodes")


def load_model(name: str) -> Model:
    """The model preset called `name`. Raises UnknownNameError with the nearest names, or PresetError."""
    found: Model = load_file(_find("models", "model", name))
    return found


def load_gpu(name: str) -> Gpu:
    """The GPU preset called `name`. Raises UnknownNameError with the nearest names, or PresetError."""
    found: Gpu = load_file(_find("gpus", "GPU", name))
    return found


def load_scenario(name: str) -> ScenarioPreset:
    """The scenario preset called `name`. Raises UnknownNameError with the nearest names, or PresetError."""
    found: ScenarioPreset = load_file(_find("scenarios", "scenario", name))
    return found


def load_node(name: str) -> Node:
    """The node preset called `name`. Raises UnknownNameError with the nearest names, or PresetError."""
    found: Node = load_file(_find("nodes", "node", name))
    return found


class Readable(NamedTuple):
    """Presets of a kind that can be read, and a sentence for each file that cannot."""

    presets: tuple[Any, ...]
    troubles: tuple[str, ...]


def readable(names: Iterable[Made], load: Callable[[Made], Any]) -> Readable:
    """What `load` gives for each name, so that one broken file does not take the others away."""
    presets, troubles = [], []
    for name in names:
        try:
            presets.append(load(name))
        except KvplanError as error:
            troubles.append(str(error))
    return Readable(tuple(presets), tuple(troubles))


def file_state(path: Path) -> FileState:
    """What changes whenever the file does: its time alone may not, where two saves follow each other closely.

    Raises PresetError where the file is gone.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise PresetError(f"{path.name} cannot be read: {error.strerror}") from None
    return found.st_mtime_ns, found.st_ino, found.st_size


def found_file(folder: str, name: str) -> Path | None:
    """The file that gives a preset, by the name of its folder and its id; None where there is none.

    Raises PresetError where it is a link to something outside of the library, which is never read.
    """
    paths = [root / folder / f"{name}.toml" for root in library_dirs()] if _looks_like_id(name) else []
    try:
        path = next((path for path in paths if path.is_file()), None)
    except OSError as error:
        raise PresetError(f"the folder {folder} of presets cannot be read: {error.strerror}") from None
    if path is not None and leads_outside(path):
        raise PresetError(f"{path.name} is a link to a file outside of the library, which is not read")
    return path


def title(folder: str, name: str) -> str:
    """The name that a preset's file gives among its first lines, read without the rest; "" where none stands there.

    A list of hundreds needs no more. Whether the file is right as a whole is said where it is loaded.
    """
    try:
        path = found_file(folder, name)
        if path is None:
            return ""
        with path.open("rb") as file:
            start = file.read(_TITLE_BYTES).decode(errors="replace")
        found = re.match(r'(?:[\w]+ = .*\n)*?name = "([^"\\\n]+)"\n', start)
        return clean_name(found[1]) if found else ""
    except (OSError, KvplanError):
        return ""


_TITLE_BYTES = 400


def leads_outside(path: Path) -> bool:
    """Whether a preset file is a link to something outside of its library."""
    return path.is_symlink() and not path.resolve().is_relative_to(path.parent.parent.resolve())


def load_file(path: Path) -> Any:
    """The preset in a file of a library; its folder says what kind. Raises PresetError."""
    return _load_file(path, file_state(path))


class ShelfFile(NamedTuple):
    """A preset file of the library as it stands now: where, under which id, and its state."""

    root: Path
    id: str
    state: FileState


def shelf(folder: str) -> tuple[ShelfFile, ...]:
    """Every preset file of one folder of the library; equal for as long as nothing there changes.

    Raises PresetError where the folder cannot be read.
    """
    return tuple(sorted(file for root in library_dirs() for file in _files_in(root, folder)))


def _files_in(root: Path, folder: str) -> list[ShelfFile]:
    try:
        with os.scandir(root / folder) as entries:  # a page asks often; this is a third of what `glob` takes
            files = [file for entry in entries if entry.name.endswith(".toml") for file in _shelf_file(root, entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PresetError(f"the folder {folder} of presets cannot be read: {error.strerror}") from None
    return [file for file in files if _looks_like_id(file.id)]  # `presets check` names the others


def _shelf_file(root: Path, entry: os.DirEntry[str]) -> Iterator[ShelfFile]:
    """One file, or none where it is no plain file: a folder, a pipe, a link to itself, or gone by now."""
    try:
        if entry.is_file():
            found = entry.stat()
            yield ShelfFile(root, entry.name.removesuffix(".toml"), (found.st_mtime_ns, found.st_ino, found.st_size))
    except OSError:
        return


SETTLED_NS = 60 * 10**9
"""A folder whose time of change lies so far back is not read again until that time changes; clocks may differ."""

_listed: dict[Path, tuple[int, frozenset[str]]] = {}


def _ids(folder: str) -> tuple[str, ...]:
    return tuple(sorted(frozenset[str]().union(*(_ids_in(root, folder) for root in library_dirs()))))


def _ids_in(root: Path, folder: str) -> frozenset[str]:
    """Ids of one folder; a page asks often, and a folder of thousands takes its time."""
    path = root / folder
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return frozenset()
    then, ids = _listed.get(path, (0, frozenset()))
    if then != changed:
        ids = frozenset(file.id for file in _files_in(root, folder))
        if time.time_ns() - changed > SETTLED_NS:
            _listed[path] = (changed, ids)
    return ids


def _find(folder: str, kind: str, name: str) -> Path:
    path = found_file(folder, name)
    if path is None:
        raise UnknownNameError(kind, shorten(name), _ids(folder))
    return path


def _looks_like_id(name: str) -> bool:
    try:
        return bool(preset_id(name))
    except KvplanError:
        return False


@lru_cache(maxsize=MAX_KEPT)
def _load_file(path: Path, _state: FileState) -> Any:
    made: dict[str, Callable[..., Any]] = {
        "models": model_from_table, "gpus": gpu_from_table, "scenarios": scenario_from_table,
        "nodes": node_from_table,
    }  # fmt: skip
    return made[path.parent.name](read_toml(path), path.name, path.stem)


def save_model(model: Model, directory: Path) -> Path:
    """Write `model` as `<id>.toml` into `directory`; the id must be set. Returns the path."""
    return _write(directory, model.id, model_to_table(model))


def save_gpu(gpu: Gpu, directory: Path) -> Path:
    """Write `gpu` as `<id>.toml` into `directory`; the id must be set. Returns the path."""
    return _write(directory, gpu.id, gpu_to_table(gpu))


def _write(directory: Path, name: str, table: Table) -> Path:
    path = directory / f"{preset_id(name)}.toml"
    path.write_text(dump_toml(table), encoding="utf-8")
    return path


# ---------------------------------------------------------------------------------------------------------- TOML


def read_toml(path: Path) -> dict[str, Any]:
    """The table in `path`. Raises PresetError where it is missing, huge, not UTF-8 or not TOML."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
    except OSError as error:
        raise PresetError(f"{path.name} cannot be read: {error.strerror}") from None
    if data is None:
        raise PresetError(f"{path.name} is over {MAX_FILE_BYTES // 2**20} MiB, too large for a preset")
    return parse_toml(data, path.name)


def parse_toml(data: bytes, where: str) -> dict[str, Any]:
    """The table in `data`. Raises PresetError with the line where it is not TOML."""
    import tomllib  # here and not above: an import of kvplan stays light

    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise PresetError(f"{where} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # an int of over 4,300 digits is a plain ValueError
        raise PresetError(f"{where} is not valid TOML: {shorten(error, 120)}") from None


def is_nested_over(value: object, depth: int) -> bool:
    """Whether tables and lists stand inside each other over `depth` deep; found without recursion."""
    level: list[Any] = [value]
    for _ in range(depth):
        groups = [item.values() if type(item) is dict or isinstance(item, Mapping) else item for item in level]
        nested = [group for group in groups if not _PLAIN.issuperset(map(type, group))]
        level = [item for group in nested for item in group if type(item) is dict or isinstance(item, Mapping | list)]
        if not level:
            return False
    return True


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""What holds nothing: most tables of a large config hold only this, and are passed over at once."""


def dump_toml(table: Table) -> str:
    """`table` as TOML: plain values first, then tables; lists of tables as one inline table a line."""
    lines = _toml_lines({key: value for key, value in table.items() if not isinstance(value, Mapping)})
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _toml_table(_toml_key(key), value)
    return "\n".join(lines) + "\n"


def _toml_table(name: str, table: Table) -> list[str]:
    if table and all(isinstance(value, Mapping) for value in table.values()):  # a table that only holds tables
        return [line for key, value in table.items() for line in _toml_table(f"{name}.{_toml_key(key)}", value)]
    return ["", f"[{name}]", *_toml_lines(table)]


def _toml_lines(table: Table) -> list[str]:
    return [f"{_toml_key(key)} = {_toml_rows(value)}" for key, value in table.items()]


def _toml_rows(value: object) -> str:
    """A list of tables as one inline table a line; anything else on one line."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return "[\n" + "".join(f"  {_toml_value(item)},\n" for item in value) + "]"
    return _toml_value(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    import json  # here and not above: only writing needs it

    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


# -------------------------------------------------------------------------------------------------- strict reading


class _Place(NamedTuple):
    """Where in which file a value stands, for messages; the words are made when there is one."""

    file: str
    keys: tuple[str | int, ...] = ()

    def at(self, key: str | int) -> _Place:
        return _Place(self.file, (*self.keys, key))

    def error(self, text: str) -> PresetError:
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys).removeprefix(".")
        return PresetError(f"{self.file}: {path + ' ' if path else ''}{text}")


def _typed(kind: type, words: str) -> Callable[[Any, _Place], Any]:
    def decode(value: Any, place: _Place) -> Any:
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
        raise place.error(f"is {quoted(value)}; {words} is needed")

    return decode


_int = _typed(int, "a whole number")
_string = _typed(str, "text in quotes")
_table = _typed(dict, "a table")
_list = _typed(list, "a list")


_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Marks of Unicode that turn the direction of what follows: a number behind one would read as another."""


def _text(value: Any, place: _Place) -> str:
    text: str = _string(value, place)
    if _TURNING.search(text):
        raise place.error(f"is {quoted(text)}; text without marks that turn its direction is needed")
    return text


def _count(value: Any, place: _Place) -> int:
    number: int = _int(value, place)
    if not 0 <= number < 2**63:
        raise place.error(f"is {shorten(number)}; a number from 0 up is needed")
    return number


def _number(value: Any, place: _Place) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
        return float(value)
    raise place.error(f"is {quoted(value)}; a number from 0 up is needed")


def _storage(value: Any, place: _Place) -> StorageFormat:
    try:
        return weight_format(_text(value, place))
    except PresetError:
        raise
    except KvplanError as error:
        raise place.error(f"is not a storage format: {error}") from None


def _many(decode: Callable[[Any, _Place], Made]) -> Callable[[Any, _Place], tuple[Made, ...]]:
    def decode_all(value: Any, place: _Place) -> tuple[Made, ...]:
        return tuple(decode(item, place.at(index)) for index, item in enumerate(_list(value, place)))

    return decode_all


def _layer_cache(value: Any, place: _Place) -> LayerCache:
    table = dict(_table(value, place))
    kind = _text(table.pop("kind", None), place.at("kind"))
    if kind not in LAYER_KINDS:
        raise place.at("kind").error(f"is {quoted(kind)}; one of {', '.join(LAYER_KINDS)} is needed")
    return _build(LAYER_KINDS[kind], table, place)


class _Known(NamedTuple):
    """A field of a dataclass: how it is read, and what a table without it means."""

    decode: Callable[[Any, _Place], Any]
    is_needed: bool
    may_be_none: bool


@lru_cache
def _known_fields(made: Callable[..., Any]) -> Mapping[str, _Known]:
    """The fields that a table of `made` may have; asked for once for each row of a file."""
    return {
        item.name: _Known(
            _DECODERS[str(item.type)],
            item.default is MISSING and item.default_factory is MISSING,
            str(item.type).endswith("| None"),
        )
        for item in fields(made)  # type: ignore[arg-type]
        if item.init
    }


def _build(made: Callable[..., Made], table: Any, place: _Place) -> Made:
    """A dataclass from a table: every key must be a field, and every field without a default must be there.

    TOML has no null: where a field may be None, a missing key says so.
    """
    found = _table(table, place)
    known = _known_fields(made)
    for key in found:
        if key not in known:
            near = nearest_names(key, known)
            raise place.error(
                f"has the unknown key {shorten(key)!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
    values = {key: known[key].decode(value, place.at(key)) for key, value in found.items()}
    for name, item in known.items():
        if item.is_needed and name not in found:
            if not item.may_be_none:
                raise place.error(f"lacks {name!r}")
            values[name] = None
    try:
        return made(**values)
    except PresetError:
        raise
    except KvplanError as error:
        raise place.error(str(error)) from None


def _choice(*words: str) -> Callable[[Any, _Place], str]:
    def decode(value: Any, place: _Place) -> str:
        if value not in words:
            raise place.error(f"is {quoted(value)}; one of {', '.join(words)} is needed")
        return str(value)

    return decode


def _tflops(value: Any, place: _Place) -> dict[str, float]:
    return {key: _number(item, place.at(key)) for key, item in _table(value, place).items()}


def _pair(value: Any, place: _Place) -> tuple[int, int]:
    numbers = _many(_count)(value, place)
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise place.error("must be [lowest, highest]")
    return numbers[0], numbers[1]


_DECODERS: dict[str, Callable[[Any, _Place], Any]] = {
    "int": _count,
    "int | None": _count,
    "float": _number,
    "str": _text,
    "bool": _typed(bool, "true or false"),
    "StorageFormat": _storage,
    "StorageFormat | None": _storage,
    "Split": _choice("copied", "rows", "columns", "kv_heads"),
    "Confidence": _choice("high", "medium", "low"),
    "Literal['rent', 'list']": _choice("rent", "list"),
    "tuple[str, ...]": _many(_text),
    "tuple[int, int]": _pair,
    "tuple[Price, ...]": _many(lambda value, place: _build(Price, value, place)),
    "tuple[LayerCache, ...]": _many(_layer_cache),
    "tuple[WeightGroup, ...]": _many(lambda value, place: _build(WeightGroup, value, place)),
    "LayerCache": _layer_cache,
    "Mapping[str, float]": _tflops,
    "Mapping[str, Any]": _table,
}
"""How a field is read, by its annotation."""


def _encode(value: object) -> Any:
    """A field's value as TOML can hold it."""
    if isinstance(value, StorageFormat):
        return value.name
    if isinstance(value, LayerCache):
        return {"kind": value.kind, **_to_table(value)}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return _to_table(value) if hasattr(value, "__dataclass_fields__") else value


def _to_table(made: object) -> dict[str, Any]:
    """A dataclass as a table, without fields at their default."""
    table = {}
    for item in fields(made):  # type: ignore[arg-type]
        value = getattr(made, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if value != default and value is not None:
            table[item.name] = dict(value) if isinstance(value, Mapping) else _encode(value)
    return table


# --------------------------------------------------------------------------------------------------------- models


def model_to_table(model: Model) -> dict[str, Any]:
    """`model` as the table of a preset file."""
    known = {item.name for item in fields(ModelFields)}
    plain = {key: value for key, value in _to_table(replace(model, layers=())).items() if key in known}
    table = {"schema": SCHEMA, **plain, "num_params": model.num_params}
    weights = table.pop("weights", [])
    names = _layer_names(model)
    table["layers"] = [f"{count} x {names[layer]}" for layer, count in model.layer_runs]
    table["weights"] = weights
    table["layer"] = {name: _layer_table(layer) for layer, name in names.items()}
    return table


def _layer_table(layer: Layer) -> dict[str, Any]:
    """A layer as a table with its weights last, so that no cut leaves the other fields out unseen."""
    table = _to_table(layer)
    weights = table.pop("weights", [])
    return {**table, "weights": weights}


def _layer_names(model: Model) -> dict[Layer, str]:
    names: dict[Layer, str] = {}
    for layer, _ in model.layer_runs:
        if layer not in names:
            same_kind = sum(1 for other in names if other.cache.kind == layer.cache.kind)
            names[layer] = f"{layer.cache.kind}-{same_kind + 1}" if same_kind else layer.cache.kind
    return names


def model_from_table(table: Table, where: str, name: str = "") -> Model:
    """The model that `table` describes. Raises PresetError with file and field."""
    place = _Place(where)
    rest = _without_schema(table, place)
    kinds = _table(rest.pop("layer", None), place.at("layer"))
    made = {key: _build(Layer, value, place.at("layer").at(key)) for key, value in kinds.items()}
    order = _many(_text)(rest.pop("layers", None), place.at("layers"))
    layers = _expand(order, made, place.at("layers"))
    stated = rest.pop("num_params", None)
    shell = _build(ModelFields, rest, place)
    try:
        model = Model(layers=layers, id=name, **{item.name: getattr(shell, item.name) for item in fields(shell)})
    except InputError as error:
        raise place.error(str(error)) from None
    if stated is not None and _count(stated, place.at("num_params")) != model.num_params:
        raise place.at("num_params").error(
            f"is {stated:,}; the weights in the file have {counted(model.num_params, 'value')}"
        )
    return model


@dataclass(frozen=True, slots=True)
class ModelFields:
    """The plain fields of a model preset."""

    name: str
    hidden_size: int
    tied_embeddings: bool
    model_type: str
    weights: tuple[WeightGroup, ...]
    dtype: StorageFormat | None = None
    num_attention_heads: int | None = None
    vocab_size: int | None = None
    context_limit: int | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    is_estimate: bool = False
    storage_unknown: str = ""

    def __post_init__(self) -> None:
        clean_name(self.name)
        for name in ("hidden_size", "num_attention_heads", "vocab_size", "context_limit"):
            if (value := getattr(self, name)) is not None:
                whole_number(value, name)


def _expand(order: Sequence[str], kinds: Mapping[str, Layer], place: _Place) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    for index, item in enumerate(order):
        found = re.fullmatch(r"([1-9]\d{0,4}) x ([\w-]+)", item)
        if found is None or found[2] not in kinds:
            raise place.at(index).error(f"is {quoted(item)}; write '5 x NAME' with one of {', '.join(kinds)}")
        layers += [kinds[found[2]]] * int(found[1])
        if len(layers) > MAX_LAYERS:
            raise place.error(f"has over {MAX_LAYERS:,} layers")
    if unused := set(kinds).difference(item.split(" x ")[1] for item in order):
        raise place.error(f"does not name the layer {shorten(min(unused))!r}, which the file describes")
    if not layers:
        raise place.error("is empty; a model has at least one layer")
    return tuple(layers)


def _without_schema(table: Table, place: _Place) -> dict[str, Any]:
    rest = dict(table)
    if "schema" not in rest:
        raise place.error(f"lacks 'schema'; this version reads schema = {SCHEMA}")
    schema = rest.pop("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise place.at("schema").error(f"is {quoted(schema)}; this version reads schema = {SCHEMA}")
    return rest


# ------------------------------------------------------------------------------------------------ GPUs, scenarios


def _file_table(thing: Gpu | Node) -> dict[str, Any]:
    """`thing` as its file has it: without the id, which is the file's name."""
    return {"schema": SCHEMA, **{key: value for key, value in _to_table(thing).items() if key != "id"}}


def _file_fields(table: Table, place: _Place) -> dict[str, Any]:
    """The fields that a file states; an id of its own is none of them."""
    rest = _without_schema(table, place)
    if "id" in rest:
        raise place.error("has the unknown key 'id'; the file's name is the id")
    return rest


def gpu_to_table(gpu: Gpu) -> dict[str, Any]:
    """`gpu` as the table of a preset file."""
    return _file_table(gpu)


def gpu_from_table(table: Table, where: str, name: str = "") -> Gpu:
    """The GPU that `table` describes. Raises PresetError with file and field."""
    return _build(Gpu, {**_file_fields(table, _Place(where)), "id": name}, _Place(where))


def node_to_table(node: Node) -> dict[str, Any]:
    """`node` as the table of a preset file."""
    return _file_table(node)


def node_from_table(table: Table, where: str, name: str = "") -> Node:
    """The node that `table` describes; whether its GPU is known shows where it is used. Raises PresetError."""
    return _build(Node, {**_file_fields(table, _Place(where)), "id": name}, _Place(where))


def node_sizes(gpu: Gpu) -> tuple[int, ...]:
    """GPUs of each known kind of node with this GPU, ascending: of the node presets, and as the GPU's preset says."""
    nodes = readable(list_nodes(), load_node).presets
    sizes = {node.num_gpus for node in nodes if gpu.id and node.gpu == gpu.id}
    return tuple(sorted(sizes | ({gpu.node_gpus} if gpu.node_gpus else set())))


def largest_node(gpu: Gpu) -> int | None:
    """GPUs of the largest known node of this kind; None: not known."""
    return max(node_sizes(gpu), default=None)


def usual_node(gpu: Gpu) -> int | None:
    """GPUs of the usual node of this kind: as the GPU's preset says, else of the largest node preset; None: unknown."""
    return gpu.node_gpus if (gpu.node_gpus or 0) > 1 else largest_node(gpu)


def scenario_from_table(table: Table, where: str, name: str = "") -> ScenarioPreset:
    """The scenario that `table` describes; its [fields] are checked by the planner."""
    place = _Place(where)
    rest = _without_schema(table, place)
    return _build(ScenarioPreset, {**rest, "id": name}, place)
