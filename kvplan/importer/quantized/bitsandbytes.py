"""bitsandbytes: LLM.int8, and 4 bits in blocks of 64 (nf4, fp4), with and without quantized scales."""

from __future__ import annotations

from kvplan.dtypes import StorageFormat, weight_format
from kvplan.importer.quantized.modules import fragment_list
from kvplan.importer.quantized.names import DENSE, module_names
from kvplan.importer.quantized.scheme import Scheme, all_projections_but
from kvplan.importer.view import ConfigView


def read_bitsandbytes(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The projections of the layers; head, embedding and norms keep their width, and what the config names."""
    if model_type not in DENSE:
        raise config.unsupported(f"which matrices of {model_type} bitsandbytes quantizes is not known")
    names = module_names(model_type, outer)
    head = names["lm_head"][0][0]
    skipped = config.texts("llm_int8_skip_modules", default=[head])
    if head not in skipped and "lm_head" not in skipped:
        raise config.unsupported("llm_int8_skip_modules does not name lm_head, whose storage is then not known")
    config.require("llm_int8_has_fp16_weight", False, "such a checkpoint is not stored in 8 bits")
    config.pass_over("run-time choices of the library", *_SETTINGS)
    return all_projections_but(fragment_list(config, skipped), _storage(config, outer), names)


def _storage(config: ConfigView, outer: ConfigView) -> StorageFormat:
    """8 bits with a float32 scale a row; or 4 bits with a JSON text that names the model's dtype."""
    if config.flag("load_in_8bit", default=False):
        config.pass_over("settings of 4 bits", *_FOUR_BIT)
        return weight_format("bnb_int8")
    if not config.flag("load_in_4bit", default=False):
        raise config.unsupported("neither load_in_8bit nor load_in_4bit is true")
    config.require("bnb_4bit_quant_storage", "uint8", "other containers of the codes are not known")
    kind = config.text("bnb_4bit_quant_type")
    if kind not in ("nf4", "fp4") or outer.dtype is None:
        raise config.unsupported("bnb_4bit_quant_type nf4 or fp4 and the dtype of the model are needed")
    if config.flag("bnb_4bit_use_double_quant", default=False):
        outer.note(_TEXTS)
        return weight_format(f"bnb_{kind}_double_quant_tables")
    return weight_format(f"bnb_{kind}_file_{outer.dtype.name}")


_TEXTS = (
    "the files hold besides a JSON text of some 180 bytes for each quantized matrix, whose length depends on the "
    "values: it describes the tensors, stays off the GPU, and is not counted"
)
_FOUR_BIT = ("bnb_4bit_use_double_quant", "bnb_4bit_quant_storage", "bnb_4bit_quant_type")
_SETTINGS = (
    "_load_in_4bit", "_load_in_8bit", "load_in_4bit", "bnb_4bit_compute_dtype", "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_threshold",
)  # fmt: skip
