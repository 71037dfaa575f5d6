"""What a checkpoint stores beside the weights that are counted: layers that predict further tokens, routers' biases.

DeepSeek-V3 is published with 685 billion values, of which the decoder has 671: the rest is one more layer with an
embedding and a head of its own. Which families store how much is known from the number of values that they publish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from kvplan.dtypes import weight_format
from kvplan.importer.families.moe import MTP_KEYS
from kvplan.model import Model, StoredPart, WeightGroup

PREDICTING = "layers that predict further tokens"
NOT_LOADED = "an engine loads them only to draft tokens"


class _Layout(NamedTuple):
    """How a family stores such a layer: like its last one with attention, with a projection of two hidden states.

    own_outside   with an embedding and a head of its own
    as_quantized  in an fp8 checkpoint it is quantized as the others are
    """

    own_outside: bool = False
    as_quantized: bool = False


_LAYOUTS = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v32"), _Layout(own_outside=True, as_quantized=True)),
    "glm4_moe": _Layout(own_outside=True),
    "glm_moe_dsa": _Layout(as_quantized=True),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "mimo"), _Layout()),
    "qwen3_next": _Layout(as_quantized=True),
}
"""Families whose published number of values is known to be made so."""

_ROUTER_BIASES = frozenset(
    {"deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe", "deepseek_v4"}
    | {"bailing_moe", "bailing_moe_v2", "kimi_vl"}
)
"""Families whose routers have a bias an expert, a buffer that is no parameter."""


def stored_beside(model: Model, config: Mapping[str, Any]) -> Model:
    """`model` with what its checkpoint stores besides, as far as the config tells."""
    if model.is_estimate:
        return model
    inner = config.get("text_config")
    stated = {**config, **inner} if isinstance(inner, Mapping) else config
    layers = _layers(model, stated)
    parts = [*_predicting(model, layers, stated), *_router_biases(model, layers, stated)]
    return replace(model, beside=tuple(parts))


def _layers(model: Model, stated: Mapping[str, Any]) -> int:
    """How many such layers the config states; Qwen3-Next is published with one and does not state it."""
    found = [n for key in MTP_KEYS if type(n := stated.get(key)) is int and 0 <= n <= model.num_layers]
    return max(found, default=1 if model.model_type == "qwen3_next" else 0)


def _predicting(model: Model, layers: int, stated: Mapping[str, Any]) -> Iterator[StoredPart]:
    if not layers:
        return
    groups = _groups(model, stated)
    if groups is None:
        yield StoredPart(PREDICTING, None, None, f"{NOT_LOADED}; how many values they have is not known of this family")
        return
    params = layers * sum(group.params for group in groups)
    yield StoredPart(PREDICTING, params, _bytes(model, groups, layers, stated), NOT_LOADED)


def _groups(model: Model, stated: Mapping[str, Any]) -> Sequence[WeightGroup] | None:
    """The weights of one such layer, or None where the family's are not known."""
    hidden, layout = model.hidden_size, _LAYOUTS.get(model.model_type)
    last = next((layer for layer in reversed(model.layers) if layer.num_attention_heads), None)
    if last is None or (layout is None and model.model_type != "deepseek_v4"):
        return None
    if layout is None:
        return None if any(key.startswith("dspark") for key in stated) else _deepseek_v4(model)
    outside = [group for group in model.weights if group.role in ("embedding", "lm_head")] if layout.own_outside else []
    return [*last.weights, WeightGroup("other", hidden, 2 * hidden), WeightGroup("norm", hidden, 1, 3), *outside]


def _deepseek_v4(model: Model) -> Sequence[WeightGroup]:
    """A layer without compressor, two projections of a hidden state, and the mixer of the streams behind them."""
    layer = takewhile(lambda group: not _is_compressor(group), model.layers[-1].weights)
    projections = WeightGroup("other", model.hidden_size, model.hidden_size, 2, weight_format("fp8_block128_ue8m0"))
    mixer = [group for group in model.weights if group.role == "residual"]
    return [*layer, projections, *mixer, WeightGroup("norm", model.hidden_size, 1, 3)]


def _is_compressor(group: WeightGroup) -> bool:
    return group.role in ("other", "indexer") or (group.role == "attention_latent" and group.count == 2)


def _bytes(model: Model, groups: Sequence[WeightGroup], layers: int, stated: Mapping[str, Any]) -> int | None:
    """What they take; None where the checkpoint is quantized, and it is not known whether they are too."""
    if model.why_no_weight_bytes or model.dtype is None:
        return None
    quantized = any(group.storage and not group.storage.is_plain for group, _ in model.all_groups)
    layout = _LAYOUTS.get(model.model_type, _Layout(as_quantized=True))
    if quantized and not (layout.as_quantized and _is_fp8(stated)):
        return None
    return layers * sum(group.count * group.matrix_bytes(group.storage or model.dtype) for group in groups)


def _is_fp8(stated: Mapping[str, Any]) -> bool:
    quantization = stated.get("quantization_config")
    return isinstance(quantization, Mapping) and quantization.get("quant_method") == "fp8"


def _router_biases(model: Model, layers: int, stated: Mapping[str, Any]) -> Iterator[StoredPart]:
    """One value an expert and router; the hashed routers of DeepSeek V4 have a table instead."""
    if model.model_type not in _ROUTER_BIASES:
        return
    routers = [group.rows for layer in model.layers for group in layer.weights if group.role == "router"]
    hashed = stated.get("num_hash_layers", 0) if model.model_type == "deepseek_v4" else 0
    if not routers or type(hashed) is not int or not 0 <= hashed <= len(routers):
        return
    values = sum(routers[hashed:]) + layers * routers[-1]
    yield StoredPart("biases of the routers", values, None, "an engine loads them as buffers; they are no parameters")
    if hashed:
        yield from _tables(model, hashed, stated)


def _tables(model: Model, hashed: int, stated: Mapping[str, Any]) -> Iterator[StoredPart]:
    chosen = stated.get("num_experts_per_tok")
    if type(chosen) is int and model.vocab_size:
        values = hashed * chosen * model.vocab_size
        yield StoredPart("tables of the hashed routers", values, 8 * values, "an engine loads them as int64 buffers")
