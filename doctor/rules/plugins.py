"""Which installed packages bring rules of their own.

Asking importlib.metadata for entry points parses every package's metadata (about 50 ms in a large environment), so
only `entry_points.txt` files that mention the group are read, by listing the import path's folders.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

GROUP = "zdoctor.plugins"


@cache
def loaded() -> tuple[ModuleType, ...]:
    """The registered modules. One that cannot be imported is named on stderr and left out: it must not stop us."""
    modules = []
    for name in registered():
        try:
            modules.append(importlib.import_module(name))
        except Exception as error:
            left_out(name, f"{type(error).__name__}: {error}")
    return tuple(modules)


def left_out(name: str, why: str) -> None:
    print(f"zdoctor: the rules of {name} are left out: {why}", file=sys.stderr)


def registered() -> tuple[str, ...]:
    """Module names under the entry-point group, in name order."""
    names: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        try:
            candidates = sorted(Path(folder or ".").glob("*.*-info/entry_points.txt"))
        except OSError:
            continue
        for file in candidates:
            names |= _read(file)
    return tuple(module for _, module in sorted(names.items()))


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    if GROUP not in text:
        return {}
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(text)
    except Error:
        return {}
    return dict(parser[GROUP]) if parser.has_section(GROUP) else {}
