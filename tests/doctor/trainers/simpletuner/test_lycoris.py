"""A LoKr of LyCORIS is trained on the Linears, with the factors and with the scale that LyCORIS gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.families.network import described, lokr_factor, trained_weights
from zdoctor.doctor.train.network.lora import add_network, lora_targets
from zdoctor.doctor.train.settings.explain import explain
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.tests.doctor.train.conftest import deep, flux

from .runs import run_of, said, trained

__all__ = ["deep", "flux"]
# what the trainer's configure script writes (lycoris_defaults.py), with smaller factors
FACTORS = {"Attention": {"factor": 4}, "FeedForward": {"factor": 2}}
LOKR: dict[str, Any] = {
    "algo": "lokr",
    "multiplier": 1.0,
    "linear_dim": 10000,
    "linear_alpha": 1,
    "factor": 4,
    "apply_preset": {"target_module": ["Attention", "FeedForward"], "module_algo_map": FACTORS},
}
ATTENTION = {"apply_preset": {"target_module": ["Attention"]}}
FLUX = {"model_family": "flux", "model_flavour": "dev"}
# What LycorisNetwork of LyCORIS 3.2 makes of these files on the deep models: how many Linears with how many weights,
# and the shapes of one of them.
MADE: list[tuple[dict[str, Any], dict[str, Any], int, int, str, dict[str, tuple[int, int]]]] = [
    ({}, LOKR, 42, 124872, "layers.0.feed_forward.w1", {"lokr_w1": (2, 2), "lokr_w2": (128, 48)}),
    ({}, {**LOKR, **ATTENTION}, 24, 14208, "layers.0.attention.to_q", {"lokr_w1": (4, 4), "lokr_w2": (24, 24)}),
    (
        *({}, {**LOKR, "linear_dim": 2, "linear_alpha": 2, **ATTENTION}, 24, 2688, "layers.0.attention.to_q"),
        {"lokr_w1": (4, 4), "lokr_w2_a": (24, 2), "lokr_w2_b": (2, 24)},
    ),
    (
        *({}, {**LOKR, "linear_dim": 4, "full_matrix": True, "factor": -1, **ATTENTION}, 24, 4992),
        *("layers.0.attention.to_q", {"lokr_w1": (8, 8), "lokr_w2": (12, 12)}),
    ),
    (
        *({}, {**LOKR, "apply_preset": {"target_module": [], "module_algo_map": FACTORS}}, 42, 124872),
        *("layers.0.feed_forward.w1", {"lokr_w1": (2, 2), "lokr_w2": (128, 48)}),
    ),
    (
        *({}, {**LOKR, "algo": "loha", "linear_dim": 2, **ATTENTION}, 24, 18432, "layers.0.attention.to_q"),
        {f"hada_w{n}_{side}": (96, 2) if side == "a" else (2, 96) for n in (1, 2) for side in "ab"},
    ),
    (FLUX, LOKR, 33, 2880, "transformer_blocks.0.ff.net.2", {"lokr_w1": (2, 2), "lokr_w2": (8, 32)}),
    (FLUX, {**LOKR, **ATTENTION}, 25, 800, "transformer_blocks.0.attn.to_q", {"lokr_w1": (4, 4), "lokr_w2": (4, 4)}),
]


@pytest.mark.parametrize(("written", "file", "linears", "weights", "name", "shapes"), MADE, ids=range(len(MADE)))
def test_the_network_is_that_of_lycoris(
    deep: Path,
    flux: Path,
    written: dict[str, Any],
    file: dict[str, Any],
    linears: int,
    weights: int,
    name: str,
    shapes: dict[str, tuple[int, int]],
) -> None:
    run = trained(written, lycoris=file)
    model = build_empty_transformer((flux if written else deep) / "transformer")
    covered = lora_targets(model, run.recipe.network.excluded, refiners=run.recipe.network.refiners)
    assert len(covered) == linears
    everything = lora_targets(model, refiners=run.recipe.network.refiners)
    assert trained_weights(run.recipe.network, everything) == weights
    assert (
        trained_weights(run_of(written, lycoris=file).recipe.network, everything) == weights
    )  # what a check predicts with
    network = add_network(model.to_empty(device="cpu"), covered, run.recipe.network, 0)
    assert {key: tuple(value.shape) for key, value in network[name].named_parameters(recurse=False)} == shapes
    assert sum(p.numel() for one in network.values() for p in one.parameters(recurse=False)) == weights


def test_what_a_lokr_has_no_say_in() -> None:
    inert = {
        "bypass_mode": True,
        "conv_dim": 8,
        "use_tucker": True,
        "dropout": 0.0,
        "use_scalar": False,
        "preset": "full",
    }
    run = trained({"lora_rank": 64, "lora_alpha": 1}, lycoris={**LOKR, **inert})
    assert (run.recipe.network.type, run.recipe.network.rank, run.recipe.network.alpha) == (
        "lokr",
        64,
        64.0,
    )  # of no effect on full matrices
    assert run.recipe.network.scale == 1.0 and run.recipe.network.dropout == 0
    assert not list(explain(run))
    assert lokr_factor(run.recipe.network, "layers.3.feed_forward.w2") == 2
    assert lokr_factor(run.recipe.network, "layers.3.attention.to_out.0") == 4
    assert "ff of 2" in described(run.recipe.network) and described(run.recipe.network) != described(
        trained({}, lycoris={**LOKR, **ATTENTION}).recipe.network
    )


@pytest.mark.parametrize(("alpha", "scale"), [(1, 0.125), (0, 1.0), (8, 1.0), (12.0, 1.5)])
@pytest.mark.parametrize("algo", ["loha", "lokr"])
def test_alpha_scales_what_is_split(algo: str, alpha: float, scale: float) -> None:
    file = {**LOKR, "algo": algo, "linear_dim": 8, "linear_alpha": alpha, "apply_preset": ATTENTION["apply_preset"]}
    network = trained({}, lycoris=file).recipe.network
    assert (network.type, network.rank, network.scale) == (algo, 8, scale)


PRESET = LOKR["apply_preset"]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ({**LOKR, "algo": "boft"}, "algo boft is not supported; use lokr, loha, or lora_type: standard"),
        ({"multiplier": 1, "linear_dim": 4}, "algo lora is not supported"),
        ({**LOKR, "multiplier": 0.5}, "multiplier 0.5 is not supported; use 1.0"),
        ({**LOKR, "factor": 0}, "factor 0 is neither -1 nor a whole number from 1 to 55"),
        ({**LOKR, "factor": "16"}, "factor 16 is neither"),
        ({**LOKR, "factor": 64}, "factor 64 is neither"),
        ({**LOKR, "use_scalar": True}, "use_scalar true is not supported"),
        ({**LOKR, "dora_wd": True}, "dora_wd true"),
        ({**LOKR, "decompose_both": True}, "decompose_both true"),
        ({**LOKR, "rank_dropout": 0.1}, "rank_dropout 0.1"),
        ({**LOKR, "train_norm": True}, "train_norm true"),
        ({**LOKR, "preset": "attn-mlp"}, "preset attn-mlp is not supported"),
        ({**LOKR, "new_thing": 3}, "new_thing 3"),
        ({**LOKR, "apply_preset": None}, "Without target_module every Linear is covered"),
        (
            {**LOKR, "apply_preset": {"target_module": ["Transformer2DModel"]}},
            "target_module Transformer2DModel is",
        ),
        ({**LOKR, "apply_preset": {**PRESET, "target_name": ["layers.1*"]}}, "target_name …"),
        ({**LOKR, "apply_preset": {**PRESET, "name_algo_map": {"a": {}}}}, "name_algo_map …"),
        ({**LOKR, "apply_preset": {"module_algo_map": {"Attention": {"algo": "loha"}}}}, "algo loha of Attention"),
        ({**LOKR, "apply_preset": {"module_algo_map": {"Attention": {"dim": 4}}}}, "dim 4 of Attention"),
        ({**LOKR, "apply_preset": {"module_algo_map": {"FeedForward": {"factor": 0}}}}, "factor 0 is neither"),
    ],
)
def test_the_rest_is_refused_by_name(file: dict[str, Any], why: str) -> None:
    assert why in said({}, lycoris=file)
    assert ("(lycoris.json:" if "algo" in file else "(config.json:") in said({}, lycoris=file)


@pytest.mark.parametrize("file", [[], 3, {"algo": 4, "apply_preset": 7}, {"algo": "lokr", "apply_preset": {"a": 1}}])
def test_odd_files_do_no_harm(file: object) -> None:
    assert said({}, lycoris=file)


def test_a_file_that_is_not_there() -> None:
    assert "The file that lycoris_config names is not there" in said(
        {"lora_type": "lycoris", "lycoris_config": "x.json"}
    )
