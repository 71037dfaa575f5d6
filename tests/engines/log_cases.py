"""The public start-up logs as cases: each row, the model that it names, and the flags that it states.

A row gives figures and, in its notes, flags that have no column of their own. What only the notes say is read from
them here, or written in STATED with the words that say so; nothing here is a rule of an engine.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.attention import FullAttention, LatentAttention, LayerCache, NoCache, RecurrentState, SlidingAttention
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.engines.vllm import default_batched_tokens
from kvplan.importer import import_config
from kvplan.model import Layer, Model
from kvplan.presets import load_gpu

DATA = Path(__file__).resolve().parent.parent / "data"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "engine_logs.jsonl").read_text().splitlines()]
NAMED: dict[str, str | None] = json.loads((DATA / "log_models.json").read_text())

SAME_GEOMETRY = {
    "unsloth/mistral-7b-instruct-v0.3-bnb-4bit": "mistralai/Mistral-7B-Instruct-v0.2",
    "Qwen/Qwen2.5-1.5B-Instruct": "Qwen/Qwen2-1.5B-Instruct",
    "nvidia/Nemotron-3-Super-120B-A12B (BF16)": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "DeepSeek-R1-Distill-Qwen-7B Q4_K_M": "Qwen/Qwen2.5-7B",
    "DeepSeek-R1 Q4_K_M": "deepseek-ai/DeepSeek-R1-0528",
    "Mistral-7B class (32 layers, 8 KV heads)": "mistralai/Mistral-7B-Instruct-v0.2",
    "Llama-4 (Scout or Maverick)": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "unknown 24B-32B class": "Qwen/Qwen3-30B-A3B",  # 48 layers x 4 heads x 128 x 2 = 48 KiB a token at fp8
}
"""Models without a config here whose layers another config has."""


def _layers(*runs: tuple[int, LayerCache]) -> tuple[Layer, ...]:
    return tuple(Layer(cache, num_attention_heads=32) for count, cache in runs for _ in range(count))


def _geometry(name: str, *runs: tuple[int, LayerCache]) -> Model:
    return Model(name, _layers(*runs), (), WEIGHT_FORMATS["bf16"], None, None, None, 262144, False, name)


_KDA = RecurrentState(32, 128 * 128, WEIGHT_FORMATS["fp32"], 3 * 32 * 128, 4, WEIGHT_FORMATS["bf16"])

_GEMMA_4_31B = _geometry("gemma4", (50, SlidingAttention(16, 256, window=1024)), (10, FullAttention(4, 512)))

GEOMETRY = {
    "gemma-4-31B-AWQ": _GEMMA_4_31B,
    "nvidia/Gemma-4-31B-IT-NVFP4": _GEMMA_4_31B,
    "google/gemma-4-31B-it": _GEMMA_4_31B,
    "bigcode/starcoder2-3b": _geometry("starcoder2", (30, SlidingAttention(2, 128, window=4096))),
    "gemma-4-12B-it-AWQ": _geometry("gemma4", (40, SlidingAttention(8, 256, window=1024)), (8, FullAttention(2, 512))),
    "MiniMaxAI/MiniMax-M2.5": _geometry("minimax_m2", (62, FullAttention(8, 128))),
    "OpenBMB/MiniCPM5-1B": _geometry("minicpm", (24, FullAttention(2, 128))),
    "cyankiwi/Kimi-Linear-48B-A3B-Instruct-AWQ-4bit": _geometry(
        "kimi_linear", (20, _KDA), (7, LatentAttention(512, 64))
    ),
    "mistralai/Mistral-Small-4-119B-2603": _geometry("mistral4", (36, LatentAttention(256, 64))),
    "XiaomiMiMo/MiMo-V2-Flash": _geometry(
        "mimo_v2_flash", (39, SlidingAttention(8, 192, window=128, value_head_dim=128)), (9, FullAttention(4, 192, 128))
    ),
    "bitnet2b_2501": _geometry("bitnet", (30, FullAttention(5, 128))),
    "Llama_Nemotron_Ultra": _geometry("deci", (64, FullAttention(8, 128)), (98, NoCache())),
    "multimodal LLM (TP2 doc example)": _geometry("llama", (32, FullAttention(32, 128))),
}
"""Models whose layers are published, but whose config is not here. Both sizes of Gemma 4 follow from the K bytes of
their two pools, MiniCPM5's 24 KiB a token and Mistral Small 4's 23,040 B from the rows of two engines; MiMo's from
its head sizes and the K and V bytes of both its pools; the last three from heads, layers or bytes a token that their
rows state."""

STATED: dict[tuple[str, float], dict[str, Any]] = {
    # (model, a figure of the row that nothing else has): flags
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 36.25): {"draft_tokens": 3, "draft_layers": 1},
    # ^ "5 padding layers": 40 state layers in groups of 9 attention layers, one more than the model's 8
    ("Qwen3.6-27B int4", 8.93): {"draft_tokens": 3, "kv_dtype": "fp8"},  # the same machine's other rows: MTP 3, fp8
    ("Llama-3.1-8B (131072 ctx)", 16.0): {"block_size": 256},  # TPU pages
    ("XiaomiMiMo/MiMo-V2-Flash", 77.63): {"swa_full_tokens_ratio": 1.0},  # "swa size = full size"
    ("openai/gpt-oss-120b", 4.54): {"max_num_batched_tokens": 1024},  # what 4.54 - 4.50 GiB of windows hold
    ("meta-llama/Llama-3.1-8B-Instruct", 122.99): {"max_num_batched_tokens": 131072},  # "a full 131072-token prefill"
    ("nvidia/Gemma-4-31B-IT-NVFP4", 5.97): {"engine_version": "0.21"},  # its tokens are no multiple of a block
    ("google/gemma-4-31B-it", 59.25): {"hybrid_manager": False},  # "hybrid manager disabled"
    ("unknown 24B-32B class", 10.12): {"kv_dtype": "fp8"},
}

GPUS = {
    "A100 80GB": "a100-sxm-80gb", "A100 40GB": "a100-sxm-40gb", "A100-SXM4-40GB": "a100-sxm-40gb",
    "Tesla T4": "t4-16gb", "NVIDIA L4": "l4-24gb", "RTX PRO 6000 Blackwell 96GB": "rtx-pro-6000-96gb",
    "GB10 (DGX Spark, unified 128 GB)": "gb10-128gb", "H100 PCIe 80GB": "h100-pcie-80gb",
    "H100 80GB": "h100-sxm-80gb", "H200 141GB": "h200-141gb", "RTX 3090": "rtx-3090-24gb",
    "RTX 3090 24GB": "rtx-3090-24gb", "RTX 5090": "rtx-5090-32gb", "MI300X": "mi300x-192gb",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One row whose model is known, with the arguments of `engine_capacity` that it states."""

    number: int
    row: dict[str, Any]
    model: Model
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.number:3d} {self.row['engine'][:12]:12s} {self.row['model_id'][:44]:44s}"

    @property
    def pool_rounding_gib(self) -> float:
        """Half of the log's last digit; SGLang prints K and V apart, of both pools, and the row holds their sum."""
        notes = self.row.get("notes", "")
        pools = 2 if self.row["engine"] == "sglang" and ("V " in notes or "= V" in notes) else 1
        return 0.005 * pools * (2 if "SWA pool" in notes else 1)


@cache
def published(name: str, with_quantization: bool = False) -> Model:
    """The model of a config. Its quantization does not change the cache, so that it may be left out."""
    path = DATA / "configs" / (name.replace("community/", "github_").replace("/", "__") + ".json")
    config = json.loads(path.read_text())
    if not with_quantization:
        for part in (config, *(value for value in config.values() if isinstance(value, dict))):
            part.pop("quantization_config", None)
    return import_config(config, dtype="bf16")


def model_of(row: dict[str, Any]) -> Model | None:
    name = row["model_id"]
    if name in GEOMETRY:
        return GEOMETRY[name]
    known = NAMED.get(name) or SAME_GEOMETRY.get(name)
    return published(known) if known else None


def _number(pattern: str, text: str, default: int = 0) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else default


def _settings(row: dict[str, Any]) -> dict[str, Any]:
    notes = row.get("notes", "")
    draft = _number(r"MTP (?:draft tokens )?(\d+)", notes) if row["engine"] == "vllm" else 0
    found: dict[str, Any] = {
        "engine": row["engine"],
        "engine_version": row.get("engine_version") or _release_of(row["date"]),
        "kv_dtype": row.get("kv_cache_dtype", "auto"),
        "tensor_parallel": row.get("tensor_parallel", 1),
        "pipeline_parallel": row.get("pipeline_parallel", 1),
        "max_model_len": row.get("max_model_len"),
        "max_num_batched_tokens": row.get("max_num_batched_tokens") or _default_batch(row),
        "block_size": row.get("block_size"),
        "context_parallel": _number(r"(?:decode context parallel |DCP ?)(\d+)", notes, 1),
    }
    if draft:
        found |= {"draft_tokens": draft, "draft_layers": 1}
    if pools := re.search(r"full tokens (\d+).*SWA tokens (\d+)", notes):
        found["swa_full_tokens_ratio"] = round(int(pools[2]) / int(pools[1]), 4)
    figures = [row.get(key) for key in ("available_kv_gib", "error_needed_gib", "weights_gib", "max_concurrency")]
    for figure in figures:
        found |= STATED.get((row["model_id"], figure), {}) if figure is not None else {}
    return found


def _release_of(date: str) -> str | None:
    """A release of the row's time, where it states no version."""
    for before, version in (("2025-08", "0.9.2"), ("2026-05", "0.11"), ("2026-08", "0.24")):
        if date < before:
            return version
    return None


def _default_batch(row: dict[str, Any]) -> int | None:
    gpu = GPUS.get(row.get("gpu_name", ""))
    return default_batched_tokens(load_gpu(gpu)) if gpu and row["engine"] == "vllm" else None


def cases() -> list[Case]:
    """Every row whose model is known."""
    found = ((number, row, model_of(row)) for number, row in enumerate(ROWS))
    return [Case(number, row, model, _settings(row)) for number, row, model in found if model is not None]


# ------------------------------------------------------------------------------------------------- budgets

CHECKPOINTS = {
    # how the weights of a row are stored, where the row says so and the format is exactly known
    "bitsandbytes-4bit": "bnb_nf4_double_quant", "fp8-block": "fp8_block128", "fp8": "fp8_block128",
}  # fmt: skip
OTHER_CHECKPOINT = {
    24: "an NVFP4 checkpoint of someone else, with a draft head", 25: "as row 24", 26: "as row 24",
    66: "a mixed NVFP4 checkpoint", 80: "an AWQ checkpoint whose layout is not here", 81: "as row 80",
    85: "an AWQ checkpoint whose layout is not here", 86: "as row 85", 93: "a fork's formats",
    105: "an AWQ checkpoint whose layout is not here",
    150: "DeepSeek V4, whose figure of weights includes the CUDA context",
}  # fmt: skip
"""Rows left out of the budget: their weights cannot be told from the model and the flags."""
BUSY = {75: "the GPU's memory was held by others when it started", 76: "as row 75"}
"""Rows left out of the budget: what they had was not what the GPU has."""


def weight_dtype(row: dict[str, Any]) -> str | None:
    """The row's weights as `weight_dtype`; None: as the config publishes them."""
    quantization = row.get("quantization")
    if quantization is None:
        return {"bfloat16": "bf16", "float16": "fp16", None: None}[row.get("dtype")]
    return CHECKPOINTS.get(quantization)


def budget_cases() -> list[Case]:
    """Rows that state their GPU and the memory fraction, and whose weights and pool are known."""
    needed = {"available_kv_gib", "gpu_memory_utilization"}
    left_out = OTHER_CHECKPOINT.keys() | BUSY.keys()
    known = [case for case in cases() if case.model.weights and case.number not in left_out]
    found = [case for case in known if needed <= case.row.keys()]
    return [case for case in found if case.row.get("gpu_name") in GPUS and case.row["engine"] in ("vllm", "sglang")]


def other_checkpoints() -> list[Case]:
    """Rows whose weights cannot be told from the model and the flags, but are printed."""
    needed = {"available_kv_gib", "gpu_memory_utilization", "weights_gib"}
    found = [case for case in cases() if case.number in OTHER_CHECKPOINT and case.model.weights]
    return [case for case in found if needed <= case.row.keys()]
