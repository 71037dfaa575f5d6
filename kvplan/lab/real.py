"""The same check on a real checkpoint: the cache of a published model, as transformers runs it, against no cache.

Nothing that a checkpoint contains is run: its own code is never trusted, and only safetensors are read.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvplan.errors import LabError, shorten
from kvplan.lab.limits import DTYPES, MAX_PARITY_TOKENS, dtype_name, token_rows, whole_number
from kvplan.lab.parity import Comparison, gate_of
from kvplan.lab.scenarios import Prompt, RowDifference, compare, shifted

DEFAULT_PROMPT_TOKENS = 12


@dataclass(frozen=True)
class CheckpointResult(Comparison):
    """The verdict on a checkpoint: as `check_parity`'s, for the architecture's own cache."""

    path: str
    architecture: str

    @property
    def what(self) -> str:
        return f"{self.architecture} with its own cache"


def check_checkpoint(
    path: str | Path,
    prompt: Any = None,
    num_new_tokens: int = 8,
    dtype: str = "float32",
    download: bool = False,
    on_step: Callable[[float], None] | None = None,
) -> CheckpointResult:
    """Compare cached with uncached logits of a causal language model, over two generations and a chunked prefill.

    path: a folder with config.json and safetensors; with `download`, a hub id too. prompt: token ids; None: ids drawn
    with a fixed seed, since parity does not depend on what they mean. dtype: what the weights are cast to.
    on_step is told the fraction done; it may raise to stop. Raises LabError where the checkpoint cannot be run.
    """
    name = dtype_name(dtype)
    model = _load(str(path), DTYPES[name], download)
    prompts = _prompts(prompt, int(model.config.get_text_config().vocab_size), num_new_tokens)
    tell = on_step or (lambda fraction: None)
    rows: list[RowDifference] = []
    for number, (scenario, tokens) in enumerate(prompts):
        rows += _compare_generation(model, scenario, tokens, num_new_tokens)
        tell((number + 1) / len(prompts))
    return CheckpointResult(gate_of(name, rows), tuple(rows), str(path), type(model).__name__)


def _prompts(prompt: Any, vocab_size: int, num_new_tokens: int) -> list[tuple[str, Prompt]]:
    """Two prompts read at once and one in two chunks, each with its scenario."""
    if prompt is None:
        generator = torch.Generator().manual_seed(0)
        prompt = torch.randint(0, vocab_size, (DEFAULT_PROMPT_TOKENS,), generator=generator).tolist()
    row = tuple(token_rows(prompt, vocab_size)[0])
    whole_number("the length of a prompt", len(row), 2, MAX_PARITY_TOKENS - 1)
    whole_number("num_new_tokens", num_new_tokens, 1, MAX_PARITY_TOKENS - len(row))
    return [("generations", shifted(row, 1, vocab_size)), ("generations", row), ("chunked", row)]


def _compare_generation(model: Any, scenario: str, prompt: Prompt, num_new_tokens: int) -> list[RowDifference]:
    """Decode greedily without a cache, feed the same tokens through a cache, and compare every row."""
    tokens = list(prompt)
    logits = _uncached(model, tokens)  # (P, V)
    half = len(prompt) // 2 if scenario == "chunked" else len(prompt)
    phase = "chunk" if scenario == "chunked" else "prefill"
    found: list[RowDifference] = []
    cache = None
    for start, end in [(0, half)] + ([(half, len(prompt))] if half < len(prompt) else []):
        cached, cache = _cached(model, tokens[start:end], cache)
        found += compare((scenario, 0, 0, phase, start), cached, logits[start:end], tokens)
    for position in range(len(prompt), len(prompt) + num_new_tokens):
        tokens.append(int(logits[-1].argmax()))
        logits = _uncached(model, tokens)[-1:]  # (1, V)
        cached, cache = _cached(model, tokens[-1:], cache)
        found += compare((scenario, 0, 0, "decode", position), cached, logits, tokens)
    return found


def _uncached(model: Any, tokens: list[int]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits  # (S, V)


def _cached(model: Any, tokens: list[int], cache: Any) -> tuple[Tensor, Any]:
    with torch.no_grad():
        output = model(input_ids=torch.tensor([tokens]), use_cache=True, **{_cache_name(model): cache})
    held = output.get(_cache_name(model))
    if held is None:
        raise LabError(f"{type(model).__name__} hands back no key-value cache, so there is nothing to check")
    return output.logits[0], held  # (S, V)


def _cache_name(model: Any) -> str:
    """What the architecture calls its cache: `past_key_values` in transformers before 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _load(path: str, dtype: torch.dtype, download: bool) -> Any:
    is_folder = Path(path).is_dir()
    if not is_folder and not download:
        raise LabError(
            f"{shorten(path)!r} is no folder here; a checkpoint is a folder with config.json and safetensors"
            " (a hub id needs download=True)"
        )
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError:
        raise LabError("a real checkpoint needs transformers: pip install transformers") from None
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=is_folder, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, AttributeError) as error:
        raise LabError(f"{shorten(path)!r} cannot be run as a causal language model: {_first_line(error)}") from None
    model.eval()
    return model


def _first_line(error: Exception) -> str:
    return shorten(" ".join(str(error).split()) or type(error).__name__, 200)
