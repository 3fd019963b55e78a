"""Each damage really stops the real loaders, what they load is silent, and parts of different models are told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from .flux_folders import FLUX
from .folders import Family, configured, dropped, findings
from .qwen_image_folders import QWEN_IMAGE
from .zimage_folders import ZIMAGE

FAMILIES = {"zimage": ZIMAGE, "flux": FLUX, "qwen_image": QWEN_IMAGE}


def copied(family: Family, folder: Path) -> Path:
    shutil.copytree(family.healthy(), folder)
    return folder


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, of in FAMILIES.items() for case in of.sick])
def test_the_real_loaders_fail_and_exactly_one_rule_says_why(name: str, case: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    change, expected = family.sick[case]
    folder = copied(family, tmp_path / "m")
    change(folder)
    with pytest.raises((OSError, ValueError, RuntimeError, SafetensorError)):
        family.load(folder)
    seen = findings(folder, name)
    assert list(seen) == [expected]
    assert len(seen[expected]) == 1


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, of in FAMILIES.items() for case in of.well])
def test_what_loads_is_silent(name: str, case: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    folder = copied(family, tmp_path / "m")
    family.well[case](folder)
    made, right = family.load(folder), family.load(family.healthy())
    for part in (part for part in right if part.startswith("text_encoder")):
        theirs = right[part].state_dict()
        for tensor, value in made[part].state_dict().items():
            assert tensor == "lm_head.weight" or torch.equal(value, theirs[tensor])  # a head makes no embeddings
    for architecture in family.architectures:
        assert findings(folder, architecture) == {}


@pytest.mark.parametrize(
    ("name", "part", "hole"),
    [
        ("zimage", "text_encoder", "model.layers.1.mlp.up_proj.weight"),
        ("flux", "text_encoder", "encoder.layers.1.mlp.fc1.weight"),
        ("flux", "text_encoder_2", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        ("flux", "text_encoder_2", "shared.weight"),
    ],
)
def test_text_encoders_with_holes_load_as_if_nothing_were_wrong(
    name: str, part: str, hole: str, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    folder = copied(family, tmp_path / "m")
    dropped(hole, part, "model.safetensors")(folder)
    made, right = (family.load(place)[part].state_dict()[hole] for place in (folder, family.healthy()))
    assert not torch.equal(made, right)  # the hole is filled with random numbers
    (finding,) = findings(folder, name)["MDL001"]
    assert hole in finding.text() and "random numbers" in finding.consequence()


@pytest.mark.parametrize(
    ("name", "part", "key", "value"),
    [
        ("zimage", "text_encoder", "hidden_size", 48),
        ("zimage", "vae", "latent_channels", 4),
        ("zimage", "transformer", "_class_name", "Flux"),
        ("flux", "text_encoder", "hidden_size", 48),
        ("flux", "text_encoder_2", "d_model", 48),
        ("flux", "vae", "latent_channels", 16),
    ],
)
def test_parts_of_different_models(name: str, part: str, key: str, value: object, tmp_path: Path) -> None:
    folder = copied(FAMILIES[name], tmp_path / "m")
    configured(part, **{key: value})(folder)
    texts = " ".join(finding.text() for finding in findings(folder, name)["MDL002"])
    assert (f"{part} has {key} {value}" if part != "transformer" else str(value)) in texts
