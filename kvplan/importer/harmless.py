"""Config keys that cannot change memory, each with the reason; any other key that no rule reads is refused."""

from __future__ import annotations

import re

_WHY: dict[str, str] = {
    name: reason
    for reason, names in {
        "positions are computed, not stored": """alibi attn_rotary_emb compress_rope_theta indexer_rope_interleave
            initial_context_length interpolate_factor mla_use_nope original_max_position_embeddings original_rope
            partial_rotary_factor pos_emb position_embedding_type position_embedding_xdrope rope_interleave
            rope_interleaved rope_local_base_freq rope_parameters rope_pct rope_ratio rope_scaling rope_theta
            rope_type rotary_dim rotary_emb_base rotary_pct theta use_dynamic_ntk use_mrope use_pos_enc
            use_rotary_pos_emb xdrope_section""",
        "only used in training": """aux_loss_alpha block_mlp_init_scale block_out_init_scale block_use_xavier_init
            conv_use_xavier_init embedding_initializer_range final_w_init_variance_scale init_method init_std
            initializer_range input_jitter_noise moe_random_routing_dropped_token moe_use_aux_free
            mtp_loss_scaling_factor neftune_noise_alpha output_router_logits pretraining_tp rescale_prenorm_residual
            router_aux_loss_coef router_jitter_noise router_z_loss_coef seq_aux summary_activation
            summary_proj_to_labels summary_type summary_use_proj time_step_init_scheme w_init_variance_scale
            z_loss_coefficient""",
        "names or token ids": """_name_or_path architectures auto_map bos_token_id eos_token eos_token_id id2label
            im_end_id im_newline_id im_start_id is_llama_config label2id mask_init_id max_tokenizer_truncation
            model_type n_special name_or_path org_vocab_size pad_id pad_token pad_token_id predict_special_tokens
            text_end_id text_start_id tokenizer tokenizer_class tokenizer_type transformers_version video_end_id
            video_start_id""",
        "an activation or a scale, not a tensor": """activation apply_query_key_layer_scaling
            apply_residual_connection_post_layernorm attention_in_multiplier attention_multiplier
            attention_out_multiplier attention_softmax_in_fp32 attn_logit_softcapping attn_scale
            attn_temperature_tuning block_norm_eps clip_qkv dim_model_base embedding_multiplier
            final_logit_softcapping floor_scale fp32_residual_connection full_attn_alpha_factor
            full_attn_beta_factor group_limited_greedy hc_eps hc_sinkhorn_iters hidden_act hidden_activation
            hidden_mamba_act kda_lower_bound kda_safe_gate key_multiplier layer_norm_eps layer_norm_epsilon
            layernorm_epsilon layernorm_full_attention_alpha layernorm_full_attention_beta
            layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta
            linear_attn_alpha_factor linear_attn_beta_factor lm_head_multiplier logit_scale logits_scaling
            logits_soft_cap mamba_hidden_act mamba_norm_before_gate mask_value masked_softmax_fusion mixer_rms_eps
            mlp_alpha_factor mlp_beta_factor mlp_hidden_act mlp_multipliers moe_gate moe_norm_min moe_renormalize
            moe_router_activation_func mup_enabled n_group norm_before_gate norm_eps norm_epsilon norm_topk_prob
            norm_type num_expert_group num_expert_groups num_limited_groups output_gate_type postnorm
            query_pre_attn_scalar reorder_and_upcast_attn residual_multiplier rms_norm_eps route_norm route_scale
            routed_scaling_factor scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights
            scale_depth scale_emb score_func scoring_func shared_moe_mode slow_but_exact softmax_in_fp32
            ssm_in_multiplier ssm_multipliers ssm_out_multiplier swiglu_alpha swiglu_limit time_step_floor
            time_step_limit time_step_max time_step_min time_step_scale topk_group topk_method use_gemma_norm
            use_grouped_topk use_logn_attn""",
        "a run-time choice": """_attn_implementation attn_implementation bf16 bias_dropout_fusion
            cache_implementation ep_size flash_attn flash_rotary fp16 fp32 fused_add_norm fused_dense
            gradient_checkpointing inference_runner is_causal mamba_chunk_size max_batch_size moe_capacity
            moe_drop_tokens moe_router_dtype moe_shared_expert_overlap num_logits_to_keep offset_alibi onnx_safe
            output_attentions output_hidden_states pad_key_length params_dtype pre_allocate_kv_cache
            residual_in_fp32 return_dict runner_max_sequence_length skip_bias_add skip_bias_add_qkv
            use_associative_scan use_cache use_falcon_mambapy use_flash_attn use_grouped_mm use_mamba_kernels
            use_mambapy validate_runner_input""",
        "a setting of the projector's arithmetic": """activation_function
            attention_invalid_logits_value encoder_layerdrop gradient_clipping ignore_index image_seq_length
            initializer_factor layerdrop projector_hidden_act projector_ln_eps residual_weight scale_embedding
            use_clipped_linears vision_feature_select_strategy""",
        "how images and audio are cut into tokens, not a tensor": """do_image_splitting
            encoder_patch_size image_grid_pinpoints max_image_tokens max_pixels_tolerance max_tiles min_image_tokens
            min_tiles mm_tokens_per_image position_id_per_seconds process_image_mode seconds_per_chunk tile_size
            use_image_special_tokens use_thumbnail use_unified_vision_chunk video_placeholder
            vision_segment_max_frames vision_soft_tokens_per_image""",
        "how text is generated, not the model": """bad_words_ids begin_suppress_tokens diversity_penalty do_sample
            early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty max_length
            max_new_tokens min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores
            prefix remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature top_k
            top_p typical_p""",
        "a remnant of training, saving or another framework": """_attn_implementation_autoset _flash_attn_2_enabled
            _from_model_config _num_labels chunk_size_feed_forward custom_pipelines finetuning_task
            for_llm_compressor init_config init_device nope_layer_interval output_past problem_type
            task_specific_params tf_legacy_loss tokenizer_name torchscript unsloth_fixed unsloth_version
            use_bfloat16 verbose""",
    }.items()
    for name in names.split()
}

_HARMLESS_WHEN_OFF = {
    "add_cross_attention", "cross_attention_hidden_size", "is_decoder", "is_encoder_decoder", "prefix_projection",
    "pruned_heads", "quantization_bit", "tie_encoder_decoder", "use_cache_kernel", "use_cache_quantization",
}  # fmt: skip
"""Switches that change memory only where they are on: false, null and empty are passed over."""

_HARMLESS_AT: dict[str, tuple[object, str]] = {
    "attention_method": ("MLA", "the class of this family builds nothing else"),
    "moe_layer_freq": (1, "every layer after the dense ones holds experts"),
    "skip_vision": (True, "MLX leaves the tower as it is when it quantizes, which is how towers are counted"),
    "use_shared_mlp_adapter": (True, "the class of this family builds nothing else"),
    "zero_expert_type": ("identity", "an expert that gives back what it gets has no weights"),
}
"""Settings that change memory only where they have another value."""

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
    if name in _HARMLESS_AT and value == _HARMLESS_AT[name][0]:
        return _HARMLESS_AT[name][1]
    return next((reason for pattern, reason in _PATTERNS if pattern.fullmatch(name)), None)
