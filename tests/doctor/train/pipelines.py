"""diffusers' pipelines of the tiny models, and what the runner makes of prompts, to be compared with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import FamilyModule, scheduler_of
from zdoctor.doctor.train.sampling.sampler import denoise


def pipeline_of(made: Any, folder: Path) -> Any:
    """The pipeline of this class in a folder, without its progress bar."""
    pipe = made.from_pretrained(str(folder))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def embedded_by(family: FamilyModule, folder: Path, cache: Path, *prompts: str, **options: Any) -> list[Any]:
    """What the family's module makes of each prompt with the text encoders in a folder."""
    places = {name: folder / name for name in family.TEXT_PARTS}
    texts = TextEmbeddings(EncodingCache(cache), family, places, torch.float32, **options)
    assert texts.prepare(prompts, torch.device("cpu"), Progress()) == len(prompts)
    return [texts.get(prompt) for prompt in prompts]


def sampled_by(
    family: FamilyModule,
    prompt: SamplePrompt,
    model: nn.Module,
    folder: Path,
    text: Any,
    negative: Any,
    guidance: float,
) -> Tensor:
    """The latent that a preview of this prompt ends with, by the model's scheduler in a folder."""
    scheduler, asked = scheduler_of(family.RECORD, folder, model), replace(prompt, guidance=guidance)
    place = torch.device("cpu")
    latent = denoise(model, scheduler, asked, text, negative, shrink=8, dtype=torch.float32, device=place)
    assert latent is not None
    return latent
