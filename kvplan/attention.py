"""What one layer keeps for one sequence: a sum of parts, so that nothing above asks what kind a layer is.

A `CachePart` grows with the tokens of the sequence, a `StatePart` does not. A kind of layer is a frozen class
that says which parts it has; all arithmetic is in the parts and in `CacheCurve`, which adds up a model.

The numbers are the tensor bytes resident for T tokens of one sequence. For a layer of full attention with
H_kv heads of D values that is 2 * H_kv * D * T * b bytes; a window of W tokens holds min(T, W); compressed
layers hold one entry for every `tokens_per_entry` whole tokens. What an engine reserves is another number.

Token counts may be Python ints or NumPy int64 arrays; nothing here is ever a float.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeVar

from kvplan.dtypes import WEIGHT_FORMATS, KvDtype, StorageFormat
from kvplan.errors import InputError, ParallelError
from kvplan.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import numpy.typing as npt

Tokens = TypeVar("Tokens", int, "npt.NDArray[np.int64]")


def rows_per_gpu(rows: int, tensor_parallel: int, what: str = "KV heads") -> int:
    """Rows that one GPU keeps of `rows` heads or channels: they divide until one is left, and are then copied.

    Raises ParallelError where neither number divides the other.
    """
    if rows % tensor_parallel == 0:
        return rows // tensor_parallel
    if tensor_parallel % rows == 0:
        return 1
    raise ParallelError(
        f"{rows} {what} do not divide over tensor_parallel={tensor_parallel}; one number must divide the other"
    )


@dataclass(frozen=True, slots=True)
class CachePart:
    """Rows that are appended for tokens.

    role              key, value, latent, rope, index, sparse_latent, sparse_rope, compressed_latent, compressed_rope
    rows              heads that keep a row for each entry
    width             values of one row
    max_tokens        tokens that are kept at most (a window); None: all
    tokens_per_entry  whole tokens that share one entry (compressed layers)
    storage           a format of its own; None: the plan's kv_dtype
    copied            tensor parallelism copies the rows instead of dividing them
    max_read_entries  entries that one decode step reads at most (sparse attention); None: all
    """

    role: str
    rows: int
    width: int
    max_tokens: int | None = None
    tokens_per_entry: int = 1
    storage: StorageFormat | None = None
    copied: bool = False
    max_read_entries: int | None = None

    def entry_bytes(self, kv: KvDtype, tensor_parallel: int = 1) -> int:
        """Bytes of one entry of one sequence on one GPU."""
        rows = self.rows if self.copied else rows_per_gpu(self.rows, tensor_parallel)
        return rows * (self.storage or kv.format_for(self.role)).row_bytes(self.width)

    def entries(self, context_length: Tokens) -> Tokens:
        """Entries resident for `context_length` tokens."""
        return _at_most(context_length, self.max_tokens) // self.tokens_per_entry

    def bytes(self, context_length: Tokens, kv: KvDtype, tensor_parallel: int = 1) -> Tokens:
        """Bytes resident for `context_length` tokens of one sequence on one GPU."""
        return self.entries(context_length) * self.entry_bytes(kv, tensor_parallel)


@dataclass(frozen=True, slots=True)
class StatePart:
    """Rows that do not grow with the text: recurrent and convolution state, K and V of an image.

    role     state, convolution, image_key, image_value
    rows     heads or channels; tensor parallelism divides them unless `copied`
    width    values of one row
    storage  the format it is kept in; None: the plan's kv_dtype
    entries  how often the rows stand there: tokens of an image, or whose inputs a convolution keeps
    """

    role: str
    rows: int
    width: int
    storage: StorageFormat | None = None
    copied: bool = False
    entries: int = 1

    @property
    def elements(self) -> int:
        return self.entries * self.rows * self.width

    def bytes(self, kv: KvDtype, tensor_parallel: int = 1) -> int:
        """Bytes of one sequence on one GPU."""
        rows = self.rows if self.copied else rows_per_gpu(self.rows, tensor_parallel, f"rows of {self.role}")
        return self.entries * rows * (self.storage or kv.format_for(self.role)).row_bytes(self.width)


def _at_most(count: Tokens, limit: int | None) -> Tokens:
    """min(count, limit) for an int or an array; `min` itself refuses arrays."""
    return count if limit is None else count - (count > limit) * (count - limit)


def _at_least_zero(count: Tokens) -> Tokens:
    return count * (count > 0)


# ------------------------------------------------------------------------------------------------ kinds of layer


class LayerCache(ABC):
    """What one layer keeps. Subclasses are frozen dataclasses.

    kind   the name in preset files
    label  the name on a page
    may_be_zero  fields that may be 0; every other number is at least 1
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    may_be_zero: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if item.type in ("int", "int | None") and value is not None:
                whole_number(value, f"{item.name} of {self.label}", low=int(item.name not in self.may_be_zero))

    @abstractmethod
    def cache_parts(self) -> tuple[CachePart, ...]:
        """The parts that grow with tokens."""

    def state_parts(self) -> tuple[StatePart, ...]:
        """The parts that do not grow."""
        return ()

    def kv_heads(self) -> int | None:
        """KV heads of a layer that has them, else None."""
        return None

    def with_kv_heads(self, num_kv_heads: int) -> LayerCache:
        """The same layer with another number of KV heads; layers that keep nothing per head stay as they are."""
        return self


@dataclass(frozen=True, slots=True)
class _HeadedAttention(LayerCache):
    """Keys of `head_dim` and values of `value_head_dim` (None: the same) for each of `num_kv_heads` heads."""

    num_kv_heads: int
    head_dim: int
    value_head_dim: int | None = None

    def _parts(self, max_tokens: int | None = None) -> tuple[CachePart, ...]:
        value_width = self.head_dim if self.value_head_dim is None else self.value_head_dim
        return (
            CachePart("key", self.num_kv_heads, self.head_dim, max_tokens),
            CachePart("value", self.num_kv_heads, value_width, max_tokens),
        )

    def cache_parts(self) -> tuple[CachePart, ...]:
        return self._parts()

    def kv_heads(self) -> int | None:
        return self.num_kv_heads

    def with_kv_heads(self, num_kv_heads: int) -> LayerCache:
        return replace(self, num_kv_heads=num_kv_heads)


@dataclass(frozen=True, slots=True)
class FullAttention(_HeadedAttention):
    """Every token's key and value are kept: 2 * H_kv * D values a token."""

    kind = "full"
    label = "full attention"


@dataclass(frozen=True, slots=True)
class SlidingAttention(_HeadedAttention):
    """Only the last `window` tokens are kept."""

    window: int = field(kw_only=True)
    kind = "sliding"
    label = "sliding window"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return self._parts(self.window)


@dataclass(frozen=True, slots=True)
class ChunkedAttention(_HeadedAttention):
    """Attention inside chunks of `chunk` tokens: at most one chunk is kept."""

    chunk: int = field(kw_only=True)
    kind = "chunked"
    label = "chunked attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return self._parts(self.chunk)


@dataclass(frozen=True, slots=True)
class IndexedAttention(_HeadedAttention):
    """Full K and V, plus one index key a token that picks which of them a step reads (MiniMax M3).

    index_head_dim  values of the index key
    num_index_heads index keys a token
    max_read_tokens tokens that a step reads at most, or None
    """

    index_head_dim: int = field(kw_only=True)
    num_index_heads: int = field(default=1, kw_only=True)
    max_read_tokens: int | None = field(default=None, kw_only=True)
    kind = "indexed"
    label = "indexed attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        key_and_value = tuple(replace(part, max_read_entries=self.max_read_tokens) for part in self._parts())
        return (*key_and_value, CachePart("index", self.num_index_heads, self.index_head_dim, copied=True))


@dataclass(frozen=True, slots=True)
class LatentAttention(LayerCache):
    """Multi-head latent attention (MLA): one latent of `kv_lora_rank` and one rope row a token, on every GPU."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    kind = "latent"
    label = "latent attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return (
            CachePart("latent", 1, self.kv_lora_rank, copied=True),
            CachePart("rope", 1, self.qk_rope_head_dim, copied=True),
        )


@dataclass(frozen=True, slots=True)
class SlidingLatentAttention(LayerCache):
    """Latent attention that keeps only the last `window` tokens."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    window: int
    kind = "sliding_latent"
    label = "latent window"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return (
            CachePart("latent", 1, self.kv_lora_rank, self.window, copied=True),
            CachePart("rope", 1, self.qk_rope_head_dim, self.window, copied=True),
        )


@dataclass(frozen=True, slots=True)
class IndexedLatentAttention(LayerCache):
    """Sparse latent attention (DeepSeek V3.2, GLM 5): the latent, its rope row, and index keys.

    index_head_dim  values of the layer's index key; None where the layer reuses another layer's choice
    index_topk      tokens that a step reads at most
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int | None = None
    index_topk: int | None = None
    kind = "indexed_latent"
    label = "sparse latent attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        latent = (
            CachePart("sparse_latent", 1, self.kv_lora_rank, copied=True, max_read_entries=self.index_topk),
            CachePart("sparse_rope", 1, self.qk_rope_head_dim, copied=True, max_read_entries=self.index_topk),
        )
        if self.index_head_dim is None:
            return latent
        return (*latent, CachePart("index", 1, self.index_head_dim, copied=True))


@dataclass(frozen=True, slots=True)
class CompressedAttention(LayerCache):
    """DeepSeek V4: a window of shared K = V rows, and one compressed row for every `tokens_per_entry` tokens.

    head_dim          values of a row, its `qk_rope_head_dim` rotated ones included
    window            tokens kept uncompressed
    tokens_per_entry  tokens that one compressed entry stands for; None: the layer only has the window
    index_head_dim    values of the index key of a compressed entry, or None
    overlap_elements  values that overlapping blocks carry over, each with a gate that stays float32
    index_topk        compressed entries that a step reads at most, or None

    Tokens of an unfinished block are working memory and are not counted.
    """

    head_dim: int
    qk_rope_head_dim: int
    window: int
    tokens_per_entry: int | None = None
    index_head_dim: int | None = None
    overlap_elements: int = 0
    index_topk: int | None = None
    may_be_zero = frozenset({"overlap_elements"})
    kind = "compressed"
    label = "compressed attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        parts = self._row(self.window, 1, None)
        if self.tokens_per_entry is None:
            return parts
        parts += self._row(None, self.tokens_per_entry, self.index_topk)
        if self.index_head_dim is None:
            return parts
        return (*parts, CachePart("index", 1, self.index_head_dim, None, self.tokens_per_entry, copied=True))

    def _row(self, max_tokens: int | None, ratio: int, max_read: int | None) -> tuple[CachePart, ...]:
        nope = self.head_dim - self.qk_rope_head_dim
        widths = (("compressed_latent", nope), ("compressed_rope", self.qk_rope_head_dim))
        return tuple(
            CachePart(role, 1, width, max_tokens, ratio, copied=True, max_read_entries=max_read)
            for role, width in widths
        )

    def state_parts(self) -> tuple[StatePart, ...]:
        if not self.overlap_elements:
            return ()
        values = StatePart("overlap", 1, self.overlap_elements, copied=True)
        return (values, replace(values, storage=WEIGHT_FORMATS["fp32"]))


@dataclass(frozen=True, slots=True)
class RecurrentState(LayerCache):
    """A layer with a state of fixed size: Mamba, Mamba-2, gated delta rule, RWKV, RG-LRU.

    heads, head_elements  the recurrent state: `heads` rows of `head_elements` values, in `state_storage`
    conv_channels, conv_width  the convolution's last inputs, in `conv_storage`; 0 where there is none
    conv_groups, group_channels  further channels of the convolution, of groups that heads share (Mamba-2): groups
                                 divide over GPUs until one is left, and are then copied

    Both keep their own storage, whatever kv_dtype says: the state is often fp32 while the model is bf16.
    None stands for the dtype of a model that does not state one: then it is the plan's kv_dtype.
    """

    heads: int
    head_elements: int
    state_storage: StorageFormat | None
    conv_channels: int = 0
    conv_width: int = 0
    conv_storage: StorageFormat | None = None
    conv_groups: int = 0
    group_channels: int = 0
    may_be_zero = frozenset({"conv_channels", "conv_width", "conv_groups", "group_channels"})
    kind = "recurrent"
    label = "recurrent state"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return ()

    def state_parts(self) -> tuple[StatePart, ...]:
        state = StatePart("state", self.heads, self.head_elements, self.state_storage)
        return (state, *self._inputs(self.conv_channels, 1), *self._inputs(self.conv_groups, self.group_channels))

    def _inputs(self, rows: int, channels: int) -> tuple[StatePart, ...]:
        """The last inputs of `rows` heads or groups of `channels` each; none where there are no rows."""
        if not rows * channels * self.conv_width:
            return ()
        return (StatePart("convolution", rows, channels, self.conv_storage, entries=self.conv_width),)


@dataclass(frozen=True, slots=True)
class ShortConvolution(LayerCache):
    """A gated short convolution (LFM2): the last `width` inputs of each of `channels` channels.

    storage  None: the plan's kv_dtype, for a model that does not state its dtype
    """

    channels: int
    width: int
    storage: StorageFormat | None
    kind = "convolution"
    label = "short convolution"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return ()

    def state_parts(self) -> tuple[StatePart, ...]:
        return (StatePart("convolution", self.channels, 1, self.storage, entries=self.width),)


@dataclass(frozen=True, slots=True)
class MeasuredRows(LayerCache):
    """Rows of a measured cache that no other kind describes: `rows` of `width` values an entry, on every GPU.

    window            tokens kept at most, or None
    tokens_per_entry  whole tokens that share one entry
    storage           a format of its own; None: the plan's kv_dtype
    """

    rows: int
    width: int
    window: int | None = None
    tokens_per_entry: int = 1
    storage: StorageFormat | None = None
    kind = "rows"
    label = "measured rows"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return (CachePart("key", self.rows, self.width, self.window, self.tokens_per_entry, self.storage, copied=True),)


@dataclass(frozen=True, slots=True)
class CrossAttention(LayerCache):
    """Attention to `num_tokens` image or audio tokens: K and V are made once and do not grow with the text."""

    num_kv_heads: int
    head_dim: int
    num_tokens: int
    kind = "cross"
    label = "cross-attention"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return ()

    def state_parts(self) -> tuple[StatePart, ...]:
        roles = ("image_key", "image_value")
        return tuple(StatePart(role, self.num_kv_heads, self.head_dim, entries=self.num_tokens) for role in roles)


@dataclass(frozen=True, slots=True)
class SharedCache(LayerCache):
    """A layer that reads the cache of layer `source` (counted from 0) and stores nothing."""

    source: int | None = None
    may_be_zero = frozenset({"source"})
    kind = "shared"
    label = "shared cache"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class NoCache(LayerCache):
    """A layer without attention or state, such as a lone MLP."""

    kind = "none"
    label = "no cache"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class CombinedCache(LayerCache):
    """Two or more mixers in one layer, such as attention and Mamba in parallel (Falcon-H1)."""

    members: tuple[LayerCache, ...]
    kind = "combined"
    label = "attention and state"

    def cache_parts(self) -> tuple[CachePart, ...]:
        return tuple(part for member in self.members for part in member.cache_parts())

    def state_parts(self) -> tuple[StatePart, ...]:
        return tuple(part for member in self.members for part in member.state_parts())

    def kv_heads(self) -> int | None:
        return next((heads for member in self.members if (heads := member.kv_heads()) is not None), None)

    def with_kv_heads(self, num_kv_heads: int) -> LayerCache:
        return CombinedCache(tuple(member.with_kv_heads(num_kv_heads) for member in self.members))


LAYER_KINDS: dict[str, type[LayerCache]] = {
    kind.kind: kind
    for kind in (
        FullAttention,
        SlidingAttention,
        ChunkedAttention,
        IndexedAttention,
        LatentAttention,
        SlidingLatentAttention,
        IndexedLatentAttention,
        CompressedAttention,
        RecurrentState,
        ShortConvolution,
        MeasuredRows,
        CrossAttention,
        SharedCache,
        NoCache,
        CombinedCache,
    )
}
"""Every kind of layer by the name that preset files use."""


# ------------------------------------------------------------------------------------------------ adding layers up


@dataclass(frozen=True, slots=True)
class CacheTerm:
    """All parts that grow alike: min(T, max_tokens) // tokens_per_entry entries of `entry_bytes`."""

    max_tokens: int | None
    tokens_per_entry: int
    max_read_entries: int | None
    entry_bytes: int

    def entries(self, context_length: Tokens) -> Tokens:
        return _at_most(context_length, self.max_tokens) // self.tokens_per_entry

    def bytes(self, context_length: Tokens) -> Tokens:
        return self.entries(context_length) * self.entry_bytes

    def shared_bytes(self, prefix: int, context_length: Tokens) -> Tokens:
        """Bytes of the entries that the first `prefix` tokens have among those resident (a window drops them)."""
        left_window = 0 if self.max_tokens is None else context_length - _at_most(context_length, self.max_tokens)
        kept = _at_least_zero(_at_most(context_length, prefix) - left_window)
        return kept // self.tokens_per_entry * self.entry_bytes

    def read_bytes(self, context_length: Tokens) -> Tokens:
        return _at_most(self.entries(context_length), self.max_read_entries) * self.entry_bytes


@dataclass(frozen=True, slots=True)
class CacheCurve:
    """Cache bytes of one sequence as a function of its tokens: a constant and a few terms.

    Sixty window layers are one term here, so a curve costs the same whatever the number of layers.
    """

    fixed_bytes: int
    terms: tuple[CacheTerm, ...]

    def bytes_at(self, context_length: Tokens) -> Tokens:
        """Bytes resident for `context_length` tokens (an int or an int64 array) of one sequence."""
        total = context_length * 0 + self.fixed_bytes
        for term in self.terms:
            total = total + term.bytes(context_length)
        return total

    def batch_bytes(self, context_length: Tokens, batch_size: Tokens, shared_prefix: int = 0) -> Tokens:
        """Bytes of `batch_size` sequences whose first `shared_prefix` tokens are held once for all of them.

        Recurrent and convolution state is never shared.
        """
        total = batch_size * self.bytes_at(context_length)
        for term in self.terms if shared_prefix else ():
            total = total - _at_least_zero(batch_size - 1) * term.shared_bytes(shared_prefix, context_length)
        return total

    def batch_read_bytes(self, context_length: int, batch_size: int, shared_prefix: int = 0) -> int:
        """Bytes that one decode step of `batch_size` sequences reads at the least.

        Sparse layers read only the entries that they pick; a shared prefix is read once.
        """
        total = batch_size * self.fixed_bytes
        for term in self.terms:
            shared = term.shared_bytes(shared_prefix, context_length) if shared_prefix else 0
            total += batch_size * term.read_bytes(context_length)
            total -= (batch_size - 1) * min(shared, term.read_bytes(context_length))
        return total

    @property
    def bytes_per_token(self) -> int | Fraction:
        """The slope once all windows are full; a Fraction where compressed entries make it not whole."""
        slope = sum(
            (Fraction(term.entry_bytes, term.tokens_per_entry) for term in self.terms if term.max_tokens is None),
            Fraction(0),
        )
        return slope.numerator if slope.denominator == 1 else slope

    @property
    def largest_window(self) -> int:
        """Tokens after which every window is full; 0 where there is none."""
        return max((term.max_tokens for term in self.terms if term.max_tokens is not None), default=0)


def first_true(reached: Callable[[int], bool], high: int) -> int | None:
    """The smallest number from 1 to `high` for which the monotone test `reached` holds, or None where none does.

    Bisection, since windows and blocks make the curves bend.
    """
    if not reached(high):
        return None
    low = 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle + 1, high)
    return low


def add_up(layers: Iterable[tuple[LayerCache, int]], kv: KvDtype, tensor_parallel: int = 1) -> CacheCurve:
    """The curve of `layers`, pairs of a layer and how often it occurs, on one GPU.

    Raises ParallelError, or DtypeError where kv_dtype cannot store a row.
    """
    fixed = 0
    terms: dict[tuple[int | None, int, int | None], int] = {}
    for layer, count in layers:
        fixed += count * sum(part.bytes(kv, tensor_parallel) for part in layer.state_parts())
        for part in layer.cache_parts():
            key = (part.max_tokens, part.tokens_per_entry, part.max_read_entries)
            terms[key] = terms.get(key, 0) + count * part.entry_bytes(kv, tensor_parallel)
    return CacheCurve(fixed, tuple(CacheTerm(*key, entry_bytes) for key, entry_bytes in terms.items()))


def one_kv_head_count(layers: Iterable[LayerCache]) -> int | None:
    """The number of KV heads that all growing attention layers share; None where there is no such number."""
    growing = [layer for layer in layers if layer.cache_parts()]
    counts = {layer.kv_heads() for layer in growing}
    return counts.pop() if len(counts) == 1 else None


def require_kv_head_axis(layers: Iterable[LayerCache], name: str) -> int:
    """The shared number of KV heads, for callers that want to change it.

    Raises InputError with the reason where there is none: latent layers, no attention, or layers that differ.
    """
    growing = [layer for layer in layers if layer.cache_parts()]
    counts = sorted({heads for layer in growing if (heads := layer.kv_heads()) is not None})
    headless = {layer.label for layer in growing if layer.kv_heads() is None}
    if not growing:
        raise InputError(f"{name} keeps no keys and values for tokens, so it has no number of KV heads to change")
    if headless:
        raise InputError(f"{name} has {' and '.join(sorted(headless))}, which keeps no KV heads to change")
    if len(counts) > 1:
        raise InputError(f"the layers of {name} differ ({', '.join(map(str, counts))} KV heads), so one number cannot")
    return counts[0]
