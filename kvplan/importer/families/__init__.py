"""Which rule reads which model_type. A family is a row here and one small function in a module beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kvplan.importer.decoder import Parts
from kvplan.importer.view import ConfigView

Rule = Callable[[ConfigView], Parts]


class Family(NamedTuple):
    """A rule, and the defaults of the class that it describes (used, with a note, where a key is absent)."""

    rule: Rule
    defaults: Mapping[str, Any]


@cache
def families() -> dict[str, Family]:
    """Every family by model_type."""
    from kvplan.importer.families import deepseek, gemma, gpt, hybrid, llama, mamba, moe, qwen, single, vision

    modules = (llama, qwen, gemma, gpt, moe, deepseek, hybrid, mamba, single, vision)
    return {model_type: family for module in modules for model_type, family in module.FAMILIES.items()}
