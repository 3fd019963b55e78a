"""The peaks of a run on its device and in host memory, by whoever trains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..families.network import offloaded_share
from ..model import Phase
from .case import CONTEXT_RANGE, HOST_BASE, Case
from .phases import QUANTIZING, phases_of_trainer, weights_of
from .runner import host_peak, phases_of_runner, phases_without_bfloat16

# The LoRA branch computes in 32 bits; how much of its copies is alive at the peak is not known.
LORA_COPIES = 35.0


def phases_of(case: Case) -> Iterator[Phase]:
    return phases_of_runner(case) if case.run.by_runner else phases_of_trainer(case)


def peak_of(case: Case) -> int:
    return max(phase.total for phase in phases_of(case))


def highest_of(case: Case) -> int:
    """The high end of the estimate: context, allocator and LoRA copies at their worst."""
    # float32 where the processor has no bfloat16
    may_widen = case.run.by_runner and not case.card and not case.on_mps
    is_wider = may_widen and case.dtype == "bfloat16"
    return _highest(case, phases_without_bfloat16(case) if is_wider else phases_of(case))


def error_of(case: Case) -> int:
    """How far from the computed peak the true one may lie, where the run computes in the type that it names."""
    return _highest(case, phases_of(case)) - peak_of(case)


def _highest(case: Case, phases: Iterable[Phase]) -> int:
    context = CONTEXT_RANGE if case.card else HOST_BASE // 2
    if case.run.by_runner:  # its LoRA was part of the traces
        return int(1.03 * max(phase.total for phase in phases)) + context
    copies = int(LORA_COPIES * case.sizes.width * sum(case.tokens) * case.recipe.batch_size)
    return max(
        int((1.0 if phase.name == QUANTIZING else 1.03) * phase.total)
        + context
        + copies * ("activations" in phase.items)
        for phase in phases
    )


def host_peak_of(case: Case) -> int:
    """Host bytes that cannot be given back while a run for a card loads; 0 where it has none.

    Weights stored in another dtype are converted, merged ones rewritten, quantized ones built anew: all of them are
    then anonymous memory. Weights used as they lie on disk stay in the page cache, which gives way.
    """
    if case.card is None:
        return 0
    if case.run.by_runner:
        return host_peak(case)
    whole = case.width * (case.sizes.blocks + case.sizes.rest)
    waiting = int(offloaded_share(case.run) * case.blocks)
    if case.recipe.adapter or case.sizes.stored != case.width:
        return HOST_BASE + max(whole, waiting)
    return HOST_BASE + (weights_of(case) if case.recipe.precision.quantization else waiting)
