"""Numbers that remember how they were computed, and tensors that remember the numbers their sizes were given as."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MODELS = ("diffusers.models", "diffusers.pipelines", "transformers.models", "extensions_built_in.diffusion_models")
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//"}


class Sized(int):
    """A whole number and the expression over the config's keys that it was computed by."""

    text = ""

    def __int__(self) -> Any:  # an int of its own would forget
        return self


class Ratio(float):
    """A fraction, likewise."""

    text = ""


def number_of(value: Any, text: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    made = Sized(value) if isinstance(value, int) else Ratio(value)
    made.text = text
    return made


def text_of(number: Any) -> str:
    return getattr(number, "text", "") or repr(number)


def plain(number: Any) -> Any:
    if isinstance(number, Sized):
        return int.__add__(number, 0)
    return float.__add__(number, 0.0) if isinstance(number, Ratio) else number


def _remember(name: str, symbol: str) -> None:
    compute: Callable[[Any, Any], Any] = getattr(operator, name)

    def forward(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return compute(plain(self), other)
        return number_of(compute(plain(self), plain(other)), f"({text_of(self)} {symbol} {text_of(other)})")

    def backward(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return compute(other, plain(self))
        return number_of(compute(plain(other), plain(self)), f"({text_of(other)} {symbol} {text_of(self)})")

    for kind in (Sized, Ratio):
        setattr(kind, f"__{name}__", forward)
        setattr(kind, f"__r{name}__", backward)


for _name, _symbol in _SYMBOLS.items():
    _remember(_name, _symbol)


class _Whole(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)


class _Int(metaclass=_Whole):
    """What `int` is for the modules that are mined."""

    def __new__(cls, value: Any = 0, *rest: Any) -> Any:
        if isinstance(value, Ratio):
            return number_of(int(plain(value)), f"int({value.text})")
        return value if isinstance(value, Sized) else int(value, *rest)


def _chooser(name: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **named: Any) -> Any:
        if len(args) > 1 and any(isinstance(arg, Sized | Ratio) for arg in args):
            return number_of(choose(*map(plain, args)), f"{name}({', '.join(map(text_of, args))})")
        return choose(*args, **named)

    return chosen


_BUILTINS: Mapping[str, Any] = {"int": _Int, "min": _chooser("min", min), "max": _chooser("max", max)}


@contextmanager
def remembering() -> Iterator[None]:
    """Modules that build models compute with these in place of the builtins; Parameters keep sizes."""
    modules = {id(m): m for n, m in sys.modules.items() if n.startswith(_MODELS)}
    changed = [m for m in modules.values() if m is not None and not _BUILTINS.keys() & vars(m).keys()]
    for module in changed:
        vars(module).update(_BUILTINS)
    make = torch.nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = make(cls, data, requires_grad)
        if hasattr(data, "sizes"):
            made.sizes = data.sizes
        return made

    torch.nn.Parameter.__new__ = parameter  # type: ignore[method-assign]
    try:
        with torch.device("meta"), _Sizes():
            yield
    finally:
        torch.nn.Parameter.__new__ = make  # type: ignore[method-assign]
        for module in changed:
            for name in _BUILTINS:
                vars(module).pop(name, None)


class _Sizes(TorchFunctionMode):
    """Each new tensor remembers the numbers that its sizes were given as."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not isinstance(made, torch.Tensor):
            return made
        given = (kwargs or {}).get("size", args[0] if len(args) == 1 else args)
        given = tuple(given) if isinstance(given, tuple | list) else (given,)
        if all(isinstance(one, int) for one in given) and tuple(map(plain, given)) == tuple(made.shape):
            made.sizes = given  # type: ignore[attr-defined]
        else:
            same = [arg for arg in args if isinstance(arg, torch.Tensor) and hasattr(arg, "sizes")]
            like = next((arg for arg in same if arg.shape == made.shape), None)
            if like is not None:
                made.sizes = like.sizes  # type: ignore[attr-defined]
        return made


def lifted(value: Any, path: str) -> Any:
    """The same numbers, each knowing where it stands in the config."""
    if isinstance(value, list | tuple):
        return type(value)(lifted(one, f"{path}[{index}]") for index, one in enumerate(value))
    return value if isinstance(value, bool) else number_of(value, path)
