"""The Python files of a checkout: read and parsed on demand, with a note of everything that was looked at."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..configs.python_tree import Unparsable, parsed
from .constant_folding import constants

LARGEST = 2 << 20
MOST_FILES = 5000
_SKIPPED = frozenset((".git", "__pycache__", "node_modules", "venv", ".venv", "env", "tests"))


class Sources:
    """One checkout. `stamps` are (size, modification time) of every file and folder that an answer rests on.

    `unparsed` are the files that this Python cannot parse, with the reason.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stamps: dict[str, tuple[int, int]] = {}
        self.unparsed: dict[str, str] = {}
        self._texts: dict[str, bytes] = {}
        self._bodies: dict[str, list[ast.stmt]] = {}
        self._constants: dict[str, dict[str, Any]] = {}

    def text(self, path: str) -> bytes:
        """The bytes of a file by its path below the root; none where there is none, or it is no source file."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> bytes:
        file = self.root / path
        try:
            found = os.stat(file)
            self.stamps[path] = found.st_size, found.st_mtime_ns
            if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                with open(file, "rb") as handle:
                    return handle.read(LARGEST)
        except (OSError, ValueError):
            self.stamps[path] = -1, -1
        return b""

    def body(self, path: str) -> list[ast.stmt]:
        """The statements of a file, none where there is none or it does not parse."""
        if path not in self._bodies:
            self._bodies[path] = []
            try:
                self._bodies[path] = parsed(self.text(path)).body
            except Unparsable as error:
                self.unparsed[path] = error.why
        return self._bodies[path]

    def constants(self, path: str) -> dict[str, Any]:
        """The names that a file binds to literals."""
        if path not in self._constants:
            self._constants[path] = constants(self.body(path))
        return self._constants[path]

    def files(self, folder: str, *, deep: bool = True) -> Iterator[str]:
        """Every .py file in a folder and, if `deep`, below it, sorted, by its path below the root."""
        seen = 0
        for here, folders, names in os.walk(self.root / folder):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED) if deep else []
            at = Path(here).relative_to(self.root).as_posix()
            with suppress(OSError):
                self.stamps[at + "/"] = 0, os.stat(here).st_mtime_ns
            for name in sorted(names):
                seen += 1
                if seen > MOST_FILES:
                    return
                if name.endswith(".py"):
                    yield f"{at}/{name}" if at != "." else name

    def defined(self, path: str, name: str, hops: int = 8) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        """The class or function that a file names, with the file it stands in; imports in the checkout followed."""
        for node in self.body(path):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return path, node
            for original, module in self.imported(path, node, name) if hops else ():
                found = self.defined(module, original, hops - 1)
                if found is not None:
                    return found
        return None

    def imported(self, path: str, node: ast.stmt, name: str) -> Iterator[tuple[str, str]]:
        """What a statement imports as `name`: its own name, and the files that may hold it or be it, likeliest first.

        Not each of the files need exist. Where the package lies below src/, it is looked for there, too.
        """
        if not isinstance(node, ast.ImportFrom | ast.Import):
            return
        top = "src/" if path.startswith("src/") else ""
        for alias in node.names:
            if (alias.asname or alias.name) != name:
                continue
            places = [alias.name.replace(".", "/") + ".py"]
            if isinstance(node, ast.ImportFrom):
                base = "/".join(path.split("/")[: -node.level]) if node.level else ""
                at = "/".join(part for part in (base, (node.module or "").replace(".", "/")) if part)
                places = [f"{at}.py", f"{at}/__init__.py", f"{at}/{alias.name}.py"] if at else places
            for place in places:
                yield from ((alias.name, where) for where in dict.fromkeys((top + place, place)))
