"""MDL006: a LoRA to start from whose names are not the network's leaves the network as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.starting_lora import starting_lora_not_read
from zdoctor.doctor.demo.tiny import build_tiny_adapter
from zdoctor.doctor.model import Finding, Run, WeightFile
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.starting_lora import probe_starting_lora
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.checks.test_adapter_flux import kohya, lora
from zdoctor.tests.models import healthy, run_of

Tensors = dict[str, torch.Tensor]


def run_with(path: Path | str | None, architecture: str, **network: Any) -> Run:
    network = {
        "type": "lora",
        "linear": 4,
        **({} if path is None else {"pretrained_lora_path": str(path)}),
        **network,
    }
    return run_of(healthy(), architecture, network=network)


def findings(path: Path | str | None, architecture: str = "flux", **network: Any) -> list[Finding]:
    run = run_with(path, architecture, **network)
    seen = probe_starting_lora(LiveWorld(), run)
    assert seen is None or isinstance(seen, WeightFile)
    return list(starting_lora_not_read(run, seen))


def taken(file: Path, names: list[str], prefix: str) -> set[str]:
    """Which of a network's tensors a load fills that goes by name, after the trainer's own renaming."""

    def renamed(name: str) -> str:
        name = name.replace(prefix, "transformer.").replace("lora_A", "lora_down").replace("lora_B", "lora_up")
        return name.replace(".", "$$").replace("$$lora_down$$", ".lora_down.").replace("$$lora_up$$", ".lora_up.")

    network = torch.nn.Module()
    state = {renamed(name) for name in names}
    for name in state:
        network.register_buffer(name.replace(".", "!"), torch.zeros(1))
    held = {renamed(name).replace(".", "!"): torch.ones(1) for name in load_file(file)}
    network.load_state_dict(held, strict=False)
    return {name for name, value in network.state_dict().items() if value.item() == 1}


def write(tensors: Tensors, folder: Path) -> Path:
    file = folder / "lora.safetensors"
    save_file(tensors, file)
    return file


@pytest.fixture
def zimage(tmp_path: Path) -> Path:
    file = tmp_path / "zimage.safetensors"
    build_tiny_adapter(file)
    return file


def test_a_lora_of_the_same_model_is_silent(zimage: Path, tmp_path: Path) -> None:
    flux = write(lora(), tmp_path)
    assert taken(flux, list(lora()), "transformer.") and findings(flux) == findings(flux, "flux_kontext") == []
    assert taken(zimage, list(load_file(zimage)), "diffusion_model.") and findings(zimage, "zimage") == []
    assert findings(None) == []


@pytest.mark.parametrize(
    ("tensors", "held"),
    [(lora(prefix="diffusion_model."), "a LoRA for Flux"), (kohya(), "a LoRA"), ({"x": torch.zeros(1)}, "no name")],
)
def test_names_of_other_programs_leave_the_network_at_zero(tensors: Tensors, held: str, tmp_path: Path) -> None:
    file = write(tensors, tmp_path)
    assert not taken(file, list(lora()), "transformer.")
    (finding,) = findings(file)
    assert held in finding.text() and "from zero" in finding.consequence()


def test_a_lora_of_another_model(zimage: Path, tmp_path: Path) -> None:
    assert not taken(zimage, list(lora()), "transformer.")
    assert "a LoRA for Z-Image" in findings(zimage)[0].text()
    assert "a LoRA for Flux" in findings(write(lora(), tmp_path), "zimage")[0].text()


def test_a_file_that_is_not_there_or_damaged(zimage: Path, tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "gone.safetensors")
    assert "does not exist" in finding.text() and "from zero" in finding.consequence()
    (finding,) = findings("acme/lora")  # a hub id is no path, and only paths are looked at
    assert "does not exist" in finding.text()
    zimage.write_bytes(zimage.read_bytes()[:-1])
    (finding,) = findings(zimage)
    assert finding.severity == "error"


def test_what_is_not_known_is_not_passed(zimage: Path, tmp_path: Path) -> None:
    for path, architecture, network in (
        (zimage, "chroma", {}),
        (zimage, "zimage", {"type": "lokr"}),
        (tmp_path, "flux", {}),
    ):
        with pytest.raises(Unestablished):
            findings(path, architecture, **network)
    assert not isinstance(probe_starting_lora(LiveWorld(), run_with("a\0b", "flux")), WeightFile)
