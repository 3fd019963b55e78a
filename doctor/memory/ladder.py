"""What would lower the peak of a run, in the words of its config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

from ..families import family_of
from ..model import Alternative, SamplePrompt, TrainingEffect
from ..model.record import replace
from .case import Case
from .phases import highest_of, host_peak_of, peak_of

# The settings, what they do to what is learnt, and the case with them.
Step = tuple[tuple[tuple[str, Any], ...], TrainingEffect, Case]
_SIZES = "validation.prompt_sizes"  # SimpleTuner's option for those of all samples
_EFFECTS: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


def alternatives_of(case: Case, host_free: int) -> list[Alternative]:
    """Settings that lower the peak, the harmless first, each on top of the ones before it.

    None takes more host memory than is free, unless the run as written does. Samples are painted smaller, or not at
    all, where that spares a change of what is learnt.
    """
    steps = steps_for(case)
    if steps is None:
        return []
    plain, smaller = (list(_ladder(case, partial(steps, samples=samples), host_free)) for samples in (False, True))
    free = host_free if case.card is None else case.card.memory_free
    return smaller if _harm(smaller, free) < _harm(plain, free) else plain


def steps_for(case: Case) -> Callable[..., Iterator[Step]] | None:
    """What lowers the peak step by step in the words of the run's trainer; None where these are not known."""
    if case.sizes.of_kohya is not None:
        return _of_kohya
    if "offload.low_vram" in case.run.keys:
        return _of_ai_toolkit
    return _of_simpletuner if _SIZES in case.run.keys else None


def _harm(ladder: Sequence[Alternative], free: int) -> int:
    """The worst effect of what it takes until the run fits."""
    fits = next((number for number, step in enumerate(ladder, 1) if step.high <= free), None)
    return len(_EFFECTS) if fits is None else max(_EFFECTS.index(step.effect) for step in ladder[:fits])


def _ladder(case: Case, steps: Callable[[Case], Iterator[Step]], host_free: int) -> Iterator[Alternative]:
    best = highest_of(case)
    host_most = max(host_free, host_peak_of(case))
    while True:
        for settings, effect, changed in steps(case):
            if changed.is_known and host_peak_of(changed) <= host_most and (high := highest_of(changed)) < best:
                case, best = changed, high
                yield Alternative(settings, effect, peak_of(case), high)
                break  # what did not matter before may matter now, and the harmless come first again
        else:
            return


def _samples(case: Case) -> Iterator[Step]:
    validation, is_option = case.recipe.validation, _SIZES in case.run.keys
    for limit in (768, 512) if is_option or validation.one_size else ():
        if small := _smaller(case, limit):
            sizes = ",".join(dict.fromkeys(f"{sample.width}x{sample.height}" for sample in small))
            sides = (("validation.prompt_width", small[0].width), ("validation.prompt_height", small[0].height))
            written = ((_SIZES, sizes),) if is_option else sides
            yield _step(case, written, "none", validation=replace(validation, prompts=small))
    if validation.painted:
        yield _step(case, (("disable_sampling", True),), "none", validation=replace(validation, disabled=True))


def _step(case: Case, settings: Sequence[tuple[str, Any]], effect: TrainingEffect, **changes: Any) -> Step:
    """A step by the fields that are written, and the recipe's fields that it changes."""
    written = tuple((case.run.keys.get(name, name), value) for name, value in settings)
    return written, effect, case.with_recipe(**changes)


def _smaller(case: Case, limit: int) -> tuple[SamplePrompt, ...]:
    """The prompts, those above a square of `limit` pixels a side in about its area, their sides divisible by 32.

    Empty where that changes nothing.
    """
    small = tuple(
        replace(sample, width=_side(sample.width, sample, limit), height=_side(sample.height, sample, limit))
        if sample.width * sample.height > limit * limit
        else sample
        for sample in case.samples
    )
    return () if small == tuple(case.samples) else small


def _side(length: int, sample: SamplePrompt, limit: int) -> int:
    return max(32, int(length * limit / sqrt(sample.width * sample.height)) // 32 * 32)


def _again_and_smaller(case: Case) -> Iterator[Step]:
    """Blocks that are computed again, and batches taken one picture after the other."""
    recipe = case.recipe
    if not recipe.offload.gradient_checkpointing:
        again = replace(recipe.offload, gradient_checkpointing=True)
        yield _step(case, (("gradient_checkpointing", True),), "equivalent", offload=again)
    if recipe.batch_size > 1:
        accumulate = recipe.batch_size * recipe.gradient_accumulation
        written = (("gradient_accumulation", accumulate), ("batch_size", 1))
        yield _step(case, written, "equivalent", batch_size=1, gradient_accumulation=accumulate)


def _of_simpletuner(case: Case, *, samples: bool = True) -> Iterator[Step]:
    yield from _again_and_smaller(case)
    if samples:
        yield from _samples(case)


def _of_kohya(case: Case, *, samples: bool = True) -> Iterator[Step]:
    """Blocks that wait in host memory: slower, and the same numbers."""
    recipe, keys = case.recipe, case.run.keys
    yield from _again_and_smaller(case)
    yield from _swapped(case)
    if samples:
        yield from _samples(case)
    if recipe.precision.quantization is None:
        scaled = (("precision.scaled", True),) if "precision.scaled" in keys else ()
        in_8_bits = replace(recipe.precision, quantization="float8", scaled=bool(scaled))
        yield _step(case, (("quantization", True), *scaled), "changes-result", precision=in_8_bits)


def _swapped(case: Case) -> Iterator[Step]:
    """As few more blocks as make the run fit, else as many as its classes take."""
    of, counts = case.sizes.of_kohya, [count for count, *_ in case.sizes.swapped]
    if of is None or case.card is None:
        return
    last: Step | None = None
    for asked in range(case.recipe.offload.swapped + 1, sum(counts)):
        if any(wait > max(0, count - 2) for wait, count in zip(of.swaps(asked, counts), counts, strict=True)):
            break
        offload = replace(case.recipe.offload, swapped=asked)
        last = _step(case, (("offload.share", asked),), "none", offload=offload)
        if highest_of(last[2]) <= case.card.memory_free:
            break
    if last is not None:
        yield last


def _of_ai_toolkit(case: Case, *, samples: bool = True) -> Iterator[Step]:
    recipe = case.recipe
    if not recipe.offload.low_vram:
        yield _step(case, (("offload.low_vram", True),), "none", offload=replace(recipe.offload, low_vram=True))
    varied = recipe.train_text_encoder or any(dataset.varied_captions for dataset in recipe.datasets)
    if not recipe.cache_text_embeddings and not varied:
        yield _step(case, (("cache_text_embeddings", True),), "equivalent", cache_text_embeddings=True)
    yield from _again_and_smaller(case)
    if samples:
        yield from _samples(case)
    yield from _quantized(case)
    if _may_offload(case):
        # ai-toolkit then takes float8 for qfloat8, which rounds in another way
        rounds = not case.run.by_runner and recipe.precision.quantization == "qfloat8"
        effect: TrainingEffect = "changes-result" if rounds else "equivalent"
        yield _step(case, (("offload.share", True),), effect, offload=replace(recipe.offload, share=1.0))
    yield from _lower_resolutions(case)


def _quantized(case: Case) -> Iterator[Step]:
    precision = case.recipe.precision
    kind = "qint8" if case.on_mps else "qfloat8"  # MPS has no float8, which is ai-toolkit's default
    of_encoder = (("text_encoder_quantization", kind),) if case.on_mps else ()
    if precision.quantization is None:
        # ai-toolkit quantizes the text encoder along with the transformer unless quantize_te says otherwise
        apart = case.run.written("precision.quantize_text_encoder") is not None
        encoder = precision.text_encoder_quantization if apart else kind
        both = replace(precision, quantization=kind, text_encoder_quantization=encoder)
        written = (("precision.quantize", True), ("quantization", kind), *of_encoder)
        yield _step(case, written, "changes-result", precision=both)
    if precision.text_encoder_quantization is None:
        written = (("precision.quantize_text_encoder", True), *of_encoder)
        of_text = replace(precision, text_encoder_quantization=kind)
        yield _step(case, written, "changes-result", precision=of_text)


def _lower_resolutions(case: Case) -> Iterator[Step]:
    datasets = case.recipe.datasets
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
        yield _step(case, settings, "changes-result", datasets=lowered)


def _may_offload(case: Case) -> bool:
    """Whether blocks can wait in host memory and do not yet. It takes time in every step, but no picture less."""
    offload = case.recipe.offload
    loads = case.run.by_runner or family_of(case.recipe.architecture).ai_toolkit.offloads
    return loads and offload.share is None and not offload.compile and offload.every_block_again
