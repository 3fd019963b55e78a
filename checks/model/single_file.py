"""The part of MDL002 about models in a single file: where none is opened, and how diffusers would convert it."""

from __future__ import annotations

from ...doctor.families import family_of, loader_of
from ...doctor.families.record import Loader
from ...doctor.model import Component, Finding, ModelFolder, Run, found
from ...doctor.model.pattern import pattern
from ...doctor.model.weights import COMFYUI_PREFIX, SCALES
from .contents import contents

_HUB_FILE = pattern(r"[\w-][\w.-]*/[\w.-]+/.+\.(safetensors|gguf|ckpt|pt|bin)")


def refused_file(run: Run, model: ModelFolder, loader: Loader | None) -> Finding | None:
    """A file where this loader opens only folders and hub ids, or a file of another ending than it knows."""
    is_file = model.layout == "single-file" or (model.layout == "absent" and _HUB_FILE.fullmatch(model.source))
    if loader is None or not is_file or (loader.single_file is not None and model.source.endswith(".safetensors")):
        return None
    part = model.components.get("transformer")
    held = contents(part.tensors) if part is not None else ""
    message = "{path} does not end in .safetensors, the only single files that {trainer} opens."
    if loader.single_file is None:
        message = "{path} is a single file" + (" ({held})" if held else "") + "; for {family}, {trainer} opens only "
        message += "a folder in the diffusers layout or the hub id of one."
    error = "" if run.by_runner else ": OSError: … is not the path to a directory containing a config.json file"
    return found(
        run.where("base_model"),
        message,
        otherwise=f"Loading fails at once{error}.",
        evidence={"file": model.source} | _flux_conversion(part, loader),
        path=model.source,
        held=held,
        family=family_of(run.recipe.architecture).title,
        trainer=run.trainer,
    )


def _flux_conversion(part: Component | None, loader: Loader) -> dict[str, object]:
    """What diffusers needs to convert a file that is a whole FLUX.1-dev or schnell."""
    if part is None or loader.single_file is not None or not part.needed:
        return {}
    if any(name not in part.tensors or part.tensors[name].shape != shape for name, shape in part.needed.items()):
        return {}
    guided = any(name.removeprefix(COMFYUI_PREFIX).startswith("guidance_in.") for name in part.needed)
    return {
        "file": part.weights[0].path,
        "convert": loader.components["transformer"][0],
        "config": f"black-forest-labs/FLUX.1-{'dev' if guided else 'schnell'}",
        "alone": False,
    }


def conversion(run: Run, part: Component) -> dict[str, object]:
    """What diffusers needs to convert a Z-Image file that holds more than the trainer takes, or has a prefix."""
    loader = loader_of(run)
    names = {name.removeprefix(COMFYUI_PREFIX) for name in part.tensors}
    scaled = any(name.endswith(SCALES) for name in names)
    if loader is None or loader.single_file is None or not part.needed or scaled or not names >= part.needed.keys():
        return {}
    apart = run.recipe.extras_model not in (None, run.recipe.base_model)
    config = run.recipe.extras_model if apart else loader.single_file
    return {"file": part.weights[0].path, "convert": part.class_name, "config": config, "alone": True}
