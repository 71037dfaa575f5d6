"""What an engine cannot do, as a sentence: cache dtypes that it has not, and ways over GPUs that it does not know.

Asked before anything is counted, so that no figure ever stands beside a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.dtypes import KvDtype, Scale, StorageFormat
from kvplan.engines.capacity import compute_dtype, parse_version
from kvplan.engines.llamacpp import CACHE_TYPES
from kvplan.errors import InputError, shorten
from kvplan.model import ROLES, Model, Placement, WeightGroup, as_weight_format
from kvplan.units import counted

LABELS = {
    "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "ollama": "Ollama", "ik_llama.cpp": "ik_llama.cpp",
    "tensorrt-llm": "TensorRT-LLM", "transformers": "transformers",
    "transformers-static": "transformers, static cache",
}  # fmt: skip
"""The word for each engine on a page and in a sentence."""

LLAMACPP = frozenset({"llama.cpp", "ollama", "ik_llama.cpp"})
TRANSFORMERS = frozenset({"transformers", "transformers-static"})

_LLAMACPP_WORDS = {ours: theirs for theirs, ours in CACHE_TYPES.items()}
PLAIN_WORDS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}

CACHE_WORDS: dict[str, dict[str, str]] = {
    "vllm": {
        "bf16": "bfloat16", "fp16": "float16", "fp8": "fp8", "nvfp4": "nvfp4",
        "int8_per_token_head": "int8_per_token_head", "fp8_per_token_head": "fp8_per_token_head",
        "int4_per_token_head": "int4_per_token_head",
    },
    "sglang": {"bf16": "bf16", "fp8": "fp8_e4m3", "nvfp4": "fp4_e2m1"},
    "tensorrt-llm": {"fp8": "fp8"},
    "llama.cpp": _LLAMACPP_WORDS,
    "ik_llama.cpp": _LLAMACPP_WORDS,
    "ollama": {"fp16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"},
    "transformers": PLAIN_WORDS,
    "transformers-static": PLAIN_WORDS,
}  # fmt: skip
"""Cache dtypes of each engine by kvplan's name, in the engine's own word."""

NOT_LATENT = {
    "vllm": frozenset({"nvfp4", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"}),
}
"""Cache dtypes that an engine has for keys and values of heads only, not for latent rows."""

_LAST_WITHOUT = (0, 16)
"""The newest vLLM that is known to have none of the cache dtypes below (docs.vllm.ai, v0.16.0, vllm.config.cache)."""

FIRST_KNOWN: dict[str, tuple[int, int]] = {
    "nvfp4": (0, 25),  # github.com/vllm-project/vllm/issues/49011
    **dict.fromkeys(("int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"), (0, 33)),
}
"""Cache dtypes that vLLM has not always had: the oldest version that is known to have each."""

APART = frozenset({"llama.cpp", "ik_llama.cpp"})
"""Engines that store K and V each in a type of its own."""

AS_COMPUTED = frozenset({"vllm", "sglang", "tensorrt-llm"})
"""Engines whose usual cache has the dtype that the model is computed in, whichever that is."""

UNDIVIDED_ROLES = frozenset({"mlp", "routed_experts", "shared_experts"})
"""Weights that an engine cuts as they are; an embedding or a head is filled up before it is cut."""


def default_cache_dtype(engine: str, model: Model) -> str:
    """The cache dtype that the engine uses where none is asked for, by kvplan's name."""
    if engine == "vllm" and _is_compressed(model):
        return "fp8"
    return "fp16" if engine in LLAMACPP else compute_dtype(model).name


def _is_compressed(model: Model) -> bool:
    """Whether any layer compresses its cache, which vLLM pages in 8 bits only."""
    return any(layer.cache.kind == "compressed" for layer, _ in model.layer_runs)


def cache_dtypes(engine: str, model: Model) -> tuple[str, ...]:
    """Every cache dtype that the engine has for `model`, by kvplan's name; its default first."""
    if engine == "vllm" and _is_compressed(model):
        return ("fp8",)
    latent = any(layer.cache.kind.endswith("latent") for layer, _ in model.layer_runs)
    left_out = NOT_LATENT.get(engine, frozenset()) if latent else frozenset()
    names = dict.fromkeys([default_cache_dtype(engine, model), *CACHE_WORDS[engine]])
    return tuple(name for name in names if name not in left_out)


def why_no_cache(engine: str, model: Model, kv: KvDtype, version: str | None = None) -> str:
    """Why the engine cannot keep a cache in `kv`, or "".

    version  as the engine prints it; None: the newest. Only vLLM's cache dtypes are known by version
    """
    parts = kv.name.split("/")
    has = cache_dtypes(engine, model)
    listed = f"choose {has[0]}, its default" + (f", or {', '.join(has[1:])}" if has[1:] else "")
    if len(parts) > 1 and engine not in APART:
        return f"{LABELS[engine]} stores K and V alike, and the plan asks for {kv.name}; {listed}"
    missing = next((part for part in parts if part not in has), None)
    if missing is None:
        return _why_not_yet(kv.name, version, has[0]) if engine == "vllm" and version is not None else ""
    if engine in TRANSFORMERS:
        label = LABELS[engine]
        return f"{label} keeps its cache in the dtype that the model is computed in, never {missing}; {listed}"
    return f"{LABELS[engine]} has no cache dtype {missing}; {listed}"


def _why_not_yet(name: str, version: str, default: str) -> str:
    """Why a vLLM of this version is not known to have a cache dtype that newer ones have, or ""."""
    known = FIRST_KNOWN.get(name, (0, 0))
    here = parse_version(version, known)
    if here >= known:
        return ""
    oldest, last = (".".join(map(str, pair)) for pair in (known, _LAST_WITHOUT))
    if here[:2] <= _LAST_WITHOUT:
        return f"vLLM {shorten(version)} has no cache dtype {name}, new after {last}; choose {default}, its default"
    return (
        f"whether vLLM {shorten(version)} has the cache dtype {name} is not known: {last} has not, {oldest} has; "
        f"choose {default}, its default, or fp8"
    )


def why_not_placed(engine: str, placement: Placement) -> str:
    """Why the engine cannot spread a model over GPUs so, or ""."""
    if engine in LLAMACPP | TRANSFORMERS and (placement.data_parallel > 1 or placement.expert_parallel):
        return f"{LABELS[engine]} has neither data nor expert parallelism; start one server for each replica"
    if engine in TRANSFORMERS and placement.pipeline_parallel > 1:
        return f"{LABELS[engine]} has no pipeline stages; set pipeline_parallel to 1, or choose another engine"
    if engine == "tensorrt-llm" and placement.data_parallel > 1:
        return "TensorRT-LLM takes data parallelism from a file of options, not planned here; set data_parallel to 1"
    return ""


def why_not_cut(engine: str, model: Model, weight_dtype: str | None, placement: Placement) -> str:
    """Why the engine cannot cut the weights over the GPUs, or "": rows that do not divide, tiles that would be cut."""
    if engine not in AS_COMPUTED:
        return ""
    wanted = as_weight_format(weight_dtype)
    groups = dict.fromkeys(group for group, _ in model.all_groups)
    found = (_cut_sentence(engine, group, model.storage_of(group, wanted), placement) for group in groups)
    return next((sentence for sentence in found if sentence), "")


def _cut_sentence(engine: str, group: WeightGroup, storage: StorageFormat, placement: Placement) -> str:
    cut, label = placement.held(group, group.count)[1], ROLES[group.role].label
    divided = {"rows": group.rows, "columns": group.columns}.get(group.split, cut)
    if divided % cut and group.role in UNDIVIDED_ROLES:
        return (
            f"{LABELS[engine]} does not start: {divided:,} {group.split} of {label} do not divide by "
            f"{counted(cut, 'GPU')}"
        )
    rows, columns = group.shape_per_gpu(cut)
    for scale in _tiles(storage) if cut > 1 and columns > 1 else ():
        size, tile = (columns, scale.columns) if group.split == "columns" else (rows, scale.rows)
        if group.split != "copied" and tile and size % tile:
            return (
                f"{LABELS[engine]} does not start: {label} in {storage.name} would be cut to {size:,} rows or columns "
                f"on each of {counted(cut, 'GPU')}, which does not divide by its blocks of {tile}; use fewer GPUs, or "
                "expert_parallel"
            )
    return ""


def _tiles(storage: StorageFormat) -> Iterator[Scale]:
    """Scales of blocks that span rows and columns: such a block cannot be cut."""
    for scale in storage.scales:
        if isinstance(scale, Scale) and scale.rows > 1 and scale.columns > 1:
            yield scale


def require_cache_dtype(engine: str, model: Model, kv: KvDtype, version: str | None = None) -> None:
    """Raise InputError where the engine, in that version, cannot keep a cache in `kv`."""
    if why := why_no_cache(engine, model, kv, version):
        raise InputError(why)


def require_placed(engine: str, placement: Placement) -> None:
    """Raise InputError where the engine cannot spread a model over GPUs so."""
    if why := why_not_placed(engine, placement):
        raise InputError(why)


def require_cut(engine: str, model: Model, weight_dtype: str | None, placement: Placement) -> None:
    """Raise InputError where the engine cannot cut the weights so."""
    if why := why_not_cut(engine, model, weight_dtype, placement):
        raise InputError(why)
