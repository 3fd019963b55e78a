"""What of a config of sd-scripts or musubi-tuner the runner obeys, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from zdoctor.doctor.trainers.read import read_config
from zdoctor.tests.changes import value_of

from .runs import MUSUBI_SET, SCRIPTS, differences, run_of, said, toml, trained


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_plain_config_is_obeyed(script: str) -> None:
    run = trained(run_of(script))
    assert (run.trainer, run.output_folder, run.name, run.recipe.steps) == ("zdoctor", "out/cat", "cat", 1600)
    assert (run.recipe.network.rank, run.recipe.network.alpha, run.recipe.network.scale) == (
        4,
        1.0,
        0.25,
    )  # both by default
    assert (run.recipe.learning_rate, run.recipe.optimizer.name, run.recipe.optimizer.settings) == (
        2e-6,
        "adamw",
        {"eps": 1e-8},
    )
    assert (run.recipe.max_grad_norm, run.recipe.clip_method) == (1.0, "norm")
    assert (
        run.recipe.checkpoints.every,
        run.recipe.checkpoints.dtype,
        run.recipe.checkpoints.keep,
        run.recipe.loss.type,
    ) == (0, "float", 0, "mse")
    flux_only = script == "flux_train_network"
    assert run.recipe.loss.embedded_guidance == (3.5 if flux_only else 1.0)
    density = run.recipe.timestep_sampling.density
    assert density is not None and density.shift == (3.0 if flux_only else 1.0)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"network_dim": 16, "network_alpha": 8}, {"rank": 16, "alpha": 8.0, "network.scale": 0.5}),
        ({"network_dim": 16, "network_alpha": 0}, {"alpha": 16.0, "network.scale": 1.0}),
        (
            {"network_dropout": 0.1, "network_args": ["rank_dropout=0.2", "module_dropout=0.3"]},
            {"network.dropout": 0.1, "network.rank_dropout": 0.2, "network.module_dropout": 0.3},
        ),
        (
            {"network_args": ["verbose=True", "conv_dim=4", "loraplus_lr_ratio=4"]},
            {"network_type": "lora", "network.lora_plus_ratio": 4.0},
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
        ({"max_train_epochs": 3}, {"steps": 0, "epochs": 3}),
        ({"max_train_steps": 9, "save_every_n_epochs": 2, "save_last_n_epochs": 3}, {"keep_saves": 3, "steps": 9}),
        ({"save_every_n_steps": 100, "save_last_n_steps": 250}, {"save_every": 100, "keep_saves": 3}),
        ({"save_precision": "bf16", "seed": 3}, {"save_dtype": "bf16", "seed": 3}),
        ({"max_grad_norm": 0}, {"max_grad_norm": 0.0}),
        (
            {"blocks_to_swap": 19},
            {"gradient_checkpointing": True},
        ),
        ({"log_with": "wandb", "wandb_run_name": "x"}, {"logging.report_to": ("wandb",), "logging.run_name": "x"}),
        ({"training_comment": "for Ada"}, {"metadata": {"ss_training_comment": "for Ada"}}),
        ({"network_weights": "old.safetensors"}, {"network.initial_weights": "old.safetensors"}),
        ({"fp8_base": True}, {"quantization": "float8", "text_encoder_quantization": None}),
    ],
)
@pytest.mark.parametrize("script", ["flux_train_network", "zimage_train_network"])
def test_what_is_obeyed(
    script: str, options: dict[str, Any], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # packages that need not be here
    run = trained(run_of(script, options))
    found = {name: value_of(run, name) for name in fields}
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
    assert [(one.prompt, one.width) for one in run.recipe.validation.prompts] == [("a cat", 512)]
    assert (not run.recipe.validation.disabled, not run.recipe.validation.skip_first) == (painted, first)
    assert run.recipe.validation.every_epochs == options.get("sample_every_n_epochs", 0)


def test_the_older_names_of_optimizers_and_ratios() -> None:
    assert trained(run_of(options={"use_8bit_adam": True})).recipe.optimizer.name == "adamw8bit"
    assert trained(run_of(options={"apply_t5_attn_mask": True})).recipe.mask_padding
    run = trained(run_of(options={"max_train_epochs": 10, "save_n_epoch_ratio": 4, "save_last_n_epochs": 2}))
    assert (run.recipe.checkpoints.every_epochs, run.recipe.checkpoints.keep) == (2, 2)


def test_optimizers_of_packages_are_taken_by_name_and_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # as if all were installed
    plain = {"lr_scheduler": "cosine", "optimizer_args": ["weight_decay=0.1", "betas=(0.9, 0.95)"]}
    for written, name, schedule in (
        ("AdamWScheduleFree", "adamwschedulefree", "constant"),  # which both trainers leave its rate
        ("prodigyplus.ProdigyPlusScheduleFree", "prodigyplus.ProdigyPlusScheduleFree", "constant"),
        ("came_pytorch.CAME", "came_pytorch.CAME", "cosine"),
    ):
        recipe = trained(run_of(options={**plain, "optimizer_type": written})).recipe
        assert (recipe.optimizer.name, recipe.lr_scheduler.name) == (name, schedule)
        assert recipe.optimizer.settings == {"weight_decay": 0.1, "betas": (0.9, 0.95)}


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
    command = b"python sd3_train_network.py --network_module networks.lora"
    assert "sd3_train_network are not supported" in said(read_config("t.sh", command, {}).runs[0])
