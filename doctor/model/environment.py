"""The Python that a run will use, and what is installed in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .record import dataclass

Version = tuple[int, ...]


def release(version: str) -> Version:
    """The numbers at the start of a version: (2, 13, 0) of "2.13.0+cu130", (0, 36, 0) of "0.36.0.dev0"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


@dataclass(frozen=True)
class Environment:
    """`python` is the interpreter; `versions` are its packages by name, with _ for -, as their metadata has them.

    torch has the version of its build ("2.13.0+cu130"), which the metadata of PyPI's wheels leaves out.
    """

    python: str
    versions: Mapping[str, str]

    def has(self, name: str) -> bool:
        return name in self.versions

    @property
    def cuda(self) -> Version | None:
        """The CUDA version of an official wheel of torch, () for one without; None for all others."""
        local = re.fullmatch(r"[\d.]+\+(cpu|cu(\d\d)(\d))", self.versions.get("torch", ""))
        if local is None:
            return None
        return () if local.group(1) == "cpu" else (int(local.group(2)), int(local.group(3)))
