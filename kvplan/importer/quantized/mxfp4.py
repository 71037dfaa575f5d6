"""MXFP4 of gpt-oss."""

from __future__ import annotations

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.importer.quantized.scheme import Scheme, by_role
from kvplan.importer.view import ConfigView

_GPT_OSS_LIST = frozenset({"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"})


def read_mxfp4(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The routed experts of gpt-oss: e2m1 with one e8m0 byte for 32 values; their biases keep the model's width."""
    names = config.texts("modules_to_not_convert")
    if model_type != "gpt_oss" or set(names) != _GPT_OSS_LIST:
        raise config.unsupported("mxfp4 is known for gpt_oss with its own modules_to_not_convert only")
    return by_role(WEIGHT_FORMATS["mxfp4"], lambda group: group.role == "routed_experts")
