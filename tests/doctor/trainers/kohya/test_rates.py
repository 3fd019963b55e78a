"""Learning rates are those of the trainers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.optimization import get_cosine_schedule_with_warmup, get_scheduler

from zdoctor.doctor.train.step.lr_scheduler import lr_factor
from zdoctor.doctor.trainers.read import read_config

from .runs import FLUX, run_of, trained


def test_rates_are_the_trainers() -> None:
    options = {"lr_scheduler": "cosine", "lr_warmup_steps": 0.1, "max_train_steps": 30, "unet_lr": 1e-3}
    run = trained(run_of(options=options))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=30)
    for step in range(30):
        ours = run.recipe.learning_rate * lr_factor(
            run.recipe.lr_scheduler.name, run.recipe.lr_scheduler.settings, run.recipe.learning_rate, step, 30
        )
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
        ours = run.recipe.learning_rate * lr_factor(
            run.recipe.lr_scheduler.name, run.recipe.lr_scheduler.settings, run.recipe.learning_rate, step, 30
        )
        assert ours == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        for _ in range(2):
            optimizer.step()
            scheduler.step()
