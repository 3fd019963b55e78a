"""Trainers that take each component of a model from a file of its own: which option names which."""

from __future__ import annotations

from ..model.recipe import PartFile
from ..model.record import replace
from ..model.run import Run
from . import family_of
from .record import Tokenizer

# A checkpoint of Stable Diffusion, whose tensors are not known here.
_CHECKPOINT = (PartFile("transformer", "pretrained_model_name_or_path", "", {}, loose=True),)


def part_files(run: Run) -> tuple[PartFile, ...]:
    """The parts of this run's model, transformer first; empty for a trainer or model that is not known here."""
    family = family_of(run.recipe.architecture)
    kohya = family.kohya.get(run.trainer)
    if run.recipe.parts:
        return run.recipe.parts
    if kohya is None:
        return _CHECKPOINT if run.trainer == "sd-scripts" and run.recipe.architecture in ("sd1", "sdxl") else ()
    return tuple(
        PartFile(
            name,
            option,
            *family.published.get(name, (family.class_name, {})),
            when="sample_prompts" if kohya.samples_only and name != "transformer" else "",
            either=kohya.either_vae and name == "vae",
        )
        for name, option in kohya.files.items()
    )


def tokenizers(run: Run) -> tuple[Tokenizer, ...]:
    """What zdoctor's own runner needs beside the files of the parts."""
    return family_of(run.recipe.architecture).tokenizers if run.recipe.parts else ()


def with_parts(made: Run, run: Run) -> Run:
    """`made`, which is `run` in the words of zdoctor's own runner, with the files of its parts: it opens them all."""
    parts = tuple(replace(part, when="", loose=False) for part in part_files(run))
    named = {part.option: run.settings[part.option] for part in parts if part.option in run.settings}
    return replace(made, settings={**made.settings, **named}, recipe=replace(made.recipe, parts=parts))


def written_path(run: Run, part: PartFile) -> str | None:
    """The path that the run gives for a part."""
    value = run.setting(part.option)
    return value if isinstance(value, str) and value else None


def other_files(run: Run) -> tuple[tuple[str, str], ...]:
    """(option, path) of what kohya's trainers open beside the model: prompts, weights, a saved state."""
    if run.config.lower().endswith(".json"):
        return ()  # the GUI keeps the prompts themselves there
    found: list[tuple[str, str]] = []
    options = ("sample_prompts", "network_weights", "base_weights", "resume")
    for option in options if run.homes else ("dataset_config", *options):
        written = run.setting(option)
        entries = written if isinstance(written, list) else [written]
        found += [(option, entry) for entry in entries if isinstance(entry, str) and entry and "\0" not in entry]
    from_hub = run.settings.get("resume_from_huggingface")
    return tuple(pair for pair in found if pair[0] != "resume" or from_hub is None)
