"""A LoRA of sd-scripts or musubi-tuner under the names of the runner's own."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...architectures.single_file import original_parts

PREFIX = "lora_unet_"


def is_kohya(keys: Mapping[str, Tensor]) -> bool:
    return any(key.startswith(PREFIX) for key in keys)


def from_kohya(
    held: Mapping[str, Tensor], linears: Mapping[str, tuple[int, int]], class_name: str
) -> dict[str, Tensor]:
    """The tensors by the name of the Linear and "lora_A.weight" or "lora_B.weight"; `linears` are (out, in).

    One LoRA of a fused Linear (query, key and value) becomes one of each of its parts, with the same A and the rows
    of B that are the part's: together they compute the same. As in the trainers, which begin with such a file, its
    alpha has no say. What is there for a text encoder is left out.
    """
    made: dict[str, Tensor] = {}
    for original, names in original_parts(class_name, [f"{name}.weight" for name in linears]).items():
        parts = [name.removesuffix(".weight") for name in names]
        for owner, covered in ((original.removesuffix(".weight"), parts), *((part, [part]) for part in parts)):
            key = PREFIX + owner.replace(".", "_")
            down, up = held.get(f"{key}.lora_down.weight"), held.get(f"{key}.lora_up.weight")
            if down is None or up is None:
                continue
            row = 0
            for part in covered:
                made[f"{part}.lora_A.weight"] = down
                made[f"{part}.lora_B.weight"] = up[row : row + linears[part][0]]
                row += linears[part][0]
    return made
