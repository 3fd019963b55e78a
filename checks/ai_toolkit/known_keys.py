"""What is known of ai-toolkit's keys beside what its source lists: read and tried at commit 27a03a91 (2026-08-21).

The keys themselves, their defaults and choices are in its Schema, which is mined.
"""

from __future__ import annotations

from ..keys.misspelled import words

# chosen by the end of a name, so no comparison in the source names them
OPTIMIZERS = words("dadaptation dadaptationadam dadaptationlion prodigy prodigy8bit")
BROKEN_SCHEDULERS = words("piecewise_constant polynomial step")
# every other one is a LoRA, too, but these are asked for somewhere
NETWORKS = words("lora locon lycoris lorm lokr dora fullrank lierla c3lier")
# unknown to the trainer, which then takes Stable Diffusion 1: just what they say
PLAIN_ARCHITECTURES = words("sd sd15")
# models whose schedulers are looked up by name, and unknown names refused
LOOKING_UP = words("sd1 sd2 sd3 sdxl pixart pixart_sigma auraflow flux lumina2 vega ssd")
# models whose LoRA is saved in the PEFT layout, which has no alpha, and which train by flow matching
TRANSFORMERS = words("""
    chroma chroma_radiance cogview4 f-lite flex2 flux flux2 flux2_klein_4b flux2_klein_9b flux_kontext hidream
    hidream_e1 krea2 lumina2 omnigen2 qwen_image qwen_image_edit qwen_image_edit_plus sd3 wan21 wan21_i2v
    wan22_14b wan22_14b_i2v wan22_5b zimage zimage_l2p
    """)

# keys that the trainer computes with
NUMBERS: dict[str, frozenset[str]] = {
    "train": words("""
        steps lr unet_lr text_encoder_lr batch_size gradient_accumulation gradient_accumulation_steps
        max_grad_norm min_denoising_steps max_denoising_steps num_train_timesteps noise_offset start_step
        switch_boundary_every guidance_loss_target differential_guidance_scale reg_weight max_loss
        """),
    "train/ema_config": words("ema_decay"),
    "network": words("linear rank linear_alpha alpha conv conv_alpha dropout lokr_factor"),
    "save": words("save_every max_step_saves_to_keep"),
    "sample": words("sample_every sample_start_step width height guidance_scale sample_steps num_frames fps"),
    "sample/samples/*": words("width height guidance_scale sample_steps num_frames fps"),
    "datasets/*": words("num_repeats num_frames fps bucket_tolerance keep_tokens loss_multiplier"),
    "model": words("layer_offloading_transformer_percent layer_offloading_text_encoder_percent"),
    "logging": words("log_every"),
    "": words("performance_log_every"),
}
