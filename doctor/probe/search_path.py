"""The folders that a Python takes packages from, in its own order, without starting it.

Source: Lib/site.py and "The initialization of the sys.path module search path" of Python's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .world import World

_HOME = re.compile(r"^home\s*=\s*(.+?)\s*$", re.M)
_OF_SYSTEM = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.M | re.I)


def home_of(settings: str) -> str:
    """The folder of the Python that a virtual environment was made of, as its pyvenv.cfg names it; "" for none."""
    found = _HOME.search(settings)
    return found[1] if found else ""


def search_path_of(world: World, folder: str, settings: str, release: str, own: str) -> tuple[str, ...]:
    """Of the Python in `folder` with its `own` packages; `settings` is its pyvenv.cfg, "" where it has none."""
    if any(name.endswith("._pth") for name in world.names_in(folder)):
        return (own,)  # an embedded Python heeds no variable and no folder of its user
    separator = ";" if world.system.os == "windows" else ":"
    before = filter(None, world.variables.get("PYTHONPATH", "").split(separator))
    users = list(_of_user(world, release)) if not world.variables.get("PYTHONNOUSERSITE") else []
    if not settings:
        after = [*users, own]
    elif _OF_SYSTEM.search(settings):
        after = [own, *users, *_of_base(world, home_of(settings), release)]
    else:
        after = [own]
    places = dict.fromkeys((*map(world.absolute, before), *after))
    return tuple(place for place in places if place == own or world.names_in(place))


def _of_user(world: World, release: str) -> Iterator[str]:
    """What `pip install --user` installs into."""
    short = ".".join(release.split(".")[:2])
    base, home = world.variables.get("PYTHONUSERBASE", ""), world.system.home
    if not short:
        return
    if world.system.os == "windows":
        base = base or world.join(world.variables.get("APPDATA", ""), "Python")
        yield world.join(base, f"Python{short.replace('.', '')}", "site-packages")
        return
    if world.system.os == "darwin" and not base:
        yield world.join(home, "Library", "Python", short, "lib", "python", "site-packages")
    yield world.join(base or world.join(home, ".local"), "lib", f"python{short}", "site-packages")


def _of_base(world: World, home: str, release: str) -> Iterator[str]:
    """The packages of the Python behind a virtual environment; Debian and Homebrew have ways of their own."""
    if world.system.os == "windows":
        yield world.join(home, "Lib", "site-packages")
        return
    prefix, python = world.parent(home), f"python{'.'.join(release.split('.')[:2])}"
    for library in ("lib", "lib64"):
        yield world.join(prefix, library, python, "site-packages")
    yield world.join(prefix, "local", "lib", python, "dist-packages")
    yield world.join(prefix, "lib", "python3", "dist-packages")
    if world.system.os == "darwin":
        yield world.join("/opt/homebrew/lib", python, "site-packages")
