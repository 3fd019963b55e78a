"""What of a config of sd-scripts or musubi-tuner the runner refuses; nothing is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.trainers.kohya.names import APART, UNREAD

from .runs import run_of, said, schema_of

TEXT = {"network_train_unet_only": ...}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**TEXT, "text_encoder_lr": [1e-5, -1.0]}, "text_encoder_lr [1e-05, -1.0] is neither"),
        ({**TEXT, "text_encoder_lr": [1e-5, 1e-5, 1e-5]}, "is neither a number from 0 nor two of them"),
        ({"network_args": ["train_t5xxl=True"]}, "network_train_unet_only keeps T5 as it is"),
        ({**TEXT, "network_args": ["train_t5xxl=True"], "cache_text_encoder_outputs": True}, "cached outputs of T5"),
        ({**TEXT, "network_weights": "old.safetensors"}, "network_weights beside trained text encoders"),
        ({**TEXT, "text_encoder_lr": 1e-5, "optimizer_type": "Prodigy"}, "Another text_encoder_lr"),
        ({**TEXT, "network_args": ["loraplus_text_encoder_lr_ratio=0"]}, "no number above 0"),
        ({"model_prediction_type": ...}, "model_prediction_type sigma_scaled, which is the default,"),
        ({"model_prediction_type": "additive"}, "model_prediction_type additive"),
        (
            {"network_module": "networks.dylora"},
            "use networks.lora_flux or networks.oft_flux",
        ),
        ({"network_args": ["rank_dropout=1"]}, "rank_dropout=1 is no number from 0 to below 1"),
        ({"network_args": ["network_reg_dims=single=4"]}, "network_args network_reg_dims=single=4"),
        ({"network_args": ["split_qkv=True"]}, "network_args split_qkv=True"),
        ({"network_args": ["train_blocks=middle"]}, "none of Flux"),
        ({"network_args": ["train_single_block_indices=3-40"]}, "none of Flux"),
        ({"network_args": ["train_blocks=double", "train_double_block_indices=none"]}, "leave no block of Flux"),
        ({"network_args": ["loraplus_lr_ratio=0"]}, "no number above 0"),
        ({"network_args": ["loraplus_lr_ratio=inf"]}, "no number above 0"),
        ({"dim_from_weights": True}, "dim_from_weights true"),
        ({"base_weights": ["other.safetensors"]}, "base_weights"),
        ({"optimizer_type": "SGDNesterov"}, "optimizer_type sgdnesterov"),
        ({"optimizer_type": "Adafactor"}, "relative_step=False"),
        ({"optimizer_args": ["weight_decay=a lot"]}, "no Python values"),
        ({"lr_scheduler": "inverse_sqrt"}, "lr_scheduler inverse_sqrt"),
        ({"lr_scheduler_type": "CosineAnnealingLR"}, "lr_scheduler_type CosineAnnealingLR"),
        ({"lr_scheduler": "cosine", "lr_scheduler_args": ["last_epoch=3"]}, "lr_scheduler_args"),
        ({"lr_scheduler": "constant", "lr_warmup_steps": 10}, "constant has no warm-up"),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": 100.0}, "lr_warmup_steps 100.0"),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": "inf"}, "lr_warmup_steps inf"),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": "nan"}, "lr_warmup_steps nan"),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": "-3"}, "lr_warmup_steps -3"),
        ({"loss_type": "huber"}, "huber_schedule snr is not supported; use constant or exponential"),
        ({"loss_type": "smooth_l1", "huber_schedule": "constant", "huber_c": 0}, "huber_c must be a number above 0"),
        ({"ip_noise_gamma": 0.1}, "ip_noise_gamma 0.1"),
        ({"scale_weight_norms": 1.0}, "scale_weight_norms 1.0"),
        ({"resume": "state"}, "resume state"),
        ({"t5xxl_max_token_length": 256}, "t5xxl_max_token_length"),
        ({"validation_split": 0.1}, "validation_split 0.1"),
        ({"deepspeed": True}, "deepspeed true"),
        (
            {"save_every_n_steps": 10, "save_every_n_epochs": 1, "save_last_n_epochs": 2},
            "Saves of epochs beside save_every_n_steps",
        ),
        ({"save_model_as": "ckpt"}, "save_model_as ckpt"),
        ({"log_with": "wandb", "wandb_api_key": "s3cret"}, "wandb_api_key is not read"),
        ({"network_dimm": 8}, "network_dimm 8"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    found = said(run_of(options=options))
    assert words in found and "s3cret" not in found
    assert "(c.toml:" in found or ... in options.values()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timestep_sampling": "qinglong_flux"}, "timestep_sampling qinglong_flux"),
        ({"weighting_scheme": "cosmap"}, "weighting_scheme cosmap"),
        ({"num_timestep_buckets": 8}, "num_timestep_buckets 8"),
        ({"min_timestep": 800, "max_timestep": 200}, "min_timestep and max_timestep"),
        ({"network_module": "networks.lokr"}, "network_module networks.lokr"),
        ({"network_args": ["exclude_patterns=['.*']"]}, "exclude_patterns"),
        ({"network_args": ["loraplus_unet_lr_ratio=4"]}, "loraplus_unet_lr_ratio=4"),  # which it does not look at
        ({"base_weights": ["a.safetensors"], "base_weights_multiplier": [0.5]}, "base_weights_multiplier"),
        ({"mixed_precision": ...}, "mixed_precision is not written"),
        ({"show_timesteps": "image"}, "show_timesteps image"),
    ],
)
def test_what_is_refused_of_musubi(options: dict[str, Any], words: str) -> None:
    assert words in said(run_of("zimage_train_network", options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network_module": "networks.oft_flux"}, "networks.oft_flux is not supported; use networks.lora ("),
        ({"network_train_unet_only": ...}, "Training both CLIPs of SDXL"),
        ({"network_args": ["train_blocks=double"]}, "train_blocks=double is not supported"),
        ({"network_args": ["rank_dropout=1"]}, "rank_dropout=1 is no number from 0 to below 1"),
        ({"network_args": ["conv_dim=2.5"]}, "conv_dim=2.5 is no number from 0"),
        ({"network_args": ["conv_alpha=half"]}, "conv_alpha=half is no number from 0"),
        ({"network_args": ["loraplus_lr_ratio=0"]}, "no number above 0"),
    ],
)
def test_what_is_refused_of_sdxl(options: dict[str, Any], words: str) -> None:
    assert words in said(run_of("sdxl_train_network", options))


@pytest.mark.parametrize("optimizer", ["Prodigy", "prodigyopt.Prodigy", "DAdaptLion"])
@pytest.mark.parametrize("script", ["flux_train_network", "sdxl_train_network"])
def test_lora_plus_is_refused_beside_what_has_one_rate(script: str, optimizer: str) -> None:
    faster = {"network_args": ["loraplus_unet_lr_ratio=4"], "optimizer_type": optimizer}
    run = run_of(script, faster)
    assert any(f"LoRA+ beside {optimizer}".lower() in why.lower() for why in refuse(for_runner(run, schema_of(run))))


@pytest.mark.parametrize(
    ("of_subset", "words"),
    [
        ({"color_aug": True}, "color_aug true"),
        ({"token_warmup_step": 0.1}, "token_warmup_step 0.1"),
        ({"face_crop_aug_range": [1.0, 2.0]}, "face_crop_aug_range"),
        ({"metadata_file": "m.json"}, "metadata_file m.json"),
        ({"conditioning_data_dir": "/masks"}, "conditioning_data_dir counts beside masked_loss only"),
    ],
)
def test_what_is_refused_of_a_subset(of_subset: dict[str, Any], words: str) -> None:
    found = said(run_of(of_subset=of_subset))
    assert words in found and "d.toml:" in found


@pytest.mark.parametrize(
    ("script", "of_set", "words"),
    [
        ("flux_train_network", {"resolution": [500, 768]}, "500 x 768"),
        ("flux_train_network", {"resolution": ...}, "has no resolution"),
        ("flux_train_network", {"network_multiplier": 0.5}, "network_multiplier 0.5"),
        ("zimage_train_network", {"image_directory": ..., "image_jsonl_file": "a.jsonl"}, "image_jsonl_file a.jsonl"),
        ("zimage_train_network", {"multiple_target": True}, "multiple_target true"),
        ("flux_kontext_train_network", {"control_directory": ...}, "control_directory of each dataset"),
        (
            "flux_kontext_train_network",
            {"no_resize_control": True, "control_resolution": [512, 512]},
            "control_resolution … is not supported",
        ),
        ("flux_kontext_train_network", {"control_resolution": "1024"}, "use [1024, 1024]"),
    ],
)
def test_what_is_refused_of_a_dataset(script: str, of_set: dict[str, Any], words: str) -> None:
    assert words in said(run_of(script, of_set=of_set))


def test_a_musubi_dataset_needs_its_captions() -> None:
    assert "caption_extension" in said(run_of("zimage_train_network", general={"caption_extension": ...}))


def test_what_has_no_effect_does_not_sound_as_if_it_changed_what_is_learnt() -> None:
    sound = ("lr", "loss", "noise", "timestep", "dropout", "weight", "caption", "aug", "alpha")
    unread = {name for name in APART | UNREAD if any(word in name.split("_") for word in sound)}
    # of these, the scripts look at none for Flux and Z-Image, or only beside a setting that is refused
    assert unread == {
        *("adaptive_noise_scale", "caption_separator", "debiased_estimation_loss", "ip_noise_gamma_random_strength"),
        *("multires_noise_discount", "multires_noise_iterations", "noise_offset", "noise_offset_random_strength"),
        *("scale_v_pred_loss_like_noise_pred", "text_encoder_lr", "v_pred_like_loss"),
    }
