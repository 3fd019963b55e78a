"""The base model and the adapter of a run, as the trainer would open them."""

from __future__ import annotations

import re

from ..model import Component, Hub, HubRepo, ModelFolder, Run, Unknown, WeightFile
from .components import listed, read_component
from .safetensors import read_weight_file
from .world import Paths, Stat, World, resolve

ZIMAGE_CLASSES = {
    "transformer": "ZImageTransformer2DModel",
    "text_encoder": "Qwen3ForCausalLM",
    "tokenizer": None,
    "vae": "AutoencoderKL",
}
_ZIMAGE_DEFAULT = "Tongyi-MAI/Z-Image-Turbo"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_REPO_FILE = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/(.+\.(?:safetensors|ckpt|pt|bin))")
_PARTS = (
    "transformer",
    "transformer_2",
    "unet",
    "vae",
    "text_encoder",
    "text_encoder_2",
    "text_encoder_3",
    "text_encoder_4",
    "image_encoder",
    "tokenizer",
    "tokenizer_2",
    "tokenizer_3",
)


def probe_model(world: World, run: Run, hub: Hub | Unknown) -> ModelFolder | Unknown:
    """What the trainer opens for `run.base_model`: a folder, a single file, a hub snapshot, or nothing yet.

    A hub cache's root folder named in place of a snapshot has one component "cache" whose problem is "cache root"
    and whose folder is the snapshot inside that could serve (the root itself when there is none).
    """
    source = run.base_model
    if not source or "\0" in source:
        return Unknown("the config names no base model")
    paths = Paths(world.system)
    place = paths.absolute(source)
    _, stat = resolve(world, paths, place)
    if isinstance(stat, Unknown):
        return stat
    zimage = is_zimage(run)
    if stat is None:
        return _from_hub(world, paths, run, hub, source, zimage)
    if stat.kind == "file":
        weight = read_weight_file(world, place, paths.name(place))
        return _single(world, paths, run, hub, source, weight, zimage, None)
    return _folder(world, paths, run, hub, source, place, zimage, None)


def is_zimage(run: Run) -> bool:
    return run.architecture in ("zimage", "z_image")


def _from_hub(
    world: World, paths: Paths, run: Run, hub: Hub | Unknown, source: str, zimage: bool
) -> ModelFolder | Unknown:
    single = _REPO_FILE.fullmatch(source)
    repo_id = single.group(1) if single else source if _REPO.fullmatch(source) else None
    if repo_id is None:
        return ModelFolder(source, "absent", None)
    if isinstance(hub, Unknown):
        return hub
    repo = hub.repo(repo_id)
    if repo is None or repo.snapshot is None or listed(world, repo.snapshot) is None:
        return ModelFolder(source, "absent", None, repo=repo_id)
    if single:
        weight = read_weight_file(world, paths.join(repo.snapshot, *single.group(2).split("/")), single.group(2))
        if weight.problem == "missing":
            return ModelFolder(source, "absent", None, repo=repo_id)
        return _single(world, paths, run, hub, source, weight, zimage, repo)
    return _folder(world, paths, run, hub, source, repo.snapshot, zimage, repo)


def _single(
    world: World,
    paths: Paths,
    run: Run,
    hub: Hub | Unknown,
    source: str,
    weight: WeightFile,
    zimage: bool,
    repo: HubRepo | None,
) -> ModelFolder:
    """A single file; for Z-Image the other parts come from `extras_model`, else from the hub."""
    reason = "a single file is converted while it is loaded"
    owner = repo.repo if repo else None
    folder = paths.parent(weight.path)
    components = {
        "transformer": Component("transformer", folder, None, None, (weight,), needed_reason=reason, repo=owner)
    }
    if zimage:
        components |= _others(world, paths, hub, run.extras_model or _ZIMAGE_DEFAULT)
    return ModelFolder(source, "single-file", folder, components, owner, repo.commit if repo else None)


def _folder(
    world: World,
    paths: Paths,
    run: Run,
    hub: Hub | Unknown,
    source: str,
    folder: str,
    zimage: bool,
    repo: HubRepo | None,
) -> ModelFolder | Unknown:
    names = listed(world, folder)
    if isinstance(names, Unknown):
        return names
    names = names or ()
    owner = repo.repo if repo else None
    commit = repo.commit if repo else None
    if "transformer" not in names and "snapshots" in names and paths.name(folder).startswith("models--"):
        cache = Component("cache", _snapshot_inside(world, paths, folder), None, None, (), problem="cache root")
        return ModelFolder(source, "diffusers", folder, {"cache": cache})
    bare = "transformer" not in names and "config.json" in names
    if not zimage:
        if bare:
            part = read_component(world, "transformer", folder, repo=owner, loader_known=False)
            return ModelFolder(source, "transformer-only", folder, {"transformer": part}, owner, commit)
        parts = {
            name: read_component(world, name, paths.join(folder, name), repo=owner, loader_known=False)
            for name in _PARTS
            if name in names
        }
        return ModelFolder(source, "diffusers", folder, parts, owner, commit)
    where = folder if bare else paths.join(folder, "transformer")
    components = {
        "transformer": read_component(world, "transformer", where, repo=owner, expected=ZIMAGE_CLASSES["transformer"])
    }
    complete = "text_encoder" in names
    if complete and repo is None:
        components |= _parts(world, paths, folder, None)
    else:
        components |= _others(world, paths, hub, run.extras_model or source)
    return ModelFolder(source, "transformer-only" if bare else "diffusers", folder, components, owner, commit)


def _others(world: World, paths: Paths, hub: Hub | Unknown, source: str) -> dict[str, Component]:
    """Text encoder, tokenizer and VAE from `source`; none of them when it is a hub id with nothing cached."""
    place = paths.absolute(source)
    if isinstance(listed(world, place), tuple):
        return _parts(world, paths, place, None)
    repo = None if isinstance(hub, Unknown) else hub.repo(source)
    if repo is None or repo.snapshot is None:
        return {}
    return _parts(world, paths, repo.snapshot, repo.repo)


def _parts(world: World, paths: Paths, folder: str, repo: str | None) -> dict[str, Component]:
    return {
        name: read_component(world, name, paths.join(folder, name), repo=repo, expected=expected)
        for name, expected in ZIMAGE_CLASSES.items()
        if name != "transformer"
    }


def _snapshot_inside(world: World, paths: Paths, root: str) -> str:
    """The snapshot that refs/main names, else the only one; the root itself when that does not settle it."""
    names = listed(world, paths.join(root, "snapshots"))
    snapshots = names if isinstance(names, tuple) else ()
    ref = paths.join(root, "refs", "main")
    content = world.read(ref, 0, 100) if isinstance(world.stat(ref), Stat) else b""
    commit = content.decode("ascii", "replace").strip() if isinstance(content, bytes) else ""
    if commit not in snapshots:
        commit = snapshots[0] if len(snapshots) == 1 else ""
    return paths.join(root, "snapshots", commit) if commit else root


def probe_adapter(world: World, run: Run, hub: Hub | Unknown) -> WeightFile | Unknown | None:
    """The header of the adapter file the run merges; None when it names none."""
    written = run.adapter
    if not written:
        return None
    if "\0" in written:
        return Unknown("the adapter path holds a null character")
    paths = Paths(world.system)
    place = paths.absolute(written)
    _, stat = resolve(world, paths, place)
    if isinstance(stat, Unknown):
        return stat
    if stat is not None:
        if stat.kind != "file":
            return Unknown("the adapter path is no file")
        return read_weight_file(world, place, paths.name(place))
    hosted = _REPO_FILE.fullmatch(written)
    repo_id, name = (hosted.group(1), hosted.group(2)) if hosted else (written, "pytorch_lora_weights.safetensors")
    if not _REPO.fullmatch(repo_id):
        return Unknown("the adapter file does not exist")
    if isinstance(hub, Unknown):
        return hub
    repo = hub.repo(repo_id)
    if repo is None or repo.snapshot is None:
        return Unknown(f"the adapter {repo_id} is not on this machine yet")
    weight = read_weight_file(world, paths.join(repo.snapshot, *name.split("/")), name)
    return Unknown(f"the adapter file {name} is not on this machine yet") if weight.problem == "missing" else weight
