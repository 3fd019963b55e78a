"""The trainers' different words for the same setting, so that one's word in another's config is known."""

from __future__ import annotations

_ALIKE = (
    "lr learning_rate",
    "steps max_train_steps max_steps train_steps num_steps total_steps",
    "max_train_epochs num_train_epochs num_epochs max_epochs epochs epoch",
    "linear lora_rank network_dim rank lora_dim lora_r",
    "linear_alpha lora_alpha network_alpha alpha",
    "batch_size train_batch_size",
    "gradient_accumulation gradient_accumulation_steps",
    "dtype mixed_precision",
    "optimizer optimizer_type optimizer_name",
    "lr_scheduler lr_scheduler_type lr_schedule scheduler",
    "training_folder output_dir output_folder output_path",
    "name_or_path pretrained_model_name_or_path dit model_name_or_path base_model model_path",
    "folder_path image_dir image_directory instance_data_dir dataset_dir",
    "caption_ext caption_extension",
    "num_repeats repeats",
    "save_every save_every_n_steps checkpoint_step_interval checkpointing_steps save_steps",
    "sample_every sample_every_n_steps validation_step_interval validation_steps",
    "max_step_saves_to_keep checkpoints_total_limit",
    "lr_warmup_steps warmup_steps num_warmup_steps",
    "max_grad_norm gradient_clip_val gradient_clipping",
)
_GROUPS = {name: group.split() for group in _ALIKE for name in group.split()}


def alike(name: str) -> list[str]:
    """The words that mean the same as this one, the usual one of each trainer first; none for an own word."""
    return [other for other in _GROUPS.get(name, ()) if other != name]
