"""What lies in the folder that a run of zdoctor's own runner writes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..families.network import described
from ..memory.bytes import KINDS
from ..model import Run, Unknown
from ..model.remains import Remains, Save, author_of, is_own_save, own_identity, own_lock, own_state
from .earlier import metadata_of
from .world import Stat, World
from .world.safetensors import read_weight_file

# The last record of a zip archive, which PyTorch's files are: 22 bytes, as it writes no comment behind it.
_END, _END_BYTES = b"PK\5\6", 22
_LARGEST = 1 << 16


def probe_remains(world: World, run: Run) -> Remains | Unknown:
    """Nothing is held against a folder that does not exist yet."""
    folder = world.absolute(run.output_folder or "output")
    if "\0" in folder or not run.name:
        return Remains(folder)
    names = world.names(folder)
    if isinstance(names, Unknown):
        stat = world.stat(folder)
        return stat if isinstance(stat, Unknown) else Remains(folder) if stat is None else names
    saves = tuple(_save(world, world.join(folder, name)) for name in names if is_own_save(name, run.name))
    lock, state = (world.join(folder, name) for name in (own_lock(run.name), own_state(run.name)))
    running = own_lock(run.name) in names and world.is_open(lock)
    if own_state(run.name) not in names:
        return Remains(folder, saves, running=running)
    theirs = _identity(world, world.join(folder, own_identity(run.name)))
    return Remains(folder, saves, state, _is_cut(world, state), theirs, _ours(run, theirs), running)


def _save(world: World, path: str) -> Save:
    file = read_weight_file(world, path)
    stat = world.resolve(path)[1]
    changed = stat.modified_ns if isinstance(stat, Stat) else 0
    problem = (file.detail or file.problem) if file.problem else ""
    return Save(path, author_of(metadata_of(file)), problem, changed)


def _is_cut(world: World, state: str) -> bool:
    stat = world.resolve(state)[1]
    if not isinstance(stat, Stat):
        return False
    end = world.read(state, max(0, stat.size - _END_BYTES), _END_BYTES)
    return isinstance(end, bytes) and not end.startswith(_END)


def _identity(world: World, path: str) -> Mapping[str, str]:
    """What the state was saved for; nothing where that cannot be read."""
    content = world.read(path, 0, _LARGEST)
    try:
        told: Any = json.loads(content) if isinstance(content, bytes) else {}
    except (ValueError, RecursionError):
        return {}
    return {k: v for k, v in told.items() if isinstance(v, str)} if isinstance(told, dict) else {}


def _ours(run: Run, theirs: Mapping[str, str]) -> Mapping[str, str]:
    """The same of this run. Two adapters are told apart by their contents only, which are not read here."""
    recipe = run.recipe
    ours = {"rank": described(run.recipe.network)}
    if recipe.precision.quantization in KINDS:
        ours["quantization"] = KINDS[recipe.precision.quantization]
    if not recipe.adapter:
        ours["adapter"] = "none"
    elif theirs.get("adapter") == "none":
        ours["adapter"] = recipe.adapter
    return ours
