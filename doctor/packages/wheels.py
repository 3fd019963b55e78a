"""For which releases of Python PyPI has wheels of what trainers ask for; without one pip builds from source.

Read off the names of PyPI's files for Linux (x86_64, aarch64), Windows and macOS on 2026-11-22. Pure wheels and those
of the stable ABI fit every release and do not stand here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..model.environment import Requirement
from .versions import meets

Minors = tuple[int, int]  # the first and the last 3.x

_WHEELS: Mapping[str, Mapping[str, Minors]] = {
    "av": {"14.0.1": (9, 13), "16.0.1": (10, 14)},
    "matplotlib": {"3.10.1": (10, 13)},
    "numpy": {"1.26.4": (9, 12)},
    "safetensors": {"0.4.5": (7, 13)},
    "scipy": {"1.12.0": (9, 12), "1.16.0": (11, 13)},
    "sentencepiece": {"0.2.1": (9, 14)},
    "torch": {
        **dict.fromkeys(("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.1.2"), (8, 11)),
        **dict.fromkeys(("2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1"), (8, 12)),
        **dict.fromkeys(("2.5.0", "2.5.1"), (9, 12)),
        **dict.fromkeys(("2.6.0", "2.7.0", "2.7.1", "2.8.0"), (9, 13)),
        **dict.fromkeys(("2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1"), (10, 14)),
        **dict.fromkeys(("2.13.0", "2.14.0", "2.14.1"), (10, 14)),
        "2.15.0": (11, 15),
    },
    "torchcodec": {"0.9.1": (10, 14)},
}
_ON_WINDOWS: Mapping[str, Mapping[str, Minors]] = {"safetensors": {"0.4.5": (7, 12)}}
_RELEASES = range(9, 16)


def without_wheel(asked: Sequence[Requirement], release: str, system: str) -> tuple[Requirement, ...]:
    """What of it has no wheel for a release of Python ("3.12") on an operating system."""
    minor = _minor(release)
    return tuple(one for one in asked if minor and one.name != "python" and not _has(one, minor, system))


def nearest(asked: Sequence[Requirement], release: str, system: str) -> str:
    """The release of Python nearest to this one that all of it has wheels for, as far as is known; "" for none."""
    here = _minor(release)
    fits = [minor for minor in _RELEASES if all(_has(one, minor, system) for one in asked)]
    return f"3.{min(fits, key=lambda minor: abs(minor - here))}" if fits and here else ""


def minors_of_torch(version: str) -> Minors:
    """The first and the last 3.x that a version of torch has wheels for."""
    return _WHEELS["torch"][version]


def _minor(release: str) -> int:
    parts = release.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[0] == "3" and parts[1].isdigit() else 0


def _has(one: Requirement, minor: int, system: str) -> bool:
    if one.name == "python":
        return meets(f"3.{minor}", one.versions) is not False
    known = dict(_ranges(one, system))
    return not known or any(first <= minor <= last for first, last in known.values())


def _ranges(one: Requirement, system: str) -> Iterator[tuple[str, Minors]]:
    """The releases that each version that would do has wheels for; nothing where a version is free or unknown."""
    table = _WHEELS.get(one.name, {})
    if not one.versions.startswith("==") and one.name != "torch":
        return  # another version, which is not in the table, may do
    for version, minors in table.items():
        if meets(version, one.versions):
            special = _ON_WINDOWS.get(one.name, {}) if system == "windows" else {}
            yield version, special.get(version, minors)
