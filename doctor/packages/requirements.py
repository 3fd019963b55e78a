"""Requirements as pip reads them: lines of a file, a table of pyproject.toml, an entry of a package's metadata.

Source: pip's documentation, "Requirements File Format"; PEP 508 for what a line may hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model import Where
from ..model.environment import Requirement, plain
from ..model.record import dataclass

# name, extras, then versions (in brackets or not), then a marker
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?:@\s*(?P<url>\S+)|\(?\s*(?P<versions>(?:(?:===?|~=|!=|<=?|>=?)\s*[\w.*+!-]+\s*,?\s*)*)\)?)\s*(?:;(?P<marker>.+))?"
)
_COMMIT = re.compile(
    r"(?:git|hg|bzr|svn)\+(?P<url>[^@#\s]+(?:@[^@/#\s]+(?=/)[^@#\s]*)?)(?:@(?P<ref>[^#\s]+))?(?:#(?P<rest>\S*))?"
)
_EGG = re.compile(r"(?:^|&)egg=([\w.-]+)")
_OWN_OPTIONS = re.compile(r"\s+--?(?:hash|global-option|config-settings?|C)\b.*$")
_FILE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s*=\s*|\s*)(?P<name>\S.*)")
_WHEEL = re.compile(r"([A-Za-z0-9._]+)-(\d[\w.+!]*)(?:-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl")


@dataclass(frozen=True)
class Asked:
    """What one file asks for. `others` are the files that it names, with whether these only bound versions."""

    requirements: tuple[Requirement, ...]
    others: tuple[tuple[str, bool], ...] = ()
    unread: tuple[str, ...] = ()


def of_lines(text: str, path: str) -> Asked:
    """The requirements of a requirements file. A path or an archive that names no package is passed over."""
    found: list[Requirement] = []
    others: list[tuple[str, bool]] = []
    unread: list[str] = []
    for number, line in _logical(text):
        if named := _FILE.fullmatch(line):
            others.append((named["name"].strip(), line.startswith(("-c", "--c"))))
        elif line.startswith(("-e", "--editable")):
            line = re.sub(r"^(-e|--editable)[=\s]*", "", line)
            found += [one] if (one := _from_repository(line)) else []
        elif not line.startswith("-"):
            one = requirement(_OWN_OPTIONS.sub("", line))
            if one is not None:
                found.append(one)
            elif not re.match(r"[./~]|[A-Za-z]:[\\/]|file:|https?:", line):
                unread.append(f"{path}:{number}: {line}")
                continue
            else:
                continue
        else:
            continue
        if found and found[-1].where is None:
            found[-1] = _placed(found[-1], path, number)
    return Asked(tuple(found), tuple(others), tuple(unread))


def _placed(one: Requirement, path: str, number: int) -> Requirement:
    return Requirement(one.name, one.versions, one.marker, one.url, one.commit, path, Where(path, number))


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, as pip joins and cuts them: a backslash goes on, ` #` begins a comment."""
    begun, first = "", 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        first = first if begun else number
        if line.endswith("\\") and not re.match(r"\s*#", line):
            begun += line[:-1]
            continue
        whole = re.sub(r"(^|\s+)#.*$", "", begun + line).strip()
        begun = ""
        if whole:
            yield first, whole
    if begun.strip():
        yield first, begun.strip()


def of_project(table: Mapping[str, Any], path: str, text: str) -> list[Asked]:
    """The dependencies and the Python that the project table of a pyproject.toml, or a setup.py, names.

    Extras that bring torch are for one kind of machine each (cuda, rocm): there is one answer for each of these.
    """
    lines = table.get("dependencies")
    python = table.get("requires-python")
    base = [*([f"python {python}"] if isinstance(python, str) else []), *(lines if isinstance(lines, list) else ())]
    extras = table.get("optional-dependencies")
    kinds = [extra for extra in (extras.values() if isinstance(extras, Mapping) else ()) if _brings_torch(extra)]
    return [of_texts([*base, *kind], path, text) for kind in kinds or [[]]]


def _brings_torch(lines: object) -> bool:
    return isinstance(lines, list) and any(re.match(r"torch\b(?!-)", line) for line in lines if isinstance(line, str))


def of_texts(lines: Sequence[object], path: str, text: str) -> Asked:
    """The requirements of a list, each placed where the text of its file has it first."""
    found: list[Requirement] = []
    unread: list[str] = []
    for line in lines:
        one = requirement(line) if isinstance(line, str) else None
        if one is None:
            unread.append(f"{path}: {line}")
            continue
        place = text.find(str(line).removeprefix("python "))
        found.append(_placed(one, path, text.count("\n", 0, place) + 1 if place >= 0 else 1))
    return Asked(tuple(found), unread=tuple(unread))


def requirement(line: str) -> Requirement | None:
    """One requirement, None where the line is none."""
    if one := _from_repository(line):
        return one
    if wheel := _WHEEL.search(line.partition("#")[0]):
        return Requirement(plain(wheel[1]), f"=={wheel[2]}")
    found = _REQUIREMENT.fullmatch(line.strip())
    if found is None:
        return None
    name, marker = plain(found["name"]), (found["marker"] or "").strip()
    if found["url"]:
        inner = _from_repository(found["url"])
        return Requirement(name, "", marker, inner.url if inner else found["url"], inner.commit if inner else "")
    return Requirement(name, re.sub(r"\s+", "", found["versions"]).rstrip(","), marker)


def _from_repository(text: str) -> Requirement | None:
    """One that comes from a repository: named by #egg=, else as its folder there."""
    found = _COMMIT.match(text.strip())
    if found is None:
        return None
    url = found["url"].rstrip("/")
    egg = _EGG.search(found["rest"] or "")
    name = egg[1] if egg else url.rpartition("/")[2].removesuffix(".git")
    ref = found["ref"] or ""
    return Requirement(plain(name), url=url, commit=ref if re.fullmatch(r"[0-9a-f]{40}", ref) else "")
