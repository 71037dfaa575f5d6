"""GPTQ and AWQ: integer codes in groups of input features, with an fp16 scale and a packed zero a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvplan.dtypes import GPTQ_BITS, GPTQ_GROUPS, StorageFormat, gptq_name, weight_format
from kvplan.errors import shorten
from kvplan.importer.quantized.modules import MAX_EXPRESSIONS, Matrix, fragment_list, name_list
from kvplan.importer.quantized.names import DENSE, SEPARATE_EXPERTS, WITH_TOWER, module_names
from kvplan.importer.quantized.scheme import Scheme, all_linear_but
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES

_SCALED_ACTIVATIONS = frozenset(
    {"starcoder2", "falcon", "RefinedWeb", "RefinedWebModel", "mpt", "gptj", "gpt_neox", "bloom"}
)
"""Families in which AutoAWQ stores scales of an activation besides."""

_OTHERWISE = frozenset({"qwen3_next", "qwen3_5_moe", "nemotron_h", "gemma4", "minimax_m3_vl"})
"""Mixtures with layers or experts of which it is not known what these tools quantize."""

_GPTQ = (DENSE | SEPARATE_EXPERTS | WITH_TOWER) - _OTHERWISE
_AWQ = _GPTQ - _SCALED_ACTIVATIONS


def _group_size(config: ConfigView, known: tuple[int, ...]) -> int:
    """Input features that share a scale; 0: all of them, which a config writes as -1."""
    size = config.integer("group_size", low=-1)
    if max(size, 0) not in known or size == 0:
        listed = ", ".join(str(group or -1) for group in known)
        raise config.unsupported(f"group_size is {size}; known: {listed}")
    return max(int(size), 0)


def read_awq(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """AutoAWQ quantizes the projections of the layers; embedding, head and towers keep their width."""
    if config.integer("bits") != 4:
        raise config.unsupported(f"bits is {config.integer('bits')}; known: 4")
    size = _group_size(config, (32, 64, 128))
    if model_type not in _AWQ:
        raise config.unsupported(f"how awq checkpoints of {model_type} lay out their matrices is not known")
    version = config.text("version", "format", default="gemm")
    if version.lower() != "gemm":
        raise config.unsupported(f"version is {shorten(version)}; other packings than gemm are not known")
    config.require("zero_point", True, "only files with zero points are known")
    config.pass_over("run-time choices of the library", *_AWQ_SETTINGS)
    left_out = fragment_list(config, [*config.texts("modules_to_not_convert", default=[]), *_NEVER])
    return all_linear_but(left_out, weight_format(f"awq_int4_g{size}"), module_names(model_type, outer), "lm_head")


_NEVER = ("shared_expert_gate",)
"""A projection to one value, which neither tool quantizes."""

_AWQ_SETTINGS = ("backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "sym", "desc_act")

# -------------------------------------------------------------------------------------------------------------- gptq


def read_gptq(config: ConfigView, model_type: str, outer: ConfigView) -> Scheme:
    """The linear layers inside the blocks; routers keep their width, and the head unless `lm_head` is true.

    AutoGPTQ before 0.8 wrote a bias of zeros for every matrix; `checkpoint_format` came with the versions that leave
    it out. Of Qwen 1 the published files are known to have it.
    """
    bits, size = _bits(config), _group_size(config, GPTQ_GROUPS)
    if model_type not in _GPTQ:
        raise config.unsupported(f"how gptq checkpoints of {model_type} lay out their matrices is not known")
    storage, zeros = weight_format(gptq_name(bits, size)), _zero_biases(config, model_type, outer)
    config.pass_over("how the codes were found, and at run time used", *_GPTQ_SEARCH)
    head, chosen, overridden = config.flag("lm_head", default=False), _chosen(config), _overrides(config, bits, size)

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        role = matrix.group.role
        if not (ROLES[role].quantized or (head and role == "lm_head")) or not chosen(matrix):
            return None
        found = overridden(matrix, layer, storage)
        if found is None:
            return None
        _require_whole_packs(config, matrix)
        return weight_format(f"{found.name}_bias") if zeros(matrix) else found

    return Scheme(storage.name, choose, module_names(model_type, outer))


_QKV = frozenset({"attention_q", "attention_k", "attention_v"})
_OWN_BIASES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("qwen", "qwen2", "qwen2_moe"), _QKV),
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "qwen3", "qwen3_moe", "gemma", "gemma2", "deepseek_v2", "deepseek_v3"),
        frozenset(),
    ),
}
"""Families of which it is known which matrices have a bias of their own, which the model counts: no other has one."""


def _bits(config: ConfigView) -> int:
    bits = config.integer("bits")
    if bits not in GPTQ_BITS:
        raise config.unsupported(f"bits is {bits}; known: {', '.join(map(str, GPTQ_BITS))}")
    return int(bits)


def _zero_biases(config: ConfigView, model_type: str, outer: ConfigView) -> Callable[[Matrix], bool]:
    """Whether a bias of zeros is stored with a matrix that has none, as the config or the names of the tensors tell.

    Raises UnsupportedConfigError where neither does.
    """
    layout = config.text("checkpoint_format", "format", default=None)
    if layout is not None and layout not in ("gptq", "gptq_v2"):
        raise config.unsupported(f"checkpoint_format is {shorten(layout)}; known: gptq, gptq_v2")
    if layout is not None:
        return lambda _matrix: False
    if model_type == "qwen" and config.has("model_file_base_name"):
        return lambda matrix: matrix.group.role not in _QKV
    if not outer.stored:
        raise config.unsupported(
            "some gptq files hold a bias of zeros for every matrix, and no checkpoint_format says so here; give the "
            "model.safetensors.index.json beside it, or the beginning of its .safetensors files, whose names tell"
        )
    return _biased_in(config, model_type, outer)


def _biased_in(config: ConfigView, model_type: str, outer: ConfigView) -> Callable[[Matrix], bool]:
    """Whether the names that are stored hold a bias with a matrix whose family has none of its own."""
    packed = {name.removesuffix(".qweight") for name in outer.stored if name.endswith(".qweight")}
    if not packed:
        raise config.unsupported("the index beside it names no .qweight, so it is of another checkpoint")
    ends = {module.rpartition(".")[2] for module in packed if f"{module}.bias" in outer.stored}
    own = _OWN_BIASES.get(model_type)
    if ends and (own is None or outer.data.get("attention_bias") or outer.data.get("mlp_bias")):
        raise config.unsupported(f"the index beside it names biases, and which of them {model_type} has is not known")
    return lambda matrix: (
        matrix.group.role not in (own or ()) and any(name.rpartition(".")[2] in ends for name in matrix.names)
    )


def _require_whole_packs(config: ConfigView, matrix: Matrix) -> None:
    rows, columns = matrix.group.rows, matrix.group.columns
    if rows % 32 or columns % 32:
        raise config.unsupported(f"a matrix of {rows} x {columns} does not fill whole packs of 32 values")


def _chosen(config: ConfigView) -> Callable[[Matrix], bool]:
    """Whether a matrix is among `modules_in_block_to_quantize`, where that is given."""
    listed = config.data.get("modules_in_block_to_quantize")
    config.pass_over("read here", "modules_in_block_to_quantize")
    if listed is None:
        return lambda matrix: not any(name.endswith(_NEVER) for name in matrix.names)
    if not isinstance(listed, list) or not all(isinstance(group, list) for group in listed):
        raise config.error("modules_in_block_to_quantize needs a list of lists of names")
    wanted = {_any_expert(str(name)) for group in listed for name in group}

    def chosen(matrix: Matrix) -> bool:
        if not matrix.names:
            raise config.unsupported(
                "modules_in_block_to_quantize names modules, and those of this family are not known"
            )
        verdicts = {_any_expert(name) in wanted for name in matrix.names}
        if len(verdicts) > 1:
            raise config.unsupported(f"of {' and '.join(matrix.names)} only some are quantized")
        return verdicts.pop()

    return chosen


def _any_expert(name: str) -> str:
    head, inside, tail = name.partition("experts.")
    return f"{head}{inside}{tail.partition('.')[2]}" if inside and tail[:1].isdigit() else name


def _overrides(
    config: ConfigView, bits: int, size: int
) -> Callable[[Matrix, int | None, StorageFormat], StorageFormat | None]:
    """`dynamic` of GPTQModel: expressions for modules that are stored otherwise, or after "-:" not quantized."""
    stated = config.mapping("dynamic", default={})
    if len(stated) > MAX_EXPRESSIONS:
        raise config.unsupported(f"dynamic holds over {MAX_EXPRESSIONS} expressions, too many to be followed")
    rules = [
        (
            name_list(config, [f"re:{key.removeprefix('-:').removeprefix('+:')}"]),
            _override(config, key, value, bits, size),
        )
        for key, value in stated.items()
    ]

    def overridden(matrix: Matrix, layer: int | None, usual: StorageFormat) -> StorageFormat | None:
        return next((found for listed, found in rules if listed.leaves_out(matrix, layer)), usual)

    return overridden


def _override(config: ConfigView, key: str, value: Any, bits: int, size: int) -> StorageFormat | None:
    if key.startswith("-:"):
        return None
    entry = ConfigView(value, f"{config.where} dynamic") if isinstance(value, Mapping) else None
    if entry is None or set(entry.data) - {"bits", "group_size", "sym", "desc_act", "mse"}:
        raise config.unsupported(f"dynamic {shorten(key)} states more than bits and group_size")
    inside = ConfigView({"bits": bits, "group_size": size or -1} | dict(entry.data), entry.where)
    return weight_format(gptq_name(_bits(inside), _group_size(inside, GPTQ_GROUPS)))


_GPTQ_SEARCH = (
    "damp_percent", "damp_auto_increment", "desc_act", "static_groups", "sym", "true_sequential", "model_name_or_path",
    "model_file_base_name", "meta", "dataset", "tokenizer", "model_seqlen", "block_name_to_quantize", "batch_size",
    "module_name_preceding_first_block", "pad_token_id", "use_exllama", "exllama_config", "use_cuda_fp16", "backend",
    "disable_exllama", "max_input_length", "cache_block_outputs", "is_marlin_format", "act_group_aware", "mse",
    "parallel_packing", "hyb_act", "adapter", "offload_to_disk", "rotation", "quant_method",
)  # fmt: skip
