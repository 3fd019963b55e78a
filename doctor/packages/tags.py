"""Whether an installed wheel can run here, by the tags that its WHEEL file names.

Source: PyPA's "Platform compatibility tags". `packaging.tags` says the same, but of the Python that runs it alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from ..model import System
from ..model.environment import release
from ..model.record import dataclass

_OLD = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}  # PEP 513, 571, 599
_OF_LINUX = re.compile(r"(?:(manylinux1|manylinux20\d\d)|(manylinux|musllinux)_(\d+)_(\d+)|linux)_(\w+)")
_OF_CPYTHON = re.compile(r"cp3(\d+)")
_SYSTEMS = {"win32": "windows", "win_amd64": "windows", "win_arm64": "windows", "macosx": "darwin"}
_PROCESSORS = {"x86_64", "aarch64"}  # a wheel for one of them never runs on the other; of others nothing is said


@dataclass(frozen=True)
class Misfit:
    """What a wheel was built for in place of what is here: another Python, another system, or a newer C library."""

    kind: Literal["python", "platform", "libc"]
    built: str
    here: str


def misfit(tags: Sequence[str], python: str, system: System) -> Misfit | None:
    """Why no tag of a wheel ("cp312-cp312-manylinux_2_28_x86_64") fits a Python ("3.12") on a system.

    None where one fits, and where nobody can tell.
    """
    found = [_of_tag(tag, release(python), system) for tag in tags]
    return found[0] if found and None not in found else None


def _of_tag(tag: str, python: tuple[int, ...], system: System) -> Misfit | None:
    parts = tag.split("-")
    if len(parts) != 3:
        return None
    interpreters, abi, platforms = parts[0].split("."), parts[1], parts[2].split(".")
    others = [_of_interpreter(one, abi, python) for one in interpreters]
    if None not in others:
        return others[0]
    others = [_of_platform(one, system) for one in platforms]
    return None if None in others else others[0]


def _of_interpreter(interpreter: str, abi: str, python: tuple[int, ...]) -> Misfit | None:
    found = _OF_CPYTHON.fullmatch(interpreter)
    if found is None or len(python) < 2 or python[0] != 3:
        return None
    minor = int(found[1])
    fits = python[1] == minor if abi.startswith("cp") else python[1] >= minor
    return None if fits else Misfit("python", f"Python 3.{minor}", f"Python 3.{python[1]}")


def _of_platform(platform: str, system: System) -> Misfit | None:
    linux = _OF_LINUX.fullmatch(platform)
    other = next((os for name, os in _SYSTEMS.items() if platform.startswith(name)), "linux" if linux else "")
    if other and other != system.os:
        return Misfit("platform", platform, system.os)
    if linux is None:
        arm_on_intel = platform == "win_arm64" and system.machine.upper() == "AMD64"
        return Misfit("platform", platform, system.machine) if arm_on_intel else None
    if {linux[5], system.machine} == _PROCESSORS:
        return Misfit("platform", platform, system.machine)
    needed = _OLD.get(linux[1] or "") or ((int(linux[3]), int(linux[4])) if linux[2] else None)
    library, _, version = system.libc.partition(" ")
    if needed is None or not library:
        return None
    of_wheel = "musl" if linux[2] == "musllinux" else "glibc"
    if of_wheel != library or (of_wheel == "glibc" and release(version) < needed):
        return Misfit("libc", platform, system.libc)
    return None
