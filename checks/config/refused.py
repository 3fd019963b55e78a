"""The part of CFG004 about trainers whose parser names the values that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Schema
from ...doctor.trainers import trainer_of
from ..keys.misspelled import meant
from ..keys.values import bad, unset

_START = "at the start, before anything is loaded"
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


def refused(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """Values that are none of those the trainer's parser lists."""
    words = trainer_of(run.trainer).becomes_command_line
    for key, written in run.settings.items():
        parent, _, name = key.rpartition("/")
        known = schema.key(re.sub(r"/\d+(?=/|$)", "/*", key), run.process_type)
        if parent or known is None or not known.strict or known.kind == "bool":
            continue
        value = written.value
        if unset(config, run, key):
            continue
        if not isinstance(value, str) or value in known.choices or value in _NORMALISED.get(name, ()):
            continue
        if words and (
            value.strip().lower() in ("", "true", "false")
            or (name == "model_family" and _family(value) in known.choices)
        ):
            continue
        parsed = words or config.file(written.where.path).format == "shell"
        if not parsed and name in _ONLY_WITH and not run.setting(_ONLY_WITH[name]):
            continue
        certain, likely = meant(value, known.choices)
        if words and name.endswith("_precision"):
            likely = _GUIDES.get(value, likely)
        why = "{key} is {value!r}, which {trainer} does not know."
        if certain is None:
            why += " It knows {known}."
        yield bad(
            run,
            key,
            why,
            _START if parsed else _LATER,
            new=certain,
            likely=likely,
            known=", ".join(known.choices),
            trainer=schema.trainer,
        )


def _family(value: str) -> str:
    return value.strip().lower()
