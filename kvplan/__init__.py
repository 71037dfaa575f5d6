"""kvplan: how much memory an LLM's weights and KV cache take, exactly, and what fits on a GPU.

Importing it loads NumPy and nothing heavier: a sweep brings pandas, the lab brings torch, when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kvplan.errors import KvplanError
from kvplan.hardware import Gpu, Node, define_gpu
from kvplan.model import Model
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.presets import (
    list_gpus,
    list_models,
    list_nodes,
    list_scenarios,
    load_gpu,
    load_model,
    load_node,
    load_scenario,
)
from kvplan.sweep import sweep

if TYPE_CHECKING:
    from kvplan import lab
    from kvplan.define import Experts, Latent, Recurrent, define_model
    from kvplan.engines import engine_capacity, kv_bytes
    from kvplan.importer import import_config
    from kvplan.importer.gguf import import_gguf
    from kvplan.share import from_link, to_link

__version__ = "0.1.0"

__all__ = [
    "Experts", "Gpu", "KvplanError", "Latent", "MemoryPlan", "Model", "Node", "Recurrent", "Scenario", "define_gpu",
    "define_model", "engine_capacity", "from_link", "import_config", "import_gguf", "kv_bytes", "lab", "list_gpus",
    "list_models", "list_nodes", "list_scenarios", "load_gpu", "load_model", "load_node", "load_scenario", "plan",
    "sweep", "to_link",
]  # fmt: skip

_MODULES = frozenset(
    {
        "comparison", "engines", "explain", "fleet", "importer", "lab", "library", "report", "serving", "share",
        "sizes", "suggest", "variant",
    }
)  # fmt: skip
"""Parts that are used by their own name, such as `kvplan.fleet.fewest_gpus`."""

_LAZY = {
    "import_config": "kvplan.importer",
    "import_gguf": "kvplan.importer.gguf",
    "define_model": "kvplan.define",
    "Experts": "kvplan.define",
    "Latent": "kvplan.define",
    "Recurrent": "kvplan.define",
    "engine_capacity": "kvplan.engines",
    "kv_bytes": "kvplan.engines",
    "to_link": "kvplan.share",
    "from_link": "kvplan.share",
}


def __getattr__(name: str) -> Any:
    """Load a heavy part when it is first asked for."""
    if name in _MODULES:
        return importlib.import_module(f"kvplan.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'kvplan' has no attribute {name!r}")
    found = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found
