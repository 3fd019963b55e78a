"""What lies behind a failure that says only its shape, by what its line of code names: the table likely.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from ..model.crashes import Failure, Known
from ..model.record import dataclass
from .lookups import key, short
from .nothing import nothing_asked
from .stages import place_of

TABLE = Path(__file__).with_name("likely.yaml")
_PLAIN = re.compile(
    r"'(?P<what>dict|list|tuple|str|int|float|bool|function|method|builtin_function_or_method)' object has no "
    r"attribute '(?P<name>\w+)"
)
_TENSOR = re.compile(r"(?P<name>\w+)\(\)(?:: argument '\w+' \(position \d+\))? must be Tensor, not (?P<what>\w+)")


class Asked(NamedTuple):
    """The shape of a failure, what of the code it is about and what that was asked for; "" where the log lacks it."""

    of: str
    what: str = ""
    name: str = ""


@dataclass(frozen=True)
class Likely:
    """One line of the table, whose head says what each field means."""

    of: str
    cause: str
    do: str
    source: str
    what: str = ""
    name: str = ""
    where: str = ""
    said: str = ""
    vague: str = ""

    def fits(self, asked: Asked, failure: Failure) -> bool:
        told = {"{what}": asked.what, "{name}": asked.name, "{place}": failure.frames}
        frames = (f"{one.file} {one.function} {one.code}" for one in failure.frames)
        return (
            self.of == asked.of
            and all(there or place not in self.cause + self.do for place, there in told.items())
            and all(re.search(*pair) for pair in ((self.what, asked.what), (self.name, asked.name)))
            and re.search(self.said, failure.message) is not None
            and (not self.where or any(re.search(self.where, frame) for frame in frames))
        )


@cache
def table() -> tuple[Likely, ...]:
    """The table, in its order."""
    read = yaml.load(TABLE.read_bytes(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return tuple(Likely(**entry) for entry in read)


def likely(failure: Failure) -> Known | None:
    """What is told of it, where the table has what the code names."""
    asked = _asked(failure)
    found = next((one for one in table() if one.fits(asked, failure)), None) if asked is not None else None
    if asked is None or found is None:
        return None
    place = place_of(failure.frames[-1]) if failure.frames else ""

    def filled(text: str) -> str:
        return text.replace("{what}", asked.what).replace("{name}", asked.name).replace("{place}", place)

    return Known(
        filled(found.cause), filled(found.do), error=failure.name, vague=found.vague == "true", source=found.source
    )


def _asked(failure: Failure) -> Asked | None:
    message = " ".join(failure.message.split())
    for of, pattern in (("plain", _PLAIN), ("tensor", _TENSOR)):
        if (found := pattern.search(message)) is not None:
            return Asked(of, found["what"], found["name"])
    if (none := nothing_asked(failure)) is not None:
        return Asked("none", *none)
    if (looked_up := key(failure)) is not None:
        return Asked("key", *looked_up)
    return Asked("index", listed) if (listed := short(failure)) is not None else None
