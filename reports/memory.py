"""The memory of a run as a person reads it: each phase as a bar against the card, and what makes the run fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..doctor.model import Alternative, Memory, Phase, Unknown
from ..doctor.model.columns import cells, padded
from ..doctor.model.memory import STEP, Rehearsed
from ..doctor.model.record import dataclass
from ..doctor.model.said import AsIs, filled, joined, said
from .painting import Line, Spans, Wrapped

GIB = 1 << 30
# What the items of a bar are drawn with, in their order; the first two of a phase are most often the largest.
MARKS = "█▓▒░▚#=+-."
FREE = "free here"
FITS = "It fits."
HIGH_END = "(computed, at the high end of the estimate)"
SHOWN = "nvidia-smi may show {shown} then: PyTorch keeps what it gave out before, in pieces."
NOTHING_FITS = "No setting that zdoctor knows makes it fit."
EFFECTS = {
    "none": "leaves what is learnt as it is",
    "equivalent": "learns the same",
    "changes-result": "changes what is learnt",
}


@dataclass(frozen=True)
class Told:
    """What is known of a run's memory: `memory` with the rehearsed step, `computed` without.

    `fitting` are the smallest sets of settings by which it fits; `solved` a key and the largest value that fits;
    `card` the bytes of the smallest usual card that holds the run as it is, 0 where that is not asked or none does.
    """

    memory: Memory | Unknown
    computed: Memory | None = None
    rehearsed: Rehearsed | Unknown | None = None
    fitting: tuple[Alternative, ...] = ()
    solved: tuple[str, int | None] | None = None
    card: int = 0

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
    yield [("dim", budget(memory))]
    yield []
    most = max(memory.free, memory.peak.total)
    longest = max(cells(said(name)) for name in (FREE, *(phase.name for phase in memory.phases)))
    room = max(20, min(60, width - longest - 14))
    for phase in memory.phases:
        style = "bold red" if phase.total > memory.free else "bold" if phase == memory.peak else ""
        yield [*_named(phase.name, longest), ("", bar(phase, most, room)), (style, f" {_gib(phase.total)}")]
    edge = round(memory.free / most * room)
    yield [*_named(FREE, longest, "dim"), ("dim", f"{' ' * max(0, edge - 1)}| {_gib(memory.free)}")]
    yield []
    yield [("bold", f"At the peak, {memory.peak.name}:"), ("", f" {_gib(memory.peak.total)}")]
    for mark, (name, size) in zip(_marks(memory.peak), memory.peak.items.items(), strict=True):
        yield [("", f"  {mark} {_gib(size):>10}  "), ("", name)]
    yield []
    yield Wrapped(how_known(one, memory), "", "dim")
    yield from _what_fits(one, memory)


def _named(name: str, width: int, style: str = "") -> Spans:
    return [(style, AsIs(f"  {padded(said(name), width)} "))]


def budget(memory: Memory) -> str:
    """What the run is held against, and how that is known."""
    return filled(
        "{device}: {free} of {total} free ({source})",
        {
            "device": memory.device,
            "free": _gib(memory.free),
            "total": _gib(memory.total),
            "source": memory.budget_source,
        },
    )


def how_known(one: Told, memory: Memory) -> str:
    """How the figures were got, and how far off they may be."""
    found = one.rehearsed
    if isinstance(found, Rehearsed):
        how = filled(
            "The {step} was rehearsed on tensors without data in {seconds} s: every byte of tensors is counted; the "
            "other phases are computed.",
            {"step": STEP, "seconds": f"{found.seconds:g}"},
        )
        step = next((phase for phase in memory.phases if phase.name == STEP), None)
        if step is not None and found.reserved and memory.device.startswith("GPU"):
            shown = _gib(step.total + found.reserved - found.peak)
            how = joined(" ", [how, filled(SHOWN, {"shown": shown})])
    else:
        how = filled(
            "All phases are computed in a closed form; the {step} was not rehearsed: {reason}.",
            {"step": STEP, "reason": found.reason if found else "it was not asked for"},
        )
    low, high = _gib(memory.peak.total - memory.below), _gib(memory.peak.total + memory.margin)
    between = filled(
        "The true peak is expected from {low} to {high}; {assumptions}.",
        {"low": low, "high": high, "assumptions": memory.assumptions},
    )
    return joined(" ", [how, between, _smallest_card(one)])


def _smallest_card(one: Told) -> str:
    size = f"{one.card // 10**9} GB"
    return f"As it is set, the smallest usual card that holds it has {size}." if one.card else ""


def _what_fits(one: Told, memory: Memory) -> Iterator[Line]:
    if one.solved is not None:
        key, value = one.solved
        yield []
        yield [
            ("bold", f"{key}: "),
            ("bold", largest(value)),
            ("dim", " (computed, at the high end of the estimate)"),
        ]
    yield []
    if not one.fitting:
        fits = memory.peak.total + memory.margin <= memory.free
        yield Wrapped(FITS if fits else NOTHING_FITS, "", "bold green" if fits else "bold")
        return
    yield [("bold", "What makes it fit"), ("dim", " (each line on its own, computed):")]
    for way in one.fitting:
        saves = f"saves {_gib(memory.peak.total - way.peak)}, peak {_gib(way.peak)}"
        yield Wrapped(joined("   ", [settings_of(way), joined("; ", [saves, EFFECTS[way.effect]])]), "  - ")


def largest(value: int | None) -> str:
    return f"the largest that fits is {value}" if value else "no value fits"


def settings_of(way: Alternative) -> str:
    return AsIs(", ".join(f"{key}: {_written(value)}" for key, value in way.settings))


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
