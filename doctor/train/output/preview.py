"""When previews are painted, and with which words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...families.loading import EDITING
from ...model.recipe import SamplePrompt
from ...model.run import Run
from ..allocator import free_memory
from ..data.items import Item, with_trigger
from ..data.pictures import Picture
from ..encode.vae import load_vae, vae_divisor
from ..errors import TrainError
from ..network.lora import WithoutAdapter
from ..step.loss import guidance
from ..step.preserve import preserved_prompt
from ..step.trainer import Trainer
from ..stop import Stop
from .sample import decode, denoise


class Preview:
    """Paints the sample prompts into <output>/samples. The VAE is loaded for that and dropped again.

    Where the base is shared out all processes call the model, and the first paints.
    """

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        removal: list[WithoutAdapter],
        controls: Sequence[Item | None],
        vae: Path,
        model: Path,
        output: Path,
    ) -> None:
        self.run = run
        self.trainer = trainer
        self.removal = removal
        self.vae_folder = vae
        self.model_folder = model
        self.folder = output / "samples"
        self.controls = controls
        self.files: list[str] = []

    def paint(self, stop: Stop) -> None:
        if not previews(self.run):
            return
        trainer = self.trainer
        first = trainer.ranks.first
        latents: list[Tensor] = []
        model: Any = trainer.objective.model
        scheduler = trainer.objective.family.scheduler(self.model_folder, model)
        for part in self.removal:
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
            for part in self.removal:
                part.active = False
        if latents and first:
            self._decode(latents)

    def lacks(self) -> bool:
        """Whether a preview of this step is still to be painted."""
        return previews(self.run) and not all(
            self._file(n).is_file() for n in range(len(self.run.recipe.validation.prompts))
        )

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.run.name}_{self.trainer.step:09d}_{number}.png"

    def _decode(self, latents: Sequence[Tensor]) -> None:
        vae = load_vae(self.vae_folder, self.trainer.device)
        for number, latent in enumerate(latents):
            file = self._file(number)
            decode(vae, latent, file)
            self.files.append(str(file))
        del vae
        free_memory()


def sample_controls(run: Run, divisor: int) -> list[Item | None]:
    """For each sample the image that it edits, stretched to the sample's size. Raises TrainError."""
    edits = previews(run) and run.recipe.architecture in EDITING
    return [
        _control(prompt, divisor) if edits and prompt.control else None for prompt in run.recipe.validation.prompts
    ]


def _control(prompt: SamplePrompt, divisor: int) -> Item:
    file = Path(prompt.control or "")
    width, height = (side // divisor * divisor for side in (prompt.width, prompt.height))
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise TrainError(
            f"The control image {file} of the sample {prompt.prompt!r} cannot be read: {error.strerror or error}."
        ) from error
    return Item(Picture(file, width, height, digest, "", is_control=True), width, height, "", "", 0.0)


def prompts(run: Run, items: Sequence[Item]) -> list[str]:
    pairs = [(item, item.caption) for item in items]
    pairs += [(item, item.dropped) for item in items if item.dropout > 0]
    kept = [preserved_prompt(run, item, text) for item, text in pairs]
    texts = [text for _, text in pairs] + [text for text in kept if text is not None]
    if (blank := guidance(run)) is not None:
        texts.append(blank.prompt)
    if previews(run):
        texts += [sample_text(run, prompt.prompt) for prompt in run.recipe.validation.prompts]
        texts += [prompt.negative for prompt in run.recipe.validation.prompts]
    return texts


def sample_text(run: Run, text: str) -> str:
    """A sample prompt: the trigger word only where the prompt asks for it."""
    if run.setting("train/literal_captions"):
        return text
    return with_trigger(text, run.recipe.trigger_word) if "[trigger]" in text or "[name]" in text else text


def previews(run: Run) -> bool:
    return not run.recipe.validation.disabled and bool(run.recipe.validation.prompts)
