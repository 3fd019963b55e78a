"""The components of a model beside its transformer, from wherever the trainer opens them."""

from __future__ import annotations

from collections.abc import Callable

from ..families.record import Loader, Origin
from ..families.tensors import needed_tensors, why_not
from ..model import Component, Hub, Run, Unknown, WeightFile
from ..model.pattern import pattern
from ..model.record import dataclass
from .components import listed, read_component
from .world import Stat, World
from .world.safetensors import read_weight_file

REPO = pattern(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
REPO_FILE = pattern(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/(.+\.(?:safetensors|ckpt|pt|bin))")


@dataclass(frozen=True)
class Look:
    """What every step of the look needs to know."""

    world: World
    run: Run
    hub: Hub | Unknown
    source: str
    loader: Loader | None

    @property
    def file(self) -> Callable[[str], str] | None:
        """How the transformer's one file is called, where it is not a folder."""
        return None if self.loader is None else self.loader.origin("transformer").file


def component_file(look: Look, name: str, origin: Origin, weight: WeightFile, repo: str | None) -> Component:
    """A component in one file, of the class and config that the trainer writes itself."""
    assert origin.built is not None
    weight = origin.loaded(weight)
    class_name, config = origin.built(weight.tensors)
    needed = needed_tensors(class_name, config)
    reason = "" if needed is not None else why_not(class_name, config)
    folder = look.world.parent(weight.path)
    return Component(
        name, folder, class_name, None, (weight,), needed=needed, needed_reason=reason, repo=repo, strict=True
    )


def place_of(look: Look, source: str) -> str | None:
    """The folder that a path or a cached hub id stands for."""
    place = look.world.absolute(source)
    if isinstance(listed(look.world, place), tuple):
        return place
    repo = None if isinstance(look.hub, Unknown) else look.hub.repo(source)
    return repo.snapshot if repo is not None else None


def others_of(look: Look, loader: Loader, source: str) -> dict[str, Component]:
    """The parts beside the transformer, from `source`, where that is more than a hub id with nothing cached."""
    folder = place_of(look, source)
    local = folder == look.world.absolute(source)
    return parts_of(look, loader, folder, None if local else source)


def parts_of(look: Look, loader: Loader, folder: str | None, repo: str | None) -> dict[str, Component]:
    every = {name: _part(look, loader, name, folder, repo) for name in loader.others}
    found = {name: part for name, part in every.items() if part is not None}
    written = look.run.recipe.vae if loader.vae_path else None
    if isinstance(written, str) and "\0" not in written:
        found.pop("vae", None)
        found |= _vae(look, written)
    return found


def _part(look: Look, loader: Loader, name: str, folder: str | None, repo: str | None) -> Component | None:
    """A component from where the run or the record says that it comes from; None where nothing is known of that."""
    world, origin, recipe = look.world, loader.origin(name), look.run.recipe
    below = name if origin.folder is None else origin.folder
    if origin.file is not None:
        below = origin.file(origin.repo or repo or "")
    source = recipe.sources.get(name) or origin.repo or (recipe.extras_model if origin.beside else None)
    own = _names(world, folder) if origin.beside and repo is None and folder is not None else ()
    if source and origin.beside not in own:
        folder, below = _elsewhere(look, origin, source, below)
        repo = None if folder == world.absolute(source) else source
    if folder is None:
        return None
    place = world.below(folder, below) if below else folder
    if origin.file is None:
        expected = next(iter(loader.components[name]), None)
        return read_component(world, name, place, repo=repo, expected=expected, origin=origin)
    weight = read_weight_file(world, place, below)
    return None if weight.problem == "missing" and repo else component_file(look, name, origin, weight, repo)


def _elsewhere(look: Look, origin: Origin, source: str, below: str) -> tuple[str | None, str]:
    """The folder of another source, and what of it is opened: a run may name a file, or the component itself."""
    place, hosted = look.world.absolute(source), REPO_FILE.fullmatch(source)
    _, stat = look.world.resolve(place)
    if isinstance(stat, Stat) and stat.kind == "file":
        return (None if origin.file is None else look.world.parent(place)), look.world.name(place)
    if origin.file is not None and hosted:
        return place_of(look, hosted.group(1)), hosted.group(2)
    folder = place_of(look, source)
    inside = folder is not None and source != origin.repo and "config.json" in _names(look.world, folder)
    return folder, "" if inside else below


def _names(world: World, folder: str) -> tuple[str, ...]:
    names = listed(world, folder)
    return names if isinstance(names, tuple) else ()


def _vae(look: Look, source: str) -> dict[str, Component]:
    """The VAE of a path of its own: a folder that holds it itself or in vae/; nothing when it is a hub id."""
    world = look.world
    folder, place = place_of(look, source), world.absolute(source)
    if folder is None:
        _, stat = world.resolve(place)
        if stat is None and REPO.fullmatch(source):
            return {}
        problem = "it does not exist" if stat is None else "the trainer opens a folder there"
        return {"vae": Component("vae", place, "AutoencoderKL", problem=problem)}
    repo = None if folder == place else source
    names = listed(world, folder)
    inside = folder if isinstance(names, tuple) and "config.json" in names else world.join(folder, "vae")
    return {"vae": read_component(world, "vae", inside, repo=repo, expected="AutoencoderKL")}
