"""What a script does to make gradients appear: on inputs, where it helps; on outputs and losses, where it hides."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal

from ...configs.python_tree import constant, dotted, keyword
from ...model.script import Checkpoint, Fed, Forced
from .bindings import BLOCK, MODEL, Function, Scope
from .checkpoints import FORWARD
from .module import Module

_INPUT_GRADS = ("enable_input_require_grads", "prepare_model_for_kbit_training")


def forced(module: Module, checkpoints: Mapping[int, Checkpoint]) -> Iterator[Forced]:
    reentrant = [made for made in checkpoints.values() if made.may_be_reentrant]
    inside = {made.wraps.rpartition(".")[2] for made in reentrant}
    for scope in module.forcing():
        function = scope.node
        backward = dict(_backward(function))
        for target, site in scope.forced:
            name = dotted(target) or "the result"
            what: Literal["checkpoint", "returned", "loss"] | None = None
            origin = _checkpointed(target, site, scope, checkpoints)
            if origin is not None:
                what = "checkpoint"
            elif backward.get(name, 0) > getattr(site, "lineno", 0):
                what = "loss"
            elif reentrant and (FORWARD.match(scope.name) or scope.name in inside):
                returned = any(isinstance(up, ast.Return) for up in module.above(site))
                untouched = name in scope.parameters and name not in scope.values
                what = "returned" if returned and not untouched else None
            if what is not None:
                yield Forced(module.source.where(site), name, what, origin or "no")
        for name, node in _rewrapped(function):
            if backward.get(name, 0) > getattr(node, "lineno", 0):
                yield Forced(module.source.where(node), name, "loss")


def _checkpointed(target: ast.expr, site: ast.AST, scope: Scope, checkpoints: Mapping[int, Checkpoint]) -> Fed | None:
    """How the re-entrant checkpoint is fed that a value came out of; None when it came out of none."""
    if isinstance(target, ast.Call):
        made = checkpoints.get(id(target))
        return made.fed if made is not None and made.may_be_reentrant else None
    if not isinstance(target, ast.Name):
        return None
    for value in scope.values.get(target.id, ()):
        made = checkpoints.get(id(value))
        if made is not None and made.may_be_reentrant and value.lineno < getattr(site, "lineno", 0):
            return made.fed
    return None


def input_grads(module: Module) -> bool:
    """Whether the inputs of the model are made to require gradients, anywhere."""
    names = {dotted(call.func).rpartition(".")[2] for call in module.calls}
    if names & set(_INPUT_GRADS):
        return True
    hooked = any(name.startswith("register_forward") for name in names)
    for scope in module.forcing():
        for target, site in scope.forced:
            if not isinstance(target, ast.Name) or MODEL.search(target.id):
                continue
            if hooked and target.id in scope.parameters:
                return True
            if target.id not in scope.looped and _handed_to_a_model(target.id, site, scope):
                return True
    return False


def _handed_to_a_model(name: str, site: ast.AST, scope: Scope) -> bool:
    for call in ast.walk(scope.node):
        if isinstance(call, ast.Call) and call.lineno > getattr(site, "lineno", 0):
            callee = dotted(call.func)
            last = callee.rpartition(".")[2]
            if callee.startswith("self.") or MODEL.search(last) or BLOCK.search(last):
                given = (*call.args, *(k.value for k in call.keywords))
                if any(isinstance(n, ast.Name) and n.id == name for argument in given for n in ast.walk(argument)):
                    return True
    return False


def partly_frozen(module: Module) -> bool:
    if any("lora" in name.lower() or name in ("peft", "get_peft_model") for name in module.identifiers):
        return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "requires_grad_"
        and call.args
        and constant(call.args[0]) is False
        for call in module.calls
    )


def _backward(function: Function) -> Iterator[tuple[str, int]]:
    """Names that a function runs backward from, with the line: `loss.backward()`, `accelerator.backward(loss)`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            subject = node.args[0] if node.args else node.func.value
            if isinstance(subject, ast.Name):
                yield subject.id, node.lineno


def _rewrapped(function: Function) -> Iterator[tuple[str, ast.AST]]:
    """Losses that are made anew as leaves: `loss = Variable(loss, requires_grad=True)`."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.targets[0], ast.Name)
        ):
            made, name = node.value, node.targets[0].id
            asked = constant(getattr(keyword(made, "requires_grad"), "value", None)) is True
            of = {n.id for argument in made.args[:1] for n in ast.walk(argument) if isinstance(n, ast.Name)}
            known = dotted(made.func).rpartition(".")[2] in ("Variable", "tensor", "as_tensor")
            if asked and known and name in of:
                yield name, node
