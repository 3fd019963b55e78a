"""The tensors of a model class as they were mined from the class itself: `classes/NAME.json`, and how it is read.

maintenance/mine_classes.py writes these files and says how. A class has a table for each way of building it: values
of `fixed` that a config must have, how many blocks each list has, and names of tensors by their shape, all of them
expressions over the config's keys; `lengths` are those of lists in the config, `ranks` which of their numbers are
equal, each by the place of the first such. `defaults` are those of the class, a text being an expression again.
"blocks.*.norm" is in each block of `blocks`, "blocks.[:-1].norm" in all but the last, as Python has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from . import ModelClass
from .expressions import Numbers, at
from .inferred import Mined, inferred
from .shapes import MOST_TENSORS, BadConfig, Shapes
from .single_file import Dialect, Original, own_names, same_name, with_prefix

CLASSES = Path(__file__).with_name("classes")


@cache
def mined_class_of(name: str) -> Mined:
    """What was mined of one class."""
    found: Mined = json.loads((CLASSES / f"{name}.json").read_text("utf-8"))
    return found


@cache
def mined_classes() -> frozenset[str]:
    """The names of all classes that were mined."""
    return frozenset(file.stem for file in CLASSES.glob("*.json"))


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
        infer=lambda tensors: {"_class_name": name, **inferred(mined_class_of(name), head, axes, tensors)},
        other=original,
        dialect=dialect,
        original=original,
        swapped=swapped,
    )


def by_own_names(class_name: str) -> Callable[[Mapping[str, Any], Collection[str], bool], Shapes]:
    """What kohya's trainers fill of a mined class of their own: its tensors, under no other names."""
    return lambda config, present, either: mined_tensors(class_name, config)


def mined_tensors(class_name: str, config: Mapping[str, Any]) -> Shapes:
    """Name -> shape of every tensor that the class builds from this config.json. Raises BadConfig, KeyError."""
    return shapes_of(mined_class_of(class_name), config)


def shapes_of(found: Mined, config: Mapping[str, Any]) -> Shapes:
    """Name -> shape by what was mined. Raises BadConfig."""
    defaults, tables = found["defaults"], found["tables"]
    for table in tables:
        if _is_of(table, config, defaults):
            return _filled(table, Numbers(config, defaults))
    keys = sorted({key for table in tables for key in (*table["fixed"], *table["lengths"], *table["ranks"])})
    given = ", ".join(f"{key} {at(key, config, at(key, defaults, None))!r}" for key in keys)
    raise BadConfig(f"its tensors are not known for {given}"[:300])


def _is_of(table: Mined, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    def given(key: str) -> Any:
        return at(key, config, at(key, defaults, None))

    lengths = (isinstance(found := given(key), list) and len(found) == n for key, n in table["lengths"].items())
    ranks = (
        isinstance(found := given(key), list) and [*map(found.index, found)] == r for key, r in table["ranks"].items()
    )
    return all(given(key) == value for key, value in table["fixed"].items()) and all(lengths) and all(ranks)


def _filled(table: Mined, numbers: Numbers) -> Shapes:
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
