"""The patches against meta tensors that circulate, in one function of a trainer's source, and how each fails fast."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ...configs.python_tree import Source, Tree, argument, constant
from ...model.checkout import Edit, Patch

_REASON = "this model has tensors without data: its files lack them"


def patches(source: Source, node: ast.AST) -> Iterator[Patch]:
    """Every patch below a node."""
    tree = Tree(node)
    for node in tree.nodes:
        if isinstance(node, ast.Call):
            yield from _loads_anything(source, node, tree)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to_empty":
                yield Patch("to-empty", source.where(node), _name(tree, node), source.code(node), _to(source, node))
        elif isinstance(node, ast.If) and (skipped := _skips_meta(node, tree)) is not None:
            edit = None if _is_swallowed(node, tree) else _raise(source, skipped)
            edit = _bare(source, node, tree) if skipped in node.orelse or skipped is node else edit
            code = f"if {source.code(node.test)}"
            yield Patch("meta-skipped", source.where(node), _name(tree, node), code, edit)


def _name(tree: Tree, node: ast.AST) -> str:
    function = tree.function(node)
    return "" if function is None else function.name


def _loads_anything(source: Source, call: ast.Call, tree: Tree) -> Iterator[Patch]:
    if not isinstance(call.func, ast.Attribute) or not re.match(
        r"(?:aitk_)?from_pretrained|load_model", call.func.attr
    ):
        return
    for name, value, kind in (
        ("low_cpu_mem_usage", False, "random-weights"),
        ("ignore_mismatched_sizes", True, "mismatch-ignored"),
    ):
        said = argument(call, name)
        if said is not None and constant(said) is value:
            start, end = source.span(said)
            edit = Edit(start, end, str(value), str(not value))
            made: Any = kind
            yield Patch(made, source.where(said), _name(tree, call), f"{name}={value}", edit)


def _to(source: Source, call: ast.Call) -> Edit | None:
    """`x.to_empty(device=d)` as `x.to(device=d)`, which refuses what has no data."""
    if not isinstance(call.func, ast.Attribute) or any(k.arg != "device" for k in call.keywords):
        return None
    end = source.span(call.func)[1]
    return Edit(end - len("to_empty"), end, "to_empty", "to")


def _skips_meta(node: ast.If, tree: Tree) -> ast.stmt | None:
    """The statement with which an `if` leaves tensors without data as they are; None when it does no such thing."""
    negated, about = _about_meta(node.test, node, tree)
    if not about:
        return None
    branch = node.orelse if negated else node.body
    if any(isinstance(inner, ast.Raise) for statement in branch for inner in ast.walk(statement)):
        return None
    if not branch:
        return node if negated else None
    last = branch[-1]
    leaves = isinstance(last, ast.Continue | ast.Return | ast.Pass)
    only_says = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call | ast.Constant) for s in branch)
    return last if leaves or (negated and only_says) else None


def _about_meta(test: ast.expr, at: ast.AST, tree: Tree | None) -> tuple[bool, bool]:
    """(whether the test holds for tensors that do have data, whether it is about the meta device at all)."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated, test = not negated, test.operand
    if isinstance(test, ast.Name):  # is_meta = any(p.device.type == "meta" for p in …)
        function = None if tree is None else tree.function(at)
        for node in () if function is None else ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == test.id for target in targets):
                assert isinstance(node, ast.Assign)
                inner, about = _about_meta(node.value, at, None)
                if about:
                    return inner != negated, True
        return negated, False
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and node.attr == "is_meta":
            return negated, True
        if isinstance(node, ast.Compare) and any(constant(side) == "meta" for side in (node.left, *node.comparators)):
            return negated != isinstance(node.ops[0], ast.NotEq | ast.NotIn), True
    return negated, False


def _raise(source: Source, skipped: ast.stmt) -> Edit | None:
    """An error in the place of the statement that skips."""
    if isinstance(skipped, ast.If):  # `if not is_meta: move()` without an else
        return None
    start, end = source.span(skipped)
    return Edit(start, end, source.text(skipped), f'raise RuntimeError("{_REASON}")')


def _bare(source: Source, node: ast.If, tree: Tree) -> Edit | None:
    """What is done to tensors that have data, without the test, and without the try around it that only prints.

    torch itself refuses to move what has no data. None where other statements stand in the try.
    """
    around: ast.stmt = node
    if _is_swallowed(node, tree):
        up = tree.parents.get(id(node))
        if not isinstance(up, ast.Try) or up.finalbody or up.orelse:
            return None
        if any(not isinstance(s, ast.Assign) for s in up.body if s is not node) or _is_swallowed(up, tree):
            return None
        around = up
    if any(statement.lineno != statement.end_lineno for statement in node.body):
        return None
    start, end = source.span(around)
    old = source.text(around)
    newline = ("\r\n" if "\r\n" in old else "\n") + " " * around.col_offset
    return Edit(start, end, old, newline.join(source.text(statement) for statement in node.body))


def _is_swallowed(node: ast.AST, tree: Tree) -> bool:
    """Whether an error that is raised here would be caught and only printed, inside of its function."""
    handlers = [handler for up in tree.tries(node) for handler in up.handlers]
    return any(not any(isinstance(node, ast.Raise) for node in ast.walk(handler)) for handler in handlers)
