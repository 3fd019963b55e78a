"""Whose code a frame is: a package's, a trainer's, or that of a node or extension that was put into a program."""

from __future__ import annotations

import re

from ..model.crashes import Frame

# Whose modules these are, where they are called otherwise.
MODULES = {
    "toolkit": "ai-toolkit",
    "extensions_built_in": "ai-toolkit",
    "jobs": "ai-toolkit",
    "library": "sd-scripts",
    "networks": "sd-scripts",
    "musubi_tuner": "musubi-tuner",
    "simpletuner": "SimpleTuner",
    "comfy": "ComfyUI",
    "comfy_extras": "ComfyUI",
    "comfy_api": "ComfyUI",
    "folder_paths": "ComfyUI",
    "latent_preview": "ComfyUI",
    "diffsynth": "DiffSynth-Studio",
    "kohya_gui": "kohya_ss",
}
TRAINERS = frozenset(MODULES.values()) | {"OneTrainer", "diffusion-pipe"}
_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](?:optimum[/\\](?=quanto))?(\w+)[/\\]")
_ADDED = re.compile(r"[/\\](?:custom_nodes|extensions|extensions-builtin)[/\\]([\w. -]+)[/\\]")


def owner(frame: Frame) -> str:
    """The package, the trainer, or the node whose code a frame is; "" where its path does not tell."""
    if (package := _PACKAGE.search(frame.file)) is not None:
        return package[1]
    if (added := _ADDED.search(frame.file)) is not None:
        return added[1]
    file = "/" + frame.file.replace("\\", "/").replace("_", "-").lower()
    return next((name for name in sorted(TRAINERS) if f"/{name.replace('_', '-').lower()}/" in file), "")
