"""Which files of a repository a trainer loads. Others may be missing or old without harm."""

from __future__ import annotations

import re
from collections.abc import Collection

from ...model.pattern import pattern

COMPONENTS = (
    *("transformer", "transformer_2", "unet", "vae", "scheduler"),
    *("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3"),
)
_WEIGHTS = pattern(r"(model|diffusion_pytorch_model)(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_OTHER_FORMATS = (".bin", ".ckpt", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".gguf", ".xml")
_NO_DATA = (
    *(".md", ".png", ".jpg", ".jpeg", ".webp", ".gif", ".mp4", ".pdf", ".gitattributes", ".gitignore", "LICENSE"),
)


def needed(
    listing: Collection[str],
    present: Collection[str],
    shards: Collection[str],
    insides: Collection[str],
    skip: str = "",
) -> set[str]:
    """The names of `listing` that the run loads.

    `present` are the names with something at their path, `shards` those that an index file names, `insides` the
    files or folders of the repository that the config asks for ("" for all), `skip` a pattern of components that
    come from elsewhere. What is missing counts only where a loader is certain to ask for it.
    """
    folders: dict[str, set[str]] = {}
    for name in listing:
        folder, _, base = name.rpartition("/")
        folders.setdefault(folder, set()).add(base)
    standard = {
        folder: {base for base in bases if _WEIGHTS.fullmatch(base) and _at(folder, base) in present}
        for folder, bases in folders.items()
    }
    pipeline = "model_index.json" in listing or any(folder in COMPONENTS for folder in folders)
    wanted = set()
    for name in listing:
        folder, _, base = name.rpartition("/")
        if name in insides:
            wanted.add(name)
            continue
        if not any(inside == "" or name.startswith(inside.rstrip("/") + "/") for inside in insides):
            continue
        if base.endswith(_NO_DATA) or ("" in insides and pipeline and folder and folder not in COMPONENTS):
            continue
        if name in present:
            if _loads(base, standard[folder]) and (folder or not pipeline or base.endswith(".json")):
                wanted.add(name)
        elif not (skip and re.fullmatch(skip, folder)) and (
            name in shards or ((folder or not pipeline) and _asked_for(base, folders[folder], present, folder))
        ):
            wanted.add(name)
    return wanted


def _at(folder: str, base: str) -> str:
    return f"{folder}/{base}" if folder else base


def _loads(base: str, standard: Collection[str]) -> bool:
    """Whether a file that is there is loaded: not where a standard safetensors file, of those, stands beside it."""
    if base.endswith(_OTHER_FORMATS):
        return not standard
    return not base.endswith(".safetensors") or not standard or base in standard


def _asked_for(base: str, siblings: Collection[str], present: Collection[str], folder: str) -> bool:
    """Whether a loader fails, or goes to the network, when this file is not there."""
    if weights := _WEIGHTS.fullmatch(base):
        alike = [found for found in map(_WEIGHTS.fullmatch, siblings) if found]
        here = [found for found in alike if _at(folder, found[0]) in present]
        sharded = _is_sharded(weights)
        if not here:
            return not sharded or all(map(_is_sharded, alike))
        return any(_is_sharded(found) == sharded for found in here)
    if folder == "scheduler":
        return False
    if folder.startswith("tokenizer"):
        if base in ("tokenizer.json", "tokenizer_config.json"):
            return True
        return base in ("vocab.json", "merges.txt", "spiece.model") and "tokenizer.json" not in siblings
    return base == "config.json"


def _is_sharded(weights: re.Match[str]) -> bool:
    return weights[2] is not None or weights[3] is not None
