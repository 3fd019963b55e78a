"""The predicted peak against what the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..doctor.families.tensors import published_size
from ..doctor.model import Finding, Gpu, Memory, ModelFolder, Phase, Run, System, found
from ..doctor.model.cards import VISIBLE, listed, taken
from ..doctor.model.said import AsIs, joined
from ..doctor.rules import Unestablished, prevents, rule

_GIB = 1 << 30
_FULL_SIZE = 1_000_000_000


TOO_MUCH = "needs {peak} (computed: {low} to {high}), but {free} are free {place} ({source})."
PERHAPS = "needs {low} to {high} (computed), and {free} are free {place} ({source}): it may not fit."
AGAIN = (
    "takes {low} to {high} (computed), and {free} are free {place} ({source}). The weights are pages of a file: up "
    "to {again} of them are read from it again for every pass through the model."
)
SPILT = (
    "Windows keeps what does not fit in the computer's memory: nothing fails, and steps take many times as long. "
    "Where NVIDIA's settings forbid that (CUDA - Sysmem Fallback Policy), the run ends out of memory."
)
GUESSED = " Parts of the model that are not on this machine are taken as published."
ELSEWHERE = " {other}, has room for it: {other_free} are free there."
SHARED = " zdoctor train shares the base out over {cards} of the cards, which takes {shared} on each (computed)."


@rule("MEM001", "error", "vram-over-budget")
@prevents("torch.OutOfMemoryError", "CUDA out of memory")
def vram_over_budget(run: Run, memory: Memory) -> Iterator[Finding]:
    """The predicted peak exceeds the free memory of the device.

    What: The bytes of weights, LoRA, optimizer and activations are computed for each phase of the run and the
    largest phase is held against the memory that is free now. It is an error when even the low end of the estimate
    is too much, a warning when only the high end is.
    Why: ai-toolkit skips a batch that does not fit and gives up after three in a row, which comes after everything
    has been loaded and cached.

    `zdoctor train` is held against phases of its own: it drops the text encoder and the VAE before it loads the
    transformer, which is quantized on its way to the card.

    Where several cards of one kind hold the base together, `zdoctor train` shares it out over them and goes on.

    The card is the one that the run takes: the first that CUDA_VISIBLE_DEVICES leaves (for ai-toolkit whatever
    `device` says), and for `zdoctor train` the one that `device: cuda:1` names of these. CUDA counts unlike cards
    from the fastest on, unless CUDA_DEVICE_ORDER is PCI_BUS_ID; the one with the most room is taken for the first.
    On Windows NVIDIA's driver (536.40 and newer, WDDM) puts what a card does not hold into the computer's memory,
    half of which is for that: a warning, as the run then goes on many times slower.
    A run that takes none (`device: cpu` or `mps`, no GPU there) is held against the computer's memory: an error is
    what exceeds all of it. On a processor `zdoctor train` maps its quantized weights from a file; what of them does
    not fit is read again in every step, which is a warning.
    Repair: Another card, where one has room: CUDA_VISIBLE_DEVICES chooses it. The settings that lower the peak, the
    harmless ones first; each says whether it changes the result. Where painting samples is the peak they become
    smaller, or are left out, before what is learnt is changed.
    Signature: torch.OutOfMemoryError: CUDA out of memory; OOM during training step 3 times in a row,
    aborting training
    """
    if memory.peak.total + memory.margin > memory.free:
        yield _over_budget(run, memory)


def _over_budget(run: Run, memory: Memory) -> Finding:
    peak, held = memory.peak, memory.hardest.total - memory.hardest.mapped
    is_certain = held - memory.below > memory.total if memory.is_host else peak.total - memory.below > memory.free
    is_spilt = is_certain and peak.total - memory.below <= memory.free + memory.spill
    if is_certain:
        peak, needs = memory.hardest, TOO_MUCH
        otherwise = SPILT if is_spilt else "The run ends out of memory in the phase '{phase}'."
    elif held + memory.margin <= memory.free:
        needs, otherwise = AGAIN, "The steps take longer, by what the disk needs for that."
    else:
        needs, otherwise = PERHAPS, "The run may end out of memory in the phase '{phase}'."
    total = held if is_certain else peak.total
    low, high = total - memory.below, total + memory.margin
    cards = min(memory.cards, run.recipe.batch_size * run.recipe.gradient_accumulation)
    shared = memory.only_fits_sharded(cards)
    other = memory.elsewhere
    message = "The phase '{phase}' " + needs + " It is made of {items}."
    return found(
        run.where("base_model"),
        message + GUESSED * memory.as_published + ELSEWHERE * (other is not None) + SHARED * shared,
        otherwise=otherwise,
        severity="error" if is_certain and not is_spilt else "warning",
        evidence={
            "peak": total,
            "margin": memory.margin,
            "free": memory.free,
            "device": memory.device,
            "assumptions": memory.assumptions,
            **dict(peak.items),
        },
        phase=peak.name,
        peak=_size(total),
        low=_size(low),
        high=_size(high),
        free=_size(memory.free),
        place=memory.place,
        again=_size(min(high - memory.free, peak.mapped)),
        source=memory.budget_source,
        items=_items(peak),
        cards=cards,
        shared=_size(memory.sharded(max(1, cards))),
        other=other.device if other else "",
        other_free=_size(other.free) if other else "",
    )


def _items(phase: Phase) -> str:
    largest = sorted(phase.items.items(), key=lambda item: -item[1])
    told = (joined(" ", (name, AsIs(_size(size)))) for name, size in largest if size >= _GIB // 100)
    return joined(", ", told)


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / 2**20:.0f} MiB"


@rule("MEM002", "warning", "ram-over-budget")
def ram_over_budget(run: Run, memory: Memory, system: System) -> Iterator[Finding]:
    """Loading, quantizing or offloading needs more RAM than is available.

    What: What a phase of the run must hold in RAM (weights that are converted, merged with an adapter, or quantized
    on the way, and offloaded blocks) is computed, and the largest is held against the available RAM.
    In a container it is the RAM that its control group leaves; pages of files that it has read do not count as used.
    Why: An adapter makes ai-toolkit load the whole transformer at full precision before it is quantized; weights
    stored in another dtype than the run's are converted in RAM. A machine without swap ends the process without a
    message.
    Repair: Close other programs, or add swap; on a rented machine, choose one with more RAM. Below WSL, `memory` in
    the .wslconfig of Windows: unless it says more, WSL gets half of the computer's RAM.
    Signature: Killed; exit code 137; os error 1455 (Windows: the paging file is too small)
    """
    if memory.is_host or memory.host_peak <= memory.host_free:
        return
    yield found(
        run.where("base_model"),
        "The phase '{phase}' holds {need} in RAM (computed), but {free} of {total} are available ({source}{of}).",
        otherwise="The system ends the run without a message in that phase."
        if system.swap == 0
        else "The computer slows to a crawl, or ends the run without a message, in that phase.",
        severity="error"
        if system.os == "linux" and memory.host_peak > system.memory_total + (system.swap or 0)
        else None,
        evidence={"need": memory.host_peak, "available": memory.host_free, "total": system.memory_total},
        need=_size(memory.host_peak),
        phase=memory.host_phase,
        free=_size(memory.host_free),
        total=_size(system.memory_total),
        source="measured" if system.recorded is None else "recorded",
        of=": what this container is given" if system.contained else ": what Windows gives the WSL" * system.is_wsl,
    )


@rule("MEM003", "error", "no-gpu-for-full-model")
def no_gpu_for_full_model(run: Run, gpus: tuple[Gpu, ...], model: ModelFolder, system: System) -> Iterator[Finding]:
    """A full-size model on a machine where no GPU answers.

    What: The driver was asked and named no card, or CUDA_VISIBLE_DEVICES leaves none of them; the model has more
    than a billion parameters, and the config does not say `device: cpu`.
    Why: ai-toolkit ignores `device` and trains on the processor without a word, where a step of such a model takes
    minutes. Usually the notebook has no accelerator switched on, or the driver is not visible in the container.
    Repair: Switch the accelerator on, start the container with the GPU, or take CUDA_VISIBLE_DEVICES out of the
    environment; write `device: cpu` to say it is meant.
    """
    if run.device.startswith(("cpu", "mps")) or system.os == "darwin":
        return
    if gpus and taken(run, gpus, system.environment) != ():
        return
    parts = model.components.values()
    told = {
        "by the headers of its files": ([tensor.shape for tensor in part.tensors.values()] for part in parts),
        "by its config.json": ((part.needed or {}).values() for part in parts if part.config is not None),
    }
    counted = ((max((sum(map(prod, one)) for one in shapes), default=0), how) for how, shapes in told.items())
    parameters, source = max(counted, key=lambda one: one[0])
    if not model.components:
        parameters, source = published_size(run.recipe.architecture, model.source), "as published"
        if not parameters:
            raise Unestablished(f"nothing of {model.source} is on this machine")
    if parameters < _FULL_SIZE:
        return
    message = "{variable}={visible} hides every GPU from the run" if gpus else "No GPU answers on this machine"
    silently = "" if run.by_runner else " without a word"
    yield found(
        run.where("device"),
        message + ", and {model} has {billions} billion parameters ({source}).",
        otherwise="The run goes on the processor" + silently + ", and every step takes minutes.",
        evidence={"parameters": parameters},
        variable=VISIBLE,
        visible=listed(run, system.environment),
        model=model.source,
        billions=f"{parameters / 1e9:.1f}",
        source=source,
    )
