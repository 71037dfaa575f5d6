"""What to change when a scenario does not fit: for each lever, the smallest single change that makes it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from kvplan.engines.launch import Launch
from kvplan.engines.overheads import Overhead
from kvplan.engines.support import LLAMACPP
from kvplan.errors import KvplanError
from kvplan.hardware import Gpu
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.presets import largest_node, list_gpus, load_gpu, readable
from kvplan.units import counted, format_bytes

MAX_FRACTION = Fraction(97, 100)
"""A larger memory_fraction leaves nothing for whatever the engine does not count."""

KV_CHOICES = {
    None: ("fp8", "nvfp4"),
    "vllm": ("fp8", "fp8_per_token_head", "nvfp4"),
    "sglang": ("fp8", "nvfp4"),
    "llama.cpp": ("q8_0", "q8_0/q4_0", "q5_1", "q5_0", "q4_1", "q4_0"),
    "ollama": ("q8_0", "q4_0"),
    "tensorrt-llm": ("fp8",),
}
"""Narrower cache formats of each engine; None stands for a plan without one."""

WEIGHT_CHOICES = ("bf16", "fp8_per_channel", "int8_per_channel", "awq_int4_g128", "nvfp4", "mxfp4")
"""Weight formats that are tried."""

GGUF_CHOICES = ("bf16", "gguf_q8_0", "gguf_q6_k", "gguf_q5_k", "gguf_q4_k", "gguf_q3_k")
"""Those of engines that read GGUF files."""


def weight_choices(engine: str | None) -> tuple[str, ...]:
    """Weight formats that are tried for an engine, or for a plan without one."""
    return GGUF_CHOICES if engine in LLAMACPP else WEIGHT_CHOICES


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One lever and the smallest change of it that makes the scenario fit.

    lever   kv_dtype, context_length, batch_size, tensor_parallel, weight_dtype, gpu or memory_fraction
    change  what to do, for a person
    plan    the plan of the changed scenario: it fits
    """

    lever: str
    change: str
    plan: MemoryPlan

    @property
    def sentence(self) -> str:
        """What to do and what would then be free, in powers of two."""
        return self.sentence_in("GiB")

    def sentence_in(self, unit: str) -> str:
        """What to do and what would then be free, in powers of two ("GiB") or of ten ("GB")."""
        return f"{self.change}: {format_bytes(self.plan.free_bytes, decimal=unit == 'GB')} would be free"

    @property
    def scenario(self) -> Scenario:
        """The changed scenario."""
        return self.plan.scenario


def suggestions(scenario: Scenario) -> tuple[Suggestion, ...]:
    """The smallest single change of each lever that makes `scenario` fit; empty where it fits already.

    A lever that cannot make it fit alone is left out.
    """
    now = plan(scenario)
    if now.fits:
        return ()
    return tuple(found for lever in _LEVERS for found in [lever(now)] if found is not None)


def _first_that_fits(lever: str, changes: Iterable[tuple[Scenario, str]]) -> Suggestion | None:
    """The first change that fits; they come smallest first."""
    for scenario, change in changes:
        found = plan(scenario)
        if found.fits:
            return Suggestion(lever, change, found)
    return None


def _changed(scenario: Scenario, name: str, values: Iterable[object]) -> Iterator[Scenario]:
    """The scenario with each of the values that the model can have."""
    for value in values:
        try:
            changed = scenario.with_changes(**{name: value})
            plan(changed)
        except KvplanError:  # the model cannot be stored or divided so; the next value may do
            continue
        yield changed


def has_kernels(gpu: Gpu, kv_dtype: str) -> bool:
    """Whether a cache in `kv_dtype` is to be suggested: fp4 rows need a GPU that computes in fp4."""
    return kv_dtype != "nvfp4" or not gpu.tflops or "fp4" in gpu.tflops


def _cache_dtype(now: MemoryPlan) -> Suggestion | None:
    named = KV_CHOICES.get(now.scenario.engine, KV_CHOICES[None])
    choices = [name for name in named if has_kernels(now.scenario.gpu, name)]
    widest_first = sorted(_changed(now.scenario, "kv_dtype", choices), key=lambda s: -plan(s).cache_bytes)
    return _first_that_fits("kv_dtype", ((s, f"Store the cache as {s.kv_dtype}") for s in widest_first))


def _context(now: MemoryPlan) -> Suggestion | None:
    longest = now.max_context_length
    if not longest:
        return None
    changed = now.scenario.with_changes(context_length=longest)
    return _first_that_fits("context_length", [(changed, f"Limit the context to {counted(longest, 'token')}")])


def _batch(now: MemoryPlan) -> Suggestion | None:
    most = now.max_batch_size
    if not most:
        return None
    changed = now.scenario.with_changes(batch_size=most)
    return _first_that_fits("batch_size", [(changed, f"Hold {counted(most, 'sequence')} at once")])


def _tensor_parallel(now: MemoryPlan) -> Suggestion | None:
    node = max(largest_node(now.scenario.gpu) or 8, now.scenario.tensor_parallel)
    sizes = range(now.scenario.tensor_parallel + 1, node + 1)
    scenarios = _changed(now.scenario, "tensor_parallel", sizes)
    return _first_that_fits(
        "tensor_parallel", ((s, f"Divide the model over {counted(s.tensor_parallel, 'GPU')}") for s in scenarios)
    )


def _weights(now: MemoryPlan) -> Suggestion | None:
    scenarios = _changed(now.scenario, "weight_dtype", weight_choices(now.scenario.engine))
    widest_first = sorted(scenarios, key=lambda s: -plan(s).weight_bytes)
    return _first_that_fits("weight_dtype", ((s, f"Use weights stored as {s.weight_dtype}") for s in widest_first))


def _gpu(now: MemoryPlan) -> Suggestion | None:
    """The GPU with the least usable memory that holds it, of the same maker where the plan's has one."""
    maker = now.scenario.gpu.vendor
    larger = [gpu for gpu in readable(list_gpus(), load_gpu).presets if gpu.usable_bytes > now.capacity_bytes]
    same = [gpu for gpu in larger if not maker or gpu.vendor == maker]
    least_first = sorted(same, key=lambda gpu: (gpu.usable_bytes, gpu.name))
    scenarios = _changed(now.scenario, "gpu", least_first)
    return _first_that_fits("gpu", ((s, f"Use another GPU, {s.gpu.name}") for s in scenarios))


def _fraction(now: MemoryPlan) -> Suggestion | None:
    """The smallest whole percentage that would do."""
    written = Fraction(str(now.scenario.memory_fraction))
    needed = written + Fraction(-now.free_bytes, now.capacity_bytes)
    percent = -(-needed * 100 // 1)
    if percent > MAX_FRACTION * 100:
        return None
    changed = now.scenario.with_changes(memory_fraction=int(percent) / 100)
    return _first_that_fits("memory_fraction", [(changed, f"Let the engine use {int(percent)} % of the memory")])


_LEVERS: tuple[Callable[[MemoryPlan], Suggestion | None], ...] = (
    _cache_dtype, _context, _batch, _tensor_parallel, _weights, _gpu, _fraction,
)  # fmt: skip


def launch_of(
    scenario: Scenario, engine: str, engine_version: str | None = None, known: tuple[Overhead, ...] = ()
) -> Launch:
    """The server that `scenario` describes, for `engines.commands.command` and `engines.lines.predicted_lines`.

    known  overheads from a log
    """
    return Launch(
        engine=engine,
        model=scenario.planned_model,
        gpu=scenario.gpu,
        context_length=scenario.held_tokens,
        engine_version=engine_version,
        known=known,
        extra_weight_bytes=_extra_weight_bytes(scenario),
        **{name: getattr(scenario, name) for name in _AS_LAUNCHED},
    )


def _extra_weight_bytes(scenario: Scenario) -> int:
    """Adapters and a draft model on each GPU."""
    draft = scenario.draft_model
    if draft is None:
        return scenario.adapter_bytes
    return scenario.adapter_bytes + draft.shards(scenario.kv_dtype, None, scenario.placement)[0].weight_bytes


_AS_LAUNCHED = ("batch_size", "kv_dtype", "weight_dtype", "memory_fraction", "placement")
"""What a scenario and a launch call alike."""
