"""The patches against meta tensors that circulate, in one function of a trainer's source, and how each fails fast."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ...configs.python_tree import Source, constant, keyword
from ...model.checkout import Edit, Patch

_REASON = "this model has tensors without data: its files lack them"


def patches(source: Source, tree: ast.AST) -> Iterator[Patch]:
    """Every patch below a node."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _loads_anything(source, node, parents)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to_empty":
                code, edit = source.code(node), _to(source, node)
                yield Patch("to-empty", source.where(node), _function(node, parents), code, edit)
        elif isinstance(node, ast.If):
            skipped = _skips_meta(node, parents)
            if skipped is not None:
                edit = _raise(source, skipped) if not _swallowed(node, parents) else None
                edit = _bare(source, node, parents) if skipped in node.orelse or skipped is node else edit
                code = f"if {source.code(node.test)}"
                yield Patch("meta-skipped", source.where(node), _function(node, parents), code, edit)


def _loads_anything(source: Source, call: ast.Call, parents: dict[int, ast.AST]) -> Iterator[Patch]:
    if not isinstance(call.func, ast.Attribute) or not re.match(
        r"(?:aitk_)?from_pretrained|load_model", call.func.attr
    ):
        return
    for name, value, kind in (
        ("low_cpu_mem_usage", False, "random-weights"),
        ("ignore_mismatched_sizes", True, "mismatch-ignored"),
    ):
        said = keyword(call, name)
        if said is not None and constant(said.value) is value:
            start, end = source.span(said.value)
            edit = Edit(start, end, str(value), str(not value))
            made: Any = kind
            yield Patch(made, source.where(said.value), _function(call, parents), f"{name}={value}", edit)


def _to(source: Source, call: ast.Call) -> Edit | None:
    """`x.to_empty(device=d)` as `x.to(device=d)`, which refuses what has no data."""
    if not isinstance(call.func, ast.Attribute) or any(k.arg != "device" for k in call.keywords):
        return None
    end = source.span(call.func)[1]
    return Edit(end - len("to_empty"), end, "to_empty", "to")


def _skips_meta(node: ast.If, parents: dict[int, ast.AST]) -> ast.stmt | None:
    """The statement with which an `if` leaves tensors without data as they are; None when it does no such thing."""
    negated, about = _about_meta(node.test, node, parents)
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


def _about_meta(test: ast.expr, at: ast.AST, parents: dict[int, ast.AST]) -> tuple[bool, bool]:
    """(whether the test holds for tensors that do have data, whether it is about the meta device at all)."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated, test = not negated, test.operand
    if isinstance(test, ast.Name):  # is_meta = any(p.device.type == "meta" for p in …)
        up: ast.AST | None = at
        while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            up = parents.get(id(up))
        for node in ast.walk(up) if up is not None else ():
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == test.id for target in targets):
                assert isinstance(node, ast.Assign)
                inner, about = _about_meta(node.value, at, {})
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


def _bare(source: Source, node: ast.If, parents: dict[int, ast.AST]) -> Edit | None:
    """What is done to tensors that have data, without the test, and without the try around it that only prints.

    torch itself refuses to move what has no data. None where other statements stand in the try.
    """
    around: ast.stmt = node
    up = parents.get(id(node))
    if _swallowed(node, parents):
        rest = [s for s in up.body if s is not node] if isinstance(up, ast.Try) else [node]
        if not isinstance(up, ast.Try) or up.finalbody or up.orelse:
            return None
        if any(not isinstance(s, ast.Assign) for s in rest) or _swallowed(up, parents):
            return None
        around = up
    if any(statement.lineno != statement.end_lineno for statement in node.body):
        return None
    start, end = source.span(around)
    old = source.text(around)
    newline = ("\r\n" if "\r\n" in old else "\n") + " " * around.col_offset
    return Edit(start, end, old, newline.join(source.text(statement) for statement in node.body))


def _swallowed(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Whether an error that is raised here would be caught and only printed, inside of its function."""
    child, up = node, parents.get(id(node))
    while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(up, ast.Try) and child in up.body and any(not _raises(handler) for handler in up.handlers):
            return True
        child, up = up, parents.get(id(up))
    return False


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for statement in handler.body for node in ast.walk(statement))


def _function(node: ast.AST, parents: dict[int, ast.AST]) -> str:
    up = parents.get(id(node))
    while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
        up = parents.get(id(up))
    return up.name if up is not None else ""
