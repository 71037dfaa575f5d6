"""Config keys that cannot change memory, each with the reason; any other key that no rule reads is refused."""

from __future__ import annotations

import re

_WHY: dict[str, str] = {
    name: reason
    for reason, names in {
        "positions are computed, not stored": """compress_rope_theta indexer_rope_interleave
            original_max_position_embeddings partial_rotary_factor position_embedding_xdrope rope_interleave
            rope_local_base_freq rope_parameters rope_scaling rope_theta rope_type rotary_dim rotary_emb_base
            rotary_pct use_rotary_pos_emb xdrope_section""",
        "only used in training": """aux_loss_alpha initializer_range input_jitter_noise
            moe_random_routing_dropped_token output_router_logits pretraining_tp router_aux_loss_coef
            router_jitter_noise router_z_loss_coef seq_aux""",
        "names or token ids": """_name_or_path architectures auto_map bos_token_id eos_token_id id2label im_end_id
            im_newline_id im_start_id label2id mask_init_id model_type name_or_path org_vocab_size pad_id
            pad_token_id text_end_id text_start_id tokenizer_class transformers_version video_end_id video_start_id""",
        "an activation or a scale, not a tensor": """attn_logit_softcapping attn_scale attn_temperature_tuning
            dim_model_base final_logit_softcapping floor_scale group_limited_greedy hc_eps hc_sinkhorn_iters
            hidden_act hidden_activation layer_norm_eps layer_norm_epsilon moe_norm_min mup_enabled n_group norm_eps
            norm_topk_prob norm_type num_expert_groups num_limited_groups query_pre_attn_scalar rms_norm_eps
            route_norm route_scale routed_scaling_factor scale_depth scale_emb score_func scoring_func swiglu_alpha
            swiglu_limit topk_group topk_method use_gemma_norm""",
        "a run-time choice": """_attn_implementation attn_implementation ep_size gradient_checkpointing
            moe_drop_tokens moe_router_dtype output_attentions output_hidden_states return_dict use_cache
            use_grouped_mm""",
        "a setting of the projector's arithmetic": """projector_hidden_act projector_ln_eps vision_feature_select_strategy
            ignore_index image_seq_length activation_function scale_embedding initializer_factor layerdrop
            encoder_layerdrop attention_invalid_logits_value gradient_clipping residual_weight use_clipped_linears""",
        "how images and audio are cut into tokens, not a tensor": """vision_soft_tokens_per_image mm_tokens_per_image
            video_placeholder use_unified_vision_chunk do_image_splitting encoder_patch_size max_image_tokens
            max_pixels_tolerance max_tiles min_image_tokens min_tiles tile_size use_image_special_tokens use_thumbnail
            image_grid_pinpoints process_image_mode vision_segment_max_frames position_id_per_seconds seconds_per_chunk""",
        "how text is generated, not the model": """bad_words_ids begin_suppress_tokens diversity_penalty do_sample
            early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty max_length
            max_new_tokens min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores
            prefix remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature top_k
            top_p typical_p""",
        "a remnant of training, saving or another framework": """_attn_implementation_autoset chunk_size_feed_forward
            finetuning_task for_llm_compressor problem_type task_specific_params tf_legacy_loss torchscript
            use_bfloat16""",
    }.items()
    for name in names.split()
}

_HARMLESS_WHEN_OFF = frozenset(
    "add_cross_attention cross_attention_hidden_size is_decoder is_encoder_decoder pruned_heads tie_encoder_decoder".split()
)
"""Switches that change memory only where they are on: false, null and empty are passed over."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r".*_token_(id|index)s?"), "a token id"),
    (re.compile(r".*(dropout|drop_rate|_pdrop)(_prob)?"), "only used in training"),
)


def why_harmless(name: str, value: object = True) -> str | None:
    """Why `name`, which has `value`, cannot change memory, or None where nobody has shown that."""
    found = _WHY.get(name)
    if found:
        return found
    if name in _HARMLESS_WHEN_OFF and not value:
        return "it is switched off"
    return next((reason for pattern, reason in _PATTERNS if pattern.fullmatch(name)), None)
