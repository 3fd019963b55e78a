"""A component of a model lies in a folder with its config.json, or in a file whose config is inferred.

The first file of a numbered set stands for all of them. Imports neither diffusers nor transformers.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ...families import classes, family_with
from ...families.part_files import as_in_file, class_in, inferred_config, prefix_in, title_of
from ...families.record.shapes import BadConfig, Shapes
from ...families.record.single_file import original_parts
from ...families.tensors import needed_tensors
from ...model.weights import COMFYUI_PREFIX
from ..runtime.train_error import TrainError
from ..weights.safetensors_files import TensorEntry, check_tensors, tensor_entries, weight_files


def component_files(place: Path) -> list[Path]:
    return sorted(file for file in place.iterdir() if file.is_file()) if place.is_dir() else weight_files(place)


def component_class(file: Path) -> str | None:
    """Returns the class of the model that a single file holds. Raises TrainError."""
    return class_in(_shapes(file))


def component_config(place: Path, class_name: str) -> dict[str, Any]:
    """Returns the config.json of a folder, or what it would be for a single file of this class. Raises TrainError."""
    if place.is_file():
        try:
            return inferred_config(class_name, _shapes(place))
        except BadConfig as error:
            raise TrainError(f"{place} is not {title_of(class_name)} that can be trained with: {error}.") from error
    path = place / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainError(f"{path} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise TrainError(f"{path} is no JSON object.")
    return config


def component_tensors(place: Path, class_name: str, needed: Mapping[str, tuple[int, ...]]) -> dict[str, TensorEntry]:
    """Returns the tensors of a component by the names of its class; what the class lacks keeps its own name.

    `needed` are name -> shape of what the class builds. Raises TrainError.
    """
    if family_with(class_name).own is not None:  # a transformer
        whole = not place.is_file()
        return tensor_entries(weight_files(place)) if whole else single_file_entries(place, class_name, needed)
    entries = _own_entries(place, class_name)
    written = as_in_file(class_name, dict(needed), entries)
    if len(written) != len(needed):  # some are fused there
        return _spread(entries, class_name, needed)
    found: dict[str, TensorEntry] = {}
    for (name, shape), own in zip(needed.items(), written, strict=True):
        if own in entries:
            entry = entries.pop(own)
            # the attention of a VAE: a product with a matrix, or a convolution of one pixel
            alike = len(shape) == 2 and entry.shape == (*shape, 1, 1)
            found[name] = replace(entry, name=name, shape=shape if alike else entry.shape)
    return {**entries, **found}


def single_file_entries(file: Path, class_name: str, needed: Mapping[str, tuple[int, ...]]) -> dict[str, TensorEntry]:
    """Returns the tensors of a transformer of ComfyUI or Black Forest Labs by diffusers' names.

    What has no place there keeps its own name. What is fused there is no more than rows one after the other, so each
    tensor is a span of the file. `needed` are name -> shape of what the class builds. Raises TrainError for a fused
    tensor of another height.
    """
    entries = tensor_entries(weight_files(file))
    return _spread({name.removeprefix(COMFYUI_PREFIX): entry for name, entry in entries.items()}, class_name, needed)


def _own_entries(place: Path, class_name: str) -> dict[str, TensorEntry]:
    """The tensors of a component; of a file that holds a whole model those of this class, without their prefix."""
    entries = tensor_entries(weight_files(place))
    prefix = prefix_in(class_name, entries) if place.is_file() else ""
    if not prefix:
        return entries
    return {name.removeprefix(prefix): entry for name, entry in entries.items() if name.startswith(prefix)}


def _spread(
    entries: dict[str, TensorEntry], class_name: str, needed: Mapping[str, tuple[int, ...]]
) -> dict[str, TensorEntry]:
    found: dict[str, TensorEntry] = {}
    for original, names in original_parts(classes()[class_name].original, needed).items():
        if all(name in entries for name in names):
            found |= {name: replace(entries.pop(name), name=name) for name in names}
        elif original in entries:
            found |= {entry.name: entry for entry in _spans_of(entries.pop(original), class_name, names, needed)}
    return {**entries, **found}


def _spans_of(
    fused: TensorEntry, class_name: str, names: list[str], needed: Mapping[str, tuple[int, ...]]
) -> list[TensorEntry]:
    heights = [needed[name][0] for name in names]
    if len(names) > 1 and fused.shape[:1] != (sum(heights),):
        raise TrainError(
            f"{fused.name} in {fused.file} is {list(fused.shape)}, but the model asks for "
            f"{sum(heights)} rows. They do not belong together."
        )
    if len(names) == 1:
        kind = classes()[class_name]
        turned = names[0] in kind.turned
        shape = fused.shape[::-1] if turned else fused.shape
        return [replace(fused, name=names[0], shape=shape, swapped=names[0] in kind.swapped, turned=turned)]
    spans = pairwise(accumulate(heights, initial=0))
    return [replace(fused.rows(*span), name=name) for name, span in zip(names, spans, strict=True)]


def checked_tensors(place: Path, class_name: str, needed: Mapping[str, tuple[int, ...]]) -> list[TensorEntry]:
    """Returns the tensors that the class builds, in the order of `needed`. Raises TrainError where one is missing."""
    found = component_tensors(place, class_name, needed)
    check_tensors(found, needed, place)
    return [found[name] for name in needed]


def check_component(file: Path, class_name: str) -> None:
    """Raises TrainError when a single file lacks tensors of the class, or has some in other shapes."""
    checked_tensors(file, class_name, needed_tensors(class_name, component_config(file, class_name)) or {})


def check_components(places: Mapping[str, Path], kinds: Mapping[str, str]) -> None:
    """Checks the headers of components in single files, and whether the tokenizers can be read. Raises TrainError.

    `kinds` are the classes of the components by their names, "" for a tokenizer.
    """
    for name, class_name in kinds.items():
        if not class_name:
            check_tokenizer(places[name])
        elif places[name].is_file():
            check_component(places[name], class_name)


def check_tokenizer(folder: Path) -> None:
    """Raises TrainError where the tokenizer needs a package that is not installed."""
    if (folder / "tokenizer.json").is_file() or not (folder / "spiece.model").is_file():
        return
    needed = {"sentencepiece": "sentencepiece", "protobuf": "google.protobuf"}
    lacks = [name for name, module in needed.items() if not _is_here(module)]
    if lacks:
        raise TrainError(
            f"The tokenizer in {folder} is a spiece.model, which transformers reads with packages that are not here. "
            f"Type: pip install {' '.join(lacks)}"
        )


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is absent
        return False


def _shapes(file: Path) -> Shapes:
    return {entry.name: entry.shape for entry in tensor_entries(weight_files(file)).values()}


def component_folder(name: str, model_folder: Path, extras_folder: Path | None) -> Path:
    """Returns the folder of a component, first looked for in the extras folder. Raises TrainError."""
    for folder in (extras_folder, model_folder):
        if folder is not None and (folder / name).is_dir() and any((folder / name).iterdir()):
            return folder / name
    places = str(model_folder) if extras_folder is None else f"{extras_folder} nor {model_folder}"
    raise TrainError(f"There is no {name} folder in {places}; it is needed for training.")
