"""A user's training script: where it checkpoints activations, and what it does to make gradients appear."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from ...configs.python_tree import Source, Unparsable, constant, dotted, imports, keyword, meaning, parsed
from ...model import Config, Unknown, Where
from ...model.script import Checkpoint, DeepSpeedConfig, Enabled, Fed, Forced, Script
from ..world import Paths, World
from .bindings import BLOCK, MODEL, Function, Scope, fed

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
_FLOW = re.compile(r"(?:FlowMatch\w*Scheduler|(?:Flux|ZImage|SD3|Lumina2|QwenImage|Sana|AuraFlow)\w*)$")
_VISION = re.compile(r"^(?:ViT|Siglip|Dino|Swin|Beit|Deit|ConvNext)|Vision|pixel_values", re.I)
_INPUT_GRADS = ("enable_input_require_grads", "prepare_model_for_kbit_training")
_ENABLE = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
_FORWARD = re.compile(r"_?forward")
_SETTINGS = {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}
_LARGEST_JSON, _MOST_JSON = 1 << 16, 40


def probe_script(world: World, config: Config) -> Script | Unknown:
    """The script that stands in the config's place, with the DeepSpeed configs beside it."""
    if config.format != "python":
        return Unknown("this is no training script")
    try:
        script = read_script(config.path, config.text)
    except Unparsable as error:
        return Unknown(str(error))
    beside = tuple(_beside(world, config.path)) if script.uses_deepspeed else ()
    return replace(script, deepspeed=(*script.deepspeed, *beside))


def _beside(world: World, path: str) -> Iterator[DeepSpeedConfig]:
    paths = Paths(world.system)
    folder = paths.parent(paths.absolute(path))
    names = world.names(folder)
    for name in [n for n in (() if isinstance(names, Unknown) else names) if n.endswith(".json")][:_MOST_JSON]:
        data = world.read(paths.join(folder, name), length=_LARGEST_JSON)
        try:
            settings = None if isinstance(data, Unknown) else json.loads(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(settings, dict) and _SETTINGS & settings.keys():
            yield DeepSpeedConfig(Where(paths.join(paths.parent(path), name)), settings)


def read_script(path: str, text: str) -> Script:
    """What a script does with checkpointing and gradients. Raises Unparsable."""
    tree = parsed(text)
    return _Reader(Source(path, text), tree).script()


class _Reader:
    def __init__(self, source: Source, tree: ast.Module) -> None:
        self.source = source
        self.tree = tree
        self.known = imports(tree)
        self.nodes = list(ast.walk(tree))
        self.parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.scopes: dict[int, Scope] = {}
        self.presets = dict(self._partials())
        self.identifiers = {name for node in self.nodes for name in _identifiers(node)}

    def script(self) -> Script:
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        checkpoints = {id(call): made for call in calls if (made := self._checkpoint(call)) is not None}
        self._mark_loops(checkpoints, calls)
        flow = sorted(name for name in self.identifiers if _FLOW.match(name))
        return Script(
            checkpoints=tuple(checkpoints.values()),
            forced=tuple(self._forced(checkpoints)),
            enabled=tuple(self._enabled(calls)),
            input_grads=self._input_grads(calls),
            partly_frozen=self._partly_frozen(calls),
            flow=flow[0] if flow else "",
            vision=any(_VISION.search(name) for name in self.identifiers),
            half=tuple(self._half(calls)),
            deepspeed=tuple(self._deepspeed()),
            uses_deepspeed=any(full.partition(".")[0] == "deepspeed" for full in self.known.values())
            or "DeepSpeedPlugin" in self.identifiers,
        )

    # --- where a node stands

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.parents.get(id(node))) is not None:
            yield above
            node = above

    def scope(self, node: ast.AST) -> Scope:
        """The scope of the function that a node stands in."""
        above = [up for up in self._above(node) if isinstance(up, Function)]
        return self._scope_of(above[0])

    def _scope_of(self, function: Function) -> Scope:
        if id(function) not in self.scopes:
            above = list(self._above(function))
            around = next((up for up in above if isinstance(up, Function)), None)
            classes = [up.name for up in above if isinstance(up, ast.ClassDef)]
            outer = self._scope_of(around) if around is not None else None
            self.scopes[id(function)] = Scope(function, outer, classes[0] if classes else "", self.known)
        return self.scopes[id(function)]

    def _loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node, in its own function."""
        for up in self._above(node):
            if isinstance(up, Function) and not isinstance(up, ast.Lambda):
                return None
            if isinstance(up, ast.For | ast.While | ast.ListComp | ast.GeneratorExp):
                return up
        return None

    # --- checkpointing

    def _partials(self) -> Iterator[tuple[str, tuple[str, ast.Call]]]:
        """Names that stand for a checkpoint function with options: `functools.partial(checkpoint, …)`."""
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
                made = node.value
                name = meaning(made.args[0], self.known)
                if meaning(made.func, self.known) in ("functools.partial", "partial") and name in CHECKPOINTS:
                    for target in node.targets:
                        yield dotted(target), (name, made)

    def _checkpoint(self, call: ast.Call) -> Checkpoint | None:
        name, preset = meaning(call.func, self.known), None
        if name not in CHECKPOINTS:
            name, preset = self.presets.get(dotted(call.func), ("", None))
        wrapped = call.args[0] if call.args else getattr(keyword(call, "function"), "value", None)
        if not name or wrapped is None:
            return None
        scope = self.scope(call)
        inner = self._wrapped(wrapped, scope)
        said = keyword(call, "use_reentrant") or (keyword(preset, "use_reentrant") if preset is not None else None)
        inputs = [*call.args[1:], *(k.value for k in call.keywords if k.arg not in _OPTIONS)]
        spelled = isinstance(call.func, ast.Attribute) and meaning(call.func, {}) in _DEEPSPEED
        return Checkpoint(
            where=self.source.where(call),
            api="deepspeed" if name in _DEEPSPEED else "torch",
            called=dotted(call.func),
            wraps=self.source.code(inner),
            whole=self._loop(call) is None and self._is_model(inner, scope) and "sequential" not in name,
            fed="perhaps" if dotted(inner) in scope.parameters else fed(inputs, scope, CHECKPOINTS, call.lineno),
            reentrant=self._reentrant(call, said),
            constant=self.source.span(said.value) if said is not None and constant(said.value) is True else None,
            name=self.source.span(call.func) if spelled else None,
            end=self._end_of_arguments(call),
        )

    def _reentrant(self, call: ast.Call, said: ast.keyword | None) -> bool | Literal["?"] | None:
        if said is not None:
            value = constant(said.value)
            return value if isinstance(value, bool) else "?"
        return "?" if any(k.arg is None for k in call.keywords) and self._named_in_a_dict() else None

    def _named_in_a_dict(self) -> bool:
        """Whether options that are handed on with ** may hold use_reentrant."""
        return any(isinstance(n, ast.Constant) and n.value == "use_reentrant" for n in self.nodes) or any(
            isinstance(n, ast.keyword) and n.arg == "use_reentrant" for n in ast.walk(self.tree)
        )

    def _end_of_arguments(self, call: ast.Call) -> int:
        last = max((self.source.span(node)[1] for node in (*call.args, *(k.value for k in call.keywords))), default=0)
        return last

    def _wrapped(self, node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr:
        """What is recomputed in the end: through lambdas, factories, second names and small functions."""
        if depth > 5:
            return node
        if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call):
            return self._wrapped(node.body.func, scope, depth + 1)
        if isinstance(node, ast.Call) and node.args:  # create_custom_forward(block), partial(model, …)
            return self._wrapped(node.args[0], scope, depth + 1)
        if isinstance(node, ast.Name):
            values = scope.values.get(node.id, [])
            if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute | ast.Lambda | ast.Call):
                return self._wrapped(values[0], scope, depth + 1)
            made = [n for n in ast.walk(scope.node) if isinstance(n, ast.FunctionDef) and n.name == node.id]
            returned = [n.value for n in ast.walk(made[0]) if isinstance(n, ast.Return)] if len(made) == 1 else []
            if len(returned) == 1 and isinstance(returned[0], ast.Call):
                return self._wrapped(returned[0].func, scope, depth + 1)
        return node

    def _is_model(self, node: ast.expr, scope: Scope) -> bool:
        name = dotted(node)
        last = name.rpartition(".")[2]
        if not name or scope.of_block or name in scope.parameters:
            return False
        if name == "self" or (name.startswith("self.") and _FORWARD.match(last)):
            return True
        return bool(MODEL.search(last)) and not BLOCK.search(last)

    def _mark_loops(self, checkpoints: dict[int, Checkpoint], calls: list[ast.Call]) -> None:
        """Note which checkpoints are left out for the first block: under a test of the loop's own counter."""
        for call in calls:
            loop = self._loop(call) if id(call) in checkpoints else None
            if not isinstance(loop, ast.For):
                continue
            counters = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            tests = [up.test for up in self._above(call) if isinstance(up, ast.If | ast.IfExp)]
            compared = [
                n for test in tests for n in ast.walk(test) if isinstance(n, ast.Compare | ast.BinOp | ast.Name)
            ]
            on_counter = any(isinstance(n, ast.Name) and n.id in counters for n in compared)
            sliced = isinstance(loop.iter, ast.Subscript) and isinstance(loop.iter.slice, ast.Slice)
            if on_counter or sliced:
                checkpoints[id(call)] = replace(checkpoints[id(call)], skips_first=True)

    # --- gradients made to appear

    def _forced(self, checkpoints: Mapping[int, Checkpoint]) -> Iterator[Forced]:
        reentrant = [made for made in checkpoints.values() if made.may_be_reentrant]
        inside = {made.wraps.rpartition(".")[2] for made in reentrant}
        for scope in self._forcing():
            function = scope.node
            backward = dict(_backward(function))
            for target, site in scope.forced:
                name = dotted(target) or "the result"
                what: Literal["checkpoint", "returned", "loss"] | None = None
                origin = self._checkpointed(target, site, scope, checkpoints)
                if origin is not None:
                    what = "checkpoint"
                elif backward.get(name, 0) > getattr(site, "lineno", 0):
                    what = "loss"
                elif reentrant and (_FORWARD.match(scope.name) or scope.name in inside):
                    returned = any(isinstance(up, ast.Return) for up in self._above(site))
                    untouched = name in scope.parameters and name not in scope.values
                    what = "returned" if returned and not untouched else None
                if what is not None:
                    yield Forced(self.source.where(site), name, what, origin or "no")
            for name, node in _rewrapped(function):
                if backward.get(name, 0) > getattr(node, "lineno", 0):
                    yield Forced(self.source.where(node), name, "loss")

    def _forcing(self) -> Iterator[Scope]:
        """The functions that say anything about requires_grad."""
        said = [n for n in self.nodes if _says_requires_grad(n)]
        homes = {id(home): home for n in said for home in self._above(n) if isinstance(home, Function)}
        yield from (self._scope_of(home) for home in homes.values())

    def _checkpointed(
        self, target: ast.expr, site: ast.AST, scope: Scope, checkpoints: Mapping[int, Checkpoint]
    ) -> Fed | None:
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

    def _input_grads(self, calls: list[ast.Call]) -> bool:
        """Whether the inputs of the model are made to require gradients, anywhere."""
        names = {dotted(call.func).rpartition(".")[2] for call in calls}
        if names & set(_INPUT_GRADS):
            return True
        hooked = any(name.startswith("register_forward") for name in names)
        for scope in self._forcing():
            for target, site in scope.forced:
                if not isinstance(target, ast.Name) or MODEL.search(target.id):
                    continue
                if hooked and target.id in scope.parameters:
                    return True
                if target.id not in scope.looped and self._handed_to_a_model(target.id, site, scope):
                    return True
        return False

    def _handed_to_a_model(self, name: str, site: ast.AST, scope: Scope) -> bool:
        for call in ast.walk(scope.node):
            if isinstance(call, ast.Call) and call.lineno > getattr(site, "lineno", 0):
                callee = dotted(call.func)
                last = callee.rpartition(".")[2]
                if callee.startswith("self.") or MODEL.search(last) or BLOCK.search(last):
                    given = (*call.args, *(k.value for k in call.keywords))
                    if any(
                        isinstance(n, ast.Name) and n.id == name for argument in given for n in ast.walk(argument)
                    ):
                        return True
        return False

    def _partly_frozen(self, calls: list[ast.Call]) -> bool:
        if any("lora" in name.lower() or name in ("peft", "get_peft_model") for name in self.identifiers):
            return True
        return any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "requires_grad_"
            and call.args
            and constant(call.args[0]) is False
            for call in calls
        )

    # --- what libraries are told

    def _enabled(self, calls: list[ast.Call]) -> Iterator[Enabled]:
        wrapped = [
            call.lineno
            for call in calls
            if dotted(call.func).rpartition(".")[2] in ("get_peft_model", "PeftModel")
            or dotted(call.func).endswith("PeftModel.from_pretrained")
        ]
        for call in calls:
            if dotted(call.func).rpartition(".")[2] not in _ENABLE and not (
                isinstance(call.func, ast.Attribute) and call.func.attr in _ENABLE
            ):
                continue
            for given in (*call.args, *(k.value for k in call.keywords)):
                value = self._reentrant_option(given, call)
                if value is not None:
                    after = any(line < call.lineno for line in wrapped)
                    yield Enabled(self.source.where(call), self.source.span(value), after)

    def _reentrant_option(self, node: ast.expr, call: ast.Call) -> ast.expr | None:
        """The constant True of `{"use_reentrant": True}`, written here or under a name."""
        if isinstance(node, ast.Name):
            home = self.scope(call).home(node.id)
            values = home.values.get(node.id, []) if home is not None else []
            return self._reentrant_option(values[0], call) if len(values) == 1 and values[0] is not node else None
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if constant(key) == "use_reentrant" and constant(value) is True:
                    return value
        if isinstance(node, ast.Call) and dotted(node.func) == "dict":
            said = keyword(node, "use_reentrant")
            return said.value if said is not None and constant(said.value) is True else None
        return None

    def _half(self, calls: list[ast.Call]) -> Iterator[Where]:
        for call in calls:
            name = dotted(call.func).rpartition(".")[2]
            chosen = keyword(call, {"Accelerator": "mixed_precision", "autocast": "dtype"}.get(name, ""))
            if chosen is None:
                continue
            if constant(chosen.value) == "fp16" or meaning(chosen.value, self.known) in (
                "torch.float16",
                "torch.half",
            ):
                yield self.source.where(chosen.value)

    def _deepspeed(self) -> Iterator[DeepSpeedConfig]:
        for node in self.nodes:
            if isinstance(node, ast.Dict) and any(constant(key) in _SETTINGS for key in node.keys):
                yield DeepSpeedConfig(self.source.where(node), _plain(node))


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


def _plain(node: ast.AST | None) -> Any:
    """The constants of a literal; None for what is computed."""
    if isinstance(node, ast.Dict):
        return {str(constant(key)): _plain(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(item) for item in node.elts]
    return constant(node)
