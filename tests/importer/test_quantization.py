"""Storage of quantized checkpoints: published element counts, bytes by hand, and refusals by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
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


@pytest.mark.parametrize("name", ["deepseek-ai__DeepSeek-V3", "deepseek-ai__DeepSeek-R1-0528"])
def test_deepseek_publishes_one_more_layer_with_its_own_embedding_and_head(name: str) -> None:
    model = import_config(read(name))
    router_biases = (58 + 1) * 256  # of the mixture layers and the extra one
    outer = 2 * 129_280 * 7168
    assert elements(model) + extra_layer(model) + outer + router_biases == official(name)


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


def test_fp8_blocks_carry_a_scale_for_every_tile_edges_included() -> None:
    listed = {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"]}
    tiles = {"q": 2 * 2, "k": 1 * 2, "v": 1 * 2, "o": 2 * 2, "gate": 3 * 2, "up": 3 * 2, "down": 2 * 3}
    values = 2 * 192 * 192 + 2 * 64 * 192 + 3 * 300 * 192
    layer = values + 4 * sum(tiles.values()) + 2 * (2 * 192 + 2 * 64)
    outer = 2 * (2 * 1000 * 192 + 192)
    assert import_config({**TINY, "quantization_config": listed}).weight_bytes() == 2 * layer + outer


def test_a_plan_may_ask_for_another_dtype_than_the_published_one() -> None:
    quantized = import_config(read("openai__gpt-oss-20b"), dtype="bf16")
    assert quantized.weight_bytes("bf16") == 2 * quantized.num_params


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"quant_method": "gptq"}, "gptq"),
        ({"quant_method": None}, "quant_method"),
        ({"weight_block_size": [64, 64]}, r"\[64, 64\]"),
        ({"weight_block_size": None}, "weight_block_size"),
        ({"scale_fmt": "ue8m0"}, "scale_fmt"),
        ({"modules_to_not_convert": None}, "lm_head"),
        ({"modules_to_not_convert": ["model.norm"]}, "lm_head"),
        ({"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"]}, "down_proj"),
        ({"some_new_switch": True}, "some_new_switch"),
    ],
)
def test_a_quantization_that_is_not_understood_is_refused_by_name(changed: Config, words: str) -> None:
    config = {**FP8, "modules_to_not_convert": ["lm_head"], **changed}
    with pytest.raises(UnsupportedConfigError, match=words):
        import_config({**TINY, "quantization_config": config})


def test_a_family_whose_checkpoints_fuse_matrices_is_refused_in_blocks() -> None:
    config = {**read("microsoft__phi-4"), "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}
    with pytest.raises(UnsupportedConfigError, match="phi3"):
        import_config(config)


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
        ({"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
        ({"config_groups": {}}, "config_groups"),
    ],
)
def test_another_layout_inside_the_text_config_is_refused_where_it_stands(changed: Config, words: str) -> None:
    config = read("moonshotai__Kimi-K2.6")
    config["text_config"]["quantization_config"] |= changed
    with pytest.raises(UnsupportedConfigError, match=f"text_config quantization_config: .*{words}"):
        import_config(config)


def test_a_quantization_of_both_objects_is_refused() -> None:
    config = {**read("moonshotai__Kimi-K2.6"), "quantization_config": FP8}
    with pytest.raises(UnsupportedConfigError, match="both"):
        import_config(config)


@pytest.mark.parametrize("path", sorted((DATA / "quant_configs").glob("*.json")), ids=lambda path: path.name[:40])
def test_a_companion_file_is_refused_by_the_name_of_its_method(path: Path) -> None:
    with pytest.raises(
        UnsupportedConfigError, match=r"hf_quant_config.json: quant_algo is '(NVFP4|FP8|MIXED_PRECISION)'"
    ):
        import_config(TINY, quant_config=path)


def test_a_companion_file_that_quantizes_nothing_changes_nothing() -> None:
    companion = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    assert import_config(TINY, quant_config=companion) == import_config(TINY)


def test_a_companion_file_that_is_none_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="quant_algo"):
        import_config(TINY, quant_config={})


def test_a_quantization_config_that_is_no_object_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="quantization_config is 'fp8'"):
        import_config({**TINY, "quantization_config": "fp8"})
