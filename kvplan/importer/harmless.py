"""Config keys that cannot change memory, each with the reason; any other key that no rule reads is refused."""

from __future__ import annotations

import re

_WHY: dict[str, str] = {
    name: reason
    for reason, names in {
        "positions are computed, not stored": """rope_theta rope_scaling rope_parameters rope_local_base_freq rotary_pct
            rotary_emb_base partial_rotary_factor rope_interleave rope_type original_max_position_embeddings""",
        "only used in training": """initializer_range router_aux_loss_coef aux_loss_alpha seq_aux
            output_router_logits pretraining_tp router_z_loss_coef""",
        "names or token ids": """architectures model_type transformers_version _name_or_path name_or_path auto_map
            bos_token_id eos_token_id pad_token_id tokenizer_class id2label label2id""",
        "an activation or a scale, not a tensor": """hidden_act hidden_activation rms_norm_eps layer_norm_eps
            layer_norm_epsilon norm_eps routed_scaling_factor norm_topk_prob scoring_func topk_method n_group topk_group
            final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar""",
        "a run-time choice": """use_cache _attn_implementation attn_implementation output_attentions
            output_hidden_states return_dict gradient_checkpointing""",
    }.items()
    for name in names.split()
}

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r".*_token_(id|index)s?"), "a token id"),
    (re.compile(r".*(dropout|drop_rate|_pdrop)(_prob)?"), "only used in training"),
)


def why_harmless(name: str) -> str | None:
    """Why `name` cannot change memory, or None where nobody has shown that."""
    found = _WHY.get(name)
    if found:
        return found
    return next((reason for pattern, reason in _PATTERNS if pattern.fullmatch(name)), None)
