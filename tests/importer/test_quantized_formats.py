"""Every scheme on a small model, with the bytes worked out by hand, and published sizes that no rule reaches alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.dtypes import weight_format
from kvplan.errors import UnsupportedConfigError
from kvplan.importer import import_config
from kvplan.importer.quantized.mlx import read_mlx
from kvplan.importer.quantized.modules import Matrix
from kvplan.importer.quantized.other import WHY_NOT
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES, WeightGroup
from kvplan.presets import model_from_table, model_to_table

DATA = Path(__file__).parent.parent / "data"
Config = dict[str, Any]
Bytes = Callable[[int, int], int]

SMALL = {
    "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 320,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip
ATTENTION = [(256, 256), (64, 256), (64, 256), (256, 256)]
UP, DOWN = [(320, 256), (320, 256)], [(256, 320)]
NORMS = 2 * 256 + 2 * 64
EMBEDDINGS, FINAL_NORM = 2 * 1000 * 256, 256

NVFP4 = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
FP8 = {"dynamic": False, "num_bits": 8, "type": "float"}
ROWS = {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float", "observer": "mse"}
TOKENS = {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "float", "observer": None}
GROUPS = {**NVFP4, "strategy": "tensor_group", "symmetric": True}
INT4 = {"dynamic": False, "group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"}


def read(name: str) -> Config:
    config: Config = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return config


def modelopt(algo: str, numbers: Config, ignore: list[str]) -> Config:
    group = {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}
    return {"quant_method": "modelopt", "quant_algo": algo, "config_groups": {"group_0": group}, "ignore": ignore}


def compressed(layout: str, weights: Config, inputs: Config | None, ignore: list[str]) -> Config:
    group = {"weights": weights, "input_activations": inputs, "output_activations": None, "targets": ["Linear"]}
    groups = {"config_groups": {"group_0": group}, "format": layout}
    return {"quant_method": "compressed-tensors", "ignore": ignore, "quantization_status": "compressed", **groups}


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 64,
    "desc_act": True,
    "sym": False,
    "checkpoint_format": "gptq",
}
INT8 = {**ROWS, "type": "int"}
CT = "0.11.1"


def version(config: Config, text: str) -> Config:
    return {**config, "version": text}


def nf4_bytes(rows: int, columns: int) -> int:
    """Codes, an absmax for 64 values, a table of 16 codes, and the text that says what they are."""
    text = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, columns]})
    return rows * columns // 2 + 4 * rows * columns // 64 + 16 * 4 + len(text)


ONE: dict[str, tuple[Config, Bytes]] = {
    "awq": (AWQ, lambda r, c: r * c // 2 + c // 64 * (2 * r + r // 8 * 4)),
    "fbgemm": ({**FBGEMM, "modules_to_not_convert": ["lm_head"]}, lambda r, c: r * c + 4 * r),
    "nf4": (NF4, nf4_bytes),
    "modelopt fp8": (modelopt("FP8", FP8, ["lm_head"]), lambda r, c: r * c + 4 + 4),
    "modelopt nvfp4": (modelopt("NVFP4", NVFP4, ["lm_head"]), lambda r, c: r * c // 2 + r * c // 16 + 4 + 4),
    "fp8 rows": (compressed("float-quantized", ROWS, TOKENS, ["lm_head"]), lambda r, c: r * c + 2 * r),
    "nvfp4 weights": (
        compressed("nvfp4-pack-quantized", GROUPS, None, ["lm_head"]),
        lambda r, c: r * c // 2 + r * c // 16 + 4,
    ),
    "nvfp4 weights and inputs": (
        compressed("nvfp4-pack-quantized", GROUPS, {**GROUPS, "dynamic": "local"}, ["lm_head"]),
        lambda r, c: r * c // 2 + r * c // 16 + 4 + 4,
    ),
    "int4": (compressed("pack-quantized", INT4, None, ["lm_head"]), lambda r, c: r * c // 2 + 2 * r * c // 32 + 2 * 8),
    "int4 with zeros": (
        version(compressed("pack-quantized", {**INT4, "symmetric": False}, None, ["lm_head"]), CT),
        lambda r, c: r * c // 2 + c // 32 * (2 * r + r // 8 * 4) + 2 * 8,
    ),
    "int4 in another order": (
        compressed("pack-quantized", {**INT4, "actorder": "group"}, None, ["lm_head"]),
        lambda r, c: r * c // 2 + 2 * r * c // 32 + 2 * 8 + 4 * c,
    ),
    "int4 quantized in another order": (
        compressed("pack-quantized", {**INT4, "actorder": "weight"}, None, ["lm_head"]),
        lambda r, c: r * c // 2 + 2 * r * c // 32 + 2 * 8,
    ),
    "int8 packed in rows": (
        compressed("pack-quantized", {**ROWS, "type": "int"}, None, ["lm_head"]),
        lambda r, c: r * c + 2 * r + 2 * 8,
    ),
    "int8 rows": (
        compressed("int-quantized", INT8, {**TOKENS, "type": "int"}, ["lm_head"]), lambda r, c: r * c + 2 * r,
    ),
    "int8 rows with zeros": (
        compressed("int-quantized", {**INT8, "symmetric": False}, {**TOKENS, "type": "int"}, ["lm_head"]),
        lambda r, c: r * c + 2 * r + r,
    ),
    "fp8 tensors": (
        compressed("float-quantized", {**ROWS, "strategy": "tensor"}, TOKENS, ["lm_head"]), lambda r, c: r * c + 2,
    ),
    "fp8 tensors and inputs": (
        compressed("float-quantized", {**ROWS, "strategy": "tensor"}, {**FP8, "strategy": "tensor"}, ["lm_head"]),
        lambda r, c: r * c + 2 + 2,
    ),
    "fp8 blocks": (
        compressed("float-quantized", {**ROWS, "strategy": "block", "block_structure": [128, 128]},
                   {**TOKENS, "strategy": "group", "group_size": 128}, ["lm_head"]),
        lambda r, c: r * c + -(-r // 128) * -(-c // 128) * 2,
    ),
    "mxfp4 of the library": (
        compressed("mxfp4-pack-quantized", {**GROUPS, "strategy": "group", "group_size": 32}, None, ["lm_head"]),
        lambda r, c: r * c // 2 + r * c // 32,
    ),
    "gptq": (GPTQ, lambda r, c: r * c // 2 + c // 64 * (2 * r + r // 8 * 4) + 4 * c),
    "gptq in 3 bits": ({**GPTQ, "bits": 3}, lambda r, c: r * c * 3 // 8 + c // 64 * (2 * r + r // 32 * 12) + 4 * c),
    "gptq in 2 bits": ({**GPTQ, "bits": 2}, lambda r, c: r * c // 4 + c // 64 * (2 * r + r // 16 * 4) + 4 * c),
    "gptq in 8 bits, one group": (
        {**GPTQ, "bits": 8, "group_size": -1}, lambda r, c: r * c + 2 * r + r // 4 * 4 + 4 * c,
    ),
    "gptq v2": (
        {**GPTQ, "checkpoint_format": "gptq_v2"}, lambda r, c: r * c // 2 + c // 64 * (2 * r + r // 8 * 4) + 4 * c,
    ),
    "nf4 with quantized scales": (
        {**NF4, "bnb_4bit_use_double_quant": True},
        lambda r, c: r * c // 2 + r * c // 64 + -(-r * c // 64 // 256) * 4 + 16 * 4 + 256 * 4,
    ),
    "autofp8": (
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        lambda r, c: r * c + 4 + 4,
    ),
    "autofp8 without inputs": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]}, lambda r, c: r * c + 4,
    ),
    "fp8 in blocks, without a list": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        lambda r, c: r * c + -(-r // 128) * -(-c // 128) * 4,
    ),
    "eetq": ({"quant_method": "eetq", "weights": "int8"}, lambda r, c: r * c + 2 * r),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_every_projection_is_stored_as_the_format_lays_it_out(name: str) -> None:
    config, size = ONE[name]
    layer = sum(size(*shape) for shape in [*ATTENTION, *UP, *DOWN]) + 2 * NORMS
    model = import_config({**SMALL, "quantization_config": config})
    assert model.weight_bytes() == 3 * layer + 2 * (EMBEDDINGS + FINAL_NORM)


@pytest.mark.parametrize("name", ONE)
def test_a_preset_of_it_reads_as_it_was_written(name: str) -> None:
    model = import_config({**SMALL, "quantization_config": ONE[name][0]})
    assert model_from_table(model_to_table(model), "a.toml") == model


def test_a_model_whose_storage_is_not_known_reads_as_it_was_written() -> None:
    model = import_config({**SMALL, "quantization_config": {"quant_method": "unheard"}})
    assert model_from_table(model_to_table(model), "a.toml") == model
    assert model.storage_unknown


LISTS: dict[str, Config] = {
    "globs": modelopt("FP8", FP8, ["lm_head", "model.layers.0*", "*.self_attn.*", "model.layers.2.mlp.down_proj"]),
    "globs behind a wrapper": modelopt(
        "FP8",
        FP8,
        ["language_model.lm_head", "language_model.model.layers.0*", "*.self_attn*", "model.layers.2.mlp.down_proj"],
    ),
}
NAMED = ["model.layers.0.mlp.up_proj", "model.layers.0.mlp.gate_proj", "re:.*layers\\.(0|2)\\.mlp\\.down_proj"]


@pytest.mark.parametrize("config", LISTS.values(), ids=LISTS)
def test_shell_patterns_leave_out_the_modules_that_they_match(config: Config) -> None:
    fp8 = sum(r * c + 8 for r, c in [*UP, *DOWN]) + sum(r * c + 8 for r, c in UP)  # of layer 1, of layer 2
    plain = sum(r * c for r, c in 3 * ATTENTION + UP + DOWN + DOWN) + 3 * NORMS + EMBEDDINGS + FINAL_NORM
    assert import_config({**SMALL, "quantization_config": config}).weight_bytes() == fp8 + 2 * plain


def test_names_and_expressions_leave_out_the_modules_that_they_match() -> None:
    config = compressed("float-quantized", ROWS, TOKENS, ["lm_head", *NAMED])
    fp8 = sum(r * c + 2 * r for r, c in 3 * ATTENTION + UP + UP + DOWN)
    plain = sum(r * c for r, c in UP + DOWN + DOWN) + 3 * NORMS + EMBEDDINGS + FINAL_NORM
    assert import_config({**SMALL, "quantization_config": config}).weight_bytes() == fp8 + 2 * plain


def test_fragments_of_names_leave_out_the_modules_that_have_them() -> None:
    config = {**FBGEMM, "modules_to_not_convert": ["model.layers.1.mlp", "k_proj"]}
    keys = [(64, 256)]
    fp8 = sum(r * c + 4 * r for r, c in 2 * (UP + DOWN) + 3 * ATTENTION) - 3 * sum(r * c + 4 * r for r, c in keys)
    plain = sum(r * c for r, c in UP + DOWN + 3 * keys) + 3 * NORMS + EMBEDDINGS + FINAL_NORM
    assert import_config({**SMALL, "quantization_config": config}).weight_bytes() == fp8 + 2 * plain


def test_mlx_quantizes_embedding_and_head_and_may_store_named_matrices_otherwise() -> None:
    named = {"bits": 8, "group_size": 64, "mode": "affine"}
    both = {"group_size": 32, "bits": 4, "lm_head": named, "model.layers.1.mlp.down_proj": named}
    usual = 3 * sum(r * c for r, c in ATTENTION + UP + DOWN) - 256 * 320 + 1000 * 256
    eight = 256 * 320 + 1000 * 256
    expected = usual // 2 + usual // 32 * 4 + eight + eight // 64 * 4 + 2 * (3 * NORMS + FINAL_NORM)
    assert import_config({**SMALL, "quantization": both}).weight_bytes() == expected
    assert import_config({**SMALL, "quantization": both, "quantization_config": both}).weight_bytes() == expected


def test_gptq_may_quantize_the_head_leave_modules_out_and_use_other_bits() -> None:
    dynamic = {r"-:.*layers\.0\..*": {}, r"+:.*down_proj": {"bits": 8, "group_size": 32}}
    config = {**GPTQ, "lm_head": True, "dynamic": dynamic, "group_size": 32}

    def four(rows: int, columns: int) -> int:
        return rows * columns // 2 + columns // 32 * (2 * rows + rows // 8 * 4) + 4 * columns

    eight = 256 * 320 + 320 // 32 * (2 * 256 + 256 // 4 * 4) + 4 * 320
    layers = 2 * (sum(four(*shape) for shape in [*ATTENTION, *UP]) + eight)
    plain = sum(r * c for r, c in ATTENTION + UP + DOWN) + 3 * NORMS + FINAL_NORM + 1024 * 256
    small = {**SMALL, "vocab_size": 1024}
    assert (
        import_config({**small, "quantization_config": config}).weight_bytes() == layers + four(1024, 256) + 2 * plain
    )


OLD_GPTQ = {key: value for key, value in GPTQ.items() if key != "checkpoint_format"}
PROJECTIONS = {
    **{f"self_attn.{name}_proj": rows for name, rows in (("q", 256), ("k", 64), ("v", 64), ("o", 256))},
    **{f"mlp.{name}_proj": rows for name, rows in (("gate", 320), ("up", 320), ("down", 256))},
}


def gptq_index(*biased: str) -> Config:
    """The index of three layers; the modules named hold a bias besides their packed codes."""
    names = [f"model.layers.{layer}.{name}" for layer in range(3) for name in PROJECTIONS]
    kept = [f"{name}.bias" for name in names if name.split(".", 3)[3] in biased]
    return {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys([*(f"{n}.qweight" for n in names), *kept], "a")}


@pytest.mark.parametrize("family", ["qwen3", "qwen2"])
@pytest.mark.parametrize("zeros", [True, False])
def test_the_names_of_the_tensors_tell_whether_gptq_stored_biases_of_zeros(zeros: bool, family: str) -> None:
    """As AutoGPTQ wrote them before `checkpoint_format` said so; those of q, k and v Qwen2 has itself."""
    config = {key: value for key, value in SMALL.items() if key != "head_dim" or family == "qwen3"}
    config["model_type"] = family
    own = [name for name in PROJECTIONS if name[-6:-5] in "qkv" and family == "qwen2"]
    found = import_config(
        {**config, "quantization_config": OLD_GPTQ}, index=gptq_index(*(PROJECTIONS if zeros else own))
    )
    stated = import_config({**config, "quantization_config": GPTQ})
    biases = 3 * 2 * sum(rows for name, rows in PROJECTIONS.items() if name not in own) if zeros else 0
    assert found.weight_bytes() == stated.weight_bytes() + biases


def test_gptq_without_a_checkpoint_format_says_what_would_tell() -> None:
    config = {**SMALL, "quantization_config": OLD_GPTQ}
    assert "give the model.safetensors.index.json beside it" in import_config(config).storage_unknown
    other = {"metadata": {"total_size": 1}, "weight_map": {"model.norm.weight": "a"}}
    assert "names no .qweight, so it is of another checkpoint" in import_config(config, index=other).storage_unknown
    own = import_config(config | {"attention_bias": True}, index=gptq_index("self_attn.q_proj"))
    assert "which of them qwen3 has is not known" in own.storage_unknown


def test_gptq_quantizes_the_modules_that_it_lists() -> None:
    listed = [["self_attn.q_proj", "self_attn.k_proj"], ["mlp.gate_proj", "mlp.up_proj"]]
    found = import_config({**SMALL, "quantization_config": {**GPTQ, "modules_in_block_to_quantize": listed}})
    stored = {(g.role, g.rows) for g, _ in found.all_groups if g.storage}
    assert stored == {("attention_q", 256), ("attention_k", 64), ("mlp", 320)}


MIXTRAL = {
    "model_type": "mixtral", "torch_dtype": "float16", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 320,
    "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip


def awq_bytes(rows: int, columns: int) -> int:
    return rows * columns // 2 + columns // 64 * (2 * rows + rows // 8 * 4)


def test_awq_quantizes_every_expert_and_no_router() -> None:
    layer = sum(awq_bytes(*shape) for shape in [*ATTENTION, *4 * UP, *4 * DOWN]) + 2 * (4 * 256 + 2 * 256)
    config = {**MIXTRAL, "quantization_config": {**AWQ, "modules_to_not_convert": ["gate"]}}
    assert import_config(config).weight_bytes() == 2 * layer + 2 * (EMBEDDINGS + FINAL_NORM)


def test_awq_that_does_not_leave_out_the_router_is_not_guessed() -> None:
    assert "router is not left out" in import_config({**MIXTRAL, "quantization_config": AWQ}).storage_unknown


def test_mlx_quantizes_routers_too_and_leaves_rows_that_groups_do_not_fill() -> None:
    """320 columns are no multiple of 128: that matrix is not quantized."""
    config = {**MIXTRAL, "quantization": {"bits": 4, "group_size": 128}}
    values = 2 * (sum(r * c for r, c in [*ATTENTION, *4 * UP]) + 4 * 256) + EMBEDDINGS
    plain = 2 * (4 * 320 * 256 + 2 * 256) + FINAL_NORM
    assert import_config(config).weight_bytes() == values // 2 + values // 128 * 4 + 2 * plain


def test_mlx_in_mxfp4_has_a_byte_for_32_values() -> None:
    config = {**SMALL, "quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4", "lm_head": False}}
    values = 3 * sum(r * c for r, c in ATTENTION + UP + DOWN) + 1000 * 256
    plain = 3 * NORMS + FINAL_NORM + 1000 * 256
    assert import_config(config).weight_bytes() == values // 2 + values // 32 + 2 * plain


PHI3 = {**SMALL, "model_type": "phi3", "pad_token_id": 0}


def test_a_fused_matrix_has_the_numbers_of_the_whole_once() -> None:
    """Of queries, keys and values, and of gate and up."""
    config = {key: value for key, value in PHI3.items() if key not in ("use_sliding_window", "head_dim")}
    found = import_config({**config, "quantization_config": GPTQ})

    def four(rows: int, columns: int) -> int:
        return rows * columns // 2 + columns // 64 * (2 * rows + rows // 8 * 4) + 4 * columns

    layer = four(256 + 64 + 64, 256) + four(256, 256) + four(640, 256) + four(256, 320) + 2 * 2 * 256
    assert found.weight_bytes() == 3 * layer + 2 * (EMBEDDINGS + FINAL_NORM)
    assert model_from_table(model_to_table(found), "a.toml") == found


MIXED: Config = {
    "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["mtp*"],
    "quantized_layers": {
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "model.layers.1.mlp.up_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.gate_proj": {"quant_algo": "FP8"},
        "model.layers.2.self_attn.o_proj": {"quant_algo": "MXFP8"},
    },
}  # fmt: skip


def test_mixed_formats_go_by_the_names_of_the_modules() -> None:
    head = 1000 * 256 // 2 + 1000 * 256 // 16 + 4
    fp8, mxfp8 = 2 * (320 * 256 + 4 + 4), 256 * 256 + 256 * 256 // 32
    plain = 3 * (sum(r * c for r, c in ATTENTION + UP + DOWN) + NORMS) + FINAL_NORM + 1000 * 256
    plain -= 2 * 320 * 256 + 256 * 256
    found = import_config({**SMALL, "quantization_config": MIXED})
    assert found.weight_bytes() == head + fp8 + mxfp8 + 2 * plain


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}, "are stored differently"),
        ({"model.layers.0.mlp.fc1": {"quant_algo": "FP8"}}, "name of no matrix"),
        ({"model.layers.0.self_attn.q_proj": {"quant_algo": "INT4_AWQ"}}, "is not one of NVFP4"),
        ({"model.layers.0.self_attn.q_proj": {"quant_algo": "NVFP4", "group_size": 32}}, "in groups of 16"),
        ({"model.layers.0.self_attn.q_proj": 4}, "is not one of NVFP4"),
    ],
)
def test_mixed_formats_that_are_not_understood_are_not_guessed(changed: Config, words: str) -> None:
    config = {**MIXED, "quantized_layers": {**MIXED["quantized_layers"], **changed}}
    assert words in import_config({**SMALL, "quantization_config": config}).storage_unknown


def test_mixed_formats_whose_groups_say_something_else_are_not_guessed() -> None:
    groups = {"a": {"weights": NVFP4, "input_activations": NVFP4, "targets": ["lm_head"]}}
    found = import_config({**SMALL, "quantization_config": {**MIXED, "config_groups": groups}})
    assert "do not say the same" in found.storage_unknown


def test_groups_of_named_modules_are_stored_each_in_its_own_format() -> None:
    """As llm-compressor writes mixed precision: fp8 for the attention, int4 for the rest of the projections."""
    groups = {
        "a": {
            "weights": ROWS,
            "input_activations": TOKENS,
            "targets": ["re:.*self_attn.*"],
            "format": "float-quantized",
        },
        "b": {"weights": INT4, "targets": [r"re:.*mlp\.(gate|up|down)_proj"], "format": "pack-quantized"},
    }
    config = {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": groups, "ignore": []}
    fp8 = sum(r * c + 2 * r for r, c in ATTENTION)
    int4 = sum(r * c // 2 + 2 * r * c // 32 + 16 for r, c in UP + DOWN)
    found = import_config({**SMALL, "quantization_config": config})
    assert found.weight_bytes() == 3 * (fp8 + int4 + 2 * NORMS) + 2 * (EMBEDDINGS + FINAL_NORM)


@pytest.mark.parametrize("method", sorted(WHY_NOT))
def test_a_method_whose_files_cannot_be_counted_is_named_with_the_reason(method: str) -> None:
    model = import_config({**SMALL, "quantization_config": {"quant_method": method, "bits": 4}})
    assert model.storage_unknown == f"config.json quantization_config: quant_method is {method!r}; {WHY_NOT[method]}"
    assert model == replace(import_config(SMALL), storage_unknown=model.storage_unknown)


UNKNOWN: dict[str, tuple[Config, str]] = {
    "marlin": ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format is marlin"),
    "5 bits": ({**GPTQ, "bits": 5}, "bits is 5; known: 2, 3, 4, 8"),
    "groups of 48": ({**GPTQ, "group_size": 48}, "group_size is 48"),
    "a dynamic rule": ({**GPTQ, "dynamic": {"x": {"rotation": 1}}}, "states more than bits and group_size"),
    "no list of lists": ({**GPTQ, "modules_in_block_to_quantize": ["q_proj"]}, "a list of lists"),
    "half of a group": ({**GPTQ, "modules_in_block_to_quantize": [["mlp.up_proj"]]}, "only some are quantized"),
    "the head in half packs": ({**GPTQ, "lm_head": True}, "does not fill whole packs"),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "bias of zeros"),
    "awq in 3 bits": ({**AWQ, "bits": 3}, "bits is 3"),
    "awq gemv": ({**AWQ, "version": "gemv"}, "version"),
    "awq in one group": ({**AWQ, "group_size": -1}, "group_size is -1"),
    "another container": ({**NF4, "bnb_4bit_quant_storage": "bfloat16"}, "containers"),
    "neither width": ({"quant_method": "bitsandbytes"}, "neither load_in_8bit nor load_in_4bit"),
    "another code": ({**NF4, "bnb_4bit_quant_type": "nf3"}, "bnb_4bit_quant_type"),
    "a head in 4 bits": ({**NF4, "llm_int8_skip_modules": ["visual"]}, "does not name lm_head"),
    "a head in fp8": (modelopt("FP8", FP8, ["model.layers.0*"]), "the output head is not left out"),
    "half a group": (modelopt("FP8", FP8, ["lm_head", "model.layers.0.mlp.up_proj"]), "only some are left out"),
    "an unknown name": (modelopt("FP8", FP8, ["lm_head", "model.layers.0.attn"]), "name of no matrix"),
    "another algorithm": (modelopt("W4A8", FP8, ["lm_head"]), "W4A8"),
    "other numbers": (modelopt("NVFP4", {**NVFP4, "group_size": 32}, ["lm_head"]), "config_groups"),
    "fp8 groups": (compressed("float-quantized", {**ROWS, "strategy": "group"}, TOKENS, ["lm_head"]), "whose bytes"),
    "other scales": (compressed("float-quantized", {**ROWS, "scale_dtype": "uint8"}, TOKENS, ["lm_head"]), "whose"),
    "zeros": (compressed("pack-quantized", {**INT4, "symmetric": False}, None, ["lm_head"]), "since version 0.10"),
    "groups of 8": (compressed("pack-quantized", {**INT4, "group_size": 8}, None, ["lm_head"]), "whose bytes"),
    "another order": (compressed("pack-quantized", {**INT4, "actorder": "new"}, None, ["lm_head"]), "whose bytes"),
    "scaled inputs": (compressed("int-quantized", {**ROWS, "type": "int"}, FP8, ["lm_head"]), "whose bytes"),
    "another layout": (compressed("marlin-24", INT4, None, ["lm_head"]), "marlin-24"),
    "no groups": ({**compressed("pack-quantized", INT4, None, []), "config_groups": {}}, "config_groups is empty"),
    "a group of nothing": (
        {**compressed("pack-quantized", INT4, None, []), "config_groups": {"a": {"targets": ["Linear"]}}},
        "differs",
    ),
    "other targets": (
        compressed("pack-quantized", INT4, None, ["lm_head"]) | {"config_groups": {"a": {"targets": ["Conv2d"]}}},
        "differs from what is known",
    ),
    "other targets in the group": (
        compressed("dense", INT4, None, ["lm_head"])
        | {"config_groups": {"group_0": {"targets": ["Conv2d"], "weights": INT4}}},
        "targets Conv2d",
    ),
    "an empty list": ({**FBGEMM, "modules_to_not_convert": []}, "modules_to_not_convert is empty"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_files_hold_is_not_guessed(name: str) -> None:
    config, words = UNKNOWN[name]
    assert words in import_config({**SMALL, "quantization_config": config}).storage_unknown


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"bits": 7, "group_size": 64}, "7 bits in groups of 64"),
        ({"bits": 4, "group_size": 64, "mode": "mxfp4"}, "mxfp4"),
        ({"bits": 4, "group_size": 64, "lm_head": {"bits": 4, "group_size": 32, "extra": 1}}, "lm_head: no rule reads"),
        ({"bits": 4, "group_size": 64, "model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 64}}, "differently"),
        ({"bits": 4, "group_size": 64, "lm_head": 4}, "an object is needed"),
        ({"bits": 4, "group_size": 64, "visual.proj": {"bits": 4, "group_size": 64}}, "visual.proj is the name of no"),
    ],
)
def test_another_mlx_layout_is_not_guessed(config: Config, words: str) -> None:
    assert words in import_config({**SMALL, "quantization": config}).storage_unknown


FAMILIES: dict[str, tuple[Config, str]] = {
    "mlx": ({"quantization": {"bits": 4, "group_size": 64}}, "which matrices an MLX checkpoint of phi4mm quantizes"),
    "awq": ({"quantization_config": AWQ}, "how awq checkpoints of phi4mm lay out"),
    "bitsandbytes": ({"quantization_config": NF4}, "which matrices of phi4mm bitsandbytes quantizes"),
    "modelopt": ({"quantization_config": modelopt("FP8", FP8, ["lm_head"])}, "whether phi4mm checkpoints have a scale"),
    "mxfp4": ({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}, "known for gpt_oss"),
    "elsewhere": ({"compression_config": {"bits": 4}}, "compression_config describes"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_whose_files_are_not_known_is_not_guessed(name: str) -> None:
    config, words = FAMILIES[name]
    assert words in import_config({**read("microsoft__Phi-4-multimodal-instruct"), **config}).storage_unknown


@pytest.mark.parametrize(
    "config",
    [
        {"quantization": {"bits": 4, "group_size": 64}},
        {"quantization_config": compressed("pack-quantized", INT4, None, ["lm_head"])},
    ],
)
def test_scales_of_a_model_in_float32_are_not_guessed(config: Config) -> None:
    assert "16 bits" in import_config({**SMALL, **config, "torch_dtype": "float32"}).storage_unknown


def qwen3_5(quantization: Config) -> Config:
    """A published Qwen3.5 whose queries and their gate are one matrix, stored otherwise."""
    config = read("nvidia__Qwen3.6-27B-NVFP4")
    return {**config, "quantization_config": quantization}


HEAD_AND_TOWER = ["lm_head", "re:.*visual.*"]


@pytest.mark.parametrize(
    "quantization",
    [
        compressed("float-quantized", ROWS, TOKENS, ["lm_head"]),
        modelopt("FP8", FP8, ["lm_head"]),
    ],
)
def test_a_tower_that_the_list_does_not_name_is_not_guessed(quantization: Config) -> None:
    assert "whether the tower of vision_config is quantized" in import_config(qwen3_5(quantization)).storage_unknown


def test_rows_of_a_fused_matrix_add_up() -> None:
    plain, fp8 = qwen3_5({}), qwen3_5(compressed("float-quantized", ROWS, TOKENS, HEAD_AND_TOWER))
    del plain["quantization_config"]
    projections = [(g, n) for g, n in import_config(plain).all_groups if ROLES[g.role].quantized and g.columns > 1]
    saved = sum((g.params - 2 * g.rows * g.count) * n for g, n in projections if g.tower == "text")
    assert import_config(fp8).weight_bytes() == import_config(plain).weight_bytes() - saved


def test_numbers_that_a_fused_matrix_holds_once_are_counted_once() -> None:
    """A shape of two int64 for queries and their gate, which are one matrix."""
    plain, packed = qwen3_5({}), qwen3_5(compressed("pack-quantized", INT4, None, HEAD_AND_TOWER))
    del plain["quantization_config"]
    groups = [(g, n) for g, n in import_config(plain).all_groups if ROLES[g.role].quantized and g.columns > 1]
    text = [(g, n) for g, n in groups if g.tower == "text"]
    matrices = sum(g.count * n for g, n in text if g.role != "attention_gate")
    saved = sum((2 * g.params - g.params // 2 - g.params // 32 * 2) * n for g, n in text) - 16 * matrices
    assert import_config(packed).weight_bytes() == import_config(plain).weight_bytes() - saved


def test_an_mlx_matrix_without_a_known_name_is_not_guessed() -> None:
    scheme = read_mlx(ConfigView({"bits": 4, "group_size": 64}), "llama", ConfigView({}))
    with pytest.raises(UnsupportedConfigError, match="the names of the dense MLP are not known"):
        scheme.choose(Matrix(0, WeightGroup("mlp", 64, 64), ()), 0)


def test_an_indexer_whose_matrices_look_alike_is_not_guessed() -> None:
    config = read("deepseek-ai__DeepSeek-V3.2") | {"index_n_heads": 128}
    assert "cannot be told apart" in import_config(config).storage_unknown


def test_a_quantized_tower_is_refused_by_its_key() -> None:
    config = read("Qwen__Qwen2-VL-2B-Instruct-AWQ")
    config["vision_config"]["quantization_config"] = AWQ
    with pytest.raises(UnsupportedConfigError, match=r"vision_config\.quantization_config"):
        import_config(config, measure="never")


def test_two_different_quantizations_are_not_reconciled() -> None:
    config = {**SMALL, "quantization": {"bits": 4, "group_size": 64}, "quantization_config": AWQ}
    assert "quantization and quantization_config differ" in import_config(config).storage_unknown


def test_a_proposed_cache_dtype_is_a_note_and_nothing_else() -> None:
    plain = modelopt("FP8", FP8, ["lm_head"])
    proposing = {**plain, "kv_cache_scheme": FP8}
    model = import_config({**SMALL, "quantization_config": proposing})
    assert any("kv_cache_scheme proposes 8 bit float for the cache" in note for note in model.notes)
    assert model == import_config({**SMALL, "quantization_config": plain})


# ------------------------------------------------------------------------------------------------- published sizes


def total_size(name: str) -> int:
    rows = map(json.loads, (DATA / "config_oracle.jsonl").read_text(encoding="utf-8").splitlines())
    return next(int(row["total_size"]) for row in rows if row["file"] == f"configs/{name}.json")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Qwen__Qwen-7B-Chat-Int4", "bf16"),
        ("Qwen__Qwen3-14B-MLX-4bit", None),
        ("Youssofal__Qwen3.8-27B-MTPLX-Optimized-Speed", None),
        ("github_jeevanchaps__Llama-3.1-8B-Instruct-bnb", None),
    ],
)
def test_a_quantized_checkpoint_has_its_published_size(name: str, dtype: str | None) -> None:
    assert import_config(read(name), dtype=dtype).weight_bytes() == total_size(name)


def test_molmo_in_nf4_has_its_published_size() -> None:
    """No rule counts its tower, so its tensors are written out: 28 layers of four fused matrices are quantized."""
    nf4 = weight_format("bnb_nf4_file_fp16")
    layer = sum(nf4.matrix_bytes(rows, 3584) for rows in (4608, 3584, 37888)) + nf4.matrix_bytes(3584, 18944)
    vectors = 28 * (4608 + 2 * 3584) + 3584  # biases of q, k and v, and norms
    embeddings = (152064 + 128 + 152064) * 3584
    block = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
    tower = 1024 + 577 * 1024 + 588 * 1024 + 2 * 1024 + 23 * block
    pooling = 3 * (2048 * 1024 + 1024) + 1024 * 1024 + 1024
    projector = 2 * 18944 * 1024 + 3584 * 18944 + 2 * 2048
    plain = vectors + embeddings + tower + pooling + projector
    assert 28 * layer + 2 * plain == total_size("github_reubzdubz__Molmo-7B-D-NF4")


def test_gemma_4_in_int4_has_its_published_size_less_buffers_and_file_headers() -> None:
    """Its index adds up whole files: their headers are padded to 8 bytes and take some 130 bytes a tensor."""
    model = import_config(read("github_Ade7121976__gemma-4-26B-A4B-CT"))
    buffers = 2 * (30 + 2 * 1152)  # a scalar a layer; mean and deviation of the tower
    headers = total_size("github_Ade7121976__gemma-4-26B-A4B-CT") - model.weight_bytes() - buffers
    packed = 30 * (128 * 3 + 4) - 5  # experts and attention; five layers have no matrix for values
    others = sum(group.count * layers for group, layers in model.all_groups if group.storage is None)
    assert headers % 8 == 0
    assert 120 < headers / (3 * packed + others) < 140


def test_kimi_k2_5_in_nvfp4_stores_its_dense_layer_and_shared_experts_so_too() -> None:
    name = "nvidia__Kimi-K2.5-NVFP4"
    model, routers = import_config(read(name)), 60 * 384 * 7168  # float32
    small, large = 2048 * 7168, 18432 * 7168
    matrices, values = 60 * 385 * 3 + 3, 60 * 385 * 3 * small + 3 * large
    stored = values // 2 + values // 16 + 8 * matrices
    assert model.weight_bytes() == stored + 2 * (model.num_params - values) + 2 * routers


def test_llama_4_scout_in_fp8_keeps_its_attention_routers_and_tower() -> None:
    model = import_config(read("RedHatAI__Llama-4-Scout-17B-16E-Instruct-FP8-dynamic"))
    values, rows = 48 * 17 * 3 * 8192 * 5120, 48 * 17 * (2 * 8192 + 5120)
    assert model.weight_bytes() == values + 2 * rows + 2 * (model.num_params - values)


def test_qwen2_vl_in_awq_keeps_its_tower() -> None:
    model = import_config(read("Qwen__Qwen2-VL-2B-Instruct-AWQ"))
    values = 28 * (2 * 1536 * 1536 + 2 * 256 * 1536 + 3 * 8960 * 1536)
    packed = values // 2 + values // 128 * 2 + values // 128 // 8 * 4
    assert model.weight_bytes() == packed + 2 * (model.num_params - values)
