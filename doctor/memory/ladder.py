"""What would lower the peak of a run, in the words of its config: ai-toolkit's or SimpleTuner's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

from ..families import family_of
from ..model import Alternative, DatasetFolder, Gpu, Run, SamplePrompt, TrainingEffect
from ..model.record import replace
from .peaks import highest_of, peak_of
from .phases import on_mps
from .sizes import Sizes

# The settings, what they do to what is learnt, and the run with them.
Step = tuple[tuple[tuple[str, Any], ...], TrainingEffect, Run]
_EFFECTS: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


def alternatives_of(
    run: Run,
    sizes: Sizes,
    datasets: Sequence[DatasetFolder],
    card: Gpu | None,
    host_peak: Callable[[Run], int],
    host_free: int,
) -> list[Alternative]:
    """Settings that lower the peak, the harmless first, each on top of the ones before it.

    None takes more host memory than is free, unless the run as written does. Samples are painted smaller, or not at
    all, where that spares a change of what is learnt.
    """
    if "offload.low_vram" in run.keys:
        steps = _of_ai_toolkit
    elif "validation.prompt_sizes" in run.keys:
        steps = _of_simpletuner
    else:
        return []
    plain, smaller = (
        list(_ladder(run, partial(steps, samples=samples), sizes, datasets, card, host_peak, host_free))
        for samples in (False, True)
    )
    free = host_free if card is None else card.memory_free
    return smaller if _harm(smaller, free) < _harm(plain, free) else plain


def _harm(ladder: Sequence[Alternative], free: int) -> int:
    """The worst effect of what it takes until the run fits."""
    fits = next((number for number, step in enumerate(ladder, 1) if step.high <= free), None)
    return len(_EFFECTS) if fits is None else max(_EFFECTS.index(step.effect) for step in ladder[:fits])


def _ladder(
    run: Run,
    steps: Callable[[Run], Iterator[Step]],
    sizes: Sizes,
    datasets: Sequence[DatasetFolder],
    card: Gpu | None,
    host_peak: Callable[[Run], int],
    host_free: int,
) -> Iterator[Alternative]:
    best = highest_of(run, sizes, datasets, card)
    host_most = max(host_free, host_peak(run))
    while True:
        for settings, effect, changed in steps(run):
            if host_peak(changed) <= host_most and (high := highest_of(changed, sizes, datasets, card)) < best:
                run, best = changed, high
                yield Alternative(settings, effect, peak_of(run, sizes, datasets, card), high)
                break  # what did not matter before may matter now, and the harmless come first again
        else:
            return


def _samples_of_ai_toolkit(run: Run) -> Iterator[Step]:
    validation = run.recipe.validation
    for limit in (768, 512) if validation.one_size else ():
        if small := _smaller(run, limit):
            sides = (("validation.prompt_width", small[0].width), ("validation.prompt_height", small[0].height))
            yield _step(run, sides, "none", validation=replace(validation, prompts=small))
    yield from _no_samples(run)


def _samples_of_simpletuner(run: Run) -> Iterator[Step]:
    for limit in (768, 512):
        if small := _smaller(run, limit):
            sizes = ",".join(dict.fromkeys(f"{sample.width}x{sample.height}" for sample in small))
            validation = replace(run.recipe.validation, prompts=small)
            yield _step(run, (("validation.prompt_sizes", sizes),), "none", validation=validation)
    yield from _no_samples(run)


def _no_samples(run: Run) -> Iterator[Step]:
    validation = run.recipe.validation
    if validation.prompts and not validation.disabled:
        yield _step(run, (("disable_sampling", True),), "none", validation=replace(validation, disabled=True))


def _step(run: Run, settings: Sequence[tuple[str, Any]], effect: TrainingEffect, **changes: Any) -> Step:
    """A step by the fields that are written, and the recipe's fields that it changes."""
    written = tuple((run.keys.get(name, name), value) for name, value in settings)
    return written, effect, replace(run, recipe=replace(run.recipe, **changes))


def _smaller(run: Run, limit: int) -> tuple[SamplePrompt, ...]:
    """The prompts with none above a square of `limit` pixels a side; empty where that changes nothing."""
    painted = () if run.recipe.validation.disabled else run.recipe.validation.prompts
    small = _shrunk(painted, limit)
    return () if small == painted else small


def _shrunk(samples: tuple[SamplePrompt, ...], limit: int) -> tuple[SamplePrompt, ...]:
    """Those larger than a square of `limit` pixels a side in about its area, their sides divisible by 32."""
    return tuple(
        replace(sample, width=_side(sample.width, sample, limit), height=_side(sample.height, sample, limit))
        if sample.width * sample.height > limit * limit
        else sample
        for sample in samples
    )


def _side(length: int, sample: SamplePrompt, limit: int) -> int:
    return max(32, int(length * limit / sqrt(sample.width * sample.height)) // 32 * 32)


def _again_and_smaller(run: Run) -> Iterator[Step]:
    """Blocks that are computed again, and batches taken one picture after the other."""
    recipe = run.recipe
    if not recipe.offload.gradient_checkpointing:
        again = replace(recipe.offload, gradient_checkpointing=True)
        yield _step(run, (("gradient_checkpointing", True),), "equivalent", offload=again)
    if recipe.batch_size > 1:
        accumulate = recipe.batch_size * recipe.gradient_accumulation
        written = (("gradient_accumulation", accumulate), ("batch_size", 1))
        yield _step(run, written, "equivalent", batch_size=1, gradient_accumulation=accumulate)


def _of_simpletuner(run: Run, *, samples: bool) -> Iterator[Step]:
    yield from _again_and_smaller(run)
    if samples:
        yield from _samples_of_simpletuner(run)


def _of_ai_toolkit(run: Run, *, samples: bool) -> Iterator[Step]:
    recipe = run.recipe
    if not recipe.offload.low_vram:
        yield _step(run, (("offload.low_vram", True),), "none", offload=replace(recipe.offload, low_vram=True))
    varied = recipe.train_text_encoder or any(dataset.varied_captions for dataset in recipe.datasets)
    if not recipe.cache_text_embeddings and not varied:
        yield _step(run, (("cache_text_embeddings", True),), "equivalent", cache_text_embeddings=True)
    yield from _again_and_smaller(run)
    if samples:
        yield from _samples_of_ai_toolkit(run)
    yield from _quantized(run)
    if _may_offload(run):
        # ai-toolkit then takes float8 for qfloat8, which rounds in another way
        rounds = not run.by_runner and recipe.precision.quantization == "qfloat8"
        effect: TrainingEffect = "changes-result" if rounds else "equivalent"
        yield _step(run, (("offload.share", True),), effect, offload=replace(recipe.offload, share=1.0))
    yield from _lower_resolutions(run)


def _quantized(run: Run) -> Iterator[Step]:
    precision = run.recipe.precision
    kind = "qint8" if on_mps(run) else "qfloat8"  # MPS has no float8, which is ai-toolkit's default
    of_encoder = (("text_encoder_quantization", kind),) if on_mps(run) else ()
    if precision.quantization is None:
        # ai-toolkit quantizes the text encoder along with the transformer unless quantize_te says otherwise
        apart = run.written("precision.quantize_text_encoder") is not None
        encoder = precision.text_encoder_quantization if apart else kind
        both = replace(precision, quantization=kind, text_encoder_quantization=encoder)
        written = (("precision.quantize", True), ("quantization", kind), *of_encoder)
        yield _step(run, written, "changes-result", precision=both)
    if precision.text_encoder_quantization is None:
        written = (("precision.quantize_text_encoder", True), *of_encoder)
        of_text = replace(precision, text_encoder_quantization=kind)
        yield _step(run, written, "changes-result", precision=of_text)


def _lower_resolutions(run: Run) -> Iterator[Step]:
    datasets = run.recipe.datasets
    for limit in (1024, 768, 512):
        if not any(resolution > limit for dataset in datasets for resolution in dataset.resolutions):
            continue
        lowered = tuple(
            replace(dataset, resolutions=tuple(dict.fromkeys(min(r, limit) for r in dataset.resolutions)))
            for dataset in datasets
        )
        settings = tuple(
            (f"{new.key}/resolutions", list(new.resolutions))
            for old, new in zip(datasets, lowered, strict=True)
            if old.resolutions != new.resolutions
        )
        yield _step(run, settings, "changes-result", datasets=lowered)


def _may_offload(run: Run) -> bool:
    """Whether blocks can wait in host memory and do not yet. It takes time in every step, but no picture less."""
    offload = run.recipe.offload
    loads = run.by_runner or family_of(run.recipe.architecture).ai_toolkit.offloads
    alone = offload.share is None and not offload.compile and offload.interval == 1
    return loads and alone and offload.gradient_checkpointing
