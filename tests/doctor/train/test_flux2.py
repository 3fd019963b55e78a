"""FLUX.2 trains as the other models do; its latents, embeddings, previews and LoRAs are those of diffusers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from peft import LoraConfig
from PIL import Image
from torch import Tensor, nn
from transformers import AutoTokenizer, Mistral3ForConditionalGeneration

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train.components.vae import Vae, VaeFiles
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.latents import Latents
from zdoctor.doctor.train.families import flux2 as family
from zdoctor.doctor.train.families import flux2_dev as dev
from zdoctor.doctor.train.families import packed, scheduler_of, unpacked
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.sampling.preview_samples import edited_samples
from zdoctor.doctor.train.sampling.sampler import decode_to_png, denoise
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.tests.flux2 import Flux2Transformer2DModel

from .patient import run_with
from .pipelines import embedded_by, pipeline_of

CPU = torch.device("cpu")
pipeline, embedded = partial(pipeline_of, Flux2KleinPipeline), partial(embedded_by, family)
NAME = "flux2_klein_4b in diffusers"
PROMPT = SamplePrompt("a red circle", 48, 64, 3, 3, 4.0)


def vae_of(folder: Path) -> Vae:
    return VaeFiles(folder / "vae", "AutoencoderKLFlux2").load(CPU)


def test_embeddings_are_those_of_the_pipeline(flux2: Path, tmp_path: Path) -> None:
    prompts = ("a red circle", "", "a blue square beside the green sea " * 200)
    pipe = pipeline(flux2)
    for prompt, ours in zip(prompts, embedded(flux2, tmp_path, *prompts), strict=True):
        states, _ = pipe.encode_prompt(prompt)
        torch.testing.assert_close(ours["states"], states[0], rtol=1e-5, atol=1e-6)


def test_embeddings_of_dev_are_those_of_its_pipeline(flux2_dev: Path, tmp_path: Path) -> None:
    """Mistral's, in a conversation of its own form; its tokenizer does here what the pipeline's processor does."""
    prompts = ("a red [IMG] circle", "", "a blue square beside the green sea " * 200)
    text = Mistral3ForConditionalGeneration.from_pretrained(flux2_dev / "text_encoder")
    tokenizer: Any = AutoTokenizer.from_pretrained(flux2_dev / "tokenizer")
    make: Any = Flux2Pipeline
    for prompt, ours in zip(prompts, embedded_by(dev, flux2_dev, tmp_path, *prompts), strict=True):
        states = make._get_mistral_3_small_prompt_embeds(text, tokenizer, prompt)
        torch.testing.assert_close(ours["states"], states[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["flux2", "flux2_dev"])
def test_a_quantized_text_encoder_reads_the_same_but_for_rounding(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder, module = request.getfixturevalue(name), dev if name == "flux2_dev" else family
    (plain,) = embedded_by(module, folder, tmp_path / "plain", PROMPT.prompt)
    (coarse,) = embedded_by(module, folder, tmp_path / "coarse", PROMPT.prompt, kind="int8")
    assert 0.0 < (coarse["states"] - plain["states"]).norm() / plain["states"].norm() < 0.1


def test_latents_are_those_of_the_pipeline(flux2: Path) -> None:
    """Shifted and scaled by the place in a cell, too; and back again."""
    vae, pipe = vae_of(flux2), pipeline(flux2)
    pixels = torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        ours = vae.encode(pixels)
        theirs = pipe._encode_vae_image(pixels, torch.Generator())
        torch.testing.assert_close(packed(ours), pipe._pack_latents(theirs), rtol=1e-5, atol=1e-5)
        plain = pipe.vae.encode(pixels).latent_dist.mode()
        torch.testing.assert_close(vae.decode(ours), pipe.vae.decode(plain).sample, rtol=1e-4, atol=1e-5)


def with_adapter(folder: Path, tensors: dict[str, Tensor]) -> Any:
    """diffusers' transformer with peft's LoRA of these numbers, as its training example makes it."""
    model: Any = Flux2Transformer2DModel.from_pretrained(folder / "transformer")
    names = [key.removeprefix("transformer.").removesuffix(".lora_A.weight") for key in tensors if "lora_A" in key]
    model.add_adapter(LoraConfig(r=8, lora_alpha=8, target_modules=names))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(tensors[f"transformer.{name.replace('.default', '')}"])
    return model


@pytest.mark.parametrize("name", ["flux2", "flux2_dev"])
def test_prediction_loss_and_gradients_are_those_of_diffusers_training_example(
    name: str, request: pytest.FixtureRequest
) -> None:
    """As train_dreambooth_lora_flux2_klein.py and _flux2.py in examples/dreambooth compute them, with the pipeline's
    own helpers; dev is told a guidance.
    """
    folder = request.getfixturevalue(name)
    model, parameters = with_network(folder)
    tensors = {key: torch.randn_like(value) * 0.1 for key, value in parameters.items()}
    for key, value in parameters.items():
        value.data.copy_(tensors[key])
    states = torch.randn(2, family.PROMPT, 24)
    texts = [{"states": one} for one in states]
    clean, noise, t = torch.randn(2, 4, 8, 6), torch.randn(2, 4, 8, 6), torch.tensor([0.3, 0.85])
    share = t.view(-1, 1, 1, 1)
    guess = family.predict(model, (1 - share) * clean + share * noise, t, texts, 3.5)
    loss = (guess - (noise - clean)).square().mean()
    torch.autograd.backward(loss)

    theirs, pipe = with_adapter(folder, tensors), Flux2KleinPipeline
    x, e = (pipe._patchify_latents(latent) for latent in (clean, noise))
    ids = pipe._prepare_latent_ids(x)
    noisy = (1 - share) * x + share * e
    answer = theirs(
        hidden_states=pipe._pack_latents(noisy),
        timestep=t,
        guidance=torch.full([1], 3.5).expand(2) if name == "flux2_dev" else None,
        encoder_hidden_states=states,
        txt_ids=pipe._prepare_text_ids(states),
        img_ids=ids,
        return_dict=False,
    )[0]
    their_loss = ((pipe._unpack_latents_with_ids(answer, ids) - (e - x)) ** 2).reshape(2, -1).mean(1).mean()
    torch.autograd.backward(their_loss)
    torch.testing.assert_close(guess, unpacked(answer, 8, 6), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=0)
    grown = {name: value.grad for name, value in theirs.named_parameters() if "lora_" in name}
    assert len(grown) == len(parameters)
    for name, gradient in grown.items():
        own = parameters[f"transformer.{name.replace('.default', '')}"].grad
        torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-5 * gradient.abs().max().item())


def with_network(folder: Path) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    model = build_empty_transformer(folder / "transformer")
    fill_transformer(model, folder / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    network = add_network(model, lora_targets(model), run_with().recipe.network, 0)
    return model, trainable_parameters(network, family.RECORD.lora_prefix)


@pytest.mark.parametrize("guidance", [1.0, 4.0])
def test_previews_are_those_of_the_pipeline(flux2: Path, tmp_path: Path, guidance: float) -> None:
    pipe = pipeline(flux2)
    prompt, negative = embedded(flux2, tmp_path, PROMPT.prompt, "")
    ours = sampled(pipe.transformer, flux2, prompt, negative, guidance)
    theirs = painted(pipe, guidance, "latent")
    vae = vae_of(flux2)
    middle, factor = vae._scale(ours)
    torch.testing.assert_close(ours / factor + middle, theirs, rtol=1e-4, atol=1e-4)
    decode_to_png(vae, ours, tmp_path / "ours.png")
    image = painted(pipe, guidance, "pil")[0]
    with Image.open(tmp_path / "ours.png") as written:
        assert max(abs(a - b) for a, b in zip(written.tobytes(), image.tobytes(), strict=True)) <= 1


def test_previews_of_dev_are_told_their_guidance(flux2_dev: Path) -> None:
    """In one pass, as its pipeline does."""
    model = Flux2Transformer2DModel.from_pretrained(flux2_dev / "transformer")
    scheduler = scheduler_of(dev.RECORD, flux2_dev, model)
    make: Any = Flux2Pipeline
    pipe = make(scheduler, VaeFiles(flux2_dev / "vae", "AutoencoderKLFlux2").load(CPU).model, None, None, model)
    pipe.set_progress_bar_config(disable=True)
    states = torch.randn(1, family.PROMPT, 24)
    ours = sampled(model, flux2_dev, {"states": states[0]}, None, 4.0)
    theirs = painted(pipe, 4.0, "latent", prompt=None, prompt_embeds=states)
    torch.testing.assert_close(packed(ours), theirs, rtol=1e-4, atol=1e-4)
    assert (painted(pipe, 1.0, "latent", prompt=None, prompt_embeds=states) - theirs).abs().max() > 1e-2


def test_previews_that_edit_several_images_are_those_of_the_pipeline(
    flux2: Path, circles: Path, tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file, size in zip(files, ((100, 90), (70, 96)), strict=True):
        Image.open(circles / "1.png").resize(size).save(file)
    prompt = replace(PROMPT, control=str(files[0]), beside=(str(files[1]),))
    (item,) = edited_samples(run_with(architecture=NAME, disable_sampling=False, samples=(prompt,)).recipe, 16)
    assert item is not None and [(one.width, one.height) for one in item.controls] == [(96, 80), (64, 96)]
    latents = Latents(EncodingCache(tmp_path), VaeFiles(flux2 / "vae", "AutoencoderKLFlux2"))
    latents.prepare(item.controls, CPU, Progress())
    controls = [latents.get(one).unsqueeze(0) for one in item.controls]
    text, negative = embedded(flux2, tmp_path, PROMPT.prompt, "")
    pipe = pipeline(flux2)
    ours = sampled(pipe.transformer, flux2, text, negative, 4.0, controls)
    middle, factor = vae_of(flux2)._scale(ours)
    theirs = painted(pipe, 4.0, "latent", image=[Image.open(file) for file in files])
    torch.testing.assert_close(ours / factor + middle, theirs, rtol=1e-3, atol=1e-3)
    assert (theirs - painted(pipe, 4.0, "latent")).abs().max() > 1e-2


def sampled(
    model: nn.Module, folder: Path, text: Any, negative: Any, guidance: float, controls: Sequence[Tensor] = ()
) -> Tensor:
    latent = denoise(
        model,
        scheduler_of(family.RECORD, folder, model),
        replace(PROMPT, guidance=guidance),
        text,
        negative,
        shrink=8,
        dtype=torch.float32,
        device=CPU,
        controls=controls,
    )
    assert latent is not None
    return latent


def painted(pipe: Any, guidance: float, kind: str, **options: Any) -> Any:
    noise = torch.randn((1, 4, 8, 6), generator=torch.Generator().manual_seed(PROMPT.seed))
    asked = {"prompt": PROMPT.prompt, **options}
    return pipe(
        height=PROMPT.height,
        width=PROMPT.width,
        num_inference_steps=PROMPT.steps,
        guidance_scale=guidance,
        latents=pipe._patchify_latents(noise),
        output_type=kind,
        **asked,
    ).images
