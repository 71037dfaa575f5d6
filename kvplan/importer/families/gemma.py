"""Rules of the gemma families."""

from __future__ import annotations

from kvplan.importer.families import Family

FAMILIES: dict[str, Family] = {}
