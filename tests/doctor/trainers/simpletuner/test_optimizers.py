"""Optimizers are made with the settings that SimpleTuner gives them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zdoctor.doctor.train.step.optimizer import make_optimizer

from .runs import said, trained


@pytest.mark.parametrize(
    ("written", "name", "settings"),
    [
        # default_settings and convert_arg_to_parameters of optimizer_param.py (bc8e6ab7)
        ({}, "adamw", {"betas": [0.9, 0.999], "weight_decay": 1e-2, "eps": 1e-6}),
        ({"optimizer": "torch-adamw"}, "adamw", {"betas": [0.9, 0.999], "weight_decay": 1e-2, "eps": 1e-8}),
        ({"optimizer": "optimi-adamw"}, "adamw", {"betas": [0.9, 0.99], "weight_decay": 0.0, "eps": 1e-6}),
        ({"optimizer": "optimi-lion"}, "lion", {"betas": [0.9, 0.99], "weight_decay": 0.0}),
        ({"optimizer": "bnb-lion8bit"}, "lion8bit", {"betas": [0.9, 0.99], "weight_decay": 0.0}),
        ({"optimizer": "bnb-adamw8bit-paged"}, "adamw8bit", {"weight_decay": 1e-2, "eps": 1e-6}),
        ({"optimizer": "torch-adagrad"}, "adagrad", {"lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10}),
        ({"optimizer_config": "weight_decay=0.0,eps=1e-8"}, "adamw", {"weight_decay": 0.0, "eps": 1e-8}),
        ({"optimizer_config": "weight_decay=1"}, "adamw", {"weight_decay": 1.0}),
        ({"optimizer_config": "kahan_sum=false", "optimizer": "optimi-adamw"}, "adamw", {"weight_decay": 0.0}),
        ({"optimizer_beta1": 0.8, "optimizer_beta2": "0.95"}, "adamw", {"betas": [0.8, 0.95], "weight_decay": 1e-2}),
        ({"optimizer_beta1": 0, "optimizer_beta2": 0.9, "optimizer": "optimi-lion"}, "lion", {"betas": [0.0, 0.9]}),
        # only DeepSpeed looks at these
        ({"adam_weight_decay": 0.5, "adam_beta1": 0.1, "adam_epsilon": 1}, "adamw", {"weight_decay": 1e-2}),
        (
            {"base_model_precision": "int8-quanto", "base_model_default_dtype": "fp32"},
            "adamw",
            {"betas": [0.9, 0.99], "weight_decay": 0.0},
        ),
    ],
)
def test_settings_are_simpletuners(written: dict[str, Any], name: str, settings: dict[str, Any]) -> None:
    run = trained(written)
    assert run.recipe.optimizer.name == name
    assert {**run.recipe.optimizer.settings, **settings} == run.recipe.optimizer.settings
    told: list[str] = []
    weights = [torch.nn.Parameter(torch.zeros(2))]
    made = make_optimizer(
        name, run.recipe.optimizer.settings, run.recipe.learning_rate, weights, torch.device("cpu"), told.append
    )
    group = made.param_groups[0]
    assert {key: list(group[key]) if key == "betas" else group[key] for key in settings} == settings


def test_prodigy_has_a_rate_of_one() -> None:
    run = trained({"optimizer": "prodigy", "learning_rate": 1e-4, "optimizer_config": "d_coef=0.5"})
    assert (run.recipe.optimizer.name, run.recipe.learning_rate, run.recipe.optimizer.settings["d_coef"]) == (
        "prodigy",
        1.0,
        0.5,
    )


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"optimizer": "soap"}, "optimizer soap is not supported; use adamw_bf16, torch-adamw"),
        (
            {"optimizer_config": "amsgrad=true"},
            "amsgrad in optimizer_config is not supported; adamw_bf16 takes",
        ),
        ({"optimizer": "optimi-lion", "optimizer_config": "eps=1e-8"}, "eps in optimizer_config"),
        ({"optimizer_config": "weight_decay=0.1, eps=1e-8"}, " eps in optimizer_config"),  # it strips nothing
        ({"optimizer_config": "eps=1e8"}, "eps in optimizer_config is 1e8, which is no number"),
        ({"optimizer_config": "eps"}, "eps in optimizer_config is empty, which is no number"),
        ({"optimizer_beta1": 0.9}, "optimizer_beta1 and optimizer_beta2 count only together"),
        ({"optimizer_beta1": 0.9, "optimizer_beta2": 1.0}, "optimizer_beta2 1.0 is not a number from 0 to below 1"),
        (
            {"optimizer": "torch-adagrad", "optimizer_beta1": 0.9, "optimizer_beta2": 0.9},
            "supported for torch-a",
        ),
        ({"optimizer_release_gradients": True}, "optimizer_release_gradients true is not supported"),
    ],
)
def test_the_rest_is_refused_by_name(written: dict[str, Any], why: str) -> None:
    assert why in said(written)
    assert "config.json:" in said(written)
