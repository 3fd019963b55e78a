"""Repairs of a memory budget: the settings that bring the peak down, the harmless first."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Fix, Memory, Run, SetValue, TrainingEffect
from ..doctor.rules import repair

_ORDER: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


@repair("MEM001")
def lower_the_peak(finding: Finding, run: Run, memory: Memory) -> Iterator[Fix]:
    """The shortest run of the ladder that makes the high end of the estimate fit."""
    steps: list[SetValue] = []
    worst: TrainingEffect = "none"
    lowest = memory.peak.total
    for key, value, effect, peak in memory.alternatives:
        steps.append(SetValue(run.config, run.pointer(key), value))
        worst = max(worst, *(known for known in _ORDER if known == effect), key=_ORDER.index)
        lowest = peak
        if peak + memory.margin <= memory.free:
            settings = ", ".join(
                f"{step.pointer.removeprefix(run.root + '/')}: {_shown(step.value)}" for step in steps
            )
            yield Fix(f"{settings} (peak {peak / 2**30:.1f} GiB, computed)", tuple(steps), "safe", worst)
            return
    yield Fix(
        f"no setting brings the peak below {lowest / 2**30:.1f} GiB (computed): free memory on {memory.device} "
        "or use one with more",
        (),
        "show",
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
