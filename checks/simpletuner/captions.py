"""Captions that SimpleTuner asks for by name."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import DatasetFolder, Finding, Run, found
from ...doctor.rules import prevents, rule
from .datasets import LATE
from .options import TRAINER, arriving, on


@rule("SIM010", "error", "caption-file-missing", trainers=TRAINER)
@prevents("FileNotFoundError", r"Caption file .+ not found")
def caption_file_missing(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A picture without the text file that the trainer asks for.

    What: caption_strategy is textfile, and a picture has no .txt file of its name beside it.
    Why: The captions are collected after the text encoder was loaded, and the first that is absent ends the run;
    one picture among a thousand is enough. An empty file is taken.
    Repair: Write the file, take the picture out, or take another caption_strategy.
    Upstream: helpers/prompts.py prepare_instance_prompt_from_textfile (bc8e6ab7)
    Signature: FileNotFoundError: Caption file … not found.
    """
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        unasked = run.setting(f"{folder.key}/only_instance_prompt") or on(run, "only_instance_prompt")
        skipped = run.setting(f"{folder.key}/skip_file_discovery") or arriving(run, "skip_file_discovery")
        if dataset is None or dataset.captions != "files" or unasked or skipped:
            continue
        missing = [image.path for image in folder.images if not image.caption]
        if not missing:
            continue
        yield found(
            run.where(f"{folder.key}/caption_strategy"),
            "caption_strategy is textfile, and {first} has no .txt file beside it."
            if len(missing) == 1
            else "caption_strategy is textfile, and {count} of {total} pictures in {folder} have no .txt file beside "
            "them, {first} among them.",
            otherwise="The trainer stops {when}, at the first of them.",
            evidence={"missing": len(missing)},
            first=missing[0],
            count=len(missing),
            total=len(folder.images),
            folder=folder.path,
            when=LATE,
        )
