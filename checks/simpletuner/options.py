"""Options by themselves: numbers that are none, values that never arrive, and those that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...doctor.model import Config, Finding, Run, Schema, Severity, found
from ...doctor.rules import prevents, rule
from ...doctor.trainers.simpletuner.names import JSON_OPTIONS, OPTIMIZERS, REMOVED_OPTIMIZERS
from ...doctor.trainers.simpletuner.options import options_of
from ...doctor.trainers.simpletuner.run import flavours_of
from ..keys.misspelled import meant, words
from ..keys.values import START, bad, is_spelt, whole
from .lycoris import of_lycoris

TRAINER = ("SimpleTuner",)
_WHOLE = words("""
    max_train_steps num_train_epochs train_batch_size gradient_accumulation_steps lora_rank checkpoint_step_interval
    checkpoints_total_limit lr_warmup_steps vae_batch_size validation_step_interval validation_num_inference_steps
    seed
    """)
_NUMBERS = words("learning_rate max_grad_norm caption_dropout_probability validation_guidance flow_schedule_shift")
_ASKED = {"bool": "true or false", "float": "a number", "int": "a whole number, without a point or exponent"}
_SWITCHES = words("1 true yes y on 0 false no n off")
_MANUAL = ("sdnq", "fp8-native", "fp8-transformerengine")
SHRUNK_TO_NOTHING = "target_downsample_size does not say to which size a larger picture is shrunk."


def arriving(run: Run, name: str) -> Any:
    """What of a written option reaches the trainer's parser; None when it is not written or dropped."""
    return options_of(run).arrived(name)


def on(run: Run, name: str) -> bool:
    return options_of(run).flag(name)


def text(run: Run, name: str, default: str = "") -> str:
    return options_of(run).text(name, default=default)


def number(run: Run, name: str, default: float = 0.0) -> float:
    return options_of(run).number(name, default=default)


@rule("SIM001", "warning", "lost-setting", trainers=TRAINER)
def lost_setting(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """A value that never reaches the trainer.

    What: SimpleTuner turns a config into a command line. The text "false" is left out on the way, a mapping is kept
    for a few options only, and a list becomes one flag for each entry, of which the last one counts. Of the variables
    in a config.env only those count that the trainer has a name for, and a comment behind a value belongs to it; in
    versions without configuration/env_file.py a shell leaves it out.
    Why: No message says so. "gradient_checkpointing": "false" leaves it on, for on is the default; a
    quantization_config written as a mapping quantizes nothing.
    Repair: Write false without quotes. In a config.env, options without a variable go into TRAINER_EXTRA_ARGS.
    Upstream: SimpleTuner simpletuner/helpers/configuration/cli_utils.py mapping_to_cli_args, env_file.py
    Signature: None; the run trains with the default.
    """
    yield from _unmapped(config, run, schema)
    for name, written in run.settings.items():
        known, value = schema.key(name), written.value
        if "/" in name or known is None:
            continue
        lost, kept = partial(bad, run, name, severity="warning"), name in JSON_OPTIONS
        if isinstance(value, str) and known.kind == "bool" and known.default is True:
            quoted = written.style in ('"', "'") and not run.config.endswith(".env")
            why = '{key} is the text "false", which the trainer leaves out: {key} stays on, as is its default.'
            if value.strip().lower() == "false":
                yield lost(why, f"it trains with {name} on", new=False if quoted else None)
        elif isinstance(value, dict) and value and not kept and known.kind != "dict":
            why = "{key} is a mapping, which the trainer leaves out. Name a JSON file that holds it."
            yield lost(why, "it trains as if the option were absent")
        elif isinstance(value, list) and len(value) > 1 and not kept and known.kind not in ("dict", "list"):
            why = "{key} is a list, of which the trainer takes only the last entry, {last!r}."
            yield lost(why, "the other entries are lost", last=value[-1])


def _unmapped(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """Variables that are named like an option and that the trainer does not look at, and those with a comment."""
    taken = {written.where.pointer for written in run.settings.values()}
    for pointer, value in config.values.items() if config.format == "env" else ():
        option = pointer[1:].lower()
        behind = re.search(r"(?<=\s)#.*", str(value.value)) if pointer in taken and value.style == "" else None
        if behind is not None:
            yield found(
                value.where,
                "{key} ends in {comment!r}. A trainer that reads the file itself, as it does since it has "
                "configuration/env_file.py, takes it for a part of the value; an older one leaves it to a shell, "
                "which drops it. Write it into a line of its own.",
                otherwise="{key} is {value!r}.",
                evidence={"key": pointer[1:], "value": value.value},
                comment=behind.group(),
            )
        if pointer not in taken and value.value != "" and "/" not in option and schema.key(option) is not None:
            yield found(
                value.where,
                "{key} is no variable that the trainer looks at. Add --{option}={value} to TRAINER_EXTRA_ARGS.",
                otherwise="No message says so: it trains with the default of {option}.",
                evidence={"key": pointer[1:], "value": value.value},
                option=option,
            )


@rule("SIM002", "error", "epochs-and-steps", trainers=TRAINER)
@prevents("ValueError", r"When using --max_train_steps .*you must set --num_train_epochs")
def epochs_and_steps(run: Run) -> Iterator[Finding]:
    """Steps and epochs are both set.

    What: max_train_steps is above 0, and so is num_train_epochs, whose default is 1.
    Why: The trainer takes one of them and refuses both, also when the epochs are only its own default.
    Repair: num_train_epochs: 0, where it is not written. Where both are, it is for you to say which one counts.
    Upstream: SimpleTuner simpletuner/helpers/configuration/cmd_args.py
    Signature: ValueError: When using --max_train_steps (MAX_NUM_STEPS), you must set --num_train_epochs (NUM_EPOCHS)
    to 0.
    """
    if run.root == "/config":  # the web interface's own file: it fills in what is missing
        return
    steps, epochs = number(run, "max_train_steps"), number(run, "num_train_epochs", 1.0)
    if steps <= 0 or epochs <= 0:
        return
    key = "num_train_epochs"
    written = arriving(run, key) is not None
    excerpt = not written and not (run.setting("data_backend_config") or run.setting("output_dir"))
    yield found(
        run.where(key if written else "max_train_steps"),
        "max_train_steps is {steps:g} and num_train_epochs is {epochs:g}: the trainer takes only one of them."
        if written
        else "max_train_steps is {steps:g}, and num_train_epochs is not written: its default is 1, and the trainer "
        "takes only one of them. Write num_train_epochs: 0.",
        otherwise="The trainer stops at the start, before anything is loaded"
        + (", unless this is a part of a config." if excerpt else "."),
        evidence={"key": key, "pointer": run.pointer(key), "likely" if written else "new": 0},
        severity="warning" if excerpt else None,
        steps=steps,
        epochs=epochs,
    )


@rule("SIM003", "error", "refused-options", trainers=TRAINER)
@prevents("ValueError", r"Model is not using bf16 precision, but the optimizer \S+ requires it")
@prevents("ValueError", r"quantize_via=pipeline cannot be combined with")
@prevents("ValueError", r"quantization_config is only supported for LoRA training")
@prevents("ValueError", r"You cannot use --mixed_precision=fp8 (with a quantized base model|without a CUDA device)")
@prevents("ValueError", r"--ramtorch cannot be used together with --enable_group_offload")
@prevents("ValueError", r"Cannot enable FSDP when a DeepSpeed configuration is also provided")
@prevents("ValueError", r"When providing --maximum_image_size, you must also provide")
@prevents("ValueError", r"When using --resolution_type=(area|pixel), --\w+ must be")
@prevents("ValueError", r"Cannot enable Quanto and TorchAO together")
@prevents("AssertionError", r"lycoris_config JSON must contain")
@prevents("ValueError", r"Model flavour \S+ not found in")
@prevents("ValueError", r"Optimizer \S+ not found\.|optimiser has been removed|AdamW8Bit has been removed")
def refused_options(run: Run, schema: Schema) -> Iterator[Finding]:
    """Options that the trainer refuses, alone or together.

    What: A number or a switch that is none, an optimizer or a model_flavour that there is not, a quantization that
    needs another way of loading, DeepSpeed for a LoRA, two ways of offloading at once, a maximum size without the
    size to shrink to, a lycoris_config by which LyCORIS finds no module, and the like.
    Why: Some of it is refused at the start, some only after the accelerator was set up.
    Repair: The message says which option has to change.
    Upstream: SimpleTuner simpletuner/helpers/configuration/cmd_args.py, helpers/training/default_settings/
    safety_check.py, helpers/training/error_handling.py
    Signature: ValueError with the same words, or the log's last line is an error and the process ends with code 1.
    """
    yield from _numbers(run, schema)
    yield from _optimizer(run)
    yield from _flavour(run)
    yield from _quantization(run)
    yield from _offloading(run)
    yield from _sizes(run)
    yield from _adapters(run)


def _numbers(run: Run, schema: Schema) -> Iterator[Finding]:
    """Numbers and switches that argparse cannot read. Of most whole numbers the schema does not know the kind."""
    kinds = {name: known.kind for name in run.settings if (known := schema.key(name)) is not None}
    kinds |= {**dict.fromkeys(_WHOLE, "int"), **dict.fromkeys(_NUMBERS, "float")}
    for name, asked in sorted(kinds.items()):
        value = arriving(run, name)
        if value is None or isinstance(value, list | dict) or asked not in _ASKED:
            continue
        spelt = (
            str(value).lower() in _SWITCHES
            if asked == "bool"
            else not isinstance(value, bool) and is_spelt(str(value), float if asked == "float" else int)
        )
        if spelt or name == "validation_prompt_library":  # or the path of one
            continue
        of_shell = run.config.endswith(".env")
        if of_shell and re.search(r"\s#", str(value)):  # SIM001 says it; older versions leave it out
            continue
        kind = _ASKED[asked]
        new = whole(value) if isinstance(value, float) else None
        # older versions let a shell read the file
        severity: Severity | None = "warning" if of_shell and "$" in str(value) and not schema.source else None
        why, when = "{key} is {value!r}, but the trainer takes {kind}.", START
        yield bad(run, name, why, when, new=new, severity=severity, kind=kind)
    if number(run, "gradient_accumulation_steps", 1) < 1:
        yield bad(run, "gradient_accumulation_steps", "{key} is {value}; it must be at least 1.", START, new=1)


def _optimizer(run: Run) -> Iterator[Finding]:
    """A name that the trainer does not have; it asks for none before the options are all read."""
    name = arriving(run, "optimizer")
    if name is None or name in OPTIMIZERS:
        return
    certain, near = meant(name, OPTIMIZERS)
    of_packages = (f"{package}-{str(name).lower()}" for package in ("torch", "bnb", "optimi", "ao"))
    likely = next((one for one in of_packages if one in OPTIMIZERS), near)
    why = "{key} is {value!r}, which the trainer does not know." + ("" if likely else " It knows {known}.")
    unsure = name not in REMOVED_OPTIMIZERS
    known = ", ".join(sorted(OPTIMIZERS))
    yield bad(run, "optimizer", why, START, new=certain, likely=likely, unsure=unsure, known=known)


def _flavour(run: Run) -> Iterator[Finding]:
    """A flavour names the model where no path does; with a path the trainer does not look it up."""
    name, known = arriving(run, "model_flavour"), flavours_of(text(run, "model_family").lower())
    if name is None or not known or name in known or arriving(run, "pretrained_model_name_or_path"):
        return
    certain, likely = meant(name, known)
    why = "{key} is {value!r}, which {family} does not have. It has {known}."
    family, words = text(run, "model_family"), ", ".join(sorted(known))
    yield bad(
        run,
        "model_flavour",
        why,
        "before the models are loaded",
        likely=certain or likely,
        unsure=certain is None,
        family=family,
        known=words,
    )


def _quantization(run: Run) -> Iterator[Finding]:
    precision = text(run, "base_model_precision", "no_change")
    forced = on(run, "controlnet") or on(run, "i_know_what_i_am_doing")
    if precision != "no_change" and run.kind != "lora" and not forced:
        why = "{key} is {value}, but only a LoRA is trained on a quantized model (model_type is {kind})."
        yield bad(run, "base_model_precision", why, "when the accelerator is set up", kind=run.process_type)
    if precision not in ("no_change", "fp8-torchao") and text(run, "mixed_precision") == "fp8":
        why = "{key} is fp8, which excludes base_model_precision: {precision}. Use bf16."
        yield bad(run, "mixed_precision", why, START, new="bf16", precision=precision)
    if text(run, "quantize_via") == "pipeline" and any(mark in precision for mark in _MANUAL):
        why = "{key} is pipeline, which cannot make {precision}: only cpu and accelerator can."
        yield bad(run, "quantize_via", why, START, likely="accelerator", precision=precision)
    yield from _engines(run, precision)
    if text(run, "quantization_config") and run.kind != "lora":
        yield bad(run, "quantization_config", "{key} is for LoRA training only.", START)
    if on(run, "fsdp_enable") and text(run, "fsdp_version", "2") == "2" and "quanto" in precision:
        why = "{key} shards the model in a way that Quanto's weights ({precision}) do not take part in."
        yield bad(run, "fsdp_enable", why, START, precision=precision)


def _engines(run: Run, precision: str) -> Iterator[Finding]:
    """The model and its text encoders have to be quantized by kinds that go together."""
    own = any(mark in precision for mark in _MANUAL)
    first = next((e for e in ("quanto", "torchao") if e in precision and text(run, "quantize_via") != "pipeline"), "")
    for name in (f"text_encoder_{number}_precision" for number in range(1, 5)):
        of_text = text(run, name, "no_change")
        if precision != "no_change" and not own and any(mark in of_text for mark in _MANUAL):
            why = "{key} is {value}, which does not go with base_model_precision: {precision}."
            yield bad(run, name, why, START, likely=precision, precision=precision)
            continue
        engine = next((engine for engine in ("quanto", "torchao") if engine in of_text), "")
        if first and engine and engine != first:
            why = "{key} is {value}, but the run already quantizes with {first}: the trainer takes one of the two."
            yield bad(run, name, why, "before the models are loaded", first=first)
        first = first or engine


def _offloading(run: Run) -> Iterator[Finding]:
    if arriving(run, "deepspeed_config") and run.kind == "lora":
        why = "{key} is set, but the trainer trains no LoRA with DeepSpeed."
        yield bad(run, "deepspeed_config", why, "when the accelerator is set up")
    if arriving(run, "deepspeed_config") and on(run, "fsdp_enable"):
        yield bad(run, "fsdp_enable", "{key} and deepspeed_config exclude each other.", START)
    if on(run, "ramtorch"):
        if on(run, "enable_group_offload"):
            yield bad(run, "enable_group_offload", "{key} and ramtorch exclude each other.", START)
        if number(run, "musubi_blocks_to_swap") > 0:
            why = "{key} and ramtorch exclude each other."
            yield bad(run, "musubi_blocks_to_swap", why, "when the accelerator is set up")


def _sizes(run: Run) -> Iterator[Finding]:
    largest, shrunk = number(run, "maximum_image_size"), number(run, "target_downsample_size")
    kind = text(run, "resolution_type", "pixel_area")
    if arriving(run, "maximum_image_size") is not None and not shrunk:
        yield bad(run, "maximum_image_size", "{key} is set, but " + SHRUNK_TO_NOTHING, START)
    for name, size in (("maximum_image_size", largest), ("target_downsample_size", shrunk)):
        if arriving(run, name) is not None and (why := of_another_unit(kind, size, is_large=size > 5)):
            yield bad(run, name, why, START)


def of_another_unit(kind: str, size: float, *, is_large: bool) -> str:
    """What is wrong with a size that is too large for megapixels, or of too few pixels to be meant so."""
    if kind == "area" and is_large:
        return "{key} is {value}, but with resolution_type: area it counts megapixels."
    if kind == "pixel" and size < 512:
        return "{key} is {value}, but with resolution_type: pixel it counts pixels, 512 or more."
    return ""


def _adapters(run: Run) -> Iterator[Finding]:
    if run.kind == "lora" and text(run, "lora_type", "standard").lower() == "lycoris":
        yield from of_lycoris(run)
        if on(run, "train_text_encoder"):
            why = "{key} is on, but with lora_type: lycoris the text encoder cannot be trained."
            yield bad(run, "train_text_encoder", why, "when the accelerator is set up")
    fast = on(run, "flux_fast_schedule") or on(run, "i_know_what_i_am_doing")
    if run.recipe.architecture == "flux" and text(run, "model_flavour") == "schnell" and not fast:
        why = "{key} is schnell, which is trained with flux_fast_schedule: true only."
        yield bad(run, "model_flavour", why, "before the model is loaded")
