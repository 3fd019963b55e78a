"""A single-file checkpoint of ComfyUI or Black Forest Labs is read under diffusers' names.

What is fused there is no more than rows one after the other, so each tensor is a span of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...families import classes
from ...families.record.single_file import original_parts
from ...model.weights import COMFYUI_PREFIX
from ..runtime.train_error import TrainError
from .safetensors_files import TensorEntry, tensor_entries, weight_files


def single_file_entries(file: Path, class_name: str, needed: Mapping[str, tuple[int, ...]]) -> dict[str, TensorEntry]:
    """Returns the tensors of the file by diffusers' names; what has no place there keeps its own name.

    `needed` are name -> shape of what the class builds. Raises TrainError for a fused tensor of another height.
    """
    entries = {name.removeprefix(COMFYUI_PREFIX): entry for name, entry in tensor_entries(weight_files(file)).items()}
    found: dict[str, TensorEntry] = {}
    for original, names in original_parts(classes()[class_name].original, needed).items():
        if all(name in entries for name in names):
            found |= {name: replace(entries.pop(name), name=name) for name in names}
        elif original in entries:
            found |= {entry.name: entry for entry in _parts(entries.pop(original), class_name, names, needed)}
    return {**entries, **found}


def _parts(
    fused: TensorEntry, class_name: str, names: list[str], needed: Mapping[str, tuple[int, ...]]
) -> list[TensorEntry]:
    heights = [needed[name][0] for name in names]
    if len(names) > 1 and fused.shape[:1] != (sum(heights),):
        raise TrainError(
            f"{fused.name} in {fused.file} is {list(fused.shape)}, but the model asks for "
            f"{sum(heights)} rows. They do not belong together."
        )
    if len(names) == 1:
        return [replace(fused, name=names[0], swapped=names[0] in classes()[class_name].swapped)]
    width, start, parts = fused.size // fused.shape[0], fused.start, []
    for name, height in zip(names, heights, strict=True):
        shape = (height, *fused.shape[1:])
        parts.append(replace(fused, name=name, shape=shape, start=start, size=height * width))
        start += height * width
    return parts
