"""How an engine turns free memory into cache tokens: vLLM, SGLang, llama.cpp, TensorRT-LLM, transformers.

`engine_capacity` answers for a pool of known size; `budget` says how large the pool will be; `lines` and
`commands` write what the engine prints and how it is started; `log` reads a real start-up log.
"""

from __future__ import annotations

from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.llamacpp import kv_bytes
from kvplan.engines.registry import ENGINES, engine, engine_capacity

__all__ = ["ENGINES", "EngineCapacity", "engine", "engine_capacity", "kv_bytes"]
