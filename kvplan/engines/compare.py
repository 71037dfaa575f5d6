"""A log beside the rules: line by line what agrees, what differs by how much, and the likeliest reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.llamacpp import CACHE_TYPES, OLDER_PAD, PAD, KvBytes, kv_bytes
from kvplan.engines.log import LogFigures, Number, requested_bytes
from kvplan.engines.registry import engine_capacity
from kvplan.errors import InputError, KvplanError
from kvplan.hardware import Gpu
from kvplan.model import Model, Placement
from kvplan.units import counted, format_bytes


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the log beside kvplan's.

    label    what it is
    printed  the log's figure
    planned  kvplan's; None where it cannot be said, then `reason` says why
    unit     bytes, tokens, blocks or times
    agrees   within the rounding of the log
    reason   the likeliest one where it does not agree, else ""
    """

    label: str
    printed: Number
    planned: Number | None
    unit: str
    agrees: bool
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """planned over printed less one, or None."""
        return None if self.planned is None or not self.printed else self.planned / self.printed - 1

    def as_text(self, value: Number | None) -> str:
        """A figure of this line in words."""
        if value is None:
            return "not known"
        if self.unit == "bytes":
            return format_bytes(round(value))
        return f"{value:,.2f}x" if self.unit == "times" else f"{round(value):,}"


def compare(figures: LogFigures, model: Model, gpu: Gpu | None = None, **settings: Any) -> tuple[Line, ...]:
    """Every figure of the log that the rules can predict, beside the prediction.

    settings  arguments of `engine_capacity` that the log does not state, such as kv_dtype or draft_layers

    Raises InputError where the text was no log. A figure that cannot be predicted is a line that says why.
    """
    if figures.engine is None:
        raise InputError(f"there is nothing to compare: {figures.note}")
    return (*_memory_lines(figures, model, gpu, settings), *_COMPARED[figures.engine](figures, model, settings))


def log_settings(figures: LogFigures, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `engine_capacity` as the log states them; what is `given` counts more."""
    stated: dict[str, Any] = {"engine": figures.engine, "engine_version": _engine_version(figures)}
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        stated[name] = figures.count(name) or 1
    for name in ("max_model_len", "max_num_batched_tokens", "block_size"):
        stated[name] = figures.count(name)
    stated["kv_dtype"] = figures.text("kv_dtype") or "auto"
    if (ratio := figures.number("swa_full_tokens_ratio")) is not None:
        stated["swa_full_tokens_ratio"] = ratio
    return {**stated, **given}


def _engine_version(figures: LogFigures) -> str | None:
    """As printed; a vLLM log that counts its blocks and states no version is one of the older engine (V0)."""
    if figures.engine != "vllm":
        return None
    return figures.text("version") or ("0.8" if "num_blocks" in figures.values else None)


# --------------------------------------------------------------------------------------------------------- memory


def _memory_lines(figures: LogFigures, model: Model, gpu: Gpu | None, given: Mapping[str, Any]) -> Iterator[Line]:
    if gpu is not None and (total := figures.count("total_bytes")) is not None:
        reason = "another GPU, or a share of one" if abs(gpu.usable_bytes / total - 1) > 0.03 else ""
        yield Line("usable memory", total, gpu.usable_bytes, "bytes", not reason, reason)
    if (printed := figures.count("weight_bytes")) is not None:
        yield _weight_line(printed, figures, model, given)
    if (balance := _balance_line(figures)) is not None:
        yield balance


def _weight_line(printed: int, figures: LogFigures, model: Model, given: Mapping[str, Any]) -> Line:
    try:
        shards = model.shards("bf16", None, _placement(figures, log_settings(figures, given)))
    except KvplanError as error:
        return Line("weights", printed, None, "bytes", False, str(error))
    planned = max(shard.weight_bytes for shard in shards)
    off = printed / planned - 1
    agrees = abs(off) <= 0.03
    return Line("weights", printed, planned, "bytes", agrees, "" if agrees else _weight_reason(off))


def _placement(figures: LogFigures, settings: Mapping[str, Any]) -> Placement:
    return Placement(
        settings["tensor_parallel"],
        settings["pipeline_parallel"],
        figures.count("data_parallel") or 1,
        figures.text("expert_parallel") is not None,
    )


def _weight_reason(off: float) -> str:
    if off < -0.4:
        return "the checkpoint that was loaded is quantized more than this description"
    if off > 0.8:
        return "the checkpoint that was loaded is wider than this description, or tensor parallelism is not divided"
    if off > 0:
        return "adapters, a draft head or a tower that the description does not count, or buffers of the kernels"
    return "the engine leaves a tower or a head out, or part of it lies on the CPU"


def _balance_line(figures: LogFigures) -> Line | None:
    """vLLM's own identity: requested bytes less weights, activation and context are the pool."""
    requested, pool = requested_bytes(figures), figures.count("pool_bytes")
    weights, activation, context = (figures.count(f"{name}_bytes") for name in ("weight", "activation", "non_torch"))
    consumed = figures.count("consumed_bytes")  # newer vLLM counts weights and context together
    if consumed is None and weights is not None and context is not None:
        consumed = weights + context
    if requested is None or pool is None or consumed is None or activation is None:
        return None
    planned = requested - consumed - activation
    agrees = abs(planned - pool) <= requested // 100
    graphs = figures.count("cuda_graph_bytes")
    counted = graphs is not None and abs(planned - graphs - pool) <= requested // 100
    reason = "CUDA graphs are taken out of the pool as well (vLLM from 0.21)" if counted else "memory held by others"
    return Line("pool from the log's own parts", pool, planned, "bytes", agrees, "" if agrees else reason)


# ----------------------------------------------------------------------------------------------- vLLM and SGLang


def _pool_names(figures: LogFigures) -> tuple[str, ...]:
    """The figures that make the pool: SGLang prints K and V, or latent rows, or both pools of a window model."""
    ways = (("pool_bytes",), ("window_pool_bytes",), ("k_bytes", "v_bytes"), ("latent_bytes",))
    return next((names for names in ways if all(name in figures.values for name in names)), ())


def _pool_bytes(figures: LogFigures) -> int | None:
    names = _pool_names(figures)
    return sum(figures.count(name) or 0 for name in names) if names else None


def _pool_slack(figures: LogFigures) -> int:
    return sum(figures.digits[name] for name in _pool_names(figures))


def _paged_lines(figures: LogFigures, model: Model, given: Mapping[str, Any]) -> Iterator[Line]:
    settings, pool = log_settings(figures, given), _pool_bytes(figures)
    if pool is None:
        yield from _lines_without_pool(figures, model, settings)
        return
    slack = _pool_slack(figures)
    try:
        answers = [engine_capacity(model, pool_bytes=max(0, pool + step), **settings) for step in (-slack, 0, slack)]
    except KvplanError as error:
        yield Line("cache size", figures.number("tokens") or 0, None, "tokens", False, str(error))
        return
    if (printed := figures.count("tokens")) is not None:
        yield _token_line(printed, answers, figures, model, settings)
    yield from _pool_lines(figures, answers)
    yield from _refusal_lines(figures, answers)


def _lines_without_pool(figures: LogFigures, model: Model, settings: Mapping[str, Any]) -> Iterator[Line]:
    """Tokens or blocks whose bytes the log does not say: no figure to compare, but the bytes that they take."""
    label, unit = ("cache size", "tokens") if "tokens" in figures.values else ("GPU blocks", "blocks")
    if (printed := figures.count("tokens") or figures.count("num_blocks")) is None:
        return
    try:
        reason = f"the log does not say of how many bytes: {_bytes_taken(figures, model, settings)}"
    except KvplanError as error:
        reason = str(error)
    yield Line(label, printed, None, unit, False, reason)


def _bytes_taken(figures: LogFigures, model: Model, settings: Mapping[str, Any]) -> str:
    found = engine_capacity(model, pool_bytes=0, **settings)
    if (blocks := figures.count("num_blocks")) is not None:
        size = blocks * found.bytes_per_block
    elif (times := figures.number("max_concurrency")) is not None:
        size = round(times * found.needed_bytes)
    else:
        size = -(-(figures.count("tokens") or 0) // found.block_size) * found.bytes_per_block
    return f"of this model they take {format_bytes(size)} on each GPU"


def _pool_lines(figures: LogFigures, answers: list[EngineCapacity]) -> Iterator[Line]:
    low, middle, high = answers
    if (blocks := figures.count("num_blocks")) is not None:
        agrees = low.num_blocks - 1 <= blocks <= high.num_blocks + 1
        reason = "" if agrees else "another page: see the cache size"
        yield Line("GPU blocks", blocks, middle.num_blocks, "blocks", agrees, reason)
    if (times := figures.number("max_concurrency")) is not None:
        agrees = low.max_concurrency - 0.01 <= times <= high.max_concurrency + 0.01
        reason = "" if agrees else "more or fewer tokens in flight, or states for a draft or cached prefixes"
        yield Line("requests at once", times, middle.max_concurrency, "times", agrees, reason)


def _refusal_lines(figures: LogFigures, answers: list[EngineCapacity]) -> Iterator[Line]:
    """What a start that was refused says."""
    low, middle, high = answers
    if (needed := figures.count("needed_bytes")) is not None:
        agrees = abs(middle.needed_bytes - needed) <= figures.digits["needed_bytes"]
        reason = "" if agrees else "another length, cache dtype or number of tokens in flight"
        yield Line("bytes that one request needs", needed, middle.needed_bytes, "bytes", agrees, reason)
    if (longest := figures.count("estimated_max_len")) is not None:
        agrees = (low.longest_context or 0) <= longest <= (high.longest_context or longest)
        reason = "" if agrees else "another block size"
        yield Line("longest request", longest, middle.longest_context, "tokens", agrees, reason)


def _token_line(
    printed: int, answers: list[EngineCapacity], figures: LogFigures, model: Model, settings: Mapping[str, Any]
) -> Line:
    planned = answers[1].tokens
    agrees = answers[0].tokens <= printed <= answers[2].tokens
    reason = "" if agrees else _token_reason(printed, figures, model, settings)
    return Line("cache size", printed, planned, "tokens", agrees, reason)


_OTHER_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the cache is 8 bits wide", {"kv_dtype": "fp8"}),
    ("the cache is 16 bits wide", {"kv_dtype": "bf16"}),
    ("a draft head adds a layer", {"draft_layers": 1}),
    ("a draft head adds a layer and three states", {"draft_layers": 1, "draft_tokens": 3}),
    ("window layers are paged like full attention", {"hybrid_manager": False}),
    ("states are cached for prefixes", {"prefix_caching": True}),
    ("states are not cached for prefixes", {"prefix_caching": False}),
    ("the line is printed by the older rule", {"engine_version": "0.20"}),
    ("the line is printed by the newer rule", {"engine_version": "0.21"}),
    ("blocks of 64 tokens", {"block_size": 64}),
    *((f"sequences are spread over {counted(count, 'GPU')}", {"context_parallel": count}) for count in (2, 4, 8)),
    *((f"tensor parallelism is {count}", {"tensor_parallel": count}) for count in (1, 2, 4, 8)),
)
"""What logs most often do not say: each is tried, and the first that gives the printed figure is the likeliest."""


def _token_reason(printed: int, figures: LogFigures, model: Model, settings: Mapping[str, Any]) -> str:
    pool, slack = _pool_bytes(figures) or 0, _pool_slack(figures)
    for reason, change in _OTHER_SETTINGS:
        try:
            low, high = (
                engine_capacity(model, pool_bytes=pool + step, **{**settings, **change}) for step in (-slack, slack)
            )
        except KvplanError:
            continue  # this change is not one that the model or the engine has
        if low.tokens <= printed <= high.tokens:
            return f"{reason}: that gives the printed figure"
    return "another model than the one compared, or a rank with less memory than the one whose pool is printed"


# ------------------------------------------------------------------------------------------------------ llama.cpp


def _llamacpp_lines(figures: LogFigures, model: Model, given: Mapping[str, Any]) -> Iterator[Line]:
    context = figures.count("n_ctx")
    if context is None:
        return
    options = _llamacpp_options(figures, given)
    try:
        planned = kv_bytes(model, context, **options)
    except KvplanError as error:
        yield Line("KV cache", figures.number("kv_bytes") or 0, None, "bytes", False, str(error))
        return
    for name, label in (("k_bytes", "keys"), ("v_bytes", "values"), ("kv_bytes", "KV cache"),
                        ("r_bytes", "convolution state"), ("s_bytes", "recurrent state")):  # fmt: skip
        if (printed := figures.count(name)) is not None:
            size = getattr(planned, name)
            agrees = abs(size - printed) <= 2 * figures.digits[name]
            reason = "" if agrees else _llamacpp_reason(name, printed, context, model, options)
            yield Line(label, printed, size, "bytes", agrees, reason)


def _llamacpp_options(figures: LogFigures, given: Mapping[str, Any]) -> dict[str, Any]:
    type_k = figures.text("type_k") or "f16"
    stated: dict[str, Any] = {
        "type_k": type_k if type_k in CACHE_TYPES else "f16",
        "type_v": figures.text("type_v") or type_k,
        "slots": figures.count("slots") or 1,
        "unified": figures.text("unified") == "true",
        "ubatch": figures.count("ubatch") or 512,
        "swa_full": "swa_full" in figures.values,
        "pad": PAD if (figures.count("n_ctx") or 0) % PAD == 0 else OLDER_PAD,
    }
    if "older" in figures.values:  # builds that say "KV self size" have no pool for windows
        stated |= {"swa_full": True, "pad": OLDER_PAD}
    return {**stated, **given}


_LLAMACPP_CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("window layers keep every cell (--swa-full, or an older build)", {"swa_full": True}),
    ("cells are padded to 32 (an older build)", {"pad": OLDER_PAD}),
    ("window layers keep their window and a micro-batch", {"swa_full": False}),
    ("window layers keep every cell, padded to 32 (an older build)", {"swa_full": True, "pad": 32}),
    ("K and V of every head are kept, not the latent rows", {"latent": False, "pad": 32}),
)


def _llamacpp_reason(name: str, printed: int, context: int, model: Model, options: Mapping[str, Any]) -> str:
    for reason, change in _LLAMACPP_CHANGES:
        try:
            made: KvBytes = kv_bytes(model, context, **{**options, **change})
        except KvplanError:
            continue
        if abs(getattr(made, name) - printed) <= printed // 10_000:
            return f"{reason}: that gives the printed figure"
    return "another model than the one compared, or part of the cache is not in this line"


_COMPARED = {
    "vllm": _paged_lines, "sglang": _paged_lines, "tensorrt-llm": _paged_lines, "llama.cpp": _llamacpp_lines,
}  # fmt: skip
