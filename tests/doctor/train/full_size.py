"""Models of their published size in files without data, and a run of one on a hollow card: what each phase holds.

With what a step gives the card to do, and where the CPU waits for it.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from zdoctor.doctor.demo.tiny import build_tiny_pipeline
from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.train import Job, Progress, train
from zdoctor.doctor.train.rehearsal.alive import Alive
from zdoctor.doctor.train.rehearsal.fused import rms_norm_in_one_kernel
from zdoctor.doctor.train.weights import materialize
from zdoctor.doctor.train.weights.safetensors_files import DTYPES, TensorEntry, stream_tensors
from zdoctor.maintenance.native_meta import use_native_meta
from zdoctor.tests.changes import changed
from zdoctor.tests.chroma import trainable_chroma
from zdoctor.tests.flux import trainable_flux
from zdoctor.tests.flux2 import trainable_flux2
from zdoctor.tests.models import run_of
from zdoctor.tests.part_files import write
from zdoctor.tests.qwen_image import trainable_qwen_image
from zdoctor.tests.sdxl import trainable_sdxl

from . import card

CAPTION = "a photo of a zdoc circle, " * 100  # longer than any model reads
SAMPLE = SamplePrompt(CAPTION, 1024, 1024, 1, 1, 4.0)
# Whose tokenizer and scheduler stay.
TINY: dict[str, Callable[[Path], Any]] = {
    "zimage": build_tiny_pipeline,
    "flux": trainable_flux,
    "flux2_klein_4b in diffusers": trainable_flux2,
    "flux2_klein_9b in diffusers": trainable_flux2,
    "qwen_image": trainable_qwen_image,
    "chroma in diffusers": trainable_chroma,
    "sdxl": trainable_sdxl,
}
# What begins in a run, by the first words that it tells, and the phase of the prediction.
PHASES = {
    "Loading the text encoder": "encoding the captions",
    "Loading the VAE": "encoding the pictures",
    "Loading the transformer": "loading the transformer",
    "Training ": "training step",
    "Painting ": "drawing previews",
    "decoding with the VAE": "decoding previews",
    "saving ": "saving",
}


def build(folder: Path, architecture: str) -> Path:
    """A model folder whose configs are the published ones and whose weights are holes."""
    TINY[architecture](folder)
    family = family_of(architecture)
    assert family.memory is not None and family.own is not None
    kinds: dict[str, tuple[str, Mapping[str, Any]]] = {
        family.own.main: (family.class_name, family.memory.config(family.memory.word)),
        **family.published,
    }
    for name, (class_name, config) in kinds.items():
        for file in (folder / name).iterdir():
            file.unlink()
        shapes = needed_tensors(class_name, config)
        assert shapes is not None
        of_text = name.startswith("text_encoder")
        if of_text:
            made = getattr(import_module("transformers"), class_name).config_class(**config)
            made.architectures, made.dtype = [class_name], "bfloat16"
            made.save_pretrained(folder / name)
            with torch.device("meta"):
                held = getattr(import_module("transformers"), class_name)(made).state_dict()
            # by the names that its own class writes; what is tied is in no file
            shapes = {
                n.replace("model.language_model.", "model.").replace("model.visual.", "visual."): tuple(v.shape)
                for n, v in held.items()
                if len(held) == len(shapes) or n != "lm_head.weight"
            }
        else:
            made = getattr(import_module("diffusers"), class_name)
            with torch.device("meta"):
                made(**config).save_config(folder / name)
        write(folder / name / f"{'' if of_text else 'diffusion_pytorch_'}model.safetensors", shapes)
    return folder


def picture(folder: Path, side: int = 1024) -> Path:
    """A dataset of one picture with a long caption."""
    folder.mkdir()
    Image.new("RGB", (side, side), "gray").save(folder / "0.png")
    (folder / "0.txt").write_text(CAPTION, encoding="utf-8")
    return folder


def run_on(model: Path, architecture: str, side: int = 1024, **changes: Any) -> Run:
    """A LoRA of rank 16 in two steps, with a sample after them."""
    run = run_of(model, architecture)
    datasets = tuple(replace(d, resolutions=(side,), cache_latents=True) for d in run.recipe.datasets)
    samples = (replace(SAMPLE, width=side, height=side),)
    given: dict[str, Any] = {
        "rank": 16,
        "steps": 2,
        "cache_text_embeddings": True,
        "datasets": datasets,
        "samples": samples,
        "skip_first_sample": True,
    }
    return replace(changed(run, **{**given, **changes}), trainer=RUNNER, device="cuda")


class Phases(Progress):
    """The most bytes on a hollow card in each phase of a run, and of what is there as it begins."""

    def __init__(self, alive: Alive) -> None:
        self.alive = alive
        self.name, self.before = "", 0
        self.most: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.pieces: list[int] = []  # of work that the card was given in each step
        self.waits: list[dict[str, int]] = []

    def phase(self, text: str) -> None:
        self.doing(text)

    def doing(self, text: str = "") -> None:
        found = next((phase for words, phase in PHASES.items() if text.startswith(words)), None)
        if found is not None:
            self.begin(found)

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        self.begin("training step")
        self.waits.append(dict(card.waited))
        card.waited.clear()
        self.pieces.append(card.default.number - sum(self.pieces) - self.before)

    def begin(self, name: str) -> None:
        if self.name:
            self.most[self.name] = max(self.alive.peak, self.most.get(self.name, 0))
        self.alive.again()
        self.first.setdefault(name, self.alive.now)
        if name == "training step" and self.name != name:
            card.waited.clear()
            self.before = card.default.number
        self.name = name


def measured(run: Run, model: Path, images: Path, output: Path) -> dict[str, Any]:
    """Trains on a hollow card, in a process whose PyTorch has `card.cpp`."""
    alive = Alive()
    phases = Phases(alive)
    card.hollow[:] = [alive]
    vars(materialize)["stream_tensors"] = _unread
    try:
        with ExitStack() as modes:
            modes.enter_context(rms_norm_in_one_kernel("Meta", "CUDA"))
            for made in (card._MadeThere, card._Functions):
                mode: Any = made
                modes.enter_context(mode())
            datasets = {dataset.key: str(images) for dataset in run.recipe.datasets}
            train(Job(run, model, datasets, output, device=card.CARD, progress=phases))
        phases.begin("")
    finally:
        card.hollow.clear()
        vars(materialize)["stream_tensors"] = stream_tensors
    return {"most": phases.most, "first": phases.first, "pieces": phases.pieces, "waits": phases.waits}


def _unread(entries: Sequence[TensorEntry]) -> Iterator[tuple[TensorEntry, Tensor]]:
    """What files without data hold, which need not be read for it."""
    for entry in entries:
        yield entry, torch.empty(entry.shape, dtype=DTYPES[entry.dtype])


def main() -> None:
    """Answers a pickled list of what `measured` is called with on standard input."""
    torch.set_num_threads(1)
    card.pretend()
    use_native_meta()
    answers = []
    for asked in pickle.load(sys.stdin.buffer):
        answers.append(measured(*asked))
        print("done", asked[-1], file=sys.stderr, flush=True)
    print(json.dumps(answers))
