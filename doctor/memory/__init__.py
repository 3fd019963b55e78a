"""How many bytes a run needs on its device, phase by phase, from the model's own config and headers. Pure.

What a step holds was mined from the model's class (doctor/families/record/steps.py); docs/measurements.md holds it
against steps rehearsed in full. CUDA's own context cannot be traced and is an assumption with a range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..families.network import TITLES, offloaded_share
from ..model import DatasetFolder, Elsewhere, Gpu, Memory, ModelFolder, Run, System, Unknown
from ..model.cards import BY_BUS, CHOSEN, ORDER, VISIBLE, known_order, sharing, taken, visible
from ..model.environment import Environment
from ..model.record import dataclass, replace
from ..model.said import filled, joined
from ..packages.versions import meets
from .bytes import QUANTIZED, WIDTHS
from .case import GIB, Case, buckets
from .ladder import alternatives_of
from .phases import LOADING, error_of, highest_of, host_phases_of, phases_of
from .runner import runner_blocks
from .sizes import Sizes, sizes_of
from .trained_text import untraced

__all__ = ["GIB", "Placed", "buckets", "placed", "predict", "started_with"]


_OF_LORA = "memory is predicted for the training of a LoRA or LoKr only"
SPILLS_SINCE = 536  # NVIDIA's driver
# fields without which there is no figure
_COUNTS = (
    *("architecture", "base_model", "batch_size", "datasets", "dtype", "gradient_checkpointing", "network_type"),
    *("offload.share", "optimizer", "quantization", "rank", "text_encoder_quantization"),
)


# A LoRA that leaves some Linears of the blocks out keeps less than one on all of them, for which steps are mined, but
# for a trainer's own classes.
FEWER = 0.12


@dataclass(frozen=True)
class Placed:
    """A case on the card that a run takes, the cards that may be meant, and the places where CUDA shows cards."""

    case: Case
    candidates: Sequence[Gpu]
    shown: Sequence[tuple[Gpu, ...]]


def placed(
    run: Run, model: ModelFolder, datasets: tuple[DatasetFolder, ...] | Unknown, system: System, gpus: tuple[Gpu, ...]
) -> Placed | Unknown:
    """The run on the card that it takes, of several that may be meant the one that has the most room.

    Unknown for what no closed form was made for.
    """
    sizes = sizes_of(run, model)
    if isinstance(sizes, Unknown):
        return sizes
    reason = _not_covered(run)
    if reason:
        return Unknown(reason)
    rank, batch = max(0, run.recipe.network.rank), max(1, run.recipe.batch_size)
    network = replace(run.recipe.network, rank=rank)
    run = replace(run, recipe=replace(run.recipe, batch_size=batch, network=network))
    if system.os == "darwin" and system.machine == "arm64" and run.device.startswith("cuda") and not run.by_runner:
        run = replace(run, device="mps")  # which accelerate takes there, whatever the config says
    candidates, seen = taken(run, gpus, system.environment), visible(gpus, system.environment)
    if isinstance(candidates, Unknown):
        return candidates
    # only their sizes count, and a dataset was often cut to a few
    known = () if isinstance(datasets, Unknown) else tuple(map(_with_one_picture_a_size, datasets))
    case = Case(run, sizes, known, None)
    if sizes.of_kohya is not None and run.recipe.network.narrowed:
        return Unknown(_OF_LORA)
    if sizes.of_kohya is not None and (kind := untraced(case)):
        return Unknown(f"what a step of {kind} keeps in memory was not measured yet")
    if not case.is_known:
        way = (run.recipe.precision.quantization or case.way) if "-kept" in case.way else case.way
        if run.recipe.offload.attention:
            way = "gradient_checkpointing_offload_attention"
        elif case.sizes.steps.knows(case.way, again=False):
            way = "gradient_checkpointing"
        return Unknown(f"what a step in {way} keeps in memory was not measured for this model")
    card = max(candidates, key=lambda gpu: _left(case, gpu), default=None)
    return Placed(replace(case, card=card), candidates, () if isinstance(seen, Unknown) else seen)


def started_with(environment: Environment | Unknown, run: Run) -> Run:
    """The run by the PyTorch that it will be started with, where that is known."""
    version = "" if isinstance(environment, Unknown) else environment.versions.get("torch", "")
    precision = replace(run.recipe.precision, half_norms=meets(version, "<2.12") if version else None)
    return replace(run, recipe=replace(run.recipe, precision=precision))


def predict(
    run: Run, model: ModelFolder, datasets: tuple[DatasetFolder, ...] | Unknown, system: System, gpus: tuple[Gpu, ...]
) -> Memory | Unknown:
    """Predicted device memory of a LoRA training; Unknown for what no closed form was made for.

    It is held against the card that the run takes, or the system's RAM where it takes none.
    """
    on = placed(run, model, datasets, system, gpus)
    if isinstance(on, Unknown):
        return on
    case, sizes, card, run = on.case, on.case.sizes, on.case.card, on.case.run
    left = partial(_left, case)
    phases = tuple(phases_of(case))
    peak = max(phase.total for phase in phases)
    blocks = runner_blocks(case) if run.by_runner else case.blocks
    free, high = card.memory_free if card else system.memory_available, highest_of(case)
    of_system = f"{'measured' if system.recorded is None else 'recorded'}: the system's available memory"
    return Memory(
        device=_named(card) if card else "mps" if case.on_mps else "cpu",
        phases=phases,
        total=card.memory_total if card else system.memory_total,
        free=free,
        budget_source=card.source if card else of_system,
        as_published=bool(sizes.assumed),
        assumptions=_assumptions(sizes, card, len(on.candidates) > 1, datasets),
        host_phases=host_phases_of(case) if card else {LOADING: peak},
        host_free=system.memory_available,
        alternatives=tuple(alternatives_of(case, system.memory_available)) if high > free else (),
        margin=high - peak,
        below=_less_before_torch_2_12(case, peak)
        + error_of(case)
        + (int(FEWER * peak) if run.recipe.network.excluded and not sizes.of_trainer else 0),
        cards=sharing(on.shown) if card and not offloaded_share(run) else 1,
        least_free=min((gpu.memory_free for place in on.shown for gpu in place), default=0),
        blocks=blocks,
        block=blocks * sizes.block // max(1, sizes.blocks),
        elsewhere=_elsewhere(run, gpus, on.candidates, system, left) if card and left(card) < 0 else None,
        spill=_spill(card, system) if card else 0,
    )


def _less_before_torch_2_12(case: Case, peak: int) -> int:
    """How much lower the peak is where rms_norm stays in 16 bits, and it is not known which PyTorch the run has."""
    if case.recipe.precision.half_norms is not None:
        return 0
    older = case.with_recipe(precision=replace(case.recipe.precision, half_norms=True))
    return 0 if older.way == case.way else max(0, peak - max(phase.total for phase in phases_of(older)))


def _left(case: Case, gpu: Gpu) -> int:
    return gpu.memory_free - highest_of(replace(case, card=gpu))


def _spill(card: Gpu, system: System) -> int:
    """Bytes of the computer's memory that Windows gives a card whose own is full: half of it, by WDDM.

    NVIDIA's driver does so from 536.40 on, unless its settings say "Prefer No Sysmem Fallback"
    (nvidia.custhelp.com/app/answers/detail/a_id/5490).
    """
    major = card.driver.partition(".")[0]
    moves = major.isdecimal() and int(major) >= SPILLS_SINCE
    return system.memory_total // 2 if system.os == "windows" and card.driver_model in ("", "WDDM") and moves else 0


def _with_one_picture_a_size(folder: DatasetFolder) -> DatasetFolder:
    return replace(folder, images=tuple({(image.width, image.height): image for image in folder.images}.values()))


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
    if why := run.unknown(*_COUNTS):
        return why
    recipe = run.recipe
    if run.kind != "lora" or recipe.network.type not in (
        TITLES if run.by_runner else ("lora", "dora", "locon", "lokr")
    ):
        return _OF_LORA
    if recipe.precision.dtype not in WIDTHS:
        return f"dtype {recipe.precision.dtype} has no known size"
    of_encoder = None if run.by_runner else recipe.precision.text_encoder_quantization
    for qtype in (recipe.precision.quantization, of_encoder):
        if qtype not in (None, "none") and qtype.partition("|")[0] not in QUANTIZED:
            return f"the size of weights quantized as {qtype} is not known"
    if any(dataset.frames == 0 for dataset in recipe.datasets):
        return "how long the films are is read from them, which are not opened"
    if recipe.offload.other and not run.by_runner:  # which has no such option
        return f"what {recipe.offload.other} moves between card and host while it trains is not predicted"
    return ""


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
    return filled("assumes {what}", {"what": joined(", ", parts)})
