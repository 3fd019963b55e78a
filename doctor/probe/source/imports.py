"""Where a program imports a module when it starts: through its own modules, by statements that always run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...model import Where
from ..world import World

# A statement at the very left: within a function, a condition or a try nobody knows whether it runs, or ends the run.
_IMPORT = re.compile(r"^(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]+)|import[ \t]+([^\n#;]+))", re.M)
_TEXT = re.compile(r'("""|\'\'\')[\s\S]*?\1')
MOST = 2000  # modules that are followed


def first_imports(world: World, root: str, entries: Sequence[str], wanted: Mapping[str, str]) -> dict[str, Where]:
    """The names behind the `wanted` modules, each with the first place that imports it at the program's start.

    `entries` are the files that start it, by their paths below `root`, where its own modules lie.
    """
    found: dict[str, Where] = {}
    waiting, seen = list(entries), set(entries)
    listed: dict[str, frozenset[str]] = {}

    def is_there(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if folder not in listed:
            listed[folder] = frozenset(world.names_in(world.below(root, folder) if folder else root))
        return name in listed[folder]

    while waiting and len(seen) < MOST:
        path = waiting.pop(0)
        text = world.read(world.below(root, path), 0, 2 << 20)
        if not isinstance(text, bytes):
            continue
        source = _TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text.decode("utf-8", "replace"))
        for module, line in _imported(source, path):
            name = next((wanted[one] for one in _upwards(module) if one in wanted), None)
            if name is not None:
                found.setdefault(name, Where(world.below(root, path), line))
            for own in _files_of(module):
                if own not in seen and is_there(own):
                    seen.add(own)
                    waiting.append(own)
    return found


def _imported(source: str, path: str) -> Iterator[tuple[str, int]]:
    """The modules, or names in them, that a file imports at its left edge, each with its line."""
    package = path.split("/")[:-1]
    for found in _IMPORT.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        if found[3]:
            for part in found[3].split(","):
                if words := part.split():
                    yield words[0], line
            continue
        level = len(found[1]) - len(found[1].lstrip("."))
        base = (
            [*package[: len(package) - level + 1], *filter(None, found[1].lstrip(".").split("."))]
            if level
            else found[1].split(".")
        )
        yield ".".join(base), line
        for part in found[2].strip("()").split(","):
            if words := re.sub(r"#.*", "", part).split():
                yield ".".join([*base, words[0]]), line


def _upwards(module: str) -> Iterator[str]:
    """A module and those that it lies in: all of them are imported."""
    parts = module.split(".")
    yield from (".".join(parts[:length]) for length in range(len(parts), 0, -1))


def _files_of(module: str) -> Iterator[str]:
    for one in _upwards(module):
        path = one.replace(".", "/")
        for folder in ("", "src/"):  # of a checkout whose modules lie in src, as setuptools and hatchling find them
            yield f"{folder}{path}.py"
            yield f"{folder}{path}/__init__.py"
