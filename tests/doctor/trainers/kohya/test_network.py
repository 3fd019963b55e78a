"""Which Linears a network of sd-scripts or musubi-tuner covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.tests.doctor.train.conftest import flux, tiny

from .runs import run_of, trained

__all__ = ["flux", "tiny"]


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
