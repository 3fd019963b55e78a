"""Healthy models as sd-scripts opens them, as their headers alone: what each family's files hold, by the options."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.part_files import filled_by, part_files, place_of
from zdoctor.doctor.families.record.of_trainers import Kohya
from zdoctor.doctor.families.record.shapes import Shapes
from zdoctor.doctor.model import Run
from zdoctor.doctor.trainers.read import Reading
from zdoctor.tests.part_files import command, reading_of, write

FAMILIES = ("sdxl", "sd15", "sd2", "sd3", "lumina2", "anima")
MORE: Mapping[str, Mapping[str, object]] = {"sd2": {"v2": True}}
LORA = {"output_dir": "out", "learning_rate": "1e-4", "dataset_config": "d.toml", "mixed_precision": "bf16"}


def kohya_of(name: str) -> Kohya:
    return family_of(name).kohya["sd-scripts"]


def run_with(name: str, options: Mapping[str, object]) -> Run:
    return reading_with(name, options).runs[0]


def reading_with(name: str, options: Mapping[str, object]) -> Reading:
    """A LoRA training of this family by its script."""
    kohya = kohya_of(name)
    every = {"network_module": kohya.network_module, **LORA, **MORE.get(name, {}), **options}
    return reading_of(command(f"{kohya.script}.py", every))


@cache
def parts_of(name: str, *, alone: bool = False) -> Mapping[str, tuple[str, Shapes]]:
    """By the component, the option whose file holds it, and its tensors in that file.

    With `alone` each option that may name a file of its own does.
    """
    kohya = kohya_of(name)
    first = next(iter(kohya.files.values()))
    options = {one: f"/m/{one}.safetensors" for one in kohya.files.values() if alone or _is_needed(kohya, one)}
    run = run_with(name, {**options, first: f"/m/{first}.safetensors"})
    found: dict[str, tuple[str, Shapes]] = {}
    for part in part_files(run):
        path, prefix, is_first = place_of(run, part, ())
        assert path is not None
        shapes = filled_by(run, part, _of_large() if name == "sd3" else {})
        assert shapes, part
        prefix = prefix if is_first else ""
        found[part.name] = (Path(path).stem, {prefix + tensor: shape for tensor, shape in shapes.items()})
    return found


def _of_large() -> Shapes:
    """What tells that a file is Stable Diffusion 3.5 large."""
    block = "joint_blocks.0.context_block.attn.ln_k.weight"
    return {"x_embedder.proj.weight": (2432, 16, 2, 2), "pos_embed": (1, 192 * 192, 2432), block: (64,)}


def _is_needed(kohya: Kohya, option: str) -> bool:
    """Whether a part is never found inside the first file."""
    name = next(name for name, one in kohya.files.items() if one == option)
    return name not in kohya.inside or not (kohya.is_one_file or name == "vae")


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="zdoctor-sd-scripts-"))


@cache
def files_of(name: str, *, alone: bool = False) -> Mapping[str, str]:
    """The options of a healthy model of this family with its files; never to be written to."""
    held: dict[str, Shapes] = {}
    for option, shapes in parts_of(name, alone=alone).values():
        held[option] = {**held.get(option, {}), **shapes}
    kind = "alone" if alone else "together"
    return {
        option: str(write(_folder() / f"{name}_{kind}_{option}.safetensors", shapes))
        for option, shapes in held.items()
    }
