"""A part of a model in a file of its own, without a config.json: what it is, and the config that it would have.

Numbers come from the shapes of the tensors. What shapes do not tell is as published and as sd-scripts 48d368fa
(library/flux_utils.py, library/flux_models.py) and musubi-tuner 30c658c4 (zimage/zimage_config.py and
zimage_utils.py, flux/flux_utils.py and flux_models.py) write it into their source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..model.weights import COMFYUI_PREFIX
from . import classes
from .record.reading import Tensors
from .record.shapes import BadConfig, Shapes

_SHARD = re.compile(r"(.*?)(\d{5})-of-(\d{5})\.safetensors")
_MOST_SHARDS = 100


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
