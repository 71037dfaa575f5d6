"""A checkpoint as it lies in a folder: config.json, what stands beside it and its tensors; or a GGUF file."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kvplan.errors import ConfigError, shorten
from kvplan.importer.headers import INDEX_NAME, MAX_PARTS
from kvplan.units import counted

CONFIG, COMPANION = "config.json", "hf_quant_config.json"


class Checkpoint(NamedTuple):
    """The files of a folder that an import reads: a config with what stands beside it, or a GGUF file alone.

    stored  the folder itself where it holds an index or headers of tensors
    """

    config: Path | None
    companion: Path | None
    stored: Path | None
    gguf: Path | None


def find_checkpoint(folder: Path) -> Checkpoint:
    """What `folder` holds. Raises ConfigError where that is no checkpoint, or more than one."""
    name = shorten(folder.name or str(folder))
    if not folder.is_dir():
        raise ConfigError(f"{name} is no folder")
    config, companion = folder / CONFIG, folder / COMPANION
    ggufs = sorted(islice(folder.glob("*.gguf"), MAX_PARTS))
    if config.is_file():
        stored = (folder / INDEX_NAME).is_file() or any(folder.glob("*.safetensors"))
        return Checkpoint(config, companion if companion.is_file() else None, folder if stored else None, None)
    if not ggufs:
        raise ConfigError(f"{name} holds no {CONFIG} and no GGUF file; a checkpoint's folder has one of them")
    stems = {path.name.rpartition("-of-")[0].rpartition("-")[0] or path.name for path in ggufs}
    if len(stems) > 1:
        raise ConfigError(
            f"{name} holds {counted(len(stems), 'GGUF model')}; name one, such as {shorten(ggufs[0].name)}"
        )
    return Checkpoint(None, None, None, ggufs[0])
