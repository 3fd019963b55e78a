"""Numbers with which a run would learn nothing or paint nothing, said before it starts. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.run import Run

# The sides of the smallest picture that the models take, in pixels: one cell.
CELL = 16
# Bytes of a run's name: file systems take 255, and the longest that is added is for a save while it is written.
LONGEST = 200


def limits(run: Run) -> Iterator[tuple[str, str]]:
    """The key or field that is at fault, and a sentence about it without its full stop."""
    recipe = run.recipe
    if "/" in run.name or "\\" in run.name:
        yield "name", f"The name {run.name} has a slash, and files are named after it; write a name without"
    if len(run.name.encode()) > LONGEST:
        yield "name", f"The name has {len(run.name.encode())} bytes, and files named after it would be too long"
    if recipe.ema.use and not 0 <= recipe.ema.decay < 1:
        yield "ema_decay", f"The ema_decay {recipe.ema.decay:g} is not a number from 0 to below 1"
    for dataset in recipe.datasets:
        if not 0 <= dataset.caption_dropout <= 1:
            chance = f"The caption dropout {dataset.caption_dropout:g} is not a number from 0 to 1"
            yield f"{dataset.key}/caption_dropout", chance
        small = [resolution for resolution in dataset.resolutions if resolution < CELL]
        if small:
            yield (
                f"{dataset.key}/resolutions",
                f"The resolution {small[0]} is below {CELL} pixels, the smallest picture",
            )
    for sample in () if recipe.validation.disabled else recipe.validation.prompts:
        if min(sample.width, sample.height) < CELL:
            yield "samples", f"A sample of {sample.width} x {sample.height} pixels is smaller than {CELL} x {CELL}"
