"""The Python files of a checkout: read and parsed on demand, with a note of everything that was looked at."""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LARGEST = 2 << 20
MOST_FILES = 5000
_NEXT = re.compile(rb"^[A-Za-z_@#]", re.M)
_METHOD = re.compile(rb"^(?=    (?:async )?def )", re.M)
_HEAD = re.compile(rb"    (?:async )?def \w+\([^()#\"']*\)(?: *-> *[\w.\[\], ]+)?:(?=\s*\n)")
THIN = 20_000
_SKIPPED = frozenset((".git", "__pycache__", "node_modules", "venv", ".venv", "env", "tests"))


class Sources:
    """One checkout. `stamps` are (size, modification time) of every file and folder that an answer rests on.

    `unparsed` are the files that this Python cannot parse, with the reason. With `keep`, only those methods are
    parsed in which the pattern is found: a trainer's loop is thousands of lines, its keys are in a few.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keep: re.Pattern[bytes] | None = None
        self.stamps: dict[str, tuple[int, int]] = {}
        self.unparsed: dict[str, str] = {}
        self._trees: dict[str, ast.Module | None] = {}
        self._texts: dict[str, bytes | None] = {}

    def text(self, path: str) -> bytes | None:
        """The bytes of a file by its path below the root; None where there is none, or it is no source file."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> bytes | None:
        file = self.root / path
        try:
            found = os.stat(file)
            self.stamps[path] = found.st_size, found.st_mtime_ns
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                return None
            with open(file, "rb") as handle:
                return handle.read(LARGEST)
        except (OSError, ValueError):
            self.stamps[path] = -1, -1
            return None

    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a file, None where there is none or it does not parse."""
        if path not in self._trees:
            data = self.text(path)
            self._trees[path] = None if data is None else self._parse(path, data)
        return self._trees[path]

    def _parse(self, path: str, data: bytes) -> ast.Module | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd escape in their source is no news to our user
                with suppress(SyntaxError, ValueError):
                    return ast.parse(self._thinned(data))
                return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.unparsed[path] = str(error.args[0]) if error.args else type(error).__name__
            return None

    def _thinned(self, data: bytes) -> bytes:
        """The source with the bodies of methods without interest blanked, line by line."""
        keep = self.keep
        if keep is None or len(data) < THIN:
            return data
        parts = _METHOD.split(data)
        for number, part in enumerate(parts):
            head = _HEAD.match(part)
            if head is not None and not keep.search(part):
                inside = part[head.end() :]
                after = _NEXT.search(inside)
                end = after.start() if after else len(inside)
                parts[number] = head.group() + b" pass" + b"\n" * inside.count(b"\n", 0, end) + inside[end:]
        return b"".join(parts)

    def statements(self, path: str, start: bytes) -> Iterator[ast.stmt]:
        """The top-level statements whose first line begins as the pattern `start` says; only they are parsed.

        A statement ends before the next line that begins with a letter; where that is wrong, the file is parsed.
        """
        data = self.text(path) or b""
        for found in re.finditer(rb"^(?:" + start + rb")", data, re.M):
            after = _NEXT.search(data, found.end())
            line = data.count(b"\n", 0, found.start())
            try:
                yield from ast.parse(data[found.start() : after.start() if after else len(data)]).body
            except (SyntaxError, ValueError, RecursionError):
                tree = self.tree(path)
                yield from (node for node in (tree.body if tree else ()) if node.lineno == line + 1)

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

    def defined(self, path: str, name: str, hops: int = 8) -> tuple[str, ast.ClassDef] | None:
        """Where a class that a module names is defined: (file, class), imports followed inside the checkout."""
        tree = self.tree(path)
        if tree is None or hops == 0:
            return None
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return path, node
            found = self.through(path, node, name, hops) if isinstance(node, ast.ImportFrom) else None
            if found is not None:
                return found
        return None

    def through(self, path: str, node: ast.ImportFrom, name: str, hops: int = 8) -> tuple[str, ast.ClassDef] | None:
        """The class that an import in `path` gives this name."""
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                for module in self.modules(path, node, alias.name):
                    found = self.defined(module, alias.name, hops - 1)
                    if found is not None:
                        return found
        return None

    def modules(self, path: str, node: ast.ImportFrom, name: str) -> Iterator[str]:
        """The files that an import may mean, the likeliest first; not each need exist."""
        base = "/".join(path.split("/")[: -node.level]) if node.level else ""
        dotted = (node.module or "").replace(".", "/")
        at = "/".join(part for part in (base, dotted) if part)
        yield from (f"{at}.py", f"{at}/__init__.py", f"{at}/{name}.py") if at else (f"{name}.py",)


def commit_of(root: Path) -> str:
    """The commit that is checked out, read from the .git folder; "" where it cannot be known."""
    try:
        git = root / ".git"
        if git.is_file():  # a worktree or a submodule names its folder
            git = root / git.read_text("utf-8").partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text("ascii").strip()
        if not head.startswith("ref:"):
            return _hex(head)
        name = head[4:].strip()
        common = git / (git / "commondir").read_text("utf-8").strip() if (git / "commondir").is_file() else git
        for folder in (git, common):
            if (folder / name).is_file():
                return _hex((folder / name).read_text("ascii").strip())
        for line in (common / "packed-refs").read_text("utf-8").splitlines():
            digest, _, reference = line.partition(" ")
            if reference == name:
                return _hex(digest)
    except (OSError, ValueError):
        pass
    return ""


def _hex(text: str) -> str:
    return text if len(text) in (40, 64) and set(text) <= set("0123456789abcdef") else ""
