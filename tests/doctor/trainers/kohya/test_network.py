"""Which Linears a network of sd-scripts or musubi-tuner covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.doctor.trainers.read import Found, read_config
from zdoctor.tests.doctor.train.conftest import flux, tiny

from .runs import GENERAL, MUSUBI_SET, SCRIPTS, run_of, toml, trained

__all__ = ["flux", "tiny"]
MUSUBI = f"[general]\n{toml(GENERAL)}[[datasets]]\n{toml(MUSUBI_SET)}"


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
    model = build_empty_transformer(flux / "transformer")
    run = trained(run_of(script, {"network_args": words} if words else {}))
    names = lora_targets(model, run.recipe.network.excluded)
    blocks = {".".join(name.split(".")[:2]) for name in names}
    found = [sum(block.startswith(kind) for block in blocks) for kind in ("transformer_blocks", "single_")]
    assert found == covered


def test_musubi_leaves_the_modulation_out(flux: Path, tiny: Path) -> None:
    for script, folder in (("flux_kontext_train_network", flux), ("zimage_train_network", tiny)):
        model = build_empty_transformer(folder / "transformer")
        names = lora_targets(model, trained(run_of(script)).recipe.network.excluded)
        gone = {name.rpartition(".")[0].split(".", 2)[-1] for name in lora_targets(model).keys() - names.keys()}
        assert gone == ({"adaLN_modulation"} if folder == tiny else {"norm1", "norm1_context", "norm"})


def _of_command(script: str, words: str) -> Network:
    """The network of a command that names the script, with the options of a config of it."""
    options = {name: value for name, value in SCRIPTS[script].items() if name != "network_module"}
    text = " ".join(f"--{name} {value}" for name, value in options.items())
    return trained(
        read_config(
            "train.sh",
            f"accelerate launch {script}.py {text} {words}".encode(),
            {},
            beside=lambda name: Found(name, MUSUBI.encode()) if name == "m.toml" else None,
        ).runs[0]
    ).recipe.network


def test_the_other_kinds_are_those_of_their_modules(flux: Path) -> None:
    loha = _of_command("zimage_train_network", "--network_module networks.loha --network_dim 8")
    assert (loha.type, loha.rank, loha.scale) == ("loha", 8, 0.125) and "adaLN_modulation" in loha.excluded
    words = "--network_module networks.lokr --network_args factor=4 --network_alpha 2 --network_dim 4"
    lokr = _of_command("flux_kontext_train_network", words)
    assert (lokr.type, lokr.lokr_factor, lokr.lokr_full_rank, lokr.scale) == ("lokr", 4, False, 0.5)
    of_oft: dict[str, Any] = {"network_module": "networks.oft_flux", "network_dim": 4, "network_alpha": 0.001}
    run = trained(run_of("flux_train_network", of_oft))
    oft = run.recipe.network
    assert (oft.type, oft.rank, oft.alpha, oft.scale, oft.dropout) == ("oft", 4, 0.001, 1.0, 0.0)
    model = build_empty_transformer(flux / "transformer")
    assert all(
        ".attn." in name and name.startswith("transformer_blocks") for name in lora_targets(model, oft.excluded)
    )
    run = trained(run_of("flux_train_network", {**of_oft, "network_args": ["enable_all_linear=True"]}))
    assert lora_targets(model, run.recipe.network.excluded) == lora_targets(model)


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, (2e-6, None)),
        ({"learning_rate": 1e-4, "unet_lr": 1e-3}, (1e-4, None)),
        ({"text_encoder_lr": 1e-5}, (1e-5, None)),
        ({"text_encoder_lr": [1e-5], "network_args": ["train_t5xxl=True"]}, (1e-5, 1e-5)),
        ({"text_encoder_lr": [1e-5, 2e-6], "network_args": ["train_t5xxl=True"]}, (1e-5, 2e-6)),
        ({"text_encoder_lr": [0.0, 2e-6], "network_args": ["train_t5xxl=True"]}, (None, 2e-6)),
        ({"text_encoder_lr": [1e-5], "cache_text_encoder_outputs": True}, (1e-5, None)),
        ({"network_module": "networks.oft_flux"}, (None, None)),
        ({"network_train_unet_only": True}, (None, None)),
    ],
)
def test_text_encoders_learn_unless_the_transformer_alone_is_asked_for(
    options: dict[str, Any], rates: tuple[float | None, float | None]
) -> None:
    run = trained(run_of(options={"network_train_unet_only": ..., **options}))
    wanted = {name: rate for name, rate in zip(("text_encoder", "text_encoder_2"), rates, strict=True) if rate}
    assert run.recipe.network.text_rates == wanted and run.recipe.train_text_encoder == bool(wanted)
    told = " ".join(run.differences)
    assert ("LoRA of CLIP-L" in told, "LoRA of T5" in told) == tuple(bool(rate) for rate in rates)


def test_lora_plus_of_text_encoders_has_a_ratio_of_its_own() -> None:
    words = ["loraplus_lr_ratio=4", "loraplus_unet_lr_ratio=8"]
    both = trained(run_of(options={"network_train_unet_only": ..., "network_args": words})).recipe.network
    assert (both.lora_plus_ratio, both.text_plus_ratio) == (8.0, 4.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"gradient_checkpointing": True}, True), ({}, False), ({"cache_text_encoder_outputs": True}, False)],
)
def test_the_dropout_of_t5_is_told_where_the_trainer_has_it(options: dict[str, Any], said: bool) -> None:
    run = trained(run_of(options={"network_train_unet_only": ..., **options}))
    assert any("without its dropout" in one for one in run.differences) == said
