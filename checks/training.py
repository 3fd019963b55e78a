"""Training sense: settings that run and cost hours, memory or quality."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.families import family_of, no_record
from ..doctor.model import Finding, Gpu, Run, System, Unknown, found
from ..doctor.model.cards import taken
from ..doctor.model.trainer import EVERY, RUNNER
from ..doctor.rules import NotApplicable, Unestablished, rule
from ..doctor.trainers import trainer_of

_HALF = ("fp16", "half", "float16")
_BRAIN = ("bf16", "bfloat16")
# Optimizers whose steps are as long as the learning rate, by their name in any trainer; schedule-free ones are not.
_STEPS_AS_LONG = re.compile(r"(?:^|[.-]|paged)(?:adam|adamw|lion)(?:_bf16|[248]+bit|32bit|8)?$")
_FAR_TOO_LARGE = 0.1
UNDISTILLED = "The distillation breaks down within some thousand steps; short runs may still be fine."


def _turbo(run: Run) -> bool:
    """Whether a LoRA of the distilled Z-Image-Turbo is trained, by the words of the config."""
    distilled = family_of(run.recipe.architecture).distilled if run.kind == "lora" else None
    return distilled is not None and distilled.is_meant(run.recipe.base_model or "", run.recipe.variant)


@rule("TRN001", "note", "no-latent-cache", trainers=("ai-toolkit",))
def no_latent_cache(run: Run) -> Iterator[Finding]:
    """Images are encoded again at every step.

    What: A dataset caches its latents neither in memory nor on disk.
    Why: The VAE then encodes every image at every step and stays on the card all through the training; with caching
    it works once and leaves.
    Repair: cache_latents_to_disk: true. The encoded image is a sample of the VAE's distribution: with caching it is
    drawn once and not at every step, so the result is not the same to the bit.
    Signature: None; the run is slower and needs more memory.
    """
    for dataset in run.recipe.datasets:
        key = f"{dataset.key}/cache_latents_to_disk"
        # the trainer cannot cache augmented images
        augmented = run.written(f"{dataset.key}/augments") or run.written(f"{dataset.key}/augmentations")
        if dataset.cache_latents or dataset.cache_latents_to_disk or augmented:
            continue
        yield found(
            run.where(key),
            "No latents are cached for {folder}: the VAE encodes every image again at each of the {steps} steps.",
            otherwise="Every step is slower, and the VAE stays in the card's memory.",
            evidence={"key": key, "pointer": run.pointer(key)},
            folder=dataset.folder or dataset.key,
            steps=run.recipe.steps,
        )


@rule("TRN002", "warning", "bf16-without-hardware", trainers=(EVERY,))
def bf16_without_hardware(run: Run, gpus: tuple[Gpu, ...], system: System) -> Iterator[Finding]:
    """bf16 on a card that has no bf16.

    What: The run computes in bf16, and the card is older than compute capability 8.0 (T4, V100, P100, GTX, RTX 20).
    Why: PyTorch emulates bf16 there: it works, slowly, and attention falls back to the kernel that needs memory for
    the whole attention matrix. float16 is no way out for Z-Image: it overflows. `zdoctor train` multiplies in
    float16 there in a way that cannot overflow.
    Repair: A newer card, or fewer pixels (512 or 768) and patience.
    Signature: None; steps that take several times as long as expected.
    """
    if run.recipe.precision.dtype not in _BRAIN:
        raise NotApplicable
    candidates = taken(run, gpus, system.environment)
    if isinstance(candidates, Unknown):
        raise Unestablished(candidates.reason)
    if not candidates or any((gpu.capability or (8, 0)) >= (8, 0) for gpu in candidates):
        return
    card, capability = candidates[0], candidates[0].capability or ()
    sizes = {size for dataset in run.recipe.datasets for size in dataset.resolutions}
    yield found(
        run.where("dtype"),
        "{card} (compute capability {capability}) has no bf16 arithmetic, so PyTorch emulates it.",
        otherwise="The run works, but every step takes several times as long, and attention needs more memory.",
        evidence={"capability": list(capability), "source": card.source, "resolutions": sorted(sizes)},
        card=card.name,
        capability=".".join(map(str, capability)),
    )


@rule("TRN003", "error", "fp16-overflow", trainers=(EVERY,))
def fp16_overflow(run: Run) -> Iterator[Finding]:
    """Z-Image in float16.

    What: train.dtype is float16 for a Z-Image model.
    Why: Activations of Z-Image are larger than float16 can hold. The trainer prints "loss is nan", puts 0 in its
    place and goes on to the last step: hours for a LoRA that makes black images.
    Repair: bf16 (or fp32, which needs twice the memory). `zdoctor train` takes the config as it is: its float16
    cannot overflow.
    Upstream: https://github.com/Tongyi-MAI/Z-Image/issues/14
    Signature: loss is nan
    """
    recipe, trainer = run.recipe, trainer_of(run.trainer)
    family = family_of(recipe.architecture)
    if recipe.precision.dtype not in _HALF:
        raise NotApplicable
    if not family.name:
        raise Unestablished(no_record(recipe.architecture))
    if family.overflows is None:
        raise Unestablished(f"whether the activations of {family.title} are too large for float16 is not known")
    if family.overflows:
        yield found(
            run.where("dtype"),
            "{dtype} overflows in Z-Image, whose activations are too large for it. Use bf16.",
            otherwise=trainer.overflow,
            evidence={"pointer": run.pointer("dtype")},
            severity=None if trainer.overflow_is_certain else "warning",
            dtype=recipe.precision.dtype,
        )


@rule("TRN004", "warning", "turbo-without-adapter", trainers=("ai-toolkit", RUNNER))
def turbo_without_adapter(run: Run) -> Iterator[Finding]:
    """A distilled model trained without its training adapter.

    What: The base is Z-Image-Turbo, and there is no assistant_lora_path.
    Why: Training undoes the distillation: after a while the model needs many steps and guidance again, and images at
    8 steps fall apart. The adapter takes the distillation out while it trains and is not part of the saved LoRA.
    Repair: assistant_lora_path: ostris/zimage_turbo_training_adapter/zimage_turbo_training_adapter_v2.safetensors
    Upstream: https://huggingface.co/ostris/zimage_turbo_training_adapter
    Signature: None; samples at 8 steps become blurred as the training goes on.
    """
    if not _turbo(run):
        raise NotApplicable
    if run.recipe.adapter is None and run.written("recovery_adapter") is None:
        yield found(
            run.where("adapter"),
            "{model} is a distilled model, and it is trained without its training adapter (assistant_lora_path).",
            otherwise=UNDISTILLED,
            evidence={"pointer": run.pointer("adapter")},
            model=run.recipe.base_model,
        )


@rule("TRN005", "warning", "turbo-sampling")
def turbo_sampling(run: Run) -> Iterator[Finding]:
    """Samples of a distilled model with guidance or many steps.

    What: sample.guidance_scale above 1, or far more than 8 steps, for Z-Image-Turbo.
    Why: Turbo is made for no guidance and 8 steps. The trainer's defaults are guidance 7 and 20 steps; such samples
    are over-contrasted and slow, and people stop a good training because of them.
    Repair: guidance_scale: 1 and sample_steps: 8. It changes the samples only, not the training.
    Signature: None; burnt samples from the first one on.
    """
    prompts = run.recipe.validation.painted if _turbo(run) else ()
    if not prompts:
        raise NotApplicable
    guidance = max((prompt.guidance for prompt in prompts), default=1)
    steps = max((prompt.steps for prompt in prompts), default=8)
    if guidance > 1:
        yield found(
            run.where("validation.guidance"),
            "Samples of Turbo are made with guidance {guidance:g}, but Turbo is made for 1 (none).",
            otherwise="The samples look burnt, whatever the LoRA learned.",
            evidence={"pointer": run.pointer("validation.guidance"), "new": 1},
            guidance=guidance,
        )
    if steps > 12:
        yield found(
            run.where("validation.steps"),
            "Samples of Turbo take {steps} steps, but Turbo is made for 8.",
            otherwise="Sampling takes longer than it needs.",
            evidence={"pointer": run.pointer("validation.steps"), "new": 8},
            severity="note",
            steps=steps,
        )


@rule("TRN006", "warning", "captions-ignored", trainers=("ai-toolkit",))
def captions_ignored(run: Run) -> Iterator[Finding]:
    """The text encoder is unloaded, so captions are not read.

    What: unload_text_encoder is true and cache_text_embeddings is not.
    Why: The trainer then encodes one prompt, the trigger word or nothing, and uses it for every image.
    Repair: cache_text_embeddings: true frees the same memory and keeps the captions.
    Signature: This will train only with a blank prompt or trigger word, if set
    """
    recipe = run.recipe
    if recipe.unload_text_encoder and not recipe.cache_text_embeddings:
        message = "unload_text_encoder is on without cache_text_embeddings: every image is trained with "
        message += "the prompt {prompt!r}" if recipe.trigger_word else "an empty prompt"
        yield found(
            run.where("unload_text_encoder"),
            message + ", and the captions are ignored.",
            otherwise="The LoRA learns nothing from the captions.",
            evidence={"pointer": run.pointer("unload_text_encoder")},
            prompt=recipe.trigger_word,
        )


@rule("TRN015", "warning", "learning-rate-far-too-large", trainers=(EVERY,))
def learning_rate_far_too_large(run: Run) -> Iterator[Finding]:
    """A LoRA at a learning rate of 0.1 or more.

    What: The learning rate is at least 0.1, and the optimizer is AdamW, Adam or Lion, in whatever bits.
    Why: Their steps are about as long as the learning rate, whatever the gradient is, and the weights of a LoRA are
    smaller than that: the first step throws the model off, and what it knew is hardly found again. Rates about 1
    belong to optimizers that find their own, as Prodigy.
    Repair: 1e-4 is usual for a LoRA.
    """
    rate, name = run.recipe.learning_rate, run.recipe.optimizer.name
    if run.kind != "lora" or not _STEPS_AS_LONG.search(name.lower()):
        raise NotApplicable
    if isinstance(rate, int | float) and rate >= _FAR_TOO_LARGE:
        yield found(
            run.where("learning_rate"),
            "{key} {rate}: {optimizer} moves every weight by about that much in each step. 0.0001 is usual.",
            otherwise="The first step throws the model off, and what it knew is hardly found again.",
            key=run.keys.get("learning_rate", "learning_rate").rpartition("/")[2],
            rate=f"{rate:g}",
            optimizer=name,
        )
