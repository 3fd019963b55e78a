"""The moving average of the weights is SimpleTuner's, and what only an evaluation looks at is let be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.train.step.trainer import ema_decay_at
from zdoctor.tests.doctor.train.patient import run_with

from .runs import SET, differences, run_of, said, trained


@pytest.mark.parametrize(
    ("written", "shares"),
    [
        # EMAModel.get_decay and should_update_ema of training/ema.py (bc8e6ab7), run for the updates from 1 on
        ({"ema_decay": 0.3}, [0.0, 2 / 11, 0.25, 0.3, 0.3, 0.3]),
        ({}, [0.0, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15]),
        ({"ema_warmup_steps": 4}, [0.0, 0.0, 0.0, 0.995, 0.995]),
        ({"ema_update_interval": 3}, [None, None, 3 / 12, None, None, 6 / 15]),
        ({"ema_update_interval": 2, "ema_warmup_steps": 5}, [None, 0.0, None, 0.0, None, 0.995]),
    ],
)
def test_the_average_follows_as_in_simpletuner(written: dict[str, Any], shares: list[float | None]) -> None:
    run = trained({"use_ema": True, **written})
    assert [ema_decay_at(run.recipe.ema, updates) for updates in range(1, len(shares) + 1)] == pytest.approx(shares)
    assert "the saved LoRA is the average" in " ".join(differences(run_of({"use_ema": True})))


def test_the_average_of_other_configs_is_one_decay() -> None:
    assert {ema_decay_at(run_with(use_ema=True, ema_decay=0.9).recipe.ema, updates) for updates in (1, 2, 500)} == {
        0.9
    }


def test_what_only_an_evaluation_looks_at() -> None:
    written = {
        "eval_steps_interval": 20,
        "eval_timesteps": 10,
        "eval_dataset_pooling": True,
        "ema_validation": "none",
    }
    evaluated = {**SET, "id": "held out", "dataset_type": "eval", "instance_data_dir": "other"}
    assert [dataset.folder for dataset in trained(written, SET, evaluated).recipe.datasets] == ["pictures"]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"ema_update_interval": 0, "use_ema": True}, "ema_update_interval must be a whole number above 0"),
        ({"init_lora": "a.safetensors", "lora_rank": 8, "lora_alpha": 4}, "init_lora with a lora_alpha other than"),
        ({"init_lora": "a.safetensors", "init_lora_step": 100}, "init_lora_step 100 is not supported"),
        ({"eval_dataset_id": "a"}, "eval_dataset_id a is not supported"),
        ({"loss_type": "l1"}, "loss_type l1 is not supported; use l2, huber, smooth_l1"),
        ({"loss_type": "huber", "huber_c": 0}, "huber_c must be a number above 0"),
        ({"base_model_precision": "fp8-torchao"}, "base_model_precision fp8-torchao is not supported; use no_change"),
    ],
)
def test_the_rest_is_refused_by_name(written: dict[str, Any], why: str) -> None:
    assert why in said(written)


def test_a_lora_to_start_from(tmp_path: Path) -> None:
    file = str(tmp_path / "a.safetensors")
    assert trained({"init_lora": file, "init_lora_step": 0}).recipe.network.initial_weights == file
    assert "begins at step 0" in " ".join(differences(run_of({"init_lora": file})))
    assert "begins at step 0" not in " ".join(differences(run_of({"init_lora": file, "init_lora_step": 0})))
    assert "init_lora with lora_type lycoris" in said(
        {"init_lora": file},
        lycoris={"algo": "lokr", "full_matrix": True, "apply_preset": {"target_module": ["Attention"]}},
    )
