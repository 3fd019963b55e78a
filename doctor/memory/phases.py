"""What is held in each phase of a run by other trainers than zdoctor's runner, and the peaks by whoever trains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from ..families import family_of
from ..families.network import offloaded_share
from ..families.tensors import parameters
from ..model import Phase
from ..trainers import trainer_of
from .bytes import QUANTIZED
from .case import CONTEXT_RANGE, HOST_BASE, TEXT_ENCODER_WORK, Case
from .runner import host_peak, phases_of_runner, phases_without_bfloat16
from .trained_text import kohyas_text, kohyas_text_step

# Weights alone, and the quantized ones take no more than they leave: ai-toolkit's own example for Flux on 24 GB cards
# goes through this phase.
QUANTIZING = "quantizing the transformer"
LOADING = "loading the model"
# Of twenty figures of SDXL in sd-scripts 18 lie up to a third above what a rehearsed step holds, and two more
# (benchmarks/outside.py): cuDNN's workspaces for convolutions, and what the allocator keeps beside, are in none.
CONVOLVING = 0.3
OFFLOADING = "training with offloaded blocks"


def phases_of(case: Case) -> Iterator[Phase]:
    if case.run.by_runner:
        return phases_of_runner(case)
    return _phases_of_trainer(case) if case.sizes.of_kohya is None else _phases_of_files(case)


def peak_of(case: Case) -> int:
    return max(phase.total for phase in phases_of(case))


def highest_of(case: Case) -> int:
    """The high end of the estimate: context, allocator and LoRA copies at their worst."""
    # float32 where the processor has no bfloat16
    may_widen = case.run.by_runner and not case.card and not case.on_mps
    is_wider = may_widen and case.dtype == "bfloat16"
    highest = _highest(case, phases_without_bfloat16(case) if is_wider else phases_of(case))
    convolves = case.card is not None and family_of(case.run.recipe.architecture).convolves
    return highest + int(CONVOLVING * peak_of(case)) if convolves else highest


def error_of(case: Case) -> int:
    """How far from the computed peak the true one may lie, where the run computes in the type that it names."""
    return _highest(case, phases_of(case)) - peak_of(case)


def _highest(case: Case, phases: Iterable[Phase]) -> int:
    context = CONTEXT_RANGE if case.card else HOST_BASE // 2
    return (
        context
        + case.more_outputs
        + max(int((1.0 if phase.name == QUANTIZING else 1.03) * phase.total) for phase in phases)
    )


def host_peak_of(case: Case) -> int:
    return max(host_phases_of(case).values(), default=0)


def host_phases_of(case: Case) -> dict[str, int]:
    """Host bytes that cannot be given back in each phase of a run for a card; none where it has none.

    Weights stored in another dtype are converted, merged ones rewritten, quantized ones built anew: all of them are
    then anonymous memory. Weights used as they lie on disk stay in the page cache, which gives way.
    """
    if case.card is None:
        return {}
    if case.run.by_runner:
        return {LOADING: host_peak(case)}
    others = case.experts - 1 if case.recipe.offload.low_vram else 0
    waiting = int(offloaded_share(case.run) * case.blocks) + case.swapped + others * _weights_of(case)
    sizes = {LOADING: 0, OFFLOADING: waiting} if waiting else {LOADING: 0}
    if case.sizes.of_kohya:  # where their files are read to, and what of them stays, is not known
        return {name: HOST_BASE + size for name, size in sizes.items()}
    if case.recipe.adapter or case.sizes.stored != case.width:
        sizes[LOADING] = case.width * (case.sizes.blocks + case.sizes.rest)
    elif case.recipe.precision.quantization:
        sizes["quantizing the model"] = _weights_of(case)
    return {name: HOST_BASE + size for name, size in sizes.items()}


def _weights_of(case: Case) -> int:
    return case.blocks + case.width * case.sizes.rest


def _text_encoder(case: Case) -> int:
    if (
        offloaded_share(case.run) and trainer_of(case.run.trainer).encodes_beside
    ):  # with ai-toolkit its layers wait, too
        return 0
    kind = case.recipe.precision.text_encoder_quantization
    if kind is None:
        return case.width * case.sizes.text_encoder
    return int(QUANTIZED[kind.partition("|")[0]] * case.sizes.text_encoder * 1.03)


def _text_encoder_at_first(case: Case) -> int:
    """What the card holds of text encoders before the largest of them is quantized."""
    sizes, kind = case.sizes, case.recipe.precision.text_encoder_quantization
    if kind is None and not offloaded_share(case.run):
        return case.width * sizes.text_encoder
    if kind is None or sizes.figures.encoder_aside:
        return _text_encoder(case)
    share = sizes.text_largest / max(1, sizes.text_encoder)
    return int(case.width * sizes.text_largest + (1 - share) * _text_encoder(case))


def _phases_of_files(case: Case) -> Iterator[Phase]:
    """Of sd-scripts and musubi-tuner, where each part is on the card alone until the transformer comes.

    musubi-tuner's other scripts have filled the caches: its text encoder is opened for samples alone.
    """
    recipe, sizes, base = case.recipe, case.sizes, case.base
    kohya, whole = family_of(recipe.architecture).kohya[case.run.trainer], sizes.of_kohya
    wide = 4 / case.width if whole is not None and (whole.whole_vae or recipe.precision.vae == "float32") else 1
    encoder, vae = {"text encoder": _text_encoder(case)}, {"VAE": int(wide * case.width * sizes.vae)}
    cached = kohya.samples_only or (
        bool(recipe.datasets) and all(d.cache_latents or d.cache_latents_to_disk for d in recipe.datasets)
    )
    if not kohya.samples_only or case.samples:
        work = int(TEXT_ENCODER_WORK * sizes.text_encoder)
        yield Phase("encoding the prompts", {**base, **encoder, "encoding": work})
    encode = int(
        (wide if recipe.precision.vae else 1) * sizes.encode * max(map(prod, case.pictures)) * case.width / 2
    )
    if not kohya.samples_only and cached:
        yield Phase("caching the latents", {**base, **vae, "encoding": encode})
    weights = case.here(_weights_of(case))
    if whole is not None and whole.cast_whole and _is_cast(case):
        before = case.width * (sizes.blocks + sizes.rest)
        others = 0 if recipe.offload.low_vram else (case.experts - 1) * weights
        yield Phase(LOADING, {**base, "transformer before it is cast": before, "transformer": weights + others})
    held = {"transformer": (1 if recipe.offload.low_vram else case.experts) * weights, **case.network}
    if not recipe.cache_text_embeddings:
        held |= encoder
    elif recipe.network.text_rates:  # of which those that learn stay
        held |= {
            "text encoder": case.width * sum(parameters(sizes.encoders[name]) for name in recipe.network.text_rates)
        }
    held |= kohyas_text(case)
    if not cached:
        held |= vae
        yield Phase("encoding a batch", {**base, **held, "encoding": encode * recipe.batch_size})
    yield Phase("training step", {**base, **held, **case.step(), **kohyas_text_step(case)})
    if case.samples:
        decode = int(wide * sizes.decode * case.decoded * case.width / 2)
        of_vae = {"VAE": int(wide * case.width * sizes.vae)}
        most = max(case.drawing(whole.drawn if whole else 1), decode)
        yield Phase("drawing samples", {**base, **held, **of_vae, "drawing or decoding": most})


def _is_cast(case: Case) -> bool:
    """Whether the transformer is read onto the card in 16 bits, to be cast there."""
    precision = case.recipe.precision
    on_card = case.card is not None and case.recipe.offload.swapped < 1
    return on_card and precision.quantization is not None and not precision.scaled and case.sizes.stored > 1


def _phases_of_trainer(case: Case) -> Iterator[Phase]:
    recipe, sizes, card, base = case.recipe, case.sizes, case.card, case.base
    away = recipe.offload.low_vram or not card  # of several experts all but one
    transformer = (1 if away else sizes.figures.experts) * case.here(_weights_of(case))
    encoder = _text_encoder(case)
    vae = case.width * sizes.vae
    lora = case.network
    adapter = {"adapter kept for sampling": 2 * recipe.network.rank * sizes.lora_sides} if recipe.adapter else {}
    text_gone = recipe.cache_text_embeddings or recipe.unload_text_encoder
    resident_text = {} if text_gone else {"text encoder": encoder}
    cached = bool(recipe.datasets) and all(d.cache_latents or d.cache_latents_to_disk for d in recipe.datasets)
    resident_vae = {} if cached and not case.controls else {"VAE": vae}  # which encodes control images in every step

    whole = _text_encoder_at_first(case)
    trainer = trainer_of(case.run.trainer)
    alone = trainer.encodes_first
    beside = {} if card or alone else {"transformer": transformer}
    crowded = sizes.figures.beside and trainer.encodes_beside
    crowd = {"transformer": transformer} if crowded else beside
    whole_there = (crowded or sizes.figures.loads_whole) and trainer.encodes_beside and not recipe.offload.low_vram
    if card and whole_there and recipe.precision.quantization:
        unquantized = case.width * (sizes.blocks + sizes.rest)
        others = (sizes.figures.experts - 1) * case.here(_weights_of(case))
        yield Phase(QUANTIZING, {**base, "transformer before quantizing": unquantized + others})
    yield Phase("loading the text encoder", {**base, **crowd, "text encoder before quantizing": whole})
    if card and not alone and not recipe.offload.low_vram:
        together = {"transformer": transformer, "text encoder": encoder, "VAE": vae}
        yield Phase("loading the models side by side", {**base, **together})
    if recipe.cache_text_embeddings:
        work = {"text encoder": encoder, "encoding": int(TEXT_ENCODER_WORK * sizes.text_encoder)}
        yield Phase("caching the text embeddings", {**base, **beside, **work})
    encode = int(sizes.encode * max(map(prod, case.pictures)) * case.width / 2)
    if cached:
        yield Phase("caching the latents", {**base, **beside, "VAE": vae, "encoding": encode})
    else:
        held = {"transformer": transformer, **lora, **resident_text, "VAE": vae}
        yield Phase("encoding a batch", {**base, **held, "encoding": encode * recipe.batch_size})
    step = {"transformer": transformer, **lora, **resident_text, **resident_vae, **case.step()}
    if scores := case.scores(sum(case.tokens), recipe.batch_size):
        step["attention scores"] = scores
    yield Phase("training step", {**base, **step})
    if case.samples:
        drawing = case.drawing(sizes.figures.drawn) + case.drawing_scores(1)
        decode = int(sizes.decode * case.decoded * case.width / 2)
        held = {"transformer": transformer, **lora, **adapter, **resident_text, "VAE": vae}
        if trainer.keeps_gradients:
            held["gradients"] = case.of_lora * case.trained
        yield Phase("drawing samples", {**base, **held, "drawing or decoding": max(drawing, decode)})
