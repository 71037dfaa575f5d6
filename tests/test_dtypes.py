"""Storage formats against the published layouts in tests/data/formats.jsonl, and sizes worked out by hand."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kvplan.dtypes import (
    CHECKPOINT_FORMATS,
    KV_ALIASES,
    KV_DTYPES,
    UNSIZED_WEIGHT_FORMATS,
    WEIGHT_ALIASES,
    WEIGHT_FORMATS,
    FlatScale,
    Scale,
    ShapeText,
    kv_dtype,
    weight_format,
)
from kvplan.errors import DtypeError, InputError, UnknownNameError

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "formats.jsonl").read_text().splitlines()]
WEIGHT_ROWS = {row["id"]: row for row in ROWS if row["kind"] == "weight"}
GGUF_ROWS = {row["id"]: row for row in ROWS if row["kind"] == "gguf_type" and not row.get("compute_only")}

SIDE = 4096
VALUES = SIDE * SIDE

PER_TENSOR_BITS = 32
"""One fp32 number a matrix, which `bits_per_value` of the published rows leaves out."""


def bits_beyond_the_row(name: str) -> Fraction:
    """Bits a value of a 4096 x 4096 matrix that the published bits_per_value leaves out, by the row's own words."""
    if name in ("fp8_e4m3_per_tensor", "fp8_e5m2_per_tensor", "nvfp4", "bnb_nf4_double_quant"):
        return Fraction(PER_TENSOR_BITS, VALUES)
    if name.startswith("gptq"):
        return Fraction(32, SIDE)  # g_idx: an int32 for each input row
    if name.startswith("ct_"):
        return Fraction(2 * 64, VALUES)  # weight_shape: two int64
    return Fraction(0)


SIZED = [name for name, row in WEIGHT_ROWS.items() if row["bits_per_value"] and name not in UNSIZED_WEIGHT_FORMATS]


@pytest.mark.parametrize("name", SIZED)
def test_a_weight_format_has_its_published_bits_per_value(name: str) -> None:
    expected = Fraction(str(WEIGHT_ROWS[name]["bits_per_value"])) + bits_beyond_the_row(name)
    if name == "hqq_3b_g64":
        expected += Fraction(32, 10) - Fraction("3.2")  # ten values an int32: 3.2 bits, exact here
    found = Fraction(8 * weight_format(name).matrix_bytes(SIDE, SIDE), VALUES)
    assert abs(found - expected) < Fraction(1, 10**6)  # the rows are rounded, and a last pack may stand half empty


@pytest.mark.parametrize(
    ("name", "scale_bits"),
    [
        ("fp8_per_channel", 32),
        ("fp8_per_channel_bf16", 16),
        ("int8_w8a8_per_channel", 32),
        ("int8_per_channel_bf16", 16),
    ],
)
def test_a_scale_an_output_row_costs_its_bits_over_the_input_features(name: str, scale_bits: int) -> None:
    found = Fraction(8 * weight_format(name).matrix_bytes(1000, 4096), 1000 * 4096)
    assert found == 8 + Fraction(scale_bits, 4096)


def test_every_weight_row_is_a_format_or_is_refused_with_a_reason() -> None:
    for name in WEIGHT_ROWS:
        if name in UNSIZED_WEIGHT_FORMATS:
            with pytest.raises(InputError, match=name):
                weight_format(name)
        else:
            assert weight_format(name).matrix_bytes(64, 128) > 0


@pytest.mark.parametrize("row", GGUF_ROWS.values(), ids=GGUF_ROWS)
def test_a_gguf_type_has_its_published_block(row: dict[str, Any]) -> None:
    found = WEIGHT_FORMATS[f"gguf_{row['id']}"]
    assert (found.values_per_pack, found.bytes_per_pack) == (row["block"], row["bytes"])
    assert found.matrix_bytes(3, row["block"] * 5) == 3 * 5 * row["bytes"]
    assert row["bits_per_value"] == pytest.approx(8 * row["bytes"] / row["block"], abs=0)


def test_types_that_are_never_on_disk_are_not_offered() -> None:
    compute_only = [row["id"] for row in ROWS if row["kind"] == "gguf_type" and row.get("compute_only")]
    assert compute_only == ["Q8_1", "Q8_K"]
    for name in compute_only:
        with pytest.raises(UnknownNameError):
            weight_format(name.lower())


def test_every_gguf_type_of_the_library_is_published() -> None:
    assert {name.removeprefix("gguf_") for name in WEIGHT_FORMATS if name.startswith("gguf_")} == set(GGUF_ROWS)


# --------------------------------------------------------------------------------------------- matrices by hand


def test_tiles_of_128_on_a_matrix_of_576_by_7168_are_280_scales() -> None:
    values = 576 * 7168
    assert weight_format("fp8_block128").matrix_bytes(576, 7168) == values + 280 * 4
    assert weight_format("fp8_block128_ue8m0").matrix_bytes(576, 7168) == values + 280


def test_the_scales_follow_the_shape_and_not_the_number_of_values() -> None:
    block = weight_format("fp8_block128")
    assert block.matrix_bytes(1, 128 * 128) == 128 * 128 + 128 * 4
    assert block.matrix_bytes(128, 128) == 128 * 128 + 4
    assert block.matrix_bytes(129, 129) == 129 * 129 + 4 * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gptq_int4_g128", 256 * 512 // 2 + 256 * 4 * 2 + 32 * 4 * 4 + 512 * 4),
        ("awq_int4_g128", 256 * 512 // 2 + 256 * 4 * 2 + 32 * 4 * 4),
        ("ct_int4_sym_g128", 256 * 512 // 2 + 256 * 4 * 2 + 16),
        ("ct_int4_asym_g128", 256 * 512 // 2 + 256 * 4 * 2 + 32 * 4 * 4 + 16),
        ("gptq_int8_g128", 256 * 512 + 256 * 4 * 2 + 64 * 4 * 4 + 512 * 4),
        ("mxfp4", 256 * 512 // 2 + 256 * 16),
        ("nvfp4", 256 * 512 // 2 + 256 * 32 + 4),
        ("bnb_int8", 256 * 512 + 256 * 4 + 1),  # and one byte that names the layout
        ("bnb_nf4", 256 * 512 // 2 + 256 * 512 // 64 * 4),
        ("bnb_nf4_double_quant", 256 * 512 // 2 + 2048 + 8 * 4 + 4),
        ("gguf_Q4_K", 256 * 2 * 144),
    ],
)
def test_a_matrix_of_256_by_512_takes_packs_and_scales(name: str, expected: int) -> None:
    assert weight_format(name).matrix_bytes(256, 512) == expected


def test_a_scale_spans_a_whole_dimension_where_its_tile_is_all() -> None:
    assert Scale(0, 0, 4).total_bytes(10, 20) == 4
    assert Scale(1, 0, 2).total_bytes(10, 20) == 20
    assert FlatScale(64, 4).total_bytes(10, 20) == 4 * 4  # 200 values: three full blocks and a part


def test_only_formats_without_scales_and_packs_are_plain() -> None:
    assert all(weight_format(name).is_plain for name in ("fp32", "bf16", "fp16"))
    assert not any(weight_format(name).is_plain for name in ("fp8", "int8", "mxfp8", "q8_0", "nf4"))


# ------------------------------------------------------------------------------------------------- cache rows

D, DK, DV = 128, 192, 128


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", (DK + DV) * 2),
        ("fp16", (DK + DV) * 2),
        ("fp32", (DK + DV) * 4),
        ("fp8", DK + DV),
        ("int8", DK + DV),
        ("int8_per_token_head", DK + DV + 8),
        ("fp8_per_token_head", DK + DV + 8),
        ("int4_per_token_head", (DK + DV) // 2 + 8),
        ("nvfp4", DK // 2 + DK // 16 + DV // 2 + DV // 16),
        ("mxfp8", (DK + DV) * 33 // 32),
        ("q8_0", (DK + DV) // 32 * 34),
        ("q5_1", (DK + DV) // 32 * 24),
        ("q5_0", (DK + DV) // 32 * 22),
        ("q4_1", (DK + DV) // 32 * 20),
        ("q4_0", (DK + DV) // 32 * 18),
        ("iq4_nl", (DK + DV) // 32 * 18),
    ],
)
def test_a_key_and_a_value_row_take_their_published_bytes(name: str, expected: int) -> None:
    kv = kv_dtype(name)
    assert kv.format_for("key").row_bytes(DK) + kv.format_for("value").row_bytes(DV) == expected


def test_every_cache_dtype_is_worked_out_above() -> None:
    marks = test_a_key_and_a_value_row_take_their_published_bytes.pytestmark  # type: ignore[attr-defined]
    assert {name for name, _ in marks[0].args[1]} == set(KV_DTYPES)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
def test_a_llama_cpp_row_has_its_published_bits(name: str) -> None:
    row = next(row for row in ROWS if row["id"] == f"llamacpp {name}")
    assert 8 * kv_dtype(name).format_for("key").row_bytes(D) == row["bits"] * D


def test_an_index_key_is_132_bytes_at_fp8_and_follows_the_cache_dtype_at_16_and_32_bits() -> None:
    widths = {name: kv_dtype(name).format_for("index").row_bytes(128) for name in ("fp8", "bf16", "fp16", "fp32")}
    assert widths == {"fp8": 128 + 4, "bf16": 256, "fp16": 256, "fp32": 512}


def test_a_sparse_latent_row_is_656_bytes_at_fp8() -> None:
    kv = kv_dtype("fp8")
    assert kv.format_for("sparse_latent").row_bytes(512) == 512 + 4 * 4
    assert kv.format_for("sparse_rope").row_bytes(64) == 64 * 2
    assert 512 + 16 + 128 == 656


@pytest.mark.parametrize(("name", "expected"), [("bf16", 1152), ("fp8", 576), ("nvfp4", 352)])
def test_a_latent_row_of_512_and_64_takes_its_published_bytes(name: str, expected: int) -> None:
    kv = kv_dtype(name)
    assert kv.format_for("latent").row_bytes(512) + kv.format_for("rope").row_bytes(64) == expected


def test_a_compressed_row_is_584_bytes_at_fp8() -> None:
    kv = kv_dtype("fp8")
    assert kv.format_for("compressed_latent").row_bytes(448) + kv.format_for("compressed_rope").row_bytes(64) == 584


def test_keys_and_values_may_be_stored_apart() -> None:
    kv = kv_dtype("q8_0/q4_0")
    assert kv.name == "q8_0/q4_0"
    assert kv.format_for("key").row_bytes(128) == 4 * 34
    assert kv.format_for("value").row_bytes(128) == 4 * 18
    assert kv.format_for("image_value") == kv.format_for("value")
    assert kv_dtype("bf16/bf16") == kv_dtype("bf16")


# ------------------------------------------------------------------------------------------- names and refusals


@pytest.mark.parametrize("alias", sorted(WEIGHT_ALIASES))
def test_a_short_weight_name_stands_for_one_exact_format(alias: str) -> None:
    assert weight_format(alias) is WEIGHT_FORMATS[WEIGHT_ALIASES[alias]]
    assert weight_format(f" {alias.upper()} ") is weight_format(alias)


@pytest.mark.parametrize("alias", sorted(KV_ALIASES))
def test_a_short_cache_name_stands_for_one_exact_format(alias: str) -> None:
    assert kv_dtype(alias).name == KV_ALIASES[alias]


def test_int4_is_refused_until_its_layout_is_named() -> None:
    with pytest.raises(InputError, match=r"int4 has many layouts; say which, such as awq_int4_g128"):
        weight_format("int4")


@pytest.mark.parametrize("name", ["bf15", "fp8_blok128", "", "q4", "latin-1", "x" * 5000])
def test_an_unknown_weight_dtype_is_refused(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no weight dtype is called") as error:
        weight_format(name)
    assert len(str(error.value)) < 400


def test_an_unknown_dtype_offers_the_nearest_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean bf16"):
        kv_dtype("bf61")
    with pytest.raises(UnknownNameError, match=r"did you mean .*fp8_block128"):
        weight_format("fp8_blok128")


@pytest.mark.parametrize("name", [8, None, 16.0, b"bf16", ["bf16"]])
def test_a_dtype_that_is_not_text_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="a name such as bf16 is needed"):
        kv_dtype(name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a name such as bf16 is needed"):
        weight_format(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "width", "block"), [("q8_0", 80, 32), ("q4_0", 100, 32), ("nvfp4", 72, 16), ("mxfp8", 48, 32)]
)
def test_a_row_that_does_not_fill_whole_blocks_is_refused(name: str, width: int, block: int) -> None:
    with pytest.raises(DtypeError, match=f"blocks of {block} values, and a row of {width} does not fill"):
        kv_dtype(name).format_for("key").row_bytes(width)


def test_a_matrix_whose_rows_do_not_fill_whole_blocks_is_refused() -> None:
    with pytest.raises(DtypeError, match="gguf_Q4_K stores blocks of 256 values, and a row of 2880"):
        weight_format("q4_k").matrix_bytes(4096, 2880)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("int8", "latent"),
        ("q8_0", "index"),
        ("nvfp4", "compressed_latent"),
        ("mxfp8", "rope"),
        ("q4_0", "state"),
        ("fp8", "convolution"),
    ],
)
def test_a_role_without_a_known_layout_is_refused_and_not_guessed(name: str, role: str) -> None:
    with pytest.raises(DtypeError, match=f"no known engine stores .* in {name}; choose"):
        kv_dtype(name).format_for(role)


@pytest.mark.parametrize("name", CHECKPOINT_FORMATS)
def test_a_format_that_only_files_have_is_read_by_its_name_and_not_offered(name: str) -> None:
    assert weight_format(name) is CHECKPOINT_FORMATS[name]
    assert name not in WEIGHT_FORMATS


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("fp8_per_tensor_static", 64 * 256 + 2 * 4),
        ("nvfp4_static", 64 * 256 // 2 + 64 * 256 // 16 + 2 * 4),
        ("gptq_int4_g128_bias", 64 * 256 // 2 + 2 * (64 * 2 + 8 * 4) + 256 * 4 + 64 * 2),
        ("gptq_int4_g128_part", 64 * 256 // 2 + 2 * (64 * 2 + 8 * 4)),
        ("mlx_3b_g64", 64 * 256 * 3 // 8 + 64 * 4 * 4),
        ("mlx_8b_g32", 64 * 256 + 64 * 8 * 4),
        (
            "bnb_fp4_file_fp32",
            64 * 256 // 2 + 256 * 4 + 64
            + len('{"quant_type": "fp4", "blocksize": 64, "dtype": "float32", "shape": [64, 256]}'),
        ),
    ],
)  # fmt: skip
def test_a_format_that_only_files_have_lays_out_a_64_by_256_matrix(name: str, size: int) -> None:
    assert weight_format(name).matrix_bytes(64, 256) == size


def test_a_text_that_spells_out_the_shape_grows_by_its_digits() -> None:
    assert ShapeText(10).total_bytes(7, 12345) == 10 + 1 + 5
