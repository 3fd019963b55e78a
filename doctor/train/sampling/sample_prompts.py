"""The prompts and control images of the preview samples, and every prompt that a run encodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...families import family_of
from ...files import fingerprints
from ...model.recipe import SamplePrompt
from ...model.run import Run
from ..dataset.images import Picture
from ..dataset.training_items import Item, with_trigger
from ..runtime.train_error import TrainError
from ..step.output_preservation import preserved_prompt


def sample_controls(run: Run, divisor: int) -> list[Item | None]:
    """For each sample the image that it edits, stretched to the sample's size. Raises TrainError."""
    edits = previews(run) and family_of(run.recipe.architecture).edits
    return [
        _control(prompt, divisor) if edits and prompt.control else None for prompt in run.recipe.validation.prompts
    ]


def _control(prompt: SamplePrompt, divisor: int) -> Item:
    file = Path(prompt.control or "")
    width, height = (side // divisor * divisor for side in (prompt.width, prompt.height))
    try:
        digest = fingerprints.of_file(file)
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
    if (blank := run.recipe.loss.guidance) is not None:
        texts.append(blank.prompt)
    if previews(run):
        texts += [sample_text(run, prompt.prompt) for prompt in run.recipe.validation.prompts]
        texts += [prompt.negative for prompt in run.recipe.validation.prompts]
    return texts


def sample_text(run: Run, text: str) -> str:
    """A sample prompt: the trigger word only where the prompt asks for it."""
    if run.recipe.literal_captions:
        return text
    return with_trigger(text, run.recipe.trigger_word) if "[trigger]" in text or "[name]" in text else text


def previews(run: Run) -> bool:
    return not run.recipe.validation.disabled and bool(run.recipe.validation.prompts)
