"""The tensors of a model class as they were mined from the class itself: `classes.json`, and how it is read.

maintenance/mine_classes.py writes that file and says how. A class has a table for each way of building it: values of
`fixed` that a config must have, which key counts the blocks of each list, and names of tensors by their shape, whose
sizes are expressions over the config's keys; `lengths` are those of lists in the config, `ranks` which of their
numbers are equal, each by the place of the first such. `defaults` are those of the
class, a text being an expression again. "blocks.*.norm" is in each block of
`blocks`, "blocks.[:-1].norm" in all but the last, as Python has it.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from itertools import count
from math import isqrt
from pathlib import Path
from typing import Any

from . import ModelClass
from .shapes import LARGEST_SIZE, MOST_LAYERS, MOST_TENSORS, BadConfig, Shapes, Tensors, check_axes
from .single_file import Dialect, Original, own_names, same_name, with_prefix

CLASSES_FILE = Path(__file__).with_name("classes.json")
Mined = Mapping[str, Any]
# A number, a key ("text_config.hidden_size", "patch_size[0]"), or what is computed: its operator and its parts.
Node = int | float | str | tuple[Any, ...]
_COMPUTE: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "int": int,
    "min": min,
    "max": max,
}
_TOKEN = re.compile(r"\d+\.\d+|\d+|[A-Za-z_][\w.]*(?:\[\d+\])?|//|[-+*/(),]")


@cache
def _all() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(CLASSES_FILE.read_text("utf-8"))
    return found


def mined_classes() -> frozenset[str]:
    """The names of all classes that were mined."""
    return frozenset(_all())


def mined_class(
    name: str,
    title: str,
    marks: tuple[str, ...],
    *,
    head: str = "",
    axes: tuple[int, ...] = (),
    original: Original = same_name,
    dialect: Dialect = own_names,
    by_kohya: Callable[[Mapping[str, Any], Collection[str], bool], Shapes] | None = None,
    swapped: tuple[str, ...] = (),
) -> ModelClass:
    """The record of a class whose tensors were mined; the arguments are as `ModelClass` and `inferred` have them."""
    in_file = partial(with_prefix, original)
    return ModelClass(
        name=name,
        title=title,
        tensors=partial(mined_tensors, name),
        in_file=in_file,
        by_kohya=by_kohya or (lambda config, present, either: in_file(mined_tensors(name, config), present)),
        marks=marks,
        infer=partial(inferred, name, head, axes),
        other=original,
        dialect=dialect,
        original=original,
        swapped=swapped,
    )


def mined_tensors(class_name: str, config: Mapping[str, Any]) -> Shapes:
    """Name -> shape of every tensor that the class builds from this config.json. Raises BadConfig, KeyError."""
    return shapes_of(_all()[class_name], config)


def shapes_of(found: Mined, config: Mapping[str, Any]) -> Shapes:
    """Name -> shape by what was mined. Raises BadConfig."""
    defaults, tables = found["defaults"], found["tables"]
    for table in tables:
        if _is_of(table, config, defaults):
            return _filled(table, _Numbers(config, defaults))
    keys = sorted({key for table in tables for key in (*table["fixed"], *table["lengths"], *table["ranks"])})
    given = ", ".join(f"{key} {_at(key, config, _at(key, defaults, None))!r}" for key in keys)
    raise BadConfig(f"its tensors are not known for {given}"[:300])


def _is_of(table: Mined, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    def given(key: str) -> Any:
        return _at(key, config, _at(key, defaults, None))

    lengths = (isinstance(found := given(key), list) and len(found) == n for key, n in table["lengths"].items())
    ranks = (
        isinstance(found := given(key), list) and [*map(found.index, found)] == r for key, r in table["ranks"].items()
    )
    return all(given(key) == value for key, value in table["fixed"].items()) and all(lengths) and all(ranks)


def _filled(table: Mined, numbers: _Numbers) -> Shapes:
    lists = {name: numbers.count(key) for name, key in table["lists"].items()}
    if sum(lists.values()) * sum(map(len, table["tensors"].values())) > MOST_TENSORS:
        raise BadConfig(f"it would have more than {MOST_TENSORS} tensors")
    found: Shapes = {}
    for sizes, names in table["tensors"].items():
        shape = tuple(numbers.size(text) for text in sizes.split(" × ")) if sizes else ()
        for name in names:
            found.update(dict.fromkeys(_in_each_block(name, lists), shape))
    return found


def _in_each_block(name: str, lists: Mapping[str, int]) -> list[str]:
    before, star, after = name.partition(".*.")
    if not star:
        before, star, rest = name.partition(".[")
        if not star:
            return [name]
        which, _, after = rest.partition("].")
        start, _, stop = which.partition(":")
        numbers = range(lists[before])[int(start or 0) : int(stop) if stop else None]
    else:
        numbers = range(lists[before])
    return [found for number in numbers for found in _in_each_block(f"{before}.{number}.{after}", lists)]


class _Numbers:
    """Numbers by the expressions over a config."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.config = config
        self.defaults = defaults
        self.known: dict[str, int] = {}

    def size(self, text: str) -> int:
        if text not in self.known:
            value = self.value(_parsed(text))
            if not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE:
                raise BadConfig(f"{text} is {value!r}, no size from 1 to {LARGEST_SIZE}"[:200])
            self.known[text] = value
        return self.known[text]

    def count(self, text: str) -> int:
        """A number of blocks."""
        value = self.value(_parsed(text))
        if not isinstance(value, int) or not 0 <= value <= MOST_LAYERS:
            raise BadConfig(f"{text} is out of range (0 to {MOST_LAYERS})")
        return value

    def value(self, node: Node) -> Any:
        """What an expression comes to. Raises BadConfig."""
        if isinstance(node, str):
            return self.number(node)
        if not isinstance(node, tuple):
            return node
        name, *parts = node
        values = [self.value(part) for part in parts]
        if name in ("/", "//") and not values[1]:
            raise BadConfig(f"{parts[1]} is 0")
        return _COMPUTE[name](*values)

    def number(self, key: str) -> int | float:
        path, _, index = key.partition("[")
        default = _at(path, self.defaults, None)
        value = _at(path, self.config, default)
        if isinstance(default, str):  # what it follows from where it is not written
            value = self.value(_parsed(default)) if value is None or value == default else value
            default = 0
        if index and isinstance(value, list) and int(index[:-1]) < len(value):
            value, default = value[int(index[:-1])], default[0] if isinstance(default, list) and default else 0
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadConfig(f"{key} is {str(value)[:80]!r}, not a number")
        if isinstance(value, float) and not isinstance(default, float):
            raise BadConfig(f"{key} is {value!r}, not a whole number")
        if not 0 <= value <= LARGEST_SIZE:
            raise BadConfig(f"{key} is out of range (0 to {LARGEST_SIZE})")
        return value


@cache
def _parsed(text: str) -> Node:
    node, rest = _sum(_TOKEN.findall(text))
    assert not rest, text
    return node


def _sum(tokens: list[str]) -> tuple[Node, list[str]]:
    node, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        right, rest = _product(tokens[1:])
        node, tokens = (tokens[0], node, right), rest
    return node, tokens


def _product(tokens: list[str]) -> tuple[Node, list[str]]:
    node, tokens = _one(tokens)
    while tokens and tokens[0] in ("*", "/", "//"):
        right, rest = _one(tokens[1:])
        node, tokens = (tokens[0], node, right), rest
    return node, tokens


def _one(tokens: list[str]) -> tuple[Node, list[str]]:
    first, *rest = tokens
    if first == "(":
        node, rest = _sum(rest)
        return node, rest[1:]
    if rest[:1] == ["("]:
        parts: list[Node] = []
        while rest[0] != ")":
            node, rest = _sum(rest[1:])
            parts.append(node)
        return (first, *parts), rest[1:]
    return (float(first) if "." in first else int(first)) if first[0].isdigit() else first, rest


def _at(path: str, config: Mapping[str, Any], default: Any) -> Any:
    """The value of "text_config.hidden_size", lists being lists."""
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return list(value) if isinstance(value, tuple) else value


def inferred(class_name: str, head: str, axes: tuple[int, ...], tensors: Tensors) -> dict[str, Any]:
    """The config.json out of the tensors of a file: what their sizes tell, the rest as the class has it.

    `head` is an expression for the width of a head, which the `axes` of positions have together. Raises BadConfig.
    """
    found = _all()[class_name]
    names = {id(table): _names(table) for table in found["tables"]}
    most = max(found["tables"], key=lambda table: sum(1 if tensors.has(name) else -1 for name in names[id(table)]))
    config = _as_published(found, _solved(most, names[id(most)], found["defaults"], tensors))
    if axes:
        check_axes(_Numbers(config, found["defaults"]).size(head), axes)
    return {"_class_name": class_name, **config}


def _names(table: Mined) -> dict[str, str]:
    """The tensors of a model with one block in each list, with the expressions of their sizes."""
    every = ((name, sizes) for sizes, names in table["tensors"].items() for name in names if ".[" not in name)
    return {name.replace(".*.", ".0."): sizes for name, sizes in every}


def _solved(table: Mined, names: Mapping[str, str], defaults: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The keys of a config by which this table has these tensors. Raises BadConfig."""
    known: dict[str, Any] = dict(table["fixed"])
    for before, key in table["lists"].items():
        first = next(name.removeprefix(f"{before}.0.") for name in names if name.startswith(f"{before}.0."))
        known[key] = next(n for n in count() if not tensors.has(f"{before}.{n}.{first}"))
    shared = Counter(map(tensors.other, names))  # a tensor that is fused has the rows of others, too
    sizes: dict[str, int] = {}
    absent: dict[str, str] = {}
    for name, texts in names.items():
        split = texts.split(" × ") if texts else []
        if shared[tensors.other(name)] > 1:
            continue
        if tensors.has(name):
            for text, size in zip(split, tensors.shape(len(split), name), strict=True):
                sizes.setdefault(text, size)
        elif known.get(table["lists"].get(name.partition(".0.")[0], ""), 1):
            absent.update(dict.fromkeys(split, tensors.other(name)))
    while left := {text: size for text, size in sizes.items() if not _solve(_parsed(text), size, known)}:
        if len(left) == len(sizes):
            key = _ambiguous(left, known)
            if key is None:
                raise BadConfig(f"no config makes {(text := next(iter(left)))} {left[text]}")
            known[key] = _Numbers({}, defaults).number(key)
        sizes = left
    for text in absent:
        if _unknown(_parsed(text), known):
            raise BadConfig(f"it has no {absent[text]}")
    return _with_lists(known, defaults)


def _ambiguous(sizes: Iterable[str], known: Mapping[str, Any]) -> str | None:
    """Of the keys that no size tells alone the one that models have alike: a patch, a head. None for no such."""
    several = [keys for text in sizes if len(keys := _unknown(_parsed(text), known)) > 1]
    alike = sorted(
        (key for keys in several for key in keys), key=lambda key: ("patch" not in key, "head_dim" not in key)
    )
    return alike[0] if alike else None


def _unknown(node: Node, known: Mapping[str, Any]) -> list[str]:
    """The keys of an expression that are not known yet."""
    if isinstance(node, str):
        return [] if node in known or node.partition("[")[0] in known else [node]
    parts = node[1:] if isinstance(node, tuple) else ()
    return list(dict.fromkeys(key for part in parts for key in _unknown(part, known)))


def _solve(node: Node, size: int, known: dict[str, Any]) -> bool:
    """Note the one key of this expression that is not known yet; whether there is none left."""
    unknown = _unknown(node, known)
    if isinstance(node, str) and unknown:
        known[node] = size
    if isinstance(node, str) or not unknown:
        return True
    if not isinstance(node, tuple) or len(unknown) > 1:
        return False
    if node[0] not in ("+", "*", "//"):
        return True  # what was cut off cannot be told: the class's default stays
    sides = node[1:]
    left, right = (None if _unknown(side, known) else _number(side, known) for side in sides)
    match node[0]:
        case "*" if left is None and right is None:
            return isqrt(size) ** 2 == size and _solve(sides[0], isqrt(size), known)
        case "*":
            rest, side = (right or 0, sides[0]) if left is None else (left, sides[1])
            return rest > 0 and size % rest == 0 and _solve(side, size // rest, known)
        case "+" if left is not None or right is not None:
            return _solve(sides[0] if left is None else sides[1], size - ((left or 0) + (right or 0)), known)
        case "//" if right is not None:
            return _solve(sides[0], size * right, known)
        case "//" if left is not None and size:
            return left % size == 0 and _solve(sides[1], left // size, known)
    return False


def _number(node: Node, known: Mapping[str, Any]) -> int:
    """The number of an expression whose keys are all known."""
    return int(_Numbers({}, _with_lists(known, {})).value(node))


def _with_lists(known: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by keys as "patch_size[0]" in lists; what is not known of a list is as the class has it."""
    made = {key: value for key, value in known.items() if "[" not in key}
    for key, value in known.items():
        path, bracket, index = key.partition("[")
        if bracket:
            whole = made.setdefault(path, list(defaults.get(path, ())))
            whole += [0] * (int(index[:-1]) + 1 - len(whole))
            whole[int(index[:-1])] = value
    return made


def _as_published(found: Mined, config: dict[str, Any]) -> dict[str, Any]:
    """With as many blocks as the published model of these widths has: a file may lack the last of them."""
    depths = {key for table in found["tables"] for key in table["lists"].values()}
    for published in found["published"]:
        whole = {**found["defaults"], **published}
        if all(whole.get(key) == value for key, value in config.items() if key not in depths):
            return {**config, **{key: whole[key] for key in depths if key in config}}
    return config
