"""A transformer's tensors in the layout of single-file checkpoints, where some of diffusers' tensors are fused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from .flux.tensors import flux_original_name
from .shapes import Shapes
from .zimage.tensors import zimage_original_name

_NAMES: Mapping[str, Callable[[str], str]] = {
    "ZImageTransformer2DModel": zimage_original_name,
    "FluxTransformer2DModel": flux_original_name,
}
# Parts of a fused tensor in the order of their rows.
_ROWS = ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "proj_mlp")
# Shift before scale in the original files, scale before shift in diffusers.
_SWAPPED: Mapping[str, tuple[str, ...]] = {
    "FluxTransformer2DModel": ("norm_out.linear.weight", "norm_out.linear.bias"),
}


def original_parts(class_name: str, needed: Collection[str]) -> dict[str, list[str]]:
    """The original name of each tensor, and diffusers' names of the tensors whose rows it holds, in their order.

    Raises KeyError for a class that has no such layout.
    """
    groups: dict[str, list[str]] = {}
    for name in needed:
        groups.setdefault(_NAMES[class_name](name), []).append(name)
    return {original: sorted(names, key=_row) for original, names in groups.items()}


def _row(name: str) -> int:
    part = name.rpartition(".")[0].rpartition(".")[2]
    return _ROWS.index(part) if part in _ROWS else 0


def is_swapped(class_name: str, name: str) -> bool:
    """Whether the two halves of the rows of a tensor change places between the original files and diffusers."""
    return name in _SWAPPED.get(class_name, ())


def original_layout(class_name: str, needed: Shapes, present: Collection[str] = ()) -> Shapes:
    """`needed` under the names of the original single files; fused tensors have the rows of all their parts.

    A tensor that `present` holds under diffusers' own names stays as it is: converters go name by name.
    Raises KeyError for a class that has no such layout.
    """
    found: Shapes = {}
    for original, names in original_parts(class_name, needed).items():
        if all(name in present for name in names):
            found |= {name: needed[name] for name in names}
        else:
            first = needed[names[0]]
            found[original] = (sum(needed[name][0] for name in names), *first[1:])
    return found
