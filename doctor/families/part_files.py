"""A model whose components are files of their own: which option names which, what a file holds, and the config.json
that it would have.

Numbers come from the shapes of the tensors. What shapes do not tell is as published and as sd-scripts 48d368fa
(library/flux_utils.py, library/flux_models.py) and musubi-tuner 30c658c4 (zimage/zimage_config.py and
zimage_utils.py, flux/flux_utils.py and flux_models.py) write it into their source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..model.recipe import PartFile
from ..model.record import replace
from ..model.run import Run
from ..model.weights import COMFYUI_PREFIX
from . import classes, family_of
from .record import Tokenizer
from .record.shapes import BadConfig, Shapes, Tensors

_SHARD = re.compile(r"(.*?)(\d{5})-of-(\d{5})\.safetensors")
_MOST_SHARDS = 100
# What holds tensors that are not known here, by the option: a checkpoint of Stable Diffusion, musubi-tuner's others.
_UNKNOWN = {
    option: (PartFile("transformer", option, "", {}, loose=True),)
    for option in ("pretrained_model_name_or_path", "dit")
}


def part_files(run: Run) -> tuple[PartFile, ...]:
    """The parts of this run's model, transformer first; empty for a trainer or model that is not known here."""
    family = family_of(run.recipe.architecture)
    kohya = family.kohya.get(run.trainer)
    if run.recipe.parts:
        return run.recipe.parts
    if kohya is None:
        checkpoint = run.trainer == "sd-scripts" and run.recipe.architecture in ("sd1", "sdxl")
        option = "pretrained_model_name_or_path" if checkpoint else "dit" if run.trainer == "musubi-tuner" else ""
        return _UNKNOWN.get(option, ())
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


def shards_of(name: str) -> list[str]:
    """The names of the files of one part by the first's: a numbered set in its order, else that name alone."""
    shard = _SHARD.fullmatch(name)
    if shard is None:
        return [name]
    count = min(int(shard.group(3)), _MOST_SHARDS)
    return [f"{shard.group(1)}{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def class_in(names: Collection[str]) -> str | None:
    """The class of the part that a file with these tensors holds, by one name that no other has; else None."""
    plain = {name.removeprefix(COMFYUI_PREFIX) for name in names}
    return next((kind.name for kind in classes().values() if not plain.isdisjoint(kind.marks)), None)


def title_of(class_name: str | None) -> str:
    """A class for people, with its article; "" for None."""
    return "" if class_name is None else classes()[class_name].title


def inferred_config(class_name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The config.json of the class that these tensors are of. Raises BadConfig where they are of none.

    That all tensors are there, in the shapes that follow from it, is for the caller to compare.
    """
    kind = classes()[class_name]
    plain = {name.removeprefix(COMFYUI_PREFIX): shape for name, shape in shapes.items()}
    held = class_in(plain)
    if held is None or classes()[held].marks != kind.marks:
        raise BadConfig(f"it holds {title_of(held)}" if held else "its tensors have other names")
    config = kind.infer(Tensors(plain, kind.other))
    key, width, counts = kind.depth or ("", 0, {})
    return {**config, **counts} if config.get(key) == width else config


def as_in_file(class_name: str, needed: Shapes, present: Collection[str]) -> Shapes:
    """`needed` under the names that a file with `present` has for it, one for each but of fused tensors, in order."""
    return classes()[class_name].in_file(needed, present)
