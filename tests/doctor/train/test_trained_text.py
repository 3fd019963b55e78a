"""Text encoders get a LoRA beside the transformer's: it learns, is saved for others, and goes on bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from safetensors.torch import load_file

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import flux as family
from zdoctor.tests.doctor.train.pipelines import pipeline_of
from zdoctor.tests.often import often

from .patient import go, run_with

CPU = torch.device("cpu")
CLIP, T5 = "text_encoder", "text_encoder_2"
BOTH = {CLIP: 4e-2, T5: 4e-3}
pipeline = partial(pipeline_of, FluxPipeline)


def flux_run(rates: dict[str, float], **changes: Any) -> Run:
    network = {"rank": 4, "alpha": 2.0, "scale": 0.5, "text_rates": rates, **changes.pop("network", {})}
    return run_with(architecture="flux", quantization=None, network=network, **changes)


def encoders(flux: Path, folder: Path, run: Run, lora: str) -> TextEmbeddings:
    """The text encoders as the run trains them, with what a file holds."""
    folders = {name: flux / name for name in family.TEXT_PARTS}
    texts = TextEmbeddings(EncodingCache(folder), family, folders, torch.float32)
    texts.load_trained(run.recipe, CPU, 0)
    assert texts.trained is not None
    held = load_file(lora)
    for network in texts.trained.networks.values():
        for name, module in network.items():
            own: Any = module
            own.scale = 1.0
            own.lora_A.data, own.lora_B.data = (held[f"{name}.lora_{part}.weight"] for part in "AB")
    return texts


def test_the_lora_of_clip_in_the_real_pipeline_is_the_trained_one(flux: Path, circles: Path, tmp_path: Path) -> None:
    """diffusers takes both parts of the file; what it makes of a prompt is what the runner made of it."""
    run = flux_run(BOTH, steps=4)
    lora = go(run, flux, circles, tmp_path / "out").lora
    held = load_file(lora)
    assert {key.split(".")[0] for key in held} == {"transformer", CLIP, "text_encoders"}
    assert all(held[key].any() for key in held)
    texts = encoders(flux, tmp_path / "cache", run, lora)
    assert texts.trained is not None
    with torch.no_grad():
        (ours,) = texts.trained.of(["a b ab"])
    pipe = pipeline(flux)
    states, before, _ = pipe.encode_prompt("a b ab", "a b ab")
    pipe.load_lora_weights(lora)
    _, after, _ = pipe.encode_prompt("a b ab", "a b ab")
    torch.testing.assert_close(ours["pooled"], after[0], rtol=1e-4, atol=1e-5)
    assert (after - before).abs().max() > 1e-3
    assert (ours["states"] - states[0]).abs().max() > 1e-4  # of T5, which diffusers leaves as it is


@pytest.mark.parametrize("rates", often([BOTH, {CLIP: 4e-2}]))
def test_a_run_goes_on_bit_for_bit(flux: Path, circles: Path, tmp_path: Path, rates: dict[str, float]) -> None:
    more: dict[str, Any] = {"batch_size": 1, "use_ema": True, "network": {"dropout": 0.1, "text_plus_ratio": 4.0}}
    straight = go(flux_run(rates, steps=4, **more), flux, circles, tmp_path / "straight")
    go(flux_run(rates, steps=2, **more), flux, circles, tmp_path / "apart")
    apart = go(flux_run(rates, steps=4, **more), flux, circles, tmp_path / "apart")
    assert apart.losses == straight.losses
    assert Path(apart.lora).read_bytes() == Path(straight.lora).read_bytes()
    again = go(flux_run(rates, steps=4, gradient_checkpointing=False, **more), flux, circles, tmp_path / "whole")
    assert again.losses == straight.losses


def test_text_encoders_learn_at_their_own_rates(flux: Path, circles: Path, tmp_path: Path) -> None:
    """The first step of AdamW moves each number by its rate; a text encoder that is not named stays."""
    lora = go(flux_run({CLIP: 4e-2}, steps=1), flux, circles, tmp_path / "out").lora
    held = load_file(lora)
    moved = [value.abs().max().item() for key, value in held.items() if key.endswith("fc1.lora_B.weight")]
    assert moved == pytest.approx([2e-2, 2e-2], rel=1e-2)  # it is saved times alpha / rank
    assert not any(key.startswith("text_encoders.") for key in held)


def test_previews_and_held_out_pictures_see_the_trained_encoder(flux: Path, circles: Path, tmp_path: Path) -> None:
    """With quantized T5, whose Linears are taken, too; a transformer's LoRA of rate 0 would change nothing."""
    prompt = SamplePrompt("a b ab", 32, 32, 3, 1, 3.5)
    changes: dict[str, Any] = {
        "steps": 2,
        "batch_size": 1,
        "learning_rate": 1e-12,
        "text_encoder_quantization": "int8",
        "disable_sampling": False,
        "samples": (prompt,),
        "sample_every": 2,
    }
    changed = go(flux_run(BOTH, **changes), flux, circles, tmp_path / "both", held_out=1)
    plain = go(flux_run({}, **changes), flux, circles, tmp_path / "plain", held_out=1)
    assert Path(changed.samples[0]).read_bytes() == Path(plain.samples[0]).read_bytes()  # at step 0
    assert Path(changed.samples[-1]).read_bytes() != Path(plain.samples[-1]).read_bytes()
    (_, first), *_, (_, last) = changed.evaluations
    assert first == plain.evaluations[0][1] and last != plain.evaluations[-1][1]
