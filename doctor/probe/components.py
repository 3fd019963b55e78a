"""One part of a model folder: its config, the weight files its loader would open, and what is missing of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..families import classes
from ..families.record import Origin
from ..families.tensors import in_the_dialect_of, needed_tensors, why_not
from ..model import Component, Unknown, WeightFile
from ..model.record import replace
from .hub.caches import is_safe
from .world import Stat, World
from .world.safetensors import read_weight_file

_OWN = Origin()
_MOST_SHARDS = 1000
_LARGEST_TEXT = 4 << 20
_STEMS = {
    "diffusers": ("diffusion_pytorch_model", "diffusion_pytorch_model"),
    "transformers": ("model", "pytorch_model"),
}


def read_component(
    world: World,
    name: str,
    folder: str,
    *,
    repo: str | None = None,
    expected: str | None = None,
    loader_known: bool = True,
    origin: Origin = _OWN,
) -> Component:
    """The component in the absolute `folder`. `expected` is the class the trainer builds when the config names none;
    `origin` says where it writes the config itself.

    Where it is not known how the trainer loads this part (`loader_known`), a file that other loaders would ask for
    does not count as missing; a shard that an index names always does.

    `problem` is "missing" when there is no such folder, else a phrase about an unreadable text file.
    """
    names = listed(world, folder)
    if isinstance(names, Unknown):
        return Component(name, folder, problem=names.reason, repo=repo)
    if names is None:
        return Component(name, folder, expected, problem="missing", repo=repo)
    if name.startswith("tokenizer"):
        found = _tokenizer(world, name, folder, names, repo, chat=expected is None)
        return found if loader_known else replace(found, missing_files=())
    if name == "scheduler":
        gone = () if "scheduler_config.json" in names else ("scheduler_config.json",)
        return Component(name, folder, expected, missing_files=gone, repo=repo)
    missing: list[str] = []
    problem: str | None = None
    config: Mapping[str, Any] | None = None
    if origin.built is None and "config.json" not in names:
        missing.append("config.json")
    elif origin.built is None:
        read = read_json(world, world.join(folder, "config.json"))
        if isinstance(read, Unknown):
            problem = f"config.json {read.reason}"
        else:
            config = read
    loader = "transformers" if name.startswith(("text_encoder", "image_encoder", "mllm")) else "diffusers"
    weights, index_file, index, fault = _weights(world, folder, names, loader)
    weights = tuple(map(origin.loaded, weights))
    if origin.built is None:
        class_name = _class_of(config) or expected
    else:
        class_name, config = origin.built({name: one for weight in weights for name, one in weight.tensors.items()})
    if fault.startswith("no index: "):
        missing.append(fault.removeprefix("no index: "))
    else:
        problem = problem or fault or None
    if not loader_known:
        missing = []
        weights = tuple(weight for weight in weights if index_file or weight.problem != "missing")
    needed = None if config is None or class_name is None else needed_tensors(class_name, config)
    if needed is not None and class_name is not None:
        present = [tensor for weight in weights for tensor in weight.tensors]
        needed = in_the_dialect_of(class_name, needed, present)
    reason = (
        "" if needed is not None else "there is no config.json" if config is None else why_not(class_name, config)
    )
    return Component(
        name,
        folder,
        class_name,
        config,
        weights,
        index,
        index_file,
        needed,
        reason,
        tuple(missing),
        problem,
        repo,
        strict=origin.built is not None,
    )


def listed(world: World, folder: str) -> tuple[str, ...] | Unknown | None:
    """The names in a folder, links to it followed; None when there is no such folder."""
    _, stat = world.resolve(folder)
    if isinstance(stat, Unknown):
        return stat
    if stat is None or stat.kind != "folder":
        return None
    return world.names(folder)


def read_json(world: World, path: str) -> dict[str, Any] | Unknown:
    """A JSON object of at most 4 MiB. The reason of an Unknown reads on after the file's name."""
    _, stat = world.resolve(path)
    if not isinstance(stat, Stat) or stat.kind != "file":
        return Unknown("is not there (a link without its target)")
    if stat.size > _LARGEST_TEXT:
        return Unknown(f"is {stat.size} bytes long, far more than such a file holds")
    text = world.read(path)
    if isinstance(text, Unknown):
        return Unknown(f"cannot be read: {text.reason}")
    try:
        tree = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return Unknown("is not a JSON text" if text.strip() else "is empty")
    return tree if isinstance(tree, dict) else Unknown("is no JSON object")


def _class_of(config: Mapping[str, Any] | None) -> str | None:
    if config is None:
        return None
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    for value in (config.get("_class_name"), first):
        if isinstance(value, str):
            return value
    model_type = config.get("model_type")
    return next((kind.name for kind in classes().values() if model_type and kind.model_type == model_type), None)


def _weights(
    world: World, folder: str, names: tuple[str, ...], loader: str
) -> tuple[tuple[WeightFile, ...], str | None, dict[str, str] | None, str]:
    """Files the loader opens, the index it follows with its map, and a fault ("" when there is none).

    diffusers prefers an index to a single file, transformers a single file to an index.
    """
    stem, pickled = _STEMS[loader]
    single, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
    order = (index, single) if loader == "diffusers" else (single, index)
    for choice in (*order, f"{pickled}.bin", f"{pickled}.bin.index.json"):
        if choice not in names:
            continue
        if not choice.endswith(".json"):
            return (read_weight_file(world, world.join(folder, choice)),), None, None, ""
        table = read_json(world, world.join(folder, choice))
        if isinstance(table, Unknown):
            return (), choice, None, f"{choice} {table.reason}"
        weight_map = table.get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
            return (), choice, None, f"{choice} has no weight_map"
        shards = sorted(set(weight_map.values()))
        if len(shards) > _MOST_SHARDS or not all(map(is_safe, shards)):
            return (
                (),
                choice,
                None,
                f"{choice} names files that cannot lie in its folder, or more than {_MOST_SHARDS}",
            )
        files = tuple(read_weight_file(world, world.join(folder, shard), shard) for shard in shards)
        return files, choice, weight_map, ""
    if any(re.fullmatch(re.escape(stem) + r"-\d{5}-of-\d{5}\.safetensors", name) for name in names):
        return (), None, None, f"no index: {index}"
    others = [name for name in names if name.endswith((".safetensors", ".gguf", ".bin", ".pt", ".ckpt"))][:3]
    detail = f"there is only {', '.join(others)}" if others else ""
    return (WeightFile(single, world.join(folder, single), 0, problem="missing", detail=detail),), None, None, ""


def _tokenizer(
    world: World, name: str, folder: str, names: tuple[str, ...], repo: str | None, chat: bool
) -> Component:
    """A tokenizer needs its vocabulary and, where prompts are chats, a template beside or inside its config."""
    missing: list[str] = []
    problem: str | None = None
    class_name: str | None = None
    settings: Mapping[str, Any] | None = None
    if "tokenizer_config.json" in names:
        read = read_json(world, world.join(folder, "tokenizer_config.json"))
        if isinstance(read, Unknown):
            problem = f"tokenizer_config.json {read.reason}"
        else:
            settings = read
            word = read.get("tokenizer_class")
            class_name = word if isinstance(word, str) else None
    pieces = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}
    if "tokenizer.json" not in names and not pieces & set(names):
        for half in ("vocab.json", "merges.txt"):
            if half not in names:
                missing.append("tokenizer.json" if "vocab.json" not in names else half)
                break
        if chat and not missing and "tokenizer_config.json" not in names:
            missing.append("tokenizer_config.json")
    elif chat and "tokenizer_config.json" not in names and "chat_template.jinja" not in names:
        missing.append("tokenizer_config.json")
    return Component(name, folder, class_name, settings, missing_files=tuple(missing), problem=problem, repo=repo)
