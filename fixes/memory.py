"""Repairs of a memory budget: the settings that bring the peak down, the harmless first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ..doctor.model import Finding, Fix, Memory, Run, SetValue, TrainingEffect
from ..doctor.rules import repair

_ORDER: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


@repair("MEM001")
def lower_the_peak(finding: Finding, run: Run, memory: Memory) -> Iterator[Fix]:
    """The shortest part of the ladder that makes the high end of the estimate fit.

    Settings with the same resulting peak belong together (a smaller batch with more accumulation).
    """
    chosen: dict[str, object] = {}
    worst = 0
    lowest = memory.peak.total
    for peak, together in groupby(memory.alternatives, key=lambda alternative: alternative[3]):
        for key, value, effect, _ in together:
            chosen[key] = value  # a resolution may be lowered twice: the last word counts
            worst = max(worst, _ORDER.index(effect) if effect in _ORDER else len(_ORDER) - 1)
        lowest = peak
        if peak + memory.margin <= memory.free:
            settings = ", ".join(f"{key} to {_shown(value)}" for key, value in chosen.items())
            steps = tuple(SetValue(run.where(key).path, run.pointer(key), value) for key, value in chosen.items())
            yield Fix(f"set {settings} (peak {peak / 2**30:.1f} GiB, computed)", steps, "safe", _ORDER[worst])
            return
    yield Fix(
        f"free memory on {memory.device} or use one with more: no setting brings the peak below "
        f"{lowest / 2**30:.1f} GiB (computed)",
        (),
        "show",
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
