"""MDL006 and MDL008: a LoRA to start from of which nothing, or not all, comes into the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.ai_toolkit.starting_lora import starting_lora_not_read, starting_lora_of_another_size
from zdoctor.doctor.demo.tiny import build_tiny_adapter
from zdoctor.doctor.model import Finding, Run, SetValue, WeightFile
from zdoctor.doctor.model.remains import EarlierSave
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.start import probe_starting_lora
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.values import take_the_rank_of_the_save
from zdoctor.tests.checks.model.test_adapter_flux import kohya, lora
from zdoctor.tests.models import healthy, probed, run_of

Tensors = dict[str, torch.Tensor]


def run_with(path: Path | str | None, architecture: str, model: Path | str | None = None, **network: Any) -> Run:
    network = {
        "type": "lora",
        "linear": 4,
        **({} if path is None else {"pretrained_lora_path": str(path)}),
        **network,
    }
    return run_of(model or healthy(), architecture, network=network)


def findings(path: Path | str | None, architecture: str = "flux", **network: Any) -> list[Finding]:
    run = run_with(path, architecture, **network)
    seen = probe_starting_lora(LiveWorld(), run)
    assert seen is None or isinstance(seen, WeightFile)
    return list(starting_lora_not_read(run, seen, None))


def sizes(run: Run, earlier: EarlierSave | None = None) -> list[Finding]:
    seen = probe_starting_lora(LiveWorld(), run)
    assert seen is None or isinstance(seen, WeightFile)
    return list(starting_lora_of_another_size(run, seen, earlier, probed(run)))


def resized(have: torch.Tensor, want: torch.Tensor, is_down: bool) -> torch.Tensor:
    """A matrix as ai-toolkit brings it to the network's size. Raises ValueError where it does not."""
    if have.shape == want.shape:
        return have
    axis = 0 if is_down else 1
    if have.shape[axis] < want.shape[axis]:
        filled = torch.zeros_like(want)
        filled[: have.shape[0], : have.shape[1]] = have
        return filled
    if have.shape[axis] > want.shape[axis]:
        return have[: want.shape[0], : want.shape[1]]
    raise ValueError("Unhandled LoRA shape change")


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
    (finding,) = findings(tmp_path)
    assert "is no file" in finding.text() and finding.severity == "error"
    with pytest.raises(IsADirectoryError):
        torch.load(tmp_path)
    (finding,) = findings("acme/lora")  # a hub id is no path, and only paths are looked at
    assert "does not exist" in finding.text()
    zimage.write_bytes(zimage.read_bytes()[:-1])
    (finding,) = findings(zimage)
    assert finding.severity == "error"


def test_what_is_not_known_is_not_passed(zimage: Path, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "lora.pt")
    for path, architecture, network in (
        (zimage, "zimage_l2p", {}),
        (zimage, "zimage", {"type": "lokr"}),
        (tmp_path / "lora.pt", "flux", {}),
    ):
        with pytest.raises(Unestablished):
            findings(path, architecture, **network)
    assert not isinstance(probe_starting_lora(LiveWorld(), run_with("a\0b", "flux")), WeightFile)
    with pytest.raises(Unestablished, match="how wide"):
        sizes(run_with(zimage, "zimage", model="acme/gone", linear=rank_of(zimage)))


def rank_of(file: Path) -> int:
    return int(next(t.shape[0] for name, t in load_file(file).items() if "lora_A" in name))


def test_a_save_of_the_run_itself_goes_before_the_file(zimage: Path, tmp_path: Path) -> None:
    run = run_with(tmp_path / "gone.safetensors", "zimage")
    seen = probe_starting_lora(LiveWorld(), run)
    assert isinstance(seen, WeightFile)
    save = EarlierSave(seen)
    assert not list(starting_lora_not_read(run, seen, save)) and not sizes(run_with(zimage, "zimage"), save)
    assert list(starting_lora_not_read(run, seen, replace(save, hidden="_cn")))


@pytest.mark.parametrize(("more", "says"), [(0, ""), (2, "never learn"), (-1, "cut off")])
def test_another_rank_than_the_file(more: int, says: str, zimage: Path) -> None:
    rank = rank_of(zimage) + more
    found = sizes(run_with(zimage, "zimage", linear=rank))
    assert [says in one.consequence() for one in found] == ([True] if says else [])
    for name, have in load_file(zimage).items():
        is_down = "lora_A" in name
        want = torch.zeros((rank, have.shape[1]) if is_down else (have.shape[0], rank))
        assert resized(have, want, is_down).shape == want.shape
    for one in found:
        (fix,) = take_the_rank_of_the_save(one)
        (step,) = fix.steps
        assert isinstance(step, SetValue) and step.value == rank_of(zimage)
        assert step.pointer == "/config/process/0/network/linear"


def test_a_lora_of_a_wider_model(zimage: Path, tmp_path: Path) -> None:
    wide = {
        name: torch.zeros((t.shape[0], t.shape[1] + 8) if "lora_A" in name else (t.shape[0] + 8, t.shape[1]))
        for name, t in load_file(zimage).items()
    }
    file = write(wide, tmp_path)
    (finding,) = sizes(run_with(file, "zimage", linear=rank_of(zimage)))
    assert finding.severity == "error" and "Unhandled LoRA shape change" in finding.consequence()
    name, have = next(item for item in wide.items() if "lora_A" in item[0])
    with pytest.raises(ValueError, match="Unhandled"):
        resized(have, load_file(zimage)[name], is_down=True)
    (finding,) = sizes(run_with(file, "zimage", linear=rank_of(zimage) + 1))
    assert "size mismatch" in finding.consequence()
    assert not list(take_the_rank_of_the_save(finding))
