"""Preview samples are painted from the config's sample prompts while the model trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...model.run import Run
from ..components.vae import load_vae, vae_divisor
from ..dataset.training_items import TrainingItem
from ..families import scheduler_of
from ..network.lora import AdapterRemoval
from ..runtime.allocator import empty_device_cache
from ..runtime.stop_signals import Stop
from ..step.trainer import Trainer
from .sample_prompts import sample_text, wants_samples
from .sampler import decode_to_png, denoise


class PreviewSamples:
    """The sample prompts are painted into <output>/samples. The VAE is loaded for that and dropped again.

    Where the base is shared out all processes call the model, and the first paints.
    """

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        removal: list[AdapterRemoval],
        controls: Sequence[TrainingItem | None],
        vae: Path,
        model: Path,
        output: Path,
    ) -> None:
        self.run = run
        self.trainer = trainer
        self.removals = removal
        self.vae_folder = vae
        self.model_folder = model
        self.folder = output / "samples"
        self.controls = controls
        self.files: list[str] = []

    def paint(self, stop: Stop) -> None:
        """Paints all samples of this step, or those before `stop`."""
        if not wants_samples(self.run):
            return
        trainer = self.trainer
        first = trainer.ranks.is_first
        latents: list[Tensor] = []
        model: Any = trainer.objective.model
        scheduler = scheduler_of(trainer.objective.family.RECORD, self.model_folder, model)
        for part in self.removals:
            part.active = True
        try:
            with trainer.averaged():
                for prompt, edited in zip(self.run.recipe.validation.prompts, self.controls, strict=True):
                    control = None if edited is None else trainer.objective.latents.get(edited).unsqueeze(0)
                    latent = denoise(
                        model,
                        scheduler,
                        prompt,
                        trainer.objective.texts.get(sample_text(self.run, prompt.prompt)),
                        trainer.objective.texts.get(prompt.negative),
                        shrink=vae_divisor(self.vae_folder) // 2,
                        channels=trainer.objective.family.channels(model),
                        dtype=trainer.objective.dtype,
                        device=trainer.device,
                        control=control,
                        stop=trainer.ranks.agreed(stop.is_set),
                    )
                    if latent is None:
                        break
                    latents.append(latent)
        finally:
            for part in self.removals:
                part.active = False
        if latents and first:
            self._decode(latents)

    def lacks(self) -> bool:
        """Tells whether a sample of this step is still to be painted."""
        return wants_samples(self.run) and not all(
            self._file(n).is_file() for n in range(len(self.run.recipe.validation.prompts))
        )

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.run.name}_{self.trainer.step:09d}_{number}.png"

    def _decode(self, latents: Sequence[Tensor]) -> None:
        vae = load_vae(self.vae_folder, self.trainer.device)
        for number, latent in enumerate(latents):
            file = self._file(number)
            decode_to_png(vae, latent, file)
            self.files.append(str(file))
        del vae
        empty_device_cache()
