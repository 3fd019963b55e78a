"""What a run starts from: the LoRA that it is given, and what earlier runs left in the folder that it writes to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..families import family_of
from ..families.network import described, network_shapes, shape_of, sources, target_linears
from ..memory.bytes import KINDS
from ..model import ModelFolder, Run, Unknown, WeightFile
from ..model.remains import (
    EarlierSave,
    Remains,
    Save,
    author_of,
    hides,
    is_own_save,
    own_identity,
    own_lock,
    own_state,
)
from ..model.start import Start
from .world import Stat, World
from .world.safetensors import read_weight_file


def probe_starting_lora(world: World, run: Run) -> WeightFile | Unknown | None:
    """The file as the trainer would open it, by a path in every case; None when the run names none."""
    written = run.recipe.network.initial_weights
    if not written:
        return None
    if "\0" in written:
        return Unknown("the path of the LoRA to start from holds a null character")
    return read_weight_file(world, world.absolute(written))


def probe_start(
    world: World, run: Run, starting_lora: WeightFile | None, model: ModelFolder | Unknown
) -> Start | Unknown | None:
    """None where the run begins at zero, or goes on from its own state and opens no such file."""
    if starting_lora is None:
        return None
    state = world.stat(world.join(world.absolute(run.output_folder or "output"), own_state(run.name)))
    if state is not None:
        return state if isinstance(state, Unknown) else None
    if isinstance(model, Unknown):
        return model
    network, own = run.recipe.network, family_of(run.recipe.architecture).own
    part = model.components.get("transformer" if own is None else own.main)
    linears = None
    if part is not None and part.config is not None:
        linears = target_linears(
            part.class_name,
            part.config,
            network.excluded,
            refiners=network.refiners,
            windows=network.conv_rank > 0,
        )
    if part is None or linears is None:
        return Unknown("which layers the transformer has is not known")
    held = {
        name: shape_of(starting_lora.tensors[key].shape, rows)
        for name, (key, rows) in sources(starting_lora.tensors, linears, part.class_name or "").items()
    }
    return Start(starting_lora, held, network_shapes(network, linears))


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
    told = world.json(path, _LARGEST)
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
