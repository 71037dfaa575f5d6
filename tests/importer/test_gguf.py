"""GGUF headers -> models: bytes to the unit, geometry by architecture, and broken or lying files."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.cli import main
from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.errors import ConfigError, KvplanError, UnsupportedConfigError
from kvplan.importer import import_config
from kvplan.importer.gguf import import_gguf, import_gguf_beginnings, import_gguf_header
from kvplan.importer.headers import Beginning
from kvplan.model import Model
from kvplan.presets import load_model, model_from_table, model_to_table, read_toml

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "gguf.jsonl").read_text(encoding="utf-8").splitlines()
]

# --------------------------------------------------------------------------------------------------- a tiny writer

F32, F16, Q8_0, Q4_K, Q6_K, BF16, MXFP4 = 0, 1, 8, 12, 14, 30, 39
BLOCKS = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210), BF16: (1, 2), MXFP4: (32, 17)}


class T(NamedTuple):
    """A tensor to write: shape in the file's order, input features first."""

    name: str
    shape: tuple[int, ...]
    kind: int

    @property
    def bytes(self) -> int:
        values, size = BLOCKS.get(self.kind, (1, 4))
        total = 1
        for length in self.shape:
            total *= length
        return total // values * size


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key_value(value: Any) -> bytes:
    """A value with its type: bool, uint32, float32, text, or a list of one of these."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    items = [key_value(item) for item in value]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def header(keys: Mapping[str, Any], tensors: Sequence[T], version: int = 3) -> bytes:
    """The bytes before the tensor data."""
    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    data += b"".join(text(name) + key_value(value) for name, value in keys.items())
    offset = 0
    for tensor in tensors:
        shape = struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
        data += text(tensor.name) + struct.pack("<I", len(tensor.shape)) + shape
        data += struct.pack("<IQ", tensor.kind, offset)
        offset += -(-tensor.bytes // 32) * 32
    return data + bytes(-len(data) % 32)


def whole_size(data: bytes, tensors: Sequence[T]) -> int:
    return len(data) + sum(-(-tensor.bytes // 32) * 32 for tensor in tensors)


def write(path: Path, keys: Mapping[str, Any], tensors: Sequence[T]) -> Path:
    """A file of the right size whose tensors are a hole."""
    data = header(keys, tensors)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(whole_size(data, tensors))
    return path


def read(keys: Mapping[str, Any], tensors: Sequence[T]) -> Model:
    data = header(keys, tensors)
    return import_gguf_header(data, "model.gguf", whole_size(data, tensors))


def keys_of(arch: str, **values: Any) -> dict[str, Any]:
    """Keys of an architecture; `__` stands for the dot in a name."""
    named = {f"{arch}.{name.replace('__', '.')}": value for name, value in values.items()}
    return {"general.architecture": arch, **named}


# ------------------------------------------------------------------------------------------------- files of families


def outer(vocab: int, hidden: int, kind: int = Q8_0, tied: bool = False) -> list[T]:
    head = [] if tied else [T("output.weight", (hidden, vocab), kind)]
    return [T("token_embd.weight", (hidden, vocab), kind), T("output_norm.weight", (hidden,), F32), *head]


def attention(index: int, hidden: int, queries: int, keys: int, values: int | None = None, kind: int = Q8_0) -> list[T]:
    values = keys if values is None else values
    return [
        T(f"blk.{index}.attn_q.weight", (hidden, queries), kind),
        T(f"blk.{index}.attn_k.weight", (hidden, keys), kind),
        T(f"blk.{index}.attn_v.weight", (hidden, values), kind),
        T(f"blk.{index}.attn_output.weight", (queries, hidden), kind),
        T(f"blk.{index}.attn_norm.weight", (hidden,), F32),
        T(f"blk.{index}.ffn_norm.weight", (hidden,), F32),
    ]


def mlp(index: int, hidden: int, width: int, kind: int = Q8_0) -> list[T]:
    return [
        T(f"blk.{index}.ffn_gate.weight", (hidden, width), kind),
        T(f"blk.{index}.ffn_up.weight", (hidden, width), kind),
        T(f"blk.{index}.ffn_down.weight", (width, hidden), kind),
    ]


def experts(index: int, hidden: int, width: int, count: int, kind: int = Q8_0) -> list[T]:
    return [
        T(f"blk.{index}.ffn_gate_inp.weight", (hidden, count), F32),
        T(f"blk.{index}.ffn_gate_exps.weight", (hidden, width, count), kind),
        T(f"blk.{index}.ffn_up_exps.weight", (hidden, width, count), kind),
        T(f"blk.{index}.ffn_down_exps.weight", (width, hidden, count), kind),
    ]


SMALL = {"context_length": 512, "embedding_length": 64, "feed_forward_length": 128, "attention__head_count": 4,
         "attention__head_count_kv": 2}  # fmt: skip


def small(arch: str = "llama", layers: int = 2, **more: Any) -> tuple[dict[str, Any], list[T]]:
    """A model of 64 features, 4 heads of 16 and 2 KV heads."""
    tensors = outer(96, 64)
    for index in range(layers):
        tensors += attention(index, 64, 64, 32) + mlp(index, 64, 128)
    return keys_of(arch, **(SMALL | {"block_count": layers} | more)), tensors


def llama_8b() -> tuple[dict[str, Any], list[T]]:
    """Llama 3.1 8B as Q8_0, with the rope factors that llama.cpp adds."""
    tensors = [*outer(128256, 4096), T("rope_freqs.weight", (64,), F32)]
    for index in range(32):
        tensors += attention(index, 4096, 4096, 1024) + mlp(index, 4096, 14336)
    keys = keys_of(
        "llama", block_count=32, context_length=131072, embedding_length=4096, feed_forward_length=14336,
        attention__head_count=32, attention__head_count_kv=8, rope__freq_base=500000.0, vocab_size=128256,
        attention__layer_norm_rms_epsilon=1e-5, rope__dimension_count=128,
    )  # fmt: skip
    return keys, tensors


def deepseek_r1(kind: int, absorbed: bool = False) -> tuple[dict[str, Any], list[T]]:
    """DeepSeek R1: 61 layers, the first three dense; matrices of `kind`, as many as the published files have."""
    hidden = 7168
    tensors = outer(129280, hidden, kind)
    for index in range(61):
        block = f"blk.{index}."
        tensors += [
            T(block + "attn_q_a.weight", (hidden, 1536), kind),
            T(block + "attn_q_a_norm.weight", (1536,), F32),
            T(block + "attn_q_b.weight", (1536, 128 * 192), kind),
            T(block + "attn_kv_a_mqa.weight", (hidden, 576), kind),
            T(block + "attn_kv_a_norm.weight", (512,), F32),
            T(block + "attn_output.weight", (128 * 128, hidden), kind),
            T(block + "attn_norm.weight", (hidden,), F32),
            T(block + "ffn_norm.weight", (hidden,), F32),
        ]
        tensors += (
            [T(block + "attn_k_b.weight", (128, 512, 128), kind), T(block + "attn_v_b.weight", (512, 128, 128), kind)]
            if absorbed
            else [T(block + "attn_kv_b.weight", (512, 128 * 256), kind)]
        )
        if index < 3:
            tensors += mlp(index, hidden, 18432, kind)
            continue
        tensors += experts(index, hidden, 2048, 256, kind)
        tensors += [T(block + "exp_probs_b.bias", (256,), F32)]
        tensors += [
            T(f"{block}ffn_{name}_shexp.weight", (2048, hidden) if name == "down" else (hidden, 2048), kind)
            for name in ("gate", "up", "down")
        ]
    keys = keys_of(
        "deepseek2", block_count=61, context_length=163840, embedding_length=hidden, feed_forward_length=18432,
        attention__head_count=128, attention__head_count_kv=128, leading_dense_block_count=3, vocab_size=129280,
        attention__q_lora_rank=1536, attention__kv_lora_rank=512, attention__key_length=192, expert_count=256,
        attention__value_length=128, expert_feed_forward_length=2048, expert_used_count=8, expert_shared_count=1,
        expert_weights_scale=2.5, expert_weights_norm=True, expert_gating_func=2, rope__dimension_count=64,
    )  # fmt: skip
    return keys, tensors


# --------------------------------------------------------------------------------------------------- published files


def row_of(name: str) -> dict[str, Any]:
    return next(row for row in ROWS if row.get("gguf") == name and "params_exact" in row)


PUBLISHED = {
    "bartowski_Meta-Llama-3.1-8B-Instruct-GGUF-Q8_0": llama_8b(),
    "unsloth_DeepSeek-R1-GGUF_DeepSeek-R1-BF16": deepseek_r1(BF16),
    "unsloth_DeepSeek-R1-GGUF_DeepSeek-R1-Q8_0": deepseek_r1(Q8_0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_tensors_and_parameters_of_a_published_header_are_counted_to_the_unit(name: str) -> None:
    keys, tensors = PUBLISHED[name]
    model, row = read(keys, tensors), row_of(name)
    assert len(tensors) == row["n_tensors"]
    assert model.num_params == row["params_exact"]
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors)


def test_the_tensor_bytes_of_a_published_file_are_the_weights_and_their_padding() -> None:
    keys, tensors = llama_8b()
    assert read(keys, tensors).weight_bytes() == 8_532_934_912 == row_of(
        "bartowski_Meta-Llama-3.1-8B-Instruct-GGUF-Q8_0"
    )["tensor_bytes"]  # fmt: skip


def test_a_gguf_file_of_a_known_model_has_the_cache_and_layers_of_its_preset() -> None:
    model, preset = read(*llama_8b()), load_model("llama-3.1-8b")
    assert [layer.cache for layer in model.layers] == [layer.cache for layer in preset.layers]
    assert model.num_params == preset.num_params + 64  # the rope factors, which the config only implies
    assert (model.context_limit, model.vocab_size, model.hidden_size) == (131072, 128256, 4096)


def test_latent_attention_is_the_same_in_files_before_and_after_its_matrices_were_absorbed() -> None:
    keys, tensors = deepseek_r1(Q8_0, absorbed=True)
    absorbed = keys | {
        "deepseek2.attention.head_count_kv": 1, "deepseek2.attention.key_length": 576,
        "deepseek2.attention.value_length": 512, "deepseek2.attention.key_length_mla": 192,
        "deepseek2.attention.value_length_mla": 128,
    }  # fmt: skip
    new, old = read(absorbed, tensors), read(*deepseek_r1(Q8_0))
    assert new.num_params == old.num_params == 671_026_419_200
    assert new.cache_bytes(4096) == old.cache_bytes(4096) == 61 * 576 * 2 * 4096
    assert new.num_active_params == old.num_active_params
    assert [any("K and V of every head" in note for note in model.notes) for model in (new, old)] == [False, True]


def skeleton(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[T]]:
    """The least file with the geometry of a row: attention alone, one row of vocabulary."""
    arch, layers, hidden = row["architecture"], int(row["block_count"]), int(row["embedding_length"])
    named = {name: row[name] for name in GEOMETRY if name in row}
    keys = keys_of(arch, **{name.replace(".", "__"): int(value) for name, value in named.items()})
    heads, kv_heads = int(row["attention.head_count"]), int(row["attention.head_count_kv"])
    width = int(row.get("attention.key_length", hidden // heads))
    tensors = outer(1, hidden, F32, tied=True)
    for index in range(layers):
        if "attention.kv_lora_rank" in row:
            rank = int(row["attention.kv_lora_rank"]) + int(row["rope.dimension_count"])
            tensors.append(T(f"blk.{index}.attn_kv_a_mqa.weight", (hidden, rank), F32))
        else:
            tensors += attention(index, hidden, heads * width, kv_heads * width, kind=F32)
    return keys, tensors


GEOMETRY = (
    "block_count", "context_length", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.sliding_window", "attention.kv_lora_rank",
    "rope.dimension_count", "expert_count", "expert_used_count",
)  # fmt: skip
LATENT_LINE = re.compile(r"\s*([\d.]+) MiB, c\^KV \((\w+)\): +[\d.]+ MiB, kv\^T: not used")
PLAIN_LINE = re.compile(r"\s*([\d.]+) MiB(?: \([^)]*\))?, K \((\w+)\): +[\d.]+ MiB, V \((\w+)\): +[\d.]+ MiB")
PLAIN = ("llama", "qwen3", "qwen3moe", "glm4")


def cache_lines() -> Iterator[tuple[dict[str, Any], float, str]]:
    """The first line of each row that says how large the cache is, and in which types."""
    for row in ROWS:
        line = next(iter(row.get("kv_cache_lines") or []), "")
        latent, plain = LATENT_LINE.fullmatch(line), PLAIN_LINE.fullmatch(line)
        if latent and row["architecture"] == "deepseek2" and "n_ctx" in row:
            yield row, float(latent[1]), latent[2]
        if plain and row["architecture"] in PLAIN:
            yield row, float(plain[1]), f"{plain[2]}/{plain[3]}"


CACHES = list(cache_lines())


@pytest.mark.parametrize(("row", "mebibytes", "kv"), CACHES, ids=[f"{r['gguf']}-{r['n_ctx']}" for r, *_ in CACHES])
def test_the_cache_of_a_header_is_what_its_loader_printed(row: dict[str, Any], mebibytes: float, kv: str) -> None:
    """Two digits after the point are printed."""
    size = read(*skeleton(row)).cache_bytes(row["n_ctx"], kv_dtype=kv)
    assert abs(size / 2**20 - mebibytes) < 0.0051


def test_enough_published_cache_lines_are_compared() -> None:
    assert len(CACHES) >= 20
    assert {row["architecture"] for row, *_ in CACHES} == {"deepseek2", "llama", "qwen3", "qwen3moe", "glm4"}


def test_a_gemma_3_file_has_five_windows_for_each_full_layer() -> None:
    """The log's loader kept all tokens in all 62 layers, which this count is for a context inside the window."""
    row = next(row for row in ROWS if row.get("gguf") == "gemma-3-27b-it-Q4_0.gguf")
    model = read(*skeleton(row))
    kinds = [layer.cache.kind for layer in model.layers]
    assert kinds[:6] == ["sliding"] * 5 + ["full"]
    assert (kinds.count("full"), kinds.count("sliding")) == (10, 52)
    assert model.cache_bytes(1024) * 128 == 63_488 * 2**20  # 63488.00 MiB at 131,072 = 128 x 1,024 tokens


# ------------------------------------------------------------------------------------------------------------- weights


def test_every_tensor_counts_in_the_storage_of_its_own() -> None:
    keys, tensors = small(layers=1, embedding_length=256, attention__head_count=4)
    tensors = [
        *outer(96, 256, Q6_K), *attention(0, 256, 256, 128, kind=Q4_K), *mlp(0, 256, 512, MXFP4)
    ]  # fmt: skip
    by_role = read(keys, tensors).weight_bytes_by_role()
    assert by_role["embedding"] == by_role["lm_head"] == 96 * 210
    assert by_role["attention_q"] == 256 * 144
    assert by_role["attention_k"] == 128 * 144
    assert by_role["mlp"] == 3 * 512 * 256 // 32 * 17
    assert by_role["norm"] == 2 * 256 * 4


def test_equal_layers_are_one_run_in_whatever_order_the_file_has_them() -> None:
    keys, tensors = small(layers=3)
    assert read(keys, tensors[::-1]) == read(keys, tensors)
    assert len(read(keys, tensors).layer_runs) == 1


def test_layers_whose_types_differ_keep_their_own_bytes() -> None:
    keys, tensors = small(layers=2)
    mixed = [tensor._replace(kind=F16) if tensor.name == "blk.1.ffn_down.weight" else tensor for tensor in tensors]
    assert read(keys, mixed).weight_bytes() == sum(tensor.bytes for tensor in mixed)
    assert len(read(keys, mixed).layer_runs) == 2


def test_a_file_without_output_matrix_has_a_tied_head() -> None:
    keys, tensors = small()
    tied = read(keys, [tensor for tensor in tensors if tensor.name != "output.weight"])
    assert tied.tied_embeddings
    assert not read(keys, tensors).tied_embeddings


def test_a_fused_matrix_is_queries_keys_and_values() -> None:
    keys, tensors = small("phi3", layers=1)
    fused = [tensor for tensor in tensors if not re.search(r"attn_[qkv]\.", tensor.name)]
    fused.append(T("blk.0.attn_qkv.weight", (64, 64 + 32 + 32), Q8_0))
    apart = read(keys, tensors)
    assert read(keys, fused).layers == apart.layers


def test_active_parameters_leave_out_the_experts_that_a_token_does_not_read() -> None:
    keys, tensors = small("qwen3moe", layers=1, expert_count=8, expert_used_count=2)
    tensors = outer(96, 64) + attention(0, 64, 64, 32) + experts(0, 64, 32, 8)
    model = read(keys, tensors)
    assert model.num_params - model.num_active_params == 6 * 3 * 64 * 32


def test_experts_in_tensors_of_their_own_are_the_same_experts() -> None:
    keys, _ = small(layers=1, expert_count=4, expert_used_count=2)
    base = [*outer(96, 64), *attention(0, 64, 64, 32), T("blk.0.ffn_gate_inp.weight", (64, 4), F32)]
    single = [
        T(f"blk.0.ffn_{name}.{expert}.weight", (32, 64) if name == "down" else (64, 32), Q8_0)
        for expert in range(4)
        for name in ("gate", "up", "down")
    ]
    stacked = [*outer(96, 64), *attention(0, 64, 64, 32), *experts(0, 64, 32, 4)]
    assert read(keys, base + single) == read(keys, stacked)


def test_layers_that_only_predict_further_tokens_stand_beside_the_weights() -> None:
    """llama.cpp skips their tensors."""
    keys, tensors = small("glm4moe", layers=2, nextn_predict_layers=1)
    tensors.append(T("blk.1.nextn.eh_proj.weight", (128, 64), Q8_0))
    model = read(keys, tensors)
    assert model.num_layers == 1
    skipped = sum(tensor.bytes for tensor in tensors if tensor.name.startswith("blk.1."))
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors) - skipped
    (part,) = model.beside
    assert part.bytes == skipped
    assert any("predict further tokens" in note for note in model.notes)


def test_with_other_kv_heads_the_key_and_value_matrices_change() -> None:
    model = read(*small(layers=2))
    assert model.with_kv_heads(1).cache_bytes(100) * 2 == model.cache_bytes(100)
    assert model.weight_bytes() - model.with_kv_heads(1).weight_bytes() == 2 * 2 * 16 * 64 // 32 * 34


def test_a_model_of_a_gguf_file_is_saved_and_read_back() -> None:
    keys, tensors = deepseek_r1(Q8_0)
    model = read(keys, tensors)
    assert model_from_table(json.loads(json.dumps(model_to_table(model))), "model.toml") == model


# ------------------------------------------------------------------------------------------------------------ geometry


def kinds_of(model: Model) -> list[str]:
    return [layer.cache.kind for layer in model.layers]


@pytest.mark.parametrize(
    ("arch", "keys", "kinds"),
    [
        ("llama", {}, ["full"] * 8),
        ("gemma2", {"attention__sliding_window": 128}, ["sliding", "full"] * 4),
        ("gemma2", {}, ["sliding", "full"] * 4),
        ("gemma3", {"attention__sliding_window": 128}, ["sliding"] * 5 + ["full"] + ["sliding"] * 2),
        ("gemma3", {}, ["full"] * 8),
        ("gpt-oss", {"attention__sliding_window": 128}, ["sliding", "full"] * 4),
        ("cohere2", {"attention__sliding_window": 128}, (["sliding"] * 3 + ["full"]) * 2),
        ("olmo2", {"attention__sliding_window": 128}, (["sliding"] * 3 + ["full"]) * 2),
        ("phi3", {"attention__sliding_window": 128}, ["sliding"] * 8),
        ("phi3", {"attention__sliding_window": 0}, ["full"] * 8),
        ("llama4", {}, (["chunked"] * 3 + ["full"]) * 2),
        ("exaone4", {"attention__sliding_window": 8, "attention__sliding_window_pattern": [True, False] * 4},
         ["sliding", "full"] * 4),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 2}, ["sliding", "full"] * 4),
        ("afmoe", {"attention__sliding_window": 8}, (["sliding"] * 3 + ["full"]) * 2),
        ("afmoe", {}, ["full"] * 8),
        ("mellum", {"attention__sliding_window": 8}, (["sliding"] * 3 + ["full"]) * 2),
        ("plamo3", {"attention__sliding_window": 8}, ["sliding"] * 7 + ["full"]),
        ("smallthinker", {"attention__sliding_window": 8}, (["full"] + ["sliding"] * 3) * 2),
        ("smallthinker", {}, ["full"] * 8),
        ("mimo2", {"attention__sliding_window": 8, "attention__sliding_window_pattern": [True, True, False, True] * 2},
         ["sliding", "sliding", "full", "sliding"] * 2),
        ("laguna", {"attention__sliding_window": 0}, ["full"] * 8),
    ],
)  # fmt: skip
def test_windows_follow_the_pattern_of_their_architecture(arch: str, keys: Any, kinds: list[str]) -> None:
    assert kinds_of(read(*small(arch, layers=8, **keys))) == kinds


def test_a_layer_without_kv_heads_keeps_nothing() -> None:
    """Nemotron's "deci" files list the heads of each layer; 0 marks a layer without attention."""
    keys, tensors = small("deci", layers=2, attention__head_count=[4, 0], attention__head_count_kv=[2, 0])
    tensors = [tensor for tensor in tensors if not tensor.name.startswith("blk.1.attn_")]
    assert read(keys, tensors).cache_bytes(10) == 10 * 2 * 2 * 16 * 2


def test_layers_may_have_different_numbers_of_kv_heads() -> None:
    keys, _ = small(layers=2, attention__head_count_kv=[2, 1])
    tensors = outer(96, 64) + attention(0, 64, 64, 32) + attention(1, 64, 64, 16)
    assert read(keys, tensors).cache_bytes(10) == 10 * 2 * (2 + 1) * 16 * 2


def test_gemma_4_window_layers_have_heads_of_their_own_width_and_the_last_layers_share() -> None:
    keys = keys_of(
        "gemma4", block_count=4, embedding_length=64, attention__head_count=4, attention__head_count_kv=[2, 1, 2, 1],
        attention__key_length=32, attention__value_length=32, attention__key_length_swa=16,
        attention__value_length_swa=16, attention__sliding_window=8, attention__shared_kv_layers=2,
        attention__sliding_window_pattern=[True, False, True, False],
    )  # fmt: skip
    tensors = outer(96, 64, tied=True)
    for index, width in enumerate((16, 32, 16, 32)):
        tensors += attention(index, 64, 4 * width, (2, 1, 2, 1)[index] * width)
    model = read(keys, tensors)
    assert kinds_of(model) == ["sliding", "full", "shared", "shared"]
    assert [model.layers[2].cache.source, model.layers[3].cache.source] == [0, 1]  # type: ignore[attr-defined]
    assert model.cache_bytes(100) == 8 * 2 * 2 * 16 * 2 + 100 * 2 * 1 * 32 * 2


def test_gemma_3n_shares_all_but_the_first_20_layers_where_the_file_does_not_say() -> None:
    keys, tensors = small("gemma3n", layers=22, attention__sliding_window=8)
    model = read(keys, tensors)
    assert kinds_of(model)[:5] == ["sliding"] * 4 + ["full"]
    assert [layer.cache.source for layer in model.layers[20:]] == [18, 18]  # type: ignore[attr-defined]


def test_gemma_4_must_list_its_windows() -> None:
    refused(*small("gemma4", attention__sliding_window=8), "lacks gemma4.attention.sliding_window_pattern")


def test_exaone_4_has_a_window_by_itself_only_with_64_layers() -> None:
    assert kinds_of(read(*small("exaone4", layers=64)))[:4] == ["sliding"] * 3 + ["full"]
    assert kinds_of(read(*small("exaone4", layers=30))) == ["full"] * 30


def with_geometry_of(preset: Model, arch: str, **keys: Any) -> Model:
    """A file with the heads of a preset in every layer, and nothing else of it."""
    heads, kv_heads, tensors = [], [], outer(1, preset.hidden_size, F32, tied=True)
    for index, layer in enumerate(preset.layers):
        owner = preset.layers[getattr(layer.cache, "source", index)]
        width = max(part.width for part in owner.cache.cache_parts())
        heads.append(layer.num_attention_heads or 0)
        kv_heads.append(owner.cache.kv_heads() or 0)
        tensors += attention(index, preset.hidden_size, heads[-1] * width, kv_heads[-1] * width, kind=F32)
    sizes = {"block_count": preset.num_layers, "embedding_length": preset.hidden_size}
    listed = {"attention__head_count": heads, "attention__head_count_kv": kv_heads}
    return read(keys_of(arch, **sizes, **listed, **keys), tensors)


def widths(size: int, **more: Any) -> dict[str, Any]:
    return {"attention__key_length": size, "attention__value_length": size, **more}


@pytest.mark.parametrize(
    ("name", "arch", "keys"),
    [
        ("gemma-2-9b", "gemma2", widths(256, attention__sliding_window=4096)),
        ("gemma-3-27b", "gemma3", widths(128, attention__sliding_window=1024)),
        ("gemma-4-e4b", "gemma4", widths(
            512, attention__sliding_window=512, attention__key_length_swa=256, attention__value_length_swa=256,
            attention__shared_kv_layers=18, attention__sliding_window_pattern=([True] * 5 + [False]) * 7)),
        ("gpt-oss-20b", "gpt-oss", widths(64, attention__sliding_window=128)),
        ("llama-4-scout", "llama4", widths(128)),
        ("phi-3-mini-4k", "phi3", {"attention__sliding_window": 2047}),
        ("qwen3-30b-a3b", "qwen3moe", widths(128)),
        ("olmo-2-7b", "olmo2", {}),
    ],
)  # fmt: skip
def test_the_layers_of_an_architecture_are_those_of_its_preset(name: str, arch: str, keys: Any) -> None:
    """The presets come from published configs, whose patterns do not follow from GGUF files."""
    preset = load_model(name)
    caches = [layer.cache for layer in with_geometry_of(preset, arch, **keys).layers]
    assert caches == [layer.cache for layer in preset.layers]


SSM = {"ssm__inner_size": 128, "ssm__state_size": 16, "ssm__conv_kernel": 4, "ssm__time_step_rank": 8}


def recurrent(index: int, channels: int) -> list[T]:
    return [
        T(f"blk.{index}.ssm_conv1d.weight", (4, channels), F32),
        T(f"blk.{index}.ssm_a", (16, 128), F32),
        T(f"blk.{index}.ssm_in.weight", (64, 256), Q8_0),
        T(f"blk.{index}.ssm_out.weight", (128, 64), Q8_0),
        T(f"blk.{index}.attn_norm.weight", (64,), F32),
    ]


def test_mamba_keeps_a_state_that_does_not_grow() -> None:
    keys = keys_of("mamba", block_count=2, embedding_length=64, attention__head_count=0, **SSM)
    model = read(keys, outer(96, 64) + recurrent(0, 128) + recurrent(1, 128))
    assert model.cache_bytes(1) == model.cache_bytes(9999) == 2 * (128 * 16 + 128 * 4) * 4
    assert model.weight_bytes_by_role()["recurrent_state"] == 2 * (4 * 128 + 16 * 128) * 4


def test_jamba_has_mamba_where_there_are_no_kv_heads() -> None:
    keys, _ = small("jamba", layers=2, attention__head_count_kv=[0, 2], **SSM)
    model = read(keys, outer(96, 64) + recurrent(0, 128) + attention(1, 64, 64, 32))
    assert kinds_of(model) == ["recurrent", "full"]


def test_mamba_2_counts_the_channels_of_its_groups() -> None:
    keys = keys_of("mamba2", block_count=1, embedding_length=64, ssm__group_count=2, **SSM)
    model = read(keys, outer(96, 64) + recurrent(0, 128 + 2 * 2 * 16))
    assert model.cache_bytes(5) == (128 * 16 + (128 + 2 * 2 * 16) * 4) * 4


def test_nemotron_h_has_layers_of_three_kinds() -> None:
    keys, _ = small(
        "nemotron_h", layers=3, attention__head_count_kv=[0, 0, 2], feed_forward_length=[0, 128, 0],
        ssm__group_count=2, **SSM,
    )  # fmt: skip
    tensors = outer(96, 64) + recurrent(0, 192) + mlp(1, 64, 128) + attention(2, 64, 64, 32)
    assert kinds_of(read(keys, tensors)) == ["recurrent", "none", "full"]


def test_falcon_h1_has_both_in_every_layer() -> None:
    keys, _ = small("falcon-h1", layers=1, ssm__group_count=2, **SSM)
    model = read(keys, outer(96, 64) + attention(0, 64, 64, 32) + recurrent(0, 192)[:-1])
    assert model.cache_bytes(10) == 10 * 2 * 2 * 16 * 2 + (128 * 16 + 192 * 4) * 4


def test_qwen3_next_has_full_attention_in_every_fourth_layer() -> None:
    keys, _ = small("qwen3next", layers=4, ssm__group_count=2, full_attention_interval=4, **SSM)
    tensors = outer(96, 64)
    for index in range(3):
        tensors += [*recurrent(index, 192), T(f"blk.{index}.attn_qkv.weight", (64, 192), Q8_0)]
    model = read(keys, tensors + attention(3, 64, 128, 32))  # its queries carry a gate of the same width
    assert kinds_of(model) == ["recurrent"] * 3 + ["full"]
    assert model.cache_bytes(0) == 3 * (128 * 16 + 192 * 4) * 4


def test_the_published_qwen3_6_keeps_ten_layers_of_cache() -> None:
    row = next(row for row in ROWS if row.get("architecture") == "qwen35moe" and "n_ctx" in row)
    named = {name: row[name] for name in row if name in GEOMETRY or name.startswith("ssm.")}
    keys = keys_of("qwen35moe", **{name.replace(".", "__"): value for name, value in named.items()})
    tensors = outer(1, 2048, F32, tied=True)
    for index in range(40):
        tensors += (
            attention(index, 2048, 2 * 4096, 512, kind=F32)
            if index % 4 == 3
            else [T(f"blk.{index}.ssm_conv1d.weight", (4, 4096 + 2 * 16 * 128), F32)]
        )
    state = 30 * (4096 * 128 + 8192 * 4) * 4
    assert read(keys, tensors).cache_bytes(132_352) - state == 2585 * 2**20


@pytest.mark.parametrize(
    ("name", "arch", "ssm"),
    [
        ("qwen3-next-80b-a3b", "qwen3next", (4096, 128, 32, 16)),
        ("jamba-v0.1", "jamba", (8192, 16, 256, 0)),
        ("mamba2-2.7b", "mamba2", (5120, 128, 80, 1)),
        ("nemotron-h-8b", "nemotron_h", (8192, 128, 128, 8)),
    ],
)
def test_a_recurrent_layer_is_that_of_its_preset_in_float32(name: str, arch: str, ssm: tuple[int, ...]) -> None:
    preset = load_model(name)
    inner, state, rank, groups = ssm
    keys = keys_of(
        arch, block_count=1, embedding_length=64, attention__head_count=1, attention__head_count_kv=0,
        ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank, ssm__conv_kernel=4,
        ssm__group_count=groups,
    )  # fmt: skip
    convolution = T("blk.0.ssm_conv1d.weight", (4, inner + 2 * groups * state), F32)
    found = read(keys, [*outer(1, 64, F32), convolution]).layers[0].cache
    expected = next(layer.cache for layer in preset.layers if layer.cache.kind == "recurrent")
    assert found == replace(expected, conv_storage=WEIGHT_FORMATS["fp32"])  # type: ignore[call-arg]


def test_lfm2_keeps_short_convolutions() -> None:
    keys, _ = small("lfm2", layers=2, attention__head_count_kv=[0, 2], shortconv__l_cache=3)
    tensors = [*outer(96, 64), T("blk.0.shortconv.conv.weight", (3, 64), F32), *attention(1, 64, 64, 32)]
    assert read(keys, tensors).cache_bytes(0) == 3 * 64 * 4


# -------------------------------------------------------------------------------------------------------------- files


def test_a_local_file_is_read_by_its_path(tmp_path: Path) -> None:
    keys, tensors = small()
    path = write(tmp_path / "tiny-Q8_0.gguf", keys, tensors)
    model = kvplan.import_gguf(path)
    assert model.weight_bytes() == sum(tensor.bytes for tensor in tensors)
    assert (model.name, model.source, model.model_type) == ("tiny-Q8_0", "tiny-Q8_0.gguf", "llama")


def test_the_name_in_the_file_is_taken_where_it_is_plain_text() -> None:
    keys, tensors = small()
    assert read(keys | {"general.name": "Tiny Llama"}, tensors).name == "Tiny Llama"
    assert read(keys | {"general.name": "[x](http://y)"}, tensors).name == "model"


def split(folder: Path, keys: Mapping[str, Any], parts: Sequence[Sequence[T]]) -> list[Path]:
    total = sum(len(part) for part in parts)
    common = {"split.count": len(parts), "split.tensors.count": total}
    return [
        write(folder / f"m-{index + 1:05d}-of-{len(parts):05d}.gguf",
              (keys if index == 0 else {}) | common | {"split.no": index}, part)
        for index, part in enumerate(parts)
    ]  # fmt: skip


def test_a_split_file_is_read_from_any_of_its_parts(tmp_path: Path) -> None:
    keys, tensors = small()
    paths = split(tmp_path, keys, [[], tensors[:5], tensors[5:]])
    assert import_gguf(paths[0]) == import_gguf(paths[2]) == read(keys, tensors)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    keys, tensors = small()
    split(tmp_path, keys, [tensors[:5], tensors[5:]])[1].unlink()
    with pytest.raises(ConfigError, match=r"m-00002-of-00002\.gguf cannot be read"):
        import_gguf(tmp_path / "m-00001-of-00002.gguf")


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    keys, tensors = small()
    first, second = split(tmp_path, keys, [tensors[:5], tensors[5:]])
    second.write_bytes(first.read_bytes())
    with pytest.raises(ConfigError, match=r"split\.no is 0"):
        import_gguf(first)


def beginnings(parts: Sequence[Sequence[T]], keys: Mapping[str, Any]) -> list[Beginning]:
    """The parts of a split file as a browser sends them."""
    common = {"split.count": len(parts), "split.tensors.count": sum(map(len, parts))}
    found = []
    for index, part in enumerate(parts):
        data = header((keys if index == 0 else {}) | common | {"split.no": index}, part)
        found.append(Beginning(f"m-{index + 1:05d}-of-{len(parts):05d}.gguf", data, whole_size(data, part)))
    return found


def test_one_part_alone_says_which_others_are_needed() -> None:
    keys, tensors = small()
    parts = beginnings([tensors[:5], tensors[5:], []], keys)
    with pytest.raises(ConfigError, match="one of 3 parts; also needed: 00002-of-00003, 00003-of-00003"):
        import_gguf_beginnings(parts[:1])
    with pytest.raises(ConfigError, match="one of 3 parts; also needed: 00001-of-00003"):
        import_gguf_beginnings(parts[1:])


def test_all_parts_in_a_browser_are_the_whole_file_in_any_order() -> None:
    keys, tensors = small()
    assert import_gguf_beginnings(beginnings([[], tensors[:5], tensors[5:]], keys)[::-1]) == read(keys, tensors)


def test_a_part_under_another_name_says_how_its_parts_are_found(tmp_path: Path) -> None:
    keys, tensors = small()
    first, _ = split(tmp_path, keys, [tensors[:5], tensors[5:]])
    with pytest.raises(ConfigError, match="one of 2 parts; all are needed, with names that end in -00001-of-00002"):
        import_gguf(first.rename(tmp_path / "renamed.gguf"))


def test_the_same_part_twice_is_refused() -> None:
    keys, tensors = small()
    first, _ = beginnings([tensors[:5], tensors[5:]], keys)
    with pytest.raises(ConfigError, match=r"split\.no is 0"):
        import_gguf_beginnings([first, first])


def test_two_whole_files_are_no_split_file() -> None:
    data = header(*small())
    with pytest.raises(ConfigError, match="2 files are given, of which it needs no other"):
        import_gguf_beginnings([Beginning("a.gguf", data), Beginning("b.gguf", data)])


def test_no_file_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no file is given"):
        import_gguf_beginnings([])


def test_a_header_longer_than_what_was_sent_is_refused() -> None:
    data = header(*small())
    with pytest.raises(ConfigError, match="import the whole file in the terminal"):
        import_gguf_header(data[:200], "m.gguf", 10**9)


def test_without_the_size_of_the_file_the_note_says_what_was_not_checked() -> None:
    assert any("size of the file is not known" in note for note in import_gguf_header(header(*small()), "m.gguf").notes)


def test_version_2_is_read_alike() -> None:
    keys, tensors = small()
    assert import_gguf_header(header(keys, tensors, version=2), "m.gguf") == read(keys, tensors)


# ------------------------------------------------------------------------------------------------------------ refusals


def refused(keys: Mapping[str, Any], tensors: Sequence[T], match: str, error: type[KvplanError] = ConfigError) -> None:
    with pytest.raises(error, match=match):
        read(keys, tensors)


def test_an_architecture_without_rule_is_refused_by_name() -> None:
    refused(*small("rwkv9"), "no rule knows the architecture 'rwkv9'", UnsupportedConfigError)


@pytest.mark.parametrize("key", ["attention.sliding_window", "attention.indexer.top_k", "attention.new_kind"])
def test_a_key_that_no_rule_reads_is_refused_by_name(key: str) -> None:
    keys, tensors = small()
    refused(keys | {f"llama.{key}": 4}, tensors, re.escape(f"the key llama.{key}"), UnsupportedConfigError)


def test_keys_that_change_no_memory_are_passed_over() -> None:
    keys, tensors = small()
    more = {"llama.rope.freq_base": 1e6, "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "bpe"}
    assert read(keys | more, tensors) == read(keys, tensors)


@pytest.mark.parametrize("name", ["blk.0.cross_attn_k.weight", "blk.0.indexer.k_proj.weight", "mystery.weight"])
def test_a_tensor_of_an_unknown_name_is_refused(name: str) -> None:
    keys, tensors = small()
    refused(keys, [*tensors, T(name, (64, 64), F32)], re.escape(name), UnsupportedConfigError)


def test_a_tensor_type_of_unknown_size_is_refused_by_number() -> None:
    keys, tensors = small()
    refused(keys, [*tensors, T("rope_freqs.weight", (64,), 338)], "tensor type 338", UnsupportedConfigError)


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_a_file_that_is_no_model_is_refused(kind: str) -> None:
    keys, tensors = small()
    refused(keys | {"general.type": kind}, tensors, kind, UnsupportedConfigError)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"llama.attention.head_count_kv": 1}, "attn_k of layer 0 is 64 x 32; the keys make it 64 x 16"),
        ({"llama.attention.head_count_kv": 3}, "not a multiple"),
        ({"llama.block_count": 1}, "blk.1.attn_q.weight is of a layer beyond"),
        ({"llama.block_count": 3}, "layer 2 should have full attention, but holds no attn_k"),
        ({"llama.block_count": 2**31}, "block_count"),
        ({"llama.embedding_length": 65}, "65"),
        ({"llama.attention.head_count_kv": [2, 2, 2]}, "has 3 entries"),
        ({"llama.attention.head_count_kv": "two"}, "is 'two'"),
        ({"llama.attention.head_count": True}, "is True"),
        ({"llama.context_length": 1.5}, "is 1.5"),
        ({"general.architecture": 7}, "lacks general.architecture"),
        ({"general.alignment": 3}, "power of two"),
    ],
)
def test_keys_that_contradict_the_tensors_or_each_other_are_refused(change: dict[str, Any], match: str) -> None:
    keys, tensors = small()
    refused(keys | change, tensors, match)


def test_a_recurrent_tensor_in_an_attention_layer_is_refused() -> None:
    keys, tensors = small()
    refused(keys, [*tensors, T("blk.0.ssm_conv1d.weight", (4, 64), F32)], "should have full attention, but holds ssm")


def test_a_value_matrix_of_another_width_is_refused() -> None:
    keys, tensors = small(layers=1)
    wrong = [tensor._replace(shape=(64, 64)) if "attn_v" in tensor.name else tensor for tensor in tensors]
    refused(keys, wrong, "attn_v of layer 0 has 64 rows")


def test_two_tensors_of_one_name_are_refused() -> None:
    keys, tensors = small()
    refused(keys, [*tensors, tensors[0]], "the same name")


def test_a_file_cut_inside_its_tensors_is_refused(tmp_path: Path) -> None:
    keys, tensors = small()
    path = write(tmp_path / "m.gguf", keys, tensors)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 64)
    with pytest.raises(ConfigError, match="its tensors end at byte"):
        import_gguf(path)


def test_tensors_that_overlap_are_refused() -> None:
    keys, tensors = small()
    data = header(keys, tensors)
    second = struct.pack("<IQ", F32, tensors[0].bytes)  # the offset of the second tensor
    assert data.count(second) == 1
    with pytest.raises(ConfigError, match="starts at 0 of the data"):
        import_gguf_header(data.replace(second, struct.pack("<IQ", F32, 0)), "m.gguf")


@pytest.mark.parametrize("path", ["/dev/zero", "/tmp", "no-such.gguf", "nul\0.gguf"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        import_gguf(path)


LIES = {
    "not GGUF": b"GGML" + bytes(64),
    "nothing": b"",
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "version 99": b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "endless tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + bytes(64),
    "endless keys": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63) + bytes(64),
    "a key of 2^60 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60) + bytes(64),
    "a text of 2^64 - 1 bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 8, 2**64 - 1),
    "a list of 2^40 numbers": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 4, 2**40),
    "a list of 2^62 texts": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**62),
    "a list of lists": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1) + bytes(64),
    "a value of type 99": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 99) + bytes(64),
    "a key that is not text": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 4) + b"\xff\xfe\xfd\xfc" + bytes(64),
    "a tensor of 0 dimensions": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + bytes(64),
    "a tensor of 2^200 values": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack(
        "<I4QIQ", 4, 2**50, 2**50, 2**50, 2**50, 0, 0),
    "a row that fills no block": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack("<IQIQ", 1, 33, 8, 0),
    "a header without tensors": header(keys_of("llama", block_count=1), []),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused_with_a_sentence(lie: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_gguf_header(LIES[lie], "m.gguf", 10**12)
    assert "m.gguf" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_millions_of_empty_texts_are_refused_before_they_are_walked() -> None:
    count = 1_500_001
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)
    with pytest.raises(ConfigError, match="1,500,001 texts"):
        import_gguf_header(data, "m.gguf")


def test_a_long_list_of_tokens_is_counted_and_not_kept() -> None:
    keys, tensors = small()
    named = keys | {"tokenizer.ggml.tokens": ["x"] * 96, "tokenizer.ggml.scores": [0.5] * 20_000}
    assert read(named, tensors) == read(keys, tensors)
    refused(named | {"tokenizer.ggml.tokens": ["x"] * 97, "llama.vocab_size": 97}, tensors, "there are 97 tokens")


def test_lists_without_end_are_not_all_kept() -> None:
    """The 21st list of 10,000 numbers is skipped, so that a key that needs it is refused and memory stays small."""
    keys, tensors = small()
    many = {f"x.{index}": [1] * 10_000 for index in range(20)}
    assert read(many | keys, tensors) == read(keys, tensors)
    refused(many | keys | {"llama.attention.head_count_kv": [2, 2]}, tensors, "has 2 entries")


FUZZED = header(*small("gemma3", layers=2, attention__sliding_window=8, expert_count=0))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_mutated_header_is_a_model_that_keeps_its_laws_or_a_refusal(data: st.DataObject) -> None:
    mutated = bytearray(FUZZED)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        patch = data.draw(
            st.sampled_from([b"\0", b"\xff", b"\1", b"\x7f", b"\xff" * 8, b"\0" * 8]) | st.binary(max_size=4)
        )
        mutated[at : at + len(patch)] = patch
    cut = data.draw(st.integers(0, len(mutated)) | st.just(len(mutated)))
    try:
        model = import_gguf_header(bytes(mutated[:cut]), "m.gguf", data.draw(st.none() | st.integers(0, 2**40)))
    except KvplanError:
        return
    assert model.cache_bytes(2) >= model.cache_bytes(1) >= 0
    assert model.weight_bytes() > 0
    assert model_from_table(json.loads(json.dumps(model_to_table(model))), "model.toml") == model


def test_a_config_and_a_gguf_file_of_one_model_give_the_same_cache() -> None:
    keys, tensors = small(layers=2)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
        "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model, other = read(keys, tensors), import_config(config, measure="never")
    assert [layer.cache for layer in model.layers] == [layer.cache for layer in other.layers]
    assert model.num_params == other.num_params
    assert model.weight_bytes("bf16", 2) == other.weight_bytes("bf16", 2)


# ----------------------------------------------------------------------------------------------------------- terminal


def test_the_terminal_imports_a_gguf_file_and_saves_it_as_a_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "m.gguf", *small())
    assert main(["import", str(path), "--save", str(tmp_path), "--id", "tiny", "--name", "Tiny"]) == 0
    assert "parameters" in capsys.readouterr().out
    saved = model_from_table(read_toml(tmp_path / "tiny.toml"), "tiny.toml", "tiny")
    assert saved == replace(import_gguf(path), id="tiny")
    assert saved.name == "Tiny"


def test_the_terminal_shows_and_plans_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "m.gguf", *small()))
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_params"] == import_gguf(path).num_params
    assert main(["plan", path, "--gpu", "h100-sxm-80gb", "--context", "100", "--batch", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cache_bytes"] == 2 * 100 * 2 * 2 * 16 * 2


@pytest.mark.parametrize("option", [["--dtype", "bf16"], ["--index", "i.json"], ["--estimate"], ["--measure", "never"]])
def test_options_of_a_config_are_refused_for_a_gguf_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    path = str(write(tmp_path / "m.gguf", *small()))
    assert main(["import", path, *option]) == 2
    assert f"{option[0]} is for a config.json" in capsys.readouterr().err


def test_a_broken_gguf_file_is_one_sentence_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(4))
    assert main(["show", str(tmp_path / "m.gguf")]) == 2
    assert "m.gguf" in capsys.readouterr().err


@pytest.mark.parametrize("bad", [None, 3, b"model.gguf", []], ids=repr)
def test_a_gguf_file_is_named_by_its_path(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"^the file is .*; the path of a GGUF file is needed$"):
        import_gguf(bad)
