"""Healthy models of any family as their headers alone, and every damage to them, made from the records.

A weight file is a header and a hole of its length, so that a model of 60 GB is made in a moment. What the classes
build is asked of the classes themselves where they are installed, of what was mined of them where they are a
trainer's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from zdoctor.doctor.families.record import Family, Loader
from zdoctor.doctor.families.record.mined import mined_class_of, mined_classes, mined_tensors
from zdoctor.doctor.model import Hub, HubRepo
from zdoctor.maintenance.classes import CLASSES, Source
from zdoctor.maintenance.mine_classes import real_shapes

Shapes = Mapping[str, tuple[int, ...]]
_SIZES = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
_STEM = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}
_ANY = "Qwen3VLForConditionalGeneration"  # where a config.json may name what it will
# Of classes that are not mined: what is published.
_PUBLISHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Qwen3ForCausalLM": ("transformers", {"num_hidden_layers": 2, "tie_word_embeddings": True}),
    "Qwen3Model": ("transformers", {"num_hidden_layers": 2}),
    "T5EncoderModel": ("transformers", {"num_layers": 2, "feed_forward_proj": "gated-gelu"}),
    "CLIPTextModel": ("transformers", {"num_hidden_layers": 2}),
    "CLIPTextModelWithProjection": ("transformers", {"num_hidden_layers": 2}),
    "AutoencoderKL": (
        "diffusers",
        {
            "block_out_channels": [64, 128],
            "down_block_types": ["DownEncoderBlock2D"] * 2,
            "up_block_types": ["UpDecoderBlock2D"] * 2,
            "latent_channels": 16,
        },
    ),
}


class Part(NamedTuple):
    """A component of a patient: its folder, its weight file, the class that it is of, and what it holds."""

    name: str
    folder: Path
    file: Path
    class_name: str
    shapes: Shapes


class Patient(NamedTuple):
    """A healthy model: what the config names, its other settings, the hub cache with the rest, and its components."""

    source: str
    settings: dict[str, Any]
    hub: Hub
    parts: Mapping[str, Part]


def write(file: Path, shapes: Shapes, dtype: str = "BF16") -> None:
    """A safetensors file with these tensors, whose data is a hole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    at, header = 0, {}
    for name, shape in shapes.items():
        size = prod(shape) * _SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        opened.truncate(8 + len(text) + at)


def read(file: Path) -> dict[str, tuple[int, ...]]:
    """The tensors of such a file."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return {name: tuple(entry["shape"]) for name, entry in header.items()}


def library_of(class_name: str) -> str:
    """The library of a class; "" of a trainer's own."""
    if class_name in _PUBLISHED:
        return _PUBLISHED[class_name][0]
    return mined_class_of(class_name)["from"].partition(" ")[0] if class_name in mined_classes() else ""


@cache
def built(class_name: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The config.json of a small model of this class, with the published widths, and the tensors that it has."""
    if class_name in _PUBLISHED:
        library, config = _PUBLISHED[class_name]
        source = Source(class_name, library)
    else:
        source = next(one for one in CLASSES if one.name == class_name)
        config = json.loads(json.dumps(source.configs[0]))
        for keys in (table["lists"].values() for table in mined_class_of(class_name)["tables"]):
            for key in (key for key in keys if " " not in key):
                *outer, last = key.split(".")
                place = config
                for one in outer:
                    place = place.setdefault(one, {})
                place[last] = 2
    shapes = mined_tensors(class_name, config) if source.trainer else real_shapes(source, config)
    named = {"_class_name": class_name} if source.module != "transformers" else {"architectures": [class_name]}
    return {**config, **named}, dict(shapes)


def patient(family: Family, folder: Path) -> Patient:
    """A healthy model of this family in a folder, with what comes from elsewhere in a hub cache."""
    loader = family.loader
    assert loader is not None
    own, repos, parts = folder / "model", dict[str, Path](), dict[str, Part]()
    own.mkdir(parents=True)
    for name, kinds in loader.components.items():
        origin = loader.origin(name)
        base = repos.setdefault(origin.repo, folder / "hub" / origin.repo.replace("/", "--")) if origin.repo else own
        place = base / (name if origin.folder is None else origin.folder)
        if name == "scheduler":
            place.mkdir(parents=True, exist_ok=True)
            (place / "scheduler_config.json").write_text("{}")
        elif name.startswith("tokenizer"):
            place.mkdir(parents=True, exist_ok=True)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (place / file).write_text("{}")
        else:
            parts[name] = _part(loader, name, (kinds or (_ANY,))[0], base, place)
    main = parts[loader.main]
    alone = loader.origin(loader.main).file is not None and not _named(loader)
    settings = {"extras_name_or_path": str(own)} if alone and loader.extras else {}
    hub = Hub((), tuple(_cached(name, place) for name, place in repos.items()))
    return Patient(str(main.file if alone else own), settings, hub, parts)


def _named(loader: Loader) -> bool:
    """Whether a folder with the transformer's file may be named."""
    origin = loader.origin(loader.main)
    return bool(origin.lone or (origin.file and origin.file("")))


def _part(loader: Loader, name: str, class_name: str, base: Path, place: Path) -> Part:
    origin = loader.origin(name)
    if origin.built is not None:
        class_name, config = origin.built({})
        shapes = mined_tensors(class_name, config)
    else:
        config, shapes = built(class_name)
    if origin.file is not None:
        file = base / (origin.file(origin.repo) or "model.safetensors")
        write(file, shapes)
        return Part(name, base, file, class_name, shapes)
    file = place / f"{_STEM.get(library_of(class_name), _STEM['diffusers'])}.safetensors"
    write(file, shapes)
    if origin.built is None:
        (place / "config.json").write_text(json.dumps(config))
    return Part(name, place, file, class_name, shapes)


def _cached(repo: str, folder: Path) -> HubRepo:
    commit = "0" * 40
    return HubRepo(repo, str(folder.parent), str(folder), "ok", "", commit, commit, str(folder), False, ())


Damage = Callable[[Part], object]


def damages(patient: Patient, loader: Loader) -> Iterator[tuple[str, Part, Damage]]:
    """Everything that may be wrong with the files of a model; each must be found."""
    for part in patient.parts.values():
        strict = loader.origin(part.name).built is not None
        kinds = {**OF_FILE, **(_OF_STRICT if strict else {})}
        if scaled(dict(part.shapes)) == part.shapes:  # convolutions alone
            del kinds["scaled 8-bit weights"]
        for name, change in kinds.items():
            yield f"{part.name}: {name}", part, change
        if (part.folder / "config.json").exists():
            for name, change in _OF_CONFIG.items() if loader.components[part.name] else ():
                yield f"{part.name}: {name}", part, change


def _with(change: Change, dtype: str = "BF16") -> Damage:
    return lambda part: write(part.file, change(dict(part.shapes)), dtype)


def _without(shapes: dict[str, tuple[int, ...]], *numbers: int) -> dict[str, tuple[int, ...]]:
    names = [name for name in shapes if shapes[name] and name != "lm_head.weight"]
    gone = {names[number] for number in numbers}
    return {name: shape for name, shape in shapes.items() if name not in gone}


def scaled(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    matrices = [name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2]
    return {**shapes, **{f"{name}.scale_weight": (1,) for name in matrices}}


def _reshaped(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    name = next(name for name, shape in shapes.items() if len(shape) > 1)
    return {**shapes, name: (shapes[name][0] + 8, *shapes[name][1:])}


Change = Callable[[dict[str, tuple[int, ...]]], Mapping[str, tuple[int, ...]]]
# What is wrong with the tensors of a file, and their type.
CHANGES: Mapping[str, tuple[Change, str]] = {
    "its first tensor is gone": (lambda shapes: _without(shapes, 0), "BF16"),
    "a tensor in the middle is gone": (lambda shapes: _without(shapes, len(shapes) // 2), "BF16"),
    "its last tensor is gone": (lambda shapes: _without(shapes, -1), "BF16"),
    "a tensor of another shape": (_reshaped, "BF16"),
    "names of another program": (
        lambda shapes: {f"stranger.{name}": shape for name, shape in shapes.items()},
        "BF16",
    ),
    "another model": (lambda shapes: {"lora_unet_x.lora_down.weight": (4, 8), "conv9.weight": (8, 8, 3, 3)}, "BF16"),
    "no tensors": (lambda shapes: {}, "BF16"),
    "scaled 8-bit weights": (scaled, "F8_E4M3"),
}
BROKEN: Mapping[str, Damage] = {
    "an empty file": lambda part: part.file.write_bytes(b""),
    "cut short": lambda part: part.file.open("r+b").truncate(part.file.stat().st_size - 10),
    "a web page": lambda part: part.file.write_text("<html>log in</html>"),
    "a git-lfs pointer": lambda part: part.file.write_text("version https://git-lfs.github.com/spec/v1\n"),
    "no file": lambda part: part.file.unlink(),
}
OF_FILE: Mapping[str, Damage] = {
    **{name: _with(change, dtype) for name, (change, dtype) in CHANGES.items()},
    **BROKEN,
}
_OF_STRICT: Mapping[str, Damage] = {
    "a tensor too many": _with(lambda shapes: {**shapes, "stranger.weight": (8,)}),
    "ComfyUI's prefix": _with(
        lambda shapes: {f"model.diffusion_model.{name}": shape for name, shape in shapes.items()}
    ),
}
_OF_CONFIG: Mapping[str, Damage] = {
    "another class": lambda part: (
        (part.folder / "config.json").write_text('{"_class_name": "DiTTransformer2DModel"}') and None
    ),
    "a broken config": lambda part: (part.folder / "config.json").write_text("{"),
    "no config": lambda part: (part.folder / "config.json").unlink(),
}
