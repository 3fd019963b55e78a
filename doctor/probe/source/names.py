"""A parsed script: its functions, the names bound in them, and whether what these hold may require gradients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ...configs.python_tree import Source, Tree, argument, constant, dotted, imports, meaning, own_nodes
from ...model.script import Fed

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
BLOCK = re.compile(r"block|layer|attn|attention|resnet|mlp|expert|ffn", re.I)
MODEL = re.compile(r"(?:model|transformer|unet|dit|net|network|backbone|denoiser|mmdit)\d*$", re.I)
TORCH = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
DEEPSPEED = (
    "deepspeed.checkpointing.checkpoint",
    "deepspeed.runtime.activation_checkpointing.checkpointing.checkpoint",
)
CHECKPOINT = (*TORCH, *DEEPSPEED)
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
        self.known = known
        self.name = getattr(node, "name", "")
        self.of_block = bool(BLOCK.search(class_name))  # one block of a model: its inputs come from the block before
        arguments = [] if isinstance(node, ast.Module) else [n for n in ast.walk(node.args) if isinstance(n, ast.arg)]
        self.parameters = {argument.arg for argument in arguments} - {"self"}
        self.values: dict[str, list[ast.expr]] = {}
        self.looped: set[str] = set()
        self.forced: list[tuple[ast.expr, int, ast.AST]] = []  # (what is made to require a gradient, line, where)
        self.detached: set[int] = set()  # values computed under no_grad
        for child in own_nodes(node):
            self._note(child)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
                    if isinstance(target, ast.Attribute) and target.attr == "requires_grad" and constant(value):
                        self.forced.append((target.value, node.lineno, node))
            case ast.AugAssign() | ast.NamedExpr():
                self._bind(node.target, node.value)
            case ast.AnnAssign(value=ast.expr() as value):
                self._bind(node.target, value)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self.looped |= set(_stored(node.target))
            case ast.With(items=items) | ast.AsyncWith(items=items):
                calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
                if any(meaning(call.func, self.known) in _NO_GRAD for call in calls):
                    self.detached |= {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Assign)}
            case ast.Call() if (made := forced_by(node)) is not None:
                self.forced.append((made, node.lineno, node))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        for name in _stored(target):
            self.values.setdefault(name, []).append(value)

    def home(self, name: str) -> Scope | None:
        """The scope that binds a name, from here outwards."""
        if name in self.parameters or name in self.values or name in self.looped:
            return self
        return None if self.around is None else self.around.home(name)

    def fed(self, arguments: Sequence[ast.AST], line: int, seen: frozenset[str] = frozenset()) -> Fed:
        """Whether one of these inputs of a call in `line` requires a gradient.

        "perhaps" when it comes out of a layer that may be trained.
        """
        answers = {self._feeds(argument, line, seen) for argument in arguments}
        return "yes" if "yes" in answers else "perhaps" if "perhaps" in answers else "no"

    def _feeds(self, node: ast.AST, line: int, seen: frozenset[str]) -> Fed:
        if isinstance(node, ast.Name):
            return self._feeds_name(node.id, line, seen)
        if isinstance(node, ast.Attribute):
            return "no" if dotted(node) else self._feeds(node.value, line, seen)
        if not isinstance(node, ast.Call):
            return self.fed(list(ast.iter_child_nodes(node)), line, seen)
        if constant(argument(node, "requires_grad")) is True or forced_by(node) is not None:
            return "yes"
        name = meaning(node.func, self.known)
        if name in CHECKPOINT or _FROZEN.search(dotted(node.func) or ast.dump(node.func)[:400]):
            return "no"
        if name.startswith("torch."):
            return self.fed(node.args, line, seen)
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        written = dotted(receiver) if receiver is not None else "self"
        of_layer = written.partition(".")[0] == "self" or ("." not in written and MODEL.search(written))
        return "perhaps" if of_layer or receiver is None else self.fed([receiver, *node.args], line, seen)

    def _feeds_name(self, name: str, line: int, seen: frozenset[str]) -> Fed:
        home = self.home(name)
        if home is None or name in seen or len(seen) > _DEEPEST:
            return "no"
        if any(isinstance(target, ast.Name) and target.id == name and at < line for target, at, _ in home.forced):
            return "yes"
        made = home.fed([v for v in home.values.get(name, ()) if id(v) not in home.detached], line, seen | {name})
        return "perhaps" if made == "no" and name in home.parameters and home.of_block else made


class Module(Tree):
    """A script: its calls, its identifiers, and what its names stand for."""

    def __init__(self, source: Source, tree: ast.Module) -> None:
        super().__init__(tree)
        self.source = source
        self.known = imports(tree)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        named = (getattr(node, field, None) for node in self.nodes for field in ("id", "attr", "name"))
        self.identifiers = {part for name in named if isinstance(name, str) for part in name.split(".")}
        self._scopes: dict[int, Scope] = {}
        said = self.identifiers & {"requires_grad", "requires_grad_"}
        functions = [node for node in self.nodes if isinstance(node, Function)] if said else []
        self.forcing = [scope for scope in map(self._scope_of, functions) if scope.forced]

    def scope(self, node: ast.AST) -> Scope:
        """The scope of the function that a node stands in."""
        return self._scope_of(next(up for up in self.above(node) if isinstance(up, Function)))

    def _scope_of(self, function: Function) -> Scope:
        if id(function) not in self._scopes:
            above = list(self.above(function))
            classes = [up.name for up in above if isinstance(up, ast.ClassDef)]
            outer = self.scope(function) if above else None
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


def forced_by(node: ast.Call) -> ast.expr | None:
    """`x` of `x.requires_grad_()` and `x.requires_grad_(True)`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        said = argument(node, "requires_grad", 0)
        return node.func.value if said is None or constant(said) is True else None
    return None


def _stored(target: ast.expr) -> Iterator[str]:
    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
