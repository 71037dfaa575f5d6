"""Tensors of a GGUF file -> weight groups: what each is for follows from its name in llama.cpp.

The names are those of llama.cpp's `src/llama-arch.cpp`. A name that is not among them is refused, since a tensor
that nobody knows may belong to a kind of layer that keeps something nobody counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from kvplan.errors import ConfigError, UnsupportedConfigError, shorten
from kvplan.importer.gguf_reader import GgufTensor
from kvplan.model import ROLES, Split, WeightGroup
from kvplan.units import counted

Groups = tuple[WeightGroup, ...]


class Use(NamedTuple):
    """What a tensor is for, and what tensor parallelism does with it."""

    role: str
    split: Split = "copied"
    tower: str = "text"


_ROWS_COLUMNS = {"gate": "rows", "up": "rows", "gate_up": "rows", "down": "columns"}

_LAYER_USES: dict[str, Use] = {
    "attn_q": Use("attention_q", "rows"),
    "attn_q_b": Use("attention_q", "rows"),
    "attn_k": Use("attention_k", "kv_heads"),
    "attn_v": Use("attention_v", "kv_heads"),
    "attn_output": Use("attention_o", "columns"),
    "attn_q_a": Use("attention_latent"),
    "attn_kv_a_mqa": Use("attention_latent"),
    "attn_kv_b": Use("attention_latent", "rows"),
    "attn_k_b": Use("attention_latent", "rows"),
    "attn_v_b": Use("attention_latent", "rows"),
    "attn_gate": Use("attention_gate", "rows"),
    "attn_sinks": Use("attention_sink", "rows"),
    "attn_rot_embd": Use("other"),
    "ffn_gate_inp": Use("router"),
    "ffn_gate_inp_shexp": Use("shared_experts"),
    "exp_probs_b": Use("router"),
    "ffn_latent_down": Use("mlp"),
    "ffn_latent_up": Use("mlp"),
    "ssm_in": Use("recurrent", "rows"),
    "ssm_x": Use("recurrent", "columns"),
    "ssm_dt": Use("recurrent", "rows"),
    "ssm_ba": Use("recurrent", "rows"),
    "ssm_alpha": Use("recurrent", "rows"),
    "ssm_beta": Use("recurrent", "rows"),
    "ssm_out": Use("recurrent", "columns"),
    "ssm_a": Use("recurrent_state", "rows"),
    "ssm_d": Use("recurrent_state", "rows"),
    "ssm_conv1d": Use("recurrent_state", "rows"),
    **{f"ssm_conv1d_{name}": Use("recurrent_state", "rows") for name in "qkv"},
    **{f"ssm_{name}": Use("recurrent") for name in ("f_a", "f_b", "g_a", "g_b")},
    **{f"indexer.{name}": Use("indexer") for name in ("proj", "attn_k", "attn_q_b")},
    "indexer.k_norm": Use("norm"),
    "shortconv.in_proj": Use("convolution", "rows"),
    "shortconv.out_proj": Use("convolution", "columns"),
    "shortconv.conv": Use("recurrent_state", "rows"),
    "inp_gate": Use("per_layer_input"),
    "proj": Use("per_layer_input"),
    "layer_output_scale": Use("residual"),
    **{name: Use("residual") for name in ("laurel_l", "laurel_r", "altup_router")},
    **{f"altup_{name}": Use("residual") for name in ("correct_coef", "correct_scale", "predict_coef")},
    **{f"ffn_{name}": Use("mlp", split) for name, split in _ROWS_COLUMNS.items()},  # type: ignore[arg-type]
    **{f"ffn_{name}_exps": Use("routed_experts", split) for name, split in _ROWS_COLUMNS.items()},  # type: ignore[arg-type]
    **{f"ffn_{name}_shexp": Use("shared_experts", split) for name, split in _ROWS_COLUMNS.items()},  # type: ignore[arg-type]
}

_OUTER_USES: dict[str, Use] = {
    "token_embd": Use("embedding", "rows"),
    "position_embd": Use("position_embedding"),
    "token_embd_norm": Use("norm"),
    "output": Use("lm_head", "rows"),
    "output_norm": Use("final_norm"),
    "rope_freqs": Use("other"),
    "rope_factors_long": Use("other"),
    "rope_factors_short": Use("other"),
    "per_layer_token_embd": Use("per_layer_embedding"),
    "per_layer_model_proj": Use("per_layer_input"),
    "per_layer_proj_norm": Use("norm"),
    "altup_proj": Use("residual"),
    "altup_unembd_proj": Use("residual"),
}

_TOWERS = {
    "v": Use("vision", tower="vision"),
    "mm": Use("projector", tower="projector"),
    "a": Use("audio", tower="audio"),
}
"""Towers that some files hold beside the text model, by the first word of a tensor's name."""

_RECURRENT_USES = {
    **{name: Use("recurrent", "rows") for name in ("attn_qkv", "attn_gate", "attn_q", "attn_k", "attn_v")},
    "attn_output": Use("recurrent", "columns"),
}
"""Names that mean the inputs and the output of the delta rule in a recurrent layer (Qwen3-Next, Kimi Linear)."""

_RWKV = re.compile(r"(time|channel)_mix_\w+")

_NORM = re.compile(r"\w*norm(?:_[12]|_exps)?")
_KIND = re.compile(r"(.+?)(?:\.(weight|bias|scale|input_scale))?")
_ONE_EXPERT = re.compile(r"ffn_(gate|up|down)\.\d{1,4}")


def base_name(name: str) -> str:
    """A tensor's name without `.weight` or `.bias`."""
    found = _KIND.fullmatch(name)
    return found[1] if found else name


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """What the shapes of one layer's projections follow from.

    heads, kv_heads        0 in a layer without attention
    key_length, value_length  values of one key and one value
    recurrent              the layer keeps a recurrent state and no K and V
    experts, experts_used  0 where there are none
    """

    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    recurrent: bool
    experts: int
    experts_used: int

    def fused_rows(self) -> tuple[tuple[Use, int], ...]:
        """The rows that queries, keys and values have in one fused matrix."""
        return (
            (_LAYER_USES["attn_q"], self.heads * self.key_length),
            (_LAYER_USES["attn_k"], self.kv_heads * self.key_length),
            (_LAYER_USES["attn_v"], self.kv_heads * self.value_length),
        )


class _Matrix(NamedTuple):
    """One matrix of a tensor, with how many the tensor holds."""

    use: Use
    rows: int
    columns: int
    times: int
    tensor: GgufTensor


def layer_groups(where: str, tensors: Iterable[GgufTensor], heads: LayerHeads) -> Groups:
    """The weight groups of one layer. Raises ConfigError where a shape contradicts `heads`."""
    matrices = [found for tensor in tensors for found in _layer_matrices(where, tensor, heads)]
    return _as_groups(where, matrices, heads)


def outer_groups(where: str, tensors: Iterable[GgufTensor]) -> Groups:
    """The weight groups outside the layers. Raises UnsupportedConfigError for a name that is not known."""
    no_heads = LayerHeads(0, 0, 1, 1, False, 0, 0)
    return _as_groups(where, [_plain_matrix(_outer_use(where, tensor), tensor) for tensor in tensors], no_heads)


def _outer_use(where: str, tensor: GgufTensor) -> Use:
    name = base_name(tensor.name)
    use = _OUTER_USES.get(name) or _TOWERS.get(name.partition(".")[0])
    if use is None:
        raise _unknown(where, tensor)
    return use


def _unknown(where: str, tensor: GgufTensor) -> UnsupportedConfigError:
    return UnsupportedConfigError(
        f"{where}: no rule knows the tensor {shorten(tensor.name)}, so what its layer keeps is not known"
    )


def _layer_matrices(where: str, tensor: GgufTensor, heads: LayerHeads) -> Sequence[_Matrix]:
    name = base_name(tensor.name.split(".", 2)[2])
    if name == "attn_qkv" and not heads.recurrent:
        return _fused_matrices(where, tensor, heads)
    use = (_RECURRENT_USES.get(name) if heads.recurrent else None) or _LAYER_USES.get(name)
    if mixing := _RWKV.fullmatch(name):
        use = _rwkv_use(mixing[1], tensor)
    if one := _ONE_EXPERT.fullmatch(name):
        use = _LAYER_USES[f"ffn_{one[1]}_exps"]
    if use is None and not _NORM.fullmatch(name):
        raise _unknown(where, tensor)
    if name.endswith("_exps") and use is not None:
        return [_expert_matrix(where, use, tensor, heads)]
    return [_plain_matrix(use or Use("norm"), tensor)]


def _rwkv_use(block: str, tensor: GgufTensor) -> Use:
    """A matrix of RWKV's time or channel mixing; whatever is not one is a parameter of it."""
    if sum(size > 1 for size in tensor.shape) < 2:
        return Use("recurrent_state")
    return Use("recurrent" if block == "time" else "mlp")


def _plain_matrix(use: Use, tensor: GgufTensor) -> _Matrix:
    """A tensor as one matrix; one with a single dimension is a column, as biases and norms are everywhere."""
    rows, columns = prod(tensor.shape[1:]), tensor.shape[0]
    if len(tensor.shape) > 1 or not tensor.storage.is_plain:
        return _Matrix(use, rows, columns, 1, tensor)
    return _Matrix(use._replace(split="copied") if use.split == "columns" else use, columns, 1, 1, tensor)


def _expert_matrix(where: str, use: Use, tensor: GgufTensor, heads: LayerHeads) -> _Matrix:
    """The experts of a layer in one tensor, counted by its last dimension."""
    *shape, count = tensor.shape
    if count != heads.experts:
        raise ConfigError(
            f"{where}: {shorten(tensor.name)} holds {counted(count, 'expert')}; expert_count is {heads.experts:,}"
        )
    one = _plain_matrix(use, GgufTensor(tensor.name, tuple(shape) or (1,), tensor.storage, 0))
    return one._replace(times=count, tensor=tensor)


def _fused_matrices(where: str, tensor: GgufTensor, heads: LayerHeads) -> Sequence[_Matrix]:
    """Queries, keys and values in one tensor, whose rows follow each other."""
    whole = _plain_matrix(_LAYER_USES["attn_q"], tensor)
    parts = heads.fused_rows()
    if whole.rows != sum(rows for _, rows in parts):
        raise ConfigError(
            f"{where}: {shorten(tensor.name)} has {counted(whole.rows, 'row')}; {counted(heads.heads, 'head')} and "
            f"{counted(heads.kv_heads, 'KV head')} would be {sum(rows for _, rows in parts):,}"
        )
    return [whole._replace(use=use, rows=rows) for use, rows in parts]


def _as_groups(where: str, matrices: Sequence[_Matrix], heads: LayerHeads) -> Groups:
    """Equal matrices as one group, in an order that does not follow the file's."""
    counts: Counter[tuple[Use, int, int, str]] = Counter()
    storage = {found.tensor.storage.name: found.tensor.storage for found in matrices}
    for found in matrices:
        counts[(found.use, found.rows, found.columns, found.tensor.storage.name)] += found.times
    order = list(ROLES)
    return tuple(
        WeightGroup(
            use.role, rows, columns, count, storage[name], split=_split(use, heads), tower=use.tower,
            kv_heads=heads.kv_heads if _split(use, heads) == "kv_heads" else None,
            active=_active(where, use, count, heads),
        )
        for (use, rows, columns, name), count in sorted(
            counts.items(), key=lambda item: (order.index(item[0][0].role), item[0])
        )
    )  # fmt: skip


def _split(use: Use, heads: LayerHeads) -> Split:
    return "copied" if use.split == "kv_heads" and not heads.kv_heads else use.split


def _active(where: str, use: Use, count: int, heads: LayerHeads) -> int | None:
    """How many of `count` expert matrices a token reads; None where it reads all of them."""
    if use.role != "routed_experts":
        return None
    if not heads.experts or count * heads.experts_used % heads.experts or not heads.experts_used:
        raise ConfigError(
            f"{where}: {count:,} equal expert matrices in a layer do not fit expert_count {heads.experts:,} and "
            f"expert_used_count {heads.experts_used:,}"
        )
    return count * heads.experts_used // heads.experts
