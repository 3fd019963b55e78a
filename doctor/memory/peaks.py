"""The peak of a run, by whoever trains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..model import DatasetFolder, Gpu, Phase, Run
from .phases import CONTEXT_RANGE, HOST_BASE, LORA_COPIES, QUANTIZING, buckets, on_mps, phases_of_trainer, sequence_of
from .runner import phases_of_runner, phases_without_bfloat16
from .sizes import Sizes


def phases_of(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> Iterator[Phase]:
    made = phases_of_runner if run.by_runner else phases_of_trainer
    return made(run, sizes, datasets, card)


def peak_of(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> int:
    return max(phase.total for phase in phases_of(run, sizes, datasets, card))


def highest_of(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> int:
    """The high end of the estimate: context, allocator and LoRA copies at their worst."""
    # float32 where the processor has no bfloat16
    is_wider = run.by_runner and not card and not on_mps(run) and run.recipe.precision.dtype in ("bf16", "bfloat16")
    phases = phases_without_bfloat16(run, sizes, datasets) if is_wider else phases_of(run, sizes, datasets, card)
    return _highest(run, sizes, datasets, card, phases)


def error_of(run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None) -> int:
    """How far from the computed peak the true one may lie, where the run computes in the type that it names."""
    phases = phases_of(run, sizes, datasets, card)
    return _highest(run, sizes, datasets, card, phases) - peak_of(run, sizes, datasets, card)


def _highest(
    run: Run, sizes: Sizes, datasets: Sequence[DatasetFolder], card: Gpu | None, phases: Iterable[Phase]
) -> int:
    context = CONTEXT_RANGE if card else HOST_BASE // 2
    if run.by_runner:  # its LoRA was part of the traces
        return int(1.03 * max(phase.total for phase in phases)) + context
    tokens = sum(sequence_of(run, sizes, buckets(run, datasets)))
    copies = int(LORA_COPIES * sizes.width * tokens * run.recipe.batch_size)
    return max(
        int((1.0 if phase.name == QUANTIZING else 1.03) * phase.total)
        + context
        + copies * ("activations" in phase.items)
        for phase in phases
    )
