"""Whether a version is among those that are asked for, and whether a marker holds in an environment.

`packaging` decides; it takes longer to import than a check has, so plain cases are answered without it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

_CLAUSE = re.compile(r"(==|!=|>=|<=|>|<)(\d+(?:\.\d+)*)")
_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_COMPARE: Mapping[str, Callable[[list[int], list[int]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def meets(version: str, asked: str) -> bool | None:
    """Whether a version is one of `asked` (">=1.2,<2"; "" is any). None where one of the two is no such thing."""
    clauses = [_CLAUSE.fullmatch(clause) for clause in asked.split(",")] if asked else []
    public = version.partition("+")[0]  # a build's own label ("+cu128") counts only where it is asked for
    if _PLAIN.fullmatch(public) and all(clauses):
        return all(_COMPARE[found[1]](*_alike(public, found[2])) for found in clauses if found)
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(asked).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def _alike(one: str, other: str) -> tuple[list[int], list[int]]:
    """The numbers of two versions, as many of each: 1.2 is 1.2.0."""
    first, second = ([int(part) for part in text.split(".")] for text in (one, other))
    length = max(len(first), len(second))
    return first + [0] * (length - len(first)), second + [0] * (length - len(second))


def holds(marker: str, variables: Mapping[str, str]) -> bool | None:
    """Whether a marker (PEP 508) holds where the variables are these; "" always does. None for one that is none."""
    if not marker:
        return True
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    try:
        return Marker(marker).evaluate({"extra": "", **variables})
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName):
        return None


def variables(system: str, machine: str, python: str) -> dict[str, str]:
    """What a marker may ask, for an operating system ("linux", "windows", "darwin") and a Python such as "3.12"."""
    names = {"linux": ("linux", "Linux", "posix"), "darwin": ("darwin", "Darwin", "posix")}
    platform, long, os_name = names.get(system, ("win32", "Windows", "nt"))
    whole = python if python.count(".") > 1 else f"{python}.0"
    return {
        "sys_platform": platform,
        "platform_system": long,
        "os_name": os_name,
        "platform_machine": machine,
        "python_version": ".".join(whole.split(".")[:2]),
        "python_full_version": whole,
        "implementation_name": "cpython",
        "implementation_version": whole,
        "platform_python_implementation": "CPython",
    }
