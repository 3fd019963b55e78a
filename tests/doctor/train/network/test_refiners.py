"""A LoRA that covers Z-Image's refiners, too, as SimpleTuner's does, is trained, and has its effect elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer

from ..patient import go, run_with
from ..test_train import CPU, PROMPT, pipeline, pipeline_latent, sampled

REFINERS = {"refiners": True}


def test_the_file_in_the_real_pipeline_is_the_trained_model(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=4, quantization=None, learning_rate=2e-2, network=REFINERS)
    result = go(run, tiny, circles, tmp_path / "a")
    tensors = load_file(result.lora)
    for block in ("noise_refiner", "context_refiner", "layers"):
        assert tensors[f"diffusion_model.{block}.0.attention.to_q.lora_B.weight"].abs().max() > 1e-3
    pipe = pipeline(tiny)
    model = build_empty_transformer(tiny / "transformer")
    fill_transformer(model, tiny / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    parameters = trainable_parameters(
        add_network(model, lora_targets(model, refiners=True), run.recipe.network, 0), zimage.RECORD.lora_prefix
    )
    assert parameters.keys() == tensors.keys()
    for key, parameter in parameters.items():
        parameter.data.copy_(tensors[key])
    ours = sampled(model, tiny, pipe, PROMPT)
    pipe.load_lora_weights(result.lora)
    torch.testing.assert_close(ours, pipeline_latent(pipe), rtol=1e-4, atol=1e-4)


def test_blocks_that_are_computed_again_give_the_same(tiny: Path, circles: Path, tmp_path: Path) -> None:
    again, kept = (
        go(run_with(steps=3, network=REFINERS, gradient_checkpointing=on), tiny, circles, tmp_path / str(on))
        for on in (True, False)
    )
    assert again.losses == kept.losses
    ours, theirs = load_file(again.lora), load_file(kept.lora)
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    with pytest.raises(TrainError, match="with the refiners"):
        go(run_with(steps=4), tiny, circles, tmp_path / "True")
