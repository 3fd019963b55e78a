"""The mined sources of packages, read where they are asked for: what they raise, make, and call by name.

maintenance/mine_raised.py writes `raised/PACKAGE.json.gz`.
"""

from __future__ import annotations

import gzip
import json
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
    spans = ((span.replace("-", "").split(" "), names) for span, names in document(package)["names"].items())
    return {name: (since, gone) for (since, gone), names in spans for name in names.split()}


def versions_of(package: str) -> tuple[str, str]:
    """The first and the last version that was read."""
    versions = document(package)["versions"]
    return versions[0], versions[-1]
