"""A model class, built on the meta device from a config: its tensors by name, with sizes as they were computed."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock, patch

import torch

from zdoctor.maintenance.classes import Source
from zdoctor.maintenance.remembering import lifted, plain

Tree = dict[str, tuple[Any, ...]]


class Keywords:
    """A class that is built from keyword arguments, or from one object that is: of diffusers, or a trainer's own."""

    def __init__(self, source: Source) -> None:
        module = module_of(source.module) if source.trainer else importlib.import_module(source.module)
        self.kind: Any = getattr(module, source.kind or source.name)
        self.made_of: Any = getattr(module, source.made_of) if source.made_of else None
        parameters = inspect.signature(self.made_of or self.kind.__init__).parameters.values()
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        if source.trainer:  # of what has no default as it is published
            self.defaults = {**source.configs[0], **self.defaults}
        if self.made_of:  # as its fields are made
            made = {f.name: f.default_factory() for f in fields(self.made_of) if callable(f.default_factory)}
            self.defaults = {**self.defaults, **made}

    def build(self, config: Mapping[str, Any], *, lift: bool = False) -> Any:
        every = {**self.defaults, **config}
        given = {key: lifted(value, key) for key, value in every.items()} if lift else every
        return self.kind(self.made_of(**given)) if self.made_of else self.kind(**given)


def module_of(name: str) -> Any:
    """A module of a checkout: packages above it are not run, and what only its computing takes need not be there.

    Nor need a card, which a default may name.
    """
    above = name.split(".")[:-1]
    for end in range(1, len(above) + 1):
        package = ".".join(above[:end])
        places = [str(place) for path in sys.path if (place := Path(path, *above[:end])).is_dir()]
        sys.modules.setdefault(package, ModuleType(package)).__path__ = places
    with patch.object(torch.cuda, "current_device", lambda: 0):
        with suppress(ImportError):
            return importlib.import_module(name)
        for asks in ("transformers", "diffusers.utils"):  # which look for torchvision, once
            importlib.import_module(asks)
        for other in ("einops", "cv2", "torchvision", "torchvision.transforms"):
            sys.modules.setdefault(other, Mock(__spec__=None))
        return importlib.import_module(name)


class Transformers:
    """A class that is built from an object of its config's class."""

    def __init__(self, source: Source) -> None:
        self.kind: Any = getattr(importlib.import_module(source.module), source.name)
        self.config: Any = self.kind.config_class
        self.defaults = _numbers(self.config())

    def build(self, config: Mapping[str, Any], *, lift: bool = False) -> Any:
        made = self.config(**copy.deepcopy(dict(config)))
        if lift:
            _lift(made, "")
        return self.kind(made)


def maker_of(source: Source) -> Keywords | Transformers:
    return Transformers(source) if source.module == "transformers" else Keywords(source)


def _inner(config: Any) -> list[str]:
    """The keys of configs within a config."""
    return [key for key, value in vars(config).items() if hasattr(value, "to_dict") and hasattr(value, "model_type")]


def _numbers(config: Any) -> dict[str, Any]:
    inner = {key: _numbers(getattr(config, key)) for key in _inner(config)}
    plain = (bool, int, float, list, tuple, type(None), str)
    return {
        key: inner.get(key, value)
        for key, value in vars(config).items()
        if key in inner or (isinstance(value, plain) and not key.startswith("_"))
    }


def _lift(config: Any, before: str) -> None:
    for key, value in list(vars(config).items()):
        if key in _inner(config):
            _lift(value, f"{before}{key}.")
        elif isinstance(value, int | float | list | tuple) and not key.startswith("_"):
            with suppress(Exception):
                object.__setattr__(config, key, lifted(value, before + key))


def tree_of(model: Any) -> Tree:
    """Name -> sizes as they were computed, of what is saved; a tensor that is tied to another has one name."""
    state = model.state_dict(keep_vars=True)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    seen: dict[int, str] = {}
    found: Tree = {}
    for name, tensor in state.items():
        if name in tied and any(tensor is state[other] for other in state if other not in tied):
            continue
        seen[id(tensor)] = name
        sizes = getattr(tensor, "sizes", ())
        found[name] = sizes if tuple(map(plain, sizes)) == tuple(tensor.shape) else tuple(tensor.shape)
    return found


def plain_tree(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(plain, sizes)) for name, sizes in tree.items()}
