"""Reading a trainer's config: bytes in, records out. Nothing here opens a file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..configs.reading import Beside, Found, Reading, begins_as_named, failed, nobodys, nothing, text_of
from ..model import Config, Problem, Run, Where
from ..model.pattern import pattern
from ..model.record import replace
from ..model.script import SCRIPT
from ..model.trainer import Trainer
from ..model.unfinished import ABRIDGED, ABRIDGED_FILE, PART
from . import loaded, named, names, trainers

__all__ = ["Beside", "Found", "Reading", "read_config"]


def read_config(
    path: str,
    data: bytes,
    environment: Mapping[str, str],
    *,
    trainer: str | None = None,
    beside: Beside = nothing,
    whole: bool = False,
) -> Reading:
    """Read a config file's bytes as the trainer would; never raises for what is in them.

    Whose config it is shows in its keys, unless `trainer` says so. `environment` holds the variables that the trainer
    would see, `beside` finds the files that the config names. `whole` says that it is about to be run as it stands.
    What the trainer's own reader would refuse is `config.problem`; then there are no runs.
    """
    config = text_of(path, data)
    if config.format == "python":
        return _script(replace(config, trainer=SCRIPT))
    its_own = recognise(config.text, config.format)
    known = its_own if trainer is None else named(trainer)
    if known is not None:
        config = replace(config, trainer=known.name)
    if config.problem is not None:
        return failed(config, config.problem)
    first = trainers()[0]
    if its_own is first and known is not first:
        # no other trainer has its outermost keys, and each would pass over nearly all that is inside
        message = f"By its keys this is a config of {first.name}, and --trainer says {trainer}. Leave --trainer out."
        return failed(config, Problem(message, Where(path, 1, 1), "foreign"))
    # what is nobody's may be a config of the most used trainer with a slip in its outermost keys
    reading: Reading = loaded((known or first).reader).read(config, environment, beside)
    problem = reading.config.problem
    if trainer is None and problem is not None and problem.kind == "syntax" and not begins_as_named(config):
        problem = nobodys(config, "")
    if problem is None or problem.kind != "foreign":
        return reading if whole else replace(reading, runs=tuple(_in_part(run, config) for run in reading.runs))
    whose = f"If it is one of {', '.join(names())}, --trainer NAME says whose."
    made = reading.config if trainer is not None else replace(reading.config, trainer=None)
    return failed(made, replace(problem, message=f"{problem.message} {whose}"))


def _in_part(run: Run, config: Config) -> Run:
    """The run, which may have other settings where the text is not the whole of what its trainer is given."""
    told = named(run.trainer)
    if run.unread or told is None or run.kind == "other" or run.process_type == "datasets":
        return run
    if config.format != "shell" and ABRIDGED.search(config.text):
        return replace(run, unread=ABRIDGED_FILE)
    if config.format == "toml" and not told.becomes_command_line:
        return run  # the others stand in the command that names the file; each rule knows that
    written = {key.partition("/")[0] for key in run.settings}
    lacking = [group for group in told.told if written.isdisjoint(group)]
    finetune = run.kind == "finetune" and any("network_module" in group for group in lacking)
    return replace(run, unread=PART) if len(lacking) - finetune > 1 else run


def _script(config: Config) -> Reading:
    """A training script in the place of a config, which names no run: what it says is found in its syntax tree."""
    if config.problem is not None:
        return failed(config, config.problem)
    from ..configs.python_tree import Unparsable, parsed

    try:
        parsed(config.text)
    except Unparsable as error:
        return failed(config, Problem(str(error), Where(config.path, error.line or 1, error.column or 1)))
    return Reading(config, reason="a script is checked and probed, not trained by zdoctor")


_KEYS = {
    "json": pattern(r'"(?:--)?([\w.-]+)"[ \t\r\n]*:'),
    "yaml": pattern(r"^\ufeff?[\"']?([\w.-]+)[\"']?[ \t]*:", re.M),
    "toml": pattern(r"^\ufeff?[ \t]*(?:\[+[ \t]*)?[\"']?(?:--)?([\w-]+)[\"']?[ \t]*[=\]]", re.M),
    "shell": pattern(r"(?:--|[\s/\\\"'.])([A-Za-z]\w+)(?=\.py|[\s=\"']|$)"),
    "env": pattern(r"^\ufeff?[ \t]*(?:export[ \t]+)?(\w+)[ \t]*\+?=", re.M),
}

_CACHES = pattern(r"(cache_(?:latents|text_encoder_outputs))\.py")  # of whatever model


def recognise(text: str, format: str) -> Trainer | None:
    """The trainer whose config a text is, by its keys; also when it does not parse."""
    keys = {key.lower() for key in _KEYS[format].findall(text)}
    if format == "shell":
        keys.update(f"{made}.py" for made in _CACHES.findall(text))
    return next((trainer for trainer in trainers() if any(mark <= keys for mark in trainer.marks)), None)
