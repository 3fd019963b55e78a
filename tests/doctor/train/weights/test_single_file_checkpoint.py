"""A single-file checkpoint gives the same model as the diffusers folder, tensor by tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_utils import convert_flux_transformer_checkpoint_to_diffusers
from safetensors.torch import load_file, save_file
from torch import Tensor

from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model.weights import COMFYUI_PREFIX
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.components.component_files import component_tensors, single_file_entries
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.weights.materialize import shapes_of
from zdoctor.doctor.train.weights.safetensors_files import stream_tensors

from ..parts import transformer_tensors, write
from ..patient import go, run_with

CPU = torch.device("cpu")
FLUX = "FluxTransformer2DModel"


def single(folder: Path, file: Path, prefix: str = "") -> Path:
    """The transformer of a diffusers folder in its authors' layout."""
    class_name = type(build_empty_transformer(folder / "transformer")).__name__
    return write(file, transformer_tensors(folder / "transformer", class_name, prefix))


def test_flux_is_converted_as_diffusers_does_it(tmp_path: Path) -> None:
    """Of the real width, as the converter asks, but one column wide, so that it is small."""
    config = {"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True}
    needed = {name: (*shape[:1], 1)[: len(shape)] for name, shape in (needed_tensors(FLUX, config) or {}).items()}
    file = tmp_path / "flux.safetensors"
    save_file(
        {COMFYUI_PREFIX + n: torch.randn(shape) for n, shape in original_layout(flux_original_name, needed).items()},
        file,
    )
    convert: Any = convert_flux_transformer_checkpoint_to_diffusers
    theirs: dict[str, Tensor] = convert(load_file(file))
    entries = single_file_entries(file, FLUX, needed)
    assert entries.keys() == theirs.keys() == needed.keys()
    for entry, view in stream_tensors(list(entries.values())):
        assert torch.equal(view, theirs[entry.name]), entry.name


@pytest.mark.parametrize(("name", "prefix"), [("tiny", ""), ("flux", ""), ("flux", COMFYUI_PREFIX)])
def test_the_same_weights(name: str, prefix: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(name)
    file = single(folder, tmp_path / "model.safetensors", prefix)
    assert len(load_file(file)) < len(build_empty_transformer(folder / "transformer").state_dict())
    loaded: list[dict[str, Any]] = []
    for place in (folder / "transformer", file):
        model = build_empty_transformer(folder / "transformer")
        assert set(component_tensors(place, type(model).__name__, shapes_of(model))) == set(model.state_dict())
        fill_transformer(model, place, quantization="int8", adapter={}, dtype=torch.float32, device=CPU)
        loaded.append({**dict(model.named_parameters()), **dict(model.named_buffers())})
    assert loaded[0].keys() == loaded[1].keys()
    assert all(torch.equal(value, loaded[1][key]) for key, value in loaded[0].items())


@pytest.mark.parametrize(("name", "architecture"), [("tiny", "zimage"), ("flux", "flux")])
def test_the_same_lora(
    name: str, architecture: str, circles: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    run = run_with(architecture=architecture, steps=2)
    file = single(folder, tmp_path / "model.safetensors")
    ours = go(run, file, circles, tmp_path / "a", extras=folder)
    theirs = go(run, folder, circles, tmp_path / "b")
    assert ours.losses == theirs.losses
    tensors = load_file(theirs.lora)
    assert all(torch.equal(value, tensors[key]) for key, value in load_file(ours.lora).items())


def test_what_cannot_be_loaded(tiny: Path, flux: Path, circles: Path, tmp_path: Path) -> None:
    file = single(tiny, tmp_path / "model.safetensors")
    with pytest.raises(TrainError, match="extras_name_or_path"):
        go(run_with(), file, circles, tmp_path / "out")
    with pytest.raises(TrainError, match="are in none of its files"):
        go(run_with(architecture="flux"), file, circles, tmp_path / "out", extras=flux)
    tensors = load_file(file)
    tensors["layers.0.attention.qkv.weight"] = tensors["layers.0.attention.qkv.weight"][:-1].contiguous()
    save_file(tensors, file)
    with pytest.raises(TrainError, match=r"qkv\.weight .* asks for 288 rows"):
        go(run_with(), file, circles, tmp_path / "out", extras=tiny)
