"""The light records behave as frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from zdoctor.doctor import model
from zdoctor.doctor.model import Config, Facts, Fix, Plan, Report, SetValue, Unknown, Where
from zdoctor.doctor.model.record import dataclass, field
from zdoctor.doctor.model.record import replace as changed
from zdoctor.doctor.model.run import Value

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Light:
    name: str
    sizes: tuple[int, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Standard:
    name: str
    sizes: tuple[int, ...] = ()
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)


def nouns() -> list[type[Any]]:
    modules = [importlib.import_module(f"{model.__name__}.{m.name}") for m in pkgutil.iter_modules(model.__path__)]
    found = {noun: None for module in modules for noun in vars(module).values() if dataclasses.is_dataclass(noun)}
    return [noun for noun in found if isinstance(noun, type)]


def test_what_dataclasses_asks_for_is_made_once() -> None:
    """It takes milliseconds: `dataclasses.replace` asks twice."""
    assert Light.__dataclass_fields__ is Light.__dataclass_fields__


def blank(noun: type[Any]) -> Any:
    """A record of this class, with a mapping wherever a value must be given."""
    required = [f for f in dataclasses.fields(noun) if f.default is f.default_factory is dataclasses.MISSING]
    return noun(**{f.name: {"a": [1]} for f in required})


@pytest.mark.parametrize("made", [Light, Standard])
def test_records_compare_and_read_as_the_standard_ones_do(made: Any) -> None:
    one = made("a", (1, 2))
    assert one == made("a", (1, 2)) and one != made("a") and one != ("a", (1, 2))
    assert hash(one) == hash(made("a", (1, 2))) and len({one, made("a", (1, 2)), made("b")}) == 2
    assert repr(one) == f"{made.__name__}(name='a', sizes=(1, 2), notes={{}})"
    assert dataclasses.replace(one, name="c") == changed(one, name="c") == made("c", (1, 2))
    assert dataclasses.asdict(one) == {"name": "a", "sizes": (1, 2), "notes": {}}
    assert [f.name for f in dataclasses.fields(one)] == ["name", "sizes", "notes"]
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert made("a").notes is not made("a").notes
    match one:
        case Light(name, (first, *_)) | Standard(name, (first, *_)):
            assert (name, first) == ("a", 1)
        case _:
            raise AssertionError
    assert Light("a") != Standard("a")  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("made", [Light, Standard])
@pytest.mark.parametrize(
    ("args", "given"),
    [((), {}), (("a", (), {}, 1), {}), (("a",), {"name": "b"}), (("a",), {"other": 1}), ((), {"other": 1})],
)
def test_wrong_arguments_are_refused(made: Any, args: tuple[object, ...], given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=made.__name__):
        made(*args, **given)


@pytest.mark.parametrize("noun", nouns(), ids=lambda noun: noun.__name__)
def test_every_noun_is_frozen_and_has_a_hash(noun: type[Any]) -> None:
    one, other = blank(noun), blank(noun)
    assert one == other and hash(one) == hash(other) and one in {other}
    for name in (*(f.name for f in dataclasses.fields(noun)), "something_else"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(one, name, 99)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(one, name)
    assert one == other == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == dataclasses.replace(one)


def test_the_same_content_has_the_same_hash() -> None:
    frozen = Light("a", notes=MappingProxyType({"b": "c"}))
    assert frozen == Light("a", notes={"b": "c"}) and hash(frozen) == hash(Light("a", notes={"b": "c"}))
    fix = Fix("t", (SetValue("c.yaml", "/a", {"b": [1]}),))
    assert {fix: 1}[Fix("t", (SetValue("c.yaml", "/a", {"b": [1]}),))] == 1
    config = Config("c", "a: 1", None, values={"/a": Value(1, Where("c"), 3, 4)})
    holders = [Facts(config=config), Report("c", None), Plan("c", (fix,)), Unknown("why")]
    assert len({*holders, *holders}) == len(holders)


def test_every_noun_is_a_record() -> None:
    """Made by the standard decorator, a class would cost every start what the others spare."""
    assert len(nouns()) > 70
    assert all(vars(noun)["__eq__"] is vars(Light)["__eq__"] for noun in nouns())
    files = [p for p in (ROOT / "doctor" / "model").glob("*.py") if p.name != "record.py"]
    assert [p.name for p in files if "dataclasses" in p.read_text(encoding="utf-8")] == []
