"""The weights of the usual blocks of a decoder: linear layers, norms, attention, MLPs, experts.

Every function returns weight groups in the shapes that `torch.nn.Linear` stores, (output, input) features,
with what tensor parallelism does to them: column-parallel matrices divide their rows, row-parallel ones their
columns, key and value projections whole KV heads; biases follow their matrix, and whatever else is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvplan.attention import RecurrentState
from kvplan.dtypes import WEIGHT_FORMATS, StorageFormat
from kvplan.model import Split, WeightGroup

Groups = tuple[WeightGroup, ...]
QkNorm = Literal["none", "head", "full"]

FP32 = WEIGHT_FORMATS["fp32"]
BF16 = WEIGHT_FORMATS["bf16"]


def linear(
    role: str,
    out_features: int,
    in_features: int,
    *,
    bias: bool = False,
    split: Split = "copied",
    kv_heads: int | None = None,
    count: int = 1,
    active: int | None = None,
    tower: str = "text",
) -> Groups:
    """A matrix (out_features, in_features), and its bias (out_features, 1) where there is one."""
    matrix = WeightGroup(role, out_features, in_features, count, None, False, split, kv_heads, active, tower)
    if not bias:
        return (matrix,)
    bias_split: Split = "copied" if split == "columns" else split
    return (matrix, WeightGroup(role, out_features, 1, count, None, False, bias_split, kv_heads, active, tower))


def vector(role: str, size: int, *, count: int = 1, split: Split = "copied", tower: str = "text") -> Groups:
    """`count` one-column tensors of `size` values."""
    return (WeightGroup(role, size, 1, count, split=split, tower=tower),)


def norm(size: int, *, bias: bool = False, count: int = 1, role: str = "norm", tower: str = "text") -> Groups:
    """`count` norms over `size` values: a weight each, and a bias where there is one (LayerNorm)."""
    return vector(role, size, count=count * (1 + bias), tower=tower)


def pinned_vector(role: str, size: int, *, count: int = 1) -> Groups:
    """`count` one-column tensors that stay float32 whatever the weight dtype."""
    return (WeightGroup(role, size, 1, count, FP32, pinned=True),)


def pinned_matrix(role: str, rows: int, columns: int, *, count: int = 1) -> Groups:
    """`count` matrices (rows, columns) that stay float32 whatever the weight dtype."""
    return (WeightGroup(role, rows, columns, count, FP32, pinned=True),)


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_head_dim: int | None = None,
    q_bias: bool = False,
    k_bias: bool = False,
    v_bias: bool = False,
    out_bias: bool = False,
    qk_norm: QkNorm = "none",
) -> Groups:
    """Query, key, value and output projections.

    qk_norm  "head": one norm of head_dim each for q and k; "full": norms over all heads' values
    """
    value_dim = head_dim if value_head_dim is None else value_head_dim
    return (
        *linear("attention_q", heads * head_dim, hidden, bias=q_bias, split="rows"),
        *linear("attention_k", kv_heads * head_dim, hidden, bias=k_bias, split="kv_heads", kv_heads=kv_heads),
        *linear("attention_v", kv_heads * value_dim, hidden, bias=v_bias, split="kv_heads", kv_heads=kv_heads),
        *linear("attention_o", hidden, heads * value_dim, bias=out_bias, split="columns"),
        *qk_norms(qk_norm, heads, kv_heads, head_dim),
    )


def qk_norms(kind: QkNorm, heads: int, kv_heads: int, head_dim: int) -> Groups:
    """The norms of queries and keys."""
    if kind == "head":
        return norm(head_dim, count=2)
    if kind == "full":
        keys = WeightGroup("norm", kv_heads * head_dim, 1, split="kv_heads", kv_heads=kv_heads)
        return (*vector("norm", heads * head_dim, split="rows"), keys)
    return ()


def gated_mlp(
    hidden: int, width: int, *, bias: bool = False, role: str = "mlp", count: int = 1, active: int | None = None
) -> Groups:
    """Gate and up projections (width, hidden), and the down projection (hidden, width)."""
    up = linear(role, width, hidden, bias=bias, split="rows", count=2 * count, active=active and 2 * active)
    return (*up, *linear(role, hidden, width, bias=bias, split="columns", count=count, active=active))


def plain_mlp(hidden: int, width: int, *, bias: bool = False, role: str = "mlp", count: int = 1) -> Groups:
    """An up projection (width, hidden) and a down projection (hidden, width)."""
    up = linear(role, width, hidden, bias=bias, split="rows", count=count)
    return (*up, *linear(role, hidden, width, bias=bias, split="columns", count=count))


def routed_experts(hidden: int, width: int, experts: int, per_token: int, *, bias: bool = False) -> Groups:
    """`experts` gated MLPs of `width`, of which a token reads `per_token`."""
    return gated_mlp(hidden, width, bias=bias, role="routed_experts", count=experts, active=per_token)


def router(hidden: int, experts: int, *, bias: bool = False) -> Groups:
    """The matrix (experts, hidden) that picks experts; it keeps its width and is copied."""
    return linear("router", experts, hidden, bias=bias)


def embedding(vocab: int, hidden: int) -> Groups:
    """The token embedding (vocab, hidden)."""
    return linear("embedding", vocab, hidden, split="rows")


def lm_head(vocab: int, hidden: int, *, bias: bool = False) -> Groups:
    """The output head (vocab, hidden), where it is not the embedding."""
    return linear("lm_head", vocab, hidden, bias=bias, split="rows")


def short_filter(channels: int, width: int, bias: bool) -> Groups:
    """A convolution of `width` a channel, each channel by itself."""
    weights = (WeightGroup("recurrent_state", channels, width, split="rows"),)
    return (*weights, *vector("recurrent_state", channels, split="rows")) if bias else weights


@dataclass(frozen=True, slots=True)
class Mamba2:
    """The sizes of a Mamba-2 layer: `heads` of `head_dim` channels, each channel with a state of `state` values.

    groups   groups of heads that share their inputs to the state
    kernel   inputs that the convolution sees
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    in_bias: bool
    out_bias: bool
    filter_bias: bool
    gated_norm: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.inner + 2 * self.groups * self.state

    def cache(self, dtype: StorageFormat | None) -> RecurrentState:
        """What one layer keeps: the state in float32, the inputs of the convolution in the model's dtype."""
        return RecurrentState(
            self.heads, self.head_dim * self.state, FP32, self.inner, self.kernel, dtype, self.groups, 2 * self.state
        )

    def weights(self, hidden: int) -> Groups:
        """The weights of one layer but those behind it and its norm."""
        return (
            *linear("recurrent", self.inner + self.channels + self.heads, hidden, bias=self.in_bias, split="rows"),
            *short_filter(self.channels, self.kernel, self.filter_bias),
            *vector("recurrent_state", self.heads, count=3, split="rows"),
            *(vector("norm", self.inner, split="rows") if self.gated_norm else ()),
            *linear("recurrent", hidden, self.inner, bias=self.out_bias, split="columns"),
        )
