"""The little that zdoctor asks of a machine. `live` answers from this one, `recorded` from a machine file.

Every question is read-only, has a deadline, and is answered with a value or with Unknown(reason); nothing raises.
Paths are absolute strings of the machine's own kind; `world.join` and friends know which kind that is.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Literal, Protocol

from ...model import Component, Gpu, Schema, Speed, System, Unknown
from ...model.record import dataclass

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Stat:
    """What lstat tells. `target` is the text of a symbolic link."""

    kind: Literal["file", "folder", "link", "other"]
    size: int = 0
    modified_ns: int = 0
    changed_ns: int = 0
    device: int = 0
    inode: int = 0
    target: str | None = None


@dataclass(frozen=True)
class Mount:
    """The file system a path lies on. `free` is what an ordinary user may still write, None when it is not known."""

    point: str
    filesystem: str
    read_only: bool
    free: int | None
    source: str = ""


class World(Protocol):
    """A machine, live or recorded."""

    @property
    def system(self) -> System: ...

    @property
    def variables(self) -> Mapping[str, str]: ...  # all of them; only those in `system.environment` are recorded

    def now_ns(self) -> int:
        """The clock that file times are compared with."""
        ...

    def stat(self, path: str) -> Stat | Unknown | None:
        """lstat; None when nothing is there, Unknown when the system would not say."""
        ...

    def names(self, folder: str) -> tuple[str, ...] | Unknown:
        """The names in a folder, sorted."""
        ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
        """Bytes of a file, links followed. Without `length` at most 32 MiB are read."""
        ...

    def is_open(self, path: str) -> bool:
        """Whether some process has the file open, as far as this user may see; False where nothing tells."""
        ...

    def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
        """The digests of whole files, links followed, of the kind ("sha256", "git-sha1") that `wanted` gives each.

        Written as in HubFile.digest. Unknown for a file that cannot be read or that changed meanwhile.
        """
        ...

    def refusal(self, folder: str) -> str | Unknown | None:
        """Why files cannot be created in an existing folder ("read-only file system"), None when they can.

        Established without writing: mount flags, effective access rights, immutable flags, space and inodes.
        """
        ...

    def mount(self, path: str) -> Mount | Unknown: ...

    def speed(self, files: Sequence[str]) -> Speed | Unknown:
        """How fast these files can be read, by reading parts of them that the page cache does not hold."""
        ...

    def landmarks(self) -> tuple[str, ...]:
        """Large files that lie on this machine anyway, to measure a place where nothing of the user's lies yet."""
        ...

    def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
        """Those of `places`, relative to the root of any local disk ("hf/hub"), that are folders. No network."""
        ...

    def gpus(self) -> tuple[Gpu, ...] | Unknown: ...

    def skeletons(self, parts: Mapping[str, Component]) -> Mapping[str, Shapes | Unknown]:
        """Name -> shape of all that the installed libraries take from the weight files of these parts.

        Starts a process that imports them: seconds, only for a deep check.
        """
        ...

    def schema(self, trainer: str, near: Sequence[str]) -> Schema | Unknown | None:
        """What a checkout of the trainer at, above or just below one of these folders accepts; None without one.

        Mined from its source, of which nothing is run; Unknown when the checkout that the user named is no such.
        """
        ...

    def source(self, root: str, path: str) -> bytes | None:
        """A file of a trainer's checkout, by its path with / below it; None where there is none to be read."""
        ...

    def packages(self, names: Sequence[str]) -> dict[str, str]:
        """Versions of the installed packages among `names`, from their metadata, nothing imported."""
        ...


class Paths:
    """Path arithmetic of the machine's kind, on strings."""

    def __init__(self, system: System) -> None:
        self.flavour: ModuleType = ntpath if system.os == "windows" else posixpath
        self.cwd = system.cwd

    def absolute(self, path: str) -> str:
        """`path` as the trainer would open it: relative to the working directory, `~` and variables unexpanded."""
        joined: str = self.flavour.normpath(self.flavour.join(self.cwd, path))
        return joined

    def join(self, *parts: str) -> str:
        joined: str = self.flavour.join(*parts)
        return joined

    def parent(self, path: str) -> str:
        folder: str = self.flavour.dirname(path)
        return folder

    def name(self, path: str) -> str:
        base: str = self.flavour.basename(path)
        return base

    def is_absolute(self, path: str) -> bool:
        return bool(self.flavour.isabs(path))


def resolve(world: World, paths: Paths, path: str, hops: int = 40) -> tuple[str, Stat | Unknown | None]:
    """Follow symbolic links of the last component (a hub snapshot's), at most `hops` of them.

    Returns the final path with its stat; None when a link dangles, Unknown for a loop.
    """
    for _ in range(hops):
        stat = world.stat(path)
        if not isinstance(stat, Stat) or stat.kind != "link":
            return path, stat
        path = paths.flavour.normpath(paths.join(paths.parent(path), stat.target or ""))
    return path, Unknown("a loop of symbolic links")
