"""Where a script checkpoints activations, and what it does to make gradients appear.

Of what, fed with what, re-entrantly or not; gradients of inputs, where that helps, and of outputs, where it hides.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from ...configs.python_tree import argument, arguments, constant, dotted, last_name, meaning
from ...model.checkout import Edit
from ...model.script import Checkpoint, Forced
from .names import BLOCK, CHECKPOINT, DEEPSPEED, MODEL, Module, Scope

_OPTIONS = (
    *("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"),
    "function",
)
_FORWARD = re.compile(r"_?forward")
_INPUT_GRADS = {"enable_input_require_grads", "prepare_model_for_kbit_training"}


def checkpoints(module: Module) -> dict[int, Checkpoint]:
    """Every call that checkpoints, by the id of its node."""
    presets = dict(_partials(module))
    made = ((call, _checkpoint(module, call, presets)) for call in module.calls)
    return {id(call): found for call, found in made if found is not None}


def _partials(module: Module) -> Iterator[tuple[str, tuple[str, ast.Call]]]:
    """Names that stand for a checkpoint function with options: `functools.partial(checkpoint, …)`."""
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            made = node.value
            name = meaning(made.args[0], module.known)
            if meaning(made.func, module.known) in ("functools.partial", "partial") and name in CHECKPOINT:
                yield from ((dotted(target), (name, made)) for target in node.targets if dotted(target))


def _checkpoint(module: Module, call: ast.Call, presets: dict[str, tuple[str, ast.Call]]) -> Checkpoint | None:
    name, preset = meaning(call.func, module.known), None
    if name not in CHECKPOINT:
        name, preset = presets.get(dotted(call.func), ("", None))
    wrapped = argument(call, "function", 0)
    if not name or wrapped is None:
        return None
    scope = module.scope(call)
    inner = _wrapped(wrapped, scope)
    said = argument(call, "use_reentrant") or (argument(preset, "use_reentrant") if preset is not None else None)
    inputs = [*call.args[1:], *(k.value for k in call.keywords if k.arg not in _OPTIONS)]
    api: Literal["torch", "deepspeed"] = "deepspeed" if name in DEEPSPEED else "torch"
    reentrant = _reentrant(module, call, said)
    return Checkpoint(
        where=module.source.where(call),
        api=api,
        called=dotted(call.func),
        wraps=module.source.code(inner),
        whole=module.loop(call) is None and _is_model(inner, scope) and "sequential" not in name,
        fed="perhaps" if dotted(inner) in scope.parameters else scope.fed(inputs, call.lineno),
        reentrant=reentrant,
        skips_first=_skips_first(module, call),
        edit=_edit(module, call, said, api == "torch" and reentrant is None),
    )


def _reentrant(module: Module, call: ast.Call, said: ast.expr | None) -> bool | Literal["?"] | None:
    if said is not None:
        value = constant(said)
        return value if isinstance(value, bool) else "?"
    if not any(k.arg is None for k in call.keywords):
        return None
    # options that are handed on with ** may hold it
    named = any("use_reentrant" in (constant(node), getattr(node, "arg", None)) for node in module.nodes)
    return "?" if named else None


def _edit(module: Module, call: ast.Call, said: ast.expr | None, unsaid: bool) -> Edit | None:
    """The repair: over the constant, over DeepSpeed's name in full, or behind the last argument."""
    if said is not None and constant(said) is True:
        return Edit(*module.source.span(said), "True", "False")
    if isinstance(call.func, ast.Attribute) and dotted(call.func) in DEEPSPEED:
        old = dotted(call.func)
        return Edit(*module.source.span(call.func), old, f"{old.rpartition('.')[0]}.non_reentrant_checkpoint")
    end = max((module.source.span(given)[1] for given in arguments(call)), default=0)
    return Edit(end, end, "", ", use_reentrant=False") if unsaid else None


def _wrapped(node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr:
    """What is recomputed in the end: through lambdas, factories, second names and small functions."""
    inner: ast.expr | None = None
    if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
        inner = node.body.func
    elif isinstance(node, ast.Call) and node.args:  # create_custom_forward(block), partial(model, …)
        inner = node.args[0]
    elif isinstance(node, ast.Name):
        values = scope.values.get(node.id, [])
        made = [n for n in ast.walk(scope.node) if isinstance(n, ast.FunctionDef) and n.name == node.id]
        returned = [n.value for n in ast.walk(made[0]) if isinstance(n, ast.Return)] if len(made) == 1 else []
        if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute | ast.Lambda | ast.Call):
            inner = values[0]
        elif len(returned) == 1 and isinstance(returned[0], ast.Call):
            inner = returned[0].func
    return node if inner is None or depth > 5 else _wrapped(inner, scope, depth + 1)


def _is_model(node: ast.expr, scope: Scope) -> bool:
    name = dotted(node)
    last = name.rpartition(".")[2]
    if not name or scope.of_block or name in scope.parameters:
        return False
    if name == "self" or (name.startswith("self.") and _FORWARD.match(last)):
        return True
    return bool(MODEL.search(last)) and not BLOCK.search(last)


def _skips_first(module: Module, call: ast.Call) -> bool:
    """Whether it is left out for the first block: under a test of the loop's own counter."""
    loop = module.loop(call)
    if not isinstance(loop, ast.For):
        return False
    counters = set(_names(loop.target))
    tests = [up.test for up in module.above(call) if isinstance(up, ast.If | ast.IfExp)]
    sliced = isinstance(loop.iter, ast.Subscript) and isinstance(loop.iter.slice, ast.Slice)
    return sliced or any(counters & set(_names(test)) for test in tests)


def _names(node: ast.AST) -> Iterator[str]:
    yield from (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))


def forced(module: Module, found: Mapping[int, Checkpoint]) -> Iterator[Forced]:
    reentrant = {key: made for key, made in found.items() if made.may_be_reentrant}
    inside = {made.wraps.rpartition(".")[2] for made in reentrant.values()}
    for scope in module.forcing:
        backward = dict(_backward(scope))
        for target, line, site in scope.forced:
            name = dotted(target) or "the result"
            values = scope.values.get(name, ()) if isinstance(target, ast.Name) else (target,)
            origins = [reentrant[id(v)] for v in values if id(v) in reentrant and (v is target or v.lineno < line)]
            returned = any(isinstance(up, ast.Return) for up in module.above(site))
            untouched = name in scope.parameters and name not in scope.values
            if origins:
                yield Forced(module.source.where(site), name, fed=origins[0].fed)
            elif backward.get(name, 0) > line:
                yield Forced(module.source.where(site), name, is_loss=True)
            elif reentrant and (_FORWARD.match(scope.name) or scope.name in inside) and returned and not untouched:
                yield Forced(module.source.where(site), name)


def _backward(scope: Scope) -> Iterator[tuple[str, int]]:
    """Names that a function runs backward from, with the line: `loss.backward()`, `accelerator.backward(loss)`."""
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            subject = node.args[0] if node.args else node.func.value
            if isinstance(subject, ast.Name):
                yield subject.id, node.lineno


def input_grads(module: Module) -> bool:
    """Whether the inputs of the model are made to require gradients, anywhere."""
    names = {last_name(call.func) for call in module.calls}
    if names & _INPUT_GRADS:
        return True
    hooked = any(name.startswith("register_forward") for name in names)
    for scope in module.forcing:
        for target, line, _ in scope.forced:
            if not isinstance(target, ast.Name) or MODEL.search(target.id):
                continue
            if hooked and target.id in scope.parameters:
                return True
            if target.id not in scope.looped and _handed_to_a_model(target.id, line, scope):
                return True
    return False


def _handed_to_a_model(name: str, line: int, scope: Scope) -> bool:
    later = (call for call in ast.walk(scope.node) if isinstance(call, ast.Call) and call.lineno > line)
    return any(_calls_a_model(call) and any(name in _names(given) for given in arguments(call)) for call in later)


def _calls_a_model(call: ast.Call) -> bool:
    last = last_name(call.func)
    return bool(dotted(call.func).startswith("self.") or MODEL.search(last) or BLOCK.search(last))
