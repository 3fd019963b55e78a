"""The Python that a run will use, what is installed in it, and what the trainer asks of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from .record import dataclass, field
from .run import Where

Version = tuple[int, ...]


def release(version: str) -> Version:
    """The numbers at the start of a version: (2, 13, 0) of "2.13.0+cu130", (0, 36, 0) of "0.36.0.dev0"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


def plain(name: str) -> str:
    """A package's name in the one spelling that all its spellings share (PyPA: names and normalization), with _."""
    return re.sub(r"[-_.]+", "_", name).lower()


@dataclass(frozen=True)
class Environment:
    """`python` is the interpreter; `versions` are its packages by name, with _ for -, as their metadata has them.

    torch has the version of its build ("2.13.0+cu130"), which the metadata of PyPI's wheels leaves out.
    `release` is that of the interpreter ("3.12"), "" where it is not known; `folders` are those that its packages
    lie in, the first that has one counts; `base_gone` is the interpreter that a virtual environment was made of and
    that is no longer there. `found_by` says why it is this one, and `root` is the folder of a virtual environment, ""
    where it is none; `own` is that of `folders` which is meant to hold all of its packages, "" for a system's Python,
    and `filesystem` is what that lies on. `past` is a start script of the checkout that takes the `python` of PATH in
    place of this one: `on_path`, "" where it is not known, or a stub that only opens the Microsoft Store (`is_stub`).
    """

    python: str
    versions: Mapping[str, str]
    release: str = ""
    folders: tuple[str, ...] = ()
    base_gone: str = ""
    found_by: str = ""
    root: str = ""
    own: str = ""
    filesystem: str = ""
    past: str = ""
    on_path: str = ""
    is_stub: bool = False

    def has(self, name: str) -> bool:
        return name in self.versions

    def is_before(self, place: str) -> bool:
        """Whether what lies there is imported whatever is installed into this environment."""
        front = self.folders[: self.folders.index(self.own)] if self.own in self.folders else ()
        return any(place.startswith(folder) for folder in front)

    @property
    def cuda(self) -> Version | None:
        """The CUDA version of an official wheel of torch, () for one without; None for all others."""
        local = re.fullmatch(r"[\d.]+\+(cpu|cu(\d\d)(\d))", self.versions.get("torch", ""))
        if local is None:
            return None
        return () if local.group(1) == "cpu" else (int(local.group(2)), int(local.group(3)))


@dataclass(frozen=True)
class Metadata:
    """What an installed package says of itself, in the folder that pip writes.

    `requires` are its Requires-Dist lines, without those of extras; `commit` and `url` are where it came from, where
    that was no index. `absent` are files that it was installed with and that are not there, or not as long: of
    those that were looked for, its first modules and, of the largest packages, their libraries. `libraries` are the
    names of those that say in them for which Python, CUDA or card of AMD they were built. `tags` are those of the
    wheel that it came from ("cp312-cp312-manylinux_2_28_x86_64"), where it was built for a platform.
    """

    name: str
    version: str
    folder: str
    requires: tuple[str, ...] = ()
    url: str = ""
    commit: str = ""
    absent: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requirement:
    """What somebody asks of an environment: a package with versions ("==1.2", "" for any), under a marker.

    `url` and `commit` are those of one that comes from a repository. `by` is who asks: a file, or a package.
    """

    name: str
    versions: str = ""
    marker: str = ""
    url: str = ""
    commit: str = ""
    by: str = ""
    where: Where | None = None

    @property
    def text(self) -> str:
        """As it is shown: the package with its versions, or its commit."""
        return f"{self.name} at commit {self.commit[:10]}" if self.commit else f"{self.name}{self.versions}"

    @property
    def line(self) -> str:
        """As a requirements file has it."""
        versions = f" @ git+{self.url}@{self.commit}" if self.commit else self.versions
        return f"{self.name}{versions}" + (f" ; {self.marker}" if self.marker else "")


@dataclass(frozen=True)
class Unmet:
    """A requirement that an environment does not meet; `installed` is "" where the package is missing.

    `imported` is where the trainer imports at its start what ends by it: a package that is missing, or one whose
    import refuses the version that is there. None where nothing does, or nobody knows.
    """

    requirement: Requirement
    installed: str
    kind: Literal["missing", "version", "source"]
    imported: Where | None = None


@dataclass(frozen=True)
class Hidden:
    """A package of an environment that another one of that name, in a folder outside of it, stands in front of."""

    name: str
    version: str
    by: str
    folder: str


@dataclass(frozen=True)
class Installed:
    """An environment held against what is asked of it.

    `own` is what the trainer's checkout asks for and the environment lacks, of `asked` in all; where there is no
    checkout, what its commit `shipped` ("commit 27a03a91f2 of 2026-08-21") asked for. `between` is
    what installed packages ask of each other. `unread` are requirements of the checkout that nobody understands.
    `broken` are the packages that are installed in part, `left_over` what interrupted installs left, `metadata` that
    of each package, by its name. `hidden` are those in whose place others are imported. `without_wheel` is what has
    no wheel for this Python, of which `nearest` is the release that has all ("3.12"). `requirements` are those of the
    checkout that count on this machine.
    """

    own: tuple[Unmet, ...] = ()
    asked: int = 0
    shipped: str = ""
    between: tuple[Unmet, ...] = ()
    unread: tuple[str, ...] = ()
    broken: tuple[Metadata, ...] = ()
    left_over: tuple[str, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    without_wheel: tuple[Requirement, ...] = ()
    nearest: str = ""
    requirements: tuple[Requirement, ...] = ()
    metadata: Mapping[str, Metadata] = field(default_factory=dict)
