"""The save of an earlier run that ai-toolkit would go on from."""

from __future__ import annotations

import json
import re
from typing import Any

from ..model import Run, Unknown
from ..model.earlier import EarlierSave, hides
from .world import Paths, Stat, World
from .world.safetensors import read_weight_file


def probe_earlier(world: World, run: Run) -> EarlierSave | Unknown | None:
    """The newest LoRA below the output folder whose name begins with the run's; None when there is none."""
    if run.output_folder is None or "\0" in run.output_folder or not run.name:
        return None
    paths = Paths(world.system)
    folder = paths.absolute(run.output_folder)
    names = world.names(folder)
    if isinstance(names, Unknown):
        stat = world.stat(folder)
        return stat if isinstance(stat, Unknown) else None if stat is None else names
    saves = [name for name in names if name.startswith(run.name) and name.endswith(".safetensors")]
    stats = [(world.stat(paths.join(folder, name)), name) for name in saves]
    dated = [(stat.changed_ns, name) for stat, name in stats if isinstance(stat, Stat) and stat.kind == "file"]
    if not dated:
        return None
    name = max(dated)[1]
    path = paths.join(folder, name)
    # the trainer joins the paths as they are written, so a relative one hides less
    hidden = hides(paths.join(run.output_folder, name), run.name)
    return EarlierSave(read_weight_file(world, path, name), _step(world, path, name), hidden)


def _step(world: World, path: str, name: str) -> int | None:
    """Where it was saved: by its metadata, else by the number in its name."""
    try:
        return int(metadata_of(world, path)["training_info"]["step"])
    except (ValueError, KeyError, TypeError):
        number = re.search(r"_(\d{9})\.safetensors$", name)
        return int(number.group(1)) if number else None


def metadata_of(world: World, path: str) -> dict[str, Any]:
    """What the header of a LoRA says of it, its JSON texts read; {} where it cannot be read."""
    start = world.read(path, 0, 8)
    length = int.from_bytes(start, "little") if isinstance(start, bytes) else 0
    header = world.read(path, 8, length) if 0 < length < 1 << 24 else b""
    told = _json(header) if isinstance(header, bytes) else None
    metadata = told.get("__metadata__") if isinstance(told, dict) else None
    return {key: _json(text) for key, text in metadata.items()} if isinstance(metadata, dict) else {}


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError):
        return text
