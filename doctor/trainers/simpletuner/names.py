"""Names that SimpleTuner takes for its options beside the present ones (bc8e6ab7)."""

from __future__ import annotations

from collections.abc import Mapping

from ...configs.words import words

# cli_utils: legacy handlers
RENAMED: Mapping[str, str] = {
    "save_total_limit": "checkpoints_total_limit",
    "validation_steps": "validation_step_interval",
    "checkpointing_steps": "checkpoint_step_interval",
}
# cli_utils: options that keep a mapping or a list; every other one loses it
JSON_OPTIONS = words(
    """
    webhook_config deepspeed_config distillation_config publishing_config peft_lora_target_modules tread_config
    diffusion_blocks_config modelspec_comment flow_cubic_schedule_weights validation_input
    ltx2_intrinsic_conditioning validation_ltx2_video_conditioning
    """
)
# optimizer_param.optimizer_choices, with all the packages that some come from, and those that were taken out
OPTIMIZERS = words(
    """
    adamw_bf16 adamw_schedulefree adamw_schedulefree+aggressive adamw_schedulefree+no_kahan ao-adamfp8 ao-adamw4bit
    ao-adamw8bit ao-adamwfp8 bnb-adagrad bnb-adagrad8bit bnb-adam bnb-adam8bit bnb-adamw bnb-adamw-paged bnb-adamw8bit
    bnb-adamw8bit-paged bnb-ademamix bnb-ademamix-paged bnb-ademamix8bit bnb-ademamix8bit-paged bnb-lion
    bnb-lion-paged bnb-lion8bit bnb-lion8bit-paged muon optimi-adam optimi-adamw optimi-adan optimi-lion optimi-radam
    optimi-ranger optimi-sgd optimi-stableadamw prodigy sdnq-adafactor sdnq-adamw sdnq-adamw+no_quant sdnq-came
    sdnq-lion sdnq-muon sdnq-muon+quantized_matmul soap torch-adadelta torch-adafactor torch-adagrad torch-adam
    torch-adamax torch-adamw torch-asgd torch-nadam torch-radam torch-rmsprop torch-sgd torch-sparseadam
    """
)
REMOVED_OPTIMIZERS = words("adafactor adamw8bit dadaptation")
_OTHERS: Mapping[str, str] = {
    "RESUME_CHECKPOINT": "resume_from_checkpoint",
    "DATALOADER_CONFIG": "data_backend_config",
    "TRAINING_SEED": "seed",
    "ACCELERATE_CONFIG_PATH": "accelerate_config",
    "USE_XFORMERS": "enable_xformers_memory_efficient_attention",
    "MINIMUM_RESOLUTION": "minimum_image_size",
    "PUSH_CHECKPOINTS": "push_checkpoints_to_hub",
    "MAX_NUM_STEPS": "max_train_steps",
    "NUM_EPOCHS": "num_train_epochs",
    "CHECKPOINTING_STEPS": "checkpoint_step_interval",
    "CHECKPOINTING_LIMIT": "checkpoints_total_limit",
    "HUB_MODEL_NAME": "hub_model_id",
    "MODEL_NAME": "pretrained_model_name_or_path",
    "USE_GRADIENT_CHECKPOINTING": "gradient_checkpointing",
    "VALIDATION_STEPS": "validation_step_interval",
    "LR_SCHEDULE": "lr_scheduler",
    "TRAINING_NUM_PROCESSES": "num_processes",
    "TRAINING_NUM_MACHINES": "num_machines",
}
_SAME = """
accelerate_extra_args allow_tf32 aspect_bucket_rounding aws_max_pool_connections base_model_precision
caption_dropout_probability checkpoint_epoch_interval checkpoint_step_interval deepfloyd_validation_pipeline_mode
deepfloyd_validation_stage1_guidance deepfloyd_validation_stage1_model deepfloyd_validation_stage1_num_inference_steps
deepfloyd_validation_stage2_guidance deepfloyd_validation_stage2_model deepfloyd_validation_stage2_num_inference_steps
deepfloyd_validation_stage3_guidance deepfloyd_validation_stage3_mode deepfloyd_validation_stage3_model
deepfloyd_validation_stage3_noise_level disable_benchmark enable_chunked_feed_forward feed_forward_chunk_size
flux_guidance_value flux_lora_target gradient_accumulation_steps gradient_checkpointing_offload_attention
gradient_checkpointing_offload_pin_memory_max_buckets gradient_checkpointing_offload_prefetch
gradient_checkpointing_segment_stride image_processing_batch_size inference_scheduler_timestep_spacing learning_rate
lora_type lr_end lr_warmup_steps ltx2_validation_audio_guidance ltx2_validation_pipeline_mode
ltx2_validation_spatial_upsampler_filename ltx2_validation_spatial_upsampler_model lycoris_config
metadata_update_interval mixed_precision model_card_safe_for_work model_family model_type optimizer output_dir
pixart_validation_pipeline_mode pixart_validation_stage1_model pixart_validation_stage2_model post_checkpoint_script
post_upload_script publishing_config push_to_hub push_to_hub_background quantization_config quantize_via
qwen_text_encoder_model_name_or_path read_batch_size resolution resolution_type sdnq_compile_mode sdnq_dequantize_fp32
sdnq_group_size sdnq_hadamard_group_size sdnq_modules_dtype_dict sdnq_modules_quant_config sdnq_modules_to_not_convert
sdnq_modules_to_not_use_matmul sdnq_quantized_matmul_dtype sdnq_svd_rank sdnq_svd_steps sdnq_use_hadamard
sdnq_use_quantized_matmul sdnq_use_static_quantization sdnq_use_stochastic_rounding sdnq_use_svd sdnq_weights_dtype
sdxl_validation_pipeline_mode sdxl_validation_stage1_model sdxl_validation_stage2_model text_cache_disable
text_cache_ondemand text_encoder_batch_size torch_num_threads tracker_project_name tracker_run_name train_batch_size
training_scheduler_timestep_spacing use_dora use_ema validate_after_epoch validate_after_step
validation_epoch_interval validation_external_background validation_external_script validation_guidance
validation_guidance_real validation_guidance_rescale validation_input validation_method validation_negative_prompt
validation_no_cfg_until_timestep validation_num_inference_steps validation_prompt validation_resolution
validation_seed validation_step_interval wan_validation_load_other_stage write_batch_size
"""
# env_file.env_to_args_map: a variable that is not here is not an option
VARIABLES: Mapping[str, str] = {**{name.upper(): name for name in _SAME.split()}, **_OTHERS}
