"""What the start scripts of a checkout would start: the environment that they name, or the python of PATH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..packages.launcher import PLAIN, started
from .world import Stat, World

_BATCH, _SHELL = (".bat", ".cmd"), (".sh",)
MOST = 12  # scripts of a folder
STORE = "WindowsApps"  # where Windows keeps a python.exe of no length that opens the Microsoft Store


def launchers(world: World, root: str, entries: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(script, the Python that it starts) of the scripts in and beside a checkout that start one of its entries."""
    is_windows = world.system.os == "windows"
    for place in (root, world.parent(root)):
        names = (name for name in world.names_in(place) if name.lower().endswith(_BATCH if is_windows else _SHELL))
        for name in list(names)[:MOST]:
            script = world.join(place, name)
            text = world.read(script, 0, 1 << 15)
            if not isinstance(text, bytes) or not any(world.name(one).encode() in text for one in entries):
                continue
            python = started(text.decode("utf-8", "replace"), batch=is_windows)
            if python is not None:
                yield script, python if python == PLAIN else world.absolute(world.join(place, python))


def on_path(world: World) -> tuple[str, bool]:
    """The python.exe that PATH has first, "" where it is not known; and whether that only opens the Store."""
    for folder in filter(None, world.variables.get("PATH", "").split(";")):
        path = world.join(folder.strip('"'), "python.exe")
        stat = world.stat(path)
        if isinstance(stat, Stat):
            return path, STORE.lower() in folder.lower() and stat.size == 0
    return "", False
