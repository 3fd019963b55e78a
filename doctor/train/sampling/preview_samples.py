"""Preview samples are painted from the config's sample prompts while the model trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ...model.recipe import SamplePrompt
from ..components.vae import load_vae, vae_divisor
from ..dataset.training_items import TrainingItem
from ..families import scheduler_of
from ..network.lora import AdapterRemoval
from ..runtime.allocator import empty_device_cache
from ..runtime.stop_signals import Stop
from ..step.trainer import Trainer
from .sample_prompts import sample_text, wants_samples
from .sampler import decode_to_png, denoise


@dataclass
class PreviewSamples:
    """The sample prompts are painted into `folder`. The VAE is loaded for that and dropped again.

    `controls` are the images that they edit; `model` is the folder of the pipeline. Where the base is shared out all
    processes call the model, and the first paints.
    """

    trainer: Trainer
    removals: Sequence[AdapterRemoval]
    controls: Sequence[TrainingItem | None]
    vae: Path
    model: Path
    folder: Path
    name: str
    files: list[str] = field(default_factory=list)

    @property
    def prompts(self) -> Sequence[SamplePrompt]:
        """The prompts of the run, none where it paints nothing."""
        recipe = self.trainer.recipe
        return recipe.validation.prompts if wants_samples(recipe) else ()

    def paint(self, stop: Stop) -> None:
        """Paints all samples of this step, or those before `stop`."""
        if not self.prompts:
            return
        trainer, objective = self.trainer, self.trainer.objective
        latents: list[Tensor] = []
        model = objective.model
        scheduler = scheduler_of(objective.family.RECORD, self.model, model)
        for part in self.removals:
            part.active = True
        try:
            with trainer.averaged():
                for prompt, edited in zip(self.prompts, self.controls, strict=True):
                    latent = denoise(
                        model,
                        scheduler,
                        prompt,
                        objective.texts.get(sample_text(trainer.recipe, prompt.prompt)),
                        objective.texts.get(prompt.negative),
                        shrink=vae_divisor(self.vae) // 2,
                        dtype=objective.dtype,
                        device=trainer.device,
                        control=None if edited is None else objective.latents.get(edited).unsqueeze(0),
                        stop=trainer.ranks.agreed(stop.is_set),
                    )
                    if latent is None:
                        break
                    latents.append(latent)
        finally:
            for part in self.removals:
                part.active = False
        if latents and trainer.ranks.is_first:
            self._decode(latents)

    def lacks(self) -> bool:
        """Tells whether a sample of this step is still to be painted."""
        return not all(self._file(number).is_file() for number in range(len(self.prompts)))

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.name}_{self.trainer.step:09d}_{number}.png"

    def _decode(self, latents: Sequence[Tensor]) -> None:
        vae = load_vae(self.vae, self.trainer.device)
        for number, latent in enumerate(latents):
            file = self._file(number)
            decode_to_png(vae, latent, file)
            self.files.append(str(file))
        del vae
        empty_device_cache()
