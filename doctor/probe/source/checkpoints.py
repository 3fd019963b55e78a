"""Where a script checkpoints activations: of what, fed with what, re-entrantly or not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from ...configs.python_tree import constant, dotted, keyword, meaning
from ...model.record import replace
from ...model.script import Checkpoint
from .bindings import BLOCK, MODEL, Scope, fed
from .module import Module

_TORCH = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
_DEEPSPEED = (
    "deepspeed.checkpointing.checkpoint",
    "deepspeed.runtime.activation_checkpointing.checkpointing.checkpoint",
)
CHECKPOINTS = frozenset((*_TORCH, *_DEEPSPEED))
_OPTIONS = (
    "use_reentrant",
    "preserve_rng_state",
    "context_fn",
    "determinism_check",
    "debug",
    "early_stop",
    "function",
)
FORWARD = re.compile(r"_?forward")


def checkpoints(module: Module) -> dict[int, Checkpoint]:
    """Every call that checkpoints, by the id of its node."""
    presets = dict(_partials(module))
    made = {id(call): found for call in module.calls if (found := _checkpoint(module, call, presets)) is not None}
    _mark_loops(module, made)
    return made


def _partials(module: Module) -> Iterator[tuple[str, tuple[str, ast.Call]]]:
    """Names that stand for a checkpoint function with options: `functools.partial(checkpoint, …)`."""
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            made = node.value
            name = meaning(made.args[0], module.known)
            if meaning(made.func, module.known) in ("functools.partial", "partial") and name in CHECKPOINTS:
                yield from ((dotted(target), (name, made)) for target in node.targets if dotted(target))


def _checkpoint(module: Module, call: ast.Call, presets: dict[str, tuple[str, ast.Call]]) -> Checkpoint | None:
    name, preset = meaning(call.func, module.known), None
    if name not in CHECKPOINTS:
        name, preset = presets.get(dotted(call.func), ("", None))
    wrapped = call.args[0] if call.args else getattr(keyword(call, "function"), "value", None)
    if not name or wrapped is None:
        return None
    scope = module.scope(call)
    inner = _wrapped(module, wrapped, scope)
    said = keyword(call, "use_reentrant") or (keyword(preset, "use_reentrant") if preset is not None else None)
    inputs = [*call.args[1:], *(k.value for k in call.keywords if k.arg not in _OPTIONS)]
    spelled = isinstance(call.func, ast.Attribute) and meaning(call.func, {}) in _DEEPSPEED
    return Checkpoint(
        where=module.source.where(call),
        api="deepspeed" if name in _DEEPSPEED else "torch",
        called=dotted(call.func),
        wraps=module.source.code(inner),
        whole=module.loop(call) is None and _is_model(inner, scope) and "sequential" not in name,
        fed="perhaps" if dotted(inner) in scope.parameters else fed(inputs, scope, CHECKPOINTS, call.lineno),
        reentrant=_reentrant(module, call, said),
        constant=module.source.span(said.value) if said is not None and constant(said.value) is True else None,
        name=module.source.span(call.func) if spelled else None,
        end=_end_of_arguments(module, call),
    )


def _reentrant(module: Module, call: ast.Call, said: ast.keyword | None) -> bool | Literal["?"] | None:
    if said is not None:
        value = constant(said.value)
        return value if isinstance(value, bool) else "?"
    return "?" if any(k.arg is None for k in call.keywords) and _named_in_a_dict(module) else None


def _named_in_a_dict(module: Module) -> bool:
    """Whether options that are handed on with ** may hold use_reentrant."""
    return any(isinstance(n, ast.Constant) and n.value == "use_reentrant" for n in module.nodes) or any(
        isinstance(n, ast.keyword) and n.arg == "use_reentrant" for n in module.nodes
    )


def _end_of_arguments(module: Module, call: ast.Call) -> int:
    last = max((module.source.span(node)[1] for node in (*call.args, *(k.value for k in call.keywords))), default=0)
    return last


def _wrapped(module: Module, node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr:
    """What is recomputed in the end: through lambdas, factories, second names and small functions."""
    if depth > 5:
        return node
    if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
        return _wrapped(module, node.body.func, scope, depth + 1)
    if isinstance(node, ast.Call) and node.args:  # create_custom_forward(block), partial(model, …)
        return _wrapped(module, node.args[0], scope, depth + 1)
    if isinstance(node, ast.Name):
        values = scope.values.get(node.id, [])
        if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute | ast.Lambda | ast.Call):
            return _wrapped(module, values[0], scope, depth + 1)
        made = [n for n in ast.walk(scope.node) if isinstance(n, ast.FunctionDef) and n.name == node.id]
        returned = [n.value for n in ast.walk(made[0]) if isinstance(n, ast.Return)] if len(made) == 1 else []
        if len(returned) == 1 and isinstance(returned[0], ast.Call):
            return _wrapped(module, returned[0].func, scope, depth + 1)
    return node


def _is_model(node: ast.expr, scope: Scope) -> bool:
    name = dotted(node)
    last = name.rpartition(".")[2]
    if not name or scope.of_block or name in scope.parameters:
        return False
    if name == "self" or (name.startswith("self.") and FORWARD.match(last)):
        return True
    return bool(MODEL.search(last)) and not BLOCK.search(last)


def _mark_loops(module: Module, checkpoints: dict[int, Checkpoint]) -> None:
    """Note which checkpoints are left out for the first block: under a test of the loop's own counter."""
    for call in module.calls:
        loop = module.loop(call) if id(call) in checkpoints else None
        if not isinstance(loop, ast.For):
            continue
        counters = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        tests = [up.test for up in module.above(call) if isinstance(up, ast.If | ast.IfExp)]
        compared = [n for test in tests for n in ast.walk(test) if isinstance(n, ast.Compare | ast.BinOp | ast.Name)]
        on_counter = any(isinstance(n, ast.Name) and n.id in counters for n in compared)
        sliced = isinstance(loop.iter, ast.Subscript) and isinstance(loop.iter.slice, ast.Slice)
        if on_counter or sliced:
            checkpoints[id(call)] = replace(checkpoints[id(call)], skips_first=True)
