"""The little that zdoctor asks of a machine. `live` answers from this one, `recorded` from a machine file.

Every question is read-only, has a deadline, and is answered with a value or with Unknown(reason); nothing raises.
Paths are absolute strings of the machine's own kind; `World.join` and friends know which kind that is.
"""

from __future__ import annotations

import json
import ntpath
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

from ...model import Component, Gpu, Host, HubAnswer, Schema, Speed, System, Unknown
from ...model.environment import Metadata
from ...model.record import dataclass

Shapes = Mapping[str, tuple[int, ...]]
SILENT = Unknown("not in the recording")


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

    @property
    def identity(self) -> tuple[int, int] | None:
        """What the names of one file have in common; None where the system does not say."""
        return (self.device, self.inode) if self.inode else None


@dataclass(frozen=True)
class Mount:
    """The file system a path lies on. `free` is what an ordinary user may still write, None when it is not known."""

    point: str
    filesystem: str
    read_only: bool
    free: int | None
    source: str = ""


class World:
    """A machine. What it has no answer of its own to is asked of the one `beside` it; else nothing is known of it.

    `variables` is the whole environment, of which only what stands in `system.environment` is recorded; `is_meant`
    when somebody said that the run is for this machine, whatever its paths look like.
    """

    beside: World | None = None
    is_meant = False
    variables: Mapping[str, str]

    @cached_property
    def system(self) -> System:
        raise NotImplementedError

    def now_ns(self) -> int:
        """The clock that file times are compared with."""
        return 2**62 if self.beside is None else self.beside.now_ns()

    def stat(self, path: str) -> Stat | Unknown | None:
        """lstat; None when nothing is there, Unknown when the system would not say."""
        return SILENT if self.beside is None else self.beside.stat(path)

    def names(self, folder: str) -> tuple[str, ...] | Unknown:
        """The names in a folder, sorted."""
        return Unknown(f"{folder}: not in the recording") if self.beside is None else self.beside.names(folder)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
        """Bytes of a file, links followed. Without `length` at most 32 MiB are read."""
        silent = Unknown(f"{path}: not in the recording")
        return silent if self.beside is None else self.beside.read(path, start, length)

    def is_open(self, path: str) -> bool:
        """Whether some process has the file open, as far as this user may see; False where nothing tells."""
        return self.beside is not None and self.beside.is_open(path)

    def digests(self, wanted: Mapping[str, str]) -> Mapping[str, str | Unknown]:
        """The digests of whole files, links followed, of the kind ("sha256", "git-sha1") that `wanted` gives each.

        Written as in HubFile.digest. Unknown for a file that cannot be read or that changed meanwhile.
        """
        return dict.fromkeys(wanted, SILENT) if self.beside is None else self.beside.digests(wanted)

    def refusal(self, folder: str) -> str | Unknown | None:
        """Why files cannot be created in an existing folder ("read-only file system"), None when they can.

        Established without writing: mount flags, effective access rights, immutable flags, space and inodes.
        """
        return None if self.beside is None else self.beside.refusal(folder)

    def mount(self, path: str) -> Mount | Unknown:
        return SILENT if self.beside is None else self.beside.mount(path)

    def speed(self, files: Sequence[str]) -> Speed | Unknown:
        """How fast these files can be read, by reading parts of them that the page cache does not hold."""
        return SILENT if self.beside is None else self.beside.speed(files)

    def landmarks(self) -> tuple[str, ...]:
        """Large files that lie on this machine anyway, to measure a place where nothing of the user's lies yet."""
        return () if self.beside is None else self.beside.landmarks()

    def elsewhere(self, places: Sequence[str]) -> tuple[str, ...]:
        """Those of `places`, relative to the root of any local disk ("hf/hub"), that are folders. No network."""
        return () if self.beside is None else self.beside.elsewhere(places)

    def gpus(self) -> tuple[Gpu, ...] | Unknown:
        return SILENT if self.beside is None else self.beside.gpus()

    def host(self) -> Host | Unknown:
        """The bounds of this user's programs; what of it lies in files of the user is left to `probe_host`."""
        return SILENT if self.beside is None else self.beside.host()

    def skeletons(self, parts: Mapping[str, Component]) -> Mapping[str, Shapes | Unknown]:
        """Name -> shape of all that the installed libraries take from the weight files of these parts.

        Starts a process that imports them: seconds, only for a deep check.
        """
        unknown = Unknown("the libraries of a recorded machine cannot be asked")
        return dict.fromkeys(parts, unknown) if self.beside is None else self.beside.skeletons(parts)

    def schema(self, trainer: str, near: Sequence[str]) -> Schema | Unknown | None:
        """What a checkout of the trainer at, above or just below one of these folders accepts; None without one.

        Mined from its source, of which nothing is run; Unknown when the checkout that the user named is no such.
        """
        return None if self.beside is None else self.beside.schema(trainer, near)

    def search_path(self) -> tuple[str, ...]:
        """The folders that this Python imports packages from, the first that has one counts; () where unknown."""
        return () if self.beside is None else self.beside.search_path()

    def packages(self) -> dict[str, str]:
        """The packages of this Python, by their metadata: plain name to version. Nothing is imported."""
        return {} if self.beside is None else self.beside.packages()

    def metadata(self, folders: Sequence[str]) -> Mapping[str, Metadata]:
        """What the packages in these folders say of themselves, by their plain names."""
        return {} if self.beside is None else self.beside.metadata(folders)

    def ask_hub(self, python: str, wanted: Mapping[str, str]) -> Mapping[str, HubAnswer]:
        """What the hub says of a file of each repository, asked by the client of `python`; {} unless that is wanted.

        The only question of a check that leaves the machine. Starts a process; at most a quarter of a minute each.
        """
        return {} if self.beside is None else self.beside.ask_hub(python, wanted)

    @cached_property
    def flavour(self) -> ModuleType:
        return ntpath if self.system.os == "windows" else posixpath

    def absolute(self, path: str) -> str:
        """`path` as the trainer would open it: relative to the working directory, `~` and variables unexpanded."""
        return self.system.absolute(path)

    def join(self, *parts: str) -> str:
        return str(self.flavour.join(*parts))

    def below(self, folder: str, name: str) -> str:
        """The path of a name that is written with /."""
        return self.join(folder, *name.split("/"))

    def parent(self, path: str) -> str:
        return str(self.flavour.dirname(path))

    def name(self, path: str) -> str:
        return str(self.flavour.basename(path))

    def target(self, link: str, text: str | None) -> str:
        """Where a symbolic link leads that reads `text`."""
        return str(self.flavour.normpath(self.join(self.parent(link), text or "")))

    def resolve(self, path: str, hops: int = 40) -> tuple[str, Stat | Unknown | None]:
        """Follow symbolic links of the last component (a hub snapshot's), at most `hops` of them.

        Returns the final path with its stat; None when a link dangles, Unknown for a loop.
        """
        for _ in range(hops):
            stat = self.stat(path)
            if not isinstance(stat, Stat) or stat.kind != "link":
                return path, stat
            path = self.target(path, stat.target)
        return path, Unknown("a loop of symbolic links")

    def walk(self, folder: str, deepest: int) -> Iterator[tuple[str, Stat | Unknown]]:
        """What lies below a folder, by names with /. No link is followed; what cannot be listed is Unknown."""
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            names = self.names(self.below(folder, inside) if inside else folder)
            if isinstance(names, Unknown):
                yield inside, names
                continue
            for name in [f"{inside}/{base}" if inside else base for base in names]:
                stat = self.stat(self.below(folder, name))
                if stat is not None:
                    yield name, stat
                if isinstance(stat, Stat) and stat.kind == "folder" and name.count("/") < deepest:
                    waiting.append(name)

    def is_folder(self, path: str) -> bool:
        """Whether a folder, and no link to one, lies there."""
        stat = self.stat(path)
        return isinstance(stat, Stat) and stat.kind == "folder"

    def json(self, path: str, most: int) -> Any:
        """The value of a JSON text of at most so many bytes; None where there is none."""
        text = self.read(path, 0, most)
        try:
            return json.loads(text) if isinstance(text, bytes) else None
        except (ValueError, RecursionError):
            return None

    def names_in(self, folder: str) -> tuple[str, ...]:
        """The names in a folder, none where it cannot be listed."""
        names = self.names(folder)
        return () if isinstance(names, Unknown) else names
