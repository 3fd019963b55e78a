"""Settings of ai-toolkit that change nothing of what zdoctor's runner learns, where nothing asks for them.

Each is of speed, memory, caches, logs or samples, of a kind of model or data that the runner does not take, or of a
setting that is refused. What is not here is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.words import words

# Of each section, of which a list index is `*`.
_WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "": words(
        "log_dir lorm_extract_mode lorm_extract_mode_param performance_log_every sqlite_db_path torch_profiler"
    ),
    "network": words("conv conv_alpha split_multistage_loras"),
    "train": words(
        """
        adapter_assist_type adapter_lr attention_backend audio_loss_multiplier batch_noise_correction_scale
        bypass_guidance_embedding cfg_rescale correct_pred_norm_multiplier diff_output_preservation_class
        diffusion_feature_extractor_weight do_fft_velocity_equiv_weight do_guidance_loss_cfg_zero embedding_lr
        force_first_sample guidance_loss_schedule latent_feature_loss_weight max_cfg_scale max_loss_debug
        max_negative_prompts merge_network_on_save_strength negative_prompt next_sample_timesteps
        paramiter_swapping_factor refiner_lr sdp short_and_long_captions_encoder_split show_turbo_outputs
        signal_amplification_strength signal_correction_noise_scale switch_boundary_every t0_velocity_equiv_weight
        target_norm_std_value text_encoder_lr train_refiner unconditional_prompt unet_lr validation_config
        weight_jitter xformers
        """
    ),
    "model": words(
        """
        attn_masking cache_size_limit compile_dynamic compile_fullgraph dtype experimental_xl is_auraflow is_flux
        is_lumina2 is_pixart is_pixart_sigma is_ssd is_v2 is_v3 is_v_pred is_vega is_xl latent_space_version
        layer_offloading_text_encoder_percent qtype qtype_te refiner_start_at
        split_model_other_module_param_count_scale te_device te_dtype
        text_encoder_bits unet_sample_size use_flux_cfg use_text_encoder_1 use_text_encoder_2 vae_device
        vae_dtype
        """
    ),
    "save": words("hf_private hf_repo_id save_format"),
    "logging": words("use_ui_logger verbose"),
    "datasets/*": words(
        """
        audio_normalize audio_preserve_pitch cache_clip_vision_to_disk cache_latents_num_workers
        cache_tensors_to_disk clip_image_augmentations clip_image_shuffle_augmentations control_transparent_color
        debug diff_output_preservation_class do_audio do_i2v fast_image_size fps full_size_control_images
        guidance_type keep_tokens load_image_when_caching_latents num_controls_from_same_folder num_workers
        prefetch_factor random_triggers_max replay_transforms shrink_video_to_frames shuffle_augmentations
        trim_auto_frame_count_tail
        """
    ),
}
# Sections of which nothing is learnt.
_IDLE = ("guidance", "sample", "first_sample", "train/validation_config")


def without_effect(key: str) -> bool:
    """Whether what is learnt is the same whatever is written there."""
    section, _, name = re.sub(r"/\d+(?=/)", "/*", key).rpartition("/")
    return name in _WITHOUT_EFFECT.get(section, ()) or f"{key}/".startswith(tuple(f"{one}/" for one in _IDLE))
