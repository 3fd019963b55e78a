"""The transformer of a single-file checkpoint, ComfyUI's or Black Forest Labs', under diffusers' names.

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
from .safetensors_files import Entry, collect, weight_files


def single_file_entries(file: Path, class_name: str, needed: Mapping[str, tuple[int, ...]]) -> dict[str, Entry]:
    """The tensors of the file by diffusers' names, as far as they are there; what has no place keeps its own name.

    `needed` are name -> shape of what the class builds. Raises TrainError for a fused tensor of another height.
    """
    entries = {name.removeprefix(COMFYUI_PREFIX): entry for name, entry in collect(weight_files(file)).items()}
    found: dict[str, Entry] = {}
    for original, names in original_parts(classes()[class_name].original, needed).items():
        if all(name in entries for name in names):
            found |= {name: replace(entries.pop(name), name=name) for name in names}
        elif original in entries:
            found |= {entry.name: entry for entry in _parts(entries.pop(original), class_name, names, needed)}
    return {**entries, **found}


def _parts(fused: Entry, class_name: str, names: list[str], needed: Mapping[str, tuple[int, ...]]) -> list[Entry]:
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
