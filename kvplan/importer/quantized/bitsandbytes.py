"""bitsandbytes: LLM.int8."""

from __future__ import annotations

from kvplan.dtypes import WEIGHT_FORMATS
from kvplan.importer.quantized.fp8 import require_separate
from kvplan.importer.quantized.scheme import Scheme, by_role
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES


def read_bitsandbytes(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """LLM.int8: one byte a value and a float32 scale a row; head, embedding and norms keep their width."""
    require_separate(config, model_type)
    if not config.flag("load_in_8bit", default=False):
        raise config.unsupported("load_in_8bit is not true; 4-bit layouts of bitsandbytes are not applied")
    config.require("llm_int8_skip_modules", None, "leaving modules out is not known here")
    config.require("llm_int8_has_fp16_weight", False, "such a checkpoint is not stored in 8 bits")
    config.pass_over("run-time choices of the library", *_SETTINGS)
    return by_role(WEIGHT_FORMATS["bnb_int8"], lambda group: ROLES[group.role].quantized)


_SETTINGS = (
    "_load_in_4bit", "_load_in_8bit", "load_in_4bit", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload", "llm_int8_threshold",
)  # fmt: skip
