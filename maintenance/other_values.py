"""Other configs of a class, to see what its tensors depend on: which values a key could have as well."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def others_than(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value * 3, value + 1, value // 2 or 1]
    if isinstance(value, float):
        return [value * 2, value / 2]
    if value is None:
        return [8]
    if isinstance(value, list | tuple) and value:
        every = [type(value)(others[0] if (others := others_than(one)) else one for one in value)]
        return every + [
            _replaced(value, place, other) for place, one in enumerate(value) for other in others_than(one)[:2]
        ]
    return []


def is_word(value: Any) -> bool:
    """Whether nothing is known of the other values that a key could have: of a word, of none, of an empty list."""
    every = value if isinstance(value, list | tuple) else (value,)
    return not every or any(one is None or isinstance(one, str) for one in every)


def ranks_of(value: Any) -> list[int]:
    """Which of these numbers are equal, each by the place of the first such; none for what is no list of numbers."""
    plain = isinstance(value, list | tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    return [list(value).index(one) for one in value] if plain else []


def _replaced(values: Any, place: int, value: Any) -> Any:
    return type(values)((*values[:place], value, *values[place + 1 :]))


def flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return found


def with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    for path, value in values.items():
        put(made, path, value)
    return made


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *outer, key = path.split(".")
    for part in outer:
        config = config.setdefault(part, {})
    config[key] = list(value) if isinstance(value, tuple) else value
