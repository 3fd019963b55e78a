"""Lists of blocks by name: "layers", or in each of several modules with `*` for its place ("down.*.layers")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache


@cache
def _pattern(lists: tuple[str, ...]) -> re.Pattern[str]:
    names = (re.escape(one).replace(r"\*", "[^.]+") + r"\." if one else "" for one in lists)
    return re.compile(f"(?:{'|'.join(names)})[^.]+" if lists else "(?!)")


def is_within(name: str, lists: Iterable[str]) -> bool:
    """Whether a module or tensor of this name belongs to one of the lists; "" is a list of all."""
    return _pattern(tuple(lists)).match(name) is not None


def block_of(name: str, lists: Iterable[str]) -> str:
    """The block of one of the lists that a module of this name belongs to; "" where it does to none."""
    found = _pattern(tuple(lists)).match(name)
    return found[0] if found else ""
