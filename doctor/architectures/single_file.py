"""A transformer's tensors in the layout of single-file checkpoints, where some of diffusers' tensors are fused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from .flux import flux_original_name
from .reading import Shapes
from .zimage import zimage_original_name

_NAMES: Mapping[str, Callable[[str], str]] = {
    "ZImageTransformer2DModel": zimage_original_name,
    "FluxTransformer2DModel": flux_original_name,
}


def original_layout(class_name: str, needed: Shapes, present: Collection[str] = ()) -> Shapes:
    """`needed` under the names of the original single files; fused tensors have the rows of all their parts.

    A tensor that `present` holds under diffusers' own names stays as it is: converters go name by name.
    Raises KeyError for a class that has no such layout.
    """
    groups: dict[str, list[str]] = {}
    for name in needed:
        groups.setdefault(_NAMES[class_name](name), []).append(name)
    found: Shapes = {}
    for original, names in groups.items():
        if all(name in present for name in names):
            found |= {name: needed[name] for name in names}
        else:
            first = needed[names[0]]
            found[original] = (sum(needed[name][0] for name in names), *first[1:])
    return found
