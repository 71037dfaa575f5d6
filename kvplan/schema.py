"""JSON Schemas of preset files, made from the same dataclasses that the reader fills, so that editors complete them."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from typing import Any

from kvplan.attention import LAYER_KINDS, LayerCache
from kvplan.dtypes import KV_DTYPES, WEIGHT_FORMATS
from kvplan.hardware import GPU_LIMITS, MAX_GPU_BYTES, Gpu, Node, Price
from kvplan.library import GPU, KINDS, MODEL, NODE, SCENARIO, Kind
from kvplan.model import ROLES, Layer, WeightGroup
from kvplan.plan import WHOLE_NUMBERS, Scenario
from kvplan.presets import SCHEMA, ModelFields, ScenarioPreset
from kvplan.units import MAX_COUNT, MIB

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest that editors of TOML read."""
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string"}
_FORMAT: Schema = {"type": "string", "examples": sorted(WEIGHT_FORMATS)}

_BY_ANNOTATION: dict[str, Schema] = {
    "int": _WHOLE,
    "int | None": _WHOLE,
    "float": {"type": "number", "minimum": 0},
    "str": _TEXT,
    "str | None": _TEXT,
    "bool": {"type": "boolean"},
    "StorageFormat": _FORMAT,
    "StorageFormat | None": _FORMAT,
    "Split": {"enum": ["copied", "rows", "columns", "kv_heads"]},
    "Confidence": {"enum": ["high", "medium", "low"]},
    "Literal['rent', 'list']": {"enum": ["rent", "list"]},
    "tuple[str, ...]": {"type": "array", "items": _TEXT},
    "tuple[int, int]": {"type": "array", "items": _WHOLE, "minItems": 2, "maxItems": 2},
    "tuple[Price, ...]": {"type": "array", "items": {"$ref": "#/definitions/price"}},
    "tuple[WeightGroup, ...]": {"type": "array", "items": {"$ref": "#/definitions/weights"}},
    "tuple[LayerCache, ...]": {"type": "array", "items": {"$ref": "#/definitions/cache"}},
    "LayerCache": {"$ref": "#/definitions/cache"},
    "Mapping[str, float]": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
    "Model": {"type": "string", "description": "the id of a model preset"},
    "Gpu": {"type": "string", "description": "the id of a GPU preset"},
    "Model | None": {"type": "string", "description": "the id of a model preset"},
}
"""How a field is written in a file, by its annotation."""


def _from_to(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 80, "pattern": r"^[^!-'*:-@\[-^`{-~]+$"}
"""What every regular expression can say of a name: it has no sign that a page could render."""

_BY_NAME: dict[str, Schema] = {
    "name": _NAME,
    "usable_bytes": _from_to(MIB, MAX_GPU_BYTES),
    **{name: _from_to(1, most) for name, most in GPU_LIMITS.items()},
    "num_gpus": _from_to(1, GPU_LIMITS["node_gpus"]),
    **dict.fromkeys(
        ("hidden_size", "num_attention_heads", "vocab_size", "context_limit", "rows", "columns", "count", "active"),
        _from_to(1, MAX_COUNT),
    ),
    **{name: _from_to(low, high) for name, (low, high) in WHOLE_NUMBERS.items()},
}
"""How a field is written whose name says more than its annotation."""


def json_schema(kind: str) -> Schema:
    """The JSON Schema of preset files of a kind: "model", "GPU", "scenario" or "node"."""
    return _SCHEMAS[kind]() | {"$schema": _DIALECT, "title": f"kvplan {kind} preset, schema {SCHEMA}"}


def json_schema_text(kind: str) -> str:
    """`json_schema` as the text of a file."""
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def schema_file(kind: Kind) -> str:
    """What the schema's file is called, such as model.schema.json."""
    return f"{kind.name.lower()}.schema.json"


def _object(properties: Schema, required: list[str], about: str = "") -> Schema:
    words = {"description": about} if about else {}
    return {
        "type": "object", **words, "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip


def _of(made: type, left_out: tuple[str, ...] = ()) -> Schema:
    """A dataclass as an object: required is what has no default and may not be None."""
    items = [item for item in fields(made) if item.init and item.name not in left_out]
    properties = {item.name: _BY_NAME.get(item.name, _BY_ANNOTATION[str(item.type)]) for item in items}
    return _object(properties, [item.name for item in items if _is_required(item)], _first_line(made))


def _is_required(item: Field[Any]) -> bool:
    no_default = item.default is MISSING and item.default_factory is MISSING
    return no_default and not str(item.type).endswith("| None")


def _first_line(made: type) -> str:
    return (made.__doc__ or "").partition("\n")[0]


def _with(schema: Schema, first: Schema, required: list[str]) -> Schema:
    """`schema` with further properties in front, the named ones required."""
    return schema | {
        "properties": first | schema["properties"],
        "required": required + [name for name in schema["required"] if name not in required],
    }


def _cache(kind: type[LayerCache]) -> Schema:
    found = _with(_of(kind), {"kind": {"const": kind.kind}}, ["kind"])
    properties = {
        name: item | {"minimum": int(name not in kind.may_be_zero)} if item is _WHOLE else item
        for name, item in found["properties"].items()
    }
    return found | {"properties": properties}


def _model_schema() -> Schema:
    own = {
        "schema": {"const": SCHEMA},
        "num_params": _WHOLE | {"description": "all values; must equal the sum of the weights in the file"},
        "layers": {
            "type": "array",
            "minItems": 1,
            "description": "runs of layers in order, such as '5 x sliding'",
            "items": {"type": "string", "pattern": r"^[1-9][0-9]{0,4} x [\w-]+$"},
        },
        "layer": {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/definitions/layer"}},
    }
    weights = _of(WeightGroup)
    weights["properties"] = weights["properties"] | {"role": {"enum": list(ROLES)}}
    parts = {
        "layer": _of(Layer),
        "weights": weights,
        "cache": {"oneOf": [_cache(kind) for kind in LAYER_KINDS.values()]},
    }
    return _with(_of(ModelFields), own, ["schema", "layers", "layer"]) | {"definitions": parts}


def _gpu_schema() -> Schema:
    return _with(_of(Gpu, ("id",)), {"schema": {"const": SCHEMA}}, ["schema"]) | {"definitions": {"price": _of(Price)}}


def _node_schema() -> Schema:
    return _with(_of(Node, ("id",)), {"schema": {"const": SCHEMA}}, ["schema"])


def _scenario_schema() -> Schema:
    settings = _of(Scenario)
    settings["properties"] = settings["properties"] | {
        "kv_dtype": _TEXT | {"examples": list(KV_DTYPES)},
        "weight_dtype": _FORMAT,
        "memory_fraction": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    }
    own = {"schema": {"const": SCHEMA}, "fields": settings}
    return _with(_of(ScenarioPreset, ("id", "fields")), own, ["schema", "fields"])


_SCHEMAS = {
    MODEL.name: _model_schema, GPU.name: _gpu_schema, SCENARIO.name: _scenario_schema, NODE.name: _node_schema,
}  # fmt: skip


def all_schemas() -> dict[str, str]:
    """The text of every schema by the name of its file."""
    return {schema_file(kind): json_schema_text(kind.name) for kind in KINDS.values()}
