"""Which tensors an architecture builds, from its config.json alone. Pure tables, standard library only.

Building the real module tree takes torch and diffusers and several seconds; these tables take a millisecond, and a
test holds them equal to the real trees. A class of no family, too, may have been mined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

from . import classes, family_of
from .record.blocks import is_within
from .record.mined import mined_classes, mined_tensors
from .record.shapes import BadConfig, Shapes


def needed_tensors(class_name: str, config: Mapping[str, Any]) -> Shapes | None:
    """Name -> shape of every tensor the class builds from this config.json; absent keys hold the class's defaults.

    None when the class is not known here, or the config asks for something the class cannot build
    (wrong types, sizes out of range, more than 100 000 tensors): `why_not` says which.
    """
    found = _tensors(class_name, config)
    return None if isinstance(found, str) else found


def why_not(class_name: str | None, config: Mapping[str, Any]) -> str:
    """Why `needed_tensors` answered None, as a phrase."""
    if class_name is None:
        return "its config.json names no class"
    found = _tensors(class_name, config)
    return found if isinstance(found, str) else ""


def _tensors(class_name: str, config: Mapping[str, Any]) -> Shapes | str:
    kind = classes().get(class_name)
    if kind is None and class_name not in mined_classes():
        return f"the tensors of {class_name} are in no table of zdoctor; `zdoctor check --deep` asks the libraries"
    if config.get("quantization_config") is not None:
        return "the weights are stored quantized (config.json has a quantization_config)"
    try:
        return mined_tensors(class_name, config) if kind is None else kind.tensors(config)
    except BadConfig as error:
        return f"config.json does not describe a {class_name} that can be built: {error}"


def in_the_dialect_of(class_name: str, needed: Shapes, present: Iterable[str]) -> Shapes:
    """`needed` under the names these files use, where the class's own loader accepts older or shorter names."""
    kind = classes().get(class_name)
    return needed if kind is None else kind.dialect(needed, frozenset(present))


def block_linears(shapes: Mapping[str, tuple[int, ...]], blocks: Collection[str]) -> dict[str, tuple[int, int]]:
    """(out, in) by name of the Linears in these lists of blocks."""
    return {
        name.removesuffix(".weight"): (shape[0], shape[1])
        for name, shape in shapes.items()
        if len(shape) == 2 and name.endswith(".weight") and is_within(name, blocks)
    }


def published_size(architecture: str | None, model: str) -> int:
    """How many numbers the transformer of a published model of this name has; 0 where it is not known as one."""
    family, name = family_of(architecture), model.lower()
    if family.memory is None or family.transformer is None or family.memory.word not in name:
        return 0
    return parameters(family.transformer.tensors(family.memory.config(name)))


def parameters(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many numbers these tensors hold."""
    return sum(prod(shape) for shape in shapes.values())
