"""What the runner cannot do is said by name, before torch is even imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from zdoctor.doctor.model.run import Dataset
from zdoctor.doctor.train import refuse

from .patient import run_with, written

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("optimizer automagic", {"optimizer": "automagic"}),
    ("setting d_coef of the optimizer adamw", {"optimizer_settings": {"d_coef": 2}}),
    ("weight_decay of the optimizer adamw is '1e-4'", {"optimizer_settings": {"weight_decay": "1e-4"}}),
    ("relative_step", {"optimizer": "adafactor", "optimizer_settings": {"relative_step": True}}),
    ("network type dora", {"network_type": "dora"}),
    ("lokr_factor 0", {"network_type": "lokr", "settings": written(network__lokr_factor=0)}),
    ("old LoKr format", {"network_type": "lokr", "settings": written(network__old_lokr_format=True)}),
    ("full fine-tune", {"kind": "finetune"}),
    ("job of type extract", {"kind": "other", "process_type": "extract"}),
    ("architecture flux", {"architecture": "flux"}),
    ("fp16 overflows", {"dtype": "fp16"}),
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
    ("no dataset", {"datasets": ()}),
    ("Control images", {"datasets": (Dataset("datasets/0", "x", ".txt", (64,), controls=("depth",)),)}),
    ("Regularisation", {"datasets": (Dataset("datasets/0", "x", ".txt", (64,), is_regularisation=True),)}),
    ("Training the text encoder", {"settings": written(train__train_text_encoder=True)}),
    ("Differential output preservation", {"settings": written(train__diff_output_preservation=True)}),
    ("Masks", {"settings": written(datasets__0__mask_path="/masks")}),
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
    ("EMA feedback", {"settings": written(train__ema_config__use_feedback=True)}),
    ("param_multiplier", {"settings": written(train__ema_config__param_multiplier=0.9)}),
    ("LoRA dropout", {"settings": written(network__dropout=0.1)}),
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
        {"use_ema": True},
        {"network_type": "lokr", "rank": 0, "settings": written(network__lokr_factor=8)},
        {"settings": written(train__do_differential_guidance=True, train__train_text_encoder=False)},
        {"settings": written(datasets__0__num_frames=1, network__dropout=None, train__min_denoising_steps=0)},
    ],
)
def test_what_it_can_do_is_not_refused(changes: dict[str, Any]) -> None:
    assert refuse(run_with(**changes)) == []


def test_an_optimizer_without_its_package_is_refused_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (reason,) = refuse(run_with(optimizer="prodigy"))
    assert reason.startswith("The optimizer prodigy needs a package") and "pip install prodigyopt" in reason


def test_refusing_needs_no_torch() -> None:
    code = "import sys, zdoctor.doctor.train as t; t.refuse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
