"""Every decoder type that transformers knows, by the defaults of its class and what it needs besides: measured, and
against the rules.

    python tests/benchmarks/measure_all.py             prints one line a type, and the sums
    python tests/benchmarks/measure_all.py --write     also writes tests/importer/measurement_table.py
    python tests/benchmarks/measure_all.py --variations 8    instead holds rules against measurement over 8 seeds
    python tests/benchmarks/measure_all.py --oracle          instead measures the oracle's rows that no rule counts
    python tests/benchmarks/measure_all.py --fuzz 1000       instead measures hostile configs

It takes minutes, so the test runner reads the written table and repeats only the part that is fast.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from kvplan.dtypes import WEIGHT_FORMATS  # noqa: E402 - the checkout must be found first
from kvplan.errors import KvplanError  # noqa: E402
from kvplan.importer import import_config  # noqa: E402
from kvplan.importer.measure import close_workers, measure_config  # noqa: E402
from kvplan.model import Model  # noqa: E402

SLOWEST = 300
"""Seconds that one type may take here."""

TABLE = ROOT / "tests" / "importer" / "measurement_table.py"
CONTEXTS = (0, 4_096, 131_072)
BF16 = WEIGHT_FORMATS["bf16"]

_HALF_ROTARY = {
    "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5,
}  # fmt: skip
NEEDS: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "emu3": {"vocabulary_map": {"<image>": 4}},
    "glm46v": {"text_config": {"rope_parameters": _HALF_ROTARY}},
    "glm4v": {"text_config": {"rope_parameters": _HALF_ROTARY}},
    "glm4v_moe": {"text_config": {"head_dim": 128, "rope_parameters": _HALF_ROTARY}},
    "glmga": {"text_config": {"rope_parameters": _HALF_ROTARY}},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
"""What published configs of a type state and its class cannot do without: by its defaults alone it does not run."""


def decoder_types() -> list[str]:
    """Every model_type for which transformers has a causal, an image-text or a multimodal language model."""
    from transformers.models.auto import modeling_auto as auto

    return sorted(
        {
            *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            *auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
            *auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        }
    )


def figures(model: Model) -> tuple[int, ...]:
    return (model.num_params, model.num_active_params, *(model.cache_bytes(tokens) for tokens in CONTEXTS))


def config_of(model_type: str) -> dict[str, Any]:
    """The defaults of the class of `model_type`, and what it needs besides."""
    return {"model_type": model_type, "torch_dtype": "bfloat16", **NEEDS.get(model_type, {})}


def outcome(model_type: str) -> tuple[str, str]:
    """(exact, measured, differs or refused; what is to be said about it)."""
    config = config_of(model_type)
    try:
        measured = measure_config(config, dtype=BF16, seconds=SLOWEST)
    except KvplanError as refusal:
        return "refused", str(refusal).removeprefix("config.json: ")
    try:
        rule = import_config(config, measure="never")
    except KvplanError:
        return "measured", f"{measured.num_params:,} parameters"
    if figures(rule) == figures(measured):
        return "exact", f"{measured.num_params:,} parameters, as the rule counts them"
    return "differs", f"rule {figures(rule)}, measured {figures(measured)}"


def rows() -> Iterator[tuple[str, str, str, float]]:
    for model_type in decoder_types():
        start = time.perf_counter()
        kind, text = outcome(model_type)
        yield model_type, kind, text, time.perf_counter() - start


def written(kinds: dict[str, dict[str, str]]) -> str:
    lines = [
        '"""Types that cannot be measured by class defaults, and types of which rule and measurement differ.',
        "",
        "Written by tests/benchmarks/measure_all.py --write with the transformers of requirements.txt.",
        '"""',
        "",
    ]
    for name, kind in (("REFUSED", "refused"), ("DIFFERS", "differs")):
        table = kinds.get(kind, {})
        lines.append(f"{name}: dict[str, str] = {{")
        lines += [f"    {model_type!r}: {text[:80]!r}," for model_type, text in table.items()]
        lines += ["}", ""]
    lines.append("MEASURED = (")
    lines += [f"    {t!r}," for t in sorted({*kinds.get("exact", {}), *kinds.get("measured", {})})]
    lines += [")", '"""Types that are measured by the defaults of their class."""', ""]
    return "\n".join(lines)


def hold_variations(seeds: int) -> None:
    """Every family of the tests, `seeds` variations each, by rule and by measurement."""
    from tests.importer.test_rules_against_measurement import FAMILIES, both
    from tests.importer.test_rules_against_measurement import figures as all_figures

    counts = {"exact": 0, "refused": 0, "differs": 0}
    for model_type in FAMILIES:
        for seed in range(seeds):
            try:
                rule, measured = both(model_type, seed)
            except KvplanError as refusal:
                counts["refused"] += 1
                print(f"refused   {model_type} {seed}: {refusal}", flush=True)
                continue
            kind = "exact" if all_figures(rule) == all_figures(measured) else "differs"
            counts[kind] += 1
            if kind == "differs":
                print(f"differs   {model_type} {seed}", flush=True)
    print(counts)


def measure_oracle() -> None:
    """Every row of the oracle that no rule counts and that can be measured; the first that differs ends it."""
    from tests.importer.test_measure_oracle import NOT_MEASURED, REFUSED, assert_as_the_oracle_states

    for name in sorted(set(REFUSED) - set(NOT_MEASURED)):
        start = time.perf_counter()
        assert_as_the_oracle_states(name)
        print(f"exact     {name} {time.perf_counter() - start:.2f} s", flush=True)


def fuzz(seeds: int) -> None:
    """Hostile configs of the fuzz test, as many as asked for; the first that ends otherwise ends it."""
    from tests.importer.test_measure_fuzz import hostile
    from tests.importer.test_measure_fuzz import outcome as fuzzed

    counts: dict[str, int] = {}
    for seed in range(seeds):
        result = fuzzed(hostile(seed))
        counts[result] = counts.get(result, 0) + 1
    print(counts)


def main() -> None:
    if "--variations" in sys.argv[1:]:
        hold_variations(int(sys.argv[sys.argv.index("--variations") + 1]))
    elif "--oracle" in sys.argv[1:]:
        measure_oracle()
    elif "--fuzz" in sys.argv[1:]:
        fuzz(int(sys.argv[sys.argv.index("--fuzz") + 1]))
    else:
        measure_types()
    close_workers()


def measure_types() -> None:
    kinds: dict[str, dict[str, str]] = {}
    for model_type, kind, text, seconds in rows():
        kinds.setdefault(kind, {})[model_type] = text
        print(f"{kind:9} {model_type:28} {seconds:6.2f} s  {text}", flush=True)
    print(", ".join(f"{kind}: {len(table)}" for kind, table in sorted(kinds.items())))
    if "--write" in sys.argv[1:]:
        TABLE.write_text(written(kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
