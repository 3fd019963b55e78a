"""The settings that kohya_ss, the GUI, saves as JSON, in the words of sd-scripts' options (45088f04)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...configs.words import options_in, words
from ...model import Value
from ...model.record import replace
from .starts import LISTS

_MARKS = ("flux1_checkbox", "LyCORIS_preset", "num_cpu_threads_per_process", "model_list", "max_resolution")
_RENAMED = {
    "max_resolution": "resolution",
    "optimizer": "optimizer_type",
    "LoRA_type": "network_module",
    "flux1_cache_text_encoder_outputs": "cache_text_encoder_outputs",
    "flux1_cache_text_encoder_outputs_to_disk": "cache_text_encoder_outputs_to_disk",
    "flux_fused_backward_pass": "fused_backward_pass",
}
_MODULES = {
    "Flux1": "networks.lora_flux",
    "Flux1 OFT": "networks.oft_flux",
    "Standard": "networks.lora",
    "Kohya LoCon": "networks.lora",
    "Kohya DyLoRA": "networks.dylora",
    "LoRA-FA": "networks.lora_fa",
    "Kohya LoHa": "networks.loha",
    "Kohya LoKr": "networks.lokr",
    "HunyuanImage-2.1": "networks.lora_hunyuan_image",
    "Anima": "networks.lora_anima",
    "Lumina": "networks.lora_lumina",
}
_BOXES = {
    "sdxl": "sdxl_",
    "flux1_checkbox": "flux_",
    "sd3_checkbox": "sd3_",
    "hunyuan_image_checkbox": "hunyuan_image_",
    "anima_checkbox": "anima_",
    "lumina_checkbox": "lumina_",
}
# what the GUI hands on to a LoRA training under its own name; everything else is its own affair
_FORWARDED = words(
    """
    adaptive_noise_scale ae apply_t5_attn_mask async_upload attn_mode blocks_to_swap bucket_no_upscale
    bucket_reso_steps byt5 cache_latents cache_latents_to_disk cache_text_encoder_outputs
    cache_text_encoder_outputs_to_disk caption_dropout_every_n_epochs caption_dropout_rate caption_extension
    clip_g clip_g_dropout_rate clip_l clip_l_dropout_rate clip_skip color_aug cpu_offload_checkpointing
    dataset_config debiased_estimation_loss dim_from_weights disable_mmap_load_safetensors
    discrete_flow_shift double_blocks_to_swap enable_bucket enable_scaled_pos_embed flip_aug fp8_base
    fp8_base_unet fp8_scaled fp8_vl full_bf16 full_fp16 fused_backward_pass gemma2 gemma2_max_token_length
    gradient_accumulation_steps gradient_checkpointing guidance_scale highvram huber_c huber_scale
    huber_schedule huggingface_path_in_repo huggingface_repo_id huggingface_repo_type
    huggingface_repo_visibility huggingface_token ip_noise_gamma ip_noise_gamma_random_strength keep_tokens
    learning_rate llm_adapter_path log_config log_tracker_config log_tracker_name log_with logging_dir
    logit_mean logit_std loss_type lr_scheduler lr_scheduler_args lr_scheduler_num_cycles lr_scheduler_power
    lr_scheduler_type lr_warmup_steps masked_loss max_bucket_reso max_grad_norm max_timestep
    max_token_length max_train_epochs max_train_steps mem_eff_attn mem_eff_save metadata_author
    metadata_description metadata_license metadata_tags metadata_title min_bucket_reso min_snr_gamma
    min_timestep mixed_precision mode_scale model_prediction_type model_type multires_noise_discount
    multires_noise_iterations network_alpha network_dim network_dropout network_train_text_encoder_only
    network_train_unet_only network_weights no_half_vae noise_offset noise_offset_random_strength
    optimizer_args optimizer_type output_dir output_name persistent_data_loader_workers
    pos_emb_random_crop_rate pretrained_model_name_or_path prior_loss_weight qwen3 qwen3_max_token_length
    random_crop reg_data_dir resolution resume resume_from_huggingface sample_every_n_epochs
    sample_every_n_steps sample_prompts sample_sampler save_clip save_every_n_epochs save_every_n_steps
    save_last_n_epochs save_last_n_epochs_state save_last_n_steps save_last_n_steps_state save_model_as
    save_precision save_state save_state_on_train_end save_state_to_huggingface save_t5xxl
    scale_v_pred_loss_like_noise_pred scale_weight_norms seed shuffle_caption sigmoid_scale
    single_blocks_to_swap skip_cache_check split_attn split_mode system_prompt t5_dropout_rate
    t5_max_token_length t5_tokenizer_path t5xxl t5xxl_device t5xxl_dtype t5xxl_max_token_length text_encoder
    text_encoder_batch_size text_encoder_cpu text_encoder_lr timestep_sampling torch_compile
    train_batch_size train_data_dir training_comment unet_lr unsloth_offload_checkpointing use_flash_attn
    use_sage_attn v2 v_parameterization v_pred_like_loss vae vae_batch_size vae_chunk_size vae_disable_cache
    wandb_api_key wandb_run_name weighted_captions weighting_scheme
    """
)


# what the GUI hands on to a Flux LoRA as network_args, where it is no nothing
_OF_NETWORK = words(
    """
    ggpo_beta ggpo_sigma img_attn_dim img_mlp_dim img_mod_dim in_dims loraplus_lr_ratio loraplus_text_encoder_lr_ratio
    loraplus_unet_lr_ratio module_dropout rank_dropout single_dim single_mod_dim split_qkv train_double_block_indices
    train_single_block_indices train_t5xxl txt_attn_dim txt_mlp_dim txt_mod_dim
    """
)
# a number that means "not set"
_ZERO = words(
    """
    max_train_steps max_train_epochs unet_lr text_encoder_lr seed lr_warmup lr_warmup_steps max_timestep min_timestep
    min_snr_gamma noise_offset adaptive_noise_scale ip_noise_gamma multires_noise_iterations v_pred_like_loss
    sample_every_n_epochs sample_every_n_steps save_every_n_epochs save_every_n_steps save_last_n_steps
    save_last_n_steps_state save_last_n_epochs save_last_n_epochs_state vae_batch_size blocks_to_swap
    """
)


def is_gui(tree: object) -> bool:
    """Whether a JSON text is what the GUI saves."""
    return isinstance(tree, dict) and ("LoRA_type" in tree or sum(mark in tree for mark in _MARKS) >= 2)


def is_of_another_tab(tree: object) -> bool:
    """Whether it is of a tab of the GUI that starts none of the scripts that are known here: Stable Cascade's."""
    return isinstance(tree, dict) and "effnet_checkpoint_path" in tree


def from_gui(values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """The script that the GUI starts, and the options that it writes for it; empty values it leaves out."""
    tree = {pointer[1:]: value for pointer, value in values.items() if pointer.count("/") == 1}

    plain = {name: value.value for name, value in tree.items()}
    prefix = next((prefix for box, prefix in _BOXES.items() if plain.get(box)), "")
    kind = plain.get("LoRA_type")
    options: dict[str, Value] = {}
    for name, value in tree.items():
        option = _RENAMED.get(name, name)
        if value.value in ("", False, None, []) or (value.value == 0 and name in _ZERO):
            continue
        if name == "LoRA_type":
            module = "lycoris.kohya" if "LyCORIS" in str(kind) or kind == "LoCon" else _MODULES.get(str(kind), "")
            module = "networks.lora_sd3" if kind == "Standard" and prefix == "sd3_" else module
            options[option] = replace(value, value=module)
        elif name == "xformers":
            options["xformers" if value.value is True else str(value.value)] = replace(value, value=True)
        elif option not in _FORWARDED or _foreign(name, prefix, value.value):
            continue
        elif name in ("optimizer_args", "lr_scheduler_args") and isinstance(value.value, str):
            options[option] = replace(value, value=value.value.replace('"', "").split(), style=None)
        else:
            options[option] = value
    if kind == "Flux1":
        options |= _of_flux(tree, plain)
    options |= _schedule(tree, options) | _additional(tree)
    train = "train_network" if kind is not None else "train" if prefix else "train_db"
    return prefix + train, options


def _of_flux(tree: Mapping[str, Value], plain: Mapping[str, Any]) -> dict[str, Value]:
    """What the GUI makes of the settings of a Flux LoRA: which parts learn, by their rates, and the network_args."""
    made: dict[str, Value] = {}
    rate = tree.get("unet_lr")
    if rate is not None and _number(rate.value) and not _number(plain.get("text_encoder_lr")):
        made["network_train_unet_only"] = replace(rate, value=True)
    ggpo = bool(plain.get("train_lora_ggpo"))
    given = [
        (name, value)
        for name, value in tree.items()
        if name in _OF_NETWORK
        and value.value not in ("", False, None, 0, "0")
        and (ggpo or not name.startswith("ggpo_"))
    ]
    if given:
        listed = [f"{name}={value.value}" for name, value in given]
        made["network_args"] = replace(given[0][1], value=listed, style=None)
    return made


def _schedule(tree: Mapping[str, Value], options: Mapping[str, Value]) -> dict[str, Value]:
    """Steps from epochs where no steps are written, and the warm-up, which the GUI also has in percent."""
    made: dict[str, Value] = {}
    epochs = tree.get("epoch")
    counted = "max_train_steps" in options or "max_train_epochs" in options
    if epochs is not None and _number(epochs.value) and not counted and "dataset_config" not in options:
        made["max_train_epochs"] = epochs
    percent = tree.get("lr_warmup")
    if "lr_warmup_steps" not in options and percent is not None and _number(percent.value):
        made["lr_warmup_steps"] = replace(percent, value=_number(percent.value) / 100)
    return made


def _additional(tree: Mapping[str, Value]) -> dict[str, Value]:
    """The options among the additional parameters, which the GUI puts behind the others."""
    text = tree.get("additional_parameters")
    if text is None or not isinstance(text.value, str):
        return {}
    return {
        # no place of its own to be edited at
        name: replace(text, value=value, where=replace(text.where, pointer=f"{text.where.pointer}/{name}"))
        for name, value in options_in(text.value, LISTS)
    }


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def _foreign(name: str, prefix: str, value: object) -> bool:
    """Whether the GUI keeps this setting for another model than the one that is chosen."""
    if name == "max_token_length":
        return prefix not in ("", "sdxl_") or str(value) == "75"  # its word for the default
    return name.startswith("flux1_") and prefix != "flux_"
