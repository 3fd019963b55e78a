"""MDL005: adapters that ai-toolkit's Z-Image loader can and cannot read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from zdoctor.checks.model.adapter import adapter_layout_mismatch
from zdoctor.doctor.demo.tiny import build_tiny_adapter
from zdoctor.doctor.model import Finding, Run, WeightFile
from zdoctor.doctor.probe.adapter import probe_adapter
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.changes import changed
from zdoctor.tests.models import NO_HUB, healthy, probed, rewrite, run_of

KEY = "diffusion_model.layers.0.attention.to_k.lora_A.weight"


def findings(run: Run) -> list[Finding]:
    adapter = probe_adapter(LiveWorld(), run, NO_HUB)
    assert adapter is None or isinstance(adapter, WeightFile), adapter
    return list(adapter_layout_mismatch(run, adapter, probed(run)))


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    file = tmp_path / "adapter.safetensors"
    build_tiny_adapter(file)
    return file


def run_with(adapter: Path | str) -> Run:
    return run_of(healthy(), assistant_lora_path=str(adapter))


def test_an_adapter_that_fits_is_silent(adapter: Path) -> None:
    assert load_file(adapter)[KEY].shape == (4, 96)
    assert findings(run_with(adapter)) == []
    assert findings(run_of(healthy())) == []


@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: name.replace("diffusion_model.", "transformer."),
        lambda name: name.replace("lora_A.weight", "lora_down.weight").replace("lora_B", "lora_up"),
        lambda name: "lora_unet_" + name.replace(".", "_"),
        lambda name: name.removeprefix("diffusion_model."),
    ],
)
def test_another_layout_has_not_the_name_that_is_read(renamed: Callable[[str], str], adapter: Path) -> None:
    rewrite(adapter, lambda tensors: {renamed(name): value for name, value in tensors.items()})
    with pytest.raises(KeyError, match=KEY):
        load_file(adapter)[KEY]
    (finding,) = findings(run_with(adapter))
    assert KEY in finding.consequence()


def test_an_adapter_of_another_width(adapter: Path) -> None:
    rewrite(adapter, lambda tensors: {**tensors, KEY: torch.zeros(4, 3840)})
    weight = torch.zeros(96, 96)
    with pytest.raises(RuntimeError, match="size"):
        weight.add_(load_file(adapter)[KEY.replace("lora_A", "lora_B")] @ load_file(adapter)[KEY])
    (finding,) = findings(run_with(adapter))
    assert "3840" in finding.text() and "96" in finding.text()


def test_a_damaged_adapter(adapter: Path) -> None:
    adapter.write_bytes(adapter.read_bytes()[:-1])
    (finding,) = findings(run_with(adapter))
    assert "cut short" in finding.text()


def test_what_cannot_be_known_is_not_passed(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(Unestablished):
        findings(changed(run_with(adapter), architecture="chroma"))
    for written in (str(tmp_path), str(tmp_path / "absent.safetensors"), "ostris/zimage/adapter.safetensors"):
        seen = probe_adapter(LiveWorld(), run_with(written), NO_HUB)
        assert seen is not None and not isinstance(seen, WeightFile)
