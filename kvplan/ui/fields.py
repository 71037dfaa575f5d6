"""The scenario's fields as the pages show them: one table drives widget keys, defaults, addresses and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.share import YES_NO
from kvplan.sweep import AS_PUBLISHED
from kvplan.units import format_tokens, parse_bytes, parse_count

AS_TRAINED = "as trained"
NO_DRAFT = "none"
CONTEXTS = ("1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k", "1m")
GPU_COUNTS = ("1", "2", "4", "8", "16")


class Field(NamedTuple):
    """One setting of the scenario.

    key      widget key and parameter of the address: the same as in a link
    setting  the keyword of `Scenario`
    label    what stands beside the widget
    help     what it means
    default  the widget's constant first value: what version 1 of a link means by a missing key
    read     widget value -> setting; raises KvplanError
    write    setting -> widget value
    """

    key: str
    setting: str
    label: str
    help: str
    default: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _context_text(value: int) -> str:
    text = format_tokens(value).lower()
    return text if text in CONTEXTS else str(value)


def _read_context(text: str | None) -> int:
    return parse_count(text or "", "the context length", 1)


def _read_gpus(text: str | None) -> int:
    return parse_count(text or "", "the number of GPUs", 1)


def _read_heads(text: str | None) -> int | None:
    return None if text == AS_TRAINED else parse_count(text or "", "the number of KV heads", 1)


def _read_weights(text: str | None) -> str | None:
    return None if text == AS_PUBLISHED else text or ""


def _read_overhead(text: str) -> int | None:
    return parse_bytes(text, "the overhead") if text.strip() else None


def _read_images(text: str) -> int:
    return parse_count(text, "the image tokens")


def _read_prefix(text: str) -> int:
    return parse_count(text, "the shared prefix")


def _read_adapters(text: str) -> int:
    return parse_bytes(text, "the adapters")


def _read_number(value: int | None) -> int:
    if value is None:
        raise InputError("a number is missing; give a whole number from 1 up")
    return value


def _read_fraction(value: float | None) -> float:
    """Without the dust of binary fractions: the browser's own steps leave 0.8500000000000001."""
    if value is None:
        raise InputError("the memory fraction is missing; give a number above 0 and up to 1")
    return round(value, 9)


def _text(value: int) -> str:
    return str(value)


def _text_or(word: str) -> Callable[[Any], str]:
    return lambda value: word if value is None else str(value)


FIELDS: dict[str, Field] = {
    field.key: field
    for field in (
        Field("model", "model", "Model", "A published model, or one of your own.", "llama-3.1-8b", _same, _same),
        Field("gpu", "gpu", "GPU", "The accelerator; its usable memory counts.", "h100-sxm-80gb", _same, _same),
        Field(
            "tp",
            "tensor_parallel",
            "Number of GPUs",
            "They share every layer (tensor parallelism). With pipeline stages: the GPUs of each stage.",
            "1",
            _read_gpus,
            _text,
        ),
        Field(
            "ctx",
            "context_length",
            "Context length",
            "Prompt and answer of one sequence together, in tokens: 32k, 32768. It is a capacity, one token more "
            "than a finished answer leaves in the cache.",
            "8k",
            _read_context,
            _context_text,
        ),
        Field("batch", "batch_size", "Batch: sequences at once", "Held in memory together.", 8, _read_number, _same),
        Field(
            "kv",
            "kv_dtype",
            "KV cache precision",
            "Keys and values apart as in q8_0/q4_0.",
            "bf16",
            lambda text: text or "",
            _same,
        ),
        Field(
            "weights",
            "weight_dtype",
            "Weight precision",
            "Scales and zero points are counted.",
            AS_PUBLISHED,
            _read_weights,
            _text_or(AS_PUBLISHED),
        ),
        Field(
            "heads",
            "num_kv_heads",
            "KV heads",
            "Another number is a training decision: a trained model cannot be converted for free.",
            AS_TRAINED,
            _read_heads,
            _text_or(AS_TRAINED),
        ),
        Field(
            "pp",
            "pipeline_parallel",
            "× stages",
            "Pipeline stages: each holds a part of the layers, on GPUs of its own.",
            1,
            _read_number,
            _same,
        ),
        Field(
            "dp",
            "data_parallel",
            "Replicas (data parallelism)",
            "They share the batch, each with weights and cache of its own; only routed experts are shared by all.",
            1,
            _read_number,
            _same,
        ),
        Field(
            "ep",
            "expert_parallel",
            "Experts stay whole (expert parallelism)",
            "Each GPU holds some routed experts whole; else every expert is cut over the GPUs of all replicas.",
            YES_NO[False],
            lambda text: text == YES_NO[True],
            lambda value: YES_NO[value],
        ),
        Field(
            "fraction",
            "memory_fraction",
            "Part of the memory that the engine may use",
            "vLLM calls it gpu_memory_utilization; what it leaves counts as overhead.",
            0.9,
            _read_fraction,
            _same,
        ),
        Field(
            "overhead",
            "overhead_bytes",
            "Run-time overhead on each GPU",
            "Activations, CUDA context and graphs, such as 2.5GiB. Empty: a typical value, marked as an estimate.",
            "",
            _read_overhead,
            _text_or(""),
        ),
        Field(
            "images",
            "image_tokens",
            "Image tokens of each sequence",
            "They stand in the cache beside the text.",
            "0",
            _read_images,
            _text,
        ),
        Field(
            "prefix",
            "shared_prefix",
            "Shared prompt prefix",
            "First tokens that all prompts have in common, held once for all sequences.",
            "0",
            _read_prefix,
            _text,
        ),
        Field(
            "adapters",
            "adapter_bytes",
            "Adapters on each GPU",
            "Bytes of all resident LoRA adapters, such as 300MiB.",
            "0",
            _read_adapters,
            _text,
        ),
        Field(
            "draft",
            "draft_model",
            "Draft model",
            "For speculative decoding: its weights and its cache on the same GPUs.",
            NO_DRAFT,
            _same,
            _text_or(NO_DRAFT),
        ),
    )
}
"""Every field by its key, in the order of the sidebar."""


SETTING_LABELS: dict[str, str] = {field.setting: field.label for field in FIELDS.values() if "_" in field.setting}
"""Label of each setting by its keyword of `Scenario`, for messages."""


def widget_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Widget values for settings of a `Scenario`; what is not given gets its default."""
    return {
        field.key: field.write(settings[field.setting]) if field.setting in settings else field.default
        for field in FIELDS.values()
    }
