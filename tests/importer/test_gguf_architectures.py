"""Every architecture that llama.cpp names: counted, or refused with the reason; and the layers of the newer ones."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import ConfigError, UnsupportedConfigError
from kvplan.importer.gguf_layers import REFUSED, RULES
from kvplan.importer.gguf_reader import TENSOR_TYPES
from tests.importer.test_gguf import (
    F32,
    Q8_0,
    SSM,
    T,
    attention,
    experts,
    keys_of,
    kinds_of,
    mlp,
    outer,
    read,
    recurrent,
    small,
)

NAMES = [
    "clip", "llama", "llama4", "deci", "falcon", "grok", "gpt2", "gptj", "gptneox", "mpt", "baichuan", "starcoder",
    "refact", "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
    "eurobert", "bloom", "stablelm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3next",
    "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "phi2", "phi3", "phimoe", "plamo", "plamo2", "plamo3",
    "codeshell", "orion", "internlm2", "minicpm", "minicpm3", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4",
    "gemma4-assistant", "gemma-embedding", "starcoder2", "mamba", "mamba2", "jamba", "falcon-h1", "xverse",
    "command-r", "cohere2", "cohere2moe", "dbrx", "olmo", "olmo2", "olmoe", "openelm", "arctic", "deepseek",
    "deepseek2", "deepseek2-ocr", "deepseek32", "deepseek4", "chatglm", "glm4", "glm4moe", "glm-dsa", "bitnet",
    "t5", "t5encoder", "jais", "jais2", "nemotron", "nemotron_h", "nemotron_h_moe", "exaone", "exaone4",
    "exaone-moe", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "granite", "granitemoe", "granitehybrid", "chameleon",
    "wavtokenizer-dec", "plm", "bailingmoe", "bailingmoe2", "dots1", "arcee", "afmoe", "laguna", "ernie4_5",
    "ernie4_5-moe", "hunyuan-moe", "hunyuan-dense", "hunyuan_vl", "hy_v3", "smollm3", "gpt-oss", "lfm2", "lfm2moe",
    "dream", "smallthinker", "llada", "llada-moe", "seed_oss", "grovemoe", "apertus", "minimax-m2", "cogvlm",
    "rnd1", "pangu-embedded", "mistral3", "eagle3", "dflash", "mistral4", "paddleocr", "mimo2", "step35",
    "llama-embed", "maincoder", "kimi-linear", "talkie", "mellum",
]  # fmt: skip
"""LLM_ARCH_NAMES of llama.cpp (src/llama-arch.cpp), as of June 2026."""


def test_every_architecture_is_counted_or_refused_with_a_reason() -> None:
    assert len(NAMES) == len(set(NAMES)) == 136
    assert sorted(NAMES) == sorted({*RULES, *REFUSED})
    assert RULES.keys().isdisjoint(REFUSED)
    assert len(RULES) == 111


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_architecture_says_why(name: str) -> None:
    keys, tensors = small(name)
    with pytest.raises(UnsupportedConfigError) as refusal:
        read(keys, tensors)
    assert str(refusal.value) == f"model.gguf: its architecture is {name}: {REFUSED[name]}"


def test_every_type_of_tensor_that_a_file_may_hold_has_a_size() -> None:
    """The withdrawn numbers are repacked layouts and Q4_2, Q4_3, Q8_1 and Q8_K, which no file holds."""
    withdrawn = {4, 5, 9, 15, 31, 32, 33, 36, 37, 38}
    assert set(range(43)) - withdrawn == set(TENSOR_TYPES)


@pytest.mark.parametrize("name", ["cohere2moe", "exaone-moe", "laguna", "mimo2", "step35"])
def test_an_architecture_whose_windows_differ_from_file_to_file_must_list_them(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"lacks {name}\.attention\.sliding_window_pattern"):
        read(*small(name, attention__sliding_window=8))


def test_layers_with_a_window_may_have_heads_of_another_width() -> None:
    keys, _ = small("mimo2", attention__sliding_window=8, attention__sliding_window_pattern=[True, False],
                    attention__key_length=16, attention__value_length=8, attention__key_length_swa=32,
                    attention__value_length_swa=16)  # fmt: skip
    tensors = outer(96, 64) + attention(0, 64, 128, 64, 32) + attention(1, 64, 64, 32, 16) + mlp(0, 64, 128)
    tensors += mlp(1, 64, 128)
    tensors = [t._replace(shape=(t.shape[0] // 2, 64)) if t.name.endswith("attn_output.weight") else t for t in tensors]
    assert read(keys, tensors).cache_bytes(100) == 2 * (8 * 2 * (32 + 16) + 100 * 2 * (16 + 8))


# --------------------------------------------------------------------------------------------------------- latent rows

MLA = {"attention__kv_lora_rank": 32, "attention__q_lora_rank": 24, "rope__dimension_count": 8,
       "attention__key_length": 24, "attention__value_length": 16}  # fmt: skip


def latent(index: int) -> list[T]:
    block = f"blk.{index}."
    return [
        T(block + "attn_q_a.weight", (64, 24), F32),
        T(block + "attn_q_b.weight", (24, 4 * 24), F32),
        T(block + "attn_kv_a_mqa.weight", (64, 40), Q8_0),
        T(block + "attn_kv_b.weight", (32, 4 * 32), Q8_0),
        T(block + "attn_output.weight", (64, 64), Q8_0),
        T(block + "attn_norm.weight", (64,), F32),
    ]


@pytest.mark.parametrize("name", ["mistral4", "minicpm3", "plm"])
def test_a_latent_and_its_rope_row_are_kept(name: str) -> None:
    keys, _ = small(name, layers=2, **MLA)
    model = read(keys, outer(96, 64) + latent(0) + latent(1))
    assert model.cache_bytes(10) == 2 * 10 * (32 + 8) * 2


INDEXER = {"attention__indexer__head_count": 4, "attention__indexer__key_length": 16, "attention__indexer__top_k": 8}


def indexer(index: int) -> list[T]:
    block = f"blk.{index}.indexer."
    return [
        T(block + "k_norm.weight", (16,), F32),
        T(block + "k_norm.bias", (16,), F32),
        T(block + "proj.weight", (64, 4), F32),
        T(block + "attn_k.weight", (64, 16), Q8_0),
        T(block + "attn_q_b.weight", (24, 64), F32),
    ]


@pytest.mark.parametrize("name", ["deepseek32", "glm-dsa"])
def test_the_key_of_an_indexer_is_kept_besides(name: str) -> None:
    keys, _ = small(name, layers=2, **MLA, **INDEXER)
    tensors = outer(96, 64) + latent(0) + indexer(0) + latent(1) + indexer(1)
    model = read(keys, tensors)
    assert model.cache_bytes(10) == 2 * 10 * (32 + 8 + 16) * 2
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors)
    with pytest.raises(ConfigError, match=r"layer 1 should have sparse latent attention, but holds no indexer\.attn_k"):
        read(keys, outer(96, 64) + latent(0) + indexer(0) + latent(1))


@pytest.mark.parametrize(
    ("more", "own"),
    [
        ({"context_length": 1_048_576}, (0, 1, 2, 6, 10)),
        ({"context_length": 512}, tuple(range(12))),
        ({"attention__indexer__types": [True] * 3 + [False] * 9}, (0, 1, 2)),
    ],
)
def test_glm_shares_indexers_where_the_file_or_its_context_says_so(more: dict[str, Any], own: tuple[int, ...]) -> None:
    keys, _ = small("glm-dsa", layers=12, **(MLA | INDEXER | more))
    tensors = outer(96, 64)
    for index in range(12):
        tensors += latent(index) + (indexer(index) if index in own else [])
    assert read(keys, tensors).cache_bytes(10) == 10 * (12 * (32 + 8) + len(own) * 16) * 2


# ----------------------------------------------------------------------------------------------------------- recurrent


def kda(index: int) -> list[T]:
    block = f"blk.{index}."
    return [
        *(T(f"{block}ssm_conv1d_{name}.weight", (4, 1, 64), F32) for name in "qkv"),
        *(T(f"{block}attn_{name}.weight", (64, 64), Q8_0) for name in ("q", "k", "v", "output")),
        *(T(f"{block}ssm_{name}.weight", (64, 16), Q8_0) for name in ("f_a", "g_a")),
        *(T(f"{block}ssm_{name}.weight", (16, 64), F32) for name in ("f_b", "g_b")),
        T(block + "ssm_beta.weight", (64, 4), F32),
        T(block + "ssm_a", (1, 4), F32),
        T(block + "ssm_dt.bias", (64,), F32),
        T(block + "ssm_norm.weight", (16,), F32),
        T(block + "attn_norm.weight", (64,), F32),
    ]


def test_kimi_linear_keeps_states_and_latent_rows() -> None:
    keys, _ = small("kimi-linear", layers=2, **(MLA | {"attention__head_count_kv": [0, 4]}), kda__head_dim=16,
                    ssm__conv_kernel=4, expert_count=4, expert_used_count=2)  # fmt: skip
    tensors = outer(96, 64) + kda(0) + mlp(0, 64, 128) + latent(1) + experts(1, 64, 32, 4)
    model = read(keys, tensors)
    assert kinds_of(model) == ["recurrent", "latent"]
    assert model.cache_bytes(10) == (4 * 16 * 16 + 3 * 64 * 4) * 4 + 10 * (32 + 8) * 2
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors)


def rwkv(index: int, hidden: int) -> list[T]:
    block = f"blk.{index}."
    return [
        *(T(f"{block}time_mix_{name}.weight", (hidden, hidden), Q8_0) for name in ("key", "value", "output")),
        T(block + "time_mix_w0.weight", (hidden,), F32),
        T(block + "time_mix_lerp_fused.weight", (hidden, 1, 1, 6), F32),
        T(block + "channel_mix_key.weight", (hidden, 4 * hidden), Q8_0),
        T(block + "channel_mix_value.weight", (4 * hidden, hidden), Q8_0),
        T(block + "attn_norm.weight", (hidden,), F32),
        T(block + "attn_norm_2.weight", (hidden,), F32),
    ]


@pytest.mark.parametrize(("name", "shifts"), [("rwkv6", 2), ("rwkv7", 2), ("rwkv6qwen2", 1), ("arwkv7", 1)])
def test_rwkv_keeps_a_matrix_a_head_and_the_last_inputs(name: str, shifts: int) -> None:
    keys = keys_of(name, block_count=2, context_length=512, embedding_length=128, feed_forward_length=512,
                   attention__head_count=0, wkv__head_size=64)  # fmt: skip
    tensors = outer(96, 128) + rwkv(0, 128) + rwkv(1, 128)
    model = read(keys, tensors)
    assert model.cache_bytes(10**6) == 2 * (128 * 64 + shifts * 128) * 4
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors)
    with pytest.raises(ConfigError, match="are not those of this architecture"):
        read(keys | {f"{name}.token_shift_count": 3}, tensors)


def test_plamo_2_has_mamba_where_there_are_no_kv_heads() -> None:
    keys, _ = small("plamo2", layers=2, **(SSM | {"attention__head_count_kv": [0, 2], "attention__head_count": [0, 4]}),
                    attention__key_length=16, attention__value_length=16)  # fmt: skip
    fused = [T("blk.1.attn_qkv.weight", (64, 64 + 2 * 32), Q8_0), T("blk.1.attn_output.weight", (64, 64), Q8_0)]
    model = read(keys, outer(96, 64) + recurrent(0, 128) + fused)
    assert kinds_of(model) == ["recurrent", "full"]
    assert model.cache_bytes(10) == (128 * 16 + 128 * 4) * 4 + 10 * 2 * 2 * 16 * 2
