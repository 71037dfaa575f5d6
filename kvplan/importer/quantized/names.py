"""The names that checkpoints give to the matrices of each family.

Names are written without what stands before the layers (`model.`, `language_model.`), since tools write it
differently for one and the same checkpoint: `layers.3.self_attn.q_proj`, `lm_head`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.importer.view import ConfigView

Names = Mapping[str, tuple[tuple[str, ...], ...]]
"""Role -> the names of its first group in a layer, of its second one, ... A name with "+" is a further part of a
module that another group begins; one with "=" holds two matrices of its group."""


def _gated(
    inside: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Sequence[tuple[str, ...]]:
    return ((f"{inside}.{gate}", f"{inside}.{up}"), (f"{inside}.{down}",))


def _names(
    attention: Sequence[str] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    mlp: Sequence[tuple[str, ...]] = _gated("mlp"),
    outside: Sequence[str] = ("embed_tokens", "lm_head"),
    **more: Sequence[tuple[str, ...]],
) -> Names:
    """The names of one family: q, k, v and o; the MLP's groups; embedding and head; and further roles."""
    roles = ("attention_q", "attention_k", "attention_v", "attention_o")
    found: dict[str, Sequence[tuple[str, ...]]] = {
        role: ((name,),) for role, name in zip(roles, attention, strict=True)
    }
    found |= {"embedding": ((outside[0],),), "lm_head": ((outside[1],),), "mlp": mlp}
    return {role: tuple(groups) for role, groups in (found | more).items()}


def _fused(module: str, output: str) -> tuple[str, str, str, str]:
    return module, f"+{module}", f"+{module}", output


_LLAMA = _names()
_PAIRED = (("=mlp.gate_up_proj",), ("mlp.down_proj",))
_FUSED_MLP = _names(mlp=_PAIRED)
_PHI3 = _names(_fused("self_attn.qkv_proj", "self_attn.o_proj"), _PAIRED)
_BAICHUAN = _names(_fused("self_attn.W_pack", "self_attn.o_proj"))
_PHI = _names(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"), (("mlp.fc1",), ("mlp.fc2",))
)
_STARCODER2 = _names(mlp=(("mlp.c_fc",), ("mlp.c_proj",)))
_NEMOTRON = _names(mlp=(("mlp.up_proj",), ("mlp.down_proj",)))
_OPT = _names(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"), (("fc1",), ("fc2",))
)  # fmt: skip
_GPT_NEOX = _names(
    _fused("attention.query_key_value", "attention.dense"),
    (("mlp.dense_h_to_4h",), ("mlp.dense_4h_to_h",)),
    ("embed_in", "embed_out"),
)
_FALCON = _names(
    _fused("self_attention.query_key_value", "self_attention.dense"),
    (("mlp.dense_h_to_4h",), ("mlp.dense_4h_to_h",)),
    ("word_embeddings", "lm_head"),
)
_CHATGLM = _names(
    _fused("self_attention.query_key_value", "self_attention.dense"),
    (("=mlp.dense_h_to_4h",), ("mlp.dense_4h_to_h",)),
    ("embedding.word_embeddings", "output_layer"),
)
_GPTJ = _names(
    ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj"),
    (("mlp.fc_in",), ("mlp.fc_out",)),
    ("wte", "lm_head"),
)
_MPT = _names(_fused("attn.Wqkv", "attn.out_proj"), (("ffn.up_proj",), ("ffn.down_proj",)), ("wte", "lm_head"))
_INTERNLM2 = _names(
    _fused("attention.wqkv", "attention.wo"), _gated("feed_forward", "w1", "w3", "w2"), ("tok_embeddings", "output")
)
_EXAONE = _names(
    tuple(f"attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj")),
    _gated("mlp", "c_fc_0", "c_fc_1", "c_proj"),
    ("wte", "lm_head"),
)
_QWEN1 = _names(_fused("attn.c_attn", "attn.c_proj"), _gated("mlp", "w1", "w2", "c_proj"), ("wte", "lm_head"))

_MOE = _names(router=(("mlp.gate",),), routed_experts=_gated("mlp.experts.0"))
_MIXTRAL = _names(
    router=(("block_sparse_moe.gate",),), routed_experts=_gated("block_sparse_moe.experts.0", "w1", "w3", "w2")
)
_SHARED = _gated("mlp.shared_expert")
_QWEN2_MOE = _names(
    router=(("mlp.gate",), ("mlp.shared_expert_gate",)), routed_experts=_gated("mlp.experts.0"), shared_experts=_SHARED
)
_GLM4_MOE = _names(routed_experts=_gated("mlp.experts.0"), shared_experts=_gated("mlp.shared_experts"))
_ERNIE_MOE = _names(
    router=(("mlp.gate",),), routed_experts=_gated("mlp.experts.0"), shared_experts=_gated("mlp.shared_experts")
)
_HUNYUAN_MOE = _names(
    router=(("mlp.gate.wg",),), routed_experts=_gated("mlp.experts.0"), shared_experts=_gated("mlp.shared_mlp")
)
_LLAMA4 = _names(
    mlp=_gated("feed_forward"),
    router=(("feed_forward.router",),),
    routed_experts=_gated("feed_forward.experts.0"),
    shared_experts=_gated("feed_forward.shared_expert"),
)
_GEMMA4 = _names(router=(("router.proj",),), routed_experts=_gated("experts.0"))
_GPT_OSS = _names(router=(("mlp.router",),))

_DELTA = tuple((f"linear_attn.{name}",) for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"))
_QWEN35 = _names(attention_gate=(("+self_attn.q_proj",),), recurrent=_DELTA)
_QWEN35_MOE = _names(
    attention_gate=(("+self_attn.q_proj",),),
    recurrent=_DELTA,
    routed_experts=_gated("mlp.experts.0"),
    shared_experts=(*_SHARED, ("mlp.shared_expert_gate",)),
)  # the router is a parameter and no linear layer
_QWEN3_NEXT: Names = {
    **_QWEN35_MOE,
    "router": (("mlp.gate",),),
    "recurrent": (("linear_attn.in_proj_qkvz",), ("linear_attn.in_proj_ba",), ("linear_attn.out_proj",)),
}
_LATENT = _names(
    ("self_attn.q_b_proj", "", "", "self_attn.o_proj"),
    attention_latent=(("self_attn.q_a_proj",), ("self_attn.kv_a_proj_with_mqa",), ("self_attn.kv_b_proj",)),
    indexer=(("self_attn.indexer.wq_b",), ("self_attn.indexer.wk",), ("self_attn.indexer.weights_proj",)),
    routed_experts=_gated("mlp.experts.0"),
    shared_experts=_gated("mlp.shared_experts"),
)  # the router is a parameter and no linear layer
_WHOLE_QUERIES: Names = {
    **_LATENT,
    "attention_q": (("self_attn.q_proj",),),
    "attention_latent": (("self_attn.kv_a_proj_with_mqa",), ("self_attn.kv_b_proj",)),
}
_DEEPSEEK_V4 = _names(
    ("attn.wq_b", "", "", "attn.wo_a"),
    outside=("embed", "head"),
    router=(("ffn.gate",),),
    routed_experts=_gated("ffn.experts.0", "w1", "w3", "w2"),
    shared_experts=_gated("ffn.shared_experts", "w1", "w3", "w2"),
)
_NEMOTRON_H = _names(
    tuple(f"mixer.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")),
    (("mixer.up_proj",), ("mixer.down_proj",)),
    ("embeddings", "lm_head"),
    recurrent=(("mixer.in_proj",), ("mixer.out_proj",)),
    routed_experts=(("mixer.experts.0.up_proj",), ("mixer.experts.0.down_proj",)),
    shared_experts=(("mixer.shared_experts.up_proj",), ("mixer.shared_experts.down_proj",)),
)
_MINIMAX_M3 = _names(
    indexer=(("self_attn.index_q_proj",), ("self_attn.index_k_proj",)),
    router=(("block_sparse_moe.gate",),),
    routed_experts=_gated("block_sparse_moe.experts.0", "w1", "w3", "w2"),
    shared_experts=_gated("block_sparse_moe.shared_experts"),
)

_DENSE = (
    "llama", "mistral", "ministral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "cohere",
    "cohere2", "olmo", "olmo2", "olmo3", "granite", "smollm3", "seed_oss", "exaone4", "stablelm", "ernie4_5", "helium",
    "internlm", "internlm3", "orion", "xverse", "minicpm", "iquestcoder", "mimo", "nemotron-nas",
)  # fmt: skip
_WITH_TOWER = (
    "mistral3", "gemma3", "llava", "voxtral", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen2_audio",
    "videollama3_qwen2",
)  # fmt: skip
_LATENT_TYPES = (
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe_lite", "youtu",
    "axk1", "sarvam_mla",
)  # fmt: skip

MODULE_NAMES: dict[str, Names] = {
    **dict.fromkeys((*_DENSE, *_WITH_TOWER), _LLAMA),
    **dict.fromkeys(("glm", "glm4"), _FUSED_MLP),
    **dict.fromkeys(("phi3", "phi3_v"), _PHI3),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel", "bloom"), _FALCON),
    **dict.fromkeys(("qwen3_moe", "olmoe"), _MOE),
    **dict.fromkeys(("mixtral", "phimoe", "minimax_m2"), _MIXTRAL),
    **dict.fromkeys(_LATENT_TYPES, _LATENT),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text"), _QWEN35),
    **dict.fromkeys(("qwen3_5_moe", "qwen3_5_moe_text"), _QWEN35_MOE),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl"), _MINIMAX_M3),
    "phi": _PHI,
    "starcoder2": _STARCODER2,
    "nemotron": _NEMOTRON,
    "opt": _OPT,
    "gpt_neox": _GPT_NEOX,
    "gptj": _GPTJ,
    "mpt": _MPT,
    "chatglm": _CHATGLM,
    "baichuan": _BAICHUAN,
    "internlm2": _INTERNLM2,
    "exaone": _EXAONE,
    "qwen": _QWEN1,
    "qwen2_moe": _QWEN2_MOE,
    "qwen3_next": _QWEN3_NEXT,
    "glm4_moe": _GLM4_MOE,
    "ernie4_5_moe": _ERNIE_MOE,
    "hunyuan_v1_moe": _HUNYUAN_MOE,
    "llama4": _LLAMA4,
    "gemma4": _GEMMA4,
    "gpt_oss": _GPT_OSS,
    "deepseek_v4": _DEEPSEEK_V4,
    "nemotron_h": _NEMOTRON_H,
}
"""The names of each family's modules; a family that is not here has no scheme that asks for names."""

DENSE = frozenset(_DENSE) | {
    "glm", "glm4", "phi", "phi3", "starcoder2", "nemotron", "opt", "gpt_neox", "gptj", "falcon", "RefinedWeb",
    "RefinedWebModel", "bloom", "mpt", "chatglm", "baichuan", "internlm2", "exaone", "qwen",
}  # fmt: skip
"""Families without experts and towers, whose every matrix inside the layers is a linear layer."""

SEPARATE_EXPERTS = frozenset(
    {"qwen3_moe", "qwen2_moe", "qwen3_next", "qwen3_5_moe", "olmoe", "mixtral", "phimoe", "minimax_m2", "glm4_moe",
     "ernie4_5_moe", "hunyuan_v1_moe", "minimax_m3_vl", "gemma4", "nemotron_h", *_LATENT_TYPES}
)  # fmt: skip
"""Families whose quantized checkpoints hold each projection of each expert as a tensor of its own."""

WITH_TOWER = frozenset(_WITH_TOWER)
"""Dense families with a tower that no quantization here touches."""


def module_names(model_type: str, outer: ConfigView) -> Names:
    """The names of a family's modules as `outer` has them; none where the family is not known."""
    inner = outer.data.get("text_config")
    text = inner if isinstance(inner, Mapping) else outer.data
    if model_type in _LATENT_TYPES and text.get("q_lora_rank") is None:
        return _WHOLE_QUERIES
    return MODULE_NAMES.get(model_type, {})
