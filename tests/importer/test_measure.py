"""Measurement: what a cache must show to be believed, which kinds follow, and a worker that is held on a short line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvplan.attention import (
    CombinedCache,
    FullAttention,
    IndexedAttention,
    IndexedLatentAttention,
    LatentAttention,
    LayerCache,
    MeasuredRows,
    NoCache,
    RecurrentState,
    SharedCache,
    ShortConvolution,
    SlidingAttention,
    SlidingLatentAttention,
)
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import ConfigError, InputError, NotADecoderError, UnsupportedConfigError
from kvplan.importer import import_config, measure
from kvplan.importer.measure import measure_config
from kvplan.importer.measure_worker import unknown_keys
from kvplan.importer.measured_cache import layer_caches
from kvplan.importer.measured_weights import weights_of

FP32, BF16 = WEIGHT_FORMATS["fp32"], WEIGHT_FORMATS["bf16"]
CAPACITY = 3_000_000
CONFIGS = Path(__file__).parent.parent / "data" / "configs"

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

# ------------------------------------------------------------------------------------------- what a cache must show


def layer(*tensors: Any, kind: str = "DynamicLayer", window: int | None = None, seen: Any = ()) -> dict[str, Any]:
    named = [[name, list(shape), dtype] for name, shape, dtype in ((*item, "bfloat16")[:3] for item in tensors)]
    return {"class": kind, "window": window, "seen": list(seen), "tensors": named}


def run(*layers: Any, tokens: int = 24, capacity: int | None = None, kept: bool = True, returned: str = "") -> Any:
    return {"tokens": tokens, "capacity": capacity, "kept": kept, "returned": returned, "layers": list(layers)}


def pair(entries: int, rows: int = 2, width: int = 16, value_width: int | None = None) -> tuple[Any, Any]:
    """Keys and values as transformers holds them: (sequences, heads, tokens, width)."""
    shapes = ((1, rows, entries, width), (1, rows, entries, value_width or width))
    return ("keys", shapes[0]), ("values", shapes[1])


def kinds(*runs: Any, dtype: Any = BF16, **text: Any) -> tuple[LayerCache, ...]:
    return layer_caches(runs, text, dtype)


def static_and_dynamic(*tensors_at: Any, **text: Any) -> LayerCache:
    """The kind of a layer that holds `tensors_at(entries)` in a static cache of CAPACITY, and after 24 tokens."""
    make = tensors_at[0]
    found = kinds(
        run(layer(*make(CAPACITY), kind="StaticLayer", seen=[8]), tokens=8, capacity=CAPACITY),
        run(layer(*make(24), seen=[24])),
        **text,
    )
    return found[0]


def test_rows_for_every_token_are_full_attention() -> None:
    assert static_and_dynamic(pair) == FullAttention(2, 16)


def test_values_of_another_width_keep_it() -> None:
    assert static_and_dynamic(lambda n: pair(n, 3, 24, 8)) == FullAttention(3, 24, 8)


def test_what_stays_small_in_a_large_static_cache_is_a_window() -> None:
    assert static_and_dynamic(lambda n: pair(min(n, 512))) == SlidingAttention(2, 16, window=512)


def test_a_dynamic_window_keeps_one_token_less_after_its_prompt() -> None:
    found = kinds(
        run(layer(*pair(24), kind="DynamicSlidingWindowLayer", window=32)),
        run(layer(*pair(31), kind="DynamicSlidingWindowLayer", window=32), tokens=40),
    )
    assert found == (SlidingAttention(2, 16, window=32),)


def test_one_row_of_the_latent_widths_is_latent_attention() -> None:
    latent = static_and_dynamic(lambda n: pair(n, 1, 512, 64), kv_lora_rank=512, qk_rope_head_dim=64)
    assert latent == LatentAttention(512, 64)


def test_one_row_of_other_widths_is_one_kv_head() -> None:
    assert static_and_dynamic(lambda n: pair(n, 1, 512, 64)) == FullAttention(1, 512, 64)


def test_a_latent_with_a_window_keeps_both() -> None:
    found = static_and_dynamic(lambda n: pair(min(n, 128), 1, 512, 64), kv_lora_rank=512, qk_rope_head_dim=64)
    assert found == SlidingLatentAttention(512, 64, 128)


def test_index_keys_make_latents_sparse_and_kv_heads_indexed() -> None:
    sparse = static_and_dynamic(
        lambda n: (*pair(n, 1, 512, 64), ("indexer_keys", (1, n, 128))),
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        index_topk=2048,
    )
    assert sparse == IndexedLatentAttention(512, 64, 128, 2048)
    indexed = static_and_dynamic(lambda n: (*pair(n), ("idx_keys", (1, 1, n, 32))))
    assert indexed == IndexedAttention(2, 16, index_head_dim=32)


def test_one_entry_for_every_four_tokens_is_counted_at_whole_blocks() -> None:
    found = kinds(
        run(layer(("compressed", (1, 128, 32))), tokens=512),
        run(layer(("compressed", (1, 256, 32))), tokens=1024),
    )
    assert found == (MeasuredRows(1, 32, tokens_per_entry=4),)


def test_working_memory_that_is_empty_at_whole_blocks_is_not_counted() -> None:
    buffer = ("buffer", (1, 0, 64))
    assert kinds(run(layer(*pair(24), buffer)), run(layer(*pair(40), buffer), tokens=40)) == (FullAttention(2, 16),)


def test_state_keeps_float32_or_the_dtype_of_the_model() -> None:
    tensors = ("recurrent_states.0", (1, 8, 16, 4), "float32"), ("conv_states.0", (1, 96, 4))
    states = layer(*tensors, kind="LinearAttentionLayer")
    mamba = RecurrentState(8, 64, FP32, 96, 4, BF16)
    assert kinds(run(states), run(states, tokens=40)) == (mamba,)
    assert kinds(run(states), run(states, tokens=40), dtype=None) == (RecurrentState(8, 64, FP32, 96, 4, None),)


def test_a_convolution_that_stands_alone_has_no_recurrent_state() -> None:
    convolution = layer(("conv_states.0", (1, 64, 3)), kind="LinearAttentionLayer")
    assert kinds(run(convolution), run(convolution, tokens=40)) == (ShortConvolution(64, 3, BF16),)


def test_attention_and_a_state_in_one_layer_are_both_counted() -> None:
    state = ("recurrent_states.0", (1, 8, 16, 4), "float32")
    found = kinds(run(layer(*pair(24), state)), run(layer(*pair(40), state), tokens=40))
    assert found == (CombinedCache((FullAttention(2, 16), RecurrentState(8, 64, FP32))),)


def test_a_layer_that_is_declared_empty_has_no_cache_or_reads_that_of_another() -> None:
    nothing = layer(kind="DummyLayer")
    modes = ["store", "reuse"]
    runs = [run(nothing, nothing), run(nothing, nothing, tokens=40)]
    assert kinds(*runs, kv_sharing_modes=modes) == (NoCache(), SharedCache())


def test_two_tensors_under_one_law_but_of_other_heads_are_counted_row_by_row() -> None:
    found = static_and_dynamic(lambda n: (("keys", (1, 4, n, 16)), ("values", (1, 2, n, 16))))
    assert found == CombinedCache((MeasuredRows(4, 16), MeasuredRows(2, 16)))


REFUSALS: dict[str, tuple[list[Any], str]] = {
    "a run that failed leaves one length": (
        [{"failed": "ValueError: no", "capacity": None}, run(layer(*pair(24)))],
        "does not run on text alone",
    ),
    "another cache than the given one": (
        [run(layer(*pair(24)), kept=False, returned="MambaCache"), run(layer(*pair(40)), tokens=40)],
        "gives back MambaCache instead of the cache that it was given",
    ),
    "no cache at all": (
        [run(layer(), kept=False, returned="NoneType"), run(layer(), tokens=40)],
        "gives back nothing instead",
    ),
    "a cache that was never filled": (
        [run(layer()), run(layer(), tokens=40)],
        "left the cache that it was given empty",
    ),
    "more tokens than the model read": (
        [run(layer(*pair(56), seen=[56])), run(layer(*pair(72), seen=[72]), tokens=40)],
        "counts its tokens as 56 where the model read 24",
    ),
    "tokens that were dropped": (
        [run(layer(*pair(20))), run(layer(*pair(40)), tokens=40)],
        r"keeps \[20, 40\] entries of keys for \[24, 40\] tokens",
    ),
    "keys that do not grow": (
        [run(layer(*pair(7))), run(layer(*pair(7)), tokens=40), run(layer(*pair(8)), tokens=80)],
        "entries of keys",
    ),
    "an integer state": (
        [run(layer(("state", (1, 4, 4), "int64"))), run(layer(("state", (1, 4, 4), "int64")), tokens=40)],
        "keeps state in int64",
    ),
    "no layers": ([run(), run(tokens=40)], "it has no layers"),
    "another number of layers": (
        [run(layer(*pair(24))), run(layer(*pair(40)), layer(*pair(40)), tokens=40)],
        "number of layers differs",
    ),
    "a tensor at one length only": (
        [run(layer(*pair(24), ("extra", (1, 24, 8)))), run(layer(*pair(40)), tokens=40)],
        "keeps extra at some lengths only",
    ),
    "two lengths in one tensor": (
        [run(layer(("square", (1, 24, 24)))), run(layer(("square", (1, 40, 40))), tokens=40)],
        "differ by more than a length",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_cache_that_is_not_to_be_believed_is_refused_with_the_reason(case: str) -> None:
    runs, reason = REFUSALS[case]
    with pytest.raises(UnsupportedConfigError, match=reason):
        kinds(*runs)


# -------------------------------------------------------------------------------------------------- what names say


def grouped(*parameters: Any, cache: LayerCache | None = None, **facts: Any) -> list[tuple[Any, ...]]:
    """(role, rows, columns, count, split, active) of the groups of a model with one layer."""
    found = [[f"model.layers.0.{name}", list(shape), "bfloat16", "Linear"] for name, shape in parameters]
    weights = weights_of(found, {"decoder": "model", "text": {}, **facts}, [cache or FullAttention(2, 16)])
    return [(g.role, g.rows, g.columns, g.count, g.split, g.active) for g in weights.layers[0]]


def test_key_and_value_projections_divide_by_their_heads() -> None:
    assert grouped(("self_attn.k_proj.weight", (32, 64)), ("self_attn.v_proj.bias", (32,))) == [
        ("attention_k", 32, 64, 1, "kv_heads", None),
        ("attention_v", 32, 1, 1, "kv_heads", None),
    ]


def test_a_fused_projection_is_taken_apart_where_the_sizes_say_how() -> None:
    fused = ("attention.query_key_value.weight", (96, 64))  # (2 query heads + 2 x 2 KV heads) x 16
    assert grouped(fused, text={"num_attention_heads": 2}) == [
        ("attention_q", 32, 64, 1, "rows", None),
        ("attention_k", 32, 64, 1, "kv_heads", None),
        ("attention_v", 32, 64, 1, "kv_heads", None),
    ]
    assert grouped(fused, text={"num_attention_heads": 3}) == [("other", 96, 64, 1, "copied", None)]


def test_gate_and_up_in_one_matrix_are_two() -> None:
    assert grouped(("mlp.gate_up_proj.weight", (256, 64))) == [("mlp", 128, 64, 2, "rows", None)]


def test_stacked_experts_know_how_many_there_are_and_how_many_a_token_reads() -> None:
    stacked = ("mlp.experts.gate_up_proj", (8, 48, 64)), ("mlp.experts.down_proj", (8, 64, 24))
    facts = {"text": {"hidden_size": 64}, "experts_read": {"model.layers.0.mlp.experts": 2}}
    assert grouped(*stacked, **facts) == [
        ("routed_experts", 24, 64, 16, "rows", 4),
        ("routed_experts", 64, 24, 8, "columns", 2),
    ]


def test_experts_that_are_stored_the_other_way_round_are_turned() -> None:
    stacked = ("mlp.experts.gate_up_proj", (8, 64, 48)), ("mlp.experts.down_proj", (8, 24, 64))
    facts = {"text": {"hidden_size": 64, "num_experts_per_tok": 2}}
    assert grouped(*stacked, **facts) == [
        ("routed_experts", 24, 64, 16, "rows", 4),
        ("routed_experts", 64, 24, 8, "columns", 2),
    ]


def test_experts_that_are_modules_are_counted() -> None:
    modules = [(f"mlp.experts.{index}.down_proj.weight", (64, 24)) for index in range(4)]
    assert grouped(*modules, text={"num_experts_per_tok": 1}) == [("routed_experts", 64, 24, 4, "columns", 1)]


def layers_of_weights(caches: int, members: int, num_hidden_layers: int) -> list[int]:
    """Values in each layer of a model with a list of `members` modules of one 4 x 4 matrix each."""
    found = [[f"model.layers.{index}.mlp.up_proj.weight", [4, 4], "bfloat16", "Linear"] for index in range(members)]
    facts = {"decoder": "model", "text": {"num_hidden_layers": num_hidden_layers}}
    weights = weights_of(found, facts, [FullAttention(1, 4)] * caches)
    return [sum(group.params for group in groups) for groups in weights.layers]


def test_each_module_of_the_list_is_a_layer() -> None:
    assert layers_of_weights(caches=3, members=3, num_hidden_layers=3) == [16, 16, 16]


def test_a_module_that_fills_two_caches_stands_in_the_first_of_them() -> None:
    assert layers_of_weights(caches=4, members=2, num_hidden_layers=4) == [16, 0, 16, 0]


def test_caches_of_layers_that_run_again_have_no_weights_of_their_own() -> None:
    assert layers_of_weights(caches=5, members=3, num_hidden_layers=3) == [16, 16, 16, 0, 0]


def test_weights_that_fit_no_layer_stand_outside_and_it_is_noted() -> None:
    found = [["model.layers.0.mlp.up_proj.weight", [4, 4], "bfloat16", "Linear"]]
    weights = weights_of(found, {"decoder": "model", "text": {}}, [FullAttention(1, 4)] * 3)
    assert weights.layers == ((), (), ())
    assert sum(group.params for group in weights.outer) == 16
    assert any("which weights belong to which layer is not clear" in note for note in weights.notes)


def test_a_name_that_says_nothing_is_copied_and_noted() -> None:
    found = [["model.layers.0.mystery", [3, 5], "bfloat16", "Thing"]]
    weights = weights_of(found, {"decoder": "model", "text": {}}, [NoCache()])
    assert weights.layers[0][0].role == "other"
    assert any("15 values have names that say no role" in note for note in weights.notes)


def test_what_stays_float32_in_a_bf16_model_is_pinned() -> None:
    found = [["model.layers.0.mlp.gate.weight", [8, 64], "float32", "Router"]]
    group = weights_of(found, {"decoder": "model", "text": {}}, [NoCache()]).layers[0][0]
    assert (group.role, group.storage, group.pinned) == ("router", FP32, True)


def test_a_dtype_that_no_format_stands_for_is_refused() -> None:
    found = [["model.layers.0.mlp.gate.weight", [8, 64], "int8", "Router"]]
    with pytest.raises(UnsupportedConfigError, match="is int8; known: bfloat16, float32, float16"):
        weights_of(found, {"decoder": "model", "text": {}}, [NoCache()])


# ------------------------------------------------------------------------------------------------------- the worker


def needs_libraries() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


def test_a_small_llama_is_measured_to_the_unit() -> None:
    needs_libraries()
    model = measure_config(LLAMA, dtype=BF16)
    attention = 64 * 64 + 32 * 64 + 32 * 64 + 64 * 64
    assert model.num_params == 2 * 100 * 64 + 2 * (attention + 3 * 128 * 64 + 2 * 64) + 64
    assert model.cache_bytes(100) == 2 * 2 * 2 * 16 * 100 * 2
    assert (model.num_kv_heads, model.num_attention_heads, model.context_limit) == (2, 4, 256)
    assert model.notes[0].startswith("measured with transformers ")


def test_class_defaults_are_noted() -> None:
    needs_libraries()
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    notes = measure_config(config, dtype=BF16).notes
    assert any("class defaults are used for num_key_value_heads 4" in note for note in notes)


@pytest.mark.parametrize("key", ["made_up_width", "num_experts", "num_kv_shared_layers", "sliding_window"])
def test_a_key_that_the_class_does_not_read_and_that_may_change_memory_is_refused(key: str) -> None:
    needs_libraries()
    with pytest.raises(UnsupportedConfigError, match=f"{key} may change memory"):
        measure_config(LLAMA | {key: 7})


class DerivingConfig:
    """A config class that makes `inner_width` out of `width`, as some of transformers do."""

    attribute_map: ClassVar[dict[str, str]] = {}
    model_type = "x"
    width: int

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DerivingConfig:
        made = cls()
        made.width = data["width"]
        made.__dict__["inner_width"] = 2 * made.width
        return made


def test_a_key_that_the_class_derives_with_the_same_value_is_no_stranger() -> None:
    config = {"model_type": "x", "width": 4, "inner_width": 8}
    assert unknown_keys(DerivingConfig.from_dict(config), config, "") == []


def test_a_key_that_the_class_derives_with_another_value_is_a_stranger() -> None:
    config = {"model_type": "x", "width": 4, "inner_width": 9}
    assert unknown_keys(DerivingConfig.from_dict(config), config, "outer_width") == ["inner_width"]
    assert unknown_keys(DerivingConfig.from_dict(config), config, "kwargs.get('inner_width')") == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "no_such_type"}, "knows no model_type 'no_such_type'"),
        ({"model_type": "bert"}, "'bert' is an encoder"),
        ({"model_type": "t5"}, "'t5' is an encoder-decoder"),
        ({"model_type": "whisper"}, "'whisper' is an encoder-decoder"),
        ({"model_type": "mllama"}, "has cross-attention"),
        ({"model_type": "clip"}, "no decoder language model of type 'clip'"),
        ({"model_type": "openai-gpt"}, "gives back nothing instead of the cache that it was given"),
        (LLAMA | {"architectures": ["LlamaForTokenClassification"]}, "no language model of this type"),
        (LLAMA | {"hidden_size": -4}, "cannot build it"),
        (LLAMA | {"num_attention_heads": "many"}, "cannot build it"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(config: dict[str, Any], reason: str) -> None:
    needs_libraries()
    with pytest.raises(UnsupportedConfigError, match=reason):
        measure_config(config)


@pytest.mark.parametrize("measure", ["never", "auto"])
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100},
        {"model_type": "t5", "is_encoder_decoder": True, "d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 96,
         "vocab_size": 100},
    ],
)  # fmt: skip
def test_an_encoder_is_refused_even_where_an_estimate_is_accepted(config: dict[str, Any], measure: str) -> None:
    needs_libraries()
    with pytest.raises(NotADecoderError, match=r"keeps no cache|encoder-decoder"):
        import_config(config, measure=measure, estimate=True)


def wrapper(**vision: Any) -> dict[str, Any]:
    tower = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
             "num_attention_heads": 4, "image_size": 28, "patch_size": 14}  # fmt: skip
    return {"model_type": "llava", "text_config": LLAMA, "vision_config": tower | vision, "torch_dtype": "bfloat16"}


def test_a_key_inside_a_part_that_its_class_does_not_read_is_a_stranger_too() -> None:
    needs_libraries()
    assert measure_config(wrapper(), dtype=BF16).params_by_tower["vision"] > 0
    with pytest.raises(UnsupportedConfigError, match=r"vision_config\.made_up_width may change memory"):
        measure_config(wrapper(made_up_width=7), dtype=BF16)


OLD_GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_ctx": 128,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.usefixtures("measuring")
def test_a_key_that_only_the_rules_read_is_no_obstacle_where_both_count_the_same() -> None:
    needs_libraries()
    model = import_config(OLD_GPT2, measure="always")
    assert "GPT2LMHeadModel does not read n_ctx; the rules, which do, count the same" in model.notes
    assert model.num_params == import_config(OLD_GPT2).num_params


@pytest.mark.usefixtures("measuring")
def test_a_key_that_only_the_rules_read_refuses_where_they_count_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_libraries()
    figures = iter(((1, [2]), (1, [3])))
    monkeypatch.setattr("kvplan.importer._figures", lambda _: next(figures))
    with pytest.raises(UnsupportedConfigError, match="n_ctx may change memory, and GPT2LMHeadModel"):
        import_config(OLD_GPT2, measure="always")


REMEMBERED = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.load_libraries()
import torch
for config in json.loads(sys.argv[2]):
    settings, model_class = worker.choose(config)
    with torch.device("meta"):
        model = worker.build(model_class, settings)
        plain = worker.all_runs(model)
        with worker.remembered_shapes():
            print(worker.all_runs(model) == plain and len(plain))
"""


def test_shapes_that_are_remembered_are_those_that_are_worked_out() -> None:
    needs_libraries()
    mamba = {"model_type": "mamba2", "hidden_size": 64, "num_heads": 4, "head_dim": 32, "state_size": 16,
             "num_hidden_layers": 2, "vocab_size": 100, "n_groups": 1}  # fmt: skip
    command = [sys.executable, "-P", "-c", REMEMBERED, str(measure.WORKER), json.dumps([LLAMA, mamba])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "2"]


def test_a_state_in_stacks_of_all_layers_is_read_layer_by_layer() -> None:
    """RWKV gives back five tensors, of which the last dimension counts the layers."""
    needs_libraries()
    config = {"model_type": "rwkv", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3, "torch_dtype": "bf16"}
    model = measure_config(config, dtype=BF16)
    assert model.num_layers == 3
    assert model.cache_bytes(0) == model.cache_bytes(1_000) == 3 * (3 * 64 * 4 + 2 * 64 * 2)


SLEEPER = """
import json, sys, time
print('{"transformers": "0"}', flush=True)
for line in sys.stdin:
    if json.loads(line)["config"]["num_hidden_layers"] == 9_999:
        time.sleep(600)
    print('{"error": "memory"}', flush=True)
"""


@pytest.fixture
def sleepers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[measure._Workers]:
    """Workers that start at once and measure nothing; one that is asked for 9,999 layers falls asleep."""
    needs_libraries()
    program, workers = tmp_path / "sleeper.py", measure._Workers()
    program.write_text(SLEEPER)
    monkeypatch.setattr(measure, "WORKER", program)
    monkeypatch.setattr(measure, "_workers", workers)
    yield workers
    workers.close()
    measure._results.clear()


def test_a_measurement_that_takes_too_long_is_stopped_and_its_process_is_gone(sleepers: measure._Workers) -> None:
    measure.start_worker()
    process = sleepers.warm.process
    with pytest.raises(UnsupportedConfigError, match="takes longer than 1 seconds"):
        measure_config(LLAMA | {"num_hidden_layers": 9_999}, seconds=1)
    assert process.poll() is not None
    with pytest.raises(UnsupportedConfigError, match="takes more memory"):  # the next one starts a worker of its own
        measure_config(LLAMA | {"num_hidden_layers": 9_998})
    assert sleepers.warm.process.poll() is None


def test_a_worker_ends_when_it_is_closed_and_after_as_many_configs_as_it_may_serve(
    sleepers: measure._Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "CONFIGS_PER_WORKER", 2)
    served = []
    for count in (1, 2, 3):
        with pytest.raises(UnsupportedConfigError, match="takes more memory"):
            measure_config(LLAMA | {"num_hidden_layers": count})
        served.append(sleepers.warm)
    assert served[1] is None
    assert served[0].process.poll() is not None
    assert served[2].process.poll() is None
    measure.close_workers()
    assert sleepers.warm is None
    assert served[2].process.poll() is not None


def test_a_config_that_was_measured_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_libraries()
    first = measure_config(LLAMA, dtype=BF16)
    monkeypatch.setattr(measure._workers, "ask", lambda *_: pytest.fail("asked again"))
    assert measure_config(dict(reversed(LLAMA.items())), dtype=BF16) == first
    assert measure_config(LLAMA | {"quantization_config": {"quant_method": "fp8"}}, dtype=BF16) == first


def test_a_measurement_that_was_stopped_may_be_tried_again() -> None:
    needs_libraries()
    config = LLAMA | {"num_hidden_layers": 400}
    asked = []

    def ask(text: str, seconds: int) -> dict[str, Any]:
        asked.append(seconds)
        return {"error": "slow", "text": str(seconds)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure._workers, "ask", ask)
        for seconds in (1, 2):
            with pytest.raises(UnsupportedConfigError, match=f"takes longer than {seconds} seconds"):
                measure_config(config, seconds=seconds)
    assert asked == [1, 2]


def test_more_than_a_few_who_wait_are_refused_at_once() -> None:
    config = LLAMA | {"num_hidden_layers": 401}
    places = measure._workers.places
    taken = [places.acquire(blocking=False) for _ in range(1 + measure.MAX_WAITING)]
    try:
        assert all(taken)
        with pytest.raises(UnsupportedConfigError, match="others wait for their measurement already"):
            measure_config(config)
    finally:
        for _ in taken:
            places.release()
    with pytest.MonkeyPatch.context() as patch:  # and that refusal is not remembered
        patch.setattr(measure._workers, "ask", lambda *_: {"error": "memory"})
        with pytest.raises(UnsupportedConfigError, match="takes more memory"):
            measure_config(config)
    measure._results.clear()


def test_a_worker_serves_several_configs_and_ends_with_its_parent() -> None:
    needs_libraries()
    measure.start_worker()
    process = measure._workers.warm.process
    for vocab in (201, 202):
        assert measure_config(LLAMA | {"vocab_size": vocab}).vocab_size == vocab
    assert measure._workers.warm.process is process
    process.stdin.close()  # what the kernel does when the parent dies
    assert process.wait(timeout=60) == 0
    measure.close_workers()


def test_an_answer_that_is_not_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[dict[str, Any]] = [
        {"runs": [], "parameters": [], "facts": {}},
        {"runs": [], "parameters": [["x", [-1], "bfloat16", ""]], "facts": {"text": {}}},
        {"runs": "none", "parameters": [], "facts": {"text": {}}},
    ]
    for index, answer in enumerate(broken):
        monkeypatch.setattr(measure._workers, "ask", lambda *_, answer=answer: answer)
        with pytest.raises(UnsupportedConfigError, match="answer is not whole"):
            measure_config({"model_type": f"broken {index}"})


@pytest.mark.parametrize("config", [{"vocab_size": 10**15}, {"text_config": {"vocab_size": 10**15}}])
def test_a_size_beyond_every_model_is_named_with_its_key(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    answer = {"runs": [], "parameters": [["embed.weight", [10**15, 64], "bfloat16", ""]], "facts": {"text": {}}}
    monkeypatch.setattr(measure._workers, "ask", lambda *_: answer)
    words = (
        "vocab_size is 1,000,000,000,000,000, the size of embed.weight; sizes below 281,474,976,710,656 are accepted"
    )
    with pytest.raises(UnsupportedConfigError, match=words):
        measure_config({"model_type": "xglm", **config})


def test_a_config_that_is_no_json_is_refused_before_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure._workers, "ask", lambda *_: pytest.fail("asked"))
    with pytest.raises(ConfigError, match="holds what JSON cannot"):
        measure_config({"model_type": "llama", "thing": object()})


def test_without_transformers_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_workers", measure._Workers())
    monkeypatch.setattr(measure, "find_spec", lambda name: None if name == "transformers" else object())
    with pytest.raises(UnsupportedConfigError, match="the package transformers is not installed"):
        measure_config({"model_type": "a type of this test"})


def test_the_worker_sees_neither_network_nor_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    found = measure._environment()
    assert "HF_TOKEN" not in found
    assert found["HF_HUB_OFFLINE"] == found["TRANSFORMERS_OFFLINE"] == "1"


GUARDED = """
import importlib.util, os, socket, subprocess, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
sys.addaudithook(worker.guard())
for call in (
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: subprocess.run(["true"]),
    lambda: os.fork(),
    lambda: os.kill(os.getppid(), 0),
    lambda: open(sys.argv[2]),
    lambda: open("../" * 40 + sys.argv[2].lstrip("/")),
    lambda: open(sys.argv[2] + ".new", "w"),
    lambda: os.listdir(os.path.dirname(sys.argv[2])),
    lambda: os.remove(sys.argv[2]),
    lambda: open(os.__file__).close(),
):
    try:
        call()
    except PermissionError:
        print("refused")
    else:
        print("allowed")
"""


def test_the_worker_refuses_connections_programs_and_files_that_are_not_pythons_own(tmp_path: Path) -> None:
    """The audit hook cannot be taken off again, so it is tried in a process of its own."""
    secret = tmp_path / "config.json"
    secret.write_text("{}")
    command = [sys.executable, "-P", "-c", GUARDED, str(measure.WORKER), str(secret)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == 9 * ["refused"] + ["allowed"]
    assert secret.exists()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit needs /proc")
def test_the_worker_cannot_grow_past_its_memory() -> None:
    """A limit cannot be lifted again, so it is tried in a process of its own."""
    code = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.limit_memory()
try:
    bytearray(worker.MEMORY_BYTES + 2**28)
except MemoryError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code, str(measure.WORKER)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"


# ------------------------------------------------------------------------------------------------------ import_config


def mystery(**changes: Any) -> dict[str, Any]:
    """A sound Llama with a key that no rule reads."""
    return {**LLAMA, "made_up_width": 7, **changes}


@pytest.mark.usefixtures("measuring")
def test_where_no_rule_knows_the_type_the_class_is_measured() -> None:
    needs_libraries()
    config = {
        "model_type": "persimmon", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256, "torch_dtype": "bfloat16",
    }  # fmt: skip
    with pytest.raises(UnsupportedConfigError, match="no rule knows model_type 'persimmon'"):
        import_config(config, measure="never")
    model = import_config(config)
    assert not model.is_estimate
    assert model.notes[0].startswith("measured with transformers")
    assert model.cache_bytes(100) == 2 * 2 * 4 * 16 * 100 * 2


@pytest.mark.usefixtures("measuring")
def test_a_key_that_neither_a_rule_nor_the_class_reads_refuses_the_import() -> None:
    needs_libraries()
    with pytest.raises(UnsupportedConfigError, match="made_up_width, which may change memory; cannot be measured"):
        import_config(mystery())


@pytest.mark.usefixtures("measuring")
def test_a_class_of_text_alone_is_built_from_the_text_settings_and_its_towers_are_said_to_be_left_out() -> None:
    needs_libraries()
    text = {
        "model_type": "qwen3_5_text", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "layer_types": ["full_attention"], "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "tie_word_embeddings": False, "max_position_embeddings": 256,
    }  # fmt: skip
    config = {
        "model_type": "qwen3_5", "architectures": ["Qwen3_5ForCausalLM"], "text_config": text, "vision_config": {},
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = import_config(config, measure="always")
    attention = 2 * 64 * 64 + 2 * 32 * 64 + 64 * 64 + 2 * 16  # queries with a gate, keys, values, output, norms
    assert model.num_params == 2 * 100 * 64 + attention + 3 * 128 * 64 + 3 * 64
    assert "vision_config is not counted: Qwen3_5ForCausalLM is a class of text alone" in model.notes


@pytest.mark.usefixtures("measuring")
def test_a_class_may_pass_over_layers_that_predict_further_tokens_which_are_named_beside_the_weights() -> None:
    needs_libraries()
    config = {
        "model_type": "dots1", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
    }  # fmt: skip
    attention = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 2 * 16
    experts = 4 * 64 + (4 + 1) * 3 * 32 * 64
    model = import_config(config)
    assert model.num_params == 2 * 100 * 64 + 64 + 2 * (attention + 2 * 64) + 3 * 128 * 64 + experts
    assert [part.params for part in model.beside] == [None]


@pytest.mark.usefixtures("measuring")
def test_always_measures_what_a_rule_could_count_too() -> None:
    needs_libraries()
    model = import_config(LLAMA, measure="always")
    assert model == import_config(LLAMA)
    assert any(note.startswith("measured with transformers") for note in model.notes)


@pytest.mark.usefixtures("measuring")
def test_where_both_refuse_both_reasons_are_given() -> None:
    needs_libraries()
    with pytest.raises(UnsupportedConfigError, match=r"no rule knows model_type 'no_such_type'.*knows no model_type"):
        import_config({"model_type": "no_such_type"})


QUANTIZED: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.mlp*"]},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_checkpoint_is_measured_unquantized_and_stored_as_it_is_published(name: str) -> None:
    needs_libraries()
    config = LLAMA | {"quantization_config": QUANTIZED[name]}
    measured, counted = import_config(config, measure="always"), import_config(config, measure="never")
    assert not counted.storage_unknown
    assert measured == counted


def test_a_quantization_that_nothing_applies_leaves_only_the_storage_unknown() -> None:
    model = import_config(LLAMA | {"quantization_config": {"quant_method": "unheard"}})
    assert "quant_method is 'unheard'" in model.storage_unknown
    assert replace(model, storage_unknown="") == import_config(LLAMA)


def test_a_head_that_is_not_a_language_models_is_not_measured() -> None:
    with pytest.raises(UnsupportedConfigError, match="whose head is not that of a language model"):
        import_config(LLAMA | {"architectures": ["LlamaForTokenClassification"]}, measure="always")


def test_another_way_to_measure_is_an_error() -> None:
    with pytest.raises(InputError, match="no way to measure is called 'sometimes'"):
        import_config(LLAMA, measure="sometimes")


# ---------------------------------------------------------------------------------------------------------- estimates


def test_an_unread_key_is_left_out_of_an_estimate_and_named() -> None:
    model = import_config(mystery(), measure="never", estimate=True)
    assert model.is_estimate
    assert model.num_params == import_config(LLAMA).num_params
    assert "made_up_width may change memory and are not counted" in model.notes[0]
    assert "no exact figure: config.json: no rule reads made_up_width" in model.notes[1]


def test_an_estimate_keeps_what_is_known_of_the_storage() -> None:
    config = mystery() | {"quantization_config": {"quant_method": "unheard"}}
    model = import_config(config, measure="never", estimate=True)
    assert model.is_estimate
    assert "quant_method is 'unheard'" in model.storage_unknown


def test_a_quantization_that_stands_twice_is_estimated_unquantized() -> None:
    config = json.loads((CONFIGS / "moonshotai__Kimi-K2.6.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "fp8"}
    model = import_config(config, measure="never", estimate=True)
    assert model.is_estimate
    assert model.weight_bytes("bf16") == model.weight_bytes()
    assert "as if they were not quantized" in model.notes[0]


def test_an_unknown_type_is_estimated_as_a_llama_and_says_so() -> None:
    config = LLAMA | {"model_type": "unheard"}
    model = import_config(config, measure="never", estimate=True)
    assert (model.is_estimate, model.model_type) == (True, "unheard")
    assert model.num_params == import_config(LLAMA).num_params
    assert "as a Llama layout" in model.notes[0]


def test_what_lacks_sizes_is_not_even_estimated() -> None:
    with pytest.raises(UnsupportedConfigError, match="no rule knows model_type 'unheard'"):
        import_config({"model_type": "unheard", "hidden_size": 64}, measure="never", estimate=True)


def test_an_exact_config_is_no_estimate_even_where_one_was_allowed() -> None:
    assert not import_config(LLAMA, estimate=True).is_estimate


def test_an_estimate_without_the_keys_that_nobody_reads_keeps_the_stated_dtype() -> None:
    config = {**LLAMA, "torch_dtype": "bfloat16", "made_up_width": 7}
    model = import_config(config, measure="never", estimate=True)
    assert model.is_estimate
    assert model.dtype == WEIGHT_FORMATS["bf16"]
    assert not any("torch_dtype" in note for note in model.notes)
