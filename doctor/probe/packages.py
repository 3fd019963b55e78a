"""What is installed in a folder of packages, by the metadata that pip leaves there; nothing is imported.

Source: PyPA's specifications "Recording installed projects", "Core metadata" and "Direct URL".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..model import Unknown
from ..model.environment import Metadata, plain
from ..model.pattern import pattern
from .world import Stat, World

_FOLDER = pattern(r"(?P<name>.+?)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")
_REQUIRES = pattern(rb"^Requires-Dist: *(.+?)\r?$", re.M)
_BUILD = pattern(rb"^__version__ = '([^']+)'", re.M)
_LEFT_OVER = pattern(r"~[\w.-]+")  # pip gives what it is about to replace such a name
HEAD = 1 << 16  # bytes of a METADATA file that are read: its fields stand first
FIRST = 4  # modules of a package that are looked for
_MODULE = pattern(rb'^"?([^",\r\n/.]+(?:/[^",\r\n]+)?\.py)"?,[^,\r\n]*,\d*\r?$', re.M)
_LIBRARY = pattern(rb'^"?([^",\r\n]+\.(?:so[\d.]*|pyd|dll|dylib))"?,[^,\r\n]*,(\d+)\r?$', re.M)
_TAG = pattern(rb"^Tag: *([\w.-]+(?<!-any))\s*$", re.M | re.A)
_OF_CARD = pattern(rb"/(TensileLibrary_lazy_gfx\w+\.dat)")  # rocBLAS opens the one of the card, or ends the program
_BUILT_FOR = pattern(r"\.(?:cpython-|cp)3\d|_cuda\d")
LIBRARIES_OF = frozenset(("torch", "torchvision", "bitsandbytes", "safetensors", "tokenizers", "numpy", "triton"))


def folders_of(world: World, folder: str) -> dict[str, tuple[str, str]]:
    """The packages in a folder: their name to the version and to their metadata's folder."""
    found: dict[str, tuple[str, str]] = {}
    for entry in world.names_in(folder):
        metadata = _FOLDER.fullmatch(entry)
        if metadata:
            found.setdefault(plain(metadata["name"]), (metadata["version"], world.join(folder, entry)))
    return found


def versions_in(world: World, folder: str) -> dict[str, str]:
    """The versions of the packages in a folder. Those of torch and torchvision name the build, as they do."""
    versions = {name: version for name, (version, _) in folders_of(world, folder).items()}
    for name in versions.keys() & {"torch", "torchvision"}:
        source = world.read(world.join(folder, name, "version.py"), 0, 4096)
        found = _BUILD.search(source) if isinstance(source, bytes) else None
        versions[name] = found.group(1).decode("ascii", "replace") if found else versions[name]
    return versions


def versions_on(world: World, folders: Sequence[str]) -> dict[str, str]:
    """The versions of the packages on a search path; of two with one name the first counts, as for Python."""
    found: dict[str, str] = {}
    for folder in folders:
        found = versions_in(world, folder) | found
    return found


def metadata_in(world: World, folders: Sequence[str]) -> dict[str, Metadata]:
    """What the packages in these folders say of themselves, the first of each name."""
    found: dict[str, Metadata] = {}
    for folder in folders:
        for name, (version, place) in folders_of(world, folder).items():
            if name not in found:
                found[name] = _metadata(world, name, version, place)
    return found


def left_over_in(world: World, folders: Sequence[str]) -> tuple[str, ...]:
    """What an interrupted install left: pip renames what it replaces to a name that begins with ~."""
    return tuple(
        world.join(folder, name)
        for folder in folders
        for name in world.names_in(folder)
        if _LEFT_OVER.fullmatch(name)
    )


def _metadata(world: World, name: str, version: str, place: str) -> Metadata:
    if place.endswith(".egg-info"):
        return Metadata(name, version, place)
    text = world.read(world.join(place, "METADATA"), 0, HEAD)
    head = re.split(rb"\r?\n\r?\n", text, maxsplit=1)[0] if isinstance(text, bytes) else b""
    requires = [line.decode("utf-8", "replace") for line in _REQUIRES.findall(head)]
    origin = _origin(world, place)
    absent, libraries = _listed(world, name, place)
    return Metadata(
        name,
        version,
        place,
        tuple(line for line in requires if not re.search(r"\bextra\s*==", line)),
        *origin,
        absent=("METADATA",) if _is_gone(world, text, place) else absent,
        libraries=libraries,
        tags=_tags(world, place),
    )


def _tags(world: World, place: str) -> tuple[str, ...]:
    """Those of a wheel for a platform; one of pure Python has none."""
    # Debian installs for several Pythons, and names one; conda may name the system that it built on
    if world.name(world.parent(place)) == "dist-packages":
        return ()
    text = world.read(world.join(place, "WHEEL"), 0, HEAD)
    tags = tuple(map(bytes.decode, _TAG.findall(text))) if isinstance(text, bytes) else ()
    by = world.read(world.join(place, "INSTALLER"), 0, 9) if tags else b""
    return () if isinstance(by, bytes) and by.strip() == b"conda" else tags


def _is_gone(world: World, text: bytes | Unknown, place: str) -> bool:
    """Whether it is not there, or is none: each begins with the version of its format."""
    if isinstance(text, bytes):
        return b"Metadata-Version:" not in text
    return isinstance(text, Unknown) and world.stat(world.join(place, "METADATA")) is None


def _origin(world: World, place: str) -> tuple[str, str]:
    """(address, commit) of a package that came from no index."""
    names = world.names_in(place)
    told = world.json(world.join(place, "direct_url.json"), 1 << 16) if "direct_url.json" in names else None
    if not isinstance(told, Mapping):
        return "", ""
    vcs = told.get("vcs_info")
    commit = vcs.get("commit_id") if isinstance(vcs, Mapping) else None
    return str(told.get("url", "")), commit if isinstance(commit, str) else ""


def _listed(world: World, name: str, place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files among the first of a package, and its libraries, that are not there as installed; libraries' names."""
    record = world.read(world.join(place, "RECORD"), 0, None if name in LIBRARIES_OF else 1 << 13)
    if not isinstance(record, bytes):
        return (), ()
    libraries = _LIBRARY.findall(record) if name in LIBRARIES_OF else []
    folder, gone = world.parent(place), []
    modules = [(file, b"0") for file in _MODULE.findall(record)[:FIRST]]  # a module may have been edited
    for file, size in (*modules, *libraries):
        path = file.decode("utf-8", "replace")
        stat = world.stat(world.below(folder, path))
        if stat is None or (isinstance(stat, Stat) and stat.kind == "file" and stat.size < int(size)):
            gone.append(path)
    names = (file.decode("utf-8", "replace").rpartition("/")[2] for file, _ in libraries)
    of_cards = map(bytes.decode, _OF_CARD.findall(record))
    return tuple(gone), (*(one for one in names if _BUILT_FOR.search(one)), *of_cards)
