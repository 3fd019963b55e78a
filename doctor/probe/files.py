"""What lies at the paths of a run, where it will write, whether it can, and how much room there is.

Nothing is written to find out. What ai-toolkit writes where: its data loader, cache mixins and base trainer
(ai-toolkit 27a03a91, 2026-08-21). sd-scripts writes its caches beside the pictures (48d368fa,
library/strategy_flux.py), musubi-tuner in other scripts.
"""

from __future__ import annotations

import re
from collections import Counter

from ..families.part_files import other_files, part_files, written_path
from ..memory.disk_space import Need, needs, saves
from ..model import DatasetFolder, Entry, Files, Hub, ModelFolder, Room, Run, Unknown, WritePlace, Writes
from ..model.amounts import amount
from ..model.facts import MOST_CHILDREN
from ..model.record import replace
from ..trainers import loaded, trainer_of
from .world import Mount, Stat, World


def probe_files(world: World, run: Run) -> Files:
    """An Entry for every path-like setting, by its text in the config."""
    recipe = run.recipe
    written = [recipe.base_model, recipe.extras_model, recipe.adapter, run.output_folder]
    written += [dataset.folder for dataset in recipe.datasets]
    written += [folder for dataset in recipe.datasets for folder in dataset.control_folders]
    written += [path for sample in recipe.validation.prompts for path in sample.controls]
    written += [
        value.value
        for key, value in run.settings.items()
        if key.endswith(("_path", "_folder", "_dir", "_directory")) and isinstance(value.value, str)
    ]
    written += [written_path(run, part) for part in part_files(run)]
    if trainer_of(run.trainer).component_files:
        written += [text for _, text in other_files(run)]
    return Files({text: _around(world, run, text, look(world, text)) for text in dict.fromkeys(written) if text})


def _around(world: World, run: Run, text: str, entry: Entry) -> Entry:
    """The entry; of a missing relative path with the folder above the config that it may be meant from."""
    folder = world.parent(world.absolute(run.config))
    if entry.kind != "missing" or re.match(r"[/\\~%$]|[A-Za-z]:", text) or text.strip() != text:
        return entry
    while not isinstance(world.stat(world.join(folder, text)), Stat):
        above = world.parent(folder)
        if above == folder:
            return entry
        folder = above
    return replace(entry, seen_from=folder)


def look(world: World, text: str) -> Entry:
    """The Entry at a path as the trainer would open it."""
    path = world.absolute(text)
    first = world.stat(path)
    final, stat = world.resolve(path)
    if isinstance(stat, Unknown):
        return Entry(path, "denied")
    if stat is None:
        is_link = isinstance(first, Stat) and first.kind == "link"
        return Entry(path, "dangling" if is_link else "missing")
    if stat.kind == "folder":
        return Entry(path, "folder", children=world.names_in(final)[:MOST_CHILDREN])
    return Entry(path, "file" if stat.kind == "file" else "other", stat.size)


SIZES = ".aitk_size.json"


def probe_writes(world: World, run: Run, files: Files) -> Writes:
    """Every folder the trainer writes to, in the order in which it does."""
    places: list[WritePlace] = []

    def add(what: str, folder: str, key: str, phase: str) -> None:
        places.append(WritePlace(what, folder, key, phase, refusal(world, folder)))

    if run.output_folder:
        add("the run folder", world.absolute(run.output_folder), "output_folder", "at its start")
    rooms = trainer_of(run.trainer).writes
    for dataset in run.recipe.datasets if rooms else ():
        entry = files.at(dataset.folder)
        if entry is None or entry.kind not in ("folder", "file"):
            continue
        folder = entry.path if entry.kind == "folder" else world.parent(entry.path)
        for what, phase in loaded(rooms).dataset_writes(run, dataset):
            add(what, folder, f"{dataset.key}/folder_path", phase)
    return Writes(tuple(places), _mirror_root(world, run))


def refusal(world: World, folder: str) -> str | Unknown | None:
    """Why nothing can be created in `folder`, which the trainer would make if it is not there."""
    current = folder
    while True:
        stat = world.stat(current)
        if isinstance(stat, Unknown):
            return stat
        if stat is not None:
            if stat.kind == "file":
                return f"{current} is a file"
            return world.refusal(current)
        parent = world.parent(current)
        if parent == current:
            return Unknown(f"{folder}: its drive does not exist")
        current = parent


def _mirror_root(world: World, run: Run) -> str | None:
    """The first writable folder among: beside the runs, the working directory, the home folder."""
    candidates = [world.system.cwd, world.system.home]
    if run.output_folder:
        candidates.insert(0, world.parent(world.parent(world.absolute(run.output_folder))))
    for folder in candidates:
        if world.is_folder(folder) and world.refusal(folder) is None:
            return folder
    return None


LITTLE = 10 << 30  # bytes: with less, saves of an unknown size may fill a disk


def probe_room(
    world: World,
    run: Run,
    model: ModelFolder | Unknown,
    datasets: tuple[DatasetFolder, ...] | Unknown,
    hub: Hub | Unknown,
) -> tuple[Room, ...] | Unknown:
    """One Room for every file system to which something of known size goes."""
    output, goes_on = world.absolute(run.output_folder) if run.output_folder else None, False
    if output is not None:
        names = world.names(output)
        # With a file of this name the run goes on from there, and new saves take the place of old ones; the one at
        # the end has a name of its own.
        if not isinstance(names, Unknown) and any(name.startswith(run.name) for name in names):
            goes_on = True
            output = None if run.by_runner or f"{run.name}.safetensors" in names else output
    kept = [] if output is None else list(saves(run, model, output, goes_on=goes_on))
    rooms: dict[str, tuple[int | None, list[Need]]] = {}
    for need in (*needs(run, model, datasets, hub, output), *kept):
        mount = world.mount(need.folder)
        # what refuses to be written is another rule's
        if need.size > 0 and (isinstance(mount, Unknown) or not mount.read_only):
            point, free = (need.folder, None) if isinstance(mount, Unknown) else (mount.point, mount.free)
            rooms.setdefault(point, (free, []))[1].append(need)
    if not rooms and isinstance(model, ModelFolder) and model.layout == "absent":
        return Unknown(f"how large the saves will be is not known: {model.source} is not on this machine")
    found = tuple(_room(point, free, wanted) for point, (free, wanted) in rooms.items())
    full = any(room.free is not None and sum(room.items.values()) > room.free for room in found)
    home = world.mount(output) if output is not None and run.kind == "lora" and not (kept or full) else None
    if isinstance(home, Mount) and not home.read_only and home.free is not None and home.free < LITTLE:
        return Unknown(f"how large the saves will be is not known, and {home.point} has {amount(home.free)} free")
    return found


def _room(point: str, free: int | None, wanted: list[Need]) -> Room:
    items: Counter[str] = Counter()
    for need in wanted:
        items[need.what] += need.size
    keys = [need.key for need in wanted]
    key = "output_folder" if "output_folder" in keys else keys[0]
    return Room(point, free, items, key, tuple(dict.fromkeys(need.folder for need in wanted)))
