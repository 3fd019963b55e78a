"""A parsed script, with what is asked of every node: its function, its loop, what its names stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...configs.python_tree import Source, imports
from .bindings import Function, Scope


class Module:
    """A script as a tree, with the way upwards from each node."""

    def __init__(self, source: Source, tree: ast.Module) -> None:
        self.source = source
        self.known = imports(tree)
        self.nodes = list(ast.walk(tree))
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.identifiers = {name for node in self.nodes for name in _identifiers(node)}
        self._scopes: dict[int, Scope] = {}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.parents.get(id(node))) is not None:
            yield above
            node = above

    def scope(self, node: ast.AST) -> Scope:
        """The scope of the function that a node stands in."""
        above = [up for up in self.above(node) if isinstance(up, Function)]
        return self.scope_of(above[0])

    def scope_of(self, function: Function) -> Scope:
        if id(function) not in self._scopes:
            above = list(self.above(function))
            around = next((up for up in above if isinstance(up, Function)), None)
            classes = [up.name for up in above if isinstance(up, ast.ClassDef)]
            outer = self.scope_of(around) if around is not None else None
            self._scopes[id(function)] = Scope(function, outer, classes[0] if classes else "", self.known)
        return self._scopes[id(function)]

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node, in its own function."""
        for up in self.above(node):
            if isinstance(up, Function) and not isinstance(up, ast.Lambda):
                return None
            if isinstance(up, ast.For | ast.While | ast.ListComp | ast.GeneratorExp):
                return up
        return None

    def forcing(self) -> Iterator[Scope]:
        """The functions that say anything about requires_grad."""
        said = [n for n in self.nodes if _says_requires_grad(n)]
        homes = {id(home): home for n in said for home in self.above(n) if isinstance(home, Function)}
        yield from (self.scope_of(home) for home in homes.values())


def _says_requires_grad(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("requires_grad", "requires_grad_")
    return isinstance(node, ast.keyword) and node.arg == "requires_grad"


def _identifiers(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
