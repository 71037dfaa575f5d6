"""GPTQ and AWQ: four bits in groups of input features, with an fp16 scale and a packed zero a group."""

from __future__ import annotations

from kvplan.dtypes import StorageFormat, weight_format
from kvplan.importer.quantized.modules import DENSE, MODULE_NAMES, Matrix, fragment_list
from kvplan.importer.quantized.scheme import Scheme, all_projections_but
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES

_AWQ = DENSE | {"qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"}
"""Families whose towers AutoAWQ leaves alone besides."""


def _group_size(config: ConfigView) -> int:
    if config.integer("bits") != 4:
        raise config.unsupported(f"bits is {config.integer('bits')}; known: 4")
    size = config.integer("group_size", low=-1)
    if size not in (32, 64, 128):
        raise config.unsupported(f"group_size is {size}; known: 32, 64, 128")
    return int(size)


def read_awq(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """AutoAWQ quantizes the projections of the layers; embedding, head and towers keep their width."""
    size = _group_size(config)
    if model_type not in _AWQ:
        raise config.unsupported(f"how awq checkpoints of {model_type} lay out their matrices is not known")
    config.require("version", "gemm", "other packings are not known")
    config.require("zero_point", True, "only files with zero points are known")
    left_out = fragment_list(config, config.texts("modules_to_not_convert", default=[]))
    return all_projections_but(left_out, weight_format(f"awq_int4_g{size}"), model_type)


def read_gptq(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The files of Qwen 1, as AutoGPTQ wrote them: a bias for every matrix, of zeros where the model has none.

    Later writers leave that bias out, and a config does not say which one wrote the file.
    """
    size = _group_size(config)
    if model_type != "qwen" or not config.has("model_file_base_name"):
        raise config.unsupported("some gptq files hold a bias of zeros for every matrix, and it is not stated here")
    config.pass_over("how the codes were found", *_GPTQ_SEARCH)
    fused = frozenset({"attention_q", "attention_k", "attention_v"})  # whose true bias the model counts itself
    whole = {True: weight_format(f"gptq_int4_g{size}"), False: weight_format(f"gptq_int4_g{size}_bias")}
    part = weight_format(f"gptq_int4_g{size}_part")

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        if not ROLES[matrix.group.role].quantized:
            return None
        return part if matrix.is_part else whole[matrix.group.role in fused]

    return Scheme(f"gptq_int4_g{size}", choose, MODULE_NAMES[model_type])


_GPTQ_SEARCH = (
    "damp_percent", "desc_act", "static_groups", "sym", "true_sequential", "model_name_or_path", "model_file_base_name",
)  # fmt: skip
