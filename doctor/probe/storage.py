"""How fast the model's own files can be read, and where a copy of them could lie."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import ModelFolder, Place, Run, Speed, Storage, Unknown
from .files import refusal
from .world import Mount, Stat, World

SMALLEST = 64 << 10
PART = ".zdoctor-part"


def probe_storage(world: World, run: Run, model: ModelFolder) -> Storage:
    """The speed of the weight files (not measured when there are none here) and the places for a copy."""
    files: dict[str, int] = {}
    for component in model.components.values():
        for weight in component.weights:
            if weight.problem != "missing":
                files[world.resolve(weight.path)[0]] = weight.size
    largest = sorted(files, key=lambda path: (-files[path], path))[:8]
    speed = world.speed(largest) if files else Unknown("no weight file of the model is on this machine")
    # Only who would leave a slow place asks how fast the others are.
    is_slow = isinstance(speed, Speed) and speed.kind not in ("ssd", "memory")
    return Storage(speed, sum(files.values()), _places(world, run, is_slow))


def _places(world: World, run: Run, measured: bool) -> tuple[Place, ...]:
    """Folders where `models/<name>` could be made: beside the config, in the working directory, at home."""
    folders = [world.parent(world.absolute(run.config)), world.system.cwd, world.system.home]
    places = []
    for folder in dict.fromkeys(folders):
        target = world.join(folder, "models")
        mount = world.mount(folder)
        if isinstance(mount, Unknown) or mount.free is None:
            continue
        why = refusal(world, target)
        reason = why.reason if isinstance(why, Unknown) else why
        speed = _speed_of(world, folder, mount) if measured else None
        places.append(Place(target, mount.free, speed, reason, tuple(_parts(world, target))))
    return tuple(places)


def _parts(world: World, folder: str) -> Iterator[tuple[str, int]]:
    """The targets in a folder to which an extraction was cut short, with the bytes that lie ready."""
    for name in world.names_in(folder) if world.stat(folder) is not None else ():
        if name.endswith(PART):
            inside = [stat for _, stat in world.walk(world.join(folder, name, "files"), 6)]
            size = sum(stat.size for stat in inside if isinstance(stat, Stat) and stat.kind != "folder")
            yield name.removesuffix(PART), size


def _speed_of(world: World, folder: str, mount: Mount) -> Speed | None:
    """The read speed at a place, measured on files that lie on its file system; None when there are none."""
    candidates: list[tuple[int, str]] = []
    for path in [world.join(folder, name) for name in world.names_in(folder)[:500]]:
        stat = world.stat(path)
        if isinstance(stat, Stat) and stat.kind == "file" and stat.size >= SMALLEST:
            candidates.append((stat.size, path))
    for path in world.landmarks():
        stat, other = world.stat(path), world.mount(path)
        if isinstance(stat, Stat) and isinstance(other, Mount) and other.point == mount.point:
            candidates.append((stat.size, path))
    if not candidates:
        return None
    speed = world.speed([path for _, path in sorted(candidates, reverse=True)[:4]])
    return None if isinstance(speed, Unknown) else speed
