"""A pasted start-up log -> figures: what an engine says about its memory, whatever else the text holds.

One table says which words carry which figure. A figure that several ranks print is taken from the rank that limits
the engine: the smallest pool, the largest weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvplan.engines.capacity import parse_version
from kvplan.engines.overheads import COUNTS_GRAPHS, Overhead, measured
from kvplan.engines.support import LABELS
from kvplan.errors import InputError, quoted
from kvplan.units import GIB, MIB

MAX_LOG_BYTES = 5 * 10**6
MAX_LINE = 20_000
"""Characters of one line that are read; argument dumps stay far below it."""

SHORTEST = 8
"""Characters that a line with a figure has at least."""

Number = int | float
Value = Number | str

_NUMBER = r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?)"
_DEVICE = r"\b(?:CUDA|ROCm|HIP|Vulkan|MTL|Metal|SYCL|CANN|MUSA)"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class LogFigures:
    """What a log says. `values` holds only what was found; bytes are ints, rounded as the log rounds.

    engine   vllm, sglang, llama.cpp or tensorrt-llm; None where the text is no start-up log that is known here
    values   by name, see FIGURES: sizes in bytes end in _bytes
    digits   for each size, the bytes that half of its last printed digit stands for
    note     a sentence for a person: what was recognised
    """

    engine: str | None
    values: Mapping[str, Value]
    digits: Mapping[str, int] = field(default_factory=dict)
    note: str = ""

    def number(self, name: str) -> Number | None:
        """A figure that is a number, or None where the log does not say it."""
        value = self.values.get(name)
        return None if isinstance(value, str) else value

    def count(self, name: str) -> int | None:
        value = self.number(name)
        return None if value is None else int(value)

    def text(self, name: str) -> str | None:
        """A figure that is text, or None where the log does not say it."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way in which an engine prints one figure.

    engine  whose words these are
    name    of the figure
    words   a regular expression whose first group is the figure
    needle  a text that every match holds: looked for first, which is far quicker
    unit    bytes of the printed unit; 0: a plain number; None: text
    pick    which of several: of the ranks, or of repeated starts
    """

    engine: str
    name: str
    words: re.Pattern[str]
    needle: str
    unit: int | None
    pick: Callable[[Sequence[Value]], Value]


def _last(values: Sequence[Value]) -> Value:
    return values[-1]


def _first(values: Sequence[Value]) -> Value:
    return values[0]


def _numbers(values: Sequence[Value]) -> list[Number]:
    return [value for value in values if not isinstance(value, str)]


def _least(values: Sequence[Value]) -> Value:
    return min(_numbers(values))


def _most(values: Sequence[Value]) -> Value:
    return max(_numbers(values))


def _total(values: Sequence[Value]) -> Value:
    return sum(_numbers(values))


def _compiled(words: str) -> re.Pattern[str]:
    return re.compile(words.replace("NUM", _NUMBER).replace("DEVICE", _DEVICE))


_OPTIONAL = re.compile(r"\\.[?*+]?|\[[^\]]*\][?*+]?|.[?*]|NUM|DEVICE|[.^$+]")


def needle_of(words: str) -> str:
    """The longest text that stands in every match of `words`, "" where there is none."""
    plain = words
    while (shorter := re.sub(r"(?<!\\)\((?:[^()\\]|\\.)*(?<!\\)\)[?*+]?", "\0", plain)) != plain:
        plain = shorter
    return "" if "|" in plain else max(_OPTIONAL.sub("\0", plain).split("\0"), key=len)


def _table(
    engine: str, unit: int | None, pick: Callable[[Sequence[Value]], Value], rows: Mapping[str, str]
) -> list[Pattern]:
    return [
        Pattern(engine, name.partition("#")[0], _compiled(words), needle_of(words), unit, pick)
        for name, words in rows.items()
    ]


_VLLM = [
    *_table("vllm", GIB, _most, {
        "weight_bytes": r"odel (?:loading|weights) (?:took|take) NUM ?Gi?B",
        "weight_bytes#2": r"Loading model weights took NUM GB",
        "weight_bytes#3": r"Actual usage is NUM ?GiB for weight,",
        "consumed_bytes": r"Actual usage is NUM GiB for consumed memory",
        "activation_bytes": r"PyTorch activation peak memory takes NUM ?GiB",
        "activation_bytes#2": r"NUM GiB for peak activation",
        "non_torch_bytes": r"non_torch_memory takes NUM ?GiB",
        "non_torch_bytes#2": r"NUM GiB for non-torch memory",
        "cuda_graph_bytes": r"Graph capturing finished in [\d.]+ secs?, took NUM ?GiB",
        "cuda_graph_bytes#2": r"NUM ?GiB for CUDA ?[Gg]raph memory",
        "cuda_graph_bytes#3": r"CUDA graph pool memory: NUM GiB \(actual\)",
        "cuda_graph_estimate_bytes": r"CUDA graph pool memory: [\d.]+ GiB \(actual\), NUM GiB \(estimated\)",
        "non_torch_bytes#3": r"non_torch_memory=NUM ?GiB",
        "total_bytes": r"total_gpu_memory \(NUM ?GiB\)",
        "total_bytes#2": r"Free memory on device (?:\S+ )?\([\d.]+/NUM GiB\)",
        "total_bytes#3": r"total_gpu_memory=NUM ?GiB",
        "needed_bytes": r"\(NUM GiB KV cache is needed",
    }),
    *_table("vllm", GIB, _least, {
        "pool_bytes": r"Available KV cache memory: NUM GiB",
        "pool_bytes#2": r"reserved for KV Cache is NUM ?GiB",
        "pool_bytes#3": r"available KV cache memory \(NUM GiB\)",
        "pool_bytes#4": r"\bkv_cache_size=NUM ?GiB",
        "pool_bytes#5": r"[Cc]urrent kv cache memory in use is NUM ?GiB",
        "free_bytes": r"Free memory on device (?:\S+ )?\(NUM/[\d.]+ GiB\)",
        "requested_bytes": r"Desired GPU memory utilization is \([\d.]+, NUM GiB\)",
    }),
    *_table("vllm", 1, _least, {
        "pool_bytes#6": r"[Cc]urrent kv cache memory in use is NUM bytes",
    }),
    *_table("vllm", 0, _least, {
        "tokens": r"GPU KV cache size: NUM tokens",
        "tokens#2": r"maximum number of tokens that can be stored in KV cache \(NUM\)",
        "num_blocks": r"# (?:GPU|cuda|CUDA) blocks: NUM",
        "max_concurrency": r"Maximum concurrency for [\d,]+ tokens per request: NUM ?x",
    }),
    *_table("vllm", 0, _last, {
        "max_model_len": r"Maximum concurrency for NUM tokens per request",
        "max_model_len#2": r"max seq len \(NUM\)",
        "max_model_len#3": r"\bmax_(?:seq|model)_len['\"]?[=:] ?NUM",
        "estimated_max_len": r"estimated maximum model length is NUM",
        "block_size": r"[Ss]etting attention block size to NUM tokens",
        "block_size#2": r"\bblock_size['\"]?[=:] ?NUM",
        "padding_layers": r"Add NUM padding layers",
        "max_num_batched_tokens": r"max_num_batched_tokens['\"]?[=:] ?NUM",
        "max_num_seqs": r"max_num_seqs['\"]?[=:] ?NUM",
        "memory_fraction": r"gpu_memory_utilization['\"]?[=:] ?NUM",
        "memory_fraction#2": r"gpu_memory_utilization \(NUM\)",
        "memory_fraction#3": r"Desired GPU memory utilization is \(NUM,",
        "tensor_parallel": r"tensor_parallel_size['\"]?[=:] ?NUM",
        "pipeline_parallel": r"pipeline_parallel_size['\"]?[=:] ?NUM",
        "data_parallel": r"data_parallel_size['\"]?[=:] ?NUM",
        "context_parallel": r"decode_context_parallel_size['\"]?[=:] ?NUM",
        "context_parallel#2": r"by the d?cp_world_size NUM",
    }),
    *_table("vllm", None, _first, {
        "version": r"vLLM API server version v?(\d[\w.+-]*)",
        "version#2": r"LLM engine \(v(\d[\w.+-]*)\)",
        "model": r"\bwith config: model='([^']{1,300})'",
        "model#2": r"['\"]model(?:_tag)?['\"]: ?['\"]([^'\"]{1,300})['\"]",
        "kv_dtype": r"\bkv_cache_dtype['\"]?[=:] ?'?([\w.]+)",
        "dtype": r"\bdtype=torch\.(\w+)",
        "quantization": r"\bquantization=([\w.-]+)",
        "expert_parallel": r"enable_expert_parallel['\"]?[=:] ?([Tt]rue)",
    }),
]  # fmt: skip

_SGLANG = [
    *_table("sglang", GIB, _most, {
        "weight_bytes": r"Load weight end\..*mem usage=NUM GB",
        "k_bytes": r"KV Cache is allocated\..*\bK (?:size: )?NUM GB",
        "v_bytes": r"KV Cache is allocated\..*\bV (?:size: )?NUM GB",
        "latent_bytes": r"KV Cache is allocated\..*KV size: NUM GB",
        "window_pool_bytes": r"SWAKVPool mem usage: NUM GB",
        "cuda_graph_bytes": r"Capture [\w ]*(?:cuda|CUDA) graph end\..*mem usage=NUM GB",
        "state_bytes": r"Mamba Cache is allocated\..*ssm_state size: NUM ?GB",
    }),
    *_table("sglang", GIB, _least, {
        "free_before_load_bytes": r"Load weight begin\. avail mem=NUM GB",
        "free_after_load_bytes": r"Load weight end\..*avail mem=NUM GB",
        "free_after_pool_bytes": r"Memory pool end\. avail mem=NUM GB",
        "free_bytes": r"\bavailable_gpu_mem=NUM GB",
    }),
    *_table("sglang", 0, _least, {
        "tokens": r"SWAKVPool mem usage: .*full size: NUM",  # such models print a line for either pool as well
        "tokens#2": r"KV Cache is allocated\..*#tokens: NUM",
        "tokens#3": r"\bmax_total_num_tokens=NUM",
        "window_tokens": r"SWAKVPool mem usage: .*swa size: NUM",
    }),
    *_table("sglang", 0, _last, {
        "max_model_len": r"\bcontext_len=NUM",
        "max_model_len#2": r"\bcontext_length=NUM",
        "max_num_batched_tokens": r"\bchunked_prefill_size=NUM",
        "max_num_seqs": r"\bmax_running_requests=NUM",
        "memory_fraction": r"\bmem_fraction_static=NUM",
        "tensor_parallel": r"\btp_size=NUM",
        "pipeline_parallel": r"\bpp_size=NUM",
        "block_size": r"\bpage_size=NUM",
        "swa_full_tokens_ratio": r"\bswa_full_tokens_ratio=NUM",
    }),
    *_table("sglang", None, _first, {
        "model": r"\bmodel_path='([^']{1,300})'",
        "kv_dtype": r"\bkv_cache_dtype='([\w.]+)'",
        "kv_dtype#2": r"KV Cache is allocated\. dtype: torch\.(\w+)",
        "dtype": r"Load weight end\..*dtype=torch\.(\w+)",
        "quantization": r"\bquantization='([\w.-]+)'",
        "version": r"\bsglang[= ]=?v?(\d+\.\d[\w.]*)",
    }),
]  # fmt: skip

_LLAMACPP = [
    *_table("llama.cpp", MIB, _total, {
        "kv_bytes": r"llama_kv_cache\w*: size = +NUM MiB",
        "kv_bytes#2": r"KV self size += +NUM MiB",
        "k_bytes": r"(?:llama_kv_cache\w*: size|KV self size).*\bK \(\w+\): +NUM MiB",
        "k_bytes#2": r"KV self size.*c\^KV \(\w+\): +NUM MiB",
        "v_bytes": r"(?:llama_kv_cache\w*: size|KV self size).*\bV \(\w+\): +NUM MiB",
        "r_bytes": r"llama_memory_recurrent: size.*R \(\w+\): +NUM MiB",
        "s_bytes": r"llama_memory_recurrent: size.*S \(\w+\): +NUM MiB",
        "weight_bytes": r"DEVICE(?!_Host)\w* (?:model )?buffer size = +NUM MiB",
        "cpu_weight_bytes": r"\bCPU\w* (?:model )?buffer size = +NUM MiB",
    }),
    *_table("llama.cpp", MIB, _most, {
        "activation_bytes": r"DEVICE\d* compute buffer size = +NUM MiB",
        "total_bytes": r"(?:CUDA|ROCm|Vulkan)\d+ .*\(NUM MiB, \d+ MiB free\)",
    }),
    *_table("llama.cpp", MIB, _least, {
        "free_bytes": r"using device \w+ \(.*\) (?:\([\w:.]+\) )?- NUM MiB free",
    }),
    *_table("llama.cpp", GIB, _total, {
        "kv_bytes#3": r'msg="kv cache".*size="NUM GiB"',
        "weight_bytes#2": r'msg="model weights" device=(?!CPU)\w+ size="NUM GiB"',
    }),
    *_table("llama.cpp", MIB, _total, {
        "kv_bytes#4": r'msg="kv cache".*size="NUM MiB"',
        "kv_bytes#5": r"[Kk][Vv] self size += +NUM MB",
    }),
    *_table("llama.cpp", 0, _last, {
        "n_ctx": r"\bn_ctx += +NUM",
        "slots": r"\bn_seq_max += +NUM",
        "ubatch": r"\bn_ubatch += +NUM",
        "n_layer": r"\bn_layer += +NUM",
        "offloaded_layers": r"offloaded NUM/\d+ layers to GPU",
        "n_ctx#2": r"\bKvSize:NUM",
        "slots#2": r"\bParallel:NUM",
        "n_ctx_train": r"\bn_ctx_train += +NUM",
    }),
    *_table("llama.cpp", None, _first, {
        "type_k": r"(?:llama_kv_cache\w*: size|KV self size).*\bK \((\w+)\)",
        "type_k#2": r"KV self size.*c\^KV \((\w+)\)",
        "type_k#3": r"\bKvCacheType:(\w+)",
        "type_v": r"(?:llama_kv_cache\w*: size|KV self size).*\bV \((\w+)\)",
        "unified": r"\bkv_unified += +(\w+)",
        "swa_full": r"using (full)-size SWA cache",
        "older": r"(KV self size)",
        "model": r"general\.name +str += +(.{1,120})",
        "model#2": r"general\.name +=+ +(.{1,120})",
        "model#3": r"architecture=[\w-]+ file_type=\S+ name=\"([^\"]{1,120})\"",
        "architecture": r"(?:general\.architecture +str += +|print_info: arch += +)([\w-]+)",
        "quantization": r"file type += +(.{1,60})",
        "version": r"\bbuild: (\d+)",
    }),
]  # fmt: skip

_TENSORRT = [
    *_table("tensorrt-llm", GIB, _most, {
        "total_bytes": r"calculating max tokens in paged kv cache: total: NUM GiB",
        "weight_bytes": r"Memory usage when loading weights: NUM GiB",
    }),
    *_table("tensorrt-llm", GIB, _least, {
        "pool_bytes": r"Allocated NUM GiB for max tokens in paged KV cache",
        "free_bytes": r"in paged kv cache: total: [\d.]+ GiB, available: NUM GiB",
    }),
    *_table("tensorrt-llm", 0, _least, {
        "tokens": r"for max tokens in paged KV cache \(NUM\)",
        "num_blocks": r"blocks in KV cache primary pool: NUM",
    }),
    *_table("tensorrt-llm", 0, _last, {
        "block_size": r"Number of tokens per block: NUM",
        "max_model_len": r"\bmax_seq_len=NUM",
        "max_num_batched_tokens": r"\bmax_num_tokens=NUM",
        "max_num_seqs": r"\bmax_batch_size=NUM",
        "tensor_parallel": r"\btp_size[=:] ?NUM",
        "pipeline_parallel": r"\bpp_size[=:] ?NUM",
    }),
    *_table("tensorrt-llm", None, _first, {
        "version": r"TensorRT-?LLM version:? v?(\d[\w.]*)",
        "model": r"\bmodel=['\"]([^'\"]{1,300})['\"]",
    }),
]  # fmt: skip

FIGURES: tuple[Pattern, ...] = (*_VLLM, *_SGLANG, *_LLAMACPP, *_TENSORRT)
"""Every pattern. Where a figure has several, the first that is found in the text counts."""

_SIGNS = {
    "vllm": re.compile(
        r"KV cache size:|\bvllm\b|# GPU blocks:|Available KV cache memory|Free memory on device|Actual usage is", re.I
    ),
    "sglang": re.compile(
        r"\bsglang\b|#tokens:|max_total_num_tokens|mem_fraction_static|Load weight (?:begin|end)", re.I
    ),
    "llama.cpp": re.compile(
        r"llama_(?:model|kv|context|new|memory|load|init)|llm_load|load_tensors|print_info:|ggml_|KV self size"
        r'|llama runner|msg="kv cache"',
        re.I,
    ),
    "tensorrt-llm": re.compile(r"TensorRT-LLM|TRT-LLM|tensorrt_llm|paged KV cache", re.I),
}
"""Words of each engine. Of several engines that a text mentions, the one with the most figures wins."""


_ABOUT_MEMORY = (
    "took", "take", "Actual usage", "KV cache size", "KV cache memory", "KV Cache", "KV cache is needed",
    "blocks:", "concurrency for", "model_len", "seq_len", "seq len", "block size", "block_size",
    "padding layers", "batched_tokens", "num_seqs", "memory_utilization", "parallel_size", "world_size",
    "version", "engine (v", "dtype", "CUDA graph", "Load weight", "#tokens", "KVPool", "graph end", "pool end",
    "gpu_mem", "total_num_tokens", "server_args", "sglang", "KV self", "llama_kv_cache", "llama_memory",
    "buffer size", "MiB free", " n_", "kv_unified", "general.", "arch ", "file type", "build:", "kv cache",
    "kv self", "KvSize", "SWA cache", "layers to GPU", "model weights", "Graph memory", "kv_cache_size", "Mamba Cache",
    "tokens per block", "loading weights", "max_batch_size", "TensorRT", "expert_parallel", "file_type=",
)  # fmt: skip
"""Every line with a figure has one of these: a quick sieve, since most lines of a long log are requests."""

MAX_MEMORY_CHARS = 1_000_000


def read_log(text: str) -> LogFigures:
    """The figures in a pasted start-up log. Text that is no such log gives no engine and a note, not an error.

    Of lines about memory the first million characters are read: a start has a tenth of that.

    Raises InputError for text that is not a str or is over 5 MB.
    """
    lines = list(_memory_lines(text))
    signs = {name: sum(bool(sign.search(line)) for line in lines) for name, sign in _SIGNS.items()}
    read = {name: _collect(_of_engine(name), _one_start(name, lines)) for name, found in signs.items() if found}
    if not read:
        return LogFigures(
            None, {}, note="This does not look like a start-up log of vLLM, SGLang, llama.cpp or TensorRT-LLM."
        )
    engine = max(read, key=lambda name: (len(read[name][0]), signs[name]))
    values, digits = read[engine]
    if not values:
        return LogFigures(
            None, {}, note=f"This mentions {LABELS[engine]}, but holds none of the lines about its memory."
        )
    return LogFigures(engine, values, digits, _note(engine, values))


def _of_engine(name: str) -> list[Pattern]:
    return [pattern for pattern in FIGURES if pattern.engine == name]


def _lines(text: str) -> Iterator[str]:
    if not isinstance(text, str):
        raise InputError(f"the log is {quoted(text)}; text is needed")
    if len(text) > MAX_LOG_BYTES or len(text.encode("utf-8", "replace")) > MAX_LOG_BYTES:
        raise InputError("the log is over 5 MB; paste the part from the start to the first request")
    for line in text.splitlines():
        if len(line) >= SHORTEST:
            yield _ANSI.sub("", line[:MAX_LINE]) if "\x1b" in line else line[:MAX_LINE]


def _memory_lines(text: str) -> Iterator[str]:
    left, lines = MAX_MEMORY_CHARS, list(_lines(text))
    present = [words for words in _ABOUT_MEMORY if words in text or "\x1b" in text]
    for line in lines:
        if any(words in line for words in present):
            left -= len(line)
            if left < 0:
                return
            yield line


_STARTS = {
    "llama.cpp": (re.compile(r"\bn_seq_max += "), re.compile(r"\bn_ctx += ")),
    "vllm": (
        re.compile(r"vLLM API server version"),
        re.compile(r"LLM engine \(v(?!.*data_parallel_size=(?:[2-9]|1\d))"),  # each replica has an engine of its own
    ),
    "sglang": (re.compile(r"\bserver_args="),),
}
"""Words with which an engine begins; the first that stand in a log count."""

_KV_SIZE = re.compile(r"(?:llama_kv_cache\w*: size|[Kk][Vv] self size) += +(\d{1,12}(?:\.\d+)?) M")
_POOL = re.compile(r"KV cache (?:memory|size|is needed)|KV Cache is allocated|reserved for KV Cache|blocks: \d")


def _one_start(engine: str, lines: list[str]) -> list[str]:
    """The lines of one start. A server that failed is started again: of several the last that came to its pool counts.

    llama.cpp may make several contexts, to try what fits or for a draft: of those the largest counts, and of two
    equal ones the last; the weights stand before them.
    """
    for start in _STARTS.get(engine, ()):
        marks = [index for index, line in enumerate(lines) if start.search(line)]
        if len(marks) > 1:
            parts = [lines[mark:end] for mark, end in zip(marks, [*marks[1:], len(lines)], strict=True)]
            if engine == "llama.cpp":
                return [*lines[: marks[0]], *max(reversed(parts), key=_kv_mib)]
            return max(reversed(parts), key=_has_pool)
        if marks:
            break
    return lines


def _has_pool(lines: Sequence[str]) -> bool:
    return any(_POOL.search(line) for line in lines)


def _kv_mib(lines: Sequence[str]) -> float:
    return sum(float(found[1]) for line in lines if (found := _KV_SIZE.search(line)))


def _collect(patterns: Sequence[Pattern], lines: Sequence[str]) -> tuple[dict[str, Value], dict[str, int]]:
    values: dict[str, Value] = {}
    digits: dict[str, int] = {}
    for pattern in patterns:
        near = (line for line in lines if pattern.needle in line)
        found = [match[1] for line in near if (match := pattern.words.search(line))]
        if found and pattern.name not in values:
            values[pattern.name] = pattern.pick([_value(text, pattern.unit) for text in found])
            if pattern.unit:
                digits[pattern.name] = max(_half_digit(text, pattern.unit) for text in found)
    return values, digits


def _value(text: str, unit: int | None) -> Value:
    if unit is None:
        return text.strip()
    plain = text.replace(",", "")[:40]
    if unit:
        return round(float(plain) * unit)
    return float(plain) if "." in plain else int(plain)


def _half_digit(text: str, unit: int) -> int:
    places = len(text.partition(".")[2])
    return unit // (2 * int(10**places)) + 1


def _note(engine: str, values: Mapping[str, Value]) -> str:
    about = f" of {values['model']}" if "model" in values else ""
    return f"A start-up log of {LABELS[engine]}{about}: {len(values)} figures read."


# ------------------------------------------------------------------------------------------------------ overheads


def overheads_of(figures: LogFigures) -> tuple[Overhead, ...]:
    """The parts of the overhead that a log states, for `pool_budget(known=...)` and a plan.

    Where only the sums are there, one part holds what is left of the requested bytes after weights and pool.
    """
    source = "from the pasted log"
    sizes = {
        "activation": figures.count("activation_bytes"),
        "non_torch": _non_torch_bytes(figures),
        "cuda_graphs": figures.count("cuda_graph_bytes"),
    }
    parts = [measured(name, size, source) for name, size in sizes.items() if size is not None]
    if {part.name for part in parts} >= {"activation", "non_torch"} or (rest := other_bytes(figures)) is None:
        return tuple(parts)
    inside = parse_version(figures.text("version"), (0, 0)) >= COUNTS_GRAPHS
    graphs = [part for part in parts if part.name == "cuda_graphs" and not inside]
    return (*graphs, measured("other", rest, f"{source}: requested bytes less weights and pool"))


def _non_torch_bytes(figures: LogFigures) -> int | None:
    """As printed, or what newer vLLM counts with the weights less the weights."""
    stated, consumed, weights = (figures.count(f"{name}_bytes") for name in ("non_torch", "consumed", "weight"))
    if stated is not None or consumed is None or weights is None:
        return stated
    return max(0, consumed - weights)


def other_bytes(figures: LogFigures) -> int | None:
    """What is left of the requested bytes after weights and pool; None where the log does not say all three."""
    requested, weights, pool = requested_bytes(figures), figures.count("weight_bytes"), figures.count("pool_bytes")
    if requested is None or weights is None or pool is None:
        return None
    return max(0, requested - weights - pool)


def requested_bytes(figures: LogFigures) -> int | None:
    """The bytes that the engine may take: as printed, or the fraction of the printed total."""
    printed = figures.count("requested_bytes")
    if printed is not None:
        return printed
    total, fraction = figures.count("total_bytes"), figures.number("memory_fraction")
    return None if total is None or fraction is None else round(total * fraction)


def overhead_total(figures: LogFigures) -> int | None:
    """One figure for a plan's `overhead_bytes`: all parts of the log together; None where it states none."""
    parts = overheads_of(figures)
    return sum(part.typical for part in parts) if parts else None
