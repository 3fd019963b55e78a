"""What the names of a function hold: which expressions they were given, and whether those may require gradients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from ...configs.python_tree import constant, dotted, keyword, meaning, own_nodes
from ...model.script import Fed

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
BLOCK = re.compile(r"block|layer|attn|attention|resnet|mlp|expert|ffn", re.I)
MODEL = re.compile(r"(?:model|transformer|unet|dit|net|network|backbone|denoiser|mmdit)\d*$", re.I)
_FROZEN = re.compile(
    r"\bvae\b|text_encoder|tokenizer|scheduler|\bclip\b|\bt5\b|encode_prompt|batch|dataloader|dataset"
)
_NO_GRAD = ("torch.no_grad", "torch.inference_mode")
_DEEPEST = 8


class Scope:
    """A function with the names bound in it. `around` is the scope that it stands in."""

    def __init__(self, node: Function, around: Scope | None, class_name: str, known: dict[str, str]) -> None:
        self.node = node
        self.around = around
        self.class_name = class_name
        self.known = known
        self.parameters = _parameters(node)
        self.values: dict[str, list[ast.expr]] = {}
        self.looped: dict[str, ast.expr] = {}
        self.forced: list[tuple[ast.expr, ast.AST]] = []  # (what is made to require a gradient, where)
        self.detached: set[int] = set()  # values computed under no_grad
        for child in own_nodes(node):
            self._note(child)

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "")

    @property
    def of_block(self) -> bool:
        """Whether it is a method of one block of a model: its inputs come from the block before."""
        return bool(BLOCK.search(self.class_name))

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
                if isinstance(target, ast.Attribute) and target.attr == "requires_grad" and constant(node.value):
                    self.forced.append((target.value, node))
        elif isinstance(node, ast.AugAssign | ast.NamedExpr):
            self._bind(node.target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._bind(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for name in _names(node.target):
                self.looped[name] = node.iter
        elif isinstance(node, ast.With | ast.AsyncWith):
            if any(self._is_no_grad(item.context_expr) for item in node.items):
                for child in ast.walk(node):
                    if isinstance(child, ast.Assign):
                        self.detached.add(id(child.value))
        elif (made := forced_by(node)) is not None:
            self.forced.append((made, node))

    def _is_no_grad(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and meaning(node.func, self.known) in _NO_GRAD

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        for name in _names(target):
            self.values.setdefault(name, []).append(value)

    def home(self, name: str) -> Scope | None:
        """The scope that binds a name, from here outwards."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.parameters or name in scope.values or name in scope.looped:
                return scope
            scope = scope.around
        return None

    def requires_grad(self, name: str, line: int) -> bool:
        """Whether a name is made to require a gradient in this function, before a line."""
        return any(
            isinstance(target, ast.Name) and target.id == name and getattr(site, "lineno", 0) < line
            for target, site in self.forced
        )


def forced_by(node: ast.AST) -> ast.expr | None:
    """`x` of `x.requires_grad_()` and `x.requires_grad_(True)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        said = node.args[0] if node.args else getattr(keyword(node, "requires_grad"), "value", None)
        return node.func.value if said is None or constant(said) is True else None
    return None


def fed(arguments: Sequence[ast.expr], scope: Scope, checkpoints: frozenset[str], line: int) -> Fed:
    """Whether one of these inputs of a call in `line` requires a gradient.

    "perhaps" when it comes out of a layer that may be trained.
    """
    return _strongest(_feeds(argument, scope, checkpoints, line, frozenset()) for argument in arguments)


def _strongest(answers: Iterable[Fed]) -> Fed:
    found = set(answers)
    return "yes" if "yes" in found else "perhaps" if "perhaps" in found else "no"


def _feeds(node: ast.AST, scope: Scope, checkpoints: frozenset[str], line: int, seen: frozenset[str]) -> Fed:
    if isinstance(node, ast.Name):
        return _feeds_name(node.id, scope, checkpoints, line, seen)
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        if constant(getattr(keyword(node, "requires_grad"), "value", None)) is True or forced_by(node) is not None:
            return "yes"
        name = meaning(node.func, scope.known)
        if name in checkpoints or _FROZEN.search(dotted(node.func) or ast.dump(node.func)[:400]):
            return "no"
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        on_tensor = receiver is not None and not (isinstance(receiver, ast.Name) and receiver.id == "self")
        if isinstance(receiver, ast.Attribute) and dotted(receiver).startswith("self."):
            on_tensor = False
        if name.startswith("torch."):
            parts = [*node.args]
        elif on_tensor and isinstance(receiver, ast.Name) and not MODEL.search(receiver.id):
            parts = [receiver, *node.args]
        elif on_tensor and not isinstance(receiver, ast.Name):
            parts = [receiver, *node.args] if receiver is not None else [*node.args]
        else:
            return "perhaps"
    elif isinstance(node, ast.Attribute):
        return "no" if dotted(node) else _feeds(node.value, scope, checkpoints, line, seen)
    return _strongest(_feeds(part, scope, checkpoints, line, seen) for part in parts)


def _feeds_name(name: str, scope: Scope, checkpoints: frozenset[str], line: int, seen: frozenset[str]) -> Fed:
    home = scope.home(name)
    if home is None or name in seen or len(seen) > _DEEPEST:
        return "no"
    if home.requires_grad(name, line):
        return "yes"
    answers: list[Fed] = ["perhaps"] if name in home.parameters and home.of_block else []
    for value in home.values.get(name, ()):
        if id(value) not in home.detached:
            answers.append(_feeds(value, home, checkpoints, line, seen | {name}))
    return _strongest(answers)


def _parameters(node: Function) -> frozenset[str]:
    if isinstance(node, ast.Module):
        return frozenset()
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return frozenset(argument.arg for argument in every if argument is not None) - {"self"}


def _names(target: ast.expr) -> Iterator[str]:
    yield from (
        node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
