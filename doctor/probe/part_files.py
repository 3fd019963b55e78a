"""A model whose parts are single files, each named by an option of its own (sd-scripts, musubi-tuner)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..families import no_record
from ..families.part_files import (
    as_in_file,
    filled_by,
    inferred_config,
    part_files,
    place_of,
    shards_of,
    tokenizers,
)
from ..families.record import Tokenizer
from ..families.record.shapes import BadConfig, Shapes
from ..families.tensors import needed_tensors
from ..model import Component, ModelFolder, Run, Unknown, WeightFile
from ..model.recipe import PartFile
from ..model.record import replace
from ..trainers import trainer_of
from .components import listed, read_component
from .hub.caches import caches, repo_folder, snapshot_inside
from .world import World
from .world.safetensors import read_weight_file

_FOLDER = "diffusion_pytorch_model-00001-of-00003.safetensors"  # the one folder that sd-scripts opens


def probe_part_files(world: World, run: Run) -> ModelFolder | Unknown:
    """Every part that exists, with the tensors its trainer fills; a path that leads nowhere is left out."""
    if run.process_type == "datasets":
        return Unknown("it holds datasets alone, and no training")
    if not any(part.option in run.settings for part in part_files(run)):
        return Unknown("the config names no base model")
    components: dict[str, Component] = {}
    read: dict[str, tuple[WeightFile, ...]] = {}
    first: Collection[str] = ()
    for part in part_files(run):
        text, prefix, is_first = place_of(run, part, first)
        if text is None or "\0" in text:
            continue
        if text not in read:
            read[text] = _files(world, run, part, world.absolute(text))
        weights = read[text]
        if not components and not first:
            first = [name for weight in weights for name in weight.tensors]
        beginning = [name for weight in weights for name in weight.tensors if name.startswith(prefix)]
        if is_first and part.inside and not _is_inside(components, part, beginning):
            continue
        if prefix and beginning:
            weights = tuple(_beginning(weight, prefix) for weight in weights)
        elif prefix and is_first and part.inside:
            weights = tuple(replace(weight, tensors={}) for weight in weights)
        elif not is_first:
            prefix = ""
        if weights:
            key = next(iter(components.values())).key if is_first and components else part.option
            components[part.name] = _component(world, run, part, weights, prefix, key)
    components |= probe_tokenizers(world, run)
    main = components.get(part_files(run)[0].name)
    folder = None if main is None else main.folder
    return ModelFolder(run.recipe.base_model or "", "part-files" if components else "absent", folder, components)


def _is_inside(components: Mapping[str, Component], part: PartFile, held: Collection[str]) -> bool:
    """Whether a part is looked for in the first one's file: not where that is another model's, nor, where the whole
    model need not be one file, where it holds nothing of it.
    """
    first = next(iter(components.values()), None)
    if first is None or not any(name in first.tensors for name in first.needed or ()):
        return False
    return bool(held) or part.loose


def _beginning(weight: WeightFile, prefix: str) -> WeightFile:
    return replace(weight, tensors={name: one for name, one in weight.tensors.items() if name.startswith(prefix)})


def _component(
    world: World, run: Run, part: PartFile, weights: tuple[WeightFile, ...], prefix: str, key: str
) -> Component:
    every = {name: tensor.shape for weight in weights for name, tensor in weight.tensors.items()}
    shapes = {name.removeprefix(prefix): shape for name, shape in every.items()}
    config, needed = _inferred(part, shapes) if run.by_runner else (None, filled_by(run, part, shapes))
    return Component(
        name=part.name,
        folder=world.parent(weights[0].path),
        class_name=part.class_name or None,
        config=config,
        weights=weights,
        needed=None if needed is None else {prefix + name: shape for name, shape in needed.items()},
        needed_reason="" if needed is not None else no_record(run.recipe.architecture),
        key=key,
    )


def _files(world: World, run: Run, part: PartFile, path: str) -> tuple[WeightFile, ...]:
    """The files that the trainer opens for a path: shards by the first one's name, and for Flux a folder of three.

    zdoctor's own runner opens what either of them opens.
    """
    _, stat = world.resolve(path)
    if stat is None or isinstance(stat, Unknown):
        return ()
    if stat.kind == "folder":
        in_folder = run.by_runner or trainer_of(run.trainer).transformer_in_folder
        if not in_folder or part.loose or part.name != "transformer":
            return ()
        path = world.join(path, "transformer", _FOLDER)
    if part.name != "transformer" and not (run.by_runner or trainer_of(run.trainer).all_sharded):
        return (read_weight_file(world, path),)
    folder = world.parent(path)
    return tuple(read_weight_file(world, world.join(folder, name)) for name in shards_of(world.name(path)))


def _inferred(part: PartFile, shapes: Shapes) -> tuple[Mapping[str, Any] | None, Shapes | None]:
    """What zdoctor's own runner builds: the config that the file tells, and the tensors under the file's names."""
    config: Mapping[str, Any] | None = None
    with suppress(BadConfig):  # what is published is then what it lacks
        config = inferred_config(part.class_name, shapes)
    needed = needed_tensors(part.class_name, part.config if config is None else config)
    return config, None if needed is None else as_in_file(part.class_name, needed, shapes)


def probe_tokenizers(world: World, run: Run) -> dict[str, Component]:
    """Each tokenizer that the run needs, from the first place that holds it whole; else its problem is "missing"."""
    return {tokenizer.name: _found(world, run, tokenizer) for tokenizer in tokenizers(run)}


def _found(world: World, run: Run, tokenizer: Tokenizer) -> Component:
    """A tokenizer.json is read as it is, a spiece.model only with other packages: that one is taken last."""
    whole: list[Component] = []
    for folder, repo in _places(world, run, tokenizer):
        names = listed(world, folder)
        if not isinstance(names, tuple):
            continue
        expected = None if tokenizer.chats else tokenizer.name
        part = read_component(world, tokenizer.name, folder, repo=repo, expected=expected)
        if not part.missing_files and not part.problem:
            whole.append(part)
            if "tokenizer.json" in names:
                return part
    absent = Component(tokenizer.name, "", problem="missing", repo=tokenizer.repos[0][0])
    return whole[0] if whole else absent


def _places(world: World, run: Run, tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    kept = run.setting("tokenizer_cache_dir")
    if isinstance(kept, str) and "\0" not in kept:
        repo = tokenizer.repos[0][0]
        yield world.absolute(world.join(kept, repo.replace("/", "_"))), repo
    for repo, inside in tokenizer.repos:
        for cache in caches(world):
            root = repo_folder(world, cache, repo)
            snapshot = snapshot_inside(world, root)
            if snapshot != root:
                yield (world.join(snapshot, inside) if inside else snapshot), repo
