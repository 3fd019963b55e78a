"""The config.json of a mined class out of the tensors of a file: the equations of its sizes, solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from math import isqrt
from typing import Any

from .expressions import Node, Numbers, parsed
from .shapes import BadConfig, Tensors, check_axes

Mined = Mapping[str, Any]


def inferred(found: Mined, head: str, axes: tuple[int, ...], tensors: Tensors) -> dict[str, Any]:
    """The config.json out of the tensors of a file: what their sizes tell, the rest as the class has it.

    `head` is an expression for the width of a head, which the `axes` of positions have together. Raises BadConfig.
    """
    names = {id(table): _names(table) for table in found["tables"]}
    most = max(found["tables"], key=lambda table: sum(1 if tensors.has(name) else -1 for name in names[id(table)]))
    config = _as_published(found, _solved(most, names[id(most)], found["defaults"], tensors))
    if axes:
        check_axes(Numbers(config, found["defaults"]).size(head), axes)
    return config


def _names(table: Mined) -> dict[str, str]:
    """The tensors of a model with one block in each list, with the expressions of their sizes."""
    every = ((name, sizes) for sizes, names in table["tensors"].items() for name in names if ".[" not in name)
    return {name.replace(".*.", ".0."): sizes for name, sizes in every}


def _solved(table: Mined, names: Mapping[str, str], defaults: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The keys of a config by which this table has these tensors. Raises BadConfig."""
    known: dict[str, Any] = dict(table["fixed"])
    for before, key in table["lists"].items():
        if " " in key:  # a sum of others
            continue
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
    while left := {text: size for text, size in sizes.items() if not _solve(parsed(text), size, known)}:
        if len(left) == len(sizes):
            key = _ambiguous(left, known)
            if key is None:
                raise BadConfig(f"no config makes {(text := next(iter(left)))} {left[text]}")
            known[key] = Numbers({}, defaults).number(key)
        sizes = left
    for text in absent:
        if _unknown(parsed(text), known):
            raise BadConfig(f"it has no {absent[text]}")
    return _with_lists(known, defaults)


def _ambiguous(sizes: Iterable[str], known: Mapping[str, Any]) -> str | None:
    """Of the keys that no size tells alone the one that models have alike: a patch, a head. None for no such."""
    several = [keys for text in sizes if len(keys := _unknown(parsed(text), known)) > 1]
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
    return int(Numbers({}, _with_lists(known, {})).value(node))


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
