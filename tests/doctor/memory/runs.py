"""Runs of the published models whose memory is predicted, and the cards they are predicted for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import (
    DatasetFolder,
    Gpu,
    Memory,
    Run,
    SamplePrompt,
    System,
    Value,
    Where,
)
from zdoctor.tests.changes import changed
from zdoctor.tests.models import probed, run_of

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 32 * GIB, 28 * GIB)
T4 = Gpu(0, "Tesla T4", 15 * GIB, int(14.6 * GIB), (7, 5), "560", "recorded: a T4")
SAMPLE = SamplePrompt("p", 1024, 1024, 1, 8, 4.0)
A6000 = Gpu(1, "RTX A6000", 48 * GIB, 47 * GIB, (8, 6), "560", "recorded: an A6000")
ROOMY_T4 = replace(T4, memory_total=100 * GIB, memory_free=100 * GIB)
ON = Value(True, Where("c"), 0, 4)
# GiB of tensors at the peak of a step, traced on the full-size model: (quantization, resolution, checkpointing).
TRACED = [
    (None, 1024, True, 14.25),
    (None, 1024, False, 46.8),
    ("int8", 512, True, 6.94),
    ("int8", 1024, True, 8.53),
    ("int8", 512, False, 16.56),
    ("int8", 1024, False, 41.1),
    ("nf4", 512, True, 4.40),
    ("nf4", 768, True, 4.99),
    ("nf4", 1024, True, 5.84),
    ("nf4", 1024, False, 38.4),
]


def zimage(resolution: int = 1024, **changes: Any) -> Run:
    """The published Z-Image-Turbo, rank 16, AdamW, with latents and text embeddings cached."""
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    datasets = tuple(replace(d, resolutions=(resolution,), cache_latents=True) for d in run.recipe.datasets)
    return changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def predicted(run: Run, *gpus: Gpu, datasets: tuple[DatasetFolder, ...] = ()) -> Memory:
    memory = predict(run, probed(run), datasets, SYSTEM, gpus)
    assert isinstance(memory, Memory), memory
    return memory


def flux(resolution: int = 1024, control: bool = False, **changes: Any) -> Run:
    """The published FLUX.1-dev or Kontext, rank 16, AdamW, with latents and text embeddings cached."""
    model = "black-forest-labs/FLUX.1-" + ("Kontext-dev" if control else "dev")
    run = run_of(model, "flux_kontext" if control else "flux")
    folders = ("/c",) if control else ()
    datasets = tuple(
        replace(dataset, resolutions=(resolution,), cache_latents=True, control_folders=folders)
        for dataset in run.recipe.datasets
    )
    return changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def qwen_image(resolution: int = 1024, **changes: Any) -> Run:
    """The published Qwen-Image, rank 16, AdamW, with latents and text embeddings cached."""
    run = run_of("Qwen/Qwen-Image", "qwen_image")
    datasets = tuple(replace(d, resolutions=(resolution,), cache_latents=True) for d in run.recipe.datasets)
    return changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def chroma(resolution: int = 1024, **changes: Any) -> Run:
    """The published Chroma1-HD, rank 16, AdamW, with latents and text embeddings cached."""
    run = run_of("lodestones/Chroma1-HD", "chroma in diffusers")
    datasets = tuple(replace(d, resolutions=(resolution,), cache_latents=True) for d in run.recipe.datasets)
    return changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})
