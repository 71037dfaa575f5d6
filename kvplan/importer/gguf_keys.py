"""The keys of one architecture in a GGUF header: read with their types checked, and none left unread unseen."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from kvplan.errors import ConfigError, UnsupportedConfigError, quoted, shorten
from kvplan.importer.gguf_reader import GgufHeader, Values
from kvplan.units import counted

Missing = TypeVar("Missing")
_REQUIRED: Any = object()

MAX_SIZE = 2**31 - 1
"""llama.cpp keeps these numbers in 32 bits."""

_WITHOUT_MEMORY = re.compile(
    r"rope\..+|.*(?:epsilon|_scale|softcapping|_norm|_func|_groups|_clamp_exp|_clamp_shexp)"
    r"|attention\.(?:max_alibi_bias|clamp_kqv|scale|temperature_length|q_lora_rank|value_length_mla|key_length_mla)"
    r"|(?:leading_dense_block|expert_shared|expert_group|expert_group_used)_count|expert_weights_(?:scale|norm)"
    r"|(?:expert_|expert_shared_)?feed_forward_length|experts_per_group|moe_(?:every_n_layers|latent_size)"
    r"|interleave_moe_layer_step|embedding_length_(?:per_layer_input|out)|vocab_size|use_parallel_residual"
    r"|tensor_data_layout|n_deepstack_layers|decoder_start_token_id|hidden_activation|activation_sparsity_scale"
    r"|attention\.(?:indexer\.(?:block_size|local_blocks)|(?:decay|iclr|value_residual_mix|gate)_lora_rank|value_scale)"
    r"|(?:time_mix|time_decay)_extra_dim|rescale_every_n_layers|swin_norm|expert_chunk_feed_forward_length"
    r"|(?:vision|audio|mm)\..+|altup\..+|ssm\.dt_b_c_rms|swiglu_limit\w*|mrope_sections|rope_dimension_sections"
)
"""Keys that change no byte of weights or cache: weights are counted from the tensors, and caches from other keys."""


class GgufKeys:
    """The keys of the header's architecture, by their names without its prefix."""

    def __init__(self, header: GgufHeader) -> None:
        self.where, self._all, self._read = header.where, header.keys, set[str]()
        architecture = header.keys.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise self.error("lacks general.architecture, the name of the model's family")
        self.architecture = architecture

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.where}: {text}")

    def unsupported(self, text: str) -> UnsupportedConfigError:
        return UnsupportedConfigError(f"{self.where}: {text}")

    def has(self, name: str) -> bool:
        return f"{self.architecture}.{name}" in self._all

    def raw(self, name: str) -> Any:
        """The value under `name`, which counts as read from now on; None where there is none."""
        self._read.add(name)
        return self._all.get(f"{self.architecture}.{name}")

    def integer(self, name: str, default: int | Missing = _REQUIRED, low: int = 1) -> int | Missing:
        """A whole number from `low` up. Raises ConfigError where it is missing without default, or something else."""
        if not self.has(name) and default is not _REQUIRED:
            self._read.add(name)
            return default
        return self._whole(name, self.raw(name), low)

    def _whole(self, name: str, found: object, low: int) -> int:
        if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= MAX_SIZE:
            raise self.error(f"{self.architecture}.{name} is {quoted(found)}; it must be from {low} to {MAX_SIZE:,}")
        return found

    def per_layer(self, name: str, layers: int, default: int) -> tuple[int, ...]:
        """One number a layer: a list of that length, or one number for all."""
        found = self.raw(name)
        if not isinstance(found, Values):
            number = default if found is None else self._whole(name, found, 0)
            return (number,) * layers
        return tuple(self._whole(name, item, 0) for item in self._entries(name, found, layers))

    def windows(self, name: str, layers: int, default_period: int) -> tuple[bool, ...]:
        """Whether each layer has a window: a list, or a period whose last layer has none (0: all layers have one)."""
        found = self.raw(name)
        if isinstance(found, Values):
            return tuple(bool(item) for item in self._entries(name, found, layers))
        period = default_period if found is None else self._whole(name, found, 0)
        return tuple(not period or index % period < period - 1 for index in range(layers))

    def _entries(self, name: str, found: Values, layers: int) -> tuple[int | float | bool, ...]:
        if found.entries is None or found.length != layers:
            raise self.error(
                f"{self.architecture}.{name} has {counted(found.length, 'entry')}; {counted(layers, 'number')}, one a "
                "layer, are needed"
            )
        return found.entries

    def text(self, name: str) -> str:
        """A general text such as general.name, "" where there is none."""
        found = self._all.get(name)
        return found if isinstance(found, str) else ""

    def listed(self, name: str) -> int | None:
        """How many entries a general list such as tokenizer.ggml.tokens has."""
        found = self._all.get(name)
        return found.length if isinstance(found, Values) else None

    def refuse_unread(self) -> None:
        """Raise UnsupportedConfigError where a key of the architecture was not read and may change memory."""
        prefix = f"{self.architecture}."
        for key in self._all:
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and name not in self._read and not _WITHOUT_MEMORY.fullmatch(name):
                raise self.unsupported(f"no rule knows the key {shorten(key)}, which may change what a layer keeps")
