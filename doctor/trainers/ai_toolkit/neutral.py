"""Settings of ai-toolkit that change what is learnt and that the runner lacks: which values of them change nothing.

Null is harmless for all of them, and false, 0 and empty are one another's equal.
"""

from __future__ import annotations

from typing import Any

NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("train/adapter_assist_name_or_path", "train/adaptive_scaling_factor", "train/blended_blur_noise"),
            *("train/correct_pred_norm", "train/diffusion_feature_extractor_path", "train/do_batch_noise_correction"),
            *("train/do_blank_stabilization", "train/do_cfg", "train/do_fft_loss", "train/do_paramiter_swapping"),
            *("train/do_prior_divergence", "train/do_random_cfg", "train/do_signal_amplification"),
            *("train/do_signal_correction_noise", "train/dynamic_noise_offset", "train/force_consistent_noise"),
            *("train/free_u", "train/latent_feature_extractor_path"),
            *("train/learnable_snr_gos", "train/match_adapter_assist", "train/match_adapter_chance"),
            *("train/match_noise_norm", "train/prompt_saturation_chance", "train/short_and_long_captions"),
            *("train/single_item_batching", "train/standardize_images", "train/standardize_latents"),
            *("train/t0_loss_target", "train/target_norm_std", "train/weight_jitter"),
            *("network/all_layers", "network/lorm"),
            *("model/auto_memory", "model/ignore_if_contains", "model/in_context", "model/only_if_contains"),
            *("model/quantize_kwargs", "model/refiner_name_or_path", "model/unconditional_lora_path"),
        ),
        False,
    ),
    **dict.fromkeys(
        (
            *("train/ema_config/param_multiplier", "train/img_multiplier", "train/latent_multiplier"),
            *("train/noise_multiplier", "train/noisy_latent_multiplier", "train/optimal_noise_pairing_samples"),
            *("train/pred_scaler", "train/target_noise_multiplier"),
        ),
        1,
    ),
    "train/loss_target": "noise",
    "train/num_train_timesteps": 1000,
    "train/train_unet": True,
    "network/transformer_only": True,
}
OF_DATASETS: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("auto_frame_count", "clip_image_from_same_folder", "control_from_same_folder"),
            *("diff_output_preservation", "extra_values", "standardize_images", "use_short_captions"),
        ),
        False,
    ),
    "buckets": True,
    "network_weight": 1,
    "scale": 1,
    "type": "image",
}
# Settings of which any value counts but the harmless ones.
SWITCHES: dict[str, str] = {
    "train/train_text_encoder": "training the text encoder",
    "train/train_turbo": "turbo training",
    "train/noise_offset": "noise offset",
    "train/random_noise_shift": "random noise shift",
    "train/random_noise_multiplier": "random noise multiplier",
    "train/prompt_dropout_prob": "prompt dropout (write caption_dropout_rate on the dataset)",
    "train/merge_network_on_save": "merging the network on save",
    "train/min_snr_gamma": "min-SNR weighting",
    "train/snr_gamma": "SNR weighting",
    "train/start_step": "start_step",
    "train/ema_config/use_feedback": "EMA feedback",
    "network/lora_plus_ratio": "LoRA+",
    "network/old_lokr_format": "the old LoKr format",
    "network/layer_offloading": "layer offloading of the network",
    "model/accuracy_recovery_adapter": "an accuracy recovery adapter",
    "model/lora_path": "a LoRA merged into the base model",
    "model/inference_lora_path": "an inference LoRA",
    "model/split_model_over_gpus": "splitting the model over GPUs",
    "adapter": "an adapter section",
    "embedding": "an embedding section",
    "decorator": "a decorator section",
    "slider": "a slider section",
    "save/push_to_hub": "pushing to the hub",
}
# How control images are read; of an architecture that edits them, each must be this or not written.
CONTROL_SETTINGS: dict[str, Any] = {"full_size_control_images": True, "control_transparent_color": [0, 0, 0]}
CONTROL_PATHS = ("control_path", "control_path_1", "control_path_2", "control_path_3")
# Dataset settings that would change what is learnt.
DATASET_SWITCHES: dict[str, str] = {
    **dict.fromkeys(CONTROL_PATHS, "control images"),
    "controls": "control images",
    "inpaint_path": "inpainting images",
    "unconditional_path": "unconditional images",
    "clip_image_path": "CLIP images",
    "random_scale": "random scaling",
    "augments": "augmentations",
    "augmentations": "augmentations",
    "shuffle_tokens": "shuffled caption tokens",
    "token_dropout_rate": "token dropout",
    "random_triggers": "random triggers",
    "replacements": "caption replacements",
}

# What is written as text, and what as several settings; the reader takes another type for nothing.
TEXTS = ("trigger_word", "model/assistant_lora_path", "model/extras_name_or_path")
TEXTS_OF_DATASETS = ("trigger_word", "default_caption", "caption_ext", "mask_path", "dataset_path")
SECTIONS = ("train/ema_config", "train/optimizer_params", "train/lr_scheduler_params")


def harmless(value: Any, plain: Any) -> bool:
    """Whether `value` does what `plain` does."""
    return value is None or bool(value == plain) or (not value and not plain)
