"""What several trainers take apart, compare or put together alike: words, options on a line, values, a path."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def names_beside(module: str) -> dict[str, Any]:
    """The lists of names in names.json beside a module, which says of each what it is about."""
    lists = json.loads(Path(module).with_name("names.json").read_bytes())
    return {name: one["names"] for name, one in lists.items()}


def options_in(text: str, lists: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Each option `--name` of a line with its first word, true where it has none; those of `lists` with all words."""
    import shlex  # for few configs

    try:
        found = shlex.split(text)
    except ValueError:
        found = text.split()
    at = [index for index, word in enumerate(found) if word.startswith("--")]
    for start, end in pairwise([*at, len(found)]):
        name, equals, value = found[start][2:].partition("=")
        values = [value, *found[start + 1 : end]] if equals else found[start + 1 : end]
        yield name, values if name in lists else values[0] if values else True


def joined(folder: str, name: str) -> str:
    return folder + name if folder.endswith(("/", "\\")) else f"{folder}/{name}"


def same(value: Any, other: Any) -> bool:
    """Whether two values are the same words of a command line; false, 0 and none are nothing."""
    nothing: tuple[Any, ...] = (None, False, "false", "False", "0", "none", "None", "", [], {})
    if value in nothing:
        return other in nothing or other == 0
    try:
        return float(value) == float(other)
    except (TypeError, ValueError):
        return str(value).lower() == str(other).lower()


def short(value: Any) -> str:
    """A value in a sentence."""
    return (
        "…" if isinstance(value, dict | list) else str(value).lower() if isinstance(value, bool) else str(value)[:40]
    )
