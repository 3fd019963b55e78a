"""What a trainer's checkout asks for: one answer for each kind of machine that it has a list for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .requirements import Asked, of_lines, of_project

DEEPEST = 5  # files of requirements that name each other
Read = Callable[[str], str]  # the text of a file by its path below the checkout, "" where there is none


def sets_of(read: Read, files: Sequence[str]) -> Iterator[Asked]:
    """What each of these files asks for. The places of requirements have paths below the checkout."""
    for name in files:
        yield from _of_project(read, name) if name.endswith(".toml") else [_of_file(read, name, 0)]


def _of_project(read: Read, path: str) -> list[Asked]:
    """What a pyproject.toml asks for; where it leaves that to setup.py, what that does."""
    text = read(path)
    table = _toml(text).get("project")
    if isinstance(table, Mapping) and "dependencies" in table.get("dynamic", ()):
        from .setup_script import declared

        path = "setup.py"
        text = read(path)
        table = declared(text)
    return of_project(table, path, text) if isinstance(table, Mapping) else []


def _toml(text: str) -> Mapping[str, Any]:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text).unwrap()
    except TOMLKitError:
        return {}


def _of_file(read: Read, path: str, depth: int) -> Asked:
    """What a file asks for, with the files that it names; those that only bound versions are taken as bounds."""
    asked = of_lines(read(path), path)
    whole = list(asked.requirements)
    unread = list(asked.unread)
    for name, bounds in asked.others if depth < DEEPEST else ():
        other = _of_file(read, re.sub(r"[^/]*$", "", path) + name, depth + 1)
        known = {one.name for one in whole}
        whole += [one for one in other.requirements if not bounds or one.name in known]
        unread += other.unread
    return Asked(tuple(whole), unread=tuple(unread))
