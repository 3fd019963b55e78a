"""Which settings of sd-scripts (48d368fa) and musubi-tuner (30c658c4) the runner obeys, and which it need not.

A setting of neither kind is refused where it is not at its default. The names stand once, whether they are options or
belong to datasets.
"""

from __future__ import annotations

from ...configs.words import words

# Names that musubi-tuner's dataset file still takes (dataset/config_utils.py deprecated_key_map).
RENAMED = {
    "flux_kontext_no_resize_control": "no_resize_control",
    "qwen_image_edit_no_resize_control": "no_resize_control",
    "qwen_image_edit_control_resolution": "control_resolution",
}

# Speed, memory, caches, logs and the trainer's own files: nothing of what is learnt.
APART = words(
    """
    async_upload block_swap_h2d_only block_swap_optimizer_patch_params block_swap_ring_size cache_directory
    cache_info cache_latents cache_latents_to_disk cache_text_encoder_outputs cache_text_encoder_outputs_to_disk
    compile compile_backend compile_cache_size_limit compile_dynamic compile_fullgraph compile_mode config_file
    console_log_file console_log_level console_log_simple cpu_offload_checkpointing cuda_allow_tf32
    cuda_cudnn_benchmark ddp_gradient_as_bucket_view ddp_static_graph ddp_timeout disable_mmap_load_safetensors
    disable_numpy_memmap dynamo_backend dynamo_dynamic dynamo_fullgraph dynamo_mode flash3 flash_attn
    gradient_checkpointing_cpu_offload highvram img_in_txt_in_offloading log_config log_prefix logging_dir lowram
    max_data_loader_n_workers mem_eff_attn metadata_arch metadata_is_negative_embedding metadata_merged_from
    metadata_preprocessor metadata_reso metadata_thumbnail metadata_trigger_phrase metadata_usage_hint
    no_half_vae no_metadata output_config persistent_data_loader_workers sage_attn sample_sampler
    save_last_n_epochs_state save_last_n_steps_state save_state save_state_on_train_end sdpa skip_cache_check
    split_attn split_mode text_encoder_batch_size tokenizer_cache_dir torch_compile
    use_pinned_memory_for_block_swap vae_batch_size vae_dtype xformers
    """
)
# What these scripts do not look at, for these models or without another setting that is refused.
UNREAD = words(
    """
    adaptive_noise_scale caption_separator clip_skip controlnet_model_name_or_path debiased_estimation_loss
    fp16_master_weights_and_gradients fp_1f_clean_indices fp_1f_no_post fp_1f_target_index fp_latent_window_size
    frame_extraction frame_sample frame_stride huber_c huber_scale huber_schedule huggingface_path_in_repo
    huggingface_repo_type huggingface_repo_visibility huggingface_token ip_noise_gamma_random_strength
    keep_tokens keep_tokens_separator max_frames max_token_length max_validation_steps min_snr_gamma
    multires_noise_discount multires_noise_iterations noise_offset noise_offset_random_strength
    offload_optimizer_device offload_optimizer_nvme_path offload_param_device offload_param_nvme_path
    resume_from_huggingface save_state_to_huggingface scale_v_pred_loss_like_noise_pred skip_until_initial_step
    source_fps target_frames text_encoder_lr token_warmup_min v2 v_parameterization v_pred_like_loss
    validate_every_n_epochs validate_every_n_steps validation_seed zero3_init_flag zero3_save_16bit_model
    zero_stage zero_terminal_snr
    """
)
# What counts beside certain values of other settings; there it is asked for.
BESIDE = words(
    """
    fp8_scaled masked_loss reg_data_dir train_data_dir vae wandb_api_key
    discrete_flow_shift guidance_scale logit_mean logit_std loss_type lr_decay_steps lr_scheduler_min_lr_ratio
    lr_scheduler_num_cycles lr_scheduler_power lr_scheduler_timescale max_bucket_reso max_timestep min_bucket_reso
    min_timestep bucket_no_upscale bucket_reso_steps mode_scale model_prediction_type preserve_distribution_shape
    prior_loss_weight save_last_n_epochs save_last_n_steps sigmoid_scale wandb_run_name log_tracker_name
    weighting_scheme
    """
)
WITHOUT_EFFECT = APART | UNREAD | BESIDE
# What is written into the LoRA's file.
METADATA = {
    "training_comment": "ss_training_comment",
    **{f"metadata_{name}": f"modelspec.{name}" for name in ("author", "description", "license", "tags", "title")},
}
