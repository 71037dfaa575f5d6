"""Storage of quantized checkpoints: published element counts, bytes by hand, and what is not known, by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import ConfigError, InputError, UnsupportedConfigError
from kvplan.importer import import_config
from kvplan.model import Model, WeightGroup

DATA = Path(__file__).parent.parent / "data"
Config = dict[str, Any]
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
TINY = {
    "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 1000, "hidden_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 300,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip


def read(name: str) -> Config:
    config: Config = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return config


def official(name: str) -> int:
    """Elements of the published safetensors files, scales included."""
    rows = map(json.loads, (DATA / "config_oracle.jsonl").read_text(encoding="utf-8").splitlines())
    return next(int(row["official_params"]) for row in rows if row["file"] == f"configs/{name}.json")


def scale_elements(groups: list[tuple[WeightGroup, int]]) -> int:
    stored = [(group, layers) for group, layers in groups if group.storage is not None]
    return sum(
        layers * group.count * scale.total_bytes(group.rows, group.columns) // scale.bytes
        for group, layers in stored
        for scale in group.storage.scales
    )


def elements(model: Model) -> int:
    return model.num_params + scale_elements(list(model.all_groups))


def extra_layer(model: Model) -> int:
    """A multi-token-prediction layer: one more layer, its 2h x h projection and three norms."""
    last = [(group, 1) for group in model.layers[-1].weights]
    hidden = model.hidden_size
    return sum(group.params for group, _ in last) + scale_elements(last) + 2 * hidden * hidden + 3 * hidden


@pytest.mark.parametrize("name", ["Qwen__Qwen3-235B-A22B-FP8", "openai__gpt-oss-20b", "openai__gpt-oss-120b"])
def test_a_quantized_checkpoint_has_the_published_number_of_elements(name: str) -> None:
    assert elements(import_config(read(name), dtype="bf16")) == official(name)


@pytest.mark.parametrize(
    "name",
    ["deepseek-ai__DeepSeek-V3", "deepseek-ai__DeepSeek-R1-0528", "deepseek-ai__DeepSeek-V3.2",
     "deepseek-ai__DeepSeek-V3.2-Exp"],
)  # fmt: skip
def test_deepseek_publishes_one_more_layer_with_its_own_embedding_and_head(name: str) -> None:
    model = import_config(read(name))
    router_biases = (58 + 1) * 256  # of the mixture layers and the extra one
    outer = 2 * 129_280 * 7168
    assert elements(model) + extra_layer(model) + outer + router_biases == official(name)


def test_deepseek_v4_pro_publishes_one_more_layer_and_what_its_routers_hold() -> None:
    """Experts are packed two values a byte, and each such byte is an element of the published number."""
    model = import_config(read("deepseek-ai__DeepSeek-V4-Pro"))
    experts = [(g, n) for g, n in model.all_groups if g.role == "routed_experts"]
    packed = sum(g.params * n for g, n in experts) // 2
    hidden, width = 7168, 3072
    layer = model.layers[-1]
    compressors = ("indexer", "other")
    extra = [
        (g, 1)
        for g in layer.weights
        if g.role not in compressors and not (g.role == "attention_latent" and g.count == 2)
    ]
    extra_elements = sum(g.params for g, _ in extra) + scale_elements(extra) - 3 * 384 * hidden * width // 2
    extra_elements -= sum(g.params for g, _ in extra if g.role == "norm" and g.rows in (128, 512)) - 512  # theirs
    projections = 2 * (hidden * hidden + 56 * 56)
    streams = 4 * 4 * hidden + 4 + 1
    biases, tables = (61 - 3 + 1) * 384, 3 * 129_280 * 6
    rest = extra_elements + projections + streams + 3 * hidden + biases + tables
    assert elements(model) - packed + rest == official("deepseek-ai__DeepSeek-V4-Pro")


def test_deepseek_v4_stores_a_byte_of_scale_for_each_tile_and_for_32_values_of_an_expert() -> None:
    model = import_config(read("deepseek-ai__DeepSeek-V4-Flash-0731"))
    experts = 43 * 256 * 3 * 2048 * 4096
    found = {g.role: g.storage.name for g, _ in model.all_groups if g.storage and not g.storage.is_plain}
    assert sum(g.params * n for g, n in model.all_groups if g.role == "routed_experts") == experts
    assert found["routed_experts"] == "mxfp4"
    assert found["attention_q"] == found["shared_experts"] == "fp8_block128_ue8m0"


def test_glm_publishes_one_more_layer_that_shares_embedding_and_head() -> None:
    model = import_config(read("zai-org__GLM-5.1-FP8"))
    assert elements(model) + extra_layer(model) + (75 + 1) * 256 == official("zai-org__GLM-5.1-FP8")


def test_kimi_k2_publishes_a_few_elements_more_than_any_rule_explains() -> None:
    router_biases, unexplained = 60 * 384, 3416
    found = elements(import_config(read("moonshotai__Kimi-K2-Instruct")))
    assert found + router_biases + unexplained == official("moonshotai__Kimi-K2-Instruct")


def test_gpt_oss_20b_is_4_25_bits_for_its_experts_and_16_for_the_rest() -> None:
    experts = 24 * 32 * 3 * 2880 * 2880
    rest = 20_914_757_184 - experts
    assert import_config(read("openai__gpt-oss-20b"), dtype="bf16").weight_bytes() == experts * 17 // 32 + 2 * rest


@pytest.mark.parametrize(("listed", "scale"), [(["lm_head"], 4), (["lm_head", "model.layers.0.input_layernorm"], 2)])
def test_fp8_blocks_carry_a_scale_for_every_tile_edges_included(listed: list[str], scale: int) -> None:
    """Qwen's own tool, whose lists name norms, writes scales of 16 bits; transformers writes float32."""
    tiles = {"q": 2 * 2, "k": 1 * 2, "v": 1 * 2, "o": 2 * 2, "gate": 3 * 2, "up": 3 * 2, "down": 2 * 3}
    values = 2 * 192 * 192 + 2 * 64 * 192 + 3 * 300 * 192
    layer = values + scale * sum(tiles.values()) + 2 * (2 * 192 + 2 * 64)
    outer = 2 * (2 * 1000 * 192 + 192)
    assert import_config({**TINY, "quantization_config": {**FP8, "modules_to_not_convert": listed}}).weight_bytes() == (
        2 * layer + outer
    )


def test_a_plan_may_ask_for_another_dtype_than_the_published_one() -> None:
    quantized = import_config(read("openai__gpt-oss-20b"), dtype="bf16")
    assert quantized.weight_bytes("bf16") == 2 * quantized.num_params


def assert_only_the_storage_is_unknown(config: Config, words: str) -> None:
    """Everything but the published weight bytes is that of the unquantized config."""
    plain = {key: value for key, value in config.items() if not key.startswith("quantization")}
    model = import_config(config)
    assert replace(model, storage_unknown="") == import_config(plain)
    assert re.search(words, model.storage_unknown)
    assert any(model.storage_unknown in note for note in model.notes)
    with pytest.raises(InputError, match=words):
        model.weight_bytes()
    with pytest.raises(InputError, match=words):
        model.shards()
    assert model.weight_bytes("bf16") == import_config(plain).weight_bytes("bf16")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"quant_method": "unheard"}, "unheard"),
        ({"quant_method": None}, "quant_method"),
        ({"weight_block_size": [64, 64]}, r"\[64, 64\]"),
        ({"weight_block_size": None}, "weight_block_size"),
        ({"scale_fmt": "ue8m0"}, "scale_fmt"),
        ({"modules_to_not_convert": []}, "lm_head"),
        ({"modules_to_not_convert": ["model.norm"]}, "lm_head"),
        ({"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.fc1"]}, "fc1 is the name of no matrix"),
        ({"some_new_switch": True}, "some_new_switch"),
    ],
)
def test_a_quantization_that_is_not_understood_leaves_the_storage_unknown_and_is_named(
    changed: Config, words: str
) -> None:
    config = {**FP8, "modules_to_not_convert": ["lm_head"], **changed}
    assert_only_the_storage_is_unknown({**TINY, "quantization_config": config}, words)


def test_the_blocks_of_a_fused_matrix_add_up_where_its_parts_fill_whole_tiles() -> None:
    config = {**read("microsoft__phi-4"), "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}
    found = import_config(config)
    values = 40 * (7680 * 5120 + 5120 * 5120 + 35840 * 5120 + 5120 * 17920)
    assert found.weight_bytes() == 2 * found.num_params - values + 4 * values // 128**2


def test_the_blocks_of_a_fused_matrix_whose_parts_share_a_tile_are_not_known() -> None:
    config = {**read("microsoft__phi-4"), "num_key_value_heads": 5, "head_dim": 64, "num_attention_heads": 80}
    config["quantization_config"] = {**FP8, "modules_to_not_convert": ["lm_head"]}
    assert_only_the_storage_is_unknown(config, "self_attn.qkv_proj, which holds several groups, do not add up")


def test_kimi_k2_6_packs_its_routed_experts_to_int4() -> None:
    """HF counts an int32 of packed values as eight, so each weight_shape of two int32 adds sixteen elements."""
    name = "moonshotai__Kimi-K2.6"
    model = import_config(read(name))
    experts = 60 * 384 * 3
    values = experts * 2048 * 7168
    shapes, router_biases = 16 * experts, 60 * 384
    assert model.num_params + values // 32 + shapes + router_biases == official(name)
    stored = values // 2 + 2 * values // 32 + 8 * experts
    routers = 60 * 384 * 7168  # float32
    assert model.weight_bytes() == stored + 2 * (model.num_params - values) + 2 * routers


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"format": "float-quantized"}, "float-quantized"),
        ({"ignore": ["re:.*self_attn.*"]}, "ignore"),
        ({"config_groups": {}}, "config_groups"),
        ({"transform_config": {"r1": 1}}, "transform_config"),
    ],
)
def test_another_layout_inside_the_text_config_is_named_where_it_stands(changed: Config, words: str) -> None:
    config = read("moonshotai__Kimi-K2.6")
    config["text_config"]["quantization_config"] |= changed
    assert re.search(f"text_config quantization_config: .*{words}", import_config(config).storage_unknown)


def test_a_quantization_of_both_objects_is_refused() -> None:
    config = {**read("moonshotai__Kimi-K2.6"), "quantization_config": FP8}
    with pytest.raises(UnsupportedConfigError, match="both"):
        import_config(config)


COMPANIONS = {path.name.partition(".hf_")[0]: path for path in sorted((DATA / "quant_configs").glob("*.json"))}
FITTING = {
    "nvidia__Llama-3.1-70B-Instruct-FP8": "fp8_per_tensor_static",
    "nvidia__Gemma-4-31B-IT-NVFP4": "nvfp4_static",
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": "nvfp4_static",
}
"""Their lists fit a Qwen3 of two layers too; those of the others name modules that it does not have."""


LAYER_BY_LAYER = "nvidia__MiniMax-M3-NVFP4"
"""Its list names the modules of layers 0 to 59, of which such a Qwen3 has the first."""


@pytest.mark.parametrize("name", sorted(FITTING))
def test_a_companion_file_says_how_the_matrices_are_stored(name: str) -> None:
    found = import_config(TINY, quant_config=COMPANIONS[name])
    formats = {group.storage.name for group, _ in found.all_groups if group.storage}
    assert (formats, found.storage_unknown) == ({FITTING[name]}, "")
    assert any("kv_cache_quant_algo proposes FP8 for the cache" in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(set(COMPANIONS) - set(FITTING) - {LAYER_BY_LAYER}))
def test_a_companion_file_of_another_model_or_of_mixed_formats_leaves_the_storage_unknown(name: str) -> None:
    words = r"known of this family|lacks ignore or exclude_modules|not left out"
    model = import_config(TINY, quant_config=COMPANIONS[name])
    assert re.search(f"hf_quant_config.json: .*({words})", model.storage_unknown)


def test_a_companion_file_that_quantizes_nothing_changes_nothing() -> None:
    companion = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    assert import_config(TINY, quant_config=companion) == import_config(TINY)


def test_a_companion_file_that_is_none_leaves_the_storage_unknown() -> None:
    assert "quant_algo" in import_config(TINY, quant_config={}).storage_unknown


def test_a_companion_file_beside_another_quantization_leaves_the_storage_unknown() -> None:
    config = {**TINY, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}
    companion = COMPANIONS["nvidia__Llama-3.1-70B-Instruct-FP8"]
    assert "states another quantization" in import_config(config, quant_config=companion).storage_unknown


def test_a_quantization_config_that_is_no_object_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="quantization_config is 'fp8'"):
        import_config({**TINY, "quantization_config": "fp8"})
