"""What a `TinyDecoder` looks like: sizes and switches, checked before a weight is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvplan.errors import InputError, shorten
from kvplan.lab.limits import (
    MAX_CONTEXT,
    MAX_HEADS,
    MAX_HIDDEN_SIZE,
    MAX_LAYERS,
    MAX_PARAMETERS,
    dtype_name,
    one_of,
    whole_number,
)
from kvplan.units import counted

POSITIONS = ("rope", "learned", "none")


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder; a frozen record, so that a variant is `replace(shape, window=4)`.

    The query heads are a multiple of the KV heads, and each KV head serves that many query heads.
    """

    num_layers: int = 2
    num_attention_heads: int = 4  # H
    num_kv_heads: int = 2  # H_kv: H is multi-head, 1 is multi-query, between is grouped-query attention
    head_dim: int = 16  # D
    vocab_size: int = 50  # V
    position: str = "rope"  # rope (half-split), learned or none
    norm: str = "layer"  # layer or rms
    mlp: str = "gelu"  # gelu: tanh-GELU, biases here and on the output projection; swiglu: no biases
    qkv_bias: bool = False
    window: int | None = None  # tokens that a query reads, itself included; None: all
    dtype: str = "float32"  # float64, float32, float16 or bfloat16
    seed: int = 0
    hidden_size: int | None = None  # None: H * D
    mlp_size: int | None = None  # None: 4 * hidden size
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_positions: int = MAX_CONTEXT  # rows of the learned position table

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        one_of("position encoding", self.position, POSITIONS)
        one_of("norm", self.norm, ("layer", "rms"))
        one_of("mlp", self.mlp, ("gelu", "swiglu"))
        self._check_numbers()
        self._check_sizes()
        self._check_heads()

    @property
    def hidden(self) -> int:
        """E, the hidden size."""
        return self.num_attention_heads * self.head_dim if self.hidden_size is None else self.hidden_size

    @property
    def mlp_width(self) -> int:
        return 4 * self.hidden if self.mlp_size is None else self.mlp_size

    @property
    def position_limit(self) -> int:
        """Positions that the encoding can express here."""
        return self.max_positions if self.position == "learned" else MAX_CONTEXT

    @property
    def token_elements(self) -> int:
        """Keys and values of one token over all layers: 2 * L * H_kv * D."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_attention_heads // self.num_kv_heads

    def _check_sizes(self) -> None:
        whole_number("num_layers", self.num_layers, 1, MAX_LAYERS)
        whole_number("num_attention_heads", self.num_attention_heads, 1, MAX_HEADS)
        whole_number("num_kv_heads", self.num_kv_heads, 1, MAX_HEADS)
        whole_number("head_dim", self.head_dim, 1, MAX_HIDDEN_SIZE)
        whole_number("vocab_size", self.vocab_size, 2, MAX_PARAMETERS)
        whole_number("the hidden size", self.hidden, 1, MAX_HIDDEN_SIZE)
        whole_number("the MLP size", self.mlp_width, 1, 8 * MAX_HIDDEN_SIZE)
        whole_number("max_positions", self.max_positions, 1, MAX_CONTEXT)
        whole_number("seed", self.seed, 0, 2**63 - 1)
        if self.window is not None:
            whole_number("window", self.window, 1, MAX_CONTEXT)
        whole_number("the number of parameters", self.matrix_elements, 1, MAX_PARAMETERS)

    def _check_numbers(self) -> None:
        for name, value in (("rope_theta", self.rope_theta), ("norm_eps", self.norm_eps)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InputError(f"{name} must be a positive number, not {shorten(value)!r}")

    def _check_heads(self) -> None:
        if self.num_attention_heads % self.num_kv_heads:
            raise InputError(
                f"{counted(self.num_attention_heads, 'query head')} cannot share "
                f"{counted(self.num_kv_heads, 'KV head')} evenly: num_attention_heads must be a multiple of "
                "num_kv_heads"
            )
        if self.position == "rope" and self.head_dim % 2:
            raise InputError(f"rotary positions turn pairs, so head_dim must be even, not {self.head_dim}")

    @property
    def matrix_elements(self) -> int:
        """Elements of all matrices: the parameters without norms and biases."""
        heads = 2 * self.num_attention_heads + 2 * self.num_kv_heads
        matrices = 2 if self.mlp == "gelu" else 3
        layer = self.hidden * (heads * self.head_dim + matrices * self.mlp_width)
        tables = 2 * self.vocab_size + (self.max_positions if self.position == "learned" else 0)
        return self.num_layers * layer + self.hidden * tables
