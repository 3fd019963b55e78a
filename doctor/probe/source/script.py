"""A user's training script: where it checkpoints activations, and what it does to make gradients appear."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ...configs.python_tree import (
    Source,
    Unparsable,
    argument,
    arguments,
    constant,
    dotted,
    last_name,
    meaning,
    parsed,
)
from ...model import Config, Unknown, Where
from ...model.checkout import Edit
from ...model.record import replace
from ...model.script import DeepSpeedConfig, Enabled, Script
from ..world import World
from .checkpoints import checkpoints, forced, input_grads
from .names import Module

_FLOW = re.compile(r"(?:FlowMatch\w*Scheduler|(?:Flux|ZImage|SD3|Lumina2|QwenImage|Sana|AuraFlow)\w*)$")
_VISION = re.compile(r"^(?:ViT|Siglip|Dino|Swin|Beit|Deit|ConvNext)|Vision|pixel_values", re.I)
_ENABLE = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
_SETTINGS = {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}
_HALF = {"fp16", "torch.float16", "torch.half"}
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
    folder = world.parent(world.absolute(path))
    for name in [name for name in world.names_in(folder) if name.endswith(".json")][:_MOST_JSON]:
        settings = world.json(world.join(folder, name), _LARGEST_JSON)
        if isinstance(settings, dict) and _SETTINGS & settings.keys():
            yield DeepSpeedConfig(Where(world.join(world.parent(path), name)), settings)


def read_script(path: str, text: str) -> Script:
    """What a script does with checkpointing and gradients. Raises Unparsable."""
    module = Module(Source(path, text), parsed(text))
    found = checkpoints(module)
    flow = sorted(name for name in module.identifiers if _FLOW.match(name))
    return Script(
        checkpoints=tuple(found.values()),
        forced=tuple(forced(module, found)),
        enabled=tuple(_enabled(module)),
        input_grads=input_grads(module),
        partly_frozen=_partly_frozen(module),
        flow=flow[0] if flow else "",
        vision=any(_VISION.search(name) for name in module.identifiers),
        half=tuple(_half(module)),
        deepspeed=tuple(_deepspeed(module)),
        uses_deepspeed=any(full.partition(".")[0] == "deepspeed" for full in module.known.values())
        or "DeepSpeedPlugin" in module.identifiers,
    )


def _partly_frozen(module: Module) -> bool:
    if any("lora" in name.lower() or name in ("peft", "get_peft_model") for name in module.identifiers):
        return True
    frozen = [call for call in module.calls if getattr(call.func, "attr", "") == "requires_grad_" and call.args]
    return any(constant(call.args[0]) is False for call in frozen)


def _enabled(module: Module) -> Iterator[Enabled]:
    wrapped = [
        call.lineno
        for call in module.calls
        if last_name(call.func) in ("get_peft_model", "PeftModel")
        or dotted(call.func).endswith("PeftModel.from_pretrained")
    ]
    for call in module.calls:
        if getattr(call.func, "attr", getattr(call.func, "id", "")) not in _ENABLE:
            continue
        for given in arguments(call):
            value = _reentrant_option(module, given, call)
            if value is not None:
                after = any(line < call.lineno for line in wrapped)
                yield Enabled(module.source.where(call), Edit(*module.source.span(value), "True", "False"), after)


def _reentrant_option(module: Module, node: ast.expr, call: ast.Call) -> ast.expr | None:
    """The constant True of `{"use_reentrant": True}`, written here or under a name."""
    if isinstance(node, ast.Name):
        home = module.scope(call).home(node.id)
        values = home.values.get(node.id, []) if home is not None else []
        return _reentrant_option(module, values[0], call) if len(values) == 1 and values[0] is not node else None
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if constant(key) == "use_reentrant" and constant(value) is True:
                return value
    if isinstance(node, ast.Call) and dotted(node.func) == "dict":
        said = argument(node, "use_reentrant")
        return said if constant(said) is True else None
    return None


def _half(module: Module) -> Iterator[Where]:
    for call in module.calls:
        option = {"Accelerator": "mixed_precision", "autocast": "dtype"}.get(last_name(call.func), "")
        chosen = argument(call, option)
        if chosen is not None and {constant(chosen), meaning(chosen, module.known)} & _HALF:
            yield module.source.where(chosen)


def _deepspeed(module: Module) -> Iterator[DeepSpeedConfig]:
    for node in module.nodes:
        if isinstance(node, ast.Dict) and any(constant(key) in _SETTINGS for key in node.keys):
            yield DeepSpeedConfig(module.source.where(node), _plain(node))


def _plain(node: ast.AST | None) -> Any:
    """The constants of a literal; None for what is computed."""
    if isinstance(node, ast.Dict):
        return {str(constant(key)): _plain(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(item) for item in node.elts]
    return constant(node)
