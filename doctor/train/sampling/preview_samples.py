"""Preview samples are painted from the config's sample prompts while the model trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from ...families import family_of
from ...files import fingerprints
from ...model.amounts import plural
from ...model.recipe import Recipe, SamplePrompt
from ...progress import Progress
from ..components.vae import VaeFiles
from ..dataset.images import DatasetImage
from ..dataset.training_items import TrainingItem, with_trigger
from ..families import scheduler_of
from ..network.lora_linear import AdapterRemoval
from ..runtime.allocator import empty_device_cache
from ..runtime.stop_signals import Stop
from ..runtime.train_error import TrainError
from ..step.loss import preserved_prompt
from ..step.trainer import Trainer
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
    vae: VaeFiles
    model: Path
    folder: Path
    name: str
    progress: Progress
    files: list[str] = field(default_factory=list)

    def paint(self, stop: Stop) -> None:
        """Paints all samples of this step, or those before `stop`."""
        trainer, objective = self.trainer, self.trainer.objective
        prompts = trainer.recipe.validation.painted
        if not prompts:
            return
        self.progress.phase(f"Painting {plural(len(prompts), 'sample')} at step {trainer.step}")
        latents: list[Tensor] = []
        begun, total = 0, sum(max(1, prompt.steps) for prompt in prompts)
        model = objective.model
        scheduler = scheduler_of(objective.family.RECORD, self.model, model)
        for part in self.removals:
            part.active = True
        try:
            with trainer.averaged():
                for prompt, edited in zip(prompts, self.controls, strict=True):
                    latent = denoise(
                        model,
                        scheduler,
                        prompt,
                        objective.texts.get(sample_text(trainer.recipe, prompt.prompt)),
                        objective.texts.get(prompt.negative),
                        shrink=self.vae.shrink,
                        dtype=objective.dtype,
                        device=trainer.device,
                        control=None if edited is None else objective.latents.get(edited).unsqueeze(0),
                        stop=trainer.ranks.agreed(stop.is_set),
                        told=partial(self._count, begun, total),
                    )
                    if latent is None:
                        break
                    latents.append(latent)
                    begun += max(1, prompt.steps)
        finally:
            for part in self.removals:
                part.active = False
        if latents and trainer.ranks.is_first:
            self._decode(latents)

    def lacks(self) -> bool:
        """Tells whether a sample of this step is still to be painted."""
        return not all(self._file(number).is_file() for number in range(len(self.trainer.recipe.validation.painted)))

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.name}_{self.trainer.step:09d}_{number}.png"

    def _count(self, before: int, total: int, step: int) -> None:
        self.progress.count(before + step, total, "sampler steps")

    def _decode(self, latents: Sequence[Tensor]) -> None:
        self.progress.doing("decoding with the VAE")
        vae = self.vae.load(self.trainer.device)
        for number, latent in enumerate(latents):
            file = self._file(number)
            decode_to_png(vae, latent, file)
            self.files.append(str(file))
        del vae
        empty_device_cache()


def sample_control_images(recipe: Recipe, divisor: int) -> list[TrainingItem | None]:
    """Returns for each sample the image that it edits, stretched to the sample's size. Raises TrainError."""
    edits = family_of(recipe.architecture).edits
    return [_control(prompt, divisor) if edits and prompt.control else None for prompt in recipe.validation.painted]


def _control(prompt: SamplePrompt, divisor: int) -> TrainingItem:
    file = Path(prompt.control or "")
    width, height = (side // divisor * divisor for side in (prompt.width, prompt.height))
    try:
        digest = fingerprints.of_file(file)
    except OSError as error:
        raise TrainError(
            f"The control image {file} of the sample {prompt.prompt!r} cannot be read: {error.strerror or error}."
        ) from error
    return TrainingItem(DatasetImage(file, width, height, digest, "", is_control=True), width, height, "", "", 0.0)


def prompts_to_encode(
    recipe: Recipe, items: Sequence[TrainingItem], drawn: Sequence[tuple[TrainingItem, str]] = ()
) -> list[str]:
    """Returns every prompt that the run asks the text encoder for; `drawn` are captions that are made anew."""
    pairs = [*((item, item.caption) for item in items), *drawn]
    pairs += [(item, item.dropped) for item in items if item.dropout > 0]
    kept = [preserved_prompt(recipe.loss, item, text) for item, text in pairs]
    texts = [text for _, text in pairs] + [text for text in kept if text is not None]
    if (blank := recipe.loss.guidance) is not None:
        texts.append(blank.prompt)
    texts += [sample_text(recipe, prompt.prompt) for prompt in recipe.validation.painted]
    return texts + [prompt.negative for prompt in recipe.validation.painted]


def sample_text(recipe: Recipe, text: str) -> str:
    """Returns a sample prompt, with the trigger word only where the prompt asks for it."""
    if recipe.literal_captions:
        return text
    return with_trigger(text, recipe.trigger_word) if "[trigger]" in text or "[name]" in text else text
