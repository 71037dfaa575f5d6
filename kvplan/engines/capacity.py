"""What an engine makes of a pool of memory: blocks, tokens, and how many requests it admits.

Two numbers, never one: *resident* bytes are the tensors of the tokens that a sequence holds (`Model.cache_bytes`);
*reserved* bytes are what an engine sets aside so that a request of a given length can be admitted. Everything
here is about the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kvplan.attention import first_true
from kvplan.dtypes import WEIGHT_FORMATS, KvDtype, StorageFormat
from kvplan.dtypes import kv_dtype as as_kv_dtype
from kvplan.errors import InputError, quoted
from kvplan.model import Model
from kvplan.units import MAX_COUNT, TIB, whole_number

MAX_POOL_BYTES = 1024 * TIB


@dataclass(frozen=True, slots=True)
class EngineCapacity:
    """What one engine makes of one pool, on one GPU.

    engine           its name
    pool_bytes       bytes of the pool
    num_blocks       blocks of the pool
    tokens           the cache size that the engine prints; `notes` say where that is not a capacity
    max_concurrency  requests of `max_model_len` that it admits at once
    bytes_per_block  bytes of one block, all layers together
    request_blocks   blocks that one request of `max_model_len` needs
    request_rest     bytes that it takes besides its blocks: recurrent state in a pool of its own
    block_size       tokens of the smallest block
    longest_context  the longest request that the pool admits, found by search; None where it sets no limit
    notes            sentences that a user should read
    replicas         servers of data parallelism: each has such a pool of its own, and all above is of one
    """

    engine: str
    pool_bytes: int
    num_blocks: int
    tokens: int
    max_concurrency: float
    bytes_per_block: int
    request_blocks: int
    block_size: int
    longest_context: int | None
    notes: tuple[str, ...] = ()
    replicas: int = 1
    request_rest: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of all replicas together."""
        return self.tokens * self.replicas

    @property
    def total_concurrency(self) -> float:
        """Requests of `max_model_len` that all replicas together admit at once."""
        return self.max_concurrency * self.replicas

    @property
    def needed_bytes(self) -> int:
        """Bytes that one request of `max_model_len` needs: what a refused start prints."""
        return self.request_blocks * self.bytes_per_block + self.request_rest

    @property
    def admits_one(self) -> bool:
        """Whether one request of `max_model_len` is admitted, its state too; where not, vLLM does not start."""
        return self.num_blocks >= self.request_blocks and (not self.request_rest or self.max_concurrency >= 1)


@dataclass(frozen=True, slots=True)
class Request:
    """What `engine_capacity` was asked, checked. The fields are its arguments."""

    model: Model
    pool_bytes: int
    kv: KvDtype
    tensor_parallel: int
    pipeline_parallel: int
    block_size: int | None
    max_model_len: int
    max_num_batched_tokens: int | None
    context_parallel: int
    engine_version: str | None


def checked_request(
    model: Model,
    pool_bytes: int,
    kv_dtype: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    block_size: int | None,
    max_model_len: int | None,
    max_num_batched_tokens: int | None,
    context_parallel: int,
    engine_version: str | None,
) -> Request:
    """The arguments as one object. Raises InputError, UnknownNameError or ParallelError."""
    model.require_parallel(tensor_parallel, pipeline_parallel)
    if max_model_len is None and model.context_limit is None:
        raise InputError(f"max_model_len is not given, and the config of {model.name} states no limit; give a length")
    optional = {"block_size": block_size, "max_num_batched_tokens": max_num_batched_tokens}
    return Request(
        model=model,
        pool_bytes=whole_number(pool_bytes, "pool_bytes", low=0, high=MAX_POOL_BYTES),
        kv=auto_kv_dtype(model, kv_dtype),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        max_model_len=whole_number(model.context_limit if max_model_len is None else max_model_len, "max_model_len"),
        context_parallel=whole_number(context_parallel, "context_parallel", high=4096),
        engine_version=engine_version,
        **{name: None if value is None else whole_number(value, name) for name, value in optional.items()},
    )


def true_or_false(value: object, name: str) -> None:
    """Raise InputError for what is no bool: words such as "no" would count as True."""
    if not isinstance(value, bool):
        raise InputError(f"{name} is {quoted(value)}; True or False is needed")


def compute_dtype(model: Model) -> StorageFormat:
    """The dtype that an engine computes in: as published, but 16 bits for a float32 model or one that says nothing."""
    published = model.dtype
    return WEIGHT_FORMATS["bf16"] if published is None or published.name == "fp32" else published


def auto_kv_dtype(model: Model, name: str) -> KvDtype:
    """The cache dtype that an engine's option means. `auto` is the dtype that the model is computed in."""
    if not isinstance(name, str):
        raise InputError(f"kv_dtype is {quoted(name)}; a name such as auto or fp8 is needed")
    text = name.strip().lower()
    if text in ("auto", ""):
        return as_kv_dtype(compute_dtype(model).name)
    return as_kv_dtype(text.removesuffix("_ds_mla"))


Version = tuple[int, ...]


def parse_version(text: str | None, newest: Version) -> Version:
    """(major, minor, patch) of a version as engines print it, such as `0.20.2rc1.dev249`; None: `newest`."""
    if text is None:
        return newest
    found = re.match(r"\s*v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"engine_version is {quoted(text)}; write it as 0.11 or 0.20.1")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def longest_context(bytes_for: Callable[[int], int], pool_bytes: int) -> int | None:
    """The longest request whose `bytes_for` fits into the pool, by search; None where no length exceeds it."""
    beyond = first_true(lambda tokens: bytes_for(tokens) > pool_bytes, MAX_COUNT)
    return None if beyond is None else beyond - 1


def ceil_div(count: int, size: int) -> int:
    """count / size, rounded up."""
    return -(-count // size)


def ratio(count: int, per: int) -> float:
    """count / per as a float, 0.0 where a request needs nothing that could be counted."""
    return float(Fraction(count, per)) if per else 0.0
