"""Flux: what the loaders make of a folder that is not whole, and what the rules say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model import Finding, Hub, HubRepo, SetValue
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.model import name_the_architecture, name_the_model
from zdoctor.tests.flux import DEV, AutoencoderKL, FluxTransformer2DModel, copy_flux, healthy_flux, load_flux
from zdoctor.tests.models import INDEX, healthy, probed, rewrite, run_of

from . import folders
from .flux_folders import original_names
from .folders import configured, remove
from .zimage_folders import load as load_zimage


def findings(folder: Path | str, architecture: str = "flux", **settings: Any) -> dict[str, list[Finding]]:
    return folders.findings(folder, architecture, **settings)


@pytest.mark.parametrize("part", ["tokenizer", "tokenizer_2"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_tokenizer_without_words_loads_and_knows_none(part: str, empty: bool, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove(part)(folder)
    if empty:
        (folder / part).mkdir()
    words = load_flux(folder)[part]("a b")["input_ids"]
    assert words != load_flux(healthy_flux())[part]("a b")["input_ids"]
    (finding,) = findings(folder)["MDL003"]
    assert part in finding.text() and "vocabulary" in finding.consequence()


def test_dev_with_the_config_of_schnell_forgets_its_guidance(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    configured("transformer", guidance_embeds=False)(folder)
    assert not any("guidance" in name for name in load_flux(folder)["transformer"].state_dict())
    (finding,) = findings(folder)["MDL002"]
    assert "guidance" in finding.text()


def test_scales_of_an_eight_bit_t5_are_dropped(tmp_path: Path) -> None:
    """As ComfyUI's t5xxl files are, put into text_encoder_2/ under the name that the loader asks for."""
    folder = copy_flux(tmp_path / "m")
    name = "encoder.block.0.layer.1.DenseReluDense.wo.weight"
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {
            **{n: (v / 2).to(torch.float8_e4m3fn) if n == name else v for n, v in t.items()},
            name.replace("weight", "scale_weight"): torch.tensor(2.0),
            "scaled_fp8": torch.zeros(0).to(torch.float8_e4m3fn),
        },
    )
    made, right = (load_flux(place)["text_encoder_2"].state_dict()[name] for place in (folder, healthy_flux()))
    assert 0.4 < made.float().norm() / right.float().norm() < 0.6
    (finding,) = findings(folder)["MDL002"]
    assert "scales" in finding.text() and "garbage" in finding.consequence()


@pytest.mark.parametrize(
    ("folder", "written", "meant"), [(healthy, "flux", "zimage"), (healthy_flux, "zimage", "flux")]
)
def test_a_model_under_another_architecture(folder: Callable[[], Path], written: str, meant: str) -> None:
    with pytest.raises((OSError, ValueError, RuntimeError, TypeError)):
        (load_flux if written == "flux" else load_zimage)(folder())
    (finding,) = findings(folder(), written)["MDL002"]
    assert f"arch {meant}" in finding.text()
    (fix,) = name_the_architecture(finding, run_of(folder(), written))
    assert (fix.safety, fix.training_effect) == ("ask", "changes-result")
    (step,) = fix.steps
    assert isinstance(step, SetValue) and step.value == meant and findings(folder(), step.value) == {}


def test_the_transformer_alone_is_no_flux_model(tmp_path: Path) -> None:
    alone = copy_flux(tmp_path / "m") / "transformer"
    with pytest.raises(OSError):
        load_flux(alone)
    # the rest lies beside it: its own folder was named where the whole model's is wanted
    (finding,) = findings(alone)["MDL003"]
    assert finding.evidence["whole"] == str(tmp_path / "m")
    (fix,) = name_the_model(finding, run_of(alone, "flux"))
    (step,) = fix.steps
    assert isinstance(step, SetValue) and step.value == str(tmp_path / "m") and fix.safety == "safe"
    load_flux(Path(step.value))
    remove("vae")(tmp_path / "m")
    (finding,) = findings(alone)["MDL003"]
    assert "transformer/" in finding.text() and "text_encoder_2/" in finding.text()
    # Kontext takes the other parts from the extras, but the transformer still from a folder of that name
    (finding,) = findings(alone, "flux_kontext", extras_name_or_path=str(healthy_flux()))["MDL003"]
    assert "no transformer/." in finding.text()


@pytest.mark.parametrize("inside", ["", "vae"])
def test_flux_takes_its_vae_from_a_path_of_its_own(inside: str, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove("vae")(folder)
    own = healthy_flux() / "vae" if not inside else healthy_flux()
    assert AutoencoderKL.from_pretrained(own, subfolder=inside or None)
    assert findings(folder, vae_path=str(own)) == {}
    assert list(findings(folder, "flux_kontext", vae_path=str(own))) == ["MDL003"]


def test_a_vae_path_that_is_a_file_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ae.safetensors"
    save_file({"decoder.up.0.block.0.conv1.weight": torch.zeros(2)}, file)
    for path, words in ((file, "opens a folder"), (tmp_path / "gone", "does not exist")):
        for subfolder in (None, "vae"):
            with pytest.raises((OSError, ValueError)):
                AutoencoderKL.from_pretrained(path, subfolder=subfolder, local_files_only=True)
        (finding,) = findings(healthy_flux(), vae_path=str(path))["MDL003"]
        assert words in finding.text() and str(path) in finding.text()
    run = run_of(healthy_flux(), "flux", vae_path="acme/vae")
    with pytest.raises(Unestablished, match="vae: not found"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_only_kontext_reads_the_extras(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    for part in ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "vae"):
        remove(part)(folder)
    extras = {"extras_name_or_path": str(healthy_flux())}
    assert findings(folder, "flux_kontext", **extras) == {}
    assert list(findings(folder, "flux", **extras)) == list(findings(folder, "flex2", **extras)) == ["MDL003"]


def test_a_single_file_is_no_flux_model(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    original_names(folder)
    file = tmp_path / "flux1-dev.safetensors"
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").rename(file)
    for path, subfolder in ((f"{file}/transformer", None), ("acme/flux/flux1-dev.safetensors", "transformer")):
        with pytest.raises(OSError, match=r"config\.json"):
            FluxTransformer2DModel.from_pretrained(path, subfolder=subfolder)
    (finding,) = findings(file)["MDL002"]
    assert "Black Forest Labs" in finding.text() and "config.json" in finding.consequence()
    assert load_file(file)
    (finding,) = findings("acme/flux/flux1-dev.safetensors")["MDL002"]
    assert "single file" in finding.text()


def test_parts_that_are_not_here_are_not_judged(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove("text_encoder")(folder)
    run = run_of(folder, "flux_kontext", extras_name_or_path="acme/Flux")
    with pytest.raises(Unestablished, match="text_encoder_2: not found on this machine"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_a_repository_that_lacks_the_parts_is_not_passed() -> None:
    """As a hub id of a repository that holds a transformer alone: the hub rules know its files, not the trainer."""
    snapshot = str(healthy_flux() / "transformer")
    repo = HubRepo("acme/flux", "/hub", "/hub/x", "ok", "", "", "0" * 40, snapshot, False, ())
    run = run_of("acme/flux", "flux")
    with pytest.raises(Unestablished, match="transformer is missing"):
        list(missing_checkpoint_tensors(run, probed(run, Hub((), (repo,)))))


def test_the_index_lists_what_a_config_has() -> None:
    assert (
        json.loads((healthy_flux() / "transformer" / INDEX).read_text())["weight_map"].keys()
        == (needed_tensors("FluxTransformer2DModel", DEV) or {}).keys()
    )
