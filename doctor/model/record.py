"""`dataclass(frozen=True)` for the nouns, without what the standard one costs at every start.

The standard decorator imports `inspect` and `ast` and compiles six functions a class: for the 90 records of a check,
a fifth of its time. Here nothing is compiled. To `dataclasses`, `copy`, `pickle` and type checkers a record is a
frozen dataclass like any other; only its hash passes over what has none (mappings), so that every record has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    Made = TypeVar("Made", bound=type)

    def dataclass(*, frozen: bool) -> Callable[[Made], Made]:
        return _made

    def field(*, default_factory: Callable[[], Any]) -> Any:
        return _Anew(default_factory)

    def replace(record: Any, /, **changes: Any) -> Any:
        values = vars(record)
        return record.__class__(**{name: values[name] for name in record.__match_args__} | changes)

    def _made(cls: Made) -> Made:
        names = tuple(cls.__annotations__)
        defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
        cls.__match_args__ = names
        cls.__dataclass_fields__ = _Fields(cls, defaults)
        cls.__init__ = _init(names, defaults)
        cls.__eq__, cls.__hash__, cls.__repr__ = _equal, _hash, _text
        cls.__setattr__, cls.__delattr__, cls.__replace__ = _refuse, _refuse, replace
        return cls


class _Anew:
    """A default that is made for each record."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class _Fields:
    """What `dataclasses` asks a class for, made when it first asks."""

    def __init__(self, of: type, defaults: dict[str, Any]) -> None:
        self._of, self._defaults = of, defaults

    def __get__(self, record: Any, _: Any) -> Any:
        import dataclasses

        cls: Any = self._of  # a class below it adds none
        body: dict[str, Any] = {"__annotations__": cls.__annotations__, "__module__": cls.__module__}
        for name, value in self._defaults.items():
            body[name] = dataclasses.field(default_factory=value.make) if isinstance(value, _Anew) else value
        standard: Any = dataclasses.dataclass(eq=False, repr=False)(type(cls.__name__, (), body))
        cls.__dataclass_fields__ = standard.__dataclass_fields__
        return standard.__dataclass_fields__


def _init(names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    known = frozenset(names)
    anew = {name: value.make for name, value in defaults.items() if isinstance(value, _Anew)}

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        values = self.__dict__
        values.update(defaults)
        values.update(zip(names, args))  # noqa: B905  # too many are refused below
        values.update(given)
        if (
            values.keys() != known
            or len(args) > len(names)
            or (args and given and not given.keys().isdisjoint(names[: len(args)]))
        ):
            raise TypeError(_wrong(type(self).__name__, names, {*defaults}, len(args), {*given}))
        for name, make in anew.items():
            if values[name] is defaults[name]:
                values[name] = make()

    return __init__


def _wrong(record: str, names: tuple[str, ...], optional: set[str], count: int, given: set[str]) -> str:
    taken = {*names[:count]}
    if count > len(names):
        return f"{record}: {count} values for {len(names)} fields"
    unknown, twice, missing = given - {*names}, given & taken, {*names} - taken - given - optional
    reasons = (("no such field", unknown), ("given twice", twice), ("missing", missing))
    said = [f"{why}: {', '.join(sorted(which))}" for why, which in reasons if which]
    return f"{record}: {'; '.join(said)}"


def holes(record: Any) -> list[str]:
    """The fields that hold None though their types, as they are written, have none."""
    types = type(record).__annotations__
    return [name for name, value in vars(record).items() if value is None and "None" not in str(types[name])]


def _values(record: Any) -> list[Any]:
    values = vars(record)
    return [values[name] for name in record.__match_args__]


def _equal(one: Any, other: Any) -> Any:
    if one.__class__ is not other.__class__:
        return NotImplemented
    return one is other or _values(one) == _values(other)


def _hash(record: Any) -> int:
    def hash_or_zero(value: Any) -> int:
        try:
            return hash(value)
        except TypeError:  # a mapping; equal records still have equal hashes
            return 0

    return hash(tuple(map(hash_or_zero, _values(record))))


def _text(record: Any) -> str:
    inside = ", ".join(f"{name}={vars(record)[name]!r}" for name in record.__match_args__)
    return f"{type(record).__qualname__}({inside})"


def _refuse(record: Any, name: str, *value: Any) -> NoReturn:
    """In the place of `__setattr__`, which gets a value, and `__delattr__`."""
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
