"""A model whose components are files of their own: which option names which, what a file holds, and the config.json
that it would have.

Numbers come from the shapes of the tensors. What shapes do not tell is as published and as sd-scripts 48d368fa
(library/flux_utils.py, library/flux_models.py) and musubi-tuner 30c658c4 (zimage/zimage_config.py and
zimage_utils.py, flux/flux_utils.py and flux_models.py) write it into their source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

from ..model.recipe import PartFile
from ..model.record import replace
from ..model.run import Run
from ..model.weights import COMFYUI_PREFIX
from . import ONE_FILE, classes, families, family_of, family_with, in_diffusers
from .record import Family, Tokenizer
from .record.of_trainers import Kohya
from .record.shapes import BadConfig, Shapes, Tensors
from .tensors import needed_tensors

_SHARD = re.compile(r"(.*?)(\d{5})-of-(\d{5})\.safetensors")
_MOST_SHARDS = 100
# What names a file of a model without a record, the transformer's or the whole checkpoint's first. musubi-tuner opens
# the others for samples alone (training/trainer_base.py, 30c658c4); some take a folder or a hub id, too.
_OF_ANY = {
    "sd-scripts": ("pretrained_model_name_or_path vae ae clip_l clip_g t5xxl gemma2 qwen3 text_encoder byt5", ""),
    "musubi-tuner": (
        "dit dit_high_noise vae t5 clip text_encoder text_encoder1 text_encoder2 byt5 image_encoder",
        "sample_prompts",
    ),
}


def part_files(run: Run) -> tuple[PartFile, ...]:
    """The parts of this run's model, transformer first; of one without a record those that the run names."""
    family = family_of(run.recipe.architecture)
    kohya = family.kohya.get(run.trainer)
    if run.recipe.parts:
        return run.recipe.parts
    if kohya is None or not kohya.files:
        options, when = _OF_ANY.get(run.trainer, ("", ""))
        first = options.split()[:1]
        return tuple(
            PartFile(
                "transformer" if [option] == first else option,
                option,
                "",
                {},
                when="" if option.startswith("dit") else when,
                loose=True,
            )
            for option in options.split()
            if option in run.settings
        )
    config = (
        {}
        if family.memory is None
        else family.memory.config((run.recipe.variant or run.recipe.base_model or "").lower())
    )
    main = next(iter(kohya.files))
    return tuple(
        PartFile(
            name,
            option,
            *kohya.classes.get(name, family.published.get(name, (family.class_name, config))),
            when=option
            if name in kohya.optional
            else "sample_prompts"
            if kohya.samples_only and name != main
            else "",
            either=kohya.either_vae and name == "vae",
            loose=kohya.is_one_file,
            inside=name in kohya.inside and name != main,
        )
        for name, option in kohya.files.items()
    )


def kohya_of(run: Run) -> Kohya | None:
    """What the record says of the files that the trainer opens; None for zdoctor's runner, which opens its own."""
    return None if run.recipe.parts else family_of(run.recipe.architecture).kohya.get(run.trainer)


def is_a_folder(run: Run) -> bool:
    """Whether the model is named as a folder or a hub id, where it may be one file."""
    kohya, base = kohya_of(run), (run.recipe.base_model or "").lower()
    return kohya is not None and kohya.is_one_file and not base.endswith(ONE_FILE)


def place_of(run: Run, part: PartFile, first: Collection[str]) -> tuple[str | None, str, bool]:
    """The path that holds a part, the prefix that its names may have there, and whether it is the first part's.

    `first` are the names in the first part's file.
    """
    kohya, own = kohya_of(run), written_path(run, part)
    if kohya is None:
        return own, "", False
    prefix, (of_first, *_) = kohya.inside.get(part.name, ""), kohya.files.values()
    is_there = part.name in kohya.inside_first and any(name.startswith(prefix) for name in first)
    if prefix and (own is None or part.option == of_first or is_there):
        named = run.setting(of_first)
        return named if isinstance(named, str) and named else None, prefix, True
    return own, kohya.prefixes.get(part.name, ""), False


def filled_by(run: Run, part: PartFile, present: Mapping[str, tuple[int, ...]]) -> Shapes | None:
    """Name -> shape of what the trainer fills of a part, under the names it would find it by in a file with these."""
    kohya, kind = kohya_of(run), classes().get(part.class_name)
    names = kohya.names.get(part.name) if kohya else None
    config = part.config
    if kohya is not None and kohya.built is not None and part.name == next(iter(kohya.files)):
        config = {**config, **kohya.built(present)}
    if names is not None:
        needed = needed_tensors(part.class_name, config)
        return None if needed is None else _as_squeezed(kohya, names(needed, present.keys()), present)
    if kind is None:
        return None
    try:
        return _as_squeezed(kohya, kind.by_kohya(config, present.keys(), part.either), present)
    except BadConfig:
        return {}


def _as_squeezed(kohya: Kohya | None, needed: Shapes, present: Mapping[str, tuple[int, ...]]) -> Shapes:
    """`needed`, of layers that may be Linears or convolutions of one pixel in the shape that is there."""
    if kohya is None or not kohya.squeezed:
        return needed

    def shape(name: str) -> tuple[int, ...]:
        wanted, found = needed[name], present.get(name, ())
        is_alike = wanted[:2] == found[:2] and prod(wanted) == prod(found) and re.search(kohya.squeezed, name)
        return found if is_alike else wanted

    return {name: shape(name) for name in needed}


def tokenizers(run: Run) -> tuple[Tokenizer, ...]:
    """What zdoctor's own runner needs beside the files of the parts."""
    return in_diffusers(family_of(run.recipe.architecture)).tokenizers if run.recipe.parts else ()


def with_parts(made: Run, run: Run) -> Run:
    """`made`, which is `run` in the words of zdoctor's own runner, with the files of its parts: it opens them all."""
    parts = tuple(replace(_as_opened(run, part), when="", loose=False) for part in part_files(run))
    named = {part.option: run.settings[part.option] for part in parts if part.option in run.settings}
    return replace(made, settings={**made.settings, **named}, recipe=replace(made.recipe, parts=parts))


def _as_opened(run: Run, part: PartFile) -> PartFile:
    """The part with the class that the runner builds, where the trainer builds its authors' own."""
    own = in_diffusers(family_of(run.recipe.architecture))
    name, config = own.published.get(part.name, (own.class_name, {}))
    return part if own.own is None or part.class_name == name else replace(part, class_name=name, config=config)


def written_path(run: Run, part: PartFile) -> str | None:
    """The path that the run gives for a part."""
    value = run.setting(part.option)
    return value if isinstance(value, str) and value else None


def other_files(run: Run) -> tuple[tuple[str, str], ...]:
    """(option, path) of what kohya's trainers open beside the model: settings, prompts, weights, lists of pictures.

    The option of what a dataset names is its key in the dataset file.
    """
    if run.config.lower().endswith(".json"):
        return ()  # the GUI keeps the prompts themselves there
    found: list[tuple[str, str]] = []
    options = ("sample_prompts", "network_weights", "base_weights", "resume")
    settings = (
        *(["config_file"] if run.unread.startswith("--config_file") else []),
        *([] if run.homes else ["dataset_config"]),
        *([] if run.setting("dataset_config") else ["in_json"]),  # which is ignored beside it
    )
    for option in (*settings, *options):
        written = run.setting(option)
        entries = written if isinstance(written, list) else [written]
        found += [(option, entry) for entry in entries if isinstance(entry, str) and entry and "\0" not in entry]
    found += _of_datasets(run)
    from_hub = run.settings.get("resume_from_huggingface")
    return tuple(pair for pair in found if pair[0] != "resume" or from_hub is None)


def _of_datasets(run: Run) -> Iterator[tuple[str, str]]:
    """The lists of pictures and the folders of control pictures, which go with a folder of pictures alone."""
    for key, value in run.settings.items():
        dataset, _, name = key.rpartition("/")
        in_folder = any(f"{dataset}/{kind}_directory" in run.settings for kind in ("image", "video"))
        looked_at = ("control_directory",) if in_folder else ("image_jsonl_file", "video_jsonl_file", "metadata_file")
        if dataset and name in looked_at and isinstance(value.value, str) and value.value and not value.unknown:
            yield key, value.value


def shards_of(name: str) -> list[str]:
    """The names of the files of one part by the first's: a numbered set in its order, else that name alone."""
    shard = _SHARD.fullmatch(name)
    if shard is None:
        return [name]
    count = min(int(shard.group(3)), _MOST_SHARDS)
    return [f"{shard.group(1)}{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def whole_parts(family: Family, option: str) -> tuple[PartFile, ...]:
    """The parts of a model that one file holds, which this option names; () where no such file is opened."""
    own = family.own
    if own is None:
        return ()
    config: Mapping[str, Any] = {}
    return tuple(
        PartFile(name, option, *family.published.get(name, (family.class_name, config))) for name in own.whole
    )


def with_whole(made: Run, option: str) -> Run:
    """A run of zdoctor's own runner whose model is one file that holds all parts, if its family has such files."""
    parts = whole_parts(in_diffusers(family_of(made.recipe.architecture)), option)
    return replace(made, recipe=replace(made.recipe, parts=parts)) if parts else made


def prefix_in(class_name: str, names: Iterable[str]) -> str:
    """What stands before this class's tensors in a file that holds a whole model; "" in any other."""
    every = set(_prefixes().get(class_name, ()))
    return next((prefix for prefix in every if any(name.startswith(prefix) for name in names)), "")


@cache
def _prefixes() -> Mapping[str, set[str]]:
    """What stands before the tensors of each class in files that hold a whole model."""
    found: dict[str, set[str]] = {}
    for family in families():
        for name, prefix in family.own.whole.items() if family.own is not None else ():
            found.setdefault(family.published.get(name, (family.class_name,))[0], set()).add(prefix)
    return found


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
    if prefix := prefix_in(class_name, shapes):
        shapes = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
    plain = {name.removeprefix(prefix or COMFYUI_PREFIX): shape for name, shape in shapes.items()}
    held = class_in(plain)
    # or that of its authors, for which this one stands
    of_authors = in_diffusers(family_with(held)).class_name == class_name
    if held is None or not (of_authors or classes()[held].marks == kind.marks):
        raise BadConfig(f"it holds {title_of(held)}" if held else "its tensors have other names")
    config = kind.infer(Tensors(plain, kind.other))
    key, width, counts = kind.depth or ("", 0, {})
    return {**config, **counts} if config.get(key) == width else config


def as_in_file(class_name: str, needed: Shapes, present: Collection[str]) -> Shapes:
    """`needed` under the names that a file with `present` has for it, one for each but of fused tensors, in order."""
    prefix = prefix_in(class_name, present)
    own = {name.removeprefix(prefix) for name in present if name.startswith(prefix)} if prefix else present
    return {prefix + name: shape for name, shape in classes()[class_name].in_file(needed, own).items()}
