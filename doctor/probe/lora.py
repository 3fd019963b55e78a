"""A finished LoRA and the model that it is held against, by their headers."""

from __future__ import annotations

from ..families import classes, families, family_with, in_diffusers, no_record
from ..families.lora_keys import linears_of, published_linears, read_lora
from ..families.part_files import class_in, inferred_config
from ..families.record.shapes import BadConfig
from ..model import Unknown
from ..model.lora import Lora, LoraBase
from ..model.record import replace
from .components import listed, read_component
from .world import Stat, World
from .world.safetensors import read_weight_file

_ENDING = ".safetensors"


def probe_lora(world: World, path: str, base: str | None) -> Lora | Unknown:
    """What the file at `path` holds, and the `base` that was named. Unknown for a file that may not be read."""
    file = read_weight_file(world, world.absolute(path))
    if file.problem in ("missing", "unreadable"):
        return Unknown(file.detail or "there is no such file")
    held = None if base is None else probe_base(world, base)
    lora = Lora(path, file) if file.problem else read_lora(path, file, held.class_name if held else "")
    copy = f"{path.removesuffix(_ENDING)}-repaired{_ENDING}"
    copied = world.stat(world.absolute(copy)) is not None
    return replace(lora, copy=copy, copied=copied, base=held)


def probe_base(world: World, source: str) -> LoraBase:
    """The model that `source` names: a file or folder here, else a published model or family by its name."""
    place = world.absolute(source)
    _, stat = world.resolve(place)
    if isinstance(stat, Stat) and stat.kind == "file":
        return _of_file(world, source, place)
    if isinstance(stat, Stat):
        return _of_folder(world, source, place)
    return _of_name(source)


def _of_file(world: World, source: str, place: str) -> LoraBase:
    file = read_weight_file(world, place)
    if file.problem:
        return LoraBase(source, reason=f"it cannot be read ({file.detail or file.problem})")
    name = in_diffusers(family_with(class_in(list(file.tensors)))).class_name
    if not family_with(name).knows_loras:
        return LoraBase(source, reason="it is no transformer that zdoctor has a record of")
    try:
        config = inferred_config(name, {key: tensor.shape for key, tensor in file.tensors.items()})
        return _made(source, name, linears_of(name, config))
    except BadConfig as error:
        return LoraBase(source, name, title=family_with(name).title, reason=str(error))


def _of_folder(world: World, source: str, place: str) -> LoraBase:
    inside = world.join(place, "transformer")
    folder = inside if listed(world, inside) is not None else place
    part = read_component(world, "transformer", folder, loader_known=False)
    if part.class_name is None or part.class_name not in classes() or part.config is None:
        what = f"{part.class_name} has no record" if part.class_name else "its config.json names no class"
        return LoraBase(source, reason=what if part.config is not None else "it has no config.json")
    try:
        return _made(source, part.class_name, linears_of(part.class_name, part.config))
    except BadConfig as error:
        return LoraBase(source, reason=str(error))


def _made(source: str, class_name: str, linears: dict[str, tuple[int, ...]]) -> LoraBase:
    like = next(
        (one for one in families() if one.class_name == class_name and published_linears(one) == linears), None
    )
    title = classes()[class_name].title if like is None else like.title
    return LoraBase(source, class_name, "" if like is None else like.name, title, linears, exact=True)


def _of_name(source: str) -> LoraBase:
    """A family by its name, or by that of a published model."""
    plain = source.lower()
    for family in families():
        flavours = () if family.simpletuner is None else family.simpletuner.flavours.values()
        repos = (*family.repos.values(), *(flavour.repo for flavour in flavours))
        if plain not in {family.name, family.title.lower(), *family.aliases, *map(str.lower, repos)}:
            continue
        own = in_diffusers(family)
        if not own.knows_loras:
            return LoraBase(source, reason=no_record(family.title))
        config = {} if own.memory is None else own.memory.config(plain)
        return LoraBase(source, own.class_name, own.name, family.title, linears_of(own.class_name, config))
    return LoraBase(source, reason="there is no such file or folder, and no family of that name")
