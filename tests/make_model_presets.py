"""Writes presets/models/ from tests/data through the importer: `python tests/make_model_presets.py`.

model_presets.jsonl  which configs become presets and under which ids and names; the dtype where a config states
                     none, keys that are left out, each with its reason, and the hf_quant_config.json beside it
configs/             the published configs
quant_configs/       the hf_quant_config.json of checkpoints that are marked quantized only there
config_oracle.jsonl  where each config was read
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvplan.importer import import_config
from kvplan.model import Model
from kvplan.presets import SHIPPED, save_model

DATA = Path(__file__).resolve().parent / "data"

Row = dict[str, Any]


def read_rows(name: str) -> list[Row]:
    """The rows of one file in tests/data."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def model_rows() -> list[Model]:
    """Every model preset, sorted by id."""
    sources = {row["file"]: row["source"] for row in read_rows("config_oracle.jsonl")}
    return sorted((preset(row, sources) for row in read_rows("model_presets.jsonl")), key=lambda model: model.id)


def preset(row: Row, sources: dict[str, str]) -> Model:
    """The preset of one row; notes say what the row adds to the config or leaves out of it."""
    read_in = row.get("config_source") or sources[f"configs/{row['config']}.json"]
    model = import_config(
        config_of(row),
        companion_of(row),
        name=row["name"],
        dtype=row.get("dtype"),
        source=f"https://huggingface.co/{row['repo']}; config read in {_address(read_in)}",
    )
    return replace(model, id=row["id"], notes=(*model.notes, *_notes(row)))


def _address(read_in: str) -> str:
    """Where a config was read: a page, or a file of a repository."""
    if read_in.startswith("https:"):
        return read_in
    repo, _, path = read_in.partition(":")
    return f"https://github.com/{repo}, {path}"


def config_of(row: Row) -> Row:
    """The config of a row, less the keys that the row leaves out."""
    config = json.loads((DATA / "configs" / f"{row['config']}.json").read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in row.get("without", ())}


def companion_of(row: Row) -> Path | None:
    """The hf_quant_config.json beside the config of a row, where it has one."""
    return DATA / "quant_configs" / f"{row['companion']}.hf_quant_config.json" if "companion" in row else None


def _notes(row: Row) -> list[str]:
    notes = [row["note"]] if "note" in row else []
    if "dtype" in row:
        notes.append(f"the dtype, {row['dtype']}, is {row['dtype_reason']}")
    if "without" in row:
        notes.append(f"left out of the config: {', '.join(row['without'])}; {row['without_reason']}")
    return notes


def write_presets(directory: Path) -> list[Path]:
    """Write every preset into `directory`. Returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    return [save_model(model, directory) for model in model_rows()]


if __name__ == "__main__":
    print(f"{len(write_presets(SHIPPED / 'models'))} presets")
