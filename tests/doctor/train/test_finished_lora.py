"""Of what the runner and diffusers write `zdoctor check` has nothing to say, with the base beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.doctor.commands.check import check
from zdoctor.doctor.model import Report
from zdoctor.tests.doctor.train.patient import go, run_with


def looked_at(path: str | Path, base: Path) -> Report:
    return check(str(path), base=str(base))


@pytest.mark.parametrize("kind", ["lora", "lokr"])
def test_zimage(tiny: Path, circles: Path, tmp_path: Path, kind: str) -> None:
    run = run_with(steps=2, network_type=kind, disable_sampling=True)
    report = looked_at(go(run, tiny, circles, tmp_path / "out").lora, tiny)
    assert not report.findings
    assert not report.not_judged
    assert "Z-Image" in report.subject


def test_flux(flux: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(architecture="flux", steps=2, timestep_type="flux_shift", disable_sampling=True)
    report = looked_at(go(run, flux, circles, tmp_path / "out").lora, flux)
    assert not report.findings
    assert "Flux" in report.subject


@pytest.mark.parametrize(("alpha", "rules"), [(4, set()), (8, {"LOR009"})])
def test_what_diffusers_saves(tiny: Path, tmp_path: Path, alpha: int, rules: set[str]) -> None:
    """By its own save_lora_weights, as its training examples call it."""
    import diffusers
    import peft

    library: Any = diffusers
    pipe = library.ZImagePipeline.from_pretrained(str(tiny))
    config = peft.LoraConfig(r=4, lora_alpha=alpha, target_modules=["to_q", "to_k"], init_lora_weights="gaussian")
    pipe.transformer.add_adapter(config)
    for name, parameter in pipe.transformer.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    layers = peft.get_peft_model_state_dict(pipe.transformer)
    told: Any = config
    pipe.save_lora_weights(
        str(tmp_path), transformer_lora_layers=layers, transformer_lora_adapter_metadata=told.to_dict()
    )
    (file,) = tmp_path.glob("*.safetensors")
    assert {finding.rule for finding in looked_at(file, tiny).findings} == rules
