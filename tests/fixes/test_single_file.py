"""The shown command really makes a folder that loads and that the checks pass."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model import Fix, ModelFolder
from zdoctor.doctor.probe.model import probe_model
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.model import convert_to_a_folder
from zdoctor.tests.checks.model.folders import findings
from zdoctor.tests.checks.model.test_single_file import (
    ZImageTransformer2DModel,
    comfy_tensors,
    diffusers_tensors,
    eight_bit_without_scales,
    one_gone,
    one_more,
    prefixed,
    scaled,
    vae,
    whole_model,
)
from zdoctor.tests.machines import machine, system
from zdoctor.tests.models import NO_HUB, healthy, probed, run_of

Tensors = dict[str, Any]


def fixes(file: Path) -> list[Fix]:
    run = run_of(file, extras_name_or_path=str(healthy()))
    return [f for finding in checkpoint_layout_mismatch(run, probed(run)) for f in convert_to_a_folder(finding)]


@pytest.mark.parametrize("damage", [prefixed, one_more, whole_model], ids=lambda damage: damage.__name__)
def test_the_command_makes_a_folder_that_loads(damage: Callable[[Tensors], Tensors], tmp_path: Path) -> None:
    file = tmp_path / "a model.safetensors"
    save_file(damage(comfy_tensors()), file, metadata={"format": "pt"})
    (fix,) = fixes(file)
    assert fix.safety == "show" and fix.steps == ()
    python, flag, code = shlex.split(fix.command)
    assert (python, flag) == ("python", "-c")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, {})
        made = ZImageTransformer2DModel.from_pretrained(tmp_path / "a model-diffusers", subfolder="transformer")
    right = diffusers_tensors()
    assert all(torch.equal(value.float(), right[n].bfloat16().float()) for n, value in made.state_dict().items())
    assert findings(tmp_path / "a model-diffusers", extras_name_or_path=str(healthy())) == {}


@pytest.mark.parametrize("damage", [one_gone, scaled, vae], ids=lambda damage: damage.__name__)
def test_what_conversion_would_not_cure_is_not_converted(
    damage: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    save_file(damage(comfy_tensors()), file, metadata={"format": "pt"})
    assert fixes(file) == []


def test_no_command_for_a_name_that_shells_read_differently(tmp_path: Path) -> None:
    file = tmp_path / "it's mine.safetensors"
    save_file(prefixed(eight_bit_without_scales(comfy_tensors())), file)
    assert fixes(file) == []


@pytest.mark.parametrize(
    ("config", "prefix", "lost", "repo"),
    [
        ({"guidance_embeds": True}, "", "", "FLUX.1-dev"),
        ({}, "model.diffusion_model.", "", "FLUX.1-schnell"),
        ({}, "", "single_blocks.37.linear2.bias", None),
        ({"num_layers": 8}, "", "", None),
        ({"in_channels": 384, "guidance_embeds": True}, "", "", None),
    ],
)
def test_flux_comes_with_its_other_parts(config: dict[str, Any], prefix: str, lost: str, repo: str | None) -> None:
    needed = needed_tensors("FluxTransformer2DModel", config) or {}
    original = original_layout(flux_original_name, needed)
    tensors = {prefix + name: ["BF16", list(shape)] for name, shape in original.items() if name != lost}
    files = {"/m/flux.safetensors": {"tensors": {**tensors, "vae.decoder.conv_in.bias": ["BF16", [512]]}}}
    run = run_of("/m/flux.safetensors", "flux")
    world = RecordedWorld(machine("a test", system("linux", 1 << 34, "/home/a", "/home/a"), files))
    model = probe_model(world, run, NO_HUB)
    assert isinstance(model, ModelFolder)
    (finding,) = checkpoint_layout_mismatch(run, model)
    with pytest.raises(Unestablished, match="no single file"):
        list(missing_checkpoint_tensors(run, model))
    made = list(convert_to_a_folder(finding))
    if repo is None:
        assert made == []
        return
    download, _, convert = made[0].command.partition(" && ")
    assert download.startswith(f"hf download black-forest-labs/{repo} --include")
    assert "/m/flux-diffusers/transformer" in convert and "FluxTransformer2DModel" in convert
    assert re.search(r"config='black-forest-labs/[\w.-]+'", convert)
