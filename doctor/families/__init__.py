"""What is known of the model families, a record each; of those with `own` zdoctor trains models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.run import Run
from .components import CLASSES
from .flux.record import FAMILIES as _OF_FLUX
from .models import (
    anima,
    boogu,
    chroma,
    ernie,
    flux2,
    flux2_in_diffusers,
    hidream,
    hunyuan_video,
    ideogram4,
    krea2,
    ltx2,
    lumina2,
    nucleus,
    omnigen2,
    prx,
    sd3,
    stable_diffusion,
    wan,
    zeta_chroma,
)
from .qwen_image.record import FAMILIES as _OF_QWEN_IMAGE
from .record import Family, Loader, ModelClass
from .record.blank import BLANK
from .zimage.record import FAMILIES as _OF_ZIMAGE

ONE_FILE = (".safetensors", ".sft", ".ckpt", ".pt", ".pth", ".bin")


def registry(families: Iterable[Family]) -> dict[str, Family]:
    """The records by their names and aliases. Raises ValueError for a name that two of them have, or that is none."""
    found: dict[str, Family] = {}
    for family in families:
        for name in (family.name, *family.aliases):
            if not name or name in found:
                raise ValueError(f"two model families are called {name!r}" if name else "a model family has no name")
            found[name] = family
    return found


def _classes(families: Iterable[Family]) -> dict[str, ModelClass]:
    """Of families of one class the first one's."""
    found: dict[str, ModelClass] = {}
    for kind in (*(family.transformer for family in families), *hunyuan_video.CLASSES, *wan.CLASSES, *CLASSES):
        if kind is not None:
            found.setdefault(kind.name, kind)
    return found


# Of classes that build on others, the one with more first (`class_in`).
_MODULES = (
    *(
        anima,
        boogu,
        chroma,
        ernie,
        flux2,
        flux2_in_diffusers,
        hidream,
        hunyuan_video,
        ideogram4,
        krea2,
        ltx2,
        omnigen2,
        lumina2,
        nucleus,
    ),
    *(prx, sd3, stable_diffusion, wan, zeta_chroma),
)
_FAMILIES = registry(
    (*_OF_ZIMAGE, *_OF_FLUX, *_OF_QWEN_IMAGE, *(family for module in _MODULES for family in module.FAMILIES))
)
# Whose files have marks of others, Z-Image's and Flux', and their own.
_CLASSES = _classes((*zeta_chroma.FAMILIES, hunyuan_video.FRAME_PACK, *_FAMILIES.values()))


def add(more: Iterable[Family]) -> None:
    """Make more families known, as a plug-in brings them. Raises ValueError where a name is taken, and adds none."""
    every = (*families(), *more)
    made = registry(every)
    _FAMILIES.update(made)
    _CLASSES.update(_classes(every))


def families() -> tuple[Family, ...]:
    """Every family that has a record."""
    return tuple({family.name: family for family in _FAMILIES.values()}.values())


def family_of(architecture: str | None) -> Family:
    """The family of this architecture; of one without a record, a record that knows nothing and has no name."""
    return _FAMILIES.get(architecture or "", BLANK)


def in_diffusers(family: Family) -> Family:
    """The record of the same models in diffusers' own class."""
    return family_of(family.in_diffusers) if family.in_diffusers else family


def no_record(architecture: str | None) -> str:
    """Why nothing can be said of the files and the memory of a model without a record."""
    if architecture is None:
        return "the config does not say which model it is for; where the command does: zdoctor check -- COMMAND"
    return f"no record of {architecture or 'this model'} says what it is made of"


def trained() -> tuple[str, ...]:
    """The architectures that zdoctor's own runner trains, as configs name them."""
    others = {family.in_diffusers for family in families()}
    found = {family.name: in_diffusers(family) for family in families()}
    return tuple(name for name, trained_as in found.items() if trained_as.own is not None and name not in others)


def family_with(class_name: str | None) -> Family:
    """The first family whose transformer is of this class, as `family_of`."""
    found = (family for family in families() if family.transformer and family.transformer.name == class_name)
    return next(found, BLANK)


def classes() -> Mapping[str, ModelClass]:
    """The classes whose tensors are known, by their names."""
    return _CLASSES


def opened_by(run: Run) -> Family:
    """The family of a run where its record says how this trainer opens its files, else one that knows nothing."""
    family = family_of(run.recipe.architecture)
    return family if run.by_runner or family.is_known_to(run.trainer) else BLANK


def loader_of(run: Run) -> Loader | None:
    """How this run's model is opened; None where that is not known here, or its components are files of their own."""
    family = opened_by(run)
    if run.by_runner:
        return family.own
    kohya = family.kohya.get(run.trainer)
    if kohya is None or kohya.folder is None:
        return family.loader_of(run.trainer)
    return None if (run.recipe.base_model or "").lower().endswith(ONE_FILE) else kohya.folder
