"""What would lower the peak of a run, in the words of its config: ai-toolkit's or SimpleTuner's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

from ..families import family_of
from ..model import Alternative, DatasetFolder, Gpu, Run, SamplePrompt, TrainingEffect, Value
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
    if run.trainer != "SimpleTuner" and run.keys.get("dtype") == "train/dtype":
        steps = _of_ai_toolkit
    elif run.keys.get("disable_sampling") == "validation_disable":
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
    recipe = run.recipe
    size = (run.setting("sample/width", 512), run.setting("sample/height", 512))
    prompts = run.setting("sample/prompts", [])
    flagged = any("--" in str(prompt) for prompt in prompts) if isinstance(prompts, list) else True
    painted = () if recipe.validation.disabled else recipe.validation.prompts
    if painted and not flagged and all((sample.width, sample.height) == size for sample in painted):
        for limit in (768, 512):
            if (small := _shrunk(painted, limit)) != painted:
                key = (("sample/width", small[0].width), ("sample/height", small[0].height))
                written = {name: Value(value, run.where(name), 0, 0) for name, value in key}
                yield (
                    key,
                    "none",
                    replace(
                        run,
                        settings={**run.settings, **written},
                        recipe=replace(recipe, validation=replace(recipe.validation, prompts=small)),
                    ),
                )
    if painted:
        yield (
            (("train/disable_sampling", True),),
            "none",
            replace(run, recipe=replace(recipe, validation=replace(recipe.validation, disabled=True))),
        )


def _samples_of_simpletuner(run: Run) -> Iterator[Step]:
    recipe = run.recipe
    painted = () if recipe.validation.disabled else recipe.validation.prompts
    for limit in (768, 512):
        if (small := _shrunk(painted, limit)) != painted:
            sizes = dict.fromkeys(f"{sample.width}x{sample.height}" for sample in small)
            yield (
                (("validation_resolution", ",".join(sizes)),),
                "none",
                replace(run, recipe=replace(recipe, validation=replace(recipe.validation, prompts=small))),
            )
    if painted:
        yield (
            (("validation_disable", True),),
            "none",
            replace(run, recipe=replace(recipe, validation=replace(recipe.validation, disabled=True))),
        )


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
        yield (
            ((run.keys["gradient_checkpointing"], True),),
            "equivalent",
            replace(run, recipe=replace(recipe, offload=replace(recipe.offload, gradient_checkpointing=True))),
        )
    if recipe.batch_size > 1:
        accumulate = recipe.batch_size * recipe.gradient_accumulation
        key = (
            (run.keys.get("gradient_accumulation", "train/gradient_accumulation"), accumulate),
            (run.keys["batch_size"], 1),
        )
        yield (
            key,
            "equivalent",
            replace(run, recipe=replace(recipe, batch_size=1, gradient_accumulation=accumulate)),
        )


def _of_simpletuner(run: Run, *, samples: bool) -> Iterator[Step]:
    yield from _again_and_smaller(run)
    if samples:
        yield from _samples_of_simpletuner(run)


def _of_ai_toolkit(run: Run, *, samples: bool) -> Iterator[Step]:
    recipe = run.recipe
    shuffled = any(
        run.setting(f"{dataset.key}/shuffle_tokens") is True or f"{dataset.key}/token_dropout_rate" in run.settings
        for dataset in recipe.datasets
    )
    if run.setting("model/low_vram") is not True:
        on = Value(True, run.where("model/low_vram"), 0, 0)
        key = (("model/low_vram", True),)
        yield key, "none", replace(run, settings={**run.settings, "model/low_vram": on})
    if not recipe.cache_text_embeddings and not shuffled and run.setting("train/train_text_encoder") is not True:
        key = (("train/cache_text_embeddings", True),)
        yield key, "equivalent", replace(run, recipe=replace(recipe, cache_text_embeddings=True))
    yield from _again_and_smaller(run)
    if samples:
        yield from _samples_of_ai_toolkit(run)
    kind = "qint8" if on_mps(run) else "qfloat8"  # MPS has no float8, which is ai-toolkit's default
    of_encoder = (("model/qtype_te", kind),) if on_mps(run) else ()
    if recipe.precision.quantization is None:
        # ai-toolkit quantizes the text encoder along with the transformer unless quantize_te says otherwise
        encoder = recipe.precision.text_encoder_quantization if "model/quantize_te" in run.settings else kind
        yield (
            (("model/quantize", True), ("model/qtype", kind), *of_encoder),
            "changes-result",
            replace(
                run,
                recipe=replace(
                    recipe,
                    precision=replace(recipe.precision, quantization=kind, text_encoder_quantization=encoder),
                ),
            ),
        )
    if recipe.precision.text_encoder_quantization is None:
        key = (("model/quantize_te", True), *of_encoder)
        yield (
            key,
            "changes-result",
            replace(
                run,
                recipe=replace(recipe, precision=replace(recipe.precision, text_encoder_quantization=kind)),
            ),
        )
    if _may_offload(run):
        away = Value(True, run.where("model/layer_offloading"), 0, 0)
        # ai-toolkit then takes float8 for qfloat8, which rounds in another way
        effect: TrainingEffect = (
            "changes-result" if not run.by_runner and recipe.precision.quantization == "qfloat8" else "equivalent"
        )
        key = (("model/layer_offloading", True),)
        yield key, effect, replace(run, settings={**run.settings, "model/layer_offloading": away})
    for limit in (1024, 768, 512):
        if not any(resolution > limit for dataset in recipe.datasets for resolution in dataset.resolutions):
            continue
        lowered = tuple(
            replace(dataset, resolutions=tuple(dict.fromkeys(min(r, limit) for r in dataset.resolutions)))
            for dataset in recipe.datasets
        )
        settings = tuple(
            (f"{new.key}/resolution", list(new.resolutions))
            for old, new in zip(recipe.datasets, lowered, strict=True)
            if old.resolutions != new.resolutions
        )
        yield settings, "changes-result", replace(run, recipe=replace(recipe, datasets=lowered))


def _may_offload(run: Run) -> bool:
    """Whether blocks can wait in host memory and do not yet. It takes time in every step, but no picture less."""
    loads = run.by_runner or family_of(run.recipe.architecture).ai_toolkit.offloads
    together = not any(run.setting(f"model/{name}") for name in ("layer_offloading", "compile", "block_compile"))
    every = run.setting("train/gradient_checkpointing_interval", 1) == 1
    return loads and together and every and run.recipe.offload.gradient_checkpointing
