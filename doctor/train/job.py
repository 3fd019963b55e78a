"""A job is what `train` was asked for; a result is what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..model.recipe import Recipe
from ..model.remains import own_state
from ..model.run import Run
from ..progress import Progress
from .distributed.ranks import Ranks
from .encode.text_encoder_process import TextEncoderProcess
from .runtime.stop_signals import Stop


@dataclass(frozen=True)
class Job:
    """What `train` is asked for. All paths are absolute.

    `model` is a diffusers folder with transformer/, or the transformer's own folder, or a single file, whose
    config.json is then that of the folder `extras`, where other components are looked for first. `components` maps
    names of components to a folder or a file each; beside them a transformer that is a single file needs no
    config.json. `datasets` maps each Dataset.key to its folder. An output folder with the state of this run is gone
    on with. With `max_minutes` it ends as if stopped before the process is that old; `held_out` images are evaluated
    instead of trained on (None: as many as when the run began, else none); with `skip_unreadable` images that cannot
    be read are left out and named, instead of ending the start. `ranks`: this is one of several processes, which
    share every step. `text_process` encodes the prompts; with one, this process is the runner's own, where diffusers'
    pipelines do not work.
    """

    run: Run
    model: Path
    datasets: Mapping[str, str]
    output: Path
    extras: Path | None = None
    components: Mapping[str, Path] = field(default_factory=dict)
    adapter: Path | None = None
    device: str | None = None
    max_minutes: float | None = None
    held_out: int | None = None
    skip_unreadable: bool = False
    ranks: Ranks = field(default_factory=Ranks)
    text_process: TextEncoderProcess | None = None
    progress: Progress = field(default_factory=Progress)
    stop: Stop = field(default_factory=Stop)

    @property
    def recipe(self) -> Recipe:
        return self.run.recipe

    @property
    def state_file(self) -> Path:
        return self.output / own_state(self.run.name)

    def lora_file(self, step: int, *, at_end: bool = True) -> Path:
        """Returns the LoRA of `step`: one of many or, `at_end` of the run and when all steps are done, the last."""
        number = "" if at_end and step >= self.recipe.steps else f"_{step:09d}"
        return self.output / f"{self.run.name}{number}.safetensors"


@dataclass(frozen=True)
class TrainResult:
    """`lora` ("" where no step was done) and `samples` are paths; `losses` has one mean loss per step since step 0,
    resumed steps included. `evaluations` are (step, evaluation loss).

    "interrupted" says that somebody asked to stop, which can also be while the last previews are painted.
    """

    lora: str
    steps: int
    losses: tuple[float, ...]
    samples: tuple[str, ...]
    seconds: float
    stopped: Literal["finished", "interrupted"]
    evaluations: tuple[tuple[int, float], ...] = ()
