"""The base model of a run, as the trainer would open it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..families import family_of, loader_of, no_record, opened_by
from ..families.part_files import is_a_folder
from ..families.record import ModelClass
from ..families.record.shapes import Shapes
from ..families.record.single_file import original_layout
from ..families.tensors import needed_tensors, why_not
from ..model import Component, Hub, HubRepo, ModelFolder, Run, Unknown, WeightFile
from ..model.record import replace
from ..model.weights import COMFYUI_PREFIX
from ..trainers import trainer_of
from .components import listed, read_component, read_json
from .hub.caches import snapshot_inside
from .other_components import REPO, REPO_FILE, Look, component_file, others_of, parts_of, place_of
from .part_files import probe_part_files
from .world import Stat, World
from .world.safetensors import read_weight_file

_PARTS = (
    *("transformer", "transformer_2", "unet", "vae", "text_encoder", "text_encoder_2", "text_encoder_3"),
    *("text_encoder_4", "image_encoder", "tokenizer", "tokenizer_2", "tokenizer_3"),
)


Layout = Literal["diffusers", "transformer-only", "single-file"]


def probe_model(world: World, run: Run, hub: Hub | Unknown) -> ModelFolder | Unknown:
    """What the trainer opens for `run.base_model`: a folder, a single file, a hub snapshot, or nothing yet.

    A hub cache's root folder named in place of a snapshot has one component "cache" whose problem is "cache root"
    and whose folder is the snapshot inside that could serve (the root itself when there is none). The transformer's
    folder named where the whole model's is wanted has one component "whole", whose folder is the one above.
    """
    of_files = trainer_of(run.trainer).component_files or run.recipe.parts
    if of_files and not (is_a_folder(run) and _is_no_file(world, run.recipe.base_model)):
        return probe_part_files(world, run)
    source = run.recipe.base_model
    if not source or "\0" in source:
        of_flavour = run.recipe.architecture and opened_by(run).transformer is None
        return Unknown(no_record(run.recipe.architecture) if of_flavour else "the config names no base model")
    look = Look(world, run, hub, source, loader_of(run))
    place = look.world.absolute(source)
    _, stat = world.resolve(place)
    if isinstance(stat, Unknown):
        return stat
    if stat is None:
        return _from_hub(look)
    if stat.kind == "file":
        return _single(look, read_weight_file(world, place), None)
    return _folder(look, place, None) if look.file is None else _named(look, place, None)


def _is_no_file(world: World, source: str | None) -> bool:
    if not source or "\0" in source:
        return False
    _, stat = world.resolve(world.absolute(source))
    return not isinstance(stat, Stat) or stat.kind != "file"


def _from_hub(look: Look) -> ModelFolder | Unknown:
    source = look.source
    single = REPO_FILE.fullmatch(source)
    repo_id = single.group(1) if single else source if REPO.fullmatch(source) else None
    if repo_id is None:
        return ModelFolder(source, "absent", None)
    if isinstance(look.hub, Unknown):
        return look.hub
    repo = look.hub.repo(repo_id)
    if repo is None or repo.snapshot is None or listed(look.world, repo.snapshot) is None:
        return ModelFolder(source, "absent", None, repo=repo_id)
    if single:
        path = look.world.join(repo.snapshot, *single.group(2).split("/"))
        weight = read_weight_file(look.world, path, single.group(2))
        if weight.problem == "missing":
            return ModelFolder(source, "absent", None, repo=repo_id)
        return _single(look, weight, repo)
    return _folder(look, repo.snapshot, repo) if look.file is None else _named(look, repo.snapshot, repo)


def _named(look: Look, folder: str, repo: HubRepo | None) -> ModelFolder | Unknown:
    """The one file that is the transformer in a folder or a repository."""
    assert look.loader is not None and look.file is not None
    world, origin = look.world, look.loader.origin("transformer")
    name = look.run.recipe.sources.get("transformer") or (look.file(repo.repo) if repo else look.file(""))
    if origin.lone and repo is None and "transformer" not in look.run.recipe.sources:
        names = listed(world, folder)
        if isinstance(names, Unknown):
            return names
        files = [one for one in names or () if one.endswith(".safetensors")]
        name = files[0] if len(files) == 1 else ""
    weight = read_weight_file(world, world.below(folder, name), name) if name and "\0" not in name else None
    if weight is not None and weight.problem != "missing":
        return _single(look, weight, repo)
    if repo is not None:
        return ModelFolder(look.source, "absent", None, repo=repo.repo)
    problem = "the trainer opens one weight file there" + (f", {name}" if name else "")
    part = Component("transformer", folder, problem=problem)
    return _made(look, "single-file", folder, {"transformer": part, **others_of(look, look.loader, folder)}, None)


def _single(look: Look, weight: WeightFile, repo: HubRepo | None) -> ModelFolder:
    """A single file; its config and the other parts come from `extras_model`, else from the family's repository."""
    folder = look.world.parent(weight.path)
    if look.run.by_runner:  # it takes a prefix off
        tensors = {name.removeprefix(COMFYUI_PREFIX): tensor for name, tensor in weight.tensors.items()}
        weight = replace(weight, tensors=tensors)
    loader, kind, config, needed = look.loader, None, None, None
    reason = "no table fits a single file of this kind"
    others: dict[str, Component] = {}
    if loader is not None and look.file is not None:
        part = component_file(
            look, "transformer", loader.origin("transformer"), weight, None if repo is None else repo.repo
        )
        others = others_of(look, loader, look.run.recipe.extras_model or look.source)
        return _made(look, "single-file", folder, {"transformer": part, **others}, repo)
    if loader is not None and loader.single_file == "":
        reason = "the names in a single file of this kind are not known here"
    elif loader is not None and loader.single_file is not None:
        written = look.run.recipe.extras_model
        extras = loader.single_file if written in (None, look.source) else written
        config = _single_config(look, extras, published=loader.single_file)
        kind = family_of(look.run.recipe.architecture).transformer
        reason = "the config.json that the file is loaded with is not here"
        others = others_of(look, loader, extras)
    elif loader is not None:
        needed = _published(look.run, weight)
    if kind is not None and config is not None:
        built = needed_tensors(kind.name, config)
        reason = "" if built is not None else why_not(kind.name, config)
        needed = None if built is None else _as_written(kind, built, weight)
    part = Component(
        "transformer",
        folder,
        None if kind is None else kind.name,
        config,
        (weight,),
        needed=needed,
        needed_reason=reason,
        repo=None if repo is None else repo.repo,
        strict=True,
    )
    return _made(look, "single-file", folder, {"transformer": part, **others}, repo)


def _made(
    look: Look, layout: Layout, folder: str, parts: Mapping[str, Component], repo: HubRepo | None
) -> ModelFolder:
    owner, commit = (None, None) if repo is None else (repo.repo, repo.commit)
    return ModelFolder(look.source, layout, folder, parts, owner, commit)


def _published(run: Run, weight: WeightFile) -> Shapes | None:
    """What the published models of this family have in their single files, if this is such a file."""
    kind = family_of(run.recipe.architecture).transformer
    if kind is None:
        return None
    prefix = COMFYUI_PREFIX if any(name.startswith(COMFYUI_PREFIX) for name in weight.tensors) else ""
    guided = any(name.startswith(f"{prefix}guidance_in.") for name in weight.tensors)
    shapes = original_layout(kind.original, kind.tensors({"guidance_embeds": guided}))
    needed = {prefix + name: shape for name, shape in shapes.items()}
    return needed if 2 * sum(name in weight.tensors for name in needed) >= len(needed) else None


def _as_written(kind: ModelClass, needed: Shapes, weight: WeightFile) -> Shapes:
    """`needed` under the names of this file: the original ones where it holds such, else diffusers' own."""
    original = original_layout(kind.original, needed)
    if any(name in weight.tensors for name in original.keys() - needed.keys()):
        return original_layout(kind.original, needed, weight.tensors)
    return needed if any(name in weight.tensors for name in needed) else original


def _single_config(look: Look, extras: str, published: str) -> Mapping[str, Any] | None:
    """The transformer's config of `extras`; of the family's own repository it is the class's defaults.

    zdoctor's runner downloads nothing: what is not here, it does not have.
    """
    absent: Mapping[str, Any] | None = {} if extras == published and not look.run.by_runner else None
    folder = place_of(look, extras)
    if folder is None:
        return absent
    nested = look.world.join(folder, "transformer")
    inside = isinstance(listed(look.world, nested), tuple)
    config = read_json(look.world, look.world.join(nested if inside else folder, "config.json"))
    return absent if isinstance(config, Unknown) else config


def _folder(look: Look, folder: str, repo: HubRepo | None) -> ModelFolder | Unknown:
    world, loader = look.world, look.loader
    names = listed(world, folder)
    if isinstance(names, Unknown):
        return names
    names = names or ()
    owner = repo.repo if repo else None
    if "transformer" not in names and "snapshots" in names and world.name(folder).startswith("models--"):
        cache = Component("cache", snapshot_inside(world, folder), problem="cache root")
        return _made(look, "diffusers", folder, {"cache": cache}, None)
    bare = "transformer" not in names and "config.json" in names
    layout: Layout = "transformer-only" if bare else "diffusers"
    if loader is None:
        places = {name: world.join(folder, name) for name in _PARTS if name in names}
        parts = {
            name: read_component(world, name, place, repo=owner, loader_known=False)
            for name, place in ({"transformer": folder} if bare else places).items()
        }
        return _made(look, layout, folder, parts, repo)
    above = world.parent(folder)
    if bare and not loader.bare and repo is None and world.name(folder) == "transformer":
        beside = listed(world, above)
        if isinstance(beside, tuple) and loader.components.keys() <= set(beside):
            whole = Component("whole", above, problem="the folder above")
            return _made(look, layout, folder, {"whole": whole}, repo)
    main = loader.main
    where = folder if bare and loader.bare else world.join(folder, main)
    components = {
        main: read_component(
            world, main, where, repo=owner, expected=loader.components[main][0], origin=loader.origin(main)
        )
    }
    own = not loader.extras or ("text_encoder" in names and not loader.extras_first)
    if repo is None and own:
        components |= parts_of(look, loader, folder, None)
    else:
        extras = look.run.recipe.extras_model if loader.extras else None
        components |= others_of(look, loader, extras or look.source)
    return _made(look, layout, folder, components, repo)
