"""MDL005: what ai-toolkit does with a Flux adapter: diffusers fuses it first, then it is read by one fixed name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.flux import pipeline_flux
from safetensors.torch import load_file, save_file

from zdoctor.checks.model.adapter import adapter_layout_mismatch
from zdoctor.doctor.demo.tiny import build_tiny_adapter
from zdoctor.doctor.model import Finding, WeightFile
from zdoctor.doctor.probe.adapter import probe_adapter
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.flux import FluxTransformer2DModel, healthy_flux
from zdoctor.tests.models import NO_HUB, probed, run_of

FluxPipeline: Any = pipeline_flux.FluxPipeline
KEY = "transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight"
Tensors = dict[str, torch.Tensor]


def lora(width: int = 16, prefix: str = "transformer.") -> Tensors:
    made: Tensors = {}
    blocks = [f"single_transformer_blocks.{i}.attn.to_{p}" for i in range(3) for p in "qkv"]
    for block in (*blocks, *(f"transformer_blocks.{i}.attn.to_q" for i in range(2))):
        made[f"{prefix}{block}.lora_A.weight"] = torch.randn(2, width)
        made[f"{prefix}{block}.lora_B.weight"] = torch.randn(width, 2)
    return made


def kohya() -> Tensors:
    made: Tensors = {}
    for block in range(3):
        name = f"lora_unet_single_blocks_{block}_linear1"
        made |= {f"{name}.lora_down.weight": torch.randn(2, 16), f"{name}.lora_up.weight": torch.randn(112, 2)}
        made[f"{name}.alpha"] = torch.tensor(2.0)
    return made


def write(tensors: Tensors, folder: Path) -> Path:
    file = folder / "pytorch_lora_weights.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    return file


def fuse(file: Path) -> int:
    """What the loader does: fuse with diffusers, then read the rank. How many tensors of the model changed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformer = FluxTransformer2DModel.from_pretrained(healthy_flux() / "transformer")
        before = {name: tensor.clone() for name, tensor in transformer.state_dict().items()}
        parts = ("scheduler", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2", "vae")
        pipe = FluxPipeline(transformer=transformer, **dict.fromkeys(parts))
        pipe.load_lora_weights(str(file), adapter_name="lora1")
        pipe.fuse_lora()
        pipe.unload_lora_weights()
    changed = sum(not torch.equal(tensor, before[name]) for name, tensor in transformer.state_dict().items())
    assert load_file(file)[KEY].shape[0] > 0
    return changed


def findings(file: Path, **settings: Any) -> list[Finding]:
    run = run_of(healthy_flux(), "flux", assistant_lora_path=str(file), **settings)
    adapter = probe_adapter(LiveWorld(), run, NO_HUB)
    assert isinstance(adapter, WeightFile)
    return list(adapter_layout_mismatch(run, adapter, probed(run)))


def test_an_adapter_that_fits_is_silent(tmp_path: Path) -> None:
    file = write(lora(), tmp_path)
    assert fuse(file) == 11
    assert findings(file) == findings(file, low_vram=True) == []


@pytest.mark.parametrize(
    ("tensors", "held"),
    [
        (lora(prefix=""), "a LoRA for Flux"),
        (lora(prefix="diffusion_model."), "a LoRA for Flux"),
        (kohya(), "has no tensor"),
        ({"decoder.up.0.block.0.conv1.weight": torch.zeros(2)}, "a VAE"),
        ({}, "no tensor at all"),
    ],
)
def test_another_layout_has_not_the_name_that_is_read(tensors: Tensors, held: str, tmp_path: Path) -> None:
    file = write(tensors, tmp_path)
    with pytest.raises((KeyError, ValueError, AssertionError)):
        fuse(file)
    (finding,) = findings(file)
    assert held in finding.text() and KEY in finding.consequence()


def test_a_lora_of_another_model_is_passed_over_and_then_missed(tmp_path: Path) -> None:
    file = tmp_path / "zimage.safetensors"
    build_tiny_adapter(file)
    with pytest.raises(KeyError, match=KEY):
        fuse(file)
    (finding,) = findings(file)
    assert "a LoRA for Z-Image" in finding.text()


def test_an_adapter_of_another_width(tmp_path: Path) -> None:
    file = write(lora(width=24), tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch"):
        fuse(file)
    (finding,) = findings(file)
    assert "24" in finding.text() and "16" in finding.text()


def test_low_vram_fuses_only_the_blocks(tmp_path: Path) -> None:
    name = "transformer.x_embedder.lora_{}.weight"
    file = write({**lora(), name.format("A"): torch.randn(2, 16), name.format("B"): torch.randn(16, 2)}, tmp_path)
    assert fuse(file) == 12
    assert findings(file) == []
    (finding,) = findings(file, low_vram=True)
    assert name.format("A") in finding.text() and "Unknown lora key" in finding.consequence()
