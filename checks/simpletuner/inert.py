"""Options that change nothing, meet only in the first step, or are not what their names say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import cos, pi

from ...doctor.families import family_of
from ...doctor.model import Config, Finding, Run, found
from ...doctor.rules import NotApplicable, prevents, rule
from ..keys.values import without_effect
from ..training import UNDISTILLED
from .options import TRAINER, arriving, number, on, text

# Their default, and what does the same without DeepSpeed.
_DEEPSPEED = {
    "adam_beta1": (0.9, "optimizer_beta1, together with optimizer_beta2,"),
    "adam_beta2": (0.999, "optimizer_beta2, together with optimizer_beta1,"),
    "adam_weight_decay": (0.01, "optimizer_config: weight_decay=…"),
    "adam_epsilon": (1e-8, "optimizer_config: eps=…"),
}
_HALF_PERIOD = 1000  # of cosine without lr_warmup_steps


@rule("SIM004", "note", "inert-option", trainers=TRAINER)
def inert_option(config: Config, run: Run) -> Iterator[Finding]:
    """An option that has no effect beside the others.

    What: group_offload_use_stream while gradient checkpointing is on, which it is unless it is switched off;
    group_offload_vae and group_offload_text_encoder; use_dora on a model that Quanto quantized; LoftQ on a quantized
    model; adam_beta1, adam_beta2, adam_weight_decay and adam_epsilon without DeepSpeed; learning_rate with prodigy.
    Why: The flags stand in guides as one bundle. The trainer switches the streams off because recomputed layers come
    in another order than they were fetched in, and leaves the VAE and the text encoders out of the offloading always.
    Its optimizers have settings of their own, which optimizer_config changes; those of prodigy hold a learning rate.
    Repair: Nothing has to change.
    Upstream: SimpleTuner simpletuner/helpers/models/common.py configure_group_offload, helpers/utils/offloading.py,
    helpers/training/optimizer_param.py
    Signature: Disabling group offload streams because gradient checkpointing replays layers during backward
    """
    inert = partial(without_effect, config, run)
    precision = text(run, "base_model_precision", "no_change")
    if on(run, "group_offload_use_stream") and run.recipe.offload.gradient_checkpointing:
        yield inert("group_offload_use_stream", "the trainer switches it off while gradient_checkpointing is on")
    for name in ("group_offload_vae", "group_offload_text_encoder"):
        if on(run, name):
            yield inert(name, "the trainer never offloads that part in groups")
    if on(run, "use_dora") and "quanto" in precision:
        yield inert("use_dora", "the trainer switches it off for a model that Quanto quantized")
    if text(run, "lora_init_type") == "loftq" and precision != "no_change":
        yield inert("lora_init_type", "LoftQ is replaced by the default for a quantized model")
    for name, (default, instead) in _DEEPSPEED.items() if not arriving(run, "deepspeed_config") else ():
        if arriving(run, name) is not None and number(run, name) != default:
            yield inert(name, "only DeepSpeed looks at it. {instead} does what it says", instead=instead)
    if text(run, "optimizer") == "prodigy" and number(run, "learning_rate", 1.0) != 1:
        yield inert("learning_rate", "the trainer makes prodigy with a rate of 1")


@rule("SIM005", "warning", "group-offload-with-quanto", trainers=TRAINER)
@prevents("RuntimeError", r"Expected all tensors to be on the same device")
def group_offload_with_quanto(run: Run) -> Iterator[Finding]:
    """Group offloading of a model that Quanto quantized.

    What: enable_group_offload is on, and base_model_precision is one of Quanto's.
    Why: The trainer's guides say that the two do not go together, and no code asks. Weights then lie on another
    device than their inputs in the first step, after everything was loaded, quantized and cached.
    Repair: A precision of TorchAO or SDNQ (int8-torchao, int8-sdnq), or no group offloading.
    Upstream: https://github.com/bghira/SimpleTuner/issues/2175 https://github.com/huggingface/diffusers/issues/12610
    Signature: RuntimeError: Expected all tensors to be on the same device
    """
    precision = text(run, "base_model_precision", "no_change")
    if on(run, "enable_group_offload") and "quanto" in precision:
        yield found(
            run.where("enable_group_offload"),
            "enable_group_offload is on, and base_model_precision is {precision}: the trainer's guides say that the "
            "two do not go together, and nothing in the trainer asks.",
            otherwise="Such runs end in the first step, after everything was loaded: tensors on different devices.",
            evidence={"precision": precision},
        )


@rule("SIM008", "warning", "turbo-as-another-flavour", trainers=TRAINER)
def turbo_as_another_flavour(run: Run) -> Iterator[Finding]:
    """Z-Image-Turbo trained without its training adapter.

    What: The checkpoint is Z-Image-Turbo, but model_flavour is not one of turbo's, or disable_assistant_lora is on.
    Why: SimpleTuner fetches the adapter by the flavour, not by the checkpoint. Without it the training undoes the
    distillation: after a while images at 8 steps fall apart.
    Repair: model_flavour: turbo-ostris-v2 (or turbo), without disable_assistant_lora.
    Upstream: SimpleTuner simpletuner/helpers/models/z_image/model.py
    Signature: None; samples at 8 steps become blurred as the training goes on.
    """
    recipe = run.recipe
    distilled = family_of(recipe.architecture).distilled
    if distilled is None or run.kind != "lora" or recipe.adapter is not None:
        raise NotApplicable
    if not distilled.is_meant(text(run, "pretrained_model_name_or_path"), recipe.variant):
        return
    off = on(run, "disable_assistant_lora")
    yield found(
        run.where("disable_assistant_lora" if off else "variant"),
        "disable_assistant_lora is on, so a distilled model is trained without its training adapter."
        if off
        else "{model} is a distilled model, but model_flavour is {flavour!r}: the training adapter is fetched for "
        "the flavours turbo and turbo-ostris-v2 only.",
        otherwise=UNDISTILLED,
        evidence={"key": "model_flavour", "pointer": run.pointer("variant")} | ({} if off else {"likely": "turbo"}),
        model=recipe.base_model,
        flavour=text(run, "model_flavour"),
    )


@rule("SIM011", "note", "learning-rate-that-swings", trainers=TRAINER)
def learning_rate_that_swings(run: Run) -> Iterator[Finding]:
    """A cosine schedule that does not end with the run.

    What: lr_scheduler is cosine, and lr_warmup_steps (1000 where it is not written) is not max_train_steps; or it is
    cosine_with_restarts.
    Why: SimpleTuner has its own cosine. It begins at the learning rate without a warm-up, falls to lr_end in
    lr_warmup_steps steps, rises again in as many, and so on. With a short warm-up the rate swings all through the
    run; with none it has not come down when a run of a few hundred steps ends. cosine_with_restarts stays at the
    learning rate.
    Repair: lr_scheduler: polynomial, which has the warm-up and falls to lr_end at the last step, or as many
    lr_warmup_steps as max_train_steps.
    Upstream: SimpleTuner simpletuner/helpers/training/custom_schedule.py get_lr_scheduler, Cosine (bc8e6ab7)
    Signature: Cosine learning rate expects to use warmup steps as its interval
    """
    name, steps = text(run, "lr_scheduler"), run.recipe.steps
    if name == "cosine_with_restarts":
        yield found(
            run.where("scheduler"),
            "lr_scheduler is cosine_with_restarts, which in SimpleTuner stays at the learning rate. The schedule "
            "polynomial falls to lr_end.",
            otherwise="Every step has the whole learning rate.",
            evidence={"value": name},
        )
    if name != "cosine" or steps < 1:
        return
    written = int(number(run, "lr_warmup_steps"))
    half = written if written > 0 else _HALF_PERIOD
    if half == steps:
        return
    rate, end = run.recipe.learning_rate, number(run, "lr_end", 4e-7)
    last = end + (rate - end) * (1 + cos(pi * (steps - 1) / half)) / 2
    yield found(
        run.where("scheduler"),
        "lr_scheduler is cosine: SimpleTuner's falls from learning_rate to lr_end in {half} steps (lr_warmup_steps) "
        "and rises again. The schedule polynomial falls to the end of the run."
        if half < steps
        else "lr_scheduler is cosine: SimpleTuner's falls to lr_end in {half} steps (lr_warmup_steps, or 1000), and "
        "the run has {steps}. The schedule polynomial falls to the end of the run.",
        otherwise="The last of {steps} steps has a rate of {last:.2g} (computed), of {rate:.2g} at the first.",
        evidence={"half_period": half, "last": last},
        half=half,
        steps=steps,
        rate=rate,
    )
