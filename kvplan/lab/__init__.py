"""The lab: a tiny decoder that runs live, with caches that can be opened, checked and broken on purpose.

    from kvplan import lab
    model = lab.TinyDecoder(num_layers=2, num_attention_heads=4, num_kv_heads=2, head_dim=16, vocab_size=50)
    lab.generate(model, [1, 2, 3, 4], max_new_tokens=30)
    lab.check_parity(model, prompt=[1, 2, 3, 4], num_new_tokens=8).sentence

Needs torch, which no other part of kvplan imports.
"""

from __future__ import annotations

from kvplan.errors import LabError

try:
    import torch as _torch  # noqa: F401
except ImportError as _missing:
    raise LabError(
        "the lab runs a live decoder and needs torch, which is not installed: pip install -r requirements.txt"
    ) from _missing

from kvplan.lab.caches import Cache, DynamicCache, PagedCache, QuantizedCache, SlidingCache, StaticCache
from kvplan.lab.checks import CHECKS, check_matrix
from kvplan.lab.faults import FAMILIES, FAULTS, Fault
from kvplan.lab.fingerprint import Fingerprint, Mystery, fingerprint, mystery
from kvplan.lab.generation import generate
from kvplan.lab.greedy import compare_caches
from kvplan.lab.heads import (
    duplicate_kv_heads,
    duplication_difference,
    head_choices,
    mean_pool_kv_heads,
    shrink,
    train,
    training_model,
    wiring,
)
from kvplan.lab.kinds import CACHES, new_cache
from kvplan.lab.limits import use_one_thread
from kvplan.lab.model import TinyDecoder
from kvplan.lab.parity import Gate, ParityResult, check_parity
from kvplan.lab.planner import cache_formula, crossovers, ladder, misconceptions, model_like, seventy_billion
from kvplan.lab.real import CheckpointResult, check_checkpoint
from kvplan.lab.reference import Uncached, uncached, uncached_generation
from kvplan.lab.savings import Projections, cat_bytes, measure_savings, projections, savings_model
from kvplan.lab.scenarios import RowDifference, Scenario
from kvplan.lab.shape import Shape
from kvplan.lab.side_by_side import SideBySide, side_by_side
from kvplan.lab.trace import trace, trace_grid
from kvplan.lab.variants import in_dtype, variant
from kvplan.lab.weights import from_gpt2, from_llama

__all__ = [
    "CACHES",
    "CHECKS",
    "FAMILIES",
    "FAULTS",
    "Cache",
    "CheckpointResult",
    "DynamicCache",
    "Fault",
    "Fingerprint",
    "Gate",
    "Mystery",
    "PagedCache",
    "ParityResult",
    "Projections",
    "QuantizedCache",
    "RowDifference",
    "Scenario",
    "Shape",
    "SideBySide",
    "SlidingCache",
    "StaticCache",
    "TinyDecoder",
    "Uncached",
    "cache_formula",
    "cat_bytes",
    "check_checkpoint",
    "check_matrix",
    "check_parity",
    "compare_caches",
    "crossovers",
    "duplicate_kv_heads",
    "duplication_difference",
    "fingerprint",
    "from_gpt2",
    "from_llama",
    "generate",
    "head_choices",
    "in_dtype",
    "ladder",
    "mean_pool_kv_heads",
    "measure_savings",
    "misconceptions",
    "model_like",
    "mystery",
    "new_cache",
    "projections",
    "savings_model",
    "seventy_billion",
    "shrink",
    "side_by_side",
    "trace",
    "trace_grid",
    "train",
    "training_model",
    "uncached",
    "uncached_generation",
    "use_one_thread",
    "variant",
    "wiring",
]
