"""What the runner cannot do is said by name, before torch is even imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Value, Where
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train import refuse
from zdoctor.doctor.trainers.read import read_config

from ..patient import run_with, written


def flux_text(**settings: Any) -> dict[str, Any]:
    """A Flux LoRA beside which CLIP-L is trained, with other settings."""
    return {"architecture": "flux", "settings": written(train__train_text_encoder=True, **settings)}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("optimizer automagicexperiment", {"optimizer": "automagicexperiment"}),
    ("setting d_coef of the optimizer adamw", {"optimizer_settings": {"d_coef": 2}}),
    ("weight_decay of the optimizer adamw is '1e-4'", {"optimizer_settings": {"weight_decay": "1e-4"}}),
    ("betas of the optimizer adamw is [0.9]", {"optimizer_settings": {"betas": [0.9]}}),
    ("betas of the optimizer lion is [2, 0.99]", {"optimizer": "lion", "optimizer_settings": {"betas": [2, 0.99]}}),
    ("weight_decay of the optimizer adamw is -1, which is below", {"optimizer_settings": {"weight_decay": -1}}),
    ("eps of the optimizer adamw is [1, 2]", {"optimizer_settings": {"eps": [1, 2]}}),
    ("relative_step", {"optimizer": "adafactor", "optimizer_settings": {"relative_step": True}}),
    ("network type fullrank", {"network_type": "fullrank"}),
    ("Dropout of a LoHa", {"network_type": "loha", "network": {"dropout": 0.1}}),
    ("lokr_factor 0", {"network_type": "lokr", "settings": written(network__lokr_factor=0)}),
    ("which ignores captions", {"settings": written(train__unload_text_encoder=True)}),
    ("network_kwargs other than", {"settings": written(network__network_kwargs={"parameter_threshold": 5})}),
    ("old_lokr_format true is not", {"network_type": "lokr", "settings": written(network__old_lokr_format=True)}),
    ("full fine-tune", {"kind": "finetune"}),
    ("job of type extract", {"kind": "other", "process_type": "extract"}),
    ("architecture flux2", {"architecture": "flux2"}),
    ("dtype float8", {"dtype": "float8"}),
    ("quantization uint3", {"quantization": "uint3"}),
    ("accuracy recovery adapter", {"quantization": "uint4", "settings": written(model__qtype="uint4|org/repo/a.st")}),
    ("timestep type next_sample", {"timestep_type": "next_sample"}),
    ("content_or_style both", {"content_or_style": "both"}),
    ("loss wavelet", {"loss_type": "wavelet"}),
    ("schedule piecewise_constant", {"scheduler": "piecewise_constant"}),
    ("step needs lr_scheduler_params", {"scheduler": "step"}),
    ("total_iters of the schedule cosine is 0", {"scheduler": "cosine", "scheduler_settings": {"total_iters": 0}}),
    ("eta_min of the schedule cosine is '1e-6'", {"scheduler": "cosine", "scheduler_settings": {"eta_min": "1e-6"}}),
    ("setting power of the schedule cosine", {"scheduler": "cosine", "scheduler_settings": {"power": 2}}),
    ("learning rate '1e-4'", {"learning_rate": "1e-4"}),
    ("learning rate nan", {"learning_rate": float("nan")}),
    ("name a/b has a slash", {"name": "a/b"}),
    ("name has 300 bytes", {"name": "é" * 150}),
    ("ema_decay 1 is not", {"use_ema": True, "ema_decay": 1.0}),
    ("rank 4.5 is not", {"settings": written(network__linear=4.5)}),
    ("num_repeats 2.5 is not", {"settings": written(datasets__0__num_repeats=2.5)}),
    ("prompts is not a list", {"disable_sampling": False, "settings": written(sample__prompts="a cat")}),
    ("trigger_word 2049 is not a text", {"settings": written(trigger_word=2049)}),
    ("trigger_word ['a'] is not a text", {"settings": written(datasets__0__trigger_word=["a"])}),
    ("assistant_lora_path 5 is not a text", {"settings": written(model__assistant_lora_path=5)}),
    ("ema_config 'on' holds no settings", {"settings": written(train__ema_config="on")}),
    ("caption dropout 'x'", {"settings": written(datasets__0__caption_dropout_rate="x")}),
    ("default_caption 5 is not a text", {"settings": written(datasets__0__default_caption=5)}),
    ("caption dropout 7", {"datasets": (Dataset("datasets/0", "x", ".txt", (64,), caption_dropout=7.0),)}),
    ("resolution 0 is below 16", {"datasets": (Dataset("datasets/0", "x", ".txt", (512, 0)),)}),
    ("sample of 0 x 64", {"disable_sampling": False, "samples": (SamplePrompt("a", 0, 64, 1, 1, 1.0),)}),
    ("no dataset", {"datasets": ()}),
    ("Making control images", {"datasets": (Dataset("datasets/0", "x", ".txt", (64,), controls=("depth",)),)}),
    (
        "one of regularisation images",
        {"datasets": (Dataset("datasets/0", "x", ".txt", (64,), is_regularisation=True),)},
    ),
    ("batch size of one dataset", {"settings": written(datasets__0__batch_size=7)}),
    ("reg_weight 'x' is no number", {"settings": written(train__reg_weight="x")}),
    (
        "inverted_mask_prior_multiplier 'x' is no number",
        {"settings": written(train__inverted_mask_prior_multiplier="x")},
    ),
    ("noise_multiplier 1.1 is not supported; leave it at 1", {"settings": written(train__noise_multiplier=1.1)}),
    ("t0_loss_target true is not supported; leave it out", {"settings": written(train__t0_loss_target=True)}),
    (
        "transformer_only false is not supported; leave it at true",
        {"settings": written(network__transformer_only=False)},
    ),
    ("only_if_contains", {"settings": written(model__only_if_contains=["layers.1"])}),
    ("buckets false", {"settings": written(datasets__0__buckets=False)}),
    ("Training the text encoder", {"settings": written(train__train_text_encoder=True)}),
    ("does not go with cache_text_embeddings", flux_text(train__cache_text_embeddings=True)),
    ("a new LoRA of all layers only", flux_text(network__network_kwargs={"only_if_contains": ["single"]})),
    ("a new LoRA of all layers only", flux_text(network__type="dora")),
    ("an answer that is to stay", flux_text(train__inverted_mask_prior=True)),
    ("diff_output_preservation needs a trigger_word", {"settings": written(train__diff_output_preservation=True)}),
    (
        "mixes up their prompts",
        {"settings": written(train__diff_output_preservation=True, train__blank_prompt_preservation=True)},
    ),
    ("guidance_loss_target '3'", {"settings": written(train__guidance_loss_target="3")}),
    ("mask_min_value '0.1' is no number", {"settings": written(datasets__0__mask_min_value="0.1")}),
    ("Video", {"settings": written(datasets__0__num_frames=41)}),
    ("max_denoising_steps '500'", {"settings": written(train__max_denoising_steps="500")}),
    (
        "min_denoising_steps 600 is above",
        {"settings": written(train__min_denoising_steps=600, train__max_denoising_steps=500)},
    ),
    ("max_loss -1", {"settings": written(train__max_loss=-1)}),
    (
        "gradient_accumulation_steps 4",
        {"gradient_accumulation": 4, "settings": written(train__gradient_accumulation_steps=4)},
    ),
    ("use_feedback true is not supported", {"settings": written(train__ema_config__use_feedback=True)}),
    ("param_multiplier", {"settings": written(train__ema_config__param_multiplier=0.9)}),
    ("gradient_checkpointing_interval 0 is", {"settings": written(train__gradient_checkpointing_interval=0)}),
    (
        "gradient_checkpointing_interval 2 does not go with layer_offloading",
        {"settings": written(model__layer_offloading=True, train__gradient_checkpointing_interval=2)},
    ),
    ("compile does not go with", {"settings": written(model__compile=True, model__layer_offloading=True)}),
    ("compile_mode max", {"settings": written(model__block_compile=True, model__compile_mode="max-autotune")}),
    (
        "layer_offloading needs gradient_checkpointing",
        {"settings": written(model__layer_offloading=True), "gradient_checkpointing": False},
    ),
    (
        "layer_offloading_transformer_percent 70 is not a number from 0 to 1",
        {"settings": written(model__layer_offloading=True, model__layer_offloading_transformer_percent=70)},
    ),
    *(
        (f"LoRA+ beside {name} is", {"optimizer": name, "network": {"lora_plus_ratio": 4.0}})
        for name in ("prodigy", "prodigy8bit", "dadaptadam")
    ),
    ("dropout 1.5 is not a number", {"settings": written(network__dropout=1.5)}),
    ("Dropout of a LoKr", {"network_type": "lokr", "settings": written(network__dropout=0.1)}),
]


@pytest.mark.parametrize(("words", "changes"), REFUSED, ids=[words for words, _ in REFUSED])
def test_refused_by_name(words: str, changes: dict[str, Any]) -> None:
    reasons = refuse(run_with(**changes))
    assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"quantization": None},
        {"quantization": "uint4", "settings": written(model__qtype="uint4")},
        {"settings": written(train__gradient_accumulation_steps=1, train__ema_config__param_multiplier=1.0)},
        {"quantization": "qfloat8", "optimizer": "adamw8bit", "timestep_type": "weighted"},
        {"scheduler": "constant_with_warmup", "scheduler_settings": {"num_warmup_steps": 10}},
        {"timestep_type": "flux_shift", "loss_type": "pseudo_huber"},
        {"settings": written(train__min_denoising_steps=500, train__max_denoising_steps=1000, train__max_loss=2)},
        {"scheduler": "step", "scheduler_settings": {"step_size": 100, "gamma": 0.5}},
        {"optimizer_settings": {"weight_decay": 1e-4, "betas": [0.9, 0.99]}},
        {"optimizer": "adafactor", "optimizer_settings": {"relative_step": False, "eps": [1e-30, 1e-3]}},
        {"use_ema": True, "dtype": "fp16"},
        flux_text(),
        {"settings": written(model__layer_offloading=True, model__layer_offloading_transformer_percent=0.7)},
        {"settings": written(train__gradient_checkpointing_interval=3, model__compile=True)},
        {"network_type": "lokr", "rank": 0, "settings": written(network__lokr_factor=8)},
        {"settings": written(train__do_differential_guidance=True, train__train_text_encoder=False)},
        {"settings": written(datasets__0__num_frames=1, network__dropout=None, train__min_denoising_steps=0)},
        {"cache_text_embeddings": True, "settings": written(train__unload_text_encoder=True)},
        {"settings": written(network__network_kwargs={"ignore_if_contains": [], "only_if_contains": None})},
    ],
)
def test_what_it_can_do_is_not_refused(changes: dict[str, Any]) -> None:
    assert refuse(run_with(**changes)) == []


def test_a_config_as_it_circulates_is_not_refused() -> None:
    file = Path(__file__).parents[4] / "examples" / "kaggle_zimage.yaml"
    (run,) = read_config(file.name, file.read_bytes(), {}).runs
    assert refuse(run) == []


def test_an_optimizer_without_its_package_is_refused_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (reason,) = refuse(run_with(optimizer="prodigy"))
    assert reason.startswith("The optimizer prodigy needs a package") and "pip install prodigyopt" in reason


# What the runner does as ai-toolkit does it, or better; what only matters beside something that is refused; and what
# has no part in learning: speed, places, logs, samples.
KNOWN = {
    "train": """
        batch_size cache_text_embeddings content_or_style disable_sampling dtype ema_config gradient_accumulation
        gradient_checkpointing linear_timesteps linear_timesteps2 loss_type lr lr_scheduler lr_scheduler_params
        diff_output_preservation blank_prompt_preservation do_guidance_loss inverted_mask_prior
        max_grad_norm max_loss noise_offset noise_scheduler optimizer optimizer_params reg_weight skip_first_sample
        steps timestep_type unet_lr
        adapter_assist_type adapter_lr audio_loss_multiplier batch_noise_correction_scale
        blank_prompt_preservation_multiplier bypass_guidance_embedding cfg_rescale cfg_scale
        correct_pred_norm_multiplier diff_output_preservation_class diff_output_preservation_multiplier
        differential_guidance_scale diffusion_feature_extractor_weight do_differential_guidance
        do_fft_velocity_equiv_weight do_guidance_loss_cfg_zero embedding_lr guidance_loss_schedule
        guidance_loss_target inverted_mask_prior_multiplier latent_feature_loss_weight max_cfg_scale
        max_negative_prompts merge_network_on_save_strength negative_prompt next_sample_timesteps
        paramiter_swapping_factor refiner_lr short_and_long_captions_encoder_split show_turbo_outputs
        signal_amplification_strength signal_correction_noise_scale switch_boundary_every t0_velocity_equiv_weight
        target_norm_std_value text_encoder_lr train_refiner unconditional_prompt weight_jitter
        attention_backend force_first_sample max_loss_debug sdp validation_config xformers
    """,
    "network": """
        alpha dropout linear linear_alpha lokr_factor lokr_full_rank pretrained_lora_path rank type
        conv conv_alpha split_multistage_loras
    """,
    "model": """
        arch assistant_lora_path extras_name_or_path name_or_path qtype qtype_te quantize quantize_te
        is_auraflow is_flux is_lumina2 is_pixart is_pixart_sigma is_ssd is_v2 is_v3 is_v_pred is_vega is_xl
        layer_offloading
        attn_masking block_compile cache_size_limit compile compile_dynamic compile_fullgraph compile_mode dtype
        experimental_xl in_context latent_space_version layer_offloading_text_encoder_percent
        layer_offloading_transformer_percent lora_path low_vram model_kwargs model_paths
        quantize_kwargs refiner_start_at
        split_model_other_module_param_count_scale te_device te_dtype te_name_or_path text_encoder_bits
        unconditional_lora_path unet_path
        unet_sample_size use_flux_cfg use_text_encoder_1 use_text_encoder_2 vae_device vae_dtype vae_path
    """,
    "datasets/*": """
        caption_dropout_rate caption_ext caption_type controls dataset_path default_caption flip_x flip_y folder_path
        is_reg prior_reg mask_path alpha_mask num_frames num_repeats random_crop resolution square_crop trigger_word
        audio_normalize audio_preserve_pitch bucket_tolerance clip_image_augmentations
        clip_image_shuffle_augmentations control_transparent_color diff_output_preservation_class do_audio do_i2v fps
        full_size_control_images guidance_type invert_mask keep_tokens mask_min_value
        shuffle_tokens token_dropout_rate
        num_controls_from_same_folder poi random_triggers_max replay_transforms shrink_video_to_frames
        shuffle_augmentations trim_auto_frame_count_tail
        cache_clip_vision_to_disk cache_latents cache_latents_num_workers cache_latents_to_disk
        cache_tensors_to_disk cache_text_embeddings debug fast_image_size load_image_when_caching_latents num_workers
        prefetch_factor
    """,
}


@pytest.mark.parametrize("section", KNOWN)
def test_nothing_that_ai_toolkit_reads_is_passed_over(section: str) -> None:
    schema = shipped("ai-toolkit")
    assert schema is not None
    for key in sorted(set(schema.sections[section]) - set(KNOWN[section].split())):
        name = f"{section.replace('*', '0')}/{key}"
        assert refuse(run_with(settings={name: Value(7, Where("c"), 0, 1)})) or refuse(
            run_with(settings={name: Value("7", Where("c"), 0, 1)})
        ), name


def test_refusing_needs_no_torch() -> None:
    code = "import sys, zdoctor.doctor.train as t; t.refuse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
