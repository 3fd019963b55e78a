"""kohya's trainers, sd-scripts and musubi-tuner: what they are told on a command line or in a config file."""

from __future__ import annotations

from typing import Any

from ...doctor.model import Config, Finding, Run, Severity, found
from ...doctor.trainers.kohya.read import settings_of_datasets
from ...doctor.trainers.kohya.starts import options_of

TRAINERS = ("sd-scripts", "musubi-tuner")
DATA = "before anything is loaded, but after the datasets were read"
# of a config file alone: a command line may give what it leaves out
ELSEWHERE = " The command line may give it: check that, and this file is read with it."


def number(run: Run, key: str) -> float:
    return options_of(run).number(key)


def on(run: Run, key: str) -> bool:
    """Whether a flag is set: any text counts as true."""
    return options_of(run).flag(key)


def anywhere(run: Run, name: str) -> str | None:
    """The first place that counts and where a dataset setting is on.

    A subset's own value goes before its dataset's, that before the general section's, and all before an option's.
    """
    is_on = (
        own.key(name)
        for own in settings_of_datasets(run)
        if own.arrived(name) not in (None, False, 0, "0", "", "0.0")
    )
    return next(is_on, None)


def refused(run: Run, key: str, message: str, when: str, *, severity: Severity | None = None, **args: Any) -> Finding:
    """A setting that the trainer asserts; `when` ends "The trainer stops"."""
    evidence = {"key": key, "when": when}
    otherwise = "The trainer stops {when}."
    return found(run.where(key), message, otherwise=otherwise, evidence=evidence, severity=severity, **args)


def left_to_the_command_line(config: Config, run: Run, *options: str) -> bool:
    """Whether a file of options writes none of these, which the command line beside it may give."""
    return config.format == "toml" and all(run.setting(option) is None for option in options)


def trains(run: Run) -> bool:
    """Whether the run is a training, not a file of datasets alone."""
    return run.process_type != "datasets"
