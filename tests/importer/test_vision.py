"""Wrappers against the classes of transformers on the meta device: towers, projectors, tied heads, defaults."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import ConfigError, KvplanError, UnsupportedConfigError
from kvplan.importer import import_config

DATA = Path(__file__).parent.parent / "data"
Config = dict[str, Any]


def class_params(name: str, config: Config) -> int:
    """Parameters of the transformers class `name` on the meta device, tied tensors once."""
    import torch
    import transformers
    from transformers import AutoConfig

    transformers.logging.set_verbosity_error()
    settings = AutoConfig.for_model(**json.loads(json.dumps(config)))
    with torch.device("meta"):
        model = getattr(transformers, name)(settings)
    return sum(parameter.numel() for parameter in model.parameters())


def text(chance: random.Random, model_type: str, **extra: Any) -> Config:
    heads = chance.choice([4, 8])
    return {
        "model_type": model_type,
        "vocab_size": chance.choice([300, 512]),
        "hidden_size": heads * 16,
        "intermediate_size": chance.choice([96, 200]),
        "num_hidden_layers": chance.choice([1, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": chance.choice([1, 2, 4]),
        **extra,
    }


def tower(chance: random.Random, **extra: Any) -> Config:
    return {
        "hidden_size": chance.choice([32, 64]),
        "intermediate_size": chance.choice([48, 72]),
        "num_hidden_layers": chance.choice([1, 2, 3]),
        "num_attention_heads": 4,
        "image_size": chance.choice([28, 56]),
        "patch_size": chance.choice([7, 14]),
        **extra,
    }


def depth_tower(chance: random.Random, out: int, **extra: Any) -> Config:
    return {
        "depth": chance.choice([1, 2, 3]),
        "hidden_size": chance.choice([32, 64]),
        "intermediate_size": chance.choice([48, 72]),
        "num_heads": 4,
        "out_hidden_size": out,
        "patch_size": chance.choice([7, 14]),
        "spatial_merge_size": chance.choice([1, 2]),
        "temporal_patch_size": chance.choice([1, 2]),
        **extra,
    }


def tied(chance: random.Random) -> Config:
    """tie_word_embeddings of a wrapper: said either way, or absent."""
    return chance.choice([{"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {}])


def llava(chance: random.Random) -> Config:
    vision = chance.choice(
        [
            tower(chance, model_type="clip_vision_model"),
            tower(chance, model_type="siglip_vision_model", vision_use_head=chance.choice([True, False])),
        ]
    )
    layer = chance.choice([{"vision_feature_layer": -2}, {"vision_feature_layer": [-1, -2]}, {}])
    bias = chance.choice([{"multimodal_projector_bias": False}, {}])
    return {"text_config": text(chance, "llama"), "vision_config": vision, **layer, **bias, **tied(chance)}


def mistral3(chance: random.Random) -> Config:
    return {
        "text_config": text(chance, "mistral", head_dim=16),
        "vision_config": tower(chance, model_type="pixtral", head_dim=8),
        **chance.choice([{"spatial_merge_size": 3}, {}]),
        **chance.choice([{"multimodal_projector_bias": True}, {}]),
        **tied(chance),
    }


def gemma3(chance: random.Random) -> Config:
    vision = tower(chance, model_type="siglip_vision_model", vision_use_head=False, image_size=56, patch_size=7)
    return {
        "text_config": text(chance, "gemma3_text", head_dim=16, sliding_window=8),
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        **tied(chance),
    }


def paligemma(chance: random.Random) -> Config:
    inner = text(chance, "gemma", head_dim=16)
    vision = tower(chance, model_type="siglip_vision_model", vision_use_head=False)
    sides = {"text_config": inner, "vision_config": {**vision, "projection_dim": 8}}
    return {**sides, "projection_dim": inner["hidden_size"], **tied(chance)}


def qwen2_vl(chance: random.Random) -> Config:
    inner = text(chance, "qwen2_vl_text", rope_parameters=MROPE)
    vision = depth_tower(chance, 0, embed_dim=32, hidden_size=inner["hidden_size"], mlp_ratio=2)
    del vision["out_hidden_size"], vision["intermediate_size"]
    return {"text_config": inner, "vision_config": vision, **tied(chance)}


def qwen2_5_vl(chance: random.Random) -> Config:
    inner = text(chance, "qwen2_5_vl_text", rope_parameters=MROPE)
    return {"text_config": inner, "vision_config": depth_tower(chance, inner["hidden_size"]), **tied(chance)}


def qwen3_vl(chance: random.Random) -> Config:
    inner = text(chance, "qwen3_vl_text", head_dim=chance.choice([16, 24]), rope_parameters=MROPE)
    deepstack = chance.choice([{"deepstack_visual_indexes": [0, 1]}, {"deepstack_visual_indexes": []}, {}])
    vision = depth_tower(chance, inner["hidden_size"], num_position_embeddings=chance.choice([16, 36]), **deepstack)
    return {"text_config": inner, "vision_config": vision, **tied(chance)}


def qwen3_vl_moe(chance: random.Random) -> Config:
    config = qwen3_vl(chance)
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": chance.choice([24, 40])}
    config["text_config"] |= {
        "model_type": "qwen3_vl_moe_text",
        **experts,
        **chance.choice([{}, {"mlp_only_layers": [0]}]),
    }
    return config


def glm4v(chance: random.Random) -> Config:
    inner = text(chance, "glm4v_text", rope_parameters=MROPE)
    vision = depth_tower(chance, inner["hidden_size"], image_size=56, attention_bias=chance.choice([True, False]))
    return {"text_config": inner, "vision_config": vision, **tied(chance)}


def glm4v_moe(chance: random.Random) -> Config:
    config = glm4v(chance)
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": chance.choice([24, 40])}
    dense = {"n_shared_experts": 1, "first_k_dense_replace": chance.choice([0, 1]), "head_dim": 16}
    bias = chance.choice([{"attention_bias": False}, {}])
    config["text_config"] |= {"model_type": "glm4v_moe_text", **experts, **dense, **bias}
    return config


def qwen3_5(chance: random.Random) -> Config:
    inner = text(chance, "qwen3_5_text", head_dim=16, num_hidden_layers=4, rope_parameters=MROPE)
    inner |= {"linear_num_key_heads": 2, "linear_num_value_heads": chance.choice([2, 4]), "linear_key_head_dim": 8}
    inner |= {"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4}
    vision = depth_tower(chance, inner["hidden_size"], num_position_embeddings=chance.choice([16, 36]))
    return {"text_config": inner, "vision_config": vision, **tied(chance)}


def llama4(chance: random.Random) -> Config:
    hidden = chance.choice([32, 64])
    vision = tower(chance, hidden_size=hidden, intermediate_size=hidden * 4)
    vision |= {"vision_output_dim": 40, "projector_input_dim": 40, "projector_output_dim": 40}
    inner = text(chance, "llama4_text", head_dim=16, intermediate_size_mlp=96, num_local_experts=2)
    return {"text_config": inner, "vision_config": {**vision, "pixel_shuffle_ratio": 0.5}, **tied(chance)}


def gemma4(chance: random.Random) -> Config:
    inner = text(
        chance, "gemma4_text", head_dim=16, hidden_size_per_layer_input=chance.choice([0, 8]), sliding_window=8
    )
    inner |= {"global_head_dim": 32, "vocab_size_per_layer_input": 300}
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": chance.choice([1, 2]),
        "num_attention_heads": 4, "num_key_value_heads": chance.choice([2, 4]), "head_dim": 8,
        "patch_size": chance.choice([4, 8]), "position_embedding_size": chance.choice([20, 30]),
    }  # fmt: skip
    audio = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "output_proj_dims": 24,
             "conv_kernel_size": chance.choice([3, 5]), "subsampling_conv_channels": [16, 8]}  # fmt: skip
    sides = chance.choice([{"vision_config": vision}, {"vision_config": vision, "audio_config": audio}])
    return {"text_config": inner, **sides, **tied(chance)}


def lfm2_vl(chance: random.Random) -> Config:
    vision = tower(
        chance, model_type="siglip2_vision_model", num_patches=chance.choice([16, 25]), vision_use_head=False
    )
    del vision["image_size"]
    inner = text(
        chance, "lfm2", layer_types=["full_attention", "conv", "conv"][:3], num_hidden_layers=3, block_ff_dim=96
    )
    switches = chance.choice([{"projector_bias": False}, {"projector_use_layernorm": False}, {}])
    return {"text_config": inner, "vision_config": vision, "projector_hidden_size": 56, **switches, **tied(chance)}


def whisper(chance: random.Random, model_type: str) -> Config:
    return {
        "model_type": model_type, "num_mel_bins": chance.choice([16, 32]), "encoder_layers": chance.choice([1, 3]),
        "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "d_model": 32,
        "max_source_positions": chance.choice([20, 30]),
    }  # fmt: skip


def qwen2_audio(chance: random.Random) -> Config:
    return {"text_config": text(chance, "qwen2"), "audio_config": whisper(chance, "qwen2_audio_encoder")}


def voxtral(chance: random.Random) -> Config:
    audio = {
        "model_type": "voxtral_encoder", "hidden_size": 32, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": chance.choice([1, 3]), "num_mel_bins": 16, "max_source_positions": 20,
    }  # fmt: skip
    return {"text_config": text(chance, "llama", head_dim=16), "audio_config": audio}


def internvl(chance: random.Random) -> Config:
    vision = tower(chance, image_size=[28, 56], patch_size=[14, 14], attention_bias=chance.choice([True, False]))
    return {"text_config": text(chance, "qwen2"), "vision_config": vision, **tied(chance)}


def qwen2_5_omni_thinker(chance: random.Random) -> Config:
    inner = text(chance, "qwen2_5_omni_text", rope_parameters=MROPE)
    audio = {**whisper(chance, "qwen2_5_omni_audio_encoder"), "output_dim": inner["hidden_size"]}
    return {"text_config": inner, "vision_config": depth_tower(chance, inner["hidden_size"]), "audio_config": audio}


def mllama(chance: random.Random) -> Config:
    inner = text(
        chance,
        "mllama_text_model",
        num_hidden_layers=4,
        cross_attention_layers=chance.choice([[1], [0, 3]]),
        pad_token_id=0,
    )
    vision = tower(chance, num_global_layers=chance.choice([1, 2]), intermediate_layers_indices=[0])
    vision |= {"attention_heads": 4, "vision_output_dim": 2 * vision["hidden_size"]}
    return {"text_config": inner, "vision_config": vision, **tied(chance)}


MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
FAMILIES: dict[str, tuple[str, Callable[[random.Random], Config]]] = {
    "llava": ("LlavaForConditionalGeneration", llava),
    "mistral3": ("Mistral3ForConditionalGeneration", mistral3),
    "gemma3": ("Gemma3ForConditionalGeneration", gemma3),
    "paligemma": ("PaliGemmaForConditionalGeneration", paligemma),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", qwen2_vl),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", qwen2_5_vl),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", qwen3_vl),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", qwen3_vl_moe),
    "glm4v": ("Glm4vForConditionalGeneration", glm4v),
    "glm4v_moe": ("Glm4vMoeForConditionalGeneration", glm4v_moe),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", qwen3_5),
    "llama4": ("Llama4ForConditionalGeneration", llama4),
    "gemma4": ("Gemma4ForConditionalGeneration", gemma4),
    "lfm2_vl": ("Lfm2VlForConditionalGeneration", lfm2_vl),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", qwen2_audio),
    "voxtral": ("VoxtralForConditionalGeneration", voxtral),
    "internvl": ("InternVLForConditionalGeneration", internvl),
    "qwen2_5_omni_thinker": ("Qwen2_5OmniThinkerForConditionalGeneration", qwen2_5_omni_thinker),
    "mllama": ("MllamaForConditionalGeneration", mllama),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_wrapper_has_the_parameters_of_its_class(model_type: str, seed: int) -> None:
    class_name, make = FAMILIES[model_type]
    chance = random.Random(f"{model_type} {seed}")
    config = {"model_type": model_type, "dtype": "bfloat16", **make(chance)}
    config["text_config"] |= tied(chance)
    assert import_config(config).num_params == class_params(class_name, config)


HOSTILE = [0, -1, 1.5, "x", "", [], [0], [1, 2, 3], {}, {"a": 1}, True, None, 10**12, float("nan")]


def paths(config: Config, start: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where every value of `config` stands, inner objects included."""
    inner = [path for key, value in config.items() if isinstance(value, dict) for path in paths(value, (*start, key))]
    return [*((*start, key) for key in config), *inner]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_hostile_value_is_an_error_that_kvplan_raises_on_purpose(model_type: str) -> None:
    chance = random.Random(model_type)
    for _ in range(80):
        config = {"model_type": model_type, "dtype": "bfloat16", **deepcopy(FAMILIES[model_type][1](chance))}
        *way, last = chance.choice(paths(config))
        place = config
        for key in way:
            place = place[key]
        place[last] = deepcopy(chance.choice(HOSTILE))
        with suppress(KvplanError):
            assert import_config(config).num_params > 0


def read(name: str) -> Config:
    config: Config = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return config


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("MllamaForConditionalGeneration", "meta-llama__Llama-3.2-11B-Vision-Instruct"),
        ("MllamaForConditionalGeneration", "meta-llama__Llama-3.2-90B-Vision-Instruct"),
        ("Gemma2ForCausalLM", "google__gemma-2-9b"),
        ("Qwen3_5MoeForConditionalGeneration", "Qwen__Qwen3.5-35B-A3B"),
    ],
)
def test_a_published_config_without_an_oracle_row_has_the_parameters_of_its_class(class_name: str, name: str) -> None:
    assert import_config(read(name)).num_params == class_params(class_name, read(name))


def test_a_switch_of_how_internvl_cuts_images_changes_nothing() -> None:
    config = read("OpenGVLab__InternVL2-4B")
    assert import_config(config | {"pad2square": False}) == import_config(config)


def test_a_tower_of_another_name_is_left_out_with_a_note() -> None:
    config = read("llava-hf__llava-1.5-7b-hf")
    whole = import_config(config)
    config["vision_config"]["model_type"] = "some_new_tower"
    model = import_config(config)
    assert model.num_params == whole.params_by_tower["text"]
    assert any("some_new_tower" in note and "not counted" in note for note in model.notes)


def test_an_unread_key_of_a_tower_refuses_the_import() -> None:
    config = read("llava-hf__llava-1.5-7b-hf")
    config["vision_config"]["extra_layers"] = 4
    with pytest.raises(UnsupportedConfigError, match=r"vision_config\.extra_layers"):
        import_config(config)


def test_towers_are_told_apart_from_the_text() -> None:
    """SigLIP of gemma-3-27b: 27 blocks of 1152 and 4304, 4096 positions; the projector maps 1152 to 5376."""
    block = 4 * (1152 * 1152 + 1152) + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    tower = 1152 * 3 * 14 * 14 + 1152 + 4096 * 1152 + 27 * block + 2 * 1152
    projector = 1152 * 5376 + 1152
    model = import_config(read("google__gemma-3-27b-it"))
    assert model.params_by_tower == {"text": 27_009_346_304, "vision": tower, "projector": projector}


def test_a_wrapper_takes_the_dtype_of_its_text_model_where_it_states_none() -> None:
    dtype = import_config(read("Qwen__Qwen3-VL-8B-Instruct")).dtype
    assert dtype is not None
    assert dtype.name == "bf16"


def test_an_inner_model_of_an_unknown_type_is_refused_by_name() -> None:
    config = read("llava-hf__llava-1.5-7b-hf")
    config["text_config"]["model_type"] = "some_new_text"
    with pytest.raises(UnsupportedConfigError, match="some_new_text"):
        import_config(config)


def test_a_text_config_that_is_no_object_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="text_config"):
        import_config({**read("llava-hf__llava-1.5-7b-hf"), "text_config": 7})


def test_a_class_of_text_alone_is_refused_since_its_towers_are_not_built() -> None:
    config = {**read("google__gemma-3-4b-it"), "architectures": ["Gemma3ForCausalLM"]}
    with pytest.raises(UnsupportedConfigError, match="Gemma3ForCausalLM"):
        import_config(config)


def test_text_keys_in_the_outer_object_are_refused_where_no_such_layout_was_published() -> None:
    config = read("google__gemma-3-4b-it")
    text_keys = config.pop("text_config")
    with pytest.raises(UnsupportedConfigError, match="text_config is absent"):
        import_config({**text_keys, **config})


def test_an_absent_text_config_is_the_default_of_its_class() -> None:
    config = {"model_type": "llava", "dtype": "bfloat16"}
    model = import_config({**config, "vision_config": read("llava-hf__llava-1.5-7b-hf")["vision_config"]})
    assert model.params_by_tower["text"] == 6_738_415_616  # llama's own defaults are those of Llama 7B
    assert any("text_config is not in the config" in note for note in model.notes)


def test_an_omni_model_counts_its_thinker_and_says_that_it_does_not_speak() -> None:
    config = read("Qwen__Qwen2.5-Omni-7B-AWQ")
    del config["quantization_config"]
    model = import_config(config)
    assert model.num_params == 8_931_813_888  # text, vision and audio, as transformers builds the thinker
    assert any("talker_config" in note for note in model.notes)


def test_the_vision_tower_of_gemma_4_has_no_attention_biases_whatever_is_stated() -> None:
    path = DATA / "configs" / "google__gemma-4-E4B-it.json"
    config = json.loads(path.read_text())
    stated = {**config, "vision_config": {**config["vision_config"], "attention_bias": True}}
    assert import_config(stated, measure="never").num_params == import_config(config, measure="never").num_params


KIMI_VL = {
    "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "torch_dtype": "bfloat16",
    "vision_config": {"model_type": "moonvit", "patch_size": 14, "num_hidden_layers": 27, "hidden_size": 1152},
    "text_config": {
        "vocab_size": 163840, "max_position_embeddings": 131072, "hidden_size": 2048, "intermediate_size": 11264,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "n_shared_experts": 2,
        "n_routed_experts": 64, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "qk_nope_head_dim": 128, "num_experts_per_tok": 6, "moe_layer_freq": 1, "first_k_dense_replace": 1,
        "num_key_value_heads": 16, "tie_word_embeddings": False, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
    },
}  # fmt: skip
"""The sizes of Kimi-VL A3B; its text model is of DeepSeek V3's layout."""


def test_kimi_vl_is_its_text_model_and_says_that_its_tower_is_not_counted() -> None:
    model = import_config(KIMI_VL)
    text = import_config(KIMI_VL["text_config"] | {"model_type": "deepseek_v3"})
    assert model.num_params == text.num_params
    assert round(model.num_params / 1e9) == 16
    assert model.cache_bytes(1000) == 27 * (512 + 64) * 2 * 1000
    assert [(part.name, part.params) for part in model.beside] == [("biases of the routers", 26 * 64)]
    assert any("vision_config" in note and "not counted" in note for note in model.notes)
