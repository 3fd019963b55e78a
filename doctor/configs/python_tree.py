"""Python source as a syntax tree with places: character offsets, lines, and names with their imports followed."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ..model import Where
from .text import Lines

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Unparsable(Exception):
    """Source that this Python cannot parse, and `why`; `line` and `column` from 1, None where they are not known."""

    def __init__(self, why: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(f"Python {'.'.join(map(str, sys.version_info[:2]))} cannot parse it: {why}")
        self.why = why
        self.line = line
        self.column = column


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a source text. Raises Unparsable, whatever is the matter with it."""
    source = source.removeprefix("\ufeff") if isinstance(source, str) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in the source is no news to our user
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        place = (error.lineno, error.offset) if isinstance(error, SyntaxError) else (None, None)
        raise Unparsable(what, *place) from None


class Source:
    """A parsed text and the places of its nodes."""

    def __init__(self, path: str, text: str) -> None:
        self._lines = Lines(path, text)
        self._text = text

    def offset(self, line: int, column: int) -> int:
        """The character offset of a place as `ast` counts it: lines from 1, columns in bytes of UTF-8."""
        start, end = self._lines.span(line)
        row = self._text[start:end]
        if row.isascii():
            return start + column
        return start + len(row.encode("utf-8", "surrogateescape")[:column].decode("utf-8", "replace"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Character offsets of a node, which must be an expression or a statement."""
        place: Any = node
        return (self.offset(place.lineno, place.col_offset), self.offset(place.end_lineno, place.end_col_offset))

    def text(self, node: ast.AST) -> str:
        """The source of a node as it is written."""
        start, end = self.span(node)
        return self._text[start:end]

    def code(self, node: ast.AST) -> str:
        """The source of a node on one line."""
        return " ".join(self.text(node).split())

    def where(self, node: ast.AST) -> Where:
        return self._lines.where(self.span(node)[0])


class Tree:
    """A syntax tree with the way upwards from each node."""

    def __init__(self, tree: ast.AST) -> None:
        self.nodes = list(ast.walk(tree))
        self.parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.parents.get(id(node))) is not None:
            yield above
            node = above

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return next((up for up in self.above(node) if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef)), None)

    def tries(self, node: ast.AST) -> Iterator[ast.Try]:
        """The `try` statements of its own function in whose body a node stands."""
        child = node
        for up in self.above(node):
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
                return
            if isinstance(up, ast.Try) and child in up.body:
                yield up
            child = up


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def imports(tree: ast.AST) -> dict[str, str]:
    """What the names of a module stand for: its imports, and plain second names (`ckpt = torch.utils.checkpoint`)."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            full = meaning(node.value, known)
            if full and full.partition(".")[0] in ("torch", "deepspeed") and "." in full:
                known[node.targets[0].id] = full
    return known


def meaning(node: ast.AST, known: dict[str, str]) -> str:
    """The full name of what an expression names, imports followed; "" for what is no name."""
    name = dotted(node)
    first, dot, rest = name.partition(".")
    return f"{known.get(first, first)}{dot}{rest}" if name else ""


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`."""
    return dotted(node).rpartition(".")[2]


def argument(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """The value of an argument that is given at a place or by its name, None where it is not given."""
    if place is not None and len(call.args) > place:
        return call.args[place]
    return next((given.value for given in call.keywords if given.arg == name), None)


def arguments(call: ast.Call) -> list[ast.expr]:
    """The values of all arguments."""
    return [*call.args, *(given.value for given in call.keywords)]


def constant(node: ast.AST | None) -> Any:
    """The value of a constant, None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function, module or class in document order, functions and classes inside left out."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, _SCOPES):
            yield from own_nodes(child)
