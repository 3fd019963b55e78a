"""Chroma trains as the other models do; its embeddings and previews are those of diffusers, its mask its authors'.

diffusers' pipeline (0.42.1) makes its mask of numbers, which attention adds to the scores instead of leaving tokens
out; given a mask of truth values, as its authors, ai-toolkit and sd-scripts have it, it does what is meant.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.chroma.pipeline_chroma import ChromaPipeline
from peft import LoraConfig
from torch import Tensor

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train.families import chroma as family
from zdoctor.doctor.train.families import packed, unpacked
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters

from .patient import run_with
from .pipelines import embedded_by, pipeline_of, sampled_by

CPU = torch.device("cpu")
pipeline, embedded = partial(pipeline_of, ChromaPipeline), partial(embedded_by, family)
PROMPT = SamplePrompt("a b ab", 48, 64, 3, 3, 4.0)
sampled = partial(sampled_by, family, PROMPT)


def encoded(pipe: Any, *prompts: str) -> tuple[Tensor, Tensor]:
    """The pipeline's 512 states of each prompt, and which of them the transformer is to see."""
    states, mask = pipe._get_t5_prompt_embeds(list(prompts))
    return states, mask.bool()


def test_embeddings_are_those_of_the_pipeline_or_of_ai_toolkit(chroma: Path, tmp_path: Path) -> None:
    """The one token more that is seen: with apply_t5_attn_mask T5 looks at no such token, in ai-toolkit at all."""
    prompts = ("a b ab", "", "a " * 600)
    pipe = pipeline(chroma)
    states, seen = encoded(pipe, *prompts)
    for place, ours in enumerate(embedded(chroma, tmp_path, *prompts, masked=True)):
        torch.testing.assert_close(ours["states"], states[place][seen[place]], rtol=1e-4, atol=1e-4)
    ids = pipe.tokenizer(list(prompts), padding="max_length", truncation=True, max_length=512, return_tensors="pt")
    of_all = pipe.text_encoder(ids.input_ids)[0]
    plain = embedded(chroma, tmp_path, *prompts)
    for place, ours in enumerate(plain):
        torch.testing.assert_close(ours["states"], of_all[place][seen[place]], rtol=1e-4, atol=1e-4)
    assert [len(one["states"]) for one in plain] == [6, 2, 512]


def test_prediction_loss_and_gradients_are_those_of_diffusers_with_a_mask(chroma: Path, tmp_path: Path) -> None:
    """Of prompts of unlike lengths, filled up to 512 tokens there, here one after the other without a mask."""
    model = pipeline(chroma).transformer
    network = add_network(model, lora_targets(model), run_with().recipe.network, 0)
    parameters = trainable_parameters(network, "")
    for value in parameters.values():
        value.data.normal_(std=0.1)
    texts = embedded(chroma, tmp_path, "a b ab", "b", masked=True)
    assert len(texts[0]["states"]) != len(texts[1]["states"])
    clean, noise, t = torch.randn(2, 4, 8, 6), torch.randn(2, 4, 8, 6), torch.tensor([0.3, 0.85])
    share = t.view(-1, 1, 1, 1)
    noisy = (1 - share) * clean + share * noise
    guess = family.predict(model, noisy, t, texts)
    loss = (guess - (noise - clean)).square().mean()
    torch.autograd.backward(loss)

    pipe = pipeline(chroma)
    theirs = pipe.transformer
    theirs.add_adapter(LoraConfig(r=8, lora_alpha=8, target_modules=list(network)))
    for name, value in theirs.named_parameters():
        if "lora_" in name:
            value.data.copy_(parameters[name.replace(".default", "")].data)
    states, seen = encoded(pipe, "a b ab", "b")
    cells = packed(noisy)
    answer = theirs(
        hidden_states=cells,
        timestep=t,
        encoder_hidden_states=states,
        txt_ids=torch.zeros(512, 3),
        img_ids=pipe._prepare_latent_image_ids(2, 4, 3, CPU, torch.float32),
        attention_mask=pipe._prepare_attention_mask(2, cells.shape[1], torch.float32, seen),
        return_dict=False,
    )[0]
    their_loss = (unpacked(answer, 8, 6) - (noise - clean)).square().mean()
    torch.autograd.backward(their_loss)
    torch.testing.assert_close(guess, unpacked(answer, 8, 6), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=0)
    grown = {name: value.grad for name, value in theirs.named_parameters() if "lora_" in name}
    assert len(grown) == len(parameters) == 2 * (2 * 12 + 2 * 5)
    for name, gradient in grown.items():
        own = parameters[name.replace(".default", "")].grad
        torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-5 * gradient.abs().max().item())


@pytest.mark.parametrize("guidance", [1.0, 4.0])
def test_previews_are_those_of_the_pipeline(chroma: Path, tmp_path: Path, guidance: float) -> None:
    pipe = pipeline(chroma)
    prompt, negative = embedded(chroma, tmp_path, PROMPT.prompt, "b", masked=True)
    ours = sampled(pipe.transformer, chroma, prompt, negative, guidance)
    noise = torch.randn((1, 4, 8, 6), generator=torch.Generator().manual_seed(PROMPT.seed))
    states, seen = encoded(pipe, PROMPT.prompt, "b")
    theirs = pipe(
        prompt_embeds=states[:1],
        prompt_attention_mask=seen[:1],
        negative_prompt_embeds=states[1:],
        negative_prompt_attention_mask=seen[1:],
        height=PROMPT.height,
        width=PROMPT.width,
        num_inference_steps=PROMPT.steps,
        guidance_scale=guidance,
        latents=packed(noise),
        output_type="latent",
    ).images
    torch.testing.assert_close(packed(ours), theirs, rtol=1e-4, atol=1e-4)
