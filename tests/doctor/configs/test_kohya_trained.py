"""Configs of sd-scripts and musubi-tuner in the runner's words: a setting is obeyed, without effect, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.optimization import get_cosine_schedule_with_warmup, get_scheduler
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from zdoctor.doctor.configs import Found, read_config
from zdoctor.doctor.configs.kohya_trained.names import APART, OBEYED, PARTS, TRANSLATED, UNREAD
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.model import Run, Schema
from zdoctor.doctor.model.buckets import Buckets, scaled_size
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.base.load import build_empty
from zdoctor.doctor.train.families import flux as flux_family
from zdoctor.doctor.train.network.lora import left_out, targets
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.schedule import rate_factor
from zdoctor.doctor.train.step.timesteps import draw, levels
from zdoctor.doctor.translate import differences, for_runner
from zdoctor.tests.doctor.train.conftest import flux, tiny

__all__ = ["flux", "tiny"]
FLUX = {
    "pretrained_model_name_or_path": "flux1-dev.safetensors",
    "ae": "ae.safetensors",
    "clip_l": "clip_l.safetensors",
    "t5xxl": "t5xxl_fp16.safetensors",
    "network_module": "networks.lora_flux",
    "network_train_unet_only": True,
    "model_prediction_type": "raw",
    "mixed_precision": "bf16",
    "output_dir": "out",
    "output_name": "cat",
    "dataset_config": "d.toml",
}
ZIMAGE = {
    "dit": "z.safetensors",
    "vae": "ae.safetensors",
    "text_encoder": "qwen.safetensors",
    "network_module": "networks.lora_zimage",
    "mixed_precision": "bf16",
    "output_dir": "out",
    "output_name": "cat",
    "dataset_config": "m.toml",
}
KONTEXT = {
    **{name: value for name, value in ZIMAGE.items() if name != "text_encoder"},
    "text_encoder1": "t5.safetensors",
    "text_encoder2": "clip.safetensors",
    "network_module": "networks.lora_flux",
}
SCRIPTS: dict[str, dict[str, Any]] = {
    "flux_train_network": FLUX,
    "zimage_train_network": ZIMAGE,
    "flux_kontext_train_network": KONTEXT,
}
SUBSET = {"image_dir": "/data/cat", "num_repeats": 2}
SET = {"resolution": [512, 768], "batch_size": 1}
GENERAL = {"resolution": [960, 544], "caption_extension": ".txt"}
MUSUBI_SET = {"image_directory": "/data/cat", "cache_directory": "/cache", "control_directory": "/data/before"}
SHIFT = (256.0, 0.5, 4096.0, 1.15)


def toml(values: Mapping[str, Any]) -> str:
    def word(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else repr(value)

    return "".join(f"{name} = {word(value)}\n" for name, value in values.items() if value is not ...)


def run_of(
    script: str = "flux_train_network",
    options: Mapping[str, Any] | None = None,
    *,
    general: Mapping[str, Any] | None = None,
    of_set: Mapping[str, Any] | None = None,
    of_subset: Mapping[str, Any] | None = None,
) -> Run:
    """The run of a config file and a file of datasets."""
    files = {
        "d.toml": f"[general]\n{toml(general or {})}[[datasets]]\n{toml({**SET, **(of_set or {})})}"
        f"[[datasets.subsets]]\n{toml({**SUBSET, **(of_subset or {})})}",
        "m.toml": f"[general]\n{toml({**GENERAL, **(general or {})})}"
        f"[[datasets]]\n{toml({**MUSUBI_SET, **(of_set or {})})}",
    }
    trainer = "sd-scripts" if script == "flux_train_network" else "musubi-tuner"
    text = toml({**SCRIPTS[script], **(options or {})})
    return read_config(
        "c.toml",
        text.encode(),
        {},
        trainer=trainer,
        beside=lambda name: Found(name, files[name].encode()) if name in files else None,
    ).runs[0]


def schema_of(run: Run) -> Schema:
    found = shipped(run.trainer)
    assert found is not None
    return found


def trained(run: Run, folders: Mapping[str, tuple[str, ...]] | None = None) -> Run:
    made = for_runner(run, schema_of(run), lambda folder: (folders or {}).get(folder))
    assert refuse(made) == [], made
    return made


def said(run: Run) -> str:
    with pytest.raises(UserError) as error:
        for_runner(run, schema_of(run))
    return str(error.value)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_plain_config_is_obeyed(script: str) -> None:
    run = trained(run_of(script))
    assert (run.trainer, run.output_folder, run.name, run.steps) == ("zdoctor", "out/cat", "cat", 1600)
    assert (run.rank, run.alpha, run.setting("network/scale")) == (4, 1.0, 0.25)  # both by default
    assert (run.learning_rate, run.optimizer, run.optimizer_settings) == (2e-6, "adamw", {"eps": 1e-8})
    assert (run.max_grad_norm, run.setting("train/grad_clip_method")) == (1.0, "norm")
    assert (run.save_every, run.save_dtype, run.keep_saves, run.loss_type) == (0, "float", 0, "mse")
    flux_only = script == "flux_train_network"
    assert run.setting("train/cfg_scale") == (3.5 if flux_only else 1.0)
    assert run.setting("train/drawn")["shift"] == (3.0 if flux_only else 1.0)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"network_dim": 16, "network_alpha": 8}, {"rank": 16, "alpha": 8.0, "network/scale": 0.5}),
        ({"network_dim": 16, "network_alpha": 0}, {"alpha": 16.0, "network/scale": 1.0}),
        (
            {"network_dropout": 0.1, "network_args": ["rank_dropout=0.2", "module_dropout=0.3"]},
            {"network/dropout": 0.1, "network/rank_dropout": 0.2, "network/module_dropout": 0.3},
        ),
        (
            {"network_args": ["verbose=True", "conv_dim=4", "loraplus_lr_ratio=4"]},
            {"network_type": "lora", "network/plus": 4.0},
        ),
        ({"optimizer_type": "PagedAdamW8bit"}, {"optimizer": "adamw8bit"}),
        (
            {"optimizer_type": "AdamW", "optimizer_args": ["weight_decay=0.1", "betas=(0.9, 0.99)"]},
            {"optimizer_settings": {"eps": 1e-8, "weight_decay": 0.1, "betas": (0.9, 0.99)}},
        ),
        (
            {"optimizer_type": "Adafactor", "optimizer_args": ["relative_step=False", "scale_parameter=False"]},
            {"optimizer": "adafactor", "optimizer_settings": {"scale_parameter": False, "relative_step": False}},
        ),
        (
            {"optimizer_type": "adafactor", "optimizer_args": ["relative_step=False"]},
            {"optimizer_settings": {"scale_parameter": True, "relative_step": False}},
        ),
        ({"lr_scheduler": "constant"}, {"scheduler": "constant", "scheduler_settings": {}}),
        (
            {"lr_scheduler": "cosine_with_restarts", "lr_scheduler_num_cycles": 3, "lr_warmup_steps": 0.05},
            {"scheduler_settings": {"num_warmup_steps": 0.05, "num_cycles": 3}},
        ),
        (
            {"lr_scheduler": "polynomial", "lr_scheduler_power": 2},
            {"scheduler_settings": {"num_warmup_steps": 0, "power": 2.0}},
        ),
        (
            {"lr_scheduler": "cosine_with_min_lr", "lr_scheduler_min_lr_ratio": 0.1, "learning_rate": 1e-3},
            {"scheduler": "cosine", "scheduler_settings": {"num_warmup_steps": 0, "eta_min": 1e-4}},
        ),
        ({"gradient_accumulation_steps": 4}, {"gradient_accumulation": 4}),
        ({"max_train_epochs": 3}, {"steps": 0, "train/epochs": 3}),
        ({"max_train_steps": 9, "save_every_n_epochs": 2, "save_last_n_epochs": 3}, {"keep_saves": 3, "steps": 9}),
        ({"save_every_n_steps": 100, "save_last_n_steps": 250}, {"save_every": 100, "keep_saves": 3}),
        ({"save_precision": "bf16", "seed": 3}, {"save_dtype": "bf16", "seed": 3}),
        ({"max_grad_norm": 0}, {"max_grad_norm": 0.0}),
        (
            {"blocks_to_swap": 19},
            {"gradient_checkpointing": True, "model/layer_offloading": True},
        ),
        ({"log_with": "wandb", "wandb_run_name": "x"}, {"logging/use_wandb": True, "logging/run_name": "x"}),
        ({"training_comment": "for Ada"}, {"metadata": {"ss_training_comment": "for Ada"}}),
        ({"network_weights": "old.safetensors"}, {"network/network_weights": "old.safetensors"}),
        ({"fp8_base": True}, {"quantization": "float8", "text_encoder_quantization": None}),
    ],
)
@pytest.mark.parametrize("script", ["flux_train_network", "zimage_train_network"])
def test_what_is_obeyed(
    script: str, options: dict[str, Any], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # packages that need not be here
    run = trained(run_of(script, options))
    found = {name: getattr(run, name) if hasattr(run, name) else run.setting(name) for name in fields}
    assert found == fields


@pytest.mark.parametrize(
    ("options", "painted", "first"),
    [
        ({}, False, False),
        ({"sample_every_n_steps": 50}, True, False),
        ({"sample_every_n_epochs": 2, "sample_at_first": True}, True, True),
    ],
)
def test_samples_are_painted_when_the_config_says_so(options: dict[str, Any], painted: bool, first: bool) -> None:
    run = trained(run_of(options={"sample_prompts": "a cat --w 512", **options}))
    assert [(one.prompt, one.width) for one in run.samples] == [("a cat", 512)]
    assert (not run.disable_sampling, not run.skip_first_sample) == (painted, first)
    assert run.setting("sample/sample_every_epochs") == options.get("sample_every_n_epochs")


@pytest.mark.parametrize(
    ("script", "words", "covered"),
    [
        ("flux_train_network", [], [2, 3]),
        ("flux_train_network", ["train_blocks=single"], [0, 3]),
        ("flux_train_network", ["train_blocks=double"], [2, 0]),
        ("flux_train_network", ["train_double_block_indices=1-3", "train_single_block_indices=all"], [1, 3]),
        ("flux_train_network", ["train_double_block_indices=none", "train_single_block_indices=0,4"], [0, 1]),
    ],
)
def test_blocks_are_covered_as_the_config_says(script: str, words: list[str], covered: list[int], flux: Path) -> None:
    """Of the tiny Flux, in how many of its two and three blocks there are targets."""
    model = build_empty(flux / "transformer")
    run = trained(run_of(script, {"network_args": words} if words else {}))
    names = targets(model, left_out(run))
    blocks = {".".join(name.split(".")[:2]) for name in names}
    found = [sum(block.startswith(kind) for block in blocks) for kind in ("transformer_blocks", "single_")]
    assert found == covered


def test_musubi_leaves_the_modulation_out(flux: Path, tiny: Path) -> None:
    for script, folder in (("flux_kontext_train_network", flux), ("zimage_train_network", tiny)):
        model = build_empty(folder / "transformer")
        names = targets(model, left_out(trained(run_of(script))))
        gone = {name.rpartition(".")[0].split(".", 2)[-1] for name in targets(model).keys() - names.keys()}
        assert gone == ({"adaLN_modulation"} if folder == tiny else {"norm1", "norm1_context", "norm"})


def test_the_older_names_of_optimizers_and_ratios() -> None:
    assert trained(run_of(options={"use_8bit_adam": True})).optimizer == "adamw8bit"
    assert trained(run_of(options={"apply_t5_attn_mask": True})).setting("train/masked_prompts") is True
    run = trained(run_of(options={"max_train_epochs": 10, "save_n_epoch_ratio": 4, "save_last_n_epochs": 2}))
    assert (run.setting("save/save_every_epochs"), run.keep_saves) == (2, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network_train_unet_only": ...}, "CLIP-L is trained, too"),
        ({"model_prediction_type": ...}, "model_prediction_type sigma_scaled, which is the default,"),
        ({"model_prediction_type": "additive"}, "model_prediction_type additive"),
        ({"network_module": "networks.oft_flux"}, "networks.oft_flux"),
        ({"network_args": ["rank_dropout=1"]}, "rank_dropout=1 is no number from 0 to below 1"),
        ({"network_args": ["network_reg_dims=single=4"]}, "network_args network_reg_dims=single=4"),
        ({"network_args": ["split_qkv=True"]}, "network_args split_qkv=True"),
        ({"network_args": ["train_blocks=middle"]}, "none of Flux"),
        ({"network_args": ["train_single_block_indices=3-40"]}, "none of Flux"),
        ({"network_args": ["train_blocks=double", "train_double_block_indices=none"]}, "leave no block of Flux"),
        ({"network_args": ["loraplus_lr_ratio=0"]}, "no number above 0"),
        ({"network_args": ["loraplus_lr_ratio=inf"]}, "no number above 0"),
        ({"network_args": ["loraplus_lr_ratio=4"], "optimizer_type": "Prodigy"}, "LoRA+ beside Prodigy"),
        ({"dim_from_weights": True}, "dim_from_weights true"),
        ({"base_weights": ["other.safetensors"]}, "base_weights"),
        ({"optimizer_type": "DAdaptAdam"}, "optimizer_type dadaptadam"),
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
        ({"loss_type": "huber"}, "loss_type huber"),
        ({"ip_noise_gamma": 0.1}, "ip_noise_gamma 0.1"),
        ({"scale_weight_norms": 1.0}, "scale_weight_norms 1.0"),
        ({"resume": "state"}, "resume state"),
        ({"t5xxl_max_token_length": 256}, "t5xxl_max_token_length"),
        ({"validation_split": 0.1}, "validation_split 0.1"),
        ({"deepspeed": True}, "deepspeed true"),
        ({"huggingface_repo_id": "me/lora"}, "huggingface_repo_id me/lora"),
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
    ("of_subset", "words"),
    [
        ({"shuffle_caption": True}, "shuffle_caption true"),
        ({"color_aug": True}, "color_aug true"),
        ({"caption_prefix": "photo of"}, "caption_prefix photo of"),
        ({"caption_tag_dropout_rate": 0.1}, "caption_tag_dropout_rate 0.1"),
        ({"enable_wildcard": True}, "enable_wildcard true"),
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
        ("flux_kontext_train_network", {"no_resize_control": True}, "no_resize_control true"),
    ],
)
def test_what_is_refused_of_a_dataset(script: str, of_set: dict[str, Any], words: str) -> None:
    assert words in said(run_of(script, of_set=of_set))


def test_a_musubi_dataset_needs_its_captions() -> None:
    assert "caption_extension" in said(run_of("zimage_train_network", general={"caption_extension": ...}))


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_that_the_trainer_reads_is_passed_over(script: str) -> None:
    """Every setting of the trainer's schema is of one kind; what is of none is refused by name."""
    kinds = (TRANSLATED, PARTS, APART, UNREAD)
    assert sum(map(len, kinds)) == len(OBEYED)
    run = run_of(script)
    schema = schema_of(run)
    of_sets = {
        name for place in ("general", "datasets/*", "datasets/*/subsets/*") for name in schema.section(place) or {}
    }
    refused = sorted({*(schema.section("", script) or {}), *of_sets} - OBEYED)
    assert len(refused) > 10
    found = said(run_of(script, dict.fromkeys(refused, "7.25")))
    for name in refused:
        assert f"{name} 7.25 is not supported" in found
    sound = ("lr", "loss", "noise", "timestep", "dropout", "weight", "caption", "aug", "alpha")
    unread = {name for name in APART | UNREAD if any(word in name.split("_") for word in sound)}
    # of these, the scripts look at none for Flux and Z-Image, or only beside a setting that is refused
    assert unread == {
        *("adaptive_noise_scale", "caption_separator", "debiased_estimation_loss", "ip_noise_gamma_random_strength"),
        *("multires_noise_discount", "multires_noise_iterations", "noise_offset", "noise_offset_random_strength"),
        *("scale_v_pred_loss_like_noise_pred", "text_encoder_lr", "v_pred_like_loss"),
    }


def normal(generator: torch.Generator) -> Tensor:
    return torch.randn(500, generator=generator)


def even(generator: torch.Generator) -> Tensor:
    return torch.rand(500, generator=generator)


def shifted(t: Tensor, shift: float) -> Tensor:
    return (t * shift) / (1 + (shift - 1) * t)


def by_mu(t: Tensor, slope: tuple[float, float, float, float], cells: int) -> Tensor:
    x1, y1, x2, y2 = slope
    mu = (y2 - y1) / (x2 - x1) * cells + y1 - (y2 - y1) / (x2 - x1) * x1
    return shifted(t, math.exp(mu))


def of_table(u: Tensor, shift: float) -> Tensor:
    table: Any = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift).timesteps
    times: Tensor = table[(u * 1000).long()] / 1000
    return times


CELLS = 1536  # of 2 x 2 in the latent of 768 x 512 pixels
TIMES: list[tuple[str, dict[str, Any], Callable[[torch.Generator], Tensor]]] = [
    ("flux_train_network", {}, lambda g: of_table(even(g), 3.0)),
    (
        "flux_train_network",
        {"weighting_scheme": "logit_normal", "logit_mean": 0.3, "discrete_flow_shift": 1.0},
        lambda g: of_table(torch.sigmoid(normal(g) + 0.3), 1.0),
    ),
    (
        "flux_train_network",
        {"weighting_scheme": "mode"},
        lambda g: of_table((lambda u: 1 - u - 1.29 * (torch.cos(math.pi * u / 2) ** 2 - 1 + u))(even(g)), 3.0),
    ),
    ("flux_train_network", {"timestep_sampling": "uniform", "min_timestep": 300}, even),
    (
        "flux_train_network",
        {"timestep_sampling": "sigmoid", "sigmoid_scale": 1.5},
        lambda g: (1.5 * normal(g)).sigmoid(),
    ),
    ("flux_train_network", {"timestep_sampling": "shift"}, lambda g: shifted(normal(g).sigmoid(), 3.0)),
    ("flux_train_network", {"timestep_sampling": "flux_shift"}, lambda g: by_mu(normal(g).sigmoid(), SHIFT, CELLS)),
    ("zimage_train_network", {}, lambda g: of_table(even(g), 1.0)),
    # its scheduler shifts the times of samples only
    ("flux_kontext_train_network", {"discrete_flow_shift": 3.0}, lambda g: of_table(even(g), 1.0)),
    (
        "zimage_train_network",
        {"timestep_sampling": "shift", "discrete_flow_shift": 2.0, "min_timestep": 100, "max_timestep": 900},
        lambda g: shifted(normal(g).sigmoid(), 2.0) * 0.8 + 0.1,
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "qwen_shift", "weighting_scheme": "logit_normal"},
        lambda g: by_mu(normal(g).sigmoid(), (256, 0.5, 8192, 0.9), CELLS),
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "flux2_shift"},  # by all cells of the latent
        lambda g: by_mu(normal(g).sigmoid(), SHIFT, 4 * CELLS),
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "logsnr", "logit_mean": -1.0, "logit_std": 2.0},
        lambda g: torch.sigmoid(-(2.0 * normal(g) - 1.0) / 2).flip(0),
    ),
    (
        "flux_kontext_train_network",
        {"timestep_sampling": "flux_shift"},
        lambda g: by_mu(normal(g).sigmoid(), SHIFT, CELLS),
    ),
]


@pytest.mark.parametrize(("script", "options", "theirs"), TIMES)
def test_noise_levels_are_the_trainers(
    script: str, options: dict[str, Any], theirs: Callable[[torch.Generator], Tensor]
) -> None:
    run = trained(run_of(script, options))
    t, weight = draw(levels(run), 500, torch.Generator().manual_seed(5), flux_family, CELLS)
    expected = theirs(torch.Generator().manual_seed(5))
    if options.get("timestep_sampling") == "logsnr":  # the other sign of the normal number: the same distribution
        at = torch.linspace(0.1, 0.9, 9)
        torch.testing.assert_close(torch.quantile(t, at), torch.quantile(expected, at), rtol=0, atol=0.08)
    else:
        torch.testing.assert_close(t, expected, rtol=1e-5, atol=2e-6)
    assert (weight == 1).all()


def test_rates_are_the_trainers() -> None:
    options = {"lr_scheduler": "cosine", "lr_warmup_steps": 0.1, "max_train_steps": 30, "unet_lr": 1e-3}
    run = trained(run_of(options=options))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=30)
    for step in range(30):
        ours = run.learning_rate * rate_factor(run.scheduler, run.scheduler_settings, run.learning_rate, step, 30)
        assert ours == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", ["cosine", "constant_with_warmup", "polynomial"])
@pytest.mark.parametrize("warmup", [3, 4, 0.3])
def test_each_process_advances_the_rate(name: str, warmup: float) -> None:
    """accelerate's scheduler steps once a process; the trainers give it so many steps in all."""
    command = "accelerate launch --num_processes 2 flux_train_network.py --network_train_unet_only"
    words = {key: value for key, value in FLUX.items() if key not in ("dataset_config", "network_train_unet_only")}
    words |= {"lr_scheduler": name, "lr_warmup_steps": warmup, "max_train_steps": 30, "unet_lr": 1e-4}
    words |= {"train_data_dir": "/d", "resolution": "512"}
    text = command + "".join(f" --{key} {value}" for key, value in words.items())
    run = trained(read_config("t.sh", text.encode(), {}).runs[0], {"/d": ("1_cat",)})
    optimizer: Any = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1e-4}], lr=2e-6)
    count = int(warmup * 60) if warmup < 1 else int(warmup)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=count, num_training_steps=60)
    for step in range(30):
        ours = run.learning_rate * rate_factor(run.scheduler, run.scheduler_settings, run.learning_rate, step, 30)
        assert ours == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        for _ in range(2):
            optimizer.step()
            scheduler.step()


def test_datasets_in_the_runners_words() -> None:
    run = trained(
        run_of(
            options={"masked_loss": True, "flip_aug": True, "prior_loss_weight": 0.5},
            general={"enable_bucket": True, "bucket_reso_steps": 32, "caption_extension": ".txt"},
            of_set={"max_bucket_reso": 1536},
            of_subset={"conditioning_data_dir": "/masks", "caption_dropout_rate": 0.1, "random_crop": True},
        )
    )
    (dataset,) = run.datasets
    assert (dataset.folder, dataset.repeats, dataset.resolutions) == ("/data/cat", 2, (627,))
    assert (dataset.caption_extension, dataset.caption_dropout, dataset.flip_x) == (".txt", 0.1, True)
    assert not dataset.recursive and dataset.first_line and dataset.captionless
    sizes = {"width": 512, "height": 768, "kind": "sd-scripts", "step": 32, "least": 256, "most": 1536}
    assert run.setting(f"{dataset.key}/bucket_sizes") == {**sizes, "shrink_only": False}
    assert run.setting(f"{dataset.key}/mask_path") == "/masks" and run.setting(f"{dataset.key}/random_crop") is True
    assert (run.setting("train/reg_weight"), run.setting("train/unbalanced_masks")) == (0.5, True)
    assert run.where(f"{dataset.key}/folder_path").path == "d.toml"
    assert run.where(f"{dataset.key}/mask_path").path == "d.toml"


def test_datasets_of_musubi() -> None:
    run = trained(run_of("flux_kontext_train_network", of_set={"enable_bucket": True, "num_repeats": 3}))
    (dataset,) = run.datasets
    assert (dataset.folder, dataset.repeats, dataset.control_folders) == ("/data/cat", 3, ("/data/before",))
    assert not dataset.first_line and not dataset.captionless and not dataset.controls
    sizes = {"width": 960, "height": 544, "kind": "musubi-tuner", "shrink_only": False}
    assert run.setting("datasets/0/bucket_sizes") == sizes
    assert trained(run_of("zimage_train_network")).datasets[0].control_folders == ()


def test_which_pictures_share_batches() -> None:
    for script, at in (("flux_train_network", "datasets/0/subsets/0"), ("zimage_train_network", "datasets/0")):
        assert trained(run_of(script)).setting(f"{at}/apart") == "datasets/0"


def test_random_crops_without_buckets_are_of_the_picture_as_it_is() -> None:
    """sd-scripts scales pictures only where it has buckets or a cache, which random crops have not."""
    for words, size in (({}, (2000, 1000)), ({"enable_bucket": True}, None)):
        run = trained(run_of(of_set={"resolution": 512, **words}, of_subset={"random_crop": True}))
        how = Buckets(**run.setting("datasets/0/subsets/0/bucket_sizes"))
        assert scaled_size(how, 2000, 1000) == size


def test_every_process_has_its_batch() -> None:
    command = "accelerate launch --num_processes 2 --gpu_ids 2,3 flux_train_network.py"
    words = {name: value for name, value in FLUX.items() if name != "dataset_config"}
    text = command + "".join(f" --{name}" + ("" if value is True else f" {value}") for name, value in words.items())
    text += " --train_data_dir /d --resolution 512 --gradient_accumulation_steps 3"
    run = read_config("t.sh", text.encode(), {}).runs[0]
    made = trained(run, {"/d": ("1_cat",)})
    assert (made.batch_size, made.gradient_accumulation) == (1, 6)
    assert any("2 processes" in line for line in differences(run))
    assert any("whatever the script says (2,3)" in line for line in differences(run))


def test_a_set_that_is_repeated_no_time_is_left_out() -> None:
    assert for_runner(run_of(of_subset={"num_repeats": 0}), schema_of(run_of())).datasets == ()
    with pytest.raises(UserError, match=r"num_repeats 2\.5 is not a whole number"):
        for_runner(run_of(of_subset={"num_repeats": 2.5}), schema_of(run_of()))
    assert for_runner(run_of(of_subset={"num_repeats": 2.0}), schema_of(run_of())).datasets[0].repeats == 2


def test_of_two_subsets_of_one_folder_the_first_counts() -> None:
    """As in sd-scripts, which passes over the other; a dataset of its own has the folder again."""
    subset = "[[datasets.subsets]]\nimage_dir = '/data/cat'\nnum_repeats = "
    of_set = "[[datasets]]\nresolution = 512\n"
    text = f"{of_set}{subset}2\n{subset}5\n{of_set}{subset}3\n"
    made = read_config(
        "c.toml", toml(FLUX).encode(), {}, trainer="sd-scripts", beside=lambda name: Found(name, text.encode())
    )
    assert [one.repeats for one in trained(made.runs[0]).datasets] == [2, 3]


def test_numbered_folders_are_datasets() -> None:
    options = {"dataset_config": ..., "train_data_dir": "/d/train", "reg_data_dir": "/d/reg", "resolution": "512,512"}
    run = run_of(options=options)
    names = {"/d/train": ("10_a cat", "3_dog", "log", "x_y"), "/d/reg": ("1_cat",)}
    made = trained(run, names).datasets
    assert [(one.key, one.folder, one.repeats, one.default_caption, one.is_regularisation) for one in made] == [
        ("train_data_dir/10_a cat", "/d/train/10_a cat", 10, "a cat", False),
        ("train_data_dir/3_dog", "/d/train/3_dog", 3, "dog", False),
        ("reg_data_dir/1_cat", "/d/reg/1_cat", 1, "cat", True),
    ]
    with pytest.raises(UserError, match="/d/train holds no folders such as 10_name"):
        for_runner(run, schema_of(run), {"/d/train": (), "/d/reg": ()}.get)


def test_values_at_their_default_are_no_setting() -> None:
    plain = {
        "shuffle_caption": False,
        "scale_weight_norms": 0,
        "save_model_as": "safetensors",
        "validation_split": 0.0,
    }
    trained(run_of(options=plain, of_subset={"color_aug": False}))


def test_what_differs_is_said() -> None:
    flux_run = run_of(
        options={
            "fp8_base": True,
            "full_bf16": True,
            "optimizer_type": "PagedAdamW8bit",
            "gradient_accumulation_steps": 2,
        },
        general={"flip_aug": True, "enable_bucket": True, "bucket_no_upscale": True},
    )
    found = " | ".join(differences(flux_run))
    for words in (
        "out/cat",
        "each on its own",
        "EXIF",
        "each row",
        "mirrored",
        "full_bf16",
        "pagedadamw8bit",
    ):
        assert words in found
    masked = run_of(options={"masked_loss": True}, of_subset={"conditioning_data_dir": "/masks"})
    assert any("masks are cropped" in line for line in differences(masked))
    zimage = " | ".join(differences(run_of("zimage_train_network", {"timestep_sampling": "shift"})))
    assert "each on its own" not in zimage and "0.001" in zimage and "32 tokens" in zimage
    assert "32 tokens" not in found and "0.004" in found and "encoded once" in found
    assert "encoded once" not in " ".join(differences(run_of(options={"cache_latents": True})))
    assert not any("0.001" in line for line in differences(run_of("zimage_train_network")))


def test_other_scripts_and_lone_datasets_are_refused() -> None:
    alone = read_config("m.toml", toml(MUSUBI_SET).replace("image", "[[datasets]]\nimage", 1).encode(), {}).runs[0]
    assert "holds datasets only" in said(alone)
    command = b"python sdxl_train_network.py --network_module networks.lora"
    assert "sdxl_train_network are not supported" in said(read_config("t.sh", command, {}).runs[0])
