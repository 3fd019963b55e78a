"""A transformer's tensors in the layout of single-file checkpoints, where some of diffusers' tensors are fused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from ...model.weights import COMFYUI_PREFIX
from .shapes import Shapes

Dialect = Callable[[Shapes, Collection[str]], Shapes]
Original = Callable[[str], str]  # diffusers' name of a tensor -> its name in single files
# Parts of a fused tensor in the order of their rows.
_ROWS = ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "proj_mlp", "q_proj", "k_proj", "v_proj")


def original_parts(name_of: Original, needed: Collection[str]) -> dict[str, list[str]]:
    """The original name of each tensor, and diffusers' names of the tensors whose rows it holds, in their order."""
    groups: dict[str, list[str]] = {}
    for name in needed:
        groups.setdefault(name_of(name), []).append(name)
    return {original: sorted(names, key=_row) for original, names in groups.items()}


def _row(name: str) -> int:
    part = name.rpartition(".")[0].rpartition(".")[2]
    return _ROWS.index(part) if part in _ROWS else 0


def original_layout(name_of: Original, needed: Shapes, present: Collection[str] = ()) -> Shapes:
    """`needed` under the names of the original single files; fused tensors have the rows of all their parts.

    A tensor that `present` holds under diffusers' own names stays as it is: converters go name by name.
    """
    found: Shapes = {}
    for original, names in original_parts(name_of, needed).items():
        if all(name in present for name in names):
            found |= {name: needed[name] for name in names}
        elif len(names) == 1:
            found[original] = needed[names[0]]
        else:
            first = needed[names[0]]
            found[original] = (sum(needed[name][0] for name in names), *first[1:])
    return found


def in_original_layout(name_of: Original) -> Dialect:
    """A class that is found under the original names alone, whatever else a file has."""
    return lambda needed, present: original_layout(name_of, needed)


def with_prefix(name_of: Original, needed: Shapes, present: Collection[str]) -> Shapes:
    """The same under ComfyUI's prefix, where a file with the names `present` has it."""
    prefix = COMFYUI_PREFIX if any(name.startswith(COMFYUI_PREFIX) for name in present) else ""
    original = original_layout(name_of, needed, {name.removeprefix(prefix) for name in present})
    return {prefix + name: shape for name, shape in original.items()}


def same_name(name: str) -> str:
    """That of a component whose class has one name for each tensor everywhere."""
    return name


def own_names(needed: Shapes, present: Collection[str]) -> Shapes:
    """A class whose loader takes no names but its own."""
    return needed


def with_or_without(prefix: str, ties: Mapping[str, str] = MappingProxyType({})) -> Dialect:
    """A class whose loader takes each name with the prefix or without, or that of a tensor which it is tied to."""

    def dialect(needed: Shapes, present: Collection[str]) -> Shapes:
        prefixed = any(name.startswith(prefix) for name in present)
        found: Shapes = {}
        for name, shape in needed.items():
            names = [name, ties.get(name, name)]
            choices = [*names, *(prefix + other for other in names)]
            found[next((c for c in choices if c in present), prefix + name if prefixed else name)] = shape
        return found

    return dialect
