"""The light records behave as frozen dataclasses do, as far as the house uses them."""

from __future__ import annotations

import dataclasses
from typing import Any

from zdoctor.doctor.model import facts, findings, hub, plans, run, storage
from zdoctor.doctor.model.record import dataclass


@dataclass(frozen=True)
class Light:
    name: str
    sizes: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Standard:
    name: str
    sizes: tuple[int, ...] = ()


def test_records_compare_and_read_as_the_standard_ones_do() -> None:
    for made in (Light, Standard):
        one: Any = made("a", (1, 2))
        assert one == made("a", (1, 2)) and one != made("a") and one != ("a", (1, 2))
        assert hash(one) == hash(made("a", (1, 2))) and len({one, made("a", (1, 2)), made("b")}) == 2
        assert repr(one) == f"{made.__name__}(name='a', sizes=(1, 2))"
        assert dataclasses.replace(one, name="c") == made("c", (1, 2))
        assert dataclasses.asdict(one) == {"name": "a", "sizes": (1, 2)}
    light: Any = Light("a")
    assert light != Standard("a")


def test_every_noun_is_a_record() -> None:
    """Made by the standard decorator, a class would cost every start what the others spare."""
    nouns = [
        noun
        for module in (facts, findings, hub, plans, run, storage)
        for noun in vars(module).values()
        if isinstance(noun, type) and dataclasses.is_dataclass(noun)
    ]
    assert len(nouns) > 30
    assert {noun.__eq__ for noun in nouns} == {Light.__eq__}
