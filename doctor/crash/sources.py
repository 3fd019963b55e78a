"""The mined sources of packages, read where they are asked for: what they raise, make, and call by name.

maintenance/mine_raised.py writes `raised/PACKAGE.json.gz`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

RAISED = Path(__file__).with_name("raised")


@cache
def mined() -> tuple[str, ...]:
    """Those whose sources were mined."""
    return tuple(sorted(file.name.partition(".")[0] for file in RAISED.glob("*.json.gz")))


@cache
def document(package: str) -> Any:
    """All that was mined of one."""
    return json.loads(gzip.decompress((RAISED / f"{package}.json.gz").read_bytes()))


@cache
def made_by(package: str) -> frozenset[str]:
    """The classes and "functions()" that any version of the package makes."""
    return frozenset(document(package)["made"].split())


@cache
def names_of(package: str) -> dict[str, tuple[str, str]]:
    """Whatever anything of the package has or takes: the first version with it, and the first without it again."""
    return lifetimes(document(package)["names"])


def lifetimes(spans: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Of each name the first version with it and the first without it again, "" where no mined one lacks it.

    `spans` are names by "since gone", as mine_raised and mine_options write them, with - for none.
    """
    found: dict[str, tuple[str, str]] = {}
    for span, names in spans.items():
        since, gone = ("" if version == "-" else version for version in span.split())
        found.update(dict.fromkeys(names.split(), (since, gone)))
    return found


def versions_of(package: str) -> tuple[str, str]:
    """The first and the last version that was read."""
    versions = document(package)["versions"]
    return versions[0], versions[-1]
