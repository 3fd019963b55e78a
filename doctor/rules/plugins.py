"""Which installed packages bring rules of their own, and the records of model families that they bring.

Asking importlib.metadata for entry points parses every package's metadata (about 50 ms in a large environment), so
only `entry_points.txt` files that mention the group are read, by listing the import path's folders.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from .. import families, trainers
from ..families.record import Family
from ..model.record import holes
from ..model.trainer import Trainer

GROUP = "zdoctor.plugins"


@cache
def loaded() -> tuple[ModuleType, ...]:
    """The registered modules. One that cannot be imported is named on stderr and left out: it must not stop us."""
    modules = []
    for name in registered():
        try:
            modules.append(importlib.import_module(name))
        except (Exception, SystemExit) as error:
            left_out(name, f"{type(error).__name__}: {error}")
    return tuple(modules)


def left_out(name: str, why: str) -> None:
    print(f"zdoctor: the rules of {name} are left out: {why}", file=sys.stderr)


def add_records(plugin: ModuleType) -> None:
    """Make known what a plug-in holds as FAMILIES and TRAINERS. Raises TypeError or ValueError for what is none."""
    for name, kind, add in (("FAMILIES", Family, families.add), ("TRAINERS", Trainer, trainers.add)):
        found = getattr(plugin, name, ())
        for record in found:
            if not isinstance(record, kind):
                raise TypeError(f"its {name} hold {record!r}, which is no {kind.__name__}")
            if empty := holes(record):
                raise ValueError(f"its {kind.__name__.lower()} {record.name!r} has no {', '.join(empty)}")
        add(found)


def registered() -> tuple[str, ...]:
    """Module names under the entry-point group, in name order."""
    names: dict[str, str] = {}
    for text in _declarations():
        names |= _modules(text)
    return tuple(module for _, module in sorted(names.items()))


def _declarations() -> Iterator[str]:
    """The text of every package's entry points that has our group in it."""
    for folder in dict.fromkeys(sys.path):
        try:
            infos = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith("-info")]
        except OSError:
            continue
        for info in sorted(infos):
            try:
                with open(os.path.join(info, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if GROUP in text:
                yield text


def _modules(text: str) -> dict[str, str]:
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(text)
    except Error:
        return {}
    return dict(parser[GROUP]) if parser.has_section(GROUP) else {}
