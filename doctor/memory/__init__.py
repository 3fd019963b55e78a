"""How many bytes a run needs on its device, phase by phase, from the model's own config and headers. Pure.

The activation constants were fitted to traces of the full-size model (every block Linear with a LoRA, AdamW,
2 steps) and agree with them within 3 %; traces with a LoKr instead are 2 to 5 % lower, which is not taken off. CUDA's
own context cannot be traced and is an assumption with a range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..families.network import offloaded_share
from ..model import DatasetFolder, Elsewhere, Gpu, Memory, ModelFolder, Run, System, Unknown
from ..model.cards import BY_BUS, CHOSEN, ORDER, VISIBLE, known_order, sharing, taken, visible
from ..model.record import replace
from .bytes import QUANTIZED, WIDTHS
from .ladder import alternatives_of
from .peaks import error_of, highest_of, phases_of
from .phases import GIB, HOST_BASE, blocks_of, buckets, on_mps, weights_of
from .runner import host_peak, runner_blocks
from .sizes import Sizes, sizes_of

__all__ = ["GIB", "buckets", "predict"]


def predict(
    run: Run,
    model: ModelFolder,
    datasets: tuple[DatasetFolder, ...] | Unknown,
    system: System,
    gpus: tuple[Gpu, ...],
) -> Memory | Unknown:
    """Predicted device memory of a LoRA training of Z-Image or Flux; Unknown for what no closed form was made for.

    It is held against the card that the run takes, or the system's RAM where it takes none. Where several may be
    meant, against the one that has the most room.
    """
    sizes = sizes_of(run, model)
    if isinstance(sizes, Unknown):
        return sizes
    reason = _not_covered(run)
    if reason:
        return Unknown(reason)
    run = replace(
        run,
        recipe=replace(
            run.recipe,
            batch_size=max(1, run.recipe.batch_size),
            network=replace(run.recipe.network, rank=max(0, run.recipe.network.rank)),
        ),
    )
    candidates, seen = taken(run, gpus, system.environment), visible(gpus, system.environment)
    if isinstance(candidates, Unknown):
        return candidates
    shown = () if isinstance(seen, Unknown) else seen
    # only their sizes count, and a dataset was often cut to a few
    known = () if isinstance(datasets, Unknown) else tuple(map(_with_one_picture_a_size, datasets))

    def left(gpu: Gpu) -> int:
        return gpu.memory_free - highest_of(run, sizes, known, gpu)

    card = max(candidates, key=left, default=None)
    phases = tuple(phases_of(run, sizes, known, card))
    free = card.memory_free if card else system.memory_available
    peak = max(phases, key=lambda phase: phase.total)
    blocks = runner_blocks(run, sizes, card) if run.by_runner else blocks_of(sizes, run)

    def host(changed: Run) -> int:
        return _host_peak(changed, sizes, card) if card else 0

    return Memory(
        device=_named(card) if card else "mps" if on_mps(run) else "cpu",
        phases=phases,
        total=card.memory_total if card else system.memory_total,
        free=free,
        budget_source=card.source if card else f"{_seen(system)}: the system's available memory",
        assumptions=_assumptions(sizes, card, len(candidates) > 1, datasets),
        host_peak=host(run) if card else peak.total,
        host_free=system.memory_available,
        alternatives=tuple(alternatives_of(run, sizes, known, card, host, system.memory_available)),
        margin=highest_of(run, sizes, known, card) - peak.total,
        below=error_of(run, sizes, known, card),
        cards=sharing(shown) if card and not offloaded_share(run) else 1,
        least_free=min((gpu.memory_free for place in shown for gpu in place), default=0),
        blocks=blocks,
        block=blocks * sizes.block // max(1, sizes.blocks),
        elsewhere=_elsewhere(run, gpus, candidates, system, left) if card and left(card) < 0 else None,
    )


def _with_one_picture_a_size(folder: DatasetFolder) -> DatasetFolder:
    return replace(folder, images=tuple({(image.width, image.height): image for image in folder.images}.values()))


def _seen(system: System) -> str:
    return "measured" if system.recorded is None else "recorded"


def _named(card: Gpu) -> str:
    return f"GPU {card.index}, {card.name}"


def _elsewhere(
    run: Run, gpus: Sequence[Gpu], candidates: Sequence[Gpu], system: System, left: Callable[[Gpu], int]
) -> Elsewhere | None:
    """The card with the most room, where the run fits on it and a variable in the terminal is all that it takes."""
    others = [gpu for gpu in gpus if gpu not in candidates and left(gpu) >= 0]
    is_settled = run.device != "cuda" if run.by_runner else run.setting(CHOSEN) is not None
    if not others or is_settled or "LOCAL_RANK" in system.environment:
        return None
    other = max(others, key=left)
    order = () if known_order(gpus, system.environment) else ((ORDER, BY_BUS),)
    return Elsewhere(_named(other), other.memory_free, (*order, (VISIBLE, str(gpus.index(other)))))


def _not_covered(run: Run) -> str:
    recipe = run.recipe
    if run.kind != "lora" or recipe.network.type not in ("lora", "dora", "locon", "lokr"):
        return "memory is predicted for the training of a LoRA or LoKr only"
    if recipe.precision.dtype not in WIDTHS:
        return f"dtype {recipe.precision.dtype} has no known size"
    for qtype in (
        recipe.precision.quantization,
        None if run.by_runner else recipe.precision.text_encoder_quantization,
    ):
        if qtype not in (None, "none") and qtype.partition("|")[0] not in QUANTIZED:
            return f"the size of weights quantized as {qtype} is not known"
    if run.by_runner:  # these are not its settings
        return ""
    if recipe.offload.other:
        return f"{recipe.offload.other} moves weights between card and host while it trains; that is not predicted"
    return ""


def _host_peak(run: Run, sizes: Sizes, card: Gpu) -> int:
    """Host bytes that cannot be given back while a run for a card loads.

    Weights stored in another dtype are converted, merged ones rewritten, quantized ones built anew: all of them are
    then anonymous memory. Weights used as they lie on disk stay in the page cache, which gives way.
    """
    recipe = run.recipe
    if run.by_runner:
        return host_peak(run, sizes, card)
    width = WIDTHS[recipe.precision.dtype]
    whole = width * (sizes.blocks + sizes.rest)
    waiting = int(offloaded_share(run) * blocks_of(sizes, run))
    if recipe.adapter or sizes.stored != width:
        return HOST_BASE + max(whole, waiting)
    return HOST_BASE + (weights_of(sizes, run) if recipe.precision.quantization else waiting)


def _assumptions(
    sizes: Sizes, card: Gpu | None, is_one_of_several: bool, datasets: tuple[DatasetFolder, ...] | Unknown
) -> str:
    parts = [f"captions of up to {sizes.figures.text} tokens"]
    if card:
        parts.append("a CUDA context of 0.25 to 0.65 GiB")
    if card and is_one_of_several:
        parts.append(
            f"that CUDA counts {_named(card)} first (the cards are unlike, and it counts the fastest first; with "
            f"{ORDER}={BY_BUS} it counts as nvidia-smi does)"
        )
    if isinstance(datasets, Unknown):
        parts.append("pictures as large as the resolution")
    if sizes.assumed:
        parts.append(sizes.assumed)
    return "assumes " + ", ".join(parts)
