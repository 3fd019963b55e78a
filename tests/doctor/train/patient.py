"""Runs and training calls for the tests, with the values that make them quick."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.model.objective import TimestepSampling
from zdoctor.doctor.model.recipe import Checkpoints, Network, Precision, Recipe, Validation
from zdoctor.doctor.model.run import Run, Value, Where
from zdoctor.doctor.train import Job, Progress, TrainResult, train
from zdoctor.tests.changes import changed

DATASET = Dataset("datasets/0", "circles", ".txt", (64,))

RUN = Run(
    trainer="ai-toolkit",
    config="config.yaml",
    root="/config/process/0",
    index=0,
    kind="lora",
    process_type="sd_trainer",
    name="circles",
    device="cpu",
    output_folder="out",
    recipe=Recipe(
        architecture="zimage",
        datasets=(DATASET,),
        steps=4,
        batch_size=2,
        learning_rate=4e-3,
        seed=7,
        precision=Precision(dtype="fp32", quantization="int8"),
        network=Network(rank=8, alpha=8),
        timestep_sampling=TimestepSampling(noise_scheduler="flowmatch"),
        checkpoints=Checkpoints(dtype="float32"),
        validation=Validation(disabled=True),
    ),
)


def run_with(**changes: Any) -> Run:
    return changed(RUN, **changes)


def written(**settings: Any) -> dict[str, Value]:
    """Settings as a config would have them; `__` stands for the slash."""
    return {key.replace("__", "/"): Value(value, Where("config.yaml", 1, 1), 0, 1) for key, value in settings.items()}


class Recorder(Progress):
    """A Progress that keeps what it is told; `at` is called with each step's number."""

    def __init__(self, at: Callable[[int], None] | None = None) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.steps: list[int] = []
        self.at = at

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        self.steps.append(step)
        if self.at is not None:
            self.at(step)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None: ...


def go(
    run: Run,
    model: Path,
    images: Path,
    output: Path,
    *,
    adapter: Path | None = None,
    extras: Path | None = None,
    progress: Recorder | None = None,
    fresh: bool = False,
    **options: Any,
) -> TrainResult:
    """Train on `images`. What an earlier call encoded of them is used again, unless `fresh`."""
    assert threading.current_thread() is threading.main_thread()
    encoded, cache = images / ".encoded", output / ".cache"
    if encoded.is_dir() and not cache.exists() and not fresh:
        shutil.copytree(encoded, cache, copy_function=_shared)
    try:
        return train(
            Job(
                run,
                model,
                {dataset.key: str(images) for dataset in run.recipe.datasets},
                output,
                extras=extras,
                adapter=adapter,
                device="cpu",
                progress=progress or Recorder(),
                **options,
            )
        )
    finally:
        if cache.is_dir():
            shutil.copytree(cache, encoded, dirs_exist_ok=True, copy_function=_shared)


def _shared(one: str, other: str) -> None:
    """A file of a cache is written once and replaced, never changed: it may lie in two caches."""
    if not os.path.exists(other):
        try:
            os.link(one, other)
        except OSError:  # two disks
            shutil.copyfile(one, other)
