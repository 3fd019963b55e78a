"""The preview samples have prompts and control images, which a run encodes beside its captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...families import family_of
from ...files import fingerprints
from ...model.recipe import Recipe, SamplePrompt
from ..dataset.images import DatasetImage
from ..dataset.training_items import TrainingItem, with_trigger
from ..runtime.train_error import TrainError
from ..step.loss import preserved_prompt


def sample_control_images(recipe: Recipe, divisor: int) -> list[TrainingItem | None]:
    """Returns for each sample the image that it edits, stretched to the sample's size. Raises TrainError."""
    edits = wants_samples(recipe) and family_of(recipe.architecture).edits
    return [_control(prompt, divisor) if edits and prompt.control else None for prompt in recipe.validation.prompts]


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


def prompts_to_encode(recipe: Recipe, items: Sequence[TrainingItem]) -> list[str]:
    """Returns every prompt that the run asks the text encoder for."""
    pairs = [(item, item.caption) for item in items]
    pairs += [(item, item.dropped) for item in items if item.dropout > 0]
    kept = [preserved_prompt(recipe.loss, item, text) for item, text in pairs]
    texts = [text for _, text in pairs] + [text for text in kept if text is not None]
    if (blank := recipe.loss.guidance) is not None:
        texts.append(blank.prompt)
    if wants_samples(recipe):
        texts += [sample_text(recipe, prompt.prompt) for prompt in recipe.validation.prompts]
        texts += [prompt.negative for prompt in recipe.validation.prompts]
    return texts


def sample_text(recipe: Recipe, text: str) -> str:
    """Returns a sample prompt, with the trigger word only where the prompt asks for it."""
    if recipe.literal_captions:
        return text
    return with_trigger(text, recipe.trigger_word) if "[trigger]" in text or "[name]" in text else text


def wants_samples(recipe: Recipe) -> bool:
    return not recipe.validation.disabled and bool(recipe.validation.prompts)
