"""Headers of safetensors files: alone, as parts, in a folder, and as a browser sends them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.errors import ConfigError
from kvplan.importer import import_config
from kvplan.importer.headers import Beginning, Index, read_beginning, read_beginnings, read_index
from kvplan.importer.safetensors import explain_difference

SMALL: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
SHAPES: dict[str, list[int]] = {
    "model.embed_tokens.weight": [96, 64], "model.norm.weight": [64], "lm_head.weight": [96, 64],
    "model.layers.0.input_layernorm.weight": [64], "model.layers.0.post_attention_layernorm.weight": [64],
    "model.layers.0.self_attn.q_proj.weight": [64, 64], "model.layers.0.self_attn.k_proj.weight": [32, 64],
    "model.layers.0.self_attn.v_proj.weight": [32, 64], "model.layers.0.self_attn.o_proj.weight": [64, 64],
    "model.layers.0.mlp.gate_proj.weight": [128, 64], "model.layers.0.mlp.up_proj.weight": [128, 64],
    "model.layers.0.mlp.down_proj.weight": [64, 128],
}  # fmt: skip
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def header(shapes: dict[str, list[int]]) -> tuple[bytes, int]:
    """The beginning of a file with these tensors in bf16, and the bytes of its data."""
    found: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        found[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(found).encode()
    return struct.pack("<Q", len(text)) + text, end


def write(path: Path, shapes: dict[str, list[int]]) -> None:
    start, size = header(shapes)
    path.write_bytes(start + bytes(size))


def halves() -> list[dict[str, list[int]]]:
    names = list(SHAPES)
    return [{name: SHAPES[name] for name in names[:5]}, {name: SHAPES[name] for name in names[5:]}]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder with a config, an index and two parts."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    for name, shapes in zip(PARTS, halves(), strict=True):
        write(folder / name, shapes)
    total = sum(header(shapes)[1] for shapes in halves())
    weights = {name: part for part, shapes in zip(PARTS, halves(), strict=True) for name in shapes}
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weights})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return folder


def assert_whole(index: Index) -> None:
    model = import_config(SMALL, measure="never")
    assert index.total_size == model.weight_bytes()
    assert set(index.tensors) == set(SHAPES)
    assert explain_difference(model, index).unexplained_bytes == 0


def test_a_folder_is_all_its_parts(checkpoint: Path) -> None:
    assert_whole(read_index(checkpoint))


@pytest.mark.parametrize("name", PARTS)
def test_any_part_stands_for_all(checkpoint: Path, name: str) -> None:
    assert_whole(read_index(checkpoint / name))


def test_a_second_copy_in_another_layout_is_not_counted_too(checkpoint: Path) -> None:
    write(checkpoint / "consolidated.safetensors", {"output.weight": [96, 64]})
    assert_whole(read_index(checkpoint))


def test_a_folder_of_one_file_is_that_file(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", SHAPES)
    assert_whole(read_index(tmp_path))


def test_a_folder_with_an_index_alone_is_that_index(checkpoint: Path) -> None:
    for name in PARTS:
        (checkpoint / name).unlink()
    found = read_index(checkpoint)
    assert (found.total_size, found.tensors) == (import_config(SMALL, measure="never").weight_bytes(), {})


def test_a_missing_part_is_named(checkpoint: Path) -> None:
    (checkpoint / PARTS[0]).unlink()
    for source in (checkpoint, checkpoint / PARTS[1]):
        with pytest.raises(ConfigError, match="one of 2 parts, of which 1 are missing: model-00001-of-00002"):
            read_index(source)


def test_an_index_that_names_other_tensors_than_the_headers_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 4}, "weight_map": {"a": PARTS[0]}}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"index\.json and the headers differ in 13 names, such as a"):
        read_index(checkpoint)


def test_two_parts_with_the_same_tensor_are_refused(checkpoint: Path) -> None:
    write(checkpoint / PARTS[1], halves()[0])
    with pytest.raises(ConfigError, match=r"lm_head\.weight stands in another part too"):
        read_index(checkpoint / PARTS[0])


def test_an_empty_folder_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no model\.safetensors\.index\.json and no \.safetensors file"):
        read_index(tmp_path)


@pytest.mark.parametrize("name", ["model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors",
                                  "model-00001-of-99999.safetensors"])  # fmt: skip
def test_a_part_beyond_its_own_number_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, SHAPES)
    with pytest.raises(ConfigError, match="a checkpoint has 1 to 10,000 parts"):
        read_index(tmp_path / name)


# ------------------------------------------------------------------------------------------------------------ browser


def sent(name: str, shapes: dict[str, list[int]], most: int = 10**6) -> Beginning:
    start, size = header(shapes)
    return Beginning(name, (start + bytes(size))[:most], len(start) + size)


def test_the_beginnings_of_all_parts_are_enough() -> None:
    parts = [sent(name, shapes, 4_000) for name, shapes in zip(PARTS, halves(), strict=True)]
    assert_whole(read_beginnings(parts[::-1]))


def test_a_beginning_alone_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"1 are missing: model-00002-of-00002\.safetensors"):
        read_beginnings([sent(PARTS[0], halves()[0])])


def test_a_file_of_another_checkpoint_is_named() -> None:
    with pytest.raises(ConfigError, match=r"other\.safetensors is no part of the checkpoint"):
        read_beginnings([sent("model.safetensors", SHAPES), sent("other.safetensors", SHAPES)])


def test_no_file_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no file is given"):
        read_beginnings([])


def test_a_beginning_shorter_than_its_header_says_how_long_that_is() -> None:
    start, _ = header(SHAPES)
    with pytest.raises(ConfigError, match=rf"its header has {len(start) - 8:,} bytes, and only the first 100"):
        read_beginning(sent("model.safetensors", SHAPES, 100))


def test_the_size_of_the_whole_file_may_be_unknown() -> None:
    start, _ = header(SHAPES)
    assert_whole(read_beginning(Beginning("model.safetensors", start)))


# ------------------------------------------------------------------------------------------------------ the difference


def test_a_difference_names_the_tensors_on_both_sides(checkpoint: Path) -> None:
    model = import_config(SMALL | {"intermediate_size": 192}, measure="never")
    sentences = explain_difference(model, read_index(checkpoint)).sentences
    assert f"-{3 * 64 * 64 * 2:,} B are not explained" in sentences
    assert any("1 tensor of 64 x 128 stored, 0 counted: model.layers.0.mlp.down_proj.weight" in s for s in sentences)
    assert "2 tensors of 192 x 64 counted, 0 stored" in sentences


def test_an_index_has_no_shapes_to_compare(checkpoint: Path) -> None:
    model = import_config(SMALL | {"intermediate_size": 192}, measure="never")
    found = explain_difference(model, read_index(checkpoint / "model.safetensors.index.json"))
    assert found.sentences[-1].endswith("are not explained")


# ------------------------------------------------------------------------------------------------------------ terminal


def test_a_folder_is_imported_with_what_lies_in_it(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(checkpoint)]) == 0
    assert "exactly what is counted" in capsys.readouterr().out


def test_a_folder_is_shown_and_planned_with(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"{checkpoint}"]) == 0
    assert "exactly what is counted" in capsys.readouterr().out
    assert main(["plan", f"{checkpoint}/", "--gpu", "rtx-4090-24gb"]) == 0


def test_a_folder_is_saved_as_a_preset(checkpoint: Path, tmp_path: Path) -> None:
    assert main(["import", str(checkpoint), "--save", str(tmp_path), "--id", "small"]) == 0
    assert (tmp_path / "small.toml").is_file()


def test_a_companion_in_the_folder_is_read(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quantization = {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}), encoding="utf-8")
    assert main(["import", str(checkpoint)]) == 0
    assert "stored in fp8_per_tensor_static" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "holds no config.json and no GGUF file"), ("model.safetensors", "lists tensors and does not say")],
)
def test_what_is_no_checkpoint_says_what_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    write(tmp_path / "model.safetensors", SHAPES)
    assert main(["import", str(tmp_path / name)]) == (0 if not words else 2)
    assert words in capsys.readouterr().err
