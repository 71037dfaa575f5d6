"""Formats of which some or all files cannot be counted from their config: one sentence each says why."""

from __future__ import annotations

from kvplan.dtypes import weight_format
from kvplan.importer.quantized.modules import fragment_list
from kvplan.importer.quantized.names import DENSE, module_names
from kvplan.importer.quantized.scheme import Scheme, all_projections_but
from kvplan.importer.view import ConfigView

WHY_NOT = {
    "hqq": "hqq stores up to a dozen tensors of settings for each matrix, and which ones depends on its version",
    "quanto": "quanto quantizes while it loads, and what a file of it holds depends on the tool that wrote it",
    "torchao": "torchao stores whole tensor objects, whose parts depend on its version and on the chosen class",
    "aqlm": "aqlm stores codes and codebooks, whose shapes follow from the search and from groups that differ",
    "spqr": "spqr stores outliers whose number differs from matrix to matrix",
    "vptq": "vptq stores a codebook, indices and outliers for each matrix, with sizes that differ",
    "higgs": "higgs pads its matrices and stores tables beside them, which depend on the kernel",
    "fp_quant": "fp_quant stores its weights in one of several layouts, which depend on how it was saved",
    "bitnet": "bitnet files hold packed or unpacked ternary weights, which the config does not tell apart",
    "auto-round": "auto-round exports to several layouts, with and without an index a column",
    "autoround": "auto-round exports to several layouts, with and without an index a column",
    "intel/auto-round": "auto-round exports to several layouts, with and without an index a column",
    "quark": "quark exports scales and zero points in layouts that depend on its version",
    "exl2": "exl2 mixes widths layer by layer, so its bytes follow from the file and not from its config",
    "exl3": "exl3 mixes widths layer by layer, so its bytes follow from the file and not from its config",
    "gguf": "the header of a GGUF file states every tensor; import the file itself",
    "sinq": "sinq stores scales along both sides of a matrix, in a layout that depends on its version",
    "nvfp4": "the quant_method nvfp4 of transformers has no published checkpoint to compare with",
    "metal": "the layout of metal files is that of a library for Apple chips, and is not documented",
    "fouroversix": "fouroversix has no published checkpoint to compare with",
    "fp8_e4m3": "fp8_e4m3 does not say how many scales a matrix has",
    "marlin": "marlin files are rearranged for one kind of GPU, and padded",
    "moe_wna16": "moe_wna16 is a kernel; the quant_method of the file it reads is gptq or awq",
    "mxfp8": "mxfp8 does not say which matrices it leaves alone",
    "petit_nvfp4": "petit_nvfp4 is a kernel; the quant_method of the file it reads is modelopt",
}
"""quant_method -> why its bytes are not known from a config alone."""


def read_eetq(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """EETQ: int8 with an fp16 scale for each output row, in every linear layer but the head."""
    if model_type not in DENSE:
        raise config.unsupported(f"which matrices of {model_type} eetq quantizes is not known")
    config.require("weights", "int8", "other widths are not known")
    names = module_names(model_type, outer)
    left_out = fragment_list(config, config.texts("modules_to_not_convert", default=["lm_head"]))
    return all_projections_but(left_out, weight_format("eetq_int8"), names)
