"""Preview samples are painted from the config's sample prompts while the model trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...families import family_of
from ...files import fingerprints
from ...model.amounts import plural
from ...model.recipe import Recipe, SamplePrompt
from ...progress import Progress
from ..components.vae import VaeFiles
from ..dataset.captions import with_trigger
from ..dataset.images import DatasetImage, open_image
from ..dataset.training_items import TrainingItem
from ..encode.text_embeddings import Prompt, prompt_of
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

    `edited` are the pictures that they are to become; `model` is the folder of the pipeline. Where the base is shared
    out all processes call the model, and the first paints.
    """

    trainer: Trainer
    removals: Sequence[AdapterRemoval]
    edited: Sequence[TrainingItem | None]
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
        scheduler = scheduler_of(objective.family.RECORD, self.model, model, objective.loss)
        for part in self.removals:
            part.active = True
        try:
            with trainer.averaged():
                for prompt, edited in zip(prompts, self.edited, strict=True):
                    texts = (sample_text(trainer.recipe, prompt.prompt), prompt.negative)
                    with torch.no_grad():
                        embedded = objective.texts.of([prompt_of(text, edited) for text in texts])
                    latent = denoise(
                        model,
                        scheduler,
                        prompt,
                        *embedded,
                        shrink=self.vae.shrink,
                        dtype=objective.dtype,
                        device=trainer.device,
                        controls=[objective.latents.get(one).unsqueeze(0) for one in controls_of(edited)],
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


def controls_of(item: TrainingItem | None) -> Sequence[TrainingItem]:
    return () if item is None else item.controls


def edited_samples(recipe: Recipe, divisor: int) -> list[TrainingItem | None]:
    """Returns for each sample the picture that it is to become, with its control images; None where it edits none.

    Raises TrainError.
    """
    edits = family_of(recipe.architecture).edits
    return [
        _edited(recipe, prompt, divisor) if edits and prompt.controls else None
        for prompt in recipe.validation.painted
    ]


def _edited(recipe: Recipe, prompt: SamplePrompt, divisor: int) -> TrainingItem:
    edits = family_of(recipe.architecture).edits
    size = (prompt.width // divisor * divisor, prompt.height // divisor * divisor)
    own_shape = edits is not None and edits.pixels > 0
    most = edits.most if edits is not None else 0
    controls = tuple(_control(prompt, Path(file), None if own_shape else size) for file in prompt.controls[:most])
    picture = DatasetImage(Path(), *size, "", "", controls=controls)
    return TrainingItem(picture, *size, "", "", 0.0, edits=edits, matched=recipe.controls_match)


def _control(prompt: SamplePrompt, file: Path, size: tuple[int, int] | None) -> DatasetImage:
    """The image, stretched to a size or in its own."""
    try:
        digest = fingerprints.of_file(file)
    except OSError as error:
        raise TrainError(
            f"The control image {file} of the sample {prompt.prompt!r} cannot be read: {error.strerror or error}."
        ) from error
    width, height = size or open_image(file).size
    return DatasetImage(file, width, height, digest, "", is_control=True)


def prompts_to_encode(
    recipe: Recipe,
    items: Sequence[TrainingItem],
    drawn: Sequence[tuple[TrainingItem, str]] = (),
    edited: Sequence[TrainingItem | None] = (),
) -> list[Prompt]:
    """Returns every prompt that the run asks the text encoder for.

    `drawn` are captions that are made anew, `edited` the pictures that the samples are to become.
    """
    pairs = [*((item, item.caption) for item in items), *drawn]
    pairs += [(item, item.dropped) for item in items if item.dropout > 0]
    kept = [(item, preserved_prompt(recipe.loss, item, text)) for item, text in pairs]
    pairs += [(item, text) for item, text in kept if text is not None]
    if (blank := recipe.loss.guidance) is not None:
        pairs += [(item, blank.prompt) for item in items]
    if recipe.loss.slider is not None:
        pairs += [(item, text) for item in items for text in recipe.loss.slider.prompts]
    found: list[Prompt] = [prompt_of(text, item) for item, text in pairs]
    for prompt, item in zip(
        recipe.validation.painted, edited or [None] * len(recipe.validation.painted), strict=True
    ):
        found += [prompt_of(text, item) for text in (sample_text(recipe, prompt.prompt), prompt.negative)]
    return found


def sample_text(recipe: Recipe, text: str) -> str:
    """Returns a sample prompt, with the trigger word only where the prompt asks for it."""
    if recipe.literal_captions:
        return text
    return with_trigger(text, recipe.trigger_word) if "[trigger]" in text or "[name]" in text else text
