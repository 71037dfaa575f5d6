"""Storage formats: how many bytes a row of a cache or a weight matrix takes, scales and zero points included.

A format packs values (`values_per_pack` values in `bytes_per_pack` bytes) and adds scales. A scale is one
small number for each tile of the matrix, so its bytes follow from the matrix's shape and not from the number
of values: 128 x 128 tiles of a 576 x 7168 matrix carry 5 x 56 = 280 scales.

Matrices are (rows, columns) = (output features, input features), as `torch.nn.Linear` stores them.

A cache has one format for each role, since an fp8 cache keeps its index keys and sparse latent rows in
layouts of their own: `KvDtype`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from kvplan.errors import DtypeError, InputError, UnknownNameError, quoted

ALL = 0
"""In a `Scale`: the tile spans the whole dimension."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One small number of `bytes` for each tile of `rows` x `columns` values; edge tiles count whole."""

    rows: int
    columns: int
    bytes: int

    def total_bytes(self, rows: int, columns: int) -> int:
        return _tiles(rows, self.rows) * _tiles(columns, self.columns) * self.bytes


@dataclass(frozen=True, slots=True)
class FlatScale:
    """One small number of `bytes` for every `values` values of the flattened matrix."""

    values: int
    bytes: int

    def total_bytes(self, rows: int, columns: int) -> int:
        return _tiles(rows * columns, self.values) * self.bytes


@dataclass(frozen=True, slots=True)
class ShapeText:
    """A text that spells out the matrix's shape: `bytes` of it are the same for all, its digits come on top."""

    bytes: int

    def total_bytes(self, rows: int, columns: int) -> int:
        return self.bytes + len(f"{rows}{columns}")


AnyScale = Scale | FlatScale | ShapeText


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile) if tile else 1


@dataclass(frozen=True, slots=True)
class StorageFormat:
    """How values are stored.

    name             the id that people write
    values_per_pack  values in one pack; packs are never shared between matrices
    bytes_per_pack   bytes of one pack
    scales           what comes on top of the packs
    whole_rows       a row must fill whole packs (llama.cpp blocks, NVFP4), else it cannot be stored
    layout           the layout in words
    source           where the layout is documented
    """

    name: str
    values_per_pack: int
    bytes_per_pack: int
    scales: tuple[AnyScale, ...] = ()
    whole_rows: bool = False
    layout: str = field(default="", compare=False)
    source: str = field(default="", compare=False)

    def row_bytes(self, width: int) -> int:
        """Bytes of one cache row of `width` values. Raises DtypeError where the row cannot be stored so."""
        return self.matrix_bytes(1, width)

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of `rows` output and `columns` input features, scales included. Raises DtypeError."""
        if self.whole_rows and columns % self.values_per_pack:
            raise DtypeError(
                f"{self.name} stores blocks of {self.values_per_pack} values, "
                f"and a row of {columns} does not fill whole blocks"
            )
        packs = _tiles(rows * columns, self.values_per_pack)
        return packs * self.bytes_per_pack + sum(scale.total_bytes(rows, columns) for scale in self.scales)

    @property
    def is_plain(self) -> bool:
        """Whether every value stands alone, without scales or blocks: such a width can be used for any tensor."""
        return self.values_per_pack == 1 and not self.scales

    @property
    def bits_per_value(self) -> float:
        """Bits a value in a 4096 x 4096 matrix: for display only, never for a sum."""
        return self.matrix_bytes(4096, 4096) * 8 / 4096**2


_Row = tuple[str, tuple[AnyScale, ...], str, str]

PER_TENSOR_TWICE = Scale(ALL, ALL, 8)
"""Two fp32 numbers a matrix: its own scale, and the one that its input is divided by."""

PER_TENSOR = Scale(ALL, ALL, 4)
PER_ROW_FP32 = Scale(1, ALL, 4)
PER_ROW_BF16 = Scale(1, ALL, 2)

_SAFETENSORS = "https://github.com/huggingface/safetensors"
_COMPRESSED = "https://github.com/vllm-project/compressed-tensors"
_GGML = "https://github.com/ggml-org/llama.cpp"
_VLLM = "https://github.com/vllm-project/vllm"
_BNB = "https://github.com/bitsandbytes-foundation/bitsandbytes"
_OCP = "https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf"


def _plain(name: str, size: int, layout: str) -> StorageFormat:
    return StorageFormat(name, 1, size, layout=layout, source=_SAFETENSORS)


def _groups(size: int) -> tuple[tuple[str, int, int, tuple[Scale, ...], str], ...]:
    """The integer formats with one scale for each group of `size` input features."""
    scale, zeros = Scale(1, size, 2), Scale(8, size, 4)  # eight 4-bit zero points share an int32
    zeros8, g_idx, shape = Scale(4, size, 4), Scale(ALL, 1, 4), Scale(ALL, ALL, 16)
    return (
        (f"gptq_int4_g{size}", 2, 1, (scale, zeros, g_idx), "int32 packs, fp16 scale and int4 zero a group, int32 g_idx an input row"),
        (f"gptq_int8_g{size}", 1, 1, (scale, zeros8, g_idx), "as gptq int4 with 8-bit codes and zeros"),
        (f"awq_int4_g{size}", 2, 1, (scale, zeros), "int32 packs, fp16 scale and int4 zero a group"),
        (f"ct_int4_sym_g{size}", 2, 1, (scale, shape), "pack-quantized: int32 packs, bf16 scale a group, weight_shape of two int64"),
        (f"ct_int4_asym_g{size}", 2, 1, (scale, zeros, shape), "as sym, with packed zero points"),
    )  # fmt: skip


def _weight_formats() -> list[StorageFormat]:
    plain = [
        _plain("fp32", 4, "4 B a value"),
        _plain("bf16", 2, "2 B a value"),
        _plain("fp16", 2, "2 B a value"),
    ]
    eight_bit: list[_Row] = [
        ("fp8_per_tensor", (PER_TENSOR,), "1 B a value, one fp32 scale a matrix", _COMPRESSED),
        ("fp8_per_channel", (PER_ROW_FP32,), "1 B a value, one fp32 scale an output row", _COMPRESSED),
        ("fp8_per_channel_bf16", (PER_ROW_BF16,), "1 B a value, one bf16 scale an output row", _COMPRESSED),
        ("fp8_block128", (Scale(128, 128, 4),), "1 B a value, one fp32 scale a 128 x 128 tile, edge tiles whole", _COMPRESSED),
        ("fp8_block128_ue8m0", (Scale(128, 128, 1),), "1 B a value, one e8m0 byte a 128 x 128 tile", _COMPRESSED),
        ("int8_per_channel", (PER_ROW_FP32,), "1 B a value, one fp32 scale an output row", _COMPRESSED),
        ("int8_per_channel_bf16", (PER_ROW_BF16,), "1 B a value, one bf16 scale an output row", _COMPRESSED),
        ("bnb_int8", (PER_ROW_FP32, Scale(ALL, ALL, 1)), "1 B a value, one fp32 SCB an output row, one byte that names the layout", _BNB),
        ("mxfp8", (Scale(1, 32, 1),), "1 B a value, one e8m0 byte for 32 values", _OCP),
    ]  # fmt: skip
    four_bit: list[_Row] = [
        ("mxfp4", (Scale(1, 32, 1),), "e2m1, one e8m0 byte for 32 values", _OCP),
        ("nvfp4", (Scale(1, 16, 1), PER_TENSOR), "e2m1, one fp8 scale for 16 values, one fp32 scale a matrix", _COMPRESSED),
        ("bnb_nf4", (FlatScale(64, 4),), "one fp32 absmax for 64 values", _BNB),
        ("bnb_fp4", (FlatScale(64, 4),), "one fp32 absmax for 64 values", _BNB),
        ("bnb_nf4_double_quant", (FlatScale(64, 1), FlatScale(64 * 256, 4), PER_TENSOR),
         "int8 absmax for 64 values, fp32 for 256 of those, one fp32 offset a matrix", _BNB),
    ]  # fmt: skip
    return (
        plain
        + [StorageFormat(name, 1, 1, scales, layout=text, source=url) for name, scales, text, url in eight_bit]
        + [StorageFormat(name, 2, 1, scales, layout=text, source=url) for name, scales, text, url in four_bit]
        + [StorageFormat("mxfp6", 4, 3, (Scale(1, 32, 1),), layout="6 bits a value, one e8m0 byte for 32 values", source=_OCP)]
        + [StorageFormat(n, v, b, s, layout=t, source=_COMPRESSED) for g in (32, 64, 128) for n, v, b, s, t in _groups(g)]
        + [_KIMI_INT4]
        + _hqq_formats()
    )  # fmt: skip


_KIMI_INT4 = StorageFormat(
    "ct_int4_sym_g32_shape32",
    2,
    1,
    (Scale(1, 32, 2), Scale(ALL, ALL, 8)),
    layout="as ct_int4_sym_g32 with a weight_shape of two int32",
    source=_COMPRESSED,
)


def _hqq_formats() -> list[StorageFormat]:
    packs = {8: (1, 1), 4: (2, 1), 3: (10, 4), 2: (4, 1)}  # ten 3-bit codes share an int32
    return [
        StorageFormat(
            f"hqq_{bits}b_g{group}",
            *packs[bits],
            (FlatScale(group, 4),),
            layout="packed codes, fp16 scale and fp16 zero a group",
            source="https://github.com/mobiusml/hqq",
        )
        for bits, group in ((8, 64), (4, 64), (3, 64), (2, 64), (4, 128), (2, 16))
    ]


_MLX = "https://github.com/ml-explore/mlx"
_MLX_PACKS = {2: (4, 1), 3: (8, 3), 4: (2, 1), 5: (8, 5), 6: (4, 3), 8: (1, 1)}  # bits: (values, bytes)


def _checkpoint_formats() -> list[StorageFormat]:
    """Layouts of published files that nobody chooses in a plan: with the scale of the input, or another width of scales."""
    rows = [*_scaled_rows(), *_gptq_rows(), *_packed_rows(), *_mlx_rows(), *_bitsandbytes_rows()]
    return [StorageFormat(name, v, b, scales, layout=text, source=url) for name, v, b, scales, text, url in rows]


_FileRow = tuple[str, int, int, tuple[AnyScale, ...], str, str]
"""Name, values in a pack, bytes of a pack, scales, layout, source."""

_HALF, _HALF_TWICE = Scale(ALL, ALL, 2), Scale(ALL, ALL, 4)


def _scaled_rows() -> list[_FileRow]:
    """One byte or half a byte a value."""
    return [
        ("fp8_per_tensor_static", 1, 1, (PER_TENSOR_TWICE,), "1 B a value, one fp32 scale each for the matrix and its input", _COMPRESSED),
        ("fp8_per_tensor_16bit", 1, 1, (_HALF,), "1 B a value, one 16-bit scale a matrix", _COMPRESSED),
        ("fp8_per_tensor_static_16bit", 1, 1, (_HALF_TWICE,), "1 B a value, one 16-bit scale each for the matrix and its input", _COMPRESSED),
        ("fp8_per_channel_static_16bit", 1, 1, (PER_ROW_BF16, _HALF), "1 B a value, one 16-bit scale an output row and one for the input", _COMPRESSED),
        ("fp8_block128_16bit", 1, 1, (Scale(128, 128, 2),), "1 B a value, one 16-bit scale a 128 x 128 tile", _COMPRESSED),
        ("fp8_block128_static", 1, 1, (Scale(128, 128, 4), PER_TENSOR), "as fp8_block128, with one fp32 scale for the input", _COMPRESSED),
        ("int8_per_tensor_16bit", 1, 1, (_HALF,), "1 B a value, one 16-bit scale a matrix", _COMPRESSED),
        ("int8_per_channel_asym_16bit", 1, 1, (PER_ROW_BF16, Scale(1, ALL, 1)), "1 B a value, one 16-bit scale and one int8 zero an output row", _COMPRESSED),
        ("int8_per_tensor_asym_16bit", 1, 1, (Scale(ALL, ALL, 3),), "1 B a value, one 16-bit scale and one int8 zero a matrix", _COMPRESSED),
        ("nvfp4_static", 2, 1, (Scale(1, 16, 1), PER_TENSOR_TWICE), "as nvfp4, with one fp32 scale for the input", _COMPRESSED),
        ("eetq_int8", 1, 1, (PER_ROW_BF16,), "1 B a value, one fp16 scale an output row", "https://github.com/NetEase-FuXi/EETQ"),
    ]  # fmt: skip


GPTQ_BITS = {2: (4, 1), 3: (8, 3), 4: (2, 1), 8: (1, 1)}
GPTQ_GROUPS = (16, 32, 64, 128, 256, 512, 1024, ALL)
"""Input features that share a scale; ALL: all of them, which a config writes as -1."""


def gptq_name(bits: int, group: int) -> str:
    """`gptq_int4_g128`, or `gptq_int4_channel` where all input features share a scale."""
    return f"gptq_int{bits}_{f'g{group}' if group else 'channel'}"


def _gptq_rows() -> list[_FileRow]:
    """int32 packs, an fp16 scale and a packed zero a group, and an int32 for each input feature."""
    rows: list[_FileRow] = []
    for bits, pack in GPTQ_BITS.items():
        zeros = (32, 12) if bits == 3 else (32 // bits, 4)  # that many zeros share so many bytes
        for group in GPTQ_GROUPS:
            name, scales = (
                gptq_name(bits, group),
                (Scale(1, group, 2), Scale(zeros[0], group, zeros[1]), Scale(ALL, 1, 4)),
            )
            text = f"int32 packs of {bits} bits, fp16 scale and packed zero a group, int32 g_idx an input row"
            if bits not in (4, 8) or group not in (32, 64, 128):
                rows.append((name, *pack, scales, text, _VLLM))
            rows.append((f"{name}_bias", *pack, (*scales, PER_ROW_BF16), f"{text}, with an fp16 bias", _VLLM))
    return rows


def _packed_rows() -> list[_FileRow]:
    """pack-quantized of compressed-tensors: codes in int32, scales of 16 bits a group or a row, a shape of two int64."""
    rows: list[_FileRow] = []
    shape, order = Scale(ALL, ALL, 16), Scale(ALL, 1, 4)
    for bits, pack in ((4, (2, 1)), (8, (1, 1))):
        for group in (16, 32, 64, 128, 256, ALL):
            scale, zeros = Scale(1, group, 2), Scale(32 // bits, group, 4)
            inside = f"g{group}" if group else "channel"
            for symmetric, scales in (("sym", (scale, shape)), ("asym", (scale, zeros, shape))):
                name = f"ct_int{bits}_{symmetric}_{inside}"
                if bits != 4 or group not in (32, 64, 128):
                    rows.append(
                        (
                            name,
                            *pack,
                            scales,
                            "pack-quantized: int32 packs, 16-bit scales, weight_shape of two int64",
                            _COMPRESSED,
                        )
                    )
                rows.append(
                    (
                        f"{name}_order",
                        *pack,
                        (*scales, order),
                        f"as {name}, with an int32 g_idx an input row",
                        _COMPRESSED,
                    )
                )
    return rows  # fmt: skip


def _mlx_rows() -> list[_FileRow]:
    rows: list[_FileRow] = [
        (
            f"mlx_{bits}b_g{size}",
            *pack,
            (FlatScale(size, 4),),
            "packed codes, 16-bit scale and 16-bit bias a group",
            _MLX,
        )
        for size in (32, 64, 128)
        for bits, pack in _MLX_PACKS.items()
    ]
    for name, pack, size in (("mxfp4", (2, 1), 32), ("nvfp4", (2, 1), 16), ("mxfp8", (1, 1), 32)):
        rows.append(
            (f"mlx_{name}", *pack, (FlatScale(size, 1),), f"packed codes, one byte of scale for {size} values", _MLX)
        )
    return rows


def _bitsandbytes_rows() -> list[_FileRow]:
    rows: list[_FileRow] = []
    for kind in ("nf4", "fp4"):
        double = (FlatScale(64, 1), FlatScale(64 * 256, 4), Scale(ALL, ALL, 16 * 4 + 256 * 4))
        text = f"as bnb_{kind}_double_quant, with tables of 16 and 256 fp32 codes for each matrix"
        rows.append((f"bnb_{kind}_double_quant_tables", 2, 1, double, text, _BNB))
        for dtype, spelled in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")):
            state = f'{{"quant_type": "{kind}", "blocksize": 64, "dtype": "{spelled}", "shape": [, ]}}'
            scales = (FlatScale(64, 4), Scale(ALL, ALL, 16 * 4), ShapeText(len(state)))
            text = f"as bnb_{kind}, with a table of 16 fp32 codes and a JSON text for each matrix"
            rows.append((f"bnb_{kind}_file_{dtype}", 2, 1, scales, text, _BNB))
    return rows


_GGUF_BLOCKS = {  # type -> (values, bytes) of one block
    "F64": (1, 8), "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "I8": (1, 1), "I16": (1, 2), "I32": (1, 4),
    "I64": (1, 8), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
    "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
    "IQ2_XXS": (256, 66), "IQ2_XS": (256, 74), "IQ2_S": (256, 82), "IQ3_XXS": (256, 98), "IQ3_S": (256, 110),
    "IQ1_S": (256, 50), "IQ1_M": (256, 56), "IQ4_NL": (32, 18), "IQ4_XS": (256, 136), "TQ1_0": (256, 54),
    "TQ2_0": (256, 66), "MXFP4": (32, 17), "NVFP4": (64, 36), "Q1_0": (128, 18), "Q2_0": (64, 18),
}  # fmt: skip


def _gguf_format(name: str, values: int, size: int) -> StorageFormat:
    layout = f"blocks of {values} values in {size} B"
    return StorageFormat(f"gguf_{name}", values, size, whole_rows=True, layout=layout, source=_GGML)


WEIGHT_FORMATS: dict[str, StorageFormat] = {
    fmt.name: fmt for fmt in [*_weight_formats(), *(_gguf_format(n, v, b) for n, (v, b) in _GGUF_BLOCKS.items())]
}
"""Every weight format by its id, in the order that a list shows."""

CHECKPOINT_FORMATS: dict[str, StorageFormat] = {fmt.name: fmt for fmt in _checkpoint_formats()}
"""Formats that only a published checkpoint has: read by their names, and not in the lists that a person chooses from."""

WEIGHT_ALIASES = {
    "float32": "fp32", "f32": "fp32", "bfloat16": "bf16", "float16": "fp16", "f16": "fp16", "half": "fp16",
    "fp8": "fp8_per_tensor", "fp8_e4m3": "fp8_per_tensor", "fp8_e5m2": "fp8_per_tensor", "int8": "int8_per_channel",
    "fp8_e4m3_per_tensor": "fp8_per_tensor", "fp8_e5m2_per_tensor": "fp8_per_tensor",
    "fp8_block128_fp32": "fp8_block128", "int8_w8a8_per_channel": "int8_per_channel",
    "awq": "awq_int4_g128", "gptq": "gptq_int4_g128", "nf4": "bnb_nf4",
    **{name.lower(): f"gguf_{name}" for name in _GGUF_BLOCKS if name not in {"F32", "F16", "BF16", "MXFP4", "NVFP4"}},
}  # fmt: skip
"""Short names, each for one exact format. `int4` is not among them: which int4 must be said."""

UNSIZED_WEIGHT_FORMATS = {
    "int4": "int4 has many layouts; say which, such as awq_int4_g128, gptq_int4_g128, ct_int4_sym_g128 or bnb_nf4",
    "tf32": "tf32 is a way to multiply; the values are stored as fp32",
    "exl2": "exl2 mixes widths layer by layer, so its bytes follow from the file and not from its name",
    "exl3": "exl3 mixes widths layer by layer, so its bytes follow from the file and not from its name",
    "q4_k_m": "Q4_K_M is a recipe that mixes block types; name one type, such as q4_k, or import the GGUF file",
}
"""Names that people write for which no exact size exists, with the reason."""


def weight_format(name: str) -> StorageFormat:
    """The weight format that `name` stands for. Raises UnknownNameError, or InputError for a name without a size."""
    key = _key(name, "weight_dtype")
    if key in UNSIZED_WEIGHT_FORMATS:
        raise InputError(f"weight_dtype {key}: {UNSIZED_WEIGHT_FORMATS[key]}")
    if key.endswith(PART):
        return part_of(weight_format(key.removesuffix(PART)))
    exact = WEIGHT_FORMATS.get(WEIGHT_ALIASES.get(key, key)) or CHECKPOINT_FORMATS.get(key)
    found = exact or _GGUF_BY_LOWER_NAME.get(key)
    if found is None:
        raise UnknownNameError("weight dtype", str(name), [*WEIGHT_FORMATS, *WEIGHT_ALIASES])
    return found


PART = "_part"
"""Ends the name of a format in a matrix whose numbers for the whole are counted with another part of it."""


@lru_cache(maxsize=256)  # an import may bring formats of its own
def part_of(whole: StorageFormat) -> StorageFormat:
    """`whole` without the numbers that do not follow from the rows: some of a fused matrix's rows are stored so."""
    scales = tuple(scale for scale in whole.scales if scale.total_bytes(2**20, 128) != scale.total_bytes(2**21, 128))
    if scales == whole.scales:
        return whole
    return replace(whole, name=whole.name + PART, scales=scales, layout=f"{whole.layout}; counted with another part")


def adds_up(storage: StorageFormat, rows: int, columns: int) -> bool:
    """Whether `rows` of a larger matrix take as much as a matrix of their own, but for numbers of the whole."""
    part, many = part_of(storage), 1024 * rows
    one, all_of_them = part.matrix_bytes(rows, columns), part.matrix_bytes(many, columns)
    of_the_whole = storage.matrix_bytes(rows, columns) - one
    return all_of_them == 1024 * one and storage.matrix_bytes(many, columns) == all_of_them + of_the_whole


_GGUF_BY_LOWER_NAME = {name.lower(): fmt for name, fmt in WEIGHT_FORMATS.items() if name.startswith("gguf_")}


def _key(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InputError(f"{what} is {quoted(name)}; a name such as bf16 is needed")
    return name.strip().lower()


# ---------------------------------------------------------------------------------------------- cache formats

_KV_ROWS: dict[str, StorageFormat] = {
    fmt.name: fmt
    for fmt in (
        WEIGHT_FORMATS["fp32"],
        WEIGHT_FORMATS["bf16"],
        WEIGHT_FORMATS["fp16"],
        StorageFormat("fp8", 1, 1, layout="1 B a value; scales are one number a layer", source=_VLLM),
        StorageFormat("int8", 1, 1, layout="1 B a value, no scales", source="https://github.com/NVIDIA/TensorRT-LLM"),
        StorageFormat("int8_per_token_head", 1, 1, (PER_ROW_FP32,), layout="1 B a value, one fp32 scale a row", source=_VLLM),
        StorageFormat("fp8_per_token_head", 1, 1, (PER_ROW_FP32,), layout="1 B a value, one fp32 scale a row", source=_VLLM),
        StorageFormat("int4_per_token_head", 2, 1, (PER_ROW_FP32,), layout="half a byte a value, one fp32 scale a row", source=_VLLM),
        StorageFormat("mxfp8", 32, 33, whole_rows=True, layout="32 B and one e8m0 byte for 32 values", source="https://github.com/sgl-project/sglang"),
        StorageFormat("nvfp4", 16, 9, whole_rows=True, layout="8 B and one fp8 scale for 16 values", source=_VLLM),
        *(
            StorageFormat(name, values, size, whole_rows=True, layout=f"blocks of {values} values in {size} B", source=_GGML)
            for name, values, size in (("q8_0", 32, 34), ("q5_1", 32, 24), ("q5_0", 32, 22), ("q4_1", 32, 20),
                                       ("q4_0", 32, 18), ("iq4_nl", 32, 18))
        ),
    )
}  # fmt: skip

KV_DTYPES: tuple[str, ...] = tuple(_KV_ROWS)
"""Every name that a cache's rows may be stored under."""

KV_ALIASES = {
    "float32": "fp32", "f32": "fp32", "bfloat16": "bf16", "float16": "fp16", "f16": "fp16", "half": "fp16",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8",
}  # fmt: skip

_INDEX_FP8 = StorageFormat(
    "index_fp8", 1, 1, (Scale(1, 128, 4),), layout="1 B a value, one fp32 scale for 128", source=_VLLM
)
_SPARSE_LATENT_FP8 = StorageFormat("sparse_latent_fp8", 1, 1, (Scale(1, 128, 4),), layout="1 B a value, one fp32 scale for 128", source=_VLLM)  # fmt: skip

_COMPRESSED_LATENT_FP8 = StorageFormat(
    "compressed_latent_fp8", 1, 1, (Scale(1, 64, 1), Scale(1, ALL, 1)), layout="1 B a value, an e8m0 byte for 64, one byte of padding", source=_VLLM
)  # fmt: skip

_ROLE_FORMATS: dict[str, dict[str, StorageFormat]] = {
    "fp8": {
        "index": _INDEX_FP8,  # 128 + 4 = 132 B a token
        "sparse_latent": _SPARSE_LATENT_FP8,  # 512 + 16 B ...
        "sparse_rope": WEIGHT_FORMATS["bf16"],  # ... + 128 B of rope = 656 B a token
        "compressed_latent": _COMPRESSED_LATENT_FP8,  # 448 + 7 + 1 B ...
        "compressed_rope": WEIGHT_FORMATS["bf16"],  # ... + 128 B of rope = 584 B an entry
        "overlap": WEIGHT_FORMATS["bf16"],  # what a block carries over is not quantized
    },
    "nvfp4": {"rope": _KV_ROWS["fp8"], "sparse_rope": _KV_ROWS["fp8"]},  # 288 + 64 = 352 B for 512 + 64
}
"""Roles that a cache dtype stores in a layout of its own."""

_LATENT_ROLES = frozenset({"latent", "rope"})
_COMPRESSED_ROLES = frozenset({"compressed_latent", "compressed_rope", "overlap"})
_SPARSE_ROLES = frozenset({"sparse_latent", "sparse_rope", "index"}) | _COMPRESSED_ROLES
_VALUE_ROLES = frozenset({"value", "image_value"})
_STATE_ROLES = frozenset({"state", "convolution"})
_PLAIN_NAMES = ("bf16", "fp16", "fp32")

_ROLES_WITHOUT_LAYOUT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("int8", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "mxfp8"), _LATENT_ROLES | _SPARSE_ROLES),
    **dict.fromkeys(("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"), _SPARSE_ROLES),
    "nvfp4": _COMPRESSED_ROLES | {"index"},
}  # fmt: skip
"""Roles that no known engine stores in that dtype: refused, since any number would be a guess."""

_ROLE_WORDS = {
    "latent": "a latent (MLA) row", "rope": "a latent layer's rope row", "index": "an indexer's keys",
    "state": "recurrent state", "convolution": "convolution state", "compressed_latent": "a compressed row", "compressed_rope": "a compressed layer's rope row",
    "overlap": "a compressed layer's overlap state", "sparse_latent": "a sparse latent row", "sparse_rope": "a sparse latent layer's rope row",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KvDtype:
    """How a cache stores each role; K and V may differ (llama.cpp).

    name   what a person writes: `bf16`, or `q8_0/q4_0` for keys and values apart
    key    the format name of keys, latents and whatever else is not a value
    value  the format name of values, those of an image included
    """

    name: str
    key: str
    value: str

    def __post_init__(self) -> None:
        for name in (self.key, self.value):
            if name not in _KV_ROWS:
                raise UnknownNameError("kv dtype", name, [*KV_DTYPES, *KV_ALIASES])

    def format_for(self, role: str) -> StorageFormat:
        """The format of rows of `role`. Raises DtypeError where no layout is known."""
        base = self.value if role in _VALUE_ROLES else self.key
        if role in _STATE_ROLES and base not in _PLAIN_NAMES:
            raise DtypeError(f"no known engine stores {_ROLE_WORDS[role]} in {base}; choose bf16, fp16 or fp32")
        if role in _ROLES_WITHOUT_LAYOUT.get(base, ()):
            raise DtypeError(f"no known engine stores {_ROLE_WORDS[role]} in {base}; choose bf16, fp16, fp32 or fp8")
        return _ROLE_FORMATS.get(base, {}).get(role) or _KV_ROWS[base]


@cache
def _kv_dtype(key: str, value: str) -> KvDtype:
    return KvDtype(key if key == value else f"{key}/{value}", key, value)


def kv_dtype(name: str | KvDtype) -> KvDtype:
    """The cache dtype that `name` stands for; `K/V`, such as `q8_0/q4_0`, stores keys and values apart.

    Raises UnknownNameError.
    """
    if isinstance(name, KvDtype):
        return name
    key, slash, value = _key(name, "kv_dtype").partition("/")
    return _kv_dtype(_kv_name(key), _kv_name(value if slash else key))


def _kv_name(name: str) -> str:
    return KV_ALIASES.get(name.strip(), name.strip())
