"""The memory of a run as a person reads it: each phase as a bar against the card, and what makes the run fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..doctor.model import Alternative, Memory, Phase, Unknown
from ..doctor.model.memory import STEP, Rehearsed
from ..doctor.model.record import dataclass
from .painting import Line, Wrapped

GIB = 1 << 30
# What the items of a bar are drawn with, in their order; the first two of a phase are most often the largest.
MARKS = "█▓▒░▚#=+-."
FITS = "It fits."
NOTHING_FITS = "No setting that zdoctor knows makes it fit. It takes a card with more memory."
EFFECTS = {
    "none": "leaves what is learnt as it is",
    "equivalent": "learns the same",
    "changes-result": "changes what is learnt",
}


@dataclass(frozen=True)
class Told:
    """What is known of a run's memory: `memory` with the rehearsed step, `computed` without.

    `fitting` are the smallest sets of settings by which it fits; `solved` a key and the largest value that fits.
    """

    memory: Memory | Unknown
    computed: Memory | None = None
    rehearsed: Rehearsed | Unknown | None = None
    fitting: tuple[Alternative, ...] = ()
    solved: tuple[str, int | None] | None = None

    @property
    def exit_code(self) -> int:
        """1 where the run does not fit, 3 where that is not known."""
        if isinstance(self.memory, Unknown):
            return 3
        return int(self.memory.peak.total - self.memory.below > self.memory.free)


def exit_code(told: Sequence[Told]) -> int:
    """That of the run that is worst off; 3 where there is none."""
    return max((one.exit_code for one in told), default=3)


def lines(told: Sequence[Told], config: str, width: int) -> Iterator[Line]:
    """All runs of a config, each with what to do where it does not fit."""
    for number, one in enumerate(told):
        if number:
            yield []
        yield [("bold", f"zdoctor memory {config}")]
        if isinstance(one.memory, Unknown):
            yield Wrapped(f"not known: {one.memory.reason}", "  ", "magenta")
            continue
        yield from _of(one, one.memory, width)


def _of(one: Told, memory: Memory, width: int) -> Iterator[Line]:
    yield [("dim", f"{memory.device}: {_gib(memory.free)} of {_gib(memory.total)} free ({memory.budget_source})")]
    yield []
    most = max(memory.free, memory.peak.total)
    longest = max(len(phase.name) for phase in memory.phases)
    cells = max(20, min(60, width - longest - 14))
    for phase in memory.phases:
        style = "bold red" if phase.total > memory.free else "bold" if phase == memory.peak else ""
        yield [("", f"  {phase.name:<{longest}} "), ("", bar(phase, most, cells)), (style, f" {_gib(phase.total)}")]
    edge = round(memory.free / most * cells)
    yield [("dim", f"  {'free on the card':<{longest}} {' ' * max(0, edge - 1)}| {_gib(memory.free)}")]
    yield []
    yield [("bold", f"At the peak, {memory.peak.name}:"), ("", f" {_gib(memory.peak.total)}")]
    for mark, (name, size) in zip(_marks(memory.peak), memory.peak.items.items(), strict=True):
        yield [("", f"  {mark} {_gib(size):>10}  {name}")]
    yield []
    yield Wrapped(how_known(one, memory), "", "dim")
    yield from _what_fits(one, memory)


def how_known(one: Told, memory: Memory) -> str:
    """How the figures were got, and how far off they may be."""
    found = one.rehearsed
    if isinstance(found, Rehearsed):
        how = (
            f"The {STEP} was rehearsed on tensors without data in {found.seconds:g} s: every byte of tensors is "
            "counted; the other phases are computed."
        )
    else:
        reason = f" ({found.reason})" if isinstance(found, Unknown) else ""
        how = f"All phases are computed in a closed form; the {STEP} was not rehearsed{reason}."
    return (
        f"{how} The true peak is expected from {_gib(memory.peak.total - memory.below)} to "
        f"{_gib(memory.peak.total + memory.margin)}; {memory.assumptions}."
    )


def _what_fits(one: Told, memory: Memory) -> Iterator[Line]:
    if one.solved is not None:
        key, value = one.solved
        yield []
        found = f"the largest that fits is {value}" if value else "no value fits"
        yield [("bold", f"{key}: {found}"), ("dim", " (computed, at the high end of the estimate)")]
    yield []
    if not one.fitting:
        fits = memory.peak.total + memory.margin <= memory.free
        yield Wrapped(FITS if fits else NOTHING_FITS, "", "bold green" if fits else "bold")
        return
    yield [("bold", "What makes it fit"), ("dim", " (each line on its own, computed):")]
    for way in one.fitting:
        settings = ", ".join(f"{key}: {_written(value)}" for key, value in way.settings)
        saved = _gib(memory.peak.total - way.peak)
        yield Wrapped(f"{settings}   saves {saved}, peak {_gib(way.peak)}; {EFFECTS[way.effect]}", "  - ")


def bar(phase: Phase, most: int, cells: int) -> str:
    """The items of a phase side by side, each as long as its share of `most`."""
    text, held = "", 0
    for mark, size in zip(_marks(phase), phase.items.values(), strict=True):
        held += size
        text += mark * (round(held / most * cells) - len(text))
    return text.ljust(cells)


def _marks(phase: Phase) -> list[str]:
    return [MARKS[index % len(MARKS)] for index in range(len(phase.items))]


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
