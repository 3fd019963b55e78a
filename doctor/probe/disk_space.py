"""The file systems that a run writes to: how much room each has, and what will surely be written to it."""

from __future__ import annotations

from collections import Counter

from ..memory.disk_space import Need, needs
from ..model import DatasetFolder, Hub, ModelFolder, Room, Run, Unknown
from .world import World


def probe_room(
    world: World,
    run: Run,
    model: ModelFolder | Unknown,
    datasets: tuple[DatasetFolder, ...] | Unknown,
    hub: Hub | Unknown,
) -> tuple[Room, ...]:
    """One Room for every file system to which something of known size goes."""
    output = world.absolute(run.output_folder) if run.output_folder else None
    if output is not None:
        names = world.names(output)
        # With a file of this name the run goes on from there, and new saves take the place of old ones.
        if not isinstance(names, Unknown) and any(name.startswith(run.name) for name in names):
            output = None
    rooms: dict[str, tuple[int | None, list[Need]]] = {}
    for need in needs(run, model, datasets, hub, output):
        mount = world.mount(need.folder)
        # what refuses to be written is another rule's
        if need.size > 0 and (isinstance(mount, Unknown) or not mount.read_only):
            point, free = (need.folder, None) if isinstance(mount, Unknown) else (mount.point, mount.free)
            rooms.setdefault(point, (free, []))[1].append(need)
    return tuple(_room(point, free, wanted) for point, (free, wanted) in rooms.items())


def _room(point: str, free: int | None, wanted: list[Need]) -> Room:
    items: Counter[str] = Counter()
    for need in wanted:
        items[need.what] += need.size
    keys = [need.key for need in wanted]
    key = "output_folder" if "output_folder" in keys else keys[0]
    return Room(point, free, items, key, tuple(dict.fromkeys(need.folder for need in wanted)))
