"""`dataclass(frozen=True)` for the nouns, made in a third of the time.

The standard decorator writes and compiles six functions for each class; for the 60 records that every start needs,
that is a tenth of a whole check. Here only `__init__` is compiled; comparison, hash and text are shared. That the
records are frozen is held by the type checkers, for which this is the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    Made = TypeVar("Made", bound=type)

    def dataclass(*, frozen: bool) -> Callable[[Made], Made]:
        def make(cls: Made) -> Made:
            made = dataclasses.dataclass(eq=False, repr=False)(cls)
            made.__eq__, made.__hash__, made.__repr__ = _equal, _hash, _text
            return made

        return make


def _values(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__dataclass_fields__)


def _equal(one: Any, other: Any) -> bool:
    return _values(one) == _values(other) if one.__class__ is other.__class__ else NotImplemented


def _hash(record: Any) -> int:
    return hash(_values(record))


def _text(record: Any) -> str:
    inside = ", ".join(f"{name}={getattr(record, name)!r}" for name in record.__dataclass_fields__)
    return f"{type(record).__qualname__}({inside})"
