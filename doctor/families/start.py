"""What a LoRA or LoKr file holds for the network of a run that begins with it, and what that network is made of."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..model.recipe import Network
from . import classes, family_with
from .network import lokr_factor, lokr_rank, lokr_shapes
from .record.single_file import original_parts
from .tensors import block_linears, needed_tensors

_KOHYA = "lora_unet_"
Linears = Mapping[str, tuple[int, int]]


def target_linears(
    class_name: str | None, config: Mapping[str, Any], left_out: str = "", *, refiners: bool = False
) -> Linears | None:
    """(out, in) by name of the Linears that the runner trains a LoRA on: all of the main blocks, and of the
    `refiners` before them, but those in whose name `left_out` is found. None where the transformer is not known.
    """
    shapes = needed_tensors(class_name or "", config)
    if shapes is None:
        return None
    found = block_linears(shapes, family_with(class_name).targets(refiners=refiners))
    without = re.compile(left_out or r"(?!)")
    return {name: shape for name, shape in found.items() if not without.search(name)}


def network_shapes(network: Network, linears: Linears) -> dict[str, tuple[int, ...]]:
    """The shapes of what is trained, by the names that a saved file has after its prefix."""
    found: dict[str, tuple[int, ...]] = {}
    for name, (out, inputs) in linears.items():
        if network.type == "lokr":
            parts = lokr_shapes(out, inputs, lokr_factor(network, name), lokr_rank(network))
        else:
            parts = {"lora_A.weight": (network.rank, inputs), "lora_B.weight": (out, network.rank)}
        found.update((f"{name}.{part}", shape) for part, shape in parts.items())
    return found


def is_kohya(keys: Collection[str]) -> bool:
    """Whether a file has the names of sd-scripts and musubi-tuner."""
    return any(key.startswith(_KOHYA) for key in keys)


def sources(keys: Collection[str], linears: Linears, class_name: str) -> dict[str, tuple[str, slice | None]]:
    """By the names as in `network_shapes`: the key in the file, and which of its rows (None: the whole tensor).

    A LoRA of kohya's on a fused Linear (query, key and value) becomes one of each of its parts, with the same A and
    the rows of B that are the part's: together they compute the same. Alpha has no say, as in the trainers, which
    begin with such files; what is there for a text encoder is left out.
    """
    if not is_kohya(keys):
        whole = (key for key in keys if not key.endswith(".alpha"))
        return {key.removeprefix("transformer.").removeprefix("diffusion_model."): (key, None) for key in whole}
    found: dict[str, tuple[str, slice | None]] = {}
    for original, names in original_parts(
        classes()[class_name].original, [f"{name}.weight" for name in linears]
    ).items():
        parts = [name.removesuffix(".weight") for name in names]
        for owner, covered in ((original.removesuffix(".weight"), parts), *((part, [part]) for part in parts)):
            key = _KOHYA + owner.replace(".", "_")
            down, up = f"{key}.lora_down.weight", f"{key}.lora_up.weight"
            if down not in keys or up not in keys:
                continue
            row = 0
            for part in covered:
                found[f"{part}.lora_A.weight"] = down, None
                found[f"{part}.lora_B.weight"] = up, slice(row, row + linears[part][0])
                row += linears[part][0]
    return found


def shape_of(shape: tuple[int, ...], rows: slice | None) -> tuple[int, ...]:
    """The shape of these rows of a tensor."""
    return shape if rows is None or not shape else (len(range(shape[0])[rows]), *shape[1:])
