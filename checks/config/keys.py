"""The keys that ai-toolkit reads, section by section.

Extracted from the syntax trees of toolkit/config_modules.py and of the training processes at commit 27a03a91
(2026-08-21). `*` stands for a list index, "" for the process itself. What lies below a key that is no section
here (network_kwargs, optimizer_params, model_kwargs, ...) is handed on as it is and never called unknown.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMMIT = "27a03a91"

SECTIONS: dict[str, frozenset[str]] = {
    "": _words("""
        adapter datasets decorator device do_lorm embedding first_sample guidance log_dir logging
        lorm_extract_mode lorm_extract_mode_param model name network performance_log_every sample save
        sqlite_db_path torch_profiler train training_folder training_seed trigger_word type
        """),
    "network": _words("""
        all_layers alpha conv conv_alpha dropout layer_offloading linear linear_alpha lokr_factor
        lokr_full_rank lorm network_kwargs old_lokr_format pretrained_lora_path rank split_multistage_loras
        transformer_only type
        """),
    "network/lorm": _words("do_conv extract_mode extract_mode_param module_settings parameter_threshold"),
    "network/lorm/module_settings/*": _words("contains extract_mode extract_mode_param parameter_threshold"),
    "train": _words("""
        adapter_assist_name_or_path adapter_assist_type adapter_lr adaptive_scaling_factor attention_backend
        audio_loss_multiplier batch_noise_correction_scale batch_size blank_prompt_preservation
        blank_prompt_preservation_multiplier blended_blur_noise bypass_guidance_embedding
        cache_text_embeddings cfg_rescale cfg_scale content_or_style correct_pred_norm
        correct_pred_norm_multiplier diff_output_preservation diff_output_preservation_class
        diff_output_preservation_multiplier differential_guidance_scale diffusion_feature_extractor_path
        diffusion_feature_extractor_weight disable_sampling do_batch_noise_correction do_blank_stabilization
        do_cfg do_differential_guidance do_fft_loss do_fft_velocity_equiv_weight do_guidance_loss
        do_guidance_loss_cfg_zero do_paramiter_swapping do_prior_divergence do_random_cfg
        do_signal_amplification do_signal_correction_noise dtype dynamic_noise_offset ema_config embedding_lr
        force_consistent_noise force_first_sample free_u gradient_accumulation gradient_accumulation_steps
        gradient_checkpointing guidance_loss_schedule guidance_loss_target img_multiplier inverted_mask_prior
        inverted_mask_prior_multiplier latent_feature_extractor_path latent_feature_loss_weight
        latent_multiplier learnable_snr_gos linear_timesteps linear_timesteps2 loss_target loss_type lr
        lr_scheduler lr_scheduler_params match_adapter_assist match_adapter_chance match_noise_norm
        max_cfg_scale max_denoising_steps max_grad_norm max_loss max_loss_debug max_negative_prompts
        merge_network_on_save merge_network_on_save_strength min_denoising_steps min_snr_gamma negative_prompt
        next_sample_timesteps noise_multiplier noise_offset noise_scheduler noisy_latent_multiplier
        num_train_timesteps optimal_noise_pairing_samples optimizer optimizer_params paramiter_swapping_factor
        pred_scaler prompt_dropout_prob prompt_saturation_chance random_noise_multiplier random_noise_shift
        refiner_lr reg_weight sdp short_and_long_captions short_and_long_captions_encoder_split
        show_turbo_outputs signal_amplification_strength signal_correction_noise_scale single_item_batching
        skip_first_sample snr_gamma standardize_images standardize_latents start_step steps
        switch_boundary_every t0_loss_target t0_velocity_equiv_weight target_noise_multiplier target_norm_std
        target_norm_std_value text_encoder_lr timestep_type train_refiner train_text_encoder train_turbo
        train_unet unconditional_prompt unet_lr unload_text_encoder validation_config weight_jitter xformers
        """),
    "train/ema_config": _words("ema_decay param_multiplier use_ema use_feedback"),
    "train/validation_config": _words("resolution validate_every_n_steps validation_items validation_sigmas"),
    "train/validation_config/validation_items/*": _words("image_path prompt"),
    "model": _words("""
        accuracy_recovery_adapter arch assistant_lora_path attn_masking auto_memory block_compile
        cache_size_limit compile compile_dynamic compile_fullgraph compile_mode dtype experimental_xl
        extras_name_or_path ignore_if_contains in_context inference_lora_path is_auraflow is_flux is_lumina2
        is_pixart is_pixart_sigma is_ssd is_v2 is_v3 is_v_pred is_vega is_xl latent_space_version
        layer_offloading layer_offloading_text_encoder_percent layer_offloading_transformer_percent lora_path
        low_vram model_kwargs model_paths name_or_path only_if_contains qtype qtype_te quantize
        quantize_kwargs quantize_te refiner_name_or_path refiner_start_at
        split_model_other_module_param_count_scale split_model_over_gpus te_device te_dtype te_name_or_path
        text_encoder_bits unconditional_lora_path unet_path unet_sample_size use_flux_cfg use_text_encoder_1
        use_text_encoder_2 vae_device vae_dtype vae_path
        """),
    "save": _words("""
        dtype hf_private hf_repo_id max_step_saves_to_keep push_to_hub save_every save_format
        """),
    "sample": _words("""
        adapter_conditioning_scale do_cfg_norm extra_values format fps guidance_rescale guidance_scale height
        neg network_multiplier num_frames prompts refiner_start_at sample_every sample_start_step sample_steps
        sampler samples seed walk_seed width
        """),
    "sample/samples/*": _words("""
        ctrl_idx ctrl_img ctrl_img_1 ctrl_img_2 ctrl_img_3 do_cfg_norm fps guidance_scale height neg
        network_multiplier num_frames prompt sample_steps seed width
        """),
    "first_sample": _words("""
        adapter_conditioning_scale do_cfg_norm extra_values format fps guidance_rescale guidance_scale height
        neg network_multiplier num_frames prompts refiner_start_at sample_every sample_start_step sample_steps
        sampler samples seed walk_seed width
        """),
    "first_sample/samples/*": _words("""
        ctrl_idx ctrl_img ctrl_img_1 ctrl_img_2 ctrl_img_3 do_cfg_norm fps guidance_scale height neg
        network_multiplier num_frames prompt sample_steps seed width
        """),
    "datasets/*": _words("""
        alpha_mask audio_normalize audio_preserve_pitch augmentations augments auto_frame_count batch_size
        bucket_tolerance buckets cache_clip_vision_to_disk cache_latents cache_latents_num_workers
        cache_latents_to_disk cache_tensors_to_disk cache_text_embeddings caption_dropout_rate caption_ext
        caption_type clip_image_augmentations clip_image_from_same_folder clip_image_path
        clip_image_shuffle_augmentations control_from_same_folder control_path control_path_1 control_path_2
        control_path_3 control_transparent_color controls dataset_path debug default_caption
        diff_output_preservation diff_output_preservation_class do_audio do_i2v extra_values fast_image_size
        flip_x flip_y folder_path fps full_size_control_images guidance_type inpaint_path invert_mask is_reg
        keep_tokens load_image_when_caching_latents loss_multiplier mask_min_value mask_path network_weight
        num_controls_from_same_folder num_frames num_repeats num_workers poi prefetch_factor prior_reg
        random_crop random_scale random_triggers random_triggers_max replacements replay_transforms resolution
        scale shrink_video_to_frames shuffle_augmentations shuffle_tokens square_crop standardize_images
        token_dropout_rate trigger_word trim_auto_frame_count_tail type unconditional_path use_short_captions
        """),
    "logging": _words("log_every project_name run_name use_ui_logger use_wandb verbose"),
    "guidance": _words("guidance_scale negative_prompt positive_prompt target_class"),
    "embedding": _words("init_words save_format tokens trigger trigger_class_name"),
    "decorator": _words("num_tokens"),
    "adapter": _words("""
        adapter_type channels class_names clip_layer control_image_dropout conv_pooling conv_pooling_stacks
        downscale_factor flux_only_double has_inpainting_input head_dim i2v_do_start_frame ilora_down
        ilora_mid ilora_up image_dir image_encoder_arch image_encoder_path in_channels
        invert_inpaint_mask_chance lora_config merge_scaler name_or_path num_cloned_blocks num_control_images
        num_heads num_res_blocks num_tokens pixtral_max_image_size pixtral_random_image_size quad_image
        quantize_llm safe_channels safe_reducer_channels safe_tokens scaler_lr sparse_autoencoder_dim
        subpixel_downscale_factor test_img_path text_encoder_arch text_encoder_path train train_image_encoder
        train_only_image_encoder train_only_image_encoder_positional_embedding train_scaler trigger
        trigger_class_name type
        """),
    "adapter/lora_config": _words("""
        all_layers alpha conv conv_alpha dropout layer_offloading linear linear_alpha lokr_factor
        lokr_full_rank lorm network_kwargs old_lokr_format pretrained_lora_path rank split_multistage_loras
        transformer_only type
        """),
}

ARCHITECTURES = _words("""
    ace_step_15 ace_step_15_xl anima auraflow boogu_image boogu_image_edit chroma chroma_radiance cogview4
    ernie_image example f-lite flex1 flex2 flux flux2 flux2_klein_4b flux2_klein_9b flux_kontext hidream
    hidream_e1 hidream_o1 ideogram4 krea2 ltx2 ltx2.3 ltx2.5 lumina2 mageflow mageflow_edit minimax_h3
    minimax_h3_ref2va nucleus_image omnigen2 pixart pixart_sigma prx_pixel qwen_image qwen_image_edit
    qwen_image_edit_plus sapiens2_1b sd sd1 sd15 sd2 sd3 sdxl ssd vega wan21 wan21_i2v wan22_14b wan22_14b_i2v
    wan22_5b zeta_chroma zimage zimage_l2p
    """)
DTYPES = _words("8bit bf16 bfloat16 e4m3fn float float16 float32 float8 fp16 fp32 half single")
QTYPES = _words("""
    convrot4 convrot8 convrotbitnet convrotcomfyw4a4 convrotint2 convrotint3 convrotint4 convrotint5
    convrotint6 convrotint7 convrotint8 float8 int8 nvfp4 orbit2 orbit3 orbit4 orbitvq2 orbitvq3 orbitvq4
    qfloat8 qfloat8_e4m3fn qfloat8_e4m3fnuz qfloat8_e5m2 qint2 qint4 qint8 uint2 uint3 uint4 uint5 uint6 uint7
    uint8
    """)
OPTIMIZERS = _words("""
    adafactor adagrad adam adam8 adam8bit adamw adamw8 adamw8bit ademamix8bit automagic automagic2 automagic3
    automagicexperiment dadaptation dadaptationadam dadaptationlion lion lion8bit prodigy prodigy8bit
    """)
SCHEDULERS = _words("constant constant_with_warmup cosine cosine_with_restarts linear")
BROKEN_SCHEDULERS = _words("piecewise_constant polynomial step")
TIMESTEP_TYPES = _words("""
    eight_step flux_shift four_step linear lognorm_blend lumina2_shift next_sample one_step shift sigmoid
    two_step weighted
    """)
LOSS_TYPES = _words("mae mean_flow mse pseudo_huber stepped wavelet")
PROCESS_TYPES = _words("""
    AceStepCaptioner Ideogram4Captioner Qwen3OmniCaptioner Qwen3VLCaptioner batch_img2img concept_replacer
    concept_slider dataset_tools diffusion_trainer example_merge_extension image_reference_slider_trainer
    pure_lora_generator reference_generator sd_trainer super_tagger sync_from_collection
    textual_inversion_trainer ui_trainer ultimate_slider_trainer
    """)
# models whose LoRA is saved in the PEFT layout, which has no alpha, and which train by flow matching
TRANSFORMERS = _words("""
    chroma chroma_radiance cogview4 f-lite flex2 flux flux2 flux2_klein_4b flux2_klein_9b flux_kontext hidream
    hidream_e1 krea2 lumina2 omnigen2 qwen_image qwen_image_edit qwen_image_edit_plus sd3 wan21 wan21_i2v
    wan22_14b wan22_14b_i2v wan22_5b zimage zimage_l2p
    """)

# keys that the trainer computes with, and keys that it takes for true or false
NUMBERS: dict[str, frozenset[str]] = {
    "train": _words("""
        steps lr unet_lr text_encoder_lr batch_size gradient_accumulation gradient_accumulation_steps
        max_grad_norm min_denoising_steps max_denoising_steps num_train_timesteps noise_offset start_step
        switch_boundary_every guidance_loss_target differential_guidance_scale reg_weight max_loss
        """),
    "train/ema_config": _words("ema_decay"),
    "network": _words("linear rank linear_alpha alpha conv conv_alpha dropout lokr_factor"),
    "save": _words("save_every max_step_saves_to_keep"),
    "sample": _words("sample_every sample_start_step width height guidance_scale sample_steps num_frames fps"),
    "sample/samples/*": _words("width height guidance_scale sample_steps num_frames fps"),
    "datasets/*": _words("num_repeats num_frames fps bucket_tolerance keep_tokens loss_multiplier"),
    "model": _words("layer_offloading_transformer_percent layer_offloading_text_encoder_percent"),
    "logging": _words("log_every"),
    "": _words("performance_log_every"),
}
FLAGS: dict[str, frozenset[str]] = {
    "train": _words("""
        train_unet train_text_encoder gradient_checkpointing skip_first_sample force_first_sample disable_sampling
        unload_text_encoder cache_text_embeddings diff_output_preservation blank_prompt_preservation
        do_guidance_loss do_differential_guidance bypass_guidance_embedding
        """),
    "train/ema_config": _words("use_ema"),
    "model": _words("quantize quantize_te low_vram layer_offloading compile attn_masking split_model_over_gpus"),
    "save": _words("push_to_hub"),
    "sample": _words("walk_seed"),
    "datasets/*": _words("buckets is_reg flip_x flip_y cache_latents cache_latents_to_disk cache_text_embeddings"),
}
