"""The memory of a run as one JSON object, schema zdoctor.memory/1. Changes are additive only. Bytes throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ..doctor.model import TrainingEffect, Unknown
from ..doctor.model.memory import Rehearsed
from .json import Head, dumps, head, shown
from .memory import Told, exit_code


class UnknownRun(TypedDict):
    """A run whose memory is not known, and why."""

    unknown: str


class ShownPhase(TypedDict):
    name: str
    items: Mapping[str, int]


class ShownWay(TypedDict):
    """Settings by which the run fits; `high` is the high end of its peak."""

    settings: Mapping[str, Any]
    effect: TrainingEffect
    peak: int
    high: int


class ShownRun(TypedDict):
    """A run on its card. `low` and `high` are the ends between which the true peak is expected; `solved` has the key
    that was asked for and the largest value that fits, null where none does. `smallest_card` has the bytes of the
    smallest usual card that holds the run as it is, 0 where none does or the run takes no card."""

    device: str
    free: int
    peak: int
    low: int
    high: int
    rehearsed: bool
    not_rehearsed: str
    reserved: int
    phases: list[ShownPhase]
    fitting: list[ShownWay]
    solved: Mapping[str, int | None]
    smallest_card: int


class MemoryDocument(Head):
    """The runs of a config against the card."""

    schema: Literal["zdoctor.memory/1"]
    config: str
    runs: list[ShownRun | UnknownRun]


def render(told: Sequence[Told], config: str, version: str) -> str:
    """One JSON document."""
    runs = [_run(one) for one in told]
    document: MemoryDocument = {
        "schema": "zdoctor.memory/1",
        **head(version, exit_code(told)),
        "config": config,
        "runs": runs,
    }
    return dumps(document)


def _run(one: Told) -> ShownRun | UnknownRun:
    memory, found = one.memory, one.rehearsed
    if isinstance(memory, Unknown):
        return {"unknown": memory.reason}
    return shown(
        ShownRun,
        memory,
        peak=memory.peak.total,
        low=memory.peak.total - memory.below,
        high=memory.peak.total + memory.margin,
        rehearsed=isinstance(found, Rehearsed),
        not_rehearsed=found.reason if isinstance(found, Unknown) else "",
        reserved=found.reserved if isinstance(found, Rehearsed) else 0,
        phases=[shown(ShownPhase, phase) for phase in memory.phases],
        fitting=[shown(ShownWay, way, settings=dict(way.settings)) for way in one.fitting],
        solved={one.solved[0]: one.solved[1]} if one.solved else {},
        smallest_card=one.card,
    )
