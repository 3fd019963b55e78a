"""Qwen-Image trains as Z-Image does; its latents, embeddings, previews and LoRAs are those of diffusers' pipeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.qwenimage.pipeline_qwenimage import QwenImagePipeline
from PIL import Image

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train.components.vae import Vae, VaeFiles
from zdoctor.doctor.train.families import packed
from zdoctor.doctor.train.families import qwen_image as family
from zdoctor.doctor.train.sampling.sampler import decode_to_png

from .patient import run_with
from .pipelines import embedded_by, pipeline_of, sampled_by

CPU = torch.device("cpu")
pipeline, embedded = partial(pipeline_of, QwenImagePipeline), partial(embedded_by, family)
PROMPT = SamplePrompt("a red circle", 48, 64, 3, 3, 4.0)
sampled = partial(sampled_by, family, PROMPT)
RUN = run_with(architecture="qwen_image")


def vae_of(folder: Path) -> Vae:
    return VaeFiles(folder / "vae", "AutoencoderKLQwenImage").load(CPU)


def test_embeddings_are_those_of_the_pipeline(qwen_image: Path, tmp_path: Path) -> None:
    prompts = ("a red circle", "", "a blue square beside the green sea " * 200)
    pipe = pipeline(qwen_image)
    for prompt, ours in zip(prompts, embedded(qwen_image, tmp_path, *prompts), strict=True):
        states, _ = pipe.encode_prompt(prompt)
        assert len(states[0]) <= family.LONGEST_PROMPT
        torch.testing.assert_close(ours["states"], states[0], rtol=1e-4, atol=1e-4)


def test_a_quantized_text_encoder_reads_the_same_but_for_rounding(qwen_image: Path, tmp_path: Path) -> None:
    (plain,) = embedded(qwen_image, tmp_path / "plain", PROMPT.prompt)
    (coarse,) = embedded(qwen_image, tmp_path / "coarse", PROMPT.prompt, kind="int8")
    error = (coarse["states"] - plain["states"]).norm() / plain["states"].norm()
    assert 0.0 < error < 0.05


def test_prompts_of_unlike_lengths_do_not_see_what_fills_them_up(qwen_image: Path, tmp_path: Path) -> None:
    texts = embedded(qwen_image, tmp_path, "a", "a painting of a blue square")
    model = pipeline(qwen_image).transformer
    noisy, t = torch.randn(2, 4, 8, 6), torch.tensor([0.3, 0.7])
    with torch.no_grad():
        both = family.predict(model, noisy, t, texts)
        for place in (0, 1):
            alone = family.predict(model, noisy[[place]], t[[place]], [texts[place]])
            torch.testing.assert_close(both[[place]], alone, rtol=1e-3, atol=1e-4)


def test_latents_are_those_of_the_vae(qwen_image: Path) -> None:
    """Shifted and scaled channel by channel, as the pipelines that take a picture do it; and back again."""
    vae = vae_of(qwen_image)
    pixels = torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        ours = vae.encode(pixels)
        theirs = vae.model.encode(pixels.unsqueeze(2)).latent_dist.mode()
        config = vae.model.config
        mean, std = (torch.tensor(n).view(1, -1, 1, 1, 1) for n in (config.latents_mean, config.latents_std))
        torch.testing.assert_close(ours, ((theirs - mean) / std).squeeze(2))
        drawn = vae.encode(pixels, torch.Generator().manual_seed(0))
        assert ours.shape == (1, 4, 6, 8) and not torch.equal(drawn, ours)
        torch.testing.assert_close(vae.decode(ours), vae.model.decode(theirs).sample.squeeze(2))


@pytest.mark.parametrize("guidance", [1.0, 4.0])
def test_previews_are_those_of_the_pipeline(qwen_image: Path, tmp_path: Path, guidance: float) -> None:
    pipe = pipeline(qwen_image)
    prompt, negative = embedded(qwen_image, tmp_path, PROMPT.prompt, "watercolor, no text")
    ours = sampled(pipe.transformer, qwen_image, prompt, negative, guidance)
    theirs = pipeline_latent(pipe, guidance, "latent")
    torch.testing.assert_close(packed(ours), theirs, rtol=1e-4, atol=1e-4)
    decode_to_png(vae_of(qwen_image), ours, tmp_path / "ours.png")
    image = pipeline_latent(pipe, guidance, "pil")[0]
    with Image.open(tmp_path / "ours.png") as written:
        assert max(abs(a - b) for a, b in zip(written.tobytes(), image.tobytes(), strict=True)) <= 1


def pipeline_latent(pipe: Any, guidance: float, kind: str) -> Any:
    noise = torch.randn((1, 4, 8, 6), generator=torch.Generator().manual_seed(PROMPT.seed))
    return pipe(
        prompt=PROMPT.prompt,
        negative_prompt="watercolor, no text",
        height=PROMPT.height,
        width=PROMPT.width,
        num_inference_steps=PROMPT.steps,
        true_cfg_scale=guidance,
        latents=packed(noise),
        output_type=kind,
    ).images
