"""What a checkpoint stores beside what a model counts: exact, explained, or said to be unexplained."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.cli import main
from kvplan.errors import ConfigError, KvplanError
from kvplan.importer import import_config
from kvplan.importer.safetensors import Difference, StoredTensor, explain_difference, read_header, read_index

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "weight_totals.jsonl").read_text(encoding="utf-8").splitlines()
]
SMALL: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def index_of(total: Any, *names: str) -> dict[str, Any]:
    return {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(("model.norm.weight", *names), "a")}


def compare(total: int, *names: str, **config: Any) -> Difference:
    model = import_config(SMALL | config, measure="never")
    return explain_difference(model, read_index(index_of(total, *names)))


def counted(**config: Any) -> int:
    return import_config(SMALL | config, measure="never").weight_bytes()


def test_a_head_that_the_config_does_not_tie_and_the_files_do_not_hold_is_said() -> None:
    found = compare(counted() - 2 * 96 * 64, "model.embed_tokens.weight")
    assert found.sentences[1:] == ("-12,288 B since it stores no output head, which differs from the config",)
    assert found.unexplained_bytes == 0


# --------------------------------------------------------------------------------------------- published checkpoints

MIMO = (
    "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
    "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
    "input_proj.weight", "token_layernorm.weight", "hidden_layernorm.weight", "final_layernorm.weight",
)  # fmt: skip
"""The tensors of MiMo's one layer of multi-token prediction: as many as its row counts."""


def names_of(row: Mapping[str, Any]) -> list[str]:
    """Names as the row counts them, spelled as these families do."""
    found = row["weight_map_notes"]
    names = [f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(found["rotary_inv_freq"])]
    names += ["lm_head.weight"] * found["lm_head"]
    if row["model_type"] == "gpt_neox":
        names += [
            f"gpt_neox.layers.{index}.attention.{kind}" for index in range(36) for kind in ("bias", "masked_bias")
        ]
    if row["model_type"] == "mimo":
        names += [f"model.mtp_layers.0.{name}" for name in MIMO]
    return names


EXPLAINED = [
    row
    for row in ROWS
    if row["diff"]
    and any(word in row["explanation"] for word in ("although tied", "buffers", "MTP", "stored in float32"))
    and row["model_type"] != "PanguEmbedded"
]


@pytest.mark.parametrize("row", EXPLAINED, ids=[f"{row['repo']}-{row['path']}" for row in EXPLAINED])
def test_a_published_difference_is_explained_to_the_byte(row: dict[str, Any]) -> None:
    model = import_config(row["config_json"], dtype=row["oracle_dtype"], measure="never")
    found = explain_difference(model, read_index(index_of(row["total_size"], *names_of(row))))
    assert found.unexplained_bytes == 0
    assert found.stored_bytes - found.counted_bytes == row["diff"]  # type: ignore[operator]
    assert len(found.sentences) > 1


def test_enough_published_differences_are_explained() -> None:
    assert len(EXPLAINED) >= 14
    assert {row["model_type"] for row in EXPLAINED} >= {"falcon", "llama", "chatglm", "gpt_neox", "mimo", "qwen2_vl"}


@pytest.mark.parametrize("row", [row for row in ROWS if row["explanation"] == "exact"][:8], ids=lambda row: row["repo"])
def test_an_exact_index_is_said_to_be_exact(row: dict[str, Any]) -> None:
    model = import_config(row["config_json"], dtype=row["oracle_dtype"], measure="never")
    found = explain_difference(model, read_index(index_of(row["total_size"])))
    assert (found.unexplained_bytes, len(found.sentences)) == (0, 1)
    assert "exactly what is counted" in found.sentences[0]


# ---------------------------------------------------------------------------------------------------------- sentences


def test_bytes_without_a_known_tensor_stay_unexplained() -> None:
    found = compare(counted() + 10)
    assert found.unexplained_bytes == 10
    assert found.sentences[-1] == "+10 B are not explained"


def test_what_a_class_keeps_in_float32_may_be_stored_in_the_dtype_of_the_model() -> None:
    """DeepSeek's routers: 256 x 7168 in each of 58 layers."""
    config = json.loads(
        (Path(__file__).parent.parent / "data/configs/deepseek-ai__DeepSeek-V3.json").read_text("utf-8")
    )
    model = import_config(config, measure="never")
    saved = 58 * 256 * 7168 * 2
    found = explain_difference(model, read_index(index_of(model.weight_bytes() - saved)))
    assert found.unexplained_bytes == 0
    assert f"-{saved:,} B since it stores in bf16 what its class keeps in float32" in found.sentences[-1]


def test_a_checkpoint_that_stores_less_is_not_hidden() -> None:
    assert compare(counted() - 6).sentences[-1] == "-6 B are not explained"


def test_a_tied_head_is_explained_only_where_it_is_named() -> None:
    head, total = 96 * 64 * 2, counted(tie_word_embeddings=True)
    named = compare(total + head, "lm_head.weight", tie_word_embeddings=True)
    assert named.unexplained_bytes == 0
    assert f"{head:,} B are the output head" in named.sentences[1]
    assert compare(total + head, tie_word_embeddings=True).unexplained_bytes == head


def test_tensors_of_a_tower_are_named_though_an_index_does_not_state_their_bytes() -> None:
    found = compare(counted() + 500, "visual.patch_embed.weight", "visual.merger.weight")
    assert found.unexplained_bytes == 500
    assert any("visual.patch_embed.weight and 1 more" in sentence for sentence in found.sentences)


def test_a_layer_beyond_the_models_is_one_that_predicts_tokens() -> None:
    """DeepSeek V3 stores it so: a whole layer, and a projection, norms, embedding and head of its own."""
    layer = counted(num_hidden_layers=3) - counted()
    more = 2 * (2 * 64 * 64 + 3 * 64 + 2 * 96 * 64)
    names = ("eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight", "shared_head.head.weight",
             "embed_tokens.weight", "self_attn.q_proj.weight", "input_layernorm.weight")  # fmt: skip
    found = compare(counted() + layer + more, *(f"model.layers.2.{name}" for name in names))
    assert found.unexplained_bytes == 0
    assert f"{layer + more:,} B are layers that predict further tokens" in found.sentences[1]


def test_the_notes_of_an_imported_model_say_how_it_compares() -> None:
    model = import_config(SMALL, index=index_of(counted() + 10), measure="never")
    assert model.notes[-1] == "+10 B are not explained"
    assert model == import_config(SMALL, measure="never")


def test_a_model_whose_bytes_are_not_known_is_compared_with_nothing() -> None:
    config = {name: value for name, value in SMALL.items() if name != "torch_dtype"}
    found = explain_difference(import_config(config, measure="never"), read_index(index_of(1000)))
    assert (found.stored_bytes, found.counted_bytes, found.unexplained_bytes) == (1000, None, None)


# ------------------------------------------------------------------------------------------------------------ headers


def written(path: Path, tensors: Mapping[str, tuple[str, list[int], int]], extra: bytes = b"") -> Path:
    """A file of `tensors` (dtype, shape, bytes), whose values are zeros."""
    end, table = 0, {"__metadata__": {"format": "pt"}}
    for name, (dtype, shape, size) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}  # type: ignore[dict-item]
        end += size
    data = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(end) + extra)
    return path


def test_a_header_gives_names_shapes_and_bytes(tmp_path: Path) -> None:
    path = written(tmp_path / "m.safetensors", {"a": ("BF16", [3, 5], 30), "b": ("F4", [4], 2), "c": ("F32", [], 4)})
    found = read_header(path)
    assert (found.total_size, found.names) == (36, ("a", "b", "c"))
    assert found.tensors["a"] == StoredTensor((3, 5), "BF16", 30)
    assert read_index(path) == found


def test_with_a_header_the_bytes_of_a_tower_are_exact(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.safetensors",
        {"model.norm.weight": ("U8", [counted()], counted()), "visual.merger.weight": ("BF16", [7, 3], 42)},
    )
    found = explain_difference(import_config(SMALL, measure="never"), read_header(path))
    assert found.unexplained_bytes == 0
    assert any("42 B are tensors of a vision or audio tower" in sentence for sentence in found.sentences)


@pytest.mark.parametrize(
    ("tensors", "extra", "match"),
    [
        ({"a": ("BF16", [3], 5)}, b"", "which its shape and dtype do not make"),
        ({"a": ("BF17", [3], 6)}, b"", "'BF17'"),
        ({"a": ("BF16", [-3], 6)}, b"", "whole numbers"),
        ({"a": ("BF16", [3.0], 6)}, b"", "whole numbers"),
        ({"a": ("BF16", [3], 6)}, b"x", "the file has"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path, tensors: Any, extra: bytes, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_header(written(tmp_path / "m.safetensors", tensors, extra))


@pytest.mark.parametrize(
    "data",
    [b"", b"1234", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 100) + b"{}", struct.pack("<Q", 2) + b"[]",
     struct.pack("<Q", 2) + b"{{", struct.pack("<Q", 4) + b"\xff" * 4, struct.pack("<Q", 7) + b'{"a":1}',
     struct.pack("<Q", 200_000) + b"[" * 200_000],
)  # fmt: skip
def test_a_lying_header_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"m\.safetensors"):
        read_header(path)


@pytest.mark.parametrize(
    "index",
    [{}, {"weight_map": {}}, {"weight_map": {"a": "b"}}, index_of("5"), index_of(-1), index_of(0), index_of(True),
     index_of(1.5), index_of(2**70), index_of(float("inf")), {"metadata": 5, "weight_map": {"a": "b"}}, "no-such.json",
     7, "/dev/null", "nul\0", "/dev/zero.safetensors"],
)  # fmt: skip
def test_an_index_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(ConfigError):
        read_index(index)


def test_an_index_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index_of(2.5e9, "lm_head.weight")), encoding="utf-8")
    assert read_index(path).total_size == 2_500_000_000
    assert read_index(path).names == ("model.norm.weight", "lm_head.weight")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(total=VALUES | st.integers(1, 2**40), names=st.lists(st.text(max_size=20) | st.sampled_from(
    ["lm_head.weight", "model.layers.9.mlp.weight", "mtp.norm.weight", "a.inv_freq", "h.0.attn.bias", "visual.a"])),
    tied=st.booleans(), junk=TREES)  # fmt: skip
def test_a_strange_index_is_a_comparison_whose_parts_add_up_or_a_refusal(
    total: Any, names: list[str], tied: bool, junk: Any
) -> None:
    model = import_config(SMALL | {"tie_word_embeddings": tied}, measure="never")
    for index in (index_of(total, *names), {"metadata": junk, "weight_map": junk}):
        try:
            found = explain_difference(model, read_index(index))
        except KvplanError:
            continue
        assert found.stored_bytes == total
        assert found.counted_bytes == model.weight_bytes()
        assert all(isinstance(sentence, str) and len(sentence) < 300 for sentence in found.sentences)


def test_the_terminal_compares_a_config_with_its_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    (tmp_path / "i.json").write_text(json.dumps(index_of(counted() + 10)), encoding="utf-8")
    assert main(["import", str(tmp_path / "config.json"), "--index", str(tmp_path / "i.json")]) == 0
    assert "* +10 B are not explained" in capsys.readouterr().out


def test_an_index_whose_key_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"metadata": {"total_size": 1, "total_size": 2}, "weight_map": {}}')
    with pytest.raises(ConfigError, match="'total_size' stands twice"):
        read_index(path)
