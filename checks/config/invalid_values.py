"""CFG004: values that the trainer refuses, late, or replaces without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Schema
from ...doctor.rules import prevents, rule
from ...doctor.trainers import trainer_of
from ..ai_toolkit.value_words import invalid, unread_by_runner
from ..keys.misspelled import meant
from ..keys.values import START, bad

# a TOML file goes past the parser, which then looks at no choices
_LATER = "when the setting is used, if at all"
# spellings that SimpleTuner puts right before its parser sees them
_NORMALISED = {"lr_scheduler": frozenset(("cosine_with_warmup",))}
# what SimpleTuner's guides write (documentation/quickstart/ZIMAGE.md), and what their own recipes use
_GUIDES = {"int8": "int8-torchao", "nf4": "nf4-bnb"}
# what sd-scripts looks at only when something else is on
_ONLY_WITH = {
    "dynamo_backend": "torch_compile",
    "zero_stage": "deepspeed",
    "offload_optimizer_device": "deepspeed",
    "offload_param_device": "deepspeed",
}


@rule("CFG004", "error", "invalid-value")
@prevents("ArgumentError", r"invalid choice: |invalid \w+ value: |following arguments are required")
@prevents("ValueError", r"Unknown optimizer type |Scheduler must be cosine, |Invalid timestep type: ")
@prevents("ValueError", r"Unknown content_or_style |Unknown job type |Unknown process type: |invalid dataset type: ")
@prevents("ValueError", r"name_or_path must be specified|poi is deprecated and is no longer supported")
@prevents("ValueError", r"Cannot use accuracy recovery adapter and assistant lora at the same time")
@prevents("ValueError", r"Cannot unload text encoder if training text encoder")
@prevents("ValueError", r"gradient_accumulation and gradient_accumulation_steps are mutually exclusive")
@prevents("ValueError", r"There are not any lora modules in this network")
@prevents("ValueError", r"Pipeline <class \S*StableDiffusion\w*Pipeline'?> expected .*, but only .* were passed")
@prevents("ValueError", r"Control image is required for Flux Kontext model generation")
@prevents("TypeError", r"__init__\(\) got an unexpected keyword argument 'total_iters'")
@prevents("TypeError", r"can't multiply sequence by non-int of type 'float'")
@prevents("TypeError", r"'<=' not supported between instances of 'float' and 'str'")
def invalid_value(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """A value that the trainer refuses or replaces.

    What: A spelling that the trainer does not know, a number in quotes or left empty, two settings that exclude each
    other, or a required setting that is missing.
    Why: ai-toolkit looks at most values only when it needs them: an unknown optimizer after the model was loaded
    and quantized, an unknown timestep_type at the first step, after minutes to hours. Some it replaces silently:
    an unknown loss_type is mse, an unknown arch is Stable Diffusion 1. SimpleTuner, sd-scripts and musubi-tuner let
    argparse refuse what is none of an option's choices, at the start; a TOML config file goes past it, and such a
    word may then do nothing.
    `zdoctor train` says by itself which words it does not know, and takes some that ai-toolkit stops on.
    Repair: A misspelt value with one near spelling is corrected, a quoted number loses its quotes. The trainer would
    have refused the old value, so no training changes.
    Upstream: toolkit/optimizer.py, toolkit/scheduler.py, toolkit/config_modules.py, toolkit/util/quantize.py
    (ai-toolkit); the parsers of the others
    Signature: ValueError: Unknown optimizer type; KeyError: 'nf4'; ValueError: Invalid timestep type;
    TypeError: StepLR.__init__() got an unexpected keyword argument 'total_iters'; name_or_path must be specified;
    ValueError: Control image is required for Flux Kontext model generation
    """
    if run.by_runner:
        yield from unread_by_runner(run, schema)
    elif trainer_of(run.trainer).has_processes:
        yield from invalid(run, schema)
    else:
        yield from _refused(config, run, schema)


def _refused(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """Values that are none of those the trainer's parser lists."""
    words = trainer_of(run.trainer).becomes_command_line
    for name, written in run.settings.items():
        value, known = written.value, schema.key(name, run.process_type) if "/" not in name else None
        if known is None or not known.strict or known.kind == "bool" or not isinstance(value, str):
            continue
        if value in known.choices or value in _NORMALISED.get(name, ()):
            continue
        if config.format == "env" and re.search(r"\s#", value):  # SIM001 says it; older versions leave it out
            continue
        plain = value.strip().lower()
        if words and (plain in ("", "true", "false") or (name == "model_family" and plain in known.choices)):
            continue
        parsed = words or config.file(written.where.path).format == "shell"
        if not parsed and name in _ONLY_WITH and not run.setting(_ONLY_WITH[name]):
            continue
        certain, likely = meant(value, known.choices)
        if words and name.endswith("_precision"):
            likely = _GUIDES.get(value, likely)
        yield bad(
            run,
            name,
            "{key} is {value!r}, which {trainer} does not know." + ("" if certain else " It knows {known}."),
            START if parsed else _LATER,
            severity=None if parsed else "warning",
            new=certain,
            likely=likely,
            unsure=not schema.source,
            known=", ".join(known.choices),
            trainer=schema.trainer,
        )
