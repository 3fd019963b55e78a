"""The save of an earlier run that ai-toolkit would go on from."""

from __future__ import annotations

import json
import re
from typing import Any

from ..model import Run, Unknown, WeightFile
from ..model.remains import EarlierSave, hides
from .world import Stat, World
from .world.safetensors import read_weight_file


def probe_earlier(world: World, run: Run) -> EarlierSave | Unknown | None:
    """The newest LoRA below the output folder whose name begins with the run's; None when there is none."""
    if run.output_folder is None or "\0" in run.output_folder or not run.name:
        return None
    folder = world.absolute(run.output_folder)
    names = world.names(folder)
    if isinstance(names, Unknown):
        stat = world.stat(folder)
        return stat if isinstance(stat, Unknown) else None if stat is None else names
    saves = [name for name in names if name.startswith(run.name) and name.endswith(".safetensors")]
    stats = [(world.stat(world.join(folder, name)), name) for name in saves]
    dated = [(stat.changed_ns, name) for stat, name in stats if isinstance(stat, Stat) and stat.kind == "file"]
    if not dated:
        return None
    name = max(dated)[1]
    path = world.join(folder, name)
    # the trainer joins the paths as they are written, so a relative one hides less
    hidden = hides(world.join(run.output_folder, name), run.name)
    file = read_weight_file(world, path)
    return EarlierSave(file, _step(file), hidden)


def _step(file: WeightFile) -> int | None:
    """Where it was saved: by its metadata, else by the number in its name."""
    try:
        return int(metadata_of(file)["training_info"]["step"])
    except (ValueError, KeyError, TypeError):
        number = re.search(r"_(\d{9})\.safetensors$", file.name)
        return int(number.group(1)) if number else None


def metadata_of(file: WeightFile) -> dict[str, Any]:
    """What the header of a LoRA says of it, its JSON texts read."""
    return {key: _json(text) for key, text in file.metadata.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
